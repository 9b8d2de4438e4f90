"""The cases in which a compaction changes the effect of a later write, by a table's merge rules.

A base file holds only rows. Logs also hold deletes and the order of requested times; a compaction drops
both. So a row or delete that arrives after it may have a different effect than without the compaction.
These are Hudi's rules; Java behaves the same. ``tests/model`` enumerates every short history and finds
exactly these cases. Where our compactions keep deletes (``services.kept_deletes``), fewer histories are left.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.merge.rules import MergeRules
from mainstem.options.tables import KEEP_TOMBSTONES


@dataclass(frozen=True)
class Caution:
    """One case. ``name``: as in docs/services.md; ``text``: one sentence that says what happens."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


CROSSING = "crossing write"
LATE = "late row"
COVERED = "covered delete"
TWO_KINDS = "two kinds of deletes"
REGROUPED = "late partial rows"

_CROSSING_ALWAYS = Caution(
    CROSSING,
    "a write that is in flight while a compaction is planned lies on top of the rows that the compaction"
    " took in, also of those requested later",
)
_CROSSING_ON_TIES = Caution(
    CROSSING,
    "a write that is in flight while a compaction is planned wins against rows that the compaction took in"
    " with the same ordering value, also if they were requested later; a delete() that crosses deletes them,"
    " and a row that crosses is not deleted by a delete() that the compaction took in",
)
_LATE = Caution(
    LATE,
    "a compaction forgets deletes and their ordering values: a row that arrives later with a smaller one"
    " comes back",
)
_LATE_THOUGH_KEPT = Caution(
    LATE,
    "a compaction forgets a delete and its ordering value if a write that began after the delete is still in"
    f" flight when the compaction ends, if Java compacts, and after as many hours as {KEEP_TOMBSTONES} says:"
    " a row with a smaller ordering value comes back then",
)
_COVERED = Caution(
    COVERED,
    "where a key is deleted and written again between two compactions, the base file's older row is not"
    " forgotten: it wins if its ordering value is greater, and fills in columns that the new row leaves"
    " out",
)
_TWO_KINDS = Caution(
    TWO_KINDS,
    "behind a delete() in the logs a delete with an ordering value does nothing; once a compaction took in"
    " one of the two, it deletes rows with smaller ordering values",
)
_TWO_KINDS_IN_ORDER = Caution(
    TWO_KINDS,
    "of a delete() and a delete with an ordering value the later one counts: a compaction that one of them"
    " crosses changes which one that is; and where a delete with a smaller ordering value follows a delete()"
    " in the logs, the base file's older row is back",
)
_TWO_KINDS_IN_A_TREE = Caution(
    TWO_KINDS,
    "of a delete() and a delete with an ordering value the later one counts: a compaction that one of them"
    " crosses changes which one that is",
)
_REGROUPED = Caution(
    REGROUPED,
    "columns of late partial rows are filled in from other rows if a compaction lies between them",
)


def cautions(rules: MergeRules, *, kept: bool = False) -> tuple[Caution, ...]:
    """The cases that can happen to a table, the most likely first.

    ``kept``: our compactions keep deletes that have ordering values. These are of rows that are marked as
    deletes (``_hoodie_is_deleted``, a delete marker), and in every table of SQL's statements on Spark and of
    Flink's updating queries. For tables that a user's function merges, the answer depends on that function.
    """
    covered = () if rules.one_by_one else (_COVERED,)
    if not rules.ordering:
        return (_CROSSING_ALWAYS, *covered) if rules.partial else (_CROSSING_ALWAYS,)
    two_kinds = _TWO_KINDS_IN_ORDER if rules.deletes_in_order else _TWO_KINDS
    two_kinds = _TWO_KINDS_IN_A_TREE if rules.one_by_one else two_kinds
    found = (_LATE_THOUGH_KEPT if kept else _LATE, _CROSSING_ON_TIES, *covered, two_kinds)
    return (*found, _REGROUPED) if rules.partial else found
