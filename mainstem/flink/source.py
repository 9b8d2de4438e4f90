"""Reads a table in Flink: ``read`` returns a PyFlink ``Table`` for SELECT, joins and INSERT ... SELECT.

Flink does not support sources in Python, so the sources are Flink's own and emit only numbers:

- A bounded read is planned in the client: file slices, pinned. They travel in the job itself, as part of a
  table function; the source is a ``datagen`` sequence of their numbers, which Flink hands out to the readers
  and keeps in its checkpoints. Nothing is spooled, and nothing has to be removed afterwards. The numbers
  follow from the plan, so that a job started again from a checkpoint reads on if the table is as it was, and
  fails if it is not: the slices left of the old plan are not in the new one.
- A streaming read has a clock (``datagen``, one row per second) that wakes one keyed operator
  (``timeline_watch.Watch``). Its state is the completion time up to which changes were handed out, so a
  restored job goes on exactly where its checkpoint was. Changed file groups go to the readers by file group,
  which keeps the changes of a key in order. No client is needed: a detached job goes on by itself.

Which rows: those of Hudi's Flink reader (``HoodieTableSource``, ``IncrementalInputSplits``). Without times a
bounded read is the newest snapshot; ``read.end-commit`` alone is time travel; with ``read.start-commit`` it
is what instants completed from then on wrote, both ends included, and ``earliest`` is the snapshot. A
streaming read begins with the newest completed instant, with ``read.start-commit``, or with the snapshot for
``earliest``. All times are completion times. What comes is an append stream, as
``HoodieTableSource.getChangelogMode`` says where neither changelog nor cdc are on: a row for each key that a
look at the timeline finds written, no deletes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyflink.table import DataTypes, StreamTableEnvironment, TableDescriptor
from pyflink.table.schema import Schema
from pyflink.table.udf import udtf

from mainstem.api.given_options import for_reading
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, Unsupported
from mainstem.flink.declared_table import Declared
from mainstem.flink.options import FlinkOptions, FlinkReadOptions
from mainstem.flink.read_types import flink_type, python_row_type, transport_schema
from mainstem.flink.split_reader import SPLIT, ReadRows, Slices
from mainstem.flink.stream_workers import is_batch
from mainstem.flink.wrapped_environment import WrappedEnvironment, unwrapped
from mainstem.options.reading import QUERY_TYPE
from mainstem.readers.changes.commit_range import write_times
from mainstem.readers.planning.history import just_before
from mainstem.readers.planning.query_times import instant_time
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import ScanPlan
from mainstem.readers.rows.split import slices_of

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyflink.table import DataType, TableEnvironment
    from pyflink.table import Table as FlinkTable

#: more file slices than this would make the job itself too big to send
SPLITS_MAX = 100_000


def read(
    t_env: TableEnvironment | WrappedEnvironment,
    table: Declared | Table | str,
    options: FlinkOptions | FlinkReadOptions | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    name: str | None = None,
) -> FlinkTable:
    """The table as a PyFlink ``Table``, read as ``options`` say.

    ``table``: a declared one has the columns and types of its declaration, an open one or a path all columns
    of the table. ``columns``: fewer of them. ``filter`` is pushed down to the files. A bounded read shows the
    table as it is now, however late the query runs. ``name`` tells a streaming read from others of the table
    in one job: it goes on at the position of the read of this table and name in the checkpoint. By default it
    is the read's number among those of the table in this environment. Raises ``Invalid`` for columns that the
    table does not have, ``Unsupported`` for types that cannot be sent to Flink; a value that does not fit its
    declared type fails the query.
    """
    t_env = unwrapped(t_env)
    opened = _opened(table)
    asked = _asked(table, options)
    kinds = _kinds(table, opened, columns)
    transport = transport_schema(kinds)
    _check_stored(opened, transport)
    if asked.streaming:
        splits = _watched(t_env, opened, asked, transport.names, filter, name)
        return _rows(t_env, splits, Slices(opened.opened.seams.storage.location, transport), kinds)
    known = slices_of(plan(opened, asked, transport.names, filter).splits())
    if len(known) > SPLITS_MAX:
        raise Unsupported(
            f"the query reads {len(known)} file slices, more than {SPLITS_MAX}: read partitions or ranges"
            " of commits one after the other",
            table=opened.path,
        )
    slices = Slices(opened.opened.seams.storage.location, transport, known)
    return _rows(t_env, _numbers(t_env, slices.first, len(known), asked.tasks), slices, kinds)


def _opened(table: Declared | Table | str) -> Table:
    if isinstance(table, Declared):
        return open_table(table.options.location, properties=for_reading(table.options.passed))
    return table if isinstance(table, Table) else open_table(table)


def _asked(
    table: Declared | Table | str, options: FlinkOptions | FlinkReadOptions | None
) -> FlinkReadOptions:
    if options is None:
        options = table.options if isinstance(table, Declared) else FlinkReadOptions()
    return options.read if isinstance(options, FlinkOptions) else options


def _kinds(
    table: Declared | Table | str, opened: Table, columns: Sequence[str] | None
) -> dict[str, DataType]:
    """Output column -> Flink type."""
    if isinstance(table, Declared):
        kinds = {field.name: field.data_type for field in python_row_type(table.row).fields}
    else:
        kinds = {field.name: flink_type(field.type, field.name) for field in opened.schema}
    if columns is None:
        return kinds
    missing = [name for name in columns if name not in kinds]
    if missing:
        raise Invalid(f"no column {missing[0]!r}; there are {', '.join(kinds)}", table=opened.path)
    return {name: kinds[name] for name in columns}


def _check_stored(table: Table, transport: pa.Schema) -> None:
    schema = table.schema
    for name in transport.names:
        if name not in schema.names:
            raise Invalid(
                f"no column {name!r} in the table, which has {', '.join(schema.names)}", table=table.path
            )


# ------------------------------------------------------------------------------------------ bounded


def plan(
    table: Table, options: FlinkReadOptions, columns: Sequence[str], filter: pc.Expression | None = None
) -> ScanPlan:
    """The query of a bounded read. Raises ``Invalid`` for times that cannot be read."""
    names = list(columns)
    start, end = _time(options.start, "read.start-commit"), _time(options.end, "read.end-commit")
    if options.query_type == "READ_OPTIMIZED":
        return table.scan(columns=names, filter=filter, mode="read_optimized")
    if start is None and end is None and options.query_type == "INCREMENTAL":
        raise Invalid(
            f"{QUERY_TYPE}=incremental needs read.start-commit: a completion time or earliest",
            table=table.path,
        )
    if start is not None and int(start):
        return table.changes(just_before(start), end, columns=names, filter=filter)
    if end is None:
        return table.scan(columns=names, filter=filter)
    done = [time for time in write_times(_state(table)) if time <= end]
    if not done and start is not None:
        return table.changes(None, end, columns=names, filter=filter)
    if not done:
        raise Invalid(f"read.end-commit={end}: nothing was completed by then", table=table.path)
    return table.scan(columns=names, filter=filter, as_of_completion=done[-1])


def _time(text: str | None, name: str) -> str | None:
    """17 digits; "0" is before everything."""
    if text is None or not int(text):
        return text
    return instant_time(text, name)


def _state(table: Table) -> TableState:
    return TableState.load(table.opened.seams.storage, table.config)


def _numbers(t_env: TableEnvironment, first: int, count: int, tasks: int | None) -> FlinkTable:
    """A bounded source of split numbers; if there are no splits, it emits one number without a split."""
    source = (
        TableDescriptor.for_connector("datagen")
        .schema(Schema.new_builder().column(SPLIT, DataTypes.BIGINT()).build())
        .option("number-of-rows", str(max(1, count)))
        .option(f"fields.{SPLIT}.kind", "sequence")
        .option(f"fields.{SPLIT}.start", str(first))
        .option(f"fields.{SPLIT}.end", str(first + max(1, count) - 1))
    )
    if tasks is not None:
        source = source.option("scan.parallelism", str(tasks))
    return t_env.from_descriptor(source.build())


# ---------------------------------------------------------------------------------------- streaming


def _watched(
    t_env: TableEnvironment,
    table: Table,
    options: FlinkReadOptions,
    columns: Sequence[str],
    filter: pc.Expression | None,
    name: str | None,
) -> FlinkTable:
    if is_batch(t_env) or not isinstance(t_env, StreamTableEnvironment):
        raise Unsupported(
            "read.streaming.enabled keeps its position in Flink's state, which needs a StreamTableEnvironment"
            " in streaming mode: "
            "StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())",
            table=table.path,
        )
    from mainstem.flink.timeline_watch import changed_splits

    newest = max(write_times(_state(table)), default=None)
    start = _time(options.start, "read.start-commit") or newest or "0"
    after = just_before(start) if int(start) else "0"
    end = _time(options.end, "read.end-commit")
    return changed_splits(
        t_env,
        table,
        tuple(columns),
        filter,
        after=after,
        end=end,
        seconds=options.check_interval_s,
        most=options.commits_limit,
        tasks=options.tasks,
        uid=_uid(table, f"query {next(_readings(t_env, table))}" if name is None else name),
    )


def _uid(table: Table, name: str) -> str:
    """Flink's name of a read's state."""
    return "mainstem-read-" + hashlib.sha256(f"{table.path}\n{name}".encode()).hexdigest()[:24]


# Numbers of the reads without a name: environment -> path -> the next one.
_numbered: WeakKeyDictionary[TableEnvironment, dict[str, Iterator[int]]] = WeakKeyDictionary()


def _readings(t_env: TableEnvironment, table: Table) -> Iterator[int]:
    return _numbered.setdefault(t_env, {}).setdefault(table.path, itertools.count())


# --------------------------------------------------------------------------------------------- rows


def _rows(
    t_env: TableEnvironment, splits: FlinkTable, slices: Slices, kinds: dict[str, DataType]
) -> FlinkTable:
    """The rows of all splits. Uses SQL because the planner turns ``Table.join_lateral`` into a plain join
    when SQL reads it, and finds no plan for that. Function and view exist only while the text is parsed."""
    function = udtf(ReadRows(slices), result_types=list(kinds.values()))
    view, name = f"mainstem_splits_{id(splits)}", f"mainstem_read_{id(function)}"
    columns = ", ".join(_quoted(column) for column in kinds)
    t_env.create_temporary_view(view, splits)
    t_env.create_temporary_system_function(name, function)
    try:
        return t_env.sql_query(
            f"SELECT {columns} FROM {view}, LATERAL TABLE({name}({SPLIT})) AS made({columns})"
        )
    finally:
        t_env.drop_temporary_system_function(name)
        t_env.drop_temporary_view(view)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
