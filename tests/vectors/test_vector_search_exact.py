"""Goal: an exact search gives the neighbours that Hudi's brute force gives, and says what cannot be asked.

Method: tables that Java wrote, with what its ``hudi_vector_search`` found in them; small tables of ours,
against distances computed one by one.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid
from tests.golden_tables.tables import expectations, unpack

OPTIONS = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.list_(pa.float32()))]
)


def rows(vectors: dict[str, list | None], ts: int = 1) -> pa.Table:
    ids = sorted(vectors)
    columns = [ids, [key[-1] for key in ids], [ts] * len(ids), [vectors[key] for key in ids]]
    return pa.table(columns, schema=SCHEMA)


def create(path, vectors: dict[str, list | None] | None = None):
    made = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="part", buckets=2, properties=OPTIONS
    )
    if vectors:
        made.upsert(rows(vectors))
    return made


def found(table: pa.Table) -> list[tuple[str, float]]:
    return list(zip(table["id"].to_pylist(), table["_hudi_distance"].to_pylist(), strict=True))


@pytest.mark.supports("Vectors", "search: exact, as Hudi's `hudi_vector_search`")
@pytest.mark.parametrize("name", ["vectors", "vectors_cow"])
def test_neighbours_and_distances_are_those_of_java(name, tmp_path):
    table = mainstem.open_table(unpack(name, tmp_path))
    known = expectations(name)
    searches = [query for query in known["queries"] if query["kind"] == "vector_search"]
    assert searches
    for query in searches:
        asked = re.match(r"column (\w), metric (\w+), k (\d+), query \[(.*)\]", query["note"])
        assert asked is not None
        vector = [float(text.strip("f ")) for text in asked[4].split(",")]
        answer = table.search(asked[1], vector, int(asked[3]), metric=asked[2])
        expected = sorted(known["rowsets"][query["rowset"]]["rows"], key=lambda row: row[1])
        assert answer["id"].to_pylist() == [row[0] for row in expected]
        assert answer["_hudi_distance"].to_pylist() == pytest.approx([row[1] for row in expected], rel=1e-12)
        assert answer.schema.names == [c for c in table.scan().schema.names if c != asked[1]] + [
            "_hudi_distance"
        ]


def test_rows_of_other_spaces_are_compared_as_java_does(tmp_path):
    # A zero vector is at cosine distance 1 of everything, a null is left out, ties go by the record key.
    table = create(tmp_path / "t", {"c-x": [0, 0], "b-x": [2, 0], "a-y": [1, 0], "d-x": [-1, 0], "e-y": None})
    assert found(table.search("v", [1, 0], 9)) == [("a-y", 0.0), ("b-x", 0.0), ("c-x", 1.0), ("d-x", 2.0)]
    assert found(table.search("v", [0, 0], 2)) == [("a-y", 1.0), ("b-x", 1.0)]
    assert found(table.search("v", [1, 1], 2, metric="euclidean")) == [("a-y", 1.0), ("b-x", math.sqrt(2))]
    assert found(table.search("v", [1, 1], 1, metric="inner_product")) == [("b-x", -2.0)]


def test_many_rows_at_one_distance_are_told_apart_by_their_keys(tmp_path):
    table = create(tmp_path / "t", {f"{n:03d}-{'xy'[n % 2]}": [1.0, 0.0] for n in range(200)})
    answer = table.search("v", [0, 1], 7, metric="l2")
    assert answer["id"].to_pylist() == [f"{n:03d}-{'xy'[n % 2]}" for n in range(7)]


def test_a_batch_of_queries_answers_each(tmp_path):
    chance = np.random.default_rng(5)
    vectors = {f"{n}-{'xyz'[n % 3]}": chance.normal(size=3).tolist() for n in range(90)}
    table = create(tmp_path / "t", vectors)
    queries = chance.normal(size=(40, 3))
    answer = table.search("v", queries, 4, metric="l2", columns=["id"])
    assert answer.schema.names == ["id", "_hudi_distance", "_hudi_query_index"]
    assert answer["_hudi_query_index"].to_pylist() == [n for n in range(40) for _ in range(4)]
    for number, query in enumerate(queries):
        mine = answer.filter(pc.field("_hudi_query_index") == number)
        apart = {key: math.dist(np.float32(v).astype(float), query) for key, v in vectors.items()}
        nearest = sorted(apart, key=apart.__getitem__)[:4]
        assert mine["id"].to_pylist() == nearest
        assert mine["_hudi_distance"].to_pylist() == pytest.approx([apart[key] for key in nearest])
        assert found(table.search("v", query, 4, metric="l2")) == found(mine)
    one = table.search("v", queries[:1], 4, metric="l2", columns=["id"])
    assert one["_hudi_query_index"].to_pylist() == [0] * 4
    assert table.search("v", np.zeros((0, 3)), 4).num_rows == 0


def test_updates_deletes_filters_and_the_past_are_seen(tmp_path):
    table = create(tmp_path / "t", {"a-x": [0, 0], "b-x": [1, 0], "c-y": [2, 0]})
    first = table.timeline()[-1].requested
    table.upsert(rows({"a-x": [5, 0]}, ts=2))
    table.delete(rows({"b-x": None}))

    def near(**options):
        return found(table.search("v", [0, 0], 9, metric="l2", **options))

    assert near() == [("c-y", 2.0), ("a-x", 5.0)]
    assert near(as_of=first) == [("a-x", 0.0), ("b-x", 1.0), ("c-y", 2.0)]
    assert near(filter=pc.field("part") == "x") == [("a-x", 5.0)]
    assert near(filter=pc.field("ts") < 2, as_of=first) == near(as_of=first)
    assert near(filter=pc.field("ts") > 2) == []
    assert "3 vectors compared" in str(table.explain_search("v", [0, 0], 1, as_of=first))


def test_only_the_asked_columns_come_and_keys_need_no_rows(tmp_path):
    table = create(tmp_path / "t", {"a-x": [0, 1], "b-y": [1, 1]})
    answer = table.search(
        "v", [0, 1], 1, columns=["part", "v", "_hoodie_record_key", "_hoodie_partition_path"]
    )
    assert answer.to_pylist() == [
        {
            "part": "x", "v": [0.0, 1.0], "_hoodie_record_key": "a-x", "_hoodie_partition_path": "x",
            "_hudi_distance": 0.0,
        }
    ]  # fmt: skip
    keys = table.search("v", [0, 1], 2, columns=["_hoodie_record_key", "_hoodie_partition_path", "id"])
    assert [list(row.values())[:3] for row in keys.to_pylist()] == [["a-x", "x", "a-x"], ["b-y", "y", "b-y"]]
    assert table.search("v", [0, 1], 2, columns=[]).schema.names == ["_hudi_distance"]


def test_an_empty_table_and_more_rows_than_there_are_give_full_answers(tmp_path):
    table = create(tmp_path / "t")
    empty = table.search("v", [0, 1], 3)
    assert empty.num_rows == 0
    assert empty.schema.names[-2:] == ["ts", "_hudi_distance"]
    table.upsert(rows({"a-x": [0, 1], "b-x": None}))
    assert len(table.search("v", [0, 1], 1_000_000)) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ({"column": "w"}, "no column 'w'"),
        ({"column": "id"}, "column 'id' is of type string"),
        ({"column": 5}, "column=5"),
        ({"vectors": [1, 2, 3]}, "record key a-x in partition 'x' has 2 values, the query has 3"),
        ({"vectors": [1, math.nan]}, "query 0 holds NaN"),
        ({"vectors": [[1, 1], [math.inf, 0]]}, "query 1 holds NaN or infinity"),
        ({"vectors": ["a", "b"]}, "the query is a text"),
        ({"vectors": ["a", 1]}, "no vector of numbers"),
        ({"vectors": [[1, 2], [3]]}, "no vector of numbers"),
        ({"vectors": []}, "has the shape"),
        ({"vectors": [[[1]]]}, "has the shape"),
        ({"k": 0}, "k=0"),
        ({"k": 2.5}, "k=2.5"),
        ({"k": 10**12}, "at most"),
        ({"ef": 0}, "ef=0"),
        ({"ef": 10**12}, "expected a whole number up to 100000"),
        ({"clusters": 0}, "clusters=0; expected a whole number from 1 on"),
        ({"clusters": "all"}, "clusters='all'; expected a whole number"),
        ({"metric": "manhattan"}, "unknown metric 'manhattan'"),
        ({"as_of": "noon"}, "as_of"),
        ({"filter": "ts > 1"}, "filter="),
        ({"columns": ["nothing"]}, "no column 'nothing'"),
    ],
)
def test_what_cannot_be_asked_is_said(tmp_path, call, said):
    table = create(tmp_path / "t", {"a-x": [0, 1]})
    with pytest.raises(Invalid, match=re.escape(said)):
        table.search(**{"column": "v", "vectors": [1, 1], "k": 1, **call})
    assert table.scan().count_rows() == 1


def test_bytes_are_searched_with_bytes(tmp_path):
    table = mainstem.open_table(unpack("vectors", tmp_path))
    assert len(table.search("b", [-128, 127, 0, 1], 3, metric="l2")) == 3
    for query in ([0.5, 0, 0, 0], [128, 0, 0, 0]):
        with pytest.raises(Invalid, match="holds bytes"):
            table.search("b", query, 3)
    with pytest.raises(Invalid, match="holds vectors of 4 values, the query has 3"):
        table.search("f", [1, 2, 3], 3)
