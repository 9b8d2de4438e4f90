"""Flat Avro columns to Arrow, each for all records at once.

Every reader takes the cursors, the type and whether the column is wanted. It moves the cursors past the value
and returns the column, or None if it is not wanted. Strings are gathered by one Arrow ``take`` from an array
over the block's own bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem.formats.avro_cursors import Cursors, branches, read_numbers, skip_numbers
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.avro_schema import AvroType, arrow_type

# Bytes of the longest decimal that is read; beyond 16 they only repeat the sign.
_DECIMAL_BYTES_MAX = 64
FlatReader = Callable[[Cursors, AvroType, bool], "pa.Array | None"]


def bitmap(valid: np.ndarray | None) -> pa.Buffer | None:
    """An Arrow validity buffer."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _read_long(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    if not wanted and skip_numbers(cursors, kind):
        return None
    valid = branches(cursors, kind)
    values = read_numbers(cursors, valid)
    return primitive(kind, values, valid) if wanted else None


def _read_int(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    if not wanted and skip_numbers(cursors, kind):
        return None
    valid = branches(cursors, kind)
    values = read_numbers(cursors, valid)
    if len(values) and (int(values.min()) < -(2**31) or int(values.max()) >= 2**31):
        raise Malformed("an int of more than 32 bits")
    return primitive(kind, values.astype(np.int32), valid) if wanted else None


def primitive(kind: AvroType, values: np.ndarray, valid: np.ndarray | None) -> pa.Array:
    """An array of fixed-width values over the memory of ``values``."""
    return pa.Array.from_buffers(arrow_type(kind), len(values), [bitmap(valid), pa.py_buffer(values)])


def _read_real(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = branches(cursors, kind)
    size = 4 if kind.kind == "float" else 8
    values = cursors.gather(f"<f{size}", cursors.at) if wanted else None
    cursors.skip(size if valid is None else np.where(valid, size, 0))
    if values is None:
        return None
    if valid is not None:
        values[~valid] = 0
    return primitive(kind, values, valid)


def _read_boolean(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = branches(cursors, kind)
    values = cursors.gather("u1", cursors.at)
    if valid is not None:
        values = np.where(valid, values, np.uint8(0))
    if len(values) and int(values.max()) > 1:
        raise Malformed(f"a boolean with the value {int(values.max())}")
    cursors.skip(1 if valid is None else valid.astype(np.int64))
    if not wanted:
        return None
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [bitmap(valid), bits])


def _read_text(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid, lengths = _branch_and_length(cursors, kind)
    begins = cursors.at
    cursors.skip(lengths)
    if not wanted:
        return None
    return _gathered(cursors, begins, cursors.at, valid, arrow_type(kind))


def _branch_and_length(cursors: Cursors, kind: AvroType) -> tuple[np.ndarray | None, np.ndarray]:
    if kind.nullable and cursors.live is None and cursors.size > 1:
        # Read the branch and a length below 64 as one 16-bit number.
        pair = cursors.gather("<u2", cursors.at)
        short = (pair & 0x81FF) == kind.value_tag
        if short.all():
            cursors.at = cursors.at + 2
            return None, (pair >> 9).astype(np.int64)
        if (short | ((pair & 0xFF) == kind.null_tag)).all():
            cursors.at = cursors.at + (short.view(np.int8) + 1)
            return short, (pair >> 9) * short.astype(np.int64)
    valid = branches(cursors, kind)
    return valid, read_numbers(cursors, valid)


def _gathered(
    cursors: Cursors,
    begins: np.ndarray,
    ends: np.ndarray,
    valid: np.ndarray | None,
    kind: pa.DataType,
) -> pa.Array:
    """The bytes between two ascending sets of offsets, as an array of strings or binaries."""
    rows = cursors.rows
    if int(ends[-1]) > cursors.size or (begins[1:] < ends[:-1]).any():
        raise Malformed("a value reaches into the next record")
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2], offsets[1::2] = begins, ends
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), pa.py_buffer(cursors.chunk.raw)]
    )
    taken = whole.take(_every_second(rows))
    _, places, data = taken.buffers()
    return arrow_of_bytes(kind, rows, valid, places, data)


@lru_cache(maxsize=4)
def _every_second(rows: int) -> pa.Array:
    return pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32))


def arrow_of_bytes(
    kind: pa.DataType,
    rows: int,
    valid: np.ndarray | None,
    offsets: pa.Buffer,
    data: pa.Buffer | None,
) -> pa.Array:
    """A string or binary array from its buffers; checks that text is UTF-8."""
    made = pa.Array.from_buffers(kind, rows, [bitmap(valid), offsets, data])
    if kind == pa.string():
        _check_text(made, data)
    return made


def _check_text(array: pa.Array, data: pa.Buffer | None) -> None:
    if data is None or not data.size:
        return
    if int(np.frombuffer(data, np.uint8).max()) < 0x80:
        return  # plain ASCII
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise Malformed("text that is not UTF-8") from None


def _read_fixed(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = branches(cursors, kind)
    begins = cursors.at
    size = kind.size
    cursors.skip(np.full(cursors.rows, size) if valid is None else np.where(valid, size, 0))
    return _gathered(cursors, begins, cursors.at, valid, pa.binary()) if wanted else None


def _read_enum(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = branches(cursors, kind)
    places = read_numbers(cursors, valid)
    if len(places) and (int(places.min()) < 0 or int(places.max()) >= len(kind.symbols)):
        raise Malformed(f"an enum symbol beyond the last of {len(kind.symbols)}")
    if not wanted:
        return None
    mask = None if valid is None else ~valid
    return pa.array(kind.symbols, pa.string()).take(pa.array(places, mask=mask))


def _read_decimal(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    if kind.kind == "bytes":
        valid, sizes = _branch_and_length(cursors, kind)
    else:
        valid, sizes = branches(cursors, kind), np.full(cursors.rows, kind.size)
        sizes = sizes if valid is None else np.where(valid, sizes, 0)
    begins = cursors.at
    cursors.skip(sizes)
    if not wanted:
        return None
    most = int(sizes.max())
    if most > 16:
        begins, sizes = _without_sign_bytes(cursors, begins, sizes, most)
    return _decimals_of(cursors, begins, sizes, valid, kind)


def _without_sign_bytes(
    cursors: Cursors, begins: np.ndarray, sizes: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions and sizes of at most the last 16 bytes; checks that bytes before them repeat the sign."""
    if most > _DECIMAL_BYTES_MAX:
        raise Malformed(f"a decimal of {most} bytes")
    for byte in range(most - 16):
        there = np.flatnonzero(sizes > 16 + byte)
        found = cursors.gather("u1", begins[there] + byte)
        first = cursors.gather("u1", begins[there] + sizes[there] - 16)
        if (found != np.where(first >= 0x80, 0xFF, 0)).any():
            raise Malformed("a decimal of more than 38 digits")
    return begins + np.maximum(sizes - 16, 0), np.minimum(sizes, 16)


def _decimals_of(
    cursors: Cursors,
    begins: np.ndarray,
    sizes: np.ndarray,
    valid: np.ndarray | None,
    kind: AvroType,
) -> pa.Array:
    """Decode big-endian two's complement numbers of up to 16 bytes: read 16, shift, keep the sign."""
    high = cursors.gather(">i8", begins).astype(np.int64)
    short = np.minimum(sizes, 8)
    halves = np.empty((cursors.rows, 2), np.int64)  # low, high
    if int(sizes.max()) > 8:
        low = cursors.gather(">u8", begins + 8).astype(np.uint64)
        drop = (8 * (16 - np.maximum(sizes, 9))).astype(np.uint64)  # 0 to 56 bits
        carried = (high.view(np.uint64) << (np.uint64(63) - drop)) << np.uint64(1)
        both = (low >> drop) | carried
        wide = sizes > 8
        halves[:, 0] = np.where(wide, both.view(np.int64), _signed(high, short))
        halves[:, 1] = np.where(wide, high >> drop.view(np.int64), halves[:, 0] >> 63)
    else:
        halves[:, 0] = _signed(high, short)
        halves[:, 1] = halves[:, 0] >> 63
    if valid is not None:
        halves[~valid] = 0
    return _decimal_array(halves, valid, arrow_type(kind))


def _signed(words: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The first ``sizes`` (0 to 8) of 8 big-endian bytes as a signed number; 0 for no bytes."""
    return np.where(sizes > 0, words >> np.minimum(64 - 8 * sizes, 63), 0)


def _decimal_array(halves: np.ndarray, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    made = pa.Array.from_buffers(kind, len(halves), [bitmap(valid), pa.py_buffer(halves)])
    if kind.precision <= 18:  # comparing the numbers here is faster than Arrow's validation
        limit = 10**kind.precision
        low, high = halves[:, 0], halves[:, 1]
        if ((low >= limit) | (low <= -limit) | (high != low >> 63)).any():
            raise Malformed(f"a decimal with more than {kind.precision} digits")
        return made
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        raise Malformed(f"a decimal with more than {kind.precision} digits") from None
    return made


def _read_vector(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    """Read Hudi's VECTOR: the elements lie one after another, so their bytes are copied into a list array."""
    valid = branches(cursors, kind)
    begins = cursors.at
    cursors.skip(np.full(cursors.rows, kind.size) if valid is None else np.where(valid, kind.size, 0))
    if not wanted:
        return None
    if valid is None and cursors.rows:
        cells = cursors.gather(f"V{kind.size}", begins)
        return vectors(pa.py_buffer(cells.view(np.uint8)), cursors.rows, None, arrow_type(kind))
    rows = np.flatnonzero(valid) if valid is not None else begins
    raw = np.zeros((cursors.rows, kind.size), np.uint8)
    if len(rows):
        cells = cursors.gather(f"V{kind.size}", begins[rows])
        raw[rows] = cells.view(np.uint8).reshape(-1, kind.size)
    return vectors(pa.py_buffer(raw), cursors.rows, valid, arrow_type(kind))


def vectors(raw: pa.Buffer, rows: int, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    """An array of fixed-size lists over the bytes of ``rows`` vectors, nulls included."""
    values = pa.Array.from_buffers(kind.value_type, rows * kind.list_size, [None, raw])
    return pa.Array.from_buffers(kind, rows, [bitmap(valid)], children=[values])


def decimals(raw: np.ndarray, size: int, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    """A decimal128 array from big-endian uint8[rows, 16], of which the last ``size`` bytes are set."""
    if size < 16:
        raw[:, : 16 - size] = np.where(raw[:, 16 - size : 17 - size] >= 0x80, 0xFF, 0)
    little = np.ascontiguousarray(raw[:, ::-1]).view(np.int64)
    return _decimal_array(little, valid, kind)


FLAT: dict[str, FlatReader] = {
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_long,
    "float": _read_real,
    "double": _read_real,
    "string": _read_text,
    "bytes": _read_text,
    "fixed": _read_fixed,
    "enum": _read_enum,
    "decimal": _read_decimal,
    "vector": _read_vector,
}
