"""Plans that are executed and archived, and whose file a late put brought back on an object store.

Such a plan looks pending. Nobody may execute it again: the file groups have moved on since. An archiver keeps
a completed commit that is older than each plan that is really pending, so only a plan without one is looked
up in the archive.
"""

from __future__ import annotations

from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.instant import WRITE_ACTIONS, Instant
from mainstem.writers.context import WriterContext


def archived_plans(storage: Storage, timeline: ActiveTimeline, history: str) -> list[Instant]:
    """Pending instants of a table that are archived. ``history``: folder of its archive."""
    if not has_swaps(storage):
        return []
    oldest = min((i.requested for i in timeline.completed if i.action in WRITE_ACTIONS), default=None)
    if oldest is None:
        return []
    suspects = [i for i in timeline.pending if i.requested < oldest]
    if not suspects:
        return []
    archive = Archive.load(storage, history)
    return [i for i in suspects if archive.is_archived(i.requested)]


def is_archived_plan(ctx: WriterContext, time: str) -> bool:
    """Whether the plan ``time``, of the table or of its metadata table, is one that came back."""
    storage = ctx.seams.storage
    if not has_swaps(storage):
        return False
    tables = [storage]
    if has_metadata(ctx.newest_properties.raw):
        tables.append(FolderStorage(storage, paths.METADATA))
    return any(
        time in (i.requested for i in archived_plans(table, load_timeline(table), ctx.config.history))
        for table in tables
    )


def forget(ctx: WriterContext, timeline: ActiveTimeline) -> list[Instant]:
    """Remove the files of such plans of the table. Nothing was made for them since: nobody executes them."""
    storage, history = ctx.seams.storage, ctx.config.history
    found = archived_plans(storage, timeline, history)
    for instant in found:
        for name in sorted(timeline.names):
            if name.startswith(f"{instant.requested}.{instant.action}."):
                storage.delete(paths.timeline_file(name))
    return found
