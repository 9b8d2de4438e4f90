"""Which columns of a table a query needs, and which of its rows: told by Spark's optimizer.

Spark tells a Python source neither. So the query is analysed on a stand-in without rows first. What the
optimizer asks of it are the options ``columns`` and ``filter`` of the read. Spark filters again, so a
condition that cannot be said in a filter's words is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COMPARED = {
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
}  # fmt: skip
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Types of which Spark and our readers order and compare values alike, written as in SQL.
_NUMBERS = ("byte", "short", "integer", "long")
_VALUES_MAX = 1000
_LEAF = "LogicalRDD"


@dataclass(frozen=True)
class Needs:
    """``columns`` in the table's order; ``filter``: text for the source's option, "" for all rows."""

    columns: tuple[str, ...]
    filter: str


def stand_in(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame of these columns of which the optimizer does not know that it has no rows."""
    from pyspark.sql import DataFrame

    session = spark._jsparkSession
    nothing = spark.sparkContext._jsc.emptyRDD()  # of the JVM: Python's would be pickled and read back
    return DataFrame(session.createDataFrame(nothing, session.parseDataType(schema.json())), spark)


def needs(query: DataFrame, table: DataFrame) -> Needs:
    """What ``query`` needs of ``table``, a ``stand_in`` within it."""
    there = {
        attribute.exprId().id(): attribute.name()
        for attribute in items(table._jdf.queryExecution().analyzed().output())
    }
    names = set(there.values())
    wanted: set[str] = set()
    filters: list[str | None] = []
    optimized = query._jdf.queryExecution().optimizedPlan()
    for node, above in nodes(optimized, None):
        if node.nodeName() != _LEAF:
            continue
        output = {a.exprId().id(): a.name() for a in items(node.output())}
        if list(output.values()) != list(there.values()):
            continue
        wanted |= _used(optimized, output)
        condition = above.condition() if above is not None and above.nodeName() == "Filter" else None
        filters.append(None if condition is None else _all_said(condition, output))
    if not filters:  # optimized away
        return Needs((), "")
    whole = [text for text in filters if text]
    filter = " or ".join(f"({text})" for text in whole) if len(whole) == len(filters) else ""
    return Needs(tuple(name for name in table.columns if name in wanted & names), filter)


def widened(read: DataFrame, schema: StructType) -> DataFrame:
    """All of the table's columns; those that were not read are null, and nobody looks at them."""
    from pyspark.sql import functions as F

    there = set(read.columns)
    nothing = F.lit(None)
    return read.select(
        *(
            F.col(quoted(f.name)) if f.name in there else nothing.cast(f.dataType).alias(f.name)
            for f in schema
        )
    )


def _used(plan: Any, output: dict[int, str]) -> set[str]:
    found: set[str] = set()
    for node, _ in nodes(plan, None):
        if node.nodeName() == _LEAF:
            continue
        for attribute in items(node.references().toSeq()):
            name = output.get(attribute.exprId().id())
            if name is not None:
                found.add(name)
    for attribute in items(plan.output()):
        name = output.get(attribute.exprId().id())
        if name is not None:
            found.add(name)
    return found


def nodes(plan: Any, above: Any = None) -> Iterator[tuple[Any, Any]]:
    """Every node below a plan, with the one above it; plans of subqueries too."""
    yield plan, above
    for child in items(plan.children()):
        yield from nodes(child, plan)
    for inner in items(plan.subqueries()):
        yield from nodes(inner, None)


def items(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    for number in range(sequence.size()):
        yield sequence.apply(number)


# -- conditions ---------------------------------------------------------------------------------------


def _all_said(condition: Any, output: dict[int, str]) -> str:
    """Those of the conditions joined by AND that can be said."""
    if condition.nodeName() == "And":
        both = [_all_said(condition.left(), output), _all_said(condition.right(), output)]
        return " and ".join(filter(None, both))
    return _said(condition, output) or ""


def _said(condition: Any, output: dict[int, str]) -> str | None:
    kind = condition.nodeName()
    if kind in ("And", "Or"):
        left, right = _said(condition.left(), output), _said(condition.right(), output)
        return f"({left} {kind.lower()} {right})" if left and right else None
    if kind in ("IsNull", "IsNotNull"):
        name = _column(condition.child(), output)
        return f"{name} is {'not ' if kind == 'IsNotNull' else ''}null" if name else None
    if kind in _COMPARED:
        return _comparison(condition, output, _COMPARED[kind])
    if kind == "In":
        values = [_value(one) for one in items(condition.list())]
        return _among(_column(condition.value(), output), values)
    return None


def _comparison(condition: Any, output: dict[int, str], sign: str) -> str | None:
    name, value = _column(condition.left(), output), _value(condition.right())
    if name is None:
        name, value, sign = _column(condition.right(), output), _value(condition.left()), _TURNED[sign]
    return f"{name} {sign} {value}" if name and value is not None else None


def _among(name: str | None, values: list[str | None]) -> str | None:
    if name is None or not values or len(values) > _VALUES_MAX or None in values:
        return None
    return f"{name} in ({', '.join(str(value) for value in values)})"


def _column(expression: Any, output: dict[int, str]) -> str | None:
    if expression.nodeName() != "AttributeReference":
        return None
    name = output.get(expression.exprId().id())
    return None if name is None else quoted(name)


def quoted(name: str) -> str:
    """A name as it stands in SQL and in filters."""
    return "`" + name.replace("`", "``") + "`"


def _value(expression: Any) -> str | None:
    """A literal of a type whose values all agree on; None for anything else."""
    if expression.nodeName() != "Literal" or expression.value() is None:
        return None
    kind, text = expression.dataType().typeName(), expression.toString()
    if kind in _NUMBERS:
        return str(text)
    if kind == "string":
        return "'" + text.replace("'", "''") + "'"
    return None
