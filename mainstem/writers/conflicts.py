"""Whether a bulk insert may complete: nobody else may have completed a write to its buckets meanwhile.

Hudi's rules under non-blocking concurrency control: upserts, inserts and deletes are never checked;
a bulk insert is, against what completed since it began and against compactions and clusterings
planned since then (SimpleConcurrentFileWritesConflictResolutionStrategy, by bucket:
BucketIndexConcurrentFileWritesConflictResolutionStrategy).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.table.bucket import file_id_bucket
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import WriteStat, decode_commit
from mainstem.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTACOMMIT,
    REPLACECOMMIT,
    Instant,
)
from mainstem.timeline.plans import load_compaction_plan

_WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_COMPACT = "COMPACT"

Place = tuple[str, int | None]


class Overlaps:
    """Looks for writes that overlap one transaction; each instant's metadata is read once."""

    def __init__(self, storage: Storage, instant: str, stats: Sequence[WriteStat]) -> None:
        self._storage = storage
        self._instant = instant
        self._places = set(_places((s.partition, s.file_id) for s in stats))
        self._cleared: set[str] = set()

    def find(self, timeline: ActiveTimeline) -> str | None:
        """What overlaps, in words; None if nothing does.

        Once before the lock is asked for, so that few files are left to read under it.
        """
        for instant in timeline.instants:
            if instant.requested == self._instant or instant.requested in self._cleared:
                continue
            if instant.is_completed and instant.action in _WRITES:
                if (instant.completion or "") < self._instant:
                    continue
                touched = self._written(instant)
                self._cleared.add(instant.requested)
            elif instant.requested < self._instant:
                continue
            elif instant.action == COMPACTION:
                touched = self._planned(instant)
            elif instant.action == CLUSTERING:
                touched = self._places  # it would retire file groups; which ones does not matter here
            else:
                continue
            common = sorted(self._places.intersection(touched), key=str)
            if common:
                partition, bucket = common[0]
                return (
                    f"{instant.action} {instant.requested} reached for bucket {bucket} of partition"
                    f" {partition!r} meanwhile"
                )
        return None

    def _written(self, instant: Instant) -> Iterable[Place]:
        path = paths.timeline_file(f"{instant.requested}_{instant.completion}.{instant.action}")
        metadata = decode_commit(
            self._storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path
        )
        # Planned before this transaction began: it holds nothing that was written since.
        if metadata.operation == _COMPACT and instant.requested < self._instant:
            return ()
        written = [(p, str(s.get("fileId") or "")) for p, stats in metadata.stats.items() for s in stats]
        written += [(p, file_id) for p, ids in metadata.replaced.items() for file_id in ids]
        return _places(written)

    def _planned(self, instant: Instant) -> Iterable[Place]:
        try:
            operations = load_compaction_plan(self._storage, instant.requested)
        except FileNotFoundError:
            return ()  # rolled back since the listing
        return _places((operation.partition, operation.file_id) for operation in operations)


def _places(files: Iterable[tuple[str, str]]) -> list[Place]:
    return [(partition, file_id_bucket(file_id)) for partition, file_id in files]
