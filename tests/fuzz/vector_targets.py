"""Parsers of what storage says about vector indexes: their list, manifests, and keys of rows."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa

from mainstem.formats.arrow_file import plain_table
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.vectors.engines import engine
from mainstem.vectors.index.version_manifest import (
    Cluster,
    CoveredSlice,
    StoredFile,
    VectorIndex,
    VectorIndexes,
    Version,
    encode_indexes,
    encode_manifest,
    parse_indexes,
    parse_manifest,
)
from mainstem.vectors.index.versions import KEYS, open_keys
from tests.fuzz.corpus import INSTANT
from tests.fuzz.files import in_file
from tests.fuzz.harness import Target
from tests.vectors.jvector_files import jvector_file

_TOKEN = "0123456789abcdef" * 2
_NAME = paths.vector_name(_TOKEN, "0.keys")
_PATH = paths.vector_file("000", 3, _NAME)


def _list(data: bytes) -> object:
    """Every index can be written again, and its place is one below the folder of vector indexes."""
    found = parse_indexes(data, path="f")
    for index in found.found:
        assert paths.parse_vector_column(f"column={index.id}") == index.id and index.first > 0
    assert parse_indexes(encode_indexes(found), path="f").found == found.found
    return sorted(index.column for index in found.found)


def _lists() -> list[bytes]:
    one = VectorIndex("v", "v", "000", _TOKEN, "flat", "l2")
    two = VectorIndex("by text", "t", "002", _TOKEN[::-1], "hnsw", "cosine", 4, {"m": "8"}, "words", 7)
    both = VectorIndexes((one, two), {"old": ("001", 3)})
    return [encode_indexes(VectorIndexes((one,))), encode_indexes(both)]


def _manifest(data: bytes) -> object:
    version = parse_manifest(data, column_id="000", number=3, path="f")
    for file in version.files:
        assert paths.parse_vector_name(file.name) is not None and version.path(file).startswith(paths.VECTORS)
    for covered in version.slices:
        assert not covered.partition or paths.inside(covered.partition, source="f") == covered.partition
    return encode_manifest(version)


def _whole(inside: bytes) -> bytes:
    """A manifest around these bytes whose checksum fits."""
    try:
        known = json.loads(inside)
    except (ValueError, RecursionError):
        return inside
    text = json.dumps(known, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"checksum": hashlib.sha256(text).hexdigest(), "version": known}).encode()


def _version() -> Version:
    names = [paths.vector_name(_TOKEN, f"0.{what}") for what in ("keys", "vectors", "graph")]
    group = "00000000-1111-2222-3333-444444444444-0"
    base, log = f"{group}_0-0-0_{INSTANT}.parquet", f".{group}_{INSTANT}.log.1_0-0-0"
    return Version(
        "000", 3, _TOKEN[::-1], _TOKEN, INSTANT, "v", "flat", "l2", {"m": "8"}, "", "FLOAT", 3,
        (CoveredSlice("p=1/q", group, base, (log,), 2),),
        (Cluster(2, *(StoredFile(name, 24, 5) for name in names), np.ones(3, np.float32)),),
    )  # fmt: skip


@cache
def _manifests() -> list[bytes]:
    empty = replace(_version(), slices=(), clusters=(), dimension=0)
    return [encode_manifest(empty), encode_manifest(_version())]


def _insides() -> list[bytes]:
    return [json.dumps(json.loads(data)["version"]).encode() for data in _manifests()]


def _keys(storage: LocalStorage) -> object:
    """The manifest's size and checksum fit, as whoever writes the one writes the other."""
    data = storage.read(_PATH, max_bytes=2**30)
    part = replace(_version().clusters[0], rows=2, keys=StoredFile(_NAME, len(data), zlib.crc32(data)))
    return open_keys(storage, replace(_version(), clusters=(part,)), 0).to_pydict()


@cache
def _key_files() -> list[bytes]:
    columns = [["a", "b"], ["p", "p"], pa.array([0, 0], pa.int32()), [INSTANT, None], [b"0" * 16, None]]
    rows = pa.table(columns, schema=KEYS)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, KEYS) as writer:
        writer.write_table(rows)
    return [sink.getvalue()]


def _graph(name: str) -> Callable[[bytes], object]:
    """What an engine loads can be searched, and names only vectors that it has."""

    def run(data: bytes) -> object:
        graph = engine(name).load(data, 4, "l2", 30)
        labels, distances = graph.search(np.ones((2, 4)), 5, threads=1)
        assert labels.shape == distances.shape == (2, 5) and ((labels >= -1) & (labels < 30)).all()
        return graph.count

    return run


def _graphs(name: str) -> Callable[[], list[bytes]]:
    vectors = np.arange(120, dtype=np.float32).reshape(30, 4) % 7

    @cache
    def made() -> list[bytes]:
        return [bytes(engine(name).build(vectors, "l2", {}, threads=1))]

    return made


def _jvector_files() -> list[bytes]:
    return [bytes(jvector_file(np.arange(120, dtype=np.float32).reshape(30, 4) % 7))]


VECTOR_TARGETS = [
    Target("graph of the engine flat", _graph("flat"), _graphs("flat")),
    Target("graph of the engine hnsw", _graph("hnsw"), _graphs("hnsw"), slow=True),
    Target("lists of the engine faiss", _graph("faiss"), _graphs("faiss"), slow=True),
    Target("graph of the engine jvector", _graph("jvector"), _jvector_files),
    Target("list of vector indexes", _list, _lists, lambda whole, found: True),
    Target("manifest of a vector index", _manifest, _manifests),
    Target("manifest of a vector index whose checksum fits", lambda data: _manifest(_whole(data)), _insides),
    Target("Arrow file of rows", lambda data: plain_table(memoryview(data), KEYS, 2).to_pydict(), _key_files),
    Target("keys of a vector index", in_file(_PATH, _keys), _key_files, slow=True),
]
