"""Processes that begin at one moment: ``run`` starts them, ``wait_for_the_start`` is each one's part.

A process prints ``ready`` when it could begin, reads the common start from its input (``time.monotonic``,
shared by all processes of a machine), and prints what it did as JSON in its last line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import FOLDER

_START_DELAY_S = 0.2


def run(
    module: str, specs: Sequence[dict], *, name: str, patience_s: float, python: str = sys.executable
) -> list[Any]:
    """What ``python -m benchmarks.<module> SPEC`` gave for each spec, all begun at once.

    Raises ``RuntimeError`` with the process's own text when one fails.
    """
    running = [
        subprocess.Popen(
            [python, "-W", "ignore", "-m", f"benchmarks.{module}", json.dumps(spec)],
            cwd=FOLDER.parent, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for spec in specs
    ]  # fmt: skip
    try:
        for process in running:
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{name}: " + process.communicate(timeout=30)[1][-2000:])
        start = time.monotonic() + _START_DELAY_S
        for process in running:
            process.stdin.write(f"{start}\n")
            process.stdin.flush()
        return [_answer(process, name, patience_s) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()


def _answer(process: subprocess.Popen, name: str, patience_s: float) -> Any:
    out, err = process.communicate(timeout=patience_s)
    if process.returncode != 0:
        raise RuntimeError(f"{name}: {err[-2000:]}")
    return json.loads(out.splitlines()[-1])


def wait_for_the_start() -> float:
    """Say that this process could begin, and wait until all do; the moment (``time.monotonic``)."""
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    time.sleep(max(0.0, start - time.monotonic()))
    return start
