"""Goal: a column of texts is searched by texts, through the function that makes vectors of them.

Method: a function that counts letters; what it is given is noted, since models are slow.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.vectors.index import embedding

OPTIONS = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
LETTERS = "abcde"


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(embedding, "_registered", {})
    texts: list[str] = []

    def counted(found):
        texts.extend(found)
        return np.array([[text.count(letter) for letter in LETTERS] for text in found], np.float32)

    mainstem.register_embedding("letters", counted)
    return texts


@pytest.fixture
def table(tmp_path, given):
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2, properties=OPTIONS
    )
    made.upsert(rows({"k1": "aaa", "k2": "abab", "k3": "ccc", "k4": None, "k5": "ddde"}))
    made.create_index(
        "vector", ["text"], options={"engine": "flat", "metric": "l2", "embedding": "letters"}
    )
    return made


def rows(texts: dict[str, str | None], ts: int = 1) -> pa.Table:
    return pa.table([list(texts), [ts] * len(texts), list(texts.values()), [ts] * len(texts)], schema=SCHEMA)


def near(table, query, k=2, **options):
    return table.search("text", query, k, **options)["id"].to_pylist()


@pytest.mark.supports("Vectors", "search: texts, through an embedding function")
def test_texts_find_the_rows_whose_texts_are_near(table):
    answer = table.search("text", "aaab", 2)
    assert answer["text"].to_pylist() == ["aaa", "abab"]
    assert answer["_hudi_distance"].to_pylist() == [1.0, np.sqrt(2)]
    assert near(table, ["cc", "dd"], 1) == ["k3", "k5"]
    assert near(table, [0, 0, 3, 0, 0], 1) == ["k3"]
    assert near(table, "cc", exact=True, metric="l2") == near(table, "cc")
    assert not table.explain_search("text", "cc", 1).exact


def test_of_what_was_written_since_only_the_new_texts_become_vectors(table, given):
    table.upsert(rows({"k3": "bbbb", "k6": "cccc"}, ts=2))
    del given[:]
    assert near(table, "ccc", 1) == ["k6"]
    assert sorted(given) == ["bbbb", "ccc", "cccc"]
    table.compact()
    del given[:]
    assert near(table, "bbbb", 1) == ["k3"]
    assert sorted(set(given)) == ["bbbb", "cccc"]  # the others' rows are of the same commits
    table.refresh_index("text")
    del given[:]
    assert near(table, "bbbb", 1) == ["k3"]
    assert given == ["bbbb"]


@pytest.mark.filterwarnings("ignore:hoodie.mainstem.write.partial.blocks")
def test_a_text_that_changes_under_the_same_commit_time_is_found_after_a_compaction(table):
    """A partial update that comes late changes a column, and leaves the commit time of a newer write."""
    parts = {**OPTIONS, "hoodie.mainstem.write.partial.blocks": "true"}
    writer = mainstem.open_table(table.path, properties=parts)
    with writer.begin(operation="update_columns") as late:
        late.write(pa.table({"id": ["k3"], "ts": [3], "text": ["eeee"]}))
        writer.update_columns(pa.table({"id": ["k3"], "ts": [5], "n": [7]}))
        table.refresh_index("text")
        before = table.scan(filter=pc.field("id") == "k3").to_arrow()
        late.commit()
    table.compact()
    after = table.scan(filter=pc.field("id") == "k3").to_arrow()
    assert (before["text"].to_pylist(), after["text"].to_pylist()) == (["ccc"], ["eeee"])
    assert before["_hoodie_commit_time"] == after["_hoodie_commit_time"]
    for query in ("eeee", "ccc"):
        found = table.search("text", query, 5)
        assert found.equals(table.search("text", query, 5, exact=True, metric="l2"))
    assert table.explain_search("text", "eeee", 1).fresh == 1


def test_a_process_without_the_function_says_so_and_vectors_do_without_it(table, monkeypatch):
    monkeypatch.setattr(embedding, "_registered", {})
    with pytest.raises(Invalid, match="register_embedding"):
        near(table, "ccc")
    assert near(table, [0, 0, 3, 0, 0], 1) == ["k3"]


def test_texts_are_refused_where_nothing_makes_vectors_of_them(table):
    for column in ("id", "n"):
        with pytest.raises(Invalid, match="no vector index with an embedding"):
            table.search(column, "ccc", 1)
    table.drop_index("text")
    with pytest.raises(Invalid, match="give vectors"):
        near(table, "ccc")
    with pytest.raises(Invalid, match="of type string"):
        near(table, [1, 2])


def test_a_function_that_makes_other_vectors_now_is_named(table, monkeypatch):
    monkeypatch.setattr(embedding, "_registered", {})
    mainstem.register_embedding("letters", lambda texts: np.ones((len(texts), 3)))
    table.upsert(rows({"k9": "e"}, ts=3))
    with pytest.raises(Invalid, match="vectors of 3 values, 5 are"):
        near(table, [0, 0, 3, 0, 0])
