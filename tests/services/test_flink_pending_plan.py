"""Goal: a compaction that Hudi's Flink planned and never commits (on partitioned tables it never does) is
finished by mainstem, and changes no row.

Method: the golden table that Flink left with such a plan; and a partitioned table of ours with a plan that
was begun as Flink begins it: an inflight file, one of the plan's base files, cut off, and its marker.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Unavailable
from mainstem.storage import paths
from tests.golden_tables.tables import unpack
from tests.hudi_rs.reading import read

OPTIONS = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def user_rows(table):
    names = table.schema.names
    return sorted(tuple(row.values()) for row in table.scan(columns=names).to_arrow().to_pylist())


def rows_of_hudi_rs(table):
    """The same from another reader."""
    pytest.importorskip("hudi")
    found, error = read(table.path)
    assert error is None, error
    return sorted(tuple(row.values()) for row in found.select(table.schema.names).to_pylist())


def pending_compactions(table):
    return [i.requested for i in table.timeline() if i.action == "compaction" and not i.is_completed]


@pytest.mark.supports("Services", "compaction: plans that Hudi's Flink left pending")
def test_the_plan_that_flink_left_is_finished_and_changes_no_row(tmp_path):
    base = unpack("flink_pending_compaction", tmp_path)
    given = {**OPTIONS, "hoodie.bucket.index.num.buckets": "4", "hoodie.mainstem.timeline.zone": "UTC"}
    table = mainstem.open_table(base, properties=given)
    before = user_rows(table)
    (planned,) = pending_compactions(table)
    (done,) = table.run_compaction()
    assert done.requested == planned
    assert pending_compactions(table) == []
    assert user_rows(table) == before
    assert {s.base_instant for s in table.file_slices() if s.base_file} == {planned}
    assert rows_of_hudi_rs(table) == before


@pytest.fixture
def begun(tmp_path):
    """A partitioned table whose plan was begun elsewhere: its requested time, and the base file that is
    there, cut off."""
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="city", buckets=2, properties=OPTIONS
    )
    for n in range(3):
        ids = [f"k{i}" for i in range(20)]
        cities = ["rome" if i % 2 else "oslo" for i in range(20)]
        table.upsert(pa.table({"id": ids, "city": cities, "n": [n] * 20}, SCHEMA))
    planned = table.schedule_compaction()
    found = next(s for s in table.file_slices() if s.partition == "rome" and s.log_files)
    name = f"{found.file_id}_1-2-0_{planned}.parquet"
    (tmp_path / "t" / "rome" / name).write_bytes(b"PAR1 and no more")
    marker = tmp_path / "t" / ".hoodie" / ".temp" / planned / "rome" / f"{name}.marker.MERGE"
    marker.parent.mkdir(parents=True)
    marker.touch()
    (tmp_path / "t" / paths.timeline_file(f"{planned}.compaction.inflight")).touch()
    return table, planned, tmp_path / "t" / "rome" / name


def test_a_plan_that_was_begun_is_waited_for_while_its_files_are_new(begun):
    table, _, _ = begun
    before = user_rows(table)
    with pytest.raises(Unavailable, match="another engine seems to execute the compaction"):
        table.run_compaction()
    assert user_rows(table) == before


def test_a_plan_that_was_begun_long_ago_is_finished_and_what_lies_around_is_gone(begun):
    table, planned, left = begun
    before = user_rows(table)
    long_ago = time.time() - 3600
    for path in (left, left.parent.parent / paths.timeline_file(f"{planned}.compaction.inflight")):
        os.utime(path, (long_ago, long_ago))
    (done,) = table.run_compaction()
    assert done.requested == planned
    assert not left.exists()
    assert user_rows(table) == before
    assert all(s.base_instant == planned for s in table.file_slices() if s.base_file)
    assert rows_of_hudi_rs(table) == before
