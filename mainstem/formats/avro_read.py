"""Avro columns of any type to Arrow, by columns: the dispatch by type, and nested types.

A list is read in two passes. The first finds where each item begins, without building anything: it steps over
all records' first items at once, then over all second items, and so on; items of constant size need no steps.
The second pass reads the items of all lists, in the order of their bytes, as one column. Maps are lists of
entries. The fields of a struct are read for all records at once, skipping those where the struct is null.

Read row by row instead: fewer than ``_FEW`` records, the last items of the few lists that are longer than all
others, and a list column in which a record has more than ``_BLOCKS_MAX`` Avro blocks (Java and fastavro write
one).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, overload

import numpy as np
import pyarrow as pa

from mainstem.formats.avro_cursors import Cursors, branches, read_numbers
from mainstem.formats.avro_read_flat import FLAT, bitmap
from mainstem.formats.avro_rows import Malformed, reader_of
from mainstem.formats.avro_schema import AvroType, arrow_type

# With fewer records, the fixed cost of numpy and Arrow calls exceeds that of a plain loop.
_FEW = 20
# With fewer lists, a step over their next items costs more than a plain loop over them.
_LANES_MIN = 96
_BLOCKS_MAX = 4
_SIZES = {"boolean": 1, "float": 4, "double": 8}
_KEY = AvroType("string")


class _Irregular(Exception):
    """A valid list that reading in steps does not suit."""


@overload
def read_column(cursors: Cursors, kind: AvroType, wanted: Literal[True]) -> pa.Array: ...
@overload
def read_column(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None: ...
def read_column(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    """Decode one column for all records and move the cursors past it.

    Returns None if it is not ``wanted``. Damage raises ``Malformed``, ``IndexError`` or an Arrow error.
    """
    if cursors.rows < _FEW:
        return _read_rows(cursors, kind, wanted)
    if kind.kind == "record":
        return _read_record(cursors, kind, wanted)
    if kind.kind in ("array", "map"):
        return _read_list(cursors, kind, wanted)
    return (FLAT.get(kind.logical) or FLAT[kind.kind])(cursors, kind, wanted)


_reader = lru_cache(maxsize=1024)(reader_of)
_arrow_type = lru_cache(maxsize=1024)(arrow_type)


def _read_rows(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    """Read the column with a plain loop over the records."""
    read = _reader(kind)
    if not cursors.rows:
        return pa.array([], _arrow_type(kind)) if wanted else None
    base = int(cursors.at.min())
    data = cursors.chunk.raw[base : int(cursors.ends.max())].tobytes()
    live = [True] * cursors.rows if cursors.live is None else cursors.live.tolist()
    values, nexts = [], []
    for at, end, there in zip(
        (cursors.at - base).tolist(), (cursors.ends - base).tolist(), live, strict=True
    ):
        value, at = read(data, at, end) if there else (None, at)
        values.append(value)
        nexts.append(at)
    cursors.at = np.asarray(nexts, np.int64) + base
    return pa.array(values, _arrow_type(kind)) if wanted else None


def _read_record(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    around = cursors.live
    valid = branches(cursors, kind)
    if valid is not None and not valid.any():
        return pa.nulls(cursors.rows, _arrow_type(kind)) if wanted else None
    cursors.live = valid
    columns = [read_column(cursors, child, wanted) for _, child in kind.fields]
    cursors.live = around
    if not wanted:
        return None
    return pa.Array.from_buffers(_arrow_type(kind), cursors.rows, [bitmap(valid)], children=columns)


def _read_list(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    """Read a column of arrays or maps."""
    at = cursors.at
    try:
        valid = branches(cursors, kind)
        lengths, starts, ends = _items(cursors, _item_of(kind), valid)
    except _Irregular:
        cursors.at = at
        return _read_rows(cursors, kind, wanted)
    if not wanted:
        return None
    items = cursors.others(starts, ends)
    values = read_column(items, _item_of(kind), True)
    offsets = np.zeros(cursors.rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(
        _arrow_type(kind),
        cursors.rows,
        [bitmap(valid), pa.py_buffer(offsets)],
        children=[values],
    )


@lru_cache(maxsize=1024)
def _item_of(kind: AvroType) -> AvroType:
    if kind.kind == "array":
        return kind.fields[0][1]
    return AvroType("record", fields=(("key", _KEY), ("value", kind.fields[0][1])))


def _items(
    cursors: Cursors, item: AvroType, valid: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``(items per record, where each item begins, where the item's record ends)``.

    Moves the cursors past the lists.
    """
    lengths = np.zeros(cursors.rows, np.int64)
    blocks: list[tuple[np.ndarray, np.ndarray]] = []
    there = valid
    while True:
        counts = _block_counts(cursors, there)
        there = counts > 0
        if not there.any():
            break
        if len(blocks) == _BLOCKS_MAX:
            raise _Irregular
        blocks.append((counts, _walk(cursors, item, counts)))
        lengths += counts
    if not blocks:
        nothing = np.zeros(0, np.int64)
        return lengths, nothing, nothing
    starts = blocks[0][1] if len(blocks) == 1 else _merged(blocks)
    return lengths, starts, np.repeat(cursors.ends, lengths)


def _block_counts(cursors: Cursors, there: np.ndarray | None) -> np.ndarray:
    """Items in the next block of each list, 0 at the list's end; checked against the bytes left."""
    counts = read_numbers(cursors, there)
    negative = counts < 0
    if negative.any():  # Avro allows the block's size in bytes after a negative count
        read_numbers(cursors, negative)
        counts = np.abs(counts)
    left = cursors.ends - cursors.at
    # Every item of a supported type takes at least one byte; -2**63 stays negative.
    wrong = (counts > left) & (counts > 0) | (counts < 0)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise Malformed(f"{int(counts[row])} items where {int(left[row])} bytes are left")
    return counts


def _merged(blocks: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Starts of the items in all blocks, in the order of the records."""
    rows = np.concatenate([np.repeat(np.arange(len(c)), c) for c, _ in blocks])
    starts = np.concatenate([starts for _, starts in blocks])
    return starts[np.argsort(rows, kind="stable")]


def _walk(cursors: Cursors, item: AvroType, counts: np.ndarray) -> np.ndarray:
    """Where the next ``counts`` items of each record begin, in order; moves the cursors past them."""
    before = np.cumsum(counts) - counts
    starts = _even_starts(cursors, item, counts, before)
    if starts is not None:
        return starts
    rows = np.flatnonzero(counts)
    rows = rows[np.argsort(-counts[rows], kind="stable")]  # shorter lists come last
    longest, places = counts[rows], before[rows]
    step = cursors.others(cursors.at[rows], cursors.ends[rows])
    starts = np.empty(int(counts.sum()), np.int64)
    lanes = _lanes(longest)
    for k, active in enumerate(lanes):
        now = cursors.others(step.at[:active], step.ends[:active])
        starts[places[:active] + k] = now.at
        read_column(now, item, False)
        step.at[:active] = now.at
    _walk_rest(step, item, longest, places, len(lanes), starts)
    cursors.at = cursors.at.copy()
    cursors.at[rows] = step.at
    return starts


def _lanes(longest: np.ndarray) -> list[int]:
    """How many lists have a first, second, ... item, for as long as there are at least ``_LANES_MIN``."""
    steps = int(longest[_LANES_MIN - 1]) if len(longest) >= _LANES_MIN else 0
    return np.searchsorted(-longest, -np.arange(steps), "left").tolist()


def _walk_rest(
    step: Cursors,
    item: AvroType,
    longest: np.ndarray,
    places: np.ndarray,
    done: int,
    starts: np.ndarray,
) -> None:
    """Read the items that the steps did not reach, with a plain loop."""
    few = int(np.searchsorted(-longest, -done, "left"))
    if not few:
        return
    read = _reader(item)
    base = int(step.at[:few].min())
    data = step.chunk.raw[base : int(step.ends[:few].max())].tobytes()
    for row in range(few):
        at, end, found = int(step.at[row]) - base, int(step.ends[row]) - base, []
        for _ in range(int(longest[row]) - done):
            found.append(at)
            at = read(data, at, end)[1]
        place = int(places[row]) + done
        starts[place : place + len(found)] = np.asarray(found, np.int64) + base
        step.at[row] = at + base


def _even_starts(
    cursors: Cursors, item: AvroType, counts: np.ndarray, before: np.ndarray
) -> np.ndarray | None:
    """The starts if all items have the same number of bytes and none is null, else None."""
    size = item.size if item.kind == "fixed" else _SIZES.get(item.kind)
    if size is None:
        return None
    size += item.nullable
    if (counts * size > cursors.ends - cursors.at).any():
        return None
    starts = np.repeat(cursors.at - size * before, counts) + size * np.arange(int(counts.sum()))
    if item.nullable:
        tags = cursors.gather("u1", starts)
        if (tags != item.value_tag).any():
            return None
    cursors.at = cursors.at + size * counts
    return starts
