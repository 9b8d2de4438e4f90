"""How the columns of a base file are encoded and compressed, where the same for all would waste time.

A dictionary of values that are all different is built in vain, and a higher level of gzip gains nothing on
random keys or vectors. Both are decided by the first rows of a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

# What is looked at: rows that say whether two columns are the same, and bytes of the keys.
_SAMPLE_ROWS = 2048
_SAMPLE_BYTES = 64 * 1024
# Keys get the fastest level where the usual one would make them smaller by less than this share.
_GAIN_MIN = 0.02
# Vectors are not compressed by gzip where it would make them smaller by less than this share: of floating
# point numbers it finds the exponents, about 8 %, and takes a hundred times as long as writing them.
_VECTOR_GAIN_MIN = 0.15
_FASTEST = 1
# Before pyarrow 22 the level of gzip was taken for the size of zlib's tables, and the level was always 6
# (apache/arrow#47591): a low one takes ten times as long, for more bytes. 8 is zlib's own size.
_LEVELS_SINCE = 22
_TABLES = 8


def gzip_level(level: int) -> int:
    """What to tell pyarrow for a level of gzip."""
    return level if int(pa.__version__.split(".")[0]) >= _LEVELS_SINCE else _TABLES


def column_settings(
    rows: pa.Table, unique: Sequence[str], codec: str, level: int | None, *, for_all: bool
) -> dict[str, Any]:
    """``use_dictionary``, ``compression`` and so on of ``pyarrow.parquet.ParquetWriter``.

    ``rows``: the file's first, in all its columns, vectors as bytes; ``unique``: names of text columns
    whose values are all different, the keys first (columns with the same values as the keys count as
    such); ``level`` of gzip, None for another codec; ``for_all``: also where it gains nothing.
    """
    keys = rows.column(unique[0]).slice(0, _SAMPLE_ROWS)
    same = [name for name in rows.schema.names if rows.column(name).slice(0, _SAMPLE_ROWS).equals(keys)]
    leaves = _leaves(rows.schema)
    vectors = _vectors(rows.schema)
    settings: dict[str, Any] = {
        "use_dictionary": [path for path in leaves if path not in {*unique, *same, *vectors}],
        "compression": codec,
    }
    if vectors:  # an order of vectors says nothing
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
    """``use_dictionary`` where nothing is known of the values: all columns but vectors as bytes."""
    vectors = _vectors(schema)
    return [path for path in _leaves(schema) if path not in vectors] if vectors else True


def _vectors(schema: pa.Schema) -> list[str]:
    """Nothing else has a fixed number of bytes here."""
    return [field.name for field in schema if pa.types.is_fixed_size_binary(field.type)]


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of all columns as Parquet has them, those inside of nested ones too."""
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
