"""One consistent view of a table: which instants are completed and which files form file groups.

The timeline is listed first and the data files after it, so every file of an instant in the view
exists when the files are listed. Files of later instants are recognised by their instant and left
out. A state does not change once loaded; each query loads its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

from mainstem.formats.avro_container import decode_container, part
from mainstem.layout.committed_files import CommittedFiles
from mainstem.layout.partitions import PartitionListing, list_partitions
from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import FileGroup, group_files
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.storage import paths
from mainstem.storage.final_files import read_final
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, TimelineReader
from mainstem.timeline.commit_metadata import CommitMetadata, decode_commit
from mainstem.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTACOMMIT,
    REPLACECOMMIT,
    WRITE_ACTIONS,
    Instant,
)
from mainstem.timeline.plans import load_compaction_plan
from mainstem.timeline.restore_records import shown_timeline

if TYPE_CHECKING:
    from mainstem.metadata.metadata_table import MetadataTable

_requested = attrgetter("requested")
WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_LISTINGS_MAX = 5


def steady_timeline(storage: Storage, earlier: ActiveTimeline | None = None) -> ActiveTimeline:
    """The timeline without holes: every instant completed before the newest one shown is shown.

    ``earlier``: a listing made before, in place of the first one.

    A listing may miss a file that appears while it runs and yet show a later one; a reader that continues
    after the later one would never see the first. Instants become visible in the order of their
    completion times, so all predecessors of the newest instant in one listing existed before the next
    listing began. So the timeline is listed until nothing completed between two listings. Where writers never
    rest, the last listing is cut at the newest instant of the one before: that view is a little older than
    the files that are listed next, which is right unless a clean and the archive overtake it.
    """
    reader = TimelineReader(storage)
    now = earlier = reader.load() if earlier is None else earlier
    late: set[str] = set()
    for _ in range(_LISTINGS_MAX):
        now = reader.load()
        newest = max((i.completion or "" for i in earlier.completed), default="")
        late = {i.file_name for i in now.completed if (i.completion or "") > newest}
        if not late:
            return now
        earlier = now
    return now.without(late)


@dataclass
class TableState:
    """A table at one moment. Load it with ``TableState.load``."""

    storage: Storage
    config: TableConfig
    timeline: ActiveTimeline
    archive: Archive
    _metadata: dict[str, CommitMetadata | None] = field(default_factory=dict)
    #: completed instants on the timeline that a pending restore or rollback removes: not in this view
    undone: frozenset[str] = frozenset()
    _metadata_before: MetadataTable | None = None

    #: parser of base file names (the metadata table's base files are named differently)
    parse_base = staticmethod(paths.parse_base_name)

    @classmethod
    def load(cls, storage: Storage, config: TableConfig) -> TableState:
        """Lists the timeline now. Raises ``Unsupported`` for tables that cannot be read correctly."""
        return cls.of(storage, config, steady_timeline(storage))

    @classmethod
    def of(cls, storage: Storage, config: TableConfig, listed: ActiveTimeline) -> TableState:
        """The state that a timeline listing shows; use ``load`` where a hole in the listing would matter."""
        config.check_readable(storage.base)
        timeline = shown_timeline(storage, listed)
        undone: frozenset[str] = frozenset()
        if timeline is not listed:
            undone = frozenset(listed.completion_times.keys() - timeline.completion_times.keys())
        return cls(storage, config, timeline, Archive.load(storage, config.history), undone=undone)

    @property
    def view(self) -> TableState:
        """The newest state that this one was made from: what indexes describe."""
        return self

    @cached_property
    def metadata_table(self) -> MetadataTable | None:
        """The metadata table as of ``view``; None if there is none. Raises what ``open_metadata`` raises."""
        if self._metadata_before is not None:
            return self._metadata_before.refreshed()
        from mainstem.metadata.metadata_table import open_metadata

        view = self.view
        return open_metadata(view.storage, view.config, view.timeline, undone=view.undone)

    def look_again(self) -> None:
        """Another query begins with this state: the services of the metadata table may have changed that one
        meanwhile, so its timeline is listed when it is next used."""
        self._metadata_before = self.__dict__.pop("metadata_table", None) or self._metadata_before

    def completion(self, requested: str) -> str | None:
        """Completion time, None for an instant that is not completed in this view.

        If the active timeline does not show the instant as completed, the archive decides: a listing made
        during archiving may show an instant's requested file and miss its completed file. Archived instants
        that completed after the timeline was listed are not part of this view and are ignored.
        """
        known = self.timeline.completion_times.get(requested)
        if known is not None:
            return known
        archived = self.archive.completion_time(requested)
        newest = self.timeline.newest_time
        return archived if archived is not None and (not newest or archived <= newest) else None

    @cached_property
    def writes(self) -> list[Instant]:
        """Completed writes on the active timeline by requested time."""
        return [i for i in self.timeline.completed if i.action in WRITES]

    @cached_property
    def first_pending_write(self) -> Instant | None:
        """The oldest pending write that is neither a clustering nor a compaction (it bounds time travel)."""
        pending = [
            i
            for i in self.timeline.pending
            if i.action in WRITE_ACTIONS and i.action not in (CLUSTERING, COMPACTION)
        ]
        return min(pending, key=lambda i: i.requested, default=None)

    @cached_property
    def compactions(self) -> dict[tuple[str, str], str]:
        """(partition, file id) -> requested time of the pending compaction of that group."""
        planned: dict[tuple[str, str], str] = {}
        for instant in self.timeline.pending:
            if instant.action != COMPACTION:
                continue
            for operation in load_compaction_plan(self.storage, instant.requested):
                planned[operation.partition, operation.file_id] = instant.requested
        return planned

    def replaced(self, until: str | None) -> set[tuple[str, str]]:
        """File groups replaced by replace commits requested at or before ``until``."""
        gone: set[tuple[str, str]] = set()
        for instant in self.writes:
            if instant.action != REPLACECOMMIT or (until and instant.requested > until):
                continue
            metadata = self.metadata(instant.requested)
            for partition, file_ids in metadata.replaced.items() if metadata else ():
                gone.update((partition, file_id) for file_id in file_ids)
        return gone

    def metadata(self, requested: str) -> CommitMetadata | None:
        """Metadata of a completed write, active or archived; None if there is none."""
        if requested not in self._metadata:
            self._metadata[requested] = self._read_metadata(requested)
        return self._metadata[requested]

    def _read_metadata(self, requested: str) -> CommitMetadata | None:
        at = bisect_left(self.writes, requested, key=_requested)
        if at < len(self.writes) and self.writes[at].requested == requested:
            return self._metadata_of(self.writes[at])
        return self._archived_metadata(requested)

    def _metadata_of(self, instant: Instant) -> CommitMetadata | None:
        path = paths.timeline_file(instant.file_name)
        try:
            data = read_final(self.storage, path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:  # archived since we listed
            self.archive.refresh()
            return self._archived_metadata(instant.requested)
        return decode_commit(data, path=path)

    def _archived_metadata(self, requested: str) -> CommitMetadata | None:
        blob = self.archive.metadata(requested)
        return None if blob is None else decode_commit(blob, path=f"archived instant {requested}")

    @cached_property
    def committed(self) -> CommittedFiles:
        """The files that the completed writes on the active timeline recorded."""
        return CommittedFiles.of(self.storage, self.writes, self._metadata_of, self.parse_base)

    def archived_writes(
        self, after: str, until: str | None, leave_out: str = ""
    ) -> Iterator[tuple[str, CommitMetadata | None]]:
        """Requested time and metadata of archived writes of this view with ``after < requested <= until``,
        newest request first, read lazily. Metadata None: archived without it."""
        for instant in self.archive.newest_first(after, until):
            wanted = instant.action in WRITES and instant.action != leave_out
            if wanted and self.completion(instant.requested) is not None:
                yield instant.requested, self.metadata(instant.requested)

    @property
    def is_past(self) -> bool:
        """Whether this is a view of an earlier moment."""
        return False

    @cached_property
    def earliest_retained(self) -> str | None:
        """Requested time of the oldest commit of which the newest clean (active or archived) kept all files;
        None without a clean."""
        cleans = [i for i in self.timeline.completed if i.action == CLEAN]
        if cleans:
            path = paths.timeline_file(cleans[-1].file_name)
            data = read_final(self.storage, path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        else:
            archived = self.archive.of_action(CLEAN)
            if not archived:
                return None
            path = f"archived clean {archived[-1]}"
            data = self.archive.metadata(archived[-1], CLEAN) or b""
        record, _ = decode_container(data, path=path)
        return part(record.get("earliestCommitToRetain"), str, path) or None

    def partitions(self) -> Iterator[PartitionListing]:
        """Partitions with their file names, listed now."""
        return list_partitions(self.storage, partitioned=bool(self.config.partition_fields))

    def groups(self, *, visible_only: bool = True) -> Iterator[FileGroup]:
        """File groups of every partition, listed now."""
        for listing in self.partitions():
            yield from self.group(listing.partition, listing.names, visible_only=visible_only)

    def group(self, partition: str, names: Iterable[str], *, visible_only: bool = True) -> list[FileGroup]:
        """File groups formed from these files of a partition."""
        return group_files(
            partition,
            names,
            self.completion,
            self._compactions_by_partition.get(partition, {}),
            visible_only=visible_only,
            written=self.written,
            parse_base=self.parse_base,
        )

    def written(self, requested: str) -> frozenset[str] | None:
        """Paths of the data files that an instant's metadata names; None if it names none."""
        metadata = self.metadata(requested)
        if metadata is None:
            return None
        named = set(metadata.files())
        for partition, stats in metadata.stats.items():
            for stat in stats:
                named.update(paths.in_partition(partition, n) for n in stat.get("logFiles") or ())
        return frozenset(named) or None

    def for_people(self, path: str) -> str:
        """A path of this table as error messages show it."""
        return path

    @cached_property
    def _compactions_by_partition(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for (partition, file_id), requested in self.compactions.items():
            found.setdefault(partition, {})[file_id] = requested
        return found
