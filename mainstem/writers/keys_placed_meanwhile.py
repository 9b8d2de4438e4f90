"""Finds keys that other writers placed since a transaction looked where its own live.

On a table without buckets two writers may insert one key at once, each into a file group of its own. Whoever
commits second finds it here, before its commit is published, and moves its rows to where the key lives now
(``placed_rows``). So a key has one file group, nobody waits, nobody aborts.

  outside the lock  read the keys of the files that instants wrote that completed since the look, and move
  [[ the lock       no such instant that was not looked at? else outside again ]]

Where keys move (``moved_rows``), updates and deletes of others count as well, and instants with later
requested times even if the look saw them.

After ``_ROUNDS_MAX`` rounds, which need as many commits in the time of one, files are read under the lock.

**File groups that were replaced.** If a clustering, or another engine's overwrite, replaced a file group that
rows were appended to, or one that others placed keys in meanwhile, it does not help to know the files of each
instant, in whatever order: a new look tells where all keys live by now, and all rows are placed by it
(``PlacingAppender.place_again``). The new look knows of everything that completed before it, so that is done.

**Keys that left their file group.** A compaction leaves deleted keys out, and a record index forgets a key at
its delete; who inserts the key then puts it into another file group. So where keys may have left a file group
since a transaction began, the rows that it appended there are placed by a new look if others put one of their
keys elsewhere; and whoever inserts keys looks into the log files of known keys, too. Java's archiver goes by
requested times: a compaction that was planned before a write began may be archived while it is open. So what
was seen once is remembered, and the archive is asked for the rest.

**File groups that will be replaced.** Whoever executes a plan leaves out what comes after it, and Java's
executors look for nothing at their end. So a writer that is about to complete in a file group of a pending
clustering takes the plan back first, outside the lock, and publishes once the plan is gone from the timeline.
It costs a rollback, once per plan; its executor finds it gone, and plans anew. Plans of other engines stay:
theirs end their own writers there, and so they do ours (``Replaced``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainstem.layout.key_index import GroupOfKey
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clustering_plans import CLUSTER, ClusteringPlan, load_clustering_plan
from mainstem.timeline.commit_metadata import OVERWRITES, CommitMetadata
from mainstem.timeline.instant import CLUSTERING, COMMIT, DELTACOMMIT, REPLACECOMMIT
from mainstem.writers.conflicts import COMPACT, LOG_COMPACT, CompletedWrites, is_completed_write
from mainstem.writers.context import WriterContext
from mainstem.writers.placed_rows import PlacingAppender
from mainstem.writers.rollback import take_back_clustering

_ROUNDS_MAX = 10
# They write keys anew that were there before.
_REWRITES = (COMPACT, LOG_COMPACT, CLUSTER)


@dataclass(frozen=True)
class LookAgain:
    """A decision: instants completed that may have placed keys of this transaction."""


@dataclass(frozen=True)
class Replaced:
    """A decision: rows would be lost in file groups that another engine is about to replace, or be found by
    nobody in what is overwritten. ``by``: how; ``again``: whether it suffices to write them again;
    ``passes``: it is a plan of ours, which is being taken back."""

    by: str
    again: bool = False
    passes: bool = False


class KeysPlacedMeanwhile:
    """Looks at each instant that completed since a transaction's ``KeyPlaces`` once."""

    def __init__(self, ctx: WriterContext, instant: str, appender: PlacingAppender) -> None:
        self._ctx = ctx
        self._storage = ctx.seams.storage
        self._instant = instant
        self._appender = appender
        self._writes = CompletedWrites(self._storage, instant, ctx.config.history)
        self._done = {instant}
        self._rounds = 0
        #: requested time -> completion time of an instant, and file groups that keys left by it; and those
        #: that they left by instants that were archived meanwhile
        self._left_by: dict[str, tuple[str, set[GroupOfKey]]] = {}
        self._left_by_archived: set[GroupOfKey] = set()
        #: file groups that instants replaced which ``_done`` has
        self._replaced: set[GroupOfKey] = set()

    def move(self, timeline: ActiveTimeline) -> Replaced | None:
        """Outside the lock: move the rows whose keys were placed, or whose file groups replaced, meanwhile,
        and take back plans that would leave rows out."""
        self._rounds += 1
        again, waiting = self._must_place_again([]), list[str]()
        for requested, metadata in list(self._unseen(timeline)):
            if self._hides(metadata):
                return Replaced(f"the instant {requested} overwrote them", again=True)
            self._note(metadata)
            self._note_rows_of_clustering(requested, metadata)
            added = list(self._added(timeline, requested, metadata))
            again = again or self._must_place_again([place for place, _ in added])
            again = again or any(self._meets_elsewhere(*one) for one in added)
            if again:
                waiting.append(requested)
                continue
            for place, path in added:
                for keys in self._keys(place, path):
                    if keys is None:
                        self._appender.give_way_all(place, requested)
                    else:
                        self._appender.give_way(place, keys, requested)
            self._done.add(requested)
        if again:
            assert self._ctx.look_for_keys is not None
            self._appender.place_again(self._ctx.look_for_keys())
            self._replaced.clear()
            self._done.update(waiting)
        self._appender.settle_places()
        if self._hidden_in_index(timeline):
            return Replaced("a clustering replaced those of another writer, which had keys", again=True)
        for requested, plan in self._plans(timeline):
            if plan is None or not plan.ours:
                return Replaced(f"the pending clustering {requested} replaces them")
            take_back_clustering(self._ctx, timeline, requested)
        return None

    def _hidden_in_index(self, timeline: ActiveTimeline) -> bool:
        """Whether the record index would go on telling another place of a key that is new again.

        Its rows count in the order of requested times. An instant with a later one may have written a key
        that others deleted, and a clustering left out: the row that is inserted now would be behind that.
        """
        appender, mine = self._appender, self._instant
        if appender.follows_updates:
            return False  # all is known of their keys
        later = [i for i in timeline.instants if is_completed_write(i) and i.requested > mine]
        if all(i.action != REPLACECOMMIT for i in later) or not self._has_record_index():
            return False
        found = filter(None, map(self._writes.active, later))  # no archiver takes them while this is pending
        return appender.indexed_in(set().union(*(one.written_groups() for one in found)))

    def _has_record_index(self) -> bool:
        return RECORD_INDEX in self._ctx.read_properties().metadata_partitions

    def _must_place_again(self, added: Sequence[GroupOfKey]) -> bool:
        appender = self._appender
        if self._replaced and not self._replaced.isdisjoint({*appender.appended_to, *added}):
            return True
        # Of one key, rows of two batches may lie in two places, or the later one first.
        return bool(added) and appender.places.looked_again and appender.can_place_again

    def look(self, timeline: ActiveTimeline) -> LookAgain | None:
        """Under the lock: None if the transaction's rows lie where their keys are."""
        for requested, metadata in list(self._unseen(timeline)):
            added = list(self._added(timeline, requested, metadata))
            if self._hides(metadata) or (
                added and (self._rounds < _ROUNDS_MAX or any(self._meets(*one) for one in added))
            ):
                return LookAgain()
            if self._note_rows_of_clustering(requested, metadata):
                return LookAgain()
            self._note(metadata)
            self._done.add(requested)
        replaced = self._replaced and not self._replaced.isdisjoint(self._appender.appended_to)
        return LookAgain() if replaced or any(self._plans(timeline)) else None

    def _hides(self, metadata: CommitMetadata) -> bool:
        """Whether an overwrite hid file groups that rows were appended to, or lost against."""
        if metadata.operation not in OVERWRITES:
            return False
        lost = self._appender.lost_to
        hidden = metadata.written_groups()
        touched = not hidden.isdisjoint(lost | self._appender.appended_to)
        return touched or not metadata.replaced_groups().isdisjoint(lost)

    def _note(self, metadata: CommitMetadata) -> None:
        self._replaced |= metadata.replaced_groups()

    def _note_rows_of_clustering(self, requested: str, metadata: CommitMetadata) -> bool:
        """Where keys move: whether this is a clustering with a later requested time, which the table's record
        index goes by."""
        later = self._appender.follows_updates and requested > self._instant
        if not later or metadata.operation != CLUSTER:
            return False
        if not self._has_record_index():
            return False
        self._appender.note_rewritten(metadata.written_groups())
        return True

    def _plans(self, timeline: ActiveTimeline) -> Iterator[tuple[str, ClusteringPlan | None]]:
        """Pending clusterings of file groups that rows were appended to; None: it does not say of which."""
        mine = self._appender.appended_to
        pending = (i.requested for i in timeline.pending if i.action == CLUSTERING) if mine else ()
        for requested in pending:
            try:
                plan = load_clustering_plan(self._storage, requested)
            except FileNotFoundError:
                continue  # gone since the listing, or completed: then its replaced groups tell
            if plan is None or not mine.isdisjoint(plan.taken):
                yield requested, plan

    def _meets(self, place: GroupOfKey, path: str) -> bool:
        appender = self._appender
        return any(
            keys is None or appender.meets(place, keys) or appender.meets_elsewhere(place, keys)
            for keys in self._keys(place, path)
        )

    def _meets_elsewhere(self, place: GroupOfKey, path: str) -> bool:
        appender = self._appender
        return not appender.follows_updates and any(
            keys is not None and appender.meets_elsewhere(place, keys) for keys in self._keys(place, path)
        )

    def _left(self, timeline: ActiveTimeline, since: str) -> set[GroupOfKey]:
        """File groups that keys may have left since a time: by compactions, which leave deleted keys out; and
        where a record index is asked, which forgets them, by deletes."""
        known, gone = self._left_by, False
        actions = (COMMIT, DELTACOMMIT) if self._appender.places.index.of_records else (COMMIT,)
        for instant in timeline.completed:
            done = instant.completion or ""
            if instant.action in actions and done > since and instant.requested not in known:
                metadata = self._writes.active(instant)
                gone = gone or metadata is None  # archived since the listing
                if metadata is not None:
                    known[instant.requested] = done, _left_by(metadata)
        if gone or not self._ctx.config.exclusive:  # our archiver leaves alone what completed beside a write
            for requested, done, archived in self._writes.archived_since(since, actions, known, refresh=gone):
                known[requested] = done, _left_by(archived)
        left = (groups for done, groups in known.values() if done > since)
        return self._left_by_archived.union(*left)

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
                self._left_by_archived |= _left_by(archived)
                yield requested, archived

    def _is_new(self, requested: str, completion: str | None = None) -> bool:
        if requested in self._done:
            return False
        if self._appender.follows_since_begin:
            return completion is None or completion > self._instant  # archived ones: see ``CompletedWrites``
        later = self._appender.follows_updates and requested > self._instant
        return later or requested not in self._appender.places.seen

    def _added(
        self, timeline: ActiveTimeline, requested: str, metadata: CommitMetadata
    ) -> Iterator[tuple[GroupOfKey, str]]:
        """Files that may hold keys which were nowhere before; where updates count, any file of a writer."""
        if metadata.operation in _REWRITES:
            return
        appender = self._appender
        mine = set() if appender.follows_updates else appender.appended_to
        left = bool(mine) and not mine.isdisjoint(self._left(timeline, self._instant))
        for partition, stats in metadata.stats.items():
            if not (left or appender.unplaced(partition)):
                continue
            for stat in stats:
                path, place = str(stat.get("path") or ""), (partition, str(stat.get("fileId") or ""))
                is_log = paths.parse_log_name(path.rpartition("/")[2]) is not None
                # Writers of such tables tell new keys from known ones; a log of known keys only adds none,
                # but where they may have left the file group before it completed.
                known_only = is_log and stat.get("numInserts") == 0 and not appender.follows_updates
                if path and not (known_only and place not in self._left(timeline, requested)):
                    yield place, path


def _left_by(metadata: CommitMetadata) -> set[GroupOfKey]:
    if metadata.operation == COMPACT:
        return metadata.written_groups()
    deletes = (
        (partition, str(stat.get("fileId") or ""))
        for partition, stats in metadata.stats.items()
        for stat in stats
        if stat.get("numDeletes")
    )
    return set(deletes)
