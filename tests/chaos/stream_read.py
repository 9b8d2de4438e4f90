"""A streaming read in Flink, killed again and again: every change row reaches another table once.

``python -m tests.chaos.stream_read [--seconds 60] [--seed N]``; ``make chaos`` runs it. A writer commits rows
with keys of their own every half a second, and services compact, clean and archive behind it. A Flink job in
a process of its own reads the table as a stream and writes what comes into a second one, with Python workers
in processes of their own. At random a worker, or the whole job with all it started, is killed with -9; a
killed job starts again from its newest checkpoint, with another parallelism. At the end the second table must
hold every row, and its commits must have written each row once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

import mainstem
from demos.flink_jobs import declare, kept_checkpoints, newest_state, restarts
from mainstem.flink.committer import Committer
from tests.chaos.written import rows_written

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
_COLUMNS = "id STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED"
_OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
    "hoodie.mainstem.fsync": "false",
    "hoodie.compact.inline.max.delta.commits": "4",
    # What a clean removes before it was read, a stream cannot go on with: a job rests here for half a minute.
    "hoodie.clean.commits.retained": "120",
    "hoodie.keep.min.commits": "140",
    "hoodie.keep.max.commits": "150",
}
_ROWS = 50
_SINK = "copied"


def job(given: dict) -> None:
    """The process that is killed: one table into the other, until a signal ends it."""
    workers_apart = {"_python_worker_execution_mode": "process"}
    os.environ.update({**workers_apart, "JVM_ARGS": "-Xmx768m -XX:+UseSerialGC"})
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    from mainstem.flink import connect

    settings = Configuration()
    for key, value in given["settings"].items():
        settings.set_string(key, value)
    settings.set_string("python.executable", sys.executable)
    streams = StreamExecutionEnvironment.get_execution_environment(settings)
    t = connect(StreamTableEnvironment.create(streams))
    stream = {"read.streaming.enabled": "true", "read.streaming.check-interval": "1",
              "read.start-commit": "earliest"}  # fmt: skip
    declare(t, "followed", _COLUMNS, Path(given["table"]), **stream)
    off = ("compaction.schedule.enabled", "compaction.async.enabled", "clean.async.enabled",
           "hoodie.archive.automatic")  # fmt: skip
    declare(t, _SINK, _COLUMNS, Path(given["copy"]), **dict.fromkeys(off, "false"))
    t.execute_sql(f"INSERT INTO {_SINK} SELECT id, n FROM followed").wait()


class Job:
    """The process of ``job`` and all that it starts: one session, so nothing of it outlives a kill."""

    def __init__(self, folder: Path, parallelism: int) -> None:
        settings = {
            "parallelism.default": str(parallelism),
            **kept_checkpoints(folder / "checkpoints", 1000),
            **restarts(500),
            "python.fn-execution.bundle.time": "100",
        }
        given = {"settings": settings, "table": str(folder / "table"), "copy": str(folder / "copy")}
        command = [sys.executable, "-m", "tests.chaos.stream_read", "--job", json.dumps(given)]
        with (folder / "job.log").open("ab") as log:
            self._child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    @property
    def runs(self) -> bool:
        """Whether the client is there."""
        return self._child.poll() is None

    def workers(self) -> list[int]:
        """Process ids of the Python workers."""
        return [pid for pid, command in _session(self._child.pid) if b"pyflink.fn_execution.beam" in command]

    def kill(self) -> None:
        """-9 for every process of the session."""
        for pid, _ in _session(self._child.pid):
            _kill(pid)
        self._child.wait()


def _session(leader: int) -> list[tuple[int, bytes]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if os.getsid(int(folder.name)) == leader:
                    found.append((int(folder.name), (folder / "cmdline").read_bytes()))
            except OSError:
                continue
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def chaos(folder: Path, seconds: float, seed: int) -> dict[str, int]:
    """A run; returns its score. Raises ``AssertionError`` if a row is missing or was written twice."""
    chance = random.Random(seed)
    table = mainstem.create_table(folder / "table", SCHEMA, record_key="id", buckets=4, properties=_OPTIONS)
    score = {"commits": 0, "compactions": 0, "killed workers": 0, "killed jobs": 0}
    running = Job(folder, 2)
    end, next_kill = time.monotonic() + seconds, time.monotonic() + 15
    try:
        while time.monotonic() < end:
            first = score["commits"] * _ROWS
            numbers = range(first, first + _ROWS)
            table.upsert(pa.table({"id": [f"k{n}" for n in numbers], "n": numbers}, SCHEMA))
            score["commits"] += 1
            services = table.run_services()
            score["compactions"] += sum(len(run.results) for run in services if run.service == "compact")
            assert running.runs, (folder / "job.log").read_text()[-3000:]
            if time.monotonic() > next_kill:
                workers = running.workers()
                if workers and chance.random() < 0.6:
                    _kill(chance.choice(workers))
                    score["killed workers"] += 1
                    next_kill = time.monotonic() + chance.uniform(2, 8)
                elif newest_state(folder / "checkpoints") is not None:
                    running.kill()
                    score["killed jobs"] += 1
                    running = Job(folder, chance.choice([1, 2, 4]))
                    next_kill = time.monotonic() + chance.uniform(12, 20)
            time.sleep(0.5)
        wait_for_rows(folder / "copy", score["commits"] * _ROWS)
    finally:
        running.kill()
    return score | {"rows": check(folder / "copy", score["commits"] * _ROWS, seed)}


def wait_for_rows(copy: Path, count: int) -> None:
    """Until so many rows were written, or for as long as a job takes that was just started again."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and rows_written(copy) < count:
        time.sleep(1)


def check(copy: Path, count: int, seed: int) -> int:
    """Every row is there; how many were written."""
    table = mainstem.open_table(copy)
    Committer(table, _SINK).commit_pending()  # the client may have died before its last commit
    found = set(table.scan(columns=["id", "n"]).to_arrow()["n"].to_pylist())
    missing = sorted(set(range(count)) - found)
    written = rows_written(copy)
    assert not missing, f"seed {seed}: {len(missing)} rows missing, for instance {missing[:5]}"
    assert written == count, f"seed {seed}: {written} rows were written for {count}"
    return written


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        job(json.loads(given.job))
        return
    if find_spec("pyflink") is None:
        print("streaming read: PyFlink is not installed here")
        return
    seed = random.randrange(10**6) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="stream_read_") as folder:
        score = chaos(Path(folder), given.seconds, seed)
    print(f"streaming read, seed {seed}: " + ", ".join(f"{n} {what}" for what, n in score.items()))


if __name__ == "__main__":
    main()
