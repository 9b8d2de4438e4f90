"""The metadata table's own services in Hudi's order: cleaning, compaction, archiving.

Cleaning comes first, so that files which a compaction has just replaced stay for a while.

In Hudi (``HoodieBackedTableMetadataWriter.performTableServices``) every writer runs them after the commit
that makes one due. Here they run beside commits where a thread may (``services.service_switches``).
"""

from __future__ import annotations

from collections.abc import Iterator

from mainstem.errors import naming
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.services.archive_plan import Subject
from mainstem.services.archiving import Archived
from mainstem.services.clean_plan import CleanOptions, Frees
from mainstem.services.cleaning import Cleaned
from mainstem.services.compaction import Compaction
from mainstem.services.metadata import metadata_archiving, metadata_cleaning, metadata_compaction
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.writers.context import WriterContext


def run(ctx: WriterContext, *, if_due: bool = True) -> Iterator[Compaction | Cleaned | Archived]:
    """Execute pending plans and run what is due; nothing if the table has no metadata table.

    Raises what the lock raises, ``CorruptTable`` for damaged files, ``Unavailable`` for trouble with storage.
    The next call continues after any failure.
    """
    advice = "what is planned stays, try again"
    with naming(ctx.base, "a service of the metadata table did not end", advice):
        if not has_metadata(load_config(ctx.seams.storage).raw):
            return
        yield from metadata_cleaning.run(ctx, if_due=if_due)
        yield from metadata_compaction.run(ctx, if_due=if_due)
        archived = metadata_archiving.run(ctx, if_due=if_due)
    if archived is not None:
        yield archived


class MetadataDue:
    """Whether ``run`` may have something to do, from one listing of the metadata table's timeline.

    Raises ``Invalid`` for options that do not parse.
    """

    def __init__(self, ctx: WriterContext) -> None:
        properties = {**ctx.config.raw, **ctx.given}
        self._ctx = ctx
        self._clean = CleanOptions.of_metadata_table(properties)
        self._archive = metadata_archiving.options(properties)
        self._frees = Frees(self._clean)

    def find(self, data: ActiveTimeline, own: ActiveTimeline | None = None) -> bool:
        """``data``: the data table's timeline; ``own``: the metadata table's, if it is known."""
        ctx = self._ctx
        if not has_metadata(ctx.newest_properties.raw):
            return False
        own, now = own or ctx.publisher.metadata_seen(), ctx.publisher.now()
        if not own.names:
            return False
        if metadata_compaction.is_due_on(ctx, own) or metadata_cleaning.pending(own):
            return True
        if metadata_cleaning.is_due(own, self._clean) and self._frees(own, now):
            return True
        if Subject(ctx, self._archive, paths.METADATA).rests:
            return False
        return metadata_archiving.is_due(own, data, self._archive, now)
