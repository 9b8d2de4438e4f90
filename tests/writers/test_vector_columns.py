"""Goal: VECTOR columns are written and read exactly, on every way of writing and through every service.

Method: NumPy rows go through the operations of a table and its services; what comes back must be equal bit
for bit. What is refused names row, key and column, and the table's files are the same before and after.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid
from tests.storage.steps import storage_at

pytestmark = pytest.mark.supports("Column types", "VECTOR of FLOAT, DOUBLE and INT8, as Hudi 1.2 stores it")
OPTIONS = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
VECTORS = {"f": "VECTOR(5)", "d": "VECTOR(3, DOUBLE)", "b": "VECTOR(7, INT8)"}


def create(folder, vectors=VECTORS, schema=SCHEMA, **properties):
    options = OPTIONS | {key.replace("__", "."): value for key, value in properties.items()}
    return mainstem.create_table(
        folder / "t", schema, record_key="id", ordering="ts", buckets=2, properties=options, vectors=vectors
    )


def rows(keys, ts, seed=0):
    """Columns by name, vectors as NumPy matrices: any bits that are numbers."""
    random = np.random.default_rng([seed, ts])
    count = len(keys)
    bits = random.integers(0, 2**32, (count, 5), np.uint32) & np.uint32(0xBFFFFFFF)  # no infinity, no NaN
    wide = random.integers(0, 2**64, (count, 3), np.uint64) & np.uint64(0xBFFFFFFFFFFFFFFF)
    return {
        "id": [f"k{key}" for key in keys],
        "ts": np.full(count, ts),
        "text": [f"{ts} of {key}" for key in keys],
        "f": bits.view("f4"),
        "d": wide.view("f8"),
        "b": random.integers(-128, 128, (count, 7), np.int8),
    }


def bits(table, **asked):
    """Key -> bytes of each vector, None for a null."""
    found = table.scan(columns=["id", *VECTORS], **asked).to_arrow()
    cells = (_raw(found[name]) for name in VECTORS)
    return dict(zip(found["id"].to_pylist(), zip(*cells, strict=True), strict=True))


def expected(*batches):
    found = {}
    for batch in batches:
        cells = ([row.tobytes() for row in batch[name]] for name in VECTORS)
        found |= dict(zip(batch["id"], zip(*cells, strict=True), strict=True))
    return found


def _raw(column):
    kind = column.type.value_type.to_pandas_dtype()
    return [None if row is None else np.array(row, kind).tobytes() for row in column.to_pylist()]


def files(folder: Path) -> dict[str, bytes]:
    """All files but those of the protocol's folder, which a begun transaction may touch."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".mainstem" not in path.parts)
    return {str(path): path.read_bytes() for path in found if "timeline" not in path.parts}


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_vectors_come_back_bit_for_bit_from_every_way_of_writing(tmp_path, blocks):
    table = create(tmp_path, hoodie__logfile__data__block__format=blocks)
    first, second, third = rows(range(60), 1), rows(range(20, 80), 2), rows(range(70, 75), 3)
    table.bulk_insert(first)
    middle = table.upsert(second)
    table.insert(third)
    table.delete({"id": ["k0", "k79"]})
    left = expected(first, second, third)
    del left["k0"], left["k79"]
    assert bits(table) == left
    table.compact()
    assert bits(table) == left == bits(table, mode="read_optimized")
    fourth = rows(range(3), 4)
    table.upsert(fourth)
    table.upsert(rows(range(5, 9), 0))  # late rows, which change nothing
    table.log_compact()
    assert bits(table) == left | expected(fourth)
    assert bits(table, as_of_completion=middle.completion_time) == expected(first, second)
    changed = table.changes(after=middle.completion_time).to_arrow()
    assert changed.schema.field("f").metadata == {b"hudi_type": b"VECTOR(5)"}
    assert _raw(changed.filter(pc.field("id") == "k2")["d"]) == [expected(fourth)["k2"][1]]


def test_vectors_are_read_by_tasks_that_were_pickled(tmp_path):
    """pyarrow pickles a list of fixed size without the name of its elements and whether they may be null."""
    table = create(tmp_path)
    first, second = rows(range(40), 1), rows(range(30, 50), 2)
    table.bulk_insert(first)
    table.upsert(second)
    splits = pickle.loads(pickle.dumps(table.scan(columns=["id", *VECTORS]).splits()))
    storage = storage_at(table.path)
    found = pa.concat_tables(part for split in splits for part in split.read(storage))
    cells = zip(*(_raw(found[name]) for name in VECTORS), strict=True)
    assert dict(zip(found["id"].to_pylist(), cells, strict=True)) == expected(first, second)


def test_a_transaction_takes_columns_by_name(tmp_path):
    table = create(tmp_path)
    batches = [rows(range(20), 1), rows(range(15, 30), 2)]
    with table.begin() as txn:
        assert [txn.write(batch) for batch in batches] == [20, 15]
        with pytest.raises(Invalid, match=r"'f', row 0 .record key 'k3'"):
            txn.write(rows(range(3, 5), 3) | {"f": np.zeros((2, 4))})
        txn.commit()
    assert bits(table) == expected(*batches)


def test_the_schema_is_said_everywhere(tmp_path):
    table = create(tmp_path)
    table.upsert(rows(range(3), 1))
    for schema in (table.schema, table.scan().schema, table.scan(columns=["f"]).to_arrow().schema):
        assert schema.field("f").metadata == {b"hudi_type": b"VECTOR(5)"}
    assert table.schema.field("b").type == pa.list_(pa.field("element", pa.int8(), nullable=False), 7)
    assert '"name":"vector_double_3"' in table.properties["hoodie.table.create.schema"]
    (commit,) = (tmp_path / "t").glob(".hoodie/timeline/*_*.deltacommit")
    assert b'"name":"vector_int8_7","namespace":"","size":7,"logicalType":"vector"' in commit.read_bytes()


def test_a_table_is_created_from_what_readers_give(tmp_path):
    """Fields with the mark need not be named again."""
    table = create(tmp_path)
    again = create(tmp_path / "2", vectors={}, schema=table.schema)
    assert again.properties["hoodie.table.create.schema"] == table.properties["hoodie.table.create.schema"]
    batch = rows(range(30), 1)
    table.upsert(batch)
    again.upsert(table.scan(columns=table.schema.names).to_arrow())
    assert bits(again) == expected(batch)


def test_lists_of_every_kind_are_written(tmp_path):
    table = create(tmp_path, {"v": "VECTOR(2)"})
    numbers = [[1.0, 2.0], None, [3.0, -4.5]]
    kinds = (pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2), None)
    for ts, kind in enumerate(kinds):
        given = numbers if kind is None else pa.array(numbers, kind)
        table.upsert({"id": ["a", "b", "c"], "ts": [ts] * 3, "text": [str(ts)] * 3, "v": given})
        found = table.scan(columns=["id", "text", "v"]).to_arrow().sort_by("id")
        assert (found["v"].to_pylist(), found["text"].to_pylist()) == (numbers, [str(ts)] * 3)


def test_a_list_of_fixed_size_without_the_mark_is_a_plain_list(tmp_path, caplog):
    """As before there were vectors: nothing says that Hudi should hold it as one. The log says how to."""
    caplog.set_level("INFO", "mainstem.api.create")
    table = create(tmp_path, {}, SCHEMA.append(pa.field("v", pa.list_(pa.float32(), 2))))
    table.upsert({"id": ["a"], "ts": [1], "text": ["x"], "v": np.ones((1, 2), "f4")})
    assert pa.types.is_list(table.schema.field("v").type)
    assert "vectors={'v': 'VECTOR(2)'}" in caplog.text
    assert table.scan(columns=["v"]).to_arrow()["v"].to_pylist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("f", [1.0] * 4, r"a vector of 4 elements, the column is a VECTOR\(5\).*hudi_type=VECTOR\(4\)"),
        ("f", [1.0, 2.0, float("nan"), 4.0, 5.0], "a vector with NaN in it"),
        ("d", [1.0, float("inf"), 0.0], "a vector with infinity in it"),
        ("d", [1.0, None, 0.0], "a vector with a null element"),
        ("b", [1, 2, 3, 4, 5, 6, 200], "a vector with a number that INT8 cannot hold"),
    ],
    ids=str,
)
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_a_refused_vector_is_named_by_column_row_and_key_and_nothing_is_written(
    tmp_path, operation, column, value, said
):
    table = create(tmp_path)
    table.upsert(rows(range(30), 1))
    before = files(tmp_path)
    batch = rows(range(30), 2)
    batch[column] = [*batch[column].tolist()[:17], value, *batch[column].tolist()[18:]]
    with pytest.raises(Invalid, match=rf"column '{column}', row 17 \(record key 'k17'\): {said}"):
        getattr(table, operation)(batch)
    assert files(tmp_path) == before
    assert bits(table) == expected(rows(range(30), 1))


def test_null_vectors_are_held(tmp_path):
    table = create(tmp_path)
    table.upsert({"id": ["a", "b"], "ts": [1, 1], "text": ["", ""], "f": [None, [1.0] * 5],
                  "d": [None, None], "b": pa.nulls(2)})  # fmt: skip
    table.compact()
    assert bits(table) == {"a": (None, None, None), "b": (np.ones(5, "f4").tobytes(), None, None)}


def test_vectors_are_added_to_a_table_and_never_changed(tmp_path):
    table = create(tmp_path, {"f": "VECTOR(2)"})
    old = {"id": ["a"], "ts": [1], "text": ["x"], "f": np.ones((1, 2))}
    table.upsert(old)
    more = pa.table({**old, "ts": [2], "f": pa.array([[3.0, 4.0]])})
    for name, mark in (("g", "VECTOR(2)"), ("h", "VECTOR(3, DOUBLE)")):
        width = int(mark[7])
        field = pa.field(name, pa.list_(pa.float64()), metadata={"hudi_type": mark})
        more = more.append_column(field, pa.array([[7.0] * width]))
    table.upsert(more)
    assert table.schema.field("g").metadata == {b"hudi_type": b"VECTOR(2)"}
    table.compact()
    found = table.scan(columns=["f", "g", "h"]).to_arrow()
    assert found.to_pylist() == [{"f": [3.0, 4.0], "g": [7.0, 7.0], "h": [7.0, 7.0, 7.0]}]
    with pytest.raises(Invalid, match="columns missing: 'g', 'h'"):
        table.upsert(old)
    wider = more.set_column(3, more.schema.field("h").with_name("f"), more["h"])
    with pytest.raises(Invalid, match=r"given as VECTOR\(3, DOUBLE\), the table has VECTOR\(2\)\. The type"):
        table.upsert(wider)
    field = pa.field("text", pa.list_(pa.int64()), metadata={"hudi_type": "VECTOR(1)"})
    marked = more.set_column(2, field, pa.array([[1]]))
    with pytest.raises(Invalid, match="the table holds it as string, which Hudi never makes a vector"):
        table.upsert(marked)


def test_two_writers_add_different_vectors_at_once(tmp_path):
    table = create(tmp_path, {}, hoodie__write__set__null__for__missing__columns=True)
    one, two = table.begin(), table.begin()
    for txn, key, name in ((one, "a", "g"), (two, "b", "h")):
        field = pa.field(name, pa.list_(pa.float32()), metadata={"hudi_type": "VECTOR(2)"})
        batch = pa.table({"id": [key], "ts": [1], "text": ["x"]})
        txn.write(batch.append_column(field, pa.array([[1.0, 2.0]], pa.list_(pa.float32()))))
    two.commit()
    one.commit()
    found = table.scan(columns=["id", "g", "h"]).to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": "a", "g": [1.0, 2.0], "h": None}, {"id": "b", "g": None, "h": [1.0, 2.0]}]
    assert table.schema.field("h").metadata == {b"hudi_type": b"VECTOR(2)"}


@pytest.mark.parametrize(
    "how",
    [
        {"hoodie__table__partial__update__mode": "IGNORE_DEFAULTS"},
        {"hoodie__mainstem__write__partial__blocks": True},
    ],
    ids=["IGNORE_DEFAULTS", "blocks"],
)
@pytest.mark.filterwarnings("ignore:hoodie.mainstem.write.partial.blocks")
def test_vectors_are_updated_alone_and_left_alone(tmp_path, how):
    table = create(tmp_path, **how)
    first, newer = rows(range(40), 1), rows(range(10), 2)
    table.upsert(first)
    table.update_columns({name: newer[name] for name in ("id", "ts", "f")})
    table.update_columns({"id": ["k3"], "ts": [3], "text": ["alone"]})
    half = {name: newer[name] if name in ("id", "f") else first[name][:10] for name in first}
    assert bits(table) == expected(first, half)
    table.compact()
    assert bits(table) == expected(first, half)
    with pytest.raises(Invalid, match=r"column 'f', row 1 \(record key 'k1'\): a vector of 6 elements"):
        table.update_columns({"id": ["k0", "k1"], "ts": [4, 4], "f": [[1.0] * 5, [1.0] * 6]})


def test_vectors_are_left_out_of_statistics(tmp_path):
    table = create(tmp_path, hoodie__metadata__enable=True)
    table.bulk_insert(rows(range(40), 1))
    table.create_index("column_stats")
    table.upsert(rows(range(9), 2))
    table.compact()
    (index,) = [index for index in table.indexes() if index.partition == "column_stats"]
    assert "ts" in index.columns
    assert not {*VECTORS} & {*index.columns}
    assert not table.validate_metadata().differences
    with pytest.raises(Invalid, match="'f'"):
        table.create_index("column_stats", ["f"])
    found = table.scan(columns=["id"], filter=pc.field("ts") == 2)
    assert found.to_arrow().num_rows == 9


@pytest.mark.parametrize("role", ["record_key", "ordering", "partition_by"])
def test_a_vector_is_no_key_and_orders_nothing(tmp_path, role):
    named = {"record_key": "id", "ordering": "ts"} | {role: "f"}
    with pytest.raises(mainstem.MainstemError, match="'f'"):
        mainstem.create_table(tmp_path / "t", SCHEMA, **named, vectors={"f": "VECTOR(2)"})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": ["a"], "ts": [1, 2], "text": ["x"], "f": np.ones((1, 2))}, "differ \\('id': 1, 'ts': 2"),
        ({"id": ["a"], "ts": [1], "text": ["x"], "f": np.ones((1, 2, 2))}, r"the shape \(1, 2, 2\)"),
        ({"id": ["a"], "ts": [object()], "text": ["x"], "f": np.ones((1, 2))}, "column 'ts' cannot be made"),
        ({"id": ["a"], "ts": [1], "text": ["x"], "f": 1.0}, "column 'f' cannot be made"),
    ],
    ids=["lengths", "shape", "values", "scalar"],
)  # fmt: skip
def test_columns_that_make_no_rows_are_refused(tmp_path, columns, said):
    table = create(tmp_path, {"f": "VECTOR(2)"})
    with pytest.raises(Invalid, match=said):
        table.upsert(columns)


def test_engines_see_arrays(tmp_path):
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    table = create(tmp_path, {"f": "VECTOR(2)"})
    table.upsert({"id": ["a", "b"], "ts": [1, 1], "text": ["x", "y"], "f": np.array([[3, 4], [0, 1]], "f4")})
    found = table.scan(columns=["id", "f"]).to_reader()  # noqa: F841 - DuckDB looks for the name
    asked = "select id from found order by array_distance(f, [0, 0]::float[2])"
    assert duckdb.sql(asked).fetchall() == [("b",), ("a",)]
    frame = polars.from_arrow(table.scan(columns=["id", "f"]).to_arrow()).sort("id")
    assert frame["f"].to_list() == [[3.0, 4.0], [0.0, 1.0]]
