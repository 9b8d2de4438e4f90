"""Checks whether a bulk insert may complete: no other write to its buckets may have completed meanwhile.

Under non-blocking concurrency control, Hudi checks no upsert, insert or delete. It checks a bulk insert
against writes that completed since it began, and against compactions and clusterings planned since then
(``SimpleConcurrentFileWritesConflictResolutionStrategy``; by bucket:
``BucketIndexConcurrentFileWritesConflictResolutionStrategy``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mainstem.layout.buckets import file_id_bucket
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import OVERWRITES, CommitMetadata, WriteStat, decode_commit
from mainstem.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTACOMMIT,
    REPLACECOMMIT,
    Instant,
)
from mainstem.timeline.plans import load_compaction_plan
from mainstem.writers.write_spec import INSERT_OVERWRITE_TABLE

_WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
COMPACT, LOG_COMPACT = "COMPACT", "LOG_COMPACT"

Place = tuple[str, int | str | None]
"""A partition, and a bucket, or a file id where there are none."""


@dataclass(frozen=True)
class Overlap:
    """An instant that overlaps a transaction, and a place that both reach."""

    action: str
    requested: str
    partition: str
    bucket: int | str | None

    def __str__(self) -> str:
        what = "file group" if isinstance(self.bucket, str) else "bucket"
        return (
            f"{self.action} {self.requested} reached for {what} {self.bucket} of partition"
            f" {self.partition!r} meanwhile"
        )


@dataclass(frozen=True)
class ShownBefore(Overlap):
    """Its base files were shown in a section that did not publish it (``publish.showing``)."""

    def __str__(self) -> str:
        return "the table lock was lost while its files got their names"


class CompletedWrites:
    """Metadata of the writes that completed since an instant was requested, archived by now or not."""

    def __init__(self, storage: Storage, instant: str, history: str = paths.HISTORY) -> None:
        self._storage = storage
        self._archive = Archive.load(storage, history)
        self._instant = instant

    def active(self, instant: Instant) -> CommitMetadata | None:
        """That of a completed instant of a listing; None: archived since the listing, see ``archived``."""
        path = paths.timeline_file(f"{instant.requested}_{instant.completion}.{instant.action}")
        try:
            data = self._storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        return decode_commit(data, path=path)

    def archived(
        self, is_new: Callable[[str], bool]
    ) -> Iterator[tuple[str, str, CommitMetadata | None]]:
        """Requested time, action and metadata (None: archived without it) of the archived ones; those that
        are not new are not read."""
        self._archive.refresh()
        rows = (column.to_pylist() for column in self._archive.completed(self._instant).columns)
        for requested, _, action in zip(*rows, strict=True):
            if action in _WRITES and is_new(requested):
                data = self._archive.metadata(requested, action)
                path = f"archived instant {requested}"
                yield requested, action, None if data is None else decode_commit(data, path=path)


    def archived_since(
        self, after: str, actions: Container[str], known: Container[str], *, refresh: bool
    ) -> Iterator[tuple[str, str, CommitMetadata]]:
        """Requested time, completion time and metadata of archived writes of these actions that completed
        after a time, without the ``known`` ones. The archive is that of the latest ``archived``, or of now.
        """
        if refresh:
            self._archive.refresh()
        rows = (column.to_pylist() for column in self._archive.completed(after).columns)
        for requested, completion, action in zip(*rows, strict=True):
            if action in actions and requested not in known:
                data = self._archive.metadata(requested, action)
                if data is not None:
                    path = f"archived instant {requested}"
                    yield requested, completion, decode_commit(data, path=path)


def is_completed_write(instant: Instant) -> bool:
    """Whether ``CompletedWrites`` has the instant's metadata."""
    return instant.is_completed and instant.action in _WRITES


class Overlaps:
    """Finds writes that overlap one transaction. Reads each instant's metadata at most once."""

    #: actions whose plans count even if they were requested before the transaction
    whenever: frozenset[str] = frozenset()

    def __init__(
        self, storage: Storage, instant: str, stats: Sequence[WriteStat], history: str = paths.HISTORY
    ) -> None:
        self._storage = storage
        self._writes = CompletedWrites(storage, instant, history)
        self._instant = instant
        self._places = set(self._named((s.partition, s.file_id) for s in stats))
        bases = (s for s in stats if paths.parse_base_name(s.file_name) is not None)
        self._bases = set(self._named((s.partition, s.file_id) for s in bases))
        self._cleared: set[str] = set()

    def find(self, timeline: ActiveTimeline) -> Overlap | None:
        """The first write that overlaps; None if none does.

        Call it once before taking the lock, so that few files remain to be read under it.
        """
        for instant in timeline.instants:
            if not self._is_new(instant.requested):
                continue
            if is_completed_write(instant):
                if (instant.completion or "") < self._instant:
                    continue
                metadata = self._writes.active(instant)
                if metadata is None:
                    continue  # ``_find_archived`` checks it
                touched = self._places_of(instant.requested, metadata)
                self._cleared.add(instant.requested)
            elif instant.requested < self._instant and instant.action not in self.whenever:
                continue
            elif instant.action == COMPACTION or instant.action in self.whenever:
                touched = self._planned(instant)
            elif instant.action == CLUSTERING:
                touched = self._places  # a clustering retires file groups: it conflicts whichever it takes
            else:
                continue
            if found := self._common(instant.action, instant.requested, touched):
                return found
        return self._find_archived()

    def _find_archived(self) -> Overlap | None:
        """Like ``find``, for archived writes: one that completed since this began may be archived by now."""
        for requested, action, metadata in self._writes.archived(self._is_new):
            touched = () if metadata is None else self._places_of(requested, metadata)
            if found := self._common(action, requested, touched):
                return found
            self._cleared.add(requested)
        return None

    def _is_new(self, requested: str) -> bool:
        return requested != self._instant and requested not in self._cleared

    def _common(self, action: str, requested: str, touched: Iterable[Place]) -> Overlap | None:
        common = sorted(self._places.intersection(touched), key=str)
        return Overlap(action, requested, *common[0]) if common else None

    def _places_of(self, requested: str, metadata: CommitMetadata) -> Iterable[Place]:
        # A compaction planned before this transaction began holds no row written since.
        if metadata.operation == COMPACT and requested < self._instant:
            return ()
        written = [(p, str(s.get("fileId") or "")) for p, stats in metadata.stats.items() for s in stats]
        written += [(p, file_id) for p, ids in metadata.replaced.items() for file_id in ids]
        return self._named(written) + self._unseen_by(requested, metadata)

    def _unseen_by(self, requested: str, metadata: CommitMetadata) -> list[Place]:
        """Base files of ours that an overwrite with a later requested time did not know of: it would hide
        what completes before it in all file groups of its partitions but in these."""
        if metadata.operation not in OVERWRITES or requested < self._instant:
            return []
        whole = metadata.operation == INSERT_OVERWRITE_TABLE.upper()
        return [place for place in self._bases if whole or place[0] in metadata.stats]

    def _named(self, files: Iterable[tuple[str, str]]) -> list[Place]:
        """The places of files of (partition, file id)."""
        return places_of(files)

    def _planned(self, instant: Instant) -> Iterable[Place]:
        try:
            operations = load_compaction_plan(self._storage, instant.requested, instant.action)
        except FileNotFoundError:
            return ()  # rolled back since the listing
        return self._named((operation.partition, operation.file_id) for operation in operations)


def places_of(files: Iterable[tuple[str, str]]) -> list[Place]:
    """(partition, bucket) of each (partition, file id), or (partition, file id) where it names no bucket."""
    places = [(partition, file_id, file_id_bucket(file_id)) for partition, file_id in files]
    return [(partition, file_id if bucket is None else bucket) for partition, file_id, bucket in places]
