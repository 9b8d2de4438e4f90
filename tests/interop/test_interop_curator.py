"""Goal: ten mainstem processes and ten JVMs with Curator's lock never hold one ZooKeeper lock at once.

Method: `lock_party.py` processes under an independent witness. Killed, or stopped for less than the
session, nobody overlaps. Stopped for longer, every holder is overtaken: no mainstem holder publishes
after that; what Curator's holders do, as Java Hudi uses them, is counted and printed (SAFETY.md). Java
Hudi itself is not needed: Curator is among Spark's jars.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.zookeeper import ZooKeeperServer

pytest.importorskip("kazoo")
ROOT = Path(__file__).resolve().parents[2]
PARTY = Path(__file__).with_name("lock_party.py")
KINDS = ("mainstem", "curator")
OF_EACH = 10
# A machine that is busy with other things needs more.
SESSION_MS, STOP_S = int(os.environ.get("MAINSTEM_SESSION_MS", "10000")), 1.2
TURNS = 15
NODE = "/hudi/locks/party"


class Party:
    """The processes, each in a group with its JVM, and the log that they share."""

    def __init__(self, server: ZooKeeperServer, folder: Path) -> None:
        self.folder = folder
        self.chance = random.Random()
        self.hold(10)
        self.processes: dict[int, subprocess.Popen] = {}
        self.stopped: set[int] = set()
        for kind in KINDS * OF_EACH:
            given = {
                "kind": kind, "connect_string": server.connect_string, "node": NODE,
                "folder": str(folder), "session_ms": SESSION_MS,
            }  # fmt: skip
            with open(folder / "stderr", "ab") as log:
                process = subprocess.Popen(
                    [sys.executable, str(PARTY), json.dumps(given)], stderr=log,
                    env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
                )  # fmt: skip
            self.processes[process.pid] = process

    def hold(self, ms: int) -> None:
        """How long a critical section lasts from now on."""
        (self.folder / "hold.new").write_text(str(ms))
        os.replace(self.folder / "hold.new", self.folder / "hold")

    def log(self) -> list[dict]:
        """Whole lines: readers see the begin of one that is being written over the end of a page."""
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def holder(self, kind: str | None = None) -> int:
        """The process that entered last and has not left yet; waits for one of that kind."""
        found: list[int] = []

        def inside() -> bool:
            last = self.log()[-1]
            if last["event"] == "enter" and last["pid"] in self.processes and kind in (None, last["kind"]):
                found.append(last["pid"])
            return bool(found)

        wait_for(inside, f"a {kind or ''} holder")
        return found[0]

    def send(self, pid: int, number: int) -> None:
        os.killpg(pid, number)

    def kill(self, pid: int) -> None:
        self.send(pid, signal.SIGKILL)
        self.processes.pop(pid).wait()

    def end(self) -> None:
        for pid in list(self.processes):
            self.kill(pid)


def wait_for(what: Callable[[], bool], text: str, seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"waited in vain for {text}"
        time.sleep(0.01)


@pytest.fixture
def party(tmp_path: Path) -> Iterator[Party]:
    with ZooKeeperServer(memory="128m") as server:
        running = Party(server, tmp_path)
        try:
            yield running
        finally:
            running.end()


def count(log: list[dict], event: str) -> Counter:
    return Counter(line["kind"] for line in log if line["event"] == event)


def stale(log: list[dict]) -> Counter:
    """Publications by processes after whose entry somebody else entered, by kind."""
    found, last = Counter(), None
    for line in log:
        if line["event"] == "enter":
            last = line["pid"]
        elif line["event"] == "publish" and line["pid"] != last:
            found[line["kind"]] += 1
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.supports("Locks", "ZooKeeper lock beside any client of Curator's InterProcessMutex")
def test_ten_of_ours_and_ten_curator_clients_never_overlap_and_the_overtaken_do_not_publish(party: Party):
    wait_for(lambda: len(count_ready(party)) == 2 * OF_EACH, "twenty processes")
    check_fairness(party)
    hurt_for_less_than_a_session(party)
    log = party.log()
    assert not [line for line in log if line.get("overlap")]
    assert not stale(log) and not count(log, "fenced")
    entered = count(log, "enter")
    rounds = stop_holders_for_longer(party)
    log = party.log()
    after, fenced = stale(log), count(log, "fenced")
    failed = count(log, "release failed")
    print(
        f"\n{sum(entered.values())} critical sections {dict(entered)} without an overlap; then"
        f" {rounds} holders of each kind stopped for longer than their session: {fenced['mainstem']} of"
        f" mainstem fenced, {after['mainstem']} published; of Curator {after['curator']} published"
        f" although another one held the lock (their release failed {failed['curator']} times)"
    )
    assert after["mainstem"] == 0
    assert fenced["mainstem"] >= rounds
    assert fenced["curator"] == 0 and after["curator"] >= rounds, "Curator asks; SAFETY.md says it does not"


def count_ready(party: Party) -> list[dict]:
    return [line for line in party.log() if line["event"] == "ready"]


def check_fairness(party: Party) -> None:
    """ZooKeeper's queue serves in the order of coming: nobody starves, of neither kind. Whom a busy machine
    holds up has fewer turns for some time, but not for ever."""
    assert any(min(shares_of(party)) >= TURNS / 2 for _ in range(5))


def shares_of(party: Party) -> list[int]:
    """Turns of each process, of ``TURNS`` that it should have."""
    party_of = 2 * OF_EACH
    wait_for(lambda: len({line["pid"] for line in count_enter(party.log())}) == party_of, "a turn of each")
    known, start = len(party.log()), time.monotonic()
    wait_for(lambda: len(count_enter(party.log()[known:])) >= TURNS * party_of, "more turns")
    entered = count_enter(party.log()[known:])
    shares = Counter(line["pid"] for line in entered)
    print(
        f"\n{len(entered) / (time.monotonic() - start):.0f} critical sections of 10 ms per second,"
        f" shares {sorted(shares.values())}"
    )
    return [*shares.values(), *[0] * (party_of - len(shares))]


def hurt_for_less_than_a_session(party: Party) -> None:
    """Stops of a small part of the session, of holders and waiters; then kills of both."""
    party.hold(40)
    for turn in range(12):
        alive = sorted(party.processes)
        victims = {party.holder()} if turn % 2 else set()
        victims |= set(party.chance.sample(alive, 3))
        for pid in sorted(victims):
            party.send(pid, signal.SIGSTOP)
        time.sleep(party.chance.uniform(0.1, STOP_S))
        for pid in sorted(victims):
            party.send(pid, signal.SIGCONT)
        time.sleep(0.2)
    for kind in KINDS:
        party.kill(party.holder(kind))
        party.kill(party.chance.choice(sorted(party.processes)))
        known = len(party.log())
        wait_for(lambda n=known: len(count_enter(party.log()[n:])) > 20, "the dead to be passed over")


def count_enter(log: list[dict]) -> list[dict]:
    return [line for line in log if line["event"] == "enter"]


def stop_holders_for_longer(party: Party, rounds: int = 2) -> int:
    """Each is stopped while it holds, and wakes when somebody else is inside."""
    party.hold(400)
    known = len(party.log())
    wait_for(lambda: len(count_enter(party.log()[known:])) > 1, "sections that last longer")
    for kind in KINDS * rounds:
        pid = party.holder(kind)
        party.send(pid, signal.SIGSTOP)
        known = len(party.log())
        wait_for(lambda n=known: bool(count_enter(party.log()[n:])), "another holder")
        party.send(pid, signal.SIGCONT)
        wait_for(
            lambda n=known, p=pid: any(
                line["pid"] == p and line["event"] in ("publish", "fenced") for line in party.log()[n:]
            ),
            "what the overtaken one does",
        )
    return rounds
