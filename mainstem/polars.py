"""Tables as Polars reads and writes them: lazily, batch by batch.

    import mainstem.polars as mp
    mp.scan(table).filter(pl.col("fare") > 20).select("id", "fare").collect()
    mp.sink(frame, table)

A query's columns go to the files, and the parts of its filter that mean the same in Arrow; Polars applies the
whole filter again. (``pl.scan_pyarrow_dataset(table.dataset())`` gives Polars all rows of a query at once.)
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.engines.pushed import TURNED, compared
from mainstem.errors import Invalid

if TYPE_CHECKING:
    import polars as pl

    from mainstem.api.table import Table
    from mainstem.writers.outcome import Outcome

__all__ = ["scan", "sink"]

_EPOCH = datetime.date(1970, 1, 1)


def scan(table: Table, *, as_of: str | None = None, as_of_completion: str | None = None) -> pl.LazyFrame:
    """The table as a lazy frame. Each time it is collected it reads the newest state, or that of ``as_of``
    (``Table.scan``), file slice by file slice; the schema is the one of now."""
    from polars.io.plugins import register_io_source

    plan = table.scan(as_of=as_of, as_of_completion=as_of_completion)
    schema = plan.schema

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        import polars as pl

        pushed = None if predicate is None else as_arrow(predicate, schema)
        wanted = schema.names if columns is None else columns
        needed = wanted
        if predicate is not None:
            needed = [*wanted, *(n for n in predicate.meta.root_names() if n not in wanted)]
        left = rows
        for batch in plan.refined(needed, pushed).to_batches():
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            if predicate is not None:
                frame = frame.filter(predicate)
            if left is not None:
                frame, left = frame.head(left), left - min(left, frame.height)
            yield frame.select(wanted)
            if left == 0:
                return

    return register_io_source(read, schema=dict(_frame_schema(schema)), explain_name="mainstem")


def sink(frame: pl.LazyFrame | pl.DataFrame, table: Table, operation: str = "upsert") -> Outcome:
    """Write the rows of a query in one transaction, batch by batch. ``operation``: as for ``Table.begin``.

    If the query fails nothing is committed. Raises what ``Table.upsert`` raises.
    """
    with table.begin(operation) as txn:
        for part in _parts(frame):
            txn.write(part)
        return txn.commit()


def _parts(frame: pl.LazyFrame | pl.DataFrame) -> Iterator[pl.DataFrame]:
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        yield frame
    elif isinstance(frame, pl.LazyFrame):
        yield from frame.collect_batches()
    else:
        raise Invalid(f"sink takes a polars DataFrame or LazyFrame, found {type(frame).__name__}")


def _frame_schema(schema: pa.Schema) -> Mapping[str, Any]:
    import polars as pl

    empty = pl.from_arrow(schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema


def as_arrow(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """A filter of Arrow's that passes at least the rows which ``predicate`` passes; None: all rows.

    Of ``and`` one side may be left out. What is not known here, or means something else to Arrow, is.
    """
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # another release's form, or an expression without one
        return None
    return _least(tree, schema)


def _least(tree: Any, schema: pa.Schema) -> pc.Expression | None:
    kind, part = _single(tree)
    if kind == "BinaryExpr":
        op = part["op"]
        if op == "And":
            sides = [_least(part[side], schema) for side in ("left", "right")]
            found = [side for side in sides if side is not None]
            return found[0] & found[1] if len(found) == 2 else next(iter(found), None)
        if op == "Or":
            left, right = (_least(part[side], schema) for side in ("left", "right"))
            return None if left is None or right is None else left | right
        return _comparison(op, part["left"], part["right"], schema)
    if kind == "Function":
        return _function(part, schema)
    return None


def _function(part: Any, schema: pa.Schema) -> pc.Expression | None:
    _, name = _single(part["function"])
    name = name if isinstance(name, str) else _single(name)[0]
    inputs = part["input"]
    column = _column(inputs[0], schema)
    if column is None:
        return None
    if name == "IsNull":
        return pc.field(column).is_null()
    if name == "IsNotNull":
        return pc.field(column).is_valid()
    if name == "IsBetween" and len(inputs) == 3:  # its open ends, too: more rows, never fewer
        low = _comparison("GtEq", inputs[0], inputs[1], schema)
        high = _comparison("LtEq", inputs[0], inputs[2], schema)
        return None if low is None or high is None else low & high
    return None


def _comparison(op: str, left: Any, right: Any, schema: pa.Schema) -> pc.Expression | None:
    if op not in TURNED:
        return None
    if _column(left, schema) is None:
        op, left, right = TURNED[op], right, left
    column = _column(left, schema)
    known, value = _literal(right)
    return None if column is None or not known else compared(op, column, value, schema)


def _column(tree: Any, schema: pa.Schema) -> str | None:
    kind, name = _single(tree)
    return name if kind == "Column" and isinstance(name, str) and name in schema.names else None


def _literal(tree: Any) -> tuple[bool, Any]:
    """Whether it is a literal of a type known here, and its value."""
    kind, part = _single(tree)
    if kind != "Literal":
        return False, None
    kind, part = _single(part)
    if kind not in ("Dyn", "Scalar"):
        return False, None
    kind, value = _single(part)
    if kind == "Date" and isinstance(value, int):
        return True, _EPOCH + datetime.timedelta(days=value)
    known = kind in ("Int", "Float", "Str", "String", "Boolean") or kind.startswith(("Int", "UInt", "Float"))
    return known and isinstance(value, (int, float, str)), value


def _single(tree: Any) -> tuple[str, Any]:
    """The kind of a node, and what it holds."""
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    return "", None
