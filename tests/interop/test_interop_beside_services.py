"""Goal: one side's services run while the other side's writers write, and nothing is lost.

Method: Java and two mainstem processes upsert the same keys without pause while mainstem compacts,
cleans and archives as often as it can; then the other way round: mainstem processes write while Java
compacts, cleans and archives. The table must hold, per key, the row with the newest event time of
everything committed, as computed from the batches alone; Java and mainstem must read the same cells,
snapshot, base files and changes over archived instants, and list the same timeline.
"""

from __future__ import annotations

from pathlib import Path

import event_batches
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_rows_of, assert_same, without_meta
from java_hudi import JavaHudi
from test_interop_concurrent import Run, wait_for

import mainstem
from mainstem.lsm_archive.reader import Archive

OFTEN = {
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "6",
    "hoodie.keep.max.commits": "8",
}
JAVA_SERVICES = {
    **OFTEN,
    "hoodie.compact.inline": "true",
    "hoodie.clean.automatic": "true",
    "hoodie.archive.automatic": "true",
}


@pytest.fixture
def run(java: JavaHudi, tmp_path: Path) -> Run:
    return Run.on_new_table(java, tmp_path, "served")


def start_ours(run: Run) -> None:
    for number in range(2):
        run.start(number)
    (run.signals / "go").touch()


def stop_ours(run: Run) -> None:
    (run.signals / "stop").touch()
    for writer in run.writers:
        writer.finish()


def completed(table: mainstem.Table, action: str) -> int:
    """Active or archived: fast writers leave a slow service's instants behind soon."""
    archived = Archive.load(table.opened.seams.storage, table.config.history).instants()
    done = [i.action for i in (*table.timeline(), *archived) if i.completion]
    return done.count(action)


def check(run: Run, table: mainstem.Table) -> None:
    """Nothing lost, nothing doubled, both sides read the same, also of archived instants."""
    snapshot = table.scan().to_arrow()
    assert_same(run.expected(), without_meta(snapshot), ["id"])
    assert_same(run.java.read(run.path), snapshot, ["id"])
    optimized = table.scan(mode="read_optimized").to_arrow()
    assert_same(run.java.read_optimized(run.path), optimized, ["id"])
    check_changes(run, table, snapshot)


def check_changes(run: Run, table: mainstem.Table, snapshot: pa.Table) -> None:
    """The retained commits' changes; those before them were cleaned.

    Where one of the commits is archived already, Java searches the newest file slices: it leaves out rows
    that a compaction or one of their log files overwrote. So it answers with some of the rows, at least
    with those that are still the newest. A compaction within the range leaves out what lost in it on both
    sides.
    """
    done = sorted(i.completion for i in table.timeline() if i.completion and i.action == "deltacommit")
    mine = table.changes(after=done[-3]).to_arrow()
    instants = set(mine["_hoodie_commit_time"].to_pylist())
    batches = {line["instant"]: (w.number, line["commit"]) for w in run.writers for line in w.commits()}
    written = [event_batches.batch(*batches[i]) for i in sorted(instants) if i in batches]
    still = snapshot.filter(pc.is_in(snapshot["_hoodie_commit_time"], pa.array(sorted(instants))))
    key = ["id", "_hoodie_commit_time"]
    if instants <= batches.keys():
        if any(i.action == "commit" and (i.completion or "") > done[-3] for i in table.timeline()):
            assert_rows_of(pa.concat_tables(written), without_meta(mine), ["id", "ts"])
            assert_rows_of(mine, still, key)
        else:
            assert_same(event_batches.newest(written), without_meta(mine), ["id"])
    theirs = run.java.changes(run.path, done[-3])
    active = {i.requested for i in table.timeline()}
    if instants <= active:
        assert_same(theirs, mine, key)
    else:
        assert_rows_of(mine, theirs, key)
        assert_rows_of(theirs, still, key)


def test_changes_over_a_compaction_leave_out_the_late_rows_that_lost_in_it_on_both_sides(
    java: JavaHudi, run: Run
) -> None:
    table = mainstem.open_table(run.path)
    before = [table.upsert(event_batches.batch(0, commit)) for commit in range(12)][-1]
    late = event_batches.batch(0, 12)
    table.upsert(late)
    table.compact()
    table.upsert(event_batches.batch(1, 13))
    mine = table.changes(after=before.completion_time).to_arrow()
    kept = without_meta(mine).filter(pc.equal(mine["writer"], 0))
    assert 0 < kept.num_rows < late.num_rows
    assert_rows_of(late, kept, ["id"])
    assert_same(run.java.changes(run.path, before.completion_time), mine, ["id"])


@pytest.mark.timeout(900)
def test_mainstem_compacts_cleans_and_archives_while_java_writes(java: JavaHudi, run: Run) -> None:
    table = mainstem.open_table(run.path, OFTEN)
    files = [java.rows_file(event_batches.batch(3, commit)) for commit in range(10)]
    rounds = 0
    try:
        start_ours(run)
        java.send("write_loop", path=run.path, files=files, options=run.options)
        while not java.answered():
            for ran in table.run_services():
                assert ran.error is None, ran.describe()
            rounds += 1
        run.java_commits = len(java.receive()["commits"])
        stop_ours(run)
    finally:
        for writer in run.writers:
            writer.end()
    while rounds < 3:  # Java was quick
        assert all(ran.error is None for ran in table.run_services())
        rounds += 1
    assert run.java_commits == 10
    assert completed(table, "commit") and completed(table, "clean")
    assert list(Path(run.path, ".hoodie/timeline/history").glob("*.parquet")), "nothing was archived"
    check(run, table)
    java.call("sql", text=f"create table served using hudi location '{run.path}'")
    # Without bounds it shows what is between ten days and one day old.
    ends = "start_ts => '20000101000000000', end_ts => '29990101000000000'"
    procedure = f"call show_archived_commits(table => 'served', limit => 1000, {ends})"
    archived = java.call("sql", text=procedure)["rows"]
    active = java.call("sql", text="call show_commits(table => 'served', limit => 1000)")["rows"]
    java.call("sql", text="drop table served")
    ours = {line["instant"] for writer in run.writers for line in writer.commits()}
    assert ours <= {row[0] for row in archived + active}
    assert ours & {row[0] for row in archived}


@pytest.mark.timeout(900)
def test_java_compacts_cleans_and_archives_while_mainstem_writes(java: JavaHudi, run: Run) -> None:
    table = mainstem.open_table(run.path)
    try:
        start_ours(run)
        wait_for(lambda: all(len(writer.commits()) >= 2 for writer in run.writers))
        files = [java.rows_file(event_batches.batch(3, commit)) for commit in range(6)]
        options = {**run.options, **JAVA_SERVICES}
        run.java_commits = len(
            java.call("write_loop", path=run.path, files=files, options=options)["commits"]
        )
        stop_ours(run)
    finally:
        for writer in run.writers:
            writer.end()
    assert run.java_commits == 6
    assert completed(table, "commit") and completed(table, "clean")
    assert list(Path(run.path, ".hoodie/timeline/history").glob("*.parquet")), "nothing was archived"
    check(run, table)
