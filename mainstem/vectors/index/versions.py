"""Reads vector indexes: the list, their versions, and a version's files.

Nothing here is locked. A version does not change once its manifest exists. Its files may be removed when it
is superseded or its index dropped (``FileNotFoundError``: look again, or search exactly). What has been
opened stays readable: files are read into this process's memory or, for versions above
``VECTOR_MEMORY_BYTES_MAX``, into nameless temporary files. They are never mapped in place: cutting a mapped
file kills its reader (so does NFS when another machine removes it), and changing one would feed unchecked
bytes to an engine that follows edges blindly. Files of an object store are copied into a folder of this
machine and mapped there: it is the user's own, and a copy never changes (``storage.local_cache``).
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
from mainstem.storage.files import file_info
from mainstem.storage.local_cache import cache_of
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


#: columns of a cluster's rows, without the vectors. ``slice``: position in ``Version.slices``, ascending in a
#: cluster; ``commit_time`` is null if the table's files have no meta columns, ``text_digest``
#: (``embedding.digests``) if vectors are not made from texts
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
    """The table's vector indexes, and the ids of dropped ones. If the metadata table's folder was removed,
    they come from the copy and are ``lost``. ``CorruptTable`` for damaged files."""
    for path, lost in ((paths.VECTOR_PROPERTIES, False), (paths.VECTOR_PROPERTIES_COPY, True)):
        try:
            data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
        except FileNotFoundError:
            continue
        return parse_indexes(data, path=path, lost=lost)
    return VectorIndexes()


def list_digest(storage: Storage) -> str:
    """A digest of the list of indexes; "" if the list is missing or too large."""
    try:
        data = storage.read(paths.VECTOR_PROPERTIES, max_bytes=PROPERTIES_BYTES_MAX)
    except (FileNotFoundError, CorruptTable):
        return ""
    return hashlib.sha256(data).hexdigest()


def indexes(storage: Storage) -> list[VectorIndex]:
    """The table's vector indexes, by name; see ``read_indexes``."""
    return sorted(read_indexes(storage).found, key=lambda index: index.name)


def version_numbers(storage: Storage, column_id: str) -> list[int]:
    """Numbers of the versions' folders, newest first, whatever is in them."""
    return numbers_of(storage.names(paths.vector_column(column_id)))


def numbers_of(names: Iterable[str]) -> list[int]:
    """The numbers of the versions whose folders have these names, newest first."""
    found = (paths.parse_vector_version(name) for name in names)
    return sorted((number for number in found if number is not None), reverse=True)


def read_version(storage: Storage, column_id: str, number: int) -> Version | None:
    """The version in a manifest; None if there is none (yet, or any more). ``CorruptTable`` if damaged."""
    path = paths.vector_manifest(column_id, number)
    try:
        data = storage.read(path, max_bytes=MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        return None
    return parse_manifest(data, column_id=column_id, number=number, path=path)


def versions(
    storage: Storage, index: VectorIndex, damaged: list[MainstemError] | None = None
) -> list[Version]:
    """The complete versions of an index, newest first; each gives correct answers for every snapshot.

    Errors in manifests are added to ``damaged``, or raised if it is not given.
    """
    return list(_whole_versions(storage, index, damaged))


def newest_version(
    storage: Storage, index: VectorIndex, damaged: list[MainstemError] | None = None
) -> Version | None:
    """The active version, which is the newest complete one; None if there is none. ``damaged``: as for
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
    """The rows of a cluster in label order: ``open_keys``, plus ``vector`` as a fixed-size list."""
    keys = open_keys(storage, version, cluster)
    values = open_vectors(storage, version, cluster)
    flat = pa.Array.from_buffers(_VALUES[version.element], values.size, [None, pa.py_buffer(values)])
    lists = pa.FixedSizeListArray.from_arrays(flat, version.dimension) if version.dimension else None
    if lists is None:  # a version without any vector has no dimension
        lists = pa.array([], pa.list_(_VALUES[version.element], 0))
    return keys.append_column(VECTOR, lists)


def open_keys(storage: Storage, version: Version, cluster: int) -> pa.Table:
    """The columns ``KEYS`` of a cluster's rows, in label order.

    Compares the file's checksum. ``CorruptTable`` for damage, ``FileNotFoundError`` if the file is gone.
    """
    part = version.clusters[cluster]
    path = version.path(part.keys)
    view = _content(storage, version, part.keys)
    try:
        table = plain_table(view, KEYS, part.rows)
    except CorruptTable as error:
        raise _damaged(error.message, path) from None
    # A file's field may contain nulls although it is declared without them.
    if any(table.column(name).null_count for name in (RECORD_KEY, PARTITION, SLICE)):
        raise _damaged("rows without record key, partition or slice", path)
    return table


def open_vectors(storage: Storage, version: Version, cluster: int) -> np.ndarray:
    """The vectors of a cluster in label order: (rows, dimension) of the version's element type, read-only.
    Raises like ``open_keys``."""
    part = version.clusters[cluster]
    view = _content(storage, version, part.vectors)
    values = np.frombuffer(view, ELEMENTS[version.element])
    return values.reshape(part.rows, version.dimension)


def open_graph(storage: Storage, version: Version, cluster: int) -> Graph:
    """The engine's graph over a cluster's vectors; labels are row numbers of ``open_rows``.

    ``CorruptTable`` for damage, ``FileNotFoundError`` if the file is gone, ``Invalid`` if the engine's
    library is missing.
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
    """Read all files of a version: ``CorruptTable`` for damage, ``FileNotFoundError`` if one is gone."""
    for file in version.files:
        path = version.path(file)
        _check_size(storage, path, file)
        checksum = 0
        for start in range(0, file.size, _CHUNK):
            checksum = zlib.crc32(storage.read_range(path, start, min(_CHUNK, file.size - start)), checksum)
        _check_sum(checksum, path, file)


def _content(storage: Storage, version: Version, file: StoredFile) -> memoryview:
    """All bytes of a file, verified, in this process's own memory, temporary file or cache."""
    cache = cache_of(storage)
    if cache is None:
        return _fetched(storage, version, file)
    path = version.path(file)
    name = cache.name_of(storage.base, version.index, path, file.size, file.checksum)
    found = cache.get(name, file.size)
    if found is not None and _sum(found) == file.checksum:
        return found
    if found is not None:
        cache.drop(name)
    fetched = _fetched(storage, version, file)
    kept = cache.put(name, fetched)
    return kept if _sum(kept) == file.checksum else fetched


def _fetched(storage: Storage, version: Version, file: StoredFile) -> memoryview:
    path = version.path(file)
    _check_size(storage, path, file)
    view = maps.private_copy(storage, path, file.size, spill=version.size > VECTOR_MEMORY_BYTES_MAX)
    _check_sum(_sum(view), path, file)
    if len(view) != file.size:
        raise _damaged(f"it was cut to {len(view)} bytes while it was read", path)
    return view


def _sum(view: memoryview) -> int:
    checksum = 0
    for start in range(0, len(view), _CHUNK):
        checksum = zlib.crc32(view[start : start + _CHUNK], checksum)
    return checksum


def _check_size(storage: Storage, path: str, file: StoredFile) -> None:
    info = file_info(storage, path)
    if info is None:
        raise FileNotFoundError(path)
    if info.size != file.size:
        raise _damaged(f"it has {info.size} bytes, {file.size} expected", path)


def _check_sum(found: int, path: str, file: StoredFile) -> None:
    if found != file.checksum:
        raise _damaged("its checksum does not fit", path)


def _damaged(what: str, path: str) -> CorruptTable:
    return CorruptTable(
        f"damaged file of a vector index: {what}; searches do without it, refresh the index to rebuild it",
        path=path,
    )
