"""Goal: statistics of partitions that we keep never end before the data does, in whatever order writers
complete, and are refused where they could.

Method: every action runs once on a table with the index, with a build in the middle of other writers, and a
builder that dies now and then; ``validate_metadata`` compares, and scans with a filter are compared with
scans of everything. Loose rows are folded in every order, above and below a tight one and in two stages, as
log blocks and base files are.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.indexing import creating
from mainstem.indexing.initial_rows import InitialRows
from mainstem.metadata.derive.column_ranges import Range
from mainstem.metadata.derive.statistics_rows import partition_stats_rows
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.row_merging import Block, merge
from mainstem.metadata.records.typed_bounds import column_values
from tests.indexing.dying import deaths
from tests.services.city_table import QUICK, aged, content, layered, make, rows

pytestmark = pytest.mark.supports("Indexes", "partition statistics: built, and maintained by every action")
LEAN = {**QUICK, "hoodie.clean.commits.retained": "1"}


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return layered(make(tmp_path / "t", hoodie__clean__commits__retained="1"))


def opened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, LEAN)


def check(table: mainstem.Table, *thresholds: int) -> None:
    """The index agrees with the data, and no scan by way of it lacks a row."""
    now = opened(table)
    report = now.validate_metadata()
    assert report is not None and report.ok, report
    check_scans(now, *thresholds)


def check_scans(now: mainstem.Table, *thresholds: int) -> None:
    whole = content(now)
    for least in thresholds or (0, 3, 5):
        found = content(now, filter=pc.field("ts") >= least)
        assert found.equals(whole.filter(pc.greater_equal(whole["ts"], least)))


def partitions_read(table: mainstem.Table, filter: pc.Expression) -> set[str]:
    return {split.partition for split in opened(table).scan(filter=filter).splits()}


# ------------------------------------------------------------------------------------ every action


def test_every_action_keeps_the_bounds_and_queries_leave_partitions_out(table):
    built = table.create_index("partition_stats")
    assert built.index == "partition_stats" and built.rows == 2 * 7
    assert {i.name: i.state for i in opened(table).indexes()} == dict.fromkeys(
        ("column_stats", "files", "partition_stats"), "ready"
    )
    check(table)
    opened(table).upsert(rows(range(1, 9, 2), 9))  # of partition b alone
    assert partitions_read(table, pc.field("ts") > 5) == {"b"}
    opened(table).bulk_insert(rows(range(20, 24), 6, "w"))
    opened(table).delete(rows([1], 10).select(["id", "city", "ts"]))
    check(table, 0, 6, 9)
    opened(table).log_compact()
    opened(table).compact()
    check(table, 0, 6, 9)
    opened(table).upsert(rows(range(0, 8, 2), 11))
    opened(table).compact()
    assert opened(table).clean()
    check(table, 0, 6, 9, 11)
    txn = opened(table).begin()
    txn.write(rows(range(4), 99))
    txn.abort()
    check(table)
    opened(table).reindex("partition_stats")
    check(table, 0, 6, 9, 11)
    assert partitions_read(table, pc.field("ts") > 50) == set()
    with pytest.raises(Invalid, match="partition_stats cannot be without column_stats"):
        opened(table).drop_index("column_stats")
    assert opened(table).drop_index("partition_stats")
    check(table)


def test_rows_of_a_writer_are_kept_whenever_it_began_and_completes(table):
    table.create_index("partition_stats")
    early, late = opened(table).begin(), opened(table).begin()
    early.write(rows(range(0, 10, 2), 50))
    late.write(rows(range(1, 11, 2), 40))
    late.commit()
    opened(table).reindex("partition_stats")
    check(table, 40, 50)
    early.commit()
    check(table, 40, 50)
    table.run_services("metadata", if_due=False)
    check(table, 40, 50)
    opened(table).compact()
    table.run_services("metadata", if_due=False)
    check(table, 40, 50)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_commits_or_is_cleaned_beside_a_build_is_in_it(table, monkeypatch, moment):
    table.create_index("column_stats")
    txn = opened(table).begin()
    txn.write(rows(range(0, 20, 2), 70))
    of_listing, done = InitialRows.of_listing, []

    def beside(self: InitialRows) -> pa.Table:
        found = of_listing(self) if moment == "after" else None
        if not done:
            done.append(txn.commit())
            opened(table).upsert(rows(range(1, 7, 2), 80))
            opened(table).compact()
            opened(table).clean()
        return of_listing(self) if found is None else found

    monkeypatch.setattr(InitialRows, "of_listing", beside)
    table.create_index("partition_stats")
    assert done
    check(table, 3, 70, 80)


def test_a_builder_that_dies_hinders_nobody_and_the_next_ends_it(table, tmp_path):
    table.create_index("column_stats")
    states = set()

    def build(ctx):
        creating.create_index(ctx, "partition_stats", [], {})

    for copy in deaths(table.path, tmp_path, build, LEAN, every=11):
        died = mainstem.open_table(copy, LEAN)
        states |= {i.state for i in died.indexes() if i.name == "partition_stats"} or {""}
        died.upsert(rows(range(5), 60))
        check_scans(mainstem.open_table(copy, LEAN), 3, 60)
        aged(died)
        (copy / ".hoodie/lock").unlink(missing_ok=True)
        if not any(i.name == "partition_stats" and i.state == "ready" for i in died.indexes()):
            mainstem.open_table(copy, LEAN).create_index("partition_stats")
        check(died, 3, 60)
    assert "" in states and states & {"building", "left over"}


# ----------------------------------------------------------------------------------- rows in any order


NUMBER = pa.int64()


def loose(low: object, high: object, kind: pa.DataType = NUMBER, tight: bool = False) -> pa.Table:
    found = Range("c", kind, low, high, 4, 4 if low is None else 1)
    return partition_stats_rows([("p", [found])], tight=tight)


def bounds(found: pa.Table, kind: pa.DataType = NUMBER) -> tuple[object, object]:
    (low,), (high,) = (column_values(found, end, kind).to_pylist() for end in ("min", "max"))
    return low, high


def test_loose_rows_give_the_same_in_any_order_above_and_below_a_compaction():
    ours = [loose(5, 9), loose(2, 3), loose(7, 20), loose(None, None, pa.null())]
    for order in itertools.permutations(ours):
        for compacted in range(len(order) + 1):
            base = merge(Content.STATS, None, [Block(rows=row) for row in order[:compacted]])
            found = merge(Content.STATS, base, [Block(rows=row) for row in order[compacted:]])
            assert bounds(found) == (2, 20)
            assert found["value_count"].to_pylist() == [16] and found["tight"].to_pylist() == [False]


def test_loose_rows_widen_a_tight_one_of_java_below_them():
    theirs, ours = loose(4, 6, tight=True), [loose(5, 9), loose(2, 3)]
    for base, logs in ((None, [theirs, *ours]), (theirs, ours), (theirs, ours[::-1])):
        assert bounds(merge(Content.STATS, base, [Block(rows=row) for row in logs])) == (2, 9)


def test_a_text_above_which_nothing_short_is_stays_whole_in_a_row_of_a_partition():
    longest = "\U0010ffff" * 2000
    row = loose("a", longest, pa.string())
    assert bounds(merge(Content.STATS, row, [Block(rows=loose("b", "c", pa.string()))]), pa.string()) == (
        "a", longest,
    )  # fmt: skip


def test_a_loose_row_without_values_says_the_type_and_one_without_rows_is_none():
    """Java merges into the newer row's type: a null type would lose the range, or fail."""
    nothing = partition_stats_rows([("p", [Range("c", NUMBER, None, None, 3, 3)])], tight=False)
    assert nothing["ordinal"].equals(loose(1, 2)["ordinal"]) and nothing["min_kind"].to_pylist() == [0]
    assert partition_stats_rows([("p", [Range("c", pa.null(), None, None, 0, 0)])], tight=False).num_rows == 0
    found = merge(Content.STATS, loose(5, 9), [Block(rows=nothing), Block(rows=loose(7, 8))])
    assert bounds(found) == (5, 9) and found["null_count"].to_pylist() == [5]


# ----------------------------------------------------------------------------------------- bad input


def test_a_column_is_not_widened_while_partitions_have_statistics_of_it(table):
    table.create_index("partition_stats")
    before = content(opened(table))
    fields = [f if f.name != "ts" else f.with_type(pa.int32()) for f in before.schema if f.name[0] != "_"]
    narrow = mainstem.create_table(
        Path(table.path).parent / "narrow", pa.schema(fields), record_key="id", partition_by="city",
        buckets=2, properties=QUICK,
    )  # fmt: skip
    narrow.upsert(rows(range(3), 1).cast(pa.schema(fields)))
    narrow.create_index("partition_stats")
    with pytest.raises(Invalid, match="partition_stats, of which Java cannot merge"):
        opened(narrow).upsert(rows(range(3), 2**40))
    opened(narrow).drop_index("partition_stats")
    opened(narrow).upsert(rows(range(3), 2**40))
    opened(narrow).create_index("partition_stats")
    check_scans(opened(narrow), 2, 2**39)


def test_what_cannot_be_such_an_index_is_refused_and_nothing_changes(table, tmp_path):
    flat = mainstem.create_table(
        tmp_path / "flat", rows([1], 1).schema, record_key="id", buckets=2, properties=QUICK
    )
    with pytest.raises(Invalid, match="no partitions"):
        flat.create_index("partition_stats")
    for columns, why in ((["nothing"], "has no column"), (["ts", "ts"], "named twice")):
        with pytest.raises(Invalid, match=why):
            table.create_index("partition_stats", columns)
    with pytest.raises(Invalid, match="one index of the kind partition_stats"):
        table.create_index("partition_stats", name="other")
    assert opened(table).indexes() == opened(flat).indexes() == []
    table.create_index("column_stats", ["ts"])
    with pytest.raises(Invalid, match="on the columns of column_stats"):
        opened(table).create_index("partition_stats", ["value"])
    opened(table).create_index("partition_stats", ["ts"])
    with pytest.raises(Invalid, match="there already"):
        opened(table).create_index("partition_stats")
    check(table)


def test_without_a_definition_of_its_columns_a_write_is_refused_and_shows_nothing(table):
    table.create_index("partition_stats")
    before = content(opened(table))
    file = Path(table.path, ".hoodie/.index_defs/index.json")
    known = json.loads(file.read_text())
    del known["indexDefinitions"]["column_stats"]
    file.write_text(json.dumps(known))
    with pytest.raises(Unsupported, match="does not say on which columns"):
        opened(table).upsert(rows(range(3), 9))
    assert content(opened(table)).equals(before)


def test_values_without_an_order_in_common_have_no_loose_row():
    mixed = Range("c", pa.int32(), None, None, 3, 1)
    with pytest.raises(Unsupported, match="types without an order in common"):
        partition_stats_rows([("p", [mixed])], tight=False)
