"""Goal: beside Java, whose times are those of its clock, ours may lie in the past and need no wait.

Method: Java 1.2.0 and two mainstem writers, whose clocks are ahead of Java's and behind it by up to one and a
half times the bound, write rows of their own at the same time, under the file system's lock and ZooKeeper's.
Meanwhile incremental readers of both engines go on from where they were: each must see each row once. The
timeline's folder is looked at all the while: what becomes visible later has the later completion time.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from java_hudi import JavaHudi, nbcc_options
from test_interop_zookeeper import explicit

import mainstem
from tests.servers.zookeeper import ZooKeeperServer

BOUND_MS = 200
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
ROUNDS, JAVA_COMMITS = 4, 3
COMPLETED = re.compile(r"\d{17}_(\d{17})\.[a-z]+")


def rows_of(writer: str, commit: int) -> pa.Table:
    """Four rows that nobody else writes."""
    ids = [f"{writer}-{commit}-{n}" for n in range(4)]
    return pa.table({"id": ids, "ts": [commit] * 4}, schema=SCHEMA)


class Beside:
    """What goes on while Java writes: writers of ours, our reader, and a look at the timeline."""

    def __init__(self, path: str, options: dict[str, str], offsets_ms: tuple[int, ...]) -> None:
        self.path, self.options = path, options
        self.written: list[str] = []
        self.seen: Counter[str] = Counter()
        self.late: list[str] = []
        self.failures: list[BaseException] = []
        self._over = threading.Event()
        works = [self._watch, self._read]
        works += [lambda name=n, ms=ms: self._write(name, ms) for n, ms in enumerate(offsets_ms)]
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=120)
            assert not thread.is_alive()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # of a thread: the test raises it
            self.failures.append(error)

    def _write(self, name: int, offset_ms: int) -> None:
        ahead = {"hoodie.mainstem.clock.offset_ms": str(offset_ms)}
        table = mainstem.open_table(self.path, properties={**self.options, **ahead})
        for commit in range(10_000):
            if self._over.is_set():
                return
            rows = rows_of(f"ours{name}", commit)
            assert table.upsert(rows).status == "committed"
            self.written += rows["id"].to_pylist()
            time.sleep(0.1)  # two that hold the lock all the time would leave Java hardly a turn

    def _read(self) -> None:
        table = mainstem.open_table(self.path, properties=self.options)
        newest, ended = "0", False
        while not ended:
            ended = self._over.is_set() and all(not t.is_alive() for t in self._threads[2:])
            until = newest_completion(self.path)
            if until > newest:
                self.seen.update(table.changes(after=newest, until=until).to_arrow()["id"].to_pylist())
                newest = until
            time.sleep(0.02)

    def _watch(self) -> None:
        """A listing that runs while files are made may show a later one and lack an earlier one; the next one
        shows both."""
        before, newest, known = "", "", set[str]()
        while not self._over.is_set():
            there = set(completions(self.path))
            self.late += [one for one in there - known if one < before]
            known |= there
            before, newest = newest, max(known, default="")
            time.sleep(0.002)


def completions(path: str) -> list[str]:
    """Completion times that the timeline's folder shows; what Java has not renamed yet is none."""
    names = os.listdir(os.path.join(path, ".hoodie/timeline"))
    return [found[1] for found in map(COMPLETED.fullmatch, names) if found is not None]


def newest_completion(path: str) -> str:
    return max(completions(path), default="0")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("provider", "offsets_ms"),
    [
        ("file system", (0, 0)),
        ("file system", (-300, 300)),
        ("ZooKeeper", (300, 300)),
        ("ZooKeeper", (BOUND_MS, -BOUND_MS)),
    ],
)
def test_incremental_readers_of_both_engines_see_each_row_once_whatever_the_clocks_show(
    java: JavaHudi, path: str, zookeeper: ZooKeeperServer, provider: str, offsets_ms: tuple[int, int]
) -> None:
    lock = explicit(zookeeper, f"clocks {offsets_ms}") if provider == "ZooKeeper" else {}
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="clocks", properties=lock
    )
    options = nbcc_options("clocks", record_key=["id"], ordering=["ts"], buckets=2, extra=lock)
    written: list[str] = []
    seen: Counter[str] = Counter()
    newest = "0"
    with Beside(path, lock, offsets_ms) as beside:
        for number in range(ROUNDS):
            batches = [rows_of("java", number * JAVA_COMMITS + turn) for turn in range(JAVA_COMMITS)]
            files = [java.rows_file(rows) for rows in batches]
            java.call("write_loop", path=path, files=files, options=options)
            written += [one for rows in batches for one in rows["id"].to_pylist()]
            until = newest_completion(path)
            seen.update(java.changes(path, newest, until)["id"].to_pylist())
            newest = until
    assert not beside.failures and not beside.late
    assert len(beside.written) >= 4 * 20
    seen.update(java.changes(path, newest)["id"].to_pylist())
    everything = Counter(written + beside.written)
    assert beside.seen == everything
    assert seen == everything
