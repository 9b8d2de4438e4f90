"""Scenario ``services``: every table service at work beside the writers, streams and readers of ``tables``.

Two compactors, a cleaner, an archiver, a log compactor and a keeper of savepoints run the production code
of ``services`` as processes of their own, on short retentions, so that every one meets what the others
did. Writers delete, overwrite with equal ordering values and complete late; what a compaction does
with that is Java's rule (``ledger``), and ``service_rules`` watches every plan and every deletion.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.api.write_request import write_spec
from mainstem.errors import Invalid, MainstemError, Unavailable, Unsupported
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.writers.append import BucketAppender
from tests.sim.checkers import LOST_ATTEMPT
from tests.sim.oracle import Intent, Row
from tests.sim.service_rules import Retention
from tests.sim.tables_world import Tables
from tests.sim.world import INTERRUPTS, Faults, Process, Violation


class Services(Tables):
    """``tables`` with all services; deletes and late rows in every merge mode."""

    scenario = "services"
    always_compacting = True
    late_rows = True
    busy_calls = 8000
    settle_calls = 80_000  # sources that were set back start more drivers
    restores_too = True

    def __init__(
        self, seed: int, *, faults: Faults | None = None, log: bool = False, body: str = "disk"
    ) -> None:
        rng = random.Random(f"retention of {seed}")
        self.retention = rng.choice([Retention(commits=1), Retention(commits=3), Retention(versions=1)])
        super().__init__(seed, faults=faults, log=log, body=body)

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
            **self.no_rest(),
        }

    #: completed commits that were rolled back; whether those of services are, which others may begin anew
    taken_back = 0
    undoes_services = False

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
        self.restoring = False
        if self.random.random() < 0.5:
            chores["saver"] = self._save
            if self.restores_too and self.random.random() < 0.6:
                self.restores = 12
                self.start("restorer", self._restorer)
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
                except INTERRUPTS as error:
                    self.interrupted(error)

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

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        super()._transaction(process, table, kind)
        last = self.intents[-1]
        if last.writer == process.name and last.fate == "committed" and self.random.random() < 0.1:
            self._lost_attempt(table, last)

    def _lost_attempt(self, table: Table, intent: Intent) -> None:
        """A second attempt of the task wakes up and writes its files, which the commit does not name.

        Attempts get the same rows, so their files are in the same file groups.
        """
        rows = [{**row, "v": "lost"} for kind, row in intent.operations if kind == "upsert"]
        if not rows:
            return
        try:
            spec = replace(write_spec(table.opened, table.writer_context(), "upsert"), instant=intent.instant)
            appender = BucketAppender(table.writer_context().seams.storage, spec, LOST_ATTEMPT)
            appender.write(pa.Table.from_pylist(rows, schema=self.schema))
            appender.close()
        except OSError:
            self.world.counts.refused += 1

    def _take_back(self, process: Process, table: Table) -> None:
        """Roll back what completed last, if no stream counts on it."""
        done = [i for i in self._patiently(process, table.timeline) if i.action in WRITES and i.completion]
        newest = max(done, key=lambda i: i.completion or "", default=None)
        intent = None if newest is None else self.audit.intents.get(newest.requested)
        if newest is None or (intent is not None and intent.stream is not None):
            return
        if intent is None and not self.undoes_services:
            return
        try:
            table.rollback(newest.requested)
            self.taken_back += 1
        except Invalid:
            self.world.counts.refused += 1  # something rests on it by now

    def _restorer(self, process: Process) -> None:
        """Holds the writers back, restores to a savepoint, lets them go on; an heir finishes its work."""
        table = self._patiently(process, lambda: self.open(process))
        while self.restores > 0 or self.restoring:
            self.pause_between(process, 500 if self.restoring else 5000)
            points = self._patiently(process, table.savepoints)
            self.restores -= 1
            if not points and not self.restoring:
                continue
            self.restoring = True
            try:
                over = self._restore(process, table, self.random.choice(points).instant if points else None)
            except MainstemError as error:
                self._accept(error)
                over = False
            if over:
                self._rewind()
            elif self._restore_is_pending(process, table):
                self.restores += 1
                continue  # nobody may go on before
            self.restoring = over is None and self.restores > 0

    def _restore(self, process: Process, table: Table, savepoint: str | None) -> bool | None:
        """None if it was refused: a writer's transaction is open still, or the state is gone."""
        waiting = self._restore_is_pending(process, table)
        try:
            table.restore(None if waiting else savepoint)
        except Invalid:
            self.world.counts.refused += 1
            return None
        return True

    def _end_restores(self, process: Process, table: Table) -> None:
        if self._restore_is_pending(process, table):
            table.restore()

    def _restore_is_pending(self, process: Process, table: Table) -> bool:
        timeline = self._patiently(process, table.timeline)
        return any(i.action == "restore" and i.completion is None for i in timeline)

    def _accept(self, error: MainstemError) -> None:
        if isinstance(error, Unsupported) and "a restore (" in error.message:
            self.world.counts.refused += 1
        else:
            super()._accept(error)

    def _set_back(self, rewinds: int) -> bool:
        return self.restoring or super()._set_back(rewinds)

    def _gate(self, process: Process) -> None:
        while self.restoring:
            self.pause_between(process, 500)

    def _rewind(self) -> None:
        """Sources of streams go back to what the table holds; readers of changes begin anew."""
        self.rewinds += 1
        held = [i.stream for i in self.audit.committed() if i.stream is not None]
        for name in self.checkpoints:
            whole = [b for b in range(99) if all((f"{name}/{o}", b) in held for o in (0, 1))]
            self.checkpoints[name] = len(whole)
            if len(whole) < self.batches[name]:
                self.start(name + "'", self._stream)  # its driver may have ended already
        self.windows = {}

    def _serve(self, table: Table) -> None:
        if not self.sorted:  # logs of an LSM tree are not compacted
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
            meant = None if commit is None or not self.rules.ledger.stands(time) else commit.completion
            known = state.completion(time)
            if known != meant and (meant is not None or time in self.watch.rolled_back):
                raise Violation("look-ups", f"{time} is said to be completed at {known}, was at {meant}")

    # -- readers ----------------------------------------------------------------------------------------

    def _window(self, table: Table) -> None:
        """A range whose files a clean removed is refused: the reader goes on behind it."""
        restored = len(self.rules.ledger.restored)
        try:
            super()._window(table)
        except Unavailable:
            if not self.rules.cleaned:
                raise
            self.windows["after"] = max(
                (p.completion for p in self.watch.published), default=""
            )
        except Violation:
            if restored == len(self.rules.ledger.restored):
                raise
            self.windows = {}  # the range was restored away while it was read

    def _view(self, table: Table, moment: str) -> list[Row] | None:
        """None for a view that is older than what cleans keep, or that has a commit which was taken back."""
        try:
            return super()._view(table, moment)
        except Invalid as error:
            restored = any(moment <= restore for restore in self.rules.ledger.restored.values())
            cleaned = "a clean has removed" in error.message and moment < self._retained()
            if not (restored or cleaned or self._taken_back_by(moment)):
                raise
            return None

    def _taken_back_by(self, moment: str) -> bool:
        """Whether something that was completed at ``moment`` was rolled back later."""
        return any(completion <= moment for completion in self.rules.ledger.undone.values())

    def _retained(self) -> str:
        """From this completion time on every view is kept, if the clean counts commits."""
        if self.retention.commits is None:
            return "9"
        commits = [c for t, c in self.rules.ledger.commits.items() if self.rules.ledger.stands(t)]
        newest = sorted(commits, key=lambda c: c.requested)[-self.retention.commits :]
        return min((c.completion for c in newest), default="")
