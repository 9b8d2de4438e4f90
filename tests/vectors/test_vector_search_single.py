"""Goal: one query finds what it finds among others, in the same order, however the table stands to its index.

Method: tables with graphs of several clusters; every query is asked alone and in a batch with the others, by
every metric, of clusters as they were built, with rows that are fresh, masked, deleted and equally near.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.storage.local import LocalStorage
from mainstem.vectors.engines import hnsw
from mainstem.vectors.search import approximate

pytest.importorskip("usearch")

ROWS, DIMENSION, QUERIES = 9_000, 8, 40
OPTIONS = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
KEY = ["_hoodie_record_key", "_hoodie_partition_path", "id"]


def batch(vectors, first=0, part="a"):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    ids = [f"k{at:05d}" if at % 3 else f"schlüssel-{at}" for at in range(first, first + len(vectors))]
    return pa.table({"id": ids, "part": [part] * len(ids), "v": lists})


def made(path, metric, engine="hnsw"):
    chance = np.random.default_rng(7)
    middles = chance.normal(size=(30, DIMENSION))
    vectors = middles[np.arange(ROWS + QUERIES) % 30] + 0.4 * chance.normal(size=(ROWS + QUERIES, DIMENSION))
    vectors = vectors.astype(np.float32)
    rows = batch(vectors[:ROWS])
    table = mainstem.create_table(
        path, rows.schema, record_key="id", partition_by="part", buckets=2, properties=OPTIONS,
        vectors={"v": f"VECTOR({DIMENSION})"},
    )  # fmt: skip
    table.bulk_insert(rows)
    table.create_index("vector", ["v"], options={"metric": metric, "clusters": "3", "engine": engine})
    return table, vectors[:ROWS], vectors[ROWS:]


def assert_alone_as_among_others(table, queries, **how):
    """Also how they say that they searched, but how many clusters: a batch counts those of all."""
    for k in (1, 10, 90):
        many = table.search("v", queries, k, columns=KEY, **how)
        for at, query in enumerate(queries):
            alone = table.search("v", query, k, columns=KEY, **how)
            among = many.filter(pa.compute.equal(many["_hudi_query_index"], at))
            assert alone.equals(among.drop_columns("_hudi_query_index"))
    told, one = (table.explain_search("v", asked, 5, **how).to_dict() for asked in (queries, queries[0]))
    assert not told["exact"]
    assert {**told, "queries": 1, "clusters": one["clusters"]} == one


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot_product"])
def test_one_query_finds_what_it_finds_among_others_whatever_was_written(tmp_path, metric, monkeypatch):
    monkeypatch.setattr(approximate, "_GLANCE_ROWS", 0)
    table, vectors, queries = made(tmp_path / "t", metric)
    assert_alone_as_among_others(table, queries)
    assert_alone_as_among_others(table, queries[:5], ef=40)
    assert_alone_as_among_others(table, queries[:5], clusters=2)
    assert_alone_as_among_others(table, queries[:5], clusters=3)
    before = table.timeline()[-1].requested
    table.upsert(batch(vectors[:40] + 0.1))  # fresh ones, and the same many are masked
    table.upsert(batch(vectors[:60], ROWS, "b"))  # as near as others
    table.delete(batch(vectors[500:900], 500))
    assert_alone_as_among_others(table, queries)
    assert_alone_as_among_others(table, queries[:5], as_of=before)
    table.delete(batch(vectors[900:8_990], 900))  # hardly one row of the graphs is left
    assert_alone_as_among_others(table, queries[:10])
    table.refresh_index("v")
    assert_alone_as_among_others(table, queries[:10])


@pytest.mark.parametrize("engine", ["flat", "faiss"])
def test_one_query_finds_the_same_with_engines_whose_graphs_are_not_walked_alone(tmp_path, engine):
    table, vectors, queries = made(tmp_path / "t", "l2", engine)
    table.upsert(batch(vectors[:40] + 0.1))
    assert_alone_as_among_others(table, queries[:10])


def test_a_release_of_usearch_with_another_compiled_part_finds_the_same(tmp_path, monkeypatch):
    table, _, queries = made(tmp_path / "t", "l2")
    search, found = hnsw._compiled, []
    monkeypatch.setattr(hnsw, "_compiled", lambda *asked: found.append(search(*asked)) or found[-1])
    usual = [table.search("v", query, 10, columns=KEY) for query in queries]
    assert found and None not in found  # of the release that is installed it is asked itself

    class Other:
        """usearch's index, with what a compiled part may be in its place."""

        def __init__(self, index, part):
            self.search, self._compiled, self._size = index.search, part, len(index)

        def __len__(self):
            return self._size

    class Short:
        def search_many(self, *_, **__):
            return np.zeros((1, 2), np.uint64), np.zeros((1, 2), np.float32)

    class Wrong:
        def search_many(self, *_, **__):
            return np.zeros((1, 2), np.uint64), np.zeros((1, 2), np.float32), np.array([2]), 0, 0

    for part in (None, Short(), Wrong()):
        asked = []
        monkeypatch.setattr(
            hnsw, "_compiled", lambda index, query, part=part, asked=asked: asked.append(
                search(Other(index, part), query)
            )
        )  # fmt: skip
        again = mainstem.open_table(tmp_path / "t")
        assert [again.search("v", query, 10, columns=KEY) for query in queries] == usual
        assert asked and set(asked) == {None}


@pytest.mark.disk("it counts a disk's calls; tests/storage/test_requests_of_reads.py counts a store's")
def test_a_search_of_an_unchanged_table_asks_storage_for_three_listings_and_two_small_files(
    tmp_path, monkeypatch
):
    table, _, queries = made(tmp_path / "t", "l2")
    table.search("v", queries[0], 10, columns=KEY)
    asked = []

    def counting(name):
        call = getattr(LocalStorage, name)

        def counted(self, path, *rest, **how):
            asked.append(name)
            return call(self, path, *rest, **how)

        monkeypatch.setattr(LocalStorage, name, counted)

    for name in ("read", "names", "stat", "entries", "view", "read_range", "private", "open_input"):
        counting(name)
    table.search("v", queries[1], 10, columns=KEY)
    assert sorted(asked) == ["names", "names", "names", "read", "read"]
    table.upsert(batch(queries[2:3], ROWS))  # and no less, as the next search has to see this
    assert table.search("v", queries[2], 1, columns=KEY)["_hudi_distance"].to_pylist() == [0.0]
