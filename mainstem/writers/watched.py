"""Tells OpenTelemetry of transactions, where the program has loaded it (``telemetry.steps``).

Spans and durations: ``mainstem.begin``, ``mainstem.write``, ``mainstem.commit``, ``mainstem.abort``,
``mainstem.task``. Of each commit: rows, bytes, files, attempts, how long it waited for the lock and held it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from mainstem.telemetry import steps
from mainstem.writers.outcome import COMMITTED, Outcome

P = ParamSpec("P")
Result = TypeVar("Result")


class Watched(Protocol):
    """What a transaction says of itself."""

    @property
    def table(self) -> str:
        """The table's base path."""

    @property
    def operation(self) -> str:
        """As given to ``begin``."""

    @property
    def instant(self) -> str:
        """Its requested time."""


Self = TypeVar("Self", bound=Watched)


def watched(
    name: str,
) -> Callable[[Callable[Concatenate[Self, P], Result]], Callable[Concatenate[Self, P], Result]]:
    """For a method of a transaction: a span of this name, and a value of its duration."""

    def around(method: Callable[Concatenate[Self, P], Result]) -> Callable[Concatenate[Self, P], Result]:
        @wraps(method)
        def call(txn: Self, /, *given: P.args, **named: P.kwargs) -> Result:
            if not steps.watched():
                return method(txn, *given, **named)
            with steps.step(name, txn.table, operation=txn.operation) as step:
                result = method(txn, *given, **named)
                if isinstance(result, Outcome):
                    step.tell(instant=result.instant, status=result.status, rows=result.rows)
                    # A later transaction that committed in place of this one has counted itself.
                    if result.status != COMMITTED or result.instant == txn.instant:
                        _count(result, txn.table, txn.operation)
                return result

        return call

    return around


def _count(outcome: Outcome, table: str, operation: str) -> None:
    steps.counted("commits", 1, "{commit}", table, operation=operation, status=outcome.status)
    if outcome.status != COMMITTED:
        return
    for name, amount, unit in (
        ("commit.rows", outcome.rows, "{row}"), ("commit.bytes", outcome.bytes, "By"),
        ("commit.files", outcome.files, "{file}"), ("commit.attempts", outcome.attempts, "{attempt}"),
    ):  # fmt: skip
        steps.counted(name, amount, unit, table, operation=operation)
    steps.took("lock.wait", outcome.lock_wait_ms, table)
    steps.took("lock.held", outcome.lock_held_ms, table)
