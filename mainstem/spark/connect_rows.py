"""DELETE, UPDATE and MERGE on Spark Connect, whose parser and planner are on the server.

    1. The statement's parts are cut as in a classic session (``row_syntax``).
    2. That the server's parser finds the same is asked by EXPLAIN: the statement, and the statement with each
       part in brackets, must parse to one plan.
    3. One task on the server looks at the table (``looked_at``).
    4. The query is the classic one; the columns that it reads are those that the statement names.
    5. Its rows are written as ``write_batch`` writes on Spark Connect, all rows of a key in one task.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, Unsupported
from mainstem.spark.connect_sql import path_mentions
from mainstem.spark.in_tasks import on_server
from mainstem.spark.index_sql import table_path
from mainstem.spark.index_syntax import tokens
from mainstem.spark.looked_at import look
from mainstem.spark.options import WriteOptions
from mainstem.spark.pushed_down import quoted
from mainstem.spark.row_statements import Plan
from mainstem.spark.row_syntax import Part, RowStatement, parts_of, verb_of, without_marks
from mainstem.spark.session_options import session_options
from mainstem.spark.sink import write_statement_there
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARGUMENTS = "args"
_FIELDS = "spark.sql.debug.maxToStringFields"
_NUMBERED = re.compile(r"#\d+L?")


def changed(
    spark: SparkSession, statement: str, properties: Mapping[str, object], arguments: Mapping[str, Any]
) -> Outcome | None:
    """Carries out a statement on the rows of a table of this source; None for others, which go to Spark."""
    if verb_of(statement) is None:
        return None
    views: dict[str, DataFrame] = {}
    try:
        text, named = _with_views(spark, statement, arguments, views)
        try:
            parts = parts_of(text)
        except (Invalid, StopIteration, IndexError, ValueError):
            return None  # Spark says what is wrong
        path = table_path(spark, parts.table, parts.verb)
        if path is None:
            return None
        _check_parts(spark, parts, named)
        options = WriteOptions.parse(dict(properties), path=path, below=session_options(spark))
        looked = on_server(spark, partial(look, parts.verb, options))
        plan = Plan.of(spark, parts, looked, properties)
        with plan.rows_by_words(properties, named) as rows:
            return write_statement_there(rows, plan.written(options), plan.step)
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


def _with_views(
    spark: SparkSession, text: str, arguments: Mapping[str, Any], views: dict[str, DataFrame]
) -> tuple[str, dict[str, Any]]:
    """The statement with views in place of frames in curly brackets and of tables that it reads by path; its
    arguments by name."""
    named: Any = arguments.get(_ARGUMENTS)
    if isinstance(named, list):
        text, named = without_marks(text, named)

    def viewed(frame: DataFrame) -> str:
        name = f"mainstem_view_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        views[name] = frame
        return quoted(name)

    for start, end, frame, alias in sorted(path_mentions(spark, text), key=lambda one: -one[0]):
        told = f" AS {quoted(alias)}" if alias else ""
        text = f"{text[:start]}{viewed(frame)}{told}{text[end:]}"
    for name, value in arguments.items():
        if name == _ARGUMENTS:
            continue
        if not hasattr(value, "createOrReplaceTempView"):
            raise Unsupported(
                f"{{{name}}}: on Spark Connect curly brackets take DataFrames; values go into args"
            )
        text = text.replace(f"{{{name}}}", viewed(value))
    return text, {_ARGUMENTS: named} if named else {}


def _check_parts(spark: SparkSession, statement: RowStatement, arguments: Mapping[str, Any]) -> None:
    """Raises ``Invalid`` if the parts of a statement are not those that the server's parser finds in it, and
    ``ParseException`` as Spark does."""
    if any(one.is_word("EVOLUTION") for one in list(tokens(statement.text))[:4]):
        raise Unsupported(
            "MERGE WITH SCHEMA EVOLUTION: new columns come with an upsert (write_batch), or ALTER TABLE ADD"
            " COLUMNS in Hudi"
        )
    bracketed = statement.text
    for part in sorted(filter(None, _parts(statement)), key=lambda part: -part.at):
        bracketed = f"{bracketed[: part.at]}({part}\n) {bracketed[part.at + len(part) :]}"
    with _whole_plans(spark):
        plain, again = (_parsed(spark, text, arguments) for text in (statement.text, bracketed))
    if plain != again:
        raise Invalid(
            f"{statement.verb}: a part of the statement cannot be told from the next: write names that are"
            " keywords in backquotes"
        )


def _parts(statement: RowStatement) -> Iterator[Part]:
    yield statement.condition
    for one in statement.assignments:
        yield one.value
    for clause in statement.clauses:
        yield clause.condition
        for one in clause.assignments:
            yield one.value


@contextmanager
def _whole_plans(spark: SparkSession) -> Iterator[None]:
    """Plans are told to their last field."""
    before = spark.conf.get(_FIELDS)
    spark.conf.set(_FIELDS, "100000")
    try:
        yield
    finally:
        spark.conf.set(_FIELDS, str(before))


def _parsed(spark: SparkSession, text: str, arguments: Mapping[str, Any]) -> str:
    told = spark.sql(f"EXPLAIN EXTENDED {text}", **arguments).collect()[0][0]
    found = re.search(r"== Parsed Logical Plan ==\n(.*?)\n== ", told, re.S)
    if found is None:
        raise Invalid(f"the server does not say how it parses the statement: {told[:200]}")
    return _NUMBERED.sub("", found.group(1))
