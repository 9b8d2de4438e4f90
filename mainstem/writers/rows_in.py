"""What a caller may give as rows, and how each kind becomes Arrow tables (docs/rows.md).

Two forms come out: a table, for what lies in memory as a whole, and a ``RowStream``, for what comes in
batches, of which only a bounded part is held at a time. What the columns must be is not known here:
``fit_rows`` fits each table to the columns of the mainstem table.

A stream counts as so many batches written one after another. Small ones are put together and large ones cut,
so that log blocks have a useful size. That changes nothing, except where rows may be deletions, which follow
the other rows of their batch: there each batch is written as it came.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.vectors import rows_of


class ArrowStream(Protocol):
    """Whatever hands out its columns as a stream of batches: Polars, DuckDB, nanoarrow, readers."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """Whatever hands out its columns as one batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any: ...


Rows: TypeAlias = (
    pa.Table | pa.RecordBatch | ArrowStream | ArrowArray | Mapping[str, object] | Iterable[object]
)
"""Arrow data in memory or as a stream, data frames, columns by name, rows as dicts: docs/rows.md."""

#: gathered from a stream before they are written
GATHERED_BYTES = 16 << 20
GATHERED_ROWS = 200_000
#: rows given as dicts that make one table, if they come from an iterator
DICTS_AT_ONCE = 5_000

# A column that was the index of a pandas frame: it is left out unless the mainstem table has it.
_INDEX_MARK = b"mainstem.index"

_WAY_OUT = (
    "expected Arrow data (pyarrow tables, batches, readers and datasets; Polars, pandas and DuckDB), columns"
    " by name, dicts with a row each, or an iterator of any of these; convert them first"
    " (pyarrow.Table.from_pydict, from_pandas)"
)
# They can be iterated, and what comes out are no rows.
_NO_ROWS = (str, bytes, bytearray, memoryview, AbstractSet, np.ndarray, pa.Array, pa.ChunkedArray, pa.Scalar)


class RowStream:
    """The tables of a source, one after another. It is read once."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables: Iterator[pa.Table] = (table for table in tables if table.num_rows)
        #: called after each batch; if it raises, the stream ends so
        self.check: Callable[[], None] = lambda: None

    def only(self) -> pa.Table | None:
        """The whole, if it is a single batch or none; else None, and nothing of it is lost.

        Reads two batches at most.
        """
        first = list(islice(self._tables, 2))
        if len(first) < 2:
            return first[0] if first else pa.table({})
        self._tables = _chained(first, self._tables)
        return None

    def tables(self, apart: Collection[str] = ()) -> Iterator[pa.Table]:
        """Tables of bounded size. A batch that has one of the columns ``apart`` stays as it is."""
        held: list[pa.Table] = []
        size = rows = 0
        for table in self._tables:
            self.check()
            alone = any(name in apart for name in table.column_names)
            if held and (alone or not table.schema.equals(held[0].schema, check_metadata=True)):
                yield _emptied(held)
                size = rows = 0
            pieces = iter([table]) if alone else _pieces(table)
            del table  # nothing is held here while the caller writes, or the source makes the next batch
            for piece in pieces:
                held.append(piece)
                size += piece.nbytes
                rows += piece.num_rows
                del piece
                if alone or size >= GATHERED_BYTES or rows >= GATHERED_ROWS:
                    yield _emptied(held)
                    size = rows = 0
            del pieces
        if held:
            yield _emptied(held)


def _emptied(held: list[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(held)
    held.clear()
    return whole


def _chained(first: list[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    while first:
        yield first.pop(0)  # not ``itertools.chain``, which would keep them
    yield from rest


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Views of the table of bounded size."""
    count = table.num_rows
    most = max(1, min(GATHERED_ROWS, count * GATHERED_BYTES // max(1, table.nbytes)))
    for start in range(0, count, most):
        yield table.slice(start, most)


def rows_in(rows: object) -> pa.Table | RowStream:
    """A caller's rows, as a table or as a stream of tables. Raises ``Invalid`` for what holds no rows."""
    if isinstance(rows, RowStream):
        return rows
    found = _in_memory(rows)
    if found is not None:
        return found
    reader = _reader(rows)
    if reader is not None:
        return RowStream(_batches(reader))
    if isinstance(rows, AsyncIterable):
        raise Invalid(
            f"rows are a {_name(rows)}, which is read by an event loop: collect its batches in a list first"
            " ([batch async for batch in ...]), or give an ordinary iterator"
        )
    if isinstance(rows, _NO_ROWS) or not isinstance(rows, Iterable):
        raise Invalid(f"rows are a {_name(rows)}, {_WAY_OUT}")
    if isinstance(rows, (list, tuple)) and all(isinstance(row, Mapping) for row in rows):
        return _from_dicts(rows, {}, 0)
    return RowStream(_elements(iter(rows)))


def as_table(rows: object) -> pa.Table:
    """Rows that lie in memory, as a table. Raises ``Invalid`` for anything else."""
    found = _in_memory(rows)
    if found is None:
        raise Invalid(f"rows are a {_name(rows)}, expected a pyarrow.Table, RecordBatch, or columns by name")
    return found


def without_index(rows: pa.Table, names: Collection[str]) -> pa.Table:
    """The rows without the columns that were the index of a pandas frame, except those of these names."""
    gone = [
        field.name
        for field in rows.schema
        if field.metadata and _INDEX_MARK in field.metadata and field.name not in names
    ]
    return rows.drop_columns(gone) if gone else rows


def _in_memory(rows: object) -> pa.Table | None:
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, Mapping):
        return _from_columns(rows)
    if _is_one("pandas", "DataFrame", rows):
        return _from_pandas(rows)
    if _is_one("polars", "DataFrame", rows):
        polars: Any = sys.modules["polars"]
        # Its own texts are of a kind (string_view) that older pyarrow cannot convert.
        frame: Any = rows
        return _readable(frame.to_arrow(compat_level=polars.CompatLevel.oldest()))
    return None


# -- columns by name -----------------------------------------------------------------------------------


def _from_columns(columns: Mapping[str, object]) -> pa.Table:
    made = {}
    for name, values in columns.items():
        try:
            if isinstance(values, np.ndarray) and values.ndim > 1:
                made[name] = rows_of(values, str(name))
            else:
                made[name] = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Invalid(f"column {name!r} cannot be made an Arrow array: {error}") from error
    try:
        return pa.table(made)
    except (pa.ArrowException, TypeError) as error:
        sizes = ", ".join(f"{name!r}: {len(values)}" for name, values in made.items())
        raise Invalid(f"the columns make no table: their numbers of rows differ ({sizes})") from error


# -- data frames ---------------------------------------------------------------------------------------


def _is_one(module: str, kind: str, rows: object) -> bool:
    """Whether it is of this class; the module is not loaded for that."""
    cls = getattr(sys.modules.get(module), kind, None)
    return isinstance(cls, type) and isinstance(rows, cls)


def _from_pandas(frame: Any) -> pa.Table:
    """A frame's columns, then the levels of its index that have a name, marked as such."""
    wrong = next((name for name in frame.columns if not isinstance(name, str)), None)
    if wrong is not None:
        raise Invalid(f"the pandas frame has a column {wrong!r}: names of columns are texts; rename it")
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(f"the pandas frame cannot be made an Arrow table: {_line(error)}") from error
    table = table.replace_schema_metadata(None)
    given = set(frame.columns)
    for level, name in enumerate(frame.index.names):
        if isinstance(name, str) and name not in given:
            values = pa.array(frame.index.get_level_values(level), from_pandas=True)
            table = table.append_column(pa.field(name, values.type, metadata={_INDEX_MARK: b""}), values)
    return table


# -- streams -------------------------------------------------------------------------------------------


def _reader(rows: object) -> pa.RecordBatchReader | None:
    """A reader of Arrow's own kinds of streams, and of what other libraries hand out; None for no such."""
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if _is_one("polars", "LazyFrame", rows):
        raise Invalid(
            "rows are a polars LazyFrame, which is a query and no rows: write frame.collect(), or a batch at"
            " a time frame.collect_batches() (Polars 1.34 and later)"
        )
    if _is_one("pyarrow.dataset", "Dataset", rows):
        rows = rows.scanner()  # type: ignore[attr-defined]
    if _is_one("pyarrow.dataset", "Scanner", rows):
        return rows.to_reader()  # type: ignore[attr-defined]
    if isinstance(rows, _NO_ROWS):
        return None
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows)
        if hasattr(rows, "__arrow_c_array__"):
            batch = pa.record_batch(rows)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Invalid(
            f"rows are a {_name(rows)} whose Arrow data has no columns, or cannot be taken over:"
            f" {_line(error)}; give a table, or structs"
        ) from error
    return None


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    with reader:
        for batch in reader:
            yield _readable(pa.Table.from_batches([batch]))


def _elements(elements: Iterator[object]) -> Iterator[pa.Table]:
    """The tables of an iterator; dicts are rows, of which many make a table."""
    names: dict[str, None] = {}
    place = 0
    for element in elements:
        if isinstance(element, Mapping):
            dicts: list[Mapping[object, object]] = [element]
            other: list[object] = []
            for following in islice(elements, DICTS_AT_ONCE - 1):
                if not isinstance(following, Mapping):
                    other.append(following)
                    break
                dicts.append(following)
            table, count = _from_dicts(dicts, names, place), len(dicts)
            del dicts, element
            yield table
            del table
            place += count
            if not other:
                continue
            element = other[0]
        found = _of_element(element, place)
        place += 1
        if isinstance(found, RowStream):
            yield from found.tables()
        else:
            yield found


def _of_element(element: object, place: int) -> pa.Table | RowStream:
    found = _in_memory(element)
    if found is not None:
        return found
    reader = _reader(element)
    if reader is not None:
        return RowStream(_batches(reader))
    if isinstance(element, (list, tuple)) and all(isinstance(row, Mapping) for row in element):
        return _from_dicts(element, {}, 0)
    raise Invalid(f"item {place} of the given rows is a {_name(element)}, {_WAY_OUT}")


# -- rows as dicts ---------------------------------------------------------------------------------------


def _from_dicts(rows: Sequence[Mapping[Any, object]], names: dict[str, None], first: int) -> pa.Table:
    """Rows as a table with all columns that any of them has; a row that lacks one has a null there.

    ``names``: columns of the rows before them, to which theirs are added. ``first``: number of the first row.
    """
    for number, row in enumerate(rows):
        if not row.keys() <= names.keys():
            for name in row:
                if not isinstance(name, str):
                    raise Invalid(
                        f"row {first + number} has the key {name!r}: keys of rows are names of columns"
                    )
            names.update(dict.fromkeys(row))
    if not names and rows:
        raise Invalid(f"row {first} has no column: each dict is a row, {{'name of a column': value}}")
    return pa.table({name: _values([row.get(name) for row in rows], name, first) for name in names})


def _values(values: list[object], name: str, first: int) -> pa.Array:
    trouble = _refused(values)
    if trouble is None:
        return pa.array(values)
    row = bisect_left(range(len(values)), True, key=lambda row: _refused(values[: row + 1]) is not None)
    raise Invalid(
        f"column {name!r}, row {first + row}: {values[row]!r:.100} ({_name(values[row])}) does not go"
        f" together with the values of the rows before it: {_line(trouble)}; give a column values of one type"
    ) from trouble


def _refused(values: list[object]) -> Exception | None:
    try:
        pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return error
    return None


# -- what older pyarrow cannot convert -------------------------------------------------------------------


def _readable(table: pa.Table) -> pa.Table:
    """The table without views of texts and bytes, which pyarrow before 18 cannot cast."""
    if "_view" not in str(table.schema.types):
        return table
    for at, field in enumerate(table.schema):
        kind = _plain_type(field.type)
        if kind != field.type:
            column = table.column(at)
            try:
                column = column.cast(kind)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
                column = pa.chunked_array([pa.array(column.to_pylist(), kind)])
            table = table.set_column(at, field.with_type(kind), column)
    return table


def _plain_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if str(kind) in ("string_view", "binary_view"):
        return pa.large_string() if str(kind) == "string_view" else pa.large_binary()
    if types.is_dictionary(kind):
        plain = _plain_type(kind.value_type)
        return kind if plain == kind.value_type else plain
    if types.is_struct(kind):
        return pa.struct([f.with_type(_plain_type(f.type)) for f in map(kind.field, range(kind.num_fields))])
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), kind.item_field.with_type(_plain_type(kind.item_type)))
    made: Callable[..., pa.DataType] | None = None
    if types.is_list(kind):
        made = pa.list_
    elif types.is_large_list(kind):
        made = pa.large_list
    if made is not None:
        return made(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _name(value: object) -> str:
    return type(value).__name__


def _line(error: Exception) -> str:
    """An error's text in one line: a library's may have several."""
    return " ".join(str(error).split())[:500]
