"""``make fuzz-filters``: filters against a plain model, for a given time.

``python -m tests.fuzz.filters.run --seconds 600 [--seed N] [--tables N]``. Each table has a seed of its own,
which a finding names: ``--seed N --tables 1`` does it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.filters.world import World, Wrong

STEPS, FILTERS = 14, 12


def one_table(seed: int, *, steps: int = STEPS, filters: int = FILTERS) -> Counter[str]:
    """One table's life; filters after every third step. Raises ``Wrong`` with all that was done."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "t", random.Random(seed))
        try:
            for number in range(steps):
                world.step()
                if number % 3 == 2:
                    world.check_filters(filters)
            world.check_filters(filters)
            world.check_statistics()
        except Exception as error:
            done = "\n  ".join(world.history)
            raise Wrong(f"seed {seed}: {error}\n  columns: {world.columns}\n  {done}") from error
        return world.counts


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.filters.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--tables", type=int, default=0, help="so many instead of for a time")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    counts, seed, wrong, end = Counter[str](), options.seed, 0, time.monotonic() + options.seconds
    while (seed - options.seed < options.tables) if options.tables else (time.monotonic() < end):
        try:
            counts += one_table(seed)
        except Wrong as finding:
            wrong += 1
            print(finding, flush=True)
            cause = finding.__cause__
            if cause is not None and not isinstance(cause, Wrong):
                traceback.print_exception(cause)
        seed += 1
    print(f"{seed - options.seed} tables, {wrong} wrong: {dict(sorted(counts.items()))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
