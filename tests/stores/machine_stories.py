"""Stories of machines that share a table in MinIO, of which one is cut off in the middle of a commit.

    python -m tests.stores.machine_stories --seconds 600 [--seed 7]

tells random ones, one after the other; ``Theatre`` has the machines. Writers, services and a reader run on
machines of their own, with clocks that differ. When the victim comes to the moment of the story, its cables
are pulled: to the store, to ZooKeeper, or both; or the store's replies to it are lost. Later they are plugged
in again, or the machine never comes back.

In the end the table holds what was told as committed, nothing that was told as failed, all or nothing of what
was told as unknown, and each row once (``check``).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

import mainstem
from tests import quiet_writers  # noqa: F401
from tests.hudi_rs.reading import read as read_with_hudi_rs
from tests.servers.machines import LOCKS, STORE, Machine, Machines
from tests.servers.object_stores import Minio
from tests.servers.zookeeper import ZooKeeperServer
from tests.stores import machine_program
from tests.stores.machine_program import batches_of
from tests.stores.store_writer import stream_batch
from tests.stores.table_life import (
    ROOT,
    Rows,
    check_metadata,
    content,
    create,
    open_there,
    put_into,
)

EXPLICIT = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"
OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "100",
    # A machine that is silent for 1 s x (3 + 1) is dead; its storage lock is free after 10 s.
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "3",
    "hoodie.write.lock.storage.validity.timeout.secs": "10",
    "hoodie.write.lock.storage.renew.interval.secs": "1",
    "hoodie.write.lock.zookeeper.session_timeout_ms": "2000",
    "hoodie.write.lock.zookeeper.connection_timeout_ms": "3000",
    "hoodie.write.lock.wait_time_ms": "15000",
    "hoodie.write.lock.client.num_retries": "0",
    "hoodie.mainstem.storage.timeout_ms": "2000",
    "hoodie.mainstem.storage.connect_timeout_ms": "1000",
    "hoodie.mainstem.storage.retry_timeout_ms": "5000",
    "hoodie.compact.inline.max.delta.commits": "4",
    "hoodie.clean.commits.retained": "4",
    "hoodie.keep.min.commits": "6",
    "hoodie.keep.max.commits": "8",
}
GATE, TARGET, LOG = r"gate\.json$", r"timeline/\d+_\d+\.deltacommit$", r"^(?!\.hoodie).*\.log\."
#: name -> what the victim puts then, before or after it
MOMENTS = {
    "in the middle of its files": (LOG, "after"),
    "before the gate": (GATE, "before"),
    "after the gate": (GATE, "after"),
    "before the file that shows": (TARGET, "before"),
    "after the file that shows": (TARGET, "after"),
}
LOCK_KINDS = ("none", "storage", "zookeeper")
CUTS = {"store": (STORE,), "locks": (LOCKS,), "both": (STORE, LOCKS), "replies": ()}
CLOCKS_MS = (0, 60, -60, 3_000, -5_000, 40_000)
VICTIM, OTHER = 0, 1
_WAIT_S = 90.0


@dataclass(frozen=True)
class Story:
    """One story. ``number``: at which of the puts of its moment. ``clocks_ms``: of the two writers and the
    services. ``returns``: False: the machine is lost."""

    lock: str
    moment: str
    number: int
    cut: str
    away_s: float
    returns: bool = True
    guarded: bool = False
    metadata: bool = False
    clocks_ms: tuple[int, int, int] = (0, 0, 0)


def random_story(chance: random.Random) -> Story:
    """One that makes sense."""
    lock = chance.choice(LOCK_KINDS)
    cuts = [name for name in CUTS if lock == "zookeeper" or name != "locks"]
    return Story(
        lock, chance.choice(list(MOMENTS)), chance.randrange(2, 7), chance.choice(cuts),
        chance.choice([0.3, 1.5, 5.0, 8.0, 13.0]), chance.random() < 0.8, chance.random() < 0.4,
        chance.random() < 0.5, tuple(chance.choice(CLOCKS_MS) for _ in range(3)),  # type: ignore[arg-type]
    )  # fmt: skip


class Party:
    """A process on a machine, and what it said."""

    def __init__(self, machine: Machine, log: Path, given: dict[str, Any]) -> None:
        self.machine = machine
        self.said: list[dict[str, Any]] = []
        self.log, self._begun = log, time.monotonic()
        with open(log, "w") as errors:
            self.process = machine.start(
                [sys.executable, str(Path(machine_program.__file__)), json.dumps(given)],
                {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append({**json.loads(line), "at": round(time.monotonic() - self._begun, 2)})

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def wait_for(self, what: Callable[[list[dict[str, Any]]], bool], name: str) -> None:
        """Until it has said something."""
        end = time.monotonic() + _WAIT_S
        while not what(list(self.said)):
            assert self.process.poll() is None, f"{self.machine.name} ended: {self.log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"{self.machine.name}: no {name}; it said {self.said[-8:]}"
            time.sleep(0.02)

    def end(self) -> None:
        """Tell it to, and see it end in order."""
        self.tell("end")
        assert self.process.wait(_WAIT_S) == 0, f"{self.machine.name}: {self.log.read_text()[-4000:]}"

    def close(self) -> None:
        """Kill it, and forget its pipes."""
        self.machine.kill()
        self._listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def numbers(self, *status: str) -> set[int]:
        """The batches that ended so."""
        return {entry["ended"] for entry in list(self.said) if entry.get("status") in status}


class Theatre:
    """The machines, with a store and a ZooKeeper; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Theatre:
        with ExitStack() as stack:
            self.lab = stack.enter_context(Machines())
            self.store_machine = self.lab.machine("store")
            self.minio = stack.enter_context(Minio(self.store_machine))
            self.minio.make_bucket("bucket")
            locks = self.lab.machine("zookeeper", wire=LOCKS)
            self.zookeeper = stack.enter_context(ZooKeeperServer(host=locks))
            self.writers = [self.lab.machine(f"writer-{number}") for number in (VICTIM, OTHER)]
            self.tender, self.reader = self.lab.machine("services"), self.lab.machine("reader")
            self._stack = stack.pop_all()
        self._told = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tell(self, story: Story) -> dict[str, Any]:
        """Play a story and check its end; returns what can be counted of it."""
        self._told += 1
        path = f"story-{self._told}"
        create(self.minio, "bucket", path, self._table(story))
        parties = self._cast(story, path)
        try:
            self._play(story, parties)
            for party in parties[0 if story.returns else 1 :]:
                party.end()
        finally:
            for party in parties:
                party.close()
        return self._check(story, path, parties)

    def _table(self, story: Story) -> dict[str, object]:
        properties: dict[str, object] = {"hoodie.metadata.enable": story.metadata}
        if story.lock == "zookeeper":
            properties |= {
                "hoodie.write.lock.provider": EXPLICIT,
                "hoodie.write.lock.zookeeper.url": self.zookeeper.connect_string,
                "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
                "hoodie.write.lock.zookeeper.lock_key": f"story-{self._told}",
            }
        return properties | {"hoodie.mainstem.exclusive": story.lock == "none"}

    def _cast(self, story: Story, path: str) -> list[Party]:
        """Victim, other writer, services, reader."""
        given = {
            "path": self.minio.url("bucket", path), "store": self.minio.options(), "options": OPTIONS,
            "guarded": story.guarded, "role": "writer",
        }  # fmt: skip
        halt = [*MOMENTS[story.moment], story.number]
        roles: list[tuple[Machine, dict[str, Any]]] = [
            (self.writers[VICTIM], {"writer": VICTIM, "halt_at": halt}),
            (self.writers[OTHER], {"writer": OTHER, "guarded": not story.guarded}),
            (self.tender, {"role": "services"}),
            (self.reader, {"role": "reader"}),
        ]
        for machine, clock_ms in zip((*self.writers, self.tender), story.clocks_ms, strict=True):
            machine.clock_ms = clock_ms
        return [Party(m, self.folder / f"{path}-{m.name}.log", {**given, **more}) for m, more in roles]

    def _play(self, story: Story, parties: list[Party]) -> None:
        victim, other = parties[VICTIM], parties[OTHER]
        machine = self.writers[VICTIM]
        victim.wait_for(lambda said: any("halted" in entry for entry in said), "halt")
        before = len(other.said)
        with self._away(story, machine):
            victim.tell("go")
            time.sleep(story.away_s)
            if not story.returns:
                machine.kill()
        back = len(victim.said)

        def commits_since(moment: int) -> Callable[[list[dict[str, Any]]], bool]:
            return lambda said: sum(entry.get("status") == "committed" for entry in said[moment:]) >= 2

        if story.returns:
            victim.wait_for(commits_since(back), "commits of the victim when it is back")
        other.wait_for(commits_since(before), "commits of the other while the victim is away")

    def _away(self, story: Story, machine: Machine) -> ExitStack:
        """The time without the network."""
        away = ExitStack()
        if wires := CUTS[story.cut]:
            machine.cut(*wires)
            away.callback(machine.plug, *wires)
        else:
            machine.lose_replies_of(self.store_machine)
            away.callback(machine.hear_again, self.store_machine)
        return away

    def _check(self, story: Story, path: str, parties: list[Party]) -> dict[str, Any]:
        table = open_there(self.minio, "bucket", path, **OPTIONS)
        finish(table)
        found = content(table)
        visible = batches_of(list(found))
        for writer, party in enumerate(parties[:2]):
            seen = {int(one.split("-")[1]) for one in visible if one.startswith(f"{writer}-")}
            committed, failed = party.numbers("committed", "already_committed"), party.numbers("failed")
            assert committed <= seen, f"lost of writer {writer}: {committed - seen}; {party.said}"
            assert not failed & seen, f"writer {writer} was told that {failed & seen} failed; {party.said}"
            began = {entry["began"] for entry in party.said if "began" in entry}
            assert seen <= began, f"of writer {writer} nobody wrote {seen - began}"
        assert found == what_they_make(visible), "not what the visible batches make"
        check_metadata(table)
        table.compact(if_due=False)
        assert content(table) == found
        assert content(table, mode="read_optimized") == found
        by_hudi_rs = not story.metadata and story.lock == "none"
        if by_hudi_rs:
            assert self._by_hudi_rs(path) == found
        trouble = [entry["trouble"] for entry in parties[VICTIM].said if "trouble" in entry]
        return {"batches": len(visible), "trouble": trouble, "hudi-rs": by_hudi_rs,
                "reads": sum("seen" in entry for entry in parties[3].said)}  # fmt: skip

    def _by_hudi_rs(self, path: str) -> Rows:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.minio.variables().items():
                patch.setenv(name, value)
            rows, error = read_with_hudi_rs(f"s3://bucket/{path}")
        assert rows is not None, error
        assert len(rows) == len(set(rows["id"].to_pylist())), "a key comes twice"
        return {row["id"]: (row["ts"], row["v"]) for row in rows.to_pylist()}


def finish(table: mainstem.Table) -> None:
    """Roll back what the lost left behind, until nothing is pending."""
    end = time.monotonic() + _WAIT_S
    while pending := [i for i in table.timeline() if i.completion is None]:
        assert time.monotonic() < end, f"still pending: {pending}"
        table.rollback_failed_writes()
        runs = table.run_services()
        assert all(run.error is None for run in runs), runs
        time.sleep(0.2)


def what_they_make(visible: set[str]) -> Rows:
    """The rows that these batches leave."""
    rows = Rows()
    for writer, number in (map(int, one.split("-")) for one in visible):
        put_into(rows, stream_batch(writer, number))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--folder", type=Path, default=Path("build/machines"), help="for logs")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    chance, end = random.Random(given.seed), time.monotonic() + given.seconds
    print(f"seed {given.seed}", flush=True)
    with Theatre(given.folder) as theatre:
        while time.monotonic() < end:
            story, begun = random_story(chance), time.monotonic()
            print(json.dumps(asdict(story)), flush=True)
            said = theatre.tell(story)
            print(f"  {time.monotonic() - begun:.0f} s: {json.dumps(said)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
