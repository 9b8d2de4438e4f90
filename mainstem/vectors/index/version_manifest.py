"""The stored form of vector indexes: the list of a table's indexes, and the manifest of a version.

``vector-index.properties`` lists the indexes. Its keys ``vector.index.columns`` and ``vector.index.<column>``
(the column's id, kept after a drop) come from Hudi's proposal (RFC-103, apache/hudi#14255); keys that begin
with an id are mainstem's. ``manifest.json`` describes one version. Both are untrusted: sizes, counts and
names are bounded, and a manifest has checksums of itself and of every file that it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mainstem.errors import CorruptTable, MainstemError, Unsupported
from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.limits import (
    FILE_NAME_BYTES_MAX,
    VECTOR_CLUSTERS_MAX,
    VECTOR_DIMENSION_MAX,
    VECTOR_INDEXES_MAX,
    VECTOR_ROWS_MAX,
    VECTOR_SLICES_MAX,
)
from mainstem.storage import paths
from mainstem.vectors.distances import METRICS

#: element types of vectors: Hudi's name -> NumPy's
ELEMENTS = {"FLOAT": "<f4", "DOUBLE": "<f8", "INT8": "i1"}

_COLUMNS = "vector.index.columns"
_PREFIX = "vector.index."
_OPTION = "option."
_FORMAT = 2
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
_ID = re.compile(r"^[0-9]{3,9}\Z")
_TOKEN = re.compile(r"^[0-9a-f]{32}\Z")
_CLUSTERS = re.compile(r"^[0-9]{1,9}\Z")


@dataclass(frozen=True)
class VectorIndex:
    """A vector index as listed for its table.

    ``id``: three or more digits, permanent for the column. ``token``: identifies this creation; versions left
    under the same id by another creation do not belong to this index. ``metric``: one of
    ``distances.METRICS``. ``clusters``: 0 to choose by the number of rows. ``options``: the engine's.
    ``embedding``: name of the registered function that turns the column's texts into vectors, "" for a column
    of vectors. ``first``: the smallest number that a version may have. ``lost``: known only from the copy,
    since the metadata table's folder was removed.
    """

    name: str
    column: str
    id: str
    token: str
    engine: str
    metric: str
    clusters: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    embedding: str = ""
    first: int = 1
    lost: bool = False


@dataclass(frozen=True)
class VectorIndexes:
    """All vector indexes of a table. ``kept``: column of a dropped index -> id, next version number."""

    found: tuple[VectorIndex, ...] = ()
    kept: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def of_column(self, column: str) -> VectorIndex | None:
        """The index of a column; None if it has none."""
        return next((index for index in self.found if index.column == column), None)

    def called(self, name: str) -> VectorIndex | None:
        """The index with this name; None if there is none."""
        return next((index for index in self.found if index.name == name), None)

    def with_index(self, index: VectorIndex) -> VectorIndexes:
        """A copy with this index added, or in place of the one on its column."""
        others = [other for other in self.found if other.column != index.column]
        kept = {column: known for column, known in self.kept.items() if column != index.column}
        return VectorIndexes((*others, replace(index, lost=False)), kept)

    def without(self, index: VectorIndex, first: int) -> VectorIndexes:
        """A copy without an index, whose column keeps its id; ``first``: least number of a later version."""
        others = tuple(other for other in self.found if other.column != index.column)
        return VectorIndexes(others, {**self.kept, index.column: (index.id, first)})

    def place(self, column: str) -> tuple[str, int]:
        """Id and first version number for an index on this column; continues its former index, if any."""
        known = self.of_column(column)
        if known is not None:
            return known.id, known.first
        if column in self.kept:
            return self.kept[column]
        used = [index.id for index in self.found] + [old for old, _ in self.kept.values()]
        return f"{max((int(text) for text in used), default=-1) + 1:03d}", 1


@dataclass(frozen=True)
class CoveredSlice:
    """A data file slice whose rows a version holds, as it was at that time.

    Bare file names, logs in merge order. ``rows``: number of rows with a vector.
    """

    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...]
    rows: int


@dataclass(frozen=True)
class StoredFile:
    """A file of a version. ``checksum``: CRC-32 of its bytes."""

    name: str
    size: int
    checksum: int


@dataclass(frozen=True)
class Cluster:
    """One part of a version. ``keys`` (an Arrow file) and ``vectors`` (plain values, little-endian) hold the
    rows in label order; ``graph`` is the engine's file. ``centroid``: float32 (dimension,)."""

    rows: int
    keys: StoredFile
    vectors: StoredFile
    graph: StoredFile
    centroid: np.ndarray = field(repr=False, compare=False)


@dataclass(frozen=True)
class Version:
    """One version of a vector index, complete and immutable.

    It holds every row of ``slices`` that had a vector, in exactly one cluster. ``number``: the newest is the
    greatest. ``token``: its builder's, which is part of its files' names. ``view``: a completion time; the
    slices contain all that was completed by then, and possibly later instants ("" for a table without
    commits). ``element``: one of ``ELEMENTS``. ``engine``, ``metric``, ``options`` and ``embedding``: those
    of the build. ``index``: the token of the index. ``reading``: how its rows were read
    (``snapshots.how_read``), "" if there were none.

    If a slice's files have changed, equal record key and commit time never show that a row is unchanged:
    partial updates and custom mergers fill a row's columns from several commits under the time of one.
    """

    column_id: str
    number: int
    index: str
    token: str
    view: str
    column: str
    engine: str
    metric: str
    options: Mapping[str, str]
    embedding: str
    element: str
    dimension: int
    slices: tuple[CoveredSlice, ...]
    clusters: tuple[Cluster, ...]
    reading: str = ""

    @property
    def rows(self) -> int:
        """Number of rows with a vector."""
        return sum(cluster.rows for cluster in self.clusters)

    @property
    def size(self) -> int:
        """Total bytes of its files."""
        return sum(file.size for file in self.files)

    @property
    def files(self) -> list[StoredFile]:
        """All of its files except the manifest."""
        return [file for c in self.clusters for file in (c.keys, c.vectors, c.graph)]

    def path(self, file: StoredFile) -> str:
        """The path of one of its files."""
        return paths.vector_file(self.column_id, self.number, file.name)


# -- vector-index.properties -------------------------------------------------------------------------


def encode_indexes(indexes: VectorIndexes) -> bytes:
    """The bytes of ``vector-index.properties``."""
    made = {_COLUMNS: ",".join(sorted(index.column for index in indexes.found))}
    for column, (column_id, first) in indexes.kept.items():
        made |= {f"{_PREFIX}{column}": column_id, f"{_PREFIX}{column_id}.first": str(first)}
    for index in indexes.found:
        made[f"{_PREFIX}{index.column}"] = index.id
        known = {
            "name": index.name, "token": index.token, "engine": index.engine, "metric": index.metric,
            "clusters": str(index.clusters), "first": str(index.first), "embedding": index.embedding,
            **{f"{_OPTION}{key}": value for key, value in index.options.items()},
        }  # fmt: skip
        made |= {f"{_PREFIX}{index.id}.{key}": value for key, value in known.items() if value}
    return format_properties(made, comments=("Vector indexes of this table",))


def parse_indexes(data: bytes, *, path: str, lost: bool = False) -> VectorIndexes:
    """Parse what ``encode_indexes`` wrote; ``CorruptTable`` for other content. Unknown keys are ignored."""
    raw = parse_properties(data, path=path)
    columns = [name for name in raw.get(_COLUMNS, "").split(",") if name]
    named = {key.removeprefix(_PREFIX): value for key, value in raw.items() if key.startswith(_PREFIX)}
    ids = {column: value for column, value in named.items() if _NAME.match(column) and column != "columns"}
    _check(len(ids) <= VECTOR_INDEXES_MAX, f"more than {VECTOR_INDEXES_MAX} columns", path)
    _check(len(set(columns)) == len(columns), "a column is listed twice", path)
    _check(len(set(ids.values())) == len(ids), "two columns have one id", path)
    for column, column_id in ids.items():
        _check(_ID.match(column_id) is not None, f"{column!r} has the id {column_id!r:.40}", path)
    found, kept = [], {}
    for column in columns:
        _check(column in ids, f"the column {column!r:.100} has no id", path)
    for column, column_id in sorted(ids.items()):
        of_id = {
            key.removeprefix(f"{column_id}."): value
            for key, value in named.items()
            if key.startswith(f"{column_id}.")
        }
        first = of_id.get("first", "1")
        _check(paths.parse_vector_version(f"version={first}") is not None, f"first={first!r:.40}", path)
        if column in columns:
            found.append(_index(column, column_id, int(first), of_id, path, lost))
        else:
            kept[column] = (column_id, int(first))
    _check(len({index.name for index in found}) == len(found), "two indexes have one name", path)
    return VectorIndexes(tuple(found), kept)


def _index(
    column: str, column_id: str, first: int, raw: Mapping[str, str], path: str, lost: bool
) -> VectorIndex:
    name, metric, clusters = raw.get("name", ""), raw.get("metric", ""), raw.get("clusters", "0")
    _check(0 < len(name) <= FILE_NAME_BYTES_MAX, f"the index of {column!r} has the name {name!r:.40}", path)
    _check(_TOKEN.match(raw.get("token", "")) is not None, f"the index {name!r} has no token", path)
    _check(metric in METRICS, f"the index {name!r} has the metric {metric!r:.40}", path)
    _check(bool(raw.get("engine")), f"the index {name!r} has no engine", path)
    fits = _CLUSTERS.match(clusters) is not None and int(clusters) <= VECTOR_CLUSTERS_MAX
    _check(fits, f"the index {name!r} has {clusters!r:.40} clusters", path)
    options = {k.removeprefix(_OPTION): value for k, value in raw.items() if k.startswith(_OPTION) and value}
    return VectorIndex(
        name, column, column_id, raw["token"], raw["engine"], metric, int(clusters), options,
        raw.get("embedding", ""), first, lost,
    )  # fmt: skip


def _check(right: bool, what: str, path: str) -> None:
    if not right:
        raise CorruptTable(
            f"damaged list of vector indexes: {what}; restore the file, or remove it and create the indexes"
            " again",
            path=path,
        )


# -- manifest.json -----------------------------------------------------------------------------------


def encode_manifest(version: Version) -> bytes:
    """The bytes of ``manifest.json``."""
    known = {
        "format": _FORMAT, "column_id": version.column_id, "number": version.number, "index": version.index,
        "token": version.token, "view": version.view, "column": version.column, "engine": version.engine,
        "metric": version.metric, "options": dict(version.options), "embedding": version.embedding,
        "element": version.element, "dimension": version.dimension, "reading": version.reading,
        "slices": [[s.partition, s.file_id, s.base_file, list(s.log_files), s.rows] for s in version.slices],
        "clusters": [
            {
                "rows": c.rows,
                "keys": [c.keys.name, c.keys.size, c.keys.checksum],
                "vectors": [c.vectors.name, c.vectors.size, c.vectors.checksum],
                "graph": [c.graph.name, c.graph.size, c.graph.checksum],
                "centroid": base64.b64encode(c.centroid.astype("<f4").tobytes()).decode(),
            }
            for c in version.clusters
        ],
    }  # fmt: skip
    return b'{"checksum": "%s",\n"version": %s}' % (_digest(known).encode(), _text(known))


def _text(known: Mapping[str, Any]) -> bytes:
    return json.dumps(known, sort_keys=True, separators=(",", ":")).encode()


def _digest(known: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(known)).hexdigest()


def parse_manifest(data: bytes, *, column_id: str, number: int, path: str) -> Version:
    """Parse what ``encode_manifest`` wrote for this column and number.

    ``CorruptTable`` for anything else, ``Unsupported`` for the format of another release.
    """
    try:
        whole = json.loads(data)
        known = whole["version"]
        if whole["checksum"] != _digest(known):
            raise ValueError("its checksum does not fit")
        if known["format"] != _FORMAT:
            raise Unsupported(f"{path} has the format {known['format']!r}, this release reads {_FORMAT}")
        return _version(known, column_id, number)
    except MainstemError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise CorruptTable(
            f"damaged manifest of a vector index ({type(error).__name__}: {error}); searches do without this"
            " version, refresh the index to build a new one",
            path=path,
        ) from None


def _version(known: Mapping[str, Any], column_id: str, number: int) -> Version:
    _fits(known["column_id"] == column_id and known["number"] == number, "it belongs to another version")
    texts = [
        _one(known[key], str)
        for key in ("index", "token", "view", "column", "engine", "metric", "embedding", "element")
    ]
    index, token, view, column, engine, metric, embedding, element = texts
    _fits(_TOKEN.match(index) is not None and _TOKEN.match(token) is not None, "tokens")
    _fits(view == "" or paths.is_instant_time(view), f"the view {view!r:.40}")
    _fits(metric in METRICS and element in ELEMENTS, "metric or element")
    dimension = _number(known["dimension"], 0, VECTOR_DIMENSION_MAX)
    options = {_one(key, str): _one(value, str) for key, value in _one(known["options"], dict).items()}
    _fits(len(_one(known["slices"], list)) <= VECTOR_SLICES_MAX, "too many file slices")
    _fits(len(_one(known["clusters"], list)) <= VECTOR_CLUSTERS_MAX, "too many clusters")
    slices = tuple(_slice(raw) for raw in known["slices"])
    clusters = tuple(_cluster(raw, dimension, token) for raw in known["clusters"])
    version = Version(
        column_id, number, index, token, view, column, engine, metric, options, embedding, element,
        dimension, slices, clusters, _one(known["reading"], str),
    )  # fmt: skip
    _fits(sum(s.rows for s in slices) == version.rows, "slices and clusters differ in their rows")
    names = [file.name for file in version.files]
    _fits(len(set(names)) == len(names), "a file stands for two")
    width = np.dtype(ELEMENTS[element]).itemsize * dimension
    _fits(all(c.vectors.size == c.rows * width for c in clusters), "sizes of vectors")
    places = {(s.partition, s.file_id) for s in slices}
    _fits(len(places) == len(slices), "a file group occurs twice")
    return version


def _slice(raw: Any) -> CoveredSlice:
    partition, file_id, base, logs, rows = _one(raw, list)
    names = [_one(name, str) for name in (*([] if base is None else [base]), *_one(logs, list))]
    _fits(all(paths.file_id_of(name) == file_id for name in names) and bool(names), "names of data files")
    if _one(partition, str):
        paths.inside(partition, source="manifest.json")
    return CoveredSlice(partition, _one(file_id, str), base, tuple(logs), _number(rows, 0, VECTOR_ROWS_MAX))


def _cluster(raw: Any, dimension: int, token: str) -> Cluster:
    centroid = np.frombuffer(base64.b64decode(raw["centroid"], validate=True), "<f4")
    _fits(len(centroid) == dimension and bool(np.isfinite(centroid).all()), "a centroid")
    keys, vectors, graph = (_file(raw[key], token) for key in ("keys", "vectors", "graph"))
    return Cluster(_number(raw["rows"], 0, VECTOR_ROWS_MAX), keys, vectors, graph, centroid)


def _file(raw: Any, token: str) -> StoredFile:
    name, size, checksum = _one(raw, list)
    parsed = paths.parse_vector_name(_one(name, str))
    _fits(parsed is not None and parsed[0] == token, f"the file name {name!r:.60}")
    return StoredFile(name, _number(size, 0, 2**63 - 1), _number(checksum, 0, 2**32 - 1))


def _number(value: Any, low: int, high: int) -> int:
    _fits(low <= _one(value, int) <= high, f"the number {value!r:.40}")
    return value


def _one(value: Any, kind: type) -> Any:
    _fits(type(value) is kind, f"{value!r:.40} where {kind.__name__} is expected")
    return value


def _fits(right: bool, what: str) -> None:
    if not right:
        raise ValueError(what)
