"""Seeded bugs of queries."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.layout import committed_files, slicing
from mainstem.readers.changes import incremental
from mainstem.readers.planning import file_presence, table_state
from tests.sim.mutants.mutant import TEARING, Patch, seeded_bug


@seeded_bug("incremental windows go by requested time (R16)")
def windows_by_requested_time() -> list[Patch]:
    def between(table: Any, after: str | None, until: str | None) -> Any:
        found = {
            i.requested: i.completion
            for i in table.writes
            if i.requested > (after or "") and (until is None or i.requested <= until)
        }
        return incremental.Window(found)

    return [patch.object(incremental, "completed_between", between)]


@seeded_bug(
    "a window leaves out slices newer than its newest write (R2, HUDI-9785)", "compactions"
)
def window_ends_before_pending_slice() -> list[Patch]:
    whole = incremental._splits

    def bounded(table: Any, window: Any, spec: Any) -> Any:
        def pick(group: Any, until: str | None) -> Any:
            return slicing.query_slice(group, window.newest_requested)

        with patch.object(incremental, "query_slice", pick):
            yield from whole(table, window, spec)

    return [patch.object(incremental, "_splits", bounded)]


@seeded_bug("the first slice is anchored at the first log file, committed or not (R1)")
def slice_anchored_at_uncommitted() -> list[Patch]:
    whole = slicing._group

    def anchored(
        partition: str, file_id: str, bases: Any, logs: Any, completion: Any, *rest: Any
    ) -> Any:
        first = min(logs, key=lambda log: log.order, default=None)
        if first is not None and not bases and completion(first.instant) is None:
            logs = [log for log in logs if completion(log.instant) is None]
        return whole(partition, file_id, bases, logs, completion, *rest)

    return [patch.object(slicing, "_group", anchored)]


@seeded_bug("one log file of a write in flight hides all log files of its group (R15, #11973)")
def one_newer_log_hides_all() -> list[Patch]:
    whole = slicing._group

    def hiding(partition: str, file_id: str, bases: Any, logs: Any, completion: Any, *rest: Any) -> Any:
        newer = any(completion(log.instant) is None for log in logs)
        return whole(partition, file_id, bases, [] if newer else logs, completion, *rest)

    return [patch.object(slicing, "_group", hiding)]


@seeded_bug("log files go to slices by requested time, not by completion time", "compactions")
def slices_by_requested_time() -> list[Patch]:
    whole = slicing._assign

    def assign(logs: Any, times: Any, barriers: Any) -> Any:
        requested = {time: time if done is not None else None for time, done in times.items()}
        return whole(logs, requested, barriers)

    return [patch.object(slicing, "_assign", assign)]


@seeded_bug("log files of instants that are not completed are shown")
def uncommitted_rows_shown() -> list[Patch]:
    known = table_state.TableState.completion
    return [
        patch.object(
            table_state.TableState, "completion", lambda self, time: known(self, time) or time
        )
    ]


@seeded_bug("what a folder holds says what is committed: a file that vanished is not missed")
def vanished_file_not_missed() -> list[Patch]:
    return [patch.object(committed_files.CommittedFiles, "missing", lambda *asked, **more: [])]


@seeded_bug("a file that lost its content is read as one without rows")
def emptied_file_not_missed() -> list[Patch]:
    return [patch.object(file_presence, "check_files", lambda *asked: None)]


@seeded_bug("readers list the timeline once: a window may have a hole", "publishers", TEARING)
def one_listing() -> list[Patch]:
    def once(storage: Any) -> Any:
        return table_state.TimelineReader(storage).load()

    return [patch.object(table_state, "steady_timeline", once)]
