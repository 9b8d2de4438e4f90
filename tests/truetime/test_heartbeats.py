"""Goal: nothing but its own end stops the heartbeat of a writer that lives (Hudi's #18903, R5).

Method: beats on a storage that fails for a while, or takes the file away.
"""

from __future__ import annotations

import os
import time

import pytest

from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.heartbeats import Heartbeats

INSTANT = "20260101000000000"


class Failing(LocalStorage):
    """A storage whose ``renew`` fails as long as it is told to."""

    fails = False

    def renew(self, path: str) -> None:
        if self.fails:
            raise OSError("the storage is away")
        super().renew(path)


@pytest.fixture
def storage(tmp_path) -> Failing:
    return Failing(str(tmp_path))


@pytest.fixture
def hearts(storage):
    made = Heartbeats(storage, SystemClock(0), 60_000, 2)
    made.start(INSTANT)
    yield made
    made.stop(INSTANT)


def age(storage, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(f"{storage.base}/{paths.heartbeat(INSTANT)}", (then, then))


def expired(hearts) -> bool:
    return hearts.expired(INSTANT, int(time.time() * 1000))


def test_a_heartbeat_goes_on_when_a_storage_that_failed_answers_again(storage, hearts):
    storage.fails = True
    hearts.beat()
    age(storage, 200)
    assert expired(hearts)
    storage.fails = False
    hearts.beat()
    assert not expired(hearts)


def test_a_heartbeat_that_somebody_removed_does_not_come_back(storage, hearts):
    storage.delete(paths.heartbeat(INSTANT))
    hearts.beat()
    assert expired(hearts)
    assert storage.stat(paths.heartbeat(INSTANT)) is None


def test_whoever_is_interrupted_while_taking_a_heartbeat_over_has_not_taken_it(storage, monkeypatch) -> None:
    storage.put_new(paths.heartbeat(INSTANT), b"", durable=False)
    later = Heartbeats(storage, SystemClock(0), 60_000, 2)

    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "renew", interrupted)
    with pytest.raises(KeyboardInterrupt):
        later.adopt(INSTANT)
    assert not later._live, "nobody knows of it, to end it"


@pytest.mark.parametrize("call", ["put_new", "read", "renew"])
def test_an_interrupted_claim_leaves_nothing_that_looks_alive(tmp_path, monkeypatch, call):
    storage, at_work = LocalStorage(str(tmp_path)), []

    def interrupted(*given, **named):
        result = whole(*given, **named)
        if not at_work:
            at_work.append(call)
            raise KeyboardInterrupt
        return result

    whole = getattr(storage, call)
    monkeypatch.setattr(storage, call, interrupted)
    hearts = Heartbeats(storage, SystemClock(0), 60_000, 2)
    with pytest.raises(KeyboardInterrupt):
        hearts.claim(INSTANT, lambda: int(time.time() * 1000))
    assert at_work and storage.stat(paths.heartbeat(INSTANT)) is None
    other = Heartbeats(storage, SystemClock(0), 60_000, 2)
    assert other.claim(INSTANT, lambda: int(time.time() * 1000)), "nobody waits for the interrupted one"
    other.stop(INSTANT)
