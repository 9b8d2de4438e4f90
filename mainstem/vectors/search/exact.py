"""Exact search over rows: all rows of a snapshot, or the fresh ones.

A query's k-th neighbour may tie with others. So that an answer does not depend on the order in which rows are
stored, ties are broken by record key, then partition: if the next best is as near as the k-th, the block's
rows are searched once more in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.split import Split
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.vectors.distances import COSINE, nearest
from mainstem.vectors.search.hits import Hits, joined, nearest_of, nothing, whole
from mainstem.vectors.search.request import Question


def search_splits(
    storage: Storage, splits: Sequence[Split], numbers: Sequence[int], asked: Question, metric: str
) -> tuple[Hits, int]:
    """The nearest rows of these splits (each query's best ``k`` and ties), and the number of vectors
    compared.

    ``numbers``: the splits' numbers in the snapshot. Splits are read in parallel, rows in bounded batches.
    Raises what ``read_split`` raises, and ``Invalid`` for a vector of another dimension.
    """
    partitions = _by_number(splits, numbers)

    def one(item: tuple[Split, int]) -> tuple[Hits, int]:
        split, number = item
        narrow = replace(split, spec=replace(split.spec, columns=(KEY_COLUMN, asked.column)))
        found, compared = nothing(), 0
        for table in narrow.read(storage):
            hits, count = _of_table(table, number, split, asked, metric)
            found = nearest_of(joined([found, hits]), asked.k, partitions)
            compared += count
        return found, compared

    results = side_by_side(storage, one, list(zip(splits, numbers, strict=True)))
    return joined([hits for hits, _ in results]), sum(count for _, count in results)


def _by_number(splits: Sequence[Split], numbers: Sequence[int]) -> list[str]:
    found = [""] * (max(numbers, default=-1) + 1)
    for split, number in zip(splits, numbers, strict=True):
        found[number] = split.partition
    return found


def _of_table(
    table: pa.Table, number: int, split: Split, asked: Question, metric: str
) -> tuple[Hits, int]:
    keys = table.column(KEY_COLUMN)
    try:
        vectors, rows = asked.vectors_of(table.column(asked.column))
    except Invalid as error:
        raise (error if asked.embedding else _named(table, split, asked)) from error
    if len(rows) < table.num_rows:
        keys = keys.take(pa.array(rows))
    return nearest_rows(vectors, keys, number, asked, metric), len(rows)


def nearest_rows(
    vectors: np.ndarray, keys: pa.ChunkedArray, number: int | np.ndarray, asked: Question, metric: str
) -> Hits:
    """The best ``k`` of these rows per query. ``number``: the slice of all rows, or one per row."""
    wanted = min(asked.k + 1, len(vectors))
    if not wanted:
        return nothing()
    with np.errstate(over="ignore", invalid="ignore"):  # for numbers whose squares overflow a double
        labels, distances = nearest(metric, asked.queries, vectors, wanted)
        if wanted > asked.k:
            labels, distances = _settled(labels, distances, vectors, keys, asked, metric)
    query, place = np.nonzero(labels >= 0)
    rows = labels[query, place]
    slices = np.full(len(rows), number) if isinstance(number, int) else number[rows]
    return Hits(query, slices, whole(keys.take(pa.array(rows))), shown(metric, distances[query, place]))


def _settled(
    labels: np.ndarray,
    distances: np.ndarray,
    vectors: np.ndarray,
    keys: pa.ChunkedArray,
    asked: Question,
    metric: str,
) -> tuple[np.ndarray, np.ndarray]:
    k = asked.k
    tied = np.flatnonzero(distances[:, k] == distances[:, k - 1])
    labels, distances = labels[:, :k].copy(), distances[:, :k].copy()
    if len(tied):
        order = pc.sort_indices(keys).to_numpy()
        again, distances[tied] = nearest(metric, asked.queries[tied], vectors[order], k)
        labels[tied] = order[again]
    return labels, distances


def shown(metric: str, distances: np.ndarray) -> np.ndarray:
    """Distances as Hudi shows them: cosine within 0 and 2, whatever the rounding."""
    return np.clip(distances, 0.0, 2.0) if metric == COSINE else distances


def _named(table: pa.Table, split: Split, asked: Question) -> Invalid:
    lengths = pc.list_value_length(table.column(asked.column)).to_numpy(zero_copy_only=False)
    wrong = (lengths != asked.queries.shape[1]) & ~np.isnan(lengths.astype(float))
    key = table.column(KEY_COLUMN)[int(np.flatnonzero(wrong)[0])]
    return Invalid(
        f"the vector of record key {key!s} in partition {split.partition!r} has"
        f" {int(lengths[wrong][0])} values, the query has {asked.queries.shape[1]}; give queries of the"
        " vectors' dimension, or leave other rows out with a filter"
    )
