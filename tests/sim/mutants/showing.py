"""Seeded bugs of base files that get their names when their instant completes (``publish.showing``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from mainstem.publish import publisher, showing
from mainstem.publish.publisher import Publisher
from mainstem.publish.showing import Showing
from mainstem.storage import paths
from mainstem.writers.transaction import Transaction
from tests.sim.mutants.mutant import LOSING_LEASES, Patch, nothing, seeded_bug
from tests.sim.world import Faults

_DYING = Faults(crash_after=r"link .*/unshown/.*", crash_after_often=0.2, skew_ms=50)
_STOPPED_THERE = Faults(pause_before="link", pause_ms_max=10_000, lease_loss=0.5, late_notice=1.0)
_DYING_THERE = Faults(crash_after=r"(link .*/unshown/|delete .*/showing-).*", crash_after_often=0.3)
_DYING_LATER = Faults(crash_after=r"link .*\.deltacommit", crash_after_often=0.3, skew_ms=50)


@seeded_bug("nobody takes away what an overwrite showed that died before it completed", "shown", _DYING)
def shown_and_never_swept() -> list[Patch]:
    return [patch.object(Publisher, "_sweep_shown", nothing)]


@seeded_bug("what a completed overwrite showed is taken away, if its note is still there", "shown",
            _DYING_LATER)  # fmt: skip
def shown_and_swept_though_completed() -> list[Patch]:
    def sweep(self: Any, epoch: Any, timeline: Any) -> None:
        for instant in epoch.notes.showing:
            showing.take_back(self._seams.storage, instant)

    return [patch.object(Publisher, "_sweep_shown", sweep)]


@seeded_bug("files are shown without the last look whether another section entered", "shown", _STOPPED_THERE)
def shown_before_the_last_look() -> list[Patch]:
    def without(self: Showing, epoch: Any) -> None:
        show(self, SimpleNamespace(check=nothing))  # type: ignore[arg-type]

    show = Showing.show
    return [patch.object(Showing, "show", without)]


@seeded_bug("an overwrite shows its files before it knows whether it may complete", "shown", Faults())
def shown_before_the_checks() -> list[Patch]:
    def early(self: Any, section: Any) -> Any:
        if self._showing is None or self._showing.tried:
            return may(self, section)
        self._showing.show(section.epoch)
        with patch.object(Transaction, "_shown_before", False):
            return may(self, section)

    def once(self: Showing, epoch: Any) -> None:
        if not self.tried:
            show(self, epoch)

    show, may = Showing.show, Transaction._may_complete
    return [patch.object(Showing, "show", once), patch.object(Transaction, "_may_complete", early)]


@seeded_bug("names are taken away, and the files from which they are made stay", "shown", LOSING_LEASES)
def swept_names_come_back() -> list[Patch]:
    def names_only(storage: Any, instant: str) -> None:
        with patch.object(type(storage), "delete_tree", nothing):
            showing.take_back(storage, instant)

    return [patch.object(publisher, "take_back", names_only)]


@seeded_bug("a note goes before the names that it tells of", "shown", _DYING_THERE)
def note_before_names() -> list[Patch]:
    def backwards(storage: Any, instant: str) -> None:
        found = list(showing._noted(storage, instant))
        storage.delete_tree(paths.unshown_folder(instant))
        storage.delete(paths.showing_note(instant))
        for partition, name in found:
            storage.delete(paths.in_partition(partition, name))

    return [patch.object(publisher, "take_back", backwards)]
