"""Builds one version of a vector index, beside writers and other builders, without any lock.

  1. start a heartbeat under a new token (``.builders/<token>``); every file of this build has the token in
  its name 2. take a snapshot of the table with the ordinary reader; write its rows to files, in the order of
  file slices 3. run k-means; divide the rows into the files of their clusters; remove the files of 2 4. the
  engine builds each cluster's graph 5. make everything durable; write the manifest, durable, under a private
  name 6. link(private name, manifest.json): from here on the version serves 7. check that the heartbeat and
  all files still exist, and that the index is listed; else remove the manifest 8. remove the private name and
  the heartbeat

**Memory**: rows pass through in pieces of bounded size. Beyond what the reader needs, only one cluster's
graph is in memory, with the library's copy of its vectors. More clusters need less memory.

**Two builders of one number** make different files, and the second one's link fails. If the first one's view
is no older, the second removes its files; otherwise it moves them to the next number.

**A crash** before 6 leaves files without a manifest, whose token's heartbeat goes stale: no one reads them,
and ``tidying`` removes them. After 6 the version is complete, and ``tidying`` removes what step 8 would have.

**A builder that stalls for long and resumes**: a process that removes its files first removes its heartbeat,
and then looks for a manifest. So either the builder finds in 7 that its heartbeat is gone, or the other finds
the manifest and leaves the files alone. A searcher that comes between 6 and 7 searches exactly.

A version is never wrong, whatever happens to the table meanwhile: it records of which files it was made, and
a search compares those with its own snapshot (``search.delta``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import Unavailable, naming
from mainstem.formats.arrow_file import plain_table
from mainstem.indexing.initial_rows import Run
from mainstem.limits import MANIFEST_BYTES_MAX, VECTOR_CLUSTERS_MAX
from mainstem.publish.staging import put_once, put_over
from mainstem.services.progress import Progress
from mainstem.storage import maps, paths
from mainstem.storage.folders import make_folder
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import in_turn
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.seams import Seams
from mainstem.vectors.engines import engine
from mainstem.vectors.index.clusters import assign, blocks, centroids, cluster_count
from mainstem.vectors.index.row_files import RowFiles
from mainstem.vectors.index.snapshot_rows import Reading, Source
from mainstem.vectors.index.vector_spill import StoredVectors
from mainstem.vectors.index.version_manifest import Cluster, StoredFile, VectorIndex, Version, encode_manifest
from mainstem.vectors.index.versions import KEYS, newest_version, read_indexes, read_version, version_numbers
from mainstem.writers.context import WriterContext, heartbeats_of

Work = Callable[[Storage, Any], Any]

_SNAPSHOTS = 5
_NUMBERS = 20
# Most clusters whose files are open at the same time.
_OPEN = 100


@dataclass(frozen=True)
class Made:
    """A version that serves. ``ours``: this builder made it; else another builder's is at least as new."""

    version: Version
    ours: bool


@dataclass(frozen=True)
class GraphPiece:
    """The work on one cluster: all that ``make_graph`` needs, in whichever process it runs."""

    vectors: str
    target: str
    rows: int
    dimension: int
    element: str
    engine: str
    metric: str
    options: tuple[tuple[str, str], ...]


def builder_heartbeats(ctx: WriterContext) -> Heartbeats:
    """The heartbeats of builders, by token."""
    return heartbeats_of(ctx.seams, ctx.options, paths.vector_builder)


def build(
    ctx: WriterContext,
    index: VectorIndex,
    progress: Progress,
    run: Run | None = None,
    dimension: int | None = None,
) -> Made:
    """Make the next version of an index. ``run``: makes the graphs elsewhere; None: here. ``dimension``: the
    dimension that all vectors must have; None: whichever they have.

    Raises ``Invalid`` for rows that cannot be indexed (naming their keys), ``Unavailable`` if the index was
    dropped meanwhile, if cleans kept removing files, and for trouble with storage. Then nothing of the
    attempt serves, and its files are removed unless storage failed; only a version whose manifest was already
    in place stays.
    """
    beats = builder_heartbeats(ctx)
    token = f"{ctx.seams.random.getrandbits(128):032x}"
    work = _Build(ctx.seams, index, token, progress, beats, run, dimension)
    advice = "earlier versions of it still serve, try again"
    try:
        with naming(ctx.base, f"building the vector index {index.name} failed", advice):
            beats.start(work.token)
            try:
                return work.run()
            except BaseException:
                with suppress(OSError):
                    work.remove()
                raise
    finally:
        beats.stop(work.token)


class _Build:
    def __init__(
        self,
        seams: Seams,
        index: VectorIndex,
        token: str,
        progress: Progress,
        beats: Heartbeats,
        run: Run | None,
        dimension: int | None,
    ) -> None:
        self.token, self._dimension = token, dimension
        self._seams, self._storage = seams, seams.storage
        self._index, self._progress, self._beats = index, progress, beats
        self._run = run or self._one_by_one
        self._number = self._next()

    def _one_by_one(self, work: Work, pieces: Sequence[Any], told: Callable[[int], None]) -> list[Any]:
        """Run the pieces one by one: engines use all cores for one graph, and two need twice the memory."""
        return in_turn(lambda piece: work(self._storage, piece), pieces, told)

    def _next(self) -> int:
        numbers = version_numbers(self._storage, self._index.id)
        return max([self._index.first, *(number + 1 for number in numbers if self._is_taken(number))])

    def _is_taken(self, number: int) -> bool:
        return self._storage.stat(paths.vector_manifest(self._index.id, number)) is not None

    @property
    def _folder(self) -> str:
        return paths.vector_version(self._index.id, self._number)

    def run(self) -> Made:
        """All steps; the caller has started the heartbeat."""
        for attempt in range(_SNAPSHOTS):
            reading = Reading(self._storage, self._index, self._dimension)
            try:
                source = self._spool(reading, attempt)
                break
            except FileNotFoundError as error:  # a clean, rollback or restore removed a file being read
                missing = error
                self.remove()
        else:
            raise Unavailable(
                f"files of the table were removed while they were read for the vector index"
                f" {self._index.name}, {_SNAPSHOTS} times ({missing}); retain more commits, then try again"
            )
        clusters = self._graphs(self._divided(source), source)
        index = self._index
        made = Version(
            index.id, self._number, index.token, self.token, source.view, index.column, index.engine,
            index.metric, index.options, index.embedding, source.element, source.dimension,
            source.slices, tuple(clusters), source.reading,
        )  # fmt: skip
        return self._publish(made)

    # -- rows ----------------------------------------------------------------------------------------

    def _spool(self, reading: Reading, attempt: int) -> Source:
        """Step 2: write the snapshot's rows to files."""
        rows = self._opened([f"all-{attempt}"])
        try:
            for keys, vectors in reading.rows(self._told("file slices read")):
                rows[0].add(keys, vectors)
        except BaseException:
            self._closed(rows)
            raise
        (files,) = self._closed(rows)
        return reading.source(rows[0].count, *files)

    def _told(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self._progress(f"vector index {self._index.name}, {what}", done, total)

    def _opened(self, names: Sequence[str]) -> list[RowFiles]:
        made: list[RowFiles] = []
        try:
            for name in names:
                made.append(RowFiles(self._storage, self._folder, paths.vector_name(self.token, name)))
        except BaseException:
            self._closed(made)
            raise
        return made

    def _closed(self, rows: Sequence[RowFiles]) -> list[tuple[StoredFile, StoredFile]]:
        sinks = [sink for part in rows for sink in part.sinks]
        try:
            return [part.end() for part in rows]
        finally:
            self._storage.settle(sinks, [], durable=True)

    def _divided(self, source: Source) -> list[Cluster]:
        """Step 3: divide the rows into clusters, still without graphs; empty clusters are left out."""
        count = cluster_count(source.rows, self._index.clusters)
        nothing = StoredFile("", 0, 0)
        path, shape = f"{self._folder}/{source.vectors.name}", (source.rows, source.dimension)
        vectors = StoredVectors(self._storage, path, shape, source.element)
        if not source.rows:
            self._forget([source.keys, source.vectors])
            return []
        found = centroids(vectors, count, self._index.metric, self._seams.random)
        if count == 1:
            return [Cluster(source.rows, source.keys, source.vectors, nothing, found[0])]
        near = assign(vectors, found, self._index.metric)
        keys = self._keys(source)
        made = []
        for first in range(0, count, _OPEN):
            numbers = [n for n in range(first, min(first + _OPEN, count)) if (near == n).any()]
            rows = self._opened([str(number) for number in numbers])
            try:
                self._divide(vectors, keys, near, dict(zip(numbers, rows, strict=True)))
            except BaseException:
                self._closed(rows)
                raise
            for number, part, files in zip(numbers, rows, self._closed(rows), strict=True):
                made.append(Cluster(part.count, *files, nothing, found[number]))
        self._forget([source.keys, source.vectors])
        return made

    def _divide(
        self, vectors: StoredVectors, keys: pa.Table, near: np.ndarray, rows: dict[int, RowFiles]
    ) -> None:
        for first, block in blocks(vectors):
            here_ = near[first : first + len(block)]
            held = keys.slice(first, len(block))
            for number, part in rows.items():
                places = np.flatnonzero(here_ == number)
                if len(places):
                    part.add(held.take(pa.array(places)), block[places])

    def _keys(self, source: Source) -> pa.Table:
        return plain_table(maps.view(self._storage, f"{self._folder}/{source.keys.name}"), KEYS, source.rows)

    # -- graphs --------------------------------------------------------------------------------------

    def _graphs(self, clusters: list[Cluster], source: Source) -> list[Cluster]:
        """Step 4: build the graphs."""
        index = self._index
        pieces = [
            GraphPiece(
                f"{self._folder}/{cluster.vectors.name}",
                f"{self._folder}/{cluster.vectors.name.rpartition('.')[0]}",
                cluster.rows,
                source.dimension,
                source.element,
                index.engine,
                index.metric,
                tuple(sorted(index.options.items())),
            )
            for cluster in clusters
        ]
        tell = self._told("graphs made")
        run = self._run if engine(index.engine).anywhere else self._one_by_one
        made = run(make_graph, pieces, lambda done: tell(done, len(pieces))) if pieces else []
        return [replace(cluster, graph=graph) for cluster, graph in zip(clusters, made, strict=True)]

    # -- publishing ----------------------------------------------------------------------------------

    def _publish(self, version: Version) -> Made:
        """Steps 5 to 7: publish the version, or find that another builder's is at least as new."""
        storage = self._storage
        for _ in range(_NUMBERS):
            private = self._private(version)
            target = paths.vector_manifest(version.column_id, version.number)
            if put_once(storage, private, target):
                storage.settle([], [self._folder], durable=True)
                self._verify(version, target)
                storage.delete(private)
                return Made(version, True)
            storage.delete(private)
            other = self._newest(version)
            if other is not None and other.view >= version.view:
                self.remove()
                return Made(other, False)
            version = self._moved(version)
        raise Unavailable(
            f"other builders of the vector index {self._index.name} were always first; try again"
        )

    def _private(self, version: Version) -> str:
        storage = self._storage
        folder = paths.vector_version(version.column_id, version.number)
        above = (paths.vector_column(version.column_id), paths.VECTOR_FILES, paths.VECTORS)
        storage.settle([], [folder, *above], durable=True)
        private = f"{folder}/{paths.vector_name(self.token, 'manifest.json')}"
        data = encode_manifest(version)
        if len(data) > MANIFEST_BYTES_MAX:
            raise Unavailable(
                f"the manifest of the vector index {self._index.name} would take {len(data)} bytes, at most"
                f" {MANIFEST_BYTES_MAX} can be read: compact the table, so that file slices have fewer log"
                " files, or have fewer clusters"
            )
        storage.put_new(private, data, durable=True)
        return private

    def _newest(self, version: Version) -> Version | None:
        return newest_version(self._storage, self._index, [])

    def _moved(self, version: Version) -> Version:
        """The version under the next number, with all its files moved there."""
        storage = self._storage
        before, self._number = self._folder, self._next()
        make_folder(storage, self._folder)
        for file in version.files:
            put_over(storage, f"{before}/{file.name}", f"{self._folder}/{file.name}")
        return replace(version, number=self._number)

    def _verify(self, version: Version, target: str) -> None:
        storage = self._storage
        listed = read_indexes(storage).of_column(version.column)
        lives = storage.stat(paths.vector_builder(self.token)) is not None
        names = set(storage.names(self._folder))
        stands = listed is not None and listed.token == version.index
        if stands and lives and all(file.name in names for file in version.files):
            return
        # Its files may be disappearing. Only this build put a manifest here, one that names its token.
        found = read_version(storage, version.column_id, version.number)
        if found is not None and found.token == self.token:
            storage.delete(target)
        why = "this process stalled too long" if stands else "the index was dropped or rebuilt meanwhile"
        raise Unavailable(
            f"the new version of the vector index {self._index.name} was discarded: {why}; look at the"
            " table's indexes, and refresh this one if it is listed"
        )

    def _forget(self, files: Sequence[StoredFile]) -> None:
        for file in files:
            self._storage.delete(f"{self._folder}/{file.name}")

    def remove(self) -> None:
        """Remove all files of this build that no version uses."""
        kept = self._published()
        for name in self._storage.names(self._folder):
            parsed = paths.parse_vector_name(name)
            if parsed is not None and parsed[0] == self.token and name not in kept:
                self._storage.delete(f"{self._folder}/{name}")

    def _published(self) -> frozenset[str]:
        """Names of files in this build's manifest, if in place: searches use it, whatever happened since."""
        found = read_version(self._storage, self._index.id, self._number)
        if found is None or found.token != self.token:
            return frozenset()
        return frozenset(file.name for file in found.files)


def make_graph(storage: Storage, piece: GraphPiece) -> StoredFile:
    """Make and store the graph of one cluster; may run in any process, and more than once."""
    vectors = StoredVectors(storage, piece.vectors, (piece.rows, piece.dimension), piece.element)
    data = engine(piece.engine).build(vectors, piece.metric, dict(piece.options))
    return _stored(storage, piece.target, memoryview(data).cast("B"))


def _stored(storage: Storage, target: str, data: memoryview) -> StoredFile:
    for path in _names(target):
        try:
            storage.put_new(path, [data], durable=True)
        except FileExistsError:  # left by an earlier run of a repeated task
            continue
        return StoredFile(path.rpartition("/")[2], data.nbytes, zlib.crc32(data))
    raise Unavailable(f"a task made the graph {target} too many times; try again")


def _names(target: str) -> Iterator[str]:
    yield f"{target}.graph"
    yield from (f"{target}-{number}.graph" for number in range(1, VECTOR_CLUSTERS_MAX))
