"""Merges a file slice whose files are all sorted by record key (``lsm_tree``), for compaction.

Base file and native log files are read side by side, a batch of each in memory. What lies below the smallest
of the batches' last keys is known from every file; it is merged as a slice of its own and comes out in the
order of keys. So memory depends neither on the slice nor on its logs, nothing is read twice, and no table of
all keys is built.

Nothing marks a file as sorted (RFC-103 has a property of the table only), and what lies at the wrong place
would be merged with nothing. So each key is compared with the one before it, as bytes of UTF-8.

Hudi: ``LsmFileGroupRecordIterator``, which does not look.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from mainstem.formats.log_file import BlockKind, LogBlock
from mainstem.formats.lsm_order import is_in_order, sorted_by_key
from mainstem.formats.native_log import NativeBlock
from mainstem.limits import KIB
from mainstem.merge.file_slice import merge_slice
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.log_rows import entries_of, live_blocks
from mainstem.readers.rows.native_logs import NativeRows
from mainstem.readers.rows.slice_query import SliceQuery
from mainstem.readers.rows.split import base_tables
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

# Of the memory limit, batches may take this share (1/n): windows are cut out of them and merged meanwhile.
_SHARE = 4
_BATCH_BYTES_MIN = 64 * KIB


class Unsorted(Exception):
    """A file of a slice is not sorted by record key."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def merges_sorted(split: SliceQuery, memory_bytes: int) -> bool:
    """Whether ``read_sorted`` can read the slice: its log files are all native, and not too many for the
    memory."""
    spec = split.spec
    native = all(map(paths.is_native_log, split.log_files))
    fits = (len(split.log_files) + 1) * _BATCH_BYTES_MIN <= memory_bytes // _SHARE
    return native and spec.ids is None and not spec.virtual_key and fits


def read_sorted(
    storage: Storage, split: SliceQuery, memory_bytes: int, seen: Callable[[LogBlock], None] | None = None
) -> Iterator[pa.Table]:
    """The rows of ``read_bounded``, ascending by record key, of a slice that ``merges_sorted``.

    Raises ``Unsorted`` where a file turns out not to be sorted, maybe after some rows; and what
    ``read_bounded`` raises.
    """

    def kept(block: LogBlock) -> NativeBlock:
        if seen is not None:
            seen(block)
        assert isinstance(block, NativeBlock)
        return block

    blocks = [(path, block) for path, block in live_blocks(storage, split, kept)]
    batch = max(_BATCH_BYTES_MIN, memory_bytes // _SHARE // (len(blocks) + 1))
    with ExitStack() as stack:
        sources = []
        for path, block in blocks:
            batches = _batches(split, block, batch)
            stack.callback(batches.close)
            sources.append(_Source(path, batches, block))
        if split.base_file is not None:
            whole = base_tables(storage, split, merged=True, batch_bytes=batch)
            sources.insert(0, _Source(split.base_file, whole))
        for window in _windows(sources):
            yield from _merged(window, split, batch)


def _batches(split: SliceQuery, block: NativeBlock, batch: int) -> Generator[pa.Table, None, None]:
    """The rows of a native log file, in the columns that the merge asks for."""
    rows = block.rows
    assert isinstance(rows, NativeRows)
    deletes = block.kind is BlockKind.DELETE  # whose columns say what they are ordered by
    names = list(rows.names) if deletes else block.columns(split.spec.wanted)
    with rows.opened() as file:
        yield from file.batches(names, block.groups, batch_bytes=batch)


@dataclass
class _Source:
    """A sorted file: its rows that were read and not merged yet. ``block``: None for the base file."""

    path: str
    batches: Iterator[pa.Table]
    block: NativeBlock | None = None
    held: pa.Table | None = None
    done: bool = False
    _few: int = 0
    _keys: pa.ChunkedArray = field(default_factory=lambda: pa.chunked_array([], pa.string()))

    @property
    def last(self) -> str:
        """The last key that was read."""
        return str(self._keys[-1].as_py())

    def fill(self) -> None:
        """Read on until there are enough rows and two keys, so that a window can end between them."""
        while not self.done and (
            len(self._keys) <= self._few or self._keys[0].as_py() == self._keys[-1].as_py()
        ):
            batch = next(self.batches, None)
            if batch is None:
                self.done = True
                return
            if batch.num_rows:
                self._add(batch)

    def _add(self, batch: pa.Table) -> None:
        keys = batch.column(KEY_COLUMN)
        keys = keys if keys.type == pa.string() else keys.cast(pa.string())
        before = [self._keys[-1].as_py()] if len(self._keys) else []
        every = pa.chunked_array([pa.array(before, pa.string()), *keys.chunks]).combine_chunks()
        every = every if isinstance(every, pa.Array) else pa.concat_arrays(every.chunks)
        if every.null_count or not is_in_order(every):
            raise Unsorted(self.path)
        self.held = batch if self.held is None else pa.concat_tables([self.held, batch])
        self._keys = pa.chunked_array([*self._keys.chunks, *keys.chunks], pa.string())
        self._few = batch.num_rows // 2

    def cut(self, bound: str | None) -> pa.Table | None:
        """Take out the rows with keys below ``bound``, None: all; None where there are none."""
        if self.held is None:
            return None
        count = len(self._keys) if bound is None else _below(self._keys, bound)
        if not count:
            return None
        found, rest = self.held.slice(0, count), self.held.slice(count)
        self.held, self._keys = (rest, self._keys.slice(count)) if rest.num_rows else (None, self._keys[:0])
        return found


def _below(keys: pa.ChunkedArray, bound: str) -> int:
    """Number of keys that are less; Python compares texts by code points, which is the order of UTF-8."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < bound:
            low = middle + 1
        else:
            high = middle
    return low


Window = list[tuple[_Source, pa.Table]]


def _windows(sources: Sequence[_Source]) -> Iterator[Window]:
    """Rows with the same keys from all files, ascending."""
    while True:
        for source in sources:
            source.fill()
        bound = min((source.last for source in sources if not source.done), default=None)
        window = [(source, table) for source in sources if (table := source.cut(bound)) is not None]
        if window:
            yield window
        if bound is None:
            return


def _merged(window: Window, split: SliceQuery, run_bytes: int) -> Iterator[pa.Table]:
    spec = split.spec
    base = [table for source, table in window if source.block is None]
    logs = [(source.path, source.block, table) for source, table in window if source.block is not None]
    entries = [
        entry
        for path, block, table in logs
        for entry in entries_of([(path, replace(block, rows=_Held(table), groups=(0,)))], spec)
    ]
    merged = merge_slice(
        base, entries, spec.read_schema, spec.rules, spec.ordering_types, run_bytes=run_bytes
    )
    found = [table.select(list(spec.columns)) for table in merged if table.num_rows]
    if not found:
        return
    rows = pa.concat_tables(found)
    if len(window) > 1:
        rows = _in_order(rows)
    yield rows


def _in_order(rows: pa.Table) -> pa.Table:
    keys = rows.column(KEY_COLUMN).combine_chunks()
    keys = keys if isinstance(keys, pa.Array) else pa.concat_arrays(keys.chunks)
    return rows if is_in_order(keys) else sorted_by_key(rows)


@dataclass(frozen=True)
class _Held:
    """Rows of a native log file that are in memory (``formats.native_log.Rows``)."""

    table: pa.Table

    @property
    def names(self) -> list[str]:
        return self.table.column_names

    @property
    def groups(self) -> tuple[int, ...]:
        return (self.table.num_rows,)

    @property
    def size(self) -> int:
        return int(self.table.nbytes)

    def read(self, names: Sequence[str], groups: Sequence[int]) -> pa.Table:
        there = set(self.names)
        return self.table.select([name for name in names if name in there])

    def taken(self, names: Sequence[str], groups: Sequence[int], rows: np.ndarray) -> pa.Table:
        return self.read(names, groups).take(pa.array(rows))
