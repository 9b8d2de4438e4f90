"""CALL of Hudi's procedures that have a counterpart here, with the arguments and result columns of Hudi 1.2.

    CALL run_compaction(op => 'run', table => 'trips')
    CALL system.create_savepoint('trips', '20260127134455267')

Arguments are given by name or by position. ``table`` is a table's name or path, ``path`` a path. Hudi's other
procedures are refused by name; what is none of Hudi's goes to Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, Unsupported
from mainstem.options.services import (
    ARCHIVE_MAX,
    ARCHIVE_MIN,
    CLEAN_COMMITS,
    CLEAN_HOURS,
    CLEAN_POLICY,
    CLEAN_TRIGGER,
    CLEAN_TRIGGER_COMMITS,
    CLEAN_VERSIONS,
)
from mainstem.services.compaction import Compaction
from mainstem.spark.index_syntax import tokens
from mainstem.spark.relations_in_sql import TablePath, path_of, values
from mainstem.spark.services import run_compactions
from mainstem.spark.session_options import location_in
from mainstem.spark.types import local_frame
from mainstem.timeline.instant import COMMIT, COMPACTION, DELTACOMMIT, REPLACECOMMIT
from mainstem.timeline.plans import load_compaction_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REQUIRED = object()
_WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_TABLE_OR_PATH = {"table": None, "path": None}
_FILTERED = {"limit": 10, "filter": ""}


@dataclass(frozen=True)
class _Call:
    """A call with its arguments, as Spark evaluated them, and its table."""

    spark: SparkSession
    name: str
    given: Mapping[str, Any]
    path: str
    properties: Mapping[str, object]

    @property
    def table(self) -> Table:
        """The table."""
        return self.opened(self.options)

    @property
    def options(self) -> dict[str, object]:
        """Those of ``options => 'name=value,...'``."""
        more: dict[str, object] = {}
        for pair in filter(None, str(self.given.get("options") or "").split(",")):
            name, equal, value = pair.partition("=")
            if not equal:
                raise Invalid(f"{self.name}: options are 'name=value,name=value', found {pair!r}")
            more[name.strip()] = value.strip()
        return more

    def opened(self, more: Mapping[str, object]) -> Table:
        """The table with more options."""
        return open_table(location_in(self.spark, self.path), {**self.properties, **more})

    def time(self, name: str) -> str:
        """An argument that is an instant's time, which must be given."""
        value = self.given[name]
        if not value:
            raise Invalid(f"{self.name}: {name} is missing, the requested time of an instant")
        return str(value)

    def instants(self) -> list[str] | None:
        """Requested times of ``instants => 'a,b'`` or ``timestamp``; None for all."""
        listed = str(self.given.get("instants") or self.given.get("timestamp") or "")
        return [one.strip() for one in listed.split(",") if one.strip()] or None

    def operation(self, otherwise: str | None) -> str:
        """``op``: schedule, run (or execute), or both."""
        found = str(self.given["op"] or otherwise or "").lower()
        found = "run" if found == "execute" else found
        if found not in ("schedule", "run", "scheduleandexecute"):
            raise Invalid(
                f"{self.name}: op is 'schedule', 'run' (or 'execute') or 'scheduleandexecute', found"
                f" {self.given['op']!r}"
            )
        return found


@dataclass(frozen=True)
class _Procedure:
    """``parameters`` in Hudi's order, with defaults; ``columns``: of the result, as DDL."""

    run: Callable[[_Call], Sequence[Sequence[Any]]]
    parameters: Mapping[str, Any]
    columns: str
    #: parameters of Hudi's that must stay as they are by default
    unused: tuple[str, ...] = field(default=())


def call(
    spark: SparkSession,
    plan: Any,
    text: str,
    table_path: TablePath,
    properties: Mapping[str, object],
    arguments: Mapping[str, Any],
) -> DataFrame | None:
    """The result of a parsed CALL; None for a procedure that is not Hudi's.

    Raises ``Invalid`` for wrong arguments, ``Unsupported`` for a procedure of Hudi's that is not here.
    """
    parts = tuple(_name_parts(plan))
    name = parts[-1].lower()
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() != "system"):
        return None
    procedure = _PROCEDURES.get(name)
    if procedure is None:
        if name in _OTHERS:
            raise Unsupported(
                f"CALL {name}: this procedure of Hudi's is not here; there are"
                f" {', '.join(sorted(_PROCEDURES))}"
            )
        return None
    given = _arguments(spark, name, procedure, text, arguments)
    place = given.get("path") or given.get("table")
    if not place:
        raise Invalid(f"CALL {name}: table is missing, a table's name or path")
    found = _Call(spark, name, given, path_of([str(place)], name, table_path), properties)
    rows = local_frame(spark, procedure.run(found), procedure.columns)
    if given.get("filter"):
        rows = rows.filter(str(given["filter"]))
    return rows.limit(int(given["limit"])) if given.get("limit") is not None else rows


def _name_parts(plan: Any) -> list[str]:
    parts = plan.children().apply(0).nameParts()
    return [parts.apply(number) for number in range(parts.size())]


def _arguments(
    spark: SparkSession, name: str, procedure: _Procedure, text: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    usage = f"{name}({', '.join(procedure.parameters)})"
    found = dict(procedure.parameters)
    known = list(tokens(text))
    opening = next(n for n, token in enumerate(known) if token.is_sign("("))
    closing = max(n for n, token in enumerate(known) if token.is_sign(")"))
    depth, start, pieces = 0, opening + 1, []
    for n in range(opening + 1, closing + 1):
        depth += known[n].is_sign("(") - (known[n].is_sign(")") and n < closing)
        if n == closing or (known[n].is_sign(",") and not depth):
            pieces += [(start, n)] if n > start else []
            start = n + 1
    names = list(procedure.parameters)
    seen = set()
    for number, (low, high) in enumerate(pieces):
        key, begin = names[number] if number < len(names) else "", low
        if high - low > 3 and known[low + 1].is_sign("=") and known[low + 2].text == ">":
            key, begin = known[low].text, low + 3
            key = next((one for one in names if one.lower() == key.lower()), key)
        if key not in found or key in seen:
            what = text[known[low].at : known[high].at]
            raise Invalid(f"CALL {name}: no such argument, or twice: {what}; {usage}")
        seen.add(key)
        found[key] = values(spark, text[known[begin].at : known[high].at], arguments)[0]
    missing = [key for key, value in found.items() if value is _REQUIRED]
    if missing:
        raise Invalid(f"CALL {name}: {', '.join(missing)} missing; {usage}")
    for key in procedure.unused:
        if found[key] != procedure.parameters[key]:
            raise Unsupported(f"CALL {name}: the argument {key} is not supported; leave it out")
    return found


# -- what they do -------------------------------------------------------------------------------------------


def _show_commits(one: _Call) -> list[tuple[Any, ...]]:
    rows = [row for row in one.table.history(actions=_WRITES).to_pylist() if row["completion"]]
    return [
        (
            row["requested"], row["completion"], row["action"], row["bytes"], row["files"],
            row["file_groups"], None if row["partitions"] is None else len(row["partitions"]), row["rows"],
            row["updates"], row["errors"],
        )
        for row in reversed(rows)
        if not row["archived"]
    ]  # fmt: skip


def _show_timeline(one: _Call) -> list[tuple[Any, ...]]:
    found = one.table.history(one.given["startTime"] or None, one.given["endTime"] or None).to_pylist()
    found.sort(key=lambda row: row["requested"], reverse=True)
    return [
        (
            row["requested"], row["action"], row["state"].upper(), _clock(row["requested"]), None,
            _clock(row["completion"]), "ARCHIVED" if row["archived"] else "ACTIVE", None,
        )
        for row in found
        if one.given["showArchived"] or not row["archived"]
    ]  # fmt: skip


def _clock(instant: str | None) -> str | None:
    """An instant's time as Hudi's procedures show it: MM-dd HH:mm:ss."""
    if not instant:
        return None
    return f"{instant[4:6]}-{instant[6:8]} {instant[8:10]}:{instant[10:12]}:{instant[12:14]}"


def _run_compaction(one: _Call) -> list[tuple[Any, ...]]:
    how, table = one.operation(None), one.table
    found: list[tuple[Any, ...]] = []
    times = one.instants()
    if how != "run":
        planned = table.schedule_compaction()
        if planned is None:
            return []
        times = [planned]
        if how == "schedule":
            size = len(load_compaction_plan(table.opened.seams.storage, planned))
            return [(planned, size, "REQUESTED")]
    for done in run_compactions(one.spark, table, times):
        found.append((done.requested, len(done.files), "COMPLETED" if done.completion else "REQUESTED"))
    return found


def _show_compaction(one: _Call) -> list[tuple[Any, ...]]:
    table = one.table
    rows = []
    for instant in reversed(table.timeline()):
        if instant.action == COMPACTION or (instant.action == COMMIT and instant.is_completed):
            try:
                size = len(load_compaction_plan(table.opened.seams.storage, instant.requested))
            except FileNotFoundError:
                continue  # a commit that is no compaction
            rows.append((instant.requested, size, instant.state.upper()))
    return rows


def _run_clustering(one: _Call) -> list[tuple[Any, ...]]:
    how, table, given = one.operation("scheduleandexecute"), one.table, one.given
    columns = [name.strip() for name in str(given["order"] or "").split(",") if name.strip()] or None
    chosen = [name.strip() for name in str(given["selected_partitions"] or "").split(",") if name.strip()]
    strategy = given["order_strategy"]
    if how == "schedule":
        planned = table.schedule_clustering(columns, strategy=strategy, partitions=chosen or None)
        return [] if planned is None else [(planned, None, "REQUESTED", "*")]
    if how == "run":
        buckets = table.writer_context().look_for_keys is None
        run = table.run_compaction if buckets else table.run_clustering
        times: list[str | None] = [*(one.instants() or [])] or [None]
        done: list[Any] = [found for at in times for found in run(at)]
    else:
        done = list(table.cluster(columns, strategy=strategy, partitions=chosen or None))
    return [
        (
            found.requested,
            len(found.files) if isinstance(found, Compaction) else found.replaced,
            "COMPLETED" if found.completion else "REQUESTED",
            ",".join(sorted({name.rpartition("/")[0] for name in found.files}))
            if given["show_involved_partition"]
            else "*",
        )
        for found in done
    ]


def _run_clean(one: _Call) -> list[tuple[Any, ...]]:
    wanted = {
        CLEAN_POLICY: "clean_policy", CLEAN_COMMITS: "retain_commits", CLEAN_HOURS: "hours_retained",
        CLEAN_VERSIONS: "file_versions_retained", CLEAN_TRIGGER: "trigger_strategy",
        CLEAN_TRIGGER_COMMITS: "trigger_max_commits",
    }  # fmt: skip
    given = {str(option): one.given[name] for option, name in wanted.items() if one.given[name] is not None}
    table = one.opened({**one.options, **given})
    began = time.monotonic()
    return [
        (found.requested, int((time.monotonic() - began) * 1000), found.deleted, found.earliest, None, 2)
        for found in table.clean()
    ]


def _create_savepoint(one: _Call) -> list[tuple[Any, ...]]:
    given = one.given
    one.table.savepoint(
        given["commit_time"] or None, user=given["user"] or "", comment=given["comments"] or ""
    )
    return [(True,)]


def _delete_savepoint(one: _Call) -> list[tuple[Any, ...]]:
    times = [part.strip() for part in one.time("instant_time").split(",")]
    for instant in times:
        one.table.delete_savepoint(instant)
    return [(True,)]


def _archive(one: _Call) -> list[tuple[Any, ...]]:
    given = one.given
    table = one.opened({
        str(ARCHIVE_MIN): given["min_commits"], str(ARCHIVE_MAX): given["max_commits"],
        str(CLEAN_COMMITS): given["retain_commits"],
    })  # fmt: skip
    table.archive()
    return [(0,)]


def _restored(one: _Call) -> list[tuple[Any, ...]]:
    return [(one.table.restore(one.time("instant_time")).completion is not None,)]


def _rolled_back(one: _Call) -> list[tuple[Any, ...]]:
    one.table.rollback(one.time("instant_time"))
    return [(True,)]


_PROCEDURES: dict[str, _Procedure] = {
    "show_commits": _Procedure(
        _show_commits, {"table": _REQUIRED, "limit": 10},
        "commit_time string, state_transition_time string, action string, total_bytes_written bigint,"
        " total_files_added bigint, total_files_updated bigint, total_partitions_written bigint,"
        " total_records_written bigint, total_update_records_written bigint, total_errors bigint",
    ),
    "show_timeline": _Procedure(
        _show_timeline,
        {**_TABLE_OR_PATH, "limit": 20, "showArchived": False, "filter": "", "startTime": "", "endTime": ""},
        "instant_time string, action string, state string, requested_time string, inflight_time string,"
        " completed_time string, timeline_type string, rollback_info string",
    ),
    "show_savepoints": _Procedure(
        lambda one: [(kept.instant,) for kept in reversed(one.table.savepoints())],
        dict(_TABLE_OR_PATH), "savepoint_time string",
    ),
    "create_savepoint": _Procedure(
        _create_savepoint, {"table": None, "commit_time": "", "user": "", "comments": "", "path": None},
        "create_savepoint_result boolean",
    ),
    "delete_savepoint": _Procedure(
        _delete_savepoint, {"table": None, "instant_time": "", "path": None},
        "delete_savepoint_result boolean",
    ),
    "rollback_to_savepoint": _Procedure(
        _restored, {"table": None, "instant_time": "", "path": None}, "rollback_savepoint_result boolean"
    ),
    "rollback_to_instant": _Procedure(
        _rolled_back, {"table": _REQUIRED, "instant_time": _REQUIRED}, "rollback_result boolean"
    ),
    "run_compaction": _Procedure(
        _run_compaction,
        {"op": _REQUIRED, **_TABLE_OR_PATH, "timestamp": None, "options": None, "instants": None,
         "limit": None},
        "timestamp string, operation_size int, state string",
    ),
    "show_compaction": _Procedure(
        _show_compaction, {**_TABLE_OR_PATH, "limit": 20},
        "timestamp string, operation_size int, state string",
    ),
    "run_clustering": _Procedure(
        _run_clustering,
        {**_TABLE_OR_PATH, "predicate": None, "order": None, "show_involved_partition": False, "op": None,
         "order_strategy": None, "options": None, "instants": None, "selected_partitions": None,
         "partition_regex_pattern": None, "limit": None},
        "timestamp string, input_group_size int, state string, involved_partitions string",
        unused=("predicate", "partition_regex_pattern"),
    ),
    "run_clean": _Procedure(
        _run_clean,
        {"table": _REQUIRED, "schedule_in_line": True, "clean_policy": None, "retain_commits": None,
         "hours_retained": None, "file_versions_retained": None, "trigger_strategy": None,
         "trigger_max_commits": None, "options": None},
        "start_clean_time string, time_taken_in_millis bigint, total_files_deleted int,"
        " earliest_commit_to_retain string, bootstrap_part_metadata string, version int",
        unused=("schedule_in_line",),
    ),
    "archive_commits": _Procedure(
        _archive,
        {**_TABLE_OR_PATH, "min_commits": 20, "max_commits": 30, "retain_commits": 10,
         "enable_metadata": True},
        "result int", unused=("enable_metadata",),
    ),
    "show_table_properties": _Procedure(
        lambda one: sorted(one.table.config.raw.items()), {**_TABLE_OR_PATH, **_FILTERED},
        "key string, value string",
    ),
}  # fmt: skip
#: the procedures that there are here
NAMES = tuple(_PROCEDURES)
# Hudi 1.2's others (``call help()``).
_OTHERS = frozenset((
    "cleanup_audit_lock", "commits_compare", "copy_to_table", "copy_to_temp_view",
    "create_metadata_table", "delete_marker", "delete_metadata_table", "downgrade_table",
    "drop_partition", "export_instants", "hdfs_parquet_import", "help", "hive_sync",
    "init_metadata_table", "partition_bucket_index_manager", "repair_add_partition_meta",
    "repair_corrupted_clean_files", "repair_deduplicate", "repair_migrate_partition_meta",
    "repair_overwrite_hoodie_props", "run_bootstrap", "run_rollback_inflight_tableservice", "run_ttl",
    "set_audit_lock", "show_archived_commits", "show_archived_commits_metadata", "show_audit_lock_status",
    "show_bootstrap_mapping", "show_bootstrap_partitions", "show_clean_plans", "show_cleans",
    "show_cleans_metadata", "show_clustering", "show_commit_extra_metadata", "show_commit_files",
    "show_commit_partitions", "show_commit_write_stats", "show_commits_metadata", "show_file_status",
    "show_fs_path_detail", "show_fsview_all", "show_fsview_latest", "show_invalid_parquet",
    "show_logfile_metadata", "show_logfile_records", "show_metadata_column_stats_overlap",
    "show_metadata_table_column_stats", "show_metadata_table_files", "show_metadata_table_partitions",
    "show_metadata_table_stats", "show_rollback_detail", "show_rollbacks", "stats_file_sizes", "stats_wa",
    "sync_validate", "truncate_table", "upgrade_table", "validate_audit_lock",
    "validate_metadata_table_files",
))  # fmt: skip
