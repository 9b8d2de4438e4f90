"""Goal: whoever stages rows or commits them may be killed between any two steps, and every row is there once.

Method: as in ``test_crash_points``. The table has four rows, and two checkpoints of a job wait in it. After
each kill another committer goes on at once, now and then killed as well, while the dead one looks alive.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.flink.committer import Committer, folders
from tests.crash import crash_worker
from tests.crash.crash_matrix import Run, worker
from tests.crash.crash_worker import SINK
from tests.crash.test_crash_points import NEW, OLD, clean_up, content, every_step, make_template, opened
from tests.multiprocess import table_files

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with worker() as call:
        yield call


@pytest.fixture(autouse=True)
def impatient(monkeypatch) -> None:
    """Whoever comes next does not wait to see whether the dead one is done soon."""
    monkeypatch.setattr(Committer, "patience_ms", 0)


@pytest.fixture
def template(tmp_path) -> Path:
    path = make_template(tmp_path / "template")
    crash_worker.stage(str(path))
    return path


def in_commits(path: Path) -> list[int]:
    """Batch numbers of the sink's commits."""
    guards = [commit.guard for commit in table_files.commits(path) if commit.guard]
    return [number for identifier, number, _ in guards if identifier == f"flink/{SINK}"]


def check_done(path: Path, step: int) -> None:
    """Everything is committed once, and nothing is left."""
    assert content(path) == NEW, step
    assert in_commits(path) == list(range(len(in_commits(path)))), step
    last = Committer(opened(path), SINK)
    assert last.commit_pending() == []
    staged, parts = folders(opened(path), SINK)
    assert os.listdir(parts) == [], step
    last.sweep(-1)
    assert os.listdir(staged) == [], step
    clean_up(path)
    assert content(path) == {**NEW, "9": "last9"}, step


@pytest.mark.supports("Engines", "Flink: checkpoints committed once, by any number of processes")
def test_a_committer_killed_at_any_step_shows_all_or_nothing_and_another_goes_on(run, template, tmp_path):
    seen, chance = set(), random.Random(1)
    for step, path in every_step(run, "flink_commit", template, tmp_path, 2):
        visible = in_commits(path)
        seen.add(len(visible))
        assert content(path) == (NEW if visible else OLD), step
        if not visible and chance.random() < 0.3:
            run("flink_commit", path, chance.randrange(10))
        crash_worker.flink_commit(str(path))
        assert in_commits(path) == [0], "both checkpoints went into one commit"
        check_done(path, step)
    assert seen == {0, 1}, "kills before and after the commit became visible"


def test_a_worker_killed_at_any_step_leaves_whole_checkpoints_and_files_that_nobody_reads(run, tmp_path):
    seen = set()
    template = make_template(tmp_path / "template")
    for step, path in every_step(run, "stage", template, tmp_path, 3):
        parts = sorted(p for p in table_files.own_files(path) if "/part-" in p)
        seen.add(len(parts))
        crash_worker.flink_commit(str(path))
        keys = ["", "02468", "0123456789"][len(parts)]
        assert content(path) == {**OLD, **{key: f"new{key}" for key in keys}}, step
        crash_worker.stage(str(path))
        crash_worker.flink_commit(str(path))
        check_done(path, step)
    assert seen == {0, 1}
