"""Keys of the metadata table's rows, and the file group that each lies in.

``b64`` is standard base64 with padding; ``hash`` is xxHash64 (seed 0xdabadaba sign-extended) as 8 big-endian
bytes; a partition is its relative path, ``.`` where the table has none.

=====================  =======================================================================
files                  partition, and ``__all_partitions__``
column_stats           ``b64(hash(column)) b64(hash(partition)) b64(md5(file name))``
partition_stats        ``b64(hash(column)) b64(hash(partition))``
bloom_filters          ``b64(hash(partition)) b64(md5(file name))``
expr_index_*           as column_stats or bloom_filters; a partition's row
                       ``b64(hash(column)) b64(hash("__partition_stat__")) b64(hash(partition))``
record_index           record key
secondary_index_*      ``esc(value) $ esc(record key)``; a null value is one NUL
=====================  =======================================================================

Everything works on Arrow arrays. Hashes are computed once per distinct value in plain Python: columns and
partitions are few, and a file's MD5 is needed for all of its columns.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.formats.avro_pieces import offsets_of
from mainstem.layout.buckets import java_string_hash
from mainstem.metadata.metadata_partitions import in_keys
from mainstem.metadata.records.xxhash64 import xxhash64

V1, V2 = "V1", "V2"

_SEED = 0xFFFFFFFFDABADABA
_PARTITION_STAT = "__partition_stat__"
_NULL = "\0"
_SEPARATOR = "$"
#: what the keys of a secondary index begin with whose value is null
NULL_PREFIX = _NULL + _SEPARATOR


@lru_cache(maxsize=65_536)
def name_hash(text: str) -> str:
    """``b64(hash(text))`` of a column or partition, 12 characters."""
    return base64.b64encode(xxhash64(text.encode(), _SEED).to_bytes(8, "big")).decode()


def partition_hash(partition: str) -> str:
    """``name_hash`` of a partition path, "" of a non-partitioned table."""
    return name_hash(in_keys(partition))


def file_hash(name: str) -> str:
    """``b64(md5(name))`` of a bare file name, 24 characters."""
    return base64.b64encode(hashlib.md5(name.encode(), usedforsecurity=False).digest()).decode()


def _each(values: pa.Array | pa.ChunkedArray, made: Callable[[str], str]) -> pa.Array:
    """``made`` of every value, computed once per distinct one."""
    coded = pc.dictionary_encode(values)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    if isinstance(coded, pa.ChunkedArray):  # pyarrow before 20 gives none back where there was no chunk
        coded = pa.array([], pa.dictionary(pa.int32(), pa.string()))
    return pa.array([made(text) for text in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def column_stats_keys(columns: pa.Array, partitions: pa.Array, files: pa.Array) -> pa.Array:
    """Keys in ``column_stats`` of rows; partitions as paths, "" for a non-partitioned table."""
    return _joined(_each(columns, name_hash), _each(partitions, partition_hash), _each(files, file_hash))


def partition_stats_keys(columns: pa.Array, partitions: pa.Array) -> pa.Array:
    """Keys in ``partition_stats``."""
    return _joined(_each(columns, name_hash), _each(partitions, partition_hash))


def expression_partition_keys(columns: pa.Array, partitions: pa.Array) -> pa.Array:
    """Keys of the partitions' rows in a column-statistics expression index; columns are the source ones."""
    middle = pa.repeat(pa.scalar(name_hash(_PARTITION_STAT)), len(columns))
    return _joined(_each(columns, name_hash), middle, _each(partitions, partition_hash))


def bloom_keys(partitions: pa.Array, files: pa.Array) -> pa.Array:
    """Keys in ``bloom_filters``."""
    return _joined(_each(partitions, partition_hash), _each(files, file_hash))


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


# ------------------------------------------------------------------------------------ secondary keys


def secondary_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    """``esc(value)$esc(record key)``; ``values`` are texts as Java prints them, null allowed."""
    escaped = pc.fill_null(_escaped(values), _NULL)
    return pc.binary_join_element_wise(escaped, _escaped(record_keys), _SEPARATOR)


def secondary_prefixes(values: pa.Array) -> pa.Array:
    """``esc(value)$``: what all entries of a value begin with."""
    return pc.binary_join_element_wise(pc.fill_null(_escaped(values), _NULL), "", _SEPARATOR)


def _escaped(values: pa.Array) -> pa.Array:
    values = values.cast(pa.string())
    data = _data_of(values)
    odd = any(byte in data for byte in (b"\\", b"$", b"\0"))
    return pc.replace_substring_regex(values, r"([\\$\x00])", r"\\\1") if odd else values


def _data_of(values: pa.Array) -> bytes:
    """The bytes of all texts: whether a byte is in any of them is a matter of microseconds there."""
    offsets, data = offsets_of(values), values.buffers()[2]
    return b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()


def split_secondary(keys: pa.Array, *, path: str = "") -> tuple[pa.Array, pa.Array]:
    """``(value or null, record key)`` of stored keys. ``CorruptTable`` for a key without separator."""
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    cut = _separators(keys)
    if len(cut) and int(cut.min()) < 0:
        wrong = keys[int(np.flatnonzero(cut < 0)[0])].as_py()
        raise CorruptTable(f"the key {wrong[:80]!r} of a secondary index has no '$'", path=path)
    values, record_keys = _pieces(keys, [cut, cut + 1], [0, 2])
    plain = pc.equal(values, _NULL)
    values = pc.if_else(plain, pa.scalar(None, pa.string()), _unescaped(values))
    return values, _unescaped(record_keys)


def _separators(keys: pa.Array) -> np.ndarray:
    """Byte of the first unescaped ``$`` of each key, -1 where there is none."""
    data, begins = _data_of(keys), offsets_of(keys).astype(np.int64)
    begins -= begins[0]
    places = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(_SEPARATOR))
    odd = b"\\" in data
    alike = not odd and len(places) == len(keys)
    if alike and (places >= begins[:-1]).all() and (places < begins[1:]).all():
        return places - begins[:-1]  # one for each, as nearly always
    found = pc.find_substring(keys, _SEPARATOR).to_numpy(zero_copy_only=False).astype(np.int64)
    if not odd:
        return found
    escaped = pc.match_substring(keys, "\\").to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(escaped).tolist():  # rare: values with a backslash, '$' or NUL
        found[row] = _separator(keys[row].as_py().encode())
    return found


def _separator(key: bytes) -> int:
    at = 0
    while at < len(key):
        if key[at] == 0x24:
            return at
        at += 2 if key[at] == 0x5C else 1
    return -1


def _pieces(keys: pa.Array, cuts: Sequence[np.ndarray], wanted: Sequence[int]) -> list[pa.Array]:
    """Some of the pieces of each key, by their numbers, when it is cut at these bytes: all pieces lie one
    behind the other in one array of them."""
    rows, begins, count = len(keys), offsets_of(keys), len(cuts) + 1
    offsets = np.empty(count * rows + 1, np.int32)
    offsets[::count] = begins
    for place, cut in enumerate(cuts, 1):
        offsets[place::count] = begins[:-1] + cut
    buffers = [None, pa.py_buffer(offsets), keys.buffers()[2]]
    whole = pa.Array.from_buffers(pa.string(), count * rows, buffers)
    return [whole.take(pa.array(np.arange(number, count * rows, count))) for number in wanted]


def _unescaped(values: pa.Array) -> pa.Array:
    odd = pc.any(pc.match_substring(values, "\\"), min_count=0).as_py()
    return pc.replace_substring_regex(values, r"(?s)\\(.)", r"\1") if odd else values


# -------------------------------------------------------------------------------------- file groups


def file_groups(texts: pa.Array, groups: int, secondary_version: str | None = None) -> np.ndarray:
    """int64 per stored key: the file group that Java's hash names (``mapRecordKeyToFileGroupIndex``), under
    version V2 of a secondary index the hash of ``hashed_texts``.

    ``abs(abs(h) % groups)`` of ``String.hashCode``; Java's ``abs(-2**31)`` is negative and its remainder
    keeps the sign, so the result is that of the absolute value in 64 bits.
    """
    if groups <= 1:
        return np.zeros(len(texts), np.int64)
    lengths = _hashed_bytes(texts) if secondary_version == V2 and len(texts) else None
    hashes = java_string_hash(texts, lengths).view(np.int32).astype(np.int64)
    return np.abs(hashes) % groups


def hashed_texts(keys: pa.Array, secondary_version: str | None = None) -> pa.Array:
    """What is hashed of stored keys: all of it, or under version V2 of a secondary index what comes before
    the record key, separator included (all of what has no separator)."""
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if secondary_version != V2 or not len(keys):
        return keys
    return _pieces(keys, [_hashed_bytes(keys)], [0])[0]


def _hashed_bytes(keys: pa.Array) -> np.ndarray:
    cut = _separators(keys)
    return np.where(cut >= 0, cut + 1, np.diff(offsets_of(keys)))
