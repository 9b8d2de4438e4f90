"""Plans a restore: which instants go, or why none may be planned now.

  [[ lock: savepoint there? its files there? no live writer, no pending clean?
        -> publish r.restore.requested ]]

The plan names every instant that goes (``services.restore_view``). ``services.restoring`` executes it and
explains what readers and writers see meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.errors import Invalid, Unavailable
from mainstem.options.tables import NATIVE_LOGS_FROM
from mainstem.publish.publisher import Section
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.services.compaction_plan import FileListing
from mainstem.services.executor import publish_plan
from mainstem.services.restore_view import files_of, is_compaction, removed_by_restore, restored_state
from mainstem.services.savepoints import savepoint_instants
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import CLEAN, CLUSTERING, COMMIT, INDEXING, RESTORE, ROLLBACK, Instant
from mainstem.timeline.restore_records import PlannedInstant, RestorePlan, encode_restore_plan
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import roll_back_failed_writes


def schedule(ctx: WriterContext, savepoint: str) -> str | None:
    """Plan a restore; its requested time, None if the table is at the savepoint already."""
    roll_back_failed_writes(ctx)
    listing = FileListing(ctx.seams.storage, ctx.config, whole=False)  # a restore may repair damage

    def content(timeline: ActiveTimeline) -> bytes | None:
        ctx.reread_config()
        state, files = listing.now()
        target = _savepointed(state.timeline, savepoint, ctx.base)
        going = _what_goes(state, target, files)
        if not going:
            return None
        _check_savepoints(state.timeline, going, ctx.base)
        _check_resizes(ctx, going)
        _check_version(state, going, target, files)
        planned = tuple(PlannedInstant(i.requested, i.action) for i in going)
        return encode_restore_plan(RestorePlan(savepoint, planned))

    return publish_plan(ctx, RESTORE, content, decide=lambda section: _check_quiet(ctx, section)).time


def _savepointed(timeline: ActiveTimeline, savepoint: str, base: str) -> Instant:
    """The instant to restore to."""
    saved = [i.requested for i in savepoint_instants(timeline)]
    if savepoint not in saved:
        raise Invalid(
            f"there is no savepoint of {savepoint}; there are {', '.join(saved) or 'none'}", table=base
        )
    for instant in timeline.completed:
        if instant.requested == savepoint and instant.action in WRITES:
            return instant
    raise Invalid(
        f"the savepointed instant {savepoint} is not on the active timeline, so it is unknown what"
        " completed after it",
        table=base,
        instant=savepoint,
    )


def _what_goes(state: TableState, target: Instant, files: Mapping[str, set[str]]) -> list[Instant]:
    """The instants to remove. Raises ``Invalid`` if the state that remains is not whole."""
    _check_archive(state, target)
    going = removed_by_restore(state.timeline, target)
    try:
        files_of(restored_state(state, going, target), files)
    except Invalid as error:
        # A compaction was planned before the savepoint and completed after it: its files may be cleaned by
        # now, while the savepoint kept the files that it merged.
        merges = [i for i in state.timeline.instants if is_compaction(i) and i not in going]
        late = [i for i in merges if _after(i, target)]
        if not late:
            raise _impossible(state, target, error) from error
        going = sorted([*going, *late], key=lambda i: i.completion or "9", reverse=True)
        try:
            files_of(restored_state(state, going, target), files)
        except Invalid:
            raise _impossible(state, target, error) from error
    return going


def _after(instant: Instant, target: Instant) -> bool:
    return instant.completion is None or instant.completion > (target.completion or "")


def _impossible(state: TableState, target: Instant, error: Invalid) -> Invalid:
    return Invalid(
        f"the table cannot be restored to {target.requested}: {error.message}",
        table=state.storage.base,
        instant=target.requested,
    )


def _check_archive(state: TableState, target: Instant) -> None:
    """Raises ``Invalid`` if an archived instant would have to go: it stays completed, whatever is deleted."""
    for row in state.archive.completed(target.completion or "").to_pylist():  # few: archiving stops before
        action, requested = row["action"], row["instantTime"]
        if action in WRITES and (action != COMMIT or requested > target.requested):
            raise Invalid(
                f"the table cannot be restored to {target.requested}: {requested} completed after it and is"
                " archived",
                table=state.storage.base,
                instant=requested,
            )


def _check_savepoints(timeline: ActiveTimeline, going: list[Instant], base: str) -> None:
    gone = {i.requested for i in going}
    for saved in savepoint_instants(timeline):
        if saved.requested in gone:
            raise Invalid(
                f"the restore would remove {saved.requested}, which has a savepoint; delete that savepoint"
                " first",
                table=base,
                instant=saved.requested,
            )


def _check_resizes(ctx: WriterContext, going: list[Instant]) -> None:
    """Raises ``Invalid`` if the bucket count would have to go back, too: open writers could not tell."""
    resized = {resize.instant for resize in ctx.read_properties().resizes}
    for instant in going:
        if instant.is_completed and instant.requested in resized:
            raise Invalid(
                f"the restore would remove {instant.requested}, which gave the table another number of"
                " buckets: copy the rows of that moment (scan, as_of_completion) into a new table",
                table=ctx.base,
                instant=instant.requested,
            )


def _check_version(
    state: TableState, going: list[Instant], target: Instant, files: Mapping[str, set[str]]
) -> None:
    """Raises ``Invalid`` if the table was brought back from version 10 since, and readers of its version
    would not read log files that count again."""
    names = (paths.in_partition(partition, name) for partition in files for name in files[partition])
    if state.config.native_logs or not any(map(paths.is_native_log, names)):
        return
    needed = files_of(restored_state(state, going, target), files)
    native = [paths.in_partition(p, name) for p in sorted(needed) for name in needed[p]]
    native = [path for path in native if paths.is_native_log(path)]
    if native:
        raise Invalid(
            f"the table cannot be restored to {target.requested}: of that time are log files of version"
            f" {NATIVE_LOGS_FROM} ({native[0]}), which readers of its version {state.config.version} do not"
            f" read. Upgrade it to {NATIVE_LOGS_FROM} first (mainstem upgrade), or copy the rows of that"
            " moment (scan, as_of_completion) into a new table",
            table=state.storage.base,
            instant=target.requested,
        )


def _check_quiet(ctx: WriterContext, section: Section) -> None:
    """Under the lock: refuse while a live writer has an instant open, or a clean or the like is pending."""
    for instant in section.timeline.pending:
        if instant.action in WRITES:
            if not ctx.heartbeats.expired(instant.requested, section.store_now_ms()):
                raise Invalid(
                    f"the {instant.action} {instant.requested} of a living writer is open, and a restore"
                    " would remove it: stop the writers, then restore",
                    table=ctx.base,
                    instant=instant.requested,
                )
        elif instant.action == CLUSTERING:
            raise Unavailable(
                f"the clustering {instant.requested} is not finished; execute it, or roll it back (mainstem"
                " cluster, mainstem rollback), then restore",
                table=ctx.base,
                instant=instant.requested,
            )
        elif instant.action in (CLEAN, RESTORE, ROLLBACK, INDEXING):
            raise Unavailable(
                f"the {instant.action} {instant.requested} is not finished; finish it, then restore",
                table=ctx.base,
                instant=instant.requested,
            )
