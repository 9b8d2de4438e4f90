"""mainstem: many streaming writers on one Apache Hudi 1.x table, from Python.

Public names are loaded when first used, so that importing the package stays cheap in every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.lazy import lazily

_PLACES = {
    "create_table": "mainstem.create",
    "open_table": "mainstem.client",
    "Table": "mainstem.client",
    "Outcome": "mainstem.writers.outcome",
    "Transaction": "mainstem.writers.transaction",
    "StreamGuard": "mainstem.writers.guard",
    "Instant": "mainstem.timeline.instant",
    "FileSlice": "mainstem.table.slicing",
    "MixedWritersWarning": "mainstem.timeline.publish",
    "register_embedding": "mainstem.vectors.embedding",
    "register_merger": "mainstem.merge.registry",
    **dict.fromkeys(
        (
            "MainstemError", "Invalid", "Unsupported", "CorruptTable", "LockUnavailable",
            "Unavailable", "LeaseLost", "RolledBack", "OutcomeUnknown", "TableExists", "TableReplaced",
        ),
        "mainstem.errors",
    ),
}  # fmt: skip

__version__ = "0.1.0"
__all__ = sorted([*_PLACES, "__version__"])

if TYPE_CHECKING:
    from mainstem.client import Table, open_table
    from mainstem.create import create_table
    from mainstem.errors import (
        CorruptTable,
        Invalid,
        LeaseLost,
        LockUnavailable,
        MainstemError,
        OutcomeUnknown,
        RolledBack,
        TableExists,
        TableReplaced,
        Unavailable,
        Unsupported,
    )
    from mainstem.merge.registry import register_merger
    from mainstem.table.slicing import FileSlice
    from mainstem.timeline.instant import Instant
    from mainstem.timeline.publish import MixedWritersWarning
    from mainstem.vectors.embedding import register_embedding
    from mainstem.writers.guard import StreamGuard
    from mainstem.writers.outcome import Outcome
    from mainstem.writers.transaction import Transaction

__getattr__, __dir__ = lazily(__name__, _PLACES)
