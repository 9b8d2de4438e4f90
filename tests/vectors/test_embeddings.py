"""Goal: registered functions make vectors of texts, and what they return wrongly is named.

Method: small functions, good and bad ones; null texts, equal texts, texts in several chunks.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.vectors.index import embedding
from mainstem.vectors.index.embedding import embed, embedder, register_embedding


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(embedding, "_registered", {})


def of_lengths(texts):
    return np.array([[len(text), text.count("a")] for text in texts], float)


def test_texts_become_float32_vectors_by_the_name_of_the_function():
    mainstem.register_embedding("lengths-v1", of_lengths)
    found = embed("lengths-v1", ["a", "", "banana"])
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 1], [0, 0], [6, 3]]
    assert embed("lengths-v1", []).shape == (0, 0)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_column_is_embedded_without_its_nulls_and_equal_texts_once(kind):
    given = []

    def counted(texts):
        given.extend(texts)
        return of_lengths(texts).tolist()

    register_embedding("counted", counted)
    column = pa.chunked_array([pa.array(["a", None, "bb", "a"], kind), pa.array([None, "a", "cat"], kind)])
    vectors, rows = embedder("counted")(column)
    assert vectors.tolist() == [[1, 1], [2, 0], [1, 1], [1, 1], [3, 1]]
    assert rows.tolist() == [0, 2, 3, 5, 6]
    assert sorted(given) == ["a", "bb", "cat"]


def test_a_column_of_nulls_or_without_rows_has_no_vectors():
    register_embedding("lengths", of_lengths)
    for column in (pa.chunked_array([pa.nulls(2, pa.string())]), pa.chunked_array([], pa.string())):
        vectors, rows = embedder("lengths")(column)
        assert (len(vectors), len(rows)) == (0, 0)


def test_many_texts_are_given_in_pieces():
    sizes = []

    def sized(texts):
        sizes.append(len(texts))
        return of_lengths(texts)

    register_embedding("sized", sized)
    assert len(embed("sized", ["x"] * 10_000)) == 10_000
    assert sum(sizes) == 10_000
    assert max(sizes) < 10_000


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (np.zeros((1, 2)), "returned 1 vectors for 2 texts"),
        (np.zeros(2), r"of the shape \(2,\) for 2 texts; expected \(2, dimension\)"),
        (np.zeros((2, 0)), r"of the shape \(2, 0\)"),
        ([[1.0], [float("nan")]], "NaN or infinity of text 1, 'b'"),
        ([[1e300], [0.0]], "NaN or infinity of text 0, 'a'"),
        ([["x"], ["y"]], "array of <U1"),
        ([[1.0], [1.0, 2.0]], "no array of numbers"),
        (None, "array of object"),
        (np.zeros((2, 65_537), np.int8), "dimension up to 65536"),
    ],
    ids=str,
)
def test_what_a_function_returns_wrongly_is_named(returned, said):
    register_embedding("wrong", lambda texts: returned)
    with pytest.raises(Invalid, match=f"embedding function 'wrong' .*{said}"):
        embed("wrong", ["a", "b"])


def test_an_error_of_the_function_and_a_changed_dimension_are_named():
    register_embedding("fails", lambda texts: texts[7])
    with pytest.raises(Invalid, match="'fails' failed on 1 texts: IndexError"):
        embed("fails", ["a"])
    register_embedding("grows", lambda texts: np.zeros((len(texts), len(texts))))
    with pytest.raises(Invalid, match="of 1808 and of 4096 numbers"):
        embed("grows", ["a"] * 10_000)


def test_a_function_that_is_not_registered_is_asked_for():
    register_embedding("other", of_lengths)
    for ask in (lambda: embed("mine", ["a"]), lambda: embedder("mine")):
        with pytest.raises(Invalid, match=r"no embedding function 'mine' \(registered: other\)"):
            ask()


@pytest.mark.parametrize("name", ["", "a b", "-x", "x\n", "é", "x" * 201, 7])
def test_names_that_are_none_are_refused(name):
    with pytest.raises(Invalid, match="the name of an embedding function"):
        register_embedding(name, of_lengths)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(Invalid, match="'x' is a int, which cannot be called"):
        register_embedding("x", 5)
