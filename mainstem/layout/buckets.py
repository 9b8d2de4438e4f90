"""The simple bucket index: Java's hash of record keys, computed by columns (BucketIdentifier, KeyGenUtils).

``h = 1; h = 31*h + hash(value)`` over the hash fields' values (``List.hashCode`` of ``String.hashCode``),
``bucket = (h & 0x7FFFFFFF) % count``. Tests compare it with ids that Java wrote (tables ``bucket_hash_*``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NBCC_TAIL = "-0000-0000-0000-000000000000-0"


def nbcc_file_id(bucket: int) -> str:
    """The constant file id of a bucket under non-blocking concurrency control."""
    return f"{bucket:08d}{NBCC_TAIL}"


def file_id_bucket(file_id: str) -> int | None:
    """Bucket in a file id's first eight digits; None if there are none."""
    head = file_id[:8]
    return int(head) if len(head) == 8 and head.isdigit() and head.isascii() else None


def java_string_hash(values: pa.Array, lengths: np.ndarray | None = None) -> np.ndarray:
    """``String.hashCode`` of each value as uint32 (wrapping), over UTF-16 code units; null gives 0.

    ``lengths``: hash only this many bytes from each value's start; each must end at a character boundary.
    """
    values = _string_array(values)
    count = len(values)
    if count == 0:
        return np.zeros(0, np.uint32)
    filled = values.fill_null("") if values.null_count else values
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + count + 1]
    data = filled.buffers()[2]
    units = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    sizes = sizes if lengths is None else np.minimum(sizes, lengths)
    used = units[offsets[0] : offsets[-1]]
    if used.size == 0 or int(used.max()) < 0x80:
        return _hash_units(units, starts, sizes)
    ascii_rows = pc.string_is_ascii(filled).to_numpy(zero_copy_only=False)
    result = np.zeros(count, np.uint32)
    result[ascii_rows] = _hash_units(units, starts[ascii_rows], sizes[ascii_rows])
    wide = np.flatnonzero(~ascii_rows)
    # Non-ASCII keys are rare; only they are converted to UTF-16.
    pieces = (units[at : at + size].tobytes() for at, size in zip(starts[wide], sizes[wide], strict=True))
    encoded = [piece.decode().encode("utf-16-le") for piece in pieces]
    wide_lengths = np.array([len(e) // 2 for e in encoded], np.int64)
    wide_starts = np.concatenate(([0], np.cumsum(wide_lengths)[:-1]))
    joined = np.frombuffer(b"".join(encoded), np.uint16)
    result[wide] = _hash_units(joined, wide_starts, wide_lengths)
    return result


# Most rows hashed at once, and most units of their matrix, in which every row is as long as the longest text.
_ROWS_AT_ONCE, _UNITS_AT_ONCE = 1 << 14, 1 << 20
# A text of more units than this is hashed piece by piece.
_LONG = 1 << 12


def _hash_units(units: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Each text's hash: the sum of its units times powers of 31, the last unit with the power 0."""
    result = np.zeros(len(starts), np.uint32)
    waiting = [(low, min(low + _ROWS_AT_ONCE, len(starts))) for low in range(0, len(starts), _ROWS_AT_ONCE)]
    while waiting:
        low, high = waiting.pop()
        rows = high - low
        if rows > 1 and rows * int(lengths[low:high].max()) > _UNITS_AT_ONCE:
            half = low + rows // 2
            waiting += [(low, half), (half, high)]
        else:
            result[low:high] = _hash_few(units, starts[low:high], lengths[low:high])
    return result


def _hash_few(units: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    longest, shortest = int(lengths.max()), int(lengths.min())
    if not longest:
        return np.zeros(len(starts), np.uint32)
    if longest > _LONG:
        each = zip(starts.tolist(), lengths.tolist(), strict=True)
        return np.array([_hash_long(units[at : at + size]) for at, size in each], np.uint32)
    rows, first, end = len(starts), int(starts[0]), int(starts[-1] + lengths[-1])
    if longest == shortest and end - first == longest * rows:
        block = units[first:end].reshape(rows, longest)  # ids, dates: values of one length, side by side
    else:
        # Each row holds the ``longest`` units up to its text's end; units before the text are zeroed.
        begin = int(starts.min())
        room = np.concatenate([np.zeros(longest, units.dtype), units[begin : int((starts + lengths).max())]])
        whole = np.ndarray((len(room) - longest + 1,), f"V{longest * room.itemsize}", room, 0, room.strides)
        block = whole[starts + lengths - begin].view(room.dtype).reshape(rows, longest)
        if shortest < longest:
            small = np.min_scalar_type(longest)
            block *= np.arange(longest, dtype=small) >= (longest - lengths).astype(small)[:, None]
    return block.astype(np.uint32) @ _powers(longest)


def _hash_long(units: np.ndarray) -> int:
    found = 0
    for low in range(0, len(units), _LONG):
        some = units[low : low + _LONG].astype(np.uint32)
        found = (found * pow(31, len(some), 1 << 32) + int(some @ _powers(len(some)))) & 0xFFFFFFFF
    return found


@lru_cache(maxsize=256)
def _powers(count: int) -> np.ndarray:
    """uint32: descending powers of 31 (wrapping), the last one 1."""
    found = np.full(count, 31, np.uint32)
    found[0] = 1
    return np.multiply.accumulate(found, dtype=np.uint32)[::-1].copy()


def _string_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # several chunks of more than 2 GiB
            values = pa.concat_arrays(values.chunks)
    return values if values.type == pa.string() else values.cast(pa.string())


def hash_parts(record_key: str, fields: Sequence[str]) -> list[str | None]:
    """Values that Java hashes for a record key (KeyGenUtils.extractRecordKeysByFields).

    A key without ``,`` or without ``:`` is one value. Java loops for ever on a plain key with a comma before
    the first of two or more colons; here such a key is one value.
    """
    if "," not in record_key or ":" not in record_key:
        return [record_key]
    wanted = set(fields)
    found: list[str | None] = []
    at = 0
    while True:
        colon = record_key.find(":", at)
        if colon < 0:
            break
        name = record_key[at:colon]
        following = record_key.find(":", colon + 1)
        comma = record_key.rfind(",", 0, following + 1) if following >= 0 else -1
        while following >= 0 and comma < colon:
            following = record_key.find(":", following + 1)
            comma = record_key.rfind(",", 0, following + 1) if following >= 0 else -1
        last = following < 0 or comma <= 0
        value = record_key[colon + 1 :] if last else record_key[colon + 1 : comma]
        if not wanted or name in wanted:
            found.append(None if value == "__null__" else "" if value == "__empty__" else value)
        if last:
            break
        at = comma + 1
    return found or [record_key]


def endless_for_java(
    record_keys: pa.Array, fields: Sequence[str], parts: Sequence[tuple[str, pa.Array]] | None
) -> int | None:
    """First row whose key sends Java's parser into an endless loop; None if there is none.

    Arguments are those of ``bucket_ids``. Java hangs when it skips a pair whose name is no hash field and no
    comma follows between this pair's colon and a later one (KeyGenUtils.extractRecordKeysByFields).
    """
    if parts is None:
        odd = _and(_contains(record_keys, ","), _contains(record_keys, ":"))
    else:
        odd = np.zeros(len(record_keys), bool)
        for _, texts in parts:
            odd |= _contains(texts, ",") | _contains(texts, ":")
    for row in np.flatnonzero(odd).tolist():
        if _endless(record_keys[row].as_py(), fields):
            return row
    return None


def _endless(record_key: str, fields: Sequence[str]) -> bool:
    """Follows Java pair by pair; called only for keys that hold both separators."""
    at = 0
    while at < len(record_key):
        colon = record_key.find(":", at)
        if colon < 0:
            return False
        following = record_key.find(":", colon + 1)
        if following < 0:
            return False
        comma = record_key.rfind(",", 0, following + 1)
        skipped = record_key[at:colon] not in fields
        while comma < colon:
            following = record_key.find(":", following + 1)
            if following < 0:
                return skipped  # Java's loop for wanted pairs ends here, the one for skipped pairs does not
            comma = record_key.rfind(",", 0, following + 1)
        at = comma + 1
    return False


def bucket_ids(
    record_keys: pa.Array,
    *,
    buckets: int | np.ndarray,
    hash_fields: Sequence[str],
    parts: Sequence[tuple[str, pa.Array]] | None,
) -> np.ndarray:
    """Bucket of each row, int32. ``buckets``: how many there are, or for each row how many its partition has.

    ``record_keys`` are the keys' texts. ``parts`` gives the (field, text) columns of a composite key in key
    order (a null is a null part), or None if a key is one plain value.
    """
    hashed = key_hashes(record_keys, hash_fields=hash_fields, parts=parts)
    return (hashed % np.asarray(buckets, np.uint32)).astype(np.int32)


def key_hashes(
    record_keys: pa.Array, *, hash_fields: Sequence[str], parts: Sequence[tuple[str, pa.Array]] | None
) -> np.ndarray:
    """What Java divides by the bucket count, uint32 below 2**31; arguments are those of ``bucket_ids``."""
    if parts is None:
        hashed = np.uint32(31) + java_string_hash(record_keys)
        odd = _and(_contains(record_keys, ","), _contains(record_keys, ":"))
    else:
        hashed = np.full(len(record_keys), 1, np.uint32)
        odd = np.zeros(len(record_keys), bool)
        if not any(name in hash_fields for name, _ in parts):
            hashed = np.uint32(31) + java_string_hash(record_keys)
        for name, texts in parts:
            # A separator inside a value shifts Java's parser: such rows take the slow path.
            odd |= _contains(texts, ",") | _contains(texts, ":")
            odd |= _equals(texts, "__null__") | _equals(texts, "__empty__")
            if name in hash_fields:
                hashed *= np.uint32(31)
                hashed += java_string_hash(texts)
    if odd.any():
        for row in np.flatnonzero(odd):
            hashed[row] = _slow_hash(record_keys[int(row)].as_py(), hash_fields)
    return hashed & np.uint32(0x7FFFFFFF)


def _slow_hash(record_key: str, fields: Sequence[str]) -> np.uint32:
    result = 1
    for value in hash_parts(record_key, fields):
        units = (value or "").encode("utf-16-le", "surrogatepass")
        text = 0
        for at in range(0, len(units), 2):
            text = (31 * text + units[at] + (units[at + 1] << 8)) & 0xFFFFFFFF
        result = (31 * result + text) & 0xFFFFFFFF
    return np.uint32(result)


def _contains(values: pa.Array, text: str) -> np.ndarray:
    if not _anywhere(values, text):
        return np.zeros(len(values), bool)
    found = pc.match_substring(values, text)
    return found.fill_null(False).to_numpy(zero_copy_only=False)


def _equals(values: pa.Array, text: str) -> np.ndarray:
    if not _anywhere(values, text):
        return np.zeros(len(values), bool)
    return pc.equal(values, text).fill_null(False).to_numpy(zero_copy_only=False)


def _anywhere(values: pa.Array, text: str) -> bool:
    """Whether the bytes of all values together hold ``text``: one fast search, which rarely finds any."""
    values = _string_array(values)
    data = values.buffers()[2] if len(values) else None
    if data is None:
        return False
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    return text.encode() in data.slice(first, last - first).to_pybytes()


def _and(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left & right
