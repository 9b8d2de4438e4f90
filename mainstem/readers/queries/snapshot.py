"""Snapshot, read optimized and time travel queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.partitions import PartitionListing
from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import FileSlice, base_slice, query_slice
from mainstem.merge.rules import merge_rules
from mainstem.options.placing import RECORD_KEY_FIELDS
from mainstem.options.reading import DAMAGED
from mainstem.options.tables import POPULATE_META_FIELDS
from mainstem.readers.planning.file_listing import query_listing
from mainstem.readers.planning.file_presence import Checks
from mainstem.readers.planning.history import (
    PastState,
    check_no_new_clean,
    check_nothing_undone,
    check_settled,
    check_there,
    cleaned_since,
    past_state,
)
from mainstem.readers.planning.known_views import (
    Listed,
    checks_later,
    keep_listing,
    known_listing,
    once,
    query_state,
)
from mainstem.readers.planning.query_schema import (
    both_filters,
    filter_columns,
    full_schema,
    output_columns,
    table_schema,
)
from mainstem.readers.planning.query_times import instant_time
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import Planned, ScanPlan
from mainstem.readers.rows.path_values import path_values
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.readers.skipping.chooser import Skipping, Use
from mainstem.storage import paths
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage

_NOTHING: Mapping[str, int] = MappingProxyType({})
SNAPSHOT = "snapshot"
READ_OPTIMIZED = "read_optimized"


def scan(
    storage: Storage,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    as_of: str | None = None,
    as_of_completion: str | None = None,
    mode: str = SNAPSHOT,
    damaged: str = "error",
    use: Use = Use(),  # noqa: B008 - frozen
) -> ScanPlan:
    """Rows of the table as of now, as of a requested time, or as of a completion time.

    ``filter`` applies to merged rows and may use columns that are not in ``columns``; ``use`` says which
    means may rule out partitions and file slices. ``mode`` ``read_optimized`` reads base files only.
    ``damaged``: ``error``, or ``skip`` to leave out damaged log blocks as Java does. Raises ``Invalid`` for
    unknown columns, modes and times.
    """
    if mode not in (SNAPSHOT, READ_OPTIMIZED):
        raise Invalid(f"mode={mode!r}; expected {SNAPSHOT!r} or {READ_OPTIMIZED!r}")
    if as_of is not None and as_of_completion is not None:
        raise Invalid("as_of (requested time) and as_of_completion exclude each other; pass one of them")
    until = None if as_of is None else instant_time(as_of, "as_of")
    moment = None if as_of_completion is None else instant_time(as_of_completion, "as_of_completion")
    base_only = mode == READ_OPTIMIZED

    def plan() -> Planned:
        if moment is None:
            view = View.load(storage, until, damaged=damaged, use=use)
            return view.planned(columns, filter, base_only=base_only)
        state = query_state(storage)
        check_settled(state, moment)
        past = past_state(state, moment)
        spec = read_spec(past, columns, filter, None, damaged)
        skipping = Skipping(past, spec, use, newest=False, base_only=base_only)
        return Planned(spec, list(_past_splits(past, spec, skipping)), report=skipping.report)

    def refined(fewer: Sequence[str] | None, more: pc.Expression | None) -> ScanPlan:
        both = both_filters(filter, more)
        names = columns if fewer is None else fewer
        return scan(
            storage, columns=names, filter=both, as_of=as_of, as_of_completion=as_of_completion, mode=mode,
            damaged=damaged, use=use,
        )  # fmt: skip

    return ScanPlan(storage, plan, refined=refined)


@dataclass(frozen=True)
class View:
    """The table now, or as of a requested time: all queries planned from one view see the same rows."""

    state: TableState
    until: str | None
    damaged: str
    use: Use

    @classmethod
    def load(cls, storage: Storage, until: str | None, *, damaged: str, use: Use) -> View:
        """The table's state now. Raises ``Invalid`` for a time whose answer is gone or may still change."""
        state = query_state(storage)
        if until is not None:
            check_time_travel(state, until)
        return cls(state, until, damaged, use)

    def planned(
        self, columns: Sequence[str] | None, filter: pc.Expression | None, *, base_only: bool = False
    ) -> Planned:
        """Plans one query; iterating over its splits lists the files. That raises ``FileNotFoundError`` if a
        clean, a restore or a rollback intervened: load the view again."""
        spec = read_spec(self.state, columns, filter, self.until, self.damaged)
        newest = self.until is None
        skipping = Skipping(self.state, spec, self.use, newest=newest, base_only=base_only)
        splits = _splits(self.state, spec, skipping)
        return Planned(spec, splits if newest else list(splits), report=skipping.report)


def _splits(state: TableState, spec: ReadSpec, skipping: Skipping) -> Iterator[Split]:
    until, base_only = spec.until, skipping.base_only
    pick = base_slice if base_only else query_slice
    replaced = state.replaced(until)
    cleaned = {} if until is None else cleaned_since(state, until)
    listed = _Listing(state, skipping)
    checks = Checks(
        state, spec.damaged, until=until, base_only=base_only, replaced=replaced,
        later=checks_later(state.storage), wanted=skipping.folders,
    )  # fmt: skip
    found = []
    for listing in skipping.partitions(checks.listings(listed.partitions())):
        checks.listed(listing)
        gone = cleaned.get(listing.partition, set()).difference(listing.names)
        names = skipping.names(listing.partition, sorted((*listing.names, *gone)))
        for group in state.group(listing.partition, names):
            if (group.partition, group.file_id) in replaced:
                continue
            picked = pick(group, until)
            if picked is not None:
                if gone:
                    check_there(state, picked, listing.names, f"as_of={until}", base_only)
                found.append(picked)
    listed.check(check_nothing_undone if until is None else check_no_new_clean)
    for kept in skipping.slices(found):
        yield make_split(kept, spec, state.config, base_only=base_only, least=checks.whole(kept))


def _past_splits(past: PastState, spec: ReadSpec, skipping: Skipping) -> Iterator[Split]:
    base_only, replaced = skipping.base_only, past.replaced(None)
    files = _Listing(past, skipping)
    checks = Checks(
        past, spec.damaged, base_only=base_only, replaced=replaced, later=checks_later(past.storage),
        wanted=skipping.folders,
    )  # fmt: skip
    listed = {listing.partition: listing for listing in checks.listings(files.partitions())}
    gone = [
        PartitionListing(p, ())
        for p in sorted(past.cleaned)
        if p not in listed and (skipping.folders is None or skipping.folders.keeps(p))
    ]
    found: list[FileSlice] = []
    for listing in skipping.partitions(sorted([*listed.values(), *gone], key=lambda p: p.partition)):
        checks.listed(listing)
        found += past.slices(
            listing.partition, listing.names, base_only=base_only, replaced=replaced, wanted=skipping.names
        )
    files.check(check_no_new_clean)
    for kept in skipping.slices(found):
        yield make_split(kept, spec, past.config, base_only=base_only, least=checks.whole(kept))


class _Listing:
    """The partitions of a view with their files: known from an earlier query, or listed for this one. Those
    that the filter rules out by their path may be missing."""

    def __init__(self, state: TableState, skipping: Skipping) -> None:
        self._state = state
        self._skipping = skipping
        self._metadata = skipping.use.metadata
        self._wanted = skipping.folders
        self._known = known_listing(state, metadata=self._metadata, wanted=self._wanted)
        self._found: list[PartitionListing] | None = None
        self._left_out = 0

    def partitions(self) -> Iterable[PartitionListing]:
        """In path order."""
        if self._known is not None:
            self._skipping.left_out(self._known.left_out)
            return self._known.partitions
        found = query_listing(
            self._state, metadata=self._metadata, wanted=self._wanted, left_out=self._leave_out
        )
        return found if has_links(self._state.storage) else self._noted(found)

    def _leave_out(self, count: int) -> None:
        self._left_out += count
        self._skipping.left_out(count)

    def _noted(self, found: Iterable[PartitionListing]) -> Iterator[PartitionListing]:
        listings = []
        for listing in found:
            listings.append(listing)
            yield listing
        self._found = listings

    def check(self, check: Callable[[TableState], None]) -> None:
        """Call ``check`` after listing; what was known passed it, and the timeline is as it was."""
        if self._known is None:
            check(self._state)
            if self._found is not None:
                made = Listed(self._found, self._left_out)
                keep_listing(self._state, made, metadata=self._metadata, wanted=self._wanted)


def read_spec(
    state: TableState,
    columns: Sequence[str] | None,
    expression: pc.Expression | None,
    until: str | None,
    damaged: str,
    *,
    stored: bool = False,
    with_columns_of: str | None = None,
) -> ReadSpec:
    """Schema, columns and merge rules of a query; ``stored``: types as in files, not as users see them.
    ``with_columns_of``: the table's schema (Avro) as a write has it that is not committed."""
    if damaged not in ("error", "skip"):
        raise Invalid(f"{DAMAGED}={damaged!r}; expected 'error' or 'skip'")
    moment = state.moment if isinstance(state, PastState) else None
    found = once(state, ("schema", until, moment), lambda: table_schema(state, until))
    text = with_columns_of if with_columns_of and found.ids is None else found.text
    rules = merge_rules(state.config.raw)
    schema = full_schema(text)
    if not stored:
        schema = _as_shown(schema, state.config, rules.ordering)
    virtual = _virtual_key(state.config)
    return ReadSpec(
        schema=schema,
        columns=tuple(output_columns(schema, columns)),
        rules=rules.for_schema(text, schema),
        extra=tuple(filter_columns(schema, expression)),
        filter=expression,
        until=until,
        damaged=damaged,
        virtual_key=virtual,
        composite_key=bool(virtual) and KeyGenerator.of(state.config).composite,
        ids=found.ids,
    )


def make_split(
    found: FileSlice,
    spec: ReadSpec,
    config: TableConfig,
    *,
    base_only: bool = False,
    least: Mapping[str, int] = _NOTHING,
) -> Split:
    """The split that reads a slice. ``least``: file name -> least size, to be checked when it is read."""
    base_only = base_only or not found.later_logs  # a compaction's kept deletes alone change no row
    base, logs = split_paths(found.partition, found.base_file, found.log_files)
    return Split(
        found.partition,
        found.file_id,
        base,
        () if base_only else logs,
        spec,
        path_values(found.partition, config, spec.schema),
        tuple(
            (paths.in_partition(found.partition, name), least[name])
            for name in (found.base_file, *(() if base_only else found.log_files))
            if name in least and name is not None
        ),
    )


def check_time_travel(state: TableState, until: str) -> None:
    """Refuses times whose answer may still change or is gone, as Java does.

    A pending write at or before ``until`` may still complete and become part of the answer. A clean may
    have removed files that the answer needs.
    """
    pending = state.first_pending_write
    if pending is not None and until >= pending.requested:
        raise Invalid(
            f"as_of={until} is not before the pending {pending.action} {pending.requested},"
            " whose rows"
            " may still appear in that view; ask for an earlier time, or wait until the instant is"
            " completed or rolled back (mainstem rollback)",
            table=state.storage.base,
            instant=pending.requested,
        )
    retained = state.earliest_retained
    if retained is not None and until < retained:
        raise Invalid(
            f"as_of={until} is before {retained}, the oldest commit that the cleaner kept; ask"
            " for a"
            " later time",
            table=state.storage.base,
        )


def _virtual_key(config: TableConfig) -> tuple[str, ...]:
    flag = config.raw.get(POPULATE_META_FIELDS, "true").strip().lower()
    if flag != "false":
        return ()
    if not config.record_key:
        raise Unsupported(f"{POPULATE_META_FIELDS}=false without {RECORD_KEY_FIELDS}")
    return config.record_key


def _as_shown(schema: pa.Schema, config: TableConfig, ordering: Sequence[str]) -> pa.Schema:
    """The schema as users see it. Java shows partition columns of the TIMESTAMP key generator as text: the
    file's value, not the path (SparkHoodieTableFileIndex). Ordering columns keep their type, for merging."""
    if config.key_generator != "TIMESTAMP":
        return schema
    for name in (n for n in config.partition_fields if n in schema.names and n not in ordering):
        at = schema.get_field_index(name)
        if pa.types.is_integer(schema.field(at).type) or pa.types.is_date(schema.field(at).type):
            schema = schema.set(at, pa.field(name, pa.string()))
    return schema
