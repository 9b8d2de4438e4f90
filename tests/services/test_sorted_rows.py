"""Goal: rows come in order whatever the memory, each of them once; what is spilled leaves nothing behind.

Method: slices with equal values, nulls, NaN and texts are read with runs of a few rows, so that runs are
merged in several rounds, and compared with Arrow's sort of all rows at once; curves are walked cell by
cell.
"""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.readers.rows.split import read_split
from mainstem.services import sorted_rows
from mainstem.services.clustering_order import RowOrder
from mainstem.services.sorted_rows import read_in_order
from mainstem.services.space_filling import hilbert, z_order
from mainstem.storage.spill_file import Spill, spilling
from tests.storage.steps import storage_at

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("ts", pa.int64()), ("word", pa.string()), ("number", pa.float64()),
        ("price", pa.decimal128(9, 2)), ("yes", pa.bool_()), ("same", pa.int32()),
    ]
)  # fmt: skip
COUNT = 3_000
ORDERS = [
    RowOrder.of("number"), RowOrder.of("word,number"), RowOrder.of("yes,price"), RowOrder.of("same"),
    RowOrder.of("same,id"), RowOrder.of("number,word", "z-order"), RowOrder.of("price,yes,number", "hilbert"),
    RowOrder.of("same,word", "hilbert"),
]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mainstem.Table:
    """One slice of a base file and logs."""
    table = mainstem.create_table(
        tmp_path_factory.mktemp("sorted") / "t", SCHEMA, record_key="id", ordering="ts", buckets=1,
        properties={
            "hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False,
            "hoodie.mainstem.services": "off",
        },
    )  # fmt: skip
    random = np.random.default_rng(3)
    for turn in range(3):
        count = COUNT if turn == 0 else COUNT // 5
        numbers = random.normal(size=count).round(1) + 0.0  # no -0.0
        numbers[random.random(count) < 0.02] = np.nan
        empty = random.random((4, count)) < 0.1
        keys = np.arange(count) if turn == 0 else random.choice(COUNT + 50, count, replace=False)
        table.upsert(
            pa.table(
                {
                    "id": [f"ké{k}" for k in keys], "ts": [turn] * count,
                    "word": pa.array([f"w{n}é" for n in random.integers(0, 50, count)], mask=empty[0]),
                    "number": pa.array(numbers, mask=empty[1]),
                    "price": pa.array(
                        [Decimal(int(n)) / 4 for n in random.integers(-500, 500, count)],
                        SCHEMA.field("price").type, mask=empty[2],
                    ),
                    "yes": pa.array(random.random(count) < 0.5, mask=empty[3]), "same": [7] * count,
                },
                schema=SCHEMA,
            )
        )  # fmt: skip
        if turn == 0:
            table.compact()
    return table


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs of a few dozen rows, three of which are merged at once; how many were spilled, in the order of
    their sizes in pieces."""
    sizes: list[int] = []
    real = sorted_rows._Runs.add

    def noted(self: sorted_rows._Runs, pieces: object) -> None:
        real(self, pieces)
        sizes.append(len(self._runs[-1].pieces))

    monkeypatch.setattr(sorted_rows, "_RUN_BYTES_MIN", 1)
    monkeypatch.setattr(sorted_rows, "_RUN_BYTES_MAX", 16_000)
    monkeypatch.setattr(sorted_rows, "_RUNS_MAX", 3)
    monkeypatch.setattr(sorted_rows, "_SAMPLE_ROWS", 200)
    monkeypatch.setattr(sorted_rows._Runs, "add", noted)
    return sizes


def ordered(rows: pa.Table, order: RowOrder) -> pa.Table:
    def key(at: int) -> tuple:
        values = (rows.column(name)[at].as_py() for name in order.columns)
        return tuple((v is not None, v != v, 0 if v is None or v != v else v) for v in values)

    return rows.take(sorted(range(rows.num_rows), key=key)).combine_chunks()


def as_text(rows: pa.Table) -> list[str]:
    """Every row, NaN included, in an order of its own."""
    return sorted(map(str, rows.to_pylist()))


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_rows_that_are_spilled_come_in_order_and_each_once(table, small_runs, order):
    storage = storage_at(table.path)
    (split,) = table.scan().splits()
    expected = pa.concat_tables(read_split(storage, split))
    found = pa.concat_tables(read_in_order(storage, [split], order, 1 << 20))
    assert len(small_runs) > 9 and max(small_runs) > 6, "runs of runs were merged"
    assert found.schema.equals(expected.schema) and as_text(found) == as_text(expected)
    if not order.is_curve:
        names = list(order.columns)
        assert str(found.select(names).to_pylist()) == str(ordered(expected, order).select(names).to_pylist())


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_rows_that_fit_into_memory_are_not_spilled(table, small_runs, monkeypatch, order):
    monkeypatch.setattr(sorted_rows, "_RUN_BYTES_MAX", 1 << 30)
    storage = storage_at(table.path)
    (split,) = table.scan().splits()
    expected = pa.concat_tables(read_split(storage, split))
    found = pa.concat_tables(read_in_order(storage, [split], order, 1 << 30))
    assert not small_runs and as_text(found) == as_text(expected)
    if not order.is_curve:
        assert str(found.to_pylist()) == str(ordered(expected, order).to_pylist()), "equal rows as they were"


@pytest.mark.parametrize("strategy", ["z-order", "hilbert"])
def test_the_curve_of_spilled_rows_is_that_of_all_rows_but_for_its_details(table, small_runs, strategy):
    """Runs of fifty neighbours cover little of either column, with ranks of all rows or of a sample."""
    storage = storage_at(table.path)
    (split,) = table.scan().splits()
    order = RowOrder.of("number,word", strategy)
    found = pa.concat_tables(read_in_order(storage, [split], order, 1 << 20))
    for name in order.columns:
        values = found[name].combine_chunks()
        coded = values.dictionary_encode()
        rank = pc.rank(coded.dictionary, tiebreaker="dense").to_numpy()[coded.indices.fill_null(0).to_numpy()]
        spread = [np.ptp(rank[at : at + 50]) for at in range(0, len(rank), 50)]
        assert np.mean(spread) < 0.5 * len(coded.dictionary)


def test_an_empty_slice_has_no_rows_in_any_order(tmp_path):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False},
    )  # fmt: skip
    table.upsert({name: [None if name == "price" else 1] for name in SCHEMA.names} | {
        "id": ["a"], "word": ["x"], "yes": [True], "number": [1.0],
    })  # fmt: skip
    table.delete({"id": ["a"]})
    for strategy in ("linear", "z-order", "hilbert"):
        (done,) = table.cluster("price,word", strategy=strategy)
        assert done.rows == 0 and table.scan().count_rows() == 0
        assert table.cluster("price,word", strategy=strategy) == []


@pytest.mark.parametrize("axes, bits", [(2, 5), (3, 3), (4, 2), (5, 1), (1, 6)])
def test_curves_visit_every_cell_once_and_hilberts_goes_from_neighbour_to_neighbour(axes, bits):
    cells = np.stack(np.meshgrid(*[np.arange(2**bits)] * axes), -1).reshape(-1, axes).astype(np.uint64)
    for curve in (z_order, hilbert):
        places = curve(list(cells.T), bits)
        assert sorted(places.tolist()) == list(range(2 ** (bits * axes)))
    walked = cells[np.argsort(hilbert(list(cells.T), bits))].astype(int)
    assert (np.abs(np.diff(walked, axis=0)).sum(axis=1) == 1).all()


def test_what_is_spilled_has_no_name_and_comes_back(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with spilling() as spill:
        places = [spill.put(bytes([n]) * (n * 1000)) for n in range(5)]
        assert [spill.get(place) for place in reversed(places)] == [
            bytes([n]) * (n * 1000) for n in reversed(range(5))
        ]
        assert os.listdir(tmp_path) == []


def test_a_full_disk_ends_it_and_the_plan_stays(table, small_runs, monkeypatch):
    expected = table.scan().count_rows()
    planned = table.schedule_clustering("number")

    def full(self: Spill, data: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Spill, "put", full)
        with pytest.raises(mainstem.errors.Unavailable, match="No space left"):
            table.run_compaction(planned)
    assert [i.requested for i in table.timeline() if i.action == "compaction"] == [planned]
    assert table.scan().count_rows() == expected
    assert table.run_compaction(planned)[0].rows == expected
