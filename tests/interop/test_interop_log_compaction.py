"""Goal: Java reads, goes on with and compacts what we merged, executes our plans, and we execute Java's.

Method: one history per merge mode with late rows, deletes of both kinds and a transaction of ours in
flight; before and after each step Java's answers (snapshot, time travel, changes) are compared with
ours and with those before; what follows meets a twin that was never merged.
"""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi, as_of_options, changes_options, nbcc_options

import mainstem
from mainstem.services import compaction_plan, log_compaction

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)  # fmt: skip
MODES = {
    "event time": (["ts"], {}),
    "commit time": ([], {}),
    "partial": ([], {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
}

pytestmark = pytest.mark.supports("Engines", "Java Hudi 1.2.0 reads compacted logs and executes their plans")


def rows(ids, ts: int, name: str | None = "", gone: bool = False) -> pa.Table:
    ids = list(ids)
    return pa.table(
        {
            "id": ids,
            "city": [("paris", "rome")[i % 2] for i in ids],
            "name": [None if name is None else f"{name}{i} at {ts}" for i in ids],
            "ts": [ts] * len(ids),
            "_hoodie_is_deleted": [gone] * len(ids),
        },
        schema=SCHEMA,
    )


def options(mode: str) -> dict[str, str]:
    return nbcc_options(
        "merged", record_key=["id"], ordering=MODES[mode][0], partition_by=["city"], buckets=1
    )


def make(path: str, mode: str) -> mainstem.Table:
    ordering, properties = MODES[mode]
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering=ordering, partition_by="city", buckets=1, name="merged",
        properties={**properties, "hoodie.mainstem.fsync": False},
    )  # fmt: skip


def begin(table: mainstem.Table) -> None:
    table.upsert(rows(range(10), 100))
    table.upsert(rows(range(2, 6), 50, "late "))
    table.delete(rows([0, 1], 0).select(["id", "city"]))
    table.upsert(rows([2, 3], 150, gone=True))
    table.upsert(rows([1, 2], 120, "after the delete "))
    table.upsert(rows(range(4, 8), 110, None))


def check_same(java: JavaHudi, *tables: mainstem.Table) -> None:
    for table in tables:
        assert_same(java.read(table.path), table.scan().to_arrow(), ["id"])
    plain = [t.scan(columns=SCHEMA.names).to_arrow() for t in tables]
    for other in plain[1:]:
        assert_same(plain[0], other, ["id"])


@pytest.mark.parametrize("mode", MODES)
def test_java_reads_what_we_merged_and_what_follows_meets_what_it_would_have_met(
    java: JavaHudi, path: str, mode: str
) -> None:
    merged, twin = make(path, mode), make(path + "2", mode)
    for table in (merged, twin):
        begin(table)
    older = merged.timeline()
    changes = changes_options(older[1].completion, older[4].completion)
    queries = [{}, as_of_options(older[2].requested), changes]
    answers = java.read_many(path, queries)
    beside = mainstem.open_table(
        path, {"hoodie.mainstem.log.compaction.beside.writers": "true", "hoodie.mainstem.fsync": False}
    )
    with merged.begin() as early, twin.begin() as early_twin:
        (done,) = beside.log_compact()
        assert done.completion and done.log_files == 12
        for before, after in zip(answers, java.read_many(path, queries), strict=True):
            assert isinstance(before, pa.Table) and isinstance(after, pa.Table), (before, after)
            assert_same(before, after, ["id"])
        for table in (merged, twin):
            table.upsert(rows([3, 7], 110, "beside "))
        for transaction in (early, early_twin):
            transaction.write(rows([3, 4, 7], 110, "early "))
            transaction.commit()
    check_same(java, merged, twin)
    for table in (merged, twin):
        java.write(table.path, rows(range(12), 115, "java "), options(mode))
        table.upsert(rows([3], 140, "below the delete "))
    check_same(java, merged, twin)
    assert merged.log_compact()[0].completion
    check_same(java, merged, twin)
    java.compact(path, options(mode))
    twin.compact()
    check_same(java, merged, twin)


def test_java_executes_a_plan_that_we_made_and_we_one_that_java_made(java: JavaHudi, path: str) -> None:
    table = make(path, "event time")
    begin(table)
    before = table.scan(columns=SCHEMA.names).to_arrow()
    planned = table.schedule_log_compaction()
    java.run_log_compaction(path, options("event time"), planned)
    assert planned in {i.requested for i in table.timeline() if i.action == "deltacommit" and i.completion}
    assert_same(before, table.scan(columns=SCHEMA.names).to_arrow(), ["id"])
    check_same(java, table)
    table.upsert(rows([3], 140, "below the delete "))
    table.upsert(rows([5], 160, "newer "))
    before = table.scan(columns=SCHEMA.names).to_arrow()
    planned = java.schedule_log_compaction(path, options("event time"))
    table.upsert(rows([30], 1))
    (done,) = table.run_log_compaction(planned)
    assert done.requested == planned and done.completion
    assert table.scan().count_rows() == before.num_rows + 1
    check_same(java, table)
    table.compact()
    check_same(java, table)


def test_a_merged_block_whose_sources_went_into_the_base_file_counts_for_nothing(
    java: JavaHudi, path: str
) -> None:
    table = make(path, "commit time")
    table.upsert(rows([0], 1, "first "))
    table.upsert(rows([0], 2, "second "))
    planned = table.schedule_log_compaction()
    table.upsert(rows([0], 3, "third "))
    with patch.object(compaction_plan, "taken_groups", lambda state: set()):
        compaction = table.schedule_compaction()
    with patch.object(log_compaction, "broken", lambda *_: None):
        assert table.run_log_compaction(planned)[0].completion
    table.run_compaction(compaction)
    assert table.scan().to_arrow()["name"].to_pylist() == ["third 0 at 3"]
    check_same(java, table)


def test_java_plans_over_a_write_in_flight_and_hides_it_and_we_do_not(java: JavaHudi, path: str) -> None:
    """If Java ever does otherwise, SAFETY.md says too much."""
    for executor in ("java", "mainstem"):
        table = make(f"{path}-{executor}", "commit time")
        table.upsert(rows([0], 1, "oldest "))
        with table.begin() as early:
            early.write(rows([0], 2, "in flight "))
            table.upsert(rows([2], 3, "newest "))
            planned = java.schedule_log_compaction(table.path, options("commit time"))
            if executor == "java":
                java.run_log_compaction(table.path, options("commit time"), planned)
            else:
                with pytest.raises(mainstem.Unavailable, match="is in flight"):
                    table.run_log_compaction(planned)
            early.commit()
        table.run_log_compaction()
        shown = dict(zip(*java.read(table.path).select(["id", "name"]).to_pydict().values(), strict=True))
        assert shown[0] == ("oldest 0 at 1" if executor == "java" else "in flight 0 at 2")
        check_same(java, table)


def test_java_reads_blocks_that_were_merged_again_beside_a_write_in_flight(java: JavaHudi, path: str) -> None:
    table = make(path, "event time")
    beside = mainstem.open_table(
        path, {"hoodie.mainstem.log.compaction.beside.writers": "true", "hoodie.mainstem.fsync": False}
    )
    table.upsert(rows([0], 9, "before the delete "))
    table.upsert(rows([2], 1))
    deleting, after, last = table.begin("delete"), table.begin(), table.begin()
    assert len(beside.log_compact()) == 1
    deleting.write(rows([0], 0).select(["id", "city"]))
    deleting.commit()
    after.write(rows([0], 1, "after the delete "))
    after.commit()
    assert len(beside.log_compact()) == 1
    last.write(rows([2], 2, "last "))
    last.commit()
    found = dict(zip(*java.read(path).select(["id", "name"]).to_pydict().values(), strict=True))
    assert found == {0: "after the delete 0 at 1", 2: "last 2 at 2"}
    check_same(java, table)
