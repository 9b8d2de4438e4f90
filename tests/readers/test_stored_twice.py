"""Columns that a base file holds twice, byte for byte, are decoded once; those that look alike are not."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.readers.base_rows import open_base
from mainstem.storage.local import LocalStorage

ROWS = 3000
KEYS = [hashlib.sha256(str(n).encode()).hexdigest()[:36] for n in range(ROWS)]


def read(folder, table, names=None, compression="gzip", **options):
    pq.write_table(table, folder / "f.parquet", compression=compression, store_schema=False, **options)
    with open_base(LocalStorage(str(folder)), "f.parquet") as base:
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
