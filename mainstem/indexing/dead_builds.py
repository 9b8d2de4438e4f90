"""Ends index builds whose process died; service rounds do this, and so does every new build.

Until then writers maintain an index that nobody reads. If a dead builder had completed its action and only
the name's last move is missing, the build is finished. Any other build is dropped (``indexing.dropping``),
and the table is without the index. What a dead dropper left of a build that it was ending is removed too.

Only mainstem's builds are ended: Java plans an index in one process and builds it in another, perhaps much
later, and its writers make indexes without a plan. A suspended builder that was taken for dead and wakes up
finds its plan gone and publishes nothing (``indexing.index_build``).
"""

from __future__ import annotations

from collections.abc import Iterator

from mainstem.errors import Invalid, Unavailable
from mainstem.formats.avro_container import OUR_MARK
from mainstem.indexing import index_lists
from mainstem.indexing.dropping import Dropped, drop, end_emptied
from mainstem.indexing.index_build import Built, finish
from mainstem.indexing.index_plan import plan_file, planned_builds
from mainstem.indexing.required_indexes import live_builders
from mainstem.layout.properties import load_config
from mainstem.metadata.commits.setting_aside import to_rebuild
from mainstem.metadata.metafile import read_metafile
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import INDEXING
from mainstem.writers.context import WriterContext

_HEAD_BYTES = 256


def end_dead_builds(ctx: WriterContext, but: str = "") -> Iterator[Built | Dropped]:
    """End every build of mainstem's whose process died; yields the outcome of each.

    It leaves alone the index ``but``, indexes to be rebuilt after a restore
    (``metadata.commits.setting_aside``), and, until the next time, builds that cannot be dropped now.
    """
    storage = ctx.seams.storage
    end_emptied(ctx)
    config = load_config(storage)
    plans = planned_builds(storage, ctx.timeline())
    for partition in sorted({*plans, *index_lists.building(config)}.difference(to_rebuild(config), [but])):
        ended = _end(ctx, partition)
        if ended is not None:
            yield ended


def _end(ctx: WriterContext, partition: str) -> Built | Dropped | None:
    storage = ctx.seams.storage
    builders = live_builders(ctx, partition)
    if any(builders.values()) or not all(_is_ours(storage, action) for action in builders):
        return None
    if not builders:
        return finish(ctx, partition) if _made_by_an_action(ctx, partition) else None
    try:
        return drop(ctx, partition, only=list(builders))
    except (Invalid, Unavailable):  # another process was faster, or a pending compaction names its files
        return None


def _is_ours(storage: Storage, action: str) -> bool:
    try:
        return OUR_MARK.encode() in storage.read_range(plan_file(action), 0, _HEAD_BYTES)
    except FileNotFoundError:
        return False  # it has ended


def _made_by_an_action(ctx: WriterContext, partition: str) -> bool:
    """Whether a completed index action made this partition, and not a Java writer since."""
    instant = read_metafile(ctx.seams.storage, partition).instant
    return any(i.requested == instant and i.action == INDEXING for i in ctx.timeline().completed)
