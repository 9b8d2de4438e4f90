"""What is done to tables of version 10 so far. Everything else is refused by its name, here."""

from __future__ import annotations

from mainstem.errors import Unsupported

#: services by the names of a round's, and other work that changes a table of version 10
ROLL_BACK, LOG_COMPACTION, COMPACTION, CLUSTERING, CLEANING, ARCHIVING = WORK = (
    "rollback", "log-compact", "compact", "cluster", "clean", "archive",
)  # fmt: skip
RESIZE, SAVEPOINTS, RESTORE, METADATA, INDEXES, VECTORS = MORE_WORK = (
    "resize", "savepoint", "restore", "metadata", "index", "vectors",
)  # fmt: skip
_FIRST = 10

#: work that is built for tables of version 10
BUILT = frozenset((*WORK, *MORE_WORK))


def is_built(version: int, what: str) -> bool:
    """Whether this work is done on tables of this version."""
    return version < _FIRST or what in BUILT


def check_built(version: int, what: str, table: str) -> None:
    """Raises ``Unsupported`` for work that is not done on tables of this version."""
    if not is_built(version, what):
        raise Unsupported(
            f"{what} on a table of version {version}: mainstem reads and writes rows of such tables, but does"
            " not do this on them yet. Do it with Hudi 1.3, or downgrade the table there (call"
            " downgrade_table, 'NINE')",
            table=table,
        )
