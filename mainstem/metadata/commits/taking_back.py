"""Takes an instant of the data table back from the metadata table, before it leaves the data table.

  [[ the data rollback r of T is planned: T can no longer be completed, on either timeline ]]
  1. remove T's completed file from the metadata table's timeline, durably
  2. remove log files with T in their names, found by listing all partitions of the metadata table
  3. remove T's inflight and requested files from the metadata table's timeline
  4. [[ the data rollback completes; ``r.rollback`` of the metadata table is published ahead of it ]]

**Why first.** A completed instant of the metadata table is hidden while its data instant is pending, and
counts as soon as that is gone (rule (b) of the readers' filter). So T must be gone from the metadata table,
durably, before T's pending files are removed from the data table.

**A crash** leaves the data rollback planned. It resumes at 1: every step lists what is left. ``r.rollback``
is written only if something of T was found, or if an earlier attempt began to write it; a missing record
changes nothing for any reader.

**A process that stalls and resumes** finds nothing in 1 to 3, for T is never reused. (Java executes a
compaction's plan again under the same T: ``SAFETY.md``.) In 4 its ticket is gone, and it leaves at most
``r.rollback.requested`` and ``.inflight`` on the metadata table, which ``sweep`` removes.

A stalled writer that resumes may still create log files of T, or T's requested and inflight files, on the
metadata table. It removes them when it finds its instant gone; if it is killed before that, ``sweep`` does.
No reader shows them: T is completed on neither timeline.

An instant that a compaction of the metadata table has merged cannot be taken back (``Unsupported``); Hudi
refuses this too. It does not happen to pending instants, since such compactions are planned below every
instant pending on the data table.

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
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.compaction_trigger import INITIAL
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, INFLIGHT, REQUESTED, ROLLBACK, Instant
from mainstem.timeline.plans import encode_rollback_metadata, encode_rollback_plan
from mainstem.truetime.seams import Randomness


@dataclass(frozen=True)
class Found:
    """What the metadata table held of an instant: names of timeline files, and its data files."""

    timeline: tuple[str, ...]
    files: tuple[tuple[str, str], ...]  # partition of the metadata table, name
    #: an earlier attempt began to write the rollback's own files there
    begun: bool

    def __bool__(self) -> bool:
        return bool(self.timeline or self.files or self.begun)


def take_back(storage: Storage, instant: str, rollback: str) -> Found:
    """Steps 1 to 3. Raises ``Unsupported``, without removing anything, for an instant that was compacted."""
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
    """Step 4: the record of ``rollback`` on the metadata table's timeline. ``plan`` and ``completed`` are
    private files."""

    storage: Storage
    rollback: str
    plan: str
    completed: str

    @classmethod
    @contextmanager
    def kept(
        cls, storage: Storage, random: Randomness, rollback: str, instant: str, found: Found
    ) -> Iterator[RollbackRecord | None]:
        """The record with its private files, while the block runs; None if there is nothing to record."""
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
        """What ``Publisher.publish`` publishes ahead of the data table's rollback."""
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
    """Raise ``Unsupported`` if the metadata table's newest compaction holds what ``instant`` wrote there."""
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
    """(partition, name) of the metadata table's data files whose names hold this instant."""
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
    """Folder of a metadata table partition, relative to the data table's."""
    return f"{paths.METADATA}/{partition}"


def pending_there(timeline: ActiveTimeline) -> list[Instant]:
    """Pending delta commits and rollbacks of the metadata table, without those of its initialisation."""
    return [
        i
        for i in timeline.pending
        if i.action in (DELTACOMMIT, ROLLBACK) and not i.requested.startswith(INITIAL)
    ]


def last_change_ms(storage: Storage, instant: Instant) -> int:
    """When a pending instant of the metadata table last changed, by the store's clock; 0 if it is gone."""
    info = storage.stat(f"{paths.METADATA_TIMELINE}/{instant.file_name}")
    return 0 if info is None else info.mtime_ms


def sweep(storage: Storage, instant: Instant, *, with_files: bool) -> None:
    """Remove a pending instant of the metadata table whose data instant is not, or no longer, pending.

    ``with_files``: its data instant is gone, so its log files are removed too.
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
    if has_links(storage):  # Hadoop keeps checksums on local disks only
        storage.delete(paths.checksum_file(path))
