"""Goal: the metadata table is compacted when that is worth its cost, never much later than Hudi would.

Method: commits of few rows to tables whose indexes of keys hold many or few, with a round of its services
after each.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.metadata.metadata_compaction_plan import MetadataCompactionOptions
from mainstem.services.metadata import metadata_compaction, metadata_growth
from mainstem.storage import paths
from mainstem.timeline.active import load_timeline

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
QUIET = {"hoodie.mainstem.fsync": False, "hoodie.table.services.enabled": False}
EVERY = "hoodie.metadata.compact.max.delta.commits"
GROWTH = "hoodie.mainstem.metadata.compact.growth.percent"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table with a record index of 2,050 keys, just compacted; the newest commit added 50 of them."""
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1,
        properties={
            "hoodie.metadata.enable": True,
            "hoodie.metadata.global.record.level.index.min.filegroup.count": 1,
        },
    )  # fmt: skip
    made.create_index("record_index")
    table = opened(tmp_path / "t")
    for name, rows in (("first", 2_000), ("second", 50)):
        commit(table, name, rows=rows)
        assert metadata_compaction.run(table.writer_context(), if_due=False)
    return tmp_path / "t"


def opened(path: Path, **more: object) -> mainstem.Table:
    return mainstem.open_table(path, {**QUIET, **more})


def commit(table: mainstem.Table, name: object, *, rows: int) -> None:
    ids = [f"{name}-{i}" for i in range(rows)]
    table.upsert(pa.table({"id": ids, "ts": [1] * rows}, SCHEMA))


def commits_until_compacted(table: mainstem.Table, *, rows: int) -> int:
    """After so many commits of ``rows`` rows a round compacts."""
    for number in range(1, 100):
        commit(table, number, rows=rows)
        if metadata_compaction.run(table.writer_context()):
            return number
    raise AssertionError("never compacted")


def test_it_waits_for_four_times_as_many_commits_where_they_add_little(path: Path) -> None:
    patient = 4 * MetadataCompactionOptions.from_properties({}).delta_commits
    assert commits_until_compacted(opened(path, **{GROWTH: 1000}), rows=1) == patient
    report = opened(path).validate_metadata()
    assert report is not None and report.ok, report


def test_it_waits_until_the_new_rows_are_the_share_that_is_asked_for(path: Path) -> None:
    assert commits_until_compacted(opened(path, **{GROWTH: 40}), rows=50) == 16  # 52 of 2,053 rows each


@pytest.mark.parametrize("given", [{GROWTH: 0}, {EVERY: 10, GROWTH: 1000}, {EVERY: 10}], ids=str)
def test_it_does_not_wait_where_the_number_of_commits_is_set(path: Path, given: dict) -> None:
    assert commits_until_compacted(opened(path, **given), rows=1) == 10


def test_a_record_of_the_newest_compaction_that_says_nothing_makes_nobody_wait(path: Path) -> None:
    folder = path / paths.METADATA_TIMELINE
    newest = max(name for name in os.listdir(folder) if name.endswith(".commit"))
    os.truncate(folder / newest, 0)
    ctx = opened(path).writer_context()
    own = load_timeline(ctx.seams.storage, paths.METADATA_TIMELINE)
    assert metadata_growth.is_worth_it(ctx, own, MetadataCompactionOptions(1, growth_percent=1000)) is False
    commit(opened(path), 1, rows=1)
    own = load_timeline(ctx.seams.storage, paths.METADATA_TIMELINE)
    assert metadata_growth.is_worth_it(ctx, own, MetadataCompactionOptions(1, growth_percent=1000))
