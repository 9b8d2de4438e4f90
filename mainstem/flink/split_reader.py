"""Code that reads tables in Flink's Python workers: file slices in, rows out.

Slices are read and merged by columns; the last step makes Python rows, since no other form is right in every
query. (Columns sent as Arrow through pandas functions, which walk through the slice row by row, arrive in
half the time. But the planner may evaluate one such function after a filter on another, where rows are
missing.)
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyflink.common import Row
from pyflink.table.udf import TableFunction

from mainstem.errors import Invalid, Unavailable
from mainstem.filters.expression_tree import identity
from mainstem.options.services import CLEAN_COMMITS
from mainstem.readers.rows.split import Split
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location

#: the column of the table that names splits
SPLIT = "mainstem_split"
#: rows converted to Python objects at a time
_ROWS = 4_096


class Slices:
    """Reads splits of one table in the types that Flink's side expects (``transport``).

    A split comes pickled, or as its number (bounded reads: the plan is part of the job). ``known`` have the
    numbers from ``first`` on, which follows from the plan: a job that is started again from a checkpoint gets
    the numbers that are left of the plan of *that* job, and must not take them for slices of another.
    """

    def __init__(self, location: Location, transport: pa.Schema, known: Sequence[Split] = ()) -> None:
        self._location = location
        self.transport = transport
        self._known = tuple(known)
        self.first = _first_number(location.base, known)

    def tables(self, split: int | bytes) -> Iterator[pa.Table]:
        """Rows of a split. Raises ``Unavailable`` if a clean removed its files meanwhile, ``Invalid`` for a
        number of another plan."""
        if isinstance(split, int):
            place = split - self.first
            if not 0 <= place < max(1, len(self._known)):
                raise Invalid(
                    "the checkpoint or savepoint that this job was started from belongs to a bounded read of"
                    " another moment: the table has been written since, and what is left of that read cannot"
                    " be found in a new one. Run the query again without a savepoint, or read with"
                    " read.streaming.enabled, whose position survives",
                    table=self._location.base,
                )
            if place >= len(self._known):
                return
            found = self._known[place]
        else:
            found = pickle.loads(split)  # made by the job's own operator
        try:
            for table in found.read(storage_of(self._location)):
                yield fitted(table, self.transport, self._location.base)
        except FileNotFoundError as error:
            raise Unavailable(
                f"a file of the view was removed while it was read ({error}); a clean retains too few commits"
                f" for queries of this length: read again, or raise {CLEAN_COMMITS.flink}",
                table=self._location.base,
            ) from error


def _first_number(base: str, splits: Sequence[Split]) -> int:
    """A number derived from the plan: equal only for equal plans, and at least 2**20 apart otherwise."""
    seen = hashlib.sha256(base.encode())
    filters = {id(split.spec.filter): split.spec.filter for split in splits}  # nearly always one
    named = {number: hashlib.sha256(identity(filter)).digest() for number, filter in filters.items()}
    for split in splits:
        files = (split.partition, split.file_id, split.base_file, split.log_files)
        instants = sorted(split.spec.instants or ())
        seen.update(repr((files, instants, split.spec.columns, named[id(split.spec.filter)])).encode())
    return int.from_bytes(seen.digest()[:5], "big") << 20


class ReadRows(TableFunction):
    """split -> its rows, as PyFlink's coders take them."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices

    def eval(self, split: int | bytes) -> Iterator[tuple]:
        """A split, by its number or pickled, in; tuples out."""
        for table in self._slices.tables(split):
            for batch in table.to_batches(max_chunksize=_ROWS):
                yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list:
    kind = column.type
    if not column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column.to_numpy().tolist()
    if pa.types.is_timestamp(kind) and (pc.min(column.view(pa.int64())).as_py() or 0) >= 0:
        return column.to_pylist()  # the common case needs no Moment
    shape = _shape(kind)
    return column.to_pylist() if shape is None else _shaped(column.to_pylist(), shape)


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
