"""Native log files of the metadata table (table version 10): one HFile is one log block.

The block's header is an entry of the file info, as in ``formats.native_log``. The first log file of a file
group holds no row (HoodieMetadataWriteUtils), where older tables have an empty delete block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from mainstem.formats.hfile_write import Note, write_log_hfiles
from mainstem.formats.native_log import HEADER_KEY


def native_hfiles(
    instant: str, schema_text: str, keys: pa.Array, values: pa.Array, bounds: Sequence[int]
) -> Iterator[bytes]:
    """The log file of each range of rows ``bounds[i]:bounds[i + 1]``, which may be empty.

    Keys and values are those of ``write_hfile``; ``schema_text`` is the Avro schema of the values.
    """
    first = b'{"VERSION":"2","INSTANT_TIME":"%s","SCHEMA":' % instant.encode()
    note = Note(HEADER_KEY, first, _rest(schema_text))
    return write_log_hfiles(keys, values, bounds, schema_text=schema_text, note=note)


def empty_native_hfile(instant: str, schema_text: str) -> bytes:
    """The first log file of a file group."""
    none = pa.array([], pa.binary())
    return next(native_hfiles(instant, schema_text, none, none, (0, 0)))


@lru_cache(maxsize=4)
def _rest(schema_text: str) -> bytes:
    return json.dumps(schema_text).encode() + b"}"
