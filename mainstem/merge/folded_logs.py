"""Folds the logs of a file slice into one log: what a log compaction writes.

Merging the result gives the same as merging the entries, whatever follows them and whatever base file lies
below. For a fold keeps one state per key (``merge.fold``), a row or a delete with its ordering value, and one
entry can express each state. This holds only if no log can appear later that sorts before the entries: a row
that follows an unconditional delete no longer shows that delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported
from mainstem.formats.schema_resolution import project_to
from mainstem.merge.fold import Positions, fold, ordering_at, positions
from mainstem.merge.log_entries import DataRows, Entry
from mainstem.merge.partial_updates import overlay
from mainstem.merge.rules import MergeRules


@dataclass(frozen=True)
class FoldedLogs:
    """``rows``: live rows; ``deleted``: keys deleted unconditionally; ``deleted_at``: keys deleted with the
    ordering values ``ordering`` (one array per field); ``total``: number of rows and deletes folded."""

    rows: pa.Table
    deleted: pa.Array
    deleted_at: pa.Array
    ordering: tuple[pa.Array, ...]
    total: int


def fold_logs(
    entries: Sequence[Entry],
    schema: pa.Schema,
    rules: MergeRules,
    order_types: Sequence[pa.DataType],
    *,
    native: bool = False,
) -> FoldedLogs:
    """Folds entries given in replay order. ``schema``: that of the resulting rows; ``native``: the result
    goes to native log files, where the int 0 is an ordering value as any other.

    Raises ``Unsupported`` if one entry per key cannot express the result: for IS_PARTIAL blocks, users'
    mergers, and deletes whose ordering value Java would read as none.
    """
    refuse_own_merger(rules)
    if any(isinstance(e, DataRows) and e.partial for e in entries):
        raise Unsupported(
            "partial updates (IS_PARTIAL log blocks) cannot be folded without the rows that they update;"
            " compact the table instead"
        )
    entries = [e for e in entries if not isinstance(e, DataRows) or e.table.num_rows]
    log = positions(entries, rules, order_types)
    folded = fold(log)
    gone = folded.is_delete
    if rules.partial:
        rows = overlay(entries, log, folded, schema, rules)[0].filter(pa.array(~gone))
    else:
        rows = _winning_rows(entries, log, folded.winner[~gone], schema)
    keys, always = log.keys.cast(pa.string()), folded.unconditional
    timed = gone & ~always
    ordering = tuple(ordering_at(log.fields, folded.winner[timed]))
    _check_ordering(ordering, native)
    return FoldedLogs(
        rows,
        keys.filter(pa.array(gone & always)),
        keys.filter(pa.array(timed)),
        ordering,
        len(log.codes),
    )


def refuse_own_merger(rules: MergeRules) -> None:
    """Raises ``Unsupported`` for tables that a user's function merges."""
    if rules.merger is not None:
        raise Unsupported(
            f"logs merged by a user's function (strategy {rules.merger}) are not folded: merging in parts may"
            " give another result than merging at once; compact the table instead"
        )


def _winning_rows(
    entries: Sequence[Entry], log: Positions, winners: np.ndarray, schema: pa.Schema
) -> pa.Table:
    chosen = np.zeros(len(log.codes), bool)
    chosen[winners] = True
    parts = [
        project_to(entry.table.filter(pa.array(chosen[start:end])), schema)
        for entry, start, end in zip(entries, log.starts[:-1], log.starts[1:], strict=True)
        if isinstance(entry, DataRows) and chosen[start:end].any()
    ]
    return pa.concat_tables([schema.empty_table(), *parts])


def _check_ordering(ordering: tuple[pa.Array, ...], native: bool) -> None:
    """Refuses null ordering values, and int 0 in a single field: Java reads both as "no ordering value"."""
    zero = [pa.types.is_int32(v.type) and bool(pc.any(pc.equal(v, 0)).as_py()) for v in ordering]
    if any(values.null_count for values in ordering) or (len(ordering) == 1 and zero[0] and not native):
        raise Unsupported(
            "a row marked as deleted has no ordering value, or the int 0, which Java's delete blocks cannot"
            " hold; compact the table instead"
        )
