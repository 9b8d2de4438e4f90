"""Parses filters written as text, a subset of SQL's conditions: ``price >= 10``, ``city in ('oslo', 'rome')
and not (closed is null or name like 'a%')``.

    filter     all ("or" all)*
    all        one ("and" one)*
    one        "not" one | "(" filter ")" | COLUMN, where it is true or false | COLUMN test
    test       OP VALUE | "is" ["not"] "null" | ["not"] "in" "(" VALUE ("," VALUE)* ")"
               | ["not"] "between" VALUE "and" VALUE | ["not"] "like" VALUE
    OP         = == != <> < <= > >=

A value is read in its column's type. It is either quoted (a doubled quote inside stands for one) or reaches
to the next "and", "or" or closing bracket. Rows for which SQL says neither true nor false do not pass.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.limits import FILTER_CONDITIONS_MAX, FILTER_DEPTH_MAX

_END = r"(?=[\s()]|$)"  # end of a word
_NAME = re.compile(r"`((?:[^`]|``)+)`|([^\s=!<>()`]+)")
_OPERATOR = re.compile(r"==|=|!=|<>|<=|>=|<|>")
_QUOTED = re.compile(r"(?:(?:date|timestamp)\s*)?(?:'((?:[^']|'')*)'|\"((?:[^\"]|\"\")*)\")", re.I)
# A piece of an unquoted value: a quoted text, the word that ends the value, or any other character.
_PIECE = re.compile(rf"'[^']*'|\"[^\"]*\"|(?P<joint>(?<=\s)(?:and|or){_END})|.", re.I | re.S)
_PLAIN_LIKE = re.compile(r"([^%_\\]*)(%?)", re.S)
_OPERATIONS: dict[str, Callable[..., pc.Expression]] = {
    "=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
#: Exact for all values except NaN. Indexes can use a comparison, but not the negation of one.
_OPPOSITES = {
    operator.eq: operator.ne, operator.ne: operator.eq, operator.lt: operator.ge, operator.ge: operator.lt,
    operator.gt: operator.le, operator.le: operator.gt,
}  # fmt: skip

#: Returns a condition's expression or, called with True, that of its negation. Negation thus reaches only
#: leaves, and above them SQL's false and unknown need no telling apart: ``or`` and ``and`` pass neither.
_Condition = Callable[[bool], pc.Expression]


def conditions(text: str, schema: pa.Schema, what: str) -> pc.Expression:
    """The filter that a text means for rows of ``schema``.

    Raises ``Invalid``; its message begins with ``what``, the place that holds the text.
    """
    return _Reader(text, schema, what).filter()


class _Reader:
    def __init__(self, text: str, schema: pa.Schema, what: str) -> None:
        self._text = text
        self._schema = schema
        self._what = what
        self._at = 0
        self._depth = 0
        self._conditions = 0

    def filter(self) -> pc.Expression:
        found = self._any()
        if self._rest():
            self._fail("'and', 'or' or its end")
        return found(False)

    # -- conditions ----------------------------------------------------------------------------------

    def _any(self) -> _Condition:
        parts = [self._all()]
        while self._took("or"):
            parts.append(self._all())
        return partial(_joined, parts, operator.or_, operator.and_)

    def _all(self) -> _Condition:
        parts = [self._one()]
        while self._took("and"):
            parts.append(self._one())
        return partial(_joined, parts, operator.and_, operator.or_)

    def _one(self) -> _Condition:
        negated = False
        while self._took("not"):
            negated = not negated
        if self._match(r"\("):
            self._depth += 1
            if self._depth > FILTER_DEPTH_MAX:
                self._fail(f"at most {FILTER_DEPTH_MAX} brackets nested")
            inner = self._any()
            self._close()
            self._depth -= 1
        else:
            inner = self._leaf()
        return (lambda asked: inner(not asked)) if negated else inner

    def _leaf(self) -> _Condition:
        at = self._at
        name = self._name()
        self._count()
        column, kind = pc.field(name), self._schema.field(name).type
        if self._took("is"):
            wanted = self._took("not")
            self._word("null")
            return lambda negated: column.is_valid() if wanted != negated else column.is_null()
        unlike = self._took("not")
        found: _Condition
        if self._took("in"):
            found = partial(_one_of, column, self._list(kind))
        elif self._took("between"):
            low = self._value(kind)
            self._word("and")
            found = partial(_between, column, low, self._value(kind))
        elif self._took("like"):
            found = self._like(column, kind)
        elif unlike:
            self._fail("'in', 'between' or 'like'")
        elif operation := self._match(_OPERATOR.pattern):
            return partial(_compared, column, _OPERATIONS[operation], self._value(kind))
        elif pa.types.is_boolean(kind) and not self._upto_joint().strip():
            return lambda negated: ~column if negated else column
        else:
            self._at = at
            self._fail("COLUMN OP VALUE, such as 'price >= 10', or COLUMN is null, in, between, like")
        return lambda negated: found(unlike != negated)

    def _like(self, column: pc.Expression, kind: pa.DataType) -> _Condition:
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            self._fail(f"another condition: 'like' is for texts, the column holds {kind}")
        pattern = self._value(kind).as_py()
        plain = _PLAIN_LIKE.fullmatch(pattern)
        if plain is None:
            found = pc.match_like(column, pattern)
        elif plain.group(2):
            found = pc.starts_with(column, plain.group(1))
        else:
            found = column == pa.scalar(pattern, kind)
        return lambda negated: ~found if negated else found

    # -- values --------------------------------------------------------------------------------------

    def _list(self, kind: pa.DataType) -> list[pa.Scalar]:
        if not self._match(r"\("):
            self._fail("(")
        found = [self._value(kind, ",")]
        while self._match(","):
            found.append(self._value(kind, ","))
            if pa.types.is_floating(kind):
                self._count()
        self._close()
        return found

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > FILTER_CONDITIONS_MAX:
            least = f"at most {FILTER_CONDITIONS_MAX} conditions"
            self._fail(f"{least} ('in' counts as one, or as one per value for a floating point column)")

    def _value(self, kind: pa.DataType, ends: str = "") -> pa.Scalar:
        """The next value; ``ends``: characters that end an unquoted one, besides an unmatched ")"."""
        self._match("")
        quoted = _QUOTED.match(self._text, self._at)
        behind = "" if quoted is None else self._text[quoted.end() : quoted.end() + 1]
        if quoted is not None and (not behind or behind.isspace() or behind in f"){ends}"):
            self._at = quoted.end()
            single, double = quoted.groups()
            given = double.replace('""', '"') if single is None else single.replace("''", "'")
        else:
            text = self._upto_joint(ends)
            given = text.strip()
            if not given:
                self._fail("a value")
            if given.lower() == "null":
                self._fail("a value ('is null' finds nulls; quote the word to mean the text)")
            self._at += len(text)
        try:
            return pa.scalar(given).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            zone = getattr(kind, "tz", None)
            hint = ", such as '2026-11-22 10:00:00Z'" if zone else ""
            raise Invalid(f"{self._what} {self._text!r}: {given!r} does not read as {kind}{hint}") from error

    def _upto_joint(self, ends: str = "") -> str:
        """The text from here to the end of an unquoted value."""
        depth = 0
        for piece in _PIECE.finditer(self._text, self._at):
            content = piece.group()
            if piece["joint"] or (depth == 0 and (content == ")" or content in ends)):
                return self._text[self._at : piece.start()]
            depth += (content == "(") - (content == ")")
        return self._text[self._at :]

    # -- words ---------------------------------------------------------------------------------------

    def _name(self) -> str:
        self._match("")
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail("COLUMN OP VALUE")
        self._at = found.end()
        name = found.group(2) or found.group(1).replace("``", "`")
        names = self._schema.names
        alike = [name] if name in names else [each for each in names if each.lower() == name.lower()]
        if len(alike) != 1:
            there = ", ".join(names)
            raise Invalid(f"{self._what} {self._text!r}: no column {name!r}; there are {there}")
        return alike[0]

    def _took(self, word: str) -> bool:
        return bool(self._match(word + _END))

    def _word(self, word: str) -> None:
        if not self._took(word):
            self._fail(f"'{word}'")

    def _close(self) -> None:
        if not self._match(r"\)"):
            self._fail(")")

    def _match(self, pattern: str) -> str:
        """Skip blanks, then take and return what matches ``pattern`` ("" if nothing does)."""
        found = re.compile(rf"\s*({pattern}|)", re.I).match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        return found.group(1)

    def _rest(self) -> str:
        return self._text[self._at :].strip()

    def _fail(self, expected: str) -> NoReturn:
        rest = self._rest()
        where = f" at {rest[:40]!r}" if rest else " at its end"
        raise Invalid(f"{self._what} {self._text!r}{where}: expected {expected}")


# -- expressions -------------------------------------------------------------------------------------


def _joined(
    parts: Sequence[_Condition],
    join: Callable[..., pc.Expression],
    opposite: Callable[..., pc.Expression],
    negated: bool,
) -> pc.Expression:
    """Join the parts as a balanced tree: everything that walks an expression recurses."""
    found = [part(negated) for part in parts]
    join = opposite if negated else join
    while len(found) > 1:
        pairs = [join(one, other) for one, other in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[len(pairs) * 2 :]
    return found[0]


def _compared(
    column: pc.Expression, operation: Callable[..., pc.Expression], value: pa.Scalar, negated: bool
) -> pc.Expression:
    if not negated:
        return operation(column, value)
    if pa.types.is_floating(value.type):  # a NaN is neither below nor above
        return ~operation(column, value)
    return _OPPOSITES[operation](column, value)


def _one_of(column: pc.Expression, values: Sequence[pa.Scalar], negated: bool) -> pc.Expression:
    kind = values[0].type
    if pa.types.is_floating(kind):  # Arrow's is_in tells 0.0 from -0.0
        equal = [partial(_compared, column, operator.eq, value) for value in values]
        return _joined(equal, operator.or_, operator.and_, negated)
    found = column.isin(pa.array(values, kind))
    return ~found & column.is_valid() if negated else found


def _between(column: pc.Expression, low: pa.Scalar, high: pa.Scalar, negated: bool) -> pc.Expression:
    bounds = [
        partial(_compared, column, operator.ge, low), partial(_compared, column, operator.le, high)
    ]  # fmt: skip
    return _joined(bounds, operator.and_, operator.or_, negated)
