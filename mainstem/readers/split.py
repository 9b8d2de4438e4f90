"""The unit of reading: one file slice, self-contained and picklable (a Spark task reads one)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.errors import CorruptTable, Unavailable, Unsupported
from mainstem.formats.avro_columns import decode_many
from mainstem.formats.log_file import BlockKind, Header, LogBlock, read_blocks
from mainstem.limits import MIB
from mainstem.merge.entries import DataRows, DeletedKeys, Entry
from mainstem.merge.file_slice import merge_slice
from mainstem.merge.log_order import BlockNote, surviving
from mainstem.merge.rules import KEY_COLUMN, MergeRules
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.table.keys import record_keys

BASE_ROWS_PER_BATCH = 4_000_000
BASE_BYTES_PER_BATCH = 512 * MIB
# A row group that inflates more than this is refused (dictionary and run-length bombs).
PARQUET_ALWAYS_BYTES = 64 * MIB
PARQUET_RATIO_MAX = 2000
TIME_COLUMN = "_hoodie_commit_time"


@dataclass(frozen=True)
class ReadSpec:
    """What all splits of one query share.

    ``schema``: the table's; ``columns``: what comes out; ``extra``: read for the filter only;
    ``instants``: only rows written by these (requested times), None for all; ``until``: newest log
    block instant; ``virtual_key``: record key fields where the files hold no meta columns.
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

    @property
    def read_schema(self) -> pa.Schema:
        """Columns that come out of the merge, before the filter."""
        names = dict.fromkeys((*self.columns, *self.extra)) or {KEY_COLUMN: None}
        return pa.schema([self.schema.field(n) for n in names])

    @property
    def wanted(self) -> list[str]:
        """Columns to read from files, as far as they have them."""
        needed = (*self.read_schema.names, *self.rules.needed_columns, *self.virtual_key)
        times = () if self.instants is None else (TIME_COLUMN,)
        return list(dict.fromkeys((*needed, *times)))


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


def read_split(storage: Storage, split: Split) -> Iterator[pa.Table]:
    """Rows of the slice that match the filter, in the query's columns; empty tables are left out.

    Raises ``CorruptTable`` with path and offset for damaged files, ``FileNotFoundError`` for files
    that a clean removed meanwhile.
    """
    spec = split.spec
    entries = log_entries(storage, split)
    order_types = [_ordering_type(spec, name) for name in spec.rules.ordering]
    merged = merge_slice(_base_tables(storage, split), entries, spec.read_schema, spec.rules, order_types)
    for table in merged:
        rows = _selected(table, split)
        if rows.num_rows:
            yield rows


def _ordering_type(spec: ReadSpec, name: str) -> pa.DataType:
    if name not in spec.schema.names:
        raise Unsupported(
            f"ordering field {name!r} is no column of the table; its columns are"
            f" {', '.join(spec.schema.names)} (nested ordering fields are not supported)"
        )
    return spec.schema.field(name).type


def _selected(table: pa.Table, split: Split) -> pa.Table:
    spec = split.spec
    for name, text in split.path_values:
        if name in table.schema.names:
            at = table.schema.get_field_index(name)
            field_ = table.schema.field(at)
            values = _repeated(text, field_.type, table.num_rows, split.partition)
            table = table.set_column(at, field_, values)
    if spec.filter is not None and table.num_rows:
        table = table.filter(spec.filter)
    return table.select(list(spec.columns))


def _repeated(text: str | None, kind: pa.DataType, rows: int, partition: str) -> pa.Array:
    if text is None:
        return pa.nulls(rows, kind)
    try:
        return pa.repeat(pa.scalar(text).cast(kind), rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsupported(
            f"partition {partition!r}: {text!r} does not read as {kind}, and the files hold no"
            " partition columns (hoodie.datasource.write.drop.partition.columns=true)"
        ) from error


def _base_tables(storage: Storage, split: Split) -> Iterator[pa.Table]:
    if split.base_file is None:
        return
    try:
        file = storage.open_input(split.base_file)
        with pq.ParquetFile(file) as source:
            _check_size(source.metadata, file.size(), split.base_file)
            names = [n for n in split.spec.wanted if n in source.schema_arrow.names]
            for groups in _row_group_runs(source.metadata):
                table = source.read_row_groups(groups, columns=names)
                table = _with_keys(table.select(names), split.spec, split.base_file)
                yield _written_in(table, split.spec)
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise _damaged_base(split.base_file, error) from error
    except OSError as error:
        if error.errno is None:  # pyarrow's way of saying that bytes do not decode
            raise _damaged_base(split.base_file, error) from error
        raise Unavailable(f"reading {split.base_file}: {error}; try again") from error


def _damaged_base(path: str, error: Exception) -> CorruptTable:
    return CorruptTable(f"base file does not read as parquet ({error}); restore it from a copy", path=path)


def _row_group_runs(metadata: Any) -> Iterator[list[int]]:
    """Row groups in runs of a bounded number of rows; a file without rows still has a schema."""
    run: list[int] = []
    rows = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if run and (rows > BASE_ROWS_PER_BATCH or size > BASE_BYTES_PER_BATCH):
            yield run
            run, rows, size = [], group.num_rows, group.total_byte_size
        run.append(number)
    if run:
        yield run


def _check_size(metadata: Any, size: int, path: str) -> None:
    """A file that claims to become absurdly large is refused before anything is allocated."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    largest = max((max(g.num_rows, g.total_byte_size) for g in groups), default=0)
    smallest = min((min(g.num_rows, g.total_byte_size) for g in groups), default=0)
    limit = max(PARQUET_ALWAYS_BYTES, PARQUET_RATIO_MAX * size)
    if smallest < 0 or largest > limit:
        raise CorruptTable(
            f"base file of {size} bytes with a row group of {largest} bytes or rows, at most"
            f" {limit}"
            " are believed; restore it from a copy",
            path=path,
        )


def _written_in(table: pa.Table, spec: ReadSpec) -> pa.Table:
    """Rows of the asked instants. Java filters before it merges: a base row from outside the range
    neither hides a late row of the range nor fills its absent columns."""
    if spec.instants is None or not table.num_rows:
        return table
    column = table.column(TIME_COLUMN)
    mask = pc.is_in(column, value_set=pa.array(sorted(spec.instants), column.type))
    return table.filter(mask)


def _with_keys(table: pa.Table, spec: ReadSpec, where: str) -> pa.Table:
    if spec.virtual_key:
        keys = record_keys(table, spec.virtual_key, composite=spec.composite_key).texts
        if KEY_COLUMN in table.schema.names:
            table = table.drop_columns([KEY_COLUMN])
        return table.append_column(KEY_COLUMN, keys)
    if KEY_COLUMN not in table.schema.names:
        raise CorruptTable(f"file without the column {KEY_COLUMN}", path=where)
    return table


def log_entries(storage: Storage, split: Split) -> list[Entry]:
    """Entries of the split's log files in replay order, with the columns that its spec needs."""
    notes: list[BlockNote] = []
    for path in split.log_files:
        name = paths.parse_log_name(path.rsplit("/", 1)[-1])
        instant = name.instant if name is not None else ""
        if split.spec.until is not None and instant > split.spec.until:
            continue
        view = storage.view(path)
        notes += [_note(block, path) for block in read_blocks(view, path=path, damaged=split.spec.damaged)]
    changes_only = split.spec.instants is not None
    live = surviving(notes, until=split.spec.until, only_with_sources=changes_only)
    entries: list[Entry] = []
    for run in _runs([note.block for note in live]):
        entries += _entries(run, split.spec)
    return entries


def _runs(blocks: Sequence[tuple[str, LogBlock]]) -> Iterator[list[tuple[str, LogBlock]]]:
    """Neighbouring Avro blocks of one schema together: small blocks cost more apart."""
    run: list[tuple[str, LogBlock]] = []
    for item in blocks:
        if run and not (_joinable(item[1]) and _joinable(run[-1][1], item[1])):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _joinable(block: LogBlock, other: LogBlock | None = None) -> bool:
    plain = block.kind is BlockKind.AVRO_DATA and not block.partial
    return plain and (other is None or block.schema_text == other.schema_text)


def _note(block: LogBlock, path: str) -> BlockNote:
    headers = block.headers
    if block.kind is BlockKind.COMMAND:
        target = headers.get(Header.TARGET_INSTANT_TIME)
        return BlockNote(block.instant, (path, block), rollback_of=target)
    listed = headers.get(Header.COMPACTED_BLOCK_TIMES, "").split(",")
    replaced = frozenset(t for t in listed if t)
    return BlockNote(block.instant, (path, block), replaces=replaced)


def _entries(run: list[tuple[str, LogBlock]], spec: ReadSpec) -> list[Entry]:
    path, block = run[0]
    if block.kind is BlockKind.DELETE:
        return [_deleted(block, path)]
    if block.kind is BlockKind.CORRUPT:
        return []  # only with damaged="skip"
    if block.kind not in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
        raise Unsupported(
            f"log block of kind {block.kind.name} in {path} at offset {block.offset}; Avro and"
            " Parquet data blocks, delete blocks and rollback commands can be read"
        )
    try:
        table = _decoded(run, spec)
    except CorruptTable as error:
        if error.offset is None and error.path == path:  # the schema in the block's header
            error.offset = block.offset
        raise
    table = _written_in(_with_keys(table, spec, path), spec)
    return [DataRows(table, block.partial, path)]


def _decoded(run: list[tuple[str, LogBlock]], spec: ReadSpec) -> pa.Table:
    path, block = run[0]
    if len(run) == 1:
        return block.table(spec.wanted)
    places = [(name, member.content_offset + 8) for name, member in run]
    parts = [member.records() for _, member in run]
    return decode_many(parts, block.schema_text, spec.wanted, path, places=places)


def _deleted(block: LogBlock, path: str) -> DeletedKeys:
    table = block.deletes()
    keys = _whole(table.column("record_key"))
    unconditional = _whole(table.column("ordering_is_default")).to_numpy(zero_copy_only=False)
    ordering = _whole(table.column("ordering"))
    several = pa.types.is_struct(ordering.type)
    fields = tuple(ordering.flatten()) if several else (ordering,)
    return DeletedKeys(keys, fields, unconditional, path)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


def split_paths(partition: str, base: str | None, logs: Sequence[str]) -> tuple[str | None, tuple]:
    """Table paths of a slice's files."""
    base_path = None if base is None else paths.in_partition(partition, base)
    return base_path, tuple(paths.in_partition(partition, name) for name in logs)
