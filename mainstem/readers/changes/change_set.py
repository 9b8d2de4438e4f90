"""Change sets that show deletes: the rows that a range of instants wrote, and the keys that it deleted.

Java's incremental query leaves deletes out. Here each deleted key of the range adds one row with
``_change_type`` = ``delete``. Deletes come from delete blocks, from rows that a delete marker turns into
deletes, from base files rewritten without the row, and from replaced file groups. A key that the range
wrote again is not a delete. Like a late row, a late delete is shown even if it lost against a row from
outside the range.

A delete row has the commit time of its instant, the record key, the partition path, and the key,
partition and ordering columns where they are known. All other columns are null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.schema_resolution import project_to
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.keys import DEFAULT_PARTITION, EMPTY_PART, NULL_PART
from mainstem.merge.fold import fold, positions
from mainstem.merge.log_entries import DataRows, DeletedKeys, Entry
from mainstem.merge.ordering_values import align
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.split import TIME_COLUMN, ReadSpec, Split, log_entries
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

CHANGE_TYPE = "_change_type"
UPSERT, DELETE = "upsert", "delete"
PARTITION_COLUMN = "_hoodie_partition_path"
KIND = pa.field(CHANGE_TYPE, pa.string())


@dataclass(frozen=True)
class Rewrite:
    """Base files or slices whose rows an instant removed, except rows that are also in ``after``."""

    instant: str
    before: tuple[Split, ...]
    after: tuple[Split, ...]


@dataclass(frozen=True)
class ChangedGroup:
    """Changes of one file group, or of a partition with replaced groups; picklable.

    ``rows``: the splits that hold the written rows. ``logs``: the range's log files per file group, in
    merge order. ``spec``: the query's, its ``columns`` without ``_change_type``. ``plain_paths``: the
    partition path consists of the partition columns' values as text.
    """

    partition: str
    spec: ReadSpec = field(repr=False)
    keys: KeyGenerator
    columns: tuple[str, ...]
    rows: tuple[Split, ...] = ()
    logs: tuple[tuple[str, ...], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    plain_paths: bool = True

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """Written rows that match the filter, then all deleted keys; the filter does not apply to these."""
        for split in self.rows:
            for table in split.read(storage):
                yield self._marked(table, UPSERT)
        deletes = self._deletes(storage)
        if deletes.num_rows:
            shown = self._shown(storage)
            deletes = deletes.filter(pc.invert(pc.is_in(deletes.column(KEY_COLUMN), value_set=shown)))
        if deletes.num_rows:
            yield self._marked(deletes.select(list(self.spec.columns)), DELETE)

    def _marked(self, table: pa.Table, kind: str) -> pa.Table:
        marked = table.append_column(KIND, pa.repeat(pa.scalar(kind), table.num_rows))
        return marked.select(list(self.columns))

    def _shown(self, storage: Storage) -> pa.Array:
        """Keys that the range wrote and did not delete, regardless of the query's filter."""
        found = []
        for split in self.rows:
            spec = replace(split.spec, columns=(KEY_COLUMN,), filter=None, extra=())
            found += [_flat(t.column(KEY_COLUMN)) for t in replace(split, spec=spec).read(storage)]
        return pa.concat_arrays(found) if found else pa.array([], pa.string())

    def _deletes(self, storage: Storage) -> pa.Table:
        """One row per deleted key: its last delete."""
        parts = [self._schema.empty_table()]
        for logs in self.logs:
            parts += self._logged(storage, logs)
        for rewrite in self.rewrites:
            parts += self._missing(storage, rewrite)
        deletes = pa.concat_tables(parts).sort_by(TIME_COLUMN)
        codes = _flat(deletes.column(KEY_COLUMN)).dictionary_encode()
        last = np.zeros(len(codes.dictionary), np.int64)
        last[codes.indices.to_numpy(zero_copy_only=False)] = np.arange(deletes.num_rows)
        return deletes.take(pa.array(np.sort(last)))

    @property
    def _schema(self) -> pa.Schema:
        """Columns of a delete row: the query's columns and those that identify the record."""
        known = (TIME_COLUMN, KEY_COLUMN, PARTITION_COLUMN, *self._identity)
        names = dict.fromkeys((*known, *self.spec.columns))
        return pa.schema([self.spec.schema.field(n) for n in names])

    @property
    def _identity(self) -> tuple[str, ...]:
        """The user columns that a delete row fills: key, partition and ordering fields."""
        names = (*self.keys.needed_columns, *self.spec.rules.ordering)
        return tuple(n for n in dict.fromkeys(names) if n in self.spec.schema.names)

    def _known_only(self, rows: pa.Table, instant: str | None = None) -> pa.Table:
        """Deleted rows reduced to what a delete row shows; all other columns become null."""
        kept = {n: rows.column(n) for n in (KEY_COLUMN, *self._identity) if n in rows.schema.names}
        if instant is not None or TIME_COLUMN not in rows.schema.names:
            kept[TIME_COLUMN] = pa.repeat(pa.scalar(instant, pa.string()), rows.num_rows)
        else:
            kept[TIME_COLUMN] = rows.column(TIME_COLUMN)
        kept[PARTITION_COLUMN] = pa.repeat(pa.scalar(self.partition), rows.num_rows)
        return project_to(pa.table(kept), self._schema)

    def _logged(self, storage: Storage, logs: tuple[str, ...]) -> list[pa.Table]:
        rules = self.spec.rules
        columns = (TIME_COLUMN, KEY_COLUMN, *self._identity)
        spec = replace(self.spec, columns=columns, filter=None, extra=())
        entries = log_entries(storage, Split(self.partition, "", None, logs, spec))
        entries = [e for e in entries if not isinstance(e, DataRows) or e.table.num_rows]
        if not entries:
            return []
        kinds = self.spec.ordering_types
        log = positions(entries, rules, kinds)
        folded = fold(log)
        chosen = np.zeros(len(log.codes), bool)
        chosen[folded.winner[folded.is_delete]] = True
        found = []
        for entry, start, end in zip(entries, log.starts[:-1], log.starts[1:], strict=True):
            mask = chosen[start:end]
            if mask.any():
                found.append(self._deleted_by(entry, mask))
        return found

    def _deleted_by(self, entry: Entry, mask: np.ndarray) -> pa.Table:
        name = paths.parse_log_name(entry.source.rsplit("/", 1)[-1])
        instant = None if name is None else name.instant
        if isinstance(entry, DataRows):
            return self._known_only(entry.table.filter(pa.array(mask)))
        return self._known_only(self._from_keys(entry, mask), instant)

    def _from_keys(self, entry: DeletedKeys, mask: np.ndarray) -> pa.Table:
        """Rows from a delete block: it holds record keys and ordering values; key columns are parsed
        from the key's text."""
        chosen = pa.array(mask)
        texts = entry.keys.filter(chosen)
        columns: dict[str, pa.Array] = {KEY_COLUMN: texts}
        schema = self.spec.schema
        values = key_values(texts, self.keys) | self._partition_values(len(texts))
        for name in self._identity:
            if name in values:
                columns[name] = _cast(values[name], schema.field(name).type)
        for name, part in zip(self.spec.rules.ordering, entry.ordering, strict=False):
            if name not in columns:
                given = align(part, schema.field(name).type, entry.source)
                given = pc.if_else(pa.array(entry.unconditional), None, given)
                columns[name] = given.filter(chosen)
        return pa.table(columns)

    def _partition_values(self, rows: int) -> dict[str, pa.Array]:
        """Partition columns parsed from the path, where the path spells their values unchanged."""
        fields = self.keys.partition_fields
        parts = self.partition.split("/")
        if not self.plain_paths or not fields or len(parts) != len(fields):
            return {}
        values: dict[str, pa.Array] = {}
        for name, part in zip(fields, parts, strict=True):
            text: str | None = part.removeprefix(f"{name}=") if self.keys.hive_style else part
            if text == DEFAULT_PARTITION:
                text = None
            elif self.keys.url_encode:
                text = unquote(text or "")
            values[name] = pa.repeat(pa.scalar(text, pa.string()), rows)
        return values

    def _missing(self, storage: Storage, rewrite: Rewrite) -> list[pa.Table]:
        """Rows of ``before`` whose keys are not in ``after``."""
        there: list[pa.Array] = []
        for split in rewrite.after:
            for table in _with_columns(split, (KEY_COLUMN,)).read(storage):
                there.append(_flat(table.column(KEY_COLUMN)))
        kept = pa.concat_arrays(there) if there else pa.array([], pa.string())
        found = []
        for split in rewrite.before:
            for table in _with_columns(split, (KEY_COLUMN, *self._identity)).read(storage):
                gone = pc.invert(pc.is_in(table.column(KEY_COLUMN), value_set=kept))
                found.append(self._known_only(table.filter(gone), rewrite.instant))
        return found


def _with_columns(split: Split, columns: Sequence[str]) -> Split:
    spec = replace(split.spec, columns=tuple(columns), filter=None, extra=(), instants=None)
    return replace(split, spec=spec)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a type; all null if one of them does not parse."""
    try:
        if pa.types.is_timestamp(kind):
            return texts.cast(pa.int64()).cast(kind)
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(texts), kind)


def key_values(texts: pa.Array, keys: KeyGenerator) -> dict[str, pa.Array]:
    """Record keys split into key fields; null where a key can be split in more than one way."""
    fields = keys.key_fields
    if keys.made_up:
        return {}
    if keys.plain_key is not None:
        return {keys.plain_key: texts}
    pattern = ",".join(f"{re.escape(name)}:(?P<g{at}>.*)" for at, name in enumerate(fields))
    parts = pc.extract_regex(texts, f"(?s)^{pattern}$")
    clear = parts.is_valid()
    for name in fields[1:]:
        clear = pc.and_(clear, pc.equal(pc.count_substring(texts, f",{name}:"), 1))
    values = {name: pc.if_else(clear, parts.field(at), None) for at, name in enumerate(fields)}
    if len(fields) == 1:  # HUDI-7001: without an option that decides, keys may also be bare values
        values[fields[0]] = pc.if_else(clear, parts.field(0), texts)
    return {name: _unmarked(column) for name, column in values.items()}


def _unmarked(values: pa.Array) -> pa.Array:
    """``__null__`` and ``__empty__`` stand for a null and an empty text."""
    values = pc.if_else(pc.equal(values, NULL_PART), None, values)
    return pc.if_else(pc.equal(values, EMPTY_PART), "", values)
