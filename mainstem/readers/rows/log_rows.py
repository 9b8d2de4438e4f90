"""Reads a file slice's log files: selects the valid blocks and decodes them with a query's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_columns import decode_many
from mainstem.formats.avro_selection import selected_records
from mainstem.formats.log_file import BlockKind, Header, LogBlock, replaced_by
from mainstem.formats.native_log import NativeBlock
from mainstem.merge.log_entries import DataRows, DeletedKeys, Entry
from mainstem.merge.log_order import BlockNote, surviving
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.query_columns import with_keys, written_in
from mainstem.readers.rows.slice_query import ReadSpec, SliceQuery
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side

# So many native logs of a slice stay open between the look at their footers and the read of their columns.
# Several queries at once read eight slices each, and a process may have 256 files open on some systems.
_OPEN_MAX = 16

Kept = TypeVar("Kept")
Run = list[tuple[str, LogBlock]]
"""Neighbouring blocks that are decoded together, with the paths of their files."""


def log_entries(storage: Storage, split: SliceQuery) -> list[Entry]:
    """Entries of the split's log files in replay order, with the columns that its spec needs."""
    return [entry for run in log_runs(storage, split) for entry in entries_of(run, split.spec)]


def log_runs(storage: Storage, split: SliceQuery) -> list[Run]:
    """The valid blocks of the split's log files in replay order; nothing is decoded yet."""
    # Where columns have ids, the same schema text may mean other columns at another instant.
    return list(_runs(live_blocks(storage, split, lambda block: block), join=split.spec.ids is None))


def live_blocks(
    storage: Storage, split: SliceQuery, keep: Callable[[LogBlock], Kept]
) -> list[tuple[str, Kept]]:
    """(path, ``keep(block)``) of the valid blocks of the split's log files, in replay order.

    ``keep`` is called for every block, also for invalid ones, file by file.
    """
    until, damaged = split.spec.until, split.spec.damaged
    logs = [path for path in split.log_files if until is None or _instant_of(path) <= until]

    def blocks(path: str) -> Sequence[LogBlock]:
        least, final = split.least_bytes(path), damaged == "error"
        return blocks_of(storage, path, damaged=damaged, least=least, final=final, keep=keep_open)

    # Of native logs only the footer is read here, which is a request each on an object store.
    native = [path for path in logs if paths.is_native_log(path)]
    keep_open = len(native) <= _OPEN_MAX
    opened = dict(zip(native, side_by_side(storage, blocks, native), strict=True))
    notes: list[BlockNote] = []
    for path in logs:
        found = opened[path] if path in opened else blocks(path)
        notes += [_note(block, (path, keep(block))) for block in found]
    return [note.block for note in surviving(notes, until=split.spec.until)]


def _instant_of(path: str) -> str:
    name = paths.parse_log_name(path.rsplit("/", 1)[-1])
    return "" if name is None else name.instant


def _runs(blocks: Sequence[tuple[str, LogBlock]], *, join: bool) -> Iterator[Run]:
    """Groups neighbouring Avro blocks of one schema: decoding small blocks one by one costs more."""
    run: Run = []
    for item in blocks:
        if run and not (join and joinable(run[-1][1], item[1])):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def joinable(block: LogBlock, other: LogBlock) -> bool:
    """Whether two neighbouring blocks can be decoded together: Avro rows of one schema."""
    plain = all(b.kind is BlockKind.AVRO_DATA and not b.partial for b in (block, other))
    return plain and block.schema_text == other.schema_text


def _note(block: LogBlock, kept: object) -> BlockNote:
    headers = block.headers
    if block.kind is BlockKind.COMMAND:
        target = headers.get(Header.TARGET_INSTANT_TIME)
        return BlockNote(block.instant, kept, rollback_of=target)
    return BlockNote(block.instant, kept, replaces=replaced_by(headers))


def entries_of(run: Run, spec: ReadSpec) -> list[Entry]:
    """The merge entries of a run (none for a block skipped as damaged)."""
    path, block = run[0]
    if block.kind is BlockKind.DELETE:
        return [_deleted(block, path, spec)]
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
    table = written_in(with_keys(table, spec, path), spec, path)
    return [DataRows(table, block.partial, path)]


def _decoded(run: Run, spec: ReadSpec) -> pa.Table:
    path, block = run[0]
    stored = spec.stored_columns(block.instant)
    if stored is not None:  # then every run is one block
        return stored.shown(block.table(stored.names(spec.wanted)))
    if len(run) == 1:
        return block.table(spec.wanted)
    places = [(name, member.content_offset + 8) for name, member in run]
    parts = [member.records() for _, member in run]
    return decode_many(parts, block.schema_text, spec.wanted, path, places=places)


def rows_of(run: Run, names: Sequence[str], rows: np.ndarray) -> pa.Table:
    """Rows by number (ascending within the run) of data blocks, with these columns."""
    path, block = run[0]
    if isinstance(block, NativeBlock):
        return block.picked(names, rows)
    if block.kind is not BlockKind.AVRO_DATA:
        return block.table(names).take(pa.array(rows))
    places = [(name, member.content_offset + 8) for name, member in run]
    parts = selected_records([member.records() for _, member in run], rows, places=places)
    return decode_many(parts, block.schema_text, names, path, places=places)


def _deleted(block: LogBlock, path: str, spec: ReadSpec) -> DeletedKeys:
    if isinstance(block, NativeBlock):
        return _natively_deleted(block, path, spec)
    table = block.deletes()
    keys = _whole(table.column("record_key"))
    unconditional = _whole(table.column("ordering_is_default")).to_numpy(zero_copy_only=False)
    ordering = _whole(table.column("ordering"))
    several = pa.types.is_struct(ordering.type)
    fields = tuple(ordering.flatten()) if several else (ordering,)
    return DeletedKeys(keys, fields, unconditional, path, block.instant)


def _natively_deleted(block: NativeBlock, path: str, spec: ReadSpec) -> DeletedKeys:
    stored, wanted = spec.stored_columns(block.instant), list(spec.rules.ordering)
    table = block.deleted(wanted if stored is None else stored.names(wanted))
    table = table if stored is None else stored.shown(table)
    fields = tuple(_whole(table.column(name)) for name in wanted if name in table.schema.names)
    if len(fields) < len(wanted) and block.ordered_by:
        raise Unsupported(
            f"the deletes in {path} are ordered by {', '.join(block.ordered_by)}, the table by"
            f" {', '.join(wanted)}, so they cannot be ordered: compact the table with Java Hudi before its"
            " ordering fields change"
        )
    # Without any ordering value a delete removes whatever came before.
    unconditional = np.ones(table.num_rows, bool)
    for field in fields:
        unconditional &= np.asarray(field.is_null())
    return DeletedKeys(_whole(table.column(KEY_COLUMN)), fields, unconditional, path)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
