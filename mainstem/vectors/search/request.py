"""What a search asks for, checked before anything is read."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.limits import SEARCH_HITS_MAX, VECTOR_EFFORT_MAX
from mainstem.vectors.arrays import dimension_of, is_vector, matrix
from mainstem.vectors.distances import metric_named
from mainstem.vectors.index.embedding import embed, embedder

DISTANCE, QUERY_INDEX = "_hudi_distance", "_hudi_query_index"


@dataclass(frozen=True)
class Question:
    """``queries``: float64 (q, d), finite; ``several``: they came as a batch. ``metric`` None: that of the
    index, or ``cosine`` without an index. ``texts``: queries not yet turned into vectors. ``embedding``: the
    function that turns the column's texts into vectors, "" for a column of vectors."""

    column: str
    queries: np.ndarray
    several: bool
    k: int
    metric: str | None = None
    ef: int | None = None
    texts: tuple[str, ...] | None = None
    embedding: str = ""

    def vectors_of(self, column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of non-null values, and their rows."""
        return vectors_of(column, self.queries.shape[1], self.embedding)

    def embedded(self, embedding: str) -> Question:
        """The question with the embedding function of the column's index and with the texts turned into
        vectors. ``Invalid`` for texts on a column of vectors; also raises what ``embed`` raises."""
        if self.texts is None:
            return self if embedding == self.embedding else replace(self, embedding=embedding)
        if not embedding:
            raise Invalid(
                f"the query is a text, and column {self.column!r} has no vector index with an embedding"
                " function (the option 'embedding' of create_index); give vectors"
            )
        found = embed(embedding, self.texts).astype(np.float64)
        return replace(self, embedding=embedding, queries=found, texts=None)


def vectors_of(
    column: pa.ChunkedArray, dimension: int, embedding: str
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors (n, dimension) of non-null values, made from texts if there is an embedding function, and
    the numbers of their rows. ``Invalid`` for another dimension."""
    if not embedding:
        return matrix(column, dimension)
    vectors, there = embedder(embedding)(column)
    if not len(there):
        return np.zeros((0, dimension), np.float32), there
    if vectors.shape[1] != dimension:
        raise Invalid(
            f"the embedding function {embedding!r} makes vectors of {vectors.shape[1]} values, {dimension}"
            " are expected; reindex() if it has been replaced by another function"
        )
    return vectors, there


def question(
    column: str, vectors: Any, k: int, *, metric: str | None = None, ef: int | None = None
) -> Question:
    """The question in a call's arguments. Raises ``Invalid`` for what cannot be asked."""
    if not isinstance(column, str):
        raise Invalid(f"column={column!r}; expected the name of a column")
    queries, several = _queries(vectors)
    k, ef = counted(k, "k"), None if ef is None else counted(ef, "ef")
    if ef is not None and ef > VECTOR_EFFORT_MAX:
        raise Invalid(f"ef={ef}; expected a whole number up to {VECTOR_EFFORT_MAX}")
    texts = None
    if isinstance(queries, tuple):
        texts, queries = queries, np.zeros((len(queries), 0))
    if k * len(queries) > SEARCH_HITS_MAX:
        raise Invalid(
            f"{len(queries)} queries for {k} rows each; one search answers with at most {SEARCH_HITS_MAX}"
            " rows: ask for fewer, or in several searches"
        )
    metric = None if metric is None else metric_named(metric)
    return Question(column, queries, several, k, metric, ef, texts)


def check_column(asked: Question, schema: pa.Schema) -> None:
    """Raise ``Invalid`` if the column holds no vectors, or none of the queries' dimension. If it holds bytes
    (INT8), queries must fit into bytes too, as in Hudi."""
    at = schema.get_field_index(asked.column)
    if at < 0:
        raise Invalid(f"no column {asked.column!r}; the table has {', '.join(schema.names)}")
    kind = schema.field(at).type
    if asked.embedding and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return
    if not is_vector(kind):
        raise Invalid(
            f"column {asked.column!r} is of type {kind}; vectors are searched in VECTOR columns and in lists"
            " of numbers"
        )
    dimension, given = dimension_of(kind), asked.queries.shape[1]
    if dimension is not None and dimension != given:
        raise Invalid(f"column {asked.column!r} holds vectors of {dimension} values, the query has {given}")
    if pa.types.is_int8(kind.value_type):
        _check_bytes(asked)


def _check_bytes(asked: Question) -> None:
    queries = asked.queries
    wrong = (queries != np.rint(queries)) | (queries < -128) | (queries > 127)
    if wrong.any():
        query, place = np.argwhere(wrong)[0]
        raise Invalid(
            f"column {asked.column!r} holds bytes: queries must be whole numbers from -128 to 127, query"
            f" {query} has {queries[query, place]!r} at place {place}"
        )


def _queries(vectors: Any) -> tuple[np.ndarray | tuple[str, ...], bool]:
    if isinstance(vectors, (pa.Array, pa.ChunkedArray)):
        vectors = vectors.to_pylist()
    if isinstance(vectors, str):
        return (vectors,), False
    if isinstance(vectors, (list, tuple)) and vectors and all(isinstance(text, str) for text in vectors):
        return tuple(vectors), True
    try:
        found = np.asarray(vectors, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(
            f"the query is no vector of numbers, nor several of one length: {error}; give a list or an array"
        ) from None
    if found.ndim not in (1, 2) or not found.shape[-1]:
        raise Invalid(
            f"the query has the shape {found.shape}; expected (values,), or (queries, values) for several"
        )
    several = found.ndim == 2
    found = np.ascontiguousarray(np.atleast_2d(found))
    there = np.isfinite(found)
    if not there.all():
        query = np.flatnonzero(~there.all(axis=1))[0]
        raise Invalid(f"query {query} holds NaN or infinity, which has no distance to anything")
    return found, several


def counted(value: int, name: str) -> int:
    """A count of at least 1; ``Invalid`` for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise Invalid(f"{name}={value!r}; expected a whole number from 1 on")
    return number


def output_names(asked: Question, schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    """Columns of the result: the requested ones, else all except the searched vectors, as in Hudi."""
    from mainstem.readers.planning.query_schema import output_columns

    names = output_columns(schema, columns)
    if columns is None and not asked.embedding:
        names.remove(asked.column)
    return names
