"""Planning an index: the first step of its life.

  [[ lock: is the name free, does the table have what the index needs? which instants are completed?
     -> publish t.indexing.requested ]]

The plan is Java's (``ScheduleIndexActionExecutor``): one partition of the metadata table, and the last
instant of the contiguous completed timeline. It holds one partition only, because Java destroys the first
of two. What the plan cannot say otherwise, the definition, stands in ``extraMetadata``, which Java leaves
alone. Several indexes are several plans, and may be built at once.

A plan promises nothing: writers and readers know an index by the table's lists (``indexing.index_lists``). A
crash after it leaves a plan that nobody executes, until the same index is created again or dropped.
"""

from __future__ import annotations

from mainstem.errors import Invalid
from mainstem.indexing.index_lists import building, ready
from mainstem.layout.properties import TableConfig, load_config
from mainstem.services.executor import publish_plan
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.index_records import (
    IndexBuild,
    encode_index_plan,
    load_index_plan,
    pending_index_actions,
)
from mainstem.timeline.instant import INDEXING, REQUESTED, WRITE_ACTIONS
from mainstem.writers.context import WriterContext


def planned_builds(storage: Storage, timeline: ActiveTimeline) -> dict[str, list[str]]:
    """Partition -> requested times of the pending index actions that build it, oldest first."""
    found: dict[str, list[str]] = {}
    for requested in pending_index_actions(timeline):
        for build in load_index_plan(storage, requested) or ():
            found.setdefault(build.partition, []).append(requested)
    return found


def emptied_plans(storage: Storage, timeline: ActiveTimeline) -> list[str]:
    """Requested times of index actions that somebody ended (``indexing.dropping``) and did not take away."""
    return [time for time in pending_index_actions(timeline) if load_index_plan(storage, time) == []]


def contiguous_until(timeline: ActiveTimeline) -> str:
    """Requested time of the last completed write before the first pending one; "" if there is none."""
    pending = [i.requested for i in timeline.pending if i.action in WRITE_ACTIONS]
    bound = min(pending, default="~")
    done = [i.requested for i in timeline.completed if i.action in WRITE_ACTIONS and i.requested < bound]
    return max(done, default="")


def schedule(ctx: WriterContext, partition: str, extra: dict[str, str]) -> str:
    """Publish the plan to build a partition; its requested time, for which a heartbeat goes on.

    ``extra``: kept in the plan. Raises ``Invalid`` for an index that is there, or that somebody builds.
    """
    started: list[str] = []

    def start_heartbeat(time: str) -> None:
        # Before the plan: one without a heartbeat counts as that of a process that died.
        for stale in started:
            ctx.heartbeats.stop(stale)
        started[:] = [time]
        ctx.heartbeats.start(time)

    def plan(timeline: ActiveTimeline) -> bytes:
        config = load_config(ctx.seams.storage)
        check_free(ctx.seams.storage, config, timeline, partition)
        build = IndexBuild(partition, contiguous_until(timeline), extra)
        return encode_index_plan([build])

    try:
        made = publish_plan(ctx, INDEXING, plan, before_link=start_heartbeat).time
    except BaseException:
        for time in started:
            ctx.heartbeats.stop(time)
        raise
    assert made is not None
    return made


def check_free(storage: Storage, config: TableConfig, timeline: ActiveTimeline, partition: str) -> None:
    """``Invalid`` for a partition that is in a list of the table, or that a pending plan names."""
    if partition in ready(config):
        raise Invalid(
            f"the index {partition} is there already; drop it first, or rebuild it (Table.reindex,"
            " mainstem index rebuild)",
            table=storage.base,
        )
    actions = planned_builds(storage, timeline).get(partition, [])
    if actions or partition in building(config):
        whose = f" by the index action {actions[-1]}" if actions else ""
        raise Invalid(
            f"the index {partition} is being built{whose}: wait for it or, if its process died, drop it"
            " (Table.drop_index, mainstem index drop) and create it again",
            table=storage.base,
        )


def plan_file(requested: str) -> str:
    """Path of the plan of an index action."""
    return paths.timeline_file(f"{requested}.{INDEXING}.{REQUESTED}")
