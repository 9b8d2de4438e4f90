"""The unit of reading: one file slice, self-contained and picklable (a Spark task reads one)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported
from mainstem.layout.field_ids import FieldIds, FileColumns
from mainstem.merge.file_slice import merge_slice
from mainstem.merge.rules import KEY_COLUMN, MergeRules
from mainstem.readers.rows.base_rows import open_base
from mainstem.readers.rows.late_materialization import late_rows, suits
from mainstem.readers.rows.log_rows import entries_of, log_entries, log_runs
from mainstem.readers.rows.query_columns import TIME_COLUMN, with_keys, with_path_values, written_in
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

__all__ = ["TIME_COLUMN", "ReadSpec", "Split", "log_entries", "read_split", "split_paths"]


@dataclass(frozen=True)
class ReadSpec:
    """What all splits of one query share.

    ``schema``: the table's; ``columns``: what comes out; ``extra``: read for the filter only;
    ``instants``: only rows written by these (requested times), None for all; ``until``: newest log
    block instant; ``virtual_key``: record key fields where the files hold no meta columns; ``ids``:
    where files may call the query's columns otherwise (schema on read).
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    rules: MergeRules
    extra: tuple[str, ...] = ()
    filter: pc.Expression | None = None
    instants: frozenset[str] | None = None
    until: str | None = None
    damaged: str = "error"
    virtual_key: tuple[str, ...] = ()
    composite_key: bool = False
    ids: FieldIds | None = None

    @property
    def read_schema(self) -> pa.Schema:
        """Columns that come out of the merge, before the filter."""
        names = dict.fromkeys((*self.columns, *self.extra)) or {KEY_COLUMN: None}
        return pa.schema([self.schema.field(n) for n in names])

    @property
    def plain(self) -> list[str]:
        """Columns to read from files of which nothing has to be merged, as far as they have them."""
        times = () if self.instants is None else (TIME_COLUMN,)
        return list(dict.fromkeys((*self.read_schema.names, *times)))

    @property
    def wanted(self) -> list[str]:
        """Columns to read from files, as far as they have them."""
        return list(dict.fromkeys((*self.plain, *self.rules.needed_columns, *self.virtual_key)))

    def stored_columns(self, instant: str) -> FileColumns | None:
        """How files of an instant call the columns; None: as the query does."""
        found = None if self.ids is None else self.ids.file(instant)
        return None if found is None or found.same else found


@dataclass(frozen=True)
class Split:
    """One file slice of a query: paths relative to the table.

    ``path_values``: partition columns whose value is taken from the path instead of the files.
    """

    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...]
    spec: ReadSpec = field(repr=False)
    path_values: tuple[tuple[str, str | None], ...] = ()

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """``read_split`` of this split."""
        return read_split(storage, self)


def slices_of(splits: Iterable[object]) -> list[Split]:
    """The splits of a query without deletes and change data: all of them are file slices."""
    found = list(splits)
    slices = [split for split in found if isinstance(split, Split)]
    if len(slices) < len(found):
        raise TypeError("a query with deletes or change data has splits that are no file slices")
    return slices


def read_split(storage: Storage, split: Split) -> Iterator[pa.Table]:
    """Rows of the slice that match the filter, in the query's columns; empty tables are left out.

    Raises ``CorruptTable`` with path and offset for damaged files, ``FileNotFoundError`` for files
    that a clean removed meanwhile.
    """
    spec = split.spec
    order_types = ordering_types(spec)
    runs = log_runs(storage, split)
    rows = None
    if spec.ids is None and suits(spec, runs):  # with ids, every file calls the columns otherwise
        rows = late_rows(storage, split, runs, order_types)
    if rows is None:
        entries = [entry for run in runs for entry in entries_of(run, spec)]
        base = base_tables(storage, split, merged=bool(entries))
        excerpt = spec.instants is not None
        merged = merge_slice(base, entries, spec.read_schema, spec.rules, order_types, excerpt=excerpt)
        rows = (_selected(table, split) for table in merged)
    yield from (table for table in rows if table.num_rows)


def ordering_types(spec: ReadSpec) -> list[pa.DataType]:
    """Types of the ordering columns; ``Unsupported`` for a field that is no column."""
    for name in spec.rules.ordering:
        if name not in spec.schema.names:
            raise Unsupported(
                f"ordering field {name!r} is no column of the table; its columns are"
                f" {', '.join(spec.schema.names)} (nested ordering fields are not supported)"
            )
    return [spec.schema.field(name).type for name in spec.rules.ordering]


def _selected(table: pa.Table, split: Split) -> pa.Table:
    spec = split.spec
    table = with_path_values(table, split)
    if spec.filter is not None and table.num_rows:
        table = table.filter(spec.filter)
    return table.select(list(spec.columns))


def base_tables(storage: Storage, split: Split, *, merged: bool) -> Iterator[pa.Table]:
    """The slice's base rows, batch by batch.

    ``merged``: with what the merge needs; else the columns that come out are enough.
    """
    if split.base_file is None:
        return
    spec = split.spec
    keyed = merged or bool(spec.virtual_key)
    name = paths.parse_base_name(split.base_file.rsplit("/", 1)[-1])
    stored = spec.stored_columns("" if name is None else name.instant)
    wanted = spec.wanted if keyed else spec.plain
    with open_base(storage, split.base_file) as base:
        names = wanted if stored is None else stored.names(wanted)
        for table in base.batches(names, coded=_carried(spec) if merged else ()):
            table = table if stored is None else stored.shown(table)
            table = with_keys(table, spec, split.base_file) if keyed else table
            yield written_in(table, spec, split.base_file)


def _carried(spec: ReadSpec) -> list[str]:
    """Columns that a merge only carries along, so that they may come as dictionaries and codes."""
    if spec.ids is not None or spec.instants is not None or spec.rules.merger is not None:
        return []
    looked_at = {*spec.rules.needed_columns, *spec.virtual_key}
    return [name for name in spec.read_schema.names if name not in looked_at]


def split_paths(partition: str, base: str | None, logs: Sequence[str]) -> tuple[str | None, tuple]:
    """Table paths of a slice's files."""
    base_path = None if base is None else paths.in_partition(partition, base)
    return base_path, tuple(paths.in_partition(partition, name) for name in logs)
