"""Goal: on tables without buckets, as Java makes them by default, both engines find each other's keys.

Method: Java makes the table, and both write it in turn: updates of each other's rows, new keys, deletes, and
compactions by either. After each step the snapshot must be the rows computed from the batches, and Java's
answer must be ours. Then both write at once, each with keys of its own and with common ones.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same, without_meta
from java_hudi import LOCK_PROVIDER, JavaFailed, JavaHudi

import mainstem
from mainstem.writers.write_task import write_task

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
#: what a Spark job gives that follows Hudi's quick start, and what several writers need
OPTIONS = {
    "hoodie.table.name": "plain",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": LOCK_PROVIDER,
    "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
    "hoodie.write.lock.client.num_retries": "2400",
    "hoodie.compact.inline": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}
#: index -> what Java's jobs need for it
KINDS = {
    "SIMPLE": {},
    "BLOOM": {},
    "GLOBAL_SIMPLE": {},
    "GLOBAL_BLOOM": {},
    "GLOBAL_RECORD_LEVEL_INDEX": {"hoodie.metadata.global.record.level.index.enable": "true"},
    "RECORD_LEVEL_INDEX": {"hoodie.metadata.record.level.index.enable": "true"},
}


def given(kind: str) -> dict[str, str]:
    of_bloom = "hoodie.bloom.index.update.partition.path" if kind == "GLOBAL_BLOOM" else ""
    return {"hoodie.index.type": kind, of_bloom or "hoodie.simple.index.update.partition.path": "false"}


def rows(numbers: range | list[int], ts: int, value: str) -> pa.Table:
    """Even keys lie in one partition, odd ones in the other."""
    found = [(f"k{n}", ("oslo", "rome")[n % 2], ts, f"{value}{n}") for n in numbers]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def newest(*batches: pa.Table) -> pa.Table:
    """The row of each key with the highest ordering value, the last one of equals."""
    every = pa.concat_tables(batches)
    best: dict[str, tuple[int, int]] = {}
    for at, (key, ts) in enumerate(zip(every["id"].to_pylist(), every["ts"].to_pylist(), strict=True)):
        best[key] = max(best.get(key, (0, 0)), (ts, at))
    return every.take(sorted(at for _, at in best.values()))


def check(java: JavaHudi, table: mainstem.Table, expected: pa.Table) -> None:
    found = mainstem.open_table(table.path).scan().to_arrow()
    assert_same(expected, without_meta(found), ["id"])
    assert_same(java.read_by_default(table.path), found, ["id"])


@pytest.mark.supports("Writing", "Tables without buckets, beside Java")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_both_engines_find_each_others_keys(java: JavaHudi, tmp_path: Path, kind: str) -> None:
    path, options = tmp_path / "plain", {**OPTIONS, **given(kind), **KINDS[kind]}
    batches = [rows(range(40), 1, "java")]
    java.write(path, batches[0], options)
    table = mainstem.open_table(path, {"hoodie.mainstem.services": "off", **given(kind)})
    check(java, table, newest(*batches))

    batches.append(rows(range(30, 60), 2, "ours"))  # of known and new keys
    table.upsert(batches[-1])
    check(java, table, newest(*batches))
    batches.append(rows(range(50, 70), 3, "java again"))  # of ours, and new ones
    java.write(path, batches[-1], options)
    check(java, table, newest(*batches))
    batches.append(rows([0, 35, 55, 65, 80], 2, "late"))  # loses where it is older
    table.upsert(batches[-1])
    check(java, table, newest(*batches))

    gone = pa.array(["k1", "k31", "k51", "k61"])
    table.delete(rows([1, 31, 51, 61], 0, "").select(["id", "city"]))
    left = newest(*batches)
    left = left.filter(pc.invert(pc.is_in(left["id"], value_set=gone)))
    check(java, table, left)

    table.compact()
    check(java, table, left)
    more = rows(range(20, 90), 5, "both")  # deleted keys come back, to either engine
    table.upsert(more.slice(0, 40))
    java.write(path, more.slice(30), options)
    left = newest(left, more)
    check(java, table, left)
    java.compact(path, options)
    check(java, table, left)
    table.upsert(rows(range(100), 6, "all"))
    check(java, table, rows(range(100), 6, "all"))
    report = table.validate_metadata()
    assert report is None or report.ok, report


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["GLOBAL_SIMPLE", "GLOBAL_BLOOM", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_both_engines_move_each_others_keys(java: JavaHudi, tmp_path: Path, kind: str) -> None:
    indexes = ("simple", "bloom", "record")
    moves = {f"hoodie.{index}.index.update.partition.path": "true" for index in indexes}
    given = {"hoodie.index.type": kind, **moves}
    path, options = tmp_path / "plain", {**OPTIONS, **given, **KINDS[kind]}

    def to(city: str, batch: pa.Table) -> pa.Table:
        return batch.set_column(1, "city", pa.array([city] * len(batch)))

    batches = [rows(range(20), 2, "java")]
    java.write(path, batches[0], options)
    table = mainstem.open_table(path, {"hoodie.mainstem.services": "off", **given})
    batches.append(to("lima", pa.concat_tables([rows(range(10), 3, "ours"), rows([12], 1, "late")])))
    table.upsert(batches[-1])
    check(java, table, newest(*batches))
    moved = [to("oslo", rows(range(5, 15), 4, "java")), to("lima", rows([16], 1, "late"))]
    batches.append(pa.concat_tables(moved))
    java.write(path, batches[-1], options)  # those that moved here, too
    check(java, table, newest(*batches))
    batches.append(to("rome", rows([0, 6, 7, 17, 30], 5, "ours")))  # those that moved there, too
    table.upsert(batches[-1])
    check(java, table, newest(*batches))
    table.delete(to("nowhere", rows([6, 8, 18], 0, "")).select(["id", "city"]))
    left = newest(*batches)
    left = left.filter(pc.invert(pc.is_in(left["id"], value_set=pa.array(["k6", "k8", "k18"]))))
    check(java, table, left)
    java.compact(path, options)
    check(java, table, left)
    table.upsert(to("lima", rows([1, 6, 9], 7, "ours")))
    java.write(path, to("rome", rows([1, 8], 8, "java")), options)
    left = newest(left, to("lima", rows([1, 6, 9], 7, "ours")), to("rome", rows([1, 8], 8, "java")))
    check(java, table, left)
    table.compact()
    check(java, table, left)
    report = table.validate_metadata()
    assert report is None or report.ok, report


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["SIMPLE", "RECORD_LEVEL_INDEX"])
def test_java_reads_overwrites_and_goes_on(java: JavaHudi, tmp_path: Path, kind: str) -> None:
    path, options = tmp_path / "plain", {**OPTIONS, **given(kind), **KINDS[kind]}
    java.write(path, rows(range(20), 5, "java"), options)
    table = mainstem.open_table(path, {"hoodie.mainstem.services": "off", **given(kind)})
    new = rows([2, 4, 30], 1, "new")  # all of the one partition
    table.insert_overwrite(new)
    left = newest(rows(range(1, 20, 2), 5, "java"), new)
    check(java, table, left)
    more = rows([2, 6, 7, 40], 6, "more")  # of what was kept, hidden, and never there
    java.write(path, more, options)
    left = newest(left, more)
    check(java, table, left)
    java.compact(path, options)
    check(java, table, left)
    table.truncate()
    check(java, table, left.slice(0, 0))
    last = rows(range(8), 1, "last")
    java.write(path, last, options)
    check(java, table, last)
    table.upsert(rows([1, 50], 2, "ours"))
    check(java, table, newest(last, rows([1, 50], 2, "ours")))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_java_goes_on_with_a_table_that_was_made_here(java: JavaHudi, tmp_path: Path, kind: str) -> None:
    options = {**OPTIONS, **given(kind), **KINDS[kind]}
    table = mainstem.create_table(
        tmp_path / "plain", SCHEMA, record_key="id", ordering="ts", partition_by="city",
        properties={"hoodie.index.type": kind, "hoodie.mainstem.services": "off"}, name="plain",
    )  # fmt: skip
    batches = [rows(range(20), 1, "ours"), rows(range(10, 30), 2, "java"), rows(range(40), 3, "ours")]
    table.upsert(batches[0])
    java.write(table.path, batches[1], options)
    check(java, table, newest(*batches[:2]))
    table = mainstem.open_table(table.path)
    table.upsert(batches[2])
    check(java, table, batches[2])
    java.compact(table.path, options)
    check(java, table, batches[2])


@pytest.mark.timeout(900)
def test_java_reads_what_filled_small_file_groups_and_writes_after_a_compaction(
    java: JavaHudi, tmp_path: Path
) -> None:
    path, alone = tmp_path / "plain", {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.services": "off"}
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city",
        properties={**given("SIMPLE"), **alone},
    )  # fmt: skip
    batches = [rows(range(20), 1, "first"), rows(range(10, 40), 2, "second"), rows(range(30, 50), 3, "third")]
    for batch in batches:
        table.upsert(batch)
    files = table.scan(columns=["_hoodie_file_name"]).to_arrow()["_hoodie_file_name"].to_pylist()
    assert len({name[:36] for name in files}) == 2  # one in each partition
    check(java, table, newest(*batches))
    table.compact()
    batches.append(rows(range(0, 60, 3), 4, "java"))
    java.write(path, batches[-1], {**OPTIONS, **given("SIMPLE")})
    check(java, table, newest(*batches))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_both_engines_write_at_once_and_lose_nothing(java: JavaHudi, tmp_path: Path, kind: str) -> None:
    path, options = tmp_path / "plain", {**OPTIONS, **given(kind), **KINDS[kind]}
    java.write(path, rows(range(40), 1, "java"), options)
    table = mainstem.open_table(path, given(kind))
    ours, theirs = [], [rows(range(40), 1, "java")]
    for number in range(4):
        ts = 10 + 2 * number
        # Java goes on where its own rules end it: it has written no row then.
        theirs.append(rows([*range(10), *range(1000 * number + 100, 1000 * number + 120)], ts, "theirs"))
        name = java.rows_file(theirs[-1])
        java.send("write", path=str(path), rows=name, options=options, mode="append", types={})
        while not java.answered():
            step = len(ours)
            keys = [*range(5, 15), *range(5000 + 20 * step, 5020 + 20 * step)]
            ours.append(rows(keys, ts + 1, f"ours{step}-"))
            assert table.upsert(ours[-1]).status == "committed"
        try:
            java.receive()
        except JavaFailed as error:
            assert "Conflict" in str(error) or "conflict" in str(error), error
            theirs.pop()
    assert len(ours) >= 4
    # One time for all of ours that Java's round saw: the last one in the order of requests counts.
    found = table.scan().to_arrow()
    keys = found["_hoodie_record_key"].to_pylist()
    meant = {key for batch in (*ours, *theirs) for key in batch["id"].to_pylist()}
    assert len(keys) == len(set(keys)), "a key is doubled"
    assert set(keys) == meant
    alone = newest(*[b.filter(pc.greater(pc.utf8_length(b["id"]), 3)) for b in (*ours, *theirs)])
    mine = without_meta(found).filter(pc.greater(pc.utf8_length(found["id"]), 3))
    assert_same(alone, mine, ["id"])
    assert_same(java.read_by_default(path), found, ["id"])
    java.compact(path, options)
    assert_same(java.read_by_default(path), table.scan().to_arrow(), ["id"])
    assert table.scan().to_arrow().num_rows == len(meant)


@pytest.mark.supports("Services", "clustering of tables without buckets, of plans of either engine")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["SIMPLE", "RECORD_LEVEL_INDEX"])
def test_each_engine_executes_a_clustering_that_the_other_planned(
    java: JavaHudi, tmp_path: Path, kind: str
) -> None:
    path, options = tmp_path / "plain", {**OPTIONS, **given(kind), **KINDS[kind]}
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", name="plain",
        properties={**given(kind), "hoodie.mainstem.services": "off", "hoodie.parquet.small.file.limit": "0"},
    )  # fmt: skip
    if kind != "SIMPLE":
        table.create_index("record_index")
    batches = [rows(range(40), 1, "ours"), rows(range(30, 60), 2, "more")]
    for batch in batches:
        table.upsert(batch)
    (done,) = table.cluster("value")  # ours, as Java reads it
    assert done.completion is not None and done.replaced == 4 and len(done.files) == 2
    check(java, table, newest(*batches))

    batches.append(rows(range(50, 90), 3, "again"))
    table.upsert(batches[-1])
    planned = table.schedule_clustering("ts")
    assert planned is not None
    java.run_clustering(path, options, planned)
    assert ("replacecommit", "completed") in [
        (i.action, i.state) for i in table.timeline() if i.requested == planned
    ]
    check(java, table, newest(*batches))

    batches.append(rows(range(0, 120, 3), 4, "java"))
    java.write(path, batches[-1], options)
    planned = java.schedule_clustering(path, options)
    assert planned is not None
    (done,) = table.run_clustering()
    assert (done.requested, bool(done.completion)) == (planned, True)
    check(java, table, newest(*batches))

    batches += [rows(range(100), 5, "ours last"), rows(range(50, 150), 6, "java last")]
    table.upsert(batches[-2])
    java.write(path, batches[-1], options)
    check(java, table, newest(*batches))
    report = table.validate_metadata()
    assert report is None or report.ok, report


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["GLOBAL_SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_java_finds_keys_where_an_overwrite_took_them_and_rows_of_tasks(
    java: JavaHudi, tmp_path: Path, kind: str
) -> None:
    path, options = tmp_path / "plain", {**OPTIONS, **given(kind), **KINDS[kind]}
    java.write(path, rows(range(20), 5, "java"), options)
    table = mainstem.open_table(path, {"hoodie.mainstem.services": "off", **given(kind)})
    new = rows([2, 4, 3, 30], 1, "new")
    new = new.set_column(1, "city", pa.array(["oslo"] * 4))  # k3 lives in rome
    table.insert_overwrite(new)
    left = pa.concat_tables([rows([n for n in range(1, 20, 2) if n != 3], 5, "java"), new])
    check(java, table, left)
    more = rows([2, 3, 7, 40], 6, "more")
    more = more.set_column(1, "city", pa.array(["oslo", "oslo", "rome", "oslo"]))
    java.write(path, more, options)
    left = newest(left, more)
    check(java, table, left)

    spec = table.begin().detach()  # as a job of Spark's does
    handed = rows([3, 5, 50], 7, "tasks").set_column(1, "city", pa.array(["oslo", "rome", "oslo"]))
    result = write_task(spec, handed.to_batches(), task_partition=0, stage=1, attempt=0)
    with table.resume(spec) as txn:
        txn.add_task_result(result)
        txn.commit()
    left = newest(left, handed)
    check(java, table, left)
    java.compact(path, options)
    check(java, table, left)
    report = table.validate_metadata()
    assert report is None or report.ok, report
