"""Goal: each transaction of a PostgreSQL table is in the table once, whatever dies; what cannot be told is
refused.

Method: a real server on loopback, `mainstem ingest` in processes of its own and in this one, kill -9 of both,
and the server's own rows, compared with the table.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.ingestion import postgres_table
from tests.servers import postgres
from tests.servers.postgres import PostgresDatabase

psycopg = pytest.importorskip("psycopg")
if reason := postgres.missing():
    pytest.skip(reason, allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresDatabase]:
    with PostgresDatabase("max_replication_slots = 40\nmax_wal_senders = 40") as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.nodeid)) % 10**12}"


def ingest(server, name, path, **options):
    given = {"buckets": 2, "every_s": 0.2, "once": True, **options}
    return mainstem.ingest(path, postgres=server.dsn, table=f"public.{name}", **given)


def theirs(server, query):
    with psycopg.connect(server.dsn) as connection:
        return sorted(connection.execute(query).fetchall())


def ours(path, *columns):
    rows = mainstem.open_table(path).scan(columns=list(columns)).to_arrow()
    return sorted(tuple(row.values()) for row in rows.to_pylist())


def slots(server):
    return theirs(server, "SELECT slot_name FROM pg_replication_slots")


@pytest.mark.supports("Writing", "Tables of PostgreSQL by logical decoding, exactly once")
def test_a_table_is_taken_by_its_snapshot_and_then_by_its_changes(server, name, tmp_path):
    path = tmp_path / "t"
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, city text, price numeric(10,2))",
        f"INSERT INTO {name} SELECT i, CASE WHEN i % 3 = 0 THEN '' WHEN i % 3 = 1 THEN E'a,\"b\"\\n' END, i"
        " / 4.0 FROM generate_series(1, 500) i",
    )
    assert ingest(server, name, path) == 500
    assert ours(path, "id", "city", "price") == theirs(server, f"SELECT * FROM {name}")
    server.run(
        f"UPDATE {name} SET city = 'new' WHERE id < 10",
        f"DELETE FROM {name} WHERE id = 5",
        f"UPDATE {name} SET id = 5000 WHERE id = 6",
        f"BEGIN; INSERT INTO {name} VALUES (600, 'x'); UPDATE {name} SET city = 'y' WHERE id = 600; DELETE"
        f" FROM {name} WHERE id = 7; INSERT INTO {name} VALUES (7, 'again'); COMMIT",
        f"BEGIN; INSERT INTO {name} VALUES (900, 'never'); ROLLBACK",
        f"ALTER TABLE {name} ADD COLUMN extra int",
        f"INSERT INTO {name} (id, extra) VALUES (700, 3)",
    )
    assert ingest(server, name, path) > 0
    assert ours(path, "id", "city", "price", "extra") == theirs(server, f"SELECT * FROM {name}")
    assert ingest(server, name, path) == 0


def until(server, query):
    end = time.monotonic() + 60
    while not theirs(server, query):
        assert time.monotonic() < end, query
        time.sleep(0.02)


def test_a_change_that_was_made_before_the_snapshot_and_committed_after_it_counts(server, name, tmp_path):
    path, told = tmp_path / "t", []
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, 1), (2, 1)"
    )
    slot = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION_SLOT%' AND state = 'active'"
    waits = f"{slot} AND wait_event = 'transactionid'"
    with psycopg.connect(server.dsn) as early, psycopg.connect(server.dsn) as middle:
        # The slot waits for those that began before it, then for those that began meanwhile; no others.
        number = early.execute("SELECT pg_current_xact_id()").fetchone()
        job = threading.Thread(target=lambda: told.append(ingest(server, name, path)))
        job.start()
        until(server, waits)
        with pytest.raises(psycopg.errors.LockNotAvailable):  # rewritten, it would seem empty
            server.run("SET lock_timeout = '50ms'", f"ALTER TABLE {name} ALTER COLUMN v TYPE bigint")
        middle.execute("SELECT pg_current_xact_id()")
        early.commit()
        locked = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND"
        until(server, f"{locked} transactionid::text <> '{number[0]}'")
        with psycopg.connect(server.dsn) as late:
            late.execute(f"UPDATE {name} SET v = 2 WHERE id = 1")
            middle.commit()
            job.join(60)
            assert told == [2] and ours(path, "id", "v") == [(1, 1), (2, 1)]
    assert ingest(server, name, path) == 1
    assert ours(path, "id", "v") == [(1, 2), (2, 1)]


@pytest.mark.nothing_lost
def test_server_and_processes_are_killed_and_the_table_is_as_the_server_has_it(name, tmp_path):
    path, chance = tmp_path / "t", random.Random(7)
    with PostgresDatabase() as own:
        own.run(
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int)",
            f"INSERT INTO {name} SELECT i, 0 FROM generate_series(0, 3000) i",
        )
        done = threading.Event()

        def working() -> None:
            count = 0
            while not done.is_set():
                try:
                    with psycopg.connect(own.dsn, autocommit=True, connect_timeout=2) as connection:
                        while not done.is_set():
                            count += 1
                            low = chance.randrange(3000)
                            connection.execute(
                                f"BEGIN; UPDATE {name} SET v = {count} WHERE id BETWEEN {low} AND {low + 20};"
                                f" DELETE FROM {name} WHERE id = {low + 25}; INSERT INTO {name} VALUES"
                                f" ({low + 25}, {count}); DELETE FROM {name} WHERE id = {low + 30}; COMMIT"
                            )
                            time.sleep(0.005)
                except psycopg.OperationalError:
                    time.sleep(0.1)

        def started() -> subprocess.Popen[bytes]:
            command = [
                sys.executable, "-m", "mainstem", "ingest", str(path), "--postgres", own.dsn, "--table",
                f"public.{name}", "--buckets", "2", "--every", "100ms", "--json",
            ]  # fmt: skip
            with open(f"{path}-{random.getrandbits(40)}.log", "w") as log:
                paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
                environment = {**os.environ, "PYTHONPATH": paths}
                return subprocess.Popen(command, env=environment, stdout=log, stderr=log)

        def taken() -> int:
            return len(list((path / ".hoodie/timeline").glob("*.deltacommit")))

        worker = threading.Thread(target=working)
        worker.start()
        processes = [started(), started()]
        try:
            for turn in range(3):
                before, end = taken(), time.monotonic() + 90
                while taken() < before + 3:
                    assert time.monotonic() < end, "nothing is committed"
                    assert [p.poll() for p in processes] == [None, None], "one ended by itself"
                    time.sleep(0.02)
                time.sleep(chance.uniform(0.0, 0.3))
                if turn == 1:
                    own.kill()
                    own.start()
                for at in (0, 1) if turn == 2 else (turn % 2,):
                    processes[at].kill()
                    processes[at].wait()
                    processes[at] = started()
        finally:
            done.set()
            worker.join()
            for process in processes:
                process.kill()
                process.wait()
        ingest(own, name, path)
        assert ours(path, "id", "v") == theirs(own, f"SELECT id, v FROM {name}")
        assert len(slots(own)) == 1


def test_a_transaction_larger_than_a_commit_is_one_commit(server, name, tmp_path):
    path, told = tmp_path / "t", []
    server.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, v text)")
    assert ingest(server, name, path) == 0
    server.run(
        f"INSERT INTO {name} VALUES (-1, 'before')",
        f"INSERT INTO {name} SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i",
        f"INSERT INTO {name} VALUES (-2, 'after')",
    )
    assert ingest(server, name, path, rows=3000, on_progress=told.append) == 20_002
    assert [p.rows for p in told] == [1, 20_000, 1]
    assert ours(path, "id", "v") == theirs(server, f"SELECT * FROM {name}")


def test_values_of_all_types_come_as_they_are(server, name, tmp_path):
    path = tmp_path / "t"
    columns = (
        "id uuid PRIMARY KEY, b bool, i2 int2, f4 float4, f8 float8, n numeric, n2 numeric(38,10), d date, ts"
        " timestamp, tz timestamptz, t time, iv interval, j jsonb, raw bytea, ints int[], texts text[], m"
        " mood, dom year, g int GENERATED ALWAYS AS (1) STORED"
    )
    server.run("CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE DOMAIN year AS numeric(4,0)")
    server.run(f"CREATE TABLE {name} ({columns})")
    row = (
        f"INSERT INTO {name} VALUES (gen_random_uuid(), true, -3, 'NaN', '-Infinity', 1e30, -1.5,"
        " '0001-01-01',"
        " '9999-12-31 23:59:59.999999', '2020-01-01 00:00:00.5+02', '12:00', '1 day', '{\"a\": [1]}',"
        " '\\x00ff',"
        " '{1,NULL,-3}', ARRAY['a,b', 'q\"\\', '', NULL, '{}'], 'ok', 2020)"
    )
    server.run(row)
    assert ingest(server, name, path) == 1
    server.run(row, f"INSERT INTO {name} (id) VALUES (gen_random_uuid())")
    assert ingest(server, name, path) == 2
    rows = mainstem.open_table(path).scan().to_arrow()
    assert "g" not in rows.column_names
    found = sorted(rows.to_pylist(), key=lambda r: r["_event_lsn"])
    kept = [{k: repr(v) for k, v in r.items() if k[0] != "_" and k != "id"} for r in found]
    assert kept[0] == kept[1] and set(kept[2].values()) == {"None"}
    assert found[0]["tz"].isoformat() == "2019-12-31T22:00:00.500000+00:00" and found[0]["raw"] == b"\0\xff"
    assert found[0]["ints"] == [1, None, -3] and found[0]["texts"] == ["a,b", 'q"\\', "", None, "{}"]
    assert (
        str(found[0]["n2"]) == "-1.5000000000"
        and found[0]["f8"] == float("-inf")
        and found[0]["n"][:2] == "10"
    )
    server.run(f"INSERT INTO {name} (id, ts) VALUES (gen_random_uuid(), 'infinity')")
    with pytest.raises(Invalid, match=r"column 'ts': 'infinity'"):
        ingest(server, name, path)


LONG = "(SELECT string_agg(md5((i + {0})::text), '') FROM generate_series(1, 400) i)"


def test_long_values_that_updates_leave_as_they_were_stay(server, name, tmp_path):
    path, text = tmp_path / "t", LONG.format(0)
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int, long text, raw bytea)",
        f"INSERT INTO {name} VALUES (1, 1, {text}, {text}::bytea), (2, 1, {text}, NULL), (3, 1, {text},"
        " NULL)",
    )
    assert ingest(server, name, path) == 3
    server.run(
        f"UPDATE {name} SET v = 2 WHERE id < 3",
        f"BEGIN; INSERT INTO {name} VALUES (4, 1, {text}, {text}::bytea); UPDATE {name} SET v = 3 WHERE id ="
        f" 4; UPDATE {name} SET v = 4 WHERE id = 4; COMMIT",
        f"UPDATE {name} SET long = {LONG.format(7)} WHERE id = 2",
        f"BEGIN; DELETE FROM {name} WHERE id = 3; INSERT INTO {name} VALUES (3, 5, {LONG.format(9)}, 'x');"
        f" UPDATE {name} SET v = 6 WHERE id = 3; COMMIT",
    )
    ingest(server, name, path)
    assert ours(path, "id", "v", "long", "raw") == theirs(server, f"SELECT * FROM {name}")
    server.run(f"UPDATE {name} SET id = 7, v = 7 WHERE id = 1")
    with pytest.raises(Invalid, match=r"column 'long' as it was.*REPLICA IDENTITY FULL"):
        ingest(server, name, path)


def test_keys_that_move_with_long_values_need_whole_rows_before(server, name, tmp_path):
    path, text = tmp_path / "t", LONG.format(0)
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int, long text, list text[])",
        f"INSERT INTO {name} VALUES (1, 1, {text}, ARRAY[{text}]), (2, 1, {text}, NULL)",
    )
    with pytest.raises(Invalid, match=r"do not tell v.*REPLICA IDENTITY FULL"):
        ingest(server, name, path, partition_by="v")
    server.run(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    assert ingest(server, name, path, partition_by="v") == 2
    server.run(f"UPDATE {name} SET id = 7 WHERE id = 1", f"UPDATE {name} SET v = 2")
    ingest(server, name, path)
    assert ours(path, "id", "v", "long", "list") == theirs(server, f"SELECT * FROM {name}")


@pytest.mark.parametrize(
    "statement, message",
    [
        ("TRUNCATE {0}", "was truncated.*--on-truncate apply"),
        ("ALTER TABLE {0} DROP COLUMN v; INSERT INTO {0} VALUES (2)", "lacks v"),
        ("ALTER TABLE {0} RENAME COLUMN v TO w; INSERT INTO {0} VALUES (2, 2)", "lacks v"),
        ("ALTER TABLE {0} ALTER COLUMN v TYPE text; INSERT INTO {0} VALUES (2, 'x')", "'v'"),
        ("DROP TABLE {0}; CREATE TABLE {0} (id bigint PRIMARY KEY, v int)", "dropped and created again"),
        ("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots", "is gone"),
        (
            "INSERT INTO {0} VALUES (3, 3); SELECT pg_replication_slot_advance(slot_name,"
            " pg_current_wal_lsn())"
            " FROM pg_replication_slots",
            "begins at .* by now",
        ),
    ],
)
def test_changes_that_are_not_applied_end_it(server, name, tmp_path, statement, message):
    path = tmp_path / "t"
    server.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    server.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, 1)")
    assert ingest(server, name, path) == 1
    for one in statement.format(name).split("; "):
        server.run(one)
    with pytest.raises(Invalid, match=message):
        ingest(server, name, path)
    assert ours(path, "id", "v") == [(1, 1)]


@pytest.mark.nothing_lost
def test_truncate_empties_the_table_in_the_commit_of_what_follows_it(server, name, tmp_path):
    path, told = tmp_path / "t", []
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, v int)",
        f"INSERT INTO {name} SELECT i, 0 FROM generate_series(1, 40) i",
    )
    assert ingest(server, name, path) == 40
    server.run(
        f"UPDATE {name} SET v = 9 WHERE id = 3",
        f"BEGIN; INSERT INTO {name} VALUES (50, 1); TRUNCATE {name}; INSERT INTO {name} VALUES (1, 1), (2,"
        f" 1), (3, 1); DELETE FROM {name} WHERE id = 1; UPDATE {name} SET v = 2 WHERE id = 2; DELETE FROM"
        f" {name} WHERE id = 3; INSERT INTO {name} VALUES (3, 3); COMMIT",
        f"INSERT INTO {name} VALUES (4, 4)",
        f"BEGIN; INSERT INTO {name} VALUES (90, 1); TRUNCATE {name}; ROLLBACK",
    )
    assert ingest(server, name, path, on_truncate="apply", on_progress=told.append) == 8
    assert ours(path, "id", "v") == theirs(server, f"SELECT * FROM {name}") == [(2, 2), (3, 3), (4, 4)]
    assert len(told) == 1
    server.run(f"TRUNCATE {name}")
    ingest(server, name, path, on_truncate="skip")
    assert len(ours(path, "id")) == 3
    server.run(f"INSERT INTO {name} VALUES (7, 7)", f"TRUNCATE {name}")
    assert ingest(server, name, path, on_truncate="apply") == 0
    assert ours(path, "id", "v") == [] and ingest(server, name, path) == 0


@pytest.mark.nothing_lost
@pytest.mark.parametrize("before", [10, 500])
def test_truncate_within_a_transaction_larger_than_a_commit(server, name, tmp_path, before, monkeypatch):
    path, told = tmp_path / "t", []
    monkeypatch.setattr(postgres_table, "_READ_BYTES", 10_000)
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, v text)", f"INSERT INTO {name} VALUES (0, 'old')"
    )
    assert ingest(server, name, path) == 1
    fill = f"INSERT INTO {name} SELECT i, '{{0}}' || repeat('x', 100) FROM generate_series(1, {{1}}) i"
    server.run(
        f"INSERT INTO {name} VALUES (-1, 'before')",
        f"BEGIN; {fill.format('a', before)}; TRUNCATE {name}; {fill.format('b', 400)}; TRUNCATE {name};"
        f" {fill.format('c', 600)}; DELETE FROM {name} WHERE id = 17; COMMIT",
        f"INSERT INTO {name} VALUES (-2, 'after')",
    )
    ingest(server, name, path, rows=100, on_truncate="apply", on_progress=told.append)
    assert ours(path, "id", "v") == theirs(server, f"SELECT * FROM {name}")
    assert max(p.rows for p in told) == 601


@pytest.mark.nothing_lost
def test_a_process_that_dies_at_any_step_of_a_truncate_leaves_it_to_be_applied_once(
    server, name, tmp_path, monkeypatch
):
    from mainstem.ingestion.dead_letters import DeadLetters
    from mainstem.ingestion.postgres_server import WalStream
    from mainstem.ingestion.target_table import TargetTable

    class Killed(BaseException):
        pass

    path = tmp_path / "t"
    options = {"on_truncate": "apply", "on_error": "dead-letter", "rows": 50}
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, at timestamp)", f"INSERT INTO {name} VALUES (1)"
    )
    ingest(server, name, path, **options)
    monkeypatch.setattr(postgres_table, "_READ_BYTES", 1000)
    steps = [(TargetTable, "write_parts", (0, 1)), (DeadLetters, "write", (0,)), (WalStream, "tell", (1,))]
    every = [(k, m, t, late) for k, m, n in steps for t in n for late in (False, True)]
    for killed, (kind, method, turn, late) in enumerate(every, 1):
        server.run(
            f"BEGIN; INSERT INTO {name} VALUES (2); TRUNCATE {name}; INSERT INTO {name} SELECT i FROM"
            f" generate_series(3, 99) i; INSERT INTO {name} VALUES (100, 'infinity'); COMMIT",
            f"INSERT INTO {name} VALUES (101, 'infinity'), (102, NULL)",
        )
        real, calls = getattr(kind, method), []

        def dies(*given, real=real, calls=calls, late=late, turn=turn, **more):
            calls.append(1)
            dead = len(calls) > turn
            found = real(*given, **more) if late or not dead else None
            if dead:
                raise Killed
            return found

        monkeypatch.setattr(kind, method, dies)
        with pytest.raises(Killed):
            ingest(server, name, path, **options)
        monkeypatch.setattr(kind, method, real)
        ingest(server, name, path, **options)
        assert ours(path, "id") == [(i,) for i in (*range(3, 100), 102)]
        dead = mainstem.open_table(f"{path}_dead_letters").scan(columns=["key"]).to_pandas()["key"]
        assert sorted(map(bytes, dead)) == [b'{"id":"100"}'] * killed + [b'{"id":"101"}'] * killed
    stands = mainstem.open_table(path).opened.stream_positions(f"public.{name}").ends["wal"]
    held = f"SELECT '0/0'::pg_lsn + {stands} >= confirmed_flush_lsn FROM pg_replication_slots WHERE"
    assert theirs(server, f"{held} slot_name = '{slot_of(path, name)}'") == [(True,)]


def test_rows_that_do_not_fit_the_table_go_to_a_table_of_their_own(server, name, tmp_path):
    path, told = tmp_path / "t", []

    def taken():
        return ingest(server, name, path, on_error="dead-letter", on_progress=told.append)

    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, at timestamp, v int)",
        f"INSERT INTO {name} VALUES (1, 'infinity', 1), (2, '2020-01-01', 2)",
    )
    assert taken() == 1
    server.run(
        f"INSERT INTO {name} VALUES (3, '-infinity', 3), (4, NULL, 4)",
        f"BEGIN; UPDATE {name} SET at = '2021-01-01' WHERE id = 1; UPDATE {name} SET at = 'infinity' WHERE"
        f" id = 2; DELETE FROM {name} WHERE id = 4; COMMIT",
        f"ALTER TABLE {name} ALTER COLUMN v TYPE text",
        f"INSERT INTO {name} VALUES (5, NULL, '5'), (6, NULL, 'six'), (7, NULL, NULL)",
    )
    assert taken() == 5
    assert ours(path, "id", "v") == [(1, 1), (2, 2), (5, 5), (7, None)]
    dead = mainstem.open_table(f"{path}_dead_letters").scan().to_arrow()
    found = {bytes(row["key"]): row for row in dead.to_pylist()}
    assert sorted(found) == [b'{"id":"%d"}' % i for i in (1, 2, 3, 6)] and dead.num_rows == 4
    assert bytes(found[b'{"id":"2"}']["value"]) == (
        b'{"before":null,"after":{"id":"2","at":"infinity","v":"2"},"op":"u"}'
    )
    assert "column 'v'" in found[b'{"id":"6"}']["reason"] and all(row["timestamp"] for row in found.values())
    assert [p.dead_letters for p in told] == [1, 3]
    assert taken() == 0


def test_columns_are_added_and_widened_by_the_stream(server, name, tmp_path):
    path = tmp_path / "t"
    server.run(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, n int2, price numeric(6,2), r float4, t varchar(3))",
        f"INSERT INTO {name} VALUES (1, 1, 1.25, 0.5, 'abc')",
    )
    assert ingest(server, name, path) == 1
    for statement in (
        "ALTER COLUMN n TYPE int8", "ALTER COLUMN r TYPE float8", "ALTER COLUMN t TYPE text",
        "ADD COLUMN new numeric(4,1) DEFAULT 3.5", "ALTER COLUMN new TYPE text", "DROP COLUMN new",
    ):  # fmt: skip
        server.run(f"ALTER TABLE {name} {statement}")
        server.run(f"INSERT INTO {name} SELECT max(id) + 1, 2, 2.5, 0.25, 'x' FROM {name}")
        server.run(f"UPDATE {name} SET n = 3 WHERE id = 1")
        if "n TYPE" in statement:
            server.run(f"INSERT INTO {name} VALUES (1000, {2**40}, 1, 0.1, 'lon')")
    given = {"hoodie.write.set.null.for.missing.columns": "true"}
    assert ingest(server, name, path, properties=given) == 13
    columns = ("id", "n", "price", "r", "t")
    assert ours(path, *columns) == theirs(server, f"SELECT {', '.join(columns)} FROM {name}")
    assert [str(new) for _, new in ours(path, "id", "new")] == ["None"] * 5 + ["3.5"] * 2 + ["None"]


def test_the_log_of_other_tables_is_passed_over_so_that_the_server_can_forget_it(server, name, tmp_path):
    path = tmp_path / "t"
    server.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY)", f"CREATE TABLE {name}_other (v text)")
    ingest(server, name, path)
    held = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot_of(path, name)}'"
    before = theirs(server, held)
    server.run(f"INSERT INTO {name}_other SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
    assert ingest(server, name, path) == 0
    assert theirs(server, held) != before


def slot_of(path, name):
    return mainstem.open_table(path).opened.stream_positions(f"public.{name}").about["slot"]
