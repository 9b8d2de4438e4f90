"""Goal: ``explain_row`` tells every version of a row that is still there; the winner is what a query shows.

Method: of every golden table that Java wrote, keys are explained and compared with the rows of a scan; small
tables are written so that it is known which version must win, and why.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid, MainstemError
from tests.golden_tables.tables import NAMES, encoded, unpack

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
KEYS = 4


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("explained")


def by_key(rows: pa.Table) -> dict[str, pa.Table]:
    """Record key -> the rows that a query shows."""
    places = defaultdict(list)
    for number, key in enumerate(rows["_hoodie_record_key"].to_pylist()):
        places[key].append(number)
    return {key: rows.take(pa.array(at)) for key, at in places.items()}


@pytest.mark.versions
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.supports("Queries", "explain_row: every version of a row, and which one wins")
def test_the_winner_is_the_row_that_a_query_shows(name, unpacked):
    path = unpack(name, unpacked)
    options = {"mainstem.read.damaged": "skip", "hoodie.mainstem.timeline.zone": "UTC"}
    table = mainstem.open_table(path, options)
    try:
        shown = by_key(table.scan().to_arrow())
    except MainstemError as error:
        pytest.skip(f"the table is refused: {error}")
    deleted = deleted_keys(table) - shown.keys()
    for key in [*sorted(shown)[:KEYS], *sorted(deleted)[:KEYS]]:
        told = table.explain_row(key)
        expected = shown.get(key, told.rows.slice(0, 0))
        assert encoded(told.rows) == encoded(expected.select(told.rows.column_names)), key
        assert told.found
        users = [field for field in told.rows.schema if not field.name.startswith("_hoodie_")]
        winners = [dict(winner.values) for winner in told.winners if winner.kind != "delete"]
        made = "partial updates" in told.merge or any(v.kind == "partial row" for v in told.versions)
        if not made:
            stored = pa.Table.from_pylist(winners, pa.schema(users))
            assert encoded(stored) == encoded(told.rows.select(stored.column_names)), key
        json.dumps(told.to_json(), allow_nan=False)
        assert told.to_arrow().num_rows == len(told.versions) and str(told)


def deleted_keys(table: mainstem.Table) -> set[str]:
    try:
        changes = table.changes(deletes=True).to_arrow()
    except MainstemError:
        return set()
    gone = pa.compute.equal(changes["_change_type"], "delete")
    return set(changes.filter(gone)["_hoodie_record_key"].to_pylist())


# -- small tables --------------------------------------------------------------------------------------


def row(ts: int, value: str | None, city: str = "oslo", key: str = "a") -> pa.Table:
    return pa.table({"id": [key], "city": [city], "ts": [ts], "value": [value]}, schema=SCHEMA)


def made(folder: Path, **options: Any) -> mainstem.Table:
    properties = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.services": "off"}
    properties |= options.pop("properties", {})
    given = {"ordering": "ts", "buckets": 4, "partition_by": "city"} | options
    return mainstem.create_table(folder / "t", SCHEMA, record_key="id", properties=properties, **given)


def kinds(told: Any) -> list[tuple[str, bool, bool]]:
    return [(version.kind, version.read, version.wins) for version in told.versions]


def test_the_greatest_ordering_value_wins_and_every_version_says_why(tmp_path):
    table = made(tmp_path, properties={"hoodie.mainstem.writer.name": "job-7"})
    outcomes = [table.upsert(row(ts, f"v{ts}")) for ts in (2, 5, 3)]
    told = table.explain_row("a")
    assert [v.values["value"] for v in told.versions] == ["v2", "v5", "v3"]
    assert kinds(told) == [("row", True, False), ("row", True, True), ("row", True, False)]
    assert [v.ordering for v in told.versions] == [{"ts": 2}, {"ts": 5}, {"ts": 3}]
    for version, outcome in zip(told.versions, outcomes, strict=True):
        assert (version.instant, version.completion) == (outcome.instant, outcome.completion_time)
        assert (version.operation, version.writer) == ("UPSERT", "job-7")
        assert version.commit_time == outcome.instant
        assert (version.block, version.offset, version.row) == (0, 0, 0)
    assert [v.why for v in told.versions] == [
        "its ordering value loses to that of version 2",
        "the greatest ordering value wins",
        "its ordering value loses to that of version 2",
    ]
    assert told.versions[0].why_slice == "the log file begins it, as the first one of the file group"
    assert "completed at" in told.versions[1].why_slice
    assert told.rows.to_pylist()[0]["value"] == "v5"
    assert "2. WINS row: the greatest" in str(told)


def test_a_compaction_begins_a_slice_and_takes_the_place_of_the_older_one(tmp_path):
    table = made(tmp_path)
    first = table.upsert(row(2, "old"))
    (compaction,) = table.compact()
    late = table.upsert(row(1, "late"))
    told = table.explain_row("a", partition="oslo")
    assert kinds(told) == [("row", False, False), ("base", True, True), ("row", True, False)]
    old, base, after = told.versions
    assert "has taken the place" in old.why
    assert (base.instant, base.commit_time) == (compaction.requested, first.instant)
    assert after.slice == base.slice == compaction.requested and after.instant == late.instant
    assert f"after {compaction.requested}, which is the newest base file" in after.why_slice


def test_deletes_are_versions_too(tmp_path):
    table = made(tmp_path)
    table.upsert(row(9, "first"))
    table.delete({"id": ["a"], "city": ["oslo"]})
    told = table.explain_row("a")
    assert kinds(told) == [("row", True, False), ("delete", True, True)]
    assert told.versions[1].unconditional and "removes what came before" in told.versions[0].why
    assert told.rows.num_rows == 0 and "a query shows no row" in str(told)
    table.upsert(row(1, "again"))
    told = table.explain_row("a")
    assert [v.wins for v in told.versions] == [False, False, True]
    assert told.rows.to_pylist()[0]["value"] == "again"


def test_the_winner_is_that_of_the_merge_that_queries_use(tmp_path, monkeypatch):
    from mainstem.merge import comparison

    table = made(tmp_path)
    table.upsert(row(1, "first"))
    table.upsert(row(1, "second"))
    assert [v.wins for v in table.explain_row("a").versions] == [False, True]
    monkeypatch.setattr(comparison, "LATER_WINS_TIES", False)
    assert [v.wins for v in table.explain_row("a").versions] == [True, False]


def test_columns_of_partial_updates_say_where_they_are_from(tmp_path):
    table = made(tmp_path, ordering=(), properties={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    table.upsert(row(1, "first"))
    table.update_columns({"id": ["a"], "city": ["oslo"], "value": ["second"]})
    table.update_columns({"id": ["a"], "city": ["oslo"], "ts": [7]})
    told = table.explain_row("a")
    assert told.columns == {"id": 1, "city": 1, "value": 2, "ts": 3}
    assert told.rows.select(["ts", "value"]).to_pylist() == [{"ts": 7, "value": "second"}]


def test_versions_after_the_time_asked_for_are_told_as_such(tmp_path):
    table = made(tmp_path)
    first = table.upsert(row(1, "first"))
    table.upsert(row(2, "second"))
    told = table.explain_row("a", as_of=first.instant)
    assert [v.wins for v in told.versions] == [True, False]
    assert f"is later than {first.instant}" in told.versions[1].why


@pytest.mark.disk("a log file is there before its commit")
def test_rows_of_a_write_that_is_not_completed_are_told_as_such(tmp_path):
    table = made(tmp_path)
    table.upsert(row(1, "first"))
    with table.begin() as txn:
        txn.write(row(3, "open"))
        told = table.explain_row("a")
        assert kinds(told)[-1] == ("row", False, False)
        assert "is not completed: no query reads it" in told.versions[-1].why
        assert told.versions[-1].completion is None


def test_a_native_log_file_that_is_being_written_is_no_damage(tmp_path):
    table = made(tmp_path, table_version=10)
    table.upsert(row(1, "first"))
    with table.begin() as txn:
        txn.write(row(3, "open"))
        told = mainstem.open_table(table.path).explain_row("a")
        assert told.troubles == () and [v.wins for v in told.versions] == [True]


def test_a_key_of_several_partitions_is_told_in_each(tmp_path):
    table = made(tmp_path)
    table.upsert(row(1, "x"))
    table.upsert(row(1, "y", city="rome"))
    told = table.explain_row("a")
    assert [(v.partition, v.wins) for v in told.versions] == [("oslo", True), ("rome", True)]
    assert told.rows.num_rows == 2
    assert [v.partition for v in table.explain_row("a", partition="rome").versions] == ["rome"]
    for wrong in ("paris", "../x", ".hoodie"):
        with pytest.raises(Invalid, match="no such partition"):
            table.explain_row("a", partition=wrong)


def test_only_the_bucket_of_the_key_is_read_and_a_key_that_is_nowhere_says_so(tmp_path):
    table = made(tmp_path)
    table.upsert([{"id": f"k{n}", "city": "oslo", "ts": 1, "value": "v"} for n in range(100)])
    assert len(table.file_slices()) == 4
    told = table.explain_row("k5")
    assert len(told.looked_at) == 1 and "bucket" in told.looked_for
    nowhere = table.explain_row("nobody", partition="oslo")
    assert not nowhere.found and not nowhere.versions and nowhere.rows.num_rows == 0
    words = "no version is there; looked for in partition 'oslo': 1 files of 1 file groups (bucket"
    assert words in str(nowhere)


@pytest.mark.disk("damages files in a folder")
@pytest.mark.parametrize("harm", ["cut", "gone", "content", "base"])
def test_a_damaged_file_is_told_and_the_others_are_too(harm, tmp_path):
    table = made(tmp_path, buckets=1)
    for ts in (1, 2, 3):
        table.upsert(row(ts, f"v{ts}"))
        if ts == 1:
            table.compact()
    logs = sorted((tmp_path / "t" / "oslo").glob(".*.log.*"))
    bases = list((tmp_path / "t" / "oslo").glob("*.parquet"))
    victim = bases[0] if harm == "base" else logs[1]
    data = victim.read_bytes()
    if harm == "gone":
        victim.unlink()
    elif harm == "content":
        at = data.index(b"v2")
        victim.write_bytes(data[: at - 1] + b"\xff" + data[at:])
    else:
        victim.write_bytes(data[: len(data) // 2])
    told = mainstem.open_table(tmp_path / "t").explain_row("a")
    values = [v.values["value"] for v in told.versions]
    assert values == (["v1", "v2", "v3"] if harm == "base" else ["v1", "v1", "v3"])
    assert victim.name in told.troubles[0].path and "NOT READ" in str(told)
    assert [v.values["value"] for v in told.winners] == ["v3"]


def test_versions_beyond_the_limit_are_counted_and_the_winner_is_among_those_told(tmp_path, monkeypatch):
    from mainstem.readers.queries import explain_row

    table = made(tmp_path)
    table.upsert(pa.concat_tables([row(9, "winner"), *(row(n, f"v{n}") for n in range(8))]))
    monkeypatch.setattr(explain_row, "EXPLAINED_VERSIONS_MAX", 3)
    told = table.explain_row("a")
    assert [v.values["value"] for v in told.versions] == ["winner", "v5", "v6", "v7"]
    assert told.versions[0].wins and told.omitted == 5
    assert "5 older versions are not told" in str(told)


@pytest.mark.supports("Queries", "`mainstem explain`")
def test_the_command_tells_it_as_text_and_as_json(tmp_path, capsys):
    table = made(tmp_path)
    table.upsert(row(1, "first\x1b[2J"))
    assert main(["explain", table.path, "--key", "a", "--partition", "oslo"]) == 0
    text = capsys.readouterr().out
    assert "1. WINS row" in text and "\x1b" not in text
    assert main(["explain", table.path, "--key", "a", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["versions"][0]["wins"] and told["rows"][0]["ts"] == 1
    assert told == json.loads(json.dumps(table.explain_row("a").to_json()))
    assert main(["explain", table.path, "--key", "a", "--partition", "paris"]) == 1
    assert "no such partition" in capsys.readouterr().err


LSM_TREE = {"hoodie.table.storage.layout": "lsm_tree"}
MODES: dict[str, dict[str, Any]] = {
    "event time": {},
    "commit time": {"ordering": ()},
    "partial": {"properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}},
    "version 8": {"table_version": 8},
    "lsm tree": {"table_version": 10, "properties": LSM_TREE},
    "lsm tree, partial": {
        "table_version": 10, "properties": {**LSM_TREE, "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    },
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_after_any_history_the_explanation_shows_what_a_query_shows(mode, seed, tmp_path):
    random = Random(f"{mode} {seed}")
    table = made(tmp_path, **MODES[mode])
    later: list[mainstem.Transaction] = []
    for number in range(25):
        key, ts = f"k{random.randrange(4)}", random.randrange(4)
        step = random.choice(["upsert"] * 5 + ["delete", "begin", "commit", "compact", "log_compact"])
        given = row(ts, random.choice([f"v{number}", None]), key=key)
        if step == "upsert":
            table.upsert(given)
        elif step == "delete":
            table.delete({"id": [key], "city": ["oslo"]})
        elif step == "begin":
            later.append(table.begin())
            later[-1].write(given)
        elif step == "commit" and later:
            later.pop(random.randrange(len(later))).commit()
        elif step == "compact":
            table.compact()
        elif step == "log_compact" and not later and "lsm" not in mode:  # refused beside open writes, too
            table.log_compact()
    shown = by_key(table.scan().to_arrow())
    for key in (f"k{n}" for n in range(4)):
        told = table.explain_row(key)
        assert told.rows.to_pylist() == (shown[key].to_pylist() if key in shown else []), key
        assert len(told.winners) == (1 if any(v.read for v in told.versions) else 0)
        if "partial" not in mode and key in shown:
            assert told.winners[0].values == shown[key].select(SCHEMA.names).to_pylist()[0]
    for txn in later:
        txn.abort()


def test_a_key_may_be_given_by_its_columns(tmp_path):
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("ts", pa.int64())])
    table = mainstem.create_table(tmp_path / "t", schema, record_key=["a", "b"], ordering="ts", buckets=2)
    table.upsert({"a": ["x"], "b": [7], "ts": [1]})
    told = table.explain_row({"b": 7, "a": "x"})
    assert told.key == "a:x,b:7" and told.rows.num_rows == 1
    assert told.versions == table.explain_row("a:x,b:7").versions
    with pytest.raises(Invalid, match=r"has the columns 'a'; the record key of this table is made of"):
        table.explain_row({"a": "x"})
    with pytest.raises(Invalid, match="the key columns are a string, b int64"):
        table.explain_row({"a": "x", "b": "seven"})


def test_change_logs_tell_what_they_have_of_the_key(unpacked):
    path = unpack("cdc_mor_data_before_after", unpacked)
    table = mainstem.open_table(path, {"hoodie.mainstem.timeline.zone": "UTC"})
    logged = table.changes(mode="cdc", images="struct").to_arrow()
    compactions = set(table.history(actions=["commit"])["requested"].to_pylist())  # they log them again
    told = {}
    for key in range(1, 25):
        for change in table.explain_row(key).changes:
            told[change.instant, key] = change
            assert {(i or {"id": key})["id"] for i in (change.before, change.after)} == {key}
            assert change.completion and f"change {change.op}: instant {change.instant}" in str(
                table.explain_row(key)
            )
    assert compactions & {instant for instant, _ in told}
    told = {place: change for place, change in told.items() if place[0] not in compactions}
    assert told
    every = {(r["ts_ms"], (r["after"] or r["before"])["id"]): r["op"] for r in logged.to_pylist()}
    assert {place: change.op for place, change in told.items()}.items() <= every.items()


def without_buckets(tmp_path: Path, index: str) -> mainstem.Table:
    return mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city",
        properties={"hoodie.index.type": index},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["change", "delete"])
def test_indexes_say_where_the_key_is_and_under_which_values(kind, tmp_path):
    table = without_buckets(tmp_path, "RECORD_INDEX")
    table.upsert(row(1, "old"))
    table.create_index("secondary_index", ["value"])
    told = table.explain_row("a")
    (place,) = [e for e in told.indexes if e.index == "record_index"]
    assert place.entry["file_id"] == told.winners[0].file_id and place.agrees
    (entry,) = [e for e in told.indexes if e.index != "record_index"]
    assert entry.entry == {"value": "old"} and entry.agrees and "has the key under" in str(told)
    if kind == "change":
        table.upsert(row(2, "new"))
    else:
        table.delete({"id": ["a"], "city": ["oslo"]})
    told = table.explain_row("a")
    found = [(e.entry["value"], e.what) for e in told.indexes if e.index != "record_index"]
    older = [("old", "still has it under an older value,")]
    assert found == ([("new", "has the key under"), *older] if kind == "change" else older)
    assert all(e.agrees for e in told.indexes)


def test_an_index_that_lacks_the_row_is_told(tmp_path, monkeypatch):
    from mainstem.readers.skipping.metadata_indexes import Indexes

    table = without_buckets(tmp_path, "RECORD_INDEX")
    table.upsert(row(1, "old"))
    table.create_index("record_index")
    monkeypatch.setattr(Indexes, "places", lambda *_: set())
    told = table.explain_row("a")
    (place,) = told.indexes
    assert not place.agrees and "index record_index DIFFERS: no entry for the row in" in str(told)
    monkeypatch.setattr(Indexes, "places", lambda *_: {("oslo", "elsewhere")})
    assert "index record_index DIFFERS: the row is not in" in str(table.explain_row("a"))


def test_bloom_filters_rule_out_base_files_without_the_key(tmp_path):
    table = without_buckets(tmp_path, "BLOOM")
    for city in ("oslo", "rome"):
        table.bulk_insert(row(1, "v", city, key=city))
    told = table.explain_row("oslo")
    assert [v.partition for v in told.versions] == ["oslo"]
    assert "bloom filters rule out 1 base files" in told.looked_for


def test_a_table_that_is_restored_meanwhile_is_answered_with_what_is_known(tmp_path, monkeypatch):
    from mainstem.readers.queries.explain_row import _Search

    table = made(tmp_path)
    table.upsert(row(1, "old"))
    kept = table.savepoint().instant
    table.upsert(row(2, "new"))
    look, restored = _Search._group, []

    def restores_first(search, *given):
        if not restored:
            restored.append(mainstem.open_table(table.path).restore(kept))
        return look(search, *given)

    monkeypatch.setattr(_Search, "_group", restores_first)
    told = table.explain_row("a")
    assert restored and [v.values["value"] for v in told.versions] == ["old"]
    (trouble,) = told.troubles
    assert ".log." in trouble.path and trouble.what == "it is gone"
    assert table.explain_row("a").winners[0].values["value"] == "old"
