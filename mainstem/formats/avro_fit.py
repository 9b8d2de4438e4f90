"""Checks that an Arrow column may be written as an Avro type, and casts it to the encoder's Arrow type.

Arrow accepts any bytes from foreign code as a string or a decimal, but readers would refuse the block. So
text and digits are checked here, before a byte is written.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_rows import nullable_type
from mainstem.formats.avro_schema import AvroType, arrow_type, value_type


def stored(column: pa.Array, kind: AvroType, name: str) -> pa.Array:
    """The column in the Arrow type that the encoder expects. Raises ``Invalid``, naming the column."""
    if column.type == arrow_type(kind):
        return column
    target = nullable_type(kind)
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if column.type == target:
        return column
    if not fits(column.type, kind):
        raise Invalid(
            f"column {name!r} has the Arrow type {column.type}, the table holds "
            f"{arrow_type(kind)}: cast it first"
        )
    try:
        if str(column.type).endswith("_view"):
            return _from_view(column, target)
        return column.cast(target)
    except pa.ArrowException as error:
        raise Invalid(
            f"column {name!r} of type {column.type} has a value that does not fit {target}: {error}"
        ) from error


def _from_view(column: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return column.cast(target)
    except pa.ArrowNotImplementedError:  # pyarrow 16 and 17 have views but cannot cast from them
        return pa.array(column.to_pylist(), target)


def fits(source: pa.DataType, kind: AvroType) -> bool:
    """Whether values of an Arrow type may be written to a column, apart from checks of their range."""
    source, types = value_type(source), pa.types
    name = kind.logical or kind.kind
    if name == "decimal":
        return types.is_decimal(source)
    if name == "vector":
        return types.is_fixed_size_list(source) and source.list_size == kind.precision
    if name == "date":
        return types.is_date(source)
    if "timestamp" in name:
        return types.is_timestamp(source) and (source.tz is None) == name.startswith("local")
    if "time-" in name:
        return types.is_time(source)
    text, binary = _is_like(source, "string"), _is_like(source, "binary")
    return {
        "boolean": types.is_boolean(source),
        "int": types.is_integer(source),
        "long": types.is_integer(source),
        "float": types.is_float16(source) or types.is_float32(source),
        "double": types.is_floating(source),
        "string": text,
        "enum": text,
        "bytes": binary,
        "fixed": binary,
        "array": "list" in str(source),
        "map": types.is_map(source),
        "record": types.is_struct(source),
    }[name]


def _is_like(kind: pa.DataType, word: str) -> bool:
    plain = str(kind).removeprefix("large_").removesuffix("_view").partition("[")[0]
    return plain in (word, f"fixed_size_{word}")


def check_nulls(array: pa.Array, kind: AvroType, name: str) -> None:
    """Raise ``Invalid``, naming the row, for a null that the schema does not allow."""
    if array.null_count and not kind.nullable:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise Invalid(
            f"column {name!r} has a null in row {row} of its batch, but the schema declares it as not null"
        )


def check_text(array: pa.Array, offsets: np.ndarray, name: str) -> None:
    """Raise ``Invalid`` for text that is not UTF-8: Arrow takes it from foreign code, readers refuse it."""
    data = array.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    if data is None or first == last:
        return
    if int(np.frombuffer(data, np.uint8, last - first, first).max()) < 0x80:
        return
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Invalid(f"column {name!r} holds text that is not UTF-8: {error}") from None


def check_digits(array: pa.Array, kind: AvroType, name: str) -> None:
    """Raise ``Invalid`` for decimals out of range: Arrow takes such from foreign code, readers refuse it."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Invalid(
            f"column {name!r} has a value that does not fit decimal({kind.precision},{kind.scale}): {error}"
        ) from None
