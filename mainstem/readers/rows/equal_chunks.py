"""Finds columns of a base file that are stored twice, byte for byte, so that they are decoded only once.

With a single text key field, the record key equals that field, and Hudi stores both. Keys hardly compress,
so decompressing them is the most expensive part of a read. Column chunks with the same bytes, type, levels
and codec decode to the same values, whichever writer made them. The bytes are compared; nothing is assumed
about how keys are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.limits import MIB

# Below this size decoding is as cheap as comparing.
_BYTES_MIN = 16 * 1024
# Only columns whose first bytes agree are compared in full; nearly all others differ here already.
_BEGINNING = 4 * 1024


def doubles(
    file: pa.NativeFile,
    source: pq.ParquetFile,
    group: int,
    names: Sequence[str],
    *,
    compressed: bool = False,
) -> dict[str, str]:
    """Column -> an earlier column of ``names`` whose chunk in the row group has the same bytes.

    ``compressed``: look at compressed columns only; others are decoded as quickly as they are compared. Each
    column is compared with at most one other, so many columns of one size cost little.
    """
    described = source.metadata.row_group(group)
    places = {described.column(n).path_in_schema: n for n in range(described.num_columns)}
    sizes: dict[int, list[tuple[str, int, Any]]] = {}
    for name in names:
        number = None if "." in name else places.get(name)  # None: nested, or its path could be
        if number is None:
            continue
        chunk = described.column(number)
        plain = compressed and chunk.compression == "UNCOMPRESSED"
        if not plain and (size := chunk.total_compressed_size) >= _BYTES_MIN:
            sizes.setdefault(size, []).append((name, number, chunk))
    schema, arrow = source.schema, source.schema_arrow
    alike: dict[tuple, list[tuple[str, int]]] = {}
    for name, number, chunk in chain.from_iterable(same for same in sizes.values() if len(same) > 1):
        traits = (*_traits(chunk, schema.column(number)), arrow.field(name).type)
        alike.setdefault(traits, []).append((name, chunk_start(chunk)))
    found: dict[str, str] = {}
    for (_, size, *_), columns in alike.items():
        if len(columns) > 1:
            found |= _same(file, columns, size)
    return found


def _same(file: pa.NativeFile, columns: Sequence[tuple[str, int]], size: int) -> dict[str, str]:
    found: dict[str, str] = {}
    first: dict[bytes, tuple[str, int]] = {}
    for name, start in columns:
        if start < 0:
            continue
        other, place = first.setdefault(file.read_at(_BEGINNING, start), (name, start))
        if other != name and _equal(file, place, start, size):
            found[name] = other
    return found


def _traits(chunk: Any, column: Any) -> tuple:
    """A chunk's sizes and everything except its bytes that determines how it is decoded."""
    return (
        chunk.num_values, chunk.total_compressed_size, chunk.total_uncompressed_size,
        chunk.physical_type, chunk.compression, str(column.logical_type), column.converted_type,
        column.length, column.precision, column.scale,
        column.max_definition_level, column.max_repetition_level,
    )  # fmt: skip


def chunk_start(chunk: Any) -> int:
    """Where a column chunk begins in its file."""
    first = chunk.dictionary_page_offset
    # Some writers record 0 for a missing dictionary; Arrow's reader ignores it too.
    return min(first, chunk.data_page_offset) if first else chunk.data_page_offset


def _equal(file: pa.NativeFile, one: int, other: int, size: int) -> bool:
    for at in range(0, size, MIB):
        part = min(MIB, size - at)
        ours = file.read_at(part, one + at)
        if len(ours) != part or ours != file.read_at(part, other + at):
            return False
    return True
