"""Goal: any number of processes commit a sink's checkpoints, stopped and killed at will; each is in once.

Method: real ``mainstem flink-commit`` processes beside this one, which stands for the job. One test stops a
process by SIGSTOP right before a storage call, for longer than heartbeats and the lock last, while another
goes on; one kills processes at random while checkpoints come. Which commit holds what is read from the
timeline's files.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.flink.committer import PARTS_KEY, Committer, folders
from mainstem.storage.local import LocalStorage
from mainstem.writers.staged_rows import Stager
from tests.multiprocess import table_files
from tests.multiprocess.test_services_processes import STOPS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("checkpoint", pa.int64())])
SINK = "orders"
OPTIONS = {
    "hoodie.mainstem.fsync": "false",
    "hoodie.mainstem.lock.expire_ms": "600",
    "hoodie.client.heartbeat.interval_in_ms": "300",
}
STOPPED_S = 1.5  # heartbeats and the lock of a process that stands still have expired by then
CHECKPOINTS = 40
COMMITTERS = 3

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={**OPTIONS, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip


def checkpoint(table: mainstem.Table, number: int) -> str:
    """Two rows: one of a key of its own, one of a key that every checkpoint writes."""
    stager = Stager(
        LocalStorage(table.path, sync=False), table.staging_spec(SCHEMA), SINK, random.SystemRandom()
    )
    columns = {"id": [f"own{number}", "all"], "ts": [number] * 2, "checkpoint": [number] * 2}
    line = stager.stage(pa.table(columns, schema=SCHEMA))
    parts = Path(folders(table, SINK)[1])
    parts.mkdir(exist_ok=True)
    (parts / f".part-x-{number}").write_text(line + "\n")
    (parts / f".part-x-{number}").rename(parts / f"part-x-{number}")
    return f"part-x-{number}"


def held(table: mainstem.Table) -> list[str]:
    """Part files that completed commits hold, in the order of the batches."""
    found = []
    for record in table_files.completed(Path(table.path)).values():
        extra = record.get("extraMetadata") or {}
        if PARTS_KEY in extra:
            found.append((json.loads(extra["mainstem.stream.guard"])[1], json.loads(extra[PARTS_KEY])))
    return [part for _, parts in sorted(found) for part in parts]


def rows(table: mainstem.Table) -> list[tuple[str, int]]:
    found = table.scan(columns=["id", "checkpoint"]).to_arrow().to_pylist()
    return sorted((row["id"], row["checkpoint"]) for row in found)


def expected(count: int) -> list[tuple[str, int]]:
    return sorted([("all", count - 1), *((f"own{n}", n) for n in range(count))])


def check_quiet(table: mainstem.Table) -> None:
    """Nothing is left of anybody, dead or alive."""
    committer = Committer(mainstem.open_table(table.path, OPTIONS), SINK)
    assert committer.commit_pending() == []
    committer.sweep(-1)
    for folder in folders(table, SINK):
        assert os.listdir(folder) == []
    table_files.age(Path(table.path))
    later = mainstem.open_table(table.path, OPTIONS)
    later.rollback_failed_writes()
    later.opened.seams.lock.acquire().release()  # which sweeps what the killed kept for their turns
    assert table_files.leftovers(Path(table.path)) == []


def command(*arguments: str) -> list[str]:
    given = [text for key, value in OPTIONS.items() for text in ("-o", f"{key}={value}")]
    return [*arguments, *given, "--sink", SINK]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@contextmanager
def stopped_before(table: mainstem.Table, method: str, pattern: str) -> Iterator[subprocess.Popen]:
    """A process that commits once, and stops itself right before a storage call."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPS, method, pattern, *command("flink-commit", table.path, "--once")],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "stopping\n", process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.supports("Engines", "Flink: checkpoints committed once, by any number of processes")
@pytest.mark.parametrize(
    ("method", "pattern"),
    [
        ("read", "committables/part-"),  # it has listed the part files
        ("stat", "flink/.*/staged/[A-Z]"),  # its transaction is open
        ("link", r"_[0-9]{17}\.deltacommit$"),  # it is about to publish
        ("delete", "committables/part-"),  # it has published
    ],
)
def test_a_committer_that_stands_still_commits_nothing_twice_and_hinders_nobody(table, method, pattern):
    first = [checkpoint(table, n) for n in range(2)]
    with stopped_before(table, method, pattern) as process:
        time.sleep(STOPPED_S)
        committed = Committer(mainstem.open_table(table.path, OPTIONS), SINK).commit_pending()
        assert len(committed) == (method != "delete")
        assert held(table) == first and rows(table) == expected(2)
        second = checkpoint(table, 2)
        os.kill(process.pid, signal.SIGCONT)
        _, told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    Committer(mainstem.open_table(table.path, OPTIONS), SINK).commit_pending()
    assert held(table) == [*first, second] and rows(table) == expected(3)
    check_quiet(table)


def test_committers_that_are_killed_at_random_commit_every_checkpoint_once(table):
    def start() -> subprocess.Popen:
        given = command("flink-commit", table.path, "--every", "20ms")
        return subprocess.Popen(
            [sys.executable, "-m", "mainstem", *given], env=environment(), stdout=subprocess.DEVNULL
        )

    chance = random.Random(1)
    processes = [start() for _ in range(COMMITTERS)]
    kills = 0
    try:
        names = []
        for number in range(CHECKPOINTS):
            names.append(checkpoint(table, number))
            time.sleep(chance.random() * 0.2)
            victim = chance.randrange(COMMITTERS)
            if number % 5 == 4:
                processes[victim].kill()
                processes[victim].wait()
                processes[victim] = start()
                kills += 1
        end = time.monotonic() + 150
        while set(names) != set(held(table)) and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        for process in processes:
            process.terminate()
        ended = {process.wait(120) for process in processes}
    assert ended <= {0, -signal.SIGTERM}, "one that has just started has no time to say goodbye"
    assert held(table) == names, f"after {kills} kills"
    assert rows(table) == expected(CHECKPOINTS)
    check_quiet(table)
