"""Changes: the rows written by the instants that completed within a range of completion times.

The rules are those of Java's incremental relation. It reads the files that these instants' metadata
names, keeps the rows whose ``_hoodie_commit_time`` is one of the instants, and merges them per file
group. So a late row that lost against a row from outside the range is returned, a delete is not, and a
later overwrite outside the range hides nothing. A compaction within the range does, as in Java: its base
file stands for the log files before it, and lacks the late rows that lost in it.

If a clean has removed files of the range, Java silently searches the newest snapshot instead and leaves
out what was overwritten since. We refuse: a change feed with holes is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.layout.slicing import query_slice
from mainstem.options.services import CLEAN_COMMITS
from mainstem.readers.changes.commit_range import Window, check_bounds, completed_between, written_files
from mainstem.readers.planning.file_presence import check_slice
from mainstem.readers.planning.history import check_nothing_undone
from mainstem.readers.planning.known_views import checks_later, query_state
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import Planned, ScanPlan
from mainstem.readers.queries.snapshot import make_split, read_spec
from mainstem.readers.rows.split import ReadSpec, Split
from mainstem.storage.protocol import Storage

LATEST, CDC = "latest", "cdc"
_CLEANED = (
    "files that instants of this range wrote were removed by a clean ({error}), so the changes"
    " cannot be"
    " told any more; start again from a snapshot, and read changes more often or raise"
    f" {CLEAN_COMMITS}"
)


def changes(
    storage: Storage,
    *,
    after: str | None = None,
    until: str | None = None,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    mode: str = LATEST,
    images: str = "json",
    deletes: bool = False,
    damaged: str = "error",
) -> ScanPlan:
    """What instants with ``after < completion time <= until`` changed; None: no bound.

    ``mode`` ``latest``: the rows that they wrote; with ``deletes`` also the keys that they deleted, and
    the column ``_change_type`` (``readers.changes.change_set``). ``cdc``: change data with before and
    after images (``readers.changes.cdc``); ``images`` is then ``json`` or ``struct``.

    Bounds compare as text with completion times of 17 digits. As in Java, a shorter prefix is allowed
    (``000`` is before everything). Raises ``Invalid`` for other bounds and modes, ``Unsupported`` for
    ``cdc`` on a table that records no change data.
    """
    check_bounds(after, until)
    if mode not in (LATEST, CDC):
        raise Invalid(f"mode={mode!r}; expected {LATEST!r} or {CDC!r}")
    if images not in ("json", "struct"):
        raise Invalid(f"images={images!r}; expected 'json' (text, as in Hudi) or 'struct' (columns)")
    if deletes and mode == CDC:
        raise Invalid('deletes=True is for mode="latest": change data always has the deletes (op "d")')

    def plan() -> Planned:
        state = query_state(storage)
        if mode == CDC:
            from mainstem.readers.changes.cdc import plan_change_data

            return plan_change_data(state, after, until, columns, filter, images, damaged)
        window = _without_own_merges(state, completed_between(state, after, until))
        if deletes:
            return _plan_with_deletes(state, window, columns, filter, damaged)
        spec = read_spec(state, columns, filter, None, damaged)
        spec = replace(spec, instants=frozenset(window.instants))
        return Planned(spec, _splits(state, window, spec))

    return ScanPlan(storage, plan, vanished=_CLEANED)


def _without_own_merges(state: TableState, window: Window) -> Window:
    """The window without our log compactions: they keep commit times, so rows are read where they were
    first written.

    Java's log compactions give rows their own commit time, so they must be read, as Java does.
    """

    def merges(requested: str) -> bool:
        metadata = state.metadata(requested)
        return metadata is not None and metadata.ours and metadata.operation == "LOG_COMPACT"

    return Window({t: done for t, done in window.instants.items() if not merges(t)})


def _splits(state: TableState, window: Window, spec: ReadSpec) -> Iterator[Split]:
    replaced, later = state.replaced(window.newest_requested), checks_later(state.storage)
    for partition, names in sorted(written_files(state, window.instants).items()):
        for group in state.group(partition, names):
            if (group.partition, group.file_id) in replaced:
                continue
            # Unlike Java, do not ask for the slice as of the newest requested time: a write that completed
            # after a compaction was planned belongs to that compaction's slice, whose time may be later
            # (HUDI-9785). ``names`` holds only files of the window anyway.
            found = query_slice(group, None)
            if found is not None:
                least = names if spec.damaged == "error" else {}
                if least and not later:
                    check_slice(state, found, least)
                    least = {}
                yield make_split(found, spec, state.config, least=least)
    check_nothing_undone(state)


def _plan_with_deletes(
    state: TableState,
    window: Window,
    columns: Sequence[str] | None,
    expression: pc.Expression | None,
    damaged: str,
) -> Planned:
    from mainstem.readers.changes.change_set import CHANGE_TYPE, KIND
    from mainstem.readers.changes.change_set_plan import changed_groups

    plain = None if columns is None else [name for name in columns if name != CHANGE_TYPE]
    spec = read_spec(state, plain, expression, None, damaged)
    spec = replace(spec, instants=frozenset(window.instants))
    names = tuple([*spec.columns, CHANGE_TYPE] if columns is None else dict.fromkeys(columns))
    by_name = {field.name: field for field in spec.schema} | {CHANGE_TYPE: KIND}
    splits = changed_groups(state, window, spec, names, _splits(state, window, spec))
    return Planned(spec, list(splits), pa.schema([by_name[name] for name in names]))
