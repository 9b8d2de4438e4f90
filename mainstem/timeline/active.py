"""The active timeline, read from one listing of ``.hoodie/timeline``, and its incremental reload.

It reads names only: a completed file's name carries its completion time, so no file is opened.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Iterable, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter

from mainstem.errors import CorruptTable
from mainstem.forks import Mutex
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.storage.watches import Watch, is_worth_watching, watch
from mainstem.timeline.instant import (
    COMPACTION,
    DELTACOMMIT,
    INFLIGHT,
    LOGCOMPACTION,
    PLANNED_ACTIONS,
    REQUESTED,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    parse_instant,
    state_rank,
)
from mainstem.timeline.layered import Mapped, Names

# How many names are compared at once, at first and at most, and beyond how many changes sets are made.
_RUN, _RUN_MAX, _CHANGES_MAX = 64, 1 << 15, 1000

_REQUESTED, _INFLIGHT, _WRITE_INFLIGHT = f".{REQUESTED}", f".{INFLIGHT}", f".{DELTACOMMIT}.{INFLIGHT}"
_PLANNED_INFLIGHT = tuple(sorted(f".{action}.{INFLIGHT}" for action in PLANNED_ACTIONS))
_WRITE = f".{DELTACOMMIT}."
_place = attrgetter("requested", "action")


class ActiveTimeline:
    """An immutable view of one listing; the highest state of each instant counts.

    Lists are ordered by requested time.

    ``floor``: ``newest_time`` never falls below this time. ``parsed``: the parsed names, shared by all views
    of one reader; earlier states of completed instants (two thirds of all names) are never parsed.
    ``fresh``: the only names whose times may lie above the floor; None means that any may. ``before``: a view
    that shows exactly the names that are not fresh. This view builds on it, so that the cost of a commit does
    not grow with the number of commits before it.
    """

    def __init__(
        self,
        names: Iterable[str] | Names,
        parsed: dict[str, Instant | None],
        floor: str = "",
        fresh: frozenset[str] | None = None,
        before: ActiveTimeline | None = None,
    ) -> None:
        self._names = names if isinstance(names, Names) else Names(frozenset(names))
        self._parsed = parsed
        self._floor = floor
        self._fresh = fresh
        # Not the view itself: a chain of views would keep every earlier one alive.
        self._before = None if before is None else (before._done, before._open, before.completed)
        # Names of the view before this one, by which ``since`` knows it.
        self._names_before = None if before is None or fresh is None else before._names
        # The names that ``before`` does not show.
        self._added: Iterable[str] = self._names if before is None or fresh is None else fresh

    @property
    def names(self) -> frozenset[str]:
        """The raw file names. On a long timeline they are not asked for lightly: ``has``, ``since``."""
        return self._names.all

    def _instant(self, name: str) -> Instant | None:
        if name not in self._parsed:
            self._parsed[name] = parse_instant(name)
        return self._parsed[name]

    @cached_property
    def _done(self) -> Mapped[Instant]:
        """Completed instants by ``requested time.action``."""
        new = {f"{i.requested}.{i.action}": i for i in self._new}
        return Mapped(new) if self._before is None else self._before[0].with_more(new)

    @cached_property
    def _new(self) -> list[Instant]:
        """Completed instants that the view before this one does not show; one that was completed twice is
        there twice."""
        found = [self._instant(name) for name in self._added if "_" in name]
        return [instant for instant in found if instant is not None]

    @cached_property
    def _open(self) -> list[str]:
        """Names of requested and inflight files, except those of completed instants."""
        done, before = self._done.keys, () if self._before is None else self._before[1]
        return [
            name
            for name in chain(before, self._added)
            if "_" not in name
            and not (name.endswith(_REQUESTED) and name[: -len(_REQUESTED)] in done)
            and not (name.endswith(_INFLIGHT) and name[: -len(_INFLIGHT)] in done)
        ]

    @cached_property
    def instants(self) -> list[Instant]:
        """Each instant once, in its highest state."""
        return sorted([*self._done.values(), *self.pending], key=_place)

    @cached_property
    def completed(self) -> list[Instant]:
        if self._before is not None:
            new = self._new
            if not new:
                return self._before[2]
            found = list(self._before[2])
            for instant in new:
                insort(found, instant, key=_place)
            if len(found) == len(self._done):  # otherwise one was completed twice
                return found
        return sorted(self._done.values(), key=_place)

    @cached_property
    def pending(self) -> list[Instant]:
        # Every commit needs this twice under the lock, so it does not go through ``instants``.
        done = self._done
        best: dict[str, tuple[str, Instant]] = {}
        for name in self._open:
            stem, _, state = name.rpartition(".")
            instant = None if self._without_plan(stem, state) else self._instant(name)
            if instant is None:
                continue
            key = f"{instant.requested}.{instant.comparable_action}"
            if key not in done:
                other = best.get(key)
                rank = 0 if other is None else state_rank(instant) - state_rank(other[1])
                # Two names in the same state (a commit and a compaction): the smaller name wins.
                if other is None or rank > 0 or (rank == 0 and name < other[0]):
                    best[key] = name, instant
        return sorted((i for _, i in best.values()), key=_place)

    @cached_property
    def pending_services(self) -> list[Instant]:
        """Pending instants of all actions but delta commits.

        A commit asks for restores, rollbacks and other services several times. Most often there are none, and
        then the names that all other writers have open are not even parsed.
        """
        if all(_WRITE in name for name in self._open):
            return []
        return [i for i in self.pending if i.action != DELTACOMMIT]

    def _without_plan(self, stem: str, state: str) -> bool:
        planned = state == INFLIGHT and stem.rpartition(".")[2] in PLANNED_ACTIONS
        return planned and f"{stem}.{REQUESTED}" not in self._names

    @cached_property
    def marks_without_plan(self) -> list[Instant]:
        """Inflight files of services whose plan is gone.

        An executor leaves one if it was suspended, and woke up after others had completed the action and
        archived it, or had taken it back. These files are no instants and may be removed.
        """
        # Nearly all are of writes, which have no plan.
        there = (n for n in self.names if n.endswith(_INFLIGHT) and not n.endswith(_WRITE_INFLIGHT))
        stems = (name.rpartition(".") for name in there if name.endswith(_PLANNED_INFLIGHT))
        found = [f"{stem}.{state}" for stem, _, state in stems if self._without_plan(stem, state)]
        return [i for i in map(self._instant, sorted(found)) if i is not None]

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
        shown = chain(self._done.values(), self.pending)
        times = [i.requested for i in shown if i.action in WRITE_ACTIONS]
        return min(times) if times else None

    @cached_property
    def newest_time(self) -> str:
        """Greatest requested or completion time seen; "" on an empty timeline."""
        if self._fresh is not None:
            fresh = (self._instant(name) for name in self._fresh)
            times = (max(i.requested, i.completion or "") for i in fresh if i is not None)
            return max((self._floor, *times))
        # Over all files, not instants: if one was completed twice, the later time must count.
        if self._before is None:
            shown = self._new
        else:
            found = [self._instant(name) for name in self.names if "_" in name]
            shown = [i for i in found if i is not None]
        completed = max((i.requested for i in shown), default="")
        completed = max(completed, max((i.completion or "" for i in shown), default=""))
        instants = [*self.pending, *self.marks_without_plan]
        requested = max((i.requested for i in instants), default="")
        return max(completed, requested, self._floor)

    def completion_of(self, requested: str, action: str) -> str | None:
        """Completion time of this action; None if the timeline does not show it as completed."""
        found = self._done.get(f"{requested}.{action}")
        return None if found is None else found.completion

    @property
    def pending_compactions(self) -> list[Instant]:
        """Pending compactions and log compactions."""
        # A log compaction is a delta commit by its completed file's name alone.
        return [i for i in self.pending_services if i.action in (COMPACTION, LOGCOMPACTION)]

    @property
    def newest_completed(self) -> str:
        """File name of the completed instant that comes last; "" if none is completed."""
        return self.completed[-1].file_name if self.completed else ""

    def since(self, before: ActiveTimeline) -> frozenset[str]:
        """The names that this listing shows and an earlier one does not."""
        if before._names is self._names:
            return frozenset()
        if before._names is self._names_before and self._fresh is not None:
            return self._fresh
        return self._names.without(before._names)

    @property
    def count(self) -> int:
        """How many files there are."""
        return len(self._names)

    def has(self, name: str) -> bool:
        """Whether the timeline shows a file of this name."""
        return name in self._names

    def with_file(self, name: str) -> ActiveTimeline:
        """The same listing plus one file that was published since."""
        fresh = frozenset([name])
        if name in self._names:
            return self
        return ActiveTimeline(self._names.changed(fresh), self._parsed, self.newest_time, fresh, self)

    def without(self, names: Iterable[str]) -> ActiveTimeline:
        """The same listing without some files."""
        return ActiveTimeline(self._names.all.difference(names), self._parsed)

    def without_instants(self, requested: Container[str]) -> ActiveTimeline:
        """The same listing without any file of these instants (by requested time)."""
        found = ((name, self._instant(name)) for name in self.names)
        return self.without(name for name, i in found if i is not None and i.requested in requested)


class TimelineReader:
    """Lists the timeline repeatedly and parses each name once (a commit lists it four times).

    ``stays``: for a reader that lives as long as its table is open. It watches a long timeline from the
    second listing on, where the store can do that (``storage.watches``): then a listing costs what came and
    went since the one before, not what is there.
    """

    def __init__(self, storage: Storage, folder: str = paths.TIMELINE, *, stays: bool = False) -> None:
        self._storage = storage
        self._folder = folder
        # The last listing, and its names in their order, each once (None if that is not known). They change
        # in one step, since threads share a reader.
        self._seen: tuple[ActiveTimeline, list[str] | None] = (ActiveTimeline((), {}), None)
        # A watch, the names in the folder as of its last news, and the view of these. None while its news
        # are taken over, which one thread does at a time: an interrupt there ends the watch.
        self._watched: tuple[Watch, set[str], ActiveTimeline] | None = None
        self._is_watchable = stays
        self._mutex = Mutex()

    def load(self, listed: Iterable[str] | None = None) -> ActiveTimeline:
        """List the timeline now, unless it was just ``listed``. Raises ``CorruptTable`` if its folder, which
        every table has, is gone."""
        if listed is not None:
            return self._compared(listed)
        with self._mutex.held:  # not while another thread takes over what is new
            watched = None if self._watched is None else self._watched[0]
        if watched is not None and (view := self._with_news(watched)) is not None:
            return view
        if watched is None and self._is_watchable and is_worth_watching(self._storage, self.last.count):
            begun = watch(self._storage, self._folder)
            self._is_watchable = begun is not None
            if begun is not None:
                view = self._compared(begun.names)
                self._watched = begun, set(begun.names), view
                return view
        return self._compared(self._storage.names(self._folder))

    def _with_news(self, watched: Watch) -> ActiveTimeline | None:
        """The view with what the watch tells; None if it is over."""
        stands = watched.stands()
        with self._mutex.held:
            held, self._watched = self._watched, None
            if held is None or held[0] is not watched or not stands:
                return None
            _, there, last = held
            news = watched.news()
            if news is None:
                return None
            touched = took_over(news, there)
            fresh = frozenset(name for name in touched if name in there and not last.has(name))
            gone = frozenset(name for name in touched if name not in there and last.has(name))
            if not is_worth_watching(self._storage, 2 * len(there)):
                return None
            view = self._changed(last, fresh, gone) if fresh or gone else last
            self._seen = view, None
            self._watched = watched, there, view
            return view

    def _changed(self, last: ActiveTimeline, fresh: frozenset[str], gone: frozenset[str]) -> ActiveTimeline:
        """The view after ``last``. Its newest time is never below one seen before, even if that instant was
        rolled back since: this is only safer."""
        known = last._parsed
        names = last._names.changed(fresh, gone)
        if len(known) > 4 * len(names) + 1000:  # archived names must not pile up
            known = {}
        return ActiveTimeline(
            names, known, last.newest_time, fresh if last.count else None,
            last if last.count and not gone else None,
        )  # fmt: skip

    def _compared(self, listed: Iterable[str]) -> ActiveTimeline:
        """The view of a listing."""
        found = list(listed)
        last, ordered = self._seen
        changes = None if ordered is None else differences(ordered, found, last.names)
        if changes is None:
            names = frozenset(found)
            changes = names - last.names, last.names - names
        fresh, gone = changes
        count = last.count + len(fresh) - len(gone)
        if not count and self._folder == paths.TIMELINE and self._is_gone():
            raise CorruptTable(
                "the timeline's folder is gone, which says which data files are committed; restore it from a"
                " copy (if nothing was ever written to this table, make the folder)",
                path=self._folder,
                table=self._storage.base,
            )
        in_order = found if len(found) == count else None
        view = self._changed(last, fresh, gone) if fresh or gone else last
        self._seen = view, in_order
        return view

    @property
    def last(self) -> ActiveTimeline:
        """The last listing, with what was noted since; it is empty before the first one."""
        return self._seen[0]

    def noted(self, name: str) -> ActiveTimeline:
        """The last listing with a file that was published since."""
        last = self.last
        if not last.has(name):
            last = last.with_file(name)
            self._seen = last, None
        return last

    def _is_gone(self) -> bool:
        if has_swaps(self._storage):  # an object store has no empty folders
            return False
        there = self._storage.stat(self._folder) is not None
        return not there and self._storage.stat(paths.PROPERTIES) is not None


def took_over(news: Sequence[tuple[str, bool]], there: set[str]) -> frozenset[str]:
    """Make ``there`` what a watch tells; returns the names that it told of."""
    for name, came in news:
        if came:
            there.add(name)
        else:
            there.discard(name)
    return frozenset(name for name, _ in news)


def differences(
    before: Sequence[str], now: Sequence[str], known: frozenset[str]
) -> tuple[frozenset[str], frozenset[str]] | None:
    """(names that only ``now`` holds, names that only ``before`` holds); None if that does not show quickly.

    Two listings of a folder in which little changed mostly agree in their order, too. Then long runs are
    compared at once, and no set of all names is made: of 90,000 that is the greater part of the work besides
    listing them. ``known``: the names of ``before``, which holds each once.
    """
    fresh: list[str] = []
    gone: list[str] = []
    i, j, run = 0, 0, _RUN
    while i < len(before) and j < len(now):
        n = min(run, len(before) - i, len(now) - j)
        if before[i : i + n] == now[j : j + n]:
            i, j, run = i + n, j + n, min(run * 2, _RUN_MAX)
        elif n > 1:
            run = max(1, n // 8)
        else:
            # A name of ``now`` is passed over only if it is new. So one that is known but stands elsewhere
            # than before is never passed: then what is left of ``before`` is used up, and nothing is said.
            if now[j] not in known:
                fresh.append(now[j])
                j += 1
            else:
                gone.append(before[i])
                i += 1
            if len(fresh) + len(gone) > _CHANGES_MAX:
                return None
            run = _RUN
    rest = now[j:]
    if len(rest) > _CHANGES_MAX or not known.isdisjoint(rest):
        return None
    return frozenset([*fresh, *rest]), frozenset([*gone, *before[i:]])


def load_timeline(storage: Storage, folder: str = paths.TIMELINE) -> ActiveTimeline:
    """One listing of the timeline."""
    return TimelineReader(storage, folder).load()
