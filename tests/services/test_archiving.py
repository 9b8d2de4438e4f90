"""Goal: archiving takes old instants from the active timeline and changes no answer, whoever dies, stops,
races or replays.

Method: small tables with small bounds are archived while transactions are open; archivers die at every
storage call; two meet in every order; archives are damaged; every answer, look-up and streaming guard
before is compared with the one after.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.api.real_seams import fence_of
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, LeaseLost, RolledBack, Unavailable
from mainstem.lsm_archive import data_file
from mainstem.lsm_archive.manifest import load_manifest
from mainstem.lsm_archive.reader import Archive
from mainstem.publish.publisher import Guarded, Publisher
from mainstem.readers.planning.history import check_nothing_undone
from mainstem.readers.planning.table_state import TableState
from mainstem.services import archive_plan, archiving
from mainstem.storage import paths
from mainstem.timeline.instant import parse_instant
from mainstem.timeline.plans import encode_rollback_metadata, encode_rollback_plan
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.stream_guard_notes import Notes
from tests.services.city_table import content, make, rows
from tests.storage.steps import Dead, Mortal, storage_at

pytestmark = pytest.mark.supports("Services", "archiving into the LSM archive")

# The cleaner's bound would be 10 commits; no compaction counts delta commits.
SMALL = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "4",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
}

BY_COMMITS = {"hoodie.clean.policy": "KEEP_LATEST_COMMITS", "hoodie.clean.commits.retained": "1"}


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return make(tmp_path / "t", **SMALL)


def fill(table: mainstem.Table, count: int, first: int = 0) -> list[str]:
    """That many commits; their requested times."""
    return [table.upsert(rows(range(3), n, f"w{n}-")).instant for n in range(first, first + count)]


def reopened(table: mainstem.Table, **more: str) -> mainstem.Table:
    """Another handle with the same options, as another process has it."""
    return mainstem.open_table(table.path, {**SMALL, "hoodie.mainstem.fsync": "false", **more})


def history(table: mainstem.Table) -> Path:
    return Path(table.path) / paths.HISTORY


def active(table: mainstem.Table) -> list[str]:
    """Requested times of the commits on the active timeline."""
    return [i.requested for i in table.timeline() if i.is_completed and i.action != "clean"]


def archived(table: mainstem.Table) -> list[str]:
    archive = Archive.load(storage_at(table.path))
    stored = [
        time
        for file in archive.manifest.files
        for time in pq.read_table(history(table) / file.name)["instantTime"].to_pylist()
    ]
    assert len(stored) == len(set(stored)), "an instant is stored twice"
    return sorted(stored)


def answers(table: mainstem.Table) -> list[Any]:
    """What users see: rows, change feed, a view of the past, and slices."""
    table = reopened(table)
    return [
        content(table).to_pylist(),
        sorted(table.changes().to_arrow()["value"].to_pylist()),
        [(s.file_id, s.base_instant, sorted(s.log_files)) for s in table.file_slices()],
    ]


# -- which instants ------------------------------------------------------------


def test_what_completes_while_instants_are_archived_is_left_to_the_next_run(table):
    fill(table, 9)
    rounds: list[int] = []

    def busy(what: str, done: int, total: int) -> None:
        rounds.append(done)
        assert len(rounds) < 5, "the archiver follows the writer for ever"
        fill(table, 3, first=100 * len(rounds))

    assert table.archive(progress=busy).instants == 7
    assert rounds == [7]
    assert table.archive().instants == 3


def test_the_oldest_commits_go_down_to_the_minimum(table):
    times = fill(table, 9)
    before = answers(table)
    done = table.archive()
    assert done is not None and (done.instants, done.first, done.last) == (7, times[0], times[6])
    assert "7 instants archived" in done.describe()
    assert (archived(table), active(table)) == (times[:7], times[7:])
    assert answers(table) == before
    names = {name for name in os.listdir(Path(table.path) / paths.TIMELINE) if name[0].isdigit()}
    assert all(name[:17] in times[7:] for name in names)
    assert table.archive() is None


def test_if_due_waits_for_more_than_the_maximum(table):
    fill(table, 4)
    assert table.archive(if_due=True) is None
    fill(table, 1, 4)
    assert table.archive(if_due=True).instants == 3


def test_a_savepoint_stops_archiving_until_it_is_deleted(table):
    times = fill(table, 3)
    table.savepoint(times[2])
    fill(table, 6, 3)
    table.archive()
    assert archived(table) == times[:2]
    table.delete_savepoint(times[2])
    table.archive()
    assert archived(table)[2] == times[2]


def test_beyond_a_savepoint_only_the_savepointed_instant_stays(tmp_path):
    table = make(tmp_path / "t", **SMALL, **{"hoodie.archive.beyond.savepoint": "true"})
    times = fill(table, 8)
    table.savepoint(times[1])
    before = answers(table)
    table.archive()
    assert active(table)[0] == times[1] and times[1] not in archived(table)
    assert times[2] in archived(table)
    assert answers(table) == before


def test_what_completed_after_a_savepointed_commit_stays_for_a_restore(table):
    """Requested before, completed after: a restore would have to remove it."""
    late = table.begin("upsert")
    late.write(rows(range(3), 50, "late"))
    saved = fill(table, 1)[0]
    late.commit()
    table.savepoint(saved)
    fill(table, 6, 1)
    assert table.archive() is None


def test_pending_instants_and_the_commit_before_them_stay(table):
    times = fill(table, 3)
    with table.begin("upsert") as open_one:
        open_one.write(rows(range(2), 99, "slow"))
        fill(table, 5, 3)
        table.archive()
        assert archived(table) == times[:2]
        open_one.commit()
    fill(table, 1, 8)
    table.archive()
    assert len(active(table)) == 2


@pytest.mark.parametrize("compacts", [True, False])
def test_what_completed_since_the_oldest_open_transaction_began_stays(table, compacts):
    # A Java writer lists pending plans when it begins, and reads at its commit those that completed since.
    fill(table, 2)
    if compacts:
        slow = table.schedule_compaction()
    else:
        overtaken = table.begin("upsert")
        overtaken.write(rows(range(3), 50, "slow"))
        slow = overtaken.instant
    fill(table, 6, 10)
    with table.begin("upsert") as open_one:
        open_one.write(rows(range(2), 99, "open"))
        assert table.run_compaction() if compacts else overtaken.commit()
        fill(table, 6, 20)
        table.archive()
        assert slow in active(table)
        open_one.commit()
    fill(table, 4, 40)
    table.archive()
    assert slow not in active(table)


def test_a_bulk_insert_loses_against_an_overlapping_write_that_was_archived_meanwhile(tmp_path, monkeypatch):
    # By Java's archiver, say, which goes by requested times alone.
    monkeypatch.setattr(archive_plan, "_completed_after", lambda *_: False)
    table = make(tmp_path / "t", ordering="", **SMALL)
    early, between = reopened(table).begin("upsert"), reopened(table).begin("upsert")
    bulk = table.begin("bulk_insert")
    bulk.write(rows([0, 2], 1, "bulk"))
    early.write(rows([0, 2], 1, "early"))
    between.write(rows([1], 1, "between"))
    assert early.commit().status == between.commit().status == "committed"
    for number in range(5):
        table.upsert(rows([1], number))  # of another partition
    table.archive()
    assert archived(table) == [early.instant]
    with pytest.raises(RolledBack, match=f"overlaps another write: deltacommit {early.instant}"):
        bulk.commit()


def test_the_commit_that_says_the_schema_stays_beside_those_of_services(tmp_path):
    table = make(
        tmp_path / "t", **{**SMALL, "hoodie.keep.min.commits": "1", "hoodie.keep.max.commits": "2"}
    )
    table.upsert(rows(range(3), 1))
    newest = table.upsert(rows(range(3), 2).append_column("more", pa.array(["x"] * 3))).instant
    table.compact()
    before = content(table)
    table.archive()
    assert active(table)[0] == newest
    assert content(reopened(table)).equals(before) and "more" in before.schema.names


def test_files_of_a_compaction_that_java_began_twice_stay_when_it_is_archived(table):
    fill(table, 3)
    (done,) = table.compact()
    at, until = (f"{int(done.requested) + n}" for n in (1, 2))
    folder = Path(table.path) / paths.TIMELINE
    # Java's rollback of the first attempt keeps the plan, which is executed again under the same time.
    plan = encode_rollback_plan(done.requested, "compaction", [], table.path)
    (folder / f"{at}.rollback.requested").write_bytes(plan)
    (folder / f"{at}.rollback.inflight").touch()
    (folder / f"{at}_{until}.rollback").write_bytes(
        encode_rollback_metadata(
            rollback_time=at, instant=done.requested, action="compaction", taken_ms=1, deleted={}
        )
    )
    fill(table, 2, 3)
    table.archive()
    assert archived(table)[-1] == done.requested and (folder / f"{at}_{until}.rollback").exists()
    table.rollback_failed_writes()
    assert all((Path(table.path) / name).exists() for name in done.files)


def test_what_completed_last_stays_so_that_times_never_repeat(table):
    slow = table.begin("upsert")
    slow.write(rows(range(2), 99, "slow"))
    fill(table, 6)
    slow.commit()
    assert table.archive() is None
    fill(table, 1, 6)
    table.archive()
    assert slow.instant in archived(table)


def test_commits_that_the_compaction_trigger_counts_stay(tmp_path):
    counted = {**SMALL, "hoodie.compact.inline.trigger.strategy": "NUM_COMMITS"}
    table = make(tmp_path / "t", **counted)
    times = fill(table, 8)
    table.archive()
    assert active(table) == times[3:], "five delta commits make a compaction due"
    (compaction,) = table.compact()
    fill(table, 3, 8)
    table.archive()
    assert active(table)[0] == compaction.requested


def test_cleans_go_along_and_what_the_newest_one_kept_is_still_known(table):
    cleans = []
    for number in range(3):
        fill(table, 2, 10 * number)
        table.compact()
        fill(table, 2, 10 * number + 5)
        table.compact()
        cleans += [c.requested for c in reopened(table, **BY_COMMITS).clean()]
    assert len(cleans) > 1
    (first, *_) = fill(table, 3, 90)
    before, kept = answers(table), TableState.load(storage_at(table.path), table.config).earliest_retained
    table.archive()
    assert not [i.requested for i in table.timeline() if i.action == "clean"]
    assert set(cleans) <= set(archived(table))
    assert answers(table) == before
    state = TableState.load(storage_at(table.path), table.config)
    assert kept is not None and state.earliest_retained == kept < first
    with pytest.raises(Invalid, match=f"before {kept}, the oldest commit that the cleaner kept"):
        table.scan(as_of=cleans[0]).to_arrow()
    assert len(table.scan(as_of=first).to_arrow())


def test_no_restore_stays_on_a_timeline_whose_younger_commits_are_archived(table):
    # Java would take the archived commits for pending ones, and put their log files on newer base files.
    done = [table.upsert(rows(range(3), n, f"w{n}-")) for n in range(2)]
    table.savepoint(done[0].instant)
    listed = TableState.load(storage_at(table.path), table.config)
    table.restore(done[0].instant)
    table.delete_savepoint(done[0].instant)
    restore = next(i.requested for i in table.timeline() if i.action == "restore")
    fill(table, 5, 10)
    table.compact()
    fill(table, 3, 20)
    before = answers(table)
    assert reopened(table).archive().last > restore
    assert restore in archived(table) and not list(Path(table.path, paths.TIMELINE).glob(f"{restore}*"))
    assert answers(table) == before
    with pytest.raises(Invalid, match=f"before the restore {restore}"):
        table.scan(as_of_completion=done[0].completion_time).to_arrow()
    with pytest.raises(FileNotFoundError, match=f"{done[1].instant} was taken back"):
        check_nothing_undone(listed)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"hoodie.keep.min.commits": "5", "hoodie.keep.max.commits": "5"}, "must be greater than"),
        (
            {"hoodie.clean.policy": "KEEP_LATEST_COMMITS", "hoodie.clean.commits.retained": "2"},
            "hoodie.clean.commits.retained=2",
        ),
        ({"hoodie.keep.min.commits": "none"}, "expected a whole number"),
    ],
)
def test_bounds_that_cannot_hold_together_are_refused(table, options, said):
    fill(table, 6)
    names = sorted(os.listdir(Path(table.path) / paths.TIMELINE))
    with pytest.raises(Invalid, match=said):
        reopened(table, **options).archive()
    assert sorted(os.listdir(Path(table.path) / paths.TIMELINE)) == names


def test_bounds_that_were_not_given_follow_the_cleaner(tmp_path):
    table = make(tmp_path / "t", **{"hoodie.clean.commits.retained": "25"})
    fill(table, 30)
    assert table.archive() is not None
    assert len(active(table)) == 26


# -- levels, versions ------------------------------------------------------------


def test_levels_are_merged_and_old_versions_removed(tmp_path):
    levels = {"hoodie.timeline.compaction.batch.size": "3", "hoodie.timeline.manifest.retained.versions": "2"}
    table = make(tmp_path / "t", **SMALL, **levels)
    times = []
    for number in range(12):
        times += fill(table, 2, 2 * number)
        table.archive()
        assert archived(table) == times[: len(archived(table))]
    archive = Archive.load(storage_at(table.path))
    assert {file.level for file in archive.manifest.files} == {0, 2}
    names = os.listdir(history(table))
    assert sum(name.startswith("manifest_") for name in names) <= 4
    listed = {f.name for f in archive.manifest.files}
    assert len([n for n in names if n.endswith(".parquet")]) <= len(listed) + 6
    assert [archive.completion_time(t) is not None for t in times[:-2]] == [True] * (len(times) - 2)


def test_files_have_the_schema_and_footer_that_java_expects(table):
    fill(table, 6)
    table.compact()
    fill(table, 6, 6)
    table.archive()
    (file,) = load_manifest(storage_at(table.path), paths.HISTORY).files
    assert file.size == (history(table) / file.name).stat().st_size
    stored = pq.ParquetFile(history(table) / file.name)
    assert stored.metadata.metadata[b"writer.model.name"] == b"avro"
    assert b'"name":"HoodieLSMTimelineInstant"' in stored.metadata.metadata[b"parquet.avro.schema"]
    assert not stored.schema_arrow.field("version").nullable
    plans = {row["action"]: row["plan"] is not None for row in stored.read().to_pylist()}
    assert plans == {"deltacommit": False, "commit": True}


def test_an_older_reader_goes_on_while_versions_come_and_go(tmp_path):
    levels = {"hoodie.timeline.compaction.batch.size": "2", "hoodie.timeline.manifest.retained.versions": "1"}
    table = make(tmp_path / "t", **SMALL, **levels)
    times = fill(table, 4)
    table.archive()
    reader = Archive.load(storage_at(table.path))
    assert reader.is_archived(times[0])
    for number in range(8):
        times += fill(table, 2, 10 + 2 * number)
        table.archive()
    assert reader.is_archived(times[1]), "its file is open"
    assert not reader.is_archived(times[10])
    reader.refresh()
    assert reader.is_archived(times[10])


# -- look-ups ------------------------------------------------------------


def test_look_ups_by_instant_and_by_ranges_agree_with_the_timeline(table, monkeypatch):
    monkeypatch.setattr("mainstem.lsm_archive.writer._GROUP_ROWS", 4)
    fill(table, 14)
    done = {i.requested: i.completion for i in table.timeline()}
    folder = Path(table.path) / paths.TIMELINE
    files = {t: (folder / f"{t}_{c}.deltacommit").read_bytes() for t, c in done.items()}
    table.archive()
    archive = Archive.load(storage_at(table.path))
    gone = archived(table)
    assert {t: archive.completion_time(t) for t in gone} == {t: done[t] for t in gone}
    assert [archive.metadata(t) for t in gone] == [files[t] for t in gone]
    assert archive.completion_time(active(table)[0]) is None
    assert [i.requested for i in archive.instants(gone[3], gone[7])] == gone[3:8]
    between = archive.completed(done[gone[3]], done[gone[7]])
    assert between["instantTime"].to_pylist() == gone[4:8]
    assert [k.decode() for k in archive.times()[0]] == gone


def test_a_look_up_reads_one_row_group_and_very_many_read_all_times_once(table, monkeypatch):
    monkeypatch.setattr("mainstem.lsm_archive.writer._GROUP_ROWS", 2)
    monkeypatch.setattr("mainstem.lsm_archive.reader._SINGLE_READS_MAX", 3)
    times = fill(table, 14)
    table.archive()
    read: list[int | None] = []
    whole = data_file.DataFile.times
    monkeypatch.setattr(
        data_file.DataFile, "times", lambda self, group=None: read.append(group) or whole(self, group)
    )
    archive = Archive.load(storage_at(table.path))
    archive.completion_time(times[5])
    archive.completion_time(times[5])
    assert len(read) == 1 and read[0] is not None
    monkeypatch.setattr("mainstem.lsm_archive.reader._KEPT_ROWS", 0)
    for time in 3 * times[:12]:
        assert archive.is_archived(time)
    assert read.count(None) == 1


def test_a_slice_is_not_cut_differently_because_an_instant_was_archived(table):
    """apache/hudi#14365: a log that completed after a compaction's plan belongs on top of it for ever."""
    fill(table, 2)
    slow = table.begin("upsert")
    slow.write(rows(range(3), 70, "slow"))
    planned = table.schedule_compaction()
    slow.commit()
    table.run_compaction(planned)
    fill(table, 8, 2)
    before = answers(table)
    table.archive()
    assert slow.instant in archived(table) and planned in archived(table)
    assert answers(table) == before
    table.compact()
    assert content(table)["value"].to_pylist() == [row["value"] for row in before[0]]


def test_a_listing_that_saw_an_archived_instant_half_deleted_misses_nothing(table):
    fill(table, 8)
    before = answers(table)
    table.archive()
    for time in archived(table):  # seen before it was deleted, and the completed file no more
        Path(table.path, paths.timeline_file(f"{time}.deltacommit.requested")).touch()
    assert answers(table) == before


def test_a_reader_that_listed_before_and_asks_after_misses_nothing(table):
    times = fill(table, 8)
    config = table.config
    state = TableState.load(storage_at(table.path), config)
    known = {t: state.completion(t) for t in times}
    late = TableState.load(storage_at(table.path), config)
    assert late.archive.manifest.version == 0  # it has looked at the archive already
    table.archive()
    assert {t: late.completion(t) for t in times} == known
    assert all(late.metadata(t) is not None for t in times)
    assert {t: TableState.load(storage_at(table.path), config).completion(t) for t in times} == known


# -- crashes and races ------------------------------------------------------------


def test_no_savepoint_is_made_of_what_an_archiver_that_died_has_archived(table, monkeypatch):
    times = fill(table, 8)
    before = answers(table)

    def dead(*_: object) -> None:
        raise Dead

    with monkeypatch.context() as dying, pytest.raises(Dead):
        dying.setattr(archiving, "_delete_active", dead)
        table.archive()
    other = reopened(table)
    assert times[0] in active(other) and times[0] in archived(other)
    with pytest.raises(Invalid, match=f"{times[0]} is archived"):
        other.savepoint(times[0])
    other.savepoint(times[-1])
    other.archive()
    assert times[0] not in active(other) and answers(other) == before


def dying(table: mainstem.Table, at: int, after: bool) -> bool:
    """Archive in a process that dies at that call; whether it did."""
    ctx = reopened(table).writer_context()
    seams = replace(ctx.seams, storage=Mortal(ctx.seams.storage, at, after=after))
    publisher = Publisher(seams, InstantTimes(), fence_of(seams, None), skew=ClockSkew(0), exclusive=True)
    ctx = replace(ctx, seams=seams, publisher=publisher)
    try:
        archiving.run(ctx, if_due=False)
    except Dead:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after it"])
def test_an_archiver_that_dies_anywhere_loses_and_doubles_nothing(tmp_path, after):
    levels = {"hoodie.timeline.compaction.batch.size": "2", "hoodie.timeline.manifest.retained.versions": "1"}
    table = make(tmp_path / "t", **SMALL, **levels, **{"hoodie.write.lock.wait_time_ms": "2000"})
    times = fill(table, 4)
    at, died = 0, True
    while died:
        at += 1
        times += fill(table, 1, 100 + at)
        table = reopened(table)
        died = dying(table, at, after)
        gone, there = archived(table), active(table)
        assert set(gone) | set(there) == set(times), at
        pending = [i for i in table.timeline() if not i.is_completed]
        assert not pending, (at, "an archived instant looks pending")
        state = TableState.load(storage_at(table.path), table.config)
        assert [t for t in times if state.completion(t) is None] == []
    table.archive()
    assert archived(table) + active(table) == times
    assert at > 20


def test_an_archiver_that_lost_the_lock_switches_nothing_and_deletes_nothing(table, monkeypatch):
    times = fill(table, 8)
    stopped = reopened(table)
    whole = Guarded.replace
    beaten: list[bool] = []

    def overtaken(self: Guarded, prepared: str, target: str) -> None:
        if not beaten:
            beaten.append(True)
            (Path(table.path) / ".hoodie/lock").unlink()  # whoever thought that its holder was dead
            monkeypatch.setattr(Guarded, "replace", whole)
            assert table.archive().instants == 6
        whole(self, prepared, target)

    monkeypatch.setattr(Guarded, "replace", overtaken)
    assert stopped.archive() is None, "all was done when it woke up"
    assert archived(table) + active(table) == times


def test_two_archivers_at_once_archive_each_instant_once(table):
    times = fill(table, 10)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            reopened(table).archive()
        except (Unavailable, LeaseLost) as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert archived(table) + active(table) == times


@pytest.mark.parametrize("left", ["a data file", "a manifest", "a whole version"])
def test_what_a_crashed_archiver_left_is_neither_believed_nor_overwritten(table, left):
    times = fill(table, 4)
    table.archive()
    times += fill(table, 4, 10)
    name = f"{times[2]}_{times[5]}_0.parquet"
    if left != "a manifest":
        (history(table) / name).write_bytes(b"cut off")
    if left != "a data file":
        listed = [{"fileName": name, "fileLen": 7}] if left == "a whole version" else []
        (history(table) / "manifest_2").write_text(json.dumps({"files": listed}))
    table.archive()
    assert archived(table) + active(table) == times
    if left != "a manifest":
        assert (history(table) / name).read_bytes() == b"cut off"
    if left != "a data file":
        assert (history(table) / "_version_").read_text() == "3"


def test_what_crashed_archivers_left_goes_with_old_versions(tmp_path):
    table = make(tmp_path / "t", **SMALL, **{"hoodie.timeline.manifest.retained.versions": "1"})
    fill(table, 4)
    table.archive()
    orphan = history(table) / "20200101000000000_20200101000000001_0.parquet"
    orphan.write_bytes(b"cut off")
    foreign = history(table) / "manifest_7.tmp-0"
    foreign.write_bytes(b"not ours to delete")
    fill(table, 4, 10)
    table.archive()
    assert not orphan.exists() and foreign.exists()


# -- damage ------------------------------------------------------------


@pytest.mark.parametrize("kind", ["manifest", "missing file", "outside"])
def test_a_damaged_archive_is_an_error_and_nothing_is_deleted(table, kind):
    fill(table, 4)
    table.archive()
    fill(table, 6, 10)
    (file,) = load_manifest(storage_at(table.path), paths.HISTORY).files
    if kind == "manifest":
        (history(table) / "manifest_1").write_text('{"files": [')
    elif kind == "outside":
        entry = {"fileName": "../../hoodie.properties", "fileLen": 1}
        (history(table) / "manifest_1").write_text(json.dumps({"files": [entry]}))
    else:
        (history(table) / file.name).unlink()
        table = reopened(table, **{"hoodie.timeline.compaction.batch.size": "2"})
    names = sorted(os.listdir(Path(table.path) / paths.TIMELINE))
    with pytest.raises(CorruptTable) as caught:
        table.archive()
    assert paths.HISTORY in str(caught.value)
    assert sorted(os.listdir(Path(table.path) / paths.TIMELINE)) == names


def test_an_instant_that_completed_twice_stays_and_stops_archiving(table):
    times = fill(table, 8)
    folder = Path(table.path) / paths.TIMELINE
    (twice,) = folder.glob(f"{times[2]}_*.deltacommit")
    again = folder / f"{times[2]}_{int(twice.name[18:35]) + 1}.deltacommit"
    again.write_bytes(twice.read_bytes())
    table.archive()
    assert archived(table) == times[:2]


# -- streams ------------------------------------------------------------


def put(table: mainstem.Table, batch: int, ordinal: int = 0, stream: str = "s") -> str:
    with table.begin("upsert", guard=StreamGuard(stream, batch, ordinal)) as txn:
        txn.write(rows([batch % 9], batch, f"{stream}{batch}."))
        return txn.commit().status


STATES: dict[str, Callable[[Path], None]] = {
    "as it is": lambda table: None,
    "without notes": lambda table: subprocess.run(
        [sys.executable, "-c", f"import shutil; shutil.rmtree({str(table / paths.STREAMS)!r})"], check=True
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_a_micro_batch_is_found_for_ever(table, state):
    for batch, ordinal in ((0, 0), (1, 0), (1, 1)):
        assert put(table, batch, ordinal) == "committed"
    fill(table, 10)
    table.archive()
    assert not any("mainstem.stream" in p.read_text(errors="replace") for p in timeline_files(table))
    STATES[state](Path(table.path))
    for again in (table, reopened(table)):
        assert [put(again, *w) for w in ((0, 0), (1, 0), (1, 1))] == ["already_committed"] * 3
    assert put(table, 1, 2) == "committed"
    assert put(table, 2) == "committed"
    assert put(table, 1, 3) == "already_committed", "a newer batch is committed"
    assert put(table, 0, stream="another") == "committed"


def timeline_files(table: mainstem.Table) -> list[Path]:
    folder = Path(table.path) / paths.TIMELINE
    return [p for p in folder.iterdir() if (i := parse_instant(p.name)) and i.is_completed]


def test_a_second_driver_that_slept_through_archiving_commits_nothing(table):
    sleeping = reopened(table).begin("upsert", guard=StreamGuard("s", 0))
    sleeping.write(rows([1], 5, "again"))
    table.rollback_failed_writes()
    assert put(reopened(table), 0) == "committed"
    fill(table, 8)
    committed = [t for t in active(table) if t > sleeping.instant]
    assert table.archive() is None, "an open transaction keeps what came after it"
    assert sleeping.commit().status == "already_committed"
    table.archive()
    assert committed[0] in archived(table)
    assert put(table, 0) == "already_committed"


def test_notes_of_a_stream_do_not_pile_up(table):
    for batch in range(90):
        put(table, batch)
        table.archive(if_due=True)
    (folder,) = (Path(table.path) / paths.STREAMS).iterdir()
    assert len(os.listdir(folder)) < 70
    assert put(table, 89) == "already_committed" and put(table, 3) == "already_committed"


def test_a_note_that_another_driver_makes_while_notes_are_tidied_stays(table, monkeypatch):
    for batch in range(66):
        put(table, batch)
    others: list[str] = []
    read = Notes.read

    def after_another_driver(self: Notes) -> list[Any]:
        monkeypatch.setattr(Notes, "read", read)
        others.append(put(reopened(table), 66))
        return read(self)

    monkeypatch.setattr(Notes, "read", after_another_driver)
    put(reopened(table), 66)
    assert others == ["committed"]
    fill(table, 8)
    table.archive()
    assert put(reopened(table), 66) == "already_committed"


def test_a_restore_takes_the_guards_of_what_it_removes(table):
    put(table, 0)
    saved = fill(table, 1)[0]
    table.savepoint(saved)
    put(table, 1)
    table.restore(saved)
    table.delete_savepoint(saved)
    fill(table, 8, 2)
    table.archive()
    assert put(table, 0) == "already_committed"
    assert put(table, 1) == "committed"


def test_the_command_archives_and_says_what(table, capsys):
    fill(table, 6)
    options = [part for key, value in SMALL.items() for part in ("--option", f"{key}={value}")]

    def said(*more: str) -> str:
        assert main(["archive", table.path, *options, *more]) == 0
        return capsys.readouterr().out

    assert json.loads(said("--json"))["instants"] == 4
    assert said() == "nothing to archive\n"


def test_marker_folders_of_archived_instants_go(table):
    times = fill(table, 6)
    marker = Path(table.path) / paths.marker_folder(times[0])
    marker.mkdir(parents=True, exist_ok=True)  # where a store is shown, its folder may have stayed, empty
    (marker / "a.parquet.marker.CREATE").touch()
    table.archive()
    assert not marker.exists()
    assert Counter(archived(table))[times[0]] == 1
