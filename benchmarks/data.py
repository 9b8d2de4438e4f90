"""Rows for the benchmarks: the six columns of Hudi's quick-start trips (eleven with its meta
columns).

About 225 bytes per record as an Avro log record. Keys are a function of a number, so that every
process and every peer upserts the same keys without sharing anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

KEY = "uuid"
ORDERING = "ts"
SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("uuid", pa.string()),
        ("rider", pa.string()),
        ("driver", pa.string()),
        ("fare", pa.float64()),
        ("city", pa.string()),
    ]
)
_CITIES = pa.array(["san_francisco", "sao_paulo", "chennai", "new_york", "zurich", "nairobi"])
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_DASHES = (8, 13, 18, 23)


def _mixed(numbers: np.ndarray, salt: int) -> np.ndarray:
    """splitmix64: a well spread 64-bit value per number."""
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (salt + 1)) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def keys(numbers: np.ndarray) -> pa.Array:
    """36 characters in the form of a UUID, one per number."""
    words = np.stack([_mixed(numbers, 1), _mixed(numbers, 2)], axis=1)
    digits = _HEX[_nibbles(words.astype(">u8").view(np.uint8).reshape(len(numbers), 16))]
    text = np.full((len(numbers), 36), ord("-"), dtype=np.uint8)
    text[:, [i for i in range(36) if i not in _DASHES]] = digits
    offsets = np.arange(0, 36 * len(numbers) + 1, 36, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _nibbles(data: np.ndarray) -> np.ndarray:
    out = np.empty((len(data), 32), dtype=np.uint8)
    out[:, 0::2], out[:, 1::2] = data >> 4, data & 15
    return out


def rows(numbers: np.ndarray, *, version: int = 0) -> pa.Table:
    """Full rows of these keys; a later ``version`` has a later ``ts`` and another fare."""
    spread = _mixed(numbers, 3 + version)
    names = pa.array(spread % np.uint64(10_000)).cast(pa.string())
    columns = [
        pa.array(1_700_000_000_000 + version * 1000 + (spread % np.uint64(1000)).astype(np.int64)),
        keys(numbers),
        _prefixed("rider-", names),
        _prefixed("driver-", names),
        pa.array((spread % np.uint64(10_000)).astype(np.float64) / 100.0),
        _CITIES.take(pa.array((spread % np.uint64(6)).astype(np.int64))),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _prefixed(prefix: str, values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(pa.scalar(prefix), values, pa.scalar(""))


def batches(count: int, size: int, *, seed: int = 0) -> Iterator[pa.Table]:
    """``count`` upsert batches: the first all new keys, each later one half updates, half new keys.

    20 batches of 50,000 rows leave 525,000 keys.
    """
    random = np.random.default_rng(seed)
    known = 0
    for version in range(count):
        old = size // 2 if known else 0
        fresh = np.arange(known, known + size - old)
        updated = random.choice(known, size=old, replace=False) if old else np.empty(0, np.int64)
        known += len(fresh)
        yield rows(np.concatenate([updated, fresh]), version=version)


def repeated(size: int, *, version: int, first: int = 0) -> pa.Table:
    """The same ``size`` keys in every call: what writers on the same keys upsert."""
    return rows(np.arange(first, first + size), version=version)
