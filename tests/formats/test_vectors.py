"""Goal: Hudi 1.2's VECTOR columns are lists of fixed size, from log blocks as from Parquet files.

Method: records encoded here by hand, few (decoded row by row), many (by columns) and with nulls;
schemas that are damaged; the tables that Java wrote are read in tests/golden_tables.
"""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_columns import decode_records
from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from mainstem.formats.resolve import project_to

ELEMENTS = {"FLOAT": (pa.float32(), "f"), "DOUBLE": (pa.float64(), "d"), "INT8": (pa.int8(), "b")}
pytestmark = pytest.mark.supports("Column types", "VECTOR (read)")


def vector(element: str) -> dict:
    size = 3 * pa.scalar(0, ELEMENTS[element][0]).type.bit_width // 8
    name = f"vector_{element.lower()}_3"
    node = {"type": "fixed", "name": name, "namespace": "", "size": size, "logicalType": "vector"}
    node |= {"dimension": 3, "elementType": element, "storageBacking": "FIXED_BYTES"}
    return node


def record(*types: object) -> str:
    fields = [{"name": f"v{i}", "type": ["null", kind], "default": None} for i, kind in enumerate(types)]
    return json.dumps({"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": fields})


@pytest.mark.parametrize("rows", [3, 50, 1000])
@pytest.mark.parametrize("element", sorted(ELEMENTS))
def test_vectors_of_log_records_are_lists_of_fixed_size(element, rows):
    kind, code = ELEMENTS[element]
    values = [None if i % 7 == 3 else [i % 50, -i % 50, 0] for i in range(rows)]
    packed = [b"\0" if v is None else b"\2" + struct.pack(f"<3{code}", *v) for v in values]
    content = b"".join(struct.pack(">i", len(p)) + p for p in packed)
    found = decode_records(memoryview(content), rows, record(vector(element)))
    found.validate(full=True)
    assert found.schema.field("v0").type == pa.list_(pa.field("element", kind, nullable=False), 3)
    assert found.column("v0").to_pylist() == values


@pytest.mark.parametrize("element", sorted(ELEMENTS))
def test_vectors_of_parquet_files_are_the_same_lists(element):
    code = ELEMENTS[element][1]
    values = [[1, 2, 3], None, [-1, 0, 5]]
    packed = [None if v is None else struct.pack(f"<3{code}", *v) for v in values]
    width = 3 * struct.calcsize(code)
    stored = pa.table({"v0": pa.array(packed, pa.binary(width))})
    schema = avro_to_arrow(record(vector(element)))
    assert project_to(stored, schema).column("v0").to_pylist() == values
    assert project_to(stored.slice(1), schema).column("v0").to_pylist() == values[1:]
    with pytest.raises(Unsupported, match="no promotion"):
        project_to(pa.table({"v0": pa.array([b"123"], pa.binary(3))}), avro_to_arrow(record(vector("FLOAT"))))


def test_two_columns_may_share_a_vector_type_by_name():
    schema = avro_to_arrow(record(vector("FLOAT"), "vector_float_3"))
    assert schema.field("v0").type == schema.field("v1").type
    assert schema.field("v1").metadata == {b"hudi_type": b"VECTOR(3)"}


@pytest.mark.parametrize("changes", [{"dimension": 4}, {"dimension": -3}, {"size": 11}], ids=str)
def test_a_dimension_that_does_not_fit_the_size_is_damage(changes):
    with pytest.raises(CorruptTable, match="VECTOR"):
        avro_to_arrow(record(vector("FLOAT") | changes))


@pytest.mark.parametrize(
    "changes", [{"elementType": "FLOAT16"}, {"storageBacking": "LANCE"}, {"dimension": None}], ids=str
)
def test_unknown_vectors_are_refused_by_name(changes):
    with pytest.raises(Unsupported, match="'v0' is a vector"):
        avro_to_arrow(record(vector("FLOAT") | changes))


@pytest.mark.parametrize("kind", ["array", "map", "record"])
def test_a_vector_inside_another_type_is_refused(kind):
    inner = vector("FLOAT")
    node = {"type": kind, "items": inner, "values": inner}
    if kind == "record":
        node = {"type": kind, "name": "v0", "fields": [{"name": "x", "type": inner}]}
    with pytest.raises(Unsupported, match="v0"):
        avro_to_arrow(record(node))


def test_a_schema_with_vectors_is_not_written():
    """As plain lists Java would no longer find its vectors."""
    schema = avro_to_arrow(record(vector("DOUBLE")))
    with pytest.raises(Unsupported, match=r"VECTOR\(3, DOUBLE\)"):
        arrow_to_avro(schema, table_name="t", meta_fields=True)
