"""Seeded bugs of log compactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mainstem.merge.folded_logs import fold_logs
from mainstem.services import log_compaction, log_compaction_plan, log_merge
from tests.sim.mutants.mutant import STOPPING, Patch, seeded_bug


@seeded_bug("a log compaction runs over instants that are in flight, and never looks again", "logs", STOPPING)
def merge_over_writes_in_flight() -> list[Patch]:
    def nothing(*_: Any) -> list[Any]:
        return []

    return [
        patch.object(log_compaction, "writes_in_flight", nothing),
        patch.object(log_compaction_plan, "writes_in_flight", nothing),
        patch.object(log_compaction, "broken", lambda *_: None),
    ]


@seeded_bug("a log compaction merges rows and forgets deletes", "logs")
def merge_without_deletes() -> list[Patch]:
    def rows_only(*given: Any, **named: Any) -> Any:
        folded = fold_logs(*given, **named)
        return replace(folded, deleted=folded.deleted[:0], deleted_at=folded.deleted_at[:0])

    return [patch.object(log_merge, "fold_logs", rows_only)]
