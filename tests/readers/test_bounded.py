"""Goal: a slice of any size is merged within a bound of memory, to the same rows.

Method: slices of every merge mode, with large blocks, many updates of few keys and deletes of both kinds,
are read with several bounds and compared with the ordinary read; where rows are not
made of several stored ones they come in the same order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable
from mainstem.readers.rows.bounded_merge import read_bounded
from mainstem.readers.rows.split import read_split
from tests.storage.steps import storage_at

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("value", pa.string()), ("_hoodie_is_deleted", pa.bool_())]
)
QUICK = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
IGNORE_DEFAULTS = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
BOUNDS = (200_000, 1_000_000, 10_000_000)


def rows(random: np.random.Generator, count: int) -> pa.Table:
    keys = random.integers(0, 400, count)
    keys[: count // 3] = random.integers(0, 4, count // 3)  # few keys have most updates
    empty = random.random(count) < 0.2
    return pa.table(
        {
            "id": [f"ké{k}" for k in keys],
            "ts": random.integers(0, 30, count),
            "value": pa.array([f"v{n}" for n in range(count)], mask=empty),
            "_hoodie_is_deleted": random.random(count) < 0.1,
        },
        schema=SCHEMA,
    )


def make(path: Path, ordering: str, properties: dict) -> mainstem.Table:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering=ordering, buckets=1, properties={**QUICK, **properties}
    )
    random = np.random.default_rng(7)
    for turn in range(9):
        table.upsert(rows(random, 250))
        if turn % 3 == 1:
            table.delete(pa.table({"id": [f"ké{k}" for k in random.integers(0, 400, 30)]}))
        if turn == 2:
            table.compact()
    return table


@pytest.mark.supports("Services", "compaction: within a bound of memory")
@pytest.mark.parametrize(
    "ordering, properties, in_order",
    [
        pytest.param("ts", {}, True, id="event time"),
        pytest.param("", {}, True, id="commit time"),
        pytest.param("", IGNORE_DEFAULTS, False, id="partial"),
        pytest.param("ts", {"hoodie.logfile.data.block.format": "parquet"}, True, id="parquet blocks"),
    ],
)
def test_the_rows_are_those_of_the_ordinary_read(tmp_path, ordering, properties, in_order):
    table = make(tmp_path / "t", ordering or (), properties)
    storage = storage_at(table.path)
    (split,) = table.scan().splits()
    assert split.base_file and len(split.log_files) > 5
    expected = pa.concat_tables(read_split(storage, split))
    for bound in BOUNDS:
        found = pa.concat_tables(read_bounded(storage, split, bound))
        if not in_order:
            found, expected = (t.sort_by("_hoodie_record_key") for t in (found, expected))
        assert found.equals(expected), f"with {bound} bytes"


def test_columns_that_some_blocks_leave_out_are_filled_across_blocks_too(tmp_path):
    table = make(tmp_path / "t", "ts", {"hoodie.mainstem.write.partial.blocks": True})
    for turn in range(3):
        some = pa.table({"id": [f"ké{k}" for k in range(turn, 300)], "ts": [40 + turn] * (300 - turn)})
        with pytest.warns(UserWarning, match="IS_PARTIAL"):
            table.update_columns(some)
    storage = storage_at(table.path)
    (split,) = table.scan().splits()
    expected = pa.concat_tables(read_split(storage, split)).sort_by("_hoodie_record_key")
    for bound in BOUNDS:
        found = pa.concat_tables(read_bounded(storage, split, bound)).sort_by("_hoodie_record_key")
        assert found.equals(expected), f"with {bound} bytes"


def test_a_block_that_is_larger_than_a_piece_is_divided_and_its_damage_is_found(tmp_path):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=QUICK
    )
    random = np.random.default_rng(1)
    table.upsert(rows(random, 3_000))
    table.upsert(rows(random, 3_000))
    storage = storage_at(table.path)
    (split,) = table.scan().splits()
    expected = pa.concat_tables(read_split(storage, split))
    assert pa.concat_tables(read_bounded(storage, split, 300_000)).equals(expected)
    log = Path(table.path) / split.log_files[0]
    data = bytearray(log.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = b"\xff" * 400
    log.write_bytes(data)
    with pytest.raises(CorruptTable, match=log.name):
        list(read_bounded(storage, split, 300_000))
