"""The unit of reading: one file slice, self-contained and picklable (a Spark task reads one)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from mainstem.merge.file_slice import merge_slice
from mainstem.readers.rows.base_rows import BATCH_BYTES, BaseFile, open_base_of
from mainstem.readers.rows.late_materialization import late_rows, suits
from mainstem.readers.rows.log_rows import entries_of, log_entries, log_runs
from mainstem.readers.rows.query_columns import with_keys, with_path_values, written_in
from mainstem.readers.rows.slice_query import TIME_COLUMN, ReadSpec, SliceQuery
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

__all__ = ["TIME_COLUMN", "ReadSpec", "Split", "log_entries", "read_split", "split_paths"]


class Split(SliceQuery):
    """A file slice that reads itself."""

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """``read_split`` of this split."""
        return read_split(storage, self)


def slices_of(splits: Iterable[object]) -> list[Split]:
    """The splits of a query that reads neither deletes nor change data, typed as file slices.

    Raises ``TypeError`` for other splits.
    """
    found = list(splits)
    slices = [split for split in found if isinstance(split, Split)]
    if len(slices) < len(found):
        raise TypeError("a query with deletes or change data has splits that are no file slices")
    return slices


def read_split(storage: Storage, split: SliceQuery) -> Iterator[pa.Table]:
    """Rows of the slice that match the filter, in the query's columns; empty tables are left out.

    Raises ``CorruptTable`` with path and offset for damaged files, ``FileNotFoundError`` for files
    that a clean removed meanwhile.
    """
    spec = split.spec
    order_types = spec.ordering_types
    runs = log_runs(storage, split)
    rows = None
    if spec.ids is None and suits(spec, runs):  # with ids, column names differ between files
        rows = late_rows(storage, split, runs, order_types)
    if rows is None:
        entries = [entry for run in runs for entry in entries_of(run, spec)]
        base = base_tables(storage, split, merged=bool(entries))
        excerpt = spec.instants is not None
        merged = merge_slice(base, entries, spec.read_schema, spec.rules, order_types, excerpt=excerpt)
        rows = (_selected(table, split) for table in merged)
    yield from (table for table in rows if table.num_rows)


def _selected(table: pa.Table, split: SliceQuery) -> pa.Table:
    spec = split.spec
    table = with_path_values(table, split)
    if spec.filter is not None and table.num_rows:
        table = table.filter(spec.filter)
    return table.select(list(spec.columns))


def base_tables(
    storage: Storage, split: SliceQuery, *, merged: bool, batch_bytes: int = BATCH_BYTES
) -> Iterator[pa.Table]:
    """The slice's base rows, batch by batch, of about ``batch_bytes`` at most.

    ``merged``: include the columns that the merge needs; otherwise the output columns are enough.
    """
    if split.base_file is None:
        return
    with open_base_of(storage, split) as base:
        for _, table in base_groups(base, split, merged=merged, batch_bytes=batch_bytes):
            yield table


def base_groups(
    base: BaseFile, split: SliceQuery, *, merged: bool, batch_bytes: int = BATCH_BYTES
) -> Iterator[tuple[int, pa.Table]]:
    """As ``base_tables``, of an open file; each with the number of its row group."""
    spec, path = split.spec, str(split.base_file)
    keyed = merged or bool(spec.virtual_key)
    name = paths.parse_base_name(path.rsplit("/", 1)[-1])
    stored = spec.stored_columns("" if name is None else name.instant)
    wanted = spec.wanted if keyed else spec.plain
    names = wanted if stored is None else stored.names(wanted)
    coded = _carried(spec) if merged else ()
    for number, table in base.numbered(names, coded=coded, batch_bytes=batch_bytes):
        table = table if stored is None else stored.shown(table)
        table = with_keys(table, spec, path) if keyed else table
        yield number, written_in(table, spec, path)


def _carried(spec: ReadSpec) -> list[str]:
    """Columns that a merge only carries along, so they may stay dictionary-encoded."""
    if spec.ids is not None or spec.instants is not None or spec.rules.merger is not None:
        return []
    looked_at = {*spec.rules.needed_columns, *spec.virtual_key}
    return [name for name in spec.read_schema.names if name not in looked_at]


def split_paths(partition: str, base: str | None, logs: Sequence[str]) -> tuple[str | None, tuple]:
    """Paths of a slice's files relative to the table."""
    base_path = None if base is None else paths.in_partition(partition, base)
    return base_path, tuple(paths.in_partition(partition, name) for name in logs)
