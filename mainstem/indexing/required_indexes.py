"""Waits for the indexes that an index depends on, which another process may be building at the same time.

Every index depends on ``files``, and a secondary index on the record index too. Rows of a secondary index do
not need the record index, so both may be built at once. But the secondary one completes only after the record
index is ready, and fails if that never happens. From the secondary index's listing point on, the record index
cannot be dropped alone, except by its own builder before it is ready (``dropping.check_droppable``).
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.errors import Unavailable
from mainstem.indexing import index_lists
from mainstem.indexing.index_plan import planned_builds
from mainstem.layout.properties import load_config
from mainstem.options.metadata import INDEX_TIMEOUT
from mainstem.services.claim import store_now_ms
from mainstem.writers.context import WriterContext

_POLL_MS = 100


def live_builders(ctx: WriterContext, partition: str) -> dict[str, bool]:
    """Pending index actions that build this partition -> whether the process of each is alive."""
    actions = planned_builds(ctx.seams.storage, ctx.timeline()).get(partition, [])
    return {action: not ctx.heartbeats.expired(action, store_now_ms(ctx, action)) for action in actions}


def await_whole(ctx: WriterContext, partitions: Sequence[str], deadline_ms: float) -> None:
    """Wait until all of these are ready.

    Raises ``Unavailable`` if one was dropped, its builder died, or ``deadline_ms`` has passed on this
    process's monotonic clock.
    """
    for partition in partitions:
        while not _is_whole(ctx, partition):
            if ctx.seams.clock.monotonic_ms() >= deadline_ms:
                raise Unavailable(
                    f"{partition}, which this index depends on, was not built within"
                    f" {INDEX_TIMEOUT}; try again when it is ready",
                    table=ctx.base,
                )
            ctx.seams.clock.sleep_ms(_POLL_MS)


def _is_whole(ctx: WriterContext, partition: str) -> bool:
    builders = live_builders(ctx, partition)
    config = load_config(ctx.seams.storage)  # after them: a builder leaves them before this changes
    if partition in index_lists.ready(config):
        return True
    died = builders and not any(builders.values())
    if died or not (builders or partition in index_lists.building(config)):
        raise Unavailable(
            f"{partition}, which this index depends on, was dropped or its builder died: create it again",
            table=ctx.base,
        )
    return False
