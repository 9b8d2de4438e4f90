"""Taking an instant of the data table back from the metadata table, before it goes from the data table.

  [[ the data rollback r of T is planned: nobody completes T any more, on either timeline ]]
  1. T's completed file on the metadata table's timeline goes; that is made durable
  2. log files with T in their names go, found by listing all partitions of the metadata table
  3. T's inflight and requested files on the metadata table's timeline go
  4. [[ the data rollback completes; ``r.rollback`` of the metadata table is published ahead of it ]]

**Why first.** A completed instant of the metadata table is hidden while its data instant is pending, and
counts as soon as that is gone (format: rule (b) of the readers' filter). So T must be gone from the
metadata table, durably, before anything removes T's pending files from the data table.

**A crash** leaves the data rollback planned, and whoever goes on with it begins with 1 again: every step
finds what is left by listing. ``r.rollback`` is written only where something of T was found, or where an
earlier attempt began to write it; a record too few changes nothing for any reader.

**A process that was stopped and wakes up** finds nothing in 1 to 3, for T is never given to anybody again.
(Java executes a compaction's plan again under the same T: ``SAFETY.md``.) In 4 its ticket is gone, and it
leaves at most ``r.rollback.requested`` and ``.inflight`` on the metadata table, which ``sweep`` removes.

A dead writer that wakes up may still make log files of T, or T's requested and inflight files, on the
metadata table; it removes them when it finds its instant gone. Where it is killed before, ``sweep`` does.
No reader shows them: T is completed on neither timeline.

An instant that a compaction of the metadata table has taken in cannot be taken back (``Unsupported``): Hudi
refuses too, and plans such compactions below every instant that is pending on the data table, so that it
does not happen to pending ones.

Hudi: ``HoodieBackedTableMetadataWriter.update(HoodieRollbackMetadata)``, ``ListingBasedRollbackStrategy``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mainstem.errors import Unsupported
from mainstem.options.metadata import METADATA
from mainstem.publish.publisher import Ahead
from mainstem.publish.staging import create_once, delete_quietly, private_name, put_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.compaction_trigger import INITIAL
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, INFLIGHT, REQUESTED, ROLLBACK, Instant
from mainstem.timeline.plans import encode_rollback_metadata, encode_rollback_plan
from mainstem.truetime.seams import Randomness


@dataclass(frozen=True)
class Found:
    """What the metadata table had of an instant: names of timeline files, and paths of data files."""

    timeline: tuple[str, ...]
    files: tuple[tuple[str, str], ...]  # partition of the metadata table, name
    #: an earlier attempt began the rollback's own files there
    begun: bool

    def __bool__(self) -> bool:
        return bool(self.timeline or self.files or self.begun)


def take_back(storage: Storage, instant: str, rollback: str) -> Found:
    """Steps 1 to 3. Raises ``Unsupported``, with nothing removed, for an instant that was compacted."""
    timeline = load_timeline(storage, paths.METADATA_TIMELINE)
    if not timeline.names:
        return Found((), (), False)
    begun = any(i.requested == rollback for i in timeline.pending)
    mine = [i for i in timeline.instants if i.requested == instant and i.action == DELTACOMMIT]
    check_not_compacted(storage, timeline, instant)
    completed = [i.file_name for i in mine if i.is_completed]
    _remove(storage, completed)
    files = list(files_of(storage, instant))
    for partition, name in files:
        _delete(storage, paths.in_partition(metadata_partition(partition), name))
    pending = [
        name
        for state in (INFLIGHT, REQUESTED)
        if timeline.has(name := f"{instant}.{DELTACOMMIT}.{state}")
    ]
    _remove(storage, pending)
    return Found((*completed, *pending), tuple(files), begun)


@dataclass(frozen=True)
class RollbackRecord:
    """Step 4: ``rollback`` as the metadata table's timeline shows it. ``plan`` and ``completed`` are private
    files."""

    storage: Storage
    rollback: str
    plan: str
    completed: str

    @classmethod
    @contextmanager
    def kept(
        cls, storage: Storage, random: Randomness, rollback: str, instant: str, found: Found
    ) -> Iterator[RollbackRecord | None]:
        """With its private files, for the time of the block; None where nothing was found to record."""
        if not found:
            yield None
            return
        made = cls._prepared(storage, random, rollback, instant, found)
        try:
            yield made
        finally:
            for private in (made.plan, made.completed):
                delete_quietly(storage, private)

    @classmethod
    def _prepared(
        cls, storage: Storage, random: Randomness, rollback: str, instant: str, found: Found
    ) -> RollbackRecord:
        groups = [(p, paths.file_id_of(name) or "", name) for p, name in found.files]
        folder = f"{storage.base}/{paths.METADATA}"
        deleted: dict[str, list[str]] = {}
        for partition, name in found.files:
            deleted.setdefault(partition, []).append(name)
        record = encode_rollback_metadata(
            rollback_time=rollback, instant=instant, action=DELTACOMMIT, taken_ms=0, deleted=deleted
        )
        plan, completed = (private_name(random, instant) for _ in range(2))
        storage.put_new(plan, encode_rollback_plan(instant, DELTACOMMIT, groups, folder), durable=True)
        storage.put_new(completed, record, durable=True)
        return cls(storage, rollback, plan, completed)

    @property
    def ahead(self) -> Ahead:
        """For ``Publisher.publish`` of the data table's rollback."""
        return Ahead(
            (paths.METADATA_TIMELINE,),
            self.completed,
            lambda time: f"{self.rollback}_{time}.{ROLLBACK}",
            self._ready,
        )

    def _ready(self, timeline: ActiveTimeline) -> bool:
        if any(i.requested == self.rollback and i.is_completed for i in timeline.instants):
            return False
        named = f"{paths.METADATA_TIMELINE}/{self.rollback}.{ROLLBACK}"
        put_once(self.storage, self.plan, f"{named}.{REQUESTED}")
        create_once(self.storage, f"{named}.{INFLIGHT}")
        return True


def check_not_compacted(storage: Storage, timeline: ActiveTimeline, instant: str) -> None:
    """``Unsupported`` where the metadata table's newest compaction holds what ``instant`` wrote there."""
    done = timeline.completion_times.get(instant)
    newest = max((i.requested for i in timeline.completed if i.action == COMMIT), default="")
    if done is not None and done <= newest:
        raise Unsupported(
            f"the compaction {newest} of the metadata table holds what {instant} wrote there, so it cannot"
            f" be rolled back; drop the metadata table first (with Hudi, {METADATA}=false)",
            table=storage.base,
            instant=instant,
        )


def files_of(storage: Storage, instant: str) -> list[tuple[str, str]]:
    """(partition, name) of the metadata table's data files with this instant in their names."""
    found = []
    for entry in sorted(storage.entries(paths.METADATA), key=lambda e: e.name):
        if not entry.is_folder or entry.name == paths.HOODIE:
            continue
        for name in sorted(storage.names(metadata_partition(entry.name))):
            parsed = paths.parse_log_name(name) or paths.parse_hfile_name(name)
            if parsed is not None and parsed.instant == instant:
                found.append((entry.name, name))
    return found


def metadata_partition(partition: str) -> str:
    """Folder of a partition of the metadata table, relative to the data table."""
    return f"{paths.METADATA}/{partition}"


def pending_there(timeline: ActiveTimeline) -> list[Instant]:
    """Pending delta commits and rollbacks of the metadata table, but those of its initialisation."""
    return [
        i
        for i in timeline.pending
        if i.action in (DELTACOMMIT, ROLLBACK) and not i.requested.startswith(INITIAL)
    ]


def last_change_ms(storage: Storage, instant: Instant) -> int:
    """When a pending instant of the metadata table last moved, by the store's clock; 0 if it is gone."""
    info = storage.stat(f"{paths.METADATA_TIMELINE}/{instant.file_name}")
    return 0 if info is None else info.mtime_ms


def sweep(storage: Storage, instant: Instant, *, with_files: bool) -> None:
    """Remove a pending instant of the metadata table whose data instant is not pending (any more).

    ``with_files``: its data instant is gone, so its log files go too.
    """
    if with_files:
        for partition, name in files_of(storage, instant.requested):
            _delete(storage, paths.in_partition(metadata_partition(partition), name))
    _remove(storage, [f"{instant.requested}.{instant.action}.{state}" for state in (INFLIGHT, REQUESTED)])


def _remove(storage: Storage, names: list[str]) -> None:
    for name in names:
        _delete(storage, f"{paths.METADATA_TIMELINE}/{name}")
    if names:
        storage.settle([], [paths.METADATA_TIMELINE], durable=True)


def _delete(storage: Storage, path: str) -> None:
    storage.delete(path)
    storage.delete(paths.checksum_file(path))
