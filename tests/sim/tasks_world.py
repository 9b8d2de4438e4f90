"""Scenario ``tasks``: transactions whose rows are written by tasks in other processes, as Spark does it.

An executor may die halfway, fail, or its result may be lost on its way to the driver: then the task is tried
again, and one attempt of each is committed. The driver may die under its executors, too. Log files are small,
so that a task closes some before it ends.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.errors import MainstemError, Unavailable
from mainstem.writers.write_spec import WriteSpec
from mainstem.writers.write_task import write_task
from tests.sim.oracle import Row
from tests.sim.tables_world import Tables
from tests.sim.world import INTERRUPTS, Process, is_interrupt

_TASKS, _ATTEMPTS, _LOG_BYTES = 2, 4, 400


class Tasks(Tables):
    """``tables`` in which plain upserts are written by tasks."""

    scenario = "tasks"
    busy_calls = 3500

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        if kind != "upsert":
            super()._transaction(process, table, kind)
            return
        txn, intent = self._begin(table, process.name, "upsert")
        with txn:
            rows = [*self._rows(self.random, intent.writer, 4), self._tracer(intent, self.random)]
            spec = replace(txn.task_spec(), log_bytes_max=_LOG_BYTES)
            for number in range(_TASKS):
                # A key is of one task: which of two tasks comes last is nobody's promise.
                mine = [row for row in rows if sum(row["id"].encode()) % _TASKS == number]
                intent.operations += [("upsert", row) for row in mine]
                txn.add_task_result(self._task(process, spec, number, mine))
            self._commit(txn, intent)

    def _task(self, process: Process, spec: WriteSpec, number: int, rows: list[Row]) -> bytes:
        """What the first attempt returned whose result arrived."""
        for attempt in range(_ATTEMPTS):
            found = self._attempt(process, spec, number, attempt, rows)
            if found is not None and (self.random.random() > 0.3 or attempt == _ATTEMPTS - 1):
                return found
        raise Unavailable(f"task {number} failed {_ATTEMPTS} times")

    def _attempt(
        self, process: Process, spec: WriteSpec, number: int, attempt: int, rows: list[Row]
    ) -> bytes | None:
        executor = self.world.process(f"{process.name}/{number}.{attempt}")
        told: list[bytes | None] = []
        batches = [pa.RecordBatch.from_pylist([row], schema=self.schema) for row in rows]

        def body() -> None:
            storage = self.storage()
            token = {"task_partition": number, "stage": 1, "attempt": attempt}
            try:
                told.append(write_task(spec, batches, **token, storage=storage))
            except (MainstemError, OSError):
                self.world.counts.refused += 1
                told.append(None)
            except INTERRUPTS as error:
                if not is_interrupt(error):
                    raise
                told.append(None)  # the attempt failed; its job has it tried again

        executor.on_death = lambda: told.append(None)
        self.world.spawn(executor, executor.name, body)
        while not told:
            self.pause_between(process, 30)
        return told[0]

