"""Goal: rows of every kind of query and of every type reach the table once, with their values.

Method: real jobs in one MiniCluster, read back by mainstem. "Once" is counted twice: keys in the table, and
rows in the commits, which would show a row that a restart wrote again.
"""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal

import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported

pytestmark = [pytest.mark.versions]

WAIT_MS = 200_000
EVERY = "execution.checkpointing.interval"


def numbers(env, name: str, count: int, per_second: int) -> str:
    env.execute_sql(
        f"CREATE TABLE {name} (id BIGINT, ts AS TIMESTAMP '2026-01-01 00:00:00') WITH ('connector' ="
        f" 'datagen', 'rows-per-second' = '{per_second}', 'fields.id.kind' = 'sequence',"
        f" 'fields.id.start' = '1', 'fields.id.end' = '{count}')"
    )
    return name


def table(env, name: str, path, columns: str, **options: str) -> str:
    more = "".join(f", '{key}' = '{value}'" for key, value in options.items())
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'hudi', 'path' = '{path}', 'table.type' ="
        f" 'MERGE_ON_READ', 'index.type' = 'BUCKET'{more})"
    )
    return name


def rows_of(path) -> list[dict]:
    found = mainstem.open_table(path).scan().to_arrow()
    names = [name for name in found.column_names if not name.startswith("_hoodie_")]
    return found.select(names).to_pylist()


def run(env, insert: str):
    result = env.execute_sql(insert)
    result.wait(WAIT_MS)
    return result


ONE = "id BIGINT, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED"


@pytest.mark.supports("Engines", "Flink: a source that ends loses nothing")
def test_every_row_of_a_source_that_ends_is_committed_once(environment, tmp_path):
    flink = environment("300 ms")
    source = numbers(flink, "source", 3000, 3000)
    sink = table(flink, "sink", tmp_path / "t", ONE)
    result = run(flink, f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    assert sum(outcome.rows for outcome in result.outcomes) == 3000
    assert sorted(row["id"] for row in rows_of(tmp_path / "t")) == list(range(1, 3001))
    private = tmp_path / "t/.hoodie/.mainstem/flink/sink"
    assert [p for p in private.rglob("*") if p.is_file()] == [], "what is committed is removed"


def saved(environment, tmp_path, name: str, count: int, tasks: int = 1):
    """A job that was stopped with a savepoint after a commit: its savepoint, rows that it committed."""
    flink = environment("300 ms", tasks)
    source = numbers(flink, "source", count, 1000)
    sink = table(flink, name, tmp_path / name, ONE)
    result = flink.execute_sql(f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    wait_for(lambda: result.outcomes)
    place = result.get_job_client().stop_with_savepoint(False, str(tmp_path / "saved")).result()
    result.wait(WAIT_MS)
    return place, sum(outcome.rows for outcome in result.outcomes)


@pytest.mark.supports("Engines", "Flink: restart from savepoints, rescaled")
def test_a_job_stopped_with_a_savepoint_goes_on_with_another_parallelism(environment, tmp_path):
    place, before = saved(environment, tmp_path, "first", 4000)
    assert before == len(rows_of(tmp_path / "first")), "a savepoint commits what came before it"
    flink = environment("300 ms", 2, place)
    source = numbers(flink, "source", 4000, 1000)
    sink = table(flink, "first", tmp_path / "first", ONE)
    result = run(flink, f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    assert before + sum(outcome.rows for outcome in result.outcomes) == 4000
    assert sorted(row["id"] for row in rows_of(tmp_path / "first")) == list(range(1, 4001))


@pytest.mark.supports("Services", "resize: another number of buckets beside writers")
def test_a_resize_between_checkpoints_and_before_a_restart_loses_no_row(environment, tmp_path):
    flink = environment("300 ms", 1)
    source = numbers(flink, "source", 4000, 1000)
    sink = table(flink, "first", tmp_path / "first", ONE)
    result = flink.execute_sql(f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    wait_for(lambda: result.outcomes)
    mainstem.open_table(tmp_path / "first").resize(7)
    place = result.get_job_client().stop_with_savepoint(False, str(tmp_path / "saved")).result()
    result.wait(WAIT_MS)
    before = sum(outcome.rows for outcome in result.outcomes)
    assert before == len(rows_of(tmp_path / "first")), "staged for four buckets, committed to seven"
    mainstem.open_table(tmp_path / "first").resize(2)
    flink = environment("300 ms", 1, place)
    source = numbers(flink, "source", 4000, 1000)
    sink = table(
        flink, "first", tmp_path / "first", ONE, **{"hoodie.bucket.index.num.buckets": "4"}
    )
    result = run(flink, f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    assert before + sum(outcome.rows for outcome in result.outcomes) == 4000
    assert sorted(row["id"] for row in rows_of(tmp_path / "first")) == list(range(1, 4001))


def test_a_savepoint_of_another_table_or_job_is_refused_before_a_table_is_made(environment, tmp_path):
    place, before = saved(environment, tmp_path, "first", 100_000)

    def insert(start, name, path):
        flink = environment("300 ms", 1, start)
        source = numbers(flink, "source", 100_000, 1000)
        sink = table(flink, name, tmp_path / path, ONE)
        flink.execute_sql(f"INSERT INTO {sink} SELECT id, ts FROM {source}")

    with pytest.raises(Invalid, match="is of another table"):
        insert(place, "first", "another")
    with pytest.raises(Invalid, match="is no checkpoint or savepoint"):
        insert(str(tmp_path / "nowhere"), "first", "another")
    assert not (tmp_path / "another").exists()
    with pytest.raises(Invalid, match="or of other sinks"):
        insert(place, "later", "first")
    assert len(rows_of(tmp_path / "first")) == before
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(Invalid, match="made anew"):
        insert(place, "first", "first")
    assert not (tmp_path / "first").exists()


@pytest.mark.supports("Engines", "Flink: exactly once across failures")
def test_rows_that_come_again_after_a_failure_are_not_committed_again(environment, tmp_path):
    from pyflink.table import DataTypes
    from pyflink.table.udf import udf

    flag = str(tmp_path / "failed")

    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def fails_once(ids):
        import os

        if (ids > 1500).any() and not os.path.exists(flag):
            open(flag, "w").close()
            raise ValueError("fails once")
        return ids

    again = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "200 ms"}
    flink = environment("300 ms", **again, **{"python.fn-execution.bundle.time": "100"})
    flink.create_temporary_function("fails_once", fails_once)
    source = numbers(flink, "source", 3000, 1500)
    sink = table(flink, "sink", tmp_path / "t", ONE)
    result = run(flink, f"INSERT INTO {sink} SELECT fails_once(id), ts FROM {source}")
    assert (tmp_path / "failed").exists()
    assert sum(outcome.rows for outcome in result.outcomes) == 3000
    assert sorted(row["id"] for row in rows_of(tmp_path / "t")) == list(range(1, 3001))


@pytest.mark.supports("Engines", "Flink: updating queries, deletes by row kind")
def test_an_updating_query_updates_and_deletes_rows(environment, tmp_path):
    flink = environment("200 ms")
    source = numbers(flink, "source", 1000, 2000)
    groups = table(flink, "per_group", tmp_path / "g", "g BIGINT, n BIGINT, PRIMARY KEY (g) NOT ENFORCED")
    counts = table(flink, "per_count", tmp_path / "c", "n BIGINT, g BIGINT, PRIMARY KEY (n) NOT ENFORCED")
    grouped = f"SELECT id / 300 AS g, COUNT(*) AS n FROM {source} GROUP BY id / 300"
    joined = table(flink, "joined", tmp_path / "j", "id BIGINT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED")
    statements = flink.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO {groups} {grouped}")
    # Each row that comes moves its group from one row to another.
    statements.add_insert_sql(f"INSERT INTO {counts} SELECT n, COUNT(*) FROM ({grouped}) GROUP BY n")
    # Until its group comes, and whenever it changes, the row of an id is taken back.
    statements.add_insert_sql(
        f"INSERT INTO {joined} SELECT s.id, g.n FROM (SELECT id FROM {source} WHERE id <= 4) s"
        f" LEFT JOIN ({grouped}) g ON s.id = g.g"
    )
    assert statements.explain().count("inserts, updates and deletes by row kind") == 3
    statements.execute().wait(WAIT_MS)
    assert {r["g"]: r["n"] for r in rows_of(tmp_path / "g")} == {0: 299, 1: 300, 2: 300, 3: 101}
    assert {r["n"]: r["g"] for r in rows_of(tmp_path / "c")} == {299: 1, 300: 2, 101: 1}
    assert {r["id"]: r["n"] for r in rows_of(tmp_path / "j")} == {1: 300, 2: 300, 3: 101, 4: None}


TYPES = {
    "k": ("STRING", "CAST({} AS STRING)"),
    "b": ("BOOLEAN", "TRUE"), "i8": ("TINYINT", "CAST(-128 AS TINYINT)"),
    "i16": ("SMALLINT", "CAST(32767 AS SMALLINT)"), "i32": ("INT", "-2147483647"),
    "i64": ("BIGINT", "9007199254740993"), "f32": ("FLOAT", "CAST(0.1 AS FLOAT)"),
    "f64": ("DOUBLE", "CAST('0.1' AS DOUBLE)"), "text": ("VARCHAR(20)", "'žluť 🐎'"),
    "fixed": ("CHAR(3)", "'abc'"), "bytes": ("BYTES", "x'00ff'"), "bin": ("BINARY(2)", "x'0102'"),
    "dec": ("DECIMAL(38, 18)", "CAST('12345678901234567890.123456789012345678' AS DECIMAL(38, 18))"),
    "day": ("DATE", "DATE '1583-01-02'"), "time3": ("TIME(3)", "CAST('23:59:59.123' AS TIME(3))"),
    "ts0": ("TIMESTAMP(0)", "CAST('2026-01-01 00:00:01' AS TIMESTAMP(0))"),
    "ts3": ("TIMESTAMP(3)", "CAST('1500-01-01 00:00:00.001' AS TIMESTAMP(3))"),
    "ts6": ("TIMESTAMP(6)", "CAST('2026-01-01 00:00:00.123456' AS TIMESTAMP(6))"),
    "ltz": ("TIMESTAMP_LTZ(3)", "TO_TIMESTAMP_LTZ(1700000000123, 3)"),
    "a": ("ARRAY<BIGINT>", "ARRAY[9007199254740993, CAST(NULL AS BIGINT)]"),
    "aa": ("ARRAY<ARRAY<STRING>>", "ARRAY[ARRAY['x', 'y'], ARRAY['z']]"),
    "v": ("ARRAY<FLOAT>", "ARRAY[CAST(0.5 AS FLOAT), CAST(-1 AS FLOAT)]"),
    "vd": ("ARRAY<DOUBLE>", "ARRAY[CAST('0.1' AS DOUBLE), CAST('-1e300' AS DOUBLE)]"),
    "V8": ("ARRAY<TINYINT>", "ARRAY[CAST(-128 AS TINYINT), CAST(127 AS TINYINT)]"),
    "m": ("MAP<STRING, INT>", "MAP['one', 1, 'none', CAST(NULL AS INT)]"),
    "r": ("ROW<x INT, y ROW<z STRING, m MAP<STRING, BIGINT>>>",
          "CAST(ROW(1, ROW('z', MAP['m', CAST(5 AS BIGINT)])) AS"
          " ROW<x INT, y ROW<z STRING, m MAP<STRING, BIGINT>>>)"),
}  # fmt: skip
UTC = dt.UTC
EXPECTED = {
    "b": True, "i8": -128, "i16": 32767, "i32": -2147483647, "i64": 9007199254740993,
    "f32": 0.10000000149011612, "f64": 0.1, "text": "žluť 🐎", "fixed": "abc", "bytes": b"\x00\xff",
    "bin": b"\x01\x02", "dec": Decimal("12345678901234567890.123456789012345678"),
    "day": dt.date(1583, 1, 2), "time3": dt.time(23, 59, 59, 123000),
    "ts0": dt.datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC),
    "ts3": dt.datetime(1500, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
    "ts6": dt.datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
    "ltz": dt.datetime(2023, 11, 14, 22, 13, 20, 123000),
    "a": [9007199254740993, None], "aa": [["x", "y"], ["z"]],
    "v": [0.5, -1.0], "vd": [0.1, -1e300], "V8": [-128, 127], "m": [("one", 1), ("none", None)],
    "r": {"x": 1, "y": {"z": "z", "m": [("m", 5)]}},
}  # fmt: skip


@pytest.mark.supports("Engines", "Flink: all column types")
def test_values_of_all_types_and_nulls_are_unchanged(environment, tmp_path):
    batches = {"python.fn-execution.arrow.batch.size": "2", "table.local-time-zone": "Asia/Kolkata"}
    flink = environment("200 ms", 1, **batches)
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
    vectors = {"hoodie.vector.columns": "v:2, vd:2, v8:2"}
    sink = table(flink, "types_sink", tmp_path / "t", columns + ", PRIMARY KEY (k) NOT ENFORCED", **vectors)
    source = numbers(flink, "types_source", 9, 1000)
    texts = [expression.format("id") for _, expression in TYPES.values()]
    # Every third row is full; nulls in between, and several batches for one worker.
    query = ", ".join([texts[0], *(f"CASE WHEN MOD(id, 3) = 0 THEN {text} END" for text in texts[1:])])
    run(flink, f"INSERT INTO {sink} SELECT {query} FROM {source}")
    found = {row.pop("k"): row for row in rows_of(tmp_path / "t")}
    full, empty = EXPECTED, dict.fromkeys(EXPECTED)
    assert found == {str(i): full if i % 3 == 0 else empty for i in range(1, 10)}
    stored = mainstem.open_table(tmp_path / "t").schema
    for name, kind in (("v", b"VECTOR(2)"), ("vd", b"VECTOR(2, DOUBLE)"), ("V8", b"VECTOR(2, INT8)")):
        assert stored.field(name).metadata == {b"hudi_type": kind}


def test_arrays_of_rows_are_refused_before_anything_runs(environment, tmp_path):
    flink = environment()
    columns = "id BIGINT, a ARRAY<ROW<x INT>>, PRIMARY KEY (id) NOT ENFORCED"
    sink = table(flink, "sink", tmp_path / "t", columns)
    with pytest.raises(Unsupported, match="'a' is an array of"):
        flink.execute_sql(f"INSERT INTO {sink} SELECT CAST(1 AS BIGINT), ARRAY[ROW(1)]")


def test_without_checkpoints_an_endless_source_is_refused_and_values_are_written(environment, tmp_path):
    flink = environment()
    source = numbers(flink, "source", 1000, 100)
    sink = table(flink, "sink", tmp_path / "t", "id BIGINT, PRIMARY KEY (id) NOT ENFORCED")
    with pytest.raises(Invalid, match=EVERY):
        flink.execute_sql(f"INSERT INTO {sink} SELECT id FROM {source}")
    run(flink, f"INSERT INTO {sink} VALUES (1), (2)")
    assert sorted(row["id"] for row in rows_of(tmp_path / "t")) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "mode"), [("TableEnvironment", "batch"), ("StreamTableEnvironment", "streaming")]
)
def test_environments_that_are_made_of_settings_alone_write(table_environment, tmp_path, kind, mode):
    import pyflink.table

    from mainstem.flink import connect

    builder = pyflink.table.EnvironmentSettings.new_instance()
    chosen = builder.in_batch_mode() if mode == "batch" else builder.in_streaming_mode()
    # Java's environment is a plain one in both cases: it makes no streams by itself.
    env = connect(getattr(pyflink.table, kind).create(environment_settings=chosen.build()))
    sink = table(env, "sink", tmp_path / "t", "id BIGINT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED")
    rows = "SELECT id, COUNT(*) FROM (VALUES (1), (2), (3), (3)) AS v (id) GROUP BY id"
    run(env, f"INSERT INTO {sink} {rows}")
    assert sorted((row["id"], row["n"]) for row in rows_of(tmp_path / "t")) == [(1, 1), (2, 1), (3, 2)]


@pytest.mark.supports("Engines", "Flink: DataStream API")
def test_a_stream_of_the_datastream_api_is_written(environment, tmp_path):
    from pyflink.common import Row, Types
    from pyflink.datastream import StreamExecutionEnvironment

    from mainstem.flink import sink_to

    flink = environment()
    table(flink, "stream_sink", tmp_path / "t", "id BIGINT, text STRING, PRIMARY KEY (id) NOT ENFORCED")
    streams = StreamExecutionEnvironment(flink._get_j_env())
    kind = Types.ROW_NAMED(["id", "text"], [Types.LONG(), Types.STRING()])
    made = streams.from_collection([1, 2, 3], Types.LONG()).map(lambda i: Row(i, "x" * i), kind)
    sink_to(flink, made, "stream_sink").wait(WAIT_MS)
    assert sorted((r["id"], r["text"]) for r in rows_of(tmp_path / "t")) == [(1, "x"), (2, "xx"), (3, "xxx")]


def wait_for(condition, seconds: float = 200.0) -> None:
    import time

    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)
