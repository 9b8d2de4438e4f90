"""Updates rows of a base file in their places, for compactions of slices whose logs delete nothing.

All keys of the base file stay, in their order: a row that a log row beats is replaced by it, and keys that
the base file lacks come last. So whoever writes the rows may copy what depends on nothing but the keys. Texts
that come as dictionaries stay so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mainstem.formats.file_form import coded_as
from mainstem.formats.schema_resolution import project_to
from mainstem.limits import CHUNK_BYTES_MAX
from mainstem.merge.file_slice import probe
from mainstem.merge.fold import Folded, Positions, fold, positions
from mainstem.merge.log_entries import DataRows, Entry
from mainstem.merge.rules import KEY_COLUMN, MergeRules


class KeyTwice(Exception):
    """The base file has two rows of a key that the logs have, so that rows cannot stay in their places."""


class Updates:
    """The log rows of a slice that win over each other, to be put over rows of the base file."""

    def __init__(self, rows: pa.Table, wins: np.ndarray, log: Positions, folded: Folded) -> None:
        self._rows = rows
        self._row_of = np.cumsum(wins) - 1
        self._log = log
        self._folded = folded
        self._rest = np.ones(log.key_count, bool)
        keys = rows.column(KEY_COLUMN) if KEY_COLUMN in rows.schema.names else None
        # Of text key fields whose values are the record keys.
        self._keys = [
            name for name in rows.schema.names if keys is not None and rows.column(name).equals(keys)
        ]

    @classmethod
    def of(
        cls, entries: Sequence[Entry], schema: pa.Schema, rules: MergeRules, kinds: Sequence[pa.DataType]
    ) -> Updates | None:
        """None where a key is deleted, or rows are made of several, or they take too much memory."""
        if rules.merger is not None or rules.partial or rules.one_by_one:
            return None
        entries = [e for e in entries if not isinstance(e, DataRows) or e.table.num_rows]
        if not entries or any(isinstance(e, DataRows) and e.partial for e in entries):
            return None
        log = positions(entries, rules, kinds)
        folded = fold(log)
        if folded.is_delete.any():
            return None
        wins = np.zeros(len(log.codes), bool)
        wins[folded.winner] = True
        parts = [
            project_to(entry.table.filter(pa.array(wins[start:end])), schema)
            for entry, start, end in zip(entries, log.starts[:-1], log.starts[1:], strict=True)
            if isinstance(entry, DataRows)
        ]
        rows = pa.concat_tables(parts)
        if rows.nbytes > CHUNK_BYTES_MAX // 2:
            return None
        return cls(rows.combine_chunks(), wins, log, folded)

    @property
    def key_count(self) -> int:
        """Number of keys in the logs."""
        return self._log.key_count

    def over(self, base: pa.Table) -> pa.Table:
        """Base rows (with the columns that the merge looks at), updated; in the columns of the log rows."""
        schema = coded_as(self._rows.schema, base.schema)
        code, hit, wins = probe(base, self._log, self._folded, self._log.rules)
        base = project_to(base, schema)
        if code is None:
            return base
        before = np.count_nonzero(self._rest)
        self._rest[code] = False
        if np.count_nonzero(self._rest) != before - len(code):
            raise KeyTwice
        if not wins.any():
            return base
        places = pa.array(self._row_of[self._folded.winner[code[wins]]])
        where = np.arange(base.num_rows)
        where[hit[wins]] = base.num_rows + np.arange(len(places))
        keys, chosen = base.column(KEY_COLUMN), pa.array(where)
        columns = []
        for name in schema.names:
            column, newer = base.column(name), self._rows.column(name)
            if name == KEY_COLUMN or (name in self._keys and column.equals(keys)):
                columns.append(keys)
            else:
                columns.append(_replaced(column, newer.take(places), chosen))
        return pa.Table.from_arrays(columns, schema=schema)

    def rest(self) -> pa.Table:
        """The rows of keys that no base row had, in the order of the logs."""
        places = np.sort(self._row_of[self._folded.winner[self._rest]])
        return self._rows.take(pa.array(places))


def _replaced(base: pa.ChunkedArray, newer: pa.ChunkedArray, where: pa.Array) -> pa.ChunkedArray:
    """The values at ``where`` of the two columns together."""
    if not pa.types.is_dictionary(base.type):
        return pa.chunked_array([*base.chunks, *newer.chunks], base.type).take(where)
    new = [chunk.dictionary_encode().cast(base.type) for chunk in newer.chunks]
    both = pa.chunked_array([*base.chunks, *new], base.type).unify_dictionaries()
    if not both.num_chunks:
        return both
    texts = both.chunk(0).dictionary
    codes = pa.chunked_array([chunk.indices for chunk in both.chunks]).take(where).combine_chunks()
    # Texts that no row has any more are left out where the rows are written.
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, texts)])
