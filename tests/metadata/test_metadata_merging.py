"""Goal: which of several rows of one key counts is decided as Hudi decides it.

Method: each rule as a short history; random histories against a plain model that goes row by row.
"""

from __future__ import annotations

import itertools
import random
import struct

import pyarrow as pa
import pytest

from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.metadata.records.row_merging import Block, merge, shown

FILE_COLUMNS = SCHEMAS[Content.FILES].names


def files(*rows: tuple[str, str | None, int, bool]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    return pa.table(dict(zip(FILE_COLUMNS, columns, strict=True)), schema=SCHEMAS[Content.FILES])


def listed(rows: pa.Table) -> set[tuple]:
    return {tuple(row.values()) for row in rows.to_pylist()}


def test_a_tombstone_and_the_file_it_removes_both_go() -> None:
    rows = merge(Content.FILES, files(("p", "f", 5, False)), [Block(files(("p", "f", 0, True)))])
    assert listed(rows) == {("p", None, 0, False)}
    assert len(shown(Content.FILES, rows)) == 0


def test_a_tombstone_of_an_unknown_file_stays() -> None:
    rows = merge(Content.FILES, files(("p", "f", 5, False)), [Block(files(("p", "g", 0, True)))])
    assert listed(rows) == {("p", "f", 5, False), ("p", "g", 0, True)}
    assert listed(shown(Content.FILES, rows)) == {("p", "f", 5, False)}


def test_a_file_listed_twice_has_its_larger_size() -> None:
    rows = merge(
        Content.FILES, files(("p", "f", 5, False)), [Block(files(("p", "f", 9, False), ("p", "g", 1, False)))]
    )
    assert listed(rows) == {("p", "f", 9, False), ("p", "g", 1, False)}


def test_a_known_file_named_again_before_its_tombstone_comes_back() -> None:
    """Hudi's trap: the logs are merged among themselves first."""
    logs = [Block(files(("p", "f", 5, False))), Block(files(("p", "f", 0, True)))]
    assert listed(merge(Content.FILES, files(("p", "f", 5, False)), logs)) == {("p", "f", 5, False)}
    assert listed(merge(Content.FILES, None, logs)) == {("p", None, 0, False)}


def test_a_deleted_partition_is_gone_with_all_its_files() -> None:
    base = files(("p", "f", 5, False), ("q", "g", 6, False))
    assert listed(merge(Content.FILES, base, [Block(deletes=pa.array(["p"]))])) == {("q", "g", 6, False)}
    logs = [Block(files(("q", "h", 1, False))), Block(deletes=pa.array(["q", "r"]))]
    assert listed(merge(Content.FILES, base, logs)) == {("p", "f", 5, False)}


def secondary(*rows: tuple[str, bool]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[], []]
    return pa.table(dict(zip(("key", "deleted"), columns, strict=True)), schema=SCHEMAS[Content.SECONDARY])


def test_the_newer_entry_of_a_secondary_index_counts() -> None:
    logs = [
        Block(secondary(("b", True), ("c", False))),
        Block(deletes=pa.array(["a", "c"])),
        Block(secondary(("c", False))),
    ]
    rows = merge(Content.SECONDARY, secondary(("a", False), ("b", False)), logs)
    assert {r["key"] for r in shown(Content.SECONDARY, rows).to_pylist()} == {"c"}


def stats(
    key: str, low: int | None, high: int | None, count: int = 1, *, tight=False, deleted=False, wide=False
) -> pa.Table:
    kind, form = (3, "<q") if wide else (2, "<i")
    row = {
        "key": key, "type": 6, "file": f"file of {count}", "column": "c",
        "min_kind": kind if low is not None else 0, "min": None if low is None else struct.pack(form, low),
        "max_kind": kind if high is not None else 0, "max": None if high is None else struct.pack(form, high),
        "value_count": count, "null_count": 1, "total_size": 10, "total_uncompressed_size": 100,
        "deleted": deleted, "tight": tight, "ordinal": 4 if wide else 3 if low is not None else 1,
        "type_info": None,
    }  # fmt: skip
    return pa.Table.from_pylist([row], schema=SCHEMAS[Content.STATS])


def bounds(rows: pa.Table) -> dict[str, tuple]:
    def number(data: bytes | None) -> int | None:
        return None if data is None else int.from_bytes(data, "little", signed=True)

    return {r["key"]: (number(r["min"]), number(r["max"]), r["value_count"]) for r in rows.to_pylist()}


def test_loose_statistics_widen_and_are_added() -> None:
    base = stats("k", 3, 5, 10, tight=True)
    rows = merge(Content.STATS, base, [Block(stats("k", 4, 9, 2)), Block(stats("k", 1, 2, 3))])
    assert bounds(rows) == {"k": (1, 9, 15)}
    (row,) = rows.to_pylist()
    assert (row["file"], row["tight"], row["null_count"], row["total_size"]) == ("file of 3", False, 3, 30)


def test_tight_statistics_replace_what_is_older() -> None:
    logs = [Block(stats("k", 0, 100, 7)), Block(stats("k", 4, 6, 2, tight=True))]
    assert bounds(merge(Content.STATS, stats("k", 1, 50, 10), logs)) == {"k": (4, 6, 2)}


def test_a_loose_row_behind_a_tight_one_of_the_same_logs_widens_the_base_again() -> None:
    logs = [Block(stats("k", 4, 6, 2, tight=True)), Block(stats("k", 7, 7, 1))]
    assert bounds(merge(Content.STATS, stats("k", 1, 50, 10, tight=True), logs)) == {"k": (1, 50, 13)}


def test_deleted_statistics_hide_the_older_and_yield_to_the_newer() -> None:
    gone = Block(stats("k", None, None, 0, deleted=True))
    assert bounds(shown(Content.STATS, merge(Content.STATS, stats("k", 1, 2), [gone]))) == {}
    assert bounds(merge(Content.STATS, None, [gone, Block(stats("k", 5, 6, 3))])) == {"k": (5, 6, 3)}
    assert bounds(merge(Content.STATS, stats("k", 1, 2), [Block(deletes=pa.array(["k"]))])) == {}


def test_bounds_are_widened_in_the_newer_rows_type() -> None:
    rows = merge(Content.STATS, stats("k", 3, 5, 1), [Block(stats("k", 4, 2**40, 1, wide=True))])
    assert bounds(rows) == {"k": (3, 2**40, 2)}
    assert rows["min_kind"].to_pylist() == [3]


def test_a_bound_that_does_not_fit_the_newer_rows_type_is_not_known_any_more() -> None:
    rows = merge(Content.STATS, stats("k", 3, 2**40, 1, wide=True), [Block(stats("k", 4, 5, 1))])
    assert bounds(rows) == {"k": (3, None, 2)}


@pytest.mark.parametrize(("kind", "form"), [(4, "<f"), (5, "<d")])
def test_floating_bounds_are_widened_as_java_compares_them_in_every_order(kind: int, form: str) -> None:
    """``Double.compareTo``: NaN is above infinity, -0.0 below 0.0."""

    def row(low: float, high: float) -> pa.Table:
        (made,) = stats("k", 1, 2).to_pylist()
        made |= {"min_kind": kind, "min": struct.pack(form, low)}
        made |= {"max_kind": kind, "max": struct.pack(form, high)}
        return pa.Table.from_pylist([made | {"ordinal": kind + 1}], schema=SCHEMAS[Content.STATS])

    ranges = [(-0.0, float("inf")), (0.0, 3.0), (1.0, float("nan"))]
    for several in (ranges, ranges[:2], ranges[1:]):
        least = min(low for low, _ in several)  # of equal ones the first
        greatest = several[-1][1] if several[-1] is ranges[-1] else max(high for _, high in several)
        for order in itertools.permutations(several):
            (found,) = merge(Content.STATS, None, [Block(row(*bounds)) for bounds in order]).to_pylist()
            assert (found["min"], found["max"]) == (struct.pack(form, least), struct.pack(form, greatest))


def test_a_column_of_nulls_changes_no_bounds() -> None:
    rows = merge(Content.STATS, stats("k", 3, 5, 4), [Block(stats("k", None, None, 2))])
    assert bounds(rows) == {"k": (3, 5, 6)}
    assert rows["ordinal"].to_pylist() == [3]


# ------------------------------------------------------------------------------- against a plain model


def plain_files(base: pa.Table, logs: list[Block]) -> set[tuple]:
    def into(old: dict | None, new: dict) -> dict:
        made = dict(old or {})
        for name, (size, dead) in new.items():
            known = made.get(name)
            if dead and known is not None and not known[1]:
                del made[name]
            elif dead:
                made[name] = (size, True)
            else:
                made[name] = (max(size, known[0] if known else 0), False)
        return made

    def records(table: pa.Table) -> dict[str, dict]:
        found: dict[str, dict] = {}
        for row in table.to_pylist():
            here = found.setdefault(row["key"], {})
            if row["name"] is not None:
                here[row["name"]] = (row["size"], row["deleted"])
        return found

    folded: dict[str, dict | None] = {}
    for block in logs:
        if block.deletes is not None:
            folded |= dict.fromkeys(block.deletes.to_pylist())
        else:
            for key, new in records(block.rows).items():
                folded[key] = into(folded.get(key), new)
    whole = records(base)
    for key, new in folded.items():
        if new is None:
            whole.pop(key, None)
        else:
            whole[key] = into(whole.get(key), new)
    return {(key, name, size, dead) for key, names in whole.items() for name, (size, dead) in names.items()}


@pytest.mark.parametrize("seed", range(25))
def test_random_histories_of_files_end_as_in_the_plain_model(seed: int) -> None:
    draw = random.Random(seed)

    def some() -> pa.Table:
        pairs = {(draw.choice("pqr"), draw.choice("abcde")) for _ in range(draw.randrange(6))}
        rows = [
            (k, n, 0 if dead else draw.randrange(1, 9), dead)
            for k, n in sorted(pairs)
            for dead in [draw.random() < 0.4]
        ]
        return files(*rows)

    base = some()
    logs = [
        Block(deletes=pa.array([draw.choice("pqr")])) if draw.random() < 0.2 else Block(some())
        for _ in range(draw.randrange(7))
    ]
    found = {row for row in listed(merge(Content.FILES, base, logs)) if row[1] is not None}
    assert found == plain_files(base, logs)


@pytest.mark.parametrize("seed", range(25))
def test_random_histories_of_statistics_end_as_in_the_plain_model(seed: int) -> None:
    draw = random.Random(seed)

    def into(old: tuple | None, new: tuple) -> tuple:
        low, high, count, tight, deleted = new
        if old is None or old[4] or deleted or tight:
            return new
        return min(old[0], low), max(old[1], high), old[2] + count, tight, deleted

    def some() -> dict[str, tuple]:
        return {
            key: (low := draw.randrange(99), low + draw.randrange(9), draw.randrange(9), draw.random() < 0.3,
                  draw.random() < 0.2)
            for key in draw.sample("abc", draw.randrange(4))
        }  # fmt: skip

    def table(rows: dict[str, tuple]) -> pa.Table:
        made = [stats(k, r[0], r[1], r[2], tight=r[3], deleted=r[4]) for k, r in rows.items()]
        return pa.concat_tables([SCHEMAS[Content.STATS].empty_table(), *made])

    base, logs, folded = some(), [], {}
    whole = dict(base)
    for _ in range(draw.randrange(6)):
        if draw.random() < 0.2:
            key = draw.choice("abc")
            logs.append(Block(deletes=pa.array([key])))
            folded[key] = None
        else:
            rows = some()
            logs.append(Block(table(rows)))
            folded |= {key: into(folded.get(key), row) for key, row in rows.items()}
    for key, row in folded.items():
        whole.pop(key, None) if row is None else whole.update({key: into(whole.get(key), row)})
    assert bounds(merge(Content.STATS, table(base), logs)) == {k: r[:3] for k, r in whole.items()}
