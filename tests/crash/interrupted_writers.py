"""Writers that are interrupted at any moment, between two bytecodes, and replay; a ledger tells what is lost.

``Ctrl-C``, a handler of SIGTERM and one of a time-out are delivered to the main thread by real signals;
``PyThreadState_SetAsyncExc`` interrupts a writer in a thread of its own, as notebooks and test runners do.
The writer catches what interrupts it and writes its micro-batch again, under a guard or without one, in a
``with`` block or bare.
"""

from __future__ import annotations

import ctypes
import logging
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import mainstem
from mainstem.errors import MainstemError
from mainstem.truetime.clock import Periodic, SystemClock
from mainstem.writers.stream_guard import StreamGuard
from tests.crash import crash_worker
from tests.crash.crash_worker import PROPERTIES
from tests.crash.interrupts import SIGNALS, TimedOut, handled
from tests.multiprocess import table_files

STYLES = ("guarded", "guarded, bare", "unguarded", "unguarded, bare")
# ``RuntimeError``: Python's own ``threading`` meets a signal in the middle of waiting for a thread to start.
_CAUGHT = (KeyboardInterrupt, SystemExit, TimedOut, MainstemError, RuntimeError)


class Ledger:
    """What one writer was told, and what the table must hold for it."""

    def __init__(self, path: Path, style: str) -> None:
        self.path, self.style = path, style
        self.guarded, self.bare = style.startswith("guarded"), style.endswith("bare")
        self.acknowledged: list[int] = []
        #: requested times that the writer was told are committed
        self.instants: set[str] = set()
        self.interrupted = 0
        self.errors: Counter[str] = Counter()

    def write(self, batches: int, seconds: float = 60.0) -> None:
        """So many micro-batches one after the other, each until it is acknowledged; fewer if time is over."""
        until = time.monotonic() + seconds
        number = 0
        while number < batches and time.monotonic() < until:
            try:
                table = mainstem.open_table(self.path, properties=PROPERTIES)
                while number < batches and time.monotonic() < until:
                    self._batch(table, number)
                    self.acknowledged.append(number)  # if this is interrupted, it is replayed
                    number += 1
            except _CAUGHT as error:
                self.interrupted += 1
                self.errors[type(error).__name__] += 1

    def _batch(self, table: mainstem.Table, number: int) -> None:
        guard = StreamGuard("ledger", number) if self.guarded else None
        txn = table.begin("upsert", guard=guard)
        if self.bare:
            self._commit(txn, number)
        else:
            with txn:
                self._commit(txn, number)

    def _commit(self, txn: Any, number: int) -> None:
        txn.write(batch(number))
        outcome = txn.commit()
        if outcome.status == "committed":
            self.instants.add(outcome.instant)
        assert outcome.status == "committed" or self.guarded, outcome

    def check(self) -> None:
        """What was acknowledged is there, and under a guard once."""
        commits = table_files.commits(self.path)
        if lost := self.instants - {commit.requested for commit in commits}:
            raise AssertionError(f"{self.style}: told that {sorted(lost)} were committed, which are gone")
        missing = {file for c in commits for file in c.files if not (self.path / file).exists()}
        assert not missing, f"{self.style}: completed commits name {sorted(missing)}, which are gone"
        held = Counter(c.guard[1] for c in commits if c.guard and c.guard[0] == "ledger")
        assert not self.guarded or set(held.values()) <= {1}, f"{self.style}: committed twice: {held}"
        found = mainstem.open_table(self.path, properties=PROPERTIES).scan(columns=["id", "value"])
        shown = Counter(zip(*found.to_arrow().to_pydict().values(), strict=True))
        told = pa.concat_tables([batch(0)[:0], *(batch(number) for number in set(self.acknowledged))])
        meant = Counter(zip(told["id"].to_pylist(), told["value"].to_pylist(), strict=True))
        assert not meant - shown, f"{self.style}: {sorted((meant - shown).items())} are lost"
        assert set(shown.values()) <= {1}, f"{self.style}: rows are doubled"

    def settle(self) -> None:
        """Long after, the dead are swept."""
        table_files.age(self.path)
        table = mainstem.open_table(self.path, properties=PROPERTIES)
        table.upsert(batch(10**6))
        table.rollback_failed_writes()
        self.check()


def batch(number: int) -> pa.Table:
    """Rows of a micro-batch: keys of its own, in both partitions."""
    keys = [f"{number}-{n}" for n in range(4)]
    values = {"id": keys, "city": ["a", "b", "a", "b"], "ts": [number] * 4, "value": keys}
    return pa.table(values, schema=crash_worker.SCHEMA)


@contextmanager
def async_exceptions(rng: random.Random, apart_s: float, target: threading.Thread) -> Iterator[None]:
    """Exceptions that another thread sets for the thread ``target``, which begins here."""
    over = threading.Event()
    target.start()

    def send() -> None:
        while not over.wait(rng.uniform(0, 2 * apart_s)):
            kind = ctypes.py_object(rng.choice(list(SIGNALS)))
            if target.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target.ident or 0), kind)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        _ended(sender, over)


def _ended(sender: threading.Thread, over: threading.Event) -> None:
    """No signal is under way any more, whatever those that are do to this waiting."""
    while True:
        try:
            over.set()
            sender.join()
            time.sleep(0.002)
            return
        except _CAUGHT:
            continue


def by_signals(ledger: Ledger, batches: int, rng: random.Random, apart_s: float, seconds: float) -> None:
    """Run the writer in the main thread, which signals reach at random moments, on average ``apart_s``
    seconds apart."""
    over, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def send() -> None:
        while not over.wait(rng.uniform(0, 2 * apart_s)):
            signal.pthread_kill(main, rng.choice(list(SIGNALS.values())))

    with handled():
        sender = threading.Thread(target=send, daemon=True)
        try:
            sender.start()
            ledger.write(batches, seconds)
        except _CAUGHT:
            pass  # in the moment in which it ended, or had not begun
        finally:
            _ended(sender, over)


def by_async_exceptions(
    ledger: Ledger, batches: int, rng: random.Random, apart_s: float, seconds: float
) -> None:
    """Run the writer in a thread, which another thread interrupts.

    Without threads of its own: until a new thread runs, CPython counts it as the one that starts it, and sets
    the exception there; who starts it then waits for ever.
    """

    def write() -> None:
        try:
            ledger.write(batches, seconds)
        except _CAUGHT:
            return

    writer = threading.Thread(target=write, daemon=True)
    with patch.object(SystemClock, "every_ms", _never), async_exceptions(rng, apart_s, writer):
        writer.join()


def _never(clock: SystemClock, interval_ms: float, task: Callable[[], None], name: str) -> Periodic:
    """A heartbeat that does not beat; the one that a transaction begins with is young enough here."""
    return _Never()


class _Never:
    def stop(self) -> None: ...


def run(seed: int, batches: int, apart_s: float, seconds: float = 10.0) -> Counter[str]:
    """Every style by both ways; how often each kind of error interrupted a writer."""
    logging.disable(logging.WARNING)  # that locks of interrupted holders were taken over
    errors: Counter[str] = Counter()
    for style in STYLES:
        for how in (by_signals, by_async_exceptions):
            folder = Path(tempfile.mkdtemp())
            try:
                crash_worker.create(str(folder / "t"))
                ledger = Ledger(folder / "t", style)
                how(ledger, batches, random.Random(f"{seed}/{style}/{how.__name__}"), apart_s, seconds)
                ledger.check()
                ledger.settle()
                errors += ledger.errors
                errors["batches"] += len(set(ledger.acknowledged))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return errors


if __name__ == "__main__":
    for _seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        print(f"seed {_seed}: {dict(run(_seed, int(sys.argv[3]), float(sys.argv[4]) / 1000))}", flush=True)
