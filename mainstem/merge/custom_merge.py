"""Merges a file slice with a user's function (merge mode CUSTOM; see ``registered_mergers``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.schema_resolution import project_to
from mainstem.merge.fold import Positions, positions
from mainstem.merge.key_probe import met, of_keys
from mainstem.merge.log_entries import DataRows, Entry
from mainstem.merge.registered_mergers import Merger, merger_of
from mainstem.merge.rules import KEY_COLUMN, MergeRules

_NOTHING = -1


def merge_with_function(
    base: Iterable[pa.Table], entries: Sequence[Entry], schema: pa.Schema, rules: MergeRules
) -> Iterator[pa.Table]:
    """``merge_slice`` for a table with a registered merger; keeps the base file's order.

    Raises ``Unsupported`` if this process has no such merger, ``Invalid`` if it returns wrong rows.
    """
    assert rules.merger is not None and rules.full_schema is not None
    merge = merger_of(rules.merger)
    if merge is None:
        raise Unsupported(
            f"the table is merged by strategy {rules.merger}, which is not registered in this process:"
            " call mainstem.register_merger in every process that reads it"
        )
    if rules.one_by_one:
        yield from _one_by_one(base, entries, schema, rules, merge)
        return
    fold = _Fold(merge, entries, rules)
    for table in base:
        yield project_to(fold.onto(project_to(table, rules.full_schema)), schema)
    yield project_to(fold.rest(), schema)


def _one_by_one(
    base: Iterable[pa.Table], entries: Sequence[Entry], schema: pa.Schema, rules: MergeRules, merge: Merger
) -> Iterator[pa.Table]:
    """In an LSM tree a base row is the oldest entry of its key."""
    assert rules.full_schema is not None
    log = positions(entries, rules, ())
    rest = np.ones(log.key_count, bool)

    for part in base:
        table = project_to(part, rules.full_schema)
        code, hit = met(table, log.keys)
        known, these = np.zeros(table.num_rows, bool), np.zeros(log.key_count, bool)
        known[hit], these[code] = True, True
        rest &= ~these
        yield project_to(table.filter(pa.array(~known)), schema)
        if len(hit):
            whole = [DataRows(table.filter(pa.array(known))), *of_keys(log, entries, these)]
            yield project_to(_Fold(merge, whole, rules).rest(), schema)
    if rest.any():
        yield project_to(_Fold(merge, of_keys(log, entries, rest), rules).rest(), schema)


class _Fold:
    """The state per key: a row number in ``pool`` or none, and whether a delete hides the base row."""

    def __init__(self, merge: Merger, entries: Sequence[Entry], rules: MergeRules) -> None:
        assert rules.full_schema is not None
        self.merge = merge
        self.schema = rules.full_schema
        log = positions(entries, rules, ())
        self.keys = log.keys
        self.at = np.full(log.key_count, _NOTHING, np.int64)
        self.wiped = np.zeros(log.key_count, bool)
        tables = [project_to(e.table, self.schema) for e in entries if isinstance(e, DataRows)]
        self.pool = pa.concat_tables([self.schema.empty_table(), *tables])
        row_of = _rows_of(entries, log)
        for turn in _turns(log.codes):  # the first entry of each key, the second, ...
            self._step(log.codes[turn], row_of[turn], log.deletes[turn])

    def _step(self, codes: np.ndarray, rows: np.ndarray, deletes: np.ndarray) -> None:
        self.at[codes[deletes]] = _NOTHING
        self.wiped[codes[deletes]] = True
        codes, rows = codes[~deletes], rows[~deletes]
        both = self.at[codes] != _NOTHING
        self.at[codes[~both]] = rows[~both]
        if both.any():
            codes = codes[both]
            newer = self.pool.take(pa.array(rows[both]))
            merged, place = self._merged(self.pool.take(pa.array(self.at[codes])), newer)
            gone = place == _NOTHING
            self.at[codes] = np.where(gone, _NOTHING, place + self.pool.num_rows)
            self.wiped[codes[gone]] = True
            self.pool = pa.concat_tables([self.pool, merged])

    def _merged(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The function's result for pairs of rows, and each pair's row number in it."""
        result = self.merge(older, newer)
        if not isinstance(result, pa.Table) or set(result.column_names) != set(self.schema.names):
            raise Invalid(
                "a registered merger returned something else than a table with the columns that it was"
                f" given ({', '.join(self.schema.names)})"
            )
        result = project_to(result, self.schema)
        found = pc.index_in(newer.column(KEY_COLUMN), value_set=result.column(KEY_COLUMN).combine_chunks())
        place = pc.fill_null(found, _NOTHING).to_numpy().astype(np.int64)
        if np.count_nonzero(place != _NOTHING) != result.num_rows:
            raise Invalid("a registered merger returned a key that it was not given, or one twice")
        return result, place

    def onto(self, base: pa.Table) -> pa.Table:
        """Base rows merged with the log's; log rows used here are not returned by ``rest``."""
        found = pc.index_in(base.column(KEY_COLUMN), value_set=self.keys)
        code = pc.fill_null(found, _NOTHING).to_numpy().astype(np.int64)
        hit = np.flatnonzero(code != _NOTHING)
        keep = code == _NOTHING
        meets = hit[~self.wiped[code[hit]] & (self.at[code[hit]] != _NOTHING)]
        if not len(hit):
            return base
        kept = base.filter(pa.array(keep))
        if not len(meets):
            return kept
        newer = self.pool.take(pa.array(self.at[code[meets]]))
        merged, _ = self._merged(base.take(pa.array(meets)), newer)
        self.at[code[meets]] = _NOTHING
        return pa.concat_tables([kept, merged])

    def rest(self) -> pa.Table:
        """Log rows whose key was in no base row."""
        return self.pool.take(pa.array(self.at[self.at != _NOTHING]))


def _rows_of(entries: Sequence[Entry], log: Positions) -> np.ndarray:
    """Row number in the pool per position; entries of delete blocks have none."""
    row_of = np.full(len(log.codes), _NOTHING, np.int64)
    next_row = 0
    for entry, start, end in zip(entries, log.starts[:-1], log.starts[1:], strict=True):
        if isinstance(entry, DataRows):
            count = int(end - start)
            row_of[start:end] = np.arange(next_row, next_row + count)
            next_row += count
    return row_of


def _turns(codes: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of the first entry of each key, of the second entry of each key, and so on."""
    order = np.argsort(codes, kind="stable")
    by_key = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], by_key[1:] != by_key[:-1]))) if len(codes) else order
    lengths = np.diff(np.append(starts, len(codes)))
    for turn in range(int(lengths.max(initial=0))):
        yield order[starts[lengths > turn] + turn]
