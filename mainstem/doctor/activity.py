"""Who is at work on a table, and how fast: what the timeline says of the last moments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc

from mainstem.doctor.examined_table import ExaminedTable
from mainstem.doctor.finding import Finding
from mainstem.doctor.timeline_findings import debts
from mainstem.errors import MainstemError
from mainstem.readers.queries.table_history import table_history
from mainstem.truetime.locks.lock_state import LockState, lock_state

_SUMS = [("requested", "count"), ("rows", "sum"), ("bytes", "sum"), ("completion", "max")]


@dataclass(frozen=True)
class WriterActivity:
    """What one writer committed within the window. ``writer``: its name, "" for those without one;
    ``last_s``: seconds since its newest commit, by this machine's clock."""

    writer: str
    action: str
    commits: int
    rows: int
    bytes: int
    last_s: float


@dataclass(frozen=True)
class WorkUnderWay:
    """An instant that is not completed. ``alive``: somebody shows to be at it."""

    instant: str
    action: str
    state: str
    since_s: float
    alive: bool


@dataclass(frozen=True)
class Activity:
    """``writers`` by rows, ``pending`` work, the oldest first, what is ``due``, how many ``instants`` are
    active, and who holds the table's ``lock`` (None if this process has none to tell)."""

    window_s: float
    writers: tuple[WriterActivity, ...]
    pending: tuple[WorkUnderWay, ...]
    due: tuple[Finding, ...]
    instants: int
    lock: LockState | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "window_s": self.window_s, "instants": self.instants,
            "writers": [asdict(one) for one in self.writers],
            "pending": [asdict(one) for one in self.pending], "due": [one.to_dict() for one in self.due],
            "lock": None if self.lock is None else self.lock.to_dict(),
        }  # fmt: skip


def activity(table: ExaminedTable, window_s: float) -> Activity:
    """Of the last ``window_s`` seconds. Raises ``CorruptTable``, ``OSError``."""
    after = table.times.format(table.now_ms - int(window_s * 1000))
    done = table_history(table.storage, after=after)
    done = done.filter(pc.is_valid(done["completion"]))
    writers = [
        WriterActivity(
            row["writer"], row["action"], row["requested_count"], row["rows_sum"] or 0, row["bytes_sum"] or 0,
            max(0.0, table.age_ms(row["completion_max"]) / 1000),
        )
        for row in done.group_by(["writer", "action"]).aggregate(_SUMS).to_pylist()
    ]
    pending = [
        WorkUnderWay(
            one.requested, one.action, one.state, max(0.0, table.age_ms(one.requested) / 1000),
            not table.is_dead(one),
        )
        for one in table.state.timeline.pending
    ]
    lock = None if isinstance(table.lock, MainstemError) else table.lock
    return Activity(
        window_s,
        tuple(sorted(writers, key=lambda one: (-one.rows, one.writer, one.action))),
        tuple(sorted(pending, key=lambda one: one.instant)),
        tuple(debts(table)),
        len(table.state.timeline.instants),
        None if lock is None else lock_state(table.storage, lock, table.now_ms),
    )
