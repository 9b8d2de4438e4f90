"""The metadata table as its own services see it: a table of HFiles below the data table.

Its timeline, archive and folders are like those of any table, so it shares the data table's code for planning
and checking cleans and for choosing instants to archive (``clean_plan``, ``archive_plan``). This module adds
the differences: names of base files, partitions that the data table lists, and instants that must stay active
for the data table's sake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mainstem.layout.partitions import PartitionListing
from mainstem.layout.properties import load_config
from mainstem.layout.slicing import query_slice
from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.metadata_partitions import has_metadata, ready_partitions
from mainstem.metadata.metadata_table import own_config
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.compaction_trigger import last_compaction

#: what results of these services say
OF_METADATA = " of the metadata table"


def known_until(data: ActiveTimeline, own: ActiveTimeline) -> str:
    """Requested time from which on instants of the metadata table stay active, whatever its files hold.

    The data table's timeline sets the limit, or the newest compaction, which must stay visible.
    """
    commits = (i.requested for i in data.completed if i.action in WRITES)
    newest = last_compaction(own, requested=False)
    return min([min(commits, default=""), newest, *(i.requested for i in data.pending)])


@dataclass
class MetadataState(TableState):
    """The state of a metadata table.

    ``data``: the data table's timeline, listed before the metadata table's; ``listed``: partitions that the
    data table lists as ready; ``building``: those that are being built.
    """

    data: ActiveTimeline = field(default_factory=lambda: ActiveTimeline((), {}))
    listed: tuple[str, ...] = ()
    building: tuple[str, ...] = ()

    parse_base = staticmethod(paths.parse_hfile_name)

    @classmethod
    def of_table(cls, storage: Storage, data: ActiveTimeline | None = None) -> MetadataState | None:
        """The state now; None if the table has no metadata table (any more).

        ``data``: the data table's timeline, if listed already. Raises ``CorruptTable`` and ``Unsupported`` as
        ``metadata.metadata_table.own_config``.
        """
        config = load_config(storage)
        if not has_metadata(config.raw):
            return None
        data = data if data is not None else load_timeline(storage)
        folder = FolderStorage(storage, paths.METADATA)
        own = own_config(folder)
        archive = Archive.load(folder, own.history)
        listed = ready_partitions(config.raw)
        building = tuple(name for name in config.metadata_partitions if name not in listed)
        return cls(folder, own, load_timeline(folder), archive, data=data, listed=listed, building=building)

    def partitions(self) -> Iterator[PartitionListing]:
        for partition in self.listed:
            yield PartitionListing(partition, tuple(self.storage.names(partition)))

    def written(self, requested: str) -> None:
        """None: every file of a completed instant counts, as for readers of the metadata table."""
        return

    def for_people(self, path: str) -> str:
        return f"{paths.METADATA}/{path}"

    def must_stay(self) -> Iterator[str]:
        """Requested times at which archiving must stop.

        - the earliest commit and the earliest pending instant of the data table's timeline: instants that are
          active or pending there are needed here (``TimelineUtils.getEarliestInstantForMetadataArchival``)
        - the newest compaction, up to which the data table is archived; before the first one, everything
        - instants with rows in log files of the newest slices, including those of indexes being built, which
          no compaction merges: once the data table has archived these instants, only the metadata table's
          timeline tells Java's readers that such blocks count
        """
        yield known_until(self.data, self.timeline)
        for partition in (*self.listed, *self.building):
            for group in self.group(partition, self.storage.names(partition)):
                found = query_slice(group, None)
                logs = map(paths.parse_log_name, found.log_files if found is not None else ())
                yield from (log.instant for log in logs if log is not None)
