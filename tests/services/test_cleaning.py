"""Goal: a clean removes what nobody needs, and never what a view, a savepoint, a plan or a writer needs.

Method: random histories (transactions that stay open across compactions, plans that wait, savepoints) are
cleaned again and again; a small model names the files that must go and those that must stay, and every
view is compared with what it was. Cleaners die at every file, meet each other and other services.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable
from mainstem.services import cleaning, compaction
from mainstem.services.clean_plan import CleanOptions
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.plans import load_compaction_plan
from mainstem.timeline.restore_records import RestorePlan, encode_restore_plan
from tests.services import cleaning_model as model
from tests.services.city_table import QUICK, SCHEMA, aged, content, make, rows
from tests.storage.steps import before_removing, storage_at

pytestmark = pytest.mark.supports("Services", "cleaning: by commits, hours or file versions")
RETAINED, POLICY, VERSIONS = (
    "hoodie.clean.commits.retained", "hoodie.clean.policy", "hoodie.clean.fileversions.retained",
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """Two commits are retained."""
    return make(tmp_path / "t", **{RETAINED: "2"})


def data_files(table: mainstem.Table) -> set[str]:
    return {file.path for file in model.Table(table.path).files}


def turn(table: mainstem.Table, number: int, *, compacted: bool = True) -> str:
    """A commit of every group and a compaction; the commit's completion time."""
    done = table.upsert(rows(range(8), number, f"w{number}-")).completion_time
    if compacted:
        table.compact()
    return done


class History:
    """Something random happens to a table, step by step."""

    def __init__(self, table: mainstem.Table, seed: int) -> None:
        self.table, self.rng = table, random.Random(seed)
        self.open: list = []
        self.views: dict[str, pa.Table] = {}
        self.number = 0

    def step(self) -> None:
        often = [self.commit] * 5 + [self.compact] * 4
        self.rng.choice([*often, self.begin, self.end, self.end, self.plan])()

    def written(self) -> pa.Table:
        self.number += 1
        return rows(sorted({self.rng.randrange(20) for _ in range(6)}), self.number, f"n{self.number}-")

    def commit(self) -> None:
        self.seen(self.table.upsert(self.written()).completion_time)

    def begin(self) -> None:
        if len(self.open) < 2:
            txn = self.table.begin()
            txn.write(self.written())
            self.open.append(txn)

    def end(self) -> None:
        if self.open:
            txn = self.open.pop(self.rng.randrange(len(self.open)))
            self.seen(txn.commit().completion_time)

    def plan(self) -> None:
        self.table.schedule_compaction()

    def compact(self) -> None:
        for done in self.table.compact():
            self.seen(done.completion)

    def seen(self, moment: str) -> None:
        self.views[moment] = content(self.table)

    def planned(self) -> set[str]:
        """What pending compactions read."""
        ctx = self.table.writer_context()
        found = set()
        for at in compaction.pending(ctx.publisher.timeline()):
            for operation in load_compaction_plan(ctx.seams.storage, at):
                names = [*operation.log_files, *filter(None, [operation.base_file])]
                found.update(paths.in_partition(operation.partition, name) for name in names)
        return found

    def check_views(self, retained: list[tuple[str, str]]) -> None:
        """Retained views are what they were; older ones too, or refused."""
        first = min((completed for _, completed in retained), default="")
        for moment, expected in self.views.items():
            try:
                found = content(self.table, as_of_completion=moment)
            except Invalid as refused:
                assert "which a clean has removed" in str(refused) and moment < first
            else:
                assert found.equals(expected)


@pytest.mark.parametrize("seed", range(4))
def test_by_commits_exactly_the_slices_go_that_no_retained_view_and_no_plan_reads(tmp_path, seed):
    retained = 1 + seed % 3
    given = {RETAINED: str(retained), "hoodie.clean.incremental.enabled": str(seed != 1)}
    history = History(make(tmp_path / "t", **given), seed)
    table, removed = history.table, 0
    for _ in range(28):
        history.step()
        before = model.Table(table.path)
        superfluous = before.superfluous(before.needed(retained), history.planned())
        done = table.clean()
        assert {f.path for f in before.files} - data_files(table) == superfluous
        assert [c.files for c in done] == ([len(superfluous)] if superfluous else [])
        removed += len(superfluous)
    assert removed > 10
    history.check_views(before.retained(retained))
    for txn in history.open:
        txn.abort()


@pytest.mark.parametrize("seed", range(2))
def test_by_versions_exactly_the_newest_slices_stay(tmp_path, seed):
    keep = 1 + seed
    given = {POLICY: "KEEP_LATEST_FILE_VERSIONS", VERSIONS: str(keep)}
    history = History(make(tmp_path / "t", **given), 100 + seed)
    table, removed = history.table, 0
    for _ in range(28):
        history.step()
        before = model.Table(table.path)
        table.clean()
        gone = {f.path for f in before.files} - data_files(table)
        assert gone == before.superfluous(before.of_versions(keep), history.planned())
        if gone:
            assert content(table).equals(history.views[max(history.views)])
        removed += len(gone)
    assert removed > 10
    for txn in history.open:
        txn.abort()


def test_by_hours_what_was_written_within_them_stays(tmp_path):
    given = {POLICY: "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": "5"}
    past = {**QUICK, "hoodie.mainstem.clock.offset_ms": str(-9 * 3_600_000)}
    path = make(tmp_path / "t").path
    early = mainstem.open_table(path, past)
    for number in range(3):
        turn(early, number)
    table = mainstem.open_table(path, {**QUICK, **given})
    assert table.clean() == [], "no commit lies within the last five hours"
    first = table.upsert(rows(range(8), 10))
    (done,) = table.clean()
    assert done.earliest == first.instant and done.files == 10
    assert len(table.file_slices()) == 2
    turn(table, 11)
    assert table.clean() == [], "everything else is younger"


def test_a_log_that_was_requested_long_ago_and_completed_late_stays_with_its_new_slice(table):
    turn(table, 0, compacted=False)
    late = table.begin()
    late.write(rows([1, 3], 50, "late"))
    for number in range(1, 4):
        turn(table, number)
    late.commit()
    for number in range(4, 7):
        turn(table, number, compacted=False)
    mine = {f.path for f in model.Table(table.path).files if f.requested == late.instant}
    before = content(table)
    (done,) = table.clean()
    assert done.earliest > late.instant and done.files > 8
    assert mine and mine <= data_files(table)
    assert content(table).equals(before)


def test_an_open_transaction_holds_the_boundary_back(table):
    moments = [turn(table, number) for number in range(2)]
    with table.begin() as txn:
        txn.write(rows([1], 9))
        moments += [turn(table, number) for number in range(2, 6)]
        views = [content(table, as_of_completion=m) for m in moments]
        table.clean()
        assert [content(table, as_of_completion=m) for m in moments[1:]] == views[1:]
        txn.commit()
    (done,) = table.clean()
    with pytest.raises(Invalid, match="which a clean has removed"):
        content(table, as_of_completion=moments[2])
    assert done.earliest > txn.instant


def test_changes_and_both_kinds_of_time_travel_work_from_the_boundary_on(tmp_path):
    table = make(tmp_path / "t", **{RETAINED: "3"})
    moments = {}
    for number in range(6):
        done = table.upsert(rows(range(8), number))
        moments[done.instant] = done.completion_time
        table.compact()
    answers = {at: content(table, as_of=at) for at in moments}
    (done,) = table.clean()
    kept = [at for at in moments if at >= done.earliest]
    assert 0 < len(kept) < len(moments)
    for at in kept:
        assert content(table, as_of=at).equals(answers[at])
        before = str(int(moments[at]) - 1)
        assert content(table, as_of_completion=before).num_rows == 8
        found = table.changes(after=before, until=moments[at], deletes=True).to_arrow()
        assert set(found["_change_type"].to_pylist()) == {"upsert"} and found.num_rows == 8
    with pytest.raises(Invalid, match="the oldest commit that the cleaner kept"):
        content(table, as_of=min(moments))


def test_time_travel_before_what_a_clean_by_versions_left_is_refused_not_answered_with_less(tmp_path):
    table = make(tmp_path / "t", **{POLICY: "KEEP_LATEST_FILE_VERSIONS", VERSIONS: "1"})
    first = table.upsert(rows(range(8), 1)).instant
    table.compact()
    second = table.upsert(rows(range(8), 2)).instant
    table.compact()
    expected = content(table, as_of=second)
    third = table.upsert(rows(range(8), 3)).instant
    table.compact()
    latest = content(table)
    (done,) = table.clean()
    assert done.earliest is None and done.files == 10
    for gone in (first, second):
        with pytest.raises(Invalid, match="which a clean has removed"):
            content(table, as_of=gone)
    assert expected.num_rows == latest.num_rows == 8
    newest = max(i.requested for i in table.timeline() if i.action == "commit")
    assert content(table, as_of=newest).equals(latest) and third < newest


def test_savepointed_files_stay_until_the_savepoint_is_deleted(table):
    turn(table, 0)
    saved = table.upsert(rows(range(8), 1))
    view = content(table)
    table.savepoint(saved.instant)
    for number in range(2, 6):
        turn(table, number)
    table.clean()
    assert content(table, as_of_completion=saved.completion_time).equals(view)
    table.delete_savepoint(saved.instant)
    (done,) = table.clean()
    assert done.files == 6
    with pytest.raises(Invalid, match="which a clean has removed"):
        content(table, as_of_completion=saved.completion_time)


def test_a_savepoint_of_files_that_a_pending_clean_names_is_refused(table):
    old = [table.upsert(rows(range(8), 0))]
    for number in range(1, 5):
        turn(table, number)
    assert table.schedule_clean()
    with pytest.raises(Invalid, match="clean"):
        table.savepoint(old[0].instant)
    assert table.savepoints() == []


@pytest.mark.parametrize("begun", [False, True], ids=["since the listing", "seen in its beginning"])
def test_a_savepoint_made_between_listing_and_lock_sends_the_planner_back(table, monkeypatch, begun):
    for number in range(5):
        turn(table, number)
    oldest = next(i.requested for i in table.timeline() if i.action == "deltacommit")
    if begun:
        Path(table.path, paths.timeline_file(f"{oldest}.savepoint.inflight")).touch()
    other, plan, plans = mainstem.open_table(table.path, QUICK), cleaning.plan_clean, []

    def slow(*given):
        plans.append(plan(*given))
        if len(plans) == 1:
            other.savepoint(oldest)
        return plans[-1]

    monkeypatch.setattr(cleaning, "plan_clean", slow)
    (done,) = table.clean()
    assert len(plans) == 2 and done.files == len(plans[1].paths()) < len(plans[0].paths())


def test_services_that_never_rest_end_the_planning_with_an_error(table, monkeypatch):
    for number in range(5):
        turn(table, number)
    monkeypatch.setattr(cleaning, "is_overtaken", lambda *_: True)
    with pytest.raises(Unavailable, match="savepoints, compactions or archiving overtook"):
        table.clean()
    assert not [i for i in table.timeline() if i.action == "clean"]


def test_files_of_a_dead_writer_go_and_those_of_a_living_one_stay(table):
    turn(table, 0)
    dead, alive = table.begin(), table.begin()
    for txn in (dead, alive):
        txn.write(rows(range(4), 9, "x"))
    beats = Path(table.path) / paths.HEARTBEATS
    old = time.time() - 3600
    os.utime(beats / dead.instant, (old, old))
    table.writer_context().heartbeats.leave(dead.instant)
    table.clean()
    names = [p.name for p in Path(table.path).rglob(".*.log.*")]
    assert not [n for n in names if dead.instant in n]
    # On a store a writer's rows are in memory until it commits.
    assert [n for n in names if alive.instant in n] or has_swaps(storage_at(table.path))
    assert alive.commit().status == "committed"


def test_only_folders_in_which_something_may_go_are_listed(tmp_path, monkeypatch):
    table = make(tmp_path / "t", **{RETAINED: "2"})
    kind, listed = type(storage_at(table.path)), []
    names, entries = kind.names, kind.entries

    def folders() -> set[str]:
        """Those that planning a clean lists."""
        listed.clear()
        with monkeypatch.context() as patched:
            patched.setattr(kind, "names", lambda it, at, **h: listed.append(at) or names(it, at, **h))
            patched.setattr(kind, "entries", lambda it, at, **h: listed.append(at) or entries(it, at, **h))
            table.schedule_clean()
        return {at for at in listed if not at.startswith(".hoodie")} - {""}

    # Looking for files of rolled-back writers lists all folders, which is not a matter of cleans.
    table.upsert(rows(range(8), 1))
    assert folders() == set(), "everything is retained"
    for number in range(2, 5):
        turn(table, number)
    assert folders() == {"a", "b"}, "no clean was there before"
    table.clean()
    assert folders() == set(), "nothing changed"
    table.upsert(rows([0], 5))
    assert folders() == set(), "the newest base files are not behind the boundary yet"
    table.upsert(rows([0], 6))
    assert folders() == {"a", "b"}
    table.clean()
    for number in range(7, 10):
        table.upsert(rows([0], number))
        assert folders() == set(), "log files push nothing out"
    table.compact()
    table.upsert(rows([1], 10))
    table.upsert(rows([1], 11))
    assert folders() == {"a"}


def test_hudis_trigger_counts_the_commits_since_the_last_clean(table):
    for number in range(5):
        turn(table, number)
    every_third = mainstem.open_table(
        table.path, {**QUICK, RETAINED: "2", "hoodie.clean.trigger.max.commits": "3"}
    )
    assert len(every_third.clean(if_due=True)) == 1
    turn(table, 6)
    assert every_third.schedule_clean(if_due=True) is None
    turn(table, 7)
    assert len(every_third.clean(if_due=True)) == 1


def test_a_clean_that_died_at_any_file_is_gone_on_with_before_another_is_planned(table):
    for number in range(5):
        turn(table, number)
    expected = content(table)
    planned = table.schedule_clean()
    assert table.schedule_clean() is None, "one at a time"
    calls = []

    def failing(path):
        if ".hoodie" not in path:
            calls.extend([path] * os.path.exists(f"{table.path}/{path}"))
            if len(calls) % 5 == 0:
                calls.append("failed")
                raise OSError(5, "Input/output error")

    with before_removing(failing):
        for _ in range(100):
            try:
                done = table.clean()
                break
            except Unavailable as error:
                assert f"the clean {planned} did not end" in str(error) and "execute it again" in str(error)
    assert "failed" in calls
    assert done[0].requested == planned and done[0].completion
    assert len(done[0].describe().splitlines()) == 1
    assert content(table).equals(expected)
    assert not list((Path(table.path) / paths.PREPARED).glob("*"))
    assert not list((Path(table.path) / paths.HEARTBEATS).glob("*"))
    kept = model.Table(table.path)
    assert not kept.superfluous(kept.needed(2))


def test_a_plan_that_a_living_cleaner_has_is_left_to_it_and_taken_over_when_it_died(table):
    for number in range(5):
        turn(table, number)
    planned = table.schedule_clean()
    beat = Path(table.path) / paths.heartbeat(planned)
    storage_at(table.path).put(paths.heartbeat(planned), b"", durable=False)
    assert table.clean() == [] and table.schedule_clean() is None
    aged(table)
    (done,) = table.clean()
    assert done.requested == planned and done.completion and not beat.exists()


def test_a_cleaner_that_was_overtaken_deletes_nothing_more_and_completes_nothing(table):
    for number in range(5):
        turn(table, number)
    planned = table.schedule_clean()
    other = mainstem.open_table(table.path, QUICK)
    overtaken: list = []

    def stopped(path):
        if ".hoodie" not in path and not overtaken:
            overtaken.append(path)
            aged(table)
            overtaken.extend(other.clean())

    with before_removing(stopped):
        (mine,) = table.clean()
    assert overtaken[1].completion and overtaken[1].requested == planned
    assert mine.completion is None
    assert mine.deleted == 0 or has_swaps(storage_at(table.path)), "a store does not tell what was there"
    assert mine.describe() == f"clean {planned} was ended by somebody else"
    assert len([i for i in table.timeline() if i.action == "clean"]) == 1


def test_an_inflight_file_that_a_stopped_cleaner_made_too_late_is_taken_away(table):
    turn(table, 0)
    stray = Path(table.path) / paths.TIMELINE / "20260101000000000.clean.inflight"
    stray.touch()
    assert table.clean() == [] and not stray.exists()


def test_an_empty_plan_is_waited_for_and_then_taken_away(table):
    turn(table, 0)
    empty = Path(table.path) / paths.TIMELINE / "20260101000000000.clean.requested"
    empty.touch()
    with pytest.raises(Unavailable, match="is empty: its planner is writing it, or died"):
        table.clean()
    os.utime(empty, (1, 1))
    (found,) = table.clean()
    assert found.completion is None and not empty.exists()


def test_nothing_is_planned_while_a_restore_or_a_savepoint_is_unfinished(table):
    for number in range(5):
        turn(table, number)
    for action in ("restore", "savepoint"):
        name = "20260101000000000" if action == "restore" else table.timeline()[0].requested
        state = "requested" if action == "restore" else "inflight"
        pending = Path(table.path) / paths.TIMELINE / f"{name}.{action}.{state}"
        pending.write_bytes(encode_restore_plan(RestorePlan(name, ())) if action == "restore" else b"")
        with pytest.raises(Unavailable, match=action):
            table.clean()
        assert not [i for i in table.timeline() if i.action == "clean"]
        if action == "savepoint":  # whoever made it is dead: nobody completes it any more
            os.utime(pending, (1, 1))
            assert len(table.clean()) == 1
            assert not pending.exists()
        else:
            pending.unlink()


@pytest.mark.disk("a store removes the files of a folder at once")
def test_progress_is_told_after_each_file(table):
    for number in range(5):
        turn(table, number)
    told: list = []
    (done,) = table.clean(progress=lambda *given: told.append(given))
    assert told == [(f"clean {done.requested}, files", n + 1, done.files) for n in range(done.files)]


def test_options_have_hudis_names_old_names_defaults_and_bounds():
    assert CleanOptions.from_properties({}) == CleanOptions("KEEP_LATEST_COMMITS", 10, 3, 24, 1)
    old = {"hoodie.cleaner.policy": "keep_latest_by_hours", "hoodie.cleaner.hours.retained": "7",
           "hoodie.cleaner.commits.retained": "3", "hoodie.clean.max.commits": "4",
           "hoodie.cleaner.fileversions.retained": "2"}  # fmt: skip
    assert CleanOptions.from_properties(old) == CleanOptions("KEEP_LATEST_BY_HOURS", 3, 2, 7, 4)
    both = CleanOptions.from_properties({**old, RETAINED: "5"})
    assert both.commits == 5, "the new name wins"
    for name, value in ((RETAINED, "0"), (POLICY, "KEEP_ALL"), ("hoodie.clean.trigger.strategy", "TIME")):
        with pytest.raises(Invalid, match=name.replace(".", r"\.")):
            CleanOptions.from_properties({name: value})


def test_a_table_without_partitions_is_cleaned(tmp_path):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={**QUICK, RETAINED: "1"},
    )  # fmt: skip
    for number in range(3):
        turn(table, number)
    expected = content(table)
    (done,) = table.clean()
    assert done.files == 6 and content(table).equals(expected)
