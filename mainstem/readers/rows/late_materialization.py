"""Filtered reads: merges on few columns first, and fetches the others only for the rows that are emitted.

A filter applies to merged rows. So keys, ordering values and the filter's columns are read and merged
first. A base row that a log row replaces is gone, whether or not the log row passes the filter. A base row
that fails the filter matters only if it wins against a log row that passes. Row groups whose statistics
exclude both cases (``row_groups``) are not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from mainstem.formats.schema_resolution import project_to
from mainstem.merge.file_slice import joined, probe
from mainstem.merge.fold import Folded, Positions, fold, positions
from mainstem.merge.log_entries import DataRows, Entry
from mainstem.merge.rules import KEY_COLUMN, MergeRules
from mainstem.readers.rows.base_rows import BaseFile, open_base_of
from mainstem.readers.rows.log_groups import LogPart, needed_parts
from mainstem.readers.rows.log_rows import Run, entries_of, rows_of
from mainstem.readers.rows.query_columns import matching_rows, with_keys, with_path_values
from mainstem.readers.rows.row_groups import matching_groups, may_win
from mainstem.readers.rows.slice_query import ReadSpec, SliceQuery
from mainstem.storage.protocol import Storage

# Above this share of rows, it is cheaper to probe a whole batch than to take the rows first.
_FEW = 0.25
_NONE = np.empty(0, np.int64)
Pair = tuple[LogPart, Entry]


def suits(spec: ReadSpec, runs: Sequence[Run]) -> bool:
    """Whether a query can be answered this way: every emitted row must be one stored row.

    Partial updates and mergers combine several stored rows, so a filter cannot be applied before the merge.
    """
    made = spec.rules.partial is not None or spec.rules.merger is not None
    made = made or any(run[0][1].partial for run in runs)
    return spec.filter is not None and spec.instants is None and not made


def late_rows(
    storage: Storage, split: SliceQuery, runs: Sequence[Run], order_types: Sequence[pa.DataType]
) -> Iterator[pa.Table] | None:
    """Rows of the slice that pass the filter, in the query's columns: base rows first, in order.

    None if the filter cannot be evaluated on the log's rows (such as a cast that overflows): base rows may
    win against these, so the filter must run on merged rows. Raises what ``read_split`` raises.
    """
    narrow = replace(split.spec, columns=())
    identity = replace(narrow, extra=())
    parts = needed_parts(storage, split, runs)
    found = [(part, e) for part in parts for e in entries_of(part.run, identity if part.excluded else narrow)]
    pairs = [(part, e) for part, e in found if not isinstance(e, DataRows) or e.table.num_rows]
    try:
        log = _Log.of(pairs, split, order_types) if pairs else None
    except pa.ArrowException:
        return None
    return _rows(storage, split, narrow, pairs, log)


def _rows(
    storage: Storage,
    split: SliceQuery,
    narrow: ReadSpec,
    pairs: Sequence[Pair],
    log: _Log | None,
) -> Iterator[pa.Table]:
    if split.base_file is not None:
        with open_base_of(storage, split) as base:
            yield from _base_rows(base, split, narrow, log)
    if log is not None:
        yield from log.rows(pairs, split)


@dataclass
class _Log:
    """The log side of a slice, folded. ``emit``, per key: whether its winning log row is to be emitted."""

    log: Positions
    folded: Folded
    rules: MergeRules
    emit: np.ndarray

    @classmethod
    def of(cls, pairs: Sequence[Pair], split: SliceQuery, kinds: Sequence[pa.DataType]) -> _Log:
        entries = [entry for _, entry in pairs]
        log = positions(entries, split.spec.rules, kinds)
        folded = fold(log)
        made = cls(log, folded, split.spec.rules, np.zeros(log.key_count, bool))
        winners = np.zeros(len(log.codes), bool)
        winners[folded.winner[~folded.is_delete]] = True
        for (part, entry), start, end in zip(pairs, log.starts[:-1], log.starts[1:], strict=True):
            chosen = np.flatnonzero(winners[start:end])
            if isinstance(entry, DataRows) and len(chosen) and not part.excluded:
                rows = entry.table if len(chosen) == end - start else entry.table.take(pa.array(chosen))
                made.emit[log.codes[start + chosen[_passing(rows, split)]]] = True
        return made

    @property
    def least(self) -> int | None:
        """The least ordering value among log rows to emit; None: no base row can win against them."""
        if self.log.order is None or not self.emit.any():
            return None
        return int(self.log.order[self.folded.winner[self.emit]].min())

    def undefeated(self, table: pa.Table, rows: np.ndarray, contested: bool) -> np.ndarray:
        """The base rows that the log does not replace; clears ``emit`` for log rows that lose.

        ``contested``: base rows that failed the filter may win against a log row, too.
        """
        everything = contested and len(rows) > _FEW * table.num_rows
        if contested and not everything:
            self._defeat(*probe(table, self.log, self.folded, self.rules, np.flatnonzero(self.emit)))
        if not len(rows):
            return rows
        asked = table if everything else table.take(pa.array(rows))
        code, hit, wins = probe(asked, self.log, self.folded, self.rules)
        self._defeat(code, hit, wins)
        beaten = hit[wins] if everything else rows[hit[wins]]
        return np.setdiff1d(rows, beaten, assume_unique=True)

    def _defeat(self, code: np.ndarray | None, hit: np.ndarray, wins: np.ndarray) -> None:
        if code is not None:
            self.emit[code[~wins]] = False

    def rows(self, pairs: Sequence[Pair], split: SliceQuery) -> Iterator[pa.Table]:
        """The log rows to emit, run by run."""
        chosen = np.zeros(len(self.log.codes), bool)
        chosen[self.folded.winner[self.emit]] = True
        for (part, entry), start, end in zip(pairs, self.log.starts[:-1], self.log.starts[1:], strict=True):
            rows = np.flatnonzero(chosen[start:end])
            if not len(rows) or not isinstance(entry, DataRows):
                continue
            there = set(entry.table.schema.names)
            missing = [n for n in _output(split.spec) if n not in there]
            table = entry.table.take(pa.array(rows))
            if missing:
                table = _beside(table, rows_of(part.run, missing, rows))
            yield _finished(table, split)


def _base_rows(base: BaseFile, split: SliceQuery, narrow: ReadSpec, log: _Log | None) -> Iterator[pa.Table]:
    spec = split.spec
    matching = matching_groups(base, split)
    identity = (*spec.rules.needed_columns, *spec.virtual_key)
    least = None if log is None else log.least
    keyed = log is not None or bool(spec.virtual_key)  # without log rows nobody asks for keys
    filtered = narrow.wanted if keyed else narrow.plain
    for group in range(base.group_count):
        contested = least is not None and may_win(base, group, spec, least)
        if group not in matching and not contested:
            continue
        first = 0
        picked: list[np.ndarray] = []
        kept: list[pa.Table] = []
        tables = base.batches(filtered if group in matching else identity, [group])
        for table in tables if log is None else joined(tables, log.log):
            table = with_keys(table, spec, base.path) if keyed else table
            rows = _chosen(table, split, log, contested) if group in matching else _NONE
            if group not in matching and log is not None:
                log.undefeated(table, rows, contested)
            if len(rows):
                kept.append(table.take(pa.array(rows)))
                picked.append(first + rows)
            first += table.num_rows
        if picked:
            yield from _widened(base, group, np.concatenate(picked), pa.concat_tables(kept), split)


def _chosen(table: pa.Table, split: SliceQuery, log: _Log | None, contested: bool) -> np.ndarray:
    """Numbers of the base rows that pass and are not replaced. If the filter cannot be evaluated on all rows,
    it runs on the rows that are not replaced: a replaced row must not fail a query."""
    try:
        rows = _passing(table, split)
        return rows if log is None else log.undefeated(table, rows, contested)
    except pa.ArrowException:
        if log is None:
            raise
        left = log.undefeated(table, np.arange(table.num_rows), contested)
        return left[_passing(table.take(pa.array(left)), split)] if len(left) else left


def _widened(
    base: BaseFile, group: int, rows: np.ndarray, table: pa.Table, split: SliceQuery
) -> Iterator[pa.Table]:
    """Adds the columns that the merge did not need, batch by batch."""
    there = set(table.schema.names)
    missing = [n for n in base.held(split.spec.columns) if n not in there]
    if not missing:
        yield _finished(table, split)
        return
    done = 0
    for part in base.taken(group, missing, rows):
        yield _finished(_beside(table.slice(done, part.num_rows), part), split)
        done += part.num_rows


def _output(spec: ReadSpec) -> tuple[str, ...]:
    return spec.columns or (KEY_COLUMN,)


def _passing(table: pa.Table, split: SliceQuery) -> np.ndarray:
    spec = split.spec
    assert spec.filter is not None
    schema = pa.schema([spec.schema.field(name) for name in spec.extra or (KEY_COLUMN,)])
    return matching_rows(with_path_values(project_to(table, schema), split), spec.filter)


def _beside(left: pa.Table, right: pa.Table) -> pa.Table:
    for field, column in zip(right.schema, right.columns, strict=True):
        left = left.append_column(field, column)
    return left


def _finished(table: pa.Table, split: SliceQuery) -> pa.Table:
    spec = split.spec
    schema = pa.schema([spec.schema.field(name) for name in _output(spec)])
    return with_path_values(project_to(table, schema), split).select(list(spec.columns))
