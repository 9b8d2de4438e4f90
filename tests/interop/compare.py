"""Cell by cell comparison of Arrow tables: what Java read, what mainstem or pandas says."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def differences(expected: pa.Table, found: pa.Table, key: Sequence[str]) -> list[str]:
    """What differs, one line per column or row count, empty if nothing does.

    Both sides are sorted by `key`. Floats are compared by their bits, so a NaN equals itself and
    -0.0 differs from 0.0; types must be equal, field nullability may differ.
    """
    if expected.num_rows != found.num_rows:
        return [f"expected {expected.num_rows} rows, found {found.num_rows}"]
    if sorted(expected.column_names) != sorted(found.column_names):
        return [f"expected columns {expected.column_names}, found {found.column_names}"]
    order = [(name, "ascending") for name in key]
    expected, found = expected.sort_by(order), found.sort_by(order)
    return [text for name in expected.column_names if (text := _column(name, expected, found, key))]


def _column(name: str, expected: pa.Table, found: pa.Table, key: Sequence[str]) -> str:
    left, right = expected.column(name), found.column(name)
    if left.type != right.type and str(left.type) != str(right.type):
        return f"{name}: expected type {left.type}, found {right.type}"
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        if pa.types.is_map(left.type):  # Java's maps are hash maps: their order says nothing
            pairs = ((_sorted(a), _sorted(b)) for a, b in pairs)
        same = [repr(a) == repr(b) for a, b in pairs]
    else:
        equal = pc.equal(_bits(left), _bits(right)).fill_null(False)
        both_null = pc.and_(left.is_null(), right.is_null())
        same = pc.or_(equal, both_null).to_pylist()
    if all(same):
        return ""
    row = same.index(False)
    where = {k: expected.column(k)[row].as_py() for k in key}
    return (
        f"{name}: {same.count(False)} of {len(same)} cells differ, first at {where}:"
        f" expected {left[row].as_py()!r}, found {right[row].as_py()!r}"
    )


def _sorted(entries: list[tuple[str, object]] | None) -> list[tuple[str, object]] | None:
    return None if entries is None else sorted(entries, key=lambda entry: entry[0])


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(column.type)
    if bits is None:
        return column
    return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)


def assert_same(expected: pa.Table, found: pa.Table, key: Sequence[str]) -> None:
    """Fails with the differing columns."""
    lines = differences(expected, found, key)
    assert not lines, "\n".join(lines)


def assert_rows_of(whole: pa.Table, part: pa.Table, key: Sequence[str]) -> None:
    """Fails unless each row of `part` is one of `whole`, cell by cell. `key` is unique in both."""
    wanted = part.select(key)
    assert_same(whole.join(wanted, list(key), join_type="left semi").select(part.column_names), part, key)


def without_meta(table: pa.Table) -> pa.Table:
    """The user columns."""
    return table.drop_columns([name for name in META if name in table.column_names])
