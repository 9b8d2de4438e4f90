"""Hudi's bloom filters of record keys (BloomFilter, InternalDynamicBloomFilter), computed by columns.

The bytes equal those of Java's ``DYNAMIC_V0`` and ``SIMPLE`` filters with the Murmur hash. A filter begins
with a header {int32 -1, int32 number of hashes, byte 1 = murmur, int32 bits}. In a dynamic filter follow the
capacity of a row, the number of keys in the current row and the number of rows. Then come the rows' bits,
least significant first, in a dynamic filter each with a header of its own. All integers are big-endian.
"""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid

DYNAMIC = "DYNAMIC_V0"
SIMPLE = "SIMPLE"
TYPE_CODE_KEY = "hoodie_bloom_filter_type_code"
_MURMUR = 1
_VERSION = -1
# Java's filters have 30 hashes at a false positive rate of 1e-9; a look-up computes each for every key.
_HASHES_MAX = 1000
_HEAD = struct.Struct(">iibi")
_MULTIPLIER = np.uint32(0x5BD1E995)
# Keys hashed at a time: few enough that the arrays stay in the processor's cache.
_KEYS_AT_ONCE = 8192


@dataclass(frozen=True)
class BloomSize:
    """The options ``hoodie.index.bloom.num_entries``, ``hoodie.index.bloom.fpp``,
    ``hoodie.bloom.index.filter.type`` and ``hoodie.bloom.index.filter.dynamic.max.entries``."""

    entries: int = 60_000
    false_positives: float = 1e-9
    kind: str = DYNAMIC
    entries_max: int = 100_000

    def __post_init__(self) -> None:
        if self.kind not in (DYNAMIC, SIMPLE):
            raise Invalid(f"bloom filter type {self.kind!r}, expected {DYNAMIC} or {SIMPLE}")
        if not 1 <= self.entries <= 100_000_000 or not 0 < self.false_positives < 1:
            raise Invalid(
                f"a bloom filter of {self.entries} entries and a false positive rate of"
                f" {self.false_positives}: expected at least one entry and a rate between 0 and 1"
            )

    @property
    def bits(self) -> int:
        """Bits of one row (BloomFilterUtils.getBitSize)."""
        return math.ceil(self.entries * -math.log(self.false_positives) / (math.log(2) ** 2))

    @property
    def hashes(self) -> int:
        """Hashes per key (BloomFilterUtils.getNumHashes)."""
        return math.ceil(math.log(2) * self.bits / self.entries)


def bloom_text(keys: pa.Array | pa.ChunkedArray, size: BloomSize | None = None) -> str:
    """Base64 of a filter of these keys, as Java puts it into a base file's footer.

    ``keys``: strings without nulls, in the order of the rows.
    """
    made = BloomFilter(size or BloomSize())
    made.add(keys)
    return made.text()


class BloomFilter:
    """A filter that grows with the rows of a file; see ``bloom_text``."""

    def __init__(self, size: BloomSize) -> None:
        self._size = size
        self._count = 0
        self._rows_max = 1
        if size.kind == DYNAMIC:
            self._rows_max = max(1, math.ceil(size.entries_max / size.entries))
        self._bits = np.zeros((1, size.bits), np.bool_)

    @classmethod
    def resumed(cls, text: bytes, size: BloomSize, count: int) -> BloomFilter | None:
        """The filter of a file of ``count`` rows, to which more keys are added; None if it is of another size
        or no filter, or if it says that it holds another number of keys."""
        made = cls(size)
        try:
            data = base64.b64decode(text, validate=True)
            if _HEAD.unpack_from(data) != (_VERSION, size.hashes, _MURMUR, size.bits):
                return None
            rows = _stored_rows(data, size.hashes, size.bits)
            if (len(data) == _HEAD.size + (size.bits + 7) // 8) is not (size.kind == SIMPLE):
                return None
            if size.kind == DYNAMIC:
                entries, current, number = struct.unpack_from(">iii", data, _HEAD.size)
                held = (number - 1) * entries + current
                if (entries, held) != (size.entries, count) or number > made._rows_max:
                    return None
        except (struct.error, ValueError):
            return None
        bits = [np.unpackbits(row, count=size.bits, bitorder="little").view(np.bool_) for row in rows]
        made._bits = np.stack(bits)
        made._count = count
        return made

    def holds(self, keys: pa.Array) -> bool:
        """Whether all of these keys may have been added."""
        begins, units = text_bytes(keys)
        lengths = np.diff(begins)
        for length in np.unique(lengths).tolist():
            chosen = np.flatnonzero(lengths == length)
            places = _places(
                units[begins[chosen][:, None] + np.arange(length)], self._size.hashes, self._size.bits
            )
            if not np.any([row[places].all(axis=0) for row in self._bits], axis=0).all():
                return False
        return True

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add the keys of the next rows."""
        for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
            for low in range(0, len(chunk), _KEYS_AT_ONCE):
                part = chunk.slice(low, _KEYS_AT_ONCE)
                row_of = self._rows_of(len(part))
                if (most := int(row_of.max(initial=0)) + 1) > len(self._bits):
                    more = np.zeros((most - len(self._bits), self._size.bits), np.bool_)
                    self._bits = np.concatenate([self._bits, more])
                _add(self._bits, part, row_of, self._size)
                self._count += len(part)

    def _rows_of(self, count: int) -> np.ndarray:
        """The filter's row for each of the next keys.

        A full row is followed by a new one until all rows together hold ``entries_max`` keys. The next key
        goes to the first row, and all further keys to all rows in turn.
        """
        if self._rows_max == 1:
            return np.zeros(count, np.int64)
        at = np.arange(self._count, self._count + count, dtype=np.int64)
        row = np.minimum(at // self._size.entries, self._rows_max - 1)
        over = at - self._rows_max * self._size.entries
        row[over == 0] = 0
        behind = over > 0
        row[behind] = (over[behind] - 1) % self._rows_max
        return row

    def text(self) -> str:
        """Base64 of the filter with the keys added so far."""
        size = self._size
        head = _HEAD.pack(_VERSION, size.hashes, _MURMUR, size.bits)
        rows = [np.packbits(row, bitorder="little").tobytes() for row in self._bits]
        if size.kind == SIMPLE:
            return _encoded(head, *rows)
        # Once all rows are full, currentNbRecord goes on counting.
        current = self._count - (len(rows) - 1) * size.entries
        dynamic = head + struct.pack(">iii", size.entries, current, len(rows))
        return _encoded(dynamic, *(part for row in rows for part in (head, row)))


class StoredFilter:
    """A filter from a base file's footer or the metadata table (base64), for look-ups of keys.

    Raises ``CorruptTable`` for bytes that are no dynamic or simple filter. A filter with an unknown hash may
    hold any key.
    """

    def __init__(self, text: bytes, *, path: str = "") -> None:
        try:
            data = base64.b64decode(text, validate=True)
            version, self._hashes, murmur, self._bits = _HEAD.unpack_from(data)
            self._known = murmur == _MURMUR
            fits = version == _VERSION and 1 <= self._hashes <= _HASHES_MAX and self._bits >= 1
            if self._known and not fits:
                raise struct.error(f"{self._hashes} hashes, {self._bits} bits")
            self._rows = _stored_rows(data, self._hashes, self._bits) if self._known else []
        except (struct.error, ValueError) as error:
            raise CorruptTable(f"no bloom filter ({error}); read without the index", path=path) from None

    def may_contain(self, keys: pa.Array) -> np.ndarray:
        """bool per key (strings without nulls): False only for keys that were not added."""
        if not self._known:
            return np.ones(len(keys), np.bool_)
        found = np.zeros(len(keys), np.bool_)
        begins, units = text_bytes(keys)
        lengths = np.diff(begins)
        for length in np.unique(lengths).tolist():
            chosen = np.flatnonzero(lengths == length)
            places = _places(units[begins[chosen][:, None] + np.arange(length)], self._hashes, self._bits)
            for row in self._rows:
                found[chosen] |= _all_set(row, places).astype(np.bool_)
        return found


def may_hold_one(text: bytes, keys: pa.Array, *, path: str = "") -> bool:
    """Whether a stored filter may hold any of these keys; see ``StoredFilter``."""
    return bool(StoredFilter(text, path=path).may_contain(keys).any())


def _stored_rows(data: bytes, hashes: int, bits: int) -> list[np.ndarray]:
    """The bits of each row, packed into bytes."""
    size = (bits + 7) // 8
    if len(data) == _HEAD.size + size:
        return [np.frombuffer(data, np.uint8, size, _HEAD.size)]
    _, _, count = struct.unpack_from(">iii", data, _HEAD.size)
    first, step = _HEAD.size + 12, _HEAD.size + size
    if count < 1 or len(data) != first + count * step:
        raise struct.error(f"{len(data)} bytes for {count} rows of {bits} bits")
    found = []
    for at in range(first, len(data), step):
        if _HEAD.unpack_from(data, at) != (_VERSION, hashes, _MURMUR, bits):
            raise struct.error("rows of different shapes")
        found.append(np.frombuffer(data, np.uint8, size, at + _HEAD.size))
    return found


def _places(keys: np.ndarray, hashes: int, bits: int) -> np.ndarray:
    """uint32[hashes, keys]: the bit positions of keys of one length."""
    words, tail = _mixed_words(keys)
    seed, found = np.zeros(len(keys), np.uint32), []
    for _ in range(hashes):
        seed = _murmur(words, tail, keys.shape[1], seed)
        found.append(np.abs(seed.view(np.int32)).view(np.uint32) % np.uint32(bits))
    return np.array(found)


def _all_set(row: np.ndarray, places: np.ndarray) -> np.ndarray:
    return ((row[places >> 3] >> (places & 7)) & 1).all(axis=0)


def _encoded(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


def _add(bits: np.ndarray, keys: pa.Array, rows: np.ndarray, size: BloomSize) -> None:
    if keys.null_count:
        raise Invalid("a record key is null: a bloom filter holds keys only")
    begins, data = text_bytes(keys)
    lengths = np.diff(begins)
    different = np.unique(lengths).tolist()
    if len(different) == 1:
        _add_same_length(bits, data.reshape(len(keys), -1), rows, size)
        return
    for length in different:  # keys of one length are hashed together
        chosen = np.flatnonzero(lengths == length)
        places = begins[chosen][:, None] + np.arange(length)
        _add_same_length(bits, data[places], rows[chosen], size)


def text_bytes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where each text begins (and the last one ends) in the joined bytes, and these bytes."""
    whole = texts.cast(pa.large_binary())
    ends = np.frombuffer(whole.buffers()[1], np.int64)[whole.offset :][: len(whole) + 1]
    data = np.frombuffer(whole.buffers()[2] or b"", np.uint8)
    return ends - ends[0], data[ends[0] : ends[-1]]


def _add_same_length(bits: np.ndarray, keys: np.ndarray, rows: np.ndarray, size: BloomSize) -> None:
    words, tail = _mixed_words(keys)
    seed = np.zeros(len(keys), np.uint32)
    flat, first, divisor = bits.reshape(-1), rows * size.bits, np.uint32(size.bits)
    for _ in range(size.hashes):
        seed = _murmur(words, tail, keys.shape[1], seed)
        # Java: Math.abs(hash % vectorSize), where % keeps the sign of the hash. Dividing by a constant and
        # multiplying back is far cheaper here than a remainder.
        place = np.abs(seed.view(np.int32)).view(np.uint32)
        place -= place // divisor * divisor
        flat[first + place] = True


def _mixed_words(keys: np.ndarray) -> tuple[list[np.ndarray], np.ndarray | None]:
    """The part of the hash that does not depend on its seed: mixed words, and the bytes left over."""
    whole = keys.shape[1] // 4
    words = []
    if whole:
        numbers = np.ascontiguousarray(keys[:, : 4 * whole]).view("<u4").astype(np.uint32)
        for number in range(whole):
            word = numbers[:, number] * _MULTIPLIER
            word ^= word >> np.uint32(24)
            words.append(word * _MULTIPLIER)
    left = keys[:, 4 * whole :].view(np.int8).astype(np.int32)  # Java's bytes are signed
    if not left.shape[1]:
        return words, None
    tail = np.zeros(len(keys), np.int32)
    for number in range(left.shape[1]):  # the last byte is the least significant
        tail ^= left[:, number] << np.int32(8 * (left.shape[1] - 1 - number))
    return words, tail.view(np.uint32)


def _murmur(words: list[np.ndarray], tail: np.ndarray | None, length: int, seed: np.ndarray) -> np.ndarray:
    """Hudi's MurmurHash (version 2, 32 bits) of keys of one length."""
    value = seed ^ np.uint32(length)
    for word in words:
        value = value * _MULTIPLIER
        value ^= word
    if tail is not None:
        value = value ^ tail
        value *= _MULTIPLIER
    value ^= value >> np.uint32(13)
    value *= _MULTIPLIER
    value ^= value >> np.uint32(15)
    return value
