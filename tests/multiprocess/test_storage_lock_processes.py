"""Goal: the storage lock keeps real processes apart; one that was stopped or killed is superseded in time.

Method: worker processes (``storage_lock_worker.py``) on a store that this process serves; the witness of
``lock_worker.py`` sees every overlap.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.managers import BaseManager
from pathlib import Path

import pytest

from mainstem.storage.swaps import Tag
from tests.multiprocess.test_lock_processes import Process
from tests.truetime.lock_world import HashedSwaps

WORKER = Path(__file__).with_name("storage_lock_worker.py")
Start = Callable[..., Process]


class OneByOne(HashedSwaps):
    """Each request of the workers has a thread of its own here."""

    def __init__(self) -> None:
        super().__init__()
        self.mutex = threading.Lock()

    def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
        with self.mutex:
            return super().swap(path, data, tag)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers on one store and one counter."""

    class Server(BaseManager):
        pass

    store = OneByOne()
    Server.register("swaps", callable=lambda: store)
    server = Server(("127.0.0.1", 0), authkey=b"test").get_server()
    # Not serve_forever, which puts pytest's standard output back.
    server.stop_event = threading.Event()
    threading.Thread(target=server.accepter, daemon=True).start()
    (tmp_path / "counter").write_text("0")
    started: list[Process] = []

    def one(validity_ms: int = 60_000) -> Process:
        given = {"address": server.address, "validity_ms": validity_ms}
        started.append(Process(tmp_path, given, WORKER))
        return started[-1]

    yield one
    for process in started:
        process.end()
    server.stop_event.set()


def test_processes_count_without_an_overlap(start: Start, tmp_path: Path) -> None:
    processes = [start() for _ in range(3)]
    for process in processes:
        process.send("count 15 1")
    assert [process.receive() for process in processes] == [{"answer": 15}] * 3
    assert (tmp_path / "counter").read_text() == "45"


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_stopped_or_killed_process_is_superseded_after_its_validity(start: Start, number: int) -> None:
    holder, successor = start(validity_ms=1_500), start()
    holder.call("acquire")
    time.sleep(2)
    assert holder.call("check") == {"answer": "ours"}, "a live holder renews"
    holder.signal(number)
    waited_ms = successor.call("acquire")["answer"]
    assert 500 < waited_ms < 6_000
    if number == signal.SIGSTOP:
        holder.signal(signal.SIGCONT)
        assert holder.call("check")["error"] == "LeaseLost"
        holder.call("release")
        assert successor.call("check") == {"answer": "ours"}


def test_a_forked_child_neither_has_nor_frees_its_parents_lock(start: Start) -> None:
    process = start()
    process.call("acquire")
    assert "belongs to the parent" in process.call("check_in_child")["answer"]
    assert process.call("check") == {"answer": "ours"}


def test_a_process_that_ends_frees_its_lock(start: Start) -> None:
    holder = start()
    holder.call("acquire")
    holder.child.stdin.close()
    holder.child.wait(30)
    assert start().call("acquire")["answer"] < 1_000
