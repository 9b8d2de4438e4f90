"""Engine ``jvector``: graphs of the Java library jVector, built and searched in the JVM of Spark's session.

This process's session must have the library: set ``spark.jars.packages`` to ``PACKAGE`` when it starts.
Spark's own compiler compiles ``jvector.java`` there at first use. Without a session, as in a Spark task,
builds are refused, and searches compare all vectors.

Options: ``m``, edges per vector; ``ef_construction`` (also ``beam_width``), how widely a build searches;
``neighbor_overflow``, how many times as many edges a build keeps in between; ``alpha``, by which factor a
detour must be shorter for an edge to be dropped; ``ef``, how widely a search walks, 0 for what
``search_effort`` measures.

The file has a form of its own, since jVector writes only to paths: a head, the vectors of which the graph is
made, and per level its nodes and their edges, padded with -1. ``load`` checks every edge first. Cosine
searches compare unit vectors by dot products, the others by Euclidean distance (``graph_walks``). jVector
turns the latter into 1 / (1 + square), so vectors are scaled up in the JVM until the 1 is negligible beside
their squares.
"""

from __future__ import annotations

import os
import struct
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid
from mainstem.vectors.distances import COSINE, DOT, L2, nearest
from mainstem.vectors.engines import Graph, engine_file
from mainstem.vectors.engines.graph_walks import FEW_ROWS, FEW_SHARE, LARGEST, asked_of, stored_of
from mainstem.vectors.engines.search_effort import EFFORTS, held_back, measured

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaObject

PACKAGE = "io.github.jbellis:jvector:4.0.2"
_OPTIONS: dict[str, engine_file.Number | engine_file.Decimal] = {
    "m": engine_file.Number(32, 2, 256),
    "ef_construction": engine_file.Number(128, 4, 10_000),
    "neighbor_overflow": engine_file.Decimal(1.2, 1.0, 4.0),
    "alpha": engine_file.Decimal(1.2, 1.0, 4.0),
    "ef": engine_file.Number(0, 0, limits.VECTOR_EFFORT_MAX),
}
_ALIASES = {
    "max_degree": "m",
    "beam_width": "ef_construction",
    "efconstruction": "ef_construction",
    "neighboroverflow": "neighbor_overflow",
    "ef_search": "ef",
}
_CLASS = "mainstem.vectors.JVectorGraph"
_LIBRARY = "io.github.jbellis.jvector.graph.GraphIndexBuilder"
# Magic, most edges of a node, levels, entry node; then the number of nodes on each level.
_HEAD = struct.Struct("<4sIII")
_MAGIC, _LEVELS, _EDGES = b"JVG1", 64, 256
# Most bytes per call to the JVM, roughly: a call turns them into text.
_CALL = 4 << 20
# One part in this many is added to the measured effort, for the finished graph.
_TRIMMED = 6
# Scale of vectors in the JVM: the largest value becomes about this power of two.
_POWER = 40
# The gateway, and the class loader with the compiled class. Threads that come at once may compile it twice.
_compiled: list[tuple[JavaGateway, JavaObject]] = []


class _JVector:
    name = "jvector"
    exact = False
    anywhere = False

    def check(self, options: engine_file.Options) -> dict[str, float]:
        _java_class()
        return engine_file.checked(self.name, _OPTIONS, options, _ALIASES)

    def build(
        self, vectors: np.ndarray, metric: str, options: engine_file.Options, threads: int = 0, seed: int = 0
    ) -> bytearray:
        """Build a graph. jVector draws its levels itself; with one thread the draw is always the same."""
        chosen = self.check(options)
        values = engine_file.as_float32(vectors)
        count, dimension = values.shape
        if not count:
            return bytearray(engine_file.footer(self.name, metric, dimension, 0, 0))
        if metric != COSINE and np.abs(values).max() >= LARGEST:
            raise Invalid(f"engine jvector takes values up to {LARGEST}: choose flat, or scale them")
        stored = np.ascontiguousarray(stored_of(metric, values))
        threads = threads or os.cpu_count() or 1
        effort = int(chosen["ef"])
        held = np.zeros(count, bool) if effort else held_back(count)
        with _of_java("cannot build a graph"):
            graph = _InJava(stored, metric)
            graph.begin(chosen, threads)
            graph.add(~held, threads)
            if held.any():

                def tried(queries: np.ndarray, k: int, ef: int) -> np.ndarray:
                    return graph.search(asked_of(metric, queries), k, ef, None, threads)[0]

                effort = measured(metric, values, held, EFFORTS, tried)
                effort += effort // _TRIMMED  # ``finish`` removes edges that the measured searches used
                graph.add(held, threads)
            data = graph.made(stored, int(chosen["m"]))
        data += engine_file.footer(self.name, metric, dimension, count, len(data), effort)
        return data

    def load(
        self, data: engine_file.Buffer, dimension: int, metric: str, count: int | None = None
    ) -> _Graph:
        return _Graph(engine_file.opened(self.name, data, dimension, metric, count), dimension, metric)


class _Graph(Graph):
    oversample = 1

    def __init__(self, file: engine_file.Opened, dimension: int, metric: str) -> None:
        self.count, self.dimension = file.count, dimension
        self._metric, self._effort = metric, file.effort or EFFORTS[0]
        self._java: _InJava | None = None
        if file.count:
            read = _Read(file.body, file.count, dimension + (metric == DOT))
            self._vectors = read.vectors
            if file.count > FEW_ROWS:
                with _of_java("cannot load a graph"):
                    self._java = _InJava(read.vectors, metric)
                    self._java.given(read)

    def search(
        self,
        queries: np.ndarray,
        k: int,
        ef: int | None = None,
        allowed: np.ndarray | None = None,
        threads: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        queries, possible = engine_file.checked_search(self.count, self.dimension, queries, k, allowed)
        labels, distances = engine_file.nothing(len(queries), k)
        if not possible or not len(queries):
            return labels, distances
        rows = np.arange(len(queries))
        if self._walked(possible, allowed) and np.abs(queries).max() < LARGEST:
            found = self._found(queries, possible, ef or self._effort, allowed, threads)
            if found is not None:
                labels[:, :possible], distances[:, :possible] = found
                rows = np.flatnonzero(labels[:, possible - 1] < 0)
        if len(rows):
            labels[rows, :possible], distances[rows, :possible] = nearest(
                self._metric, queries[rows], self._vectors[:, : self.dimension], possible, allowed=allowed
            )
        return labels, distances

    def _walked(self, possible: int, allowed: np.ndarray | None) -> bool:
        """Whether a walk is faster than comparing all vectors."""
        if self._java is None or possible > max(FEW_ROWS, int(self.count * FEW_SHARE)):
            return False
        return allowed is None or bool(np.count_nonzero(allowed) > FEW_SHARE * self.count)

    def _found(
        self, queries: np.ndarray, k: int, ef: int, allowed: np.ndarray | None, threads: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """The walk's labels and distances; None, with one warning, if the JVM has ended since."""
        java = self._java
        if java is None:
            return None
        try:
            with _of_java("cannot search a graph"):
                return java.search(
                    asked_of(self._metric, queries), k, ef, allowed, threads or os.cpu_count() or 1
                )
        except Invalid as error:
            self._java = None
            warnings.warn(f"{error}; all vectors are compared", stacklevel=2)
            return None


class _Read:
    """The parts of a file; ``CorruptTable`` for numbers and edges that no build produces."""

    def __init__(self, body: memoryview, count: int, width: int) -> None:
        try:
            magic, self.degree, levels, self.entry = _HEAD.unpack_from(body)
            possible = magic == _MAGIC and 1 <= self.degree <= _EDGES and 1 <= levels <= _LEVELS
            sizes = struct.unpack_from(f"<{levels}I", body, _HEAD.size) if possible else ()
        except struct.error:
            raise CorruptTable("a jvector file ends within its head") from None
        if not sizes or sizes[0] != count or any(not 0 < size <= count for size in sizes):
            raise CorruptTable(f"the head of a jvector file does not fit {count} vectors")
        at = _HEAD.size + 4 * levels
        upper = sum(sizes[1:])
        expected = at + 4 * (count * width + (count + upper) * self.degree + upper)
        if len(body) != expected:
            raise CorruptTable(f"a jvector file has {len(body)} bytes, expected {expected}")
        self.vectors = np.frombuffer(body, "<f4", count * width, at).reshape(count, width)
        if not np.isfinite(self.vectors).all():
            raise CorruptTable("a jvector file holds numbers that are not finite")
        at += 4 * count * width
        self.levels: list[tuple[np.ndarray, np.ndarray]] = []
        for level, size in enumerate(sizes):
            nodes = np.arange(count, dtype="<i4")
            if level:
                nodes = np.frombuffer(body, "<i4", size, at)
                at += 4 * size
            edges = np.frombuffer(body, "<i4", size * self.degree, at).reshape(size, self.degree)
            at += 4 * edges.size
            self._check(level, nodes, edges, count)
            self.levels.append((nodes, edges))
        if self.entry not in self.levels[-1][0]:
            raise CorruptTable("the entry of a jvector file is no node of its last level")

    def _check(self, level: int, nodes: np.ndarray, edges: np.ndarray, count: int) -> None:
        there = np.zeros(count + 1, bool)  # the last place is for -1, "no edge"
        there[-1] = True
        if level:
            below = self.levels[-1][0]
            if (np.diff(nodes) <= 0).any() or not np.isin(nodes, below).all():
                raise CorruptTable(f"level {level} of a jvector file has impossible nodes")
        there[nodes] = True
        if edges.min() < -1 or edges.max() >= count or not there[edges].all():
            raise CorruptTable(f"an edge of a jvector file leads to no node of its level {level}")


class _InJava:
    """Vectors and their graph in the JVM, which keeps them while this object lives."""

    def __init__(self, vectors: np.ndarray, metric: str) -> None:
        self._count, self._width = vectors.shape
        self._metric = metric
        largest = float(np.abs(vectors).max())
        up = metric != COSINE and largest > 0
        self._scale = 2.0 ** (_POWER - int(np.ceil(np.log2(largest)))) if up else 1.0
        self._graph = _java_class()(self._count, self._width, metric)
        for first in range(0, self._count, self._rows(self._width)):
            piece = vectors[first : first + self._rows(self._width)]
            self._graph.put(first, self._floats(piece))

    @staticmethod
    def _rows(width: int) -> int:
        return max(1, _CALL // (4 * width))

    def _floats(self, vectors: np.ndarray) -> bytes:
        if self._scale != 1:
            vectors = vectors.astype(np.float64) * self._scale
        return vectors.astype("<f4").tobytes()

    def begin(self, chosen: engine_file.Options, threads: int) -> None:
        self._graph.begin(
            chosen["m"], chosen["ef_construction"], chosen["neighbor_overflow"], chosen["alpha"], threads
        )

    def add(self, rows: np.ndarray, threads: int) -> None:
        self._graph.add(_bits(rows), threads)

    def made(self, stored: np.ndarray, degree: int) -> bytearray:
        """The bytes of the graph, once all its vectors are added."""
        self._graph.finish()
        levels = self._graph.levels()
        sizes = [self._graph.size(level) for level in range(levels)]
        data = bytearray(_HEAD.pack(_MAGIC, degree, levels, self._graph.entry()))
        data += struct.pack(f"<{levels}I", *sizes)
        data += stored.astype("<f4", copy=False).data.cast("B")
        for level in range(levels):
            nodes = np.arange(self._count, dtype="<i4").tobytes() if not level else self._graph.nodes(level)
            data += nodes if level else b""
            for first in range(0, len(nodes), 4 * self._rows(degree)):
                piece = bytes(nodes[first : first + 4 * self._rows(degree)])
                data += self._graph.edges(level, piece, degree)
        return data

    def given(self, read: _Read) -> None:
        self._graph.given(read.degree, len(read.levels), read.entry)
        for level, (nodes, edges) in enumerate(read.levels):
            for first in range(0, len(nodes), self._rows(read.degree)):
                part = slice(first, first + self._rows(read.degree))
                self._graph.link(level, nodes[part].tobytes(), edges[part].tobytes())

    def search(
        self, queries: np.ndarray, k: int, ef: int, allowed: np.ndarray | None, threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Labels (q, k), -1 for none, and distances, ascending."""
        mask = None if allowed is None else _bits(allowed)
        rows = self._rows(self._width + 2 * k)
        pieces = (self._floats(queries[at : at + rows]) for at in range(0, len(queries), rows))
        answers = [self._graph.search(piece, k, ef, mask, threads) for piece in pieces]
        found = [np.frombuffer(answer, "<i4") for answer in answers]
        labels = np.concatenate([part[: len(part) // 2] for part in found]).reshape(-1, k)
        apart = np.concatenate([part[len(part) // 2 :].view("<f4") for part in found]).reshape(-1, k)
        if self._scale != 1:
            apart = apart / (self._scale if self._metric == L2 else self._scale**2)
        order = np.argsort(apart, axis=1, kind="stable")
        return (
            np.take_along_axis(labels, order, 1).astype(np.int64),
            np.take_along_axis(apart, order, 1).astype(np.float32),
        )


def _bits(rows: np.ndarray) -> bytes:
    return np.packbits(rows, bitorder="little").tobytes()


def _java_class() -> Callable[[int, int, str], JavaObject]:
    """A constructor of graphs in the JVM of Spark's session; ``Invalid`` without a session or jVector."""
    spark = sys.modules.get("pyspark")
    context = getattr(getattr(spark, "SparkContext", None), "_active_spark_context", None)
    gateway = getattr(context, "_gateway", None)
    if gateway is None:
        raise Invalid(
            "vector engine jvector needs a JVM, and this process has no Spark session: start one with "
            f"spark.jars.packages={PACKAGE}, or choose the engine hnsw, faiss or flat"
        )
    for known, loader in _compiled:
        if known is gateway:
            return _constructor(gateway, loader)
    with _of_java("cannot be compiled"):
        jvm = gateway.jvm
        outer = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if not _has(outer, _LIBRARY):
            raise Invalid(
                f"vector engine jvector needs the library jVector in Spark's JVM: start the session with "
                f"spark.jars.packages={PACKAGE}, or choose the engine hnsw, faiss or flat"
            )
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(outer)
        compiler.setTargetVersion(8)
        compiler.cook(resources.files(__package__).joinpath("jvector.java").read_text("utf-8"))
        loader = compiler.getClassLoader()
    _compiled[:] = [(gateway, loader)]
    return _constructor(gateway, loader)


def _constructor(
    gateway: JavaGateway, loader: JavaObject
) -> Callable[[int, int, str], JavaObject]:
    made = loader.loadClass(_CLASS).getConstructors()[0]

    def construct(count: int, width: int, metric: str) -> JavaObject:
        given = gateway.new_array(gateway.jvm.java.lang.Object, 3)
        given[0], given[1], given[2] = count, width, metric
        return made.newInstance(given)

    return construct


def _has(loader: JavaObject, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        loader.loadClass(name)
    except Py4JJavaError:
        return False
    return True


@contextmanager
def _of_java(what: str) -> Iterator[None]:
    """Turn Java's exceptions, and the loss of the JVM, into ``Invalid``."""
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        said = error.java_exception.toString()
        if "OutOfMemoryError" in said:
            said += ": raise spark.driver.memory, or give the index more clusters"
        raise Invalid(f"vector engine jvector {what}: {said[:500]}") from error
    except (Py4JError, OSError) as error:
        memory = "if it ran out of memory, raise spark.driver.memory, or give the index more clusters"
        raise Invalid(
            f"vector engine jvector {what}: Spark's JVM does not answer ({error}; {memory})"
        ) from error


ENGINE = _JVector()
