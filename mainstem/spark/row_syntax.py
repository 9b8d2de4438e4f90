"""The parts of DELETE, UPDATE and MERGE statements, as slices of their text.

Spark's own parser has read a statement, or will, before anything is done. The parts are cut at
keywords outside of brackets and CASE ... END, and go into queries word for word; nothing is written anew,
which could change what it means. ``row_statements`` compares them with what Spark's parser found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mainstem.errors import Invalid
from mainstem.spark.index_syntax import Token, place, tokens

DELETE, UPDATE, MERGE, INSERT = "DELETE", "UPDATE", "MERGE", "INSERT"
_OPENING, _CLOSING = ("(", "["), (")", "]")


class Part(str):
    """A part of a statement's text. ``at``: where it begins."""

    at: int

    def __new__(cls, text: str = "", at: int = 0) -> Part:
        made = super().__new__(cls, text)
        made.at = at
        return made


_NO_PART = Part()


@dataclass(frozen=True)
class Assignment:
    """``column`` (the parts of its name) = ``value``."""

    column: tuple[str, ...]
    value: Part
    at: int


@dataclass(frozen=True)
class Clause:
    """A WHEN clause. ``kind``: MATCHED, NOT MATCHED or BY SOURCE; ``action``: UPDATE, INSERT or DELETE.
    ``star``: UPDATE SET * or INSERT *. ``condition`` is empty where there is none."""

    kind: str
    action: str
    condition: Part = _NO_PART
    star: bool = False
    assignments: tuple[Assignment, ...] = ()
    at: int = 0


MATCHED, NOT_MATCHED, BY_SOURCE = "MATCHED", "NOT MATCHED", "BY SOURCE"


@dataclass(frozen=True)
class RowStatement:
    """A statement on the rows of ``table`` (the parts of its name). ``qualifier``: how expressions name it.
    ``head``: a WITH before it. ``condition``: of WHERE or ON. ``source``: what MERGE uses, with its alias."""

    verb: str
    table: tuple[str, ...]
    qualifier: str
    text: str
    head: str = ""
    condition: Part = _NO_PART
    assignments: tuple[Assignment, ...] = ()
    source: str = ""
    source_name: str = ""
    clauses: tuple[Clause, ...] = ()

    def place(self, at: int) -> str:
        """A position in the statement, for messages."""
        return place(self.text, at)


def verb_of(text: str) -> str | None:
    """DELETE, UPDATE or MERGE, if the statement may be one of these; None for others."""
    found = [token for token in _begin(text) if token.is_word(DELETE, UPDATE, MERGE)]
    return found[0].text.upper() if found else None


def _begin(text: str) -> list[Token]:
    """The first word, or all words outside of brackets behind WITH."""
    known = list(tokens(text))
    if not known or not known[0].is_word("WITH"):
        return known[:1]
    depths = _depths(known)
    return [token for token, depth in zip(known, depths, strict=True) if not depth]


def _depths(known: Sequence[Token]) -> list[int]:
    """How many brackets and CASEs are open at each token; an opening or closing one counts as inside."""
    found, depth = [], 0
    for number, token in enumerate(known):
        named = number > 0 and known[number - 1].is_sign(".")
        sign = token.text if token.kind in ("sign", "strange") else ""
        opens = sign in _OPENING or (not named and token.is_word("CASE"))
        closes = sign in _CLOSING or (not named and depth > 0 and token.is_word("END"))
        depth += opens
        found.append(depth)
        depth -= closes
    return found


def parts_of(text: str) -> RowStatement:
    """The parts of a statement that Spark's parser accepts."""
    return _Parts(text).statement()


class _Parts:
    def __init__(self, text: str) -> None:
        known = list(tokens(text))
        while known and known[-1].is_sign(";"):
            known.pop()
        self._text = text
        self._end = known[-1].at + _length(text, known[-1]) if known else 0
        self._known = [*known, Token("end", "", self._end)]
        self._depths = [*_depths(known), 0]

    def statement(self) -> RowStatement:
        start = self._find(0, DELETE, UPDATE, MERGE)
        head = self._slice(0, start)
        verb = self._known[start].text.upper()
        first = {DELETE: start + 2, UPDATE: start + 1}.get(verb)
        table, alias, at = self._table(self._find(start, "INTO") + 1 if first is None else first)
        known = RowStatement(verb, table, alias or table[-1], self._text, head)
        end = len(self._known) - 1
        if verb == DELETE:
            return replace(known, condition=self._slice(at + 1, end))
        if verb == UPDATE:
            where = self._find(at, "WHERE", otherwise=end)
            given = self._assignments(at + 1, where)
            return replace(known, assignments=given, condition=self._slice(where + 1, end))
        return self._merge(known, at)

    def _merge(self, known: RowStatement, using: int) -> RowStatement:
        on = self._find(using, "ON")
        first = self._clause_at(on)
        source, name = self._source(using + 1, on)
        clauses = []
        start = first
        while start < len(self._known) - 1:
            end = self._clause_at(start + 1)
            clauses.append(self._clause(start, end))
            start = end
        condition = self._slice(on + 1, first)
        return replace(
            known, condition=condition, source=source, source_name=name, clauses=tuple(clauses)
        )

    def _source(self, start: int, on: int) -> tuple[str, str]:
        """The text of a source, and the name by which expressions know it."""
        last = self._known[on - 1]
        return self._slice(start, on), "" if last.text == ")" and last.kind == "sign" else last.text

    def _clause_at(self, start: int) -> int:
        for number in range(start, len(self._known) - 1):
            token, after = self._known[number], self._known[number + 1]
            if not self._depths[number] and token.is_word("WHEN") and after.is_word("MATCHED", "NOT"):
                return number
        return len(self._known) - 1

    def _clause(self, start: int, end: int) -> Clause:
        at = start + 1
        kind = MATCHED
        if self._known[at].is_word("NOT"):
            kind, at = NOT_MATCHED, at + 1
        at += 1
        if self._known[at].is_word("BY"):
            kind = BY_SOURCE if self._known[at + 1].is_word("SOURCE") else NOT_MATCHED
            at += 2
        then = self._find(at, "THEN")
        condition = self._slice(at + 1, then) if self._known[at].is_word("AND") else _NO_PART
        action = self._known[then + 1].text.upper()
        known = Clause(kind, action, condition, at=self._known[start].at)
        if action == DELETE:
            return known
        body = then + 2 + (action == UPDATE)
        if self._known[body].text == "*":
            return replace(known, star=True)
        given = self._assignments(body, end) if action == UPDATE else self._inserted(body, end)
        return replace(known, assignments=given)

    def _assignments(self, start: int, end: int) -> tuple[Assignment, ...]:
        found = []
        for low, high in self._pieces(start, end, 0):
            equal = next(n for n in range(low, high) if self._known[n].is_sign("="))
            column = tuple(token.text for token in self._known[low:equal] if not token.is_sign("."))
            found.append(Assignment(column, self._slice(equal + 1, high), self._known[low].at))
        return tuple(found)

    def _inserted(self, start: int, end: int) -> tuple[Assignment, ...]:
        """(columns) VALUES (expressions)."""
        values = self._find(start, "VALUES")
        columns = list(self._pieces(start + 1, values - 1, 1))
        given = list(self._pieces(values + 2, end - 1, 1))
        return tuple(
            Assignment(
                tuple(token.text for token in self._known[low:high] if not token.is_sign(".")),
                self._slice(*value),
                self._known[low].at,
            )
            for (low, high), value in zip(columns, given, strict=True)
        )

    def _pieces(self, start: int, end: int, depth: int) -> list[tuple[int, int]]:
        """Ranges between commas."""
        cuts = [n for n in range(start, end) if self._known[n].is_sign(",") and self._depths[n] == depth]
        return list(zip([start, *(cut + 1 for cut in cuts)], [*cuts, end], strict=True))

    def _table(self, at: int) -> tuple[tuple[str, ...], str, int]:
        """(parts of its name, its alias or "", the token behind)."""
        parts = [self._known[at].text]
        while self._known[at + 1].is_sign("."):
            at += 2
            parts.append(self._known[at].text)
        at += 1
        if self._known[at].is_word("AS"):
            return tuple(parts), self._known[at + 1].text, at + 2
        if self._known[at].kind == "end" or self._known[at].is_word("SET", "WHERE", "USING"):
            return tuple(parts), "", at
        return tuple(parts), self._known[at].text, at + 1

    def _find(self, start: int, *words: str, otherwise: int | None = None) -> int:
        for number in range(start, len(self._known)):
            if not self._depths[number] and self._known[number].is_word(*words):
                return number
        if otherwise is None:
            raise Invalid(
                f"{' or '.join(words)} is not found in the statement: names that are keywords stand in"
                f" backquotes ({place(self._text, self._known[min(start, len(self._known) - 1)].at)})"
            )
        return otherwise

    def _slice(self, start: int, end: int) -> Part:
        """The text from one token to before another."""
        if start >= end:
            return _NO_PART
        at = self._known[start].at
        return Part(self._text[at : self._known[end].at if end < len(self._known) else None], at)


def _length(text: str, token: Token) -> int:
    """How long a token is in its text, with quotes."""
    later = next((other.at for other in tokens(text) if other.at > token.at), len(text))
    return later - token.at


def without_marks(text: str, arguments: list[object]) -> tuple[str, dict[str, object]]:
    """A statement whose parameters ``?`` have names, and their values by name: parts of it can then stand in
    any order."""
    marks = [token.at for token in tokens(text) if token.kind == "strange" and token.text == "?"]
    if len(marks) != len(arguments):
        raise Invalid(f"the statement has {len(marks)} parameters (?), {len(arguments)} values are given")
    names = [f"mainstem_parameter_{number}" for number in range(len(marks))]
    for at, name in reversed(list(zip(marks, names, strict=True))):
        text = f"{text[:at]}:{name}{text[at + 1 :]}"
    return text, dict(zip(names, arguments, strict=True))


# What joins or compares within a condition, besides = and AND.
_OTHERS = ("OR", "NOT", "BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IS", "DISTINCT", "EXISTS")
_COMPARING = "<>!&|^~"


def equal_sides(condition: str) -> list[tuple[str, str]] | None:
    """Both sides of each equality of a condition that is nothing but equalities joined by AND."""
    known = list(tokens(condition))
    depths = _depths(known)
    while len(known) > 1 and known[0].is_sign("(") and _closes_last(depths):
        known, depths = known[1:-1], [depth - 1 for depth in depths[1:-1]]
    pieces = _cut(known, depths, lambda token: token.is_word("AND"))
    found: list[tuple[str, str]] = []
    for piece in pieces:
        if any(_compares(token) for token, depth in piece if not depth):
            return None
        sides = _cut([t for t, _ in piece], [d for _, d in piece], lambda token: token.is_sign("="))
        if len(sides) == 1 and len(pieces) > 1 and piece and piece[0][0].is_sign("("):
            inner = equal_sides(_text_of(condition, piece))
            if inner is None:
                return None
            found += inner
        elif len(sides) != 2 or not all(sides):
            return None
        else:
            found.append((_text_of(condition, sides[0]), _text_of(condition, sides[1])))
    return found


def _compares(token: Token) -> bool:
    return token.is_word(*_OTHERS) or (token.kind == "strange" and token.text in _COMPARING)


def _text_of(text: str, piece: Sequence[tuple[Token, int]]) -> str:
    last = piece[-1][0]
    return text[piece[0][0].at : last.at + _length(text, last)].strip()


def _closes_last(depths: Sequence[int]) -> bool:
    """Whether the bracket that opens first closes last."""
    return all(depth >= 1 for depth in depths)


def _cut(
    known: Sequence[Token], depths: Sequence[int], ends: Callable[[Token], bool]
) -> list[list[tuple[Token, int]]]:
    pieces: list[list[tuple[Token, int]]] = [[]]
    for token, depth in zip(known, depths, strict=True):
        if not depth and ends(token):
            pieces.append([])
        else:
            pieces[-1].append((token, depth))
    return pieces


def name_parts(text: str) -> tuple[str, ...]:
    """The parts of a name, if a text is nothing else."""
    known = list(tokens(text))
    named = known[::2] and all(token.kind in ("word", "quoted") for token in known[::2])
    dots = all(token.is_sign(".") for token in known[1::2])
    return tuple(token.text for token in known[::2]) if named and dots and len(known) % 2 else ()


def normal(text: str) -> str:
    """A text without blanks and comments, which equal expressions have in common."""
    return " ".join(f"{token.kind[0]}:{token.text}" for token in tokens(text))


def named_columns(text: str, names: Sequence[str]) -> list[str]:
    """Those of a table's columns that a statement may need: whose names stand in it. All if it has t.*."""
    known = list(tokens(text))
    if any(one.is_sign(".") and after.text == "*" for one, after in zip(known, known[1:], strict=False)):
        return list(names)
    words = {token.text.lower() for token in known if token.kind in ("word", "quoted")}
    return [name for name in names if name.lower() in words]
