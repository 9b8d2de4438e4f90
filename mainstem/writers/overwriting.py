"""Overwrites: an instant that hides all older rows of partitions and retires no file group.

Hudi's ``insert_overwrite`` replaces file groups. What other writers append to them afterwards is lost
without a word (apache/hudi#19793), and under a bucket index a bucket keeps its file id for ever. Here the
instant T puts a new base file into every file group of the partitions, an empty one where no row is left.
Slicing by completion time does the rest: the slice of T is the newest one, and whatever completes after T was
requested lies on top of it. So the order of the writes is that of T and of the others' completion times.

  begin    T is requested, as for any write
  write    rows become base files, as in a bulk insert, also in buckets that have files
  commit   0. of buckets that several tasks wrote, their files become one (Spark's data source cannot shuffle)
           1. list the partitions: which of their file groups got no rows? They get an empty base file.
              (T was requested before, so every file of an instant that completed before T is there.)
           2. [[ nothing that would bring older rows back, hide these files or be hidden by them:
              ``Hidden`` -> T_C.deltacommit ]]
           3. else everything again with a later T, from the base files that are there

**What would bring older rows back**: a compaction planned after T, since its base file is newer than T's and
holds the slice before; a log compaction that is pending, or completed after T, since its log file would lie
on top of T's. A compaction that was planned before T and completed after it brings none back, but where it
kept deletes (``services.kept_deletes``) they would lie on top of T's rows. One that completes later looks for
T, and steps back. **What would hide these files, or be hidden**: base files of a bulk insert in the same
buckets, and file groups that Java replaced. Another overwrite is no conflict, since the one with the later T
wins, unless a file group got a base file of one of the two only: the later one listed its partitions before
that file was made. So it is with those of bulk inserts.

Record-level and secondary indexes keep the entries of hidden rows: who follows one finds no row. Taking them
back could take an entry of a write that completes beside, whose key is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.partitions import PartitionListing, list_partitions
from mainstem.publish.showing import unshown_names
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import OVERWRITES, CommitMetadata, WriteStat
from mainstem.timeline.instant import LOGCOMPACTION
from mainstem.truetime.clock import Clock
from mainstem.writers.conflicts import COMPACT, LOG_COMPACT, Overlap, Overlaps, Place
from mainstem.writers.write_spec import INSERT_OVERWRITE_TABLE, WriteSpec

_BATCH_ROWS = 65_536

#: rounds after which an overwrite gives up: each needs a plan, or a bulk insert, in the time of one
ROUNDS_MAX = 20
#: how long an overwrite waits for a log compaction, which counts whenever it was planned
PENDING_MAX_MS = 60_000
_LOOK_MS = 50


def groups_without_rows(
    storage: Storage, spec: WriteSpec, stats: Sequence[WriteStat], named: Iterable[str], partitioned: bool
) -> Iterator[tuple[str, str]]:
    """(partition, file id) of the file groups that are overwritten and get no base file by ``stats``;
    ``named``: partitions that are overwritten whether rows name them or not."""
    written = {(stat.partition, stat.file_id) for stat in stats}
    for listing in _overwritten(storage, spec, stats, named, partitioned):
        parsed = (paths.parse_log_name(name) or paths.parse_base_name(name) for name in listing.names)
        ids = {one.file_id for one in parsed if one is not None}
        for file_id in sorted(ids):
            if (listing.partition, file_id) not in written:
                yield listing.partition, file_id


def _overwritten(
    storage: Storage, spec: WriteSpec, stats: Sequence[WriteStat], named: Iterable[str], partitioned: bool
) -> Iterator[PartitionListing]:
    if spec.operation == INSERT_OVERWRITE_TABLE:
        for listing in list_partitions(storage, partitioned=partitioned):
            unshown = unshown_names(storage, listing.partition)
            yield PartitionListing(listing.partition, (*unshown, *listing.names))
        return
    for partition in sorted({*named, *(stat.partition for stat in stats)}):
        unshown = unshown_names(storage, partition)
        yield PartitionListing(partition, (*unshown, *storage.names(partition)))


def parts_of_buckets(stats: Iterable[WriteStat], held: Set[tuple[str, str]]) -> list[list[WriteStat]]:
    """Base files of tasks that do not stand alone: those of each bucket that several tasks wrote, whose rows
    include deletes, or that is in ``held``."""
    places: dict[tuple[str, str], list[WriteStat]] = {}
    for stat in stats:
        places.setdefault((stat.partition, stat.file_id), []).append(stat)
    return [
        parts
        for place, parts in sorted(places.items())
        if len(parts) > 1 or parts[0].deletes or place in held
    ]


def none_pending(clock: Clock, look: Callable[[], ActiveTimeline], other: Overlap) -> bool:
    """Whether ``other``, which passed an overwrite by, is no pending log compaction, or no more so soon."""
    if other.action != LOGCOMPACTION:
        return True
    until_ms = clock.monotonic_ms() + PENDING_MAX_MS
    while any(i.requested == other.requested and i.action == LOGCOMPACTION for i in look().pending):
        if clock.monotonic_ms() > until_ms:
            return False
        clock.sleep_ms(_LOOK_MS)
    return True


def rows_of(storage: Storage, stat: WriteStat, schema: str) -> Iterator[pa.RecordBatch]:
    """The rows of a base file of ours, without meta columns, to write them again under another instant.

    ``schema``: the Avro schema that it was written with.
    """
    wanted = avro_to_arrow(schema)
    names = [name for name in wanted.names if name not in META_FIELDS]
    wanted = pa.schema([wanted.field(name) for name in names])
    with pq.ParquetFile(storage.open_input(stat.stored_at)) as source:
        for batch in source.iter_batches(_BATCH_ROWS, columns=names):
            yield from project_to(pa.Table.from_batches([batch]), wanted).to_batches()


class Hidden(Overlaps):
    """Finds what an overwrite must not pass by (see above); ``Overlaps`` asks for any write."""

    whenever = frozenset((LOGCOMPACTION,))
    #: file groups are those of buckets, so that others may make one at the same time
    of_buckets = True

    def __init__(
        self,
        storage: Storage,
        instant: str,
        stats: Sequence[WriteStat],
        history: str = paths.HISTORY,
        *,
        partitions: Set[str] | None = frozenset(),
    ) -> None:
        """``partitions``: those that are overwritten, beside those of ``stats``; None: all."""
        super().__init__(storage, instant, stats, history)
        self._partitions = None if partitions is None else partitions | {stat.partition for stat in stats}
        if not self._places:  # what it would hide, had it seen it, is found nevertheless
            self._places = {(partition, None) for partition in self._partitions or ("",)}

    def _places_of(self, requested: str, metadata: CommitMetadata) -> Iterable[Place]:
        if metadata.operation == COMPACT and requested < self._instant:
            return self._named(with_logs(metadata))  # of deletes that it kept
        if metadata.operation in (COMPACT, LOG_COMPACT):
            return super()._places_of(requested, metadata)
        replaced = [(p, file_id) for p, ids in metadata.replaced.items() for file_id in ids]
        bases = [
            (partition, str(stat.get("fileId") or ""))
            for partition, stats in metadata.stats.items()
            for stat in stats
            if paths.parse_base_name(str(stat.get("path") or "").rpartition("/")[2]) is not None
        ]
        if self.of_buckets and requested < self._instant:
            groups = set(self._named(bases)) - self._bases
            if any(self._partitions is None or place[0] in self._partitions for place in groups):
                return self._places
        if metadata.operation in OVERWRITES:
            theirs = set(self._named(bases))
            unseen = (place for place in self._unseen_by(requested, metadata) if place not in theirs)
            return [*self._named(replaced), *unseen]
        return self._named(bases + replaced)


def with_logs(metadata: CommitMetadata) -> Iterator[tuple[str, str]]:
    """(partition, file id) of the log files that a commit names."""
    for partition, stats in metadata.stats.items():
        for stat in stats:
            if paths.parse_log_name(str(stat.get("path") or "").rpartition("/")[2]) is not None:
                yield partition, str(stat.get("fileId") or "")
