"""Finds keys that other writers placed since a transaction looked where its own live.

On a table without buckets two writers may insert one key at once, each into a file group of its own. Whoever
commits second finds it here, before its commit is published, and moves its rows to where the key lives now
(``placed_rows``). So a key has one file group, nobody waits, nobody aborts.

  outside the lock  read the keys of the files that instants wrote that completed since the look, and move
  [[ the lock       no such instant that was not looked at? else outside again ]]

Where keys move (``moved_rows``), updates and deletes of others count as well, and instants with later
requested times even if the look saw them.

After ``_ROUNDS_MAX`` rounds, which need as many commits in the time of one, files are read under the lock.

What is not moved yet: rows that were appended to a file group which a clustering, or an overwrite of Java's,
replaced meanwhile. That ends the transaction, as a clustering that is planned does: who executes it would
leave out what comes after its plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mainstem.layout.key_index import GroupOfKey
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import OVERWRITES, CommitMetadata
from mainstem.timeline.instant import CLUSTERING
from mainstem.timeline.plans import clustered_groups
from mainstem.writers.conflicts import COMPACT, LOG_COMPACT, CompletedWrites, is_completed_write
from mainstem.writers.placed_rows import PlacingAppender

_ROUNDS_MAX = 10
# They write keys anew that were there before.
_REWRITES = (COMPACT, LOG_COMPACT, "CLUSTER")


@dataclass(frozen=True)
class LookAgain:
    """A decision: instants completed that may have placed keys of this transaction."""


@dataclass(frozen=True)
class Replaced:
    """A decision: rows would be lost in file groups that are replaced, or be found by nobody in what is
    overwritten. ``by``: what becomes of these; ``again``: whether it suffices to write them again."""

    by: str
    again: bool = False


class KeysPlacedMeanwhile:
    """Looks at each instant that completed since a transaction's ``KeyPlaces`` once."""

    def __init__(
        self, storage: Storage, instant: str, appender: PlacingAppender, history: str = paths.HISTORY
    ) -> None:
        self._storage = storage
        self._instant = instant
        self._appender = appender
        self._writes = CompletedWrites(storage, instant, history)
        self._done = {instant}
        self._rounds = 0

    def move(self, timeline: ActiveTimeline) -> Replaced | None:
        """Outside the lock: move the rows whose keys were placed meanwhile."""
        self._rounds += 1
        for requested, metadata in self._unseen(timeline):
            if (replaced := self._replaced(requested, metadata)) is not None:
                return replaced
            for place, path in self._added(metadata):
                for keys in self._keys(place, path):
                    if keys is None:
                        self._appender.give_way_all(place, requested)
                    else:
                        self._appender.give_way(place, keys, requested)
            self._done.add(requested)
        self._appender.settle_places()
        return self._to_be_replaced(timeline)

    def look(self, timeline: ActiveTimeline) -> LookAgain | Replaced | None:
        """Under the lock: None if the transaction's rows lie where their keys are."""
        for requested, metadata in self._unseen(timeline):
            if (replaced := self._replaced(requested, metadata)) is not None:
                return replaced
            added = list(self._added(metadata))
            if added and (self._rounds < _ROUNDS_MAX or any(self._meets(*one) for one in added)):
                return LookAgain()
            self._done.add(requested)
        return self._to_be_replaced(timeline)

    def _replaced(self, requested: str, metadata: CommitMetadata) -> Replaced | None:
        mine = self._appender.appended_to
        gone = ((p, file_id) for p, ids in metadata.replaced.items() for file_id in ids)
        if not mine.isdisjoint(gone):
            return Replaced(f"the instant {requested} replaced them")
        if metadata.operation in OVERWRITES and mine:
            hidden = ((p, str(s.get("fileId") or "")) for p, stats in metadata.stats.items() for s in stats)
            if not mine.isdisjoint(hidden):
                return Replaced(f"the instant {requested} overwrote them", again=True)
        return None

    def _to_be_replaced(self, timeline: ActiveTimeline) -> Replaced | None:
        mine = self._appender.appended_to
        pending = (i.requested for i in timeline.pending if i.action == CLUSTERING) if mine else ()
        for requested in pending:
            try:
                taken = clustered_groups(self._storage, requested)
            except FileNotFoundError:
                continue  # gone since the listing, or completed: then its replaced groups tell
            if taken is None or not mine.isdisjoint(taken):
                return Replaced(f"the pending clustering {requested} replaces them")
        return None

    def _meets(self, place: GroupOfKey, path: str) -> bool:
        return any(keys is None or self._appender.meets(place, keys) for keys in self._keys(place, path))

    def _keys(self, place: GroupOfKey, path: str) -> Iterator[pa.Array | None]:
        """The keys of a file, or, if it was cleaned already, of the newer base files of its group: they lack
        those that it deleted. None: any key, as these count."""
        places = self._appender.places
        try:
            yield from places.keys_of(place[0], path)
        except FileNotFoundError:
            if self._appender.follows_updates:
                yield None
                return
            for name in sorted(self._storage.names(place[0])):
                base = paths.parse_base_name(name)
                if base is not None and base.file_id == place[1]:
                    yield from places.keys_of(place[0], paths.in_partition(place[0], name))

    def _unseen(self, timeline: ActiveTimeline) -> Iterator[tuple[str, CommitMetadata]]:
        for instant in filter(is_completed_write, timeline.instants):
            if self._is_new(instant.requested, instant.completion):
                found = self._writes.active(instant)
                if found is not None:
                    yield instant.requested, found
        for requested, _, archived in self._writes.archived(self._is_new):
            if archived is not None:
                yield requested, archived

    def _is_new(self, requested: str, completion: str | None = None) -> bool:
        if requested in self._done:
            return False
        if self._appender.follows_since_begin:
            return completion is None or completion > self._instant  # archived ones: see ``CompletedWrites``
        later = self._appender.follows_updates and requested > self._instant
        return later or requested not in self._appender.places.seen

    def _added(self, metadata: CommitMetadata) -> Iterator[tuple[GroupOfKey, str]]:
        """Files that may hold keys which were nowhere before; where updates count, any file of a writer."""
        if metadata.operation in _REWRITES:
            return
        for partition, stats in metadata.stats.items():
            if not self._appender.unplaced(partition):
                continue
            for stat in stats:
                path = str(stat.get("path") or "")
                is_log = paths.parse_log_name(path.rpartition("/")[2]) is not None
                # Writers of such tables tell new keys from known ones; a log of known keys only adds none.
                known_only = is_log and stat.get("numInserts") == 0 and not self._appender.follows_updates
                if path and not known_only:
                    yield (partition, str(stat.get("fileId") or "")), path
