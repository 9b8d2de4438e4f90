"""Goal: in an object store, too, whoever dies at whatever request, everybody else can go on, nothing is lost
or left over; also if the last request of the dead arrives when others have gone on, or long after.

Method: a sample of ``tests.crash.crash_matrix`` and ``vector_matrix`` with ``--store``, on tables that
mainstem writes alone and on tables that take the lock, and on a store that renames; the whole is ``make
crash``, which also kills creators of a table and a committer of Flink's at each request (``CRASH_EVERY=1``).
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Invalid, MainstemError
from mainstem.flink.committer import Committer
from mainstem.storage import paths
from mainstem.writers import leftovers as writers_leftovers
from tests.crash import crash_worker
from tests.crash.bodies import BODIES, Death, current, place
from tests.crash.crash_matrix import (
    Matrix,
    Run,
    content,
    leftovers,
    opened,
    settle_what_was_decided,
    templates,
    worker,
)
from tests.crash.crash_worker import SINK, rows
from tests.crash.requests import Request, arrive, taken
from tests.crash.vector_matrix import check
from tests.multiprocess import table_files

#: body -> action -> each how-manieth death
SAMPLE = {
    "objects": {
        "upsert": 7, "bulk_insert": 13, "abort": 21, "roll_back": 11, "compact": 11, "log_compact": 15,
        "clean": 11, "restore": 23, "archive": 23, "upsert_indexed": 23, "compact_metadata_indexed": 29,
        "upsert_anew_placed": 61,
    },
    "shared": {"upsert": 17, "archive": 37},
    "renames": {"upsert": 29, "compact": 37},
}  # fmt: skip
#: actions that plan first, and the services that do the same
PLANNED = {"compact": "compact", "log_compact": "log-compact", "clean": "clean"}
CELLS = [(body, action) for body, actions in SAMPLE.items() for action in actions]
KEYS = "0123456789"
OLD = {key: f"old{key}" for key in "0246"}
NEW = {key: f"new{key}" for key in KEYS}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def body(request: pytest.FixtureRequest) -> Iterator[tuple[str, Run]]:
    with worker(BODIES[request.param]) as call:
        yield request.param, call


@pytest.mark.parametrize(("body", "action"), CELLS, indirect=["body"])
def test_whatever_request_an_action_dies_at_everybody_goes_on(body, tmp_path: Path, action: str) -> None:
    name, run = body
    matrix = Matrix(run, tmp_path, random.Random(1))
    matrix.action(action, SAMPLE[name][action], roles=1)
    assert matrix.cells
    assert not matrix.broken, "\n".join(matrix.broken)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with worker(BODIES["objects"]) as call:
        yield call


def test_the_matrix_finds_what_nobody_sweeps(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(writers_leftovers, "sweep_abandoned", lambda storage, now_ms: None)
    matrix = Matrix(run, tmp_path, random.Random(1))
    matrix.action("upsert", 20, roles=1)
    assert any("own file probe-" in line for line in matrix.broken)


def test_whatever_request_a_refresh_of_vectors_dies_at_a_whole_version_serves(run, tmp_path: Path) -> None:
    check(run, tmp_path, "refresh_vector_index", 19)


def deaths(run: Run, action: str, template: Path, folder: Path, every: int) -> Iterator[tuple[Death, Path]]:
    """A copy of the table for each ``every``-th death of an action; in ``make crash`` for each."""
    every = int(os.environ.get("CRASH_EVERY", every))
    whole = folder / "whole"
    shutil.copytree(template, whole)
    steps = run(action, whole)["steps"]
    assert steps > 5
    for number, death in enumerate(current().deaths(steps, every, random.Random(2))):
        path = folder / f"dead-{number}"
        shutil.copytree(template, path)
        run(action, path, death.at, death.travels)
        yield death, path
        shutil.rmtree(path)


def comes(path: Path, request: Request | None) -> None:
    """The request that outlived its process, if one did."""
    if request is not None:
        arrive(path, request)


@pytest.mark.parametrize("by", ["a call", "a round of services"])
@pytest.mark.parametrize(("action", "service"), list(PLANNED.items()))
def test_one_call_finishes_the_plan_of_whoever_died_at_any_request(
    run: Run, tmp_path: Path, action: str, service: str, by: str
) -> None:
    template, whole, cell = tmp_path / "template", tmp_path / "whole", tmp_path / "cell"
    templates(run)[action][1](template)
    shutil.copytree(template, whole)
    steps = run(action, whole)["steps"]
    planned = 0
    for at in range(steps):
        shutil.copytree(template, cell)
        run(action, cell, at)
        table_files.age(cell)
        planned += bool(table_files.pending(cell))
        if by == "a call":
            crash_worker.ACTIONS[action](place(cell))
        else:
            done = opened(cell).run_services(service, if_due=False)
            assert [one.error for one in done] == [None], at
        assert table_files.pending(cell) == [], f"after a death at request {at} of {steps}"
        shutil.rmtree(cell)
    assert 0 < planned < steps


@pytest.mark.parametrize(("action", "every"), [("create", 2), ("create_with_metadata", 5)])
def test_a_table_whose_creator_died_at_any_request_exists_whole_or_not_at_all(
    run: Run, tmp_path: Path, action: str, every: int
) -> None:
    nothing, seen = tmp_path / "nothing", set()
    nothing.mkdir()
    for death, path in deaths(run, action, nothing, tmp_path, every):
        request = taken(path)
        exists = (path / paths.PROPERTIES).exists()
        seen.add(exists)
        if exists:
            assert content(path) == {}, death
            with pytest.raises(Invalid, match="exists already"):
                crash_worker.ACTIONS[action](place(path))
        else:
            with pytest.raises(Invalid):
                opened(path)
            crash_worker.ACTIONS[action](place(path))
        if death.at % 2:
            comes(path, request)
        opened(path).upsert(rows("old", 1, "0246"))
        comes(path, request)
        assert content(path) == OLD, (death, request)
        table_files.age(path)
        opened(path).upsert(rows("new", 9))
        opened(path).rollback_failed_writes()
        assert content(path) == NEW, (death, request)
        assert leftovers(path) == [], (death, request)
        report = opened(path).validate_metadata()
        assert report is None or report.ok, (death, request)
    assert seen == {False, True}


@pytest.mark.parametrize("when", ["at once", "after another committer", "long after"])
def test_a_committer_of_flink_that_died_at_any_request_commits_once(
    run: Run, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``when``: its last request arrives."""
    monkeypatch.setattr(Committer, "patience_ms", 0)
    template = tmp_path / "template"
    crash_worker.create(place(template))
    opened(template).upsert(rows("old", 1, "0246"))
    crash_worker.stage(place(template))
    for death, path in deaths(run, "flink_commit", template, tmp_path, 4):
        request = taken(path)
        if when == "at once":
            comes(path, request)
        assert content(path) == (NEW if batches(path) else OLD), (death, request)
        with suppress(MainstemError):  # the dead one may hold the lock
            crash_worker.flink_commit(place(path))
        if when == "after another committer":
            comes(path, request)
        settle_what_was_decided(path)
        table_files.age(path)
        crash_worker.flink_commit(place(path))
        assert batches(path) == [0] and content(path) == NEW, (death, request)
        tidy(path)
        if when == "long after":
            comes(path, request)
            assert Committer(opened(path), SINK).commit_pending() == [], (death, request)
            tidy(path)
        assert batches(path) == [0] and content(path) == {**NEW, "9": "last9"}, (death, request)
        assert leftovers(path) == [], (death, request)


def batches(path: Path) -> list[int]:
    """Numbers of the sink's commits."""
    return [commit.guard[1] for commit in table_files.commits(path) if commit.guard]


def tidy(path: Path) -> None:
    """Everybody comes, long after."""
    table_files.age(path)
    opened(path).upsert(rows("last", 20, "9"))
    opened(path).rollback_failed_writes()
    Committer(mainstem.open_table(place(path)), SINK).sweep(-1)
