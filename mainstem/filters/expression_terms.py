"""Matches functions in filters with the expression indexes that keep ranges of them.

An Arrow function stands for a Spark function only where both agree on every value that can decide a match.
Calendar fields agree for dates but not for timestamps: Java computes those in the time zone of its Spark
session, which storage does not record (so ``from_unixtime`` and ``date_format`` never match). ``upper`` and
``lower`` agree when compared for equality with ASCII texts; beyond ASCII the two engines differ.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from mainstem.filters.expression_tree import Column
from mainstem.filters.predicates import AllOf, AnyOf, Anything, Compare, OneOf, Predicate, Term
from mainstem.metadata.index_definitions import Definition

_Column = Callable[[pa.DataType], bool]

# Spark's function -> Arrow's names for it, the column types on which they agree, and the result's type.
_SAME: dict[str, tuple[tuple[str, ...], _Column, pa.DataType]] = {
    "year": (("year",), pa.types.is_date, pa.int32()),
    "month": (("month",), pa.types.is_date, pa.int32()),
    "day": (("day",), pa.types.is_date, pa.int32()),
    "length": (("utf8_length",), pa.types.is_string, pa.int32()),
    "upper": (("utf8_upper", "ascii_upper"), pa.types.is_string, pa.string()),
    "lower": (("ascii_lower",), pa.types.is_string, pa.string()),
}
_ASCII_ONLY = ("upper", "lower")


def term_kind(index: Definition, term: Term, kind: pa.DataType) -> pa.DataType | None:
    """Type of the index's values if the index covers ``term`` (of a column of type ``kind``), else None."""
    if index.function == "identity":
        return kind if term.call is None else None
    if term.call is None or index.function not in _SAME:
        return None
    names, fits, found = _SAME[index.function]
    plain = term.call.arguments == (Column(term.column),) and not term.call.options
    return found if plain and term.call.function in names and fits(kind) else None


def comparable_part(predicate: Predicate, index: Definition) -> Predicate:
    """The predicate with ``Anything`` in place of what the index's values cannot decide."""
    if index.function not in _ASCII_ONLY:
        return predicate
    if isinstance(predicate, AllOf | AnyOf):
        return type(predicate)(tuple(comparable_part(part, index) for part in predicate.parts))
    return predicate if _is_ascii_equality(predicate) else Anything()


def _is_ascii_equality(predicate: Predicate) -> bool:
    if isinstance(predicate, Compare):
        text = predicate.value.as_py()
        return predicate.operator == "==" and isinstance(text, str) and text.isascii()
    if isinstance(predicate, OneOf):
        texts = predicate.values.to_pylist()
        return not predicate.null and all(isinstance(text, str) and text.isascii() for text in texts)
    return False
