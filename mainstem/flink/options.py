"""Options of Hudi's Flink connector (``FlinkOptions``), read once into what the other modules need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FlinkReadOptions:
    """How a SELECT reads. ``start`` and ``end`` are completion times ("earliest" is "0"), or None."""

    query_type: str = "SNAPSHOT"
    streaming: bool = False
    check_interval_s: int = 60
    start: str | None = None
    end: str | None = None
    tasks: int | None = None
    commits_limit: int | None = None


@dataclass(frozen=True)
class FlinkOptions:
    """Checked options of one table in one statement, hints included.

    ``table``: properties that the table must have, or is created with, under their names in
    ``hoodie.properties``; ``given``: such a property -> option name as the user wrote it; ``passed``:
    properties for ``open_table``: locks, clock, heartbeat, services (under Hudi's ``hoodie.*`` names).
    ``write_tasks``: parallelism of the writers, None for the environment's.
    """

    path: str
    name: str
    table: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    passed: Mapping[str, str] = field(default_factory=dict)
    operation: str = "upsert"
    write_tasks: int | None = None
    client_id: str = ""
    read: FlinkReadOptions = field(default_factory=FlinkReadOptions)
