"""Rolls back one named instant, like Hudi's ``rollback_to_instant`` procedure, if nothing else is lost by it.

These can be rolled back:

- a pending write whose writer is dead (its heartbeat has expired);
- a pending compaction, log compaction or clustering without a live executor: both its files and its plan go.
  Hudi keeps the plan. Here the names of new base files follow from the plan, so a suspended rollback that
  wakes up would delete the files of a later execution of the same plan. The next ``schedule`` plans the same
  work again;
- the write or compaction that completed last, if nothing depends on it: no savepoint of it, no pending plan
  that reads its files, no clean that removed (or is about to remove) the files that it superseded.

Everything else is refused with the reason; ``services.restoring`` goes back further.

  [[ lock: the checks -> publish r.rollback.requested with the plan ]] -> r.rollback.inflight
  -> a completed instant: its completed file goes, and the metadata table, of which any part may hold rows of
     it, is set aside (``metadata.commits.setting_aside``) -> its data files go
  -> [[ lock: its pending files go -> publish r_c.rollback ]] -> of compactions: private files, late files

Once the plan is published, the instant cannot complete (commits and compactions look for such plans under the
lock), and queries do not show it (``timeline.restore_records.shown_timeline``). A crash leaves the plan,
which the next writer or ``roll_back_failed_writes`` continues. A process that wakes up late deletes only
files that name the instant, whose time is never used again.

A query as of a time between the instant's completion and its rollback would change its answer, so it is
refused (``readers.planning.history.check_settled``); for this, the rollback's files hold the completion time.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.errors import Invalid, Unavailable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.tables import NATIVE_LOGS_FROM
from mainstem.publish.publisher import Section
from mainstem.publish.staging import prepared
from mainstem.readers.planning.table_state import WRITES
from mainstem.services.savepoints import savepoint_instants
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    INDEXING,
    LOGCOMPACTION,
    REPLACECOMMIT,
    REQUESTED,
    ROLLBACK,
    Instant,
)
from mainstem.timeline.plans import RollbackPlan, load_compaction_plan, load_rollback_plan
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import RolledBackInstant, condemned, execute_rollback, plan_of

_PLANS = (COMPACTION, LOGCOMPACTION, CLUSTERING)


def roll_back_instant(ctx: WriterContext, requested: str) -> RolledBackInstant:
    """Roll back one instant for good; continues a rollback of it that died.

    Raises ``Invalid`` with the reason if the instant must stay, ``Unavailable`` if a later attempt may
    succeed.
    """
    try:
        return _roll_back(ctx, requested)
    except OSError as error:
        raise Unavailable(
            f"the rollback of {requested} did not end: {error}; roll back again",
            table=ctx.base,
            instant=requested,
        ) from error


def _roll_back(ctx: WriterContext, requested: str) -> RolledBackInstant:
    timeline = ctx.publisher.timeline()
    instant = _find(timeline, requested, ctx.base)
    completion = instant.completion if instant.is_completed else None
    plan = RollbackPlan(requested, instant.action, completion)
    rollback = condemned(ctx.seams.storage, timeline).get(requested)
    if rollback is None:
        rollback = _publish(ctx, instant, plan)
    else:  # its plan says whether the instant was completed
        plan = load_rollback_plan(ctx.seams.storage, rollback) or plan
    done = execute_rollback(ctx, rollback, plan, shown=True)
    if done is None:
        raise Unavailable(
            f"{requested} was rolled back by another process just now", table=ctx.base, instant=requested
        )
    return done


def _publish(ctx: WriterContext, instant: Instant, plan: RollbackPlan) -> str:
    def may_go(section: Section) -> None:
        now = _find(section.timeline, instant.requested, ctx.base)
        if now.is_completed != instant.is_completed:
            raise Unavailable(
                f"the {instant.action} {instant.requested} was completed just now; look again",
                table=ctx.base,
                instant=instant.requested,
            )
        reason = _why_not(ctx, section, now)
        if reason is not None:
            raise Invalid(
                f"the {now.action} {now.requested} cannot be rolled back: {reason}",
                table=ctx.base,
                instant=now.requested,
            )

    with prepared(ctx.seams, ROLLBACK, plan_of(ctx, plan)) as private:
        made = ctx.publisher.publish(
            lambda time: f"{time}.{ROLLBACK}.{REQUESTED}", prepared=private, decide=may_go
        ).time
    assert made is not None
    return made


def _find(timeline: ActiveTimeline, requested: str, base: str) -> Instant:
    found = [i for i in timeline.instants if i.requested == requested]
    for instant in found:
        if instant.action in (*WRITES, *_PLANS):
            return instant
    what = f"a {found[0].action}" if found else "not on the active timeline"
    raise Invalid(
        f"{requested} is {what}; only writes, compactions, log compactions and clusterings there can be"
        " rolled back",
        table=base,
        instant=requested,
    )


def _why_not(ctx: WriterContext, section: Section, instant: Instant) -> str | None:
    """Under the lock: why the instant must stay, None if it may go."""
    if instant.requested in condemned(ctx.seams.storage, section.timeline):
        return "another rollback of it has just begun; call again to go on with it"
    if not instant.is_completed:
        if ctx.heartbeats.expired(instant.requested, section.store_now_ms()):
            return None
        who = "executor" if instant.action in _PLANS else "writer"
        return f"its {who} lives (its heartbeat has not expired)"
    checks: tuple[Callable[[WriterContext, ActiveTimeline, Instant], str | None], ...] = (
        _being_indexed,
        _not_the_newest,
        _resized,
        _brought_back,
        _saved,
        _read_by_a_plan,
        _cleaned,
    )
    return next((why for check in checks if (why := check(ctx, section.timeline, instant))), None)


def _being_indexed(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    building = [i.requested for i in timeline.pending if i.action == INDEXING]
    return f"the index action {building[0]}, which may index its files, is not finished" if building else None


def _not_the_newest(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    if instant.action == REPLACECOMMIT:
        return "it replaced file groups; roll it back with Hudi"
    writes = (i for i in timeline.completed if i.action in WRITES)
    later = [i for i in writes if (i.completion or "") > (instant.completion or "")]
    if not later:
        return None
    first = min(later, key=lambda i: i.completion or "")
    return f"the {first.action} {first.requested} completed after it; restore to a savepoint to remove both"


def _resized(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    if all(one.instant != instant.requested for one in ctx.read_properties().resizes):
        return None
    return "it gave the table another number of buckets; resize again instead"


def _brought_back(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    plan = f"{instant.requested}.{COMPACTION}.{REQUESTED}"
    if ctx.read_properties().native_logs or not timeline.has(plan):
        return None
    operations = load_compaction_plan(ctx.seams.storage, instant.requested)
    if any(paths.is_native_log(paths.in_partition(o.partition, n)) for o in operations for n in o.log_files):
        return (
            f"it merged log files of version {NATIVE_LOGS_FROM}, which readers of the table's version do not"
            f" read; upgrade the table to {NATIVE_LOGS_FROM} first"
        )
    return None


def _saved(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    if all(i.requested != instant.requested for i in savepoint_instants(timeline)):
        return None
    return "it has a savepoint; delete that first"


def _read_by_a_plan(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    for plan in timeline.pending:
        if plan.action == CLUSTERING:
            return f"the clustering {plan.requested} is pending"
        if plan.action not in _PLANS:
            continue
        for operation in load_compaction_plan(ctx.seams.storage, plan.requested, plan.action):
            names = [*operation.log_files, *([operation.base_file] if operation.base_file else [])]
            parsed = (paths.parse_log_name(n) or paths.parse_base_name(n) for n in names)
            if any(p is not None and p.instant == instant.requested for p in parsed):
                return (
                    f"the pending {plan.action} {plan.requested} reads its files; roll that back first, or"
                    " execute it"
                )
    return None


def _cleaned(ctx: WriterContext, timeline: ActiveTimeline, instant: Instant) -> str | None:
    cleans = [i for i in timeline.instants if i.action == CLEAN]
    pending = [i.requested for i in cleans if not i.is_completed]
    if pending:
        return f"the clean {pending[0]} is not finished"
    after = [i.requested for i in cleans if (i.completion or "") > (instant.completion or "")]
    if not after:
        return None
    path = paths.timeline_file(instant.file_name)
    data = ctx.seams.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    if not decode_commit(data, path=path).compacted:
        return None  # its log files lie on slices that a clean keeps
    return f"the clean {after[0]} may have removed the files that it merged"
