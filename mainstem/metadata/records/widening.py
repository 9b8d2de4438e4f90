"""Joins loose statistics rows: bounds widen, counts are added (``mergeColumnStatsRecords``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.metadata.records.typed_bounds import KINDS, NULL_TYPE, Storing, column_values, packed, type_of

_ADDED = ("value_count", "null_count", "total_size", "total_uncompressed_size")


def widened(rows: pa.Table, groups: np.ndarray) -> pa.Table:
    """One row per group. ``groups`` (0, 1, ...) ascends; the rows of a group are in merge order.

    Everything except bounds, counts and sizes comes from a group's last row. Values of another type than the
    newest row's are cast to it. If that is impossible without loss, the bound is null: nothing is known.
    """
    rows = rows.combine_chunks()
    last = np.flatnonzero(np.append(groups[1:] != groups[:-1], True))
    made = rows.take(pa.array(last))
    for name in _ADDED:
        column = rows[name].fill_null(0).combine_chunks().to_numpy()
        sums = np.add.reduceat(column, np.flatnonzero(np.append(True, groups[1:] != groups[:-1])))
        made = _with(made, name, pa.array(sums))
    shapes = _shapes(rows, groups, len(last))
    for which, largest in (("min", False), ("max", True)):
        kinds, values = _bound(rows, groups, shapes, which, largest)
        made = _with(_with(made, f"{which}_kind", pa.array(kinds)), which, values)
    made = _with(made, "ordinal", pa.array([s[1] for s in shapes], pa.int32()))
    return _with(made, "type_info", pa.array([s[2] for s in shapes], pa.string()))


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = table.column_names.index(name)
    field = table.schema.field(name)
    return table.set_column(at, field, column.cast(field.type))


Shape = tuple[int, "int | None", "str | None"]


def _shapes(rows: pa.Table, groups: np.ndarray, count: int) -> list[Shape]:
    """Kind, ordinal and type info of each group: those of its newest row with a value, else of its newest
    row.

    Plain Python per row: of a slice's rows, few are loose and have an older row.
    """
    shapes: list[Shape] = [(0, None, None)] * count
    columns = (rows[n].to_pylist() for n in ("min_kind", "max_kind", "ordinal", "type_info"))
    for group, low, high, ordinal, info in zip(groups.tolist(), *columns, strict=True):
        kind = low or high
        if kind or not shapes[group][0]:
            shapes[group] = (kind, ordinal, info)
        elif ordinal is not None and shapes[group][1] in (None, NULL_TYPE):
            shapes[group] = (shapes[group][0], ordinal, info)
    return shapes


def _bound(
    rows: pa.Table, groups: np.ndarray, shapes: list[Shape], which: str, largest: bool
) -> tuple[np.ndarray, pa.Array]:
    """Kind and packed bound of each group."""
    kinds = np.zeros(len(shapes), np.int8)
    made = pa.nulls(len(shapes), pa.binary())
    numbers = {shape: i for i, shape in enumerate(dict.fromkeys(shapes))}
    shape_of = np.array([numbers[shape] for shape in shapes])
    for shape, number in numbers.items():
        if shape[0] not in KINDS:
            continue
        at = np.flatnonzero(shape_of[groups] == number)
        some = rows.take(pa.array(at))
        values = column_values(some, which, type_of(*shape))
        known = values.is_valid().to_numpy(zero_copy_only=False)
        lost = np.unique(groups[at[~known & (some[f"{which}_kind"].to_numpy() != 0)]])
        who, best = _best(values.filter(pa.array(known)), groups[at[known]], largest)
        kept = np.isin(who, lost, invert=True)
        kinds[who[kept]] = shape[0]
        mask = np.zeros(len(shapes), bool)
        mask[who[kept]] = True
        made = pc.replace_with_mask(made, mask, packed(best.filter(pa.array(kept)), Storing(*shape)))
    return kinds, made


def _best(values: pa.Array, groups: np.ndarray, largest: bool) -> tuple[np.ndarray, pa.Array]:
    """The groups that have a value, ascending, and the smallest or largest value of each."""
    plain = _sortable(values)
    table = pa.table({"group": groups, "value": plain})
    keys = [("group", "ascending"), ("value", "descending" if largest else "ascending")]
    order = pc.sort_indices(table, keys)
    ordered = groups[order.to_numpy()]
    first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[first], values.take(order.filter(pa.array(first)))


def _sortable(values: pa.Array) -> pa.Array:
    """Values that Arrow sorts as Java compares the given ones.

    Arrow does not order booleans, puts NaN last in either direction, and equates both zeros. Java's
    ``Double.compareTo`` orders: -0.0, 0.0, ..., infinity, NaN.
    """
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8())
    if not pa.types.is_floating(values.type):
        return values
    numbers = np.array(values.to_numpy(zero_copy_only=False))
    numbers[np.isnan(numbers)] = np.nan  # one bit pattern, without a sign
    bits = numbers.view(np.int32 if numbers.dtype == np.float32 else np.int64)
    return pa.array(np.where(bits < 0, np.iinfo(bits.dtype).max ^ bits, bits))
