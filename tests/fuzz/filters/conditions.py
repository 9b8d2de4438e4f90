"""Random filters of every kind that pyarrow has: typed, nested, with values that stand at the edges."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.fuzz.filters.values import INF, NAN, pool, type_of

Expression = pc.Expression
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_NUMBERS = ("i", "l", "f", "d", "ts")
_TEXTS = ("t", "id", "part")
_TIMES = ("at", "mil", "loc")


def _call(function: str, arguments: Sequence[Expression], options: Any = None) -> Expression:
    return Expression._call(function, list(arguments), options)


class Conditions:
    """Filters on ``columns``, drawn by ``chance``."""

    def __init__(self, chance: random.Random, columns: Sequence[str]) -> None:
        self.chance = chance
        self.columns = [name for name in ("id", "part", "ts", *columns) if name not in ("st", "li")]
        self.nested = [name for name in columns if name in ("st", "li")]

    def condition(self, depth: int = 3) -> Expression:
        """A filter."""
        made = self.chance.random()
        if depth and made < 0.45:
            return self._joined(depth - 1)
        kinds: list[Callable[[], Expression]] = [
            self._compared, self._compared, self._compared, self._listed, self._listed, self._null,
            self._null, self._odd_compared, self._text, self._number, self._calendar, self._chosen,
            self._of_two, self._flag, self._nested, self._cast,
        ]  # fmt: skip
        return self.chance.choice(kinds)()

    # ------------------------------------------------------------------------------------------ joined

    def _joined(self, depth: int) -> Expression:
        one, other = self.condition(depth), self.condition(depth)
        how = self.chance.choice(["and", "or", "and", "or", "not", "plain and", "plain or", "xor", "if", "is",
                                  "null if", "==", "null", "and not"])  # fmt: skip
        match how:
            case "and":
                return one & other
            case "or":
                return one | other
            case "not":
                return ~(one | other) if self.chance.random() < 0.5 else ~one
            case "plain and":
                return _call("and", [one, other])
            case "plain or":
                return _call("or", [one, other])
            case "xor":
                return _call("xor", [one, other])
            case "if":
                return _call("if_else", [one, other, self.condition(0)])
            case "null if":
                last = self.chance.choice([pa.scalar(None, pa.bool_()), pa.scalar(False), pa.scalar(True)])
                return _call("if_else", [one, other, pc.scalar(last)])
            case "is":
                return one == self.chance.choice([True, False])
            case "==":
                return self.chance.choice(_COMPARISONS)(one, other)
            case "null":
                return one.is_null() if self.chance.random() < 0.5 else one.is_valid() & other
            case _:
                return _call("and_not_kleene", [one, other])

    # ------------------------------------------------------------------------------------- single columns

    def _column(self, among: Sequence[str] = ()) -> str:
        there = [name for name in self.columns if not among or name in among]
        return self.chance.choice(there or ["ts"])

    def value(self, name: str) -> pa.Scalar:
        """A value of a column's type: one that it may hold, or one beside it."""
        found = self.chance.choice([v for v in pool(name) if v is not None])
        if isinstance(found, int) and not isinstance(found, bool) and self.chance.random() < 0.3:
            found = max(min(found + self.chance.choice((-1, 1)), 2**31 - 1), -(2**31))
        elif isinstance(found, str) and self.chance.random() < 0.3:
            found = self.chance.choice([found + "a", found[:-1], found + "\U0010ffff", found * 2])
        return pa.scalar(found, type_of(name))

    def _compared(self) -> Expression:
        name = self._column()
        how, value = self.chance.choice(_COMPARISONS), pc.scalar(self.value(name))
        one = pc.field(name)
        return how(one, value) if self.chance.random() < 0.8 else how(value, one)

    def _odd_compared(self) -> Expression:
        """With a value of another type, a null or NaN."""
        name = self._column(_NUMBERS)
        values: list[Any] = [
            pa.scalar(None, type_of(name)), NAN, -NAN, INF, -INF, -0.0, 0.0, 0, 1, 1.5, 2**53 + 1,
            pa.scalar(1, pa.int8()), pa.scalar(0.1, pa.float32()), pa.scalar(2, pa.int64()),
        ]  # fmt: skip
        return self.chance.choice(_COMPARISONS)(pc.field(name), pc.scalar(self.chance.choice(values)))

    def _listed(self) -> Expression:
        name = self._column()
        values = [self.value(name).as_py() for _ in range(self.chance.choice((0, 1, 2, 5)))]
        values += [None] * self.chance.choice((0, 0, 1))
        skip = self.chance.random() < 0.3
        options = pc.SetLookupOptions(value_set=pa.array(values, type_of(name)), skip_nulls=skip)
        return _call("is_in", [pc.field(name)], options)

    def _null(self) -> Expression:
        one = pc.field(self._column())
        number = pc.field(self._column(("f", "d")))
        return self.chance.choice(
            [one.is_null(), one.is_valid(), ~one.is_null(), ~one.is_valid(), one.is_null(nan_is_null=True),
             number.is_null(nan_is_null=True), ~number.is_null(nan_is_null=True), number.is_nan(),
             ~number.is_nan(), _call("is_finite", [number]), _call("is_inf", [number]),
             _call("true_unless_null", [one])]
        )  # fmt: skip

    def _text(self) -> Expression:
        one = pc.field(self._column(_TEXTS))
        text = self.value("t" if self.chance.random() < 0.5 else "id").as_py()[
            : self.chance.choice((0, 1, 2, 9))
        ]
        any_case = self.chance.random() < 0.3
        match = pc.MatchSubstringOptions(text, ignore_case=any_case)
        shown = self.chance.choice(
            [_call("utf8_upper", [one]), _call("utf8_lower", [one]), _call("ascii_upper", [one]),
             _call("ascii_lower", [one]), _call("utf8_trim_whitespace", [one]), _call("utf8_reverse", [one]),
             _call("utf8_slice_codeunits", [one], pc.SliceOptions(0, 1)),
             _call("binary_join_element_wise", [one, one, pc.scalar("")], pc.JoinOptions())]
        )  # fmt: skip
        return self.chance.choice(
            [_call("starts_with", [one], match), _call("starts_with", [one], match),
             _call("ends_with", [one], match), _call("match_substring", [one], match),
             _call("match_like", [one], pc.MatchSubstringOptions(f"{text}%")),
             _call("utf8_length", [one]) > self.chance.choice((0, 1, 2, 300)),
             self.chance.choice(_COMPARISONS)(shown, text),
             _call("utf8_is_upper", [one]), _call("string_is_ascii", [one]),
             _call("find_substring", [one], match) >= 0]
        )  # fmt: skip

    def _number(self) -> Expression:
        one = pc.field(self._column(("f", "d", "i", "ts")))
        by = self.chance.choice((0, 1, -1, 2.5))
        made = self.chance.choice(
            [one + by, one - by, one * by, _call("negate", [one]), _call("abs", [one]), _call("sign", [one]),
             _call("floor", [one]), _call("round", [one]), one / pc.scalar(2.0),
             _call("power", [one, pc.scalar(2.0)]),
             _call("min_element_wise", [one, pc.scalar(1.0)], pc.ElementWiseAggregateOptions()),
             _call("max_element_wise", [one, pc.scalar(1.0)],
                   pc.ElementWiseAggregateOptions(skip_nulls=self.chance.random() < 0.5))]
        )  # fmt: skip
        return self.chance.choice(_COMPARISONS)(made, self.chance.choice((0, 1, 2.5, -1)))

    def _calendar(self) -> Expression:
        name = self._column(("day", *_TIMES))
        if name not in ("day", *_TIMES):
            return pc.field(name).is_valid()
        part = self.chance.choice(["year", "month", "day", "day_of_week", "quarter", "iso_year"])
        value = self.chance.choice((1, 2, 3, 4, 12, 1582, 1970, 2024, 2026, 9999))
        one = _call(part, [pc.field(name)], pc.DayOfWeekOptions() if part == "day_of_week" else None)
        return self.chance.choice([one.isin([value, 1]), self.chance.choice(_COMPARISONS)(one, value)])

    def _chosen(self) -> Expression:
        name = self._column(_NUMBERS)
        one, value = pc.field(name), pc.scalar(self.value(name))
        filled = _call("coalesce", [one, value])
        cases = _call("make_struct", [self._compared(), self._null()], pc.MakeStructOptions(["a", "b"]))
        chosen = _call("case_when", [cases, one, value, self.chance.choice([one, value])])
        other = _call("if_else", [self._compared(), one, value])
        found = self.chance.choice([filled, chosen, other])
        return self.chance.choice(_COMPARISONS)(found, pc.scalar(self.value(name)))

    def _of_two(self) -> Expression:
        """Not of decimals of two scales: pyarrow 16 filters by ``c > m`` otherwise than it compares."""
        groups = [("i", "l", "f", "d", "ts"), _TEXTS, ("at", "mil")]
        names = [[n for n in group if n in self.columns] for group in groups]
        names = [group for group in names if len(group) > 1]
        one, other = self.chance.sample(self.chance.choice(names), 2)
        return self.chance.choice(_COMPARISONS)(pc.field(one), pc.field(other))

    def _flag(self) -> Expression:
        if "y" not in self.columns:
            return pc.scalar(self.chance.choice([True, False]))
        one = pc.field("y")
        return self.chance.choice([one, ~one, one == True, one != False, pc.scalar(True), one > False])  # noqa: E712

    def _nested(self) -> Expression:
        if "st" in self.nested and self.chance.random() < 0.6:
            return self.chance.choice(
                [pc.field("st", "x") > 0, pc.field("st", "y") != 5.0, pc.field("st", "x").is_null(),
                 pc.field("st").is_valid(),
                 _call("struct_field", [pc.field("st")], pc.StructFieldOptions(["y"])) > 1]
            )  # fmt: skip
        if "li" in self.nested:
            return self.chance.choice(
                [_call("list_value_length", [pc.field("li")]) > 0, pc.field("li").is_null()]
            )
        return pc.field("ts") >= 0

    def _cast(self) -> Expression:
        name = self._column(("i", "f", "day", "y", "c", "ts"))
        to = {"i": [pa.int64(), pa.float64(), pa.string()], "f": [pa.float64()],
              "y": [pa.int32(), pa.string()],
              "day": [pa.timestamp("us"), pa.string()], "c": [pa.decimal128(20, 4), pa.float64()],
              "ts": [pa.float64(), pa.string()]}  # fmt: skip
        kind = self.chance.choice(to.get(name, [type_of(name)]))
        value = self.value(name).cast(kind)
        one = pc.field(name).cast(kind)
        return self.chance.choice(
            [self.chance.choice(_COMPARISONS)(one, pc.scalar(value)), one.isin([value])]
        )
