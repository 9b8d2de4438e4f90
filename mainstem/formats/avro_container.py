"""Avro object containers with exactly one record: the form of every non-empty file of a layout-2 timeline.

Java writes codec null and puts the schema into the header; readers resolve fields by name. The bytes are
untrusted: excessive sizes, deep schemas and arrays of zero-width items (a few bytes that claim a billion
elements) are refused before the Avro library sees them. Containers that mainstem writes carry the metadata
key ``mainstem.writer``. Java ignores it; here it tells mainstem's instants from others.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.formats.avro_datum import datum_writer
from mainstem.limits import (
    SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_FIELDS_MAX,
    TIMELINE_FILE_BYTES_MAX,
)

MAGIC = b"Obj\x01"
OUR_MARK = "mainstem.writer"
_HEADER_KEYS_MAX = 64
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


def encode_container(
    schema_text: str, record: Mapping[str, Any], metadata: Mapping[str, bytes] | None = None
) -> bytes:
    """One record as an Avro container (codec null); its header also holds ``metadata``."""
    datum = datum_writer(schema_text)(record)
    # ``metadata`` comes first, so mainstem's mark is within the file's first few hundred bytes.
    entries = {**(metadata or {}), "avro.schema": schema_text.encode()}
    out = [MAGIC, _long(len(entries))]
    for key, value in entries.items():
        name = key.encode()
        out += [_long(len(name)), name, _long(len(value)), value]
    sync = hashlib.md5(datum, usedforsecurity=False).digest()
    out += [b"\x00", sync, _long(1), _long(len(datum)), datum, sync]
    return b"".join(out)


def read_header(data: bytes | memoryview, *, path: str) -> tuple[dict[str, bytes], int]:
    """Header map of a container, and the offset of the sync marker after it."""
    view = memoryview(data)
    if bytes(view[:4]) != MAGIC:
        raise CorruptTable(
            f"no Avro container: starts with {bytes(view[:4])!r}, expected {MAGIC!r}",
            path=path,
            offset=0,
        )
    entries: dict[str, bytes] = {}
    at = 4
    while True:
        count, at = _read_long(view, at, path)
        if count == 0:
            return entries, at
        if count < 0:
            count = -count
            _, at = _read_long(view, at, path)
        if count > _HEADER_KEYS_MAX:
            raise CorruptTable(f"{count} header entries in an Avro container", path=path, offset=at)
        for _ in range(count):
            key, at = _read_bytes(view, at, path)
            value, at = _read_bytes(view, at, path)
            entries[key.decode("utf-8", "replace")] = value
            if len(entries) > _HEADER_KEYS_MAX:
                raise CorruptTable("too many header entries", path=path, offset=at)


def decode_container(data: bytes, *, path: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The single record of a container, and its header map.

    Raises ``CorruptTable`` with path and offset for any other content.
    """
    import fastavro

    header, at = read_header(data, path=path)
    view = memoryview(data)
    sync = bytes(view[at : at + 16])
    count, body = _read_long(view, at + 16, path)
    size, body = _read_long(view, body, path)
    if count != 1 or size < 0 or body + size + 16 > len(view):
        raise CorruptTable(
            f"container block of {count} records and {size} bytes with {len(view) - body} bytes"
            " left; expected one whole record",
            path=path,
            offset=body,
        )
    datum = bytes(view[body : body + size])
    if bytes(view[body + size : body + size + 16]) != sync:
        raise CorruptTable("sync marker differs", path=path, offset=body + size)
    codec = header.get("avro.codec", b"null")
    if codec == b"deflate":
        datum = _inflate(datum, path, body)
    elif codec != b"null":
        raise CorruptTable(f"codec {codec!r} in a timeline file", path=path, offset=4)
    stream = io.BytesIO(datum)
    try:
        record = fastavro.schemaless_reader(stream, _parsed(header.get("avro.schema", b"")), None)
    except CorruptTable as error:
        raise CorruptTable(error.message, path=path, offset=4) from None
    except Exception as error:  # fastavro raises many kinds of errors on damaged bytes
        raise CorruptTable(
            f"record does not decode ({type(error).__name__}: {error})", path=path, offset=body
        ) from error
    if not isinstance(record, dict) or stream.tell() != len(datum):
        raise CorruptTable("record does not fill its block", path=path, offset=body + stream.tell())
    return record, header


def part(value: Any, kind: type, path: str) -> Any:
    """A value from a decoded record, or an empty ``kind`` for null; ``CorruptTable`` for another type.

    A container brings its own schema, so a field with one of Hudi's names may have any type.
    """
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise CorruptTable(
            f"{str(value)[:80]!r} of type {type(value).__name__} where {kind.__name__} is expected", path=path
        )
    return value


def _inflate(datum: bytes, path: str, offset: int) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        out = inflater.decompress(datum, TIMELINE_FILE_BYTES_MAX)
    except zlib.error as error:
        raise CorruptTable(f"deflate: {error}", path=path, offset=offset) from error
    if inflater.unconsumed_tail:
        raise CorruptTable("inflates beyond the bound", path=path, offset=offset)
    return out


@lru_cache(maxsize=64)
def _parsed(schema: bytes) -> Any:
    import fastavro

    if not schema or len(schema) > SCHEMA_BYTES_MAX:
        raise CorruptTable(f"Avro schema of {len(schema)} bytes")
    try:
        tree = json.loads(schema)
        vet_schema(tree)
        return fastavro.parse_schema(tree)
    except CorruptTable:
        raise
    except (
        RecursionError,
        ValueError,
        TypeError,
        KeyError,
        fastavro.schema.SchemaParseException,
    ) as e:
        raise CorruptTable(f"Avro schema does not parse ({type(e).__name__}: {e})") from e


def vet_schema(tree: Any) -> None:
    """Refuse schemas that are too deep or large, recursive, or have arrays of zero-width items."""
    state = {"fields": 0}
    _width(tree, {}, (), 0, state)


def _width(node: Any, named: dict[str, int], open_names: tuple, depth: int, state: dict) -> int:
    """Smallest encoded size of a value, in bytes; 0 marks zero-width types."""
    if depth > SCHEMA_DEPTH_MAX:
        raise CorruptTable(f"Avro schema deeper than {SCHEMA_DEPTH_MAX}")
    state["fields"] += 1
    if state["fields"] > SCHEMA_FIELDS_MAX:
        raise CorruptTable(f"Avro schema with more than {SCHEMA_FIELDS_MAX} parts")
    if isinstance(node, list):
        for branch in node:
            _width(branch, named, open_names, depth + 1, state)
        return 1
    if isinstance(node, str):
        if node in _PRIMITIVES:
            return 0 if node == "null" else 1
        short = node.rsplit(".", 1)[-1]
        if short in open_names:
            raise CorruptTable(f"recursive Avro schema at {node!r}")
        if short not in named:
            raise CorruptTable(f"unknown Avro type {node[:80]!r}")
        return named[short]
    if not isinstance(node, dict):
        raise CorruptTable("Avro schema is neither a name, a list nor an object")
    kind = node.get("type")
    name = str(node.get("name", "")).rsplit(".", 1)[-1]
    if kind in ("record", "error"):
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise CorruptTable(f"Avro record {name!r} without fields")
        width = 0
        for field in fields:
            if not isinstance(field, dict) or "type" not in field:
                raise CorruptTable(f"Avro record {name!r} has a field without a type")
            width += _width(field["type"], named, (*open_names, name), depth + 1, state)
        named[name] = width
        return width
    if kind in ("array", "map"):
        inner = node.get("items" if kind == "array" else "values")
        if _width(inner, named, open_names, depth + 1, state) == 0 and kind == "array":
            raise CorruptTable("Avro array of zero-width items")
        return 1
    if kind == "fixed":
        size = node.get("size")
        if not isinstance(size, int) or size < 0:
            raise CorruptTable("Avro fixed without a size")
        named[name] = size
        return size
    if kind == "enum":
        named[name] = 1
        return 1
    return _width(kind, named, open_names, depth + 1, state)


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_long(view: memoryview, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    start = at
    while True:
        if at >= len(view) or shift > 63:
            raise CorruptTable("number cut off or too long", path=path, offset=start)
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _read_bytes(view: memoryview, at: int, path: str) -> tuple[bytes, int]:
    size, at = _read_long(view, at, path)
    if size < 0 or at + size > len(view):
        raise CorruptTable(f"length {size} beyond the end of the file", path=path, offset=at)
    return bytes(view[at : at + size]), at + size
