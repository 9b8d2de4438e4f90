"""Archiving of the metadata table's timeline: the steps of ``services.archiving``, under the same lock.

Its active timeline keeps one commit more than the data table's (``hoodie.keep.min.commits``,
``.max.commits``), and always everything that the data table may need (``MetadataState.must_stay``). So it
shrinks only if the data table's timeline is archived too.

Hudi: ``HoodieMetadataWriteUtils.createMetadataWriteConfig``, ``TimelineArchiverV2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mainstem.lsm_archive.writer import LevelOptions
from mainstem.metadata.metadata_compaction_plan import MetadataCompactionOptions
from mainstem.options.services import ARCHIVE_MAX, ARCHIVE_MIN
from mainstem.services import archive_plan
from mainstem.services.archive_plan import ArchiveOptions, Subject
from mainstem.services.archiving import Archived, archive
from mainstem.services.clean_plan import CleanOptions
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.services.metadata.metadata_state import OF_METADATA, known_until
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.writers.context import WriterContext


def options(properties: Mapping[str, str]) -> ArchiveOptions:
    """The metadata table's, from the data table's; raises ``Invalid`` for a value that does not parse."""
    least = ARCHIVE_MIN.read(properties) + 1
    most = ARCHIVE_MAX.read(properties) + 1
    trigger = MetadataCompactionOptions.from_properties(properties)
    return ArchiveOptions(
        least,
        max(least + 1, most),
        clean=CleanOptions.of_metadata_table(properties),
        compaction=CompactionOptions(trigger.trigger, trigger.delta_commits, trigger.delta_seconds),
        levels=LevelOptions.from_properties(properties),
    )


def is_due(own: ActiveTimeline, data: ActiveTimeline, chosen: ArchiveOptions, now: str) -> bool:
    """Whether more is on the metadata table's timeline than may stay, and some of it may go."""
    until = known_until(data, own)
    return any(i.requested < until for i in own.completed) and archive_plan.is_due(own, chosen, now)


def run(ctx: WriterContext, *, if_due: bool = True) -> Archived | None:
    """Archive what may go; as ``archiving.run``."""
    chosen = options({**ctx.config.raw, **ctx.given})
    done = archive(Subject(ctx, chosen, paths.METADATA), if_due=if_due)
    return None if done is None else replace(done, of=OF_METADATA)
