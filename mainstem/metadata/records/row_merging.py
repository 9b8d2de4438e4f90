"""Merges rows of the metadata table: which row counts if base file and log blocks have several for one key.

The rules are those of ``HoodieMetadataPayload.combineWith`` in Hudi 1.2. Log blocks come in order, later ones
are newer:

* a delete (an entry of a DELETE block) wins over older rows and loses to newer ones;
* FILES: the union of both sets of names. A tombstone on a live name removes the name *and itself*, any other
  tombstone stays; a live name on a live one or on a tombstone is live with the larger size;
* STATS: a row that is ``deleted`` or ``tight`` replaces an older row, and any row replaces a deleted one;
  otherwise bounds widen, counts and sizes are added, and everything else is the newer row's;
* BLOOM, RECORDS, SECONDARY: the newer row.

All log blocks are merged first, and their result is then merged onto the base file. Therefore a file in the
base must never be named again in the logs before its tombstone: name and tombstone would cancel each other
there, and the base's entry would be live again. Nor does a tight row in the logs keep a later loose one there
from being merged with the base's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.metadata.records.widening import widened


@dataclass(frozen=True)
class Block:
    """Rows of a base file or of consecutive HFILE blocks, or the keys of a DELETE block.

    ``joined``: the rows come from several blocks, so a key may occur several times.
    """

    rows: pa.Table | None = None
    deletes: pa.Array | None = None
    joined: bool = False

    @property
    def count(self) -> int:
        """The number of rows, or of deleted keys."""
        return sum(len(held) for held in (self.rows, self.deletes) if held is not None)


@dataclass(frozen=True)
class Merged:
    """One row per key (FILES: per key and name), tombstones included; ``deletes``: keys whose newest event is
    a delete, which also removes everything older than these blocks."""

    rows: pa.Table
    deletes: pa.Array


def merge(content: Content, base: pa.Table | None, logs: Sequence[Block]) -> pa.Table:
    """Rows of a file slice, each key once, tombstones included (``shown`` removes them).

    ``logs`` are all blocks that count, in merge order.
    """
    folded = fold(content, logs)
    if base is None or not len(base):
        return folded.rows
    if not len(folded.rows) and not len(folded.deletes):
        return base
    if len(folded.deletes):
        base = base.filter(pc.invert(pc.is_in(base["key"], value_set=folded.deletes)))
    return fold(content, [Block(rows=base), Block(rows=folded.rows)]).rows


def shown(content: Content, rows: pa.Table) -> pa.Table:
    """The rows without tombstones, and without the rows of ``files`` that hold no name."""
    if content == Content.RECORDS:
        return rows
    live = pc.invert(rows["deleted"])
    return rows.filter(pc.and_(live, pc.is_valid(rows["name"])) if content == Content.FILES else live)


def fold(content: Content, blocks: Sequence[Block]) -> Merged:
    """Merge the blocks with each other, oldest first."""
    blocks = [b for b in blocks if b.count]
    events = _Events(content, blocks)
    alone = len(blocks) == 1 and not blocks[0].joined
    if alone and (rows := blocks[0].rows) is not None and content != Content.FILES:
        return Merged(rows, events.no_keys)  # within a file, keys do not repeat
    if content == Content.FILES:
        return _fold_files(events)
    if content == Content.STATS:
        return _fold_stats(events)
    last = events.last_of_each()
    return Merged(events.take(last), events.deleted_keys(last))


class _Events:
    """Rows and deletes of all blocks in sequence: event ``i`` is row ``place[i]`` of ``rows``, or a delete if
    that is -1. ``codes`` numbers the keys."""

    def __init__(self, content: Content, blocks: Sequence[Block]) -> None:
        empty = SCHEMAS[content].empty_table()
        self.rows = pa.concat_tables([empty, *(b.rows for b in blocks if b.rows is not None)])
        keys, places, count = [], [], 0
        for block in blocks:
            if block.rows is not None:
                keys += block.rows["key"].chunks
                places.append(np.arange(count, count + len(block.rows)))
                count += len(block.rows)
            elif block.deletes is not None:
                keys.append(block.deletes.cast(pa.string()))
                places.append(np.full(len(block.deletes), -1))
        coded = pa.chunked_array(keys, pa.string()).dictionary_encode().combine_chunks()
        self.no_keys = pa.array([], pa.string())
        self.names = coded.dictionary if keys else self.no_keys
        self.codes = coded.indices.to_numpy() if keys else np.zeros(0, np.int32)
        self.place = np.concatenate(places) if places else np.zeros(0, np.int64)

    def last_of_each(self) -> np.ndarray:
        """The newest event of each key."""
        last = np.zeros(len(self.names), np.int64)
        last[self.codes] = np.arange(len(self.codes))  # for repeated codes numpy keeps the last
        return np.sort(last)

    def take(self, events: np.ndarray) -> pa.Table:
        """The rows of those events that are not deletes."""
        places = self.place[events]
        return self.rows.take(pa.array(places[places >= 0]))

    def deleted_keys(self, last: np.ndarray) -> pa.Array:
        """The keys of those events that are deletes."""
        return self.names.take(pa.array(self.codes[last[self.place[last] < 0]]))


# ---------------------------------------------------------------------------------------------- files


_NONE, _LIVE, _TOMBSTONE = 0, 1, 2


def _fold_files(events: _Events) -> Merged:
    """Keep what is newer than each key's last delete, then apply the events of each name in turn."""
    last = events.last_of_each()
    place, codes = events.place, events.codes
    newest_delete = np.full(len(events.names), -1)
    deletes = np.flatnonzero(place < 0)
    newest_delete[codes[deletes]] = deletes
    counts = (place >= 0) & (np.arange(len(place)) > newest_delete[codes])
    codes, rows = codes[counts], events.rows.take(pa.array(place[counts]))
    named = pc.is_valid(rows["name"]).combine_chunks().to_numpy(zero_copy_only=False)
    made = _names_folded(codes[named], rows.filter(pa.array(named)), events.names)
    empty = np.setdiff1d(codes, np.unique(pc.index_in(made["key"].unique(), value_set=events.names)
                                          .to_numpy(zero_copy_only=False)))  # fmt: skip
    nothing = pa.Table.from_arrays(
        [events.names.take(pa.array(empty)), pa.nulls(len(empty), pa.string()),
         pa.array(np.zeros(len(empty), np.int64)), pa.array(np.zeros(len(empty), bool))],
        schema=SCHEMAS[Content.FILES],
    )  # fmt: skip
    return Merged(pa.concat_tables([made, nothing]), events.deleted_keys(last))


def _names_folded(codes: np.ndarray, rows: pa.Table, keys: pa.Array) -> pa.Table:
    names = rows["name"].dictionary_encode().combine_chunks()
    if not len(rows):
        return rows
    pairs = codes.astype(np.int64) * len(names.dictionary) + names.indices.to_numpy()
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    first = np.flatnonzero(np.append(True, pairs[1:] != pairs[:-1]))
    counts = np.diff(np.append(first, len(pairs)))
    tombstones = rows["deleted"].combine_chunks().to_numpy(zero_copy_only=False)[order]
    sizes = rows["size"].combine_chunks().to_numpy()[order]
    state, size = _states(first, counts, tombstones, sizes)
    kept = np.flatnonzero(state != _NONE)
    pair = pairs[first[kept]]
    return pa.Table.from_arrays(
        [keys.take(pa.array(pair // len(names.dictionary))),
         names.dictionary.take(pa.array(pair % len(names.dictionary))),
         pa.array(size[kept]), pa.array(state[kept] == _TOMBSTONE)],
        schema=SCHEMAS[Content.FILES],
    )  # fmt: skip


def _states(
    first: np.ndarray, counts: np.ndarray, tombstones: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """State and size of each name after all its events: applies every name's first, then the second..."""
    state, size = np.zeros(len(first), np.int8), np.zeros(len(first), np.int64)
    for step in range(int(counts.max())):
        who = np.flatnonzero(counts > step)
        at = first[who] + step
        was, dead = state[who], tombstones[at]
        state[who] = np.where(dead, np.where(was == _LIVE, _NONE, _TOMBSTONE), _LIVE)
        larger = np.maximum(np.where(was == _NONE, 0, size[who]), sizes[at])
        size[who] = np.where(dead, sizes[at], larger)
    return state, size


# --------------------------------------------------------------------------------------------- statistics


def _fold_stats(events: _Events) -> Merged:
    last = events.last_of_each()
    order = np.argsort(events.codes, kind="stable")
    codes, place = events.codes[order], events.place[order]
    if not len(order):
        return Merged(events.rows, events.no_keys)
    gone = np.append(events.rows["deleted"].combine_chunks().to_numpy(zero_copy_only=False), True)[place]
    tight = np.append(events.rows["tight"].combine_chunks().to_numpy(zero_copy_only=False), False)[place]
    first = np.append(True, codes[1:] != codes[:-1])
    begins = first | gone | tight | np.append(False, gone[:-1])
    ends = np.flatnonzero(np.append(first[1:], True))
    from_ = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))[ends]
    alone = (from_ == ends) & (place[ends] >= 0)
    single = events.rows.take(pa.array(place[ends[alone]]))
    several = np.flatnonzero(from_ < ends)
    deleted = events.deleted_keys(last)
    if not len(several):
        return Merged(single, deleted)
    sizes = (ends - from_ + 1)[several]
    groups = np.repeat(np.arange(len(several)), sizes)
    within = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = events.rows.take(pa.array(place[np.repeat(from_[several], sizes) + within]))
    return Merged(pa.concat_tables([single, widened(rows, groups)]), deleted)
