"""Goal: our merge is Java's, also where the rules have corners: late rows, ties, deletes and
revivals, rows marked as deleted, partial updates, before and after a compaction.

Method: random histories on few keys, written by mainstem in every merge mode, with a Java
compaction in the middle; after every few commits Java's snapshot and changes are compared with
ours in every cell.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import READ_OPTIMIZED, JavaFailed, JavaHudi, changes_options, nbcc_options

import mainstem
from mainstem.readers.queries.scan_plan import ScanPlan

# Writers come one after the other, on one clock.
NO_WAIT = {"hoodie.time.generator.max_expected_clock_skew_ms": "1"}

FIELDS = [
    ("id", pa.int64()),
    ("city", pa.string()),
    ("ts", pa.int64()),
    ("a", pa.string()),
    ("b", pa.float64()),
]
MARK = ("_hoodie_is_deleted", pa.bool_())
MODES = [
    (merge, partial, marked)
    for merge in ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
    for partial in (False, True)
    for marked in (False, True)
]


def batch(chance: random.Random, schema: pa.Schema, number: int) -> pa.Table:
    """A few rows, each key once; ordering values around each other, cells often null."""
    ids = chance.sample(range(8), 5)
    columns = {
        "id": ids,
        "city": [("paris", "rome")[i % 2] for i in ids],
        "ts": [chance.randrange(1, 6) for _ in ids],
        "a": [None if chance.random() < 0.5 else f"a{number}" for _ in ids],
        "b": [None if chance.random() < 0.5 else number / 4 for _ in ids],
    }
    if MARK[0] in schema.names:
        columns[MARK[0]] = [chance.random() < 0.3 for _ in ids]
    return pa.table(columns, schema=schema)


def check_same(java: JavaHudi, path: str, *queries: tuple[dict[str, str], ScanPlan]) -> None:
    """Java's query with these options, and our plan, give the same rows."""
    answers = java.read_many(path, [options for options, _ in queries])
    for theirs, (_, plan) in zip(answers, queries, strict=True):
        assert not isinstance(theirs, JavaFailed), theirs
        assert_same(theirs, plan.to_arrow(), ["id"])


@pytest.mark.parametrize(("merge", "partial", "marked"), MODES)
def test_random_histories_read_the_same(
    java: JavaHudi, path: str, merge: str, partial: bool, marked: bool
) -> None:
    schema = pa.schema([*FIELDS, MARK] if marked else FIELDS)
    properties = {"hoodie.record.merge.mode": merge}
    if partial:
        properties["hoodie.table.partial.update.mode"] = "IGNORE_DEFAULTS"
    mainstem.create_table(
        path,
        schema,
        record_key="id",
        ordering="ts",
        partition_by="city",
        buckets=1,
        name="merged",
        properties=properties,
    )
    table = mainstem.open_table(path, properties=NO_WAIT)
    options = nbcc_options(
        "merged",
        record_key=["id"],
        ordering=["ts"],
        partition_by=["city"],
        buckets=1,
        extra=properties,
    )
    chance = random.Random(f"{merge} {partial} {marked}")
    start = None
    for number in range(1, 13):
        if chance.random() < 0.3:
            ids = chance.sample(range(8), 2)
            outcome = table.delete(pa.table({"id": ids, "city": [("paris", "rome")[i % 2] for i in ids]}))
        else:
            outcome = table.upsert(batch(chance, schema, number))
        if number % 3 == 0:
            window = (start or "000", outcome.completion_time)
            changes = (changes_options(*window), table.changes(*window))
            check_same(java, path, ({}, table.scan()), changes)
            start = outcome.completion_time
        if number == 6:
            java.compact(path, options)
            optimized = table.scan(mode="read_optimized")
            check_same(java, path, ({}, table.scan()), (READ_OPTIMIZED, optimized))
