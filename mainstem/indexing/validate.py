"""``metadata validate``: compares every partition of the metadata table with the data beside running writers.

1. The data's timeline is listed, then the metadata table is opened as of that view: what completed later
   counts on neither side (``metadata.valid_instants``).
2. Files are listed; those of instants that the view does not show are left out.
3. Each partition is compared with what ``indexing.expected_contents`` makes of the data.
4. If a file is gone, or something differs and a clean, rollback or restore ran since 1, files of the view may
   have been removed meanwhile: everything starts over, at most ``ATTEMPTS`` times.

While completed instants are being rolled back, no comparison is possible: until the metadata table is set
aside (``metadata.commits.setting_aside``) it holds their rows, and no reader uses it. If the process died
there, this state may last, so it is reported at once.

Nothing is written and no lock is taken. Partitions that are being built are not compared.
``indexing.differences`` defines what counts as a difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Unavailable, Unsupported
from mainstem.indexing.check_keys import (
    check_blooms,
    check_expression_blooms,
    check_record_index,
    check_secondary_index,
)
from mainstem.indexing.check_stats import (
    check_statistics,
    expected_files,
    expected_partitions,
    expression_ranges,
    newest_files,
)
from mainstem.indexing.differences import (
    DIFFERENCES,
    KEPT_DEFAULT,
    OF_LISTS,
    MetadataReport,
    PartitionReport,
)
from mainstem.indexing.dropping import instant_of
from mainstem.indexing.expected_contents import Contents
from mainstem.indexing.index_lists import building, ready
from mainstem.layout.properties import TableConfig, load_config
from mainstem.metadata.commits.setting_aside import to_rebuild
from mainstem.metadata.derive.bootstrap import Keep
from mainstem.metadata.metadata_partitions import COLUMN_STATS, Content, Kind, in_keys, kind_of
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.valid_instants import AheadOfView
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import load_timeline
from mainstem.timeline.index_records import load_index_plan, pending_index_actions
from mainstem.timeline.instant import CLEAN, RESTORE, ROLLBACK, Instant
from mainstem.timeline.restore_records import taking_back

ATTEMPTS = 5
_REMOVES = (CLEAN, ROLLBACK, RESTORE)
_FILE, _PARTITION = 3, 6


def validate_metadata(
    storage: Storage,
    *,
    kept: int = KEPT_DEFAULT,
    damaged: str = "error",
    keep: Keep | None = None,
) -> MetadataReport | None:
    """Compare; None for a table without metadata.

    ``kept``: differences that are kept per partition (all are counted); ``damaged``: of the data's log
    blocks, as in a scan; ``keep``: where sorted keys that do not fit into memory are put
    (``metadata.derive.bootstrap``).
    Raises ``CorruptTable`` where the metadata table as a whole does not read, ``Unavailable`` where files
    were removed at every attempt, or where an action that removes some has stopped half way.
    """
    for attempt in range(ATTEMPTS):
        config = load_config(storage)
        state = TableState.load(storage, config)
        try:
            report = _compared(state, config, kept, damaged, keep)
        except (FileNotFoundError, CorruptTable) as error:
            if isinstance(error, AheadOfView):
                _check_not_taken_back(state)
            if not _went_on(state):
                raise
            continue
        if report is None or report.ok:
            return report
        _check_not_taken_back(state)
        removing = _removing(state)
        if not removing:
            return report
        if attempt == ATTEMPTS - 1 and not any(i.is_completed for i in removing):
            _check_not_cleaned(state, report)
            return report
    raise Unavailable(
        f"files were removed while they were compared, {ATTEMPTS} times: try again when no clean is running",
        table=storage.base,
    )


def _check_not_taken_back(state: TableState) -> None:
    going = taking_back(state.storage, state.timeline)
    if going is not None:
        how = "Table.restore()" if going.action == RESTORE else "Table.run_services('rollback')"
        raise Unavailable(
            f"the {going.action} {going.requested} is taking completed commits back, and until the metadata"
            " table is set aside it still holds their rows, so it cannot be compared (queries do not use it):"
            f" wait for the {going.action} or, if its process died, resume it ({how}), then compare again",
            table=state.storage.base,
            instant=going.requested,
        )


def _check_not_cleaned(state: TableState, report: MetadataReport) -> None:
    """What a clean has removed is listed until it is completed, which may last if its process died."""
    counts = sum((part.counts for part in report.partitions), Counter())
    cleans = [i.requested for i in load_timeline(state.storage).pending if i.action == CLEAN]
    if cleans and counts["surplus"] and not any(
        counts[kind] for kind in DIFFERENCES if kind not in ("surplus", *OF_LISTS)
    ):
        raise Unavailable(
            f"the clean {cleans[0]} is not finished, and {counts['surplus']:,} entries of the metadata table"
            " name files that it may have removed: wait for it or, if its process died, resume it"
            " (Table.clean()), then compare again",
            table=state.storage.base,
            instant=cleans[0],
        )


def _went_on(state: TableState) -> bool:
    """Whether there are other timeline files than in the view: each action may have cleaned the metadata
    table."""
    return {i.file_name for i in load_timeline(state.storage).instants} != _names_of(state)


def _removing(state: TableState) -> list[Instant]:
    """Actions that remove data files and ran since the view, or are running."""
    known = _names_of(state)
    removing = [i for i in load_timeline(state.storage).instants if i.action in _REMOVES]
    return [i for i in removing if not i.is_completed or i.file_name not in known]


def _names_of(state: TableState) -> set[str]:
    return {i.file_name for i in state.timeline.instants}


def _compared(
    state: TableState, config: TableConfig, kept: int, damaged: str, keep: Keep | None
) -> MetadataReport | None:
    metadata = state.metadata_table
    if metadata is not None:  # what a file held that is gone is told row by row
        metadata = replace(metadata, whole=False, _groups={})
    lists = _check_lists(state, config, PartitionReport("", kept=kept))
    if metadata is None:
        return MetadataReport(state.timeline.newest_time, (lists,)) if lists.wrong else None
    contents = Contents(state, damaged)
    reports = [lists]
    for partition in ready(config):
        report = PartitionReport(partition, kept=kept)
        reports.append(report)
        try:
            _check(report, contents, metadata, keep)
        except Unsupported as error:
            report.refused = str(error)
    return MetadataReport(state.timeline.newest_time, tuple(reports))


# ------------------------------------------------------------------------------------ the two lists


def _check_lists(state: TableState, config: TableConfig, report: PartitionReport) -> PartitionReport:
    """Lists in ``hoodie.properties`` against folders, definitions and pending indexing actions."""
    entries = state.storage.entries(paths.METADATA)
    folders = {e.name for e in entries if e.is_folder and e.name != paths.HOODIE}
    listed, unfinished = set(ready(config)), set(building(config))
    built = _being_built(state)
    for name in sorted(listed - folders):
        report.add("no folder", name, f"{paths.METADATA}/{name} is not there")
    # Set aside by a restore or a rollback, to be built anew.
    for name in sorted(folders.difference(listed, unfinished, built, to_rebuild(config))):
        if not any(instant_of(name, file) for file in state.storage.names(f"{paths.METADATA}/{name}")):
            continue  # a drop leaves the folder, empty
        report.add("unlisted", name, f"{paths.METADATA}/{name} is there, and no writer maintains it")
    for name in sorted(unfinished.difference(built, to_rebuild(config))):
        report.add("stale", name, "no pending indexing action names it; writers maintain it for nothing")
    return report


def _being_built(state: TableState) -> set[str]:
    """Partitions that pending indexing actions build."""
    plans = [load_index_plan(state.storage, t) or [] for t in pending_index_actions(state.timeline)]
    return {build.partition for plan in plans for build in plan}


# ------------------------------------------------------------------------------- one of the partitions


def _check(report: PartitionReport, contents: Contents, metadata: MetadataTable, keep: Keep | None) -> None:
    kind = kind_of(report.partition)
    if kind == Kind.RECORD_INDEX:
        check_record_index(report, contents, metadata, keep)
    elif kind == Kind.SECONDARY_INDEX:
        definition = metadata.definitions.get(report.partition)
        if definition is None or len(definition.fields) != 1:
            report.add("undefined", report.partition, "no definition with one column")
            return
        check_secondary_index(report, contents, metadata, definition, keep)
    else:
        _CHECKS.get(kind, _check_unknown)(report, contents, metadata)


def _check_unknown(report: PartitionReport, contents: Contents, metadata: MetadataTable) -> None:
    metadata.content(report.partition)


def _check_files(report: PartitionReport, contents: Contents, metadata: MetadataTable) -> None:
    """Names and sizes against the listing; a file of a pending instant would be a surplus."""
    stored, listed = metadata.files(), set(metadata.data_partitions())
    for partition in sorted({*stored, *contents.files}):
        theirs, ours = stored.get(partition, {}), contents.files.get(partition, {})
        report.rows += len(theirs)
        if ours and partition not in listed:
            report.add("missing", in_keys(partition), "the list of partitions does not name it")
        elif not ours and partition in listed and not theirs:
            report.add("extra", in_keys(partition), "a partition without files")
        for name in sorted({*theirs, *ours}):
            path = paths.in_partition(partition, name)
            if name not in theirs:
                report.add("missing", path, f"a file of {ours[name].size} bytes of a completed instant")
            elif name not in ours:
                report.add("surplus", path, "there is no such file of a completed instant")
            elif theirs[name] != ours[name].size:
                report.add("different", path, f"{theirs[name]} bytes, but it has {ours[name].size}")


def _check_column_stats(report: PartitionReport, contents: Contents, metadata: MetadataTable) -> None:
    stored = metadata.read(report.partition)
    report.rows = stored.num_rows
    columns = _columns(metadata, stored)
    ranges = contents.all_ranges(columns)
    check_statistics(report, stored, expected_files(contents, ranges), _names(contents), columns)


def _check_partition_stats(report: PartitionReport, contents: Contents, metadata: MetadataTable) -> None:
    stored = metadata.read(report.partition)
    report.rows = stored.num_rows
    columns = _columns(metadata, stored)
    expected = expected_partitions(contents, contents.all_ranges(columns))
    check_statistics(report, stored, expected, _partitions(contents, metadata), columns)


def _columns(metadata: MetadataTable, stored: pa.Table) -> list[str]:
    """Columns that are indexed: those of the definition, or where a table has none those that have rows."""
    found = metadata.definitions.get(COLUMN_STATS)
    names = list(found.fields) if found is not None else []
    return names or [n for n in pc.unique(stored["column"]).to_pylist() if n is not None]


def _names(contents: Contents) -> set[str]:
    return {name for here in contents.files.values() for name in here}


def _partitions(contents: Contents, metadata: MetadataTable) -> set[str]:
    """All that ever were: a row of a partition that is gone skips nothing."""
    return {in_keys(p) for p in (*contents.files, *metadata.data_partitions())}


def _check_bloom_filters(report: PartitionReport, contents: Contents, metadata: MetadataTable) -> None:
    check_blooms(report, contents, metadata.read(report.partition), newest_files(contents))


def _check_expression(report: PartitionReport, contents: Contents, metadata: MetadataTable) -> None:
    definition = metadata.definitions.get(report.partition)
    if definition is None or len(definition.fields) != 1:
        report.add("undefined", report.partition, "no definition with one column")
        return
    stored = metadata.read(report.partition)
    if metadata.content(report.partition) == Content.BLOOM:
        check_expression_blooms(report, contents, stored, newest_files(contents), definition)
        return
    report.rows = stored.num_rows
    ranges = expression_ranges(contents, definition)
    of_files = stored.filter(pc.equal(stored["type"], _FILE))
    of_partitions = stored.filter(pc.equal(stored["type"], _PARTITION))
    check_statistics(report, of_files, expected_files(contents, ranges), _names(contents))
    partitions = expected_partitions(contents, ranges, expression=True)
    check_statistics(report, of_partitions, partitions, _partitions(contents, metadata))


_CHECKS: dict[Kind | None, Callable[[PartitionReport, Contents, MetadataTable], None]] = {
    Kind.FILES: _check_files,
    Kind.COLUMN_STATS: _check_column_stats,
    Kind.PARTITION_STATS: _check_partition_stats,
    Kind.BLOOM_FILTERS: _check_bloom_filters,
    Kind.EXPRESSION_INDEX: _check_expression,
}
