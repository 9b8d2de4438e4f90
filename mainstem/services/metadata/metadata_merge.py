"""The new base files of the metadata table's compactions, however these are planned.

``metadata_compaction`` plans beside writers and executes plans; ``metadata_compaction_at_once`` does both in
one go. Both use the same file names, so each can continue what the other left.
"""

from __future__ import annotations

from mainstem.formats.hfile import open_hfile
from mainstem.metadata.metadata_compaction_plan import log_rows
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.services.compaction_plan import measured
from mainstem.services.planned_files import Kind
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CompactionStat
from mainstem.timeline.compaction_trigger import last_compaction
from mainstem.timeline.instant import COMMIT, COMPACTION
from mainstem.timeline.plans import CompactionOperation

COMPACTIONS = Kind(
    "compaction of the metadata table", COMPACTION, COMMIT, "COMPACT", paths.parse_hfile_name
)


def is_new(time: str, data: ActiveTimeline, table: MetadataTable) -> bool:
    """Whether an instant may get this time in the past: it is free, and later than the newest compaction."""
    known = {i.requested for timeline in (data, table.timeline) for i in timeline.instants}
    if time in known or table.archive.completion_time(time):
        return False
    return time > last_compaction(table.timeline, requested=False)


def base_name(operation: CompactionOperation, number: int, time: str) -> str:
    """Name of the new base file of an operation, determined by the plan alone."""
    return paths.hfile_name(operation.file_id, f"{number}-0-0", time)


def base_stat(
    table: MetadataTable,
    operation: CompactionOperation,
    name: str,
    data: bytes | memoryview,
    merged: int | None,
    taken_ms: float,
) -> CompactionStat:
    """The commit's entry for a new base file with this name and content. ``merged``: the rows and deletes of
    its log files, as ``compacted`` counted them; None if another executor made the file."""
    target = table.folder.outer(paths.in_partition(operation.partition, name))
    return CompactionStat(
        operation.partition,
        operation.file_id,
        name,
        operation.base_instant,
        operation.base_file,
        rows=open_hfile(data, path=target).entry_count,
        size_bytes=len(data),
        log_files=len(operation.log_files),
        log_bytes=measured(table.folder, operation).log_bytes,
        log_rows=log_rows(table, operation) if merged is None else merged,
        taken_ms=int(taken_ms),
    )
