"""Goal: Hudi 1.2's VECTOR columns are lists of fixed size, in log blocks as in Parquet files, byte for byte
as Java stores them; any lists of numbers become vectors by columns, or are refused with their row.

Method: records encoded here by hand, few (decoded row by row), many (by columns) and with nulls; schemas
that are damaged; schemas and footers of Java's tables; every kind of Arrow and NumPy rows.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.avro_columns import decode_records, encode_groups
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro, avro_to_arrow
from mainstem.formats.base_file import BaseFileFormat, encode_base_file
from mainstem.formats.log_file import data_block
from mainstem.formats.schema_resolution import project_to
from mainstem.formats.vectors import (
    Vector,
    VectorRefused,
    as_bytes,
    as_lists,
    fitted,
    parse_vector,
    rows_of,
    taken,
    vector_of,
    with_vectors,
)
from mainstem.options.placing import VECTOR_COLUMNS
from tests.formats.golden_logs import GOLDEN

ELEMENTS = {"FLOAT": (pa.float32(), "f"), "DOUBLE": (pa.float64(), "d"), "INT8": (pa.int8(), "b")}
pytestmark = pytest.mark.supports("Column types", "VECTOR of FLOAT, DOUBLE and INT8, as Hudi 1.2 stores it")


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


# ----------------------------------------------------------------------------------------- written


def _java_files(table: str) -> list[pq.ParquetFile]:
    with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".parquet"))
        return [pq.ParquetFile(io.BytesIO(archive.read(name))) for name in names]


@pytest.mark.parametrize("table", ["vectors", "vectors_cow"])
def test_schemas_and_base_files_are_those_of_java(table):
    ours = BaseFileFormat(bloom=None)
    for file in _java_files(table):
        notes = file.metadata.metadata
        if b"parquet.avro.schema" not in notes:  # of Spark's row writer
            continue
        text = notes[b"parquet.avro.schema"].decode()
        schema = avro_to_arrow(text)
        assert arrow_to_avro(schema, table_name=table, meta_fields=True) == text
        rows = project_to(file.read(), schema)
        made = pq.ParquetFile(pa.BufferReader(encode_base_file(rows, text, ours)))
        assert made.metadata.metadata[VECTOR_COLUMNS.encode()] == notes[VECTOR_COLUMNS.encode()]
        assert made.schema_arrow.equals(file.schema_arrow, check_metadata=False)
        assert made.read().equals(file.read())


def test_a_type_is_defined_once_and_named_from_then_on():
    fields = [Vector(3).field("v0"), Vector(3).field("v1"), Vector(3, "INT8").field("v2")]
    text = arrow_to_avro(pa.schema(fields), table_name="t", meta_fields=False)
    types = [field["type"][1] for field in json.loads(text)["fields"]]
    assert types == [vector("FLOAT"), "vector_float_3", vector("INT8")]
    assert avro_to_arrow(text).equals(pa.schema(fields), check_metadata=True)


@pytest.mark.parametrize("rows", [3, 50, 1000])
@pytest.mark.parametrize("element", sorted(ELEMENTS))
def test_log_records_hold_the_bytes_of_the_vectors(element, rows):
    values = [None if i % 7 == 3 else [i % 50, -i % 50, 0] for i in range(rows)]
    column = fitted(pa.chunked_array([pa.array(values, pa.list_(pa.int64()))]), Vector(3, element), "v0")
    text = arrow_to_avro(pa.schema([Vector(3, element).field("v0")]), table_name="t", meta_fields=False)
    (parts,) = encode_groups(pa.table([column], names=["v0"]), text, [0, rows])
    code = ELEMENTS[element][1]
    packed = [b"\0" if v is None else b"\2" + struct.pack(f"<3{code}", *v) for v in values]
    assert b"".join(parts) == b"".join(struct.pack(">i", len(p)) + p for p in packed)


def test_vectors_have_no_dictionary_and_gzip_only_where_it_gains():
    random = np.random.default_rng(3).standard_normal((500, 16)).astype("f4")
    columns = {name: pa.array([f"{name}{i}" for i in range(500)]) for name in META_FIELDS}
    columns |= {"noise": rows_of(random, "noise"), "zeros": rows_of(np.zeros((500, 16)), "zeros")}
    schema = with_vectors(pa.table(columns).schema, {"noise": "VECTOR(16)", "zeros": "VECTOR(16, DOUBLE)"})
    text = arrow_to_avro(schema, table_name="t", meta_fields=True)
    for level, codec in ((None, "UNCOMPRESSED"), (6, "GZIP")):
        data = encode_base_file(pa.table(columns).cast(schema), text, BaseFileFormat(gzip_level=level))
        group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
        noise, zeros = group.column(5), group.column(6)
        assert not {"PLAIN_DICTIONARY", "RLE_DICTIONARY"} & {*noise.encodings, *zeros.encodings}
        assert (noise.compression, zeros.compression) == (codec, "GZIP")
        assert noise.statistics is None or not noise.statistics.has_min_max


@pytest.mark.parametrize("rows", [1, 60])
def test_parquet_log_blocks_name_their_vectors(rows):
    schema = pa.schema([("k", pa.string()), Vector(2).field("v")])
    text = arrow_to_avro(schema, table_name="t", meta_fields=False)
    table = pa.table([pa.array(["a"] * rows), rows_of(np.ones((rows, 2), "f4"), "v")], names=["k", "v"])
    block = b"".join(map(bytes, data_block("1", text, table.cast(schema), block_format="parquet")))
    file = pq.ParquetFile(pa.BufferReader(block[block.index(b"PAR1") : block.rindex(b"PAR1") + 4]))
    assert file.metadata.metadata[VECTOR_COLUMNS.encode()] == b"v:VECTOR(2)"
    assert file.schema_arrow.field("v").type == pa.binary(8)
    assert project_to(file.read(), avro_to_arrow(text)).column("v").to_pylist() == [[1.0, 1.0]] * rows


# ------------------------------------------------------------------------------------- rows fitted

PAIRS = [[1, 2], None, [-3, 4]]
TENSOR = pa.fixed_shape_tensor(pa.float32(), [2])


@pytest.mark.parametrize("element", sorted(ELEMENTS))
@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()), pa.list_(pa.int64()), pa.large_list(pa.int32()),
        pa.list_(pa.int16(), 2), pa.list_(pa.field("x", pa.int8(), nullable=False)),
    ],
    ids=str,
)  # fmt: skip
def test_lists_of_every_kind_become_vectors(kind, element):
    given = pa.chunked_array([pa.array(PAIRS, kind), pa.array([*PAIRS, [5, 6]], kind)[1:]])
    found = fitted(given, Vector(2, element), "v")
    found.validate(full=True)
    assert found.type == Vector(2, element).arrow
    assert found.to_pylist() == [*PAIRS, *PAIRS[1:], [5, 6]]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("element", ["FLOAT", "DOUBLE"])
def test_floats_of_every_width_become_vectors(kind, element):
    values = [[0.5, -0.0], None, [1.25, 3.0]]
    floats = [None if row is None else np.array(row, kind.to_pandas_dtype()) for row in values]
    found = fitted(pa.chunked_array([pa.array(floats, pa.list_(kind))]), Vector(2, element), "v")
    assert found.to_pylist() == values
    assert str(found[0][1]) == "-0.0"


def test_doubles_are_rounded_to_float():
    found = fitted(pa.chunked_array([pa.array([[0.1, 1e-60]])]), Vector(2), "v")
    assert found.to_pylist() == [[float(np.float32(0.1)), 0.0]]


def test_tensors_matrices_and_nulls_become_vectors():
    numbers = np.array([[1, 2], [3, 4]], "f4")
    tensor = pa.ExtensionArray.from_storage(TENSOR, rows_of(numbers, "v"))
    for given in (tensor, rows_of(numbers, "v"), rows_of(np.asfortranarray(numbers), "v")):
        assert fitted(pa.chunked_array([given]), Vector(2), "v").to_pylist() == numbers.tolist()
    assert fitted(pa.chunked_array([pa.nulls(3)]), Vector(2), "v").to_pylist() == [None] * 3
    assert fitted(pa.chunked_array([], pa.list_(pa.float32())), Vector(2), "v").type == Vector(2).arrow


def test_what_lies_behind_nulls_does_not_count():
    """Arrow allows anything there."""
    behind = rows_of(np.array([[1, 2], [np.nan, np.inf], [5, 6]]), "v")
    mask = pa.array([True, False, True]).buffers()[1]
    holes = pa.Array.from_buffers(behind.type, 3, [mask], children=[behind.values])
    assert fitted(pa.chunked_array([holes]), Vector(2), "v").to_pylist() == [[1, 2], None, [5, 6]]
    offsets = pa.py_buffer(np.array([0, 2, 7, 9], np.int32))
    longer = pa.array([1.0, 2, np.nan, 4, 5, 6, 7, 8, 9])
    lists = pa.Array.from_buffers(pa.list_(pa.float64()), 3, [mask, offsets], children=[longer])
    assert fitted(pa.chunked_array([lists]), Vector(2), "v").to_pylist() == [[1, 2], None, [8, 9]]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("element", "bad", "said"),
    [
        ("FLOAT", [1.0], "a vector of 1 elements"),
        ("FLOAT", [], "a vector of 0 elements"),
        ("FLOAT", [1.0, 2.0, 3.0], r"hudi_type=VECTOR\(3\)"),
        ("FLOAT", [1.0, NAN], "NaN"),
        ("DOUBLE", [-INF, 1.0], "infinity"),
        ("DOUBLE", [NAN, INF], "NaN"),
        ("FLOAT", [1.0, 1e300], "that FLOAT cannot hold"),
        ("FLOAT", [1.0, None], "null element"),
        ("INT8", [1, 128], "that INT8 cannot hold"),
        ("INT8", [-129, 1], "that INT8 cannot hold"),
        ("FLOAT", [1, 2**24 + 1], "that FLOAT cannot hold"),
        ("DOUBLE", [2**53 + 1, 1], "that DOUBLE cannot hold"),
        ("INT8", [None, 1], "null element"),
    ],
    ids=str,
)
@pytest.mark.parametrize("nulls", [False, True])
def test_a_value_that_is_no_vector_is_refused_with_its_row(element, bad, said, nulls):
    good = [[1, 2]] * 40 if element == "INT8" or type(bad[0] if bad else 0.0) is int else [[1.0, 2.0]] * 40
    if nulls:
        good[3] = None
    given = pa.chunked_array([pa.array(good), pa.array([*good[:5], bad, bad, good[0]])])
    with pytest.raises(VectorRefused, match=said) as refused:
        fitted(given, Vector(2, element), "v")
    assert (refused.value.row, refused.value.column) == (45, "v")


@pytest.mark.parametrize(
    ("element", "kind"),
    [("FLOAT", pa.string()), ("FLOAT", pa.list_(pa.string())), ("FLOAT", pa.binary(8)),
     ("FLOAT", pa.list_(pa.bool_())), ("INT8", pa.list_(pa.float32())), ("DOUBLE", pa.float64())],
    ids=str,
)  # fmt: skip
def test_types_that_hold_no_such_numbers_are_refused(element, kind):
    with pytest.raises(Invalid, match=r"column 'v' has the Arrow type .* the table holds VECTOR\(2"):
        fitted(pa.chunked_array([pa.array([], kind)]), Vector(2, element), "v")


@pytest.mark.parametrize("shape", [(2, 0), (2, 3, 4)])
def test_arrays_of_other_shapes_are_refused(shape):
    with pytest.raises(Invalid, match=r"expected \(rows,\)"):
        rows_of(np.zeros(shape), "v")


# --------------------------------------------------------------------------------------- the types


@pytest.mark.parametrize(
    ("text", "vector"),
    [("VECTOR(4)", Vector(4)), ("vector( 4 , double )", Vector(4, "DOUBLE")),
     ("VECTOR(1,INT8)", Vector(1, "INT8")), ("VECTOR(65536, FLOAT)", Vector(65536)),
     ("VECTOR(2, FLOAT, FIXED_BYTES)", Vector(2))],
)  # fmt: skip
def test_types_are_read_as_hudi_spells_them(text, vector):
    assert parse_vector(text, "v") == vector
    assert parse_vector(str(vector), "v") == vector


@pytest.mark.parametrize(
    "text",
    ["VECTOR", "VECTOR()", "VECTOR(0)", "VECTOR(-1)", "VECTOR(65537)", "VECTOR(4, FLOAT16)", "VECTOR(4) x",
     "VECTOR(4,)", "VECTOR(٤)", "VECTOR(4)\n)", "VECTOR(4, DOUBLE, LANCE)", "VECTORS(4)",
     "VECTOR(99999999999)"],
)  # fmt: skip
def test_texts_that_are_no_type_are_refused(text):
    with pytest.raises(Invalid, match="column 'v' is a"):
        parse_vector(text, "v")


def test_other_types_of_this_kind_are_refused_by_name():
    with pytest.raises(Unsupported, match="hudi_type='BLOB'"):
        arrow_to_avro(pa.schema([pa.field("v", pa.binary(), metadata={"hudi_type": "BLOB"})]),
                      table_name="t", meta_fields=False)  # fmt: skip


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 5), pa.list_(pa.string()), pa.float32(), pa.binary(16)], ids=str
)
def test_a_mark_on_a_type_that_cannot_hold_the_vectors_is_refused(kind):
    with pytest.raises(Invalid, match=r"marked hudi_type=VECTOR\(4\)"):
        vector_of(pa.field("v", kind, metadata={"hudi_type": "VECTOR(4)"}))
    with pytest.raises(Invalid, match=r"marked hudi_type=VECTOR\(4\)"):
        with_vectors(pa.schema([("v", kind)]), {"v": "VECTOR(4)"})


def test_vectors_inside_of_structs_are_not_written():
    inner = pa.struct([Vector(2).field("x")])
    with pytest.raises(Unsupported, match="'s' has a VECTOR inside, 'x'"):
        arrow_to_avro(pa.schema([("s", inner)]), table_name="t", meta_fields=False)


def test_bytes_and_lists_are_the_same_memory():
    lists = fitted(pa.chunked_array([pa.array([[1, 2], None, [3, 4], [5, 6]])]), Vector(2), "v").chunk(0)
    for part in (lists, lists[1:], lists[2:3], lists[:0]):
        binaries = as_bytes(part)
        packed = [None if row is None else struct.pack("<2f", *row) for row in part.to_pylist()]
        assert binaries.to_pylist() == packed
        assert as_lists(binaries, part.type).to_pylist() == part.to_pylist()
    table = pa.table({"k": ["a", "b", "c"], "v": lists[1:]})
    assert taken(table, pa.array([2, 0])).equals(table.take(pa.array([2, 0])))
