"""Merges a file slice: base file batches and log entries in, the rows of a query out (Hudi's "final merge").

Each base batch takes one ``index_in`` probe of its record keys against the log's keys. Base order is kept;
log rows without a base row come last. Base rows never count as deletes. ``comparison`` decides which row
wins; ``fold`` has already found the winner among several log entries of a key.

In an LSM tree (``rules.one_by_one``) Java merges each entry onto the base row, one after another. Where an
entry only wins or loses, ``fold`` says in which keys the base row has no part (``over_base``). Where rows are
made of several, base rows that the log has are folded with it, as the oldest entry of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported
from mainstem.formats.schema_resolution import project_to, promote
from mainstem.limits import MIB
from mainstem.merge.comparison import beats
from mainstem.merge.custom_merge import merge_with_function
from mainstem.merge.fold import Folded, Positions, fold, ordering_at, positions
from mainstem.merge.key_probe import met, of_keys
from mainstem.merge.log_entries import DataRows, Entry
from mainstem.merge.ordering_values import comparable
from mainstem.merge.partial_updates import absent, overlay
from mainstem.merge.rules import KEY_COLUMN, MergeRules

_RUN_PER_KEY = 4
_RUN_BYTES_MAX = 128 * MIB


def merge_slice(
    base: Iterable[pa.Table],
    entries: Sequence[Entry],
    schema: pa.Schema,
    rules: MergeRules,
    order_types: Sequence[pa.DataType],
    *,
    excerpt: bool = False,
    run_bytes: int = _RUN_BYTES_MAX,
) -> Iterator[pa.Table]:
    """Merged rows with exactly the columns of ``schema``.

    ``base``: batches of the base file with the columns of ``schema`` plus ``rules.needed_columns``
    as far as the file has them; ``entries``: log entries in replay order; ``order_types``: types of
    the ordering columns in the table schema. ``excerpt``: only some instants of the slice are merged; a
    column that none of them set is then unknown, not null, and ``Unsupported`` is raised. ``run_bytes``:
    base batches are joined up to this size.
    """
    entries = [e for e in entries if not isinstance(e, DataRows) or e.table.num_rows]
    if not entries:
        for table in base:
            yield _projected(table, schema)
        return
    if rules.merger is not None:
        if rules.one_by_one:
            base = joined(base, positions(entries, rules, ()), bytes_max=run_bytes)
        yield from merge_with_function(base, entries, schema, rules)
        return
    log = positions(entries, rules, order_types)
    folded = fold(log)
    if rules.partial or any(isinstance(e, DataRows) and e.partial for e in entries):
        runs = joined(base, log, bytes_max=run_bytes)
        if rules.one_by_one:
            yield from _merge_one_by_one(runs, entries, schema, log, order_types, excerpt)
        else:
            yield from _merge_partial(runs, entries, schema, rules, log, folded, excerpt)
        return
    emit = ~folded.is_delete
    for table in joined(base, log, bytes_max=run_bytes):
        code, hit, wins = probe(table, log, folded, rules)
        if code is None:
            yield _projected(table, schema)
            continue
        emit[code[~wins]] = False
        keep = np.ones(table.num_rows, bool)
        keep[hit[wins]] = False
        kept = table if keep.all() else table.filter(pa.array(keep))
        if kept.num_rows:
            yield _projected(kept, schema)
    yield from _log_rows(entries, log, folded.winner[emit], schema)


def _projected(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema) else project_to(table, schema)


def _log_rows(
    entries: Sequence[Entry], log: Positions, winners: np.ndarray, schema: pa.Schema
) -> Iterator[pa.Table]:
    """Winning rows, block by block, so that 32-bit offsets of joined strings cannot overflow."""
    wins = np.zeros(len(log.codes), bool)
    wins[winners] = True
    for entry, start, end in zip(entries, log.starts[:-1], log.starts[1:], strict=True):
        if not isinstance(entry, DataRows):
            continue
        mask = wins[start:end]
        count = int(np.count_nonzero(mask))
        if count:
            rows = entry.table if count == len(mask) else entry.table.filter(pa.array(mask))
            yield _projected(rows, schema)


def probe(
    table: pa.Table, log: Positions, folded: Folded, rules: MergeRules, among: np.ndarray | None = None
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Matches base rows with the log: key codes of rows that the log has, their row numbers, and a mask of
    where the log wins. Codes are None if no row matches.

    ``among``: key codes to look for, None for all. ``table`` has the key and ordering columns.
    """
    keys = log.keys if among is None else log.keys.take(pa.array(among))
    code, hit = met(table, keys)
    if not len(hit):
        return None, hit, hit
    code = code if among is None else among[code]
    if log.order is None:
        return code, hit, np.ones(len(hit), bool)
    log_fields = ordering_at(log.fields, folded.winner[code])
    base_fields = [
        _base_ordering(table, n, f.type, hit) for n, f in zip(rules.ordering, log.fields, strict=True)
    ]
    ours, theirs = comparable([log_fields, base_fields])
    return code, hit, folded.over_base[code] | beats(ours, theirs)


def joined(
    base: Iterable[pa.Table], log: Positions, *, bytes_max: int = _RUN_BYTES_MAX
) -> Iterator[pa.Table]:
    """Joins neighbouring batches until they have several times as many rows as the log has keys.

    Every probe builds a hash table of those keys, which would dominate the cost of small batches.
    """
    run: list[pa.Table] = []
    rows = size = 0
    for table in base:
        run.append(table)
        rows, size = rows + table.num_rows, size + written_out(table)
        if rows >= _RUN_PER_KEY * log.key_count or size >= bytes_max:
            yield pa.concat_tables(run)
            run, rows, size = [], 0, 0
    if run:
        yield pa.concat_tables(run)


def written_out(table: pa.Table) -> int:
    """Size of the rows in bytes with dictionary-encoded texts written out."""
    size = 0
    for column in table.columns:
        if not pa.types.is_dictionary(column.type):
            size += column.nbytes
            continue
        for chunk in column.chunks:
            lengths = pc.binary_length(chunk.dictionary)
            size += (pc.sum(lengths.take(chunk.indices)).as_py() or 0) + 4 * len(chunk)
    return size


def _base_ordering(table: pa.Table, name: str, kind: pa.DataType, hit: np.ndarray) -> pa.Array:
    if name not in table.schema.names:
        return pa.nulls(len(hit), kind)
    column = table.column(name)
    taken = column.take(pa.array(hit))
    taken = promote(taken, pa.field(name, kind))
    return pa.concat_arrays(taken.chunks) if taken.num_chunks != 1 else taken.chunk(0)


def _merge_partial(
    base: Iterable[pa.Table],
    entries: Sequence[Entry],
    schema: pa.Schema,
    rules: MergeRules,
    log: Positions,
    folded: Folded,
    excerpt: bool,
) -> Iterator[pa.Table]:
    rows, open_cells = overlay(entries, log, folded, schema, rules)
    emit = ~folded.is_delete
    for table in base:
        code, hit, wins = probe(table, log, folded, rules)
        table_rows = _projected(table, schema)
        if code is None:
            yield table_rows
            continue
        emit[code] = False
        keep = np.ones(table.num_rows, bool)
        keep[hit] = False
        if keep.any():
            yield table_rows.filter(pa.array(keep))
        deleted = folded.is_delete[code]
        survives = deleted & ~wins
        if survives.any():
            yield table_rows.take(pa.array(hit[survives]))
        both = ~deleted
        if both.any():
            yield _overlaid(
                table_rows.take(pa.array(hit[both])),
                rows.take(pa.array(code[both])),
                wins[both],
                rules,
                {name: cells[code[both]] for name, cells in open_cells.items()},
            )
    if emit.any():
        if excerpt:
            _refuse_unknown(open_cells, emit)
        yield rows.filter(pa.array(emit))


def _refuse_unknown(open_cells: Mapping[str, np.ndarray], emit: np.ndarray) -> None:
    unknown = [name for name, cells in open_cells.items() if cells[emit].any()]
    if unknown:
        raise Unsupported(
            "the range holds partial updates (IS_PARTIAL log blocks) of rows that were written outside"
            f" of it, so their columns {', '.join(unknown)} are unknown, not null; ask for the columns"
            " that were set, for a range that begins earlier, or for a snapshot"
        )


def _merge_one_by_one(
    base: Iterable[pa.Table],
    entries: Sequence[Entry],
    schema: pa.Schema,
    log: Positions,
    order_types: Sequence[pa.DataType],
    excerpt: bool,
) -> Iterator[pa.Table]:
    """Base rows that the log has no entry of, those that it has, merged with it, and the rest of the log."""
    rules, rest = log.rules, np.ones(log.key_count, bool)

    def merged(older: Sequence[Entry], keys: np.ndarray) -> pa.Table:
        some = [*older, *of_keys(log, entries, keys)]
        numbered = positions(some, rules, order_types)
        folded = fold(numbered)
        rows, open_cells = overlay(some, numbered, folded, schema, rules)
        if excerpt:
            _refuse_unknown(open_cells, ~folded.is_delete)
        return rows.filter(pa.array(~folded.is_delete))

    for table in base:
        code, hit = met(table, log.keys)
        if not len(hit):
            yield _projected(table, schema)
            continue
        keep = np.ones(table.num_rows, bool)
        keep[hit] = False
        if keep.any():
            yield _projected(table.filter(pa.array(keep)), schema)
        these = np.zeros(log.key_count, bool)
        these[code] = True
        rest &= ~these
        yield merged([_as_entry(table.take(pa.array(hit)), schema, rules)], these)
    if rest.any():
        yield merged([], rest)


def _as_entry(table: pa.Table, schema: pa.Schema, rules: MergeRules) -> DataRows:
    """Base rows as the oldest entry, with the columns that the merge looks at beside those of ``schema``."""
    rows = _projected(table, schema)
    for name in (KEY_COLUMN, *rules.ordering):
        if name not in rows.schema.names and name in table.schema.names:
            rows = rows.append_column(table.schema.field(name), table.column(name))
    return DataRows(rows)


def _overlaid(
    base: pa.Table,
    log: pa.Table,
    log_wins: np.ndarray,
    rules: MergeRules,
    open_cells: dict[str, np.ndarray],
) -> pa.Table:
    """Per row, the winner with its absent columns filled from the loser.

    As in Java, a row that revived a key after a delete in the logs is filled from the base row: the fold
    of the logs has forgotten the delete.
    """
    columns = []
    for name in base.schema.names:
        ours, theirs = log.column(name), base.column(name)
        log_absent = absent(ours, name, rules)
        if name in open_cells:
            log_absent = log_absent | open_cells[name]
        base_absent = absent(theirs, name, rules)
        take_log = np.where(log_wins, ~log_absent, base_absent & ~log_absent)
        columns.append(_choose(pa.array(take_log), ours, theirs))
    return pa.table(columns, schema=base.schema)


def _choose(mask: pa.Array, yes: pa.ChunkedArray, no: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_nested(yes.type):
        return pc.if_else(mask, yes, no)
    both = pa.chunked_array([*yes.chunks, *no.chunks], yes.type)
    rows = np.arange(len(yes))
    return both.take(pa.array(np.where(np.asarray(mask), rows, rows + len(yes))))
