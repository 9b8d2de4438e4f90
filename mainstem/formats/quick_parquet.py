"""Chooses encoding and compression for each column of a file that is soon written again: a native log file.

There the time to write it counts, and bytes only where they are saved cheaply:

  values that all are one     a dictionary of it, without a look at each value
  texts that repeat           a dictionary
  other values                as they are, by snappy if that leaves half of their bytes at most

Random keys do not get smaller by snappy, which takes ten times as long as writing them. Statistics stay on: a
column without them is, for Hudi's index of column statistics, one of nulls only
(``ParquetUtils.readColumnStatsFromMetadata``), and readers would skip the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.parquet_columns import leaves_of, vector_names

#: the codec where one is worth it; every reader of Parquet has it
CODEC = "snappy"
# Rows and bytes of the first rows of a column that are looked at.
_SAMPLE_ROWS, _SAMPLE_BYTES = 2048, 16 * 1024
# Texts repeat if so many rows of the sample have one value, on average.
_REPEATS_MIN = 8
# Compression must leave this share at most, or is left out.
_LEFT_MAX = 0.5


@dataclass(frozen=True)
class QuickChoice:
    """How the columns of a file are written; ``same``: names of columns whose first rows all have one value,
    which are given to pyarrow as dictionaries."""

    same: frozenset[str]
    dictionaries: tuple[str, ...]
    codecs: dict[str, str]

    @property
    def encodings(self) -> dict[str, Any]:
        """Arguments of ``pyarrow.parquet.ParquetWriter``."""
        return {"use_dictionary": list(self.dictionaries), "compression": self.codecs}

    def laid_out(self, rows: pa.Table) -> pa.Table:
        """The rows as the writer takes them."""
        for place, field in enumerate(rows.schema):
            column, coded = rows.column(place), pa.types.is_dictionary(field.type)
            if field.name in self.same and not coded:
                column = _coded(column)
            elif coded and field.name not in self.same:
                column = column.cast(field.type.value_type)
            else:
                continue
            rows = rows.set_column(place, field.with_type(column.type), column)
        return rows


def quick_choice(rows: pa.Table) -> QuickChoice:
    """Chosen by the first rows of a file, or of another one of the same write. Nested columns and vectors are
    written as anywhere."""
    found = {name: _way(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    vectors = vector_names(rows.schema)
    coded, codecs = [], {}
    for path in leaves_of(rows.schema):
        way = found.get(path)
        if way is None:
            codecs[path] = CODEC
            if path not in vectors:
                coded.append(path)
            continue
        codecs[path] = way.codec
        if way.dictionary:
            coded.append(path)
    same = frozenset(name for name, way in found.items() if way is not None and way.same)
    return QuickChoice(same, tuple(coded), codecs)


@dataclass(frozen=True)
class _Way:
    codec: str = CODEC
    dictionary: bool = False
    same: bool = False


def _way(column: pa.ChunkedArray) -> _Way | None:
    """How a flat column is written; None for another one."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _Way(dictionary=True, same=True)
    textual = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not textual and not pa.types.is_primitive(kind):
        return None
    some = column.slice(0, _SAMPLE_ROWS).combine_chunks()
    if textual and len(some):
        values = pc.count_distinct(some, mode="all").as_py()
        if values * _REPEATS_MIN <= len(some):
            return _Way(dictionary=True, same=values == 1 and not some.null_count)
    data = _bytes_of(some.drop_null())
    if len(data) and len(pa.compress(data, codec=CODEC, asbytes=True)) > _LEFT_MAX * len(data):
        return _Way("none")
    return _Way()


def _bytes_of(values: pa.Array) -> bytes:
    """The first values as Parquet would hold them, more or less."""
    if not len(values):
        return b""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
        low, high = int(ends[0]), int(ends[-1])
        return (values.buffers()[2] or b"")[low : min(high, low + _SAMPLE_BYTES)] if high > low else b""
    width = max(kind.bit_width // 8, 1)
    low = values.offset * kind.bit_width // 8
    return values.buffers()[1][low : low + min(len(values) * width, _SAMPLE_BYTES)]


def _coded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as a dictionary. A look at each value is saved if all bytes are those of the first value."""
    kind = pa.dictionary(pa.int32(), column.type)
    return pa.chunked_array([_of_one(chunk) for chunk in column.chunks], kind)


def _of_one(chunk: pa.Array) -> pa.Array:
    if not len(chunk) or chunk.null_count or not _repeats_first(chunk):
        return chunk.dictionary_encode()
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(chunk), np.int32)), chunk.slice(0, 1))


def _repeats_first(texts: pa.Array) -> bool:
    ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    width = int(ends[1] - ends[0])
    if int(ends[-1] - ends[0]) != width * len(texts) or not (np.diff(ends) == width).all():
        return False
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    return np.array_equal(data[width:], data[: len(data) - width])
