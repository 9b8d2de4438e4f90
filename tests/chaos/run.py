"""``make chaos``: everybody on one table under a failing ZooKeeper ensemble, and the score.

``python -m tests.chaos.run --seconds 300 [--seed N]``; the seed decides what is dealt, not how processes
race. ``--sabotage`` makes one writer break a promise: then the run must fail.

``--store minio`` (``make chaos-store``): the table lies in MinIO, which is killed and stopped, behind a proxy
that delays, cuts and loses requests and replies. Its writers are kept apart by nothing but the store, by the
storage lock or by the ensemble: by the seed, or as ``--lock`` says.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

from tests.chaos.bucket import LOCKS, Bucket
from tests.chaos.checks import Score, check
from tests.chaos.harness import CHANGERS, FLINK, INDEXERS, KINDS, PYTHON, READERS, SPARK, Harness
from tests.chaos.python_writer import SABOTAGE
from tests.servers.zookeeper_ensemble import ZooKeeperEnsemble

SESSION_S = 4.0
# Flink needs a plugin for the store, and two Spark drivers more than a small machine has beside it.
_NOT_IN_A_STORE = (*FLINK, SPARK[1])


def main() -> int:
    """See the module; 0 if everything held."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, help="default: one that nobody knows")
    parser.add_argument("--without", default="", help="writers to leave out, for instance spark-1,python-0")
    parser.add_argument("--sabotage", choices=sorted(SABOTAGE), default="", help="what python-0 does wrong")
    parser.add_argument("--no-indexes", action="store_true", help="nobody builds indexes and drops them")
    parser.add_argument("--no-changes", action="store_true", help="nobody overwrites, clusters or resizes")
    of_seed = "of the table; default: odd seeds, and stores, have buckets"
    parser.add_argument("--index", choices=KINDS, help=of_seed)
    parser.add_argument("--store", choices=["minio"], help="the table lies there, and not on the disk")
    parser.add_argument("--lock", choices=LOCKS, help="of a table in a store; default: by the seed")
    parser.add_argument("--keep", help="a folder for the table, journals and logs, which stays")
    given = parser.parse_args()
    if given.store and given.sabotage == "unfenced":
        parser.error("a store has no such fence: its own is broken in tests/publish and tests/sim")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    folder = Path(given.keep or tempfile.mkdtemp(prefix="chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    seed = random.randrange(10**6) if given.seed is None else given.seed
    left_out = [*given.without.split(","), *(_NOT_IN_A_STORE if given.store else ())]
    if find_spec("pyflink") is None:
        print("PyFlink is not installed here: without Flink")
        left_out += FLINK
    writers = [name for name in (*PYTHON, *SPARK, *FLINK) if name not in left_out]
    sabotage = {PYTHON[0]: given.sabotage}
    lock = given.lock or LOCKS[seed % len(LOCKS)]
    index = given.index or KINDS[0 if given.store else (seed + 1) % len(KINDS)]
    kind = f", MinIO, lock: {lock}" if given.store else ""
    print(f"seed {seed}, {given.seconds:.0f} s, index {index}{kind}, files in {folder}", flush=True)
    began = time.monotonic()
    with ExitStack() as servers:
        bucket = servers.enter_context(closing(Bucket(lock, seed))) if given.store else None
        needed = bucket is None or lock == "zookeeper"
        run = Harness(
            servers.enter_context(ZooKeeperEnsemble()) if needed else None,
            folder, seed=seed, session_s=SESSION_S, writers=writers, sabotage=sabotage, bucket=bucket,
            indexers=() if given.no_indexes else INDEXERS, readers=READERS if given.store else (),
            changers=() if given.no_changes else CHANGERS, index=index,
        )  # fmt: skip
        try:
            run.run(given.seconds)
            score = check(run)
        finally:
            run.close()
    _print(score, time.monotonic() - began)
    if score.wrong:
        print(f"everything is in {folder}")
    elif not given.keep:
        shutil.rmtree(folder)
    return 1 if score.wrong else 0


def _print(score: Score, seconds: float) -> None:
    print("\n".join(score.lines()))
    print(f"{seconds:.0f} s; " + ("everything held" if not score.wrong else f"{len(score.wrong)} findings:"))
    for finding in score.wrong[:30]:
        print(f"  {finding}")


if __name__ == "__main__":
    sys.exit(main())
