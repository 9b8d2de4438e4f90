"""Finds the tables that a SQL statement reads in the planner's syntax tree, and replaces them in the text.

Flink cannot plan a SELECT from a table whose connector has no jar. So every mention of a Hudi table as a
source is replaced by a temporary view with the table's own name in a catalog of ours, which exists only
while the statement is planned:

    SELECT t1.id FROM t1 /*+ OPTIONS('read.start-commit'='earliest') */, t1 AS old
    SELECT t1.id FROM `mainstem`.`read_1`.`t1`, `mainstem`.`read_2`.`t1` AS old

The last part of the name is what columns are qualified with, so the rest of the text stays. Targets of
INSERT are not touched: ``INSERT INTO t1 SELECT ... FROM t1`` reads one and writes the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mainstem.errors import Unsupported

if TYPE_CHECKING:
    from pyflink.table import Table, TableEnvironment

_numbers = itertools.count()

_LEAVES = ("SqlDataTypeSpec", "SqlIntervalQualifier", "SqlDynamicParam")
# Kind of call -> which of its operands are tables; some are so only where a table stands.
_ONLY_IN_FROM = ("AS", "TABLESAMPLE", "MATCH_RECOGNIZE", "PIVOT", "UNPIVOT", "LATERAL")
_TABLES = {"SELECT": (2,), "JOIN": (0, 3), "EXPLICIT_TABLE": (0,), **dict.fromkeys(_ONLY_IN_FROM, (0,))}
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Reference:
    """A table that is read: its name, the OPTIONS hint, and where it stands (line, column: from 1, the
    last column included; counted as Java counts characters). ``lookup``: by FOR SYSTEM_TIME AS OF."""

    names: tuple[str, ...]
    hints: Mapping[str, str]
    start: tuple[int, int]
    end: tuple[int, int]
    lookup: bool = False


@dataclass(frozen=True)
class Syntax:
    """A parsed statement: ``kind`` is the class of its topmost node; ``target`` is what an UPDATE or
    DELETE changes, ``alias`` its other name there, ``condition`` the WHERE, ``assigned`` the columns that are
    set with their expressions; ``created`` the name of a view that is made."""

    kind: str
    sources: tuple[Reference, ...]
    target: tuple[str, ...] = ()
    created: tuple[str, ...] | None = None
    alias: str = ""
    condition: str = ""
    assigned: tuple[tuple[str, str], ...] = ()


def syntax(t_env: TableEnvironment, text: str) -> Syntax | None:
    """The parsed statement; None if the planner cannot parse it (the environment then reports the error)."""
    node = _tree(t_env, text)
    if node is None:
        return None
    kind = node.getClass().getSimpleName()
    target: tuple[str, ...] = ()
    if kind in ("SqlUpdate", "SqlDelete"):
        table = node.getTargetTable()
        target = _parts(_operands(table)[0] if _name(table) == "SqlTableRef" else table)
        alias, condition = node.getAlias(), node.getCondition()
        assigned: tuple[tuple[str, str], ...] = ()
        if kind == "SqlUpdate":
            columns, values = node.getTargetColumnList().getList(), node.getSourceExpressionList().getList()
            assigned = tuple((_parts(c)[-1], str(v)) for c, v in zip(columns, values, strict=True))
        return Syntax(
            kind, tuple(_references(node, frozenset(), False)), target, None,
            "" if alias is None else alias.getSimple(), "" if condition is None else str(condition), assigned,
        )  # fmt: skip
    created = _parts(_operands(node)[0]) if kind == "SqlCreateView" else None
    return Syntax(kind, tuple(_references(node, frozenset(), False)), target, created)


def _tree(t_env: TableEnvironment, text: str) -> Any:
    from py4j.protocol import Py4JError
    from pyflink.util.exceptions import JavaException

    parser = t_env._j_tenv.getParser()
    try:
        # The planner has no public way to its syntax tree.
        supplier = parser.getClass().getDeclaredField("calciteParserSupplier")
        supplier.setAccessible(True)
    except Py4JError as error:
        raise Unsupported(
            "this release of Flink keeps its SQL parser elsewhere than 2.3 does; use that one"
        ) from error
    try:
        # A list, as the planner itself asks for: a statement may end with a semicolon.
        found = supplier.get(parser).get().parseSqlList(text).getList()
    except (Py4JError, JavaException):
        return None
    return found.get(0) if found.size() == 1 else None


def _name(node: Any) -> str:
    return node.getClass().getSimpleName()


def _parts(identifier: Any) -> tuple[str, ...]:
    from py4j.java_gateway import get_field

    return tuple(get_field(identifier, "names"))


def _references(node: Any, hidden: frozenset[str], table: bool) -> Iterator[Reference]:
    """``hidden``: names of common table expressions here; ``table``: the node stands for a table."""
    kind = _name(node) if node is not None else "SqlNodeList"
    if node is None or kind in _LEAVES or "Literal" in kind:
        return
    if kind == "SqlNodeList":
        for item in node.getList():
            yield from _references(item, hidden, False)
    elif kind == "SqlIdentifier":
        if table:
            yield from _reference(node, node, {}, hidden)
    elif kind == "SqlWith":
        yield from _with(node, hidden)
    elif kind == "RichSqlInsert":
        yield from _references(node.getSource(), hidden, False)
    else:
        yield from _call(node, kind, hidden, table)


def _call(node: Any, kind: str, hidden: frozenset[str], table: bool) -> Iterator[Reference]:
    what = node.getKind().toString()
    operands = _operands(node)
    if kind == "SqlTableRef":
        hints: dict[str, str] = {}
        for hint in operands[1].getList() if table else ():
            if hint.getName().upper() == "OPTIONS":
                hints.update(hint.getOptionKVPairs())
        if table:
            yield from _reference(operands[0], node, hints, hidden)
    elif kind == "SqlSnapshot":
        for found in _references(operands[0], hidden, True):
            yield replace(found, lookup=True)
    else:
        tables = _TABLES.get(what, ()) if table or what not in _ONLY_IN_FROM else ()
        for place, operand in enumerate(operands):
            yield from _references(operand, hidden, place in tables)


def _operands(node: Any) -> list[Any]:
    from py4j.protocol import Py4JError

    if _name(node) == "SqlReplaceTableAs":  # does not tell its operands
        return [node.getAsQuery()]
    try:
        return list(node.getOperandList())
    except Py4JError:  # no call
        return []


def _with(node: Any, hidden: frozenset[str]) -> Iterator[Reference]:
    items, body = _operands(node)[:2]
    for item in items.getList():
        name, _, query = _operands(item)[:3]
        yield from _references(query, hidden, False)
        hidden = hidden | {name.getSimple()}
    yield from _references(body, hidden, False)


def _reference(
    name: Any, whole: Any, hints: Mapping[str, str], hidden: frozenset[str]
) -> Iterator[Reference]:
    names = _parts(name)
    if len(names) == 1 and names[0] in hidden:
        return
    place = whole.getParserPosition()
    start = (place.getLineNum(), place.getColumnNum())
    yield Reference(names, hints, start, (place.getEndLineNum(), place.getEndColumnNum()))


def replaced(text: str, sources: Sequence[Reference], new: Callable[[Reference], str | None]) -> str:
    """The text with each reference as ``new`` says, None for as it is."""
    wide = text.encode("utf-16-le")  # columns count Java's 16-bit characters
    lines = [0, *(len(text[: end.end()].encode("utf-16-le")) for end in _LINE_END.finditer(text))]
    pieces: list[bytes] = []
    done = 0
    for source in sorted(sources, key=lambda found: found.start):
        name = new(source)
        if name is not None:
            start = lines[source.start[0] - 1] + 2 * (source.start[1] - 1)
            pieces += [wide[done:start], name.encode("utf-16-le")]
            done = lines[source.end[0] - 1] + 2 * source.end[1]
    return b"".join((*pieces, wide[done:])).decode("utf-16-le")


def quoted(*names: str) -> str:
    """A name of parts as SQL writes it."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


@contextmanager
def named(t_env: TableEnvironment, rows: Table) -> Iterator[str]:
    """A name for a table in SQL. What is planned meanwhile keeps it when the name is gone."""
    name = quoted(f"mainstem_rows_{next(_numbers)}")
    t_env.create_temporary_view(name, rows)
    try:
        yield name
    finally:
        t_env.drop_temporary_view(name)
