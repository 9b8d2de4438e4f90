"""Tables with a schema text for the codec tests, and fastavro as the second opinion about their
bytes."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from mainstem.formats.avro_schema import avro_to_arrow

# name -> (Avro type, values in the form that both pyarrow and fastavro take)
KINDS: dict[str, tuple[object, st.SearchStrategy]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "small": ("int", st.integers(-70, 70)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "medium": ("long", st.integers(-(2**20), 2**20)),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "string": ("string", st.text(max_size=20)),
    "ascii": ("string", st.text("abc", min_size=3, max_size=3)),
    "long text": ("string", st.text("xyä", max_size=300)),
    "bytes": ("bytes", st.binary(max_size=90)),
    "date": ({"type": "int", "logicalType": "date"}, st.integers(-(2**31), 2**31 - 1)),
    "instant": (
        {"type": "long", "logicalType": "timestamp-micros"},
        st.integers(-(2**63), 2**63 - 1),
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        st.integers(-(2**40), 2**40),
    ),
    "fixed": ({"type": "fixed", "name": "f", "size": 3}, st.binary(min_size=3, max_size=3)),
    "enum": ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    **{
        f"decimal({p},{s})": (
            {
                "type": "fixed",
                "name": "d",
                "size": size,
                "logicalType": "decimal",
                "precision": p,
                "scale": s,
            },
            st.integers(-(10**p) + 1, 10**p - 1).map(
                lambda n, s=s: Decimal((n < 0, digits(n), -s))
            ),
        )
        for p, s, size in ((4, 2, 2), (18, 6, 8), (38, 10, 16), (9, 0, 20))
    },
    "decimal on bytes": (
        {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
        st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal((n < 0, digits(n), -15))),
    ),
    "array": (
        {"type": "array", "items": ["null", "int"]},
        st.lists(st.none() | st.integers(-9, 9)),
    ),
    "map": (
        {"type": "map", "values": ["null", "double"]},
        st.dictionaries(st.text(max_size=3), st.none() | st.floats(0, 1), max_size=3),
    ),
    "struct": (
        {
            "type": "record",
            "name": "s",
            "fields": [
                {"name": "a", "type": ["null", "long"], "default": None},
                {"name": "b", "type": {"type": "array", "items": ["null", "string"]}},
            ],
        },
        st.fixed_dictionaries(
            {"a": st.none() | st.integers(-(2**63), 2**63 - 1), "b": st.lists(st.text(max_size=3))}
        ),
    ),
}


def digits(number: int) -> tuple[int, ...]:
    """The decimal digits of a number, for ``Decimal``."""
    return tuple(map(int, str(abs(number))))


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 40) -> tuple[str, list[dict]]:
    """``(schema text, rows)``: any mix of kinds, nullable first or last or not, nulls rare or
    many."""
    fields, columns = [], []
    rows = draw(st.integers(0, max_rows))
    for i in range(draw(st.integers(1, 6))):
        kind, values = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": f"n{i}"}
        null = draw(st.sampled_from(["first", "last", "never"]))
        union = {"first": ["null", kind], "last": [kind, "null"], "never": kind}[null]
        fields.append({"name": f"c{i}", "type": union})
        if null != "never" and draw(st.booleans()):
            values = st.none() | values
        if rows and draw(st.integers(0, 3)) == 0:
            columns.append([draw(values)] * rows)  # the same in all rows
        else:
            columns.append(draw(st.lists(values, min_size=rows, max_size=rows)))
    text = json.dumps({"type": "record", "name": "r", "fields": fields})
    names = [field["name"] for field in fields]
    return text, [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def arrow(text: str, rows: list[dict]) -> pa.Table:
    """The rows as a table of the schema's own Arrow types."""
    schema = avro_to_arrow(text)
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if pa.types.is_map(field.type):
            values = [None if v is None else list(v.items()) for v in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _raw(node: object) -> object:
    """The schema without logical types of numbers, which fastavro would turn into objects."""
    if isinstance(node, list):
        return [_raw(part) for part in node]
    if isinstance(node, dict):
        drop = node.get("type") in ("int", "long")
        return {k: _raw(v) for k, v in node.items() if not (drop and k == "logicalType")}
    return node


def fastavro_bytes(text: str, rows: list[dict]) -> bytes:
    """Framed records as fastavro encodes them."""
    schema = fastavro.parse_schema(_raw(json.loads(text)))
    out = []
    for row in rows:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, row)
        out += [len(sink.getvalue()).to_bytes(4, "big"), sink.getvalue()]
    return b"".join(out)


def fastavro_rows(text: str, content: bytes, count: int) -> list[dict]:
    """Framed records as fastavro decodes them."""
    schema = fastavro.parse_schema(_raw(json.loads(text)))
    source, rows = io.BytesIO(content), []
    for _ in range(count):
        source.read(4)
        rows.append(fastavro.schemaless_reader(source, schema, None))
    return rows


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal in schema and values, NaN equal to NaN."""
    return left.schema.equals(right.schema) and _bits(left) == _bits(right)


def _bits(table: pa.Table) -> list:
    views = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}
    columns = [c.combine_chunks() for c in table.columns]
    return [
        c.view(views[c.type]).to_pylist() if c.type in views else repr(_integers(c))
        for c in columns
    ]


def _integers(column: pa.Array) -> list:
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column.to_pylist()
