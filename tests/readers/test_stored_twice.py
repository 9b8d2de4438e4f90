"""Columns that a base file holds twice, byte for byte, are decoded once; those that look alike are not."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.merge.file_slice import joined
from mainstem.readers.rows.base_rows import open_base
from mainstem.readers.rows.equal_chunks import doubles
from tests.storage.steps import storage_at

ROWS = 3000
KEYS = [hashlib.sha256(str(n).encode()).hexdigest()[:36] for n in range(ROWS)]


def read(folder, table, names=None, compression="gzip", **options):
    pq.write_table(table, folder / "f.parquet", compression=compression, store_schema=False, **options)
    with open_base(storage_at(folder), "f.parquet") as base:
        return pa.concat_tables(base.batches(names or table.schema.names))


def places(column):
    return [chunk.buffers()[2].address for chunk in column.chunks]


def test_a_key_that_is_stored_twice_is_in_memory_once_in_every_row_group(tmp_path):
    table = pa.table({"key": KEYS, "n": range(ROWS), "id": KEYS})

    found = read(tmp_path, table, row_group_size=1000)

    assert found.equals(table)
    assert len(places(found.column("id"))) == 3
    assert places(found.column("id")) == places(found.column("key"))


def test_the_order_in_which_columns_are_asked_for_is_kept(tmp_path):
    table = pa.table({"key": KEYS, "n": range(ROWS), "id": KEYS})

    assert read(tmp_path, table, ["id", "n", "key"]).equals(table.select(["id", "n", "key"]))
    assert read(tmp_path, table, ["id"]).equals(table.select(["id"]))


@pytest.mark.parametrize("row", (0, ROWS // 2, ROWS - 1))
def test_columns_of_one_size_that_differ_in_one_row_are_both_read(tmp_path, row):
    other = list(KEYS)
    other[row] = other[row][::-1]
    table = pa.table({"key": KEYS, "id": other})

    assert read(tmp_path, table, compression="none", use_dictionary=False).equals(table)
    with pa.OSFile(str(tmp_path / "f.parquet")) as file, pq.ParquetFile(tmp_path / "f.parquet") as source:
        assert doubles(file, source, 0, ["key", "id"]) == {}


def test_columns_without_compression_are_decoded_and_not_compared(tmp_path):
    table = pa.table({"key": KEYS, "id": KEYS})

    found = read(tmp_path, table, compression="none", use_dictionary=False)

    assert found.equals(table)
    assert places(found.column("id")) != places(found.column("key"))


def test_columns_without_dictionary_are_told_apart_where_a_footer_says_it_begins_at_0(tmp_path):
    other = [key[::-1] for key in KEYS]
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"key": KEYS, "id": other}), path, compression="none", use_dictionary=False)
    with pa.OSFile(str(path)) as file, pq.ParquetFile(path) as source:
        group = source.metadata.row_group(0)
        columns = [column_of(group, number) for number in range(2)]
        described = SimpleNamespace(num_columns=2, column=columns.__getitem__)
        metadata = SimpleNamespace(row_group=lambda number: described)
        footer = SimpleNamespace(metadata=metadata, schema=source.schema, schema_arrow=source.schema_arrow)

        assert doubles(file, footer, 0, ["key", "id"]) == {}


def column_of(group, number):
    chunk = group.column(number)
    names = (
        "path_in_schema", "num_values", "total_compressed_size", "total_uncompressed_size", "physical_type",
        "compression", "data_page_offset",
    )  # fmt: skip
    return SimpleNamespace(dictionary_page_offset=0, **{name: getattr(chunk, name) for name in names})


def test_columns_of_the_same_bytes_and_another_type_are_both_read(tmp_path):
    numbers = np.random.default_rng(0).integers(0, 2**62, ROWS)
    table = pa.table(
        {
            "text": KEYS,
            "bytes": pa.array([key.encode() for key in KEYS], pa.binary()),
            "long": numbers,
            "time": pa.array(numbers, pa.timestamp("us")),
        }
    )

    found = read(tmp_path, table, use_dictionary=False)

    assert found.equals(table)
    assert found.schema.types == table.schema.types


def test_many_columns_of_one_size_are_not_compared_with_each_other(tmp_path):
    numbers = np.random.default_rng(0).random((300, ROWS))
    numbers[:, :1000] = 0  # they begin alike
    table = pa.table({f"c{n}": column for n, column in enumerate(numbers)} | {"again": numbers[0]})
    pq.write_table(table, tmp_path / "f.parquet", compression="none", use_dictionary=False)
    reads = []

    class Counted(pa.PythonFile):
        def read_at(self, size, offset):
            reads.append(size)
            return super().read_at(size, offset)

    with open(tmp_path / "f.parquet", "rb") as handle:
        found = doubles(Counted(handle, "r"), pq.ParquetFile(tmp_path / "f.parquet"), 0, table.schema.names)

    assert found == {"again": "c0"}
    assert len(reads) <= 3 * table.num_columns


FAST = {"hoodie.mainstem.exclusive": "true", "hoodie.time.generator.max_expected_clock_skew_ms": "0"}


@pytest.mark.parametrize("rules", ({}, {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}))
def test_repetitive_texts_of_a_base_file_come_out_of_the_merge_as_texts(tmp_path, rules):
    """They stay behind their dictionaries until it is known which rows come out."""
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("ts", pa.int64()),
            ("city", pa.string()),
            ("raw", pa.binary()),
            ("n", pa.int64()),
        ]
    )

    def rows(first, ts):
        numbers = range(first, first + ROWS)
        cities = [None if n % 7 == 0 else f"{'' if n % 5 else 'city'}{n % 3}" for n in numbers]
        columns = [
            KEYS, [ts] * ROWS, cities, [b"\xff" * (n % 4) for n in numbers], list(numbers),
        ]  # fmt: skip
        return pa.table(columns, schema=schema)

    path = str(tmp_path / "t")
    mainstem.create_table(
        path, schema, record_key=["id"], ordering=["ts"], buckets=1, properties=FAST | rules
    )
    table = mainstem.open_table(path)
    table.bulk_insert(rows(0, 1))
    table.upsert(rows(1, 2).slice(0, 500))
    if not rules:
        table.upsert(rows(2, 0).slice(100, 900))  # late rows, which lose
    expected = {row["id"]: row for row in rows(0, 1).to_pylist()}
    for row in rows(1, 2).slice(0, 500).to_pylist():
        kept = expected[row["id"]] if rules else {}
        expected[row["id"]] = {k: kept.get(k) if v is None else v for k, v in row.items()}
    for names in (schema.names, ["city", "id"], ["raw", "id"]):
        found = table.scan(columns=names).to_arrow()
        assert found.schema.types == [schema.field(name).type for name in names]
        assert {row["id"]: row for row in found.to_pylist()} == {
            key: {name: row[name] for name in names} for key, row in expected.items()
        }


def test_row_groups_come_in_one_schema_whatever_their_sizes(tmp_path):
    """A last group of few rows stores short texts no cheaper than plain ones."""
    table = pa.table({"city": [f"city{n % 3}" for n in range(ROWS)], "n": range(ROWS)})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=ROWS - 2, store_schema=False)

    with open_base(storage_at(tmp_path), "f.parquet") as base:
        found = list(base.batches(["n", "city"], coded=["city"]))

    assert len({part.schema for part in found}) == 1
    assert pa.types.is_dictionary(found[0].schema.field("city").type)
    assert pa.concat_tables(found).column("city").cast(pa.string()).equals(table.column("city"))


def test_long_texts_behind_a_dictionary_count_as_long_when_batches_are_joined(tmp_path):
    """What is bounded are the rows that come out, however small their codes are."""
    table = pa.table({"note": ["n" * 100] * 70_000, "n": range(70_000)})
    pq.write_table(table, tmp_path / "f.parquet", store_schema=False)
    log = SimpleNamespace(key_count=1_000_000)

    with open_base(storage_at(tmp_path), "f.parquet") as base:
        found = list(joined(base.batches(["note", "n"], coded=["note"]), log, bytes_max=1_000_000))

    assert all(pa.types.is_dictionary(part.schema.field("note").type) for part in found)
    assert [part.num_rows for part in found] == [32_768, 32_768, 4_464]
