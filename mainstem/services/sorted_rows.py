"""Rows of file slices in a ``RowOrder``, within a memory limit, however large the slices are.

Rows that fit into the limit are sorted at once. Otherwise runs of them are sorted one by one and spilled to
disk, and then merged: of each run a piece is in memory, and all rows that no unread row can come before are
put in order together. Runs that are too many for this are first merged to fewer.

A curve's axes are the ranks of a column's values among those of the slices: exact if all rows are in memory,
among evenly spaced rows otherwise, which a first reading of these columns alone finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.base_file import in_pieces
from mainstem.formats.log_file import LogBlock
from mainstem.limits import KIB, MIB
from mainstem.readers.rows.bounded_merge import read_bounded
from mainstem.readers.rows.split import Split
from mainstem.services.clustering_order import Z_ORDER, RowOrder
from mainstem.services.space_filling import hilbert, z_order
from mainstem.storage.protocol import Storage
from mainstem.storage.spill_file import Place, Spill, spilling

# A run takes this share of the memory limit (1/n): two are in memory at once, and copies of one. The merge of
# base and logs, which goes on meanwhile, takes its own share.
_RUN_SHARE, _MERGE_SHARE = 6, 2
# Arrow's 32-bit offsets: a run's texts must fit into one array.
_RUN_BYTES_MAX = 512 * MIB
_RUN_BYTES_MIN = 256 * KIB
# How many runs are merged at once, a piece of each in memory.
_RUNS_MAX = 16
# Rows among which values are ranked if not all are in memory, at most twice as many.
_SAMPLE_ROWS = 32_768
_AXIS_BITS_MAX = 20
# The column of places on a curve, where rows have one.
_PLACE = "\0place"


def read_in_order(
    storage: Storage,
    splits: Sequence[Split],
    order: RowOrder,
    memory_bytes: int,
    seen: Callable[[LogBlock], None] | None = None,
) -> Iterator[pa.Table]:
    """The rows of ``read_bounded`` in order, in tables of no certain size; ``seen`` is its. Raises what it
    raises, and ``OSError`` where the disk for temporary files is full."""
    merging = max(1, memory_bytes // _MERGE_SHARE)
    rows = _read(storage, splits, merging, seen)
    yield from _put_in_order(rows, order, memory_bytes, lambda: _sample(storage, splits, order, merging))


def put_in_order(tables: Iterable[pa.Table], columns: Sequence[str], memory_bytes: int) -> Iterator[pa.Table]:
    """The rows of these tables in the order of some columns, as ``read_in_order`` puts those of slices."""
    yield from _put_in_order(tables, RowOrder(tuple(columns)), memory_bytes, lambda: None)


def _put_in_order(
    tables: Iterable[pa.Table], order: RowOrder, memory_bytes: int, sampled: Callable[[], pa.Table | None]
) -> Iterator[pa.Table]:
    run_bytes = max(_RUN_BYTES_MIN, min(_RUN_BYTES_MAX, memory_bytes // _RUN_SHARE))
    runs = in_pieces(tables, run_bytes)
    ahead = [run for run in (next(runs, None), next(runs, None)) if run is not None]
    if len(ahead) < 2:
        if ahead:
            yield from _in_order(ahead.pop(), order, None, run_bytes // _RUNS_MAX)
        return
    sample = sampled() if order.is_curve else None
    with spilling() as spill:
        store = _Runs(spill, order)
        for run in chain(_emptied(ahead), runs):
            store.add(_in_order(run, order, sample, run_bytes // _RUNS_MAX))
        for table in store.merged():
            yield _without_place(table)


def _read(
    storage: Storage,
    splits: Sequence[Split],
    memory_bytes: int,
    seen: Callable[[LogBlock], None] | None = None,
) -> Iterator[pa.Table]:
    for split in splits:
        yield from read_bounded(storage, split, memory_bytes, seen)


def _emptied(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """Each once, so that nobody holds it longer than needed."""
    while tables:
        yield tables.pop(0)


def _without_place(table: pa.Table) -> pa.Table:
    return table.drop_columns([_PLACE]) if _PLACE in table.schema.names else table


# -- one run -------------------------------------------------------------------------------------------


def _in_order(
    rows: pa.Table, order: RowOrder, sample: pa.Table | None, piece_bytes: int
) -> Iterator[pa.Table]:
    """The rows of a run in order, in pieces of about this size; with their places on the curve if the order
    is one and others have them, too (``sample``)."""
    rows = rows.combine_chunks()
    if order.is_curve:
        rows = rows.append_column(_PLACE, pa.array(_places(rows, order, sample)))
    found = _order_of(rows, order)
    step = max(1, piece_bytes * rows.num_rows // max(1, rows.nbytes))
    for at in range(0, rows.num_rows, step):
        piece = rows.take(found.slice(at, step))
        yield piece if sample is not None else _without_place(piece)


def _order_of(rows: pa.Table, order: RowOrder) -> pa.Array:
    """Numbers of the rows in order; equal ones as they were (Arrow's sorting is stable). Nulls come first,
    NaN last, as in Spark."""
    keys: list[pa.ChunkedArray] = []
    for name in [_PLACE] if order.is_curve else order.columns:
        column = rows.column(name)
        # Where nulls go is asked in another way by each of pyarrow's versions.
        keys += [column.is_valid().cast(pa.uint8()), column] if column.null_count else [column]
    names = [str(number) for number in range(len(keys))]
    sort_keys = [(name, "ascending") for name in names]
    return pc.sort_indices(pa.table(keys, names), sort_keys=sort_keys)


# -- places on a curve ---------------------------------------------------------------------------------


def _places(rows: pa.Table, order: RowOrder, sample: pa.Table | None) -> np.ndarray:
    bits = min(_AXIS_BITS_MAX, 64 // len(order.columns))
    axes = [
        _axis(rows.column(name), None if sample is None else sample.column(name), bits)
        for name in order.columns
    ]
    return z_order(axes, bits) if order.strategy == Z_ORDER else hilbert(axes, bits)


def _axis(values: pa.ChunkedArray, among: pa.ChunkedArray | None, bits: int) -> np.ndarray:
    """How many of the values ``among`` (None: of these) are less, scaled to a number of ``bits``."""
    before = 0 if among is None else len(among)
    chunks = [*(() if among is None else among.chunks), *values.chunks]
    whole = pa.concat_arrays(chunks) if chunks else pa.array([], values.type)
    coded = whole.dictionary_encode()
    # Nulls come first.
    codes = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False) + 1
    sorted_codes = pc.sort_indices(coded.dictionary).to_numpy() + 1
    counted = codes if among is None else codes[:before]
    counts = np.bincount(counted, minlength=len(sorted_codes) + 1)
    in_order = np.concatenate(([0], sorted_codes)).astype(np.int64)
    less = np.zeros(len(counts), np.uint64)
    less[in_order[1:]] = np.cumsum(counts[in_order])[:-1]
    total = np.uint64(max(1, len(counted)))
    scaled = (less << np.uint64(bits)) // total
    scaled = np.minimum(scaled, np.uint64((1 << bits) - 1))
    found: np.ndarray = scaled[codes[before:]]
    return found


def _sample(storage: Storage, splits: Sequence[Split], order: RowOrder, memory_bytes: int) -> pa.Table:
    """The order's columns of evenly spaced rows of the slices."""
    narrow = [replace(split, spec=replace(split.spec, columns=order.columns)) for split in splits]
    kept: list[pa.Table] = []
    seen, count, stride = 0, 0, 1
    for table in _read(storage, narrow, memory_bytes):
        chosen = np.arange(-seen % stride, table.num_rows, stride)
        seen += table.num_rows
        kept.append(table.take(pa.array(chosen)))
        count += len(chosen)
        while count > 2 * _SAMPLE_ROWS:
            every = pa.concat_tables(kept)
            kept = [every.take(pa.array(np.arange(0, count, 2)))]
            count, stride = kept[0].num_rows, 2 * stride
    return pa.concat_tables(kept)


# -- many runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """Sorted rows on disk, piece by piece."""

    schema: pa.Schema
    pieces: tuple[Place, ...]


class _Runs:
    """Sorted runs, and the rows of all of them in order."""

    def __init__(self, spill: Spill, order: RowOrder) -> None:
        self._spill = spill
        self._order = order
        self._runs: list[_Run] = []

    def add(self, pieces: Iterable[pa.Table]) -> None:
        """Put aside a run that is sorted."""
        places = []
        schema = None
        for piece in pieces:
            schema = piece.schema
            for batch in piece.combine_chunks().to_batches():
                places.append(self._spill.put(memoryview(batch.serialize())))
        if schema is not None:
            self._runs.append(_Run(schema, tuple(places)))

    def merged(self) -> Iterator[pa.Table]:
        """All rows in order."""
        while len(self._runs) > _RUNS_MAX:
            first, self._runs = self._runs[:_RUNS_MAX], self._runs[_RUNS_MAX:]
            self.add(self._of_one_size(first))
        yield from self._merged(self._runs)

    def _of_one_size(self, runs: Sequence[_Run]) -> Iterator[pa.Table]:
        """The merged rows in pieces like those of the runs."""
        size = max(length for run in runs for _, length in run.pieces)
        return in_pieces(self._merged(runs), size)

    def _merged(self, runs: Sequence[_Run]) -> Iterator[pa.Table]:
        schema = runs[0].schema
        read = [0] * len(runs)
        left = np.zeros(len(runs), np.int64)  # rows of each run in memory
        few = np.zeros(len(runs), np.int64)  # with this many, another piece is read
        rows = schema.empty_table()
        owner = np.zeros(0, np.int64)
        while True:
            tables, owners = [rows], [owner]
            for number, run in enumerate(runs):
                if read[number] < len(run.pieces) and left[number] <= few[number]:
                    table = self._piece(run, read[number])
                    read[number] += 1
                    left[number] += table.num_rows
                    few[number] = table.num_rows // 2
                    tables.append(table)
                    owners.append(np.full(table.num_rows, number))
            rows, owner = pa.concat_tables(tables).combine_chunks(), np.concatenate(owners)
            if not rows.num_rows:
                return
            found = _order_of(rows, self._order)
            owner = owner[found.to_numpy()]
            # What is not read of a run comes after the last row of it that was: up to there, all are known.
            unread = [number for number, run in enumerate(runs) if read[number] < len(run.pieces)]
            last = (len(owner) - 1 - int(np.argmax(owner[::-1] == number)) for number in unread)
            until = min(last, default=len(owner) - 1) + 1
            yield rows.take(found.slice(0, until))
            rows = rows.take(found.slice(until))
            owner = owner[until:]
            left = np.bincount(owner, minlength=len(runs))

    def _piece(self, run: _Run, number: int) -> pa.Table:
        data = pa.py_buffer(self._spill.get(run.pieces[number]))
        return pa.Table.from_batches([pa.ipc.read_record_batch(data, run.schema)])
