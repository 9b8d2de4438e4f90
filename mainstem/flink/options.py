"""Parses the options of Hudi's Flink connector into what the other modules need.

``option_list`` says how each is treated. Other ``hoodie.*`` options are treated as for every engine
(``api/given_options.py``). Unknown options are refused, with the nearest known name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem import options as core
from mainstem.api.given_options import (
    check_given,
    check_no_overwrite,
    for_reading,
    operation,
    shared_location,
    sorted_out,
)
from mainstem.errors import Invalid, Unsupported
from mainstem.flink.option_list import BY_NAME, FIXED, NO_EFFECT, OPTIONS, Option
from mainstem.limits import VECTOR_DIMENSION_MAX
from mainstem.merge import modes
from mainstem.merge.modes import COMMIT_TIME, EVENT_TIME, IGNORE_DEFAULTS
from mainstem.merge.payloads import KNOWN_PAYLOADS
from mainstem.options.catalogs import HIVE_SYNC, IGNORE_EXCEPTIONS, META_SYNC
from mainstem.options.placing import VECTOR_COLUMNS
from mainstem.options.reading import QUERY_TYPE
from mainstem.options.services import FLINK_CLEAN, FLINK_COMPACT, FLINK_SCHEDULE
from mainstem.options.tables import MERGE_MODE, ORDERING_FIELDS, PARTIAL_UPDATES, PAYLOAD_CLASS, STRATEGY_ID
from mainstem.options.writing import GROUP_BYTES
from mainstem.storage.location import Location

CONNECTORS = ("hudi", "mainstem")
NO_ORDERING = "no_precombine"

_VECTOR = re.compile(r"\s*(\w+)\s*(?::\s*(\d{1,9})\s*)?\Z", re.ASCII)
_DIMENSION = 128

WRITE_OPERATION = "write.operation"
_OVERWRITE_MODE = "write.partition.overwrite.mode"
_MERGERS = {
    "EventTimeFlinkRecordMerger": (EVENT_TIME, None),
    "CommitTimeFlinkRecordMerger": (COMMIT_TIME, None),
    "PartialUpdateFlinkRecordMerger": (EVENT_TIME, IGNORE_DEFAULTS),
}
_STRATEGIES = {strategy: mode for mode, strategy in modes.STRATEGIES.items()}
#: Flink's own defaults of services, where Hudi's other engines have other ones
_SERVICE_DEFAULTS = tuple(
    (option.key, option.default)
    for option in OPTIONS
    if option.name.startswith(("clean.retain_", "archive.")) and option.key
)
# Options that have other names outside Flink.
_SWITCHES = (FLINK_SCHEDULE, FLINK_COMPACT, FLINK_CLEAN)
_FLINK_NAMES = tuple(name for name in BY_NAME if not name.startswith("hoodie.") and name not in _SWITCHES)


@dataclass(frozen=True)
class FlinkReadOptions:
    """How a SELECT reads. ``start`` and ``end`` are completion times ("earliest" is "0"), or None."""

    query_type: str = "SNAPSHOT"
    streaming: bool = False
    check_interval_s: int = 60
    start: str | None = None
    end: str | None = None
    tasks: int | None = None
    commits_limit: int | None = None


@dataclass(frozen=True)
class FlinkOptions:
    """Checked options of one table in one statement, hints included.

    ``name``: the table's name in SQL. ``table``: properties that the table must have, or is created with,
    under their names in ``hoodie.properties``; ``given``: such a property -> option name as the user wrote
    it; ``passed``: properties for ``open_table``: locks, clock, heartbeat, services (under Hudi's
    ``hoodie.*`` names). ``write_tasks``: parallelism of the writers, None for the environment's;
    ``overwrite_mode``: STATIC or DYNAMIC. ``vectors``: columns that are VECTORs, in lower case, and their
    dimensions.
    """

    location: Location
    name: str
    table: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    passed: Mapping[str, str] = field(default_factory=dict)
    operation: str = "upsert"
    write_tasks: int | None = None
    client_id: str = ""
    overwrite_mode: str = "STATIC"
    vectors: Mapping[str, int] = field(default_factory=dict)
    read: FlinkReadOptions = field(default_factory=FlinkReadOptions)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, name: str) -> FlinkOptions:
        """Raises ``Invalid`` (unknown name, wrong value), ``Unsupported`` (known, but refused)."""
        values, written = _by_newest_name(options)
        for option in OPTIONS:
            if option.name in values and option.what == FIXED:
                _check_fixed(option, values[option.name], written[option.name])
        path = values.get("path")
        if not path:
            raise Invalid(f"table {name!r}: option 'path' is missing, the folder of the Hudi table")
        table, given, passed = _properties(values, written)
        _merging(values, written, table, given)
        check_given(for_reading(passed))
        core.WriterOptions.from_properties(passed)
        return cls(
            location=shared_location(path, options),
            name=name,
            table=table,
            given=given,
            passed=passed,
            operation=_operation(values),
            write_tasks=_count(values, "write.tasks"),
            client_id=values.get("write.client.id", ""),
            overwrite_mode=_overwrite_mode(values),
            vectors=_vectors(values.get(VECTOR_COLUMNS, "")),
            read=_reading(values),
        )


def _by_newest_name(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Newest name -> value, newest name -> name as written."""
    values: dict[str, str] = {}
    written: dict[str, str] = {}
    for name, value in options.items():
        option = BY_NAME.get(name)
        newest = option.name if option else name
        text = value.strip()
        if values.setdefault(newest, text) != text:
            raise Invalid(f"{name}={text!r} contradicts {written[newest]}={values[newest]!r}")
        written.setdefault(newest, name)
    return values, written


def _check_fixed(option: Option, value: str, written: str) -> None:
    if value.lower() not in option.only:
        expected = f"; expected {option.default!r}" if option.default else "; leave it out"
        raise Unsupported(f"{written}={value!r}: {option.note}{expected}")


def _properties(
    values: Mapping[str, str], written: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(table properties, the option each came from, settings for opening)."""
    keyed: dict[str, str] = {}
    hoodie: dict[str, str] = {}
    for name, value in values.items():
        option = BY_NAME.get(name)
        if option is None or name in _SWITCHES:
            hoodie[name] = value
        elif option.what in (FIXED, NO_EFFECT) or name == VECTOR_COLUMNS:
            continue
        elif option.key:
            keyed[option.key] = value
            written = {**written, option.key: written[name]}
        elif name.startswith("hoodie.") and name != QUERY_TYPE:
            hoodie[name] = value
    for key, value in keyed.items():
        if hoodie.setdefault(key, value) != value:
            raise Invalid(f"{written[key]}={value!r} contradicts {key}={hoodie[key]!r}")
    table, given, passed = sorted_out(hoodie, known=_FLINK_NAMES)
    given = {key: written.get(name, name) for key, name in given.items()}
    if GROUP_BYTES.flink in values:
        megabytes = core.whole_number(values, GROUP_BYTES.flink, 120, 1, 1_000_000)
        passed.setdefault(GROUP_BYTES, str(megabytes * 1024 * 1024))
    for key, value in _SERVICE_DEFAULTS:
        passed.setdefault(key, value)
    passed.setdefault(core.BESIDE_COMMITS, "ON")
    if HIVE_SYNC in passed or META_SYNC in passed:
        passed.setdefault(IGNORE_EXCEPTIONS, "true")  # as in Hudi, no job fails because of a catalog
    if table.get(ORDERING_FIELDS) == NO_ORDERING:
        table[ORDERING_FIELDS] = ""
    return table, given, passed


def _merging(
    values: Mapping[str, str], written: Mapping[str, str], table: dict[str, str], given: dict[str, str]
) -> None:
    """Turns merge classes into table properties. Raises ``Invalid`` if two of them mean different rules."""
    for name in (PAYLOAD_CLASS.flink, "record.merger.impls", STRATEGY_ID.flink):
        if name not in values:
            continue
        mode, partial = _meaning(name, written[name], values[name])
        found = modes.merge_mode({MERGE_MODE: table.setdefault(MERGE_MODE, mode)})
        told = partial and table.setdefault(PARTIAL_UPDATES, partial)
        for key, value, said in ((MERGE_MODE, mode, found), (PARTIAL_UPDATES, partial, told)):
            if value != said:
                raise Invalid(
                    f"{written[name]}={values[name]!r} means {value}, which contradicts"
                    f" {given.get(key, key)}={table[key]!r}"
                )
            if value is not None:
                given.setdefault(key, written[name])


def _meaning(name: str, written: str, value: str) -> tuple[str, str | None]:
    if name == STRATEGY_ID.flink and value in _STRATEGIES:
        return _STRATEGIES[value], None
    if name == "record.merger.impls":
        simple = value.rpartition(".")[2]
        if simple in _MERGERS and "," not in value:
            return _MERGERS[simple]
    if name == PAYLOAD_CLASS.flink and value in KNOWN_PAYLOADS:
        rules = KNOWN_PAYLOADS[value]
        if rules.delete is None and rules.unavailable is None:
            return rules.mode, rules.partial
    raise Unsupported(
        f"{written}={value!r}: expected Hudi's own for event time, commit time or partial updates; leave it"
        f" out and say {MERGE_MODE} (and {PARTIAL_UPDATES}) instead"
    )


def _vectors(text: str) -> dict[str, int]:
    """Parses ``name[:dimension],...`` (VectorColumnParser of Hudi's Flink connector)."""
    found: dict[str, int] = {}
    for entry in filter(str.strip, text.split(",")):
        parts = _VECTOR.match(entry)
        size = int(parts[2] or _DIMENSION) if parts else 0
        if not parts or not 1 <= size <= VECTOR_DIMENSION_MAX or parts[1].lower() in found:
            raise Invalid(
                f"{VECTOR_COLUMNS}={text!r:.200}: {entry.strip()!r:.80}; expected column:dimension once for"
                f" each column, with a dimension from 1 to {VECTOR_DIMENSION_MAX} (left out: {_DIMENSION})"
            )
        found[parts[1].lower()] = size
    return found


def _overwrite_mode(values: Mapping[str, str]) -> str:
    found = values.get(_OVERWRITE_MODE, "STATIC").upper()
    if found not in ("STATIC", "DYNAMIC"):
        raise Invalid(f"{_OVERWRITE_MODE}={values[_OVERWRITE_MODE]!r}; expected STATIC or DYNAMIC")
    return found


def _operation(values: Mapping[str, str]) -> str:
    name = check_no_overwrite(operation(values, WRITE_OPERATION), "would be done again at each checkpoint")
    if name == "delete":
        raise Unsupported(
            "write.operation='delete': rows are deleted by the changes of an updating query; to delete keys"
            " use mainstem.open_table(path).delete"
        )
    return name


def _count(values: Mapping[str, str], name: str) -> int | None:
    return core.whole_number(values, name, 1, 1, 32_768) if name in values else None


def _reading(values: Mapping[str, str]) -> FlinkReadOptions:
    limit = "read.commits.limit"
    found = FlinkReadOptions(
        query_type=QUERY_TYPE.read(values),
        streaming=core.flag(values, "read.streaming.enabled", False),
        check_interval_s=core.whole_number(values, "read.streaming.check-interval", 60, 1, 86_400),
        start=_time(values, "read.start-commit"),
        end=_time(values, "read.end-commit"),
        tasks=_count(values, "read.tasks"),
        commits_limit=core.whole_number(values, limit, 1, 1, 2**31 - 1) if limit in values else None,
    )
    if found.query_type == "READ_OPTIMIZED" and (found.streaming or found.start or found.end):
        raise Invalid(
            f"{QUERY_TYPE}=read_optimized shows base files as they are: it has no"
            " read.start-commit, read.end-commit or read.streaming.enabled"
        )
    return found


def _time(values: Mapping[str, str], name: str) -> str | None:
    text = values.get(name, "").lower()
    if not text:
        return None
    if text == "earliest" and name == "read.start-commit":
        return "0"
    if not text.isdecimal() or len(text) > 17:
        earliest = ", or earliest" if name == "read.start-commit" else ""
        raise Invalid(f"{name}={text!r}, expected a completion time yyyyMMddHHmmss[SSS]{earliest}")
    return text
