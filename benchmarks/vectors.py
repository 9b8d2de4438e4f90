"""Vector search: recall and queries per second, fresh rows, refreshes, and upserts of four writers beside it.

One table of 128 values per vector, clustered and uniform, divided into four clusters by default settings. The
bare library is usearch on one graph over the same vectors, searched with the least of its efforts that
reaches the same recall. The bound of single queries is usearch on the graphs of the index's own clusters, all
of them, with the least effort that reaches the recall of the index, in turn or two at once, whichever is
faster, and nothing else: no list of versions, no fresh rows, no merge of what the graphs find. LanceDB has an
environment of its own (``.venv-lance``) and its HNSW index, searched with the least effort that reaches 0.95.
Searches ask for record keys; tables stay open between them.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mainstem
from benchmarks import FOLDER, Row, asked, bound, row, work_folder
from benchmarks.vectors_peer import DIMENSION, alone, batch, race
from mainstem.storage.local import LocalStorage
from mainstem.vectors.engines.engine_file import FOOTER_BYTES
from mainstem.vectors.index.versions import RECORD_KEY, indexes, newest_version, open_keys

K, QUERIES, SINGLES = 10, 1000, 200
COLUMNS = ["_hoodie_record_key"]
LANCE = FOLDER.parent / ".venv-lance" / "bin" / "python"
# What jobs that embed texts again write at once.
_BATCH_ROWS = (500, 5_000)
_EFFORTS = (
    16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896,
    1024,
)  # fmt: skip
_TURNS = 5


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    rows = 50_000 if reduced else 1_000_000
    found: list[Row] = []
    for shape in ("clustered",) if reduced else ("clustered", "uniform"):
        folder = work_folder("vectors")
        try:
            found += _searches(folder, shape, rows, fresh=(0.01, 0.1) if reduced else (0.01, 0.1, 0.5))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found + _writers(20_000 if reduced else 100_000, 1 if reduced else 3, 10.0)


def vectors(shape: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors, and queries of the same kind."""
    chance = np.random.default_rng(17)
    count = rows + QUERIES
    made = chance.random((count, DIMENSION), dtype=np.float32)
    if shape == "clustered":
        middles = chance.normal(size=(max(20, rows // 1000), DIMENSION)).astype(np.float32)
        made = middles[chance.integers(len(middles), size=count)] + (made - 0.5)
    return made[:rows], made[rows:]


def _searches(folder: Path, shape: str, rows: int, fresh: tuple[float, ...]) -> list[Row]:
    stored, queries = vectors(shape, rows)
    table = mainstem.create_table(
        folder / "t", batch(stored[:1], 0).schema, record_key="id", ordering="ts", buckets=4,
        vectors={"v": f"VECTOR({DIMENSION})"},
    )  # fmt: skip
    table.bulk_insert(batch(stored, 0))
    alone(sys.executable, {"what": "index", "folder": str(folder)})
    built, memory = np.load(folder / "built.npy").tolist()
    exact = _keys(table.search("v", queries, K, metric="l2", exact=True, columns=COLUMNS))
    answer = _keys(table.search("v", queries, K, columns=COLUMNS))
    work = f"{rows:,} x {DIMENSION} {shape}"
    recall = _recall(answer, exact)
    slow = _rate(lambda at: table.search("v", queries[at], K, exact=True, metric="l2", columns=COLUMNS), 3)
    single, theirs, least, many, together, note, made = _beside_bare(table, stored, queries, exact, recall)
    found = [
        row(f"recall@10, {work}", recall, "", against="brute force", baseline=1.0, target=0.95),
        _beside(f"queries one by one, {work}", single, "bare usearch", theirs, asked(0.5, least / theirs),
                f"{note}; bound: the index's graphs bare {least / theirs:.2f}x"),
        _beside(f"queries by 1,000, {work}", many, "bare usearch", together, 0.5, note),
        _beside(f"queries one by one, {work}", single, "exact scan", slow, 50.0),
        row(f"create the index, {work}", rows / built, "vectors/s", against="bare usearch",
            baseline=rows / made, target=1 / 1.3),
        _memory(memory, stored, work),
    ]  # fmt: skip
    found += _lance_searches(folder, stored, queries, exact, single, many, work)
    return found + _fresh(table, stored, queries, fresh, work)


def _memory(taken: float, stored: np.ndarray, work: str) -> Row:
    name, times = f"memory of a refresh, {work}", taken / stored.nbytes
    note = f"{taken / 2**20:.0f} MiB beside what the process had with all of its libraries"
    if len(stored) < 1_000_000:  # reading rows takes some, however many there are
        return row(name, times, "x the vectors", note=note)
    return bound(name, times, "x the vectors", most=1.5, note=note)


def _fresh(
    table: mainstem.Table, stored: np.ndarray, queries: np.ndarray, shares: tuple[float, ...], work: str
) -> list[Row]:
    """Some rows are written again, with the vectors that they had."""
    every = QUERIES * _rate(lambda at: table.search("v", queries, K, columns=COLUMNS), 3)
    found = []
    for share in shares:
        table.upsert(batch(stored[: int(share * len(stored))], 1))
        table.search("v", queries[0], K, columns=COLUMNS)
        some = QUERIES * _rate(lambda at: table.search("v", queries, K, columns=COLUMNS), 3)
        target = 1 / 3 if share == 0.1 else None
        name = f"queries by 1,000 with {share:.0%} of rows fresh, {work}"
        found.append(_beside(name, some, "all refreshed", every, target))
    return found


def _beside_bare(
    table: mainstem.Table, stored: np.ndarray, queries: np.ndarray, exact: list[set[str]], recall: float
) -> tuple[float, float, float, float, float, str, float]:
    """Queries per second one by one: ours, those of one bare graph, and those of the index's own graphs bare;
    then together; a note of the graphs, and how long the build of the one took."""
    index, note, made = _bare(stored, queries, exact, recall)
    graphs, reached = _own_graphs(table, queries, exact, recall)
    with ThreadPoolExecutor(2) as pool:
        single, theirs, in_turn, two = _in_turns(
            SINGLES,
            lambda at: table.search("v", queries[at], K, columns=COLUMNS),
            lambda at: index.search(queries[at], K),
            lambda at: [graph.search(queries[at], K, threads=1) for graph in graphs],
            lambda at: list(pool.map(lambda graph: graph.search(queries[at], K, threads=1), graphs)),
        )
    many, together = _in_turns(
        3, lambda at: table.search("v", queries, K, columns=COLUMNS), lambda at: index.search(queries, K)
    )
    note = f"{note}; {reached}"
    return single, theirs, max(in_turn, two), QUERIES * many, QUERIES * together, note, made


def _own_graphs(
    table: mainstem.Table, queries: np.ndarray, exact: list[set[str]], recall: float
) -> tuple[list[Any], str]:
    """The graphs of the index's clusters in the bare library, with the least effort that reaches the recall
    if all of them are searched, and a note of it."""
    from usearch.index import Index

    storage = LocalStorage(table.path)
    version = newest_version(storage, indexes(storage)[0])
    graphs, keys = [], []
    for number, cluster in enumerate(version.clusters):
        graphs.append(Index(ndim=DIMENSION, metric="l2sq", dtype="f32", enable_key_lookups=False))
        data = Path(table.path, version.path(cluster.graph)).read_bytes()
        graphs[-1].load(data[:-FOOTER_BYTES])
        keys.append(np.array(open_keys(storage, version, number)[RECORD_KEY].to_pylist()))
    for effort in _EFFORTS:
        parts = []
        for graph, names in zip(graphs, keys, strict=True):
            graph.expansion_search = effort
            answer = graph.search(queries, K)
            parts.append((names[answer.keys.astype(np.int64)], answer.distances))
        names, apart = (np.concatenate(both, axis=1) for both in zip(*parts, strict=True))
        best = np.argsort(apart, axis=1)[:, :K]
        reached = _recall([set(one) for one in np.take_along_axis(names, best, 1).tolist()], exact)
        if reached >= min(recall, 0.99):
            break
    return graphs, f"the index's graphs {reached:.3f} at {effort}"


def _bare(
    stored: np.ndarray, queries: np.ndarray, exact: list[set[str]], recall: float
) -> tuple[Any, str, float]:
    """One graph with the least effort that reaches the recall, a note of it, and how long the build took."""
    from usearch.index import Index

    index = Index(ndim=DIMENSION, metric="l2sq", dtype="f32", connectivity=16, expansion_add=128)
    began = time.perf_counter()
    index.add(np.arange(len(stored)), stored, copy=False)
    built = time.perf_counter() - began
    for effort in _EFFORTS:
        index.expansion_search = effort
        keys = index.search(queries, K).keys
        reached = _recall([{f"k{key:08d}" for key in one} for one in keys], exact)
        if reached >= min(recall, 0.99):
            break
    return index, f"its recall {reached:.3f} at {effort}", built


def _lance_searches(
    folder: Path,
    stored: np.ndarray,
    queries: np.ndarray,
    exact: list[set[str]],
    single: float,
    many: float,
    work: str,
) -> list[Row]:
    if not LANCE.exists():
        note = "not installed: python scripts/environment.py install lance"
        return [row(f"queries, {work}", None, "", against="LanceDB", note=note)]
    np.save(folder / "stored.npy", stored)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "exact.npy", np.array([[int(key[1:]) for key in sorted(one)] for one in exact]))
    alone(str(LANCE), {"what": "search", "folder": str(folder)})
    told = np.load(folder / "told.npy")
    note = f"its recall {told[2]:.3f}"
    return [
        _beside(f"queries one by one, {work}", single, "LanceDB", told[0], 2.0, note),
        _beside(f"queries by 1,000, {work}", many, "LanceDB", told[1], 2.0, note),
    ]


def _writers(keys: int, rounds: int, seconds: float) -> list[Row]:
    """Four writers with an index on the table, without one, and LanceDB's merge_insert, in turns; medians."""
    ours = dict.fromkeys(("plain", "indexed"), sys.executable)
    systems = {**ours, "lance": str(LANCE)}
    if not LANCE.exists():
        del systems["lance"]
    races = [
        (name, rows, fsync)
        for rows in _BATCH_ROWS for fsync in (True, False) for name in systems if name != "lance" or not fsync
    ]  # fmt: skip
    told: dict[tuple, list[tuple[float, int]]] = {one: [] for one in races}
    folder = work_folder("vector-writers")
    try:
        specs = {}
        for name, python in systems.items():
            made = {"what": "make", "system": name, "folder": str(folder / name / "made"), "keys": keys}
            specs[name] = made
            alone(python, made)
        for _ in range(rounds):
            for name, rows, fsync in races:
                told[name, rows, fsync].append(race(systems[name], specs[name], rows, fsync, seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rates = {one: statistics.median(rate for rate, _ in found) for one, found in told.items()}
    refused = {one: sum(count for _, count in found) for one, found in told.items()}
    found = []
    for rows in _BATCH_ROWS:
        for fsync in (True, False):
            synced = "fsync" if fsync else "no fsync"
            work = f"upserts of {rows:,} rows by 4 writers into {keys:,} rows, index on, {synced}"
            ours, plain = (rates[name, rows, fsync] for name in ("indexed", "plain"))
            found.append(_beside(work, ours, "without an index", plain, 0.8))
        if "lance" not in systems:
            found.append(row(work, ours, "rows/s", against="LanceDB merge_insert", note="not installed"))
            continue
        note = f"conflicts: {refused['indexed', rows, False]}, LanceDB's: {refused['lance', rows, False]}"
        found.append(_beside(work, ours, "LanceDB merge_insert", rates["lance", rows, False], 5.0, note))
    return found


def _beside(work: str, ours: float, against: str, theirs: float, target: float | None, note: str = "") -> Row:
    return row(work, ours, "/s", against=against, baseline=float(theirs), target=target, note=note)


def _rate(work: Callable[[int], object], times: int) -> float:
    work(0)
    began = time.perf_counter()
    for at in range(times):
        work(at)
    return times / (time.perf_counter() - began)


def _in_turns(times: int, *works: Callable[[int], object]) -> list[float]:
    """Medians of the rates of all, which take turns: what else goes on meets each."""
    rates = [[_rate(work, times) for work in works] for _ in range(_TURNS)]
    return [statistics.median(found) for found in zip(*rates, strict=True)]


def _keys(answer: pa.Table) -> list[set[str]]:
    keys = np.array(answer[COLUMNS[0]].to_pylist()).reshape(QUERIES, K)
    return [set(one) for one in keys.tolist()]


def _recall(found: list[set[str]], exact: list[set[str]]) -> float:
    pairs = zip(found, exact, strict=True)
    return sum(len(one & true) for one, true in pairs) / sum(map(len, exact))
