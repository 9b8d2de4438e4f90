"""Goal: ``history`` tells every instant, active or archived, with who wrote what; by key it misses no writer.

Method: of every golden table that Java wrote, the writers of rows that a query shows are looked for; a small
table is written by named writers, compacted, cleaned and archived.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, MainstemError
from tests.golden_tables.tables import NAMES, unpack

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
KEYS = 3


def row(key, ts, city="oslo"):
    return pa.table([[key], [city], [ts]], schema=SCHEMA)


@pytest.fixture
def path(tmp_path):
    """Two writers, a delete, a compaction; all but the last instants archived, old files cleaned."""
    properties = {"hoodie.mainstem.services": "off", "hoodie.clean.commits.retained": "1"}
    base = str(tmp_path / "t")
    mainstem.create_table(base, SCHEMA, record_key="id", ordering="ts", partition_by=["city"], buckets=1)
    anna, ben = (
        mainstem.open_table(base, {**properties, "hoodie.mainstem.writer.name": name})
        for name in ("anna", "ben")
    )
    anna.upsert(row("a", 1))
    ben.upsert(row("b", 2, "bergen"))
    ben.delete(row("b", 3, "bergen"))
    anna.compact()
    anna.upsert(row("c", 4))
    return base


@pytest.mark.versions
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.supports("Queries", "history: who wrote what and when, archived instants too")
def test_the_writer_of_each_row_that_a_query_shows_is_told(name, tmp_path):
    options = {"mainstem.read.damaged": "skip", "hoodie.mainstem.timeline.zone": "UTC"}
    table = mainstem.open_table(unpack(name, tmp_path), options)
    try:
        shown = table.scan(columns=["_hoodie_record_key", "_hoodie_commit_time"]).to_arrow()
    except MainstemError as error:
        pytest.skip(f"the table is refused: {error}")
    every = table.history()
    assert set(every["requested"].to_pylist()) >= {i.requested for i in table.timeline()}
    told = [(i["requested"], i["action"]) for i in every.to_pylist()]
    assert len(told) == len(set(told))
    # Java's log compaction says that it made the rows.
    merged = {i["requested"] for i in every.to_pylist() if i["operation"] == "LOG_COMPACT"}
    for one in shown.slice(0, KEYS).to_pylist():
        writers = table.history(keys=one["_hoodie_record_key"])["requested"].to_pylist()
        assert writers
        if one["_hoodie_commit_time"] is not None:  # virtual keys come without
            assert merged.union(writers) >= {one["_hoodie_commit_time"]}, one


def test_each_instant_says_who_wrote_what(path):
    told = mainstem.open_table(path).history().to_pylist()
    assert [(i["operation"], i["writer"], i["partitions"]) for i in told] == [
        ("UPSERT", "anna", ["oslo"]), ("UPSERT", "ben", ["bergen"]), ("DELETE", "ben", ["bergen"]),
        ("COMPACT", "", ["bergen", "oslo"]), ("UPSERT", "anna", ["oslo"]),
    ]  # fmt: skip
    assert [i["deletes"] for i in told] == [0, 0, 1, 0, 0]
    assert [i["file_groups"] for i in told] == [1, 1, 1, 2, 1]
    assert all(i["state"] == "COMPLETED" and not i["archived"] and i["bytes"] for i in told)


@pytest.mark.disk("a store archives no instant that is as young as these")
def test_archived_instants_say_the_same_as_before(path):
    table = mainstem.open_table(path)
    before = table.history().drop_columns(["archived"])
    names = ("hoodie.clean.commits.retained", "hoodie.keep.min.commits", "hoodie.keep.max.commits")
    mainstem.open_table(path, dict(zip(names, "123", strict=True))).archive()
    after = table.history()
    assert after["archived"].to_pylist()[0]
    assert after.drop_columns(["archived"]) == before
    second = before["completion"][1].as_py()
    later = table.history(after=second, until=before["completion"][3].as_py())
    assert later["requested"].to_pylist() == before["requested"].to_pylist()[2:4]


def test_writers_partitions_and_keys_choose(path):
    table = mainstem.open_table(path)

    def told(**choice):
        return [(i["operation"], i["writer"], i["keys"]) for i in table.history(**choice).to_pylist()]

    assert told(writer="ben") == [("UPSERT", "ben", None), ("DELETE", "ben", None)]
    assert told(partition="bergen", actions=["deltacommit"]) == told(writer="ben")
    assert told(keys="b") == [("UPSERT", "ben", 1), ("DELETE", "ben", 1)]
    assert told(keys=("a", "b"), writer="anna") == [("UPSERT", "anna", 1)]
    assert told(keys="nowhere") == []


def test_writes_whose_files_were_cleaned_are_told_without_a_count(path):
    table = mainstem.open_table(path, {"hoodie.clean.commits.retained": "1"})
    for ts in (5, 6, 7):
        table.upsert(row("c", ts))
        table.compact()
    table.clean()
    assert table.history(keys="a")["keys"].to_pylist()[0] is None


def test_a_pending_write_is_told_last_by_what_is_known(path):
    table = mainstem.open_table(path)
    with table.begin() as txn:
        last = table.history().to_pylist()[-1]
        txn.abort()
    assert last["requested"] == txn.instant
    assert (last["completion"], last["operation"], last["bytes"]) == (None, "", None)
    assert table.history(until="2999-01-01").to_pylist()[-1]["completion"]


def test_what_makes_no_sense_is_refused(path):
    table = mainstem.open_table(path)
    with pytest.raises(Invalid, match="no action of a timeline"):
        table.history(actions=["upsert"])
    with pytest.raises(Invalid, match="swap them"):
        table.history(keys=("b", "a"))
    with pytest.raises(Invalid, match="after"):
        table.history(after="yesterday")


def test_the_command_prints_the_same(path, capsys):
    assert main(["history", path, "--writer", "ben"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "DELETE" in lines[2] and "keys" not in lines[0]
    assert main(["history", path, "--keys", "a", "c", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told == mainstem.open_table(path).history(keys=("a", "c")).to_pylist()


def test_a_limit_gives_the_newest_and_damage_is_told_where_it_does_not_fail(path):
    table = mainstem.open_table(path)
    every = table.history()
    assert table.history(limit=2).to_pylist() == every.to_pylist()[-2:]
    assert table.history(limit=1, writer="ben").to_pylist() == [
        one for one in every.to_pylist() if one["writer"] == "ben"
    ][-1:]
    assert table.history(limit=0).num_rows == 0
    with pytest.raises(Invalid, match="limit=-1"):
        table.history(limit=-1)


@pytest.mark.disk("damages a file of the timeline by hand")
def test_damaged_metadata_fails_a_history_or_is_told_in_it(path):
    timeline = Path(path, ".hoodie/timeline")
    torn = max(p for p in timeline.iterdir() if p.name.endswith(".deltacommit"))
    torn.write_bytes(torn.read_bytes()[:50])
    with pytest.raises(CorruptTable):
        mainstem.open_table(path).history()
    told = mainstem.open_table(path, {"mainstem.read.damaged": "skip"}).history().to_pylist()
    assert [one["requested"] for one in told if one["damage"]] == [torn.name.partition("_")[0]]
    assert [one["rows"] is None for one in told if one["damage"]] == [True]
