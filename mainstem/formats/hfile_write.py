"""Writing HFiles as Hudi's own writer makes them (``HFileWriterImpl``), by columns.

One index level with the real first key of every block, lengths of index keys as Hadoop writes them, a meta
index even if it is empty, entries of type Put without family, with the greatest timestamp and version 0, one
checksum for a gigabyte: what every reader of Hudi from 1.0 on and hudi-rs understand. Keys are in the order
of their UTF-8 bytes; none is there twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import Invalid
from mainstem.formats import hfile_layout as layout
from mainstem.formats.bloom_filter import BloomSize, bloom_text
from mainstem.formats.hfile_entries import ENTRY_BYTES, entries_of, in_order, lengths_of

BLOCK_BYTES = limits.MIB  # hoodie.hfile.block.size
BLOOM_BLOCK = "bloomFilter"
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_NO_BLOCK = 2**64 - 1


def write_hfile(
    keys: pa.Array,
    values: pa.Array,
    *,
    schema_text: str | None,
    base_file: bool,
    bloom: BloomSize | None = None,
    compression: str = "GZ",
    block_bytes: int = BLOCK_BYTES,
    created_ms: int = 0,
) -> bytes:
    """An HFile with these entries; keys are strings or binaries in any order.

    ``base_file`` files say their smallest and greatest key, which the content of a log block does not, and
    may hold a bloom filter of the keys (``hoodie.metadata.bloom.filter.*``; no reader needs it).
    ``schema_text`` is the Avro schema of the values. ``compression`` is
    ``hoodie.hfile.compression.algorithm`` (GZ or NONE), ``block_bytes`` is ``hoodie.hfile.block.size``.

    Raises ``Invalid`` for nulls, a key twice (Java's writer refuses that too), and keys over 32,767 bytes.
    """
    if compression not in layout.CODECS:
        raise Invalid(f"an HFile compressed with {compression!r}; {' and '.join(layout.CODECS)} are written")
    keys, values = in_order(keys, values)
    made = _File(layout.CODECS[compression])
    ends = np.cumsum(lengths_of(keys) + lengths_of(values) + ENTRY_BYTES)
    for low, high in _cuts(ends, block_bytes):
        made.data_block(keys.slice(low, high - low), values.slice(low, high - low))
    if base_file and bloom is not None:
        made.meta_block(BLOOM_BLOCK, bloom_text(keys, bloom).encode())
    info = _info(keys, values, created_ms)
    if base_file and len(keys):
        info["minRecordKey"], info["maxRecordKey"] = keys[0].as_py(), keys[-1].as_py()
        if bloom is not None:
            info["bloomFilterTypeCode"] = bloom.kind.encode()
    return made.finished(info, schema_text, len(keys), int(ends[-1]) if len(keys) else 0)


def _cuts(ends: np.ndarray, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of entries per block: as many as fit, at least one. ``ends``: bytes up to each entry's end."""
    low = 0
    while low < len(ends):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + block_bytes, side="right")))
        yield low, high
        low = high


def _info(keys: pa.BinaryArray, values: pa.BinaryArray, created_ms: int) -> dict[str, bytes]:
    count = max(1, len(keys))
    last = keys[-1].as_py() if len(keys) else b""
    return {
        "MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "hfile.LASTKEY": _row_key(last) if len(keys) else b"",
        "hfile.AVG_KEY_LEN": struct.pack(">i", int(lengths_of(keys).sum()) // count),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", int(lengths_of(values).sum()) // count),
        "hfile.CREATE_TIME_TS": struct.pack(">q", created_ms),
    }


def _row_key(row: bytes) -> bytes:
    return struct.pack(">h", len(row)) + row


def _index_entry(offset: int, size: int, key: bytes) -> bytes:
    return struct.pack(">qi", offset, size) + layout.put_hadoop_vint(len(key)) + key


class _File:
    """The parts of a file so far."""

    def __init__(self, codec: int) -> None:
        self._codec = codec
        self._parts: list[bytes | memoryview] = []
        self._at = 0
        self._root: list[bytes] = []
        self._metas: list[bytes] = []
        self._first, self._last = _NO_BLOCK, -1

    def data_block(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> None:
        data = memoryview(entries_of(keys, values))
        if len(data) > limits.HFILE_BLOCK_BYTES_MAX:
            raise Invalid(f"a block of an HFile with {len(data)} bytes: a value is too large")
        offset, size = self._append(layout.DATA, data, self._last)
        self._root.append(_index_entry(offset, size, _row_key(keys[0].as_py())))
        self._first, self._last = min(self._first, offset), offset

    def meta_block(self, name: str, data: bytes) -> None:
        offset, size = self._append(layout.META, data)
        self._metas.append(_index_entry(offset, size, name.encode()))

    def finished(
        self, info: dict[str, bytes], schema_text: str | None, entries: int, data_bytes: int
    ) -> bytes:
        load_on_open, _ = self._append(layout.ROOT, b"".join(self._root))
        self._append(layout.ROOT, b"".join(self._metas))
        schema = _schema_pair(schema_text) if schema_text is not None else b""
        file_info, _ = self._append(layout.INFO, _info_message(info, len(schema)), known=schema)
        numbers = [
            (1, file_info), (2, load_on_open), (3, data_bytes), (5, len(self._root)),
            (6, len(self._metas)), (7, entries), (8, 1), (9, self._first), (10, max(0, self._last)),
        ]  # fmt: skip
        message = b"".join(layout.put_field(number, value) for number, value in numbers)
        message += layout.put_field(11, _COMPARATOR) + layout.put_field(12, self._codec)
        trailer = layout.TRAILER + layout.put_varint(len(message)) + message
        self._parts.append(trailer.ljust(layout.TRAILER_BYTES - 4, b"\0"))
        self._parts.append(struct.pack(">i", layout.MAJOR_VERSION))
        return b"".join(self._parts)

    def _append(
        self, magic: bytes, data: bytes | memoryview, previous: int = -1, known: bytes = b""
    ) -> tuple[int, int]:
        """``(offset, size)`` of the new block."""
        parts = layout.make_block(magic, data, self._codec, previous, known)
        offset, size = self._at, sum(len(part) for part in parts)
        self._parts += parts
        self._at += size
        return offset, size


def _info_message(info: dict[str, bytes], follows: int) -> bytes:
    """The message up to its last ``follows`` bytes."""
    message = b"".join(_pair(name, value) for name, value in info.items())
    return layout.PROTOBUF + layout.put_varint(len(message) + follows) + message


def _pair(name: str, value: bytes) -> bytes:
    return layout.put_field(1, layout.put_field(1, name.encode()) + layout.put_field(2, value))


@lru_cache(maxsize=16)
def _schema_pair(schema_text: str) -> bytes:
    return _pair("schema", schema_text.encode())
