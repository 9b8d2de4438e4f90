"""What runs in Flink's Python workers when a table is read: file slices in, rows out.

Rows cross from Python into the JVM by columns. ``ReadSlice`` (a table function) reads a slice with
mainstem's readers and hands out parts: for n rows n cells, the first of which is an Arrow stream of all n,
the others are null. ``Column`` (a pandas function, one per column of the query) is given these cells and
returns the values of its column: Arrow again, decoded by the JVM. Figures are in docs/flink.md: several times
what a table function reaches that yields rows. Flink keeps the order of rows between chained functions, which
lets ``Column`` walk through the part that it was given last.

Types that PyFlink cannot send by Arrow (rows in rows, arrays of rows, local time zones inside of others)
make the whole query go row by row: ``ReadRows``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.common import Row
from pyflink.table.udf import ScalarFunction, TableFunction

from mainstem.errors import Invalid, Unavailable
from mainstem.readers.scan import ReadableSplit
from mainstem.storage.local import LocalStorage

if TYPE_CHECKING:
    import pandas as pd

#: columns of the table of splits; the second is the same number everywhere
SPLIT, SIDE = "mainstem_split", "mainstem_side"
#: rows and bytes of one part at most
PART_ROWS = 16_384
PART_BYTES = 4 * 1024 * 1024


class Slices:
    """Reads splits of one table in the types that Flink's side expects (``transport``).

    A split comes as its number in ``known`` (bounded reads: the plan is part of the job), or pickled.
    """

    def __init__(self, base: str, transport: pa.Schema, known: Sequence[ReadableSplit] = ()) -> None:
        self._base = base
        self.transport = transport
        self._known = tuple(known)

    def tables(self, split: int | bytes) -> Iterator[pa.Table]:
        """Rows of a split. Raises ``Unavailable`` if a clean removed its files meanwhile."""
        if isinstance(split, int):
            if split >= len(self._known):
                return
            found = self._known[split]
        else:
            found = pickle.loads(split)  # made by the job's own operator
        try:
            for table in found.read(LocalStorage(self._base)):
                yield fitted(table, self.transport, self._base)
        except FileNotFoundError as error:
            raise Unavailable(
                f"a file of the view was removed while it was read ({error}); a clean retains too few commits"
                " for queries of this length: read again, or raise clean.retain_commits",
                table=self._base,
            ) from error


class ReadSlice(TableFunction):
    """split -> cells, see the module's text."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices

    def eval(self, split: int | bytes) -> Iterator[bytes | None]:
        for table in self._slices.tables(split):
            rows = max(1, min(PART_ROWS, PART_BYTES * table.num_rows // max(1, table.nbytes)))
            for start in range(0, table.num_rows, rows):
                part = table.slice(start, rows)
                yield _encoded(part)
                yield from repeat(None, part.num_rows - 1)


class ReadRows(TableFunction):
    """split -> rows as tuples, for types that do not go by Arrow."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices

    def eval(self, split: int | bytes) -> Iterator[tuple]:
        shapes = [_shape(field.type) for field in self._slices.transport]
        for table in self._slices.tables(split):
            for batch in table.to_batches(max_chunksize=PART_ROWS):
                columns = [
                    column if shape is None else _shaped(column, shape)
                    for column, shape in zip((c.to_pylist() for c in batch.columns), shapes, strict=True)
                ]
                yield from zip(*columns, strict=True)


class Column(ScalarFunction):
    """The cells of parts -> the values of one column, one for each cell."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._part: pa.Array | None = None
        self._read = 0

    def eval(self, cells: pd.Series, side: pd.Series) -> ArrowSeries:
        """``side`` comes from the other side of the join with ``ReadSlice`` and is not looked at: it keeps
        the planner from moving this function below the join, where it finds no plan for it."""
        heads = cells.notna().to_numpy().nonzero()[0].tolist()
        ends = [*heads, len(cells)]
        pieces = [self._next(ends[0])] if ends[0] else []
        for start, end in pairwise(ends):
            self._part = _column(cells.iloc[start], self._at)
            self._read = 0
            pieces.append(self._next(end - start))
        return ArrowSeries(self._shown(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)))

    def _shown(self, values: pa.Array) -> pa.Array:
        return values

    def _next(self, rows: int) -> pa.Array:
        if self._part is None or self._read + rows > len(self._part):
            raise RuntimeError("Flink changed the order of rows between two chained Python functions")
        piece = self._part.slice(self._read, rows)
        self._read += rows
        return piece


class Moments(Column):
    """A column of timestamps with microseconds, without those before 1970 that have a fraction of a
    millisecond: Flink's Arrow reader fails on them (``TimestampData`` wants the fraction to be positive)."""

    def _shown(self, values: pa.Array) -> pa.Array:
        early = _early(values)
        return values if early is None else pc.if_else(early, pa.scalar(None, values.type), values)


class EarlyMoments(Column):
    """The timestamps that ``Moments`` leaves out, as text."""

    def _shown(self, values: pa.Array) -> pa.Array:
        early = _early(values)
        if early is None:
            return pa.nulls(len(values), pa.string())
        return pc.if_else(early, values.cast(pa.string()), None)


def _early(values: pa.Array) -> pa.Array | None:
    """Which timestamps are before 1970 and no whole millisecond; None: none of them."""
    numbers = values.view(pa.int64())
    if not (pc.min(numbers).as_py() or 0) < 0:
        return None
    plain = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array((plain < 0) & (plain % 1000 != 0))


class ArrowSeries:
    """An Arrow array where PyFlink expects a pandas series: it asks for these methods only, and
    ``pyarrow`` takes the array as it is. The way through pandas costs copies, and makes integers with nulls
    floats."""

    dtype = "arrow"

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def isnull(self) -> None:
        """No mask: the array has its own."""

    def __len__(self) -> int:
        return len(self._values)

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        return self._values if type is None or type == self._values.type else self._values.cast(type)


def fitted(table: pa.Table, transport: pa.Schema, base: str = "") -> pa.Table:
    """The columns of ``transport`` in its types.

    Raises ``Invalid`` naming the column where a stored value does not fit the declared type.
    """
    columns = []
    for field in transport:
        column = table.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            columns.append(_cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise Invalid(
                f"column {field.name!r} is stored as {column.type} and declared so that {field.type} is"
                f" needed: {error}; declare the column with the table's type",
                table=base,
            ) from error
    return pa.table(columns, schema=transport)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    if pa.types.is_time(column.type) and pa.types.is_integer(kind):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        if not pa.types.is_nested(kind):
            raise
        return pa.chunked_array([pa.array(column.to_pylist(), kind)])


def _encoded(part: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_table(part.combine_chunks())
    return sink.getvalue().to_pybytes()


def _column(part: bytes, at: int) -> pa.Array:
    column = pa.ipc.open_stream(part).read_all().column(at)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class Moment:
    """A timestamp as PyFlink's coders look at it. A ``datetime`` before 1970 with a fraction of a second
    comes out a second late there (they truncate towards zero)."""

    def __init__(self, value: datetime) -> None:
        self.microsecond = value.microsecond
        self._second = value.replace(microsecond=0, tzinfo=UTC).timestamp()

    def replace(self, **_: object) -> Moment:
        """It has no time zone to replace."""
        return self

    def timestamp(self) -> float:
        """Seconds, rounded down."""
        return self._second


def _shape(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What turns a value of ``to_pylist`` into what PyFlink's coders take; None: nothing."""
    if pa.types.is_timestamp(kind):
        return Moment
    if pa.types.is_struct(kind):
        shapes = [_shape(field.type) for field in kind]
        return lambda value: Row(*[_apply(s, v) for s, v in zip(shapes, value.values(), strict=True)])
    if pa.types.is_map(kind):
        inner = _shape(kind.item_type)
        return lambda value: {key: _apply(inner, item) for key, item in value}
    if pa.types.is_list(kind):
        inner = _shape(kind.value_type)
        return None if inner is None else lambda value: _shaped(value, inner)
    return None


def _apply(shape: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if value is None or shape is None else shape(value)


def _shaped(values: list, shape: Callable[[Any], Any]) -> list:
    return [None if value is None else shape(value) for value in values]
