"""Goal: a writer may be killed between any two steps; the table stays whole, usable, and gets clean.

Method: ``crash_worker.py`` kills a real process at steps of an action (calls that change the file system,
half-written files included; all in ``make crash``, every second or third here), each time on a fresh copy of
a table. Then this process reads, writes beside what was left, replays the batch, lets time pass (heartbeats
and private files are made old) and cleans up. What must be gone is checked from file names, without our
readers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Invalid
from tests.crash import crash_worker
from tests.crash.crash_matrix import Run, worker
from tests.crash.crash_worker import GUARD, PROPERTIES, rows
from tests.multiprocess import table_files

OLD = {k: f"old{k}" for k in "0246"}
NEW = {**OLD, **{k: f"new{k}" for k in "0123456789"}}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with worker() as call:
        yield call


@pytest.fixture
def template(tmp_path) -> Path:
    return make_template(tmp_path / "template")


def make_template(path: Path) -> Path:
    """A table with four rows, all in one partition."""
    crash_worker.create(str(path))
    opened(path).upsert(rows("old", 1, "0246"))
    return path


def opened(path: Path) -> mainstem.Table:
    return mainstem.open_table(path, properties=PROPERTIES)


def content(path: Path) -> dict[str, str]:
    found = opened(path).scan(columns=["id", "value"]).to_arrow()
    keys, values = found["id"].to_pylist(), found["value"].to_pylist()
    assert len(set(keys)) == len(keys), "a row is doubled"
    return dict(zip(keys, values, strict=True))


def every_step(
    run: Run, action: str, template: Path, tmp_path: Path, stride: int = 1
) -> Iterator[tuple[int, Path]]:
    """A copy of the table for each step (or each ``stride``-th) at which the action was killed."""
    whole = tmp_path / "whole"
    copy(template, whole)
    steps = run(action, whole)["steps"]
    assert steps > 5
    for kill_at in range(0, steps, stride):
        path = tmp_path / f"killed-{kill_at}"
        copy(template, path)
        run(action, path, kill_at)
        yield kill_at, path
        shutil.rmtree(path)
    print(f"\n{action}: killed at each {stride}. of {steps} steps")


def copy(template: Path, path: Path) -> None:
    if template.exists():
        shutil.copytree(template, path)


def clean_up(path: Path) -> None:
    """Everybody who died is long dead; somebody writes, then ``mainstem rollback`` runs."""
    table_files.age(path)
    opened(path).upsert(rows("last", 20, "9"))
    opened(path).rollback_failed_writes()
    assert table_files.leftovers(path) == []


def committed(path: Path) -> int:
    return sum(c.guard is not None for c in table_files.commits(path))


def check_replay(path: Path, step: int, write: Callable[[str], str] = crash_worker.upsert) -> None:
    """The dead writer's batch is there whole or not at all, and once after its replay."""
    visible = committed(path)
    before = NEW if visible else OLD
    assert content(path) == before, step
    assert opened(path).upsert(rows("other", 30, "0")).status == "committed"
    assert content(path) == {**before, "0": "other0"}, step
    status = write(str(path))
    assert status == ("already_committed" if visible else "committed"), step
    assert committed(path) == 1
    assert content(path) == {**NEW, "0": "other0"}, step


def test_a_writer_killed_at_any_step_of_a_commit_leaves_old_or_new_and_is_replayed_once(
    run, template, tmp_path
):
    seen = set()
    for step, path in every_step(run, "upsert", template, tmp_path, 2):
        seen.add(committed(path))
        check_replay(path, step)
        clean_up(path)
        assert content(path) == {**NEW, "0": "other0", "9": "last9"}, step
    assert seen == {0, 1}, "kills before and after the commit became visible"


def test_a_bulk_insert_killed_at_any_step_leaves_old_or_new_and_is_replayed_once(run, template, tmp_path):
    seen = set()
    for step, path in every_step(run, "bulk_insert", template, tmp_path, 3):
        seen.add(committed(path))
        check_replay(path, step, crash_worker.bulk_insert)
        clean_up(path)
        assert content(path) == {**NEW, "0": "other0", "9": "last9"}, step
    assert seen == {0, 1}, "kills before and after the commit became visible"


def test_an_overwrite_killed_at_any_step_leaves_the_old_rows_or_its_own(run, template, tmp_path):
    seen = set()
    for step, path in every_step(run, "overwrite", template, tmp_path, 3):
        done = any(c.operation == "INSERT_OVERWRITE" for c in table_files.commits(path))
        before = {"0": "new0", "2": "new2"} if done else OLD
        seen.add(done)
        assert content(path) == before, step
        assert opened(path).upsert(rows("other", 30, "0")).status == "committed"
        opened(path).compact()
        assert content(path) == {**before, "0": "other0"}, step
        clean_up(path)
        opened(path).compact()
        assert content(path) == {**before, "0": "other0", "9": "last9"}, step
    assert seen == {False, True}, "kills before and after the commit became visible"


def test_a_writer_killed_at_any_step_of_an_abort_shows_nothing(run, template, tmp_path):
    for step, path in every_step(run, "abort", template, tmp_path, 3):
        check_replay(path, step)
        clean_up(path)


@pytest.fixture(scope="module")
def with_dead_writer(run, tmp_path_factory) -> Path:
    """A table on which a writer died in its second critical section, long ago, the lock in its hand."""
    folder = tmp_path_factory.mktemp("dead")
    template = make_template(folder / "template")
    whole = folder / "whole"
    copy(template, whole)
    for kill_at in reversed(range(run("upsert", whole)["steps"])):
        path = folder / f"killed-{kill_at}"
        copy(template, path)
        run("upsert", path, kill_at)
        if not committed(path) and (path / ".hoodie/lock").exists():
            table_files.age(path)
            return path
    raise AssertionError("no step lies inside the critical section")


def test_a_rollback_killed_at_any_step_is_taken_up_and_the_dead_writer_is_gone(
    run, with_dead_writer, tmp_path
):
    (dead,) = (instant for instant, _ in table_files.pending(with_dead_writer))
    for step, path in every_step(run, "roll_back", with_dead_writer, tmp_path, 2):
        assert content(path) == OLD, step
        check_replay(path, step)
        clean_up(path)
        rolled_back = [c for _, c, action in table_files.timeline(path) if c and action == "rollback"]
        assert len(rolled_back) == 1, step
        assert dead not in {requested for requested, _, _ in table_files.timeline(path)}
        assert content(path) == {**NEW, "0": "other0", "9": "last9"}, step


def test_a_writer_killed_at_any_step_while_it_succeeds_a_dead_one_is_cleaned_up_too(
    run, with_dead_writer, tmp_path
):
    for step, path in every_step(run, "upsert", with_dead_writer, tmp_path, 3):
        check_replay(path, step)
        clean_up(path)
        assert content(path) == {**NEW, "0": "other0", "9": "last9"}, step


def test_a_compaction_killed_at_any_step_changes_no_row_and_is_done_again_from_its_plan(
    run, template, tmp_path
):
    seen = set()
    for step, path in every_step(run, "compact", template, tmp_path, 2):
        assert content(path) == OLD, step
        check_replay(path, step)
        table_files.age(path)
        planned = [i for i in opened(path).timeline() if i.action == "compaction"]
        seen.add(bool(planned))
        done = opened(path).compact()
        assert all(c.completion for c in done) and len(done) == 2 if planned else len(done) == 1, step
        clean_up(path)
        assert content(path) == {**NEW, "0": "other0", "9": "last9"}, step
        optimized = opened(path).scan(mode="read_optimized", columns=["id"]).to_arrow()
        assert optimized.num_rows == 10, step
    assert seen == {False, True}


@pytest.mark.parametrize(("action", "stride"), [("create", 1), ("create_with_metadata", 2)])
def test_a_table_whose_creator_was_killed_at_any_step_exists_whole_or_not_at_all(
    run, tmp_path, action, stride
):
    nothing = tmp_path / "nothing"
    seen = set()
    for step, path in every_step(run, action, nothing, tmp_path, stride):
        exists = (path / ".hoodie/hoodie.properties").exists()
        seen.add(exists)
        if exists:
            assert content(path) == {}, step
            with pytest.raises(Invalid, match="exists already"):
                crash_worker.ACTIONS[action](str(path))
        else:
            with pytest.raises(Invalid):
                opened(path)
            crash_worker.ACTIONS[action](str(path))
        opened(path).upsert(rows("old", 1, "0246"))
        assert content(path) == OLD, step
        assert GUARD.batch_id == 0 and crash_worker.upsert(str(path)) == "committed"
        clean_up(path)
        if action == "create_with_metadata":
            assert opened(path).validate_metadata().ok, step
    assert seen == {False, True}
