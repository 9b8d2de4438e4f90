"""The processes of a run: each with all the processes that it starts, JVMs and workers included.

A process leads a session of the operating system, in which everything stays that it starts; so a kill or a
stop reaches the whole of it, or one part.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_END_S = 120.0
_ERROR = re.compile(r"(Caused by)?: \S|[\w.]+(Error|Exception)\b")


def session_members(leader: int) -> dict[int, str]:
    """Process id -> state letter of every process of a session that lives."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                stat = Path("/proc", entry, "stat").read_text()
                fields = stat.rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] not in "ZX":
                    found[int(entry)] = fields[0]
    return found


@dataclass
class Actor:
    """One process of a kind, which is started again whenever it has died.

    ``ends``: which exit codes its faults may lead to, beside death by signal. ``parts``: what of it may die
    alone (``_is``).
    """

    name: str
    kind: str
    command: Sequence[str]
    log: Path
    ends: frozenset[int] = frozenset()
    parts: tuple[str, ...] = ()
    is_writer: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen | None = None
    hurt: bool = False
    starts: int = 0

    def start(self) -> None:
        """Start it, with its messages appended to its log."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **self.environment}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.command], env=environment, cwd=ROOT, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.hurt = False
        self.starts += 1

    @property
    def pid(self) -> int:
        """The leader's; also the session's."""
        assert self.process is not None
        return self.process.pid

    def members(self) -> dict[int, str]:
        """All its processes."""
        return session_members(self.pid)

    def has(self, pid: int | None) -> bool:
        """It is one of its processes."""
        try:
            return bool(pid) and os.getsid(pid) == self.pid
        except ProcessLookupError:
            return False

    def kill(self, part: str = "") -> bool:
        """kill -9 of everything, or of one part; False if there is none."""
        victims = [pid for pid in self.members() if not part or self._is(pid, part)]
        self.hurt = self.hurt or bool(victims)
        for pid in victims:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(victims)

    def _is(self, pid: int, part: str) -> bool:
        """``client`` is the leader, ``java`` any JVM, ``worker`` any other Python process."""
        if part == "client" or pid == self.pid:
            return part == "client" and pid == self.pid
        try:
            command = Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            return False
        return command.startswith("java" if part == "java" else "python")

    def signal(self, number: int) -> None:
        """To all of it."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def restart_if_dead(self, expected: Callable[[int], bool]) -> bool:
        """Start it again if it died; an end that no fault explains fails the run."""
        assert self.process is not None
        status = self.process.poll()
        if status is None or expected(status):
            return False
        known = self.hurt and (status == -signal.SIGKILL or status in self.ends)
        assert known, f"{self.name} ended with {status} by itself:\n{self.tail()}"
        self.end()  # children that outlived it
        self.start()
        return True

    def end(self) -> None:
        """Kill what is left of it and wait."""
        if self.process is None:
            return
        end = time.monotonic() + _END_S
        while left := self.members():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < end, f"{self.name} cannot be killed"
            self.process.poll()
            time.sleep(0.01)
        self.process.wait()

    def tail(self) -> str:
        """The end of its log, behind the errors that traces of Java begin with."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        named = [line[:500] for line in text.splitlines() if _ERROR.match(line)]
        return "\n".join([*named[-5:], text[-4000:]])


@dataclass(frozen=True)
class Place:
    """The files of a run."""

    folder: Path
    #: of a table in a bucket
    bucket: str | None = None

    @property
    def table(self) -> Path:
        """The table's files, or what was copied of those in a bucket."""
        return self.folder / "t"

    @property
    def url(self) -> str:
        """What the table is opened by."""
        return self.bucket or str(self.table)

    @property
    def stop(self) -> Path:
        """Its existence tells writers to end."""
        return self.folder / "stop"

    def journal(self, name: str) -> Path:
        return self.folder / f"journal-{name}"

    def log(self, name: str) -> Path:
        return self.folder / f"log-{name}"


#: the number by which a source's rows are known
SOURCES = {"python-0": 0, "python-1": 1, "spark-0": 2, "spark-1": 3, "flink-0": 4, "flink-1": 5}
#: rows in one batch of a source
BATCH_ROWS = {"python": 40, "spark": 40}
_CHANGES = {"editor": "edit", "clusterer": "cluster", "resizer": "resize"}
_SERVICE_S = {"compact": "700ms", "clean": "900ms", "archive": "1100ms"}


def python_writer(place: Place, name: str, properties: dict, sabotage: str) -> Actor:
    """A plain writer."""
    given = {
        "name": name, "source": SOURCES[name], "rows": BATCH_ROWS["python"], "path": place.url,
        "properties": properties, "journal": str(place.journal(name)), "stop": str(place.stop),
        "pause_s": 0.15, "sabotage": sabotage,
    }  # fmt: skip
    return Actor(name, "python", ["-m", "tests.chaos.python_writer", json.dumps(given)], place.log(name))


def spark_writer(place: Place, name: str, properties: dict) -> Actor:
    """A Spark driver with one streaming query."""
    options = {
        "hoodie.datasource.write.streaming.checkpoint.identifier": name,
        "hoodie.mainstem.services": "off",  # they have processes of their own here
        **{key: value for key, value in properties.items() if key != "hoodie.mainstem.fsync"},
    }
    given = {
        "source": SOURCES[name], "rows": BATCH_ROWS["spark"], "path": place.url, "options": options,
        "journal": str(place.journal(name)), "stop": str(place.stop), "pause_ms": 300, "memory": "640m",
        "checkpoint": str(place.folder / f"checkpoint-{name}"),
    }  # fmt: skip
    command = ["-m", "tests.chaos.spark_writer", json.dumps(given)]
    ends = frozenset({7, 1})  # of a driver whose JVM was killed
    return Actor(name, "spark", command, place.log(name), ends, parts=("java", "client"))


def flink_writer(place: Place, name: str, properties: dict, index: str) -> Actor:
    """A Flink SQL job with its cluster in one process, and its Python workers."""
    given = {
        "index": index,
        "source": SOURCES[name], "sink": flink_sink(name), "path": place.url, "options": properties,
        "journal": str(place.journal(name)), "stop": str(place.stop), "rate": 40, "memory": "768m",
        "checkpoint": str(place.folder / f"checkpoint-{name}"), "checkpoint_ms": 1000,
    }  # fmt: skip
    command = ["-m", "tests.chaos.flink_writer", json.dumps(given)]
    ends = frozenset({1, 8})  # of a client whose JVM was killed
    return Actor(name, "flink", command, place.log(name), ends, parts=("java", "client", "worker"))


def flink_sink(name: str) -> str:
    """The name of a writer's sink, which is a table's name in SQL."""
    return name.replace("-", "_")


def indexer(place: Place, name: str, properties: dict, seed: int) -> Actor:
    """A process that builds indexes; the one called ``dropper`` drops them."""
    given = {
        "path": place.url, "properties": properties, "journal": str(place.journal(name)), "seed": seed,
        "does": "drop" if name == "dropper" else "build",
    }  # fmt: skip
    kind = name.partition("-")[0]
    command = ["-m", "tests.chaos.indexer", json.dumps(given)]
    return Actor(name, kind, command, place.log(name), is_writer=False)


def changer(place: Place, name: str, properties: dict, seed: int) -> Actor:
    """A process that edits rows of a partition of its kind, clusters the table or resizes it."""
    kind, _, number = name.partition("-")
    given = {
        "path": place.url, "properties": properties, "journal": str(place.journal(name)), "seed": seed,
        "does": _CHANGES[kind], "source": int(number or 0),
    }  # fmt: skip
    command = ["-m", "tests.chaos.changer", json.dumps(given)]
    return Actor(name, kind, command, place.log(name), is_writer=False)


def reader(place: Place, name: str, properties: dict) -> Actor:
    """A process that reads the table again and again."""
    sizes = {name: BATCH_ROWS.get(name.partition("-")[0]) for name in SOURCES}
    given = {
        "path": place.url, "properties": properties, "journal": str(place.journal(name)),
        "batch_rows": {str(SOURCES[source]): size for source, size in sizes.items() if size},
    }  # fmt: skip
    command = ["-m", "tests.chaos.reader", json.dumps(given)]
    return Actor(name, "reader", command, place.log(name), is_writer=False)


def service(place: Place, name: str, properties: dict) -> Actor:
    """A process of one table service."""
    options = [part for key, value in properties.items() for part in ("-o", f"{key}={value}")]
    command = ["-m", "mainstem", "services", place.url, "--only", name, "--every", _SERVICE_S[name]]
    return Actor(name, name, [*command, *options], place.log(name), is_writer=False)
