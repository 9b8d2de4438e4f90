"""Start, watch, kill and restart the demo's writer processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LOG_TAIL_LINES = 25


class WriterFailed(Exception):
    """A writer process ended with an error of its own; the text holds the end of its log."""


@dataclass
class Said:
    """What a writer's processes said so far; the restarted one continues it."""

    batches: set[int] = field(default_factory=set)
    rows: int = 0
    replayed: int = 0
    writing: str | None = None
    ended: bool = False

    def note(self, what: dict[str, object]) -> None:
        if "writing" in what:
            self.writing = str(what["writing"])
        elif "wrote" in what:
            self.writing = None
            self.rows += int(str(what["rows"]))
            self.replayed += what["status"] == "already_committed"
            if what["wrote"] == "status":
                self.batches.add(int(str(what["batch"])))
        elif "ended" in what:
            self.ended = True


class Writer:
    """One stream's driver process, with its JVM a process group of its own."""

    def __init__(self, stream: str, folder: Path, clock_offset_ms: int) -> None:
        self.stream = stream
        self.clock_offset_ms = clock_offset_ms
        self.said = Said()
        self.changed = threading.Condition()
        self._folder = folder
        self._log = folder / "logs" / f"{stream}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; what it says is read by a thread, Spark's log goes to a file. It ends
        when this process does."""
        command = [sys.executable, "-m", "demos.stream_writer", self.stream, str(self._folder)]
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                [*command, str(self.clock_offset_ms)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=Path(__file__).resolve().parents[1],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith("{"):
                    with self.changed:
                        self.said.note(json.loads(line))
                        self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def kill_when(self, open_transaction: Callable[[], bool], timeout_s: float) -> None:
        """Send SIGKILL to the driver and its JVM as soon as it has begun a transaction."""
        limit = time.monotonic() + timeout_s
        while not open_transaction():
            self.check()
            if self.said.ended or time.monotonic() > limit:
                raise WriterFailed(f"{self.stream} was never seen in a transaction: nothing to kill")
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole process group; returns when the driver is gone."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()

    @property
    def failed(self) -> bool:
        return self._process is not None and self._process.poll() not in (None, 0)

    @property
    def finished(self) -> bool:
        return self._process is not None and self._process.poll() == 0

    def check(self) -> None:
        """Raise ``WriterFailed`` with the end of the log if the process ended with an error."""
        if self.failed:
            assert self._process is not None
            lines = self._log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            raise WriterFailed(
                "\n  ".join(
                    [
                        f"{self.stream} ended with code {self._process.returncode}: {self._log}",
                        *lines,
                    ]
                )
            )
