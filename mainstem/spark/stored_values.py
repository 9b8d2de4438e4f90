"""Values as Spark stores them in a column (``spark.sql.storeAssignmentPolicy``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid
from mainstem.spark.in_tasks import is_connect
from mainstem.spark.pushed_down import items

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Storing:
    """How a session stores values. ``verb`` and ``table`` are for messages."""

    spark: SparkSession
    verb: str
    table: str

    def alike(self, one: str, other: str) -> bool:
        """Whether two names are one, by ``spark.sql.caseSensitive``."""
        if str(self.spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
            return one == other
        return one.lower() == other.lower()

    def __call__(
        self, column: Column, found: DataType, wanted: DataType, name: str, *, literal: bool = False
    ) -> Column:
        """``column`` of type ``found`` in the type of the table's column ``name``. ``literal``: it is a text
        in the statement, which may be a number or a time, as in Hudi.

        Raises ``Invalid`` for types that do not fit; a value that does not fit fails the query, whether or
        not the session is in ANSI mode.
        """
        from pyspark.sql import functions as F

        if found == wanted:
            return column
        policy = str(self.spark.conf.get("spark.sql.storeAssignmentPolicy")).upper()
        fits = self._may_store(found, wanted, policy)
        if policy != "LEGACY" and not fits and not (literal and found.typeName() == "string"):
            raise Invalid(
                f"{self.verb}: a value of type {found.simpleString()} is assigned to {name!r}, which is"
                f" {wanted.simpleString()}: cast it (spark.sql.storeAssignmentPolicy is {policy})",
                table=self.table,
            )
        stored = column.cast(wanted)
        if policy == "LEGACY" or str(self.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true":
            return stored
        message = F.lit(f"{self.verb}: a value does not fit into {name} {wanted.simpleString()}")
        return F.when(column.isNotNull() & stored.isNull(), F.raise_error(message)).otherwise(stored)

    def _may_store(self, found: DataType, wanted: DataType, policy: str) -> bool:
        if is_connect(self.spark):
            return _told_here(found, wanted, policy)
        jvm, parse = self.spark._jvm, self.spark._jsparkSession.parseDataType
        assert jvm is not None
        cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
        types = parse(found.json()), parse(wanted.json())
        return bool(cast.canUpCast(*types) if policy == "STRICT" else cast.canANSIStoreAssign(*types))


_WHOLE = ("byte", "short", "integer", "long")
_NUMERIC = (*_WHOLE, "float", "double", "decimal")
_TIMES = ("date", "timestamp", "timestamp_ntz")
_PLAIN = (*_NUMERIC, *_TIMES, "string", "binary", "boolean")


def _told_here(found: DataType, wanted: DataType, policy: str) -> bool:
    """``Cast.canUpCast`` and ``canANSIStoreAssign`` where there is no JVM: of nested types only equal ones,
    and of numbers under STRICT only wider integers."""
    one, other = found.typeName(), wanted.typeName()
    if found == wanted or one == "void":
        return True
    if policy == "STRICT":
        return is_wider_whole(found, wanted)
    numbers = one in _NUMERIC and other in _NUMERIC
    return numbers or (one in _PLAIN and other == "string") or (one in _TIMES and other in _TIMES)


def is_wider_whole(found: DataType, wanted: DataType) -> bool:
    """Whether both are types of whole numbers, and the second holds all values of the first."""
    one, other = found.typeName(), wanted.typeName()
    return one in _WHOLE and other in _WHOLE and _WHOLE.index(one) <= _WHOLE.index(other)


def same_values(found: DataType, wanted: DataType) -> bool:
    """Whether values of two types are equal if and only if they are once stored."""
    return found == wanted or is_wider_whole(found, wanted)


def texts_of(query: DataFrame, name: str) -> list[str] | None:
    """The texts that stand in a statement for a column of its query, as ``'1000'`` does in
    ``USING (SELECT '1000' AS ts)``; None if its values come from elsewhere, too.

    The column is such a text, or one of CASE WHEN.
    """
    plan = query._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Project":
        return None
    known = _texts_below(plan.child())
    value = next((one for one in items(plan.projectList()) if one.name() == name), None)
    if value is None or value.nodeName() != "Alias":
        return None
    inner = value.child()
    if inner.nodeName() != "CaseWhen":
        return _texts(inner, known)
    branches = [_texts(branch._2(), known) for branch in items(inner.branches())]
    return None if None in branches else [text for texts in branches for text in texts or ()]


_Texts = dict[int, list[str]]


def _texts(expression: Any, known: _Texts) -> list[str] | None:
    kind = expression.nodeName()
    if kind == "Literal" and expression.dataType().typeName() == "string":
        return [] if expression.value() is None else [expression.toString()]
    return known.get(expression.exprId().id()) if kind == "AttributeReference" else None


def _texts_below(plan: Any) -> _Texts:
    """The texts of a plan's columns, by id. A view's are not in the statement."""
    kind = plan.nodeName()
    if kind not in ("Project", "SubqueryAlias", "Filter", "Join", "Union", "Distinct", "Sort"):
        return {}
    below = [_texts_below(child) for child in items(plan.children())]
    if kind == "Union":
        columns = [[_texts(one, known) for one in items(child.output())]
                   for child, known in zip(items(plan.children()), below, strict=True)]  # fmt: skip
        of_all = zip(items(plan.output()), zip(*columns, strict=True), strict=True)
        return {
            one.exprId().id(): [text for texts in found for text in texts or ()]
            for one, found in of_all
            if None not in found
        }
    known = {number: texts for one in below for number, texts in one.items()}
    if kind != "Project":
        return known
    made = {}
    for one in items(plan.projectList()):
        texts = _texts(one.child() if one.nodeName() == "Alias" else one, known)
        if texts is not None:
            made[one.exprId().id()] = texts
    return made
