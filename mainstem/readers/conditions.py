"""Filters as people type them: ``price >= 10``, ``city = 'oslo' and closed is null``."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid

_CONDITION = re.compile(r"^\s*([^\s=!<>]+)\s*(==|=|!=|<>|<=|>=|<|>)\s*(.*?)\s*$", re.S)
_NULL = re.compile(r"^\s*([^\s=!<>]+)\s+is\s+(not\s+)?null\s*$", re.I)
# A text in quotes, or anything else; "and" between two conditions stands outside of quotes.
_PIECE = re.compile(r"'[^']*'|\"[^\"]*\"|\s+and\s+|.", re.I | re.S)


def conditions(text: str, schema: pa.Schema, what: str) -> pc.Expression:
    """Several conditions joined by ``and``; see ``condition``."""
    parts = [""]
    for piece in _PIECE.findall(text):
        if piece.strip().lower() == "and" and piece != piece.strip():
            parts.append("")
        else:
            parts[-1] += piece
    found = condition(parts[0], schema, what)
    for part in parts[1:]:
        found = found & condition(part, schema, what)
    return found


def condition(text: str, schema: pa.Schema, what: str) -> pc.Expression:
    """A filter from ``COLUMN OP VALUE`` (``= != < <= > >=``) or ``COLUMN is [not] null``.

    The value is read in the column's type; quotes around it are taken off. Raises ``Invalid`` naming
    ``what`` holds the text.
    """
    empty = _NULL.match(text)
    found = empty or _CONDITION.match(text)
    if found is None:
        raise Invalid(f"{what} {text!r}; expected COLUMN OP VALUE, such as 'price >= 10', or 'x is null'")
    name = found.group(1)
    if name not in schema.names:
        raise Invalid(f"{what} {text!r}: no column {name!r}; there are {', '.join(schema.names)}")
    column = pc.field(name)
    if empty is not None:
        return column.is_valid() if empty.group(2) else column.is_null()
    operator, given = found.group(2), found.group(3)
    if len(given) > 1 and given[0] == given[-1] and given[0] in "'\"":
        given = given[1:-1]
    elif re.search(r"\s(or|and)(\s|$)", given, re.I):
        raise Invalid(
            f"{what} {text!r}: conditions are joined by 'and' only; put a value with the word 'or' in quotes"
        )
    kind = schema.field(name).type
    try:
        value = pa.scalar(given).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Invalid(f"{what} {text!r}: {given!r} does not read as {kind}") from error
    operations: dict[str, Callable[[], pc.Expression]] = {
        "=": lambda: column == value,
        "==": lambda: column == value,
        "!=": lambda: column != value,
        "<>": lambda: column != value,
        "<": lambda: column < value,
        "<=": lambda: column <= value,
        ">": lambda: column > value,
        ">=": lambda: column >= value,
    }
    return operations[operator]()
