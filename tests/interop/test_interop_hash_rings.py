"""Goal: under consistent hashing both engines write each other's tables, also after Java split file groups.

Method: a table that one of the two makes, written by both in turn, with partitions that either meets first;
Java plans and executes a clustering that splits file groups beside transactions of mainstem. The snapshot
must be the rows computed from the batches, and Java's answer must be ours.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from java_hudi import LOCK_PROVIDER, JavaFailed, JavaHudi, nbcc_options

import mainstem
from mainstem.errors import RolledBack

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
CITIES = ("paris", "rome", "oslo")
ENGINE = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
_STRATEGIES = "org.apache.hudi.client.clustering"
OPTIONS = nbcc_options(
    "ringed", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2,
    extra={
        **ENGINE,
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        # Hudi's default for buckets reads a number out of file ids, and fails beside any other instant.
        "hoodie.write.lock.conflict.resolution.strategy":
            "org.apache.hudi.client.transaction.SimpleConcurrentFileWritesConflictResolutionStrategy",
        "hoodie.bucket.index.max.num.buckets": "8",
        "hoodie.bucket.index.min.num.buckets": "1",
        "hoodie.clustering.plan.strategy.class":
            f"{_STRATEGIES}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
        "hoodie.clustering.execution.strategy.class":
            f"{_STRATEGIES}.run.strategy.SparkConsistentBucketClusteringExecutionStrategy",
        "hoodie.clustering.updates.strategy":
            f"{_STRATEGIES}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy",
        "hoodie.parquet.max.file.size": "3000",  # so that file groups are split
    },
)  # fmt: skip
QUIET = {"hoodie.mainstem.services": "off", "hoodie.mainstem.fsync": "false"}


def rows(numbers: range, ts: int, value: str) -> pa.Table:
    found = [(f"k{n} é", CITIES[n % len(CITIES)], ts, f"{value}{n}") for n in numbers]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def newest(*batches: pa.Table) -> pa.Table:
    """Later batches win: their ordering values are higher."""
    best = {row["id"]: row for batch in batches for row in batch.to_pylist()}
    return pa.Table.from_pylist(list(best.values()), schema=SCHEMA)


def file_groups(path: Path) -> set[tuple[str, str]]:
    """Those that a query reads."""
    found = mainstem.open_table(path).scan(columns=["city", "_hoodie_file_name"]).to_arrow().to_pylist()
    return {(row["city"], row["_hoodie_file_name"][:36]) for row in found}


@pytest.mark.supports("Writing", "Consistent hashing, beside Java, also after Java split file groups")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("made_by", ["mainstem", "java"])
def test_both_engines_follow_the_rings(java: JavaHudi, tmp_path: Path, made_by: str) -> None:
    path = tmp_path / "ringed"
    of_two = [n for n in range(120) if n % 3 < 2]  # without oslo
    batches = [rows(range(120), 1, "first").take(of_two)]
    if made_by == "java":
        java.write(path, batches[0], OPTIONS)
        given = {**ENGINE, "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
        table = mainstem.open_table(path, {**QUIET, **given, "hoodie.mainstem.timeline.zone": "UTC"})
    else:
        table = mainstem.create_table(
            path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="ringed",
            properties={**QUIET, **ENGINE},
        )  # fmt: skip
        table.upsert(batches[0])

    def ours(batch: pa.Table) -> None:
        batches.append(batch)
        table.upsert(batch)

    def javas(batch: pa.Table) -> None:
        batches.append(batch)
        java.write(path, batch, OPTIONS)

    def check(expected: pa.Table | None = None) -> None:
        found = mainstem.open_table(path).scan().to_arrow()
        assert_same(newest(*batches) if expected is None else expected, without_meta(found), ["id"])
        assert_same(java.read_by_default(path), found, ["id"])

    check()
    (javas if made_by == "mainstem" else ours)(rows(range(60, 180), 2, "other"))  # oslo is new
    (ours if made_by == "mainstem" else javas)(rows(range(30, 150), 3, "first again"))
    check()
    table.compact()
    before = file_groups(path)

    with table.begin() as open_meanwhile:  # beside it Java plans none
        assert java.schedule_clustering(path, OPTIONS) is None
        open_meanwhile.abort()
    planned = java.schedule_clustering(path, OPTIONS)
    assert planned is not None
    with pytest.raises(RolledBack, match=f"pending clustering {planned} replaces them"):
        table.upsert(rows(range(180), 4, "never"))
    with table.begin() as late:
        late.write(rows(range(180), 5, "late"))
        java.run_clustering(path, OPTIONS, planned)
        late.commit()
    batches.append(rows(range(180), 5, "late"))
    check()
    split = file_groups(path)
    assert len(split) > len(before)

    ours(rows(range(200), 6, "ours after it"))
    check()
    assert file_groups(path) == split
    javas(rows(range(100, 220), 7, "java's after it"))
    table.compact()
    ours(rows(range(50, 240), 8, "ours again"))
    table.delete(rows(range(9), 0, "").select(["id", "city"]))
    left = newest(*batches)
    left = left.filter(pa.array([int(key[1:-2]) >= 9 for key in left["id"].to_pylist()]))
    check(left)
    java.compact(path, OPTIONS)
    check(left)

    # Java goes on where we split and merge, and executes a plan of ours.
    def resized(size: int) -> mainstem.Table:
        given = {"hoodie.parquet.max.file.size": size, "hoodie.bucket.index.max.num.buckets": 8,
                 "hoodie.bucket.index.min.num.buckets": 1}  # fmt: skip
        return mainstem.open_table(path, {**table.opened.given, **given})

    (merged,) = resized(10**9).services.cluster()
    assert merged.completion is not None and len(merged.files) == 3
    check(left)
    java.write(path, rows(range(20, 50), 9, "java's on merged ones"), OPTIONS)
    left = newest(left, rows(range(20, 50), 9, "java's on merged ones"))
    check(left)
    ours_planned = resized(1).services.schedule_clustering()
    assert ours_planned is not None
    java.run_clustering(path, OPTIONS, ours_planned)
    check(left)
    java.write(path, rows(range(240), 10, "java's at last"), OPTIONS)
    resized(1).upsert(rows(range(120, 250), 11, "ours at last"))
    left = newest(rows(range(240), 10, "java's at last"), rows(range(120, 250), 11, "ours at last"))
    check(left)


@pytest.mark.timeout(1200)
def test_java_writes_beside_pending_plans_of_both_and_we_execute_its_plans(
    java: JavaHudi, tmp_path: Path
) -> None:
    path = tmp_path / "ringed"
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="ringed",
        properties={**QUIET, **ENGINE},
    )  # fmt: skip
    splits = {"hoodie.parquet.max.file.size": 1, "hoodie.bucket.index.max.num.buckets": 8}
    table = mainstem.open_table(path, {**QUIET, **splits})
    batches = [rows(range(90), 1, "first")]
    table.upsert(batches[0])

    def check() -> None:
        found = mainstem.open_table(path).scan().to_arrow()
        assert_same(newest(*batches), without_meta(found), ["id"])
        assert_same(java.read_by_default(path), found, ["id"])

    # Java writes to old and new file groups beside a plan, and then finds that this is a conflict.
    ours = table.services.schedule_clustering()
    assert ours is not None
    with pytest.raises(JavaFailed, match="Cannot resolve conflicts for overlapping writes"):
        java.write(path, rows(range(40, 120), 2, "never"), OPTIONS)
    check()
    (ended,) = table.services.run_clustering(ours)
    assert ended.completion is not None or "of another engine is in flight" in ended.why
    check()
    java.write(path, rows(range(80), 3, "java after it"), OPTIONS)
    batches.append(rows(range(80), 3, "java after it"))
    check()

    table.rollback_failed_writes()
    table.compact()
    theirs = java.schedule_clustering(path, OPTIONS)
    assert theirs is not None
    (done,) = table.services.run_clustering(theirs)
    assert done.completion is not None
    check()
    for writer in (table.upsert, lambda batch: java.write(path, batch, OPTIONS)):
        batches.append(rows(range(len(batches), 130), 4 + len(batches), "after it"))
        writer(batches[-1])
        check()
