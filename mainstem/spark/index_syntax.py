"""Parses Hudi's SQL index statements (HoodieSqlCommon.g4 of Hudi 1.2).

    CREATE INDEX [IF NOT EXISTS] name ON [TABLE] t [USING kind] [(column [OPTIONS (k = v, ...)], ...)]
                 [OPTIONS (k = v, ...)]
    DROP INDEX [IF EXISTS] name ON [TABLE] t
    SHOW INDEXES {FROM | IN | ON} [TABLE] t
    REFRESH INDEX name ON [TABLE] t
    REINDEX [INDEX name] ON [TABLE] t

Names, string literals and comments are written as in Spark SQL. For a text that begins with none of these,
``parse`` returns None, whatever follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from mainstem.errors import Invalid

CREATE, DROP, SHOW, REBUILD = "CREATE INDEX", "DROP INDEX", "SHOW INDEXES", "REINDEX"
REFRESH = "REFRESH INDEX"

_SPACE, _WORD, _QUOTED, _TEXT, _SIGN, _STRANGE = "space", "word", "quoted", "text", "sign", "strange"
_TOKEN = re.compile(
    rf"""(?P<{_SPACE}>\s+|--[^\r\n]*|/\*.*?\*/)
    |(?P<{_TEXT}>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<{_QUOTED}>`(?:[^`]|``)+`)
    |(?P<{_WORD}>[-+]?[0-9]+\.[0-9]+|[-+]?[0-9]+(?![A-Za-z_])|[A-Za-z0-9_]+)
    |(?P<{_SIGN}>[(),=.;])
    |(?P<{_STRANGE}>.)""",
    re.X | re.S,
)
_ESCAPED = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.S)
_MEANT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0"}


@dataclass(frozen=True)
class Token:
    """``text``: without quotes; ``at``: where it begins in the statement."""

    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, unquoted."""
        return self.kind == _WORD and self.text.upper() in words

    def is_sign(self, sign: str) -> bool:
        """Whether it is this sign, unquoted."""
        return self.kind == _SIGN and self.text == sign


@dataclass(frozen=True)
class Column:
    """A column of an index. ``at``: its position in the statement; ``function``: the function around it, as
    in ``(lower(city))``, else ""."""

    name: str
    at: int
    function: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IndexStatement:
    """``verb``: one of ``CREATE``, ``DROP``, ``SHOW``, ``REBUILD``, ``REFRESH``. ``name``: of the index, ""
    for all. ``table``: the parts of the table's name. ``kind``: the word after USING in lower case, or "".
    ``lenient``: IF [NOT] EXISTS. ``places``: positions of its parts in ``text``. ``problem``: a syntax error
    after the table's name. It is not raised while parsing: if the table is another source's, the statement
    may be right in that dialect."""

    verb: str
    table: tuple[str, ...]
    text: str
    name: str = ""
    kind: str = ""
    columns: tuple[Column, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    lenient: bool = False
    places: Mapping[str, int] = field(default_factory=dict)
    problem: Invalid | None = None

    def place(self, part: str) -> str:
        """The position of ``part`` (``name``, ``table``, ``kind``, ``columns``, ``options``) for messages;
        that of the statement if it has no such part."""
        return place(self.text, self.places.get(part, self.places["verb"]))


def place(text: str, at: int) -> str:
    """Line and column (from 1) of a position in a statement, and the text found there."""
    before = text[:at]
    line = before.count("\n") + 1
    column = at - (before.rfind("\n") + 1) + 1
    rest = text[at : at + 40].partition("\n")[0]
    return f"line {line}, column {column}" + (f", at {rest!r}" if rest.strip() else ", at its end")


def parse(text: str) -> IndexStatement | None:
    """The index statement in a text; None for any other statement.

    Raises ``Invalid`` with line and column if the statement has a syntax error up to the table's name.
    """
    reader = _Reader(text)
    verb = reader.verb()
    return None if verb is None else reader.statement(verb)


def table_parts(name: str) -> tuple[str, ...]:
    """The parts of a table's name written as in SQL. Raises ``Invalid`` for any other text."""
    return _Reader(name).table()


class _Reader:
    """Reads a statement token by token; the last token is an empty end mark."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*tokens(text), Token("end", "", len(text.rstrip()))]
        self._next = 0
        self._places: dict[str, int] = {"verb": self._tokens[0].at}
        self._verb = ""

    def table(self) -> tuple[str, ...]:
        self._verb = "table"
        found = self._parts("table", "a table")
        if self._peek().kind != "end":
            self._fail("the end of its name")
        return found

    def verb(self) -> str | None:
        first, second, third = ([*self._tokens, *self._tokens[-1:] * 2])[:3]
        if first.is_word("CREATE") and second.is_word("INDEX"):
            return CREATE
        if first.is_word("DROP") and second.is_word("INDEX"):
            return DROP
        if first.is_word("SHOW") and second.is_word("INDEXES"):
            return SHOW
        if first.is_word("REINDEX"):
            return REBUILD
        # In Spark's own REFRESH, which accepts any text, INDEX would be a table's name.
        if first.is_word("REFRESH") and second.is_word("INDEX") and third.kind in (_WORD, _QUOTED):
            return REFRESH
        return None

    def statement(self, verb: str) -> IndexStatement:
        self._verb = verb
        taken = 1 if self._tokens[0].is_word("REINDEX") else 2
        self._next = taken
        if verb == REBUILD:
            named = self._took("INDEX")
        else:
            named = verb != SHOW
        lenient = False
        if verb in (CREATE, DROP) and self._peek().is_word("IF") and not self._after().is_word("ON"):
            self._word("IF")
            if verb == CREATE:
                self._word("NOT")
            self._word("EXISTS")
            lenient = True
        name = self._name("name", "the index's name") if named else ""
        self._word(*(("FROM", "IN", "ON") if verb == SHOW else ("ON",)))
        if self._peek().is_word("TABLE") and self._after().kind not in ("end", _SIGN):
            self._next += 1
        table = self._parts("table", "a table")
        known = IndexStatement(verb, table, self._text, name, lenient=lenient, places=self._places)
        try:
            if verb == CREATE:
                kind, columns, options = self._what()
                known = replace(known, kind=kind, columns=columns, options=options)
            while self._took(";"):
                pass
            if self._peek().kind != "end":
                self._fail("the end of the statement")
        except Invalid as problem:
            return replace(known, problem=problem)
        return known

    def _what(self) -> tuple[str, tuple[Column, ...], dict[str, str]]:
        """The parts of CREATE INDEX after the table: kind, columns, options."""
        kind = self._name("kind", "a kind of index").lower() if self._took("USING") else ""
        columns: list[Column] = []
        if self._took("("):
            self._places["columns"] = self._peek().at
            while not columns or self._took(","):
                columns.append(self._column())
            self._sign(")")
        elif not kind:
            self._fail("USING or (")
        options: dict[str, str] = {}
        if self._took("OPTIONS"):
            self._places["options"] = self._peek().at
            options = self._options()
        return kind, tuple(columns), options

    def _column(self) -> Column:
        at, parts, function = self._peek().at, self._parts("", "a column"), ""
        if len(parts) == 1 and self._took("("):
            function, parts = parts[0].lower(), self._parts("", "a column")
            self._sign(")")
        return Column(".".join(parts), at, function, self._options() if self._took("OPTIONS") else {})

    def _options(self) -> dict[str, str]:
        self._sign("(")
        found: dict[str, str] = {}
        while not found or self._took(","):
            at = self._peek().at
            key = self._token().text if self._peek().kind == _TEXT else ".".join(self._parts("", "an option"))
            if key in found:
                raise Invalid(f"{self._verb} ({place(self._text, at)}): the option {key!r} is given twice")
            self._took("=")
            if self._peek().kind not in (_TEXT, _WORD):
                self._fail(f"the value of {key!r}")
            found[key] = self._token().text
        self._sign(")")
        return found

    # -- tokens --------------------------------------------------------------------------------------

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _after(self) -> Token:
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def _token(self) -> Token:
        found = self._peek()
        self._next += 1
        return found

    def _took(self, wanted: str) -> bool:
        found = self._peek()
        if found.is_word(wanted) or (found.kind == _SIGN and found.text == wanted):
            self._next += 1
            return True
        return False

    def _word(self, *words: str) -> None:
        if not self._peek().is_word(*words):
            self._fail(" or ".join(words))
        self._next += 1

    def _sign(self, sign: str) -> None:
        if not self._took(sign):
            self._fail(sign)

    def _name(self, part: str, what: str) -> str:
        if self._peek().kind not in (_WORD, _QUOTED):
            self._fail(what)
        if part:
            self._places[part] = self._peek().at
        return self._token().text

    def _parts(self, part: str, what: str) -> tuple[str, ...]:
        found = [self._name(part, what)]
        while self._took("."):
            found.append(self._name("", what))
        return tuple(found)

    def _fail(self, expected: str) -> NoReturn:
        where = place(self._text, self._peek().at)
        raise Invalid(f"{self._verb} ({where}): expected {expected}")


def tokens(text: str) -> Iterator[Token]:
    """The words, quoted names, string literals and signs of a statement, without blanks and comments."""
    for found in _TOKEN.finditer(text):
        kind, content = str(found.lastgroup), found.group()
        if kind == _QUOTED:
            content = content[1:-1].replace("``", "`")
        elif kind == _TEXT:
            content = _ESCAPED.sub(_plain, content[1:-1])
        if kind != _SPACE:
            yield Token(kind, content, found.start())


def _plain(escape: re.Match[str]) -> str:
    code = escape.group(1)
    return chr(int(code[1:], 16)) if len(code) == 5 else _MEANT.get(code, code)
