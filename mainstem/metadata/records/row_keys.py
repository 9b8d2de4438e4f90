"""Keys of the metadata table's rows, and the file groups in which they are stored.

``b64`` is standard base64 with padding; ``hash`` is xxHash64 (seed 0xdabadaba, sign-extended) as 8 big-endian
bytes; a partition is its relative path, ``.`` in a non-partitioned table.

=====================  =======================================================================
files                  partition, and ``__all_partitions__``
column_stats           ``b64(hash(column)) b64(hash(partition)) b64(md5(file name))``
partition_stats        ``b64(hash(column)) b64(hash(partition))``
bloom_filters          ``b64(hash(partition)) b64(md5(file name))``
expr_index_*           like column_stats or bloom_filters; a partition's row has
                       ``b64(hash(column)) b64(hash("__partition_stat__")) b64(hash(partition))``
record_index           record key
secondary_index_*      ``esc(value) $ esc(record key)``; a null value is one NUL
=====================  =======================================================================

All functions take Arrow arrays. Hashes are computed in plain Python, once per distinct value: columns and
partitions are few, and a file's MD5 serves all of its columns.
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
#: prefix of secondary index keys whose value is null
NULL_PREFIX = _NULL + _SEPARATOR


@lru_cache(maxsize=65_536)
def name_hash(text: str) -> str:
    """``b64(hash(text))`` of a column or partition, 12 characters."""
    return base64.b64encode(xxhash64(text.encode(), _SEED).to_bytes(8, "big")).decode()


def partition_hash(partition: str) -> str:
    """``name_hash`` of a partition path; "" for a non-partitioned table."""
    return name_hash(in_keys(partition))


def file_hash(name: str) -> str:
    """``b64(md5(name))`` of a bare file name, 24 characters."""
    return base64.b64encode(hashlib.md5(name.encode(), usedforsecurity=False).digest()).decode()


def _each(values: pa.Array | pa.ChunkedArray, made: Callable[[str], str]) -> pa.Array:
    """``made(value)`` for every value, computed once per distinct value."""
    coded = pc.dictionary_encode(values)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    if isinstance(coded, pa.ChunkedArray):  # pyarrow before 20 returns no chunk for an empty input
        coded = pa.array([], pa.dictionary(pa.int32(), pa.string()))
    return pa.array([made(text) for text in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def column_stats_keys(columns: pa.Array, partitions: pa.Array, files: pa.Array) -> pa.Array:
    """Keys in ``column_stats``; partitions are paths, "" for a non-partitioned table."""
    return _joined(_each(columns, name_hash), _each(partitions, partition_hash), _each(files, file_hash))


def partition_stats_keys(columns: pa.Array, partitions: pa.Array) -> pa.Array:
    """Keys in ``partition_stats``."""
    return _joined(_each(columns, name_hash), _each(partitions, partition_hash))


def expression_partition_keys(columns: pa.Array, partitions: pa.Array) -> pa.Array:
    """Keys of partition rows in a column statistics expression index; ``columns`` are its source columns."""
    middle = pa.repeat(pa.scalar(name_hash(_PARTITION_STAT)), len(columns))
    return _joined(_each(columns, name_hash), middle, _each(partitions, partition_hash))


def bloom_keys(partitions: pa.Array, files: pa.Array) -> pa.Array:
    """Keys in ``bloom_filters``."""
    return _joined(_each(partitions, partition_hash), _each(files, file_hash))


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


# ------------------------------------------------------------------------------------ secondary keys


def secondary_keys(values: pa.Array, record_keys: pa.Array) -> pa.Array:
    """``esc(value)$esc(record key)``; ``values`` are texts as Java prints them, or null."""
    escaped = pc.fill_null(_escaped(values), _NULL)
    return pc.binary_join_element_wise(escaped, _escaped(record_keys), _SEPARATOR)


def secondary_prefixes(values: pa.Array) -> pa.Array:
    """``esc(value)$``: the common prefix of all entries of a value."""
    return pc.binary_join_element_wise(pc.fill_null(_escaped(values), _NULL), "", _SEPARATOR)


def _escaped(values: pa.Array) -> pa.Array:
    values = values.cast(pa.string())
    data = _data_of(values)
    odd = any(byte in data for byte in (b"\\", b"$", b"\0"))
    return pc.replace_substring_regex(values, r"([\\$\x00])", r"\\\1") if odd else values


def _data_of(values: pa.Array) -> bytes:
    """The bytes of all texts together: searching them for a byte takes microseconds."""
    offsets, data = offsets_of(values), values.buffers()[2]
    return b"" if data is None else data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()


def split_secondary(keys: pa.Array, *, path: str = "") -> tuple[pa.Array, pa.Array]:
    """``(value or null, record key)`` of stored keys. ``CorruptTable`` for a key without a separator."""
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
    """Position of the first unescaped ``$`` in each key's bytes; -1 if there is none."""
    data, begins = _data_of(keys), offsets_of(keys).astype(np.int64)
    begins -= begins[0]
    places = np.flatnonzero(np.frombuffer(data, np.uint8) == ord(_SEPARATOR))
    odd = b"\\" in data
    alike = not odd and len(places) == len(keys)
    if alike and (places >= begins[:-1]).all() and (places < begins[1:]).all():
        return places - begins[:-1]  # exactly one per key, as nearly always
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
    """Cut each key at these bytes and return the pieces with the ``wanted`` numbers.

    All pieces of all keys form one array, from which the wanted ones are taken.
    """
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
    """int64 per stored key: its file group by Java's hash (``mapRecordKeyToFileGroupIndex``).

    Under version V2 of a secondary index only ``hashed_texts`` is hashed. The group is
    ``abs(abs(h) % groups)`` of ``String.hashCode``. Java's ``abs(-2**31)`` is negative and its remainder
    keeps the sign, so the result equals that of the 64-bit absolute value.
    """
    if groups <= 1:
        return np.zeros(len(texts), np.int64)
    lengths = _hashed_bytes(texts) if secondary_version == V2 and len(texts) else None
    hashes = java_string_hash(texts, lengths).view(np.int32).astype(np.int64)
    return np.abs(hashes) % groups


def hashed_texts(keys: pa.Array, secondary_version: str | None = None) -> pa.Array:
    """The hashed part of stored keys: all of it; under version V2 of a secondary index, the part before the
    record key, separator included (all of it if there is no separator)."""
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if secondary_version != V2 or not len(keys):
        return keys
    return _pieces(keys, [_hashed_bytes(keys)], [0])[0]


def _hashed_bytes(keys: pa.Array) -> np.ndarray:
    cut = _separators(keys)
    return np.where(cut >= 0, cut + 1, np.diff(offsets_of(keys)))
