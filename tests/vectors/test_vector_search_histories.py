"""Goal: whatever happened to a table, a search by the index finds what a comparison of all rows finds.

Method: random histories with fixed seeds, of every kind of write and service, with the exact engine; after
each step several questions are asked, and each answer is held against distances computed from a full scan.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable, Unsupported

OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
    "hoodie.mainstem.fsync": "false",
    "hoodie.clean.commits.retained": "4",
    "hoodie.keep.min.commits": "6",
    "hoodie.keep.max.commits": "7",
}
PARTIAL = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.list_(pa.float32())),
        ("kind", pa.string()),
    ]
)
STEPS, KEYS, DIMENSION, K = 12, 60, 3, 6


class History:
    """One table, and what is done to it."""

    def __init__(self, path, seed: int, metric: str, partial: bool) -> None:
        self.chance = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.partial = partial
        self.saved: str | None = None
        self.table = mainstem.create_table(
            path, SCHEMA, record_key="id", ordering="ts", partition_by="part", buckets=2,
            properties={**OPTIONS, **(PARTIAL if partial else {})},
        )  # fmt: skip
        self.table.upsert(self.rows(KEYS))
        self.table.create_index(
            "vector", ["v"], options={"engine": "flat", "metric": metric, "clusters": "3"}
        )

    def rows(self, most: int) -> pa.Table:
        count = self.chance.randint(1, most)
        ids = [f"k{n:02d}" for n in self.chance.sample(range(KEYS), count)]
        vectors = [
            None if self.chance.random() < 0.1 and not self.partial else self.numbers.normal(size=DIMENSION)
            for _ in ids
        ]
        return pa.table(
            {
                "id": ids,
                "part": ["xy"[int(key[1:]) % 2] for key in ids],
                "ts": [self.chance.randint(1, 5) for _ in ids],
                "v": vectors,
                "kind": [self.chance.choice("abc") for _ in ids],
            },
            schema=SCHEMA,
        )

    def step(self) -> str:
        steps = ["upsert"] * 6 + ["delete", "delete", "compact", "compact", "refresh", "clean", "archive"]
        steps += ["rollback", "savepoint", "restore", "log_compact", "open", "late", "late"]
        steps += ["update_columns"] * 4 if self.partial else ["bulk_insert"]
        chosen = self.chance.choice(steps)
        getattr(self, f"_{chosen}")()
        return chosen

    def _upsert(self) -> None:
        self.table.upsert(self.rows(20))

    def _bulk_insert(self) -> None:
        self.table.bulk_insert(self.rows(20))

    def _delete(self) -> None:
        self.table.delete(self.rows(8))

    def _update_columns(self) -> None:
        vectors = self.chance.random() < 0.5
        self.table.update_columns(self.rows(15).drop_columns(["kind" if vectors else "v"]))

    def _late(self) -> None:
        """Two writers cross: the one that began first commits last, beside a compaction at times."""
        with self.table.begin() as first:
            first.write(self.rows(10))
            self.table.upsert(self.rows(10))
            if self.chance.random() < 0.5:
                self.table.compact()
            first.commit()

    def _compact(self) -> None:
        self.table.compact()

    def _log_compact(self) -> None:
        self.table.log_compact()

    def _refresh(self) -> None:
        self.table.refresh_index("v")

    def _clean(self) -> None:
        self.table.clean()

    def _archive(self) -> None:
        self.table.archive()

    def _rollback(self) -> None:
        try:
            self.table.rollback(self.table.timeline()[-1].requested)
        except (Invalid, Unsupported):  # no commit, or one that others rest on
            self.table.upsert(self.rows(5))

    def _savepoint(self) -> None:
        if self.saved is None:
            commits = [i for i in self.table.timeline() if i.action == "deltacommit" and i.is_completed]
            if commits:
                self.saved = commits[-1].requested
                self.table.savepoint(self.saved)

    def _restore(self) -> None:
        if self.saved is not None:
            self.table.restore(self.saved)
            self.table.delete_savepoint(self.saved)
            self.saved = None

    def _open(self) -> None:
        """Another process, which remembers nothing."""
        self.table = mainstem.open_table(self.table.path, properties=OPTIONS)

    def check(self) -> bool:
        """Answers for now and for a moment of the past, with and without filter; whether by the index."""
        done = [i for i in self.table.timeline() if i.action == "deltacommit" and i.is_completed]
        past = [instant.requested for instant in done]
        moments = [None, self.chance.choice(past)] if past else [None]
        filters = [None, pc.field("kind") == "a", (pc.field("part") == "x") & (pc.field("ts") > 2)]
        queries = self.numbers.normal(size=(3, DIMENSION))
        for moment in moments:
            for filter in filters:
                try:
                    every = self.table.scan(filter=filter, as_of=moment).to_arrow()
                except (Invalid, Unavailable):
                    assert moment is not None  # cleaned, or not settled
                    continue
                answer = self.table.search("v", queries, K, filter=filter, as_of=moment)
                expect_nearest(answer, every, queries, self.metric)
        return not self.table.explain_search("v", queries, K).exact

    metric = "l2"


def expect_nearest(answer: pa.Table, every: pa.Table, queries: np.ndarray, metric: str) -> None:
    every = every.filter(pc.is_valid(every["v"]))
    vectors = np.array(every["v"].to_pylist(), np.float64).reshape(every.num_rows, queries.shape[1])
    keys = every["_hoodie_record_key"].to_pylist()
    for number, query in enumerate(queries):
        apart = distances(metric, vectors, query)
        order = sorted(range(len(keys)), key=lambda at: (apart[at], keys[at]))[:K]
        mine = answer.filter(pc.field("_hudi_query_index") == number)
        assert mine["_hoodie_record_key"].to_pylist() == [keys[at] for at in order]
        assert mine["_hudi_distance"].to_pylist() == pytest.approx([apart[at] for at in order])
        plain = every.drop_columns(["v"]).take(pa.array(order, pa.int64()))
        assert mine.select(plain.column_names).to_pylist() == plain.to_pylist()


def distances(metric: str, vectors: np.ndarray, query: np.ndarray) -> list[float]:
    if metric == "l2":
        return np.linalg.norm(vectors - query, axis=1).tolist()
    if metric == "dot_product":
        return (-vectors @ query).tolist()
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    return (1 - vectors @ query / lengths).tolist()


@pytest.mark.parametrize(
    ("seed", "metric", "partial"),
    [(1, "cosine", False), (2, "dot_product", True)],
)
def test_after_every_step_the_index_finds_what_a_full_scan_finds(tmp_path, seed, metric, partial):
    history = History(tmp_path / "t", seed, metric, partial)
    history.metric = metric
    done, indexed = [], history.check()
    for _ in range(STEPS):
        done.append(history.step())
        try:
            indexed += history.check()
        except AssertionError as error:
            raise AssertionError(f"after {done}: {error}") from error
    assert indexed > STEPS // 2
