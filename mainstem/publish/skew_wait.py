"""Whether a section must keep clear of the clocks of other machines (``truetime.clock_skew``).

It need not on a table declared ``hoodie.mainstem.exclusive=true``, until another kind of writer touches it.
The first bytes of a timeline file tell which kind of writer made it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

from mainstem.formats.avro_container import MAGIC, OUR_MARK
from mainstem.limits import HEARTBEAT_BYTES_MAX
from mainstem.options.tables import EXCLUSIVE
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, INFLIGHT, REQUESTED, Instant, parse_instant
from mainstem.truetime.heartbeats import parse_promise

_MARK_WINDOW_BYTES = 256
_BEGUN_WRITES = (f".{DELTACOMMIT}.{REQUESTED}", f".{DELTACOMMIT}.{INFLIGHT}")


class MixedWritersWarning(UserWarning):
    """A table declared exclusive was written by another kind of writer: its clock counts from now on."""


class SkewWait:
    """Of one table, in one process. ``exclusive``: see ``Publisher``."""

    def __init__(self, storage: Storage, *, exclusive: bool) -> None:
        self._storage = storage
        self._exclusive = exclusive
        self._known: set[str] = set()
        #: what was judged last, and which names of it are to be judged again; None: all
        self._judged_last: tuple[ActiveTimeline, set[str]] | None = None
        #: requested times of instants that are ours
        self._ours: set[str] = set()
        #: requested times of writes that were pending the last time
        self._young: set[str] = set()

    def is_always_owed(self, foreign_seen: bool) -> bool:
        """Whether it is owed whatever is listed."""
        return foreign_seen or not self._exclusive

    def is_owed(
        self,
        timeline: ActiveTimeline,
        foreign_seen: bool,
        note_foreign: Callable[[str], None],
        *,
        patient: bool = False,
    ) -> bool:
        """True but on an exclusive table that only mainstem has touched.

        ``foreign_seen``: another kind of writer was noted; ``note_foreign`` (``Epoch``) notes one.
        ``patient``: of pending writes only those are looked at that were pending the last time, too. Among
        many writers of ours the others are completed by then, and the fence tells whose they are.
        """
        if self.is_always_owed(foreign_seen):
            return True
        undecided = False
        last, self._judged_last = self._judged_last, None
        if last is None:
            new = timeline.names - self._known
        else:
            left = {name for name in last[1] if timeline.has(name)}
            new = (timeline.since(last[0]) | left) - self._known
        unjudged = set(new)
        if patient:
            pending = {name for name in new if name.endswith(_BEGUN_WRITES)}
            new -= {name for name in pending if name.partition(".")[0] not in self._young}
            self._young = {name.partition(".")[0] for name in pending}
        for name, ours in self._judged(sorted(new), timeline):
            if ours is None:
                undecided = True  # its writer is about to show itself, or died before it did
                continue
            self._known.add(name)
            if not ours:
                note_foreign(name)
                warnings.warn(
                    f"table {self._storage.base} is declared {EXCLUSIVE}=true, but"
                    f" {name} was written by another kind of writer: from now on every commit keeps clear of"
                    " other clocks and takes the lock",
                    MixedWritersWarning,
                    stacklevel=7,
                )
                return True
        self._judged_last = timeline, unjudged - self._known
        return undecided

    def _judged(
        self, names: Sequence[str], timeline: ActiveTimeline
    ) -> Iterable[tuple[str, bool | None]]:
        """Whether each of these files is ours. On a store, where each look is a request, one file of an
        instant speaks for the others, and the looks are made at the same time."""
        if not has_swaps(self._storage):
            return ((name, self._is_ours(name, timeline)) for name in names)
        speakers: dict[str, str] = {}
        for name in names:
            instant = parse_instant(name)
            if instant is not None and instant.requested not in self._ours:
                held = speakers.get(instant.requested)
                if held is None or ("_" not in held and instant.state != REQUESTED):
                    speakers[instant.requested] = name
        chosen = list(speakers.items())
        verdicts = side_by_side(self._storage, lambda one: self._is_ours(one[1], timeline), chosen)
        self._ours.update(when for (when, _), ours in zip(chosen, verdicts, strict=True) if ours)
        return [(name, ours) for (_, name), ours in zip(chosen, verdicts, strict=True)]

    def note_own(self, *names: str) -> None:
        """Files that this process makes need not be read to know whose they are."""
        self._known.update(names)
        self._ours.update(i.requested for i in map(parse_instant, names) if i is not None)

    def _is_ours(self, name: str, timeline: ActiveTimeline) -> bool | None:
        """True for our files and non-instants, None for an instant that does not show its writer yet. A
        completed write is judged by its completed file alone."""
        if name.endswith(_BEGUN_WRITES) and name.partition(".")[0] in timeline.completion_times:
            return True
        instant = parse_instant(name)
        if instant is None:
            return True
        if instant.state == REQUESTED:
            inflight = f"{instant.requested}.{instant.action}.{INFLIGHT}"
            return True if timeline.has(inflight) else self._beats(instant) or self._marked(name) or None
        if instant.state == INFLIGHT and instant.action not in (COMMIT, DELTACOMMIT):
            # Inflight files of services are empty; the plan tells which kind of writer made them.
            return self._marked(f"{instant.requested}.{instant.action}.{REQUESTED}")
        if instant.state == INFLIGHT:
            return self._inflight_is_ours(instant, timeline)
        return self._marked(name)

    def _inflight_is_ours(self, instant: Instant, timeline: ActiveTimeline) -> bool | None:
        """Whether the inflight file of a write is ours; None if it does not show.

        Inflight files are not synced: a killed writer or a crash of the machine may leave a file that ends
        before the mark, or one of zeros. So a completed instant is judged by its completed file. A pending
        one counts as another writer's only if its file is a container, is long enough to hold our mark, holds
        no zeros there, and lacks the mark: every writer's schema is longer than that and has no zeros.
        """
        try:
            head = self._head(instant.file_name)  # once: its writer may be filling it just now
        except FileNotFoundError:
            return True  # rolled back since the listing
        if OUR_MARK.encode() in head or instant.requested in timeline.completion_times:
            return True
        whole = len(head) == _MARK_WINDOW_BYTES and b"\0" not in head
        return False if whole and head.startswith(MAGIC) else None

    def _head(self, name: str) -> bytes:
        return self._storage.read_range(paths.timeline_file(name), 0, _MARK_WINDOW_BYTES)

    def _marked(self, name: str) -> bool:
        try:
            return OUR_MARK.encode() in self._head(name)
        except FileNotFoundError:
            return True  # rolled back since the listing

    def _beats(self, instant: Instant) -> bool:
        """Whether the heartbeat of an instant that has just begun is ours: Java's heartbeats are empty."""
        try:
            content = self._storage.read(paths.heartbeat(instant.requested), max_bytes=HEARTBEAT_BYTES_MAX)
        except FileNotFoundError:
            return False
        return parse_promise(content) is not None
