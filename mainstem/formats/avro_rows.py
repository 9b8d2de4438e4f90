"""Avro values of any type row by row, for rows too few to repay the fixed cost of columns.

``avro_encode`` and ``avro_read`` decide which rows those are. The readers check every length against the end
of its record before they slice, refuse counts larger than the number of bytes left, and recurse no deeper
than the schema, whose depth is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import AvroType, arrow_type

Reader = Callable[[bytes, int, int], tuple[Any, int]]
Writer = Callable[[Any, bytearray], None]

_EXACT = Context(prec=200)
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class Malformed(ValueError):
    """A value that does not parse; callers add path and offset."""


def zigzag(value: int) -> bytes:
    """The number as an Avro int or long."""
    rest = (value << 1) ^ (value >> 63)
    if rest <= 0x7F:
        return bytes((rest,))
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_long(data: bytes, at: int, end: int) -> tuple[int, int]:
    """``(value, next position)`` of the Avro int or long at ``at``."""
    shift = found = 0
    while at < end:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            if found >> 64:
                break
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift > 63:
            break
    raise Malformed("a number that is cut off or has more than 64 bits")


def storage_type(kind: AvroType) -> pa.DataType:
    """The Arrow type whose Python values the writers take, with dates and times as plain integers."""
    return nullable_type(kind, _plain_leaf)


def nullable_type(kind: AvroType, leaf: Callable[[AvroType], pa.DataType] = arrow_type) -> pa.DataType:
    """The Arrow type with every part nullable: Arrow does not cast values under a null to "not null"."""
    if kind.kind == "array":
        return pa.list_(pa.field("element", nullable_type(kind.fields[0][1], leaf)))
    if kind.kind == "map":
        return pa.map_(pa.string(), nullable_type(kind.fields[0][1], leaf))
    if kind.kind == "record":
        return pa.struct([pa.field(name, nullable_type(child, leaf)) for name, child in kind.fields])
    return leaf(kind)


def _plain_leaf(kind: AvroType) -> pa.DataType:
    if kind.kind in ("int", "long"):
        return pa.int32() if kind.kind == "int" else pa.int64()
    return arrow_type(kind)


# ---------------------------------------------------------------------------------------- writing


def writer_of(kind: AvroType, column: str) -> Writer:
    """A function that appends one value of this type (union branch included) to a bytearray."""
    plain = _plain_writer(kind, column)
    if not kind.nullable:
        return _never_null(plain, column)
    null, value = bytes((kind.null_tag,)), bytes((kind.value_tag,))

    def write(item: Any, out: bytearray) -> None:
        if item is None:
            out += null
        else:
            out += value
            plain(item, out)

    return write


def _never_null(plain: Writer, column: str) -> Writer:
    def write(item: Any, out: bytearray) -> None:
        if item is None:
            raise Invalid(f"column {column!r} holds a null, but the schema declares it as not null")
        plain(item, out)

    return write


def _plain_writer(kind: AvroType, column: str) -> Writer:
    if kind.kind == "record":
        return _record_writer(kind, column)
    if kind.kind == "array":
        return _array_writer(kind, column)
    if kind.kind == "map":
        return _map_writer(kind, column)
    return _scalar_writer(kind, column)


def _scalar_writer(kind: AvroType, column: str) -> Writer:
    name = kind.kind
    if kind.logical == "decimal":
        return _decimal_writer(kind)
    if name in ("int", "long"):
        return lambda item, out: out.extend(zigzag(item))
    if name == "boolean":
        return lambda item, out: out.append(1 if item else 0)
    if name in ("float", "double"):
        pack = (_FLOAT if name == "float" else _DOUBLE).pack
        return lambda item, out: out.extend(pack(item))
    if name == "enum":
        return _enum_writer(kind, column)
    if kind.logical == "vector":
        return _vector_writer(kind, column)
    if name == "fixed":
        return _fixed_writer(kind, column)

    def write(item: str | bytes, out: bytearray) -> None:
        data = item.encode() if isinstance(item, str) else item
        out += zigzag(len(data))
        out += data

    return write


def _decimal_writer(kind: AvroType) -> Writer:
    def write(item: Decimal, out: bytearray) -> None:
        unscaled = int(item.scaleb(kind.scale, _EXACT))
        if kind.kind == "fixed":
            out += unscaled.to_bytes(kind.size, "big", signed=True)
            return
        magnitude = unscaled if unscaled >= 0 else ~unscaled
        size = magnitude.bit_length() // 8 + 1
        out += zigzag(size)
        out += unscaled.to_bytes(size, "big", signed=True)

    return write


def _enum_writer(kind: AvroType, column: str) -> Writer:
    places = {symbol: zigzag(place) for place, symbol in enumerate(kind.symbols)}

    def write(item: str, out: bytearray) -> None:
        if item not in places:
            raise Invalid(
                f"column {column!r} holds {item!r:.80}, which is not a symbol of its enum: "
                f"{', '.join(kind.symbols)}"
            )
        out += places[item]

    return write


def _vector_layout(kind: AvroType) -> struct.Struct:
    element = {"FLOAT": "f", "DOUBLE": "d", "INT8": "b"}[kind.symbols[0]]
    return struct.Struct(f"<{kind.precision}{element}")


def _vector_writer(kind: AvroType, column: str) -> Writer:
    layout = _vector_layout(kind)

    def write(item: list, out: bytearray) -> None:
        if None in item:
            raise Invalid(f"column {column!r} has a vector with a null element; Hudi allows none")
        out += layout.pack(*item)

    return write


def _fixed_writer(kind: AvroType, column: str) -> Writer:
    def write(item: bytes, out: bytearray) -> None:
        if len(item) != kind.size:
            raise Invalid(f"column {column!r} holds {len(item)} bytes; its schema expects {kind.size}")
        out += item

    return write


def _record_writer(kind: AvroType, column: str) -> Writer:
    parts = [(name, writer_of(child, f"{column}.{name}")) for name, child in kind.fields]

    def write(item: dict, out: bytearray) -> None:
        for name, part in parts:
            part(item[name], out)

    return write


def _array_writer(kind: AvroType, column: str) -> Writer:
    part = writer_of(kind.fields[0][1], f"{column}.element")

    def write(items: list, out: bytearray) -> None:
        if items:  # one block with a positive count, as in Java's encoder
            out += zigzag(len(items))
            for item in items:
                part(item, out)
        out.append(0)

    return write


def _map_writer(kind: AvroType, column: str) -> Writer:
    part = writer_of(kind.fields[0][1], f"{column}.value")

    def write(items: list[tuple[str, Any]], out: bytearray) -> None:
        if len({key for key, _ in items}) != len(items):
            raise Invalid(f"column {column!r} holds a map with the same key twice; Java keeps only one")
        if items:
            out += zigzag(len(items))
            for key, item in items:
                data = key.encode()
                out += zigzag(len(data))
                out += data
                part(item, out)
        out.append(0)

    return write


# ---------------------------------------------------------------------------------------- reading


def reader_of(kind: AvroType) -> Reader:
    """A function ``(data, at, end) -> (value, next)`` for this type, union branch included.

    Its values are what ``pyarrow.array(..., arrow_type(kind))`` accepts. It raises ``Malformed``.
    """
    plain = _plain_reader(kind)
    if not kind.nullable:
        return plain
    null, value = kind.null_tag, kind.value_tag

    def read(data: bytes, at: int, end: int) -> tuple[Any, int]:
        if at >= end:
            raise Malformed("the record ends in the middle of a value")
        if data[at] == value:
            return plain(data, at + 1, end)
        if data[at] == null:
            return None, at + 1
        raise Malformed(f"union branch {data[at]} where {null} or {value} is expected")

    return read


def _plain_reader(kind: AvroType) -> Reader:
    if kind.kind == "record":
        return _record_reader(kind)
    if kind.kind in ("array", "map"):
        return _blocks_reader(kind)
    return _scalar_reader(kind)


def _slice(data: bytes, at: int, end: int, size: int) -> bytes:
    if size < 0 or size > end - at:
        raise Malformed(f"a value of {size} bytes where {end - at} are left")
    return data[at : at + size]


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    size, at = read_long(data, at, end)
    return _slice(data, at, end, size), at + size


def _read_text(data: bytes, at: int, end: int) -> tuple[str, int]:
    found, at = _read_bytes(data, at, end)
    try:
        return found.decode(), at
    except UnicodeDecodeError as error:
        raise Malformed(f"text that is not UTF-8: {error}") from None


def _read_boolean(data: bytes, at: int, end: int) -> tuple[bool, int]:
    byte = _slice(data, at, end, 1)[0]
    if byte > 1:
        raise Malformed(f"a boolean with the value {byte}")
    return bool(byte), at + 1


def _read_int(data: bytes, at: int, end: int) -> tuple[int, int]:
    found, at = read_long(data, at, end)
    if not -(2**31) <= found < 2**31:
        raise Malformed(f"the number {found} in an int column")
    return found, at


def _read_float(data: bytes, at: int, end: int) -> tuple[float, int]:
    return _FLOAT.unpack(_slice(data, at, end, 4))[0], at + 4


def _read_double(data: bytes, at: int, end: int) -> tuple[float, int]:
    return _DOUBLE.unpack(_slice(data, at, end, 8))[0], at + 8


_SCALARS: dict[str, Reader] = {
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "string": _read_text,
    "bytes": _read_bytes,
}


def _scalar_reader(kind: AvroType) -> Reader:
    if kind.kind == "enum":
        return _enum_reader(kind)
    raw = _SCALARS[kind.kind] if kind.kind != "fixed" else _fixed_reader(kind.size)
    if kind.logical == "vector":
        return _vector_reader(kind, raw)
    return raw if kind.logical != "decimal" else _decimal_reader(kind, raw)


def _vector_reader(kind: AvroType, raw: Reader) -> Reader:
    layout = _vector_layout(kind)

    def read(data: bytes, at: int, end: int) -> tuple[tuple, int]:
        found, at = raw(data, at, end)
        return layout.unpack(found), at

    return read


def _fixed_reader(size: int) -> Reader:
    return lambda data, at, end: (_slice(data, at, end, size), at + size)


def _decimal_reader(kind: AvroType, raw: Reader) -> Reader:
    limit = 10**kind.precision

    def read(data: bytes, at: int, end: int) -> tuple[Decimal, int]:
        found, at = raw(data, at, end)
        unscaled = int.from_bytes(found[:64], "big", signed=True)
        if len(found) > 64 or not -limit < unscaled < limit:
            raise Malformed(f"a decimal with more than {kind.precision} digits")
        return Decimal(unscaled).scaleb(-kind.scale, _EXACT), at

    return read


def _enum_reader(kind: AvroType) -> Reader:
    def read(data: bytes, at: int, end: int) -> tuple[str, int]:
        place, at = read_long(data, at, end)
        if not 0 <= place < len(kind.symbols):
            raise Malformed(f"enum symbol {place} of {len(kind.symbols)}")
        return kind.symbols[place], at

    return read


def _record_reader(kind: AvroType) -> Reader:
    parts = [(name, reader_of(child)) for name, child in kind.fields]

    def read(data: bytes, at: int, end: int) -> tuple[dict, int]:
        found = {}
        for name, part in parts:
            found[name], at = part(data, at, end)
        return found, at

    return read


def _blocks_reader(kind: AvroType) -> Reader:
    part = reader_of(kind.fields[0][1])
    if kind.kind == "map":
        part = _entry_reader(part)

    def read(data: bytes, at: int, end: int) -> tuple[list, int]:
        found: list = []
        while True:
            count, at = read_long(data, at, end)
            if count < 0:  # Avro allows the block's size in bytes after a negative count
                count = -count
                _, at = read_long(data, at, end)
            if count == 0:
                return found, at
            if count > end - at:  # every item of a supported type takes at least one byte
                raise Malformed(f"{count} items where {end - at} bytes are left")
            for _ in range(count):
                item, at = part(data, at, end)
                found.append(item)

    return read


def _entry_reader(part: Reader) -> Reader:
    def read(data: bytes, at: int, end: int) -> tuple[tuple[str, Any], int]:
        key, at = _read_text(data, at, end)
        item, at = part(data, at, end)
        return (key, item), at

    return read
