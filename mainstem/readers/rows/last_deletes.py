"""Which keys the logs of a file slice delete last, with ordering values: what a base file cannot say.

Read by columns, and only keys, ordering values and marks of deletes. Of a log with many rows only the entries
of keys that are deleted somewhere are kept, so memory grows with the number of deletes. Where no row can be
marked as a delete, delete blocks are read first, and the rows only if some have ordering values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.log_file import BlockKind, LogBlock, replaced_by
from mainstem.formats.native_log import NativeBlock
from mainstem.merge.fold import fold, ordering_at, positions
from mainstem.merge.log_entries import DataRows, DeletedKeys, Entry, deleted_rows, entry_keys
from mainstem.merge.rules import MergeRules, marks_deletes
from mainstem.readers.rows.log_rows import Run, entries_of, log_runs
from mainstem.readers.rows.slice_query import SliceQuery
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

# What an entry takes in memory: its key, ordering values and place.
_BYTES_PER_ENTRY = 250
# Entries of a log within this share (1/n) of the memory are decoded once, otherwise twice.
_SHARE = 4


@dataclass(frozen=True)
class LastDeletes:
    """Keys, their ordering values (one array per field), and for each key two instants: ``places``, at which
    readers apply the delete, and ``blocks``, that of the block which holds it."""

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    places: np.ndarray
    blocks: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def chosen(self, mask: np.ndarray) -> LastDeletes:
        """Those where the mask is set."""
        wanted = pa.array(mask, pa.bool_())
        ordering = tuple(values.filter(wanted) for values in self.ordering)
        return LastDeletes(self.keys.filter(wanted), ordering, self.places[mask], self.blocks[mask])


@dataclass(frozen=True)
class _Placed:
    """An entry, and for each of its records the two instants of ``LastDeletes``."""

    entry: Entry
    places: np.ndarray
    blocks: np.ndarray

    def chosen(self, mask: np.ndarray) -> _Placed:
        wanted, entry = pa.array(mask, pa.bool_()), self.entry
        if isinstance(entry, DataRows):
            entry = replace(entry, table=entry.table.filter(wanted))
        else:
            entry = replace(
                entry,
                keys=entry.keys.filter(wanted),
                ordering=tuple(values.filter(wanted) for values in entry.ordering),
                unconditional=entry.unconditional[mask],
            )
        return _Placed(entry, self.places[mask], self.blocks[mask])

    def among(self, keys: pa.Array) -> _Placed:
        """The records of these keys."""
        found = pc.is_in(entry_keys(self.entry).cast(keys.type), value_set=keys)
        return self.chosen(found.to_numpy())


def last_deletes(storage: Storage, split: SliceQuery, memory_bytes: int) -> LastDeletes:
    """The keys whose last word in the split's logs is a delete with ordering values, in no certain order.

    Deletes that cannot be written with their values are left out: of null values, and of the int 0 in a
    single field, which Java reads as "no ordering value".
    """
    rules, kinds = split.spec.rules, split.spec.ordering_types
    entries = _of_deleted_keys(storage, split, memory_bytes)
    none = np.zeros(0, "U20")
    if not entries:
        return LastDeletes(pa.array([], pa.string()), tuple(pa.array([], k) for k in kinds), none, none)
    log = positions([one.entry for one in entries], rules, kinds)
    folded = fold(log)
    timed = folded.is_delete & ~folded.unconditional
    at = folded.winner[timed]
    places = np.concatenate([one.places for one in entries])[at]
    blocks = np.concatenate([one.blocks for one in entries])[at]
    keys = log.keys.filter(pa.array(timed, pa.bool_())).cast(pa.string())
    found = LastDeletes(keys, tuple(ordering_at(log.fields, at)), places, blocks)
    return found.chosen(_expressible(found.ordering, len(found)))


def without_conflicts(
    storage: Storage, deletes: LastDeletes, crossing: SliceQuery, memory_bytes: int
) -> LastDeletes:
    """The deletes that may be applied after the logs of ``crossing`` instead of at their own places.

    Not those behind which such a log has a row with the same ordering value, which would be lost; nor those
    of keys that such a log deletes without a value, behind which any row counts.
    """
    rules, kinds = crossing.spec.rules, crossing.spec.ordering_types
    over = [one.among(deletes.keys) for one in _entries(storage, crossing)]
    over = [one for one in over if len(one.places)]
    if not over or not len(deletes):
        return deletes
    ours = DeletedKeys(deletes.keys, deletes.ordering, np.zeros(len(deletes), bool))
    log = positions([ours, *(one.entry for one in over)], rules, kinds)
    assert log.order is not None
    count = len(deletes)  # our keys are distinct, so their codes are their numbers
    codes = log.codes[count:]
    later = np.concatenate([one.places for one in over]) > deletes.places[codes]
    tie = ~log.deletes[count:] & (log.order[count:] == log.order[codes])
    keep = np.ones(count, bool)
    keep[codes[(later & tie) | log.unconditional[count:]]] = False
    return deletes.chosen(keep)


def _expressible(ordering: tuple[pa.Array, ...], count: int) -> np.ndarray:
    fits = np.ones(count, bool)
    for values in ordering:
        fits &= np.asarray(values.is_valid())
    if len(ordering) == 1 and pa.types.is_int32(ordering[0].type):
        fits &= pc.fill_null(pc.not_equal(ordering[0], 0), False).to_numpy(zero_copy_only=False)
    return fits


def _of_deleted_keys(storage: Storage, split: SliceQuery, memory_bytes: int) -> list[_Placed]:
    """All entries of the keys that are deleted with ordering values somewhere, in replay order."""
    rules = split.spec.rules
    marked = marks_deletes(rules, split.spec.schema.names)
    most = max(1, memory_bytes // _SHARE // _BYTES_PER_ENTRY) if marked else 0
    deleted: list[pa.Array] = []
    kept: list[_Placed] = []
    count = 0
    for one in _entries(storage, split, only_deletes=not marked):
        mask = _timed(one.entry, rules)
        if mask.any():
            chosen = entry_keys(one.entry).filter(pa.array(mask, pa.bool_())).cast(pa.string())
            deleted += chosen.chunks
        count += len(mask)
        if count <= most:
            kept.append(one)
        else:
            kept.clear()
    if not deleted:
        return []
    keys = pc.unique(pa.chunked_array(deleted, pa.string()))
    again = kept if count <= most else _entries(storage, split)
    found = (one.among(keys) for one in again)
    return [one for one in found if len(one.places)]


def _timed(entry: Entry, rules: MergeRules) -> np.ndarray:
    """Mask of the records that are deletes with an ordering value."""
    if isinstance(entry, DeletedKeys):
        return ~entry.unconditional
    mask = deleted_rows(entry.table, rules)
    return np.zeros(entry.table.num_rows, bool) if mask is None else mask


def _entries(storage: Storage, split: SliceQuery, *, only_deletes: bool = False) -> Iterator[_Placed]:
    """Entries in replay order, ``only_deletes``: those of delete blocks."""
    narrow = replace(split, spec=replace(split.spec, columns=(), extra=(), filter=None))
    for run in log_runs(storage, narrow):
        if only_deletes and run[0][1].kind is not BlockKind.DELETE:
            continue
        for entry in entries_of(run, narrow.spec):
            count = entry.table.num_rows if isinstance(entry, DataRows) else len(entry.keys)
            blocks = _kept_since(run[0][1])
            blocks = _told(run, count, _block_instant) if blocks is None else blocks
            yield _Placed(entry, _told(run, count, _place), blocks)


def _kept_since(block: LogBlock) -> np.ndarray | None:
    return block.kept_since() if isinstance(block, NativeBlock) else None


def _told(run: Run, count: int, tell: Callable[[str, LogBlock], str]) -> np.ndarray:
    """What ``tell`` says of each record's block; the records of the run's blocks are one after the other."""
    if len(run) == 1:
        return np.full(count, tell(*run[0]), "U20")
    told = np.asarray([tell(path, block) for path, block in run], "U20")
    return np.repeat(told, [block.records()[1] for _, block in run])


def _place(path: str, block: LogBlock) -> str:
    """The instant at whose place readers apply a block: its file's, or the last one that it replaces."""
    name = paths.parse_log_name(path.rpartition("/")[2])
    return max(replaced_by(block.headers), default="") or ("" if name is None else name.instant)


def _block_instant(_path: str, block: LogBlock) -> str:
    return block.instant if block.kind is BlockKind.DELETE else ""
