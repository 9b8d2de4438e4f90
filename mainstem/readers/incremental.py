"""Changes: the rows that instants completed in a range of completion times wrote.

Rules of Java's incremental relation: of the files that those instants' metadata name, the rows
whose ``_hoodie_commit_time`` is one of them, merged per file group. So a late row that lost
against a row from outside the range is returned, a delete is not, and a later overwrite outside
the range hides nothing.

Where a clean has removed files of the range, Java quietly searches the newest snapshot instead and
leaves out what was overwritten since. We refuse: a change feed with holes is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.readers.scan import Planned, ScanPlan
from mainstem.readers.snapshot import make_split, read_spec
from mainstem.readers.split import ReadSpec, Split
from mainstem.readers.state import WRITES, TableState
from mainstem.storage.protocol import Storage
from mainstem.table.properties import load_config
from mainstem.table.slicing import query_slice

_CLEANED = (
    "files that instants of this range wrote were removed by a clean ({error}), so the changes"
    " cannot be"
    " told any more; start again from a snapshot, and read changes more often or raise"
    " hoodie.clean.commits.retained"
)


@dataclass(frozen=True)
class Window:
    """Completed writes of a range: requested time -> completion time."""

    instants: dict[str, str]

    @property
    def newest_requested(self) -> str:
        return max(self.instants, default="")


def changes(
    storage: Storage,
    *,
    after: str | None = None,
    until: str | None = None,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    damaged: str = "error",
) -> ScanPlan:
    """Rows written by instants with ``after < completion time <= until``; None: no bound.

    Bounds compare as text with completion times of 17 digits (a shorter prefix is allowed, as in
    Java: ``000`` is before everything). Raises ``Invalid`` for other bounds.
    """
    for name, bound in (("after", after), ("until", until)):
        if bound is not None and not (isinstance(bound, str) and bound.isdigit()):
            raise Invalid(f"{name}={bound!r} is no completion time; expected digits")

    def plan() -> Planned:
        state = TableState.load(storage, load_config(storage))
        window = completed_between(state, after, until)
        spec = read_spec(state, columns, filter, None, damaged)
        spec = replace(spec, instants=frozenset(window.instants))
        return Planned(spec, _splits(state, window, spec))

    return ScanPlan(storage, plan, vanished=_CLEANED)


def _splits(state: TableState, window: Window, spec: ReadSpec) -> Iterator[Split]:
    replaced = state.replaced(window.newest_requested)
    for partition, names in sorted(written_files(state, window).items()):
        for group in state.group(partition, names):
            if (group.partition, group.file_id) in replaced:
                continue
            # Not "as of the newest requested time" as Java's view is asked: a write that completed after
            # a compaction was planned lies in that compaction's slice, whose time may be later still
            # (HUDI-9785). The files are those of the window anyway.
            found = query_slice(group, None)
            if found is not None:
                yield make_split(found, spec, state.config)


def completed_between(state: TableState, after: str | None, until: str | None) -> Window:
    """Completed writes of the range, active and archived."""
    low = after or ""
    found = {
        i.requested: i.completion
        for i in state.writes
        if i.completion is not None and i.completion > low and (until is None or i.completion <= until)
    }
    if state.archive.completed_in(low, until):
        for old in state.archive.instants():
            inside = old.completion > low and (until is None or old.completion <= until)
            if inside and old.action in WRITES and state.completion(old.requested):
                found.setdefault(old.requested, old.completion)
    return Window(found)


def written_files(state: TableState, window: Window) -> dict[str, set[str]]:
    """Partition -> names of the files that the window's instants wrote."""
    files: dict[str, set[str]] = {}
    for requested in window.instants:
        metadata = state.metadata(requested)
        for path in metadata.files() if metadata is not None else ():
            partition, _, name = path.rpartition("/")
            files.setdefault(partition, set()).add(name)
    return files
