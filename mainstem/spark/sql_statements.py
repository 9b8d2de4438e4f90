"""``sql``: Hudi's statements in Spark SQL, as far as this source has them; all others go to Spark.

A Python package cannot add statements to Spark's parser. So a statement's text is looked at before Spark gets
it: index statements (``index_sql``), vector searches (``vector_sql``), DELETE, UPDATE and MERGE
(``row_statements``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.services.progress import Progress
from mainstem.spark import row_statements
from mainstem.spark.index_sql import indexed, table_path
from mainstem.spark.index_syntax import parse
from mainstem.spark.row_syntax import parts_of, verb_of, without_marks
from mainstem.spark.vector_sql import calls_in, searched
from mainstem.writers.outcome import Outcome

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
    found = parse(statement)
    if found is not None:
        answer = indexed(spark, found, given, progress, arguments)
    elif calls := calls_in(statement):
        where = partial(table_path, spark)
        answer = searched(spark, statement, calls, where, given, arguments)
    elif verb_of(statement) is not None:
        answer = _rows_changed(spark, statement, given, arguments)
    else:
        answer = None
    return spark.sql(statement, **arguments) if answer is None else answer


def _rows_changed(
    spark: SparkSession, statement: str, properties: Mapping[str, object], arguments: Mapping[str, Any]
) -> DataFrame | None:
    with _formatted(spark, statement, arguments) as text:
        named = arguments.get(_ARGUMENTS)
        if isinstance(named, list):
            text, named = without_marks(text, named)
        try:
            # Spark's own messages for whatever its grammar does not have.
            spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
        except AttributeError:
            return None  # Spark Connect
        parts = parts_of(text)
        path = table_path(spark, parts.table, parts.verb)
        if path is None:
            return None
        given = {_ARGUMENTS: named} if named else {}
        return _told(spark, row_statements.run(spark, parts, path, properties, given))


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
    if outcome.status == "already_committed":
        return spark.createDataFrame([(0, outcome.instant)], _ANSWER)
    return spark.createDataFrame([(outcome.rows, outcome.instant)], _ANSWER)


_ANSWER = "num_affected_rows bigint, instant string"
