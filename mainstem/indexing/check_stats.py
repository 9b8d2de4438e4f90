"""Statistics against the data: every range that is stored must hold the values that are there.

A difference is what would make a reader leave out a file that has rows for it. What is wider is counted as
loose; a file that no current view reads may have no row (Java builds an index of the newest slices only).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.indexing.differences import PartitionReport
from mainstem.indexing.expected_contents import Contents, DataFile
from mainstem.metadata.derive.column_ranges import Range, order_key, unscaled
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.derive.short_bounds import upper_bound
from mainstem.metadata.derive.statistics_rows import partition_ranges
from mainstem.metadata.index_definitions import Definition
from mainstem.metadata.records.row_keys import (
    column_stats_keys,
    expression_partition_keys,
    partition_stats_keys,
)
from mainstem.metadata.records.typed_bounds import column_values

_FILE, _PARTITION = 3, 6
_SHARED = (
    "a file of another partition has its name, too: Java's readers take the range of one for the other's and"
    " leave rows out; `mainstem index rebuild PATH NAME` takes such rows out of the index"
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What one row must bound. ``key``: the row's; ``where``: for people; ``newest``: a snapshot reads it;
    ``shared``: a file of another partition has its name, too, so there should be no row."""

    key: str
    where: str
    range: Range
    newest: bool = True
    shared: bool = False


def expected_files(contents: Contents, ranges: Iterable[tuple[DataFile, Range]]) -> list[Expected]:
    """Rows of ``column_stats``, or of files in an expression index."""
    found, newest = list(ranges), newest_files(contents)
    keys = column_stats_keys(
        _texts(r.column for _, r in found),
        _texts(f.partition for f, _ in found),
        _texts(f.name for f, _ in found),
    ).to_pylist()
    return [
        Expected(key, f"{r.column} of {f.path}", r, f.path in newest, f.name in contents.shared_names)
        for key, (f, r) in zip(keys, found, strict=True)
    ]


def expected_partitions(
    contents: Contents, ranges: Iterable[tuple[DataFile, Range]], *, expression: bool = False
) -> list[Expected]:
    """Rows of ``partition_stats``, or of partitions in an expression index: over what a snapshot reads."""
    newest: frozenset[str] = newest_files(contents)
    by_partition: dict[str, list[Range]] = {}
    for file, found in ranges:
        if file.path in newest:
            by_partition.setdefault(file.partition, []).append(found)
    rows = [(p, r) for p, found in by_partition.items() for r in partition_ranges([r] for r in found)]
    make = expression_partition_keys if expression else partition_stats_keys
    keys = make(_texts(r.column for _, r in rows), _texts(p for p, _ in rows)).to_pylist()
    named = zip(keys, rows, strict=True)
    return [Expected(key, f"{r.column} of partition {p or '.'}", r) for key, (p, r) in named]


def newest_files(contents: Contents) -> frozenset[str]:
    """Paths of the files that a snapshot reads."""
    slices = [s for here in contents.slices.values() for s in here]
    return frozenset(file.path for s in slices for file in contents.slice_files(s))


def expression_ranges(contents: Contents, definition: Definition) -> list[tuple[DataFile, Range]]:
    """Ranges of an expression index's function over every file."""
    expression = Expression(definition.function or "identity", definition.options)
    (column,) = definition.fields
    files = [f for here in contents.files.values() for f in here.values() if f.holds_rows]
    made = [(f, contents.expression_range(f, column, expression)) for f in files]
    return [(file, found) for file, found in made if found is not None]


def _texts(texts: Iterable[str]) -> pa.Array:
    return pa.array(list(texts), pa.string())


# ----------------------------------------------------------------------------------- comparing


def check_statistics(
    report: PartitionReport,
    stored: pa.Table,
    expected: Iterable[Expected],
    there: Collection[str],
    columns: Collection[str] | None = None,
) -> None:
    """``there``: files (of type 6 partitions) that may have rows without a range, as Java writes them.
    ``columns``: those that the index is on, None: any. Java keeps statistics of its own choice of columns
    beside them, and whoever cleans by the definition leaves these; readers believe no column that it does not
    list."""
    if columns is not None:
        listed = stored.filter(pc.is_in(stored["column"], value_set=pa.array(list(columns), pa.string())))
        report.add_all("left over", [("", "")] * (stored.num_rows - listed.num_rows))
        stored = listed
    wanted = {e.key: e for e in expected}
    known = pc.is_in(stored["key"], value_set=pa.array(list(wanted), pa.string()))
    seen: set[str] = set()
    for name in pc.unique(stored["column"].filter(known)).to_pylist():
        mine = stored.filter(pc.and_(known, pc.equal(stored["column"], name)))
        seen |= _check_column(report, mine, wanted)
    for key in wanted.keys() - seen:
        e = wanted[key]
        if e.shared:
            report.add("unranked", e.where, "")
        elif e.range.is_bounded and (e.range.high is None or upper_bound(e.range.high) is not None):
            report.add("missing" if e.newest else "older", e.where, "no row")
    for row in stored.filter(pc.invert(known)).select(["column", "file", "value_count"]).to_pylist():
        if row["file"] not in there:
            report.add("surplus", f"{row['column']} of {row['file']}", "there is no such file or partition")
        elif row["value_count"]:
            report.add("loose", row["file"], "")


def _check_column(report: PartitionReport, rows: pa.Table, wanted: Mapping[str, Expected]) -> set[str]:
    """Rows of one column; those of files with one type of it together."""
    keys = rows["key"].to_pylist()
    places: dict[pa.DataType, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(wanted[key].range.type, []).append(at)
    for kind, alike in places.items():
        some = rows.take(pa.array(alike))
        lows, highs = (_plain(column_values(some, end, kind), kind) for end in ("min", "max"))
        numbers = some.select(["min_kind", "max_kind", "value_count", "null_count"]).to_pylist()
        for place, low, high, counts in zip(alike, lows, highs, numbers, strict=True):
            e = wanted[keys[place]]
            if e.shared:
                report.add("shared", e.where, _SHARED)
            kind_found, detail = _judged(e.range, low, high, counts)
            if kind_found:
                report.add(kind_found, e.where, detail)
    return set(keys)


def _plain(values: pa.Array, kind: pa.DataType) -> list[Any]:
    """Values as ``Range`` has them."""
    types = pa.types
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if types.is_decimal(kind):
        return [None if v is None else unscaled(v, kind.scale) for v in values.to_pylist()]
    return values.to_pylist()


def _judged(real: Range, low: Any, high: Any, stored: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and detail of what is wrong or loose; ("", "") where stored and real agree."""
    if real.low is not None:
        if not (stored["min_kind"] and stored["max_kind"]):
            return "different", f"no range, but values from {real.low!r:.60} to {real.high!r:.60}"
        if low is None or high is None:
            return "loose", "a range of another type"
        if _before(real.low, low) or _before(high, real.high):
            return "different", (
                f"from {low!r:.60} to {high!r:.60}, but values from {real.low!r:.60} to {real.high!r:.60}"
            )
    nulls, rows = stored["null_count"], stored["value_count"]
    if real.nulls and nulls == 0:
        return "different", f"no nulls, but {real.nulls} are there"
    if real.rows > real.nulls and nulls is not None and rows is not None and rows <= nulls:
        return "different", f"nothing but nulls, but {real.rows - real.nulls} values are there"
    exact = (nulls, rows) == (real.nulls, real.rows) and (real.low is None or _same(real, low, high))
    return ("", "") if exact else ("loose", "")


def _before(one: Any, other: Any) -> bool:
    if one == other:  # the two zeros bound one another
        return False
    return order_key(one) < order_key(other)


def _same(real: Range, low: Any, high: Any) -> bool:
    return not (_before(low, real.low) or _before(real.high, high))
