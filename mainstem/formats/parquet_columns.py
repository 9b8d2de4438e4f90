"""How the columns of a base file are encoded and compressed, where the same for all would waste time.

A dictionary of values that are all different is built in vain, and a higher level of gzip gains nothing on
random keys. Both are decided by the first rows of a file.
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
_FASTEST = 1
# Before pyarrow 22 the level of gzip was taken for the size of zlib's tables, and the level was always 6
# (apache/arrow#47591): a low one takes ten times as long, for more bytes. 8 is zlib's own size.
_LEVELS_SINCE = 22
_TABLES = 8


def gzip_level(level: int) -> int:
    """What to tell pyarrow for a level of gzip."""
    return level if int(pa.__version__.split(".")[0]) >= _LEVELS_SINCE else _TABLES


def column_settings(
    rows: pa.Table, unique: Sequence[str], level: int | None, *, for_all: bool
) -> dict[str, Any]:
    """``use_dictionary`` and ``compression_level`` of ``pyarrow.parquet.ParquetWriter``.

    ``rows``: the file's first, in all its columns; ``unique``: names of text columns whose values are all
    different, the keys first (columns with the same values as the keys count as such); ``level`` of gzip,
    None for another codec; ``for_all``: also where it gains nothing.
    """
    keys = rows.column(unique[0]).slice(0, _SAMPLE_ROWS)
    same = [name for name in rows.schema.names if rows.column(name).slice(0, _SAMPLE_ROWS).equals(keys)]
    leaves = _leaves(rows.schema)
    coded = [path for path in leaves if path not in {*unique, *same}]
    if level is None:
        return {"use_dictionary": coded}
    levels = dict.fromkeys(leaves, gzip_level(level))
    if not for_all and not _gains(keys, level):
        levels |= dict.fromkeys(same, gzip_level(_FASTEST))
    return {"use_dictionary": coded, "compression_level": levels}


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of all columns as Parquet has them, those inside of nested ones too."""
    import pyarrow.parquet as pq

    made = pa.BufferOutputStream()
    pq.write_metadata(schema, made)
    described = pq.read_metadata(pa.BufferReader(made.getvalue())).schema
    return [described.column(number).path for number in range(len(described))]


def _gains(texts: pa.ChunkedArray, level: int) -> bool:
    data = "\n".join(texts.to_pylist()).encode("utf-8", "surrogatepass")[:_SAMPLE_BYTES]
    fast, wanted = (len(zlib.compress(data, n)) for n in (_FASTEST, level))
    return wanted < (1 - _GAIN_MIN) * fast
