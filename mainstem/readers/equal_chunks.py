"""Columns of a base file that are stored twice, byte for byte: they are inflated and decoded once.

The record key of a table with one text key field is that field's text, and Hudi stores both. Keys hardly
compress, so that inflating them is the dearest part of a read. Column chunks of the same bytes, type,
levels and codec decode to the same values, whoever wrote them; the bytes are compared, nothing is assumed
of how keys are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.limits import MIB

# Below this size decoding is as cheap as comparing.
_BYTES_MIN = 16 * 1024


def doubles(file: pa.NativeFile, source: pq.ParquetFile, group: int, names: Sequence[str]) -> dict[str, str]:
    """Column -> an earlier of ``names`` whose chunk in the row group has the same bytes."""
    described, schema, arrow = source.metadata.row_group(group), source.schema, source.schema_arrow
    alike: dict[tuple, list[tuple[str, int]]] = {}
    found: dict[str, str] = {}
    places = {described.column(n).path_in_schema: n for n in range(described.num_columns)}
    for name in names:
        number = places.get(name)
        if number is None:  # nested
            continue
        chunk = described.column(number)
        if chunk.total_compressed_size < _BYTES_MIN:
            continue
        start, size = _start(chunk), chunk.total_compressed_size
        others = alike.setdefault((*_traits(chunk, schema.column(number)), arrow.field(name).type), [])
        same = next((other for other, place in others if _equal(file, place, start, size)), None)
        if same is None:
            others.append((name, start))
        else:
            found[name] = same
    return found


def _traits(chunk: Any, column: Any) -> tuple:
    """What besides its bytes decides how a chunk is decoded, and its sizes."""
    return (
        chunk.physical_type, chunk.compression, chunk.num_values, chunk.total_compressed_size,
        chunk.total_uncompressed_size, str(column.logical_type), column.converted_type, column.length,
        column.precision, column.scale, column.max_definition_level, column.max_repetition_level,
    )  # fmt: skip


def _start(chunk: Any) -> int:
    first = chunk.dictionary_page_offset
    return chunk.data_page_offset if first is None else min(first, chunk.data_page_offset)


def _equal(file: pa.NativeFile, one: int, other: int, size: int) -> bool:
    if min(one, other) < 0:
        return False
    for at in range(0, size, MIB):
        part = min(MIB, size - at)
        ours = file.read_at(part, one + at)
        if len(ours) != part or ours != file.read_at(part, other + at):
            return False
    return True
