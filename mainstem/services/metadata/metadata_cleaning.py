"""Cleaning of the metadata table: removes base and log files that no running reader can still need.

  1. [[ the data table's lock: nothing is pending that an earlier clean planned; the folders are listed
        -> publish t.clean.requested on the metadata table's timeline ]]
  2. t.clean.inflight, then every file of the plan is checked once more and deleted (``services.cleaning``,
     whose guarantees hold here too)
  3. [[ still pending? -> publish t_c.clean ]]

**What goes** is planned by ``clean_plan`` with the limits of Hudi's metadata writer: slices older than all
that the newest 20 commits of the metadata table need, or 1.2 times what the data table retains. Queries read
the newest slices only. A query that listed the metadata table's timeline before a compaction reads the slice
below it, so no slice goes before three more instants have completed; a slower query opens the metadata table
again, or lists folders.

**What stays.** The newest slice of every group, files that a pending compaction names, and files of instants
that are not completed on the metadata table. A log file whose instant may yet be rolled back lies in the
newest slice, because compactions are planned below it (``metadata.metadata_compaction_plan``).

**A crash** leaves the plan, which the next round executes. **A suspended process that wakes up** deletes what
its plan names: superfluous files under names that are never used again. In 1 or 3 it has lost its ticket.
**Dropping an index** removes its files, which then count as deleted here.

Hudi: ``HoodieBackedTableMetadataWriter.cleanIfNecessary``, ``HoodieMetadataWriteUtils``.
"""

from __future__ import annotations

from dataclasses import replace

from mainstem.errors import CorruptTable
from mainstem.publish.publisher import Section
from mainstem.services import clean_plan
from mainstem.services.claim import claimed
from mainstem.services.clean_plan import CleanOptions, plan_clean
from mainstem.services.cleaning import Cleaned, execute_plan, pending
from mainstem.services.executor import publish_end, publish_plan
from mainstem.services.metadata.metadata_state import OF_METADATA, MetadataState
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clean_records import CleanPlan, encode_clean_plan
from mainstem.timeline.compaction_trigger import last_compaction
from mainstem.timeline.instant import CLEAN
from mainstem.writers.context import WriterContext

# So many instants must complete after a compaction before the files that it replaced go.
_REST = 3


def is_due(own: ActiveTimeline, chosen: CleanOptions) -> bool:
    """Whether Hudi's trigger fires and the newest compaction has rested; ``own``: the metadata table's."""
    last = last_compaction(own, requested=False)
    if not last or not clean_plan.is_due(own, chosen):
        return False
    return sum(i.requested > last for i in own.completed) >= _REST


def run(ctx: WriterContext, *, if_due: bool = True) -> list[Cleaned]:
    """Finish the pending cleans, ours or Java's; then plan one, if there is anything, and execute it."""
    state = MetadataState.of_table(ctx.seams.storage)
    if state is None:
        return []
    done = [execute(ctx, time) for time in pending(state.timeline)]
    time = schedule(ctx, if_due=if_due)
    if time is not None:
        done.append(execute(ctx, time))
    return [one for one in done if one is not None]


def schedule(ctx: WriterContext, *, if_due: bool = True) -> str | None:
    """Plan a clean; its requested time, None if nothing may go (now)."""
    storage = ctx.seams.storage
    chosen = CleanOptions.of_metadata_table({**ctx.config.raw, **ctx.given})

    def found(state: MetadataState | None) -> CleanPlan | None:
        if state is None or pending(state.timeline):
            return None
        if if_due and not is_due(state.timeline, chosen):
            return None
        files = {listing.partition: listing.names for listing in state.partitions()}
        return plan_clean(state, files, chosen, ctx.publisher.now())

    def content(data: ActiveTimeline) -> bytes | None:
        plan = found(MetadataState.of_table(storage, data))
        return None if plan is None else encode_clean_plan(plan, f"{ctx.written_base}/{paths.METADATA}")

    if found(MetadataState.of_table(storage)) is None:  # without the lock: most often there is nothing
        return None
    # The data table's writers see only their own timeline: the note keeps this time from being issued to
    # them.
    return publish_plan(ctx, CLEAN, content, folder=paths.METADATA_TIMELINE, keeps_time=True).time


def execute(ctx: WriterContext, time: str) -> Cleaned | None:
    """Execute one plan, ours or Java's; None if a living executor has it. As ``cleaning.execute``."""
    storage = ctx.seams.storage
    with claimed(ctx, time, "the clean of the metadata table") as ours:
        state = MetadataState.of_table(storage) if ours else None
        if state is None:
            return None
        try:
            done = execute_plan(ctx, state, time, lambda plan, content: _complete(ctx, time, content))
        except CorruptTable:
            if MetadataState.of_table(storage) is None:
                return None  # dropped meanwhile
            raise
        return replace(done, of=OF_METADATA)


def _complete(ctx: WriterContext, time: str, content: bytes) -> str | None:
    def ended(section: Section) -> str | None:
        state = MetadataState.of_table(ctx.seams.storage, section.timeline)
        return None if state is not None and time in pending(state.timeline) else "ended"

    return publish_end(ctx, time, CLEAN, content, ended, folder=paths.METADATA_TIMELINE).time
