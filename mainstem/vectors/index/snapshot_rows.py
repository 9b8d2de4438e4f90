"""Reads the rows of a table for a version of a vector index: one snapshot, file slice by file slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.limits import VECTOR_DIMENSION_MAX, VECTOR_ROWS_MAX, VECTOR_SLICES_MAX
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.planning.table_state import steady_timeline
from mainstem.readers.queries.snapshot import scan
from mainstem.readers.rows.slice_query import TIME_COLUMN
from mainstem.readers.rows.split import Split
from mainstem.storage.protocol import Storage
from mainstem.vectors.arrays import dimension_of, is_vector, matrix
from mainstem.vectors.index.snapshots import how_read
from mainstem.vectors.index.version_manifest import ELEMENTS, CoveredSlice, StoredFile, VectorIndex
from mainstem.vectors.index.versions import KEYS


@dataclass(frozen=True)
class Source:
    """All rows of a version, not yet divided into clusters. ``view``, ``slices``: as in ``Version``."""

    view: str
    element: str
    dimension: int
    slices: tuple[CoveredSlice, ...]
    rows: int
    keys: StoredFile
    vectors: StoredFile
    reading: str


def newest_completion(storage: Storage) -> str:
    """The newest completion time on the timeline, "" if nothing is completed: a reader that starts now sees
    all that completed up to it."""
    return max((i.completion or "" for i in steady_timeline(storage).completed), default="")


def element_of(kind: pa.DataType) -> str:
    """The element type as which vectors from a column of this type are stored, one of ``ELEMENTS``."""
    if pa.types.is_int8(kind.value_type):
        return "INT8"
    narrow = pa.types.is_float32(kind.value_type) or pa.types.is_float16(kind.value_type)
    return "FLOAT" if narrow else "DOUBLE"


class Reading:
    """One snapshot for one index. Call ``rows`` once, then ``source``.

    ``dimension``: the one that vectors must have, None for whichever they have. ``Invalid`` for another
    dimension says that the index must be rebuilt.
    """

    def __init__(self, storage: Storage, index: VectorIndex, dimension: int | None = None) -> None:
        self._storage, self._index = storage, index
        self._view = newest_completion(storage)
        plan = scan(storage, columns=[KEY_COLUMN, TIME_COLUMN, index.column])
        self._embed, self._element, told = column_of(plan.schema, index)
        self._expected = self._dimension = dimension
        if told is not None and dimension is not None and told != dimension:
            raise self._changed(told)
        self._dimension = dimension if told is None else told
        self._splits = [split for split in plan.splits() if isinstance(split, Split)]
        if len(self._splits) > VECTOR_SLICES_MAX:
            raise Invalid(f"{len(self._splits)} file slices; a vector index covers {VECTOR_SLICES_MAX}")
        self._counts: list[int] = []

    def rows(self, told: Callable[[int, int], None]) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Pieces of bounded size: columns ``KEYS``, and the vectors (n, d) of the element type.

        Calls ``told(done, total)`` after each file slice. ``Invalid`` names the first row whose vector has
        another dimension or is not finite; ``FileNotFoundError`` for files that a clean removed.
        """
        for number, split in enumerate(self._splits):
            self._counts.append(0)
            for table in split.read(self._storage):
                keys, vectors = self._piece(table, split, number)
                if len(vectors):
                    self._counts[number] += len(vectors)
                    yield keys, vectors
            told(number + 1, len(self._splits))
            if sum(self._counts) > VECTOR_ROWS_MAX:
                raise Invalid(f"more than {VECTOR_ROWS_MAX} vectors, as many as an index can hold")

    def source(self, rows: int, keys: StoredFile, vectors: StoredFile) -> Source:
        """What was read, with the files to which the caller wrote the rows."""
        slices = tuple(
            CoveredSlice(
                split.partition,
                split.file_id,
                None if split.base_file is None else split.base_file.rpartition("/")[2],
                tuple(path.rpartition("/")[2] for path in split.log_files),
                count,
            )
            for split, count in zip(self._splits, self._counts, strict=True)
        )
        reading = how_read(self._splits[0].spec, self._index.column) if self._splits else ""
        return Source(self._view, self._element, self._dimension or 0, slices, rows, keys, vectors, reading)

    def _piece(self, table: pa.Table, split: Split, number: int) -> tuple[pa.Table, np.ndarray]:
        vectors, there = self._vectors(table)
        if len(there) < table.num_rows:
            table = table.take(pa.array(there))
        count = len(there)
        made = [
            table.column(KEY_COLUMN).cast(pa.string()),
            pa.repeat(pa.scalar(split.partition), count),
            pa.repeat(pa.scalar(number, pa.int32()), count),
            table.column(TIME_COLUMN).cast(pa.string()),
            pa.nulls(count, pa.binary()) if self._embed is None else self._digests(table),
        ]
        return pa.table(made, schema=KEYS), vectors

    def _digests(self, table: pa.Table) -> pa.Array:
        from mainstem.vectors.index.embedding import digests

        return digests(table.column(self._index.column))

    def _vectors(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """The non-null vectors, and the numbers of their rows."""
        column = table.column(self._index.column)
        if self._embed is not None:
            vectors, there = self._embed(column)
            self._dimension = self._dimension or (vectors.shape[1] if len(there) else None)
        else:
            if self._dimension is None:
                self._dimension = _first_dimension(column)
            try:
                vectors, there = matrix(column, self._dimension or 0)
            except Invalid as error:
                raise self._mixed(error, column) from None
        if len(there) and vectors.shape[1] != self._dimension:
            raise self._changed(vectors.shape[1])
        vectors = vectors.astype(ELEMENTS[self._element], copy=False)
        self._check_finite(vectors, table.column(KEY_COLUMN), there)
        return vectors, there

    def _check_finite(self, vectors: np.ndarray, keys: pa.ChunkedArray, there: np.ndarray) -> None:
        if self._element == "INT8" or np.isfinite(vectors).all():
            return
        wrong = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        raise Invalid(
            f"the vector of record key {keys[int(there[wrong])]!s} in column {self._index.column!r} contains"
            " NaN or infinity, which have no distance to anything; write the row again, or delete it"
        )

    def _changed(self, found: int) -> Invalid:
        return Invalid(
            f"vectors of column {self._index.column!r} have {found} values now, its vector index"
            f" {self._index.name!r} was built for {self._expected or self._dimension}: build it anew"
            " (Table.reindex, mainstem index rebuild)"
        )

    def _mixed(self, error: Invalid, column: pa.ChunkedArray) -> Invalid:
        first = _first_dimension(column)
        if self._expected is not None and first is not None and first != self._expected:
            return self._changed(first)
        return Invalid(
            f"column {self._index.column!r} holds vectors of different dimensions ({error.message}): an index"
            " has one; write the rows of the other dimension again, or put them into a column of their own"
        )


def _first_dimension(column: pa.ChunkedArray) -> int | None:
    """The dimension of the first vector, which counts for the whole of a column of plain lists."""
    for chunk in column.chunks:
        held = chunk.drop_null()
        if len(held):
            found = len(held[0])
            if found > VECTOR_DIMENSION_MAX:
                raise Invalid(f"vectors of {found} values; at most {VECTOR_DIMENSION_MAX} are possible")
            return found
    return None


Embed = Callable[[pa.ChunkedArray], tuple[np.ndarray, np.ndarray]]


def column_of(schema: pa.Schema, index: VectorIndex) -> tuple[Embed | None, str, int | None]:
    """A function that turns a column's values into vectors (None: they are vectors), the element type, and
    the dimension if the type gives it. ``Invalid`` for a column that is missing or cannot hold vectors."""
    at = schema.get_field_index(index.column)
    if at < 0:
        raise Invalid(
            f"the vector index {index.name} is on column {index.column!r}, which the table lacks; it has"
            f" {', '.join(schema.names)}"
        )
    kind = schema.field(at).type
    if index.embedding:
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise Invalid(
                f"column {index.column!r} is of type {kind}; an embedding function makes vectors of texts"
            )
        from mainstem.vectors.index.embedding import embedder

        return embedder(index.embedding), "FLOAT", None
    if not is_vector(kind):
        hint = "; for texts it needs an embedding function" if pa.types.is_string(kind) else ""
        raise Invalid(
            f"column {index.column!r} is of type {kind}; a vector index is on a VECTOR column or one of lists"
            f" of numbers{hint}"
        )
    return None, element_of(kind), dimension_of(kind)
