"""Tables with a schema text for the codec tests, and fastavro as the second opinion about their
bytes."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from mainstem.formats.avro_rows import zigzag
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
            st.integers(-(10**p) + 1, 10**p - 1).map(lambda n, s=s: Decimal((n < 0, digits(n), -s))),
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


_PLAIN = ["boolean", "int", "long", "double", "string", "bytes", "date", "instant"]
_PLAIN += ["fixed", "enum", "decimal(18,6)", "decimal(38,10)", "decimal on bytes"]


class _Names:
    """Names of Avro's named types may be used once each."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"n{self.count}"


@st.composite
def nested_kinds(draw: st.DrawFn, names: _Names, depth: int) -> tuple[object, st.SearchStrategy]:
    """``(Avro type, values)`` of lists, maps and structs in one another, nullable or not."""
    shape = draw(st.sampled_from(["array", "map", "record", "plain"])) if depth else "plain"
    if shape == "plain":
        kind, values = KINDS[draw(st.sampled_from(_PLAIN))]
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": names.next()}
        return kind, values
    if shape == "record":
        parts = [_nullable(draw, names, depth) for _ in range(draw(st.integers(1, 3)))]
        fields = [{"name": f"f{i}", "type": kind} for i, (kind, _) in enumerate(parts)]
        values = st.fixed_dictionaries({f"f{i}": v for i, (_, v) in enumerate(parts)})
        return {"type": "record", "name": names.next(), "fields": fields}, values
    kind, values = _nullable(draw, names, depth)
    if shape == "array":
        return {"type": "array", "items": kind}, st.lists(values, max_size=4)
    keys = st.text("abcé", max_size=2)
    return {"type": "map", "values": kind}, st.dictionaries(keys, values, max_size=3)


def _nullable(draw: st.DrawFn, names: _Names, depth: int) -> tuple[object, st.SearchStrategy]:
    kind, values = draw(nested_kinds(names, depth - 1))
    null = draw(st.sampled_from(["first", "last", "never"]))
    if null == "never":
        return kind, values
    return (["null", kind] if null == "first" else [kind, "null"]), st.none() | values


@st.composite
def nested_tables(draw: st.DrawFn, max_rows: int = 30) -> tuple[str, list[dict]]:
    """``(schema text, rows)`` with up to three nested columns of up to four levels."""
    names = _Names()
    parts = [_nullable(draw, names, draw(st.integers(1, 4))) for _ in range(draw(st.integers(1, 3)))]
    fields = [{"name": f"c{i}", "type": kind} for i, (kind, _) in enumerate(parts)]
    text = json.dumps({"type": "record", "name": "r", "fields": fields})
    row = st.fixed_dictionaries({f"c{i}": values for i, (_, values) in enumerate(parts)})
    return text, draw(st.lists(row, max_size=max_rows))


def in_blocks(node: object, value: object, chance: random.Random) -> bytes:
    """One Avro value whose lists and maps are cut into several blocks, some with their size."""
    if isinstance(node, list):
        branch = node.index("null") if value is None else 1 - node.index("null")
        body = b"" if value is None else in_blocks(node[branch], value, chance)
        return bytes([2 * branch]) + body
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "record":
        return b"".join(in_blocks(f["type"], value[f["name"]], chance) for f in node["fields"])
    if kind not in ("array", "map"):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, fastavro.parse_schema(_raw(node)), value)
        return sink.getvalue()
    if kind == "array":
        items = [in_blocks(node["items"], item, chance) for item in value]
    else:
        items = [
            zigzag(len(key.encode())) + key.encode() + in_blocks(node["values"], item, chance)
            for key, item in value.items()
        ]
    out = b""
    while items:
        count = chance.randint(1, len(items))
        body, items = b"".join(items[:count]), items[count:]
        sized = chance.random() < 0.5
        out += (zigzag(-count) + zigzag(len(body)) if sized else zigzag(count)) + body
    return out + b"\0"


def arrow(text: str, rows: list[dict]) -> pa.Table:
    """The rows as a table of the schema's own Arrow types."""
    schema = avro_to_arrow(text)
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        values = [_pairs(value, field.type) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _pairs(value: object, kind: pa.DataType) -> object:
    """Maps as the lists of pairs that pyarrow takes, at every level."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, _pairs(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_pairs(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {f.name: _pairs(value[f.name], f.type) for f in kind}
    return value


def _raw(node: object) -> object:
    """The schema without logical types of numbers, which fastavro would turn into objects."""
    if isinstance(node, list):
        return [_raw(part) for part in node]
    if isinstance(node, dict):
        drop = node.get("type") in ("int", "long")
        kept = {k: v for k, v in node.items() if not (drop and k == "logicalType")}
        return {k: [_raw(f) for f in v] if k == "fields" else _raw(v) for k, v in kept.items()}
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
    return [c.view(views[c.type]).to_pylist() if c.type in views else repr(_integers(c)) for c in columns]


def _integers(column: pa.Array) -> list:
    return column.cast(_plain(column.type)).to_pylist()


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with integers for times and dates, which Python's own types cannot all hold.

    Every part is nullable, since Arrow casts nothing behind a null to "not null".
    """
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return kind
