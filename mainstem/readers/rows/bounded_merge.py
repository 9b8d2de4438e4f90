"""Merges a whole file slice within a memory limit, however large the slice is (for compaction).

If the log rows fit, they are merged as in any query. Otherwise record keys are divided by a hash into classes
that fit. For one class after another, only keys and ordering values of log and base are read and folded.
The result is one bit per stored row: whether it is emitted. Then base file and log blocks are read again, a
piece at a time: base rows first, in their order, just as in memory. If an emitted row may combine several
stored rows (partial updates, registered mergers), whole rows are merged class by class instead.

Log files are mapped piece by piece, so that pages already read do not stay in this process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.base_file import in_pieces
from mainstem.formats.log_file import BlockKind, LogBlock
from mainstem.formats.native_log import NativeBlock
from mainstem.formats.record_starts import framed_starts
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.buckets import java_string_hash
from mainstem.limits import MIB
from mainstem.merge.file_slice import joined, merge_slice, probe, written_out
from mainstem.merge.fold import fold, positions
from mainstem.merge.in_place import Updates
from mainstem.merge.log_entries import DataRows, Entry, chosen, entry_keys
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.base_rows import BaseFile, open_base, open_base_of
from mainstem.readers.rows.log_rows import Run, entries_of, joinable, live_blocks
from mainstem.readers.rows.slice_query import SliceQuery
from mainstem.readers.rows.split import base_groups, base_tables
from mainstem.storage import maps
from mainstem.storage.protocol import Storage

# Share of the memory limit that log rows, or the keys of one class, may take during the merge.
_LOG_SHARE = 0.35
# What one log row takes during the merge in addition to its decoded columns: keys, codes, positions.
_BYTES_PER_KEY = 250
# Decoded bytes per byte of a block: Avro's numbers are short, parquet blocks are compressed.
_AVRO_GROWS, _PARQUET_GROWS = 2, 8
_BYTES_PER_ROW_MIN = 32
# Log blocks are decoded in pieces of this many bytes, or fewer if the memory limit is low.
_PIECE_BYTES = 16 * MIB
_PIECES_PER_BOUND = 32
# How often base rows are compared with the logs' keys, row group by row group, for each base row at most.
_PROBES_PER_ROW = 4
_NUMBER = "\0number"


def read_bounded(
    storage: Storage, split: SliceQuery, memory_bytes: int, seen: Callable[[LogBlock], None] | None = None
) -> Iterator[pa.Table]:
    """Same rows as ``read_split``, within about ``memory_bytes`` of memory.

    The query must have no filter and no range of instants. ``seen`` is called for every log block before the
    first rows come. Raises what ``read_split`` raises.
    """
    yield from _bounded(_log(storage, split, memory_bytes, seen), memory_bytes)


@dataclass(frozen=True)
class Updated:
    """Rows of a slice whose keys its base file has, in their places, or that it lacks.

    ``known``: so many of the first rows' keys are in the base file ``older``; ``same``: the rows are those of
    this row group of it, with newer values. ``older`` is None in a slice where rows do not keep their places.
    """

    rows: pa.Table
    older: BaseFile | None = None
    known: int = 0
    same: int | None = None


def read_updated(
    storage: Storage,
    split: SliceQuery,
    memory_bytes: int,
    group_bytes: int,
    seen: Callable[[LogBlock], None] | None = None,
) -> Iterator[Updated]:
    """Same rows as ``read_bounded``, as row groups of up to about ``group_bytes`` if they keep their places.

    They do where the logs only update and insert. Raises ``KeyTwice`` if the base file turns out to have keys
    twice, and what ``read_bounded`` raises.
    """
    log, spec = _log(storage, split, memory_bytes, seen), split.spec
    keeps = split.base_file is not None and not spec.virtual_key and spec.ids is None and not log.partial
    if not keeps or not log.pieces or not log.fits(int(memory_bytes * _LOG_SHARE)):
        yield from (Updated(table) for table in _bounded(log, memory_bytes))
        return
    entries = [entry for piece in log.pieces for entry in log.entries(piece, split)]
    updates = Updates.of(entries, spec.read_schema, spec.rules, spec.ordering_types)
    with open_base_of(storage, split) as base:
        about = base.source.metadata
        # Each row group is looked through for all keys of the logs.
        if updates is None or updates.key_count * base.group_count > _PROBES_PER_ROW * about.num_rows:
            some = [entry for entry in entries if _length(entry)]
            tables = (table for _, table in base_groups(base, split, merged=bool(some)))
            found = _onto(tables, some, split, int(memory_bytes * _LOG_SHARE))
            yield from (Updated(table) for table in _selected(split, found))
            return
        del entries
        yield from _updated(base, split, updates, group_bytes)


def _updated(base: BaseFile, split: SliceQuery, updates: Updates, group_bytes: int) -> Iterator[Updated]:
    """Row groups of an open base file, updated; rows that it lacks come last, in a group of theirs if the
    last one would become too large."""
    names = list(split.spec.columns)
    last: Updated | None = None
    for number, table, whole in _gathered(base, split, group_bytes):
        if last is not None:
            yield last
        rows = updates.over(table).select(names)
        last = Updated(rows, base, rows.num_rows, number if whole else None)
    rest = updates.rest().select(names)
    if last is not None and rest.num_rows and written_out(last.rows) + rest.nbytes <= group_bytes:
        rows = pa.concat_tables([project_to(last.rows, rest.schema), rest])
        last, rest = Updated(rows, base, last.known), rest.slice(0, 0)
    if last is not None:
        yield last
    yield from (Updated(part, base) for part in in_pieces([rest], group_bytes))


def _gathered(base: BaseFile, split: SliceQuery, group_bytes: int) -> Iterator[tuple[int, pa.Table, bool]]:
    """Base rows, a row group at a time, or less of one that is too large; whether it is the whole of it."""
    run: list[pa.Table] = []
    size, begun = 0, False
    at = -1
    for number, table in base_groups(base, split, merged=True):
        more = written_out(table)
        if run and (number != at or size + more > group_bytes):
            yield at, pa.concat_tables(run), number != at and not begun
            run, size, begun = [], 0, number == at
        at = number
        run.append(table)
        size += more
    if run:
        yield at, pa.concat_tables(run), not begun


def _log(
    storage: Storage, split: SliceQuery, memory_bytes: int, seen: Callable[[LogBlock], None] | None
) -> _Log:
    return _Log.of(storage, split, max(1, min(_PIECE_BYTES, memory_bytes // _PIECES_PER_BOUND)), seen)


def _bounded(log: _Log, memory_bytes: int) -> Iterator[pa.Table]:
    share, split = int(memory_bytes * _LOG_SHARE), log.split
    one_stored_row = split.spec.rules.partial is None and split.spec.rules.merger is None
    if log.fits(share):
        found = _by_class(log, share, 1)
    elif one_stored_row and not log.partial:
        found = _decided(log, share)
    else:
        # While rows are overlaid, the columns exist twice.
        needed = 2 * log.decoded_bytes + log.rows * _BYTES_PER_KEY
        found = _by_class(log, share, -(-needed // share))
    yield from _selected(split, found)


def _selected(split: SliceQuery, found: Iterable[pa.Table]) -> Iterator[pa.Table]:
    return (table.select(list(split.spec.columns)) for table in found if table.num_rows)


@dataclass(frozen=True)
class _Part:
    """Records of one block that are decoded together; ``records`` None: all of the block's content."""

    path: str
    block: LogBlock
    begin: int
    end: int
    records: int | None = None

    def load(self, storage: Storage) -> tuple[str, LogBlock]:
        """The block with this part's content, from a mapping of its own."""
        if isinstance(self.block, NativeBlock):  # reads its rows itself
            return self.path, self.block
        start = self.block.content_offset
        content = maps.part(storage, self.path, start + self.begin, start + self.end)
        if self.records is None:
            return self.path, replace(self.block, content=content)
        head = maps.part(storage, self.path, start, start + 4)
        content = memoryview(b"".join((head, struct.pack(">i", self.records), content)))
        return self.path, replace(self.block, content=content, content_offset=start + self.begin - 8)


Piece = list[_Part]


@dataclass(frozen=True)
class _Log:
    """The log side of a slice: the pieces that are decoded together, and an estimate of their size."""

    storage: Storage
    split: SliceQuery
    pieces: list[Piece]
    rows: int
    decoded_bytes: int
    partial: bool

    @classmethod
    def of(
        cls,
        storage: Storage,
        split: SliceQuery,
        piece_bytes: int,
        seen: Callable[[LogBlock], None] | None = None,
    ) -> _Log:
        def released(block: LogBlock) -> tuple[LogBlock, int, int]:
            if seen is not None:
                seen(block)
            return _released(block)

        rows = decoded = 0
        partial = False
        parts: list[_Part] = []
        for path, (block, size, count) in live_blocks(storage, split, released):
            rows += count
            decoded += size * (_PARQUET_GROWS if block.kind is BlockKind.PARQUET_DATA else _AVRO_GROWS)
            partial = partial or block.partial
            parts += _parts(storage, _Part(path, block, 0, size), piece_bytes)
        join = split.spec.ids is None
        return cls(storage, split, list(_pieces(parts, piece_bytes, join)), rows, decoded, partial)

    def fits(self, share: int) -> bool:
        """Whether all log rows can be merged at once."""
        return self.decoded_bytes + self.rows * _BYTES_PER_KEY <= share

    def entries(self, piece: Piece, split: SliceQuery) -> list[Entry]:
        """The merge entries of a piece, with the columns of ``split``."""
        run: Run = [part.load(self.storage) for part in piece]
        return entries_of(run, split.spec)


def _released(block: LogBlock) -> tuple[LogBlock, int, int]:
    """The block without its content, the content's size in bytes, and an upper estimate of its rows."""
    if isinstance(block, NativeBlock):
        return block, block.size, block.row_count
    size = len(block.content)
    rows = size // _BYTES_PER_ROW_MIN
    if block.kind is BlockKind.AVRO_DATA:
        rows = min(block.records()[1], rows)
    return replace(block, content=memoryview(b"")), size, rows


def _parts(storage: Storage, whole: _Part, piece_bytes: int) -> list[_Part]:
    """Splits a large Avro block at record boundaries, a native log file into its row groups; other blocks are
    decoded whole."""
    if isinstance(whole.block, NativeBlock):
        groups = whole.block.groups
        size = whole.end // max(1, len(groups))
        return [_Part(whole.path, replace(whole.block, groups=(number,)), 0, size) for number in groups]
    if whole.block.kind is not BlockKind.AVRO_DATA or whole.end <= 2 * piece_bytes:
        return [whole]
    block = whole.load(storage)[1]
    data, count = block.records()
    try:
        starts = framed_starts(data, count)
    except Malformed as error:
        raise CorruptTable(
            f"a damaged Avro log block: {error}; restore the file from a copy",
            path=whole.path,
            offset=block.content_offset + 8,
        ) from None
    ends = np.unique(np.searchsorted(starts, np.arange(piece_bytes, len(data), piece_bytes)))
    cuts = [0, *(int(n) for n in ends if 0 < n < count), count]
    return [
        replace(whole, begin=8 + int(starts[a]), end=8 + int(starts[b]), records=b - a)
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]


def _pieces(parts: Sequence[_Part], piece_bytes: int, join: bool) -> Iterator[Piece]:
    piece: Piece = []
    size = 0
    for part in parts:
        more = part.end - part.begin
        if piece and not (join and size + more <= piece_bytes and joinable(piece[-1].block, part.block)):
            yield piece
            piece, size = [], 0
        piece.append(part)
        size += more
    if piece:
        yield piece


def _class_of(keys: pa.ChunkedArray, classes: int) -> np.ndarray:
    """Class of each key. All keys of a file group share Java's hash modulo the number of buckets, so the
    hash's bits are mixed first (Murmur's finalizer)."""
    found = [java_string_hash(chunk) for chunk in keys.chunks]
    mixed = np.concatenate(found) if found else np.zeros(0, np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return (mixed.astype(np.uint64) * np.uint64(classes)) >> np.uint64(32)


# -- each emitted row is one stored row -----------------------------------------------------------------


def _decided(log: _Log, share: int) -> Iterator[pa.Table]:
    storage, split = log.storage, log.split
    keep = np.ones(_base_rows(storage, split), bool)
    winners: list[np.ndarray] = []
    classes = -(-log.rows * _BYTES_PER_KEY // share)
    for number in range(classes):
        winners.append(_decide(log, number, classes, keep, share))
    schema = split.spec.read_schema
    first = 0
    for table in base_tables(storage, split, merged=False):
        mask = keep[first : first + table.num_rows]
        first += table.num_rows
        yield project_to(table if mask.all() else table.filter(pa.array(mask)), schema)
    emitted = np.sort(np.concatenate(winners))
    first = 0
    for piece in log.pieces:
        for entry in log.entries(piece, split):
            count = _length(entry)
            low, high = np.searchsorted(emitted, (first, first + count))
            if isinstance(entry, DataRows) and high > low:
                yield project_to(entry.table.take(pa.array(emitted[low:high] - first)), schema)
            first += count


def _decide(log: _Log, number: int, classes: int, keep: np.ndarray, share: int) -> np.ndarray:
    """Positions of one class's log rows that are emitted; clears the bits in ``keep`` of base rows that are
    not."""
    rules = log.split.spec.rules
    narrow = replace(log.split, spec=replace(log.split.spec, columns=()))
    kinds = narrow.spec.ordering_types
    entries, where = _narrow_entries(log, narrow, number, classes, share // _BYTES_PER_KEY)
    if not entries:
        return np.zeros(0, np.int64)
    found = positions(entries, rules, kinds)
    folded = fold(found)
    emit = ~folded.is_delete
    tables = joined(_numbered(log.storage, narrow, number, classes), found, bytes_max=share // 4)
    for table in tables:
        code, hit, wins = probe(table, found, folded, rules)
        if code is not None:
            emit[code[~wins]] = False
            keep[table.column(_NUMBER).to_numpy()[hit[wins]]] = False
    return np.concatenate(where)[folded.winner[emit]]


def _narrow_entries(
    log: _Log, narrow: SliceQuery, number: int, classes: int, rows_max: int
) -> tuple[list[Entry], list[np.ndarray]]:
    """Entries of one class (keys and ordering values only), and their rows' positions among all log rows.

    A class that grows too large (many updates of few keys) is folded on the way.
    """
    entries: list[Entry] = []
    where: list[np.ndarray] = []
    first = rows = left = 0
    for piece in log.pieces:
        for entry in log.entries(piece, narrow):
            mask = _class_of(entry_keys(entry), classes) == number
            at = first + np.flatnonzero(mask)
            first += len(mask)
            if len(at):
                entries.append(chosen(entry, mask))
                where.append(at)
                rows += len(at)
        if rows > max(rows_max, 2 * left):
            entries, where = _folded(entries, where, narrow)
            rows = left = sum(map(len, where))
    return entries, where


def _folded(
    entries: list[Entry], where: list[np.ndarray], narrow: SliceQuery
) -> tuple[list[Entry], list[np.ndarray]]:
    """Only the winners so far: later entries of a key compete with the winner alone. Of an LSM tree also the
    deletes without ordering values, which decide whether the base file's row takes part."""
    found = positions(entries, narrow.spec.rules, narrow.spec.ordering_types)
    wins = np.zeros(len(found.codes), bool)
    wins[fold(found).winner] = True
    if found.rules.one_by_one:
        last = np.full(found.key_count, -1, np.int64)
        resets = np.flatnonzero(found.unconditional)
        last[found.codes[resets]] = resets
        wins[last[last >= 0]] = True
    masks = [wins[a:b] for a, b in zip(found.starts[:-1], found.starts[1:], strict=True)]
    kept = [(e, w, m) for e, w, m in zip(entries, where, masks, strict=True) if m.any()]
    return [chosen(e, m) for e, _, m in kept], [w[m] for _, w, m in kept]


def _numbered(storage: Storage, narrow: SliceQuery, number: int, classes: int) -> Iterator[pa.Table]:
    """Base rows of one class: keys, ordering values and row numbers in the file."""
    first = 0
    for table in base_tables(storage, narrow, merged=True):
        numbers = pa.array(np.arange(first, first + table.num_rows))
        first += table.num_rows
        mask = _class_of(table.column(KEY_COLUMN), classes) == number
        yield table.append_column(_NUMBER, numbers).filter(pa.array(mask))


def _base_rows(storage: Storage, split: SliceQuery) -> int:
    if split.base_file is None:
        return 0
    with open_base(storage, split.base_file) as base:
        return base.source.metadata.num_rows


def _length(entry: Entry) -> int:
    return entry.table.num_rows if isinstance(entry, DataRows) else len(entry.keys)


# -- emitted rows combine whole rows --------------------------------------------------------------------


def _by_class(log: _Log, share: int, classes: int) -> Iterator[pa.Table]:
    split = log.split
    for number in range(classes):
        entries = [
            entry if classes == 1 else chosen(entry, _class_of(entry_keys(entry), classes) == number)
            for piece in log.pieces
            for entry in log.entries(piece, split)
        ]
        entries = [entry for entry in entries if _length(entry)]
        base = base_tables(log.storage, split, merged=classes > 1 or bool(entries))
        if classes > 1:
            base = (
                table.filter(pa.array(_class_of(table.column(KEY_COLUMN), classes) == number))
                for table in base
            )
        yield from _onto(base, entries, split, share)


def _onto(
    base: Iterable[pa.Table], entries: Sequence[Entry], split: SliceQuery, share: int
) -> Iterator[pa.Table]:
    spec = split.spec
    return merge_slice(
        base, entries, spec.read_schema, spec.rules, spec.ordering_types, run_bytes=share // 4
    )
