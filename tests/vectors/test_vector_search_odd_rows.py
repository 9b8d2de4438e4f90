"""Goal: rows that an index cannot tell apart, or cannot hold, are found by comparing all; filters fit.

Method: a base file with a key twice, as inserts of Java leave it, and a list column with vectors of two
dimensions; answers with an index are those of a full scan.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.layout.field_ids import Column, FieldIds, Record, VersionedSchema
from mainstem.merge.rules import MergeRules
from mainstem.readers.rows.split import ReadSpec
from mainstem.vectors.index.snapshots import how_read
from mainstem.vectors.search import search_plan
from tests.vectors.test_vector_search_exact import OPTIONS

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("v", pa.list_(pa.float64())), ("kind", pa.string())]
)
QUERY = [0.0, 0.0]


def rows(vectors: dict[str, list[float]], kind: str) -> pa.Table:
    count = len(vectors)
    return pa.table([list(vectors), [1] * count, list(vectors.values()), [kind] * count], schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=OPTIONS
    )
    made.upsert(rows({f"k{n}": [float(n), 0.0] for n in range(10)}, "a"))
    return made


def indexed(table):
    table.create_index("vector", ["v"], options={"engine": "flat", "metric": "l2"})


def test_of_rows_of_one_key_those_that_pass_a_filter_are_found(table):
    table.compact()
    (base,) = (path for path in Path(table.path).glob("*.parquet") if not path.name.startswith("."))
    stored = pq.read_table(base)
    values = {"v": [[0.25, 0.0]], "kind": ["q"]}
    again = [
        pa.array(values[f.name], f.type) if f.name in values else stored[f.name].slice(3, 1).combine_chunks()
        for f in stored.schema
    ]
    pq.write_table(pa.concat_tables([stored, pa.table(again, stored.schema)]), base)
    indexed(table)
    for filter in (None, pc.field("kind") == "a", pc.field("kind") == "q"):
        every = table.scan(filter=filter).to_arrow()
        apart = np.linalg.norm(np.array(every["v"].to_pylist()), axis=1)
        for k in (1, 4, 20):
            meant = every.take(np.argsort(apart, kind="stable")[:k]).select(["id", "kind"])
            for exact in (False, True):
                found = table.search("v", QUERY, k, filter=filter, exact=exact, metric="l2")
                assert found.select(["id", "kind"]).to_pylist() == meant.to_pylist()


def test_a_fresh_vector_of_another_dimension_is_named_and_can_be_left_out_by_a_filter(table):
    indexed(table)
    table.upsert(rows({"wrong": [1.0, 2.0, 3.0]}, "z"))
    with pytest.raises(Invalid, match=r"record key wrong .* has 3 values, the query has 2"):
        table.search("v", QUERY, 3)
    found = table.search("v", QUERY, 3, filter=pc.field("kind") == "a")
    assert found["id"].to_pylist() == ["k0", "k1", "k2"]
    table.delete(rows({"wrong": [0.0]}, "z"))
    assert not table.explain_search("v", QUERY, 3).exact


@pytest.mark.parametrize("odd", ["doubled", "dimension"])
def test_a_slice_for_which_an_index_cannot_answer_is_looked_at_once(table, odd, monkeypatch):
    indexed(table)
    if odd == "doubled":
        table.upsert(rows({"k1": [5.5, 0.0]}, "b"))
        table.compact()
        newest = max(Path(table.path).glob("*.parquet"), key=lambda path: path.name.rsplit("_", 1)[-1])
        stored = pq.read_table(newest)
        pq.write_table(pa.concat_tables([stored, stored.slice(3, 1)]), newest)
    else:
        table.upsert(rows({"wrong": [1.0, 2.0, 3.0]}, "z"))
    why = {"doubled": "keys occur twice", "dimension": "3 values, not of 2"}[odd]
    wanted = {"filter": pc.field("kind") == "a"}
    first = table.explain_search("v", QUERY, 3, **wanted)
    assert first.exact
    looked, look = [], search_plan.delta_of
    monkeypatch.setattr(search_plan, "delta_of", lambda *given: looked.append(given) or look(*given))
    again = table.explain_search("v", QUERY, 3, **wanted)
    assert (again, looked) == (first, [])
    table.upsert(rows({"more": [1.0, 2.0]}, "z"))
    assert table.explain_search("v", QUERY, 3, **wanted).why == first.why
    assert len(looked) == 1
    assert why in first.why


def test_a_column_that_was_dropped_and_added_anew_is_another_one():
    def spec(column_id: int | None) -> ReadSpec:
        schema = VersionedSchema(1, Record((Column(column_id or 0, "v"), Column(90, "w"))))
        ids = None if column_id is None else FieldIds.of(schema, [], {})
        return ReadSpec(SCHEMA, ("v",), MergeRules(("ts",)), ids=ids)

    assert how_read(spec(3), "v") == how_read(spec(3), "v")
    assert len({how_read(spec(number), "v") for number in (None, 3, 7)}) == 3
    assert how_read(spec(3), "w") == how_read(spec(7), "w")


def test_floats_that_became_doubles_are_those_that_a_scan_shows(tmp_path):
    """Java widens 0.1 to 0.1, and not to 0.10000000149011612."""
    narrow = SCHEMA.set(2, pa.field("v", pa.list_(pa.float32())))
    table = mainstem.create_table(
        tmp_path / "t", narrow, record_key="id", ordering="ts", buckets=1, properties=OPTIONS
    )
    table.upsert(rows({f"k{n}": [n + 0.1, 0.0] for n in range(10)}, "a").cast(narrow))
    indexed(table)
    table.upsert(rows({"k3": [1e-9, 0.0]}, "b"))
    assert table.schema.field("v").type == pa.list_(pa.float64())
    expected = table.search("v", QUERY, 9, exact=True, metric="l2")
    assert table.search("v", QUERY, 9) == expected
    table.refresh_index("v")
    assert not table.explain_search("v", QUERY, 9).exact
    assert table.search("v", QUERY, 9) == expected


def test_rows_that_are_merged_by_other_rules_are_found_as_they_are_now(table):
    older = {"id": ["k1"], "ts": [0], "v": [[0.5, 0.0]], "kind": ["z"]}
    table.upsert(pa.table(older, SCHEMA))
    indexed(table)
    assert table.search("v", QUERY, 3)["kind"].to_pylist() == ["a", "a", "a"]
    properties = Path(table.path, ".hoodie/hoodie.properties")
    text = properties.read_text()
    assert "EVENT_TIME_ORDERING" in text
    properties.write_text(text.replace("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"))
    for reader in (table, mainstem.open_table(table.path, properties=OPTIONS)):
        assert "how rows are merged" in reader.explain_search("v", QUERY, 3).why
        assert reader.search("v", QUERY, 3)["kind"].to_pylist() == ["a", "z", "a"]
    assert mainstem.open_table(table.path, properties=OPTIONS).refresh_index("v").built
    assert not table.explain_search("v", QUERY, 3).exact
    assert table.search("v", QUERY, 3)["kind"].to_pylist() == ["a", "z", "a"]
