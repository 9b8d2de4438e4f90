"""Goal: what a compaction plan says is checked before anything is done, and its memory is bounded.

Method: the plan of a small table is replaced by one that names other files; nothing may be made or removed
by its execution. Tables larger than the memory option allows are compacted like others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid
from mainstem.storage import paths
from mainstem.timeline.plans import encode_compaction_plan, load_compaction_plan
from tests.services.city_table import QUICK, SCHEMA, make, rows
from tests.storage.counted_calls import counted_table
from tests.storage.steps import storage_at


def everything(table: mainstem.Table) -> dict[str, int]:
    files = (f for f in Path(table.path).rglob("*") if f.is_file())
    return {str(f): f.stat().st_size for f in files}


def calls_under_the_lock(table: mainstem.Table) -> list[tuple[str, str]]:
    """Of planning a compaction."""
    opened, store = counted_table(table, QUICK)
    store.calls.clear()
    assert opened.schedule_compaction() is not None
    return [(name, path) for name, path, held in store.calls if held]


def test_what_a_plan_does_under_the_lock_does_not_grow_with_partitions_and_log_files(tmp_path):
    small, large = make(tmp_path / "small"), make(tmp_path / "large")
    cities = pa.array([f"c{n % 20}" for n in range(60)])
    small.upsert(rows(range(3), 1))
    for ts in range(4):
        large.upsert(rows(range(60), ts).set_column(1, "city", cities))
    few, many = calls_under_the_lock(small), calls_under_the_lock(large)
    assert len(many) <= len(few), "\n".join(map(str, many))
    assert not [path for name, path in many if name == "stat" and ".log." in path]


OTHER = "00000009-0000-0000-0000-000000000000-0"


@pytest.mark.parametrize(
    "forge, message",
    [
        (lambda a, b: [replace(a, log_files=(*a.log_files, *b.log_files)), b], "for the file group"),
        (lambda a, b: [a, a], "names the file group .* twice"),
        (lambda a, b: [replace(a, log_files=a.log_files * 2)], "names a file of .* twice"),
        (lambda a, b: [replace(a, base_file=paths.base_name(a.file_id, "0-0-0", "2" * 17))], "not exist"),
        (lambda a, b: [replace(a, base_file=paths.base_name(OTHER, "0-0-0", "2" * 17))], "file group"),
        (lambda a, b: [replace(a, log_files=(a.log_files[0].replace(".log.1", ".log.7"),))], "not exist"),
        (lambda a, b: [replace(a, partition="../a")], "leaves the table"),
        (lambda a, b: [replace(a, log_files=("../../" + a.log_files[0],))], "not in the partition"),
        (lambda a, b: [replace(a, log_files=("file:/tmp/" + a.log_files[0],))], "not in the partition"),
        (lambda a, b: [replace(a, log_files=("passwd",))], "no log file"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_of_this_table_is_refused_and_nothing_is_made_or_removed(
    tmp_path, forge, message
):
    table = make(tmp_path / "t")
    table.upsert(rows(range(20), 1))
    table.upsert(rows(range(10), 2))
    planned = table.schedule_compaction()
    operations = load_compaction_plan(storage_at(table.path), planned)
    forged = forge(*(o for o in operations if o.partition == "a"))
    plan = Path(table.path) / paths.timeline_file(f"{planned}.compaction.requested")
    plan.write_bytes(encode_compaction_plan(forged, [{} for _ in forged]))
    before = everything(table)
    with pytest.raises(CorruptTable, match=message) as error:
        table.run_compaction(planned)
    assert error.value.path.endswith("compaction.requested")
    assert everything(table) == before


def test_a_plan_of_version_1_names_whole_paths(tmp_path):
    table = make(tmp_path / "t")
    table.upsert(rows(range(20), 1))
    planned = table.schedule_compaction()
    operations = load_compaction_plan(storage_at(table.path), planned)
    old = [
        replace(o, log_files=tuple(f"file:{table.path}/{o.partition}/{n}" for n in o.log_files))
        for o in operations
    ]
    plan = Path(table.path) / paths.timeline_file(f"{planned}.compaction.requested")
    plan.write_bytes(encode_compaction_plan(old, [{} for _ in old]))
    (done,) = table.run_compaction(planned)
    assert done.completion and done.rows == 20


@pytest.mark.parametrize("key", ["hoodie.memory.compaction.max.size", "hoodie.memory.merge.max.size"])
def test_a_table_that_is_larger_than_the_memory_option_is_compacted_to_the_same_rows(tmp_path, key):
    table = make(tmp_path / "t")
    for turn in range(3):
        table.upsert(rows(range(turn * 500, 3000), 5 - turn))
    table.delete(rows(range(100, 200), 0).select(["id", "city"]))
    expected = table.scan(columns=SCHEMA.names).to_arrow().sort_by("id")
    small = mainstem.open_table(table.path, {**QUICK, key: str(1024 * 1024)})
    (done,) = small.compact()
    assert done.completion and done.rows == expected.num_rows
    found = small.scan(columns=SCHEMA.names, mode="read_optimized").to_arrow().sort_by("id")
    assert found.equals(expected)
    assert np.unique(found["ts"].to_numpy()).tolist() == [5]


def test_a_memory_option_that_means_nothing_is_refused(tmp_path):
    table = make(tmp_path / "t")
    with pytest.raises(Invalid, match=r"hoodie\.memory\.compaction\.max\.size='1g'"):
        mainstem.open_table(table.path, {**QUICK, "hoodie.memory.compaction.max.size": "1g"})
