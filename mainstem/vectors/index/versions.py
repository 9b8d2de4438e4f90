"""Reading vector indexes: which there are, their versions, and the files of a version.

Nothing here is locked. A version is never changed once its manifest is there; its files may go when it is
superseded or the index dropped (``FileNotFoundError``: look again, or search exactly). What was opened stays
readable: files are read into memory of our own, those of a version above ``VECTOR_MEMORY_BYTES_MAX`` into
files without a name where temporary files are. They are never mapped where they lie: whoever cuts a mapped
file kills its reader (so does NFS when another machine removes it), and whoever changes one feeds bytes that
nobody checked to an engine that follows the edges of its graphs without looking.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, MainstemError
from mainstem.formats.arrow_file import plain_table
from mainstem.limits import MANIFEST_BYTES_MAX, PROPERTIES_BYTES_MAX, VECTOR_MEMORY_BYTES_MAX
from mainstem.storage import maps, paths
from mainstem.storage.protocol import Storage
from mainstem.vectors.index.version_manifest import (
    ELEMENTS,
    StoredFile,
    VectorIndex,
    VectorIndexes,
    Version,
    parse_indexes,
    parse_manifest,
)

if TYPE_CHECKING:
    from mainstem.vectors.engines import Graph

RECORD_KEY, PARTITION, SLICE, COMMIT_TIME, TEXT, VECTOR = (
    "record_key", "partition_path", "slice", "commit_time", "text_digest", "vector",
)  # fmt: skip
_VALUES = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "INT8": pa.int8()}
_CHUNK = 16 * 1024 * 1024


#: columns of a cluster's rows, but the vectors. ``slice``: place in ``Version.slices``, ascending within a
#: cluster; ``commit_time`` is null where the table's files hold no meta columns, ``text_digest``
#: (``embedding.digests``) where vectors are not made of texts
KEYS = pa.schema(
    [
        pa.field(RECORD_KEY, pa.string(), nullable=False),
        pa.field(PARTITION, pa.string(), nullable=False),
        pa.field(SLICE, pa.int32(), nullable=False),
        pa.field(COMMIT_TIME, pa.string()),
        pa.field(TEXT, pa.binary()),
    ]
)


def read_indexes(storage: Storage) -> VectorIndexes:
    """The table's vector indexes, and the ids of dropped ones; from the copy, and then ``lost``, where the
    metadata table's folder was removed. ``CorruptTable`` for damaged files."""
    for path, lost in ((paths.VECTOR_PROPERTIES, False), (paths.VECTOR_PROPERTIES_COPY, True)):
        try:
            data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
        except FileNotFoundError:
            continue
        return parse_indexes(data, path=path, lost=lost)
    return VectorIndexes()


def list_digest(storage: Storage) -> str:
    """By which the list of indexes is known to be the same, "" where it is not in its place or too large."""
    try:
        data = storage.read(paths.VECTOR_PROPERTIES, max_bytes=PROPERTIES_BYTES_MAX)
    except (FileNotFoundError, CorruptTable):
        return ""
    return hashlib.sha256(data).hexdigest()


def indexes(storage: Storage) -> list[VectorIndex]:
    """The table's vector indexes by name; see ``read_indexes``."""
    return sorted(read_indexes(storage).found, key=lambda index: index.name)


def version_numbers(storage: Storage, column_id: str) -> list[int]:
    """Numbers of the folders of versions, newest first, whatever is in them."""
    return numbers_of(storage.names(paths.vector_column(column_id)))


def numbers_of(names: Iterable[str]) -> list[int]:
    """Those of the versions with folders of these names, newest first."""
    found = (paths.parse_vector_version(name) for name in names)
    return sorted((number for number in found if number is not None), reverse=True)


def read_version(storage: Storage, column_id: str, number: int) -> Version | None:
    """What the manifest says, None where there is none (yet, or any more). ``CorruptTable``."""
    path = paths.vector_manifest(column_id, number)
    try:
        data = storage.read(path, max_bytes=MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        return None
    return parse_manifest(data, column_id=column_id, number=number, path=path)


def versions(
    storage: Storage, index: VectorIndex, damaged: list[MainstemError] | None = None
) -> list[Version]:
    """The complete versions of an index, newest first; each gives right answers for every snapshot.

    What is wrong with a manifest is added to ``damaged``, or raised where that is not given.
    """
    return list(_whole_versions(storage, index, damaged))


def newest_version(
    storage: Storage, index: VectorIndex, damaged: list[MainstemError] | None = None
) -> Version | None:
    """The active version: the newest that is whole; None while there is none. ``damaged`` as of
    ``versions``."""
    return next(_whole_versions(storage, index, damaged), None)


def _whole_versions(
    storage: Storage, index: VectorIndex, damaged: list[MainstemError] | None
) -> Iterator[Version]:
    for number in version_numbers(storage, index.id):
        try:
            version = read_version(storage, index.id, number)
        except MainstemError as error:
            if damaged is None:
                raise
            damaged.append(error)
            continue
        if version is not None and version.index == index.token:
            yield version


def open_rows(storage: Storage, version: Version, cluster: int) -> pa.Table:
    """Rows of a cluster in label order: ``open_keys``, and ``vector`` as a fixed-size list."""
    keys = open_keys(storage, version, cluster)
    values = open_vectors(storage, version, cluster)
    flat = pa.Array.from_buffers(_VALUES[version.element], values.size, [None, pa.py_buffer(values)])
    lists = pa.FixedSizeListArray.from_arrays(flat, version.dimension) if version.dimension else None
    if lists is None:  # of a table without a vector in it nobody knows the dimension
        lists = pa.array([], pa.list_(_VALUES[version.element], 0))
    return keys.append_column(VECTOR, lists)


def open_keys(storage: Storage, version: Version, cluster: int) -> pa.Table:
    """Columns ``KEYS`` of a cluster's rows in label order.

    The file's checksum is compared. ``CorruptTable`` for damage, ``FileNotFoundError``.
    """
    part = version.clusters[cluster]
    path = version.path(part.keys)
    view = _content(storage, version, part.keys)
    try:
        table = plain_table(view, KEYS, part.rows)
    except CorruptTable as error:
        raise _damaged(error.message, path) from None
    # A field that is said to hold no nulls may hold some all the same.
    if any(table.column(name).null_count for name in (RECORD_KEY, PARTITION, SLICE)):
        raise _damaged("rows without record key, partition or slice", path)
    return table


def open_vectors(storage: Storage, version: Version, cluster: int) -> np.ndarray:
    """The vectors of a cluster in label order: (rows, dimension) of the version's element type, read-only.
    Errors as of ``open_keys``."""
    part = version.clusters[cluster]
    view = _content(storage, version, part.vectors)
    values = np.frombuffer(view, ELEMENTS[version.element])
    return values.reshape(part.rows, version.dimension)


def open_graph(storage: Storage, version: Version, cluster: int) -> Graph:
    """The engine's graph over a cluster's vectors; labels are row numbers of ``open_rows``.

    ``CorruptTable`` for damage, ``FileNotFoundError``, ``Invalid`` for an engine whose library is missing.
    """
    from mainstem.vectors.engines import engine

    part = version.clusters[cluster]
    view = _content(storage, version, part.graph)
    try:
        return engine(version.engine).load(view, version.dimension, version.metric, part.rows)
    except CorruptTable as error:
        error.path = error.path or version.path(part.graph)
        raise


def check_files(storage: Storage, version: Version) -> None:
    """Reads all files of a version: ``CorruptTable`` for damage, ``FileNotFoundError``."""
    for file in version.files:
        path = version.path(file)
        _check_size(storage, path, file)
        checksum = 0
        for start in range(0, file.size, _CHUNK):
            checksum = zlib.crc32(storage.read_range(path, start, min(_CHUNK, file.size - start)), checksum)
        _check_sum(checksum, path, file)


def _content(storage: Storage, version: Version, file: StoredFile) -> memoryview:
    """All bytes of a file, as they were written, in memory of our own."""
    path = version.path(file)
    _check_size(storage, path, file)
    view = maps.private_copy(storage, path, file.size, spill=version.size > VECTOR_MEMORY_BYTES_MAX)
    checksum = 0
    for start in range(0, len(view), _CHUNK):
        checksum = zlib.crc32(view[start : start + _CHUNK], checksum)
    _check_sum(checksum, path, file)
    if len(view) != file.size:
        raise _damaged(f"it was cut to {len(view)} bytes while it was read", path)
    return view


def _check_size(storage: Storage, path: str, file: StoredFile) -> None:
    info = storage.stat(path)
    if info is None:
        raise FileNotFoundError(path)
    if info.size != file.size:
        raise _damaged(f"it has {info.size} bytes, {file.size} expected", path)


def _check_sum(found: int, path: str, file: StoredFile) -> None:
    if found != file.checksum:
        raise _damaged("its checksum does not fit", path)


def _damaged(what: str, path: str) -> CorruptTable:
    return CorruptTable(
        f"damaged file of a vector index: {what}; searches go without it, refresh the index to have it anew",
        path=path,
    )
