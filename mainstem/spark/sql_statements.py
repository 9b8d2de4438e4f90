"""``sql``: Hudi's statements in Spark SQL, as far as this source has them; all others go to Spark.

A Python package cannot add statements to Spark's parser. So a statement's text is looked at before Spark
gets it: index statements (``index_sql``) and vector searches (``vector_sql``) by their words; whatever
Spark's parser accepts by the plan that it makes of it: DELETE, UPDATE and MERGE (``row_statements``), INSERT,
TRUNCATE (``insert_statements``), CALL (``procedures``). In all of them, and in queries, tables of this source
are read as ``relations_in_sql`` and ``table_functions`` say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.job_table import exists, open_or_create
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid
from mainstem.services.progress import Progress
from mainstem.spark import (
    catalog_statements,
    connect_rows,
    connect_sql,
    hive_session,
    insert_statements,
    procedures,
    row_statements,
    table_statements,
)
from mainstem.spark.in_tasks import is_connect
from mainstem.spark.index_sql import SOURCES, indexed, is_view, options_of, table_path
from mainstem.spark.index_syntax import parse
from mainstem.spark.options import WriteOptions
from mainstem.spark.pushed_down import items
from mainstem.spark.relations_in_sql import replaced
from mainstem.spark.row_syntax import parts_of, without_marks
from mainstem.spark.session_options import location_in, session_options
from mainstem.spark.table_functions import FUNCTIONS
from mainstem.spark.told_first import tell_first
from mainstem.spark.vector_sql import calls_in, searched
from mainstem.writers.outcome import ALREADY_COMMITTED, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARGUMENTS = "args"


def sql(
    spark: SparkSession,
    statement: str,
    *,
    properties: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    **arguments: Any,
) -> DataFrame:
    """``spark.sql`` plus Hudi's statements on tables of this source (docs/sql.md lists them).

    - DELETE FROM, UPDATE and MERGE INTO: one commit. They return one row: ``num_affected_rows`` and
      ``instant``, the commit's requested time (null if no row was affected).
    - INSERT INTO, INSERT OVERWRITE, TRUNCATE TABLE: one commit, and the same answer.
    - Queries: tables by path and of the catalog, TIMESTAMP AS OF and VERSION AS OF, and the table functions
      ``hudi_query_timeline``, ``hudi_filesystem_view`` and ``hudi_table_changes``.
    - CREATE TABLE ... USING hudi, also AS SELECT and LIKE, SHOW PARTITIONS, ALTER TABLE ... DROP PARTITION.
    - ALTER TABLE, DROP TABLE, DESCRIBE and SHOW of a table (``catalog_statements``).
    - CALL of Hudi's procedures that have a counterpart (``procedures``), with Hudi's result columns.
    - CREATE, DROP and REFRESH INDEX, REINDEX, SHOW INDEXES. SHOW INDEXES returns the columns ``index_name``,
      ``index_type``, ``col_name`` (as in Hudi) and ``state``; the others return an empty DataFrame.
    - The table functions ``hudi_vector_search`` and ``hudi_vector_search_batch``.

    The table of a statement is mainstem.`/path`, a table of the session's catalog, or a temporary view of
    this source. ``properties`` are those of ``open_table``; ``progress`` is called while indexes are built
    (``create_index``). ``arguments`` are those of ``spark.sql``: ``args`` for parameters, and values and
    DataFrames for names in curly brackets. Any other statement goes unchanged to ``spark.sql``. Raises
    ``Invalid`` with line and column of the mistake, Spark's own ``ParseException`` and ``AnalysisException``,
    and whatever the table's methods raise.
    """
    given = dict(properties or {})
    tell_first()
    found = parse(statement)
    if found is not None:
        answer = indexed(spark, found, given, progress, arguments)
    elif calls := calls_in(statement):
        where = partial(table_path, spark)
        answer = searched(spark, statement, calls, where, given, arguments)
    elif is_connect(spark):
        outcome = connect_rows.changed(spark, statement, given, arguments)
        if outcome is not None:
            return _told(spark, outcome)
        answer = connect_sql.answered(spark, statement, arguments, (*procedures.NAMES, *FUNCTIONS))
    else:
        answer = _parsed(spark, statement, given, arguments)
    return spark.sql(statement, **arguments) if answer is None else answer


def _parsed(
    spark: SparkSession, statement: str, properties: Mapping[str, object], arguments: Mapping[str, Any]
) -> DataFrame | None:
    """The answer to a statement that Spark's parser accepts; None for one without a table of this source."""
    with _formatted(spark, statement, arguments) as text:
        named = arguments.get(_ARGUMENTS)
        if isinstance(named, list):
            try:
                text, named = without_marks(text, named)
            except Invalid:
                return None  # Spark says what is wrong
        plan = _plan(spark, text)
        if plan is None:
            return None
        given = {_ARGUMENTS: named} if named else {}
        node = plan.children().apply(0) if plan.nodeName() == "UnresolvedWith" else plan
        if node.nodeName() == "Call":
            return procedures.call(spark, node, text, partial(_where, spark, "CALL"), properties, given)
        if node.nodeName() in ("CreateTable", "CreateTableAsSelect") and table_statements.is_ours(node):
            return _created(spark, plan, text, given)
        if node.nodeName() in ("CreateTableLike", table_statements.LIKE_COMMAND):
            return _created_like(spark, node)
        run = _STATEMENTS.get(node.nodeName())
        if run is None and node.nodeName() not in catalog_statements.STATEMENTS:
            where = partial(_where, spark, "a query")
            with replaced(spark, plan, text, where, FUNCTIONS, given) as changed:
                return None if changed == text else spark.sql(changed, **given)
        parts = _target(node)
        path = _where(spark, node.nodeName(), parts) if parts else None
        if path is None:
            return None
        if run is None:
            if is_view(spark, parts):
                return None
            named = catalog_statements.Named.of(spark, parts, open_table(location_in(spark, path)))
            return catalog_statements.answer(named, node, text)
        properties = {**hive_session.completed(spark, options_of(spark, parts)), **properties}
        found = _Statement(spark, text, plan, path, properties, given)
        if node.nodeName() == "ShowPartitions" and not node.pattern().isDefined():
            return table_statements.show_partitions(spark, found.table)
        outcome = run(found)
        return None if outcome is None else _told(spark, outcome)


def _plan(spark: SparkSession, text: str) -> Any:
    """What Spark's parser makes of a statement; None where Spark will say what is wrong with it."""
    from pyspark.errors import PySparkException

    try:
        return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except PySparkException:
        return None


def _target(node: Any) -> tuple[str, ...]:
    """The parts of the name of the table that a statement changes."""
    table = node.table() if node.nodeName() == "InsertIntoStatement" else node.children().apply(0)
    while table.nodeName() == "SubqueryAlias":
        table = table.child()
    if table.nodeName() == "UnresolvedIdentifier":
        return tuple(items(table.nameParts()))
    named = table.nodeName() in ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView")
    return tuple(items(table.multipartIdentifier())) if named else ()


def _where(spark: SparkSession, what: str, parts: tuple[str, ...]) -> str | None:
    return table_path(spark, parts, what)


class _Statement:
    """A statement that changes the table at ``path``."""

    def __init__(
        self,
        spark: SparkSession,
        text: str,
        plan: Any,
        path: str,
        properties: Mapping[str, object],
        arguments: Mapping[str, Any],
    ) -> None:
        self.spark, self.text, self.plan, self.path = spark, text, plan, path
        self.properties, self.arguments = properties, arguments

    @contextmanager
    def replaced(self) -> Iterator[str]:
        """The text, in which other mentions of tables are views of their newest completion time."""
        where = partial(_where, self.spark, "a query")

        def moment(path: str) -> str | None:
            return row_statements.newest_moment(open_table(location_in(self.spark, path)))

        with replaced(
            self.spark, self.plan, self.text, where, FUNCTIONS, self.arguments, moment
        ) as text:
            yield text

    @property
    def table(self) -> Table:
        """The table, opened with the options."""
        below = session_options(self.spark)
        options = WriteOptions.parse(dict(self.properties), path=self.path, below=below)
        if not exists(options.location):
            raise Invalid("there is no table", table=options.location.base)
        return open_or_create(options, pa.schema([]))


def _changed(one: _Statement) -> Outcome | None:
    with one.replaced() as text:
        parts = parts_of(text)
        return row_statements.run(one.spark, parts, one.path, one.properties, one.arguments)


def _inserted(one: _Statement) -> Outcome | None:
    with one.replaced() as text:
        plan = one.plan if text == one.text else _plan(one.spark, text)
        statement = insert_statements.insert_of(plan, text)
        if statement is None:
            return None
        return insert_statements.insert(one.spark, statement, one.table, one.properties, one.arguments)


def _truncated(one: _Statement) -> Outcome | None:
    return insert_statements.truncate(one.plan, one.table)


def _created(
    spark: SparkSession, plan: Any, text: str, arguments: Mapping[str, Any]
) -> DataFrame | None:
    where = partial(_where, spark, "a query")
    with replaced(spark, plan, text, where, FUNCTIONS, arguments) as changed:
        again = plan if changed == text else _plan(spark, changed)
        return _told(spark, table_statements.create(spark, again, changed, arguments))


def _created_like(spark: SparkSession, plan: Any) -> DataFrame | None:
    _, parts = table_statements.like_names(plan)
    path = _where(spark, "CREATE TABLE LIKE", parts)
    provider = plan.provider().get().lower() if plan.provider().isDefined() else None
    if provider not in SOURCES and (provider is not None or path is None):
        return None
    source = None if path is None else open_table(location_in(spark, path))
    return _told(spark, table_statements.create_like(spark, plan, source))


def _parts_dropped(one: _Statement) -> Outcome | None:
    return table_statements.drop_partitions(one.plan, one.table)


def _no_change(one: _Statement) -> Outcome | None:
    """SHOW PARTITIONS with a pattern, which Spark answers."""
    return None


_STATEMENTS = {
    "DropPartitions": _parts_dropped, "ShowPartitions": _no_change,
    "DeleteFromTable": _changed, "UpdateTable": _changed, "MergeIntoTable": _changed,
    "InsertIntoStatement": _inserted, "TruncateTable": _truncated, "TruncatePartition": _truncated,
}  # fmt: skip


@contextmanager
def _formatted(spark: SparkSession, statement: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """The statement with its names in curly brackets replaced, as ``spark.sql`` does it."""
    values = {name: value for name, value in arguments.items() if name != _ARGUMENTS}
    if not values:
        yield statement
        return
    from pyspark.sql.sql_formatter import SQLStringFormatter

    formatter = SQLStringFormatter(spark)
    try:
        yield formatter.format(statement, **values)
    finally:
        formatter.clear()


def _told(spark: SparkSession, outcome: Outcome) -> DataFrame:
    """As a query without a table: a frame of given rows takes Spark's driver ten times as long."""
    rows = 0 if outcome.status == ALREADY_COMMITTED else outcome.rows
    instant = f"'{outcome.instant}'" if outcome.instant else "NULL"
    return spark.sql(f"SELECT {rows}L AS num_affected_rows, CAST({instant} AS STRING) AS instant")
