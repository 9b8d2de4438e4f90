"""Folds the log entries of one file slice to one state per record key (Hudi's "delta merge").

All vectorised: dictionary encoding turns keys into codes, "last one wins" is a scatter in replay
order, and event time sorts by ordering value first (``comparison.winners_last``).

Rules (format rules 8, Java's EventTimeRecordMerger/CommitTimeRecordMerger and UpdateProcessor):

* commit time: the later entry wins, data or delete.
* event time: the greater ordering value wins; ``comparison`` breaks ties. A delete with the default
  ordering value (unconditional) beats everything before it. After it, the next data row wins whatever its
  value, and a delete with an ordering value changes nothing; in tables of version 10 such a delete wins, too.
* onto the base file (``over_base``): an unconditional delete that a later entry overtook is forgotten, so
  that entry meets the base file's row; not in an LSM tree, where the delete has removed that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mainstem.formats.schema_resolution import promote
from mainstem.merge.comparison import winners_last
from mainstem.merge.log_entries import DataRows, DeletedKeys, Entry, deleted_rows, joined_keys
from mainstem.merge.ordering_values import Fields, align, comparable
from mainstem.merge.rules import MergeRules

NOTHING = -1


@dataclass(frozen=True)
class Positions:
    """Every log record (row or deleted key), indexed by position in replay order.

    ``keys``: distinct keys; ``codes``: key number per position; ``deletes``, ``unconditional``: flags;
    ``starts[i]``: first position of entry i; ``fields``: ordering values, one array per field (empty under
    commit time ordering); ``order``: the same as comparable integers (None under commit time ordering);
    ``rules``: the table's.
    """

    keys: pa.Array
    codes: np.ndarray
    deletes: np.ndarray
    unconditional: np.ndarray
    starts: np.ndarray
    fields: tuple[pa.Array, ...]
    order: np.ndarray | None
    rules: MergeRules

    @property
    def key_count(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Folded:
    """State per key: ``winner`` is the winning position (every key has one), ``is_delete`` and
    ``unconditional`` describe that position. ``active``, per position: which entries took part in the
    comparison (see ``_active``); None: all. ``over_base``: keys whose winner beats any row of a base file."""

    winner: np.ndarray
    is_delete: np.ndarray
    unconditional: np.ndarray
    active: np.ndarray | None
    over_base: np.ndarray


def positions(entries: Sequence[Entry], rules: MergeRules, kinds: Sequence[pa.DataType]) -> Positions:
    """Numbers the records of the entries. ``kinds``: types of the ordering columns in the table schema."""
    keys = joined_keys(entries).dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    total = len(codes)
    starts = np.concatenate(([0], np.cumsum([_length(e) for e in entries]))).astype(np.int64)
    deletes = np.zeros(total, bool)
    unconditional = np.zeros(total, bool)
    columns: list[list[pa.Array]] = [[] for _ in rules.ordering]
    for entry, start in zip(entries, starts[:-1], strict=True):
        span = slice(int(start), int(start) + _length(entry))
        if isinstance(entry, DeletedKeys):
            deletes[span] = True
            unconditional[span] = entry.unconditional | (not rules.ordering)
        else:
            flags = deleted_rows(entry.table, rules)
            if flags is not None:
                deletes[span] = flags
        for number, kind in enumerate(kinds):
            columns[number].append(_ordering_of(entry, rules.ordering[number], number, kind))
    fields = tuple(pa.concat_arrays(parts) for parts in columns) if entries else ()
    order = comparable([fields])[0] if fields else None
    if order is None:
        unconditional |= deletes
    return Positions(keys.dictionary, codes, deletes, unconditional, starts, fields, order, rules)


def fold(log: Positions) -> Folded:
    """The winning entry of each key."""
    at = np.arange(len(log.codes))
    winner = np.full(log.key_count, NOTHING, np.int64)
    if log.order is None:
        winner[log.codes] = at
        every = np.ones(log.key_count, bool)
        return Folded(winner, log.deletes[winner], log.unconditional[winner], None, every)
    active = _active(log, at)
    if active is None:  # only keys with several entries need comparing
        winner[log.codes] = at
        several = np.bincount(log.codes, minlength=log.key_count) > 1
        chosen = np.flatnonzero(several[log.codes])
    else:
        chosen = at[active]
    by_order = winners_last(chosen, log.order)
    if active is not None:
        resets = at[log.unconditional]
        winner[log.codes[resets]] = resets
    winner[log.codes[by_order]] = by_order
    always = log.unconditional[winner]
    over_base = always
    if log.rules.one_by_one and active is not None:
        over_base = always.copy()
        over_base[log.codes[resets]] = True
    return Folded(winner, log.deletes[winner], always, active, over_base)


def _active(log: Positions, at: np.ndarray) -> np.ndarray | None:
    """Mask of the entries that take part in the comparison; None: all of them.

    Excluded per key: everything up to the last unconditional delete, and, unless ``deletes_in_order``, the
    deletes between it and the next data row.
    """
    if not log.unconditional.any():
        return None
    reset = np.full(log.key_count, NOTHING, np.int64)
    resets = at[log.unconditional]
    reset[log.codes[resets]] = resets
    reset_here = reset[log.codes]
    behind = at > reset_here
    if log.rules.deletes_in_order:
        return behind
    first = np.full(log.key_count, len(at), np.int64)
    data = at[behind & ~log.deletes][::-1]
    first[log.codes[data]] = data
    return behind & ((reset_here == NOTHING) | (at >= first[log.codes]))


def _length(entry: Entry) -> int:
    return entry.table.num_rows if isinstance(entry, DataRows) else len(entry.keys)


def _ordering_of(entry: Entry, name: str, number: int, kind: pa.DataType) -> pa.Array:
    if isinstance(entry, DeletedKeys):
        if len(entry.ordering) <= number:
            return pa.nulls(len(entry.keys), kind)
        return align(entry.ordering[number], kind, entry.source)
    if name not in entry.table.schema.names:
        return pa.nulls(entry.table.num_rows, kind)
    return _one(promote(entry.table.column(name), pa.field(name, kind)), kind)


def _one(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)


def ordering_at(fields: Fields, where: np.ndarray) -> list[pa.Array]:
    """Ordering values at the given positions."""
    index = pa.array(where)
    return [field.take(index) for field in fields]
