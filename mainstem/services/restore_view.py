"""The state of a table after a restore: which instants go, and which files are read then.

As in Java's restore (RestorePlanActionExecutor, RestoreInstantComparatorFactory), writes go by *completion*
time, because an instant requested early may complete late. Compactions go by *requested* time: one requested
before the savepoint holds nothing that completed after it, whenever it completed itself, and later writes lie
on top of its base files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mainstem.errors import Invalid
from mainstem.layout.slicing import FileSlice
from mainstem.readers.planning.history import PastState, past_state
from mainstem.readers.planning.table_state import TableState
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import COMMIT, COMPACTION, WRITE_ACTIONS, Instant


def is_compaction(instant: Instant) -> bool:
    """Whether this is a compaction, pending or completed: on these tables every ``commit`` is one."""
    return instant.action in (COMMIT, COMPACTION)


def removed_by_restore(timeline: ActiveTimeline, savepoint: Instant) -> list[Instant]:
    """Write instants that a restore to ``savepoint`` removes: pending ones first, then newest first."""
    completed = savepoint.completion or ""

    def goes(instant: Instant) -> bool:
        if instant.action not in WRITE_ACTIONS:
            return False
        if is_compaction(instant):
            return instant.requested > savepoint.requested
        return instant.completion is None or instant.completion > completed

    def newest_first(instant: Instant) -> tuple[bool, str, str]:
        return instant.completion is None, instant.completion or "", instant.requested

    return sorted((i for i in timeline.instants if goes(i)), key=newest_first, reverse=True)


@dataclass
class RestoredState(PastState):
    """``whole`` without some instants. Make it with ``restored_state``."""

    removed: frozenset[str] = frozenset()

    def completion(self, requested: str) -> str | None:
        """Completion time of an instant that stays."""
        assert self.whole is not None
        return None if requested in self.removed else self.whole.completion(requested)


def restored_state(state: TableState, removed: Iterable[Instant], savepoint: Instant) -> RestoredState:
    """``state`` after a restore to ``savepoint`` that removes these instants."""
    times = frozenset(i.requested for i in removed)
    return RestoredState(
        state.storage,
        state.config,
        state.timeline.without_instants(times),
        state.archive,
        state._metadata,
        whole=state,
        moment=savepoint.requested,
        removed=times,
    )


def check_kept(view: PastState, found: FileSlice, listed: set[str]) -> None:
    """Raises ``Invalid`` if a clean removed a file of the slice, or may be about to."""
    gone = view.cleaned.get(found.partition, set())
    for name in (found.base_file, *found.log_files):
        if name is not None and (name in gone or name not in listed):
            what = "a clean removed, or is about to remove" if name in gone else "is not there"
            raise Invalid(
                f"the state needs {found.partition or '.'}/{name}, which {what}",
                table=view.storage.base,
            )


def files_of(view: PastState, files: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Partition -> files that a query of the view reads, in slice order: base file, then its logs."""
    needed: dict[str, list[str]] = {}
    replaced = view.replaced(None)
    for partition in sorted({*files, *view.cleaned}):
        for found in view.slices(partition, sorted(files.get(partition, ())), replaced=replaced):
            check_kept(view, found, files.get(partition, set()))
            names = needed.setdefault(partition, [])
            names += [n for n in (found.base_file, *found.log_files) if n is not None]
    return needed


def kept_for(state: TableState, savepoint: Instant, files: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Files that a savepoint must keep: those of the restored table and of the snapshot at its completion.

    The two differ only around compactions that ran while ``savepoint`` was being written. Raises
    ``Invalid`` if a clean removed a file of either.
    """
    assert savepoint.completion is not None
    removed = removed_by_restore(state.timeline, savepoint)
    kept = files_of(restored_state(state, removed, savepoint), files)
    for partition, names in files_of(past_state(state, savepoint.completion), files).items():
        known = kept.setdefault(partition, [])
        known += [name for name in names if name not in known]
    return kept
