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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

LOG_TAIL_LINES = 25
# A grandchild in a group of its own may keep the pipe open for a moment.
LISTEN_MOST_S = 5.0


class WriterFailed(Exception):
    """A writer process ended with an error of its own; the text holds the end of its log."""


class Heard(Protocol):
    """What is kept of what a process says; the one started after it continues it."""

    def note(self, what: dict[str, object]) -> None: ...


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


class Process:
    """A process of its own group that says what it does; it may be killed and started again."""

    def __init__(self, command: Sequence[str], log: Path, said: Heard) -> None:
        self.command = list(command)
        self.said = said
        self.changed = threading.Condition()
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; what it says is read by a thread, its log goes to a file. It ends when
        this process does."""
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=Path(__file__).resolve().parents[1],
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

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

    def kill(self) -> None:
        """SIGKILL to the whole process group; returns when it is gone and all it said is heard."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._listener is not None:
                self._listener.join(timeout=LISTEN_MOST_S)
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
            ended = f"{self._log.stem} ended with code {self._process.returncode}: {self._log}"
            raise WriterFailed("\n  ".join([ended, *lines]))


class Writer(Process):
    """One stream's driver process of the main job, with its JVM."""

    said: Said

    def __init__(self, stream: str, place: str, logs: Path, clock_offset_ms: int, master: str = "") -> None:
        command = [sys.executable, "-m", "demos.stream_writer", stream, place, str(clock_offset_ms)]
        super().__init__(command + [master] * bool(master), logs / f"{stream}.log", Said())
        self.stream = stream
        self.clock_offset_ms = clock_offset_ms

    def kill_when(self, open_transaction: Callable[[], bool], timeout_s: float) -> None:
        """Send SIGKILL to the driver and its JVM as soon as it has begun a transaction."""
        limit = time.monotonic() + timeout_s
        while not open_transaction():
            self.check()
            if self.said.ended or time.monotonic() > limit:
                raise WriterFailed(f"{self.stream} was never seen in a transaction: nothing to kill")
            time.sleep(0.01)
        self.kill()
