"""Structs of Thrift's compact protocol, which Parquet's page headers and footers are.

A struct is a dictionary from field numbers to (wire type, value), in the order of the fields. Nothing is
known about what the fields mean, so a struct that is read and written again loses none of them.
"""

from __future__ import annotations

from typing import Any

Struct = dict[int, tuple[int, Any]]
"""Field number -> (wire type, value). A list is (wire type of the elements, elements)."""

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (I16, I32, I64)
# Parquet's footers nest six deep.
_DEPTH_MAX = 32
_SHORT_LIST_MAX = 14
_VARINT_BITS_MAX = 70


def read_struct(data: memoryview | bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at this byte, and where it ends. Raises ``ValueError`` for other bytes."""
    try:
        return _read_struct(data, at, 0)
    except IndexError:
        raise ValueError("a Thrift struct is cut off") from None


def _read_struct(data: memoryview | bytes, at: int, depth: int) -> tuple[Struct, int]:
    if depth > _DEPTH_MAX:
        raise ValueError(f"a Thrift struct nested more than {_DEPTH_MAX} deep")
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_integer(data, at)
        kind = head & 15
        value, at = _read_value(data, at, kind, depth) if kind > FALSE else (None, at)
        found[number] = (kind, value)
    return found, at + 1


def _read_value(data: memoryview | bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _read_integer(data, at)
    if kind in (TRUE, FALSE, BYTE):  # a truth value in a list
        return data[at], at + 1
    if kind == STRUCT:
        return _read_struct(data, at, depth + 1)
    if kind == LIST:
        return _read_list(data, at, depth + 1)
    if kind == BINARY:
        size, at = _read_varint(data, at)
    elif kind == DOUBLE:
        size = 8
    else:
        raise ValueError(f"a Thrift value of the wire type {kind}, which Parquet does not use")
    if at + size > len(data):
        raise ValueError("a Thrift value is cut off")
    return bytes(data[at : at + size]), at + size


def _read_list(data: memoryview | bytes, at: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
    if depth > _DEPTH_MAX:
        raise ValueError(f"a Thrift list nested more than {_DEPTH_MAX} deep")
    head = data[at]
    count, at = head >> 4, at + 1
    if count > _SHORT_LIST_MAX:
        count, at = _read_varint(data, at)
    if count > len(data) - at:  # every element takes a byte
        raise ValueError(f"a Thrift list of {count} elements is cut off")
    kind, values = head & 15, []
    for _ in range(count):
        value, at = _read_value(data, at, kind, depth)
        values.append(value)
    return (kind, values), at


def _read_varint(data: memoryview | bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise ValueError("a Thrift number of more than ten bytes")


def _read_integer(data: memoryview | bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def struct_bytes(struct: Struct) -> bytes:
    """The bytes of a struct."""
    made = bytearray()
    _write_struct(made, struct)
    return bytes(made)


def _write_struct(made: bytearray, struct: Struct) -> None:
    before = 0
    for number, (kind, value) in struct.items():
        if 0 < number - before <= 15:
            made.append(number - before << 4 | kind)
        else:
            made.append(kind)
            _write_integer(made, number)
        before = number
        if kind > FALSE:
            _write_value(made, kind, value)
    made.append(0)


def _write_value(made: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _write_integer(made, value)
    elif kind in (TRUE, FALSE, BYTE):
        made.append(value)
    elif kind == STRUCT:
        _write_struct(made, value)
    elif kind == LIST:
        of, values = value
        if len(values) <= _SHORT_LIST_MAX:
            made.append(len(values) << 4 | of)
        else:
            made.append(0xF0 | of)
            _write_varint(made, len(values))
        for one in values:
            _write_value(made, of, one)
    else:
        if kind == BINARY:
            _write_varint(made, len(value))
        made += value


def _write_varint(made: bytearray, value: int) -> None:
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)


def _write_integer(made: bytearray, value: int) -> None:
    _write_varint(made, value << 1 if value >= 0 else (-value << 1) - 1)
