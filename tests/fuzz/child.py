"""Fuzzing of some targets in a process of its own, for a time or so many cases.

A case may raise the process's resident memory by 64 MiB and 8 times its input at most, and may take a
second of processor time. Address space is bounded beyond what the process had at the beginning; a case
that does not end is ended by an alarm. Prints one line of JSON per target; ``run`` starts it.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.canaries import CANARIES
from tests.fuzz.harness import Finding, Target, check_seeds, mutants, parsed

MEMORY_ALWAYS, MEMORY_PER_BYTE = 64 << 20, 8
_ADDRESS_SPACE = 2 << 30
SLOWER = 40  # slow targets get a fraction of the cases
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def _memory(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    return 0


def _measured(target: Target, data: bytes) -> None:
    """One case; raises ``Finding`` when it needs too much memory, as for everything else."""
    _CLEAR.write_text("5")  # the peak counts from here
    before = _memory("VmRSS")
    parsed(target, data)
    taken = _memory("VmHWM") - before
    if taken > MEMORY_ALWAYS + MEMORY_PER_BYTE * len(data):
        raise Finding(target.name, f"took {taken >> 20} MiB for {len(data)} bytes", data)


def _cases(target: Target, given: argparse.Namespace, note: Callable[[bytes], None]) -> int:
    end, cases = time.monotonic() + given.seconds, 0
    most = given.cases // SLOWER if given.cases and target.slow else given.cases
    for data in mutants(list(target.seeds()), random.Random(f"{given.seed} {target.name}")):
        if cases == most if most else time.monotonic() >= end:
            return cases
        note(data)
        signal.alarm(given.alarm)
        _measured(target, data)
        signal.alarm(0)
        cases += 1
    return cases


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.0, help="per target")
    parser.add_argument("--cases", type=int, default=0, help="per target instead, of slow ones fewer")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--last", type=Path, required=True, help="where the current case is noted")
    parser.add_argument("--alarm", type=int, default=60, help="seconds after which a case hangs")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    from tests.fuzz.targets import TARGETS

    known = {target.name: target for target in (*TARGETS, *CANARIES)}
    for target in (known[name] for name in options.names):
        check_seeds(target)
    have = _memory("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (have + _ADDRESS_SPACE, have + _ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with options.last.open("wb", buffering=0) as last:

        def note(data: bytes) -> None:
            last.seek(0)
            last.truncate()
            last.write(base64.b64encode(data))

        for target in (known[name] for name in options.names):
            line = {"target": target.name, "cases": 0, "finding": ""}
            try:
                line["cases"] = _cases(target, options, note)
            except Finding as finding:
                signal.alarm(0)
                line["finding"] = str(finding)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
