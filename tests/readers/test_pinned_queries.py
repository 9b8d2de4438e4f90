"""Goal: all tasks of a pinned query read the rows of one moment, with columns and filters pushed to files.

Method: tasks are pickled, as engines do, and read after writes, services and time have gone by; what they
read is compared with `Table.scan` at that moment.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.engines.pinned import Pinned, of_time
from mainstem.errors import Invalid, Unavailable, Unsupported

pytestmark = pytest.mark.here("tasks open the table again")

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


def rows(count: int, ts: int = 1) -> pa.Table:
    cities = ["oslo" if i % 2 else "rome" for i in range(count)]
    keys, fares = [f"k{i}" for i in range(count)], [i / 2 for i in range(count)]
    return pa.table([keys, [ts] * count, cities, fares], SCHEMA)


@pytest.fixture
def table(tmp_path) -> mainstem.Table:
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=3, partition_by="city"
    )
    made.upsert(rows(40))
    made.compact()
    made.upsert(rows(10, ts=2))
    return made


def pinned(table: mainstem.Table, **when: object) -> Pinned:
    asked = {"as_of": None, "as_of_completion": None, "after": None, "until": None, "deletes": False, **when}
    return of_time(table, **asked)


def read(query: Pinned, *args: object, **named: object) -> pa.Table:
    tasks = pickle.loads(pickle.dumps(query.tasks(*args, **named)))
    tables = [part for task in tasks for part in task.read()]
    return pa.concat_tables(tables).sort_by("id") if tables else pa.table({"id": pa.array([], pa.string())})


def test_every_task_reads_the_moment_of_the_plan_whatever_is_committed_since(table) -> None:
    first = max(i.completion for i in table.timeline())
    queries = [pinned(table), pinned(table, as_of=table.timeline()[-1].requested)]
    queries += [pinned(table, as_of_completion=first), pickle.loads(pickle.dumps(queries[0]))]
    before = table.scan().to_arrow().sort_by("id")
    some = pc.field("fare") > 3
    filtered = table.scan(columns=["id", "ts"], filter=some).to_arrow().sort_by("id")
    table.upsert(rows(50, ts=9))
    table.delete(rows(5).select(["id", "city"]))
    table.compact()
    table.insert_overwrite(rows(1, ts=11))
    for query in queries:
        assert read(query).equals(before)
        assert read(query, ["id", "ts"], some).equals(filtered)
        assert read(query, most=2).equals(before) and len(query.tasks(most=2)) == 2
    assert pinned(table).schema == before.schema


def test_a_filter_leaves_file_slices_out(table) -> None:
    query = pinned(table)
    assert len(query.tasks()) == 6
    assert len(query.tasks(None, pc.field("city") == "oslo")) == 3
    assert len(query.tasks(["fare"], (pc.field("id") == "k3") & (pc.field("city") == "oslo"))) == 1


def test_changes_of_a_range_are_read_as_of_the_newest_commit_then(table) -> None:
    first, *_ = sorted(i.completion for i in table.timeline() if i.action == "deltacommit")
    since, deletes = pinned(table, after=first), pinned(table, after=first, deletes=True)
    meant = table.changes(after=first).to_arrow().sort_by("id")
    table.delete(rows(5).select(["id", "city"]))
    assert read(since).equals(meant) and meant.num_rows == 10
    assert read(since, ["id"], pc.field("fare") >= 4.5)["id"].to_pylist() == ["k9"]
    assert read(deletes).num_rows == 10
    gone = read(pinned(table, after=first, deletes=True))
    assert gone["_change_type"].to_pylist().count("delete") == 5
    newest = max(i.completion for i in table.timeline())
    assert pinned(table, after=newest).tasks() == []


def test_what_cannot_be_asked_is_refused_when_it_is_asked(table) -> None:
    with pytest.raises(Invalid, match="no column 'fair'"):
        pinned(table).tasks(["fair"])
    with pytest.raises(Invalid, match="expected a pyarrow"):
        pinned(table).tasks(None, "fare > 3")
    with pytest.raises(Invalid, match="give one kind"):
        pinned(table, as_of=table.timeline()[-1].requested, after="000")
    with pytest.raises(Unsupported, match="choose among the rows"):
        pinned(table, deletes=True).tasks(["id"])


@pytest.mark.disk("files are removed")
def test_a_task_whose_files_are_gone_or_out_of_reach_says_which_it_is(table, tmp_path) -> None:
    (task, *_) = pinned(table).tasks()
    far = replace(task, location=replace(task.location, path=str(tmp_path / "nowhere")))
    with pytest.raises(Unavailable, match="this worker finds no table at its path"):
        list(far.read())
    for file in tmp_path.joinpath("t").rglob("*.parquet"):
        if ".hoodie" not in file.parts:
            file.unlink()
    with pytest.raises(Unavailable, match="clean retains too few commits"):
        list(task.read())
