"""Change data (CDC): one row per changed record and instant, with the row before and after.

The choice of files follows Java's HoodieCDCExtractor: the change logs (``.cdc``) written beside a
rewritten base file, a base file of new rows only, a base file whose rows were all deleted, log files
against the slice that they were appended to, and replaced file groups. Compaction and clustering change
no rows. A base file rewritten without a change log is compared with its predecessor (Java fails there).

The slice before an instant holds what had *completed* before it. So with concurrent writers, the changes
of an instant start from the state that the previously completed instant left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Unsupported
from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import FileSlice
from mainstem.options.tables import CDC_ENABLED, CDC_MODE, SCHEMA_ON_READ
from mainstem.readers.changes.cdc_split import (
    AS_IS,
    DELETED,
    INSERTED,
    LOGGED,
    REWRITTEN,
    ChangeSplit,
    cdc_schema,
)
from mainstem.readers.changes.commit_range import (
    SERVICES,
    Stat,
    Window,
    base_before,
    completed_between,
    in_merge_order,
    stats_by_group,
    told_size,
)
from mainstem.readers.planning.file_presence import check_files, check_listed
from mainstem.readers.planning.history import PastState, check_no_new_clean, just_before, past_state
from mainstem.readers.planning.query_schema import filter_columns, output_columns
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import Planned
from mainstem.readers.queries.snapshot import make_split, read_spec
from mainstem.readers.rows.split import ReadSpec, Split
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import CommitMetadata

LOGGING_MODES = ("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY")


def check_enabled(config: TableConfig, base: str) -> None:
    """Raises ``Unsupported`` for a table that records no change data; the message says how to enable it."""
    if config.raw.get(CDC_ENABLED, "").strip().lower() != "true":
        raise Unsupported(
            f'mode="cdc" needs a table with {CDC_ENABLED}=true; this one has none. Set it where the table is'
            ' created or on a Java writer\'s next write, or ask for mode="latest" with deletes=True',
            table=base,
        )
    found = config.raw.get(CDC_MODE, LOGGING_MODES[0]).strip().upper()
    if found not in LOGGING_MODES:
        raise Unsupported(f"{CDC_MODE}={found!r}; expected {' or '.join(LOGGING_MODES)}", table=base)


def plan_change_data(
    state: TableState,
    after: str | None,
    until: str | None,
    columns: Sequence[str] | None,
    expression: pc.Expression | None,
    images: str,
    damaged: str,
) -> Planned:
    """One split per file group and instant, instants in the order of their completion."""
    check_enabled(state.config, state.storage.base)
    spec = read_spec(state, None, None, None, damaged)
    if spec.ids is not None:
        raise Unsupported(
            f"change data of a table whose columns have ids ({SCHEMA_ON_READ}): the images in"
            " its change logs have the columns of their time; read its changes without mode='cdc'",
            table=state.storage.base,
        )
    bare = state.config.native_logs
    schema = cdc_schema(spec, images, bare)
    wanted = tuple(output_columns(schema, columns))
    filter_columns(schema, expression)  # only to check that it is an expression
    template = ChangeSplit(
        "", "", "", LOGGED, spec, images=images, bare=bare, columns=wanted, filter=expression
    )
    planner = _Planner(state, spec, template)
    splits = list(planner.splits(completed_between(state, after, until)))
    check_no_new_clean(state)
    return Planned(spec, splits, pa.schema([schema.field(name) for name in wanted]))


@dataclass
class _Planner:
    state: TableState
    spec: ReadSpec
    template: ChangeSplit
    _listings: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def splits(self, window: Window) -> Iterator[ChangeSplit]:
        for requested, completion in sorted(window.instants.items(), key=lambda pair: pair[1]):
            metadata = self.state.metadata(requested)
            if metadata is None:
                raise CorruptTable(
                    "an archived instant without metadata: its changes are no longer known; start after"
                    " it, or again from a snapshot",
                    table=self.state.storage.base,
                    instant=requested,
                )
            if metadata.operation.upper() not in SERVICES:
                yield from self._instant(requested, completion, metadata)

    def _instant(self, requested: str, completion: str, metadata: CommitMetadata) -> Iterator[ChangeSplit]:
        past = past_state(self.state, just_before(completion))
        for partition, file_id, stats in stats_by_group(metadata):
            if self.spec.damaged == "error":
                sizes = {_name(stat): told_size(stat) for stat in stats if stat.get("path")}
                check_files(self.state, partition, list(sizes), sizes)
            made = replace(self.template, partition=partition, file_id=file_id, instant=requested)
            yield from self._group(past, made, stats, metadata.operation)
        for partition, file_ids in sorted(metadata.replaced.items()):
            for file_id in sorted(file_ids):
                before = self._slice(past, partition, file_id)
                if before is not None:
                    made = replace(self.template, partition=partition, file_id=file_id, instant=requested)
                    yield replace(made, case=DELETED, before=self._split(before))

    def _group(
        self, past: PastState, made: ChangeSplit, stats: Sequence[Stat], operation: str
    ) -> Iterator[ChangeSplit]:
        """Changes of one instant in one file group: one split per base file, one for all log files."""
        logs = []
        for stat in stats:
            name = _name(stat)
            if paths.parse_log_name(name) is not None and not stat.get("cdcStats"):
                logs.append(name)
            elif name:
                yield self._rewritten(made, stat, name, operation)
        if logs:
            yield self._logged(past, made, in_merge_order(logs))

    def _logged(self, past: PastState, made: ChangeSplit, logs: list[str]) -> ChangeSplit:
        before = self._slice(past, made.partition, made.file_id)
        base = None if before is None else before.base_file
        merged = in_merge_order([*(() if before is None else before.log_files), *logs])
        after = FileSlice(made.partition, made.file_id, "", base, tuple(merged))
        return replace(
            made,
            case=LOGGED,
            before=None if before is None else self._split(before),
            after=self._split(after),
            files=tuple(paths.in_partition(made.partition, name) for name in logs),
        )

    def _rewritten(self, made: ChangeSplit, stat: Stat, name: str, operation: str) -> ChangeSplit:
        previous = base_before(self.state, made.partition, made.file_id, stat)
        made = replace(
            made,
            before=None if previous is None else self._base(made, previous),
            after=self._base(made, name),
        )
        if stat.get("cdcStats"):
            files = sorted(paths.inside(path, source=made.instant) for path in stat["cdcStats"])
            return replace(made, case=AS_IS, files=tuple(files))
        writes, deletes = stat.get("numWrites") or 0, stat.get("numDeletes") or 0
        if operation.upper() == "DELETE" and not writes and deletes:
            return replace(made, case=DELETED)
        if not deletes and not stat.get("numUpdateWrites") and writes == (stat.get("numInserts") or 0):
            return replace(made, case=INSERTED)
        return replace(made, case=REWRITTEN)

    def _slice(self, past: PastState, partition: str, file_id: str) -> FileSlice | None:
        if partition not in self._listings:
            self._listings[partition] = _by_group(self.state.storage.names(partition))
        names = self._listings[partition].get(file_id, [])
        if self.spec.damaged == "error":
            check_listed(past, partition, set(names), file_id=file_id)
        return next(past.slices(partition, names, file_id=file_id), None)

    def _base(self, made: ChangeSplit, name: str) -> Split:
        return self._split(FileSlice(made.partition, made.file_id, "", name))

    def _split(self, found: FileSlice) -> Split:
        return make_split(found, self.spec, self.state.config)


def _name(stat: Stat) -> str:
    return (stat.get("path") or "").rsplit("/", 1)[-1]


def _by_group(names: Iterable[str]) -> dict[str, list[str]]:
    by_group: dict[str, list[str]] = {}
    for name in sorted(names):
        file_id = paths.file_id_of(name)
        if file_id is not None:
            by_group.setdefault(file_id, []).append(name)
    return by_group
