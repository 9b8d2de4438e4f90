"""Goal: Java reads what we archived, goes on archiving and merging our levels; we go on after Java.

Method: one small table with small bounds, whose archive has files of several row groups, levels and
authors; Java's snapshot, time travel, changes over archived instants and its own list of archived commits
are compared with ours, and a replayed micro-batch is looked for whoever archived it.
"""

from __future__ import annotations

from pathlib import Path

import event_batches
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from compare import assert_rows_of, assert_same, without_meta
from java_hudi import JavaHudi, as_of_options, changes_options, nbcc_options
from test_interop_services import SCHEMA, rows_of

import mainstem
from mainstem.lsm_archive.reader import Archive
from mainstem.storage.local import LocalStorage
from mainstem.writers.stream_guard import StreamGuard

pytestmark = pytest.mark.supports("Engines", "Java Hudi 1.2.0 reads what mainstem archived and goes on")
BOUNDS = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "3",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
}
OPTIONS = nbcc_options(
    "archived", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2,
    extra={**BOUNDS, "hoodie.archive.automatic": "true"},
)  # fmt: skip


@pytest.fixture
def table(path: str, monkeypatch: pytest.MonkeyPatch) -> mainstem.Table:
    monkeypatch.setattr("mainstem.lsm_archive.writer._GROUP_ROWS", 2)
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="archived",
        properties=BOUNDS,
    )  # fmt: skip


def fill(table: mainstem.Table, count: int) -> None:
    for _ in range(count):
        newest = max((row for row in table.scan().to_arrow()["ts"].to_pylist()), default=0)
        table.upsert(rows_of(range(newest % 7, newest % 7 + 6), newest + 1))


def put(table: mainstem.Table, batch: int) -> str:
    with table.begin("upsert", guard=StreamGuard("s", batch)) as txn:
        txn.write(rows_of(range(3), 10_000 + batch))
        return txn.commit().status


def archive_of(table: mainstem.Table) -> Archive:
    return Archive.load(LocalStorage(table.path))


def check_same(java: JavaHudi, table: mainstem.Table) -> None:
    """Every answer of Java is ours, over active and archived instants, and its list of the archive too."""
    ours = mainstem.open_table(table.path)
    keys = ["id", "_hoodie_commit_time"]
    snapshot = ours.scan().to_arrow()
    gone = archive_of(table).instants()
    newest = max(i.requested for i in ours.timeline() if i.is_completed)
    afters = ("000", gone[len(gone) // 2].completion)
    queries = [{}, as_of_options(newest), *map(changes_options, afters)]
    mine = [snapshot, ours.scan(as_of=newest).to_arrow()]
    for after in afters:
        # Of archived instants Java shows what the newest snapshot still holds (docs/tables.md).
        instants = pc.unique(ours.changes(after=after).to_arrow()["_hoodie_commit_time"])
        mine.append(snapshot.filter(pc.is_in(snapshot["_hoodie_commit_time"], instants)))
    for found, expected in zip(java.read_many(table.path, queries), mine, strict=True):
        assert isinstance(found, pa.Table), found
        assert_same(found, expected, keys)
    name = f"archived_{abs(hash(table.path))}"
    java.call("sql", text=f"create table if not exists {name} using hudi location '{table.path}'")
    # Without bounds it shows what is between ten days and one day old.
    ends = "start_ts => '20000101000000000', end_ts => '29990101000000000'"
    procedure = f"call show_archived_commits(table => '{name}', limit => 1000, {ends})"
    shown = java.call("sql", text=procedure)["rows"]
    listed = [row[0] for row in shown]
    assert len(listed) == len(set(listed)) and set(listed) <= {i.requested for i in gone}
    assert set(listed) >= {i.requested for i in gone if i.action == "deltacommit"}


def test_java_reads_our_archive_goes_on_with_it_and_we_go_on_after_java(
    java: JavaHudi, table: mainstem.Table
) -> None:
    assert put(table, 0) == "committed"
    fill(table, 2)
    table.compact()
    fill(table, 3)
    assert table.archive().instants >= 4
    (only,) = archive_of(table).manifest.files
    assert pq.ParquetFile(Path(table.path) / ".hoodie/timeline/history" / only.name).num_row_groups > 1
    check_same(java, table)
    ours = {i.requested for i in archive_of(table).instants()}

    for turn in range(6):  # Java archives its own and our commits, and merges our file with its own
        java.write(table.path, rows_of(range(turn, turn + 5), 100 + turn), OPTIONS)
        files = archive_of(table).manifest.files
        if only.name not in {file.name for file in files}:
            break
    theirs = {i.requested for i in archive_of(table).instants()}
    assert {file.level for file in files} >= {1} and theirs > ours
    assert only.name not in {file.name for file in files}
    check_same(java, table)
    assert put(table, 0) == "already_committed", "whoever archived it"

    before = {file.name for file in archive_of(table).manifest.files}
    for _ in range(6):  # and we merge Java's files with ours
        fill(table, 2)
        table.archive()
        files = archive_of(table).manifest.files
        if before - {file.name for file in files}:
            break
    assert {i.requested for i in archive_of(table).instants()} > theirs
    assert before - {file.name for file in files} and max(file.level for file in files) >= 1
    check_same(java, table)
    java.write(table.path, rows_of(range(5), 10**6), OPTIONS)
    check_same(java, table)


def test_a_batch_that_java_archived_is_found_for_ever(java: JavaHudi, table: mainstem.Table) -> None:
    for batch in range(2):
        assert put(table, batch) == "committed"
    for turn in range(5):
        java.write(table.path, rows_of(range(turn, turn + 5), turn), OPTIONS)
        if len(archive_of(table).instants()) > 1:
            break
    assert archive_of(table).instants(), "Java archived"
    assert put(table, 1) == put(table, 0) == "already_committed"
    assert put(mainstem.open_table(table.path), 2) == "committed"


def test_a_java_archiver_finds_what_a_dead_one_of_ours_left(java: JavaHudi, table: mainstem.Table) -> None:
    """A data file and a manifest that no version names: Java replaces both, and so do we after it."""
    fill(table, 5)
    table.archive()
    fill(table, 3)
    folder = Path(table.path) / ".hoodie/timeline/history"
    oldest = [i.requested for i in table.timeline()]
    (folder / f"{oldest[0]}_{oldest[2]}_0.parquet").write_bytes(b"cut off")
    (folder / "manifest_2").write_text('{ "files" : [ ] }')
    java.write(table.path, rows_of(range(5), 500), OPTIONS)
    check_same(java, table)
    fill(table, 3)
    table.archive()
    check_same(java, table)


def test_java_takes_nothing_for_pending_beside_restores_and_cleans_that_were_archived(
    java: JavaHudi, path: str
) -> None:
    """It would lay the log files of archived commits on newer base files, and show old rows."""
    bounds = {**BOUNDS, "hoodie.clean.fileversions.retained": "1"}
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="city", buckets=2, name="archived", properties=bounds
    )
    fill(table, 2)
    table.savepoint()
    (saved,) = table.savepoints()
    fill(table, 1)
    table.restore(saved.instant)
    table.delete_savepoint(saved.instant)
    for turn in range(3):
        fill(table, 2)
        table.compact()
        if turn == 1:
            assert table.clean()
    fill(table, 3)
    assert table.archive().instants > 6
    assert {"restore", "clean"} <= {i.action for i in archive_of(table).instants()}
    assert {i.action for i in table.timeline()} == {"deltacommit"}
    check_same(java, table)


@pytest.mark.parametrize("compacted_after", [None, 9])
def test_of_a_range_with_an_archived_commit_java_shows_some_of_the_rows_that_we_show(
    java: JavaHudi, path: str, compacted_after: int | None
) -> None:
    """The commit was long in flight: requested before what is archived, completed among the last."""
    bounds = {"hoodie.keep.min.commits": "6", "hoodie.keep.max.commits": "8"}
    table = mainstem.create_table(
        path, event_batches.SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties={**BOUNDS, **bounds},
    )  # fmt: skip
    batches = [event_batches.batch(1, number) for number in range(15)]
    late = event_batches.batch(2, 0)
    with table.begin("upsert") as long:
        long.write(late)
        for number, batch in enumerate(batches[:14]):
            last = table.upsert(batch)
            if number == compacted_after:
                table.compact()
        long.commit()
    table.upsert(batches[14])
    assert table.archive().instants
    assert long.instant in {i.requested for i in archive_of(table).instants()}
    mine = table.changes(after=str(last.completion_time)).to_arrow()
    assert_same(event_batches.newest([late, batches[14]]), without_meta(mine), ["id"])
    snapshot = table.scan().to_arrow()
    instants = pc.unique(mine["_hoodie_commit_time"])
    theirs = java.changes(path, str(last.completion_time))
    assert_rows_of(mine, theirs, ["id"])
    assert_rows_of(theirs, snapshot.filter(pc.is_in(snapshot["_hoodie_commit_time"], instants)), ["id"])
    if compacted_after is not None:
        assert theirs.num_rows > snapshot.filter(pc.is_in(snapshot["_hoodie_commit_time"], instants)).num_rows
