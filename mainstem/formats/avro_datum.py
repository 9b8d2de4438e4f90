"""Encodes one Avro record, given as Python values: the content of timeline files.

A writer is built once per schema, as one closure per field. It takes a quarter of the time of ``fastavro``,
which walks the schema and tries each union's branches for every value. That matters because a commit writes a
record of forty fields for each file of its own and of the metadata table. The bytes are the same.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_rows import zigzag

Put = Callable[[Any, bytearray], None]
_SMALL = [zigzag(number) for number in range(64)]
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


@lru_cache(maxsize=64)
def datum_writer(schema_text: str) -> Callable[[Mapping[str, Any]], bytes]:
    """A function that encodes a record of this schema; fields that a record lacks get their defaults.

    The function raises ``Invalid`` for a null that the schema does not allow. Raises ``Unsupported`` for
    schemas with parts that Hudi's timeline does not use (enums, fixed, unions of two types).
    """
    put = _put(json.loads(schema_text), {}, "record")

    def encode(record: Mapping[str, Any]) -> bytes:
        out = bytearray()
        put(record, out)
        return bytes(out)

    return encode


class Encoded(bytes):
    """A record that is encoded already; a writer takes it where it takes that record's values."""


def writer_of_some(
    schema_text: str, name: str, constant: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Encoded]:
    """A function that encodes the schema's record ``name``, whose ``constant`` fields are encoded here, once
    for all. Raises ``Unsupported`` as ``datum_writer``."""
    tree, named = json.loads(schema_text), dict[str, Put]()
    _put(tree, named, "record")
    pieces: list[tuple[bytes, str, Any, Put]] = []
    literal = bytearray()
    for field in _record_in(tree, name)["fields"]:
        put, default = _put(field["type"], named, field["name"]), field.get("default")
        if field["name"] in constant:
            put(constant[field["name"]], literal)
        else:
            pieces.append((bytes(literal), field["name"], default, put))
            literal.clear()
    last = bytes(literal)

    def encode(record: Mapping[str, Any]) -> Encoded:
        out = bytearray()
        for before, field, default, put in pieces:
            out += before
            put(record.get(field, default), out)
        return Encoded(out + last)

    return encode


def _record_in(node: Any, name: str) -> Any:
    """The definition of a record in a schema; None if it has none."""
    if isinstance(node, dict):
        if node.get("type") == "record" and node["name"].rpartition(".")[2] == name:
            return node
        node = list(node.values())
    if isinstance(node, list):
        return next((found for part in node if (found := _record_in(part, name)) is not None), None)
    return None


def _put(node: Any, named: dict[str, Put], name: str) -> Put:
    if isinstance(node, list):
        return _put_union(node, named, name)
    if isinstance(node, str):
        return named.get(node.rpartition(".")[2]) or _put_plain(node, name)
    kind = node["type"]
    if kind == "record":
        return _put_record(node, named)
    if kind == "array":
        return _put_array(_put(node["items"], named, name))
    if kind == "map":
        return _put_map(_put(node["values"], named, name))
    return _put_plain(kind, name)


def _put_union(branches: list[Any], named: dict[str, Put], name: str) -> Put:
    others = [branch for branch in branches if branch != "null"]
    if len(branches) != 2 or len(others) != 1:
        raise Unsupported(f"the field {name!r} of a timeline file is a union of {len(others)} types")
    null, value = branches.index("null"), branches.index(others[0])
    no, yes, put = zigzag(null), zigzag(value), _put(others[0], named, name)
    if others[0] in ("int", "long"):
        return _put_number_or_null(no, yes)

    def write(item: Any, out: bytearray) -> None:
        if item is None:
            out += no
        else:
            out += yes
            put(item, out)

    return write


def _put_number_or_null(no: bytes, yes: bytes) -> Put:
    small = [yes + zigzag(number) for number in range(64)]  # most numbers in a file's statistics

    def write(item: int | None, out: bytearray) -> None:
        if item is None:
            out += no
        else:
            out += small[item] if 0 <= item < 64 else yes + zigzag(item)

    return write


def _put_record(node: dict[str, Any], named: dict[str, Put]) -> Put:
    fields = [(f["name"], f.get("default"), _put(f["type"], named, f["name"])) for f in node["fields"]]

    def write(item: Mapping[str, Any] | Encoded, out: bytearray) -> None:
        if isinstance(item, Encoded):
            out += item
            return
        get = item.get
        for name, default, put in fields:
            put(get(name, default), out)

    named[node["name"].rpartition(".")[2]] = write
    return write


def _put_array(put: Put) -> Put:
    def write(items: Any, out: bytearray) -> None:
        if items:
            out += zigzag(len(items))
            for item in items:
                put(item, out)
        out.append(0)

    return write


def _put_map(put: Put) -> Put:
    def write(items: Mapping[str, Any], out: bytearray) -> None:
        if items:
            out += zigzag(len(items))
            for key, item in items.items():
                _put_text(key, out)
                put(item, out)
        out.append(0)

    return write


def _put_plain(kind: Any, name: str) -> Put:
    put = _PLAIN.get(kind) if isinstance(kind, str) else None
    if put is None:
        raise Unsupported(f"the field {name!r} of a timeline file is of the type {kind!r:.80}")

    def write(item: Any, out: bytearray) -> None:
        if item is None:
            raise Invalid(f"the field {name!r} of a timeline file is null, but its schema allows none")
        put(item, out)

    return write


def _put_text(item: str | bytes, out: bytearray) -> None:
    data = item.encode() if isinstance(item, str) else item
    size = len(data)
    out += _SMALL[size] if size < 64 else zigzag(size)
    out += data


def _put_number(item: int, out: bytearray) -> None:
    out += _SMALL[item] if 0 <= item < 64 else zigzag(item)


_PLAIN: dict[str, Put] = {
    "boolean": lambda item, out: out.append(1 if item else 0),
    "int": _put_number,
    "long": _put_number,
    "float": lambda item, out: out.extend(_FLOAT.pack(item)),
    "double": lambda item, out: out.extend(_DOUBLE.pack(item)),
    "string": _put_text,
    "bytes": _put_text,
}
