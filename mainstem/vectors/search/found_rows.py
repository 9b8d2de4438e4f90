"""Reads the rows of what was found, in the form in which users see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unavailable
from mainstem.layout.properties import TableConfig
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.split import ReadSpec, Split
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.vectors.distances import pair_distances
from mainstem.vectors.search.hits import Hits
from mainstem.vectors.search.request import DISTANCE, QUERY_INDEX, Question

PARTITION_COLUMN = "_hoodie_partition_path"
_DISTANCE_FIELD, _QUERY_FIELD = pa.field(DISTANCE, pa.float64()), pa.field(QUERY_INDEX, pa.int64())


def result(
    storage: Storage,
    splits: Sequence[Split],
    hits: Hits,
    asked: Question,
    names: Sequence[str],
    config: TableConfig,
    metric: str,
) -> pa.Table:
    """The rows of ``hits`` (query by query, ascending; at least one) with the columns ``names``, their
    distances and, for several queries, the query's number. ``FileNotFoundError`` if a clean has removed a
    file meanwhile."""
    spec = splits[0].spec
    told = _told(splits, hits, names, spec, config)
    distances, queries = pa.array(hits.distance), [pa.array(hits.query)] if asked.several else []
    beside = [_DISTANCE_FIELD, _QUERY_FIELD] if asked.several else [_DISTANCE_FIELD]
    if told is not None:
        fields = [spec.schema.field(name) for name in names]
        return pa.Table.from_arrays([*told, distances, *queries], schema=pa.schema([*fields, *beside]))
    rows = _read(storage, splits, hits, asked, names, metric)
    for field, values in zip(beside, (distances, *queries), strict=True):
        rows = rows.append_column(field, values)
    return rows


def empty_result(schema: pa.Schema, names: Sequence[str], asked: Question) -> pa.Table:
    """An empty table in the schema of ``result``."""
    fields = [schema.field(name) for name in names] + [_DISTANCE_FIELD]
    return pa.schema(fields + ([_QUERY_FIELD] if asked.several else [])).empty_table()


def _told(
    splits: Sequence[Split], hits: Hits, names: Sequence[str], spec: ReadSpec, config: TableConfig
) -> list[pa.Array] | None:
    """The columns without reading rows, if they all follow from key and partition; else None."""
    if spec.virtual_key:
        return None
    columns: list[pa.Array] = []
    for name in names:
        if name == KEY_COLUMN:
            columns.append(hits.key)
        elif name == PARTITION_COLUMN:
            columns.append(pa.array([splits[at].partition for at in hits.slice.tolist()], pa.string()))
        elif _is_key(name, spec, config):
            columns.append(hits.key.cast(spec.schema.field(name).type))
        else:
            return None
    return columns


def _is_key(name: str, spec: ReadSpec, config: TableConfig) -> bool:
    """Whether the record key is exactly this column's value as text."""
    kind = spec.schema.field(name).type
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind)
    alone = config.record_key == (name,) and name not in config.partition_fields
    return plain and alone and config.key_generator in ("SIMPLE", "NON_PARTITION")


def _read(
    storage: Storage,
    splits: Sequence[Split],
    hits: Hits,
    asked: Question,
    names: Sequence[str],
    metric: str,
) -> pa.Table:
    """Read the rows by key, with one read per slice that has hits."""
    wanted = [(int(number), np.flatnonzero(hits.slice == number)) for number in np.unique(hits.slice)]

    def one(item: tuple[int, np.ndarray]) -> tuple[pa.Table, np.ndarray]:
        number, places = item
        keys = hits.key.take(pa.array(places))
        rows = keyed_rows(storage, splits[number], pc.unique(keys), names)
        at = pc.index_in(keys, value_set=rows.column(KEY_COLUMN))
        if at.null_count:
            raise Unavailable(
                f"the row of record key {keys.filter(at.is_null())[0]!s} was found but no longer exists;"
                " search again",
                table=storage.base,
            )
        at = at.to_numpy()
        if rows.num_rows > len(pc.unique(rows.column(KEY_COLUMN))):
            at = _among_doubles(storage, splits[number], hits, places, rows, asked, metric)
        return rows.take(pa.array(at)), places

    parts = side_by_side(storage, one, wanted)
    order = np.argsort(np.concatenate([places for _, places in parts]), kind="stable")
    rows = pa.concat_tables([table for table, _ in parts]).take(pa.array(order))
    return rows.select(list(names))


def keyed_rows(storage: Storage, split: Split, keys: pa.Array, names: Sequence[str]) -> pa.Table:
    """A slice's rows that have these record keys and pass its filter, with the key column and ``names``."""
    columns = tuple(dict.fromkeys((KEY_COLUMN, *names)))
    chosen, before = pc.field(KEY_COLUMN).isin(keys), split.spec.filter
    extra = tuple(dict.fromkeys((KEY_COLUMN, *split.spec.extra)))
    chosen = chosen if before is None else chosen & before
    spec = replace(split.spec, columns=columns, extra=extra, filter=chosen)
    tables = list(replace(split, spec=spec).read(storage))
    schema = pa.schema([spec.schema.field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *tables])


def _among_doubles(
    storage: Storage,
    split: Split,
    hits: Hits,
    places: np.ndarray,
    rows: pa.Table,
    asked: Question,
    metric: str,
) -> np.ndarray:
    """The row of each hit if a slice holds several rows of one key (Java's inserts that do not merge): the
    n-th hit of a query gets the n-th nearest of them."""
    keys = hits.key.take(pa.array(places))
    again = keyed_rows(storage, split, pc.unique(keys), [asked.column])
    vectors, valid = asked.vectors_of(again.column(asked.column))
    text = np.array(again.column(KEY_COLUMN).to_pylist(), object)[valid]
    used: dict[tuple[int, str], int] = {}
    found = np.zeros(len(places), np.int64)
    for at, (place, key) in enumerate(zip(places.tolist(), keys.to_pylist(), strict=True)):
        query = int(hits.query[place])
        number = used[query, key] = used.get((query, key), -1) + 1
        same = np.flatnonzero(text == key)
        apart = pair_distances(metric, np.repeat(asked.queries[[query]], len(same), 0), vectors[same])
        found[at] = valid[same[np.argsort(apart, kind="stable")[number]]]
    return found
