"""Goal: the column-wise merge gives what Hudi's record-by-record rules give.

Method: the rules are written down a second time as a plain loop over records (below), and random
histories of rows and deletes are merged both ways: with and without base file, both orderings,
ties, unconditional deletes, revivals, partial updates, several ordering fields; as in tables of version 9, as
in those of version 10, and as in LSM trees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import CorruptTable, Unsupported
from mainstem.merge.file_slice import merge_slice
from mainstem.merge.log_entries import DataRows, DeletedKeys
from mainstem.merge.log_order import BlockNote, surviving
from mainstem.merge.modes import IGNORE_DEFAULTS
from mainstem.merge.ordering_values import comparable
from mainstem.merge.rules import MergeRules, merge_rules

pytestmark = pytest.mark.versions
SCHEMA = pa.schema(
    [
        ("_hoodie_record_key", pa.string()),
        ("seq", pa.int64()),
        ("ts", pa.int64()),
        ("a", pa.string()),
        ("b", pa.float64()),
    ]
)
COLUMNS = SCHEMA.names


@dataclass
class Record:
    """A row, or a delete where ``row`` is None; ``ts`` None is Hudi's default ordering value."""

    key: str
    ts: int | None
    row: dict | None

    @property
    def commit_time_delete(self) -> bool:
        return self.row is None and self.ts is None


def overlaid(winner: Record, loser: Record) -> Record:
    if winner.row is None or loser.row is None:
        return winner
    row = {c: loser.row[c] if winner.row[c] is None else winner.row[c] for c in COLUMNS}
    return Record(winner.key, winner.ts, row)


def merged_in_log(new: Record, old: Record, event_time: bool, partial: bool, in_order: bool) -> Record:
    """Section 8 of the format rules, log against log; ``in_order``: as Java 1.3 does."""
    if not event_time:
        wins = True
    elif new.row is None:
        if old.commit_time_delete:
            wins = in_order
        else:
            wins = new.ts is None or not old.ts > new.ts
    else:
        wins = old.commit_time_delete or new.ts >= old.ts
    winner, loser = (new, old) if wins else (old, new)
    return overlaid(winner, loser) if partial else winner


def merged_with_base(log: Record, base: dict, event_time: bool, partial: bool) -> dict | None:
    """Section 8, log result against a base row."""
    old = Record(log.key, base["ts"], base)
    wins = not event_time or log.commit_time_delete or log.ts >= base["ts"]
    winner, loser = (log, old) if wins else (old, log)
    return (overlaid(winner, loser) if partial else winner).row


def by_records(base, history, event_time, partial, in_order=False, one_by_one=False):
    state: dict[str, Record] = {}
    if one_by_one:
        state = {row["_hoodie_record_key"]: Record(row["_hoodie_record_key"], row["ts"], row) for row in base}
        base = []
    for record in history:
        old = state.get(record.key)
        state[record.key] = (
            record if old is None else merged_in_log(record, old, event_time, partial, in_order)
        )
    out = []
    for row in base:
        log = state.pop(row["_hoodie_record_key"], None)
        kept = row if log is None else merged_with_base(log, row, event_time, partial)
        if kept is not None:
            out.append(kept)
    return out + [r.row for r in state.values() if r.row is not None]


def by_columns(base, blocks, rules, batches=1):
    entries = []
    for block in blocks:
        rows = [r.row for r in block if r.row is not None]
        deletes = [r for r in block if r.row is None]
        if rows:
            entries.append(DataRows(pa.Table.from_pylist(rows, SCHEMA)))
        if deletes:
            entries.append(
                DeletedKeys(
                    pa.array([d.key for d in deletes], pa.string()),
                    (pa.array([d.ts for d in deletes], pa.int64()),),
                    np.array([d.ts is None for d in deletes]),
                )
            )
    tables = []
    step = max(1, -(-len(base) // batches))
    for at in range(0, len(base), step):
        tables.append(pa.Table.from_pylist(base[at : at + step], SCHEMA))
    kinds = [pa.int64()] * len(rules.ordering)
    parts = list(merge_slice(tables, entries, SCHEMA, rules, kinds))
    assert all(p.schema.equals(SCHEMA) for p in parts)
    return [row for p in parts for row in p.to_pylist()]


def row_of(key, ts, number, a, b):
    return {"_hoodie_record_key": key, "seq": number, "ts": ts, "a": a, "b": b}


keys = st.sampled_from(["k1", "k1", "k2"])
times = st.integers(-2, 3)
a_values = st.sampled_from([None, "x", "y"])
b_values = st.sampled_from([None, 1.0, 2.0])


@st.composite
def histories(draw):
    number = 0
    blocks = []
    for _ in range(draw(st.integers(1, 6))):
        block = []
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            key, ts = draw(keys), draw(times)
            kind = draw(st.sampled_from(["row", "row", "row", "delete", "wipe"]))
            row = row_of(key, ts, number, draw(a_values), draw(b_values))
            block.append(Record(key, None if kind == "wipe" else ts, row if kind == "row" else None))
        # A writer puts the delete block of a batch behind its data block.
        blocks.append([r for r in block if r.row] + [r for r in block if not r.row])
    present = draw(st.sets(keys))
    base = [
        row_of(k, draw(times), -n, draw(a_values), draw(b_values)) for n, k in enumerate(sorted(present), 1)
    ]
    return base, blocks


@settings(max_examples=400, deadline=None)
@given(histories(), st.booleans(), st.booleans(), st.sampled_from([9, 10, "lsm_tree"]), st.integers(1, 3))
def test_column_merge_equals_the_rules_applied_record_by_record(case, event_time, partial, kind, batches):
    base, blocks = case
    in_order, one_by_one = kind != 9, kind == "lsm_tree"
    rules = MergeRules(
        ordering=("ts",) if event_time else (), partial=IGNORE_DEFAULTS if partial else None,
        one_by_one=one_by_one, deletes_in_order=in_order,
    )  # fmt: skip
    history = [r for b in blocks for r in b]
    expected = by_records(base, history, event_time, partial, in_order, one_by_one)
    found = by_columns(base, blocks, rules, batches)
    sort = lambda rows: sorted(map(repr, rows))  # noqa: E731
    assert sort(found) == sort(expected)


def test_one_ordering_value_per_row_keeps_the_first_schedule_that_arrived():
    """Hudi's own rule under event time and IGNORE_DEFAULTS: arrival order decides (issue of streams
    that share one ordering value)."""
    rules = MergeRules(ordering=("ts",), partial=IGNORE_DEFAULTS)
    first = Record("k", 50, row_of("k", 50, 1, "early", None))
    arrival = Record("k", 300, row_of("k", 300, 2, None, 9.0))
    late = Record("k", 150, row_of("k", 150, 3, "late", None))
    assert by_columns([], [[first], [arrival], [late]], rules)[0]["a"] == "early"
    assert by_columns([], [[first], [late], [arrival]], rules)[0]["a"] == "late"


def test_after_an_unconditional_delete_only_the_next_row_counts_not_a_later_delete():
    rules = MergeRules(ordering=("ts",))
    wipe, dated = Record("k", None, None), Record("k", 3, None)
    row = Record("k", 1, row_of("k", 1, 1, "back", None))
    assert [r["a"] for r in by_columns([], [[wipe], [dated], [row]], rules)] == ["back"]
    assert by_columns([], [[dated], [row]], rules) == []
    assert by_columns([], [[wipe], [row], [dated]], rules) == []


def test_in_version_10_a_later_delete_with_an_ordering_value_takes_the_place_of_one_without():
    rules = MergeRules(ordering=("ts",), deletes_in_order=True)
    wipe, dated = Record("k", None, None), Record("k", 3, None)
    late, newer = (Record("k", ts, row_of("k", ts, 1, "back", None)) for ts in (1, 3))
    assert by_columns([], [[wipe], [dated], [late]], rules) == []
    assert [r["a"] for r in by_columns([], [[wipe], [dated], [newer]], rules)] == ["back"]


def test_in_an_lsm_tree_a_delete_without_ordering_value_removes_the_row_of_the_base_file():
    base, wipe = [row_of("k", 5, 0, "base", None)], Record("k", None, None)
    back = Record("k", 1, row_of("k", 1, 1, None, 1.0))
    for partial in (None, IGNORE_DEFAULTS):
        rules = MergeRules(ordering=("ts",), partial=partial, deletes_in_order=True)
        (found,) = by_columns(base, [[wipe], [back]], rules)
        assert found["a"] == "base"
        (found,) = by_columns(base, [[wipe], [back]], replace(rules, one_by_one=True))
        assert (found["ts"], found["a"], found["b"]) == (1, None, 1.0)


def test_a_row_that_lost_against_a_delete_fills_nothing_later():
    rules = MergeRules(ordering=("ts",), partial=IGNORE_DEFAULTS)
    late = Record("k", 1, row_of("k", 1, 1, "late", None))
    revived = Record("k", 5, row_of("k", 5, 2, None, 2.0))
    (found,) = by_columns([], [[Record("k", 3, None)], [late], [revived]], rules)
    assert (found["a"], found["b"]) == (None, 2.0)


def test_columns_beyond_32_bit_offsets_are_merged_by_64_bit_ones(monkeypatch):
    monkeypatch.setattr("mainstem.merge.partial_updates.CHUNK_BYTES_MAX", 8)
    monkeypatch.setattr("mainstem.merge.log_entries.CHUNK_BYTES_MAX", 8)
    rules = MergeRules(ordering=("ts",), partial=IGNORE_DEFAULTS)
    base = [row_of("k1", 1, 0, "base", None), row_of("k2", 1, 0, "base", None)]
    log = [
        [Record("k1", 2, row_of("k1", 2, 1, "x" * 40, None))],
        [Record("k3", 2, row_of("k3", 2, 2, None, 1.0))],
    ]
    found = {r["_hoodie_record_key"]: (r["a"], r["b"]) for r in by_columns(base, log, rules)}
    assert found == {"k1": ("x" * 40, None), "k2": ("base", None), "k3": (None, 1.0)}


def test_base_order_is_kept_and_new_rows_come_last():
    base = [row_of(k, 1, 0, "base", None) for k in ("c", "a", "b")]
    log = [
        Record("a", 2, row_of("a", 2, 1, "log", None)),
        Record("z", 2, row_of("z", 2, 2, "log", None)),
    ]
    found = by_columns(base, [log], MergeRules(ordering=("ts",)))
    assert [r["_hoodie_record_key"] for r in found] == ["c", "b", "a", "z"]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.float64(), -0.0, 0.0),
        (pa.float64(), float("inf"), float("nan")),
        (pa.float32(), -1.5, 2.5),
        (pa.float64(), -2.5, -1.5),
        (pa.float64(), float("-inf"), -1e300),
        (pa.string(), "2024-01-09", "2024-01-10"),
        (pa.decimal128(10, 2), Decimal("9.50"), Decimal("10.00")),
        (pa.date32(), 5, 6),
        (pa.timestamp("us", "UTC"), 5, 6),
        (pa.int32(), -7, 3),
        (pa.bool_(), False, True),
    ],
)
def test_ordering_values_of_every_type_compare_like_java(kind, low, high):
    schema = pa.schema([("_hoodie_record_key", pa.string()), ("ts", kind), ("n", pa.int32())])

    def table(value, number):
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        values = pa.array([value], width).cast(kind) if pa.types.is_temporal(kind) else None
        values = pa.array([value], kind) if values is None else values
        return pa.table([pa.array(["k"]), values, pa.array([number], pa.int32())], schema=schema)

    rules = MergeRules(ordering=("ts",))
    for base, logs in (([], [high, low]), ([], [low, high]), ([high], [low]), ([low], [high])):
        entries = [DataRows(table(v, n)) for n, v in enumerate(logs)]
        tables = [table(v, -1) for v in base]
        (part,) = [p for p in merge_slice(tables, entries, schema, rules, [kind]) if p.num_rows]
        assert repr(part.column("ts").to_pylist()) == repr(table(high, 0).column("ts").to_pylist())


def test_all_nans_are_one_ordering_value():
    """Java's Double.compare; a NaN that arithmetic made differs in bits from the plain one."""
    made = np.array([0xFFF8000000000001, 0x7FF8000000000000], np.uint64).view(np.float64)
    (order,) = comparable([[pa.array(made)]])
    assert order[0] == order[1]
    (nan_and_more,) = comparable([[pa.array([float("nan"), float("inf"), None, -1e308])]])
    assert list(np.argsort(nan_and_more)) == [2, 3, 1, 0]


def test_several_ordering_fields_compare_lexicographically():
    schema = pa.schema([("_hoodie_record_key", pa.string()), ("ts", pa.int64()), ("s", pa.string())])
    rules = MergeRules(ordering=("ts", "s"))

    def rows(*values):
        return pa.table(
            [pa.array(["k"] * len(values)), [v[0] for v in values], [v[1] for v in values]],
            schema=schema,
        )

    def merged(base, log):
        parts = merge_slice(base, log, schema, rules, [pa.int64(), pa.string()])
        return [(r["ts"], r["s"]) for p in parts for r in p.to_pylist()]

    assert merged([], [DataRows(rows((1, "z"), (2, "a"), (1, "zz")))]) == [(2, "a")]
    assert merged([rows((2, "b"))], [DataRows(rows((2, "a")))]) == [(2, "b")]
    gone = DeletedKeys(pa.array(["k"]), (pa.array([2]), pa.array(["b"])), np.array([False]))
    assert merged([rows((2, "b"))], [gone]) == []
    assert merged([rows((2, "c"))], [gone]) == [(2, "c")]


def test_rows_marked_as_deleted_are_deletes_with_their_own_event_time():
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    rules = MergeRules(ordering=("ts",))
    base = pa.Table.from_pylist([row_of("k", 5, 0, None, None)], schema)
    for ts, survivors in ((4, 1), (5, 0), (6, 0)):
        row = row_of("k", ts, 1, None, None) | {"_hoodie_is_deleted": True}
        log = [DataRows(pa.Table.from_pylist([row], schema))]
        assert sum(t.num_rows for t in merge_slice([base], log, schema, rules, [pa.int64()])) == survivors


def test_a_rollback_command_takes_its_instant_away_wherever_it_stands():
    data = [BlockNote("10", "a"), BlockNote("20", "dead"), BlockNote("30", "c")]
    command = BlockNote("40", "x", rollback_of="20")
    for at in range(4):
        notes = [*data[:at], command, *data[at:]]
        assert [n.block for n in surviving(notes)] == ["a", "c"]


def test_a_compacted_log_block_stands_where_the_latest_of_its_sources_stood():
    notes = [
        BlockNote("10", "a"),
        BlockNote("20", "b"),
        BlockNote("30", "c"),
        BlockNote("40", "ab", replaces=frozenset({"10", "20"})),
        BlockNote("50", "d"),
    ]
    assert [n.block for n in surviving(notes)] == ["ab", "c", "d"]
    nested = [*notes, BlockNote("60", "abc", replaces=frozenset({"40", "30"}))]
    assert [n.block for n in surviving(nested)] == ["abc", "d"]


def test_a_delete_whose_ordering_type_cannot_be_compared_is_refused():
    rows = DataRows(pa.Table.from_pylist([row_of("k", 1, 1, None, None)], SCHEMA))
    gone = DeletedKeys(pa.array(["k"]), (pa.array(["later"]),), np.array([False]), "p/.f.log.1_0-0-0")
    with pytest.raises(Unsupported, match=r"p/\.f\.log"):
        list(merge_slice([], [rows, gone], SCHEMA, MergeRules(ordering=("ts",)), [pa.int64()]))


def test_a_log_record_without_key_is_damage():
    rows = DataRows(pa.Table.from_pylist([row_of(None, 1, 1, None, None)], SCHEMA), source="p/log")
    with pytest.raises(CorruptTable, match="_hoodie_record_key"):
        list(merge_slice([], [rows], SCHEMA, MergeRules(), []))


def test_merge_modes_that_need_java_code_are_refused_by_name():
    table = {"hoodie.record.merge.mode": "CUSTOM", "hoodie.compaction.payload.class": "org.x.Mine"}
    with pytest.raises(Unsupported, match=r"org\.x\.Mine"):
        merge_rules(table)
    rules = merge_rules({"hoodie.table.ordering.fields": "ts", "hoodie.table.version": "9"})
    assert rules == replace(MergeRules(), ordering=("ts",))


def test_the_layout_of_a_table_of_version_10_says_how_rows_meet_the_base_file():
    table = {"hoodie.table.ordering.fields": "ts", "hoodie.table.version": "10"}
    by_default = MergeRules(("ts",), deletes_in_order=True)
    layout = "hoodie.table.storage.layout"
    assert merge_rules(table) == merge_rules({**table, layout: "default"}) == by_default
    sorted_files = merge_rules({**table, layout: "lsm_tree"})
    assert sorted_files == replace(by_default, one_by_one=True)
    assert MergeRules.from_record(sorted_files.record()) == sorted_files
