"""Consistent hashing: a ring of hash ranges for each partition, each range a file group (RFC-42).

``hash = XXH32(texts of the hash fields, joined) & 0x7FFFFFFF`` (ConsistentBucketIdentifier); a key belongs to
the first node whose value is not below its hash, or to the first of all. A partition begins with a ring of
equal ranges whose file ids follow from its path and their number (HoodieConsistentHashingMetadata): it does
not matter which writer makes it. Hudi's clustering splits and merges ranges, and writes a new ring.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.layout.buckets import hash_parts

HASH_MAX = 0x7FFFFFFF
#: the instant of a partition's first ring (HoodieTimeline.INIT_INSTANT_TS)
FIRST = "00000000000000"
_NORMAL = "NORMAL"


@dataclass(frozen=True)
class Child:
    """A node that a clustering puts into a ring, or takes out of it (``prefix`` None)."""

    value: int
    prefix: str | None


@dataclass(frozen=True)
class Ring:
    """The nodes of a partition, by rising values: each takes the hashes up to its value, file group by file
    group. ``instant``: whose ring this is; ``first_count``: how many nodes the partition began with."""

    partition: str
    instant: str
    first_count: int
    sequence: int
    values: tuple[int, ...]
    prefixes: tuple[str, ...]

    def file_id(self, node: int) -> str:
        """The file group of a node, by its place in the ring."""
        return f"{self.prefixes[node]}-0"

    @cached_property
    def nodes(self) -> dict[str, int]:
        """File id -> node."""
        return {self.file_id(node): node for node in range(len(self.prefixes))}

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """The node of each hash, int32."""
        found = np.searchsorted(np.array(self.values, np.int64), hashes.astype(np.int64), "left")
        return (found % len(self.values)).astype(np.int32)

    def owner(self, value: int) -> int:
        """The node of one hash."""
        return int(self.find(np.array([value]))[0])

    def halves(self, node: int, prefixes: tuple[str, str]) -> list[Child] | None:
        """The nodes that a split of a node makes; None if its range cannot be halved
        (ConsistentBucketIdentifier.splitBucket)."""
        end = self.values[node]
        before = self.values[node - 1]
        middle = (before + end + (0 if before < end else HASH_MAX + 1)) // 2 & HASH_MAX
        if middle in (before, end):
            return None
        return [Child(middle, prefixes[0]), Child(end, prefixes[1])]

    def changed(self, children: Iterable[Child], instant: str) -> Ring:
        """The ring after a clustering."""
        ring = dict(zip(self.values, self.prefixes, strict=True))
        for child in children:
            if child.prefix is None:
                ring.pop(child.value, None)
            else:
                ring[child.value] = child.prefix
        values = tuple(sorted(ring))
        prefixes = tuple(ring[value] for value in values)
        return Ring(self.partition, instant, self.first_count, self.sequence + 1, values, prefixes)

    def encoded(self) -> bytes:
        """The content of its file."""
        nodes = [
            {"value": value, "fileIdPrefix": prefix, "tag": _NORMAL}
            for value, prefix in zip(self.values, self.prefixes, strict=True)
        ]
        content = {
            "version": 0, "partitionPath": self.partition, "instant": self.instant,
            "numBuckets": self.first_count, "seqNo": self.sequence, "nodes": nodes,
        }  # fmt: skip
        return json.dumps(content, indent=2, separators=(",", " : "), ensure_ascii=False).encode()


def first_ring(partition: str, count: int) -> Ring:
    """The ring that every writer makes for a new partition."""
    step = (HASH_MAX + count - 1) // count
    values = [min(step * number, HASH_MAX) for number in range(1, count + 1)]
    starts = [0, *values[:-1]]
    prefixes = [_file_id(partition, low, high) for low, high in zip(starts, values, strict=True)]
    ring = dict(zip(values, prefixes, strict=True))  # of equal values, Java's ring keeps the last
    return Ring(partition, FIRST, count, 0, tuple(ring), tuple(ring.values()))


def _file_id(partition: str, low: int, high: int) -> str:
    named = low.to_bytes(8, "big") + high.to_bytes(8, "big") + partition.encode()
    digest = hashlib.md5(named, usedforsecurity=False).digest()  # UUID.nameUUIDFromBytes
    return str(UUID(bytes=digest, version=3))


def parsed_ring(data: bytes, partition: str) -> Ring:
    """The ring in a file's content. Raises ``ValueError`` for what is no ring of this partition."""
    try:
        found = json.loads(data)
        nodes = sorted(found["nodes"], key=lambda node: int(node["value"]))
        ring = Ring(
            str(found["partitionPath"]), str(found["instant"]), int(found["numBuckets"]), int(found["seqNo"]),
            tuple(int(node["value"]) for node in nodes), tuple(str(node["fileIdPrefix"]) for node in nodes),
        )  # fmt: skip
        tags = {str(node["tag"]) for node in nodes}
        whole = all(str(UUID(prefix)) == prefix for prefix in ring.prefixes)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no ring: {error!r}") from error
    if ring.partition != partition or tags != {_NORMAL} or not whole:
        raise ValueError(f"a ring of partition {ring.partition!r} with nodes {sorted(tags)}")
    low, high = ring.values[0], ring.values[-1]
    if len(set(ring.values)) != len(nodes) or len(ring.nodes) != len(nodes) or low < 0 or high > HASH_MAX:
        raise ValueError("its nodes are not distinct")
    return ring


def encoded_children(children: Sequence[Child]) -> str:
    """As a clustering plan holds them (ConsistentHashingNode)."""
    nodes = [
        {"value": c.value, "fileIdPrefix": c.prefix, "tag": "DELETE" if c.prefix is None else "REPLACE"}
        for c in children
    ]
    return json.dumps(nodes, indent=2, separators=(",", " : "))


def parsed_children(text: str) -> list[Child]:
    """Raises ``ValueError`` for what are no children."""
    try:
        nodes = [(int(n["value"]), n["fileIdPrefix"], str(n["tag"])) for n in json.loads(text)]
        for value, prefix, tag in nodes:
            deleted = tag == "DELETE" and prefix is None
            made = tag == "REPLACE" and str(UUID(prefix)) == prefix
            if not 0 <= value <= HASH_MAX or not (deleted or made):
                raise ValueError(f"no node: {value}, {prefix!r}, {tag}")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no nodes: {error!r}") from error
    return [Child(value, prefix) for value, prefix, _ in nodes]


def ring_hashes(
    record_keys: pa.Array, *, hash_fields: Sequence[str], parts: Sequence[tuple[str, pa.Array]] | None
) -> np.ndarray:
    """The hash of each key, uint32 up to ``HASH_MAX``; the arguments are those of ``buckets.bucket_ids``."""
    joined = record_keys
    odd = pc.and_(pc.match_substring(record_keys, ","), pc.match_substring(record_keys, ":"))
    if parts is not None:
        texts = [column for name, column in parts if name in hash_fields]
        if texts:
            filled = [pc.fill_null(text.cast(pa.string()), "null") for text in texts]
            joined = filled[0] if len(filled) == 1 else pc.binary_join_element_wise(*filled, "")
        for _, text in parts:
            for sign in (",", ":", "__null__", "__empty__"):
                odd = pc.or_(odd, pc.fill_null(pc.match_substring(text, sign), False))
    joined = joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
    found = xxhash32(joined)
    rows = np.flatnonzero(pc.fill_null(odd, False).to_numpy(zero_copy_only=False))
    if rows.size:
        each = (hash_parts(record_keys[int(row)].as_py(), hash_fields) for row in rows)
        slow = pa.array(["".join("null" if p is None else p for p in found_parts) for found_parts in each])
        found[rows] = xxhash32(slow)
    return found & np.uint32(HASH_MAX)


_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)  # fmt: skip


def xxhash32(texts: pa.Array) -> np.ndarray:
    """XXH32 with the seed 0 of each text's UTF-8 bytes, uint32; columns of bytes for each length."""
    values = texts.cast(pa.large_binary())
    count = len(values)
    found = np.zeros(count, np.uint32)
    if not count:
        return found
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + count + 1]
    data = values.buffers()[2]
    units = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    sizes = np.diff(offsets)
    order = np.argsort(sizes, kind="stable")
    ends = np.flatnonzero(np.diff(sizes[order], append=-1)) + 1
    for rows in np.split(order, ends[:-1]):
        size = int(sizes[rows[0]])
        most = max(1, (1 << 22) // (size + 1))
        for low in range(0, len(rows), most):
            some = rows[low : low + most]
            found[some] = _xxh32(units[offsets[some][:, None] + np.arange(size)], size)
    return found


def _turned(values: np.ndarray, bits: int) -> np.ndarray:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _xxh32(block: np.ndarray, size: int) -> np.ndarray:
    """Of texts of one length, one a row."""
    whole = size // 4
    words = np.ascontiguousarray(block[:, : whole * 4]).view("<u4").astype(np.uint32)
    at = 0
    with np.errstate(over="ignore"):
        if size >= 16:
            start = (_P1 + _P2, _P2, np.uint32(0), np.uint32(0) - _P1)
            lanes = [np.full(len(block), value, np.uint32) for value in start]
            while at + 4 <= whole:
                for lane in range(4):
                    lanes[lane] = _turned(lanes[lane] + words[:, at + lane] * _P2, 13) * _P1
                at += 4
            turned = [_turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)]
            found = turned[0] + turned[1] + turned[2] + turned[3]
        else:
            found = np.full(len(block), _P5, np.uint32)
        found = found + np.uint32(size)
        for word in range(at, whole):
            found = _turned(found + words[:, word] * _P3, 17) * _P4
        for byte in range(whole * 4, size):
            found = _turned(found + block[:, byte].astype(np.uint32) * _P5, 11) * _P1
        found = (found ^ (found >> np.uint32(15))) * _P2
        found = (found ^ (found >> np.uint32(13))) * _P3
        result: np.ndarray = found ^ (found >> np.uint32(16))
    return result
