"""The operations that a transaction may run, and how it can end."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import Invalid
from mainstem.writers.write_spec import (
    BULK_INSERT,
    DELETE,
    DELETE_PARTITION,
    DELETE_ROWS,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    MERGE_ROWS,
    UPDATE_COLUMNS,
    UPSERT,
)

#: operation given to ``begin`` -> name in the commit metadata (WriteOperationType)
OPERATIONS = {
    UPSERT: "UPSERT",
    INSERT: "INSERT",
    BULK_INSERT: "BULK_INSERT",
    DELETE: "DELETE",
    UPDATE_COLUMNS: "UPSERT",
    INSERT_OVERWRITE: "INSERT_OVERWRITE",
    INSERT_OVERWRITE_TABLE: "INSERT_OVERWRITE_TABLE",
    # Java's name DELETE_PARTITION would tell its readers of commits that the partition is gone.
    DELETE_PARTITION: "INSERT_OVERWRITE",
    DELETE_ROWS: "DELETE",
    MERGE_ROWS: "UPSERT",
}
COMMITTED = "committed"
ALREADY_COMMITTED = "already_committed"
EMPTY = "empty"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a transaction.

    ``status``: ``committed`` (visible at ``completion_time``), ``already_committed`` (the stream guard
    found the same micro-batch in ``instant``; nothing was written) or ``empty`` (no rows, nothing published).
    ``lock_held_ms`` and ``lock_wait_ms``: how long this commit held the table lock, and waited for it.
    """

    status: str
    instant: str | None = None
    completion_time: str | None = None
    rows: int = 0
    bytes: int = 0
    files: int = 0
    attempts: int = 0
    lock_held_ms: float = 0.0
    lock_wait_ms: float = 0.0


def check_operation(operation: str) -> str:
    """The operation in lower case. Raises ``Invalid`` if it is unknown."""
    name = operation.strip().lower()
    if name not in OPERATIONS:
        raise Invalid(f"operation {operation!r}; expected one of {', '.join(OPERATIONS)}")
    return name
