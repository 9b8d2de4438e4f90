"""Goal: writers that lock by ZooKeeper lose and double nothing, whatever is killed, stopped or expires.

Method: as ``test_writer_processes.py`` (journals of what ``commit`` told against what the files say, and
against hudi-rs), with the table's lock in a real ZooKeeper that is itself killed and started again on the
way. Targeted tests stop a writer at one exact storage call for longer than its session.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import mainstem
from mainstem.options.locks import EXPLICIT
from tests.multiprocess.test_lock_processes import eventually
from tests.multiprocess.test_writer_processes import (
    SECTION,
    SEED,
    WRITERS,
    Fleet,
    Observer,
    Process,
    check_the_next_writer_cleans_up,
    check_what_the_fleet_left,
    content,
    merged,
)
from tests.multiprocess.writer_worker import SCHEMA, batch, entries
from tests.servers.zookeeper import ZooKeeperServer

kazoo_client = pytest.importorskip("kazoo.client")
SESSION_MS, PATIENT_MS = 1_500, 60_000
FOLDER = "/hudi/locks/t"
# MAINSTEM_CHAOS_SECONDS=600 looks for what happens rarely.
CHAOS_S = float(os.environ.get("MAINSTEM_CHAOS_SECONDS", "8"))

pytestmark = pytest.mark.timeout(600 + CHAOS_S)


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tick_ms=100) as running:
        yield running


def create(path: Path, server: ZooKeeperServer) -> Path:
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties={
            "hoodie.mainstem.exclusive": True,
            "hoodie.mainstem.fsync": False,
            "hoodie.write.lock.provider": EXPLICIT,
            "hoodie.write.lock.zookeeper.url": server.connect_string,
            "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
            "hoodie.write.lock.zookeeper.lock_key": "t",
        },
    )  # fmt: skip
    return path


def options(*, beat_ms: int = 500, session_ms: int = SESSION_MS) -> dict[str, str]:
    """The lock itself is in the table's properties."""
    return {
        "hoodie.write.lock.zookeeper.session_timeout_ms": str(session_ms),
        "hoodie.write.lock.zookeeper.connection_timeout_ms": str(PATIENT_MS),  # servers are started again
        "hoodie.client.heartbeat.interval_in_ms": str(beat_ms),
        "hoodie.client.heartbeat.tolerable.misses": "2",
        "hoodie.mainstem.fsync": "false",
    }


class ZooKeeperFleet(Fleet):
    """Knows the holder of the lock from ZooKeeper."""

    ENOUGH: ClassVar = {"server restarts": 2}

    def __init__(self, base: Path, server: ZooKeeperServer) -> None:
        self.client = kazoo_client.KazooClient(server.connect_string, timeout=30)
        self.client.start()
        super().__init__(base, options(), SEED)

    def says_something(self) -> bool:
        return super().says_something() and self.done["SIGKILL"] + self.done["SIGSTOP"] >= 2

    def holder_of_the_lock(self) -> int | None:
        try:
            first = min(self.client.get_children(FOLDER), key=lambda name: name[-10:])
            return json.loads(self.client.get(f"{FOLDER}/{first}")[0])["pid"]
        except Exception:  # nobody, gone by now, or the server is down
            return None

    def end(self) -> None:
        super().end()
        self.client.stop()
        self.client.close()


@pytest.mark.slow
def test_writers_and_server_that_are_killed_and_stopped_at_random_lose_and_double_nothing(
    tmp_path, server, record_property
):
    base = create(tmp_path / "t", server)
    fleet, observer = ZooKeeperFleet(base, server), Observer(base)
    try:
        eventually(lambda: all(entries(fleet.journal(w)) for w in range(WRITERS)), "all write", seconds=150)
        start = act = time.monotonic()
        restarts = [start + CHAOS_S / 3, start + 2 * CHAOS_S / 3]
        while time.monotonic() < start + CHAOS_S or not fleet.says_something():
            assert time.monotonic() < start + CHAOS_S + 150, fleet.done
            observer.look()
            if time.monotonic() >= act:
                fleet.step()
                act = time.monotonic() + fleet.chance.uniform(0.1, 0.6)
            if restarts and time.monotonic() >= restarts[0]:
                restarts.pop(0)
                server.restart()
                fleet.done["server restarts"] += 1
            time.sleep(0.05)
        fleet.finish()
        observer.look()
    finally:
        fleet.end()
    check_what_the_fleet_left(fleet, observer, base, tmp_path, record_property)
    check_the_next_writer_cleans_up(base)


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Process]]:
    started = [Process(), Process()]
    try:
        for process in started:
            assert process.receive() == {"answer": "ready"}
        yield started
    finally:
        for process in started:
            process.end()


@pytest.fixture
def pair(tmp_path, server, workers) -> tuple[Path, Process, Process]:
    """A table and two processes that have it open."""
    base = create(tmp_path / "t", server)
    for process, session_ms in zip(workers, (SESSION_MS, PATIENT_MS), strict=True):
        given = {"path": str(base), "properties": options(beat_ms=PATIENT_MS, session_ms=session_ms)}
        assert process.call(f"open {json.dumps(given)}") is True
    return base, *workers


@pytest.mark.parametrize("moment", SECTION)
def test_a_writer_stopped_in_its_critical_section_for_longer_than_its_session_is_fenced(pair, moment):
    base, stopped, other = pair
    instant = stopped.call("begin")
    stopped.call("write 1 1")
    stopped.send_until_stopped("commit", SECTION[moment])
    later = other.call("upsert 2 0")
    assert later[0] == "committed"
    status, requested, completion, attempts = stopped.wake()
    assert (status, requested) == ("committed", instant)
    assert attempts >= 2, "the first attempt was superseded"
    assert completion > later[2]
    assert content(base) == merged((1, 1), (2, 0))


def test_a_commit_waits_for_a_server_that_is_started_again(pair, server):
    base, writer, other = pair
    writer.call("begin")
    writer.call("write 1 1")
    server.kill()
    writer.send("commit")
    time.sleep(0.5)
    server.restart()
    assert writer.receive()["answer"][0] == "committed"
    assert other.call("upsert 2 0")[0] == "committed"
    assert content(base) == merged((1, 1), (2, 0))


def test_a_writer_with_another_lock_than_the_first_is_refused(pair, server):
    base, writer, _ = pair
    assert writer.call("upsert 1 1")[0] == "committed"
    note = base / ".hoodie/.mainstem/lock-identity"
    assert note.read_text() == f"zookeeper:{server.connect_string}{FOLDER}"
    text = base / ".hoodie/hoodie.properties"
    text.write_text(text.read_text().replace("lock_key=t", "lock_key=u"))
    with pytest.raises(mainstem.errors.Invalid, match="would not exclude each other"):
        mainstem.open_table(base).upsert(batch(2, 0))


def test_the_example_of_the_docs_runs(tmp_path, server):
    text = (Path(__file__).resolve().parents[2] / "docs/locks.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    places = {"/tmp/trips": str(tmp_path / "trips"), "zk1:2181,zk2:2181,zk3:2181": server.connect_string}
    for written, here in places.items():
        assert code.count(written) == 1
        code = code.replace(written, here)
    exec(code, {})
    assert mainstem.open_table(tmp_path / "trips").scan().to_arrow().num_rows == 1
