"""Goal: a sample of tests is the same every time, samples leave nothing out for good, and a name always runs.

Method: collections of a small suite by pytest, with ``--sample`` and names.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITE = "tests/storage/test_spellings.py"


def collected(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_a_sample_is_stable_and_a_named_test_always_runs() -> None:
    every, sample = collected(SUITE), collected(SUITE, "--sample", "1/3")
    assert sample and len(sample) < len(every) and set(sample) < set(every)
    assert collected(SUITE, "--sample", "1/3") == sample
    left_out = next(name for name in every if name not in sample)
    assert collected(left_out, "--sample", "1/3") == [left_out]
    parts = [collected(SUITE, "--sample", f"{part}/3") for part in (1, 2, 3)]
    assert sorted(chain.from_iterable(parts)) == sorted(every)
