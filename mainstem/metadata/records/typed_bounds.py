"""Smallest and largest values in statistics rows: how typed values are stored as bytes, and read back.

In a row, a value is a *kind* (the branch of Avro's union, see the table) and its bytes: numbers little-endian
in their own width, booleans as one byte, texts and bytes as they are, decimals as big-endian two's
complement. Kind 0 is null: the column has only nulls, or nothing is known of it.

====  ===================  ==============  =====  ===================  ===============
kind  Hudi's wrapper       Arrow type      kind   Hudi's wrapper       Arrow type
====  ===================  ==============  =====  ===================  ===============
1     BooleanWrapper       bool            8      DateWrapper          date32
2     IntWrapper           int32           9      DecimalWrapper       decimal(30, 15)
3     LongWrapper          int64           10     TimeMicrosWrapper    time64[us]
4     FloatWrapper         float32         11     TimestampMicros...   timestamp[us, UTC]
5     DoubleWrapper        float64         12     LocalDateWrapper     date32
6     BytesWrapper         binary          13     ArrayWrapper         (raw Avro)
7     StringWrapper        string
====  ===================  ==============  =====  ===================  ===============

In index version V1 only the wrapper gives a value's type; V2 stores the type beside it (``ValueType``). The
index definition gives the version of a column's statistics (``Definitions.stats_version``), never the table's
version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Invalid
from mainstem.formats.avro_put_flat import decimal_matrix, minimal_sizes
from mainstem.formats.avro_read_flat import decimals
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.avro_schema import value_type
from mainstem.formats.conversions import float_to_double

BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING = range(1, 8)
DATE, DECIMAL, TIME, TIMESTAMP, LOCAL_DATE, ARRAY = range(8, 14)

#: kind -> Arrow type of its values
KINDS: dict[int, pa.DataType] = {
    BOOLEAN: pa.bool_(),
    INT: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    BYTES: pa.binary(),
    STRING: pa.string(),
    DATE: pa.date32(),
    DECIMAL: pa.decimal128(30, 15),
    TIME: pa.time64("us"),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    LOCAL_DATE: pa.date32(),
}
_WIDTHS = {INT: 4, LONG: 8, FLOAT: 4, DOUBLE: 8, DATE: 4, TIME: 8, TIMESTAMP: 8, LOCAL_DATE: 4}

#: ``ValueType`` ordinals of statistics of version V1, and of a column with only nulls
V1_TYPE, NULL_TYPE = 0, 1
_DECIMAL_TYPE = 10
# Name of a column's type here -> its wrapper and its ordinal under V2.
_V2 = {
    "bool": (BOOLEAN, 2), "int32": (INT, 3), "int64": (LONG, 4), "float": (FLOAT, 5), "double": (DOUBLE, 6),
    "string": (STRING, 7), "binary": (BYTES, 8), "decimal": (BYTES, _DECIMAL_TYPE), "date": (INT, 12),
    "time_ms": (INT, 13), "time_us": (LONG, 14), "timestamp_ms": (LONG, 15), "timestamp_us": (LONG, 16),
    "local_ms": (LONG, 18), "local_us": (LONG, 19),
}  # fmt: skip
# Ordinal -> type that the stored integers stand for.
_MEANINGS = {
    12: pa.date32(), 13: pa.time32("ms"), 14: pa.time64("us"), 15: pa.timestamp("ms", "UTC"),
    16: pa.timestamp("us", "UTC"), 18: pa.timestamp("ms"), 19: pa.timestamp("us"),
}  # fmt: skip
# V1's wrappers where they differ from V2's; times and timestamps are plain longs in both.
_V1 = {"decimal": DECIMAL, "date": DATE}
_BYTES_OF_DECIMAL_MAX = 16
_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Storing:
    """How a column's values are stored: the wrapper and, under V2, the type beside it."""

    kind: int
    ordinal: int | None
    type_info: str | None


@lru_cache(maxsize=256)
def storing(column_type: pa.DataType, version: str) -> Storing | None:
    """How values of this Arrow type are stored; None for types without statistics in Hudi.

    V1 stores decimals only if they fit decimal(30, 15).
    """
    plain = value_type(column_type)
    name = _name_of(plain)
    if name is None:
        return None
    kind, ordinal = _V2[name]
    if version == "V2":
        return Storing(kind, ordinal, f"{plain.precision},{plain.scale}" if name == "decimal" else None)
    if name == "decimal" and not (plain.scale <= 15 and plain.precision - plain.scale <= 15):
        return None
    return Storing(_V1.get(name, kind), None, None)


def _name_of(kind: pa.DataType) -> str | None:
    types = pa.types
    if types.is_integer(kind):
        wide = kind.bit_width == 64 or types.is_uint32(kind)
        return None if types.is_uint64(kind) else "int64" if wide else "int32"
    if types.is_floating(kind):
        return "double" if types.is_float64(kind) else "float"
    if types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return f"{'timestamp' if kind.tz else 'local'}_{kind.unit}"
    for name, fits in (
        ("bool", types.is_boolean), ("string", types.is_string), ("string", types.is_large_string),
        ("binary", types.is_binary), ("binary", types.is_large_binary), ("decimal", types.is_decimal128),
        ("date", types.is_date), ("time_ms", lambda k: k == pa.time32("ms")),
        ("time_us", lambda k: k == pa.time64("us")),
    ):  # fmt: skip
        if fits(kind):
            return name
    return None


def packed(values: pa.Array, how: Storing) -> pa.Array:
    """The stored bytes of typed values; nulls stay null. ``Invalid`` for a value that does not fit."""
    if how.kind == BYTES and how.ordinal == _DECIMAL_TYPE:
        return _pack_decimals(values)
    try:
        plain = values.cast(KINDS[how.kind])
    except pa.ArrowNotImplementedError:  # dates and times: cast by way of integers
        narrow = pa.types.is_date32(values.type) or pa.types.is_time32(values.type)
        plain = values.cast(pa.int32() if narrow else pa.int64()).cast(KINDS[how.kind])
    except pa.ArrowInvalid as error:
        raise Invalid(f"values of type {values.type} do not fit {KINDS[how.kind]}: {error}") from None
    if how.kind == DECIMAL:
        return _pack_decimals(plain)
    if how.kind in (BYTES, STRING):
        return plain.cast(pa.binary())
    if how.kind == BOOLEAN:
        plain = plain.cast(pa.uint8())
    return _as_bytes(plain, _WIDTHS.get(how.kind, 1))


def packed_plainly(values: Sequence[Any], kind: pa.DataType, how: Storing) -> list[bytes] | None:
    """``packed`` for a few plain values of this type, none of them null; None for types that need Arrow."""
    if how.kind == STRING:
        return [value.encode() for value in values]
    if how.kind in (INT, LONG) and pa.types.is_integer(kind):
        width = _WIDTHS[how.kind]
        return [value.to_bytes(width, "little", signed=True) for value in values]
    if how.kind == DOUBLE:
        return [_DOUBLE.pack(value) for value in values]
    return None


def _as_bytes(values: pa.Array, width: int) -> pa.Array:
    """Fixed-width values as binaries over the same memory."""
    rows = len(values)
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    data = values.buffers()[1]
    data = None if data is None else data.slice(values.offset * width, rows * width)
    made = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.binary())) if values.null_count else made


def _pack_decimals(values: pa.Array) -> pa.Array:
    """``BigInteger.toByteArray`` of the unscaled values: as few big-endian bytes as possible."""
    body = decimal_matrix(values)
    sizes = minimal_sizes(body) if len(body) else np.zeros(0, np.int64)
    kept = np.arange(16) >= 16 - sizes[:, None]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = pa.py_buffer(np.ascontiguousarray(body[kept]))
    made = pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), data])
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.binary())) if values.null_count else made


def type_of(
    kind: int, ordinal: int | None = None, type_info: str | None = None, path: str = ""
) -> pa.DataType:
    """Arrow type that ``typed`` returns. ``CorruptTable`` for an unknown kind or an impossible decimal."""
    if kind == BYTES and ordinal == _DECIMAL_TYPE:
        return _decimal_type(type_info, path)
    if kind not in KINDS:
        raise CorruptTable(f"a statistics value of the unknown kind {kind}", path=path)
    if kind in (INT, LONG) and ordinal is not None:
        return _MEANINGS.get(ordinal, KINDS[kind])
    return KINDS[kind]


def typed(
    values: pa.Array, kind: int, ordinal: int | None = None, type_info: str | None = None, *, path: str = ""
) -> pa.Array:
    """Stored bytes of one kind as values, of the type in ``KINDS`` or the one that a V2 ordinal stands for.

    Raises ``CorruptTable`` for bytes of the wrong size.
    """
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    target = type_of(kind, ordinal, type_info, path)
    if pa.types.is_decimal(target):
        return _unpack_decimals(values, target, path)
    if kind == BYTES:
        return values
    try:
        if kind == STRING:
            return values.cast(pa.string())
        width = _WIDTHS.get(kind, 1)
        matrix = _matrix(values, width, path)
        if kind == BOOLEAN:
            return _masked(pa.array(matrix[:, 0] != 0), values)
        made = pa.Array.from_buffers(KINDS[kind], len(values), [None, pa.py_buffer(matrix)])
        made = made if made.type == target else made.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptTable(f"a damaged statistics value: {error}", path=path) from None
    return _masked(made, values)


def _matrix(values: pa.Array, width: int, path: str) -> np.ndarray:
    """uint8[rows, width]; zeros for nulls."""
    sizes = pc.binary_length(values).fill_null(width).to_numpy(zero_copy_only=False)
    if len(sizes) and (sizes != width).any():
        wrong = sizes[sizes != width][0]
        raise CorruptTable(f"a statistics value of {wrong} bytes, expected {width}", path=path)
    filled = values.fill_null(b"\0" * width) if values.null_count else values
    first = _first(filled) if len(filled) else 0
    raw = filled.buffers()[2][first : first + width * len(filled)] if len(filled) else b""
    return np.frombuffer(raw, np.uint8).reshape(-1, width)


def _first(values: pa.Array) -> int:
    return int(np.frombuffer(values.buffers()[1], np.int32, 1, 4 * values.offset)[0])


def _masked(made: pa.Array, like: pa.Array) -> pa.Array:
    return pc.if_else(like.is_valid(), made, pa.scalar(None, made.type)) if like.null_count else made


def _decimal_type(type_info: str | None, path: str) -> pa.DataType:
    parts = (type_info or "").split(",")
    numbers = [int(p) for p in parts if p.strip().isdecimal() and len(p) < 4]
    if len(parts) != 2 or len(numbers) != 2 or not 1 <= numbers[0] <= 38 or numbers[1] > numbers[0]:
        raise CorruptTable(f"a statistics value of the decimal type {type_info!r:.40}", path=path)
    return pa.decimal128(*numbers)


def _unpack_decimals(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    body = np.zeros((len(values), 16), np.uint8)
    rows = [b"\0" if v is None else v for v in values.to_pylist()]  # few columns are decimals
    for row, data in zip(body, rows, strict=True):
        data = data or b"\0"
        if len(data) > _BYTES_OF_DECIMAL_MAX:
            raise CorruptTable(f"a decimal statistics value of {len(data)} bytes", path=path)
        row[:] = 0xFF if data[0] >= 0x80 else 0
        row[16 - len(data) :] = np.frombuffer(data, np.uint8)
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
    try:
        return decimals(body, 16, valid, kind)
    except Malformed as error:
        raise CorruptTable(f"a damaged statistics value: {error}", path=path) from None


def column_values(rows: pa.Table, which: str, column_type: pa.DataType, *, path: str = "") -> pa.Array:
    """``which`` ("min" or "max") of statistics rows of *one* column, as values of the column's type.

    Null if a row has no value, or one that cannot be converted to the column's type without loss (the type
    has changed since): then nothing is known of that file.
    """
    kinds = rows[f"{which}_kind"].to_numpy()
    found = pa.nulls(len(kinds), column_type)
    for (kind, ordinal, info), at in _alike(rows, kinds):
        stored = typed(rows[which].take(at), kind, ordinal, info, path=path) if kind in KINDS else None
        converted = None if stored is None else _converted(stored, column_type)
        if converted is None:
            continue
        if len(at) == len(kinds):
            return converted
        mask = np.zeros(len(kinds), bool)
        mask[at.to_numpy()] = True
        found = pc.replace_with_mask(found, pa.array(mask), converted)
    return found


def _alike(rows: pa.Table, kinds: np.ndarray) -> list[tuple[tuple[int, int | None, str | None], pa.Array]]:
    """Positions of rows with a value, by kind, ordinal and type info; nearly always there is one group."""
    groups = {}
    ordinals, infos = rows["ordinal"], rows["type_info"]
    for kind in np.unique(kinds[kinds != 0]).tolist():
        at = np.flatnonzero(kinds == kind)
        pairs = pa.table({"o": ordinals.take(pa.array(at)), "i": infos.take(pa.array(at))})
        for pair in pairs.group_by(["o", "i"]).aggregate([]).to_pylist():
            same = pc.and_(_same(pairs["o"], pair["o"]), _same(pairs["i"], pair["i"]))
            mask = same.combine_chunks().to_numpy(zero_copy_only=False)
            groups[kind, pair["o"], pair["i"]] = pa.array(at[mask])
    return list(groups.items())


def _same(column: pa.ChunkedArray, value: object) -> pa.ChunkedArray:
    return pc.is_null(column) if value is None else pc.equal(column, value).fill_null(False)


def _converted(values: pa.Array, column_type: pa.DataType) -> pa.Array | None:
    if values.type == column_type:
        return values
    try:
        if pa.types.is_temporal(column_type) and pa.types.is_integer(values.type):
            # V1 stores plain integers in the column's own unit
            narrow = pa.types.is_date32(column_type) or pa.types.is_time32(column_type)
            values = values.cast(pa.int32() if narrow else pa.int64())
        if pa.types.is_float32(values.type) and pa.types.is_float64(column_type):
            return float_to_double(values)  # the same conversion as for rows
        return values.cast(column_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
