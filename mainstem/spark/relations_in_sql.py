"""Tables of this source that a statement reads, as views: by path, by the catalog, as of a time, by function.

Spark refuses mainstem.`/path` in a query, gives a Python source nothing of a catalog table but its schema,
has no time travel for it, and no table functions but those of the JVM. So each such relation, whose place in
the text Spark's own parser tells, is replaced by a temporary view of what it means. The views exist while
Spark analyses the statement. A temporary view of this source is left alone.

A query is analysed on stand-ins first, which tells the columns and rows of each table that it needs
(``pushed_down``): Spark asks a Python source for all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.options.reading import AS_OF, AS_OF_COMPLETION
from mainstem.spark.index_sql import is_view
from mainstem.spark.index_syntax import tokens
from mainstem.spark.options import COLUMNS, FILTER, ReadOptions
from mainstem.spark.pushed_down import Needs, items, needs, quoted, stand_in, widened
from mainstem.spark.reads_in_tasks import read_in_tasks
from mainstem.spark.session_options import session_options
from mainstem.spark.source_readers import schema_of
from mainstem.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TablePath = Callable[[Sequence[str]], str | None]
"""The base path of a table of this source by the parts of its name; None for others"""
Function = Callable[["SparkSession", str, list[Any]], "DataFrame"]
"""A table function of Hudi: the path of its table and its other arguments to its rows"""

_RELATION, _TRAVEL, _ALIAS = "UnresolvedRelation", "RelationTimeTravel", "SubqueryAlias"
_FUNCTION, _CTES = "UnresolvedTableValuedFunction", "UnresolvedWith"
# An option of relations that are written to (``UnresolvedRelation.REQUIRED_WRITE_PRIVILEGES``).
_WRITTEN = "__required_write_privileges__"


@dataclass(frozen=True)
class Relation:
    """A relation in a statement: its range in the text, the parts of its name, whether it has an alias.
    ``as_of``: the text of a time to travel to; ``function``: the parts name a table function."""

    start: int
    end: int
    parts: tuple[str, ...]
    aliased: bool
    as_of: str = ""
    is_version: bool = False
    function: bool = False


def relations_in(plan: Any, text: str) -> list[Relation]:
    """What a parsed statement reads, in the order of its text; names of its own WITH are left out."""
    found: dict[int, Relation] = {}
    ctes = set()
    for node, above in _nodes(plan, None):
        kind = node.nodeName()
        if kind == _CTES:
            for name in _ctes(node):
                ctes.add(name.lower())
        relation = _relation(node, above, text) if kind in (_RELATION, _TRAVEL, _FUNCTION) else None
        if relation is not None:
            found[relation.start] = relation
    return [
        relation
        for _, relation in sorted(found.items())
        if relation.function or len(relation.parts) > 1 or relation.parts[0].lower() not in ctes
    ]


def _ctes(node: Any) -> Iterator[str]:
    for inner in items(node.innerChildren()):
        if inner.nodeName() == _ALIAS:
            yield inner.alias()


def _relation(node: Any, above: Any, text: str) -> Relation | None:
    aliased = above is not None and above.nodeName() == _ALIAS
    origin = node.origin()
    if not origin.startIndex().isDefined():
        return None
    start, end = origin.startIndex().get(), origin.stopIndex().get() + 1
    if node.nodeName() == _FUNCTION:
        call = text[start:end]
        parts = tuple(items(node.name()))
        return Relation(start, start + _closing(call), parts, aliased, function=True)
    if node.nodeName() == _RELATION:
        if node.options().size():
            return None  # it is written to, or has options of its own: FROM t WITH (path='...')
        return Relation(start, end, tuple(items(node.multipartIdentifier())), aliased)
    inner = node.relation()
    if inner.nodeName() != _RELATION:
        return None
    words = [token for token in tokens(text[start:end]) if token.kind == "word"]
    of = next(token for token in words if token.is_word("OF"))
    value = text[start + of.at + 2 : end]
    begin = inner.origin().startIndex().get()
    version = node.version().isDefined()
    return Relation(begin, end, tuple(items(inner.multipartIdentifier())), aliased, value, version)


def _closing(call: str) -> int:
    """Where a call ends."""
    depth = 0
    for token in tokens(call):
        depth += token.is_sign("(") - token.is_sign(")")
        if token.is_sign(")") and not depth:
            return token.at + 1
    return len(call)


def _nodes(plan: Any, above: Any) -> Iterator[tuple[Any, Any]]:
    """Every node of a parsed plan, those of CTEs and subqueries too, with the node above it."""
    yield plan, above
    for child in items(plan.children()):
        yield from _nodes(child, plan)
    if plan.nodeName() == _CTES:
        for inner in items(plan.innerChildren()):
            yield from _nodes(inner, plan)
    if plan.nodeName() == "ExplainCommand":
        yield from _nodes(plan.logicalPlan(), plan)
    for expression in items(plan.expressions()):
        yield from _in_expression(expression)


def _in_expression(expression: Any) -> Iterator[tuple[Any, Any]]:
    if expression.nodeName() in ("ScalarSubquery", "Exists", "ListQuery"):
        yield from _nodes(expression.plan(), None)
    if expression.nodeName() == "InSubquery":
        yield from _in_expression(expression.query())
    for child in items(expression.children()):
        yield from _in_expression(child)


@contextmanager
def replaced(
    spark: SparkSession,
    plan: Any,
    text: str,
    table_path: TablePath,
    functions: Mapping[str, Function],
    arguments: Mapping[str, Any],
    moment: Callable[[str], str | None] | None = None,
) -> Iterator[str]:
    """The statement with views in place of relations of this source; views last as long as the block.

    ``moment``: the completion time as of which a table at a path is read; without it the newest rows are.
    """
    views: dict[str, DataFrame | _Read] = {}
    try:
        for relation in reversed(relations_in(plan, text)):
            found = _frame(spark, relation, text, table_path, functions, arguments, moment)
            if found is None:
                continue
            name = f"mainstem_view_{uuid.uuid4().hex}"
            views[name] = found
            alias = "" if relation.aliased or relation.function else f" AS {quoted(relation.parts[-1])}"
            text = f"{text[: relation.start]}{quoted(name)}{alias}{text[relation.end :]}"
        frames = _narrowed(spark, plan, text, views, arguments)
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield text
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


# Statements that only ask: carried out on stand-ins, anything else might change something.
_QUERIES = (
    "Project", "Filter", "Aggregate", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Distinct", "Join",
    "Union", "Except", "Intersect", "UnresolvedHaving", "WithWindowDefinition", "SubqueryAlias",
)  # fmt: skip


def _narrowed(
    spark: SparkSession,
    plan: Any,
    text: str,
    views: Mapping[str, DataFrame | _Read],
    arguments: Mapping[str, Any],
) -> dict[str, DataFrame]:
    """The views' frames; of a query they read the columns and rows that it needs."""
    from pyspark.errors import PySparkException

    reads = {name: view for name, view in views.items() if isinstance(view, _Read)}
    made = {name: view for name, view in views.items() if not isinstance(view, _Read)}
    query = plan.children().apply(0) if plan.nodeName() == _CTES else plan
    if reads and query.nodeName() in _QUERIES:
        guesses = {name: stand_in(spark, read.schema) for name, read in reads.items()}
        for name, frame in {**made, **guesses}.items():
            frame.createOrReplaceTempView(name)
        try:
            asked = spark.sql(text, **arguments)
            wanted = {name: needs(asked, guess) for name, guess in guesses.items()}
        except PySparkException:
            wanted = {}  # Spark says what is wrong when it sees the tables
        return {**made, **{name: read.shown(spark, wanted.get(name)) for name, read in reads.items()}}
    return {**made, **{name: read.shown(spark, None) for name, read in reads.items()}}


@dataclass(frozen=True)
class _Read:
    """A table that a statement reads: its path, options, and all of its columns."""

    path: str
    options: Mapping[str, str]
    schema: StructType

    def shown(self, spark: SparkSession, wanted: Needs | None) -> DataFrame:
        """The table's columns; those that are not needed are null."""
        options = dict(self.options)
        columns = () if wanted is None else wanted.columns or (self._narrowest(),)
        if columns and not any("," in name for name in columns):
            options[COLUMNS] = ",".join(columns)
        if wanted is not None and wanted.filter:
            options[FILTER] = wanted.filter
        if wanted is None:
            read = spark.read.format("mainstem").options(**options).load(self.path)
        else:
            read = read_in_tasks(spark, self.path, options)
        return widened(read, self.schema) if COLUMNS in options else read

    def _narrowest(self) -> str:
        """A column to count rows by."""
        small = ("boolean", "byte", "short", "integer", "date", "long", "float", "double", "timestamp")
        found = {field.dataType.typeName(): field.name for field in self.schema.fields}
        return next((found[kind] for kind in small if kind in found), self.schema.names[0])


def _frame(
    spark: SparkSession,
    relation: Relation,
    text: str,
    table_path: TablePath,
    functions: Mapping[str, Function],
    arguments: Mapping[str, Any],
    moment: Callable[[str], str | None] | None,
) -> DataFrame | _Read | None:
    if relation.function:
        made = functions.get(relation.parts[-1].lower()) if len(relation.parts) == 1 else None
        if made is None:
            return None
        call = text[relation.start : relation.end]
        given = values(spark, call[call.index("(") + 1 : -1], arguments)
        return made(spark, path_of(given, relation.parts[-1], table_path), given[1:])
    temporary = len(relation.parts) == 1 and not relation.as_of and is_view(spark, relation.parts)
    path = None if temporary else table_path(relation.parts)
    if path is None:
        return None
    if relation.as_of:
        return _read(spark, path, {AS_OF: _time(spark, relation, arguments)})
    if moment is not None and (completion := moment(path)) is not None:
        return _read(spark, path, {AS_OF_COMPLETION: completion})
    return _read(spark, path, {})


def _read(spark: SparkSession, path: str, options: Mapping[str, str]) -> _Read:
    return _Read(path, options, spark_schema(_checked(spark, path, options)))


def _checked(spark: SparkSession, path: str, options: Mapping[str, str]) -> pa.Schema:
    """The columns. Options are looked at here first: an error of Spark's planner buries the sentence in a
    traceback."""
    return schema_of(ReadOptions.parse({**options, "path": path}, below=session_options(spark)))


def shown(spark: SparkSession, path: str, options: Mapping[str, str]) -> DataFrame:
    """A read of the table."""
    _checked(spark, path, options)
    return spark.read.format("mainstem").options(**options).load(path)


def _time(spark: SparkSession, relation: Relation, arguments: Mapping[str, Any]) -> str:
    """The time of TIMESTAMP AS OF or VERSION AS OF. An instant's time as Hudi writes it, also as a number; a
    date, or a timestamp, whose text is in the session's time zone, as Spark shows it."""
    found = values(spark, relation.as_of, arguments)[0]
    if found is None:
        raise Invalid(f"{'.'.join(relation.parts)}: the time to travel to is null")
    return str(found)


def values(spark: SparkSession, text: str, arguments: Mapping[str, Any]) -> list[Any]:
    """Expressions without columns, separated by commas, as Spark evaluates them; times as texts."""
    if not text.strip():
        return []
    row = spark.sql(f"SELECT {text}\n", **arguments)
    row = row.toDF(*(f"c{number}" for number in range(len(row.columns))))
    times = [f.name for f in row.schema if f.dataType.typeName().startswith(("timestamp", "date"))]
    shown = [f"CAST({name} AS STRING)" if name in times else name for name in row.columns]
    return list(row.selectExpr(*shown).collect()[0])


def path_of(given: Sequence[Any], what: str, table_path: TablePath) -> str:
    """The path of the table that the first argument of a function or procedure names, by name or by path."""
    from mainstem.api.given_options import shared_location
    from mainstem.spark.index_syntax import table_parts
    from mainstem.storage.backends import names_place

    name = given[0] if given else None
    if not isinstance(name, str) or not name:
        raise Invalid(f"{what}: the first argument is a table's name or path, as a text; found {name!r}")
    path = shared_location(name).base if names_place(name) else table_path(table_parts(name))
    if path is None:
        raise Invalid(f"{what}: {name!r} is no table of this source that Spark knows, and no path")
    return path


