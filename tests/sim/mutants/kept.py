"""Seeded bugs of the deletes that compactions keep."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np

from mainstem.services import compact_group, compaction, kept_deletes
from mainstem.services.kept_deletes import KeptDeletes
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug


@seeded_bug("deletes are kept though a write that began behind them is in flight", "kept")
def kept_beside_writes_in_flight() -> list[Patch]:
    return [patch.object(KeptDeletes, "_in_place", lambda self, storage, found: found)]


@seeded_bug("rows with the same ordering value that crossed the compaction are not looked at", "kept")
def kept_unseen_of_crossing_rows() -> list[Patch]:
    return [patch.object(kept_deletes, "without_conflicts", lambda storage, deletes, *given: deletes)]


@seeded_bug("a compaction forgets the deletes that the one before it kept", "kept")
def kept_once() -> list[Patch]:
    def long_ago(self: KeptDeletes, found: Any) -> Any:
        return np.where(found.places == self.operation.base_instant, "0", self.time)

    return [patch.object(KeptDeletes, "_first_kept", long_ago)]


@seeded_bug("deletes are kept that a later row in the logs had undone", "kept")
def kept_though_undone() -> list[Patch]:
    from mainstem.readers.rows import last_deletes

    whole = last_deletes._of_deleted_keys

    def deletes_only(*given: Any) -> Any:
        return [one for one in whole(*given) if not hasattr(one.entry, "table")]

    return [patch.object(last_deletes, "_of_deleted_keys", deletes_only)]


@seeded_bug("an execution completes without the file of kept deletes that another one made", "kept")
def kept_file_left_out() -> list[Patch]:
    keep = compact_group.GroupTask._keep

    def unnamed(self: Any, storage: Any, identity: str) -> None:
        keep(self, storage, identity)

    return [
        patch.object(compact_group.GroupTask, "_keep", unnamed),
        patch.object(compaction.Execution, "check_no_others", nothing),
    ]
