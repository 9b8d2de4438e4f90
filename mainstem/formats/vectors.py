"""Hudi's VECTOR columns (``HoodieSchema.Vector``, Hudi 1.2): their type, their bytes, and conversion of
lists.

A VECTOR(n, element) is n numbers one after another, little-endian: an Avro fixed in schemas and log blocks,
FIXED_LEN_BYTE_ARRAY in Parquet. Here it is an Arrow list of fixed size whose field has the metadata
``hudi_type``, as in Hudi's Spark columns. To Hudi, such a list without this mark is a plain list. Bytes and
lists share memory; nothing is copied between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import Invalid, Unsupported
from mainstem.options.placing import VECTOR_COLUMNS

# Key of Spark's column metadata for types that neither Arrow nor Avro can name.
VECTOR_MARK = "hudi_type"
#: footer entry that names a Parquet file's vector columns (HoodieSchema.VECTOR_COLUMNS_METADATA_KEY)
#: element types (HoodieSchema.VectorElementType)
ELEMENTS = {"FLOAT": pa.float32(), "DOUBLE": pa.float64(), "INT8": pa.int8()}
BACKING = "FIXED_BYTES"

_TEXT = re.compile(
    rf"VECTOR\s*\(\s*(\d{{1,9}})\s*(?:,\s*({'|'.join(ELEMENTS)})\s*(?:,\s*{BACKING}\s*)?)?\)\Z",
    re.IGNORECASE | re.ASCII,
)
# Ranges of integers that convert without loss.
_INTEGERS = {"FLOAT": (-(2**24), 2**24), "DOUBLE": (-(2**53), 2**53), "INT8": (-128, 127)}
# Elements checked at a time: few enough to stay in the processor's cache.
_ELEMENTS_AT_ONCE = 1 << 18


class VectorRefused(Invalid):
    """A value that is no vector of its column; ``column`` and ``row`` locate it in the given batch."""

    def __init__(self, column: str, row: int, what: str) -> None:
        super().__init__(f"column {column!r}, row {row}: {what}")
        self.column, self.row, self.what = column, row, what

    def with_key(self, key: str) -> Invalid:
        """The same error, with the record key of its row added."""
        return Invalid(f"column {self.column!r}, row {self.row} (record key {key!r:.200}): {self.what}")


@dataclass(frozen=True, slots=True)
class Vector:
    """The type VECTOR(dimension, element)."""

    dimension: int
    element: str = "FLOAT"

    def __str__(self) -> str:
        """The type in Hudi's spelling, which omits FLOAT."""
        return f"VECTOR({self.dimension}{'' if self.element == 'FLOAT' else f', {self.element}'})"

    @property
    def size(self) -> int:
        """Bytes per vector."""
        return self.dimension * ELEMENTS[self.element].bit_width // 8

    @property
    def avro_name(self) -> str:
        """The name of the Avro type."""
        return f"vector_{self.element.lower()}_{self.dimension}"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that readers return."""
        return pa.list_(pa.field("element", ELEMENTS[self.element], nullable=False), self.dimension)

    def node(self) -> dict[str, object]:
        """The Avro type, as Java writes it."""
        return {
            "type": "fixed",
            "name": self.avro_name,
            "namespace": "",
            "size": self.size,
            "logicalType": "vector",
            "dimension": self.dimension,
            "elementType": self.element,
            "storageBacking": BACKING,
        }

    def field(self, name: str, *, nullable: bool = True) -> pa.Field:
        """An Arrow field of this type, with the mark."""
        return pa.field(name, self.arrow, nullable, {VECTOR_MARK: str(self)})


def parse_vector(text: str, column: str) -> Vector:
    """The type named by ``VECTOR(384)``, ``VECTOR(384, DOUBLE)`` or ``VECTOR(384, INT8)``.

    Raises ``Unsupported`` for Hudi's other types of this kind (BLOB, VARIANT), ``Invalid`` for other texts.
    """
    if not text.strip().upper().startswith("VECTOR"):
        raise Unsupported(f"column {column!r} has {VECTOR_MARK}={text!r:.80}; VECTOR is written")
    found = _TEXT.match(text.strip())
    if not found or not 1 <= int(found[1]) <= limits.VECTOR_DIMENSION_MAX:
        raise Invalid(
            f"column {column!r} is a {text!r:.80}; expected VECTOR(n), VECTOR(n, DOUBLE) or VECTOR(n, INT8)"
            f" with n from 1 to {limits.VECTOR_DIMENSION_MAX}"
        )
    return Vector(int(found[1]), (found[2] or "FLOAT").upper())


def vector_of(field: pa.Field) -> Vector | None:
    """The VECTOR type in a field's mark; None without a mark.

    Raises ``Invalid`` if the field's Arrow type cannot hold such vectors, ``Unsupported`` for other marks.
    """
    text = (field.metadata or {}).get(VECTOR_MARK.encode())
    if text is None:
        return None
    vector = parse_vector(text.decode("utf-8", "replace"), field.name)
    kind = _plain(field.type)
    fits = _is_list(kind) and _number_fits(kind.value_type, vector.element)
    if not fits or (pa.types.is_fixed_size_list(kind) and kind.list_size != vector.dimension):
        raise Invalid(
            f"column {field.name!r} is marked {VECTOR_MARK}={vector} and has the Arrow type {field.type};"
            f" expected {vector.arrow}, or another list of {vector.element} numbers"
        )
    return vector


def check_same(given: pa.Field, held: pa.Field) -> None:
    """Raise ``Invalid`` if a given column is marked with another VECTOR type than the table's column has."""
    theirs = vector_of(given)
    if theirs is None:
        return
    ours = vector_of(held)
    if ours is None:
        raise Invalid(
            f"column {held.name!r} is given as {theirs}, the table holds it as {held.type}, which Hudi"
            f" never makes a vector: write a new column, or leave out the field's metadata {VECTOR_MARK!r}"
        )
    if theirs != ours:
        raise Invalid(
            f"column {held.name!r} is given as {theirs}, the table has {ours}. The type of a vector column"
            " never changes: write such vectors to a column of their own, which an upsert adds"
        )


def vector_columns(schema: pa.Schema) -> dict[str, Vector]:
    """The VECTOR columns of a table's schema."""
    found = ((field.name, vector_of(field)) for field in schema)
    return {name: vector for name, vector in found if vector is not None}


def plain_lists(schema: pa.Schema) -> dict[str, int]:
    """Sizes of fixed-size list columns that are not marked as vectors."""
    lists = [field for field in schema if pa.types.is_fixed_size_list(field.type)]
    return {field.name: field.type.list_size for field in lists if vector_of(field) is None}


def footer_note(schema: pa.Schema) -> dict[str, str]:
    """The Parquet footer entry about vector columns; empty if there are none."""
    found = vector_columns(schema)
    return {VECTOR_COLUMNS: ",".join(f"{name}:{vector}" for name, vector in found.items())} if found else {}


def with_vectors(schema: pa.Schema, vectors: Mapping[str, str]) -> pa.Schema:
    """The schema with the named columns (lists, or new ones) as ``VECTOR(...)``.

    Raises ``Invalid`` for other texts, and for columns that cannot hold such numbers.
    """
    for name, text in vectors.items():
        vector = parse_vector(text, name)
        places = schema.get_all_field_indices(name)
        if len(places) > 1:
            raise Invalid(f"vectors names {name!r}, which the schema has twice")
        if not places:
            schema = schema.append(vector.field(name))
            continue
        field = schema.field(places[0])
        vector_of(field.with_metadata({VECTOR_MARK: text}))  # raises if the column cannot hold such vectors
        schema = schema.set(places[0], vector.field(name, nullable=field.nullable))
    return schema


# -------------------------------------------------------------------------------- lists and bytes


def vector_bytes(kind: pa.DataType) -> pa.DataType:
    """The fixed-size binary type for vectors of an Arrow type."""
    return pa.binary(kind.list_size * kind.value_type.bit_width // 8)


def as_bytes(array: pa.Array) -> pa.Array:
    """Vectors as fixed-size binaries."""
    values = array.values
    data = values.buffers()[1]
    if values.offset:
        data = data.slice(values.offset * values.type.bit_width // 8)
    buffers = [array.buffers()[0], data]
    return pa.Array.from_buffers(vector_bytes(array.type), len(array), buffers, -1, array.offset)


def as_lists(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Fixed-size binaries as the vectors they hold."""
    validity, raw = array.buffers()
    rows = array.offset + len(array)
    values = pa.Array.from_buffers(kind.value_type, rows * kind.list_size, [None, raw])
    return pa.Array.from_buffers(kind, len(array), [validity], -1, array.offset, children=[values])


def stored_as_bytes(table: pa.Table) -> pa.Table:
    """The table with its vectors as Parquet stores them."""
    for at, field in enumerate(table.schema):
        if pa.types.is_fixed_size_list(field.type):
            chunks = [as_bytes(chunk) for chunk in table.column(at).chunks]
            binaries = pa.chunked_array(chunks, vector_bytes(field.type))
            table = table.set_column(at, pa.field(field.name, binaries.type, field.nullable), binaries)
    return table


def taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    """``table.take(rows)``, four times as fast for vectors, which Arrow takes element by element."""
    found = stored_as_bytes(table).take(rows)
    for at, field in enumerate(table.schema):
        if pa.types.is_fixed_size_list(field.type):
            chunks = [as_lists(chunk, field.type) for chunk in found.column(at).chunks]
            found = found.set_column(at, field, pa.chunked_array(chunks, field.type))
    return found


# ------------------------------------------------------------------------------------ rows fitted


def rows_of(numbers: np.ndarray, name: str) -> pa.Array:
    """A NumPy matrix (rows, dimension) as fixed-size lists; a row-major matrix is not copied."""
    if numbers.ndim != 2 or not numbers.shape[1]:
        raise Invalid(
            f"column {name!r} is an array of the shape {numbers.shape}; expected (rows,), or"
            " (rows, dimension) with a vector in each row"
        )
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), numbers.shape[1])


def fitted(column: pa.ChunkedArray, vector: Vector, name: str) -> pa.ChunkedArray:
    """Any lists of numbers as vectors of the type, by columns.

    Integers are converted if nothing is lost, wider floats are rounded to FLOAT, nulls stay. Raises
    ``VectorRefused``, naming the first such row, for another dimension, a null element, NaN, infinity or a
    number out of range, ``Invalid`` for a type without such numbers.
    """
    made, first = [], 0
    for chunk in column.chunks:
        made.append(_fitted(chunk, vector, name, first))
        first += len(chunk)
    return pa.chunked_array(made, vector.arrow)


def _fitted(chunk: pa.Array, vector: Vector, name: str, first: int) -> pa.Array:
    if isinstance(chunk, pa.ExtensionArray):  # a fixed-shape tensor
        chunk = chunk.storage
    if pa.types.is_null(chunk.type):
        return pa.nulls(len(chunk), vector.arrow)
    if not (_is_list(chunk.type) and _number_fits(chunk.type.value_type, vector.element)):
        raise Invalid(
            f"column {name!r} has the Arrow type {chunk.type}, the table holds {vector}: give lists of"
            f" {vector.dimension} {'integers' if vector.element == 'INT8' else 'numbers'}, or a NumPy matrix"
        )
    valid = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None
    values = _elements(chunk, vector, name, first, valid)
    if values.null_count:
        values = _without_nulls(values, vector, name, first, valid)
    numbers = _cast(values.to_numpy(zero_copy_only=False), vector, name, first, valid)
    _check_finite(numbers, vector, name, first, valid)
    child = pa.Array.from_buffers(vector.arrow.value_type, len(numbers), [None, pa.py_buffer(numbers)])
    validity = None if valid is None else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(vector.arrow, len(chunk), [validity], children=[child])


def _elements(chunk: pa.Array, vector: Vector, name: str, first: int, valid: np.ndarray | None) -> pa.Array:
    """All elements of all rows: ``dimension`` per row, for null rows too."""
    if pa.types.is_fixed_size_list(chunk.type):
        if chunk.type.list_size == vector.dimension:
            return chunk.values.slice(chunk.offset * vector.dimension, len(chunk) * vector.dimension)
        if not len(chunk) or (valid is not None and not valid.any()):
            return _zeros(chunk, len(chunk) * vector.dimension)
        at = 0 if valid is None else int(np.argmax(valid))
        raise VectorRefused(name, first + at, _wrong_length(chunk.type.list_size, vector))
    lengths = pc.fill_null(pc.list_value_length(chunk), vector.dimension).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != vector.dimension)
    if len(wrong):
        raise VectorRefused(name, first + int(wrong[0]), _wrong_length(int(lengths[wrong[0]]), vector))
    found = chunk.flatten()  # leaves out elements under nulls
    if valid is None or valid.all():
        return found
    if not len(found):
        return _zeros(chunk, len(chunk) * vector.dimension)
    row = np.where(valid, np.cumsum(valid) - 1, 0)  # a null row gets the first row's elements
    places = row[:, None] * vector.dimension + np.arange(vector.dimension)
    return found.take(pa.array(places.reshape(-1)))


def _zeros(chunk: pa.Array, count: int) -> pa.Array:
    return pa.array(np.zeros(count, chunk.type.value_type.to_pandas_dtype()), chunk.type.value_type)


def _wrong_length(found: int, vector: Vector) -> str:
    return (
        f"a vector of {found} elements, the column is a {vector}. A dimension never changes: write vectors of"
        " another one to a column of their own, which an upsert adds (field metadata"
        f" {VECTOR_MARK}=VECTOR({max(found, 1)}))"
    )


def _without_nulls(
    values: pa.Array, vector: Vector, name: str, first: int, valid: np.ndarray | None
) -> pa.Array:
    gone = values.is_null().to_numpy(zero_copy_only=False).reshape(-1, vector.dimension)
    rows = gone.any(axis=1) if valid is None else gone.any(axis=1) & valid
    _refuse(rows, name, first, "a vector with a null element; Hudi allows none")
    return pc.fill_null(values, pa.scalar(0, values.type))


def _cast(
    numbers: np.ndarray, vector: Vector, name: str, first: int, valid: np.ndarray | None
) -> np.ndarray:
    kind = ELEMENTS[vector.element].to_pandas_dtype()
    if numbers.dtype == kind:
        return np.ascontiguousarray(numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        made = numbers.astype(kind)
    if np.issubdtype(numbers.dtype, np.integer):
        low, high = _INTEGERS[vector.element]
        same = (numbers <= high) if numbers.dtype.kind == "u" else (low <= numbers) & (numbers <= high)
    else:
        same = np.isfinite(made) | ~np.isfinite(numbers)  # NaN and infinity are reported by _check_finite
    wrong = ~same.reshape(-1, vector.dimension).all(axis=1)
    what = f"a vector with a number that {vector.element} cannot hold"
    _refuse(wrong if valid is None else wrong & valid, name, first, what)
    return made


def _check_finite(
    numbers: np.ndarray, vector: Vector, name: str, first: int, valid: np.ndarray | None
) -> None:
    if vector.element == "INT8":
        return
    step = max(1, _ELEMENTS_AT_ONCE // vector.dimension)
    rows = numbers.reshape(-1, vector.dimension)
    for low in range(0, len(rows), step):
        if not np.isfinite(rows[low : low + step]).all():
            part = rows[low : low + step]
            there = True if valid is None else valid[low : low + step]
            wrong = ~np.isfinite(part).all(axis=1) & there
            nan = wrong.any() and np.isnan(part[np.argmax(wrong)]).any()
            _refuse(wrong, name, first + low, f"a vector with {'NaN' if nan else 'infinity'} in it")


def _refuse(wrong: np.ndarray, name: str, first: int, what: str) -> None:
    if wrong.any():
        raise VectorRefused(name, first + int(np.argmax(wrong)), what)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _number_fits(kind: pa.DataType, element: str) -> bool:
    if pa.types.is_null(kind):  # the element type of empty lists
        return True
    return pa.types.is_integer(kind) or (element != "INT8" and pa.types.is_floating(kind))
