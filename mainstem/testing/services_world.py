"""Scenario ``services``: every table service at work beside the writers, streams and readers of ``tables``.

Two compactors, a cleaner, an archiver, a log compactor and a keeper of savepoints run the production code
of ``services`` as processes of their own, on short retentions, so that every one meets what the others
did. Writers delete, overwrite with equal ordering values and complete late; what a compaction does
with that is Java's rule (``ledger``), and ``service_rules`` watches every plan and every deletion.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mainstem.client import Table
from mainstem.errors import Invalid, MainstemError, Unavailable
from mainstem.readers.state import TableState
from mainstem.testing.oracle import Row
from mainstem.testing.service_rules import Retention
from mainstem.testing.tables import Tables
from mainstem.testing.world import Faults, Process, Violation


class Services(Tables):
    """``tables`` with all services; deletes and late rows in every merge mode."""

    scenario = "services"
    always_compacting = True
    late_rows = True
    busy_calls = 8000
    settle_calls = 40_000

    def __init__(self, seed: int, *, faults: Faults | None = None, log: bool = False) -> None:
        rng = random.Random(f"retention of {seed}")
        self.retention = rng.choice([Retention(commits=1), Retention(commits=3), Retention(versions=1)])
        super().__init__(seed, faults=faults, log=log)

    def more_properties(self) -> dict[str, str]:
        kept = self.retention
        if kept.versions is not None:
            cleaning = {
                "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
                "hoodie.clean.fileversions.retained": str(kept.versions),
            }
        else:
            cleaning = {"hoodie.clean.commits.retained": str(kept.commits)}
        least = (kept.commits or 1) + 1
        return {
            **cleaning,
            "hoodie.keep.min.commits": str(least),
            "hoodie.keep.max.commits": str(least + 1),
            "hoodie.timeline.compaction.batch.size": "2",
            "hoodie.timeline.manifest.retained.versions": "1",
        }

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] += 4  # enough commits for every service to find something to do
        chores: dict[str, Callable[[Process, Table], Any]] = {
            "cleaner": lambda process, table: table.clean(),
            "cleaner'": lambda process, table: table.clean(if_due=True),
            "archiver": lambda process, table: table.archive(),
            "archiver'": lambda process, table: table.archive(if_due=True),
            "log compactor": lambda process, table: table.log_compact(),
        }
        if self.random.random() < 0.4:
            chores["saver"] = self._save
        for name, work in chores.items():
            self.start(name, self._chore(work), counted=False)

    # -- services -------------------------------------------------------------------------------------

    def _chore(self, work: Callable[[Process, Table], Any]) -> Callable[[Process], None]:
        """A process that does a piece of work again and again until the writers have ended."""

        def body(process: Process) -> None:
            table = self._patiently(process, lambda: self.open(process))
            while not self.over():
                self.pause_between(process, 1000)
                try:
                    work(process, table)
                except MainstemError as error:
                    self._accept(error)

        return body

    def _save(self, process: Process, table: Table) -> None:
        """Make a savepoint of some completed instant, or take one back."""
        made = [point.instant for point in self._patiently(process, table.savepoints)]
        timeline = self._patiently(process, table.timeline)
        done = [i.requested for i in timeline if i.action == "deltacommit" and i.completion]
        try:
            if made and self.random.random() < 0.4:
                table.delete_savepoint(self.random.choice(made))
            elif done:
                table.savepoint(self.random.choice(done))
        except Invalid:
            self.world.counts.refused += 1  # cleaned, archived or taken back meanwhile

    def _serve(self, table: Table) -> None:
        table.log_compact(if_due=True)
        table.compact()
        for _ in range(2):
            table.clean()
            table.archive()

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        self.rules.archive()
        self._look_ups(table)

    def _look_ups(self, table: Table) -> None:
        """Every completion time is found, wherever its instant is by now, and no other."""
        ctx = table.writer_context()
        state = TableState.load(ctx.seams.storage, ctx.config)
        for time in sorted({*self.watch.requested, *self.watch.rolled_back, *self.rules.ledger.commits}):
            commit = self.rules.ledger.commits.get(time)
            meant = None if commit is None or time in self.rules.ledger.restored else commit.completion
            known = state.completion(time)
            if known != meant and (meant is not None or time in self.watch.rolled_back):
                raise Violation("look-ups", f"{time} is said to be completed at {known}, was at {meant}")

    # -- readers ----------------------------------------------------------------------------------------

    def _window(self, table: Table) -> None:
        """A range whose files a clean removed is refused: the reader goes on behind it."""
        try:
            super()._window(table)
        except Unavailable:
            if not self.rules.cleaned:
                raise
            self.windows["after"] = max(
                (p.completion for p in self.watch.published), default=""
            )

    def _view(self, table: Table, moment: str) -> list[Row] | None:
        """None for a view that is older than what cleans keep."""
        try:
            return super()._view(table, moment)
        except Invalid as error:
            if "a clean has removed" not in error.message or moment >= self._retained():
                raise
            return None

    def _retained(self) -> str:
        """From this completion time on every view is kept, if the clean counts commits."""
        if self.retention.commits is None:
            return "9"
        commits = [c for t, c in self.rules.ledger.commits.items() if t not in self.rules.ledger.restored]
        newest = sorted(commits, key=lambda c: c.requested)[-self.retention.commits :]
        return min((c.completion for c in newest), default="")
