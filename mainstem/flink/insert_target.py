"""The table that an INSERT writes: opened at its path, or created as Hudi's Flink writer would.

What a declaration does not say comes from a table that is there (``HoodieTableFactory``: record key,
partition and ordering fields, merge mode), and from Flink's defaults for a new one: key ``uuid``, ordering
field ``ts`` where that column exists, four buckets (none under another index than BUCKET). Two of Flink's
defaults cannot be written beside other writers, so a new table of which nothing is said is MERGE_ON_READ, not
COPY_ON_WRITE, and has buckets, not FLINK_STATE. One without a key for operation insert has its keys made up
(``AutoRowDataKeyGen``). What a declaration does say must agree with the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from mainstem.api.given_options import for_opening
from mainstem.api.job_table import contradiction, exists, open_for_job
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, Unsupported
from mainstem.flink.declared_table import Declared
from mainstem.flink.options import WRITE_OPERATION, FlinkOptions
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.vectors import check_same
from mainstem.layout.key_index import key_index
from mainstem.merge.modes import COMMIT_TIME, merge_mode
from mainstem.options.placing import BUCKETS, INDEX_TYPE, RECORD_KEY_FIELDS, RECORD_KEY_OPTION
from mainstem.options.tables import ORDERING_FIELDS, TABLE_NAME, TABLE_TYPE
from mainstem.options.writing import SET_NULL
from mainstem.storage.backends import location_of
from mainstem.writers.transaction_schema import fills_missing
from mainstem.writers.write_spec import BULK_INSERT, INSERT

_DEFAULT_KEY, _DEFAULT_ORDERING, _DEFAULT_BUCKETS = "uuid", "ts", "4"

_NEEDED = ((TABLE_TYPE, "MERGE_ON_READ", TABLE_TYPE.flink), (INDEX_TYPE, "BUCKET", INDEX_TYPE.flink))
_INSERTS = (INSERT, BULK_INSERT)


@dataclass(frozen=True)
class Target:
    """Where rows of one INSERT go.

    ``sink``: the name of its staging folders and of its guard identifier (``flink/<sink>``). ``columns``:
    the declared columns in order, as the table stores them (``flink_to_arrow``); the query's columns come in
    the same order and under these names. ``key`` and ``partition``: column names.
    """

    table: Table
    sink: str
    columns: pa.Schema
    key: tuple[str, ...]
    partition: tuple[str, ...]
    options: FlinkOptions


def open_target(declared: Declared) -> Target:
    """The table of a declaration, ready to be written; created if there is none.

    Raises ``Unsupported`` for kinds of tables that cannot be written beside others, ``Invalid`` with what was
    expected and found for a table that is another than declared.
    """
    _check_kind(declared)
    wanted = declared.options
    if not exists(wanted.location):
        wanted = completed(declared)
    table = open_for_job(wanted, declared.columns)
    table.writer_context()
    _check_columns(declared, table, writing=True)
    config = table.config
    return Target(
        table=table,
        sink=declared.options.client_id or declared.name,
        columns=declared.columns,
        key=config.record_key,
        partition=config.partition_fields,
        options=declared.options,
    )


@contextmanager
def rehearsed(declared: Declared) -> Iterator[Declared]:
    """The declaration for planning only: ``open_target`` creates the table in a temporary folder instead of
    at its path, and creates no index."""
    passed = for_opening(declared.options.passed)
    declared = replace(declared, options=replace(declared.options, passed=passed))
    if exists(declared.options.location):
        yield declared
        return
    with tempfile.TemporaryDirectory() as folder:
        yield replace(declared, options=replace(declared.options, location=location_of(f"{folder}/table")))


def check_declared(declared: Declared) -> None:
    """Checks that a declaration agrees with the table at its path, or that such a table could be created.

    Nothing is created.
    """
    options = declared.options
    if not exists(options.location):
        arrow_to_avro(declared.columns, table_name=declared.name, meta_fields=False)
        return
    table = open_table(options.location, properties=for_opening(options.passed))
    said = contradiction(options, table.config)
    if said:
        raise Invalid(f"table {declared.name!r}: {said}", table=table.path)
    _check_columns(declared, table, writing=False)


def check_streamed(target: Target, changes: bool) -> None:
    """Raises for rows that no checkpoint can commit: of a table whose keys are made up, all but inserts; and
    those of a ``bulk_insert``. ``changes``: the query updates or deletes what it gave before."""
    table, operation = target.table, target.options.operation
    if operation == BULK_INSERT:
        raise Unsupported(
            f"{WRITE_OPERATION}='bulk_insert' as a part of a job: its base files may conflict with other"
            " writers when a checkpoint is committed; execute it as a statement of its own, of a query that"
            " ends, or use 'upsert'",
            table=table.path,
        )
    if not target.key and (changes or operation != INSERT):
        raise Unsupported(
            f"{WRITE_OPERATION}={operation!r}{' of a query that updates' if changes else ''} into a table"
            f" without record key: rows are inserted there; set '{WRITE_OPERATION}' = 'insert', or name a"
            " PRIMARY KEY for a new table",
            table=table.path,
        )


def has_key(declared: Declared) -> bool:
    """Whether the declaration, or the table at its path, defines a record key."""
    return declared.key is not None or exists(declared.options.location)


def _check_kind(declared: Declared) -> None:
    table = declared.options.table
    others = set(INDEX_TYPE.allowed) - {INDEX_TYPE.default}
    without_buckets = table.get(INDEX_TYPE, "").upper() in others
    for key, needed, option in _NEEDED:
        found = table.get(key, needed)
        if found.upper() != needed and not (without_buckets and key == INDEX_TYPE):
            more = f", or to one of {', '.join(sorted(others))}" if key == INDEX_TYPE else ""
            raise Unsupported(
                f"table {declared.name!r}: {declared.options.given.get(key, option)}={found!r} cannot be"
                f" written beside other writers; set '{option}' = '{needed}'{more}, or leave it out",
                table=declared.options.location.base,
            )


def completed(declared: Declared) -> FlinkOptions:
    """The options with Flink's defaults for a new table."""
    options, names = declared.options, declared.columns.names
    table = {TABLE_NAME: declared.name, **options.table}
    if RECORD_KEY_FIELDS not in table and _DEFAULT_KEY in names:
        table[RECORD_KEY_FIELDS] = _DEFAULT_KEY
    if RECORD_KEY_FIELDS not in table and options.operation not in _INSERTS:
        raise Invalid(
            f"table {declared.name!r} has no PRIMARY KEY, no {RECORD_KEY_OPTION} and"
            f" no column {_DEFAULT_KEY!r}, the default: say which columns identify a row, or set"
            f" '{WRITE_OPERATION}' = 'insert', and keys are made up",
            table=options.location.base,
        )
    if key_index(options.table) is None and RECORD_KEY_FIELDS in table:
        table.setdefault(BUCKETS, _DEFAULT_BUCKETS)
    by_time = merge_mode(table, [_DEFAULT_ORDERING]) != COMMIT_TIME
    if ORDERING_FIELDS not in table and _DEFAULT_ORDERING in names and by_time:
        table[ORDERING_FIELDS] = _DEFAULT_ORDERING
    return replace(options, table=table)


def _check_columns(declared: Declared, table: Table, *, writing: bool) -> None:
    found = table.schema
    for column in declared.columns:
        place = found.get_field_index(column.name)
        if place < 0:
            raise Invalid(
                f"table {declared.name!r} declares the column {column.name!r}, which the Hudi table lacks; it"
                f" has {', '.join(found.names)}. Add it with another writer first, or leave it out",
                table=table.path,
            )
        check_same(column, found.field(place))
        if not _same(column.type, found.field(place).type):
            raise Invalid(
                f"table {declared.name!r}: the declaration of column {column.name!r} means"
                f" {column.type}, but the Hudi table stores {found.field(place).type}; docs/flink.md, Types,"
                " says how to declare it",
                table=table.path,
            )
    missing = [name for name in found.names if name not in declared.columns.names]
    if writing and missing and not fills_missing({**table.properties, **declared.options.passed}):
        raise Invalid(
            f"table {declared.name!r} does not declare {', '.join(missing)}, which the Hudi table has: an"
            " INSERT would set them to null. Declare them, or allow it with"
            f" '{SET_NULL}' = 'true'",
            table=table.path,
        )


def _same(a: pa.DataType, b: pa.DataType) -> bool:
    """Equal but for names and nullability inside of lists and maps. A vector (``b``) is declared as an array,
    which is checked for its dimension when there are rows; TINYINT is an int32."""
    types = pa.types
    if types.is_list(a) and types.is_fixed_size_list(b):
        return a.value_type == (pa.int32() if b.value_type == pa.int8() else b.value_type)
    if types.is_list(a) and types.is_list(b):
        return _same(a.value_type, b.value_type)
    if types.is_map(a) and types.is_map(b):
        return _same(a.key_type, b.key_type) and _same(a.item_type, b.item_type)
    if types.is_struct(a) and types.is_struct(b):
        fields = [[kind.field(i) for i in range(kind.num_fields)] for kind in (a, b)]
        return [f.name for f in fields[0]] == [f.name for f in fields[1]] and all(
            _same(x.type, y.type) for x, y in zip(*fields, strict=True)
        )
    return a == b
