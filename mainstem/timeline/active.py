"""The active timeline as one listing of ``.hoodie/timeline``, and its incremental reload.

Only names are read: a completed file's name carries its completion time, so no file is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import (
    COMPACTION,
    COMPLETES_AS,
    LOGCOMPACTION,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    parse_instant,
    state_rank,
)


class ActiveTimeline:
    """An immutable view of one listing; the highest state of each instant counts.

    ``names`` are the raw file names. Lists are ordered by requested time.
    """

    def __init__(self, names: Iterable[str], parsed: dict[str, Instant | None]) -> None:
        self.names = frozenset(names)
        self._parsed = parsed

    @cached_property
    def instants(self) -> list[Instant]:
        """Each instant once, in its highest state."""
        best: dict[tuple[str, str], Instant] = {}
        parsed = self._parsed
        for name in self.names:
            instant = parsed[name]
            if instant is None:
                continue
            key = (instant.requested, COMPLETES_AS.get(instant.action, instant.action))
            other = best.get(key)
            if other is None or state_rank(instant) > state_rank(other):
                best[key] = instant
        return sorted(best.values(), key=lambda i: (i.requested, i.action))

    @cached_property
    def completed(self) -> list[Instant]:
        return [i for i in self.instants if i.is_completed]

    @cached_property
    def pending(self) -> list[Instant]:
        # Looked at twice per commit under the lock, so not by way of ``instants``.
        found = [i for i in map(self._parsed.__getitem__, self.names) if i is not None]
        done = {(i.requested, i.action) for i in found if i.completion is not None}
        best: dict[tuple[str, str], Instant] = {}
        for i in found:
            key = (i.requested, COMPLETES_AS.get(i.action, i.action))
            if i.completion is None and key not in done:
                other = best.get(key)
                if other is None or state_rank(i) > state_rank(other):
                    best[key] = i
        return sorted(best.values(), key=lambda i: (i.requested, i.action))

    @cached_property
    def completion_times(self) -> dict[str, str]:
        """Requested time -> completion time of completed write instants (savepoints excluded)."""
        return {
            i.requested: i.completion
            for i in self.completed
            if i.action != SAVEPOINT and i.completion is not None
        }

    @cached_property
    def start(self) -> str | None:
        """Requested time of the first non-savepoint write instant, any state; None if there is none."""
        times = [i.requested for i in self.instants if i.action in WRITE_ACTIONS]
        return min(times) if times else None

    @cached_property
    def newest_time(self) -> str:
        """Greatest requested or completion time seen; "" on an empty timeline."""
        newest = ""
        for name in self.names:
            instant = self._parsed[name]
            if instant is not None:
                newest = max(newest, instant.requested, instant.completion or "")
        return newest

    @property
    def pending_compactions(self) -> list[Instant]:
        """Pending compactions and log compactions."""
        return [i for i in self.pending if i.action in (COMPACTION, LOGCOMPACTION)]

    def has(self, name: str) -> bool:
        """Whether the timeline shows this very file."""
        return name in self.names

    def without(self, names: Iterable[str]) -> ActiveTimeline:
        """The same listing without some files."""
        return ActiveTimeline(self.names.difference(names), self._parsed)


class TimelineReader:
    """Lists the timeline again and again, parsing each name once (a commit lists it twice)."""

    def __init__(self, storage: Storage, folder: str = paths.TIMELINE) -> None:
        self._storage = storage
        self._folder = folder
        self._parsed: dict[str, Instant | None] = {}
        self._newest = ""

    def load(self) -> ActiveTimeline:
        """One listing, now."""
        names = self._storage.names(self._folder)
        if len(self._parsed) > 4 * len(names) + 1000:  # archived names must not pile up
            self._parsed = {}
        new = [name for name in names if name not in self._parsed]
        newest = self._newest
        fresh = {name: parse_instant(name) for name in new}
        for instant in fresh.values():
            if instant is not None:
                newest = max(newest, instant.requested, instant.completion or "")
        # A new dictionary only when something is new: views handed out before keep theirs intact.
        if fresh:
            self._parsed.update(fresh)
        # Never below what was seen before, even if that was rolled back since: only safer.
        self._newest = newest
        timeline = ActiveTimeline(names, self._parsed)
        timeline.newest_time = newest
        return timeline


def load_timeline(storage: Storage, folder: str = paths.TIMELINE) -> ActiveTimeline:
    """One listing of the timeline."""
    return TimelineReader(storage, folder).load()
