"""What a MERGE may learn from its source before it joins it.

A source that gives the same rows in every look can be looked at for its keys first: rows of the table with
other keys are then left unread (``Keys``), or left out where they are read (``is_sent``), rather than handed
to Spark, shuffled and sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.options.reading import AS_OF_COMPLETION
from mainstem.spark.index_sql import is_own
from mainstem.spark.job_descriptions import described
from mainstem.spark.pushed_down import items, nodes, quoted
from mainstem.spark.row_syntax import RowStatement
from mainstem.spark.stored_values import same_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from mainstem.spark.stored_values import Storing

# Nodes of plans that give the same rows however often they are evaluated, if their expressions do.
_PLAIN = (
    "Project", "Filter", "SubqueryAlias", "View", "Union", "LogicalRDD", "LocalRelation", "OneRowRelation",
    "Range",
)  # fmt: skip
_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery", "InSubquery")
# Types whose values Spark and Arrow compare alike. 0.0 equals -0.0 in Spark.
_COMPARED = ("string", "byte", "short", "integer", "long", "date")


def is_fixed(spark: SparkSession, statement: RowStatement, arguments: Mapping[str, Any]) -> bool:
    """Whether the source of a MERGE gives the same rows in two looks: a selection without chance, from what
    does not change meanwhile. A row that only the second look shows would be taken for a new one.
    """
    from pyspark.errors import PySparkException

    if _has_subquery(_parsed(spark, statement.condition)):
        return False
    text, looks = f"{statement.head}SELECT * FROM {statement.source}", []
    patterns = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    try:
        for _ in range(2):
            plan = spark.sql(text, **arguments)._jdf.queryExecution().analyzed()
            looks.append([_seen_of(spark, node) for node, _ in nodes(plan)])
    except PySparkException:
        return False  # LATERAL and its like; the whole query says what is wrong
    # Each query has a time of its own: of rows until now() the second look has more.
    timed = any(node.containsPattern(patterns.CURRENT_LIKE()) for node, _ in nodes(plan))
    return None not in looks[0] and looks[0] == looks[1] and not timed and bool(plan.deterministic())


def is_sent(spark: SparkSession, query: DataFrame) -> bool:
    """Whether Spark sends what it needs of the source to every task, to leave rows out."""
    return any(
        node.nodeName() == "Join" and node.joinType().toString() == "LeftSemi"
        and _is_small(spark, node.right())
        for node, _ in nodes(query._jdf.queryExecution().optimizedPlan())
    )  # fmt: skip


@dataclass(frozen=True)
class Keys:
    """What columns of the table equal in the source of a MERGE, by ON; ``found`` has a column for each of
    ``types``, the names and types of those of the table."""

    found: DataFrame
    types: tuple[tuple[str, pa.DataType], ...]
    table: str

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        statement: RowStatement,
        storing: Storing,
        schemas: tuple[StructType, pa.Schema],
        arguments: Mapping[str, Any],
    ) -> Keys | None:
        """None where ON demands no equality with a column of the source, of types that compare alike, and
        where the keys are more than Spark would send to every task. ``schemas``: the table's, Spark's and
        Arrow's."""
        from pyspark.errors import PySparkException

        wanted, shown = schemas
        pairs = dict(_pairs(_parsed(spark, statement.condition), statement, storing, wanted.names))
        pairs = {name: of for name, of in pairs.items() if wanted[name].dataType.typeName() in _COMPARED}
        if not pairs:
            return None
        source = quoted(statement.source_name)
        selected = ", ".join(f"{source}.{quoted(of)} AS {quoted(column)}" for column, of in pairs.items())
        try:
            found = spark.sql(f"{statement.head}SELECT {selected} FROM {statement.source}", **arguments)
        except PySparkException:
            return None  # s.id is a field of a struct s of the table
        given = {field.name: field.dataType for field in found.schema}
        alike = [name for name in pairs if same_values(given[name], wanted[name].dataType)]
        if not alike or not _is_small(spark, found._jdf.queryExecution().optimizedPlan()):
            return None
        types = tuple((column, shown.field(column).type) for column in alike)
        return cls(found.select(*map(quoted, alike)), types, storing.table)

    def filter(self) -> pc.Expression:
        """What the rows of the table pass that ON can match; runs a job."""
        with described(self.found.sparkSession.sparkContext, f"MERGE into {self.table}: collect keys"):
            rows = self.found.toArrow()
        lists = [
            pc.field(name).isin(pc.drop_null(pc.unique(rows.column(name))).cast(kind))
            for name, kind in self.types
        ]
        return reduce(and_, lists)


def _is_small(spark: SparkSession, plan: Any) -> bool:
    bound = int(spark._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold())
    return bool(plan.stats().sizeInBytes() <= bound)


def _pairs(
    condition: Any, statement: RowStatement, storing: Storing, names: list[str]
) -> Iterator[tuple[str, str]]:
    """(column of the table, column of the source that it equals) in every row that ON matches."""
    kind = condition.nodeName()
    if kind == "And":
        yield from _pairs(condition.left(), statement, storing, names)
        yield from _pairs(condition.right(), statement, storing, names)
    sides = [condition.left(), condition.right()] if kind == "EqualTo" else []
    if not sides or not statement.source_name or any(s.nodeName() != "UnresolvedAttribute" for s in sides):
        return
    one, other = (tuple(items(side.nameParts())) for side in sides)
    for of_table, of_source in ((one, other), (other, one)):
        if len(of_table) != 2 or len(of_source) != 2:
            continue
        if not storing.alike(of_table[0], statement.qualifier):
            continue
        if storing.alike(of_source[0], statement.source_name):
            yield from ((name, of_source[1]) for name in names if storing.alike(name, of_table[1]))


def _parsed(spark: SparkSession, expression: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parseExpression(expression)


def _seen_of(spark: SparkSession, node: Any) -> object:
    """What a node of a source's plan reads, the same as long as that is; None where that may change."""
    if is_own(node):
        return node.options().get(AS_OF_COMPLETION)
    if node.nodeName() != "LogicalRelation":
        return node.nodeName() if node.nodeName() in _PLAIN else None
    relation = node.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return None  # another system, which is asked twice
    files = relation.location()
    if files.getClass().getSimpleName() != "InMemoryFileIndex":
        return None  # it lists again
    return spark._jvm.java.lang.System.identityHashCode(files)


def _has_subquery(expression: Any) -> bool:
    here = expression.nodeName() in _SUBQUERIES
    return here or any(_has_subquery(child) for child in items(expression.children()))
