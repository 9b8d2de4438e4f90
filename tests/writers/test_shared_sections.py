"""Goal: threads whose begins and commits wait for one lock share a section; each is told its own outcome.

Method: a lock file as Java makes it holds everybody up, until all threads but the first have handed in their
work; then it goes. Calls of locks, listings and syncs are counted; calls fail, are interrupted, and the
process dies at them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_table import content, rows

import mainstem
from mainstem import aio
from mainstem.errors import LockUnavailable, OutcomeUnknown, RolledBack
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.file_system import FileSystemLock

PATIENCE_S = 30
WRITERS = 5
SHORT = {"hoodie.write.lock.wait_time_ms": "60", "hoodie.write.lock.client.num_retries": "0"}


class Company:
    """Threads that are held up by a lock file until all of them wait."""

    def __init__(self, table: mainstem.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lock = Path(table.path) / ".hoodie" / "lock"
        self.waiting = 0
        self.calls: Counter[str] = Counter()
        bell = SystemClock.bell

        def counted(clock: SystemClock) -> Any:
            self.waiting += 1
            return bell(clock)

        monkeypatch.setattr(SystemClock, "bell", counted)
        self._count(monkeypatch, FileSystemLock, "acquire", lambda *given: "lock")
        for name in ("names", "sync_folder"):
            self._count(monkeypatch, LocalStorage, name, lambda path, name=name: f"{name} {path}")

    def _count(self, patching: pytest.MonkeyPatch, owner: type, name: str, what: Callable[..., str]) -> None:
        whole = getattr(owner, name)

        def counted(this: Any, *given: Any, **named: Any) -> Any:
            self.calls[what(*given)] += 1
            return whole(this, *given, **named)

        patching.setattr(owner, name, counted)

    def run(
        self,
        works: list[Callable[[], Any]],
        *,
        release: bool = True,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> list[Any]:
        """The result of each work, or what it raised; they hand in their work in this order. ``meanwhile`` is
        called when all have, before the lock is free."""
        found: list[Any] = [None] * len(works)

        def one(place: int) -> None:
            try:
                found[place] = works[place]()
            except BaseException as error:
                found[place] = error

        self.lock.touch()
        self.waiting = 0
        self.calls.clear()
        threads = [threading.Thread(target=one, args=(place,), daemon=True) for place in range(len(works))]
        for place, thread in enumerate(threads):
            thread.start()
            self._until(lambda place=place: self.calls["lock"] and self.waiting >= place)
        meanwhile()
        if release:
            self.lock.unlink()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a thread waits for ever"
        self.lock.unlink(missing_ok=True)
        return found

    @staticmethod
    def _until(condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "the threads did not come to wait"
            time.sleep(0.001)


def written(table: mainstem.Table, count: int = WRITERS) -> list[Any]:
    """Open transactions, each with a row of its own."""
    made = []
    for number in range(count):
        made.append(table.begin("upsert"))
        made[-1].write(rows([number], ts=1))
    return made


def completed(table: mainstem.Table) -> list[str]:
    """Names of completed instants."""
    names = os.listdir(f"{table.path}/{paths.TIMELINE}")
    return sorted(name for name in names if name.endswith(".deltacommit"))


@pytest.fixture
def table(make_table) -> mainstem.Table:
    return mainstem.open_table(make_table(hoodie__mainstem__fsync=True).path)


def test_commits_that_wait_for_the_lock_share_one_section(table, monkeypatch):
    transactions = written(table)
    company = Company(table, monkeypatch)
    outcomes = company.run([one.commit for one in transactions])
    assert [outcome.status for outcome in outcomes] == ["committed"] * WRITERS
    times = [outcome.completion_time for outcome in outcomes]
    assert times == sorted(set(times)), "each has a time of its own, in the order in which they came"
    assert completed(table) == sorted(
        f"{one.instant}_{time}.deltacommit" for one, time in zip(transactions, times, strict=True)
    )
    calls = company.calls
    assert (calls["lock"], calls[f"names {paths.FENCE}"], calls[f"names {paths.TIMELINE}"]) == (1, 1, 1)
    assert calls[f"sync_folder {paths.TIMELINE}"] == 1
    assert content(table) == {f"k{number}": f"v{number}" for number in range(WRITERS)}
    assert not [name for name in os.listdir(f"{table.path}/{paths.FENCE}") if name.startswith("ticket")]


def test_begins_that_wait_for_the_lock_share_one_section(table, monkeypatch):
    table.upsert(rows([9], ts=1))
    company = Company(table, monkeypatch)
    began = company.run([lambda: table.begin("upsert")] * WRITERS)
    times = [one.instant for one in began]
    assert times == sorted(set(times))
    assert company.calls["lock"] == 1
    # One listing plans each write; one is before the requests, and one after them.
    assert company.calls[f"names {paths.TIMELINE}"] == WRITERS + 2
    for number, one in enumerate(began):
        one.write(rows([number], ts=1))
        assert one.commit().status == "committed"


def test_a_begin_is_above_the_commits_of_its_section(table, monkeypatch):
    transactions = written(table, 2)
    company = Company(table, monkeypatch)
    began, *outcomes = company.run([lambda: table.begin("upsert"), *(one.commit for one in transactions)])
    assert began.instant > max(outcome.completion_time for outcome in outcomes)
    began.abort()


def test_one_that_was_rolled_back_fails_alone(table, monkeypatch):
    transactions = written(table)
    requested = f"{table.path}/{paths.TIMELINE}/{transactions[2].instant}.deltacommit.requested"
    company = Company(table, monkeypatch)
    found = company.run([one.commit for one in transactions], meanwhile=lambda: os.unlink(requested))
    assert isinstance(found.pop(2), RolledBack)
    assert [outcome.status for outcome in found] == ["committed"] * (WRITERS - 1)
    assert set(content(table)) == {"k0", "k1", "k3", "k4"}


def test_columns_that_one_of_them_adds_are_taken_over_by_those_behind_it(table, monkeypatch):
    transactions = written(table, 3)
    wide = rows([7], ts=1).append_column("extra", [["x"]])
    first = table.begin("upsert")
    first.write(wide)
    company = Company(table, monkeypatch)
    company.run([one.commit for one in (first, *transactions)])
    found = table.scan().to_arrow()
    assert "extra" in found.column_names and found.num_rows == 4


def test_a_lock_that_is_not_free_in_time_is_told_to_all_who_waited_and_they_may_commit_again(
    make_table, monkeypatch
):
    table = mainstem.open_table(make_table().path, properties=SHORT)
    transactions = written(table)
    found = Company(table, monkeypatch).run([one.commit for one in transactions], release=False)
    assert [type(error) for error in found] == [LockUnavailable] * WRITERS
    assert len(set(map(id, found))) == WRITERS, "each thread raises an error of its own"
    assert [one.commit().status for one in transactions] == ["committed"] * WRITERS


def test_a_sync_that_fails_leaves_the_outcome_of_all_unknown_and_what_is_visible_stays(table, monkeypatch):
    transactions = written(table)
    company = Company(table, monkeypatch)
    whole = LocalStorage.sync_folder

    def failing(storage: LocalStorage, path: str) -> None:
        if path == paths.TIMELINE:
            raise OSError(5, "input/output error")
        whole(storage, path)

    monkeypatch.setattr(LocalStorage, "sync_folder", failing)
    found = company.run([one.commit for one in transactions])
    assert [type(error) for error in found] == [OutcomeUnknown] * WRITERS
    assert len(completed(table)) == WRITERS


@pytest.mark.parametrize("after", [False, True])
def test_a_leader_that_is_interrupted_leaves_the_others_committed_once(table, monkeypatch, after):
    transactions = written(table)
    company = Company(table, monkeypatch)
    whole, links = LocalStorage.rename, []

    def interrupted(storage: LocalStorage, source: str, target: str, **named: Any) -> None:
        links.append(target)
        if len(links) == 2 and not after:
            raise KeyboardInterrupt
        whole(storage, source, target, **named)
        if len(links) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(LocalStorage, "rename", interrupted)
    first, *others = company.run([one.commit for one in transactions])
    assert isinstance(first, KeyboardInterrupt)
    assert [outcome.status for outcome in others] == ["committed"] * (WRITERS - 1)
    transactions[0].abort()
    assert transactions[0].commit().status == "committed", "it was visible already, so it stays"
    assert len(completed(table)) == len({name[:17] for name in completed(table)}) == WRITERS


def test_a_call_from_within_a_section_does_not_wait_for_the_leader_below_it(make_table, monkeypatch):
    table = mainstem.open_table(make_table().path, properties=SHORT)
    transactions = written(table, 3)
    company = Company(table, monkeypatch)
    whole, inner = LocalStorage.rename, []

    def reentrant(storage: LocalStorage, source: str, target: str, **named: Any) -> None:
        if not inner:
            inner.append(None)
            with pytest.raises(LockUnavailable):
                table.begin("upsert")
        whole(storage, source, target, **named)

    monkeypatch.setattr(LocalStorage, "rename", reentrant)
    assert [o.status for o in company.run([one.commit for one in transactions])] == ["committed"] * 3
    assert inner


def test_tasks_of_asyncio_share_sections_too(table, monkeypatch):
    company = Company(table, monkeypatch)

    async def serve() -> list[Any]:
        shared = await aio.open_table(table.path)
        await shared.upsert(rows([9], ts=1))
        company.lock.touch()
        company.waiting = 0
        company.calls.clear()
        tasks = [asyncio.create_task(shared.upsert(rows([n], ts=1))) for n in range(4)]
        while company.waiting < 3:
            await asyncio.sleep(0.001)
        company.lock.unlink()
        return await asyncio.gather(*tasks)

    assert [outcome.status for outcome in asyncio.run(serve())] == ["committed"] * 4
    assert company.calls["lock"] < 8, "four begins and four commits"


@pytest.mark.parametrize("at", range(12))
def test_a_process_that_dies_in_a_shared_section_leaves_each_commit_whole_or_not_at_all(
    make_table, monkeypatch, at
):
    """Dies before the ``at``-th change of names since the lock was free; then others go on."""
    table = mainstem.open_table(make_table().path)
    child = os.fork()
    if child == 0:
        try:
            _dies(mainstem.open_table(table.path), monkeypatch, at)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3, "it did not come so far"
    shown = {name[:17] for name in completed(table)}
    before = set(content(table))
    assert len(before) == len(shown) == len(completed(table)), "each is there whole, once, or not at all"
    other = mainstem.open_table(table.path)
    assert other.upsert(rows([8], ts=1)).status == "committed"
    assert set(content(other)) == before | {"k8"}
    assert not [name for name in os.listdir(f"{table.path}/{paths.FENCE}") if name.startswith("ticket")]


def _dies(table: mainstem.Table, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    transactions = written(table, 3)
    company = Company(table, monkeypatch)
    changes = []
    for name in ("link", "rename", "delete"):
        whole = getattr(LocalStorage, name)

        def dying(storage: LocalStorage, *given: Any, whole: Any = whole, **named: Any) -> Any:
            if len(changes) == at:
                os._exit(3)
            changes.append(given)
            return whole(storage, *given, **named)

        monkeypatch.setattr(LocalStorage, name, dying)
    company.run([one.commit for one in transactions])
