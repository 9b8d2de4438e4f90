"""The announcement of a resize in ``hoodie.properties``, and its end there (``layout.bucket_resizes``).

A resize is announced before it may complete. Its completion decides. Afterwards anybody may carry on: the new
count goes into the properties if its instant is completed, the announcement goes if that never will be.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.errors import Invalid
from mainstem.layout.bucket_resizes import Resize, resizes_text, with_resize
from mainstem.layout.properties import TableConfig
from mainstem.layout.property_change import change_properties, date_text
from mainstem.options.placing import BUCKETS, RESIZES
from mainstem.publish.publisher import Guarded
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import DELTACOMMIT
from mainstem.writers.context import WriterContext


def announce(ctx: WriterContext, resize: Resize, may: Callable[[Guarded], None]) -> None:
    """Announce a round of a resize, in place of the round before it.

    ``may`` raises, under the lock, if it must not be. Raises ``Invalid`` if another process resized the table
    meanwhile, or is about to.
    """

    def work(section: Guarded) -> None:
        may(section)

        def change(config: TableConfig) -> dict[str, str | None]:
            there = config.open_resize
            if config.buckets != resize.before:
                raise Invalid(
                    f"another process resized the table meanwhile: it has {config.buckets} buckets, and had"
                    f" {resize.before}; nothing was changed",
                    table=ctx.base,
                )
            if there is not None and ctx.buckets_now(config, section.timeline) != resize.before:
                raise Invalid(
                    f"another process resized the table meanwhile: {there} is completed; nothing was changed,"
                    " resize again",
                    table=ctx.base,
                )
            found = with_resize(config.resizes, resize.before, resize)
            return {RESIZES: resizes_text(found)}

        change_properties(section, ctx.seams.random, change, date_text(ctx.seams))

    ctx.publisher.guarded(work)


def settle(ctx: WriterContext) -> None:
    """Write the new bucket count of a completed resize into the properties, or remove the announcement of one
    that came to nothing. Leaves one alone that may still complete."""
    if ctx.read_properties().open_resize is None:
        return

    def work(section: Guarded) -> None:
        def change(config: TableConfig) -> dict[str, str | None]:
            resize = config.open_resize
            if resize is None or is_pending(section.timeline, resize):
                return {}
            if ctx.buckets_now(config, section.timeline) == resize.after:
                return {BUCKETS: str(resize.after)}
            left = with_resize(config.resizes, resize.before, None)
            return {RESIZES: resizes_text(left) or None}

        change_properties(section, ctx.seams.random, change, date_text(ctx.seams))

    ctx.publisher.guarded(work)


def is_under_way(ctx: WriterContext, timeline: ActiveTimeline) -> bool:
    """Whether a resize may still complete, by the properties as read last: a plan that is made now would make
    another round of it."""
    resize = ctx.newest_properties.open_resize
    return resize is not None and is_pending(timeline, resize)


def is_pending(timeline: ActiveTimeline, resize: Resize) -> bool:
    """Whether its instant is on the timeline, not completed."""
    return any(i.requested == resize.instant and i.action == DELTACOMMIT for i in timeline.pending)
