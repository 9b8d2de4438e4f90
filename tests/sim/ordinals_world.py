"""Scenario ``ordinals``: ``archives`` with drivers as those of Spark's ``foreachBatch``, who do not know the
number of a write within its batch, but count it in storage (``writers.write_ordinals``).

Drivers die, are interrupted and run twice at once; each execution of a batch is a run of its own, which
must be given 0 for its first write and 1 for its second, whatever earlier and other runs left behind. That
nothing is lost or doubled is looked at by the rules of streams.
"""

from __future__ import annotations

from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError
from mainstem.writers.write_ordinals import StreamWrite, allocate, claim, finish
from tests.sim.archive_world import Archives
from tests.sim.world import INTERRUPTS, Process, Violation


class Ordinals(Archives):
    """Two streams at least, some with two live drivers."""

    scenario = "ordinals"

    def build(self) -> None:
        self.executions = 0
        super().build()
        for name in ("s5", "s6"):
            self.batches[name], self.checkpoints[name] = 3, 0
            self.start(name, self._stream)
        self.start("s5'", self._stream)
        self.start("replayer'", self._replays, counted=False)

    def _stream(self, process: Process) -> None:
        name = process.name.rstrip("'")
        table = self._patiently(process, lambda: self.open(process))
        while self.checkpoints[name] < self.batches[name]:
            batch = self.checkpoints[name]
            try:
                self._run_of(process, table, name, batch)
                self.checkpoints[name] = max(self.checkpoints[name], batch + 1)
            except MainstemError as error:
                self._accept_of_batch(error, name, batch)
                self.pause_between(process, 300)
            except INTERRUPTS as error:
                self.interrupted(error)
            except OSError as error:
                raise Violation("an error that says what to do", repr(error)) from error

    def _run_of(self, process: Process, table: Table, name: str, batch: int) -> None:
        """One execution of a batch, as ``spark.sink`` does it."""
        self.executions += 1
        run, query, seams = f"{process.name}/{self.executions}", f"query of {name}", self.seams(process)
        claim(seams.storage, seams.random, name, query)
        for number in (0, 1):
            what = StreamWrite(name, query, batch, run, f"{run}/{number}", f"write {number}")
            ordinal = allocate(seams.storage, seams.random, what)
            if ordinal != number:
                raise Violation("ordinals", f"write {number} of batch {batch} of {name} was given {ordinal}")
            ended = False
            try:
                self._stream_write(table, name, batch, ordinal, self.rewinds)
                ended = True
            finally:
                finish(seams.storage, seams.random, what, ok=ended)
            self.pause_between(process, 30)

    def _accept_of_batch(self, error: MainstemError, name: str, batch: int) -> None:
        """A driver may be told that its batch is over: another one has begun the next."""
        over = isinstance(error, Invalid) and " is over: " in error.message
        if over and self.checkpoints[name] > batch:
            self.world.counts.refused += 1
        else:
            self._accept(error)
