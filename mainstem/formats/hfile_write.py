"""Writes HFiles as Hudi's own writer does (``HFileWriterImpl``), by columns.

The files have one index level with the real first key of every block, lengths of index keys in Hadoop's form,
a meta index even if it is empty, entries of type Put without family, with the greatest timestamp and version
0, and one checksum per gigabyte. All readers of Hudi from 1.0 on, and hudi-rs, understand this. Keys are
sorted by their UTF-8 bytes, without repeats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import Invalid
from mainstem.formats import hfile_layout as layout
from mainstem.formats.avro_pieces import offsets_of
from mainstem.formats.bloom_filter import BloomSize, bloom_text
from mainstem.formats.hfile_entries import (
    ENTRY_BYTES,
    ROW_BYTES_MAX,
    entries_of,
    entry_of,
    in_order,
    lengths_of,
)

BLOCK_BYTES = 64 * limits.KIB
BLOOM_BLOCK = "bloomFilter"
_COMPARATOR_FIELD = layout.put_field(11, b"org.apache.hudi.io.storage.HoodieHBaseKVComparator")
_FEW = 64
_INT = struct.Struct(">i")
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
    run: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]] | None = None,
) -> bytes:
    """An HFile with these entries; keys are strings or binaries in any order.

    With ``base_file`` the file names its smallest and greatest key, which a log block does not, and may hold
    a bloom filter of the keys (``hoodie.metadata.bloom.filter.*``; no reader needs it). A log block is
    compressed less, since a compaction soon rewrites it. ``schema_text`` is the Avro schema of the values,
    ``compression`` is ``hoodie.hfile.compression.algorithm`` (GZ or NONE), ``block_bytes`` is
    ``hoodie.hfile.block.size``. ``run`` (``storage.side_by_side``) encodes and compresses blocks in parallel;
    None: one by one.

    Raises ``Invalid`` for nulls, repeated keys (Java's writer refuses them too), and keys over 32,767 bytes.
    """
    if compression not in layout.CODECS:
        raise Invalid(f"an HFile compressed with {compression!r}; {' and '.join(layout.CODECS)} are written")
    content = _few(keys, values, block_bytes) or _many(keys, values, block_bytes)
    made = _File(layout.CODECS[compression], fast=not base_file)
    made.data_blocks(content.blocks, run)
    if base_file and bloom is not None:
        made.meta_block(BLOOM_BLOCK, bloom_text(content.keys, bloom).encode())
    info = _info(content, created_ms)
    if base_file and content.count:
        info["minRecordKey"], info["maxRecordKey"] = content.first, content.last
        if bloom is not None:
            info["bloomFilterTypeCode"] = bloom.kind.encode()
    known = b"" if schema_text is None else _schema_pair(schema_text)
    return made.finished(info, known, content.count, content.size)


@dataclass(frozen=True, slots=True)
class Note:
    """A further entry of the file info: ``first`` differs from file to file, ``rest`` is the same in many and
    compressed once."""

    name: str
    first: bytes
    rest: bytes

    @property
    def begun(self) -> bytes:
        """The entry without ``rest``."""
        value = len(self.first) + len(self.rest)
        head = layout.put_field(1, self.name.encode()) + b"\x12" + layout.put_varint(value)
        return b"\x0a" + layout.put_varint(len(head) + value) + head + self.first


def write_log_hfiles(
    keys: pa.Array, values: pa.Array, bounds: Sequence[int], *, schema_text: str, note: Note | None = None
) -> Iterator[bytes]:
    """``write_hfile`` for each range of rows ``bounds[i]:bounds[i + 1]``, as contents of log blocks; with
    ``note`` as log files of their own, which also name their smallest and greatest key.

    Cheaper than single calls for many ranges of few rows: all entries are encoded at once.
    """
    known = _schema_pair(schema_text)
    known = known if note is None else note.rest + known
    alone = len(bounds) < 3 or len(keys) <= _FEW
    together = None if alone else _together(keys, values, bounds)
    for place, (low, high) in enumerate(pairwise(bounds)):
        content = together[place] if together is not None else None
        if content is None:
            some = keys.slice(low, high - low), values.slice(low, high - low)
            content = _few(*some, BLOCK_BYTES) or _many(*some, BLOCK_BYTES)
        if len(content.blocks) == 1:
            yield _log_file(content, known, note)
            continue
        made = _File(layout.GZ, fast=True)
        made.data_blocks(content.blocks, None)
        info = _info(content, 0)
        if note is not None:
            info["minRecordKey"], info["maxRecordKey"] = content.first, content.last
        yield made.finished(info, known, content.count, content.size, b"" if note is None else note.begun)


def _together(keys: pa.Array, values: pa.Array, bounds: Sequence[int]) -> list[_Content | None] | None:
    """The contents of the ranges (None for an empty one), or None if they need ``_many``: entries to be
    sorted or refused, or too many to encode at once."""
    if len(keys) > limits.CHUNK_ROWS or len(values) != len(keys) or keys.null_count or values.null_count:
        return None
    keys = keys.cast(pa.binary())
    if not isinstance(values, pa.DictionaryArray) or values.dictionary.null_count:
        values = values.cast(pa.binary())
    ascending = pc.less(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
    ascending[[at - 1 for at in bounds[1:-1] if 0 < at < len(keys)]] = True
    starts = offsets_of(keys)
    sizes = np.diff(starts).astype(np.int64)
    ends = np.cumsum(sizes + lengths_of(values) + ENTRY_BYTES)
    if not ascending.all() or sizes.max() > ROW_BYTES_MAX or ends[-1] > limits.CHUNK_BYTES_MAX:
        return None
    data, texts = memoryview(entries_of(keys, values)), memoryview(keys.buffers()[2] or b"")

    def key(at: int) -> bytes:
        return bytes(texts[int(starts[at]) : int(starts[at + 1])])

    def block(low: int, high: int) -> tuple[bytes, memoryview]:
        return key(low), data[int(ends[low - 1]) if low else 0 : int(ends[high - 1])]

    def content(low: int, high: int) -> _Content:
        before = int(ends[low - 1]) if low else 0
        size = int(ends[high - 1]) - before
        whole = size <= BLOCK_BYTES
        cuts = [(0, high - low)] if whole else _cuts(ends[low:high] - before, BLOCK_BYTES)
        blocks = [partial(block, low + a, low + b) for a, b in cuts]
        key_bytes = int(starts[high]) - int(starts[low])
        return _Content(keys, high - low, key_bytes, size, key(low), key(high - 1), blocks)

    return [content(low, high) if low < high else None for low, high in pairwise(bounds)]


#: returns a block's first key and its entries
_Block = Callable[[], tuple[bytes, "bytes | memoryview"]]


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of data blocks; ``size``: bytes of all entries."""

    keys: pa.Array
    count: int
    key_bytes: int
    size: int
    first: bytes
    last: bytes
    blocks: Sequence[_Block]


def _many(keys: pa.Array, values: pa.Array, block_bytes: int) -> _Content:
    keys, values = in_order(keys, values)
    count, sizes = len(keys), lengths_of(keys)
    ends = np.cumsum(sizes + lengths_of(values) + ENTRY_BYTES)

    def block(low: int, high: int) -> tuple[bytes, memoryview]:
        some = keys.slice(low, high - low), values.slice(low, high - low)
        return some[0][0].as_py(), memoryview(entries_of(*some))

    blocks = [partial(block, low, high) for low, high in _cuts(ends, block_bytes)]
    first, last = (keys[0].as_py(), keys[-1].as_py()) if count else (b"", b"")
    return _Content(keys, count, int(sizes.sum()), int(ends[-1]) if count else 0, first, last, blocks)


def _few(keys: pa.Array, values: pa.Array, block_bytes: int) -> _Content | None:
    """A few entries that fit into one block, such as a small commit's log block, built without columns.

    None for more entries, and for what ``_many`` refuses.
    """
    if not 0 < len(keys) <= _FEW or len(values) != len(keys) or keys.null_count or values.null_count:
        return None
    keys = keys.cast(pa.binary())
    pairs = sorted(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    if any(one[0] == other[0] for one, other in zip(pairs, pairs[1:], strict=False)):
        return None
    if any(len(key) > ROW_BYTES_MAX for key, _ in pairs):
        return None
    data = b"".join(entry_of(key, value) for key, value in pairs)
    if len(data) > block_bytes:
        return None
    size = sum(len(key) for key, _ in pairs)
    first, last = pairs[0][0], pairs[-1][0]
    return _Content(keys, len(pairs), size, len(data), first, last, [lambda: (first, data)])


def _cuts(ends: np.ndarray, block_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of entries per block: as many as fit, at least one. ``ends``: bytes up to each entry's end."""
    low = 0
    while low < len(ends):
        before = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + block_bytes, side="right")))
        yield low, high
        low = high


def _info(content: _Content, created_ms: int) -> dict[str, bytes]:
    count = max(1, content.count)
    value_bytes = content.size - content.key_bytes - content.count * ENTRY_BYTES
    return {
        "MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "hfile.LASTKEY": _row_key(content.last) if content.count else b"",
        "hfile.AVG_KEY_LEN": struct.pack(">i", content.key_bytes // count),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", value_bytes // count),
        "hfile.CREATE_TIME_TS": struct.pack(">q", created_ms),
    }


def _row_key(row: bytes) -> bytes:
    return struct.pack(">h", len(row)) + row


def _index_entry(offset: int, size: int, key: bytes) -> bytes:
    return struct.pack(">qi", offset, size) + layout.put_hadoop_vint(len(key)) + key


def _log_file(content: _Content, known: bytes, note: Note | None) -> bytes:
    """What ``_File`` makes of one block of a log: a commit makes such a file for each file group."""
    first, data = content.blocks[0]()
    stored = layout.stored_data(data, layout.GZ, fast=True)
    parts = layout.framed(layout.DATA, stored, len(data), -1)
    root = sum(map(len, parts))
    parts += layout.make_block(layout.ROOT, _index_entry(0, root, _row_key(first)), layout.GZ)
    parts += _empty_index(layout.GZ)
    info = sum(map(len, parts))
    count = content.count
    averages = content.key_bytes // count, (content.size - content.key_bytes - count * ENTRY_BYTES) // count
    ends = b""
    if note is not None:
        ends = _pair("minRecordKey", content.first) + _pair("maxRecordKey", content.last) + note.begun
    message = b"".join((
        _INFO_BEFORE, _pair("hfile.LASTKEY", _row_key(content.last)),
        _short_pair("hfile.AVG_KEY_LEN", _INT.pack(averages[0])),
        _short_pair("hfile.AVG_VALUE_LEN", _INT.pack(averages[1])), _INFO_BEHIND, ends,
    ))  # fmt: skip
    message = layout.PROTOBUF + layout.put_varint(len(message) + len(known)) + message
    parts += layout.make_block(layout.INFO, message, layout.GZ, known=known)
    return b"".join((*parts, *_trailer(layout.GZ, info, root, content.size, 1, 0, count, 0, 0)))


class _File:
    """The parts of a file written so far."""

    def __init__(self, codec: int, *, fast: bool) -> None:
        self._codec = codec
        self._fast = fast
        self._parts: list[bytes | memoryview] = []
        self._at = 0
        self._root: list[bytes] = []
        self._metas: list[bytes] = []
        self._first, self._last = _NO_BLOCK, -1

    def data_blocks(
        self, blocks: Sequence[_Block], run: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]] | None
    ) -> None:
        def stored(block: _Block) -> tuple[bytes, int, bytes | memoryview]:
            first, data = block()
            if len(data) > limits.HFILE_BLOCK_BYTES_MAX:
                raise Invalid(f"a block of an HFile with {len(data)} bytes: a value is too large")
            return first, len(data), layout.stored_data(data, self._codec, fast=self._fast)

        made = map(stored, blocks) if run is None or len(blocks) < 2 else run(stored, blocks)
        for first, plain, data in made:
            offset, size = self._add(layout.framed(layout.DATA, data, plain, self._last))
            self._root.append(_index_entry(offset, size, _row_key(first)))
            self._first, self._last = min(self._first, offset), offset

    def meta_block(self, name: str, data: bytes) -> None:
        offset, size = self._append(layout.META, data)
        self._metas.append(_index_entry(offset, size, name.encode()))

    def finished(
        self, info: dict[str, bytes], known: bytes, entries: int, data_bytes: int, begun: bytes = b""
    ) -> bytes:
        """The whole file. ``known``: the end of the file info, often the same; ``begun``: what is before."""
        load_on_open, _ = self._append(layout.ROOT, b"".join(self._root))
        if self._metas:
            self._append(layout.ROOT, b"".join(self._metas))
        else:
            self._add(_empty_index(self._codec))
        file_info, _ = self._append(layout.INFO, _info_message(info, begun, len(known)), known=known)
        counts = len(self._root), len(self._metas), entries
        places = self._first, max(0, self._last)
        return b"".join(
            (*self._parts, *_trailer(self._codec, file_info, load_on_open, data_bytes, *counts, *places))
        )

    def _append(self, magic: bytes, data: bytes, known: bytes = b"") -> tuple[int, int]:
        return self._add(layout.make_block(magic, data, self._codec, known=known))

    def _add(self, parts: list[bytes | memoryview]) -> tuple[int, int]:
        """Append a block; return its ``(offset, size)``."""
        offset, size = self._at, sum(map(len, parts))
        self._parts += parts
        self._at += size
        return offset, size


def _info_message(info: dict[str, bytes], begun: bytes, follows: int) -> bytes:
    """The file info message, ending with ``begun``, without its last ``follows`` bytes."""
    pairs = (_short_pair if len(value) <= _SHORT else _pair for value in info.values())
    message = b"".join(pair(name, value) for pair, (name, value) in zip(pairs, info.items(), strict=True))
    message += begun
    return layout.PROTOBUF + layout.put_varint(len(message) + follows) + message


def _pair(name: str, value: bytes) -> bytes:
    return layout.put_field(1, layout.put_field(1, name.encode()) + layout.put_field(2, value))


#: pairs with values up to this many bytes are cached: numbers, often equal in all file groups of a commit
_SHORT = 8
_short_pair = lru_cache(maxsize=1024)(_pair)
#: pairs that stand before those of a log block's own, and behind them
_INFO_BEFORE = _pair("MAX_MEMSTORE_TS_KEY", bytes(8)) + _pair("KEY_VALUE_VERSION", _INT.pack(1))
_INFO_BEHIND = _pair("hfile.CREATE_TIME_TS", bytes(8))


def _trailer(
    codec: int, info: int, root: int, data_bytes: int, blocks: int, metas: int, entries: int, first: int,
    last: int,
) -> tuple[bytes, bytes]:  # fmt: skip
    """The end of a file: where its parts are, and how many of each there are."""
    numbers = [
        (1, info), (2, root), (3, data_bytes), (5, blocks), (6, metas), (7, entries), (8, 1), (9, first),
        (10, last),
    ]  # fmt: skip
    message = layout.put_numbers(numbers) + _COMPARATOR_FIELD + layout.put_field(12, codec)
    trailer = layout.TRAILER + layout.put_varint(len(message)) + message
    return trailer.ljust(layout.TRAILER_BYTES - 4, b"\0"), _INT.pack(layout.MAJOR_VERSION)


@lru_cache(maxsize=4)
def _empty_index(codec: int) -> list[bytes | memoryview]:
    return layout.make_block(layout.ROOT, b"", codec)


@lru_cache(maxsize=16)
def _schema_pair(schema_text: str) -> bytes:
    return _pair("schema", schema_text.encode())
