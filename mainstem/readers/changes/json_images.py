"""Rows as JSON text, in the two forms that Java's change data uses.

``row_texts``: Spark rows as Jackson writes them (InternalRowToJsonStringConverter): null columns are left
out, dates are days, timestamps microseconds, bytes base64. ``avro_texts``: Avro's
``GenericData.toString`` of a change log's images: nulls stay, decimals and vectors are lists of bytes.

Each column is converted as a whole, then the columns are joined. Floating point numbers, decimals, bytes
and nested values are converted one by one in Python: no Arrow kernel spells them as Java does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.avro_schema import decimal_bytes
from mainstem.formats.vectors import as_bytes
from mainstem.layout.keys import java_double_text

_MUST_ESCAPE = '["\\\\\\x00-\\x1f]'
_AVRO_ESCAPE = '["\\\\\\x{00}-\\x{1f}\\x{7f}-\\x{9f}\\x{2000}-\\x{20ff}]'
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def row_texts(rows: pa.Table) -> pa.Array:
    """One JSON object per row as Jackson writes Spark's internal rows; null columns are left out."""
    parts = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        texts = _texts(_flat(column), _jackson, _MUST_ESCAPE)
        head = f"{_quoted(name, _MUST_ESCAPE)}:"
        piece = pc.binary_join_element_wise(pa.scalar(","), pa.scalar(head), texts, "")
        parts.append(pc.fill_null(piece, ""))
    if not parts:
        return pa.repeat(pa.scalar("{}"), rows.num_rows)
    joined = pc.binary_join_element_wise(*parts, "")
    return pc.binary_join_element_wise(pa.scalar("{"), pc.utf8_slice_codeunits(joined, 1), pa.scalar("}"), "")


def avro_texts(records: pa.Array) -> pa.Array:
    """Structs as ``GenericData.toString`` writes them; a null one is the text ``null``."""
    if not records.type.num_fields:
        parts = pa.repeat(pa.scalar("{}"), len(records))
        return pc.if_else(records.is_valid(), parts, "null")
    pieces: list[Any] = []
    for at, column in enumerate(records.flatten()):
        head = f"{', ' if at else ''}{_quoted(records.type.field(at).name, _AVRO_ESCAPE)}: "
        pieces += [pa.scalar(head), pc.fill_null(_texts(column, _avro, _AVRO_ESCAPE), "null")]
    joined = pc.binary_join_element_wise(pa.scalar("{"), *pieces, pa.scalar("}"), "")
    return pc.if_else(records.is_valid(), joined, "null")


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _texts(column: pa.Array, value: Callable[[Any, pa.DataType], str], escaped: str) -> pa.Array:
    """JSON text of each value, null for a null."""
    kind, types = column.type, pa.types
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.cast(pa.string())
    if types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.string())
    if types.is_timestamp(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if types.is_string(kind) or types.is_large_string(kind):
        if pc.any(pc.match_substring_regex(column, escaped)).as_py():
            quoted = [None if v is None else _quoted(v, escaped) for v in column.to_pylist()]
            return pa.array(quoted, pa.string())
        return pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    values = column.to_pylist()
    return pa.array([None if v is None else value(v, kind) for v in values], pa.string())


def _quoted(text: str, escaped: str) -> str:
    more = escaped == _AVRO_ESCAPE
    return f'"{"".join(_character(c, more) for c in text)}"'


def _character(c: str, more: bool) -> str:
    if c in _SHORT:
        return _SHORT[c]
    if c < " " or (more and ("\x7f" <= c <= "\x9f" or "\u2000" <= c <= "\u20ff")):
        return f"\\u{ord(c):04X}"
    return c


def _scalar(value: Any, kind: pa.DataType, escape: str) -> str | None:
    """Text of a value of a type that both forms write alike; None for other types."""
    types = pa.types
    if types.is_boolean(kind):
        return "true" if value else "false"
    if types.is_integer(kind):
        return str(value)
    if types.is_floating(kind):
        text = java_double_text(value, single=types.is_float32(kind))
        return f'"{text}"' if text[-1] in "Ny" else text
    if types.is_date(kind) or types.is_timestamp(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return str(pa.scalar(value, kind).cast(width).as_py())
    if types.is_string(kind) or types.is_large_string(kind):
        return _quoted(value, escape)
    return None


def _jackson(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    plain = _scalar(value, kind, _MUST_ESCAPE)
    if plain is not None:
        return plain
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return f'"{base64.b64encode(value).decode()}"'
    if types.is_map(kind):
        pairs = ((_map_key(k, kind), v, kind.item_type) for k, v in value)
        return "{" + ",".join(f"{k}:{_jackson(v, t)}" for k, v, t in pairs if v is not None) + "}"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "[" + ",".join(_jackson(v, kind.value_type) for v in value) + "]"
    if types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        given = ((_quoted(f.name, _MUST_ESCAPE), value[f.name], f.type) for f in fields)
        return "{" + ",".join(f"{k}:{_jackson(v, t)}" for k, v, t in given if v is not None) + "}"
    return json.dumps(str(value))


def _map_key(value: Any, kind: pa.DataType) -> str:
    return _quoted(value if isinstance(value, str) else _jackson(value, kind.key_type), _MUST_ESCAPE)


def _fixed(data: bytes) -> str:
    return "[" + ", ".join(str(b - 256 if b > 127 else b) for b in data) + "]"


def _avro(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return "null"
    plain = _scalar(value, kind, _AVRO_ESCAPE)
    if plain is not None:
        return plain
    types = pa.types
    if types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale))
        return _fixed(unscaled.to_bytes(decimal_bytes(kind.precision), "big", signed=True))
    if types.is_fixed_size_list(kind):  # a vector
        return _fixed(as_bytes(pa.array([value], kind))[0].as_py())
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _quoted(value.decode("latin-1"), _AVRO_ESCAPE)
    if types.is_map(kind):
        pairs = (f"{_quoted(k, _AVRO_ESCAPE)}: {_avro(v, kind.item_type)}" for k, v in value)
        return "{" + ", ".join(pairs) + "}"
    if types.is_list(kind) or types.is_large_list(kind):
        return "[" + ", ".join(_avro(v, kind.value_type) for v in value) + "]"
    fields = [kind.field(i) for i in range(kind.num_fields)]
    return (
        "{"
        + ", ".join(f"{_quoted(f.name, _AVRO_ESCAPE)}: {_avro(value[f.name], f.type)}" for f in fields)
        + "}"
    )
