"""What is left of one row beside its versions: records of change logs, and entries of indexes.

Neither decides what a query shows. They tell what a follower of the change data was told of the row, and
where a reader that goes by an index looks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.log_file import BlockKind
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.properties import TableConfig
from mainstem.metadata.derive.index_rows import secondary_texts
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.row_explanation import ChangeRecord, IndexEntry, RowVersion
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.skipping.metadata_indexes import Indexes
from mainstem.storage import paths

if TYPE_CHECKING:
    from mainstem.layout.slicing import FileSlice

_IMAGES = ("before", "after")


def change_records(
    state: TableState, slice_: FileSlice, name: str, keys: pa.Array, damaged: str
) -> Iterator[ChangeRecord]:
    """What the change log ``name`` has of a row whose key is one of ``keys``. Raises ``CorruptTable``."""
    path = paths.in_partition(slice_.partition, name)
    for number, block in enumerate(blocks_of(state.storage, path, damaged=damaged)):
        if block.kind is not BlockKind.CDC_DATA:
            continue
        rows = block.table()
        for at in np.flatnonzero(pc.is_in(_keys_of(rows, state.config), value_set=keys).to_numpy(False)):
            record = rows.slice(int(at), 1).to_pylist()[0]
            before, after = (record.get(image) for image in _IMAGES)
            yield ChangeRecord(
                str(record["op"]), slice_.partition, slice_.file_id, name, number, block.offset, int(at),
                block.instant, state.completion(block.instant), before, after,
            )  # fmt: skip


def _keys_of(rows: pa.Table, config: TableConfig) -> pa.Array:
    """Record keys of change records: stored where images may be missing, else made of the images."""
    if "record_key" in rows.schema.names:
        return rows.column("record_key").combine_chunks().cast(pa.string())
    if not rows.num_rows:
        return pa.array([], pa.string())
    before, after = (rows.column(image).combine_chunks() for image in _IMAGES)
    fields = config.record_key
    columns = {
        name: pc.coalesce(pc.struct_field(after, name), pc.struct_field(before, name)) for name in fields
    }
    return KeyGenerator.of(config).record_keys(pa.table(columns)).texts


def index_entries(
    state: TableState, keys: pa.Array, versions: Sequence[RowVersion], shown: pa.Table
) -> Iterator[IndexEntry]:
    """What the record index and the secondary indexes say of a key now, beside the rows that a query shows.

    ``versions`` tell which values the key had: a secondary index keeps pairs that are gone, which costs a
    reader a look and no row. Raises ``FileNotFoundError`` while an index is built or dropped.
    """
    indexes = Indexes.of(state, newest=True)
    if indexes is None:
        return
    yield from _in_record_index(indexes, keys, versions)
    for index in indexes.secondaries():
        (column,) = index.fields
        if column in shown.schema.names:
            yield from _in_secondary(indexes, index.partition, column, keys, versions, shown)
    indexes.confirm()


def _in_record_index(
    indexes: Indexes, keys: pa.Array, versions: Sequence[RowVersion]
) -> Iterator[IndexEntry]:
    """A key that was deleted may keep its entry: what comes late for it goes to the same file group."""
    places = {(v.partition, v.file_id) for v in versions if v.wins and v.kind != "delete"}
    found = indexes.places_of_each(keys, sorted({v.partition for v in versions}))
    if found is None:
        return
    for partition, file_id in found:
        told = {"partition": partition, "file_id": file_id}
        agrees = not places or (partition, file_id) in places
        yield IndexEntry(RECORD_INDEX, told, agrees, "the key is in" if agrees else "the row is not in")
    for partition, file_id in sorted(places) if not found else ():
        told = {"partition": partition, "file_id": file_id}
        yield IndexEntry(RECORD_INDEX, told, False, "no entry for the row in")


def _in_secondary(
    indexes: Indexes,
    index: str,
    column: str,
    keys: pa.Array,
    versions: Sequence[RowVersion],
    shown: pa.Table,
) -> Iterator[IndexEntry]:
    kind = shown.schema.field(column).type
    now = pc.unique(shown.column(column))
    had = pa.array([version.values[column] for version in versions if column in version.values], kind)
    values = pc.unique(pa.concat_arrays([now, had]))
    for value in values.to_pylist():
        one = pa.array([value], kind)
        is_there = indexes.has_secondary(index, secondary_texts(one), keys)
        expected = bool(pc.any(pc.is_in(one, value_set=now)).as_py())
        if not is_there and not expected:
            continue
        what = "has the key under" if expected else "still has it under an older value,"
        yield IndexEntry(index, {column: value}, is_there, what if is_there else "lacks the key under")
