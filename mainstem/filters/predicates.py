"""What a filter demands of single columns: comparisons, lists of values, nulls and text prefixes, joined by
``and`` and ``or``. Any other condition becomes ``Anything``, which may hold for every row.

A predicate is never stricter than its filter: if no row of a file can pass the predicate, no row passes the
filter. Bounds are compared by the same kernels that compare rows, with the same implicit casts. A NaN passes
no comparison except ``!=``, so ranges need not record whether a column has any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.filters.expression_tree import Call, Column, Literal, Node, tree


@dataclass(frozen=True)
class Term:
    """A column or, with ``call``, a function of that column."""

    column: str
    call: Call | None = None


@dataclass(frozen=True)
class Compare:
    """``term operator value``; the value is neither null nor NaN."""

    term: Term
    operator: str
    value: pa.Scalar


@dataclass(frozen=True)
class OneOf:
    """The term is one of ``values`` (none of them null) or, if ``null``, is null."""

    term: Term
    values: pa.Array
    null: bool


@dataclass(frozen=True)
class IsNull:
    """The term is null or, if ``negated``, is not null."""

    term: Term
    negated: bool


@dataclass(frozen=True)
class StartsWith:
    """A text begins with ``text``."""

    term: Term
    text: str


@dataclass(frozen=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Anything:
    """A condition that may hold for every row."""


Leaf = Compare | OneOf | IsNull | StartsWith
Predicate = Leaf | AllOf | AnyOf | Anything

_COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
                "greater_equal": ">="}  # fmt: skip
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_MATCH_NULLS, _SKIP_NULLS = 0, 1  # SetLookupOptions::NullMatchingBehavior


def conjuncts(expression: pc.Expression | None) -> list[Predicate]:
    """Predicates that every row passing the filter satisfies; parts that say nothing are left out."""
    found = None if expression is None else tree(expression)
    predicate = Anything() if found is None else _predicate(found)
    parts = predicate.parts if isinstance(predicate, AllOf) else (predicate,)
    return [part for part in parts if not isinstance(part, Anything)]


def leaves(predicate: Predicate) -> Iterable[Leaf]:
    """The leaves of a predicate."""
    if isinstance(predicate, AllOf | AnyOf):
        for part in predicate.parts:
            yield from leaves(part)
    elif not isinstance(predicate, Anything):
        yield predicate


def _predicate(node: Node) -> Predicate:
    if isinstance(node, Column):  # a bare boolean column
        return Compare(Term(node.name), "==", pa.scalar(True))
    if not isinstance(node, Call):
        return Anything()
    made = _PREDICATES.get(node.function)
    if made is not None:
        return made(node)
    if node.function in _COMPARISONS and len(node.arguments) == 2:
        return _comparison(_COMPARISONS[node.function], *node.arguments)
    return Anything()


def _all(node: Call) -> Predicate:
    parts: list[Predicate] = []
    for argument in node.arguments:
        part = _predicate(argument)
        parts.extend(part.parts if isinstance(part, AllOf) else (part,))
    parts = [part for part in parts if not isinstance(part, Anything)]
    return AllOf(tuple(parts)) if parts else Anything()


def _any(node: Call) -> Predicate:
    parts = tuple(_predicate(argument) for argument in node.arguments)
    return Anything() if any(isinstance(part, Anything) for part in parts) else AnyOf(parts)


def _if_else(node: Call) -> Predicate:
    """``if_else(condition, x, null)``, as DuckDB writes IN: both ``condition`` and ``x`` must hold."""
    condition, found, otherwise = node.arguments
    if not isinstance(otherwise, Literal) or otherwise.value.as_py() not in (None, False):
        return Anything()
    return _all(Call("and_kleene", (condition, found)))


def _not(node: Call) -> Predicate:
    """The exact opposite, nulls and NaN included; ``Anything`` where there is none."""
    (argument,) = node.arguments
    if isinstance(argument, Column):
        return Compare(Term(argument.name), "==", pa.scalar(False))
    inner = _predicate(argument)
    return IsNull(inner.term, not inner.negated) if isinstance(inner, IsNull) else Anything()


def _null(node: Call) -> Predicate:
    term = _term(node.arguments[0])
    nan = node.options.get("nan_is_null")
    return Anything() if term is None or nan is None or nan.as_py() is not False else IsNull(term, False)


def _valid(node: Call) -> Predicate:
    term = _term(node.arguments[0])
    return Anything() if term is None else IsNull(term, True)


def _one_of(node: Call) -> Predicate:
    term, held = _term(node.arguments[0]), node.options.get("value_set")
    behavior = node.options.get("null_matching_behavior")
    if term is None or not isinstance(held, pa.ListScalar) or held.values is None or behavior is None:
        return Anything()
    values, how = held.values, behavior.as_py()
    if how not in (_MATCH_NULLS, _SKIP_NULLS) or pa.types.is_floating(values.type):  # is_in equates NaNs
        return Anything()
    return OneOf(term, values.drop_null(), bool(values.null_count) and how == _MATCH_NULLS)


def _starts_with(node: Call) -> Predicate:
    term, pattern = _term(node.arguments[0]), node.options.get("pattern")
    ignores = node.options.get("ignore_case")
    if term is None or pattern is None or ignores is None or ignores.as_py() is not False:
        return Anything()
    text = pattern.as_py()
    return StartsWith(term, text) if isinstance(text, str) and text else Anything()


def _comparison(operator: str, left: Node, right: Node) -> Predicate:
    if isinstance(left, Literal):
        left, right, operator = right, left, _MIRRORED.get(operator, operator)
    term = _term(left)
    if term is None or not isinstance(right, Literal):
        return Anything()
    value = right.value
    nan = pa.types.is_floating(value.type) and value.is_valid and value.as_py() != value.as_py()
    return Compare(term, operator, value) if value.is_valid and not nan else Anything()


def _term(node: Node) -> Term | None:
    """The node as a column or a function of one column and constants; None for anything else."""
    if isinstance(node, Column):
        return Term(node.name)
    names = set(_columns(node))
    return Term(names.pop(), node) if isinstance(node, Call) and len(names) == 1 else None


def _columns(node: Node) -> Iterable[str]:
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _columns(argument)


_PREDICATES: dict[str, Callable[[Call], Predicate]] = {
    "and_kleene": _all, "and": _all, "or_kleene": _any, "or": _any, "invert": _not,
    "if_else": _if_else, "is_null": _null, "is_valid": _valid, "is_in": _one_of, "starts_with": _starts_with,
}  # fmt: skip


# ------------------------------------------------------------------------------------------- lists of values


def listed(predicate: Predicate) -> tuple[Term, pa.Array] | None:
    """The term and its values if the predicate allows finitely many; None otherwise, and for floats."""
    if isinstance(predicate, Compare) and predicate.operator == "==":
        values = pa.repeat(predicate.value, 1)
        return None if pa.types.is_floating(values.type) else (predicate.term, values)
    if isinstance(predicate, OneOf) and not predicate.null:
        return predicate.term, predicate.values
    if isinstance(predicate, AnyOf):
        found = [listed(part) for part in predicate.parts]
        first = found[0]
        if first is None or any(f is None or f[0] != first[0] or f[1].type != first[1].type for f in found):
            return None
        return first[0], pa.concat_arrays([f[1] for f in found if f is not None])
    return None


# ---------------------------------------------------------------------------------------------------- ranges


@dataclass(frozen=True)
class Ranges:
    """What is known of a term in each of several files.

    ``low``, ``high``: bounds of the values, null where unknown. ``nulls``: the file may hold nulls;
    ``values``: it may hold other values. A file with nothing known has no bounds and may hold both.
    """

    low: pa.Array
    high: pa.Array
    nulls: np.ndarray
    values: np.ndarray


def may_match(predicate: Predicate, known: Mapping[Term, Ranges], files: int) -> np.ndarray:
    """Which files may hold a row that passes; a term without ranges may have any value."""
    if isinstance(predicate, AllOf | AnyOf):
        parts = [may_match(part, known, files) for part in predicate.parts]
        return np.logical_and.reduce(parts) if isinstance(predicate, AllOf) else np.logical_or.reduce(parts)
    ranges = None if isinstance(predicate, Anything) else known.get(predicate.term)
    if ranges is None or isinstance(predicate, Anything):
        return np.ones(files, bool)
    try:
        return _leaf(predicate, ranges)
    except (pa.ArrowException, TypeError):  # values that do not compare: reading the rows will report it
        return np.ones(files, bool)


def _leaf(leaf: Leaf, ranges: Ranges) -> np.ndarray:
    if isinstance(leaf, IsNull):
        return ranges.values if leaf.negated else ranges.nulls
    if isinstance(leaf, OneOf):
        found = ranges.values & _holds_one(leaf.values, ranges)
        return found | ranges.nulls if leaf.null else found
    if isinstance(leaf, StartsWith):
        after = _successor(leaf.text)
        found = _true(pc.greater_equal(ranges.high, pa.scalar(leaf.text, ranges.high.type)))
        if after is not None:
            found &= _true(pc.less(ranges.low, pa.scalar(after, ranges.low.type)))
        return ranges.values & found
    return ranges.values & _compared(leaf.operator, leaf.value, ranges)


def _compared(operator: str, value: pa.Scalar, ranges: Ranges) -> np.ndarray:
    low, high = ranges.low, ranges.high
    if operator == "==":
        return _true(pc.less_equal(low, value)) & _true(pc.greater_equal(high, value))
    if operator == "<":
        return _true(pc.less(low, value))
    if operator == "<=":
        return _true(pc.less_equal(low, value))
    if operator == ">":
        return _true(pc.greater(high, value))
    if operator == ">=":
        return _true(pc.greater_equal(high, value))
    if pa.types.is_floating(low.type) or pa.types.is_floating(value.type):
        return np.ones(len(low), bool)  # a NaN differs from every value
    return _true(pc.not_equal(low, value)) | _true(pc.not_equal(high, value))


def _holds_one(values: pa.Array, ranges: Ranges) -> np.ndarray:
    """Whether any of the values lies within each file's bounds."""
    if not _alike(values.type, ranges.low.type):
        return np.ones(len(ranges.low), bool)
    values = pc.unique(values.cast(ranges.low.type))
    values = values.take(pc.sort_indices(values))
    if not len(values):
        return np.zeros(len(ranges.low), bool)
    found = _true(pc.less_equal(ranges.low, values[-1])) & _true(pc.greater_equal(ranges.high, values[0]))
    bounded = pc.and_(ranges.low.is_valid(), ranges.high.is_valid()).to_numpy(zero_copy_only=False)
    for at in np.flatnonzero(found & bounded).tolist():
        inside = pc.and_(
            pc.greater_equal(values, ranges.low[at]), pc.less_equal(values, ranges.high[at])
        )
        found[at] = pc.any(inside).as_py()
    return found


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a cast between the types changes no value."""
    types = pa.types
    texts = (types.is_string, types.is_large_string)
    return (
        one == other
        or (types.is_integer(one) and types.is_integer(other))
        or (any(is_text(one) for is_text in texts) and any(is_text(other) for is_text in texts))
    )


def _successor(text: str) -> str | None:
    """The least text greater than all that begin with ``text``; None if its last letter has no successor."""
    last = ord(text[-1]) + 1
    return None if last > 0x10FFFF or 0xD800 <= last < 0xE000 else text[:-1] + chr(last)


def _true(mask: pa.Array) -> np.ndarray:
    """The mask as numpy; a comparison with an unknown bound (null) may be true."""
    return pc.fill_null(mask, True).to_numpy(zero_copy_only=False).astype(bool)
