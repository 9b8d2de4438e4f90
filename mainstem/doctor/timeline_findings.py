"""What the timeline shows: work that nobody does, times that no clock can have given, and debts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from mainstem.doctor.examined_table import ExaminedTable, span
from mainstem.doctor.finding import ERROR, NOTE, WARNING, Finding
from mainstem.errors import CorruptTable, MainstemError
from mainstem.options import WRITER_NAME
from mainstem.readers.planning.table_state import WRITES
from mainstem.services import archive_plan, clean_plan
from mainstem.services.archive_plan import ArchiveOptions
from mainstem.services.clean_plan import CleanOptions
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.storage import paths
from mainstem.timeline import compaction_trigger
from mainstem.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMPACTION,
    INDEXING,
    LOGCOMPACTION,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    parse_instant,
)

#: action that is planned first -> the command that executes a plan
_EXECUTED_BY = {
    COMPACTION: ("compact",), LOGCOMPACTION: ("log-compact",), CLUSTERING: ("cluster",), CLEAN: ("clean",),
    INDEXING: ("services", "--once"), ROLLBACK: ("rollback",), RESTORE: ("restore",),
    SAVEPOINT: ("rollback",),
}  # fmt: skip
# A moment lies between a plan and who executes it; services have their rounds.
_LEFT_ALONE_MS = 600_000
_JUST_BEGUN_MS = 60_000
# Clocks and stores are judged by this many of the newest instants of a writer.
_JUDGED_BY = 50
_JUDGED_BY_MIN = 3
_WRONG_BY_MS = 2_000
_MUCH = 10


def timeline_findings(table: ExaminedTable) -> Iterator[Finding]:
    """Raises ``CorruptTable``, ``OSError``."""
    yield from _unfinished(table)
    yield from _future(table)
    yield from _clocks(table)
    yield from debts(table)


def _unfinished(table: ExaminedTable) -> Iterator[Finding]:
    for instant in table.state.timeline.pending:
        age_ms = table.age_ms(instant.requested)
        if age_ms < _JUST_BEGUN_MS or not table.is_dead(instant):
            continue
        shown = {
            "instant": instant.requested, "action": instant.action, "state": instant.state,
            "begun": f"{span(age_ms)} ago", "heartbeat": table.last_beat(instant),
        }  # fmt: skip
        if instant.action in WRITES:
            yield Finding(
                WARNING, "unfinished write",
                "its writer is gone; what it wrote is invisible, and cleaning and archiving wait for it",
                shown, table.command("rollback"), fixable=True,
            )  # fmt: skip
        elif age_ms >= _LEFT_ALONE_MS:
            verb, *more = _EXECUTED_BY.get(instant.action, ("services", "--once"))
            yield Finding(
                WARNING, "plan that nobody executes",
                f"the {instant.action} was planned, and nobody is at it; cleaning and archiving wait for it",
                shown, table.command(verb, *more), fixable=instant.action != RESTORE,
            )  # fmt: skip


def _future(table: ExaminedTable) -> Iterator[Finding]:
    newest = table.state.timeline.newest_time
    ahead_ms = table.times.ahead_ms(newest, table.now_ms) if newest else 0
    if ahead_ms <= table.options.skew_ms:
        return
    shown = {"instant": newest, "ahead": span(ahead_ms)}
    if ahead_ms > table.options.ahead_ms_max:
        yield Finding(
            ERROR, "instant in the future",
            "writers here are refused: a clock is wrong, this machine's or that of who made the instant",
            shown,
        )  # fmt: skip
    else:
        yield Finding(
            WARNING, "instant in the future",
            "writers number their instants above it; the clock of who made it is ahead of this machine's",
            shown,
        )  # fmt: skip


def _clocks(table: ExaminedTable) -> Iterator[Finding]:
    """The store tells when a file came to be, its name when its writer's clock said so. A file is written
    before its instant gets its time, so only what holds for all instants of a writer tells of its clock."""
    apart: dict[str, list[int]] = {}
    entries = {e.name: e.mtime_ms for e in table.storage.entries(paths.TIMELINE)}
    listed = filter(None, map(parse_instant, entries))
    done = [i for i in listed if i.action in WRITES and i.is_completed]
    done = sorted(done, key=lambda i: i.completion or "", reverse=True)[:_JUDGED_BY]
    copied = _is_copied(table, done, entries)
    for instant in done:
        ahead_ms = table.times.ahead_ms(instant.completion or "", entries[instant.file_name])
        apart.setdefault(_writer(table, instant), []).append(ahead_ms)
    bound_ms = table.options.skew_ms + _WRONG_BY_MS
    for writer, found in sorted(apart.items()):
        # A copy's files are younger than their instants.
        behind_ms = 0 if copied else max(found)
        wrong_ms = min(found) if min(found) > 0 else behind_ms if behind_ms < 0 else 0
        if len(found) < _JUDGED_BY_MIN or abs(wrong_ms) <= bound_ms:
            continue
        yield Finding(
            WARNING, "clock",
            f"the clock of {writer} and the store's are {span(abs(wrong_ms))} apart: clocks that differ by"
            " more than the table's bound put instants of other engines in a wrong order; set it right (NTP)",
            {
                "writer": writer, "instants": len(found), "bound": f"{table.options.skew_ms} ms",
                "median": f"{statistics.median(found) / 1000:.1f} s",
            },
        )  # fmt: skip


def _is_copied(table: ExaminedTable, done: list[Instant], entries: dict[str, int]) -> bool:
    """Whether the files were made within a moment, and the instants were not: copied, unpacked."""
    if len(done) < 2:
        return True
    made = [entries[i.file_name] for i in done]
    newest, oldest = (table.times.ahead_ms(i.completion or "", 0) for i in (done[0], done[-1]))
    took_ms = newest - oldest
    return max(made) - min(made) < took_ms / 2


def _writer(table: ExaminedTable, instant: Instant) -> str:
    try:
        found = table.state.metadata(instant.requested)
    except CorruptTable:
        return "a writer without a name"  # damage has a finding of its own
    return (found.extra.get(WRITER_NAME) if found else None) or "a writer without a name"


def debts(table: ExaminedTable) -> Iterator[Finding]:
    """What table services would do now."""
    timeline, now = table.state.timeline, table.times.format(table.now_ms)
    try:
        compaction = CompactionOptions.from_properties(table.properties)
        archive = ArchiveOptions.from_properties(table.properties)
        clean = CleanOptions.from_properties(table.properties)
    except MainstemError:
        return  # what is wrong with them has a finding of its own
    run = table.command("services", "--once")
    since = compaction_trigger.commits_since(
        timeline, compaction_trigger.last_compaction(timeline, requested=False)
    )
    if compaction_trigger.is_due(timeline, compaction, now):
        late = since >= _MUCH * compaction.delta_commits
        yield Finding(
            WARNING if late else NOTE, "compaction due", "queries merge more log files than they need to",
            {"commits since the last one": since, "due after": compaction.delta_commits}, run, fixable=True,
        )  # fmt: skip
    if archive_plan.is_due(timeline, archive, now):
        late = len(timeline.instants) >= _MUCH * archive.max_commits
        yield Finding(
            WARNING if late else NOTE, "archiving due", "each commit and query lists the active timeline",
            {"active instants": len(timeline.instants), "due above": archive.max_commits}, run, fixable=True,
        )  # fmt: skip
    if clean_plan.is_due(timeline, clean) and clean_plan.Frees(clean)(timeline, now):
        yield Finding(
            NOTE, "cleaning due", "files that no retained view needs take space", {}, run, fixable=True
        )
