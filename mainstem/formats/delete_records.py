"""Encodes and decodes the content of DELETE log blocks, Avro ``HoodieDeleteRecordList``, by columns.

An entry is a record key, a partition path and an ordering value in a wrapper record of its type.
``IntWrapper(0)`` means "no ordering value": the delete wins against everything before it
(``HoodieDeleteBlock``, ``OrderingValues``). Several ordering fields form one ``ArrayWrapper``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_cursors import Cursors, read_numbers
from mainstem.formats.avro_pieces import Pieces
from mainstem.formats.avro_put import put
from mainstem.formats.avro_read import read_column
from mainstem.formats.avro_rows import Malformed, Reader, read_long, reader_of, zigzag
from mainstem.formats.avro_schema import AvroType, arrow_type

_TEXT = AvroType("string", null_branch=0)
_DECIMAL = AvroType("bytes", logical="decimal", precision=30, scale=15)
_BOOLEAN, _INT, _LONG = AvroType("boolean"), AvroType("int"), AvroType("long")
# Union branches of ``orderingVal``; 0 is null, 12 an array of values with branches 0 to 11.
WRAPPERS: dict[int, AvroType] = {
    1: _BOOLEAN,
    2: _INT,
    3: _LONG,
    4: AvroType("float"),
    5: AvroType("double"),
    6: AvroType("bytes"),
    7: AvroType("string"),
    8: AvroType("int", logical="date"),
    9: _DECIMAL,
    10: AvroType("long", logical="time-micros"),
    11: AvroType("long", logical="timestamp-micros"),
}
_ARRAY = 12
# Bytes in wrappers whose entries can be found at once; 0 = one varint.
_SIZES = {1: 1, 2: 0, 3: 0, 4: 4, 5: 8, 8: 0, 10: 0, 11: 0}
_AT_ONCE_FROM = 64
_NAMES = {"boolean": 1, "int": 2, "long": 3, "float": 4, "double": 5, "bytes": 6, "string": 7}
_DEFAULT = b"\x04\x00"  # IntWrapper, 0


# ---------------------------------------------------------------------------------------- writing


def encode_deletes(keys: pa.Array, partition_path: str, ordering: Sequence[pa.Array] | None) -> bytes:
    """The Avro datum for deletes of these record keys, all of one partition.

    ``ordering`` None writes the default, which deletes unconditionally. One array is written in the wrapper
    of its type, several arrays as an ``ArrayWrapper``. Raises ``Invalid`` for a null key, a null ordering
    value or a type without a wrapper.
    """
    count = len(keys)
    if keys.null_count:
        raise Invalid("a record key of a delete is null")
    for values in ordering or ():
        if len(values) != count:
            raise Invalid(f"{count} keys of deletes, but {len(values)} ordering values")
        if values.null_count:
            raise Invalid("an ordering value of a delete is null: give every row one, or none to any row")
    if count == 0:
        return b"\x00"
    parts = [zigzag(count)]
    for low in range(0, count, limits.CHUNK_ROWS):
        rows = min(limits.CHUNK_ROWS, count - low)
        columns = [values.slice(low, rows) for values in ordering or ()]
        parts.append(_encode_chunk(keys.slice(low, rows), partition_path, columns))
    return b"".join([*parts, b"\x00"])


def can_order_deletes(kind: pa.DataType) -> bool:
    """Whether ordering values of this type can be written into deletes."""
    try:
        _branch_of(kind)
    except (Invalid, Unsupported):
        return False
    return True


def _encode_chunk(keys: pa.Array, partition_path: str, ordering: list[pa.Array]) -> bytes:
    path = partition_path.encode()
    pieces = Pieces(len(keys), framed=False)
    put(pieces, keys, _TEXT, "_hoodie_record_key")
    pieces.constant(b"\x02" + zigzag(len(path)) + path)
    if not ordering:
        pieces.constant(_DEFAULT)
    elif len(ordering) == 1:
        _put_wrapped(pieces, ordering[0])
    else:
        pieces.constant(zigzag(_ARRAY) + b"\x02" + zigzag(len(ordering)))
        for values in ordering:
            _put_wrapped(pieces, values)
        pieces.constant(b"\x00")
    return pieces.joined()[0].to_pybytes()


def _put_wrapped(pieces: Pieces, values: pa.Array) -> None:
    branch = _branch_of(values.type)
    pieces.constant(zigzag(branch))
    kind = WRAPPERS[branch]
    if branch == 11 and values.type.tz is None:
        values = values.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    put(pieces, values, kind, "ordering value")


def _branch_of(kind: pa.DataType) -> int:
    from mainstem.formats.avro_schema import _type_json, value_type

    kind = value_type(kind)
    if pa.types.is_decimal(kind):
        return 9
    if pa.types.is_date(kind):
        return 8
    if pa.types.is_timestamp(kind):
        return 11
    branch = _NAMES.get(str(_type_json(kind, "v", "v", "ordering value", 1)))
    if branch is None:
        raise Invalid(f"an ordering column of type {kind} cannot be written into deletes")
    return branch


# ---------------------------------------------------------------------------------------- reading


def decode_deletes(data: memoryview) -> pa.Table:
    """The entries as columns record_key, partition_path, ordering, ordering_is_default.

    ``ordering`` has the type of the block's wrapper (for an ``ArrayWrapper`` a struct with fields ``0``,
    ``1``, ...), or int32 if every entry has the default. It is null where ``ordering_is_default``. Raises
    ``Malformed``.
    """
    starts = _starts_at_once(data)
    if starts is None:
        starts = _starts(bytes(data))
    if len(starts) < 2:
        return _table(pa.array([], pa.string()), pa.array([], pa.string()), None, np.zeros(0, bool))
    made = [
        _decode_chunk(data, starts[low : low + limits.CHUNK_ROWS + 1])
        for low in range(0, len(starts) - 1, limits.CHUNK_ROWS)
    ]
    return _one_table(made)


def _one_table(parts: list[pa.Table]) -> pa.Table:
    kinds = {part["ordering"].type for part in parts if part["ordering"].null_count < part.num_rows}
    if len(kinds) > 1:
        raise _mixed()
    kind = kinds.pop() if kinds else pa.int32()
    parts = [
        part
        if part["ordering"].type == kind
        else part.set_column(2, "ordering", pa.nulls(part.num_rows, kind))
        for part in parts
    ]
    return pa.concat_tables(parts)


def _mixed() -> Unsupported:
    return Unsupported("a delete block mixes ordering values of several types; compact the table first")


def _table(keys: pa.Array, paths: pa.Array, ordering: pa.Array | None, default: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "record_key": keys,
            "partition_path": paths,
            "ordering": pa.nulls(len(keys), pa.int32()) if ordering is None else ordering,
            "ordering_is_default": pa.array(default),
        }
    )


def _starts_at_once(data: memoryview) -> np.ndarray | None:
    """Like ``_starts``, for one Avro block of plain entries; None for other content.

    All entries of a log block have the same partition path, so its encoded form marks where each key ends.
    The marks found count only if keys, marks and ordering values form a gapless chain.
    """
    try:
        return _chain(data)
    except (Malformed, IndexError, ValueError):
        return None


def _chain(data: memoryview) -> np.ndarray | None:
    head = bytes(data[: 16 * limits.KIB])
    count, first = read_long(head, 0, len(head))
    if count < _AT_ONCE_FROM or count * 3 > len(data):
        return None
    mark, ordering = _mark(head, first)
    ends = [hit.start() for hit in re.finditer(re.escape(mark), data)]
    if len(ends) != count or ordering not in _SIZES:
        return None
    cursors = Cursors(data, np.asarray([*ends, len(data)], np.int64), header=len(mark))
    size = _SIZES[ordering]
    if size:
        cursors.skip(size)
    else:
        read_numbers(cursors, None)
    starts = np.concatenate([[first], cursors.at + ends[0]])
    keys = Cursors(data, starts, header=0)
    read_column(keys, _TEXT, False)
    exact = (keys.at + first == ends).all() and starts[-1] == len(data) - 1 and data[-1] == 0
    return starts if exact else None


def _mark(head: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of the first entry's partition path and ordering branch, and that branch."""
    end = len(head)
    for _ in range(2):
        begin = at
        if head[at] != 2:
            raise Malformed("a null key or path")
        size, at = read_long(head, at + 1, end)
        at += size
    return head[begin : at + 1], head[at] >> 1


def _starts(data: bytes) -> np.ndarray:
    """Where each entry begins, and where the last ends; entries have no length prefix."""
    at, end, found = 0, len(data), []
    skip = _skipper()
    while True:
        count, at = read_long(data, at, end)
        if count < 0:
            count = -count
            _, at = read_long(data, at, end)
        if count == 0:
            break
        if count * 3 > end - at:
            raise Malformed(f"{count} deletes where {end - at} bytes are left")
        for _ in range(count):
            found.append(at)
            at = skip(data, at, end)
        last = at
    if at != end:
        raise Malformed(f"{end - at} bytes follow the list of deletes")
    return np.asarray([*found, last] if found else [], np.int64)


def _skipper() -> Callable[[bytes, int, int], int]:
    ordering = _ordering_reader(12)

    def skip(data: bytes, at: int, end: int) -> int:
        for _ in range(2):
            if at >= end:
                raise Malformed("the list of deletes is cut off")
            branch = data[at]
            at += 1
            if branch == 2:
                size, at = read_long(data, at, end)
                at += size
                if size < 0 or at > end:
                    raise Malformed(f"a key or path of {size} bytes")
            elif branch:
                raise Malformed(f"union branch byte {branch} in a delete")
        if data[at : at + 2] == _DEFAULT:
            return at + 2
        return ordering(data, at, end)[1]

    return skip


def _ordering_reader(branches: int) -> Reader:
    readers = {branch: reader_of(kind) for branch, kind in WRAPPERS.items()}
    if branches == 12:
        readers[_ARRAY] = _array_reader()

    def read(data: bytes, at: int, end: int) -> tuple[object, int]:
        branch, at = read_long(data, at, end)
        if branch == 0:
            return (0, None), at
        if branch not in readers:
            raise Malformed(f"ordering value of the unknown kind {branch}")
        value, at = readers[branch](data, at, end)
        return (branch, value), at

    return read


def _array_reader() -> Reader:
    item = _ordering_reader(11)

    def read(data: bytes, at: int, end: int) -> tuple[list, int]:
        branch, at = read_long(data, at, end)
        values: list = []
        if branch == 0:
            return values, at
        while branch == 1:
            count, at = read_long(data, at, end)
            if count < 0:
                count = -count
                _, at = read_long(data, at, end)
            if count == 0:
                return values, at
            if count > end - at:
                raise Malformed(f"{count} ordering values where {end - at} bytes are left")
            for _ in range(count):
                value, at = item(data, at, end)
                values.append(value)
        raise Malformed(f"union branch {branch} in an ordering value")

    return read


def _decode_chunk(data: memoryview, starts: np.ndarray) -> pa.Table:
    cursors = Cursors(data, starts, header=0)
    try:
        keys = read_column(cursors, _TEXT, True)
        paths = read_column(cursors, _TEXT, True)
        branches = read_numbers(cursors, None)
        default, ordering = _read_ordering(cursors, branches, data, int(starts[0]))
    except (IndexError, pa.ArrowException, OverflowError) as error:
        raise Malformed(str(error)) from None
    return _table(keys, paths, ordering, default)


def _read_ordering(
    cursors: Cursors, branches: np.ndarray, data: memoryview, base: int
) -> tuple[np.ndarray, pa.Array | None]:
    first = int(branches[0])
    if (branches == first).all() and first in WRAPPERS and first != 2:
        values = read_column(cursors, WRAPPERS[first], True)
        cursors.check_end()
        return np.zeros(cursors.rows, bool), values
    if (branches == 2).all():
        numbers = read_numbers(cursors, None)
        cursors.check_end()
        default = numbers == 0
        if default.all():
            return default, None
        return default, pa.array(numbers.astype(np.int32), mask=default)
    return _read_mixed(cursors, branches, data, base)


def _read_mixed(
    cursors: Cursors, branches: np.ndarray, data: memoryview, base: int
) -> tuple[np.ndarray, pa.Array | None]:
    """Read row by row: arrays, nulls and defaults among values."""
    read = {branch: reader_of(kind) for branch, kind in WRAPPERS.items()} | {_ARRAY: _array_reader()}
    raw, rows = bytes(data[base : base + cursors.size]), []
    for branch, at, end in zip(branches.tolist(), cursors.at.tolist(), cursors.ends.tolist(), strict=True):
        rows.append((branch, read[branch](raw, at, end)[0] if branch else None))
    default = np.asarray([b == 0 or (b == 2 and v == 0) for b, v in rows])
    kinds = {b for (b, _), d in zip(rows, default, strict=True) if not d}
    if not kinds:
        return default, None
    if len(kinds) > 1:
        raise _mixed()
    kind = kinds.pop()
    values = [None if d else v for (_, v), d in zip(rows, default, strict=True)]
    if kind != _ARRAY:
        return default, pa.array(values, arrow_type(WRAPPERS[kind]))
    return default, _structs(values)


def _structs(values: list[list[tuple[int, object]] | None]) -> pa.Array:
    shapes = {tuple(branch for branch, _ in value) for value in values if value is not None}
    if len(shapes) != 1:
        raise _mixed()
    shape = shapes.pop()
    if 0 in shape:
        raise Unsupported("a delete with a null among its ordering values")
    fields = [pa.field(str(i), arrow_type(WRAPPERS[branch])) for i, branch in enumerate(shape)]
    rows = [
        None if value is None else {str(i): item for i, (_, item) in enumerate(value)} for value in values
    ]
    return pa.array(rows, pa.struct(fields))


__all__ = ["WRAPPERS", "can_order_deletes", "decode_deletes", "encode_deletes"]
