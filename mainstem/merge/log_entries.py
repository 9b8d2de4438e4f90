"""Log entries in the form that the merge works on: rows of a data block, or keys of a delete block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.limits import CHUNK_BYTES_MAX
from mainstem.merge.rules import (
    DELETE_OPERATIONS,
    DELETED_COLUMN,
    KEY_COLUMN,
    OPERATION_COLUMN,
    MergeRules,
)


@dataclass(frozen=True)
class DataRows:
    """Rows of one data block. ``partial``: the block holds only some columns (IS_PARTIAL)."""

    table: pa.Table
    partial: bool = False
    source: str = ""


@dataclass(frozen=True)
class DeletedKeys:
    """Keys of one delete block.

    ``ordering``: one array per ordering field, or empty; ``unconditional``: true where the delete
    carries Hudi's default ordering value (IntWrapper 0) and so deletes whatever came before;
    ``instant``: that of the block.
    """

    keys: pa.Array
    ordering: tuple[pa.Array, ...]
    unconditional: np.ndarray
    source: str = ""
    instant: str = ""


Entry = DataRows | DeletedKeys


def entry_keys(entry: Entry) -> pa.ChunkedArray:
    """Record keys of an entry. Raises ``CorruptTable`` if one is null."""
    if isinstance(entry, DataRows):
        keys = entry.table.column(KEY_COLUMN)
    else:
        keys = pa.chunked_array([entry.keys])
    if keys.null_count:
        raise CorruptTable(
            f"{keys.null_count} log records without {KEY_COLUMN}; expected one in each",
            path=entry.source,
        )
    return keys


def chosen(entry: Entry, mask: np.ndarray) -> Entry:
    """The records of an entry where the mask is set."""
    if mask.all():
        return entry
    wanted = pa.array(mask, pa.bool_())
    if isinstance(entry, DataRows):
        return replace(entry, table=entry.table.filter(wanted))
    ordering = tuple(field.filter(wanted) for field in entry.ordering)
    return replace(
        entry, keys=entry.keys.filter(wanted), ordering=ordering, unconditional=entry.unconditional[mask]
    )


def joined_keys(entries: Sequence[Entry]) -> pa.Array:
    """All record keys in order as one array; large strings if 32-bit offsets do not suffice."""
    chunks = [chunk for entry in entries for chunk in entry_keys(entry).chunks]
    large = sum(chunk.nbytes for chunk in chunks) > CHUNK_BYTES_MAX
    kind = pa.large_string() if large else pa.string()
    chunks = [chunk if chunk.type.equals(kind) else chunk.cast(kind) for chunk in chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], kind)


def deleted_rows(table: pa.Table, rules: MergeRules) -> np.ndarray | None:
    """Mask of a data block's rows that are deletes (BufferedRecords.isDelete); None if there are none."""
    masks = []
    names = table.schema.names
    if DELETED_COLUMN in names and pa.types.is_boolean(table.schema.field(DELETED_COLUMN).type):
        masks.append(table.column(DELETED_COLUMN))
    if OPERATION_COLUMN in names:
        wanted = pa.array(DELETE_OPERATIONS, table.schema.field(OPERATION_COLUMN).type)
        masks.append(pc.is_in(table.column(OPERATION_COLUMN), value_set=wanted))
    if rules.delete_field in names and rules.delete_marker is not None:
        text = table.column(rules.delete_field).cast(pa.string())
        masks.append(pc.equal(text, rules.delete_marker))
    if not masks:
        return None
    total = np.zeros(table.num_rows, bool)
    for mask in masks:
        total |= pc.fill_null(mask, False).to_numpy()
    return total if total.any() else None
