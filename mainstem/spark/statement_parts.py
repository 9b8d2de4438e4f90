"""Whether the parts that were cut out of a statement (``row_syntax``) are those that Spark's parser found in
it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, Unsupported
from mainstem.spark.row_syntax import (
    BY_SOURCE,
    MATCHED,
    MERGE,
    NOT_MATCHED,
    UPDATE,
    Assignment,
    Clause,
    RowStatement,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERED = re.compile(r"#\d+|\(\d+\)")


def check_parts(spark: SparkSession, statement: RowStatement) -> None:
    """Raises ``Invalid`` if the parts of a statement are not those that Spark's parser found in it."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    plan = parser.parsePlan(statement.text)
    if plan.nodeName() == "UnresolvedWith":
        plan = plan.children().apply(0)
    for part, found in _found(plan, statement):
        ours = parser.parseExpression(part) if part else None
        if ours is None or _NUMBERED.sub("", ours.toString()) != _NUMBERED.sub("", found.toString()):
            raise Invalid(
                f"{statement.verb}: a part of the statement cannot be told from the next"
                f" ({statement.place(max(0, statement.text.find(part)))}): write names that are keywords in"
                " backquotes"
            )


def _found(plan: Any, statement: RowStatement) -> Iterator[tuple[str, Any]]:
    """(a part, the expression that Spark's parser found)."""
    if statement.verb == MERGE:
        if plan.withSchemaEvolution():
            raise Unsupported(
                "MERGE WITH SCHEMA EVOLUTION: new columns come with an upsert (write_batch), or ALTER TABLE"
                " ADD COLUMNS in Hudi"
            )
        yield statement.condition, plan.mergeCondition()
        for kind, actions in (
            (MATCHED, plan.matchedActions()),
            (NOT_MATCHED, plan.notMatchedActions()),
            (BY_SOURCE, plan.notMatchedBySourceActions()),
        ):
            clauses = [clause for clause in statement.clauses if clause.kind == kind]
            if len(clauses) != actions.size():
                raise Invalid("MERGE: its WHEN clauses cannot be told apart; write keywords in backquotes")
            for number, clause in enumerate(clauses):
                yield from _found_in(clause, actions.apply(number))
        return
    if statement.verb == UPDATE:
        yield from _assigned(statement.assignments, plan.assignments())
        if plan.condition().isDefined():
            yield statement.condition, plan.condition().get()
    elif statement.condition:
        yield statement.condition, plan.condition()


def _found_in(clause: Clause, action: Any) -> Iterator[tuple[str, Any]]:
    if action.condition().isDefined():
        yield clause.condition, action.condition().get()
    if clause.assignments:
        yield from _assigned(clause.assignments, action.assignments())


def _assigned(ours: Sequence[Assignment], theirs: Any) -> Iterator[tuple[str, Any]]:
    if len(ours) != theirs.size():
        raise Invalid("the statement's assignments cannot be told apart; write keywords in backquotes")
    for number, one in enumerate(ours):
        yield one.value, theirs.apply(number).value()
