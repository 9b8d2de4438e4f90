"""Bucket counts per partition: rules by which the path of a partition says how many buckets it has (RFC-89).

``expression,count;expression,count``: the first expression that is found in the partition's path gives its
count, else there are ``hoodie.bucket.index.num.buckets`` (RegexRuleEngine, PartitionBucketIndexCalculator).
An expression that Java would read differently from Python is refused: a row would land in two buckets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, Unsupported
from mainstem.options.placing import BUCKET_EXPRESSIONS, BUCKET_RULE, BUCKETS

if TYPE_CHECKING:
    import numpy as np

#: white space as ``String.trim`` sees it
_BLANK = "".join(map(chr, range(33)))
_COUNT = re.compile(r"[+]?[0-9]{1,10}\Z")
# Pieces of expressions that mean the same to Java and to Python in a text without line ends.
_SAME = re.compile(
    r"""(?x)
      \\[dDwWsStfr]                       # classes of ASCII, control characters
    | \\[^A-Za-z0-9]                      # an escaped sign
    | \[\^?(?:[^\[\]\\&^]|\\[dDwWsS]|\\[^A-Za-z0-9])(?:[^\[\]\\&]|\\[dDwWsS]|\\[^A-Za-z0-9])*\]
    | \(\?[:=!]|\(\?<[=!]|\((?!\?)        # groups and looking around
    | \{[0-9]{1,4}\}                      # a comma would end the expression
    | [^\\\[\](){}]                       # any other sign
    | \)
    """
)
_LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")


@dataclass(frozen=True)
class BucketRules:
    """``expressions`` as they are given, and the count of partitions that none is found in."""

    expressions: str
    default: int

    @classmethod
    def of(cls, expressions: str, kind: str, default: int) -> BucketRules:
        """Raises ``Invalid`` for rules that Java refuses, ``Unsupported`` for those it may read otherwise."""
        if kind.upper() != BUCKET_RULE.default.upper():
            raise Unsupported(f"{BUCKET_RULE}={kind!r}: Hudi has no rules but {BUCKET_RULE.default!r}")
        _parsed(expressions)
        return cls(expressions, default)

    def counts(self, partitions: Sequence[str]) -> np.ndarray:
        """Buckets of each partition, int64."""
        import numpy as np  # not loaded by who only opens a table

        return np.array([self.count(partition) for partition in partitions], np.int64)

    def count(self, partition: str) -> int:
        """Buckets of one partition; raises ``Unsupported`` for a path with line ends."""
        if _LINE_ENDS.search(partition):
            raise Unsupported(
                f"partition {partition!r} has a line end, and {BUCKET_EXPRESSIONS} is set: Java looks for"
                " expressions in lines otherwise; leave such partitions out"
            )
        rules = _parsed(self.expressions)
        return next((count for found, count in rules if found.search(partition)), self.default)

    @property
    def most(self) -> int:
        """No partition has more."""
        return max(self.default, *(count for _, count in _parsed(self.expressions)))


@lru_cache(maxsize=64)
def _parsed(expressions: str) -> tuple[tuple[re.Pattern[str], int], ...]:
    rules = expressions.split(";")
    while len(rules) > 1 and not rules[-1]:
        rules.pop()  # as Java's split
    return tuple(_rule(text.strip(_BLANK)) for text in rules)


def _rule(text: str) -> tuple[re.Pattern[str], int]:
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    count = parts[-1].strip(_BLANK)
    if len(parts) != 2 or not _COUNT.match(count):
        raise Invalid(
            f"{BUCKET_EXPRESSIONS}: {text!r} is no rule; expected an expression without commas, a comma and a"
            " number of buckets, and a semicolon between rules, such as 2024-.*,32;2023-.*,16"
        )
    if not BUCKETS.low <= int(count) <= BUCKETS.high:
        raise Invalid(f"{BUCKET_EXPRESSIONS}: {text!r} has no count from {BUCKETS.low} to {BUCKETS.high}")
    return _compiled(parts[0].strip(_BLANK)), int(count)


def _compiled(expression: str) -> re.Pattern[str]:
    at = 0
    while at < len(expression):
        piece = _SAME.match(expression, at)
        if piece is None:
            raise Unsupported(
                f"{BUCKET_EXPRESSIONS}: {expression!r} has {expression[at : at + 8]!r} at {at}, which Java"
                " may read differently; use plain characters, \\d \\w \\s and their opposites, classes such"
                " as [0-9_], groups, | and * + ? {n}"
            )
        at = piece.end()
    try:
        return re.compile(expression, re.ASCII)
    except re.error as error:
        raise Invalid(f"{BUCKET_EXPRESSIONS}: {expression!r} is no regular expression: {error}") from error
