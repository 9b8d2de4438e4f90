"""Scenario ``archives``: two archivers beside writers, readers and streams that are replayed for ever.

Bounds are as small as they may be and levels merge in twos, so that a table of a dozen commits has an
archive of several versions and levels. The rules are those of ``service_rules``.
"""

from __future__ import annotations

import random

from mainstem.api.table import Table
from mainstem.errors import MainstemError
from mainstem.readers.planning.table_state import TableState
from mainstem.writers.stream_guard import StreamGuard
from tests.sim.tables_world import Tables
from tests.sim.world import Process, Violation


class Archives(Tables):
    """``tables`` without compactions, with archivers and a driver that replays old batches."""

    scenario = "archives"
    busy_calls = 5000
    settle_calls = 40_000  # a dozen processes ask for one lock and look at the archive, which only grows

    def more_properties(self) -> dict[str, str]:
        return {
            "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
            "hoodie.keep.min.commits": "1",
            "hoodie.keep.max.commits": "2",
            "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
            "hoodie.timeline.compaction.batch.size": "2",
            "hoodie.timeline.manifest.retained.versions": "1",
            **self.no_rest(),
        }

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] += 6
        for number in (1, 2):
            self.start(f"archiver {number}", self._archives, counted=False)
        self.start("reader", self._reads, counted=False)
        if self.batches:
            self.start("replayer", self._replays, counted=False)

    def _archives(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            self.pause_between(process, 400)
            try:
                done = table.archive()
            except MainstemError as error:
                self._accept(error)
            else:
                self.world.counts.archived += 0 if done is None else done.instants + done.finished

    def _serve(self, table: Table) -> None:
        table.archive()

    def _reads(self, process: Process) -> None:
        """Completion times are found at every moment, whatever is moved while they are asked for."""
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            self._patiently(process, lambda: self._finds_all(table))
            self.pause_between(process, 100)

    def _finds_all(self, table: Table) -> None:
        crashes = self.world.counts.host_crashes
        done = {c.requested: c.completion for c in self.rules.ledger.commits.values()}
        ctx = table.writer_context()
        state = TableState.load(ctx.seams.storage, ctx.config)
        found = {requested: state.completion(requested) for requested in sorted(done)}
        if crashes == self.world.counts.host_crashes:
            for requested, completion in found.items():
                if completion != done[requested]:
                    raise Violation("look-ups", f"{requested}: {completion}, not {done[requested]}")

    def _replays(self, process: Process) -> None:
        """An old checkpoint is started again: none of its batches may be committed a second time."""
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            self.pause_between(process, 1000)
            name = self.random.choice(sorted(self.batches))
            if self.checkpoints[name] == 0:
                continue
            batch = self.random.randrange(self.checkpoints[name])
            self._replay(table, name, batch)

    def _replay(self, table: Table, name: str, batch: int) -> None:
        guard = StreamGuard(name, batch, self.random.randrange(2))
        crashes = self.world.counts.host_crashes
        try:
            txn, intent = self._begin(table, name, "upsert", guard=guard)
            with txn:
                if txn.already_committed:
                    return
                rng = random.Random(f"{self.seed}/replay")
                self._write(txn, intent, "upsert", [self._tracer(intent, rng)])
                status = self._commit(txn, intent)
        except MainstemError as error:
            self._accept(error)
            return
        if status == "committed" and crashes == self.world.counts.host_crashes:
            raise Violation("exactly once", f"batch {batch} of {name} was committed again by its replay")

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        self.rules.archive()
        for name, count in sorted(self.batches.items()):
            for batch in range(count):
                with table.begin("upsert", guard=StreamGuard(name, batch, 0)) as txn:
                    if not txn.already_committed:
                        raise Violation("exactly once", f"batch {batch} of {name} is not found any more")
