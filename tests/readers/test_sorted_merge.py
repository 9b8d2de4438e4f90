"""Goal: a slice of sorted files (``lsm_tree``) is merged side by side, in the order of keys, to the rows of
the ordinary read, within any bound of memory; a file that is not sorted is found out.

Method: slices of every merge mode, with deletes of both kinds, partial updates, many rows of few keys and
characters beyond 16 bits, become tables of version 10 with small row groups and are read with several bounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.limits import MIB
from mainstem.readers.rows.sorted_merge import Unsorted, merges_sorted, read_sorted
from mainstem.readers.rows.split import Split, read_split, slices_of
from tests.readers.native_tables import to_version_10
from tests.storage.steps import storage_at

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("value", pa.string()), ("_hoodie_is_deleted", pa.bool_())]
)
KEY = "_hoodie_record_key"
QUICK = {
    "hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False, "hoodie.mainstem.keep.tombstones": "0",
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "event time": ("ts", {}),
    "commit time": ("", {}),
    "partial": ("ts", {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
}
HEADS = ("", "é", "\uffee", "\U0001f600")


def key(number: int) -> str:
    return f"{HEADS[number % 4]}{number % 7}k{number}"


def rows(random: np.random.Generator, count: int) -> pa.Table:
    numbers = random.integers(0, 400, count)
    numbers[: count // 3] = random.integers(0, 4, count // 3)  # few keys have most updates
    empty = random.random(count) < 0.2
    return pa.table(
        {
            "id": [key(n) for n in numbers.tolist()],
            "ts": random.integers(0, 30, count),
            "value": pa.array([f"v{n}" for n in range(count)], mask=empty),
            "_hoodie_is_deleted": random.random(count) < 0.1,
        },
        schema=SCHEMA,
    )


def written(path: Path, kind: str) -> Split:
    ordering, properties = KINDS[kind]
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering=ordering or (), buckets=1,
        properties={**QUICK, **properties},
    )  # fmt: skip
    random = np.random.default_rng(7)
    for turn in range(7):
        table.upsert(rows(random, 200))
        if turn % 3 == 1:
            table.delete(pa.table({"id": [key(n) for n in random.integers(0, 400, 30).tolist()]}))
        if turn == 2:
            table.compact()
    (base,) = path.glob("*.parquet")
    found = pq.read_table(base)
    order = pc.sort_indices(found[KEY].cast(pa.binary()))
    pq.write_table(found.take(order), base, row_group_size=40, compression="none")
    to_version_10(path, layout="lsm_tree", group_rows=30)
    (split,) = slices_of(mainstem.open_table(path).scan().splits())
    assert split.base_file and len(split.log_files) > 5
    return split


def merged(path: Path, split: Split, bound: int) -> pa.Table:
    return pa.concat_tables(read_sorted(storage_at(path), split, bound))


@pytest.mark.supports("Tables and layouts", "tables of version 10: sorted files, merged side by side")
@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_are_those_of_the_ordinary_read_in_the_order_of_keys(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    split = written(path, kind)
    expected = pa.concat_tables(read_split(storage_at(path), split))
    expected = expected.take(pc.sort_indices(expected[KEY].cast(pa.binary())))
    for bound in (4 * MIB, 64 * MIB):
        assert merges_sorted(split, bound)
        assert merged(path, split, bound).equals(expected), f"with {bound} bytes"


@pytest.mark.disk("files are changed in place")
def test_a_file_that_is_not_sorted_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    split = written(path, "event time")
    assert split.base_file is not None
    for name in (split.base_file, next(name for name in split.log_files if ".log." in name)):
        file = path / name
        whole, found, notes = file.read_bytes(), pq.read_table(file), pq.read_metadata(file).metadata
        backwards = found.take(pa.array(range(found.num_rows)[::-1])).replace_schema_metadata(notes)
        pq.write_table(backwards, file, row_group_size=20, compression="none")
        with pytest.raises(Unsorted) as caught:
            merged(path, split, 64 * MIB)
        assert caught.value.path == name
        file.write_bytes(whole)


def test_files_of_blocks_and_too_many_files_are_merged_in_another_way(tmp_path: Path) -> None:
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1, properties=QUICK)
    table.upsert(rows(np.random.default_rng(1), 5))
    (split,) = slices_of(table.scan().splits())
    assert not merges_sorted(split, 64 * MIB)
    split = written(tmp_path / "u", "commit time")
    assert not merges_sorted(split, MIB)
