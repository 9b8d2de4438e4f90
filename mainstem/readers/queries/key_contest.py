"""Whether a row would win against what a file group has of its key: only then it moves to another partition.

It is merged with them as a query would, as the last one, so that there is one rule. A delete in the log files
takes part, until a compaction forgets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.merge.file_slice import merge_slice
from mainstem.merge.log_entries import DataRows, DeletedKeys, Entry
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import read_spec
from mainstem.readers.rows.split import TIME_COLUMN, ReadSpec, Split, base_tables, log_entries
from mainstem.storage.protocol import Storage


def contest_spec(state: TableState) -> ReadSpec:
    """What is read of a file slice for it."""
    return read_spec(state, [KEY_COLUMN, TIME_COLUMN], None, None, "error", stored=True)


def contest(
    storage: Storage, split: Split | None, spec: ReadSpec, rows: pa.Table
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Keys of which the slice has a row, and keys of the rows that would win.

    ``rows`` have Hudi's columns, distinct keys and one instant, which is not one of the slice's.
    """
    keys = rows.column(KEY_COLUMN).combine_chunks()
    base: list[pa.Table] = []
    entries: list[Entry] = []
    if split is not None:
        split = replace(split, spec=spec)
        base = [_of_keys(table, keys) for table in base_tables(storage, split, merged=True)]
        entries = [_entry_of_keys(entry, keys) for entry in log_entries(storage, split)]
    needed = {*spec.read_schema.names, *spec.rules.needed_columns}
    ours = DataRows(rows.select([name for name in rows.column_names if name in needed]))
    kinds = _kinds(spec, rows.schema)
    there = pa.concat_tables(_merged(spec, base, entries, kinds))
    won = pa.concat_tables(_merged(spec, base, [*entries, ours], kinds))
    mine = pc.equal(won.column(TIME_COLUMN), rows.column(TIME_COLUMN)[0])
    return there.column(KEY_COLUMN), won.filter(mine).column(KEY_COLUMN)


def _merged(
    spec: ReadSpec, base: Sequence[pa.Table], entries: Sequence[Entry], kinds: Sequence[pa.DataType]
) -> Iterator[pa.Table]:
    yield spec.read_schema.empty_table()
    yield from merge_slice(base, entries, spec.read_schema, spec.rules, kinds)


def _kinds(spec: ReadSpec, schema: pa.Schema) -> list[pa.DataType]:
    """Types of the ordering columns: the wider ones of the table's and the rows'."""
    ours = pa.schema([schema.field(name) for name in spec.rules.ordering])
    theirs = pa.schema(list(map(pa.field, spec.rules.ordering, spec.ordering_types)))
    return list(pa.unify_schemas([theirs, ours], promote_options="permissive").types)


def _of_keys(table: pa.Table, keys: pa.Array) -> pa.Table:
    return table.filter(pc.is_in(table.column(KEY_COLUMN), value_set=keys))


def _entry_of_keys(entry: Entry, keys: pa.Array) -> Entry:
    if isinstance(entry, DataRows):
        return replace(entry, table=_of_keys(entry.table, keys))
    mask = pc.is_in(entry.keys, value_set=keys.cast(entry.keys.type))
    ordering = tuple(field.filter(mask) for field in entry.ordering)
    kept = mask.to_numpy(zero_copy_only=False)
    return DeletedKeys(entry.keys.filter(mask), ordering, entry.unconditional[kept], entry.source)
