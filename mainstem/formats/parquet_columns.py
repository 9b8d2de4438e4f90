"""Chooses encoding and compression for each column of a base file.

A dictionary of values that all differ is useless, and gzip gains little on vectors. Both decisions are made
from the first rows of a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

# Sample sizes: rows that show whether two columns are equal, and bytes of vectors to compress.
_SAMPLE_ROWS = 2048
_SAMPLE_BYTES = 64 * 1024
# Vectors stay uncompressed if gzip would save less than this share. Of floating point numbers it compresses
# only the exponents, about 8 %, and takes a hundred times as long as writing them.
_VECTOR_GAIN_MIN = 0.15
# Before version 22, pyarrow passed gzip's level on as the size of zlib's tables, and the level was always 6
# (apache/arrow#47591): a low number takes ten times as long and more bytes. 8 is zlib's default size.
_LEVELS_SINCE = 22
_TABLES = 8


def gzip_level(level: int) -> int:
    """The number to pass to pyarrow for a gzip level."""
    return level if int(pa.__version__.split(".")[0]) >= _LEVELS_SINCE else _TABLES


@dataclass(frozen=True)
class ColumnChoice:
    """How the columns of a file are written, chosen by its first rows; leaves have Parquet's paths.

    ``dictionaries``: leaves that get one; ``statistics``: leaves that get some, None for all; ``plain``:
    leaves that stay uncompressed; ``repeated``: the key; ``repeating``: columns behind it that seem to be
    equal to it, of its type.
    """

    dictionaries: tuple[str, ...]
    statistics: tuple[str, ...] | None
    plain: frozenset[str]
    repeated: str
    repeating: frozenset[str]

    @property
    def encodings(self) -> dict[str, Any]:
        """Arguments of ``pyarrow.parquet.ParquetWriter``."""
        found: dict[str, Any] = {"use_dictionary": list(self.dictionaries)}
        if self.statistics is not None:
            found["write_statistics"] = list(self.statistics)
        return found


def column_choice(
    rows: pa.Table, unique: Sequence[str], level: int | None = None, *, for_all: bool = False
) -> ColumnChoice:
    """``rows``: the file's first rows, with all its columns and vectors as bytes. ``unique``: names of text
    columns whose values all differ, the keys first; columns equal to the keys count as such. ``level``: of
    gzip, None for another codec. ``for_all``: compress everything, even where it gains nothing.
    """
    kind = rows.schema.field(unique[0])
    keys = rows.column(unique[0]).slice(0, _SAMPLE_ROWS)
    same = [name for name in rows.schema.names if rows.column(name).slice(0, _SAMPLE_ROWS).equals(keys)]
    every = leaves(rows.schema)
    vectors = _vectors(rows.schema)
    plain = () if for_all or level is None else (n for n in vectors if not _shrinks(rows.column(n), level))
    after = rows.schema.names[rows.schema.get_field_index(unique[0]) + 1 :]
    return ColumnChoice(
        tuple(path for path in every if path not in {*unique, *same, *vectors}),
        # least and greatest bytes of vectors mean nothing
        tuple(path for path in every if path not in vectors) if vectors else None,
        frozenset(plain),
        unique[0],
        frozenset(
            name
            for name in same
            if name in after and rows.schema.field(name).equals(kind.with_name(name))
        ),
    )


def dictionary_columns(schema: pa.Schema) -> list[str] | bool:
    """``use_dictionary`` if nothing is known about the values: all columns except vectors as bytes."""
    vectors = _vectors(schema)
    return [path for path in leaves(schema) if path not in vectors] if vectors else True


def _vectors(schema: pa.Schema) -> list[str]:
    """Names of vector columns: here only they have a fixed number of bytes."""
    return [field.name for field in schema if pa.types.is_fixed_size_binary(field.type)]


@lru_cache(maxsize=64)
def leaves(schema: pa.Schema) -> list[str]:
    """Parquet's paths of all leaf columns, including nested ones."""
    import pyarrow.parquet as pq

    made = pa.BufferOutputStream()
    pq.write_metadata(schema, made)
    described = pq.read_metadata(pa.BufferReader(made.getvalue())).schema
    return [described.column(number).path for number in range(len(described))]


def _shrinks(vectors: pa.ChunkedArray, level: int) -> bool:
    width = vectors.type.byte_width
    some = vectors.drop_null().slice(0, max(2, _SAMPLE_BYTES // width))
    data = b"".join(some.to_pylist())[: 4 * _SAMPLE_BYTES]
    return len(zlib.compress(data, level)) < (1 - _VECTOR_GAIN_MIN) * len(data)
