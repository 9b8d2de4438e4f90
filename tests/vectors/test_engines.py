"""Goal: every engine of vector indexes keeps the one interface: near neighbours, masks, checked bytes.

Method: clustered and uniform vectors of fixed seeds are built, stored as bytes, loaded and searched; answers
are held against a comparison of all pairs in float64. Damage is made to the bytes before they are loaded.
"""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from mainstem.errors import CorruptTable, Invalid
from mainstem.vectors.distances import METRICS, metric_named, nearest, pair_distances, rerank
from mainstem.vectors.engines import engine, names

VARIANTS = {
    "flat": ("flat", {}),
    "hnsw": ("hnsw", {}),
    "faiss": ("faiss", {}),
    "faiss-pq": ("faiss", {"m_pq": "8", "nlist": "16"}),
}
# Needs a JVM: tests/interop runs the tests of all engines with it.
OTHER = {"jvector": ("jvector", {})}
ROWS, DIMENSION, K = 2500, 16, 10
# Efforts are measured for 0.95; another processor rounds otherwise and may choose the next smaller one.
RECALL = 0.92


def drawn(kind: str, rows: int, seed: int) -> np.ndarray:
    """``rows`` vectors, float32: around forty centres, or anywhere in a cube."""
    random = np.random.default_rng(seed)
    if kind == "uniform":
        return random.uniform(-1, 1, (rows, DIMENSION)).astype(np.float32)
    centres = 3 * np.random.default_rng(99).normal(size=(40, DIMENSION))
    return (centres[random.integers(0, 40, rows)] + random.normal(size=(rows, DIMENSION))).astype(np.float32)


def built(variant: str, vectors: np.ndarray, metric: str):
    """The graph of ``vectors``, loaded from its bytes."""
    name, options = (VARIANTS | OTHER)[variant]
    data = bytes(engine(name).build(vectors, metric, options, threads=1))
    return engine(name).load(data, vectors.shape[1], metric, len(vectors))


def brute(metric: str, queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The nearest rows by all distances in float64, ties by label."""
    all_pairs = np.stack(
        [pair_distances(metric, np.repeat(q[None], len(vectors), 0), vectors) for q in queries]
    )
    order = np.stack([np.lexsort((np.arange(len(vectors)), row))[:k] for row in all_pairs])
    return order, np.take_along_axis(all_pairs, order, 1)


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float((true[:, :, None] == found[:, None, :]).any(axis=2).mean())


@pytest.fixture(scope="module")
def graphs():
    """(variant, kind, metric) -> its vectors and graph, made once."""
    made: dict = {}

    def get(variant: str, kind: str = "clustered", metric: str = "l2"):
        place = variant, kind, metric
        if place not in made:
            vectors = drawn(kind, ROWS * (4 if variant == "faiss-pq" else 1), 1)
            made[place] = vectors, built(variant, vectors, metric)
        return made[place]

    return get


@pytest.mark.supports("Vectors", "index: HNSW graphs (usearch)")
@pytest.mark.supports("Vectors", "index: IVF and IVF-PQ (FAISS)")
@pytest.mark.parametrize(
    ("kind", "metric"),
    [("clustered", "l2"), ("clustered", "dot_product"), ("uniform", "l2"), ("uniform", "cosine")],
)
@pytest.mark.parametrize("variant", ["flat", "hnsw", "faiss"])
def test_the_neighbours_of_new_queries_are_found(graphs, variant: str, kind: str, metric: str) -> None:
    vectors, graph = graphs(variant, kind, metric)
    queries = drawn(kind, 100, 2)
    labels, distances = graph.search(queries, K * graph.oversample)
    true, _ = nearest(metric, queries, vectors, K)
    best, _ = rerank(metric, queries, vectors, labels, K)
    assert recall(best, true) >= (1 if variant == "flat" else RECALL)
    assert (np.diff(distances, axis=1) >= 0).all()
    exact = pair_distances(metric, np.repeat(queries, labels.shape[1], 0), vectors[labels.ravel()])
    assert np.allclose(distances.ravel(), exact, rtol=1e-4, atol=1e-3)


def test_compressed_vectors_find_the_neighbours_among_more_that_are_asked_for(graphs) -> None:
    vectors, graph = graphs("faiss-pq")
    queries = drawn("clustered", 100, 2)
    assert graph.oversample > 1
    labels, _ = graph.search(queries, K * graph.oversample)
    true, _ = nearest("l2", queries, vectors, K)
    assert recall(rerank("l2", queries, vectors, labels, K)[0], true) >= RECALL


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_search_by_hand_and_one_of_a_batch_find_the_same(graphs, variant: str) -> None:
    _, graph = graphs(variant)
    queries = drawn("clustered", 20, 3)
    batch, _ = graph.search(queries, K, threads=1)
    single = np.concatenate([graph.search(q[None], K, threads=1)[0] for q in queries])
    assert (batch == single).all()


@pytest.mark.parametrize("variant", ["flat", "hnsw", "faiss"])
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_a_mask_leaves_only_allowed_rows_and_finds_their_nearest(graphs, variant: str, share: float) -> None:
    vectors, graph = graphs(variant)
    allowed = np.random.default_rng(4).uniform(size=len(vectors)) < share
    queries = drawn("clustered", 50, 5)
    labels, _ = graph.search(queries, K, allowed=allowed)
    assert (labels >= 0).all() and allowed[labels].all()
    true, _ = nearest("l2", queries, vectors, K, allowed=allowed)
    assert recall(labels, true) >= RECALL


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_not_there_is_minus_one_and_infinitely_far(graphs, variant: str) -> None:
    _, graph = graphs(variant)
    queries = drawn("clustered", 3, 6)
    allowed = np.zeros(graph.count, bool)
    assert (graph.search(queries, 2, allowed=allowed)[0] == -1).all()
    allowed[[7, 8, 9]] = True
    labels, distances = graph.search(queries, 5, allowed=allowed)
    assert (np.sort(labels[:, :3], axis=1) == [7, 8, 9]).all()
    assert (labels[:, 3:] == -1).all() and np.isinf(distances[:, 3:]).all()


@pytest.mark.parametrize("metric", ["l2", "dot_product"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_k_above_the_number_of_vectors_finds_all_of_them(variant: str, metric: str) -> None:
    vectors = drawn("uniform", 1200, 7)
    labels, _ = built(variant, vectors, metric).search(vectors[:2], 1300)
    assert (np.sort(labels[:, :1200], axis=1) == np.arange(1200)).all()
    assert (labels[:, 1200:] == -1).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_none_and_one_and_two_vectors_are_indexes_too(variant: str, metric: str) -> None:
    for rows in (0, 1, 2):
        vectors = drawn("uniform", rows, 8)
        graph = built(variant, vectors, metric)
        assert graph.count == rows
        labels, _ = graph.search(drawn("uniform", 1, 9), 3)
        assert sorted(labels[0][labels[0] >= 0]) == list(range(rows))


@pytest.mark.parametrize("variant", VARIANTS)
def test_vectors_that_are_equal_are_all_found(variant: str) -> None:
    vectors = np.repeat(drawn("uniform", 300, 10), 10, axis=0)
    graph = built(variant, vectors, "l2")
    labels, _ = graph.search(vectors[::100], 10 * graph.oversample)
    _, distances = rerank("l2", vectors[::100], vectors, labels, 10)
    assert (distances == 0).mean() >= RECALL


@pytest.mark.parametrize("variant", ["flat", "hnsw", "faiss"])
def test_a_zero_vector_is_at_cosine_distance_one_of_all(variant: str) -> None:
    vectors = drawn("uniform", 2000, 11)
    vectors[5] = 0
    graph = built(variant, vectors, "cosine")
    only = np.zeros(2000, bool)
    only[5] = True
    labels, distances = graph.search(vectors[:1], 1, allowed=only)
    assert (labels[0, 0], distances[0, 0]) == (5, 1)
    _, distances = graph.search(np.zeros((1, DIMENSION), np.float32), 5)
    assert np.allclose(distances, 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_searches_from_several_threads_answer_as_one_does(graphs, variant: str) -> None:
    _, graph = graphs(variant)
    queries = drawn("clustered", 50, 12)
    expected = {ef: graph.search(queries, K, ef, threads=1)[0] for ef in (None, 16, 40)}
    wrong: list[int | None] = []

    def search() -> None:
        for ef, labels in expected.items():
            if not (graph.search(queries, K, ef, threads=1)[0] == labels).all():
                wrong.append(ef)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_thread_and_one_seed_make_the_same_bytes_again(variant: str) -> None:
    name, options = (VARIANTS | OTHER)[variant]
    vectors = drawn("clustered", 1500, 13)
    first, second = (engine(name).build(vectors, "l2", options, threads=1, seed=3) for _ in range(2))
    assert bytes(first) == bytes(second)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bytes_of_something_else_are_refused(variant: str) -> None:
    name, options = (VARIANTS | OTHER)[variant]
    vectors = drawn("clustered", 500, 14)
    data = bytes(engine(name).build(vectors, "l2", options))
    for dimension, metric, count in ((15, "l2", 500), (16, "cosine", 500), (16, "l2", 499)):
        with pytest.raises(CorruptTable, match="expected"):
            engine(name).load(data, dimension, metric, count)
    for other in set(names()) - {name}:
        with pytest.raises(CorruptTable, match="engine"):
            engine(other).load(data, 16, "l2")
    for cut in (b"", data[:10], data[:-1], data[1:], data + b"x", b"\0" * len(data)):
        with pytest.raises(CorruptTable):
            engine(name).load(cut, 16, "l2")


@pytest.mark.parametrize("variant", ["hnsw", "faiss"])
def test_damaged_bytes_are_refused_or_searched_but_end_no_process(variant: str) -> None:
    """In a process of its own, as a library that follows a wrong number would take this one along."""
    code = f"""
import numpy as np
from mainstem.errors import CorruptTable
from mainstem.vectors.engines import engine
random = np.random.default_rng(15)
vectors = random.normal(size=(1500, 4)).astype(np.float32)
data = np.frombuffer(bytes(engine({variant!r}).build(vectors, "l2", {{}}, threads=1)), np.uint8)
refused = 0
for turn in range(120):
    bad = data.copy()
    at = random.integers(0, [200, len(bad), len(bad)][turn % 3])
    bad[at : at + 4] = random.integers(0, 256, len(bad[at : at + 4]))
    try:
        graph = engine({variant!r}).load(bytes(bad), 4, "l2", 1500)
    except CorruptTable:
        refused += 1
    else:
        labels, _ = graph.search(vectors[:5], 10)
        assert ((labels >= -1) & (labels < 1500)).all()
print("refused", refused > 20)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "refused True\n", ran.stderr[-2000:]


def test_an_edge_that_leads_nowhere_is_refused_before_usearch_follows_it() -> None:
    vectors = drawn("uniform", 1500, 16)
    data = bytearray(engine("hnsw").build(vectors, "l2", {}))
    nodes = 8 + 4 * vectors.size + 64 + 40 + 2 * len(vectors)
    first_edge = nodes + 10 + 4
    data[first_edge : first_edge + 4] = (1_000_000).to_bytes(4, "little")
    with pytest.raises(CorruptTable, match="edge"):
        engine("hnsw").load(bytes(data), DIMENSION, "l2")


def test_unknown_engines_metrics_and_options_are_named() -> None:
    with pytest.raises(Invalid, match=r"annoy.*faiss, flat, hnsw, jvector"):
        engine("annoy")
    with pytest.raises(Invalid, match=r"hamming.*cosine"):
        metric_named("hamming")
    with pytest.raises(Invalid, match=r"no option 'trees'.*ef_construction"):
        engine("hnsw").check({"trees": 3})
    with pytest.raises(Invalid, match="between 2 and 256"):
        engine("hnsw").check({"m": "1"})
    with pytest.raises(Invalid, match="whole number"):
        engine("faiss").check({"nlist": "many"})
    with pytest.raises(Invalid, match="twice"):
        engine("hnsw").check({"m": 8, "connectivity": 8})
    with pytest.raises(Invalid, match=r"m_pq=3 .*16"):
        engine("faiss").build(drawn("uniform", 5, 1), "l2", {"m_pq": 3})


def test_options_have_defaults_and_the_names_of_the_libraries() -> None:
    assert engine("hnsw").check({"expansion_add": "64", "M": 8}) == {"m": 8, "ef_construction": 64, "ef": 0}
    assert engine("faiss").check({}) == {"nlist": 0, "nprobe": 0, "m_pq": 0}
    assert metric_named("Euclidean") == "l2" and metric_named("inner_product") == "dot_product"
    assert metric_named(None) == "cosine"


@pytest.mark.parametrize(("name", "library"), [("hnsw", "usearch.index"), ("faiss", "faiss")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch, name, library) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Invalid, match=r"pip install 'mainstem\[vector\]'"):
        engine(name).check({})


def test_vectors_and_queries_of_the_wrong_shape_or_value_are_refused(graphs) -> None:
    _, graph = graphs("flat")
    with pytest.raises(Invalid, match="16 values, the query has 3"):
        graph.search(np.zeros((1, 3)), 1)
    with pytest.raises(Invalid, match="k must be"):
        graph.search(np.zeros((1, 16)), 0)
    with pytest.raises(Invalid, match="mask"):
        graph.search(np.zeros((1, 16)), 1, allowed=np.ones(3, bool))
    with pytest.raises(Invalid, match="finite"):
        engine("flat").build(np.full((1, 4), 1e300), "l2", {})
    with pytest.raises(Invalid, match="two dimensions"):
        engine("flat").build(np.zeros(4), "l2", {})


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("metric", METRICS)
def test_exact_search_is_that_of_all_distances_in_float64(metric: str, kind: type) -> None:
    vectors = (20 * np.random.default_rng(17).normal(size=(9000, 12))).astype(kind)
    vectors[30:60] = vectors[3]
    vectors[70] = 0
    if kind is np.float64:  # beyond what float32 tells apart, or holds
        vectors[80:90] = vectors[3] * (1 + 1e-12)
        vectors[90], vectors[91] = vectors[90] * 1e30, vectors[91] * 1e-40
    queries = np.concatenate([vectors[[3, 70]], 20 * np.random.default_rng(18).normal(size=(20, 12))])
    labels, distances = nearest(metric, queries, vectors, 40)
    true, apart = brute(metric, queries, vectors, 40)
    assert (labels == true).all() and (distances == apart).all()
