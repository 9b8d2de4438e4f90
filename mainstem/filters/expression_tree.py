"""The tree of a ``pyarrow.compute.Expression``: its functions, columns and values.

pyarrow shows an expression only as text. That text shortens long lists and strings (newer releases cut even
within a character, and ``str()`` then fails) and does not quote names, so nothing here relies on it. The
pickled form is exact: a record batch of one row holds the values, and the schema's metadata lists the tree
in prefix order as pairs (``Serialize`` in Arrow's ``expression.cc``, unchanged since Arrow 1). Python shows
that metadata as a dict, which would merge equal keys, so the pairs are read through the C data interface,
whose layout is fixed. Anything unexpected makes the tree None, "not understood"; nothing is guessed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from mainstem.limits import EXPRESSION_DEPTH_MAX


@dataclass(frozen=True)
class Column:
    """A column by its name."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A value."""

    value: pa.Scalar


@dataclass(frozen=True)
class Call:
    """A function call; ``options`` are Arrow scalars by their C++ names."""

    function: str
    arguments: tuple[Node, ...]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


Node = Column | Literal | Call

_Pair = tuple[str, str]


class _NotUnderstood(Exception):
    pass


# What pyarrow and the steps below raise for an expression stored in another form than expected.
_ODD = (pa.ArrowException, _NotUnderstood, StopIteration, TypeError, ValueError, OSError)
_CUT = 60  # characters of a value that ``shown`` keeps


def tree(expression: pc.Expression) -> Node | None:
    """The tree of an expression; None if it holds something unsupported (fields by position, nested
    fields, user-defined functions) or is stored in another form than expected."""
    try:
        batch = _stored(expression)
        pairs = iter(_pairs(batch.schema))
        found = _node(pairs, next(pairs), batch, 0)
        if next(pairs, None) is not None:
            return None
        return found
    except _ODD:
        return None


def names(expression: pc.Expression) -> frozenset[str] | None:
    """Names of the columns that an expression uses, including each step of a nested reference; None if
    they are unknown (fields by position)."""
    try:
        return frozenset(name for what, name in _pairs(_stored(expression).schema) if what == "field_ref")
    except _ODD:
        return None


def shown(expression: pc.Expression) -> str:
    """The expression as text for people; never decide anything by it."""
    try:
        return str(expression)
    except UnicodeDecodeError:
        found = tree(expression)
        return "(a filter with texts that pyarrow cannot show)" if found is None else _text(found)


def identity(expression: pc.Expression | None) -> bytes:
    """Bytes that two expressions share only if they are the same.

    Raises what pickling raises for fields by position.
    """
    return b"" if expression is None else bytes(expression.__reduce__()[1][0])


def _text(node: Node) -> str:
    if isinstance(node, Column):
        return node.name
    if isinstance(node, Literal):
        return _value(node.value)
    options = [f"{name}={_value(value)}" for name, value in node.options.items()]
    return f"{node.function}({', '.join([*map(_text, node.arguments), *options])})"


def _value(value: Any) -> str:
    text = repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    return text if len(text) <= _CUT else f"{text[:_CUT]}..."


def _stored(expression: pc.Expression) -> pa.RecordBatch:
    _, (stored,) = expression.__reduce__()
    return ipc.open_file(stored).get_batch(0)


def _pairs(schema: pa.Schema) -> list[_Pair]:
    """A schema's metadata in stored order.

    ArrowSchema begins with three pointers: format, name, metadata (counted, native endian).
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"arrow_schema") + 2 * ctypes.sizeof(ctypes.c_void_p)
    at = ctypes.c_void_p.from_address(at).value
    if at is None:
        raise _NotUnderstood
    texts, at = [], at + 4
    for _ in range(2 * ctypes.c_int32.from_address(at - 4).value):
        size = ctypes.c_int32.from_address(at).value
        texts.append(ctypes.string_at(at + 4, size).decode())
        at += 4 + size
    del capsule  # kept alive until here: it owns the memory just read
    return list(zip(texts[::2], texts[1::2], strict=True))


def _node(pairs: Iterator[_Pair], pair: _Pair, batch: pa.RecordBatch, depth: int) -> Node:
    what, value = pair
    if depth > EXPRESSION_DEPTH_MAX:
        raise _NotUnderstood
    if what == "literal":
        return Literal(_scalar(batch, value))
    if what == "field_ref":
        return Column(value)
    if what == "call":
        return _call(pairs, value, batch, depth + 1)
    raise _NotUnderstood


def _call(pairs: Iterator[_Pair], function: str, batch: pa.RecordBatch, depth: int) -> Call:
    arguments: list[Node] = []
    options: dict[str, Any] = {}
    for what, value in pairs:
        if what == "end":
            if value != function:
                raise _NotUnderstood
            return Call(function, tuple(arguments), options)
        if what == "options":
            options = dict(_scalar(batch, value).items())
        else:
            arguments.append(_node(pairs, (what, value), batch, depth))
    raise _NotUnderstood


def _scalar(batch: pa.RecordBatch, number: str) -> pa.Scalar:
    if not number.isdecimal() or int(number) >= batch.num_columns:
        raise _NotUnderstood
    return batch.column(int(number))[0]
