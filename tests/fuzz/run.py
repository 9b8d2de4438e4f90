"""``make fuzz``: all targets for a given time, in processes with bounds on memory and time.

A third of the time goes to the target ``histories``: whole tables and what is done to them, held against a
model (``tests.fuzz.histories``). The others are parsers.

``python -m tests.fuzz.run --seconds 600 [--seed N] [--target NAME]``; ``--bits`` counts what becomes of
single flipped bits of small files instead (the table in docs/damage.md).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.harness import Target, flipped, parsed

ROOT = Path(__file__).resolve().parents[2]
# Memory is measured: freed memory must go back at once, and one arena must do.
BYTES_OF_EACH = 250
HISTORIES = "histories"
_SHARE_OF_HISTORIES = 1 / 3
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    """What became of one target; ``finding`` is empty when all cases were right."""

    target: str
    cases: int
    finding: str


def in_child(
    names: Sequence[str], *, seed: int, seconds: float = 0, cases: int = 0, alarm_s: int = 60
) -> Iterator[Outcome]:
    """Fuzz these targets for ``seconds`` or with so many ``cases`` each. A child that dies is a finding."""
    with tempfile.TemporaryDirectory() as folder:
        last = Path(folder) / "last"
        command = [sys.executable, "-m", "tests.fuzz.child", f"--seconds={seconds}", f"--cases={cases}"]
        command += [f"--seed={seed}", f"--last={last}", f"--alarm={alarm_s}", *names]
        environment = {**os.environ, **_ENVIRONMENT, "TMPDIR": folder}
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        done = []
        assert child.stdout is not None
        for line in child.stdout:
            done.append(Outcome(**json.loads(line)))
            yield done[-1]
        child.stdout.close()
        code = child.wait()
        if len(done) < len(names):
            case = last.read_text() if last.exists() else ""
            what = f"hangs or crashes (exit code {code})\n  base64: {case}"
            yield Outcome(names[len(done)], 0, f"{names[len(done)]}: {what}")


def histories(*, seed: int, seconds: float) -> bool:
    """Histories of tables for ``seconds``; tells of them itself. Whether all was right."""
    command = [sys.executable, "-m", "tests.fuzz.histories.run", f"--seconds={seconds}", f"--seed={seed}"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def bits(target: Target, seed: bytes, places: Sequence[int]) -> Counter[str]:
    """What becomes of single flipped bits of these bytes: an error, the same result, or another one."""
    whole, counted = parsed(target, seed)[1], Counter[str]()
    for bit in (8 * place + i for place in places for i in range(8)):
        good, found = parsed(target, flipped(seed, bit))
        counted["error" if not good else "same" if found == whole else "other"] += 1
    return counted


def _print_bits() -> None:
    from tests.fuzz.targets import protected

    print("| bytes | bits | error | same result | another result |\n|---|---|---|---|---|")
    for name, target, seed, places in protected():
        counted = bits(target, seed, places[:: len(places) // BYTES_OF_EACH + 1])
        shares = [f"{100 * counted[key] / counted.total():.1f} %" for key in ("error", "same", "other")]
        print(f"| {name} | {counted.total()} | {' | '.join(shares)} |", flush=True)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for all targets together")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--bits", action="store_true")
    options = parser.parse_args()
    if options.bits:
        _print_bits()
        return 0
    from tests.fuzz.targets import TARGETS

    names = options.target or [*(target.name for target in TARGETS), HISTORIES]
    parsers = [name for name in names if name != HISTORIES]
    print(f"seed {options.seed}", flush=True)
    wrong, left = 0, options.seconds
    if HISTORIES in names:
        seconds = options.seconds * (_SHARE_OF_HISTORIES if parsers else 1)
        wrong += not histories(seed=options.seed, seconds=seconds)
        left -= seconds
    for name in parsers:
        for outcome in in_child([name], seconds=left / len(parsers), seed=options.seed):
            print(f"{outcome.target}: {outcome.finding or f'{outcome.cases:,} cases'}", flush=True)
            wrong += bool(outcome.finding)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
