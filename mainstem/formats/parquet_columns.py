"""Chooses encoding and compression for each column of a base file.

A dictionary of values that all differ is useless, and a higher gzip level gains nothing on random keys or
vectors. Both decisions are made from the first rows of a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

# Sample sizes: rows that show whether two columns are equal, and bytes of keys to compress.
_SAMPLE_ROWS = 2048
_SAMPLE_BYTES = 64 * 1024
# Keys get the fastest level if the usual one would save less than this share.
_GAIN_MIN = 0.02
# Vectors stay uncompressed if gzip would save less than this share. Of floating point numbers it compresses
# only the exponents, about 8 %, and takes a hundred times as long as writing them.
_VECTOR_GAIN_MIN = 0.15
_FASTEST = 1
# Before version 22, pyarrow passed gzip's level on as the size of zlib's tables, and the level was always 6
# (apache/arrow#47591): a low number takes ten times as long and more bytes. 8 is zlib's default size.
_LEVELS_SINCE = 22
_TABLES = 8


def gzip_level(level: int) -> int:
    """The number to pass to pyarrow for a gzip level."""
    return level if int(pa.__version__.split(".")[0]) >= _LEVELS_SINCE else _TABLES


def column_settings(
    rows: pa.Table, unique: Sequence[str], codec: str, level: int | None, *, for_all: bool
) -> dict[str, Any]:
    """Arguments of ``pyarrow.parquet.ParquetWriter``: ``use_dictionary``, ``compression`` and so on.

    ``rows``: the file's first rows, with all its columns and vectors as bytes. ``unique``: names of text
    columns whose values all differ, the keys first; columns equal to the keys count as such. ``level``: of
    gzip, None for another codec. ``for_all``: use the level even where it gains nothing.
    """
    keys = rows.column(unique[0]).slice(0, _SAMPLE_ROWS)
    same = [name for name in rows.schema.names if rows.column(name).slice(0, _SAMPLE_ROWS).equals(keys)]
    leaves = _leaves(rows.schema)
    vectors = _vectors(rows.schema)
    settings: dict[str, Any] = {
        "use_dictionary": [path for path in leaves if path not in {*unique, *same, *vectors}],
        "compression": codec,
    }
    if vectors:  # least and greatest bytes of vectors mean nothing
        settings["write_statistics"] = [path for path in leaves if path not in vectors]
    if level is None:
        return settings
    plain = [] if for_all else [path for path in vectors if not _shrinks(rows.column(path), level)]
    levels = {path: gzip_level(level) for path in leaves if path not in plain}
    if not for_all and not _gains(keys, level):
        levels |= dict.fromkeys(same, gzip_level(_FASTEST))
    if plain:
        settings["compression"] = {path: "none" if path in plain else codec for path in leaves}
    return settings | {"compression_level": levels}


def dictionary_columns(schema: pa.Schema) -> list[str] | bool:
    """``use_dictionary`` if nothing is known about the values: all columns except vectors as bytes."""
    vectors = _vectors(schema)
    return [path for path in _leaves(schema) if path not in vectors] if vectors else True


def _vectors(schema: pa.Schema) -> list[str]:
    """Names of vector columns: here only they have a fixed number of bytes."""
    return [field.name for field in schema if pa.types.is_fixed_size_binary(field.type)]


def _leaves(schema: pa.Schema) -> list[str]:
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


def _gains(texts: pa.ChunkedArray, level: int) -> bool:
    data = "\n".join(texts.to_pylist()).encode("utf-8", "surrogatepass")[:_SAMPLE_BYTES]
    fast, wanted = (len(zlib.compress(data, n)) for n in (_FASTEST, level))
    return wanted < (1 - _GAIN_MIN) * fast
