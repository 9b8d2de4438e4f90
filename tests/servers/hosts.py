"""Where a test's servers and workers run: on this computer, or on one of its own (``machines.Machine``).

A host has an address, and perhaps a disk: a folder with a home and a place for temporary files, which
processes on it use instead of this user's. Killing it ends all that was started there, executors too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Host:
    """This computer; processes run in groups of their own."""

    address = "127.0.0.1"

    def __init__(self, name: str = "localhost", disk: Path | None = None) -> None:
        self.name = name
        self.disk = disk
        self.started: list[subprocess.Popen[Any]] = []
        for folder in ("home", "tmp") if disk is not None else ():
            (disk / folder).mkdir(parents=True, exist_ok=True)

    def place(self, name: str) -> str:
        """A path on its disk, as its processes see it."""
        assert self.disk is not None
        return str(self.disk / name)

    def command(self, argv: Sequence[str]) -> list[str]:
        """What runs ``argv`` there."""
        return list(argv)

    def environment(self, more: Mapping[str, str] = {}) -> dict[str, str]:
        """The variables of its processes."""
        found = {**os.environ, **more}
        if self.disk is not None:
            temporary = self.place("tmp")
            # The JVM asks no variable of the system for it.
            options = f"{found.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={temporary}".strip()
            found |= {"HOME": self.place("home"), "TMPDIR": temporary, "JAVA_TOOL_OPTIONS": options}
        return found

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str] = {}, **streams: Any
    ) -> subprocess.Popen[Any]:
        """Start a process there."""
        process = subprocess.Popen(
            self.command(argv), env=self.environment(environment), start_new_session=True, **streams
        )
        self.started.append(process)
        return process

    def kill(self) -> None:
        """kill -9 for all that was started there, and what that has started."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.started.clear()


HERE = Host()
