"""8 processes that take and give back one ZooKeeper lock: ours against kazoo's own ``Lock``.

A real ensemble of three servers on this machine. Each process acquires and releases as fast as it can,
from a common start, for a fixed time; ours and kazoo's take turns, medians of the repeats are compared.
``python -m benchmarks.locks SPEC`` is one such process.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import Missing, Row, row, together

PROCESSES = 8
OURS, KAZOO = "mainstem", "kazoo"
_PATIENCE_S = 60


@dataclass(frozen=True)
class Turns:
    """What one contest gave: acquisitions of each process, and how long each took (seconds)."""

    seconds: float
    counts: list[int]
    waits: list[float]

    @property
    def rate(self) -> float:
        """Acquisitions per second of all processes together."""
        return sum(self.counts) / self.seconds

    @property
    def evenness(self) -> float:
        """The slowest process over the mean."""
        return min(self.counts) / statistics.mean(self.counts) if any(self.counts) else 0.0

    def wait_ms(self, quantile: float) -> float:
        """A quantile of the time until the lock was had."""
        ordered = sorted(self.waits)
        return 1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] if ordered else 0.0


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    try:
        from tests.servers.zookeeper import NoJava
        from tests.servers.zookeeper_ensemble import ZooKeeperEnsemble
    except ImportError as error:
        raise Missing(f"no kazoo: {error}") from error
    seconds, repeats = (3.0, 3) if reduced else (10.0, 5)
    try:
        with ZooKeeperEnsemble() as ensemble:
            rows = []
            for processes in (1, PROCESSES):
                turns: dict[str, list[Turns]] = {OURS: [], KAZOO: []}
                for repeat in range(repeats):
                    for kind in turns:
                        node = f"/{kind}-{processes}-{repeat}"
                        turns[kind].append(contest(kind, ensemble.direct_string, node, processes, seconds))
                rows += _compared(processes, turns[OURS], turns[KAZOO])
            return rows
    except NoJava as error:
        raise Missing(str(error)) from error


def _compared(processes: int, ours: list[Turns], kazoo: list[Turns]) -> list[Row]:
    own, peer = (sorted(turns, key=lambda t: t.rate)[len(turns) // 2] for turns in (ours, kazoo))
    contending = processes > 1
    named = f"{processes} contending processes" if contending else "one process"
    note = (
        f"waits p50 {own.wait_ms(0.5):.1f} ms, p99 {own.wait_ms(0.99):.1f} ms;"
        f" kazoo {peer.wait_ms(0.5):.1f} and {peer.wait_ms(0.99):.1f} ms"
    )
    rows = [
        row(f"ZooKeeper lock, acquire and release, 3 servers, {named}", own.rate, "locks/s",
            against="kazoo's Lock", baseline=peer.rate, target=1 / 1.5 if contending else None, note=note),
    ]  # fmt: skip
    if contending:
        rows.append(
            row(f"slowest process over mean, {named}", statistics.median(t.evenness for t in ours), "",
                against="mean", baseline=1.0, target=0.5)
        )  # fmt: skip
    return rows


def contest(kind: str, servers: str, node: str, processes: int, seconds: float) -> Turns:
    """One contest of processes for the lock ``node``."""
    spec = {"kind": kind, "servers": servers, "node": node, "seconds": seconds}
    waits = together.run("locks", [spec] * processes, name=kind, patience_s=seconds + _PATIENCE_S)
    return Turns(seconds, [len(own) for own in waits], [wait for own in waits for wait in own])


def _ours(servers: str, node: str) -> tuple[Callable[[], Callable[[], object]], Callable[[], object]]:
    from mainstem.options.locks import EXPLICIT
    from mainstem.truetime.clock import SystemClock
    from mainstem.truetime.locks.options import LockOptions
    from mainstem.truetime.locks.providers import open_lock

    properties = {
        "hoodie.write.lock.provider": EXPLICIT,
        "hoodie.write.lock.zookeeper.url": servers,
        "hoodie.write.lock.zookeeper.base_path": node,
        "hoodie.write.lock.zookeeper.lock_key": "lock",
        "hoodie.write.lock.zookeeper.session_timeout_ms": "30000",
    }
    options = LockOptions.from_properties(properties, base="/nowhere")
    lock = open_lock(options, clock=SystemClock(), random=random.SystemRandom())
    return lambda: lock.acquire().release, lock.close


def _kazoo(servers: str, node: str) -> tuple[Callable[[], Callable[[], object]], Callable[[], object]]:
    from kazoo.client import KazooClient

    client = KazooClient(servers, timeout=30)
    client.start()
    lock = client.Lock(node + "/lock", "benchmark")

    def acquire() -> Callable[[], object]:
        lock.acquire()
        return lock.release

    return acquire, client.stop


def main(spec: dict) -> list[float]:
    """Take and give back until the time is over; what each acquisition took, in seconds."""
    make = {OURS: _ours, KAZOO: _kazoo}[spec["kind"]]
    acquire, close = make(spec["servers"], spec["node"])
    for _ in range(3):  # connection, folders, imports
        acquire()()
    start = together.wait_for_the_start()
    waits = []
    while (began := time.monotonic()) < start + spec["seconds"]:
        release = acquire()
        waits.append(time.monotonic() - began)
        release()
    close()
    return waits


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
