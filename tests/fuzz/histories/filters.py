"""Filters drawn by chance, from the expressions that pyarrow has."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.fuzz.histories.values import Kind, column, draw

_COMPARE = (pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal)


def expression(
    kinds: dict[str, Kind], chance: random.Random, seen: dict[str, list[Any]], depth: int = 0
) -> pc.Expression:
    """A condition on some columns; ``seen``: values that the table holds."""
    which = chance.random()
    if depth < 3 and which < 0.35:
        left, right = (expression(kinds, chance, seen, depth + 1) for _ in range(2))
        return left & right if chance.random() < 0.5 else left | right
    if depth < 3 and which < 0.45:
        return ~expression(kinds, chance, seen, depth + 1)
    name = chance.choice([n for n, kind in kinds.items() if not pa.types.is_nested(kind.arrow)])
    return _condition(name, kinds[name], chance, seen.get(name, []))


def _condition(name: str, kind: Kind, chance: random.Random, seen: list[Any]) -> pc.Expression:
    field = pc.field(name)
    which = chance.random()
    if which < 0.12:
        return chance.choice((field.is_null(), field.is_valid(), field.is_null(nan_is_null=True)))
    if which < 0.3:
        values = [_literal(kind, chance, seen) for _ in range(chance.randrange(4))]
        return field.isin(column([v for v in values if v is not None], kind))
    if pa.types.is_floating(kind.arrow) and which < 0.4:
        return chance.choice((pc.is_nan, pc.is_finite, pc.is_inf))(field)
    if pa.types.is_string(kind.arrow) and which < 0.55:
        text = _literal(kind, chance, seen) or "a"
        return chance.choice(
            (pc.starts_with(field, text[:2]), pc.ends_with(field, text[-1:]),
             pc.match_substring(field, text[:3]), pc.match_like(field, text[:2].replace("\\", "") + "%"),
             pc.equal(pc.utf8_upper(field), text), pc.greater(pc.utf8_length(field), len(text)))
        )  # fmt: skip
    if kind.name == "bool" and which < 0.6:
        return field
    literal = _scalar(_literal(kind, chance, seen), kind)
    compare = chance.choice(_COMPARE)
    if pa.types.is_integer(kind.arrow) and which < 0.65:
        return compare(
            field, pa.scalar(chance.choice((0.5, 1e300, float("nan"), float("inf"), -0.0, 2.0**63)))
        )
    if pa.types.is_integer(kind.arrow) and which < 0.7:
        return compare(pc.add(field.cast(pa.float64()), 1.5), 3.0)
    if chance.random() < 0.15:
        return compare(literal, field)
    return compare(field, literal)


def _literal(kind: Kind, chance: random.Random, seen: list[Any]) -> Any:
    known = [v for v in seen if v is not None]
    if known and chance.random() < 0.6:
        return chance.choice(known)
    return draw(kind, chance, 0.4, 0.0)


def _scalar(value: Any, kind: Kind) -> pc.Expression:
    return pc.scalar(column([value], kind)[0])
