"""mainstem: many streaming writers on one Apache Hudi 1.x table, from Python.

Public names are loaded when first used, so that importing the package stays cheap in every worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.lazy import lazily

_PLACES = {
    "create_table": "mainstem.api.create",
    "ingest": "mainstem.ingestion.run",
    "IngestProgress": "mainstem.ingestion.ingest_progress",
    "open_table": "mainstem.api.table",
    "open_catalog": "mainstem.api.catalog",
    "Catalog": "mainstem.api.catalog",
    "Table": "mainstem.api.table",
    "Outcome": "mainstem.writers.outcome",
    "Transaction": "mainstem.writers.transaction",
    "StreamGuard": "mainstem.writers.stream_guard",
    "Instant": "mainstem.timeline.instant",
    "FileSlice": "mainstem.layout.slicing",
    "MixedWritersWarning": "mainstem.publish.publisher",
    "register_embedding": "mainstem.vectors.index.embedding",
    "register_merger": "mainstem.merge.registered_mergers",
    **dict.fromkeys(
        (
            "MainstemError", "Invalid", "Unsupported", "CorruptTable", "LockUnavailable",
            "Unavailable", "LeaseLost", "NotSynchronised", "RolledBack", "OutcomeUnknown", "TableExists",
            "TableReplaced", "ValidationFailed",
        ),
        "mainstem.errors",
    ),
}  # fmt: skip

__version__ = "0.1.0"
__all__ = [
    "Catalog",
    "CorruptTable",
    "FileSlice",
    "IngestProgress",
    "Instant",
    "Invalid",
    "LeaseLost",
    "LockUnavailable",
    "MainstemError",
    "MixedWritersWarning",
    "NotSynchronised",
    "Outcome",
    "OutcomeUnknown",
    "RolledBack",
    "StreamGuard",
    "Table",
    "TableExists",
    "TableReplaced",
    "Transaction",
    "Unavailable",
    "Unsupported",
    "ValidationFailed",
    "__version__",
    "create_table",
    "ingest",
    "open_catalog",
    "open_table",
    "register_embedding",
    "register_merger",
]

if TYPE_CHECKING:
    from mainstem.api.catalog import Catalog, open_catalog
    from mainstem.api.create import create_table
    from mainstem.api.table import Table, open_table
    from mainstem.errors import (
        CorruptTable,
        Invalid,
        LeaseLost,
        LockUnavailable,
        MainstemError,
        NotSynchronised,
        OutcomeUnknown,
        RolledBack,
        TableExists,
        TableReplaced,
        Unavailable,
        Unsupported,
        ValidationFailed,
    )
    from mainstem.ingestion.ingest_progress import IngestProgress
    from mainstem.ingestion.run import ingest
    from mainstem.layout.slicing import FileSlice
    from mainstem.merge.registered_mergers import register_merger
    from mainstem.publish.publisher import MixedWritersWarning
    from mainstem.timeline.instant import Instant
    from mainstem.vectors.index.embedding import register_embedding
    from mainstem.writers.outcome import Outcome
    from mainstem.writers.stream_guard import StreamGuard
    from mainstem.writers.transaction import Transaction
else:  # a type checker must not believe that every name is there
    __getattr__, __dir__ = lazily(__name__, _PLACES)
