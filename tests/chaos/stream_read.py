"""A streaming read in Flink, killed again and again: every change row reaches a file sink once.

``python -m tests.chaos.stream_read [--seconds 60] [--seed N]``. A writer commits rows with keys of their own
every half a second. A Flink job in a process of its own reads the table as a stream into Flink's filesystem
sink, with Python workers in processes of their own. At random a worker, or the whole job with all it started,
is killed with -9; a killed job starts again from its newest checkpoint. At the end
the finished part files of the sink must hold every key once.
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
from collections import Counter
from pathlib import Path

import pyarrow as pa

import mainstem

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
_OPTIONS = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
_ROWS = 50


def job(given: dict) -> None:
    """The process that is killed: table -> part files, until a signal ends it."""
    workers_apart = {"_python_worker_execution_mode": "process"}
    os.environ.update({**workers_apart, "JVM_ARGS": "-Xmx768m -XX:+UseSerialGC"})
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    from mainstem.flink.options import FlinkReadOptions
    from mainstem.flink.source import read

    settings = Configuration()
    for key, value in given["settings"].items():
        settings.set_string(key, value)
    settings.set_string("python.executable", sys.executable)
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(settings))
    t_env.execute_sql(
        "CREATE TABLE parts (id STRING, n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv',"
        f" 'path' = '{given['out']}', 'sink.rolling-policy.rollover-interval' = '1s',"
        " 'sink.rolling-policy.check-interval' = '1s')"
    )
    changes = read(t_env, given["table"], FlinkReadOptions(streaming=True, check_interval_s=1, start="0"))
    changes.execute_insert("parts").wait()


class Job:
    """The process of ``job`` and all that it starts: one session, so nothing of it outlives a kill."""

    def __init__(self, folder: Path, parallelism: int) -> None:
        settings = {
            "parallelism.default": str(parallelism),
            "execution.checkpointing.interval": "1s",
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "500ms",
            "python.fn-execution.bundle.time": "100",
        }
        newest = newest_checkpoint(folder / "checkpoints")
        if newest is not None:
            settings["execution.state-recovery.path"] = newest.as_uri()
        given = {"settings": settings, "table": str(folder / "table"), "out": (folder / "out").as_uri()}
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


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest that is whole, of any run."""
    whole = sorted(folder.glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    return whole[-1].parent if whole else None


def finished_rows(out: Path) -> Counter[str]:
    """Keys in the sink's finished part files, with their number."""
    lines: Counter[str] = Counter()
    for part in out.glob("part-*"):
        lines.update(line.partition(",")[0].strip('"') for line in part.read_text().splitlines())
    return lines


def chaos(folder: Path, seconds: float, seed: int) -> dict[str, int]:
    """A run; returns its score. Raises ``AssertionError`` if a row is missing or there twice."""
    chance = random.Random(seed)
    table = mainstem.create_table(folder / "table", SCHEMA, record_key="id", buckets=4, properties=_OPTIONS)
    score = {"commits": 0, "killed workers": 0, "killed jobs": 0}
    running = Job(folder, 2)
    end, next_kill = time.monotonic() + seconds, time.monotonic() + 15
    try:
        while time.monotonic() < end:
            first = score["commits"] * _ROWS
            numbers = range(first, first + _ROWS)
            table.upsert(pa.table({"id": [f"k{n}" for n in numbers], "n": numbers}, SCHEMA))
            score["commits"] += 1
            assert running.runs, (folder / "job.log").read_text()[-3000:]
            if time.monotonic() > next_kill:
                workers = running.workers()
                if workers and chance.random() < 0.6:
                    _kill(chance.choice(workers))
                    score["killed workers"] += 1
                    next_kill = time.monotonic() + chance.uniform(2, 8)
                elif newest_checkpoint(folder / "checkpoints") is not None:
                    running.kill()
                    score["killed jobs"] += 1
                    running = Job(folder, 2)
                    next_kill = time.monotonic() + chance.uniform(12, 20)
            time.sleep(0.5)
        expected = {f"k{n}" for n in range(score["commits"] * _ROWS)}
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and set(finished_rows(folder / "out")) != expected:
            time.sleep(1)
    finally:
        running.kill()
    found = finished_rows(folder / "out")
    missing = sorted(expected - set(found))
    twice = sorted(key for key, times in found.items() if times > 1)
    assert not missing and not twice, f"seed {seed}: missing {missing[:5]}, more than once {twice[:5]}"
    return score | {"rows": len(found)}


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
    seed = random.randrange(10**6) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="stream_read_") as folder:
        score = chaos(Path(folder), given.seconds, seed)
    print(f"streaming read, seed {seed}: " + ", ".join(f"{n} {what}" for what, n in score.items()))


if __name__ == "__main__":
    main()
