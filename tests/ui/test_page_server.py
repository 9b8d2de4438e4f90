"""Goal: the page's server tells what ``Table`` tells, in bounded pieces, to those who may ask; it only reads.

Method: a real server on loopback, asked as a browser or a hostile client would; its answers are compared with
the public methods of ``Table``.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid
from mainstem.readers.planning.table_files import SCHEMA as SCHEMA_OF_FILES
from mainstem.ui.admission import Admission
from mainstem.ui.page_server import CONNECTIONS_MAX, page_files
from mainstem.ui.row_query import run_query
from mainstem.ui.shown_files import ShownFiles
from tests.ui.asking import Asking, served
from tests.ui.long_timeline import long_timeline

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
TOKEN = "a-token-of-many-characters"
HOSTILE = "<script>alert(1)</script>\u202e"


def rows(n: int, cities: tuple[str, ...] = ("oslo", "rome")) -> dict[str, list[object]]:
    where = [cities[i % len(cities)] for i in range(8)]
    return {"id": [f"k{i}" for i in range(8)], "city": where, "n": [n] * 8}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two writers and a stream, a compaction, an index; nobody changes it."""
    path = mainstem.create_table(
        tmp_path_factory.mktemp("made") / "shop" / "trips", SCHEMA, record_key="id", ordering="n",
        partition_by=["city"], buckets=2, properties={"hoodie.mainstem.fsync": False},
    ).path  # fmt: skip
    one, two = (mainstem.open_table(path, {"hoodie.mainstem.writer.name": name}) for name in ("one", HOSTILE))
    one.upsert(rows(1))
    two.upsert(rows(2))
    one.services.compact()
    for batch in range(3):
        with one.begin("upsert", guard=mainstem.StreamGuard("orders", batch)) as write:
            write.write(pa.table(rows(3 + batch), SCHEMA))
            write.commit()
    one.create_index("column_stats", ["n"])
    return Path(path)


@pytest.fixture
def path(made: Path, tmp_path: Path) -> str:
    """A copy for one test."""
    return str(shutil.copytree(made, tmp_path / "shop" / "trips"))


@pytest.fixture(scope="module")
def ask(made: Path) -> Iterator[Asking]:
    """Who asks about the table that nobody changes."""
    with served(made.parent.parent) as asking:
        yield asking


# -- what it tells ------------------------------------------------------------------------------------


@pytest.mark.supports("Services", "a page in the browser: timeline, files, rows, indexes, findings (ui)")
def test_the_timeline_is_that_of_history_and_later_pages_hold_only_what_changed(path: str) -> None:
    with served(path) as ask:
        _follow(ask, mainstem.open_table(path))


def _follow(ask: Asking, table: mainstem.Table) -> None:
    told = {one["requested"]: one for one in ask.timeline(ask.table("trips"))}
    history = {one["requested"]: one for one in table.history().to_pylist()}
    assert told.keys() == history.keys()
    for requested, one in told.items():
        for name in ("completion", "action", "operation", "writer", "rows", "bytes", "file_groups"):
            assert one[name] == history[requested][name], name
    where = ask.table("trips")
    first = ask(f"{where}/timeline?view=&since=0")
    follow = f"{where}/timeline?view={first['view']}&since={first['since']}"
    assert ask(follow)["rows"] == []
    open_one = table.begin("upsert")
    open_one.write(pa.table(rows(99), SCHEMA))
    (came,) = ask(follow)["rows"]
    assert came[0] == open_one.instant and came[3] == "inflight"
    open_one.abort()
    told = {one["requested"]: one["state"] for one in ask.timeline(where)}
    assert told[open_one.instant] == "taken back"
    (rollback,) = table.history(actions=["rollback"]).to_pylist()
    assert rollback["took_back"] == [open_one.instant]
    one = ask(f"{where}/instant?requested={rollback['requested']}&action=rollback")
    assert one["took_back"] == [open_one.instant]


def test_instants_that_a_restore_removes_are_told(path: str) -> None:
    table = mainstem.open_table(path)
    kept = table.savepoint()
    gone = table.upsert(rows(9)).instant
    with served(path) as ask:
        where = ask.table("trips")
        assert {one["requested"]: one["state"] for one in ask.timeline(where)}[gone] == "completed"
        table.restore(kept.instant)
        told = {one["requested"]: one for one in ask.timeline(where)}
        assert told[gone]["state"] == "taken back" and told[gone]["rows"] == 8
        (restore,) = [one for one in told.values() if one["action"] == "restore"]
        asked = f"{where}/instant?requested={restore['requested']}&action=restore"
        assert gone in ask(asked)["took_back"]


def test_instants_that_are_archived_meanwhile_stay(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = mainstem.open_table(path, few)
    with served(path) as ask:
        where = ask.table("trips")
        for n in range(6):
            table.upsert(rows(20 + n))
        known = {one["requested"] for one in ask.timeline(where)}
        table.services.compact()
        for n in range(4):
            table.upsert(rows(30 + n))
        table.services.compact()
        table.services.clean()
        table.services.archive()
        told = {one["requested"]: one for one in ask.timeline(where)}
        archived = {one for one in known if told[one]["archived"]}
        assert archived == known - {i.requested for i in table.timeline()} and archived
        assert {told[one]["state"] for one in archived} == {"completed"}
        monkeypatch.setattr("mainstem.ui.shown_instants.KEPT_MAX", 3)
        table.upsert(rows(40))
        left = {one["requested"] for one in ask.timeline(where)}
        assert left == {i.requested for i in table.timeline()} and len(left) >= 3
        monkeypatch.undo()
    with served(path) as again:  # one that begins later shows them, too
        assert {one["requested"] for one in again.timeline(again.table("trips"))} >= known


def test_files_partitions_and_groups_add_up_to_table_files(ask: Asking, made: Path) -> None:
    where = ask.table("trips")
    files = mainstem.open_table(made).files().to_pylist()
    told = ask(f"{where}/partitions")
    assert told["totals"]["files"] == len(files)
    assert told["totals"]["bytes"] == sum(one["size"] for one in files)
    current = [one for one in files if one["state"] == "current"]
    assert told["totals"]["log_files"] == sum(one["kind"] == "log" for one in current) > 0
    assert [one["partition"] for one in told["rows"]] == ["oslo", "rome"]
    groups = ask(f"{where}/groups?sort=-bytes&limit=500")["rows"]
    assert [one["bytes"] for one in groups] == sorted((one["bytes"] for one in groups), reverse=True)
    assert sum(one["files"] for one in groups) == len(files)
    one = groups[0]
    shown = ask(f"{where}/group?partition={one['partition']}&file_id={one['file_id']}")["files"]
    group = one["partition"], one["file_id"]
    assert {file["file"] for file in shown} == {
        file["file"] for file in files if (file["partition"], file["file_id"]) == group
    }
    pages = [ask(f"{where}/groups?offset={at}&limit=1")["rows"] for at in range(len(groups))]
    assert sorted(row["file_id"] for (row,) in pages) == sorted(row["file_id"] for row in groups)
    assert ask(f"{where}/groups?search=ROM")["count"] == sum(one["partition"] == "rome" for one in groups)


def test_slices_and_their_debts_are_those_of_the_file_system_view(path: str) -> None:
    table = mainstem.open_table(path)
    by_state: dict[str, set[str]] = {}
    for one in table.files().to_pylist():
        by_state.setdefault(one["state"], set()).add(one["file"])
    slices = table.file_slices()
    shown = {name for s in slices if s.latest for name in (*filter(None, [s.base_file]), *s.log_files)}
    assert by_state["current"] == shown
    assert by_state["older"] == {
        name for s in slices if not s.latest for name in (*filter(None, [s.base_file]), *s.log_files)
    }
    open_one = table.begin("upsert")
    open_one.write(pa.table(rows(99), SCHEMA))
    pending = [one for one in table.files().to_pylist() if one["state"] == "pending"]
    assert {one["instant"] for one in pending} == {open_one.instant}
    open_one.abort()


def test_of_a_vector_index_is_told_how_much_it_covers(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.list_(pa.float32(), 2))])
    table = mainstem.create_table(tmp_path / "vectors", schema, record_key="id", ordering="ts", buckets=1)
    table.upsert({"id": ["a"], "ts": [1], "v": [[1.0, 2.0]]})
    table.create_index("vector", ["v"], name="nearest")
    with served(tmp_path / "vectors") as ask:
        (one,) = [i for i in ask(f"{ask.table('vectors')}/indexes")["indexes"] if i["name"] == "nearest"]
    assert one["coverage"] == table.vectors.coverage("nearest").to_dict()
    assert (one["coverage"]["rows"], one["coverage"]["share"]) == (1, 1)


def test_a_key_is_explained_as_explain_row_does_and_the_rest_agrees_too(ask: Asking, made: Path) -> None:
    where, table = ask.table("trips"), mainstem.open_table(made)
    told = ask(f"{where}/explain", key="k3")
    found = table.explain_row("k3")
    assert told["text"] == str(found) and len(told["versions"]) == len(found.versions) > 1
    assert ask(f"{where}/explain", key="nobody")["found"] is False
    indexes = ask(f"{where}/indexes")["indexes"]
    assert [(one["name"], one["state"]) for one in indexes] == [(i.name, i.state) for i in table.indexes()]
    assert not any(one["coverage"] for one in indexes)
    assert [f["check"] for f in ask(f"{where}/doctor")["findings"]] == [f.check for f in table.doctor()]
    properties = {one["key"]: one["value"] for one in ask(f"{where}/properties")["properties"]}
    assert properties == table.properties
    (stream,) = ask(f"{where}/streams")["streams"]
    assert (stream["identifier"], stream["batch"]) == ("orders", "2")
    assert (stream["commits"], stream["rows"]) == (3, 24)
    overview = ask(where)
    assert [one["name"] for one in overview["schema"]] == table.schema.names
    assert {one["writer"] for one in overview["activity"]["writers"]} >= {"one", HOSTILE}


def test_unusual_properties_are_marked_and_secrets_are_not_shown(path: str) -> None:
    file = Path(path, ".hoodie/hoodie.properties")
    callback = "hoodie.write.commit.callback.http"
    more = f"{callback}.api.key=x\n{callback}.custom.headers=x\n{callback}.url=https://me:x@host/\n"
    more += "hoodie.mainstem.typo=1\nmy.password=x\nhoodie.compact.inline=maybe\n"
    file.write_text(file.read_text() + more)
    with served(path) as ask:
        told = {one["key"]: one for one in ask(f"{ask.table('trips')}/properties")["properties"]}
    assert told["hoodie.mainstem.typo"]["unusual"] and told["my.password"]["value"] == "(not shown)"
    assert {told[f"{callback}.{name}"]["value"] for name in ("api.key", "custom.headers")} == {"(not shown)"}
    assert told[f"{callback}.url"]["value"] == "https://(not shown)@host/"
    assert "maybe" in told["hoodie.compact.inline"]["unusual"]
    assert not told["hoodie.table.name"]["unusual"]


def test_a_hundred_thousand_files_are_summed_up_and_paged_at_once() -> None:
    n = 100_000
    files = pa.table(
        {
            "partition": [f"p={i % 300:03}" for i in range(n)],
            "file_id": [f"{i % 20_000:08}-0" for i in range(n)],
            "slice": ["20260101000000000"] * n, "file": [str(i) for i in range(n)],
            "kind": ["log" if i % 5 else "base" for i in range(n)], "size": list(range(n)),
            "modified": pa.nulls(n, pa.timestamp("ms", "UTC")), "instant": [f"{i:017}" for i in range(n)],
            "completion": [f"{i:017}" for i in range(n)], "state": ["current"] * n,
        }, SCHEMA_OF_FILES,
    )  # fmt: skip
    began = time.process_time()
    shown = ShownFiles(files)
    page = shown.groups(None, "", "-bytes", 19_000, 100)
    assert time.process_time() - began < 2.0
    assert page["count"] == shown.totals()["groups"] and len(page["rows"]) == 100
    assert shown.totals()["bytes"] == sum(range(n)) and shown.totals()["log_files"] == n - n // 5
    assert shown.partitions("299", "partition", 0, 10)["rows"][0]["files"] == len(range(299, n, 300))


# -- queries ------------------------------------------------------------------------------------------


def test_a_query_gives_rows_and_what_its_plan_skipped(ask: Asking) -> None:
    where = ask.table("trips")
    told = ask(f"{where}/query", sql="select id, n from t where city = 'oslo' order by id")
    assert told["columns"] == ["id", "n"] and told["rows"] == [[f"k{i}", 5] for i in range(0, 8, 2)]
    (scan,) = told["scans"]
    assert (scan["partitions_read"], scan["partitions"]) == (1, 2) and scan["cuts"][0]["left_out"] == 1
    cut = ask(f"{where}/query", sql="select * from t", limit=3)
    assert len(cut["rows"]) == 3 and cut["cut"]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("create table x as select 1", "CREATE is no SELECT"),
        ("select 1; select 2", "2 statements"),
        ("set threads = 9", "SET is no SELECT"),
        ("copy t to '/tmp/mainstem-ui-x.csv'", "COPY"),
        ("explain analyze copy t to '.tmp/x.csv'", "COPY is no SELECT"),  # it would do it
        ("explain (format json) drop view t", "DROP is no SELECT"),
        ("attach '/tmp/mainstem-ui-x.db'", "ATTACH"),
        ("select * from read_csv('/etc/passwd')", "disabled"),
        ("select * from glob('/*')", "disabled"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from rows", "does not exist"),  # a name of the module that asks
        ("nonsense", "syntax error"),
        ("", "expected one SELECT"),
        ("select '" + "x" * 30_000 + "'", "at most 20,000"),
    ],
)
def test_a_query_does_nothing_but_select_from_the_table(made: Path, sql: str, said: str) -> None:
    with pytest.raises(Invalid, match=re.escape(said)):
        run_query(mainstem.open_table(made), sql, 10, 20.0)


def test_a_query_is_explained(made: Path) -> None:
    told = run_query(mainstem.open_table(made), "EXPLAIN ANALYZE select id from t", 10, 20.0)
    assert "SCAN" in told["rows"][0][1]


def test_a_query_reaches_nothing_of_the_folder_in_which_the_server_was_started(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".tmp").mkdir()  # where DuckDB would put rows that have no room, and read them
    (tmp_path / ".tmp" / "x.txt").write_text("secret")
    (tmp_path / "duckdb.py").write_text("raise SystemExit('imported from there')")
    monkeypatch.chdir(tmp_path)
    with served(path) as ask:
        where = f"{ask.table('trips')}/query"
        assert ask(where, sql="select count(*) from t")["rows"] == [[8]]
        for name in (".tmp/x.txt", tmp_path / ".tmp" / "x.txt"):
            told = ask(where, 400, sql=f"select * from read_text('{name}')")
            assert "disabled" in told["error"]["message"]


def test_a_wrong_query_is_told_by_its_process(ask: Asking) -> None:
    told = ask(f"{ask.table('trips')}/query", 400, sql="drop table t")
    assert told["error"]["message"] == "DROP is no SELECT; the page only reads"


def test_a_query_that_takes_too_long_or_too_much_is_ended(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ui.shown_table.QUERY_S", 1.0)
    with served(path) as ask:
        where = ask.table("trips")
        began = time.monotonic()
        told = ask(f"{where}/query", 400, sql="select count(*) from range(1000000000000)")
        assert "longer than 1 s" in told["error"]["message"] and time.monotonic() - began < 30
        much = "select max(v) from (select list(range) v from range(500000000))"
        assert ask(f"{where}/query", 400, sql=much)["error"]["kind"] == "Invalid"
        began = time.monotonic()
        deaf = "select length(repeat('a', 2000000000))"  # hears no interrupt, knows no limit
        assert ask(f"{where}/query", 400, sql=deaf)["error"]["kind"] == "Invalid"
        assert time.monotonic() - began < 30
        wide = "select repeat('x', 50000) from range(900)"
        told = ask(f"{where}/query", sql=wide)
        assert told["cut"] and len(json.dumps(told)) < 5_000_000 and "50,000 characters" in told["rows"][0][0]


# -- trouble in tables ----------------------------------------------------------------------------------


def test_a_damaged_commit_is_told_and_the_others_are_shown(path: str) -> None:
    timeline = Path(path, ".hoodie/timeline")
    damaged = sorted(p for p in timeline.iterdir() if p.name.endswith(".deltacommit"))[2]
    damaged.write_bytes(damaged.read_bytes()[:40])
    with served(path) as ask:
        where = ask.table("trips")
        told = {one["requested"]: one for one in ask.timeline(where)}
        bad = damaged.name.partition("_")[0]
        assert [requested for requested, one in told.items() if one["damage"]] == [bad]
        assert sum(one["rows"] == 8 for one in told.values()) >= 4
        one = ask(f"{where}/instant?requested={bad}&action=deltacommit")
        assert one["damage"] and one["rows"] is None
        with pytest.raises(mainstem.CorruptTable):
            mainstem.open_table(path).history()


def test_a_table_that_is_deleted_or_replaced_meanwhile_is_told_and_shown_anew(path: str) -> None:
    with served(Path(path).parent) as ask:
        _replaced(ask, path)


def _replaced(ask: Asking, path: str) -> None:
    where = ask.table("trips")
    first = ask(f"{where}/timeline?view=&since=0")
    shutil.rmtree(path)
    for what in ("timeline?view=&since=0", "partitions", "properties", "doctor"):
        assert ask(f"{where}/{what}", 400)["error"]["message"]
    assert ask(f"{where}/card")["trouble"]
    mainstem.create_table(path, SCHEMA, record_key="id", buckets=1).upsert(rows(1))
    again = ask(f"{where}/timeline?view={first['view']}&since={first['since']}")
    assert again["view"] != first["view"] and len(again["rows"]) == 1


def test_ten_thousand_instants_come_in_bounded_pages(tmp_path: Path) -> None:
    path = long_timeline(tmp_path / "long", 10_000)
    with served(path) as ask:
        where = ask.table("long")
        page = ask(f"{where}/timeline?view=&since=0")
        assert page["count"] == 10_000 and len(page["rows"]) == 2_000 and page["more"]
        told = []
        while len(told) < 8_000:
            page = ask(f"{where}/timeline?view={page['view']}&since={page['since']}")
            assert len(page["rows"]) <= 2_000
            told += page["rows"]
        began = time.process_time()
        ask(f"{where}/timeline?view={page['view']}&since={page['since']}")
        assert time.process_time() - began < 2.0


# -- who may ask ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1234"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "192.168.0.7"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost:8120", "Origin": "http://localhost:9999"}, 403),
        ({"Host": "localhost:8120", "Origin": "http://localhost:8120"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_other_names_and_other_pages_are_refused(ask: Asking, headers: dict[str, str], status: int) -> None:
    found, _, content = ask.raw("GET", "/api/tables", headers=headers)
    assert found == status, content
    assert status == 200 or json.loads(content)["error"]["message"]


def test_with_a_token_data_needs_it_and_the_page_does_not(path: str) -> None:
    with served(path, token=TOKEN) as ask:
        assert ask.raw("GET", "/")[0] == 200
        for given in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"}):
            status, headers, _ = ask.raw("GET", "/api/tables", headers=given)
            assert status == 401 and "www-authenticate" not in headers  # a browser asks for no password
        assert ask.raw("GET", f"/api/tables?token={TOKEN}")[0] == 401
        paid = {"Authorization": f"Bearer {TOKEN}"}
        assert ask.raw("GET", "/api/tables", headers=paid)[0] == 200
        assert ask.raw("GET", "/api/tables", headers={**paid, "Host": "10.1.2.3:8120"})[0] == 200
        assert ask.raw("GET", "/api/tables", headers={**paid, "Host": "evil.example"})[0] == 421


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("10.0.0.1", None), ("127.0.0.1", "short")])
def test_other_hosts_without_a_token_and_short_tokens_are_refused(host: str, token: str | None) -> None:
    with pytest.raises(Invalid, match="token"):
        Admission.of(host, token)


def test_a_server_on_another_address_of_loopback_has_its_own_name() -> None:
    admission = Admission.of("127.0.0.2", None)
    assert admission.refusal({"host": "127.0.0.2:8120"}, data=True) is None
    refusal = admission.refusal({"host": "127.0.0.3:8120"}, data=True)
    assert refusal is not None and refusal.status == 421


def test_every_answer_forbids_what_the_page_does_not_need(ask: Asking) -> None:
    for target in ("/", "/app.js", "/api/tables", "/api/nothing", "/nothing"):
        _, headers, _ = ask.raw("GET", target)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'self'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff" and "Set-Cookie" not in headers
        assert "Access-Control-Allow-Origin" not in headers
    for name, (content, _) in page_files().items():
        assert b"http://" not in content.replace(b"http://www.w3.org/", b""), name
        assert b"https://" not in content and b"innerHTML" not in content, name


# -- hostile clients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "body", "headers", "status"),
    [
        ("GET", "/../../etc/passwd", None, {}, 404),
        ("GET", "/%2e%2e/answers.py", None, {}, 404),
        ("GET", "/__init__.py", None, {}, 404),
        ("GET", "/api/tables/" + "x" * 5_000, None, {}, 404),
        ("GET", "/" + "x" * 70_000, None, {}, 414),
        ("PUT", "/api/tables", None, {}, 501),
        ("DELETE", "/api/tables", None, {}, 501),
        ("POST", "/", b"{}", {"Content-Type": "application/json"}, 405),
        ("POST", "/api/tables", b"{}", {"Content-Type": "application/json"}, 404),
        ("POST", "/api/tables/x/query", b"{}", {"Content-Type": "text/plain"}, 415),
        ("POST", "/api/tables/x/query", b"x" * 70_000, {"Content-Type": "application/json"}, 413),
        ("POST", "/api/tables/x/query", b"[" * 60_000, {"Content-Type": "application/json"}, 400),
        ("GET", "/api/tables", b"body", {}, 400),
    ],
)
def test_requests_beyond_the_bounds_are_refused_as_json(
    ask: Asking, method: str, target: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    found, told, content = ask.raw(method, target, body, headers)
    assert found == status and told["Content-Type"] == "application/json" and json.loads(content)["error"]
    assert ask("tables")["tables"]


@pytest.mark.parametrize(
    "wrong",
    ["groups?limit=100000", "groups?limit=0", "groups?sort=size;drop", "timeline?since=-1",
     "timeline?since=1e9", "partitions?offset=x", "instant?requested=1&action=commit"],
)  # fmt: skip
def test_wrong_values_are_told_by_name(ask: Asking, wrong: str) -> None:
    assert ask(f"{ask.table('trips')}/{wrong}", 400)["error"]["kind"] == "Invalid"


def test_more_connections_than_allowed_are_closed_and_the_server_goes_on(ask: Asking) -> None:
    silent = [socket.create_connection(("127.0.0.1", ask.port)) for _ in range(CONNECTIONS_MAX)]
    with socket.create_connection(("127.0.0.1", ask.port), timeout=10) as late:
        assert late.recv(1) == b""
    for one in silent:
        one.close()
    for _ in range(50):
        time.sleep(0.1)
        try:
            assert ask("tables")["tables"]
            break
        except (OSError, AssertionError):
            continue
    else:
        pytest.fail("the server no longer answers")


def test_the_page_writes_nothing(ask: Asking, made: Path) -> None:
    def listed() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in made.rglob("*") if p.is_file()}

    before, where = listed(), ask.table("trips")
    ask.timeline(where)
    for what in ("", "/partitions", "/groups", "/indexes", "/streams", "/properties", "/doctor"):
        ask(f"{where}{what}")
    ask(f"{where}/explain", key="k1")
    ask(f"{where}/query", sql="select * from t")
    assert listed() == before


# -- the command ---------------------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_ended_and_finds_tables_in_folders(path: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mainstem", "ui", str(tmp_path), path, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["tables"] == 1 and told["url"].startswith("http://127.0.0.1:")
        ask = Asking(int(told["url"].rstrip("/").rpartition(":")[2]), {})
        assert [one["path"] for one in ask("tables")["tables"]] == [path]
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_the_command_refuses_what_it_cannot_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", str(tmp_path)]) == 1
    assert "no table is there" in capsys.readouterr().err
    mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1)
    assert main(["ui", str(tmp_path), "--host", "0.0.0.0"]) == 1
    assert "give a token" in capsys.readouterr().err
    assert main(["ui", str(tmp_path), "--port", "99999"]) == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["ui", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 1
    assert "give another --port" in capsys.readouterr().err
