"""Goal: indexes whose rows are each of one file agree with the data after every action, whoever commits,
cleans or dies beside their build.

Method: every action runs once on a table with the index, with a build in the middle of other writers, and a
builder that dies now and then; ``validate_metadata`` compares with the files, and scans of keys are compared
with scans of everything.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.indexing import creating
from mainstem.indexing.build import Built
from mainstem.indexing.first_rows import FirstRows
from mainstem.metadata.partitions import group_index
from mainstem.options import BLOOM_GROUPS
from mainstem.storage import paths
from mainstem.testing.indexes_world import KindOfIndex
from tests.indexing.dying import Died, Dying
from tests.services.city_table import QUICK, aged, base_files, content, make, rows

LEAN = {**QUICK, "hoodie.clean.commits.retained": "1", "hoodie.index.bloom.num_entries": "50"}
BLOOMS = KindOfIndex("bloom_filters")
KINDS = [
    pytest.param(
        BLOOMS,
        id="bloom filters",
        marks=pytest.mark.supports("Indexes", "bloom filters, built and maintained by every action"),
    )
]
each_kind = pytest.mark.parametrize("wanted", KINDS)


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    make(tmp_path / "t")
    table = mainstem.open_table(tmp_path / "t", LEAN)
    table.upsert(rows(range(10), 1))
    table.compact()
    table.upsert(rows(range(5), 2))
    table.compact()
    table.upsert(rows(range(3), 3))
    return table


def opened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, LEAN)


def created(table: mainstem.Table, wanted: KindOfIndex) -> Built:
    return wanted.create(opened(table))


def check(table: mainstem.Table) -> None:
    """The index agrees with the data, and no scan by way of it lacks a row."""
    now = opened(table)
    report = now.validate_metadata()
    assert report is not None and report.ok, report
    whole = content(now)
    for key in ("k01", "k04", "k21", "k77"):
        for filter in (pc.field("_hoodie_record_key") == key, pc.field("value") == f"v{key[1:].lstrip('0')}"):
            assert content(now, filter=filter).equals(whole.filter(filter))


def rows_of(table: mainstem.Table, partition: str) -> int:
    (found,) = [p for p in opened(table).validate_metadata().partitions if p.partition == partition]
    return found.rows


@each_kind
def test_every_action_keeps_it_in_step_with_the_files(table, wanted):
    built = created(table, wanted)
    assert built.index == wanted.partition and built.rows
    check(table)
    opened(table).bulk_insert(rows(range(20, 24), 6, "w"))
    opened(table).delete(rows([1], 10).select(["id", "city", "ts"]))
    check(table)
    opened(table).log_compact()
    opened(table).compact()
    check(table)
    before = rows_of(table, wanted.partition)
    opened(table).upsert(rows(range(0, 8, 2), 11))
    opened(table).compact()
    assert rows_of(table, wanted.partition) > before
    assert opened(table).clean()
    check(table)
    assert rows_of(table, wanted.partition) < before
    txn = opened(table).begin()
    txn.write(rows(range(4), 99))
    txn.abort()
    opened(table).run_services("metadata", if_due=False)
    check(table)
    opened(table).reindex(wanted.name or wanted.partition)
    check(table)
    assert opened(table).drop_index(wanted.name or wanted.partition)
    assert [i.name for i in opened(table).indexes()] == ["files"]
    check(table)


@each_kind
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_commits_or_is_cleaned_beside_a_build_is_in_it(table, monkeypatch, wanted, moment):
    txn = opened(table).begin("bulk_insert")
    txn.write(rows(range(20, 26), 70))
    opened(table).create_index("files")
    of_listing, done = FirstRows.of_listing, []

    def beside(self: FirstRows) -> None:
        if moment == "after":
            of_listing(self)
        if not done:
            done.append(txn.commit())
            opened(table).upsert(rows(range(1, 7, 2), 80))
            opened(table).compact()
            opened(table).clean()
        if moment == "before":
            of_listing(self)

    monkeypatch.setattr(FirstRows, "of_listing", beside)
    created(table, wanted)
    assert done
    check(table)


@each_kind
def test_a_builder_that_dies_hinders_nobody_and_the_next_ends_it(table, tmp_path, wanted):
    opened(table).create_index("files")
    states = set()
    for calls in range(0, 400, 17):
        copy = tmp_path / f"copy{calls}"
        shutil.copytree(table.path, copy)
        ctx = mainstem.open_table(copy, LEAN).index_context()
        storage = Dying(str(copy), sync=False)
        ctx.seams = ctx.publisher._seams = dataclasses.replace(ctx.seams, storage=storage)
        ctx.publisher._reader._storage = ctx.heartbeats._storage = storage
        storage.calls_left = calls
        try:
            creating.create_index(ctx, wanted.kind, wanted.columns, dict(wanted.options), name=wanted.name)
        except Died:
            died = mainstem.open_table(copy, LEAN)
        else:
            break
        found = {i.state for i in died.indexes() if i.partition == wanted.partition} or {""}
        states |= found
        died.upsert(rows(range(5), 60))
        aged(died)
        (Path(copy) / ".hoodie/lock").unlink(missing_ok=True)
        if found != {"ready"}:
            created(died, wanted)
        check(died)
    else:
        raise AssertionError("the build never ended")
    assert "" in states and states & {"building", "left over"}


# ------------------------------------------------------------------------------------ bloom filters


@pytest.mark.supports("Indexes", "bloom filters, built and maintained by every action")
def test_there_are_as_many_file_groups_of_bloom_filters_as_hudi_makes_or_is_told_to(table):
    def groups() -> set[int | None]:
        names = [f.name for f in (Path(table.path) / ".hoodie/metadata/bloom_filters").iterdir()]
        return {group_index(found) for found in map(paths.file_id_of, names) if found is not None}

    created(table, BLOOMS)
    assert groups() == set(range(4))
    opened(table).drop_index("bloom_filters")
    opened(table).create_index("bloom_filters", options={BLOOM_GROUPS: "2"})
    assert groups() == set(range(2))
    check(table)


def test_a_base_file_without_a_filter_has_no_row(table):
    created(table, BLOOMS)
    before = rows_of(table, "bloom_filters")
    without = mainstem.open_table(table.path, {**LEAN, "hoodie.parquet.bloom.filter.enabled": "false"})
    without.bulk_insert(rows(range(20, 24), 6))
    check(table)
    assert rows_of(table, "bloom_filters") == before


@each_kind
def test_a_clean_of_log_files_alone_keeps_it_in_step(tmp_path, wanted):
    make(tmp_path / "t")
    table = mainstem.open_table(tmp_path / "t", LEAN)
    table.upsert(rows(range(10), 1))
    created(table, wanted)
    opened(table).compact()
    opened(table).upsert(rows(range(5), 2))
    before = base_files(table)
    (cleaned,) = opened(table).clean()
    assert cleaned.deleted and base_files(table) == before
    check(table)


def test_bloom_filters_are_of_no_columns_and_have_no_other_name(table):
    with pytest.raises(Invalid, match="of the record keys, on no columns"):
        table.create_index("bloom_filters", ["value"])
    with pytest.raises(Invalid, match="one index of the kind bloom_filters"):
        table.create_index("bloom_filters", name="other")
    with pytest.raises(Invalid, match=r"bloom\.filter\.file\.group\.count"):
        table.create_index("bloom_filters", options={BLOOM_GROUPS: "0"})
    assert opened(table).indexes() == []
