"""Flat Arrow columns to Avro values, column by column: numbers, text, bytes, decimals, enums, vectors.

Every function appends one column to ``Pieces``; ``valid`` is the mask of present values, None if there are no
nulls. The bytes equal those of fastavro and Java for the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_fit import check_digits, check_text
from mainstem.formats.avro_pieces import Pieces, binary, offsets_of
from mainstem.formats.avro_rows import zigzag
from mainstem.formats.avro_schema import AvroType

# Values up to this length are copied into the row matrix if all rows have the same length.
_FIXED_BYTES_MAX = 64
# Zigzag codes below this are encoded by table look-up.
_SMALL_NUMBERS = 8192


def validity(array: pa.Array) -> np.ndarray | None:
    """The mask of present values, None if there are no nulls."""
    if array.null_count == 0:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    mask = np.unpackbits(bits, bitorder="little", count=array.offset + len(array))
    return mask[array.offset :].view(np.bool_)


def _values(array: pa.Array, dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * size)


def branch(kind: AvroType) -> bytes:
    """The union branch byte of a value; empty outside a union."""
    return bytes((kind.value_tag,)) if kind.nullable else b""


def _put_text(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    offsets = offsets_of(array)
    if kind.kind == "string":
        check_text(array, offsets, name)
        array = array.view(pa.binary())
    lengths = np.diff(offsets)
    if valid is not None:
        _put_text_with_nulls(pieces, array, lengths, valid, kind)
        return
    low, high = int(lengths.min()), int(lengths.max())
    if low == high:
        _put_one_length(pieces, array, int(offsets[0]), low, kind)
        return
    if high < 64:
        _put_short_prefix(pieces, lengths, kind)
    else:
        put_numbers(pieces, lengths.astype(np.int64), None, kind)
    pieces.varying(array, lengths)


def _put_short_prefix(pieces: Pieces, lengths: np.ndarray, kind: AvroType) -> None:
    if kind.nullable:  # union branch and length as one 16-bit number
        pieces.fixed("<u2", (lengths << 9) | kind.value_tag)
    else:
        pieces.fixed("u1", lengths << 1)


def _put_one_length(pieces: Pieces, array: pa.Array, first: int, size: int, kind: AvroType) -> None:
    prefix = branch(kind) + zigzag(size)
    if size == 0:
        pieces.constant(prefix)
        return
    data = array.buffers()[2]
    rows = np.frombuffer(data, np.uint8, len(array) * size, first).reshape(len(array), size)
    if _all_equal(rows):
        pieces.constant(prefix + rows[0].tobytes())
        return
    pieces.constant(prefix)
    if size <= _FIXED_BYTES_MAX:
        pieces.fixed(f"V{size}", np.frombuffer(data, f"V{size}", len(array), first))
    else:
        pieces.varying(array, np.full(len(array), size, np.int32))


def _all_equal(rows: np.ndarray) -> bool:
    first = rows[0]
    few = rows[:: max(1, len(rows) // 8)]  # in most columns, a few rows already differ
    return bool((few == first).all()) and bool((rows == first).all())


def _put_text_with_nulls(
    pieces: Pieces, array: pa.Array, lengths: np.ndarray, valid: np.ndarray, kind: AvroType
) -> None:
    lengths = np.where(valid, lengths, 0)
    put_numbers(pieces, lengths.astype(np.int64), valid, kind)
    pieces.varying(_nothing_behind_nulls(array, valid), lengths)


def _nothing_behind_nulls(array: pa.Array, valid: np.ndarray) -> pa.Array:
    """The array with empty values for nulls, as an array without nulls; Arrow allows bytes under a null."""
    if bool((np.diff(offsets_of(array))[~valid] != 0).any()):
        return pc.fill_null(array, b"")
    return pa.Array.from_buffers(pa.binary(), len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _put_int(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    put_numbers(pieces, _values(array, "<i4").astype(np.int64), valid, kind)


def _put_long(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    put_numbers(pieces, _values(array, "<i8"), valid, kind)


def put_numbers(pieces: Pieces, values: np.ndarray, valid: np.ndarray | None, kind: AvroType) -> None:
    """Append union branch and zigzag varint of int64 values."""
    coded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    if valid is not None:
        coded = np.where(valid, coded, np.uint64(0))
    low, high = int(coded.min()), int(coded.max())
    if high < _SMALL_NUMBERS:
        if valid is None and high < 128 and kind.nullable:
            pieces.fixed("<u2", (coded.astype(np.uint16) << 8) | kind.value_tag)
        else:
            _put_small(pieces, coded, valid, kind)
        return
    width = _width(high)
    if valid is None and _width(low) == width:
        pieces.constant(branch(kind))
        pieces.fixed(f"V{width}", _varints(coded, width).reshape(-1).view(f"V{width}"))
        return
    body = _varints(coded, width)
    used = np.ones(len(coded), np.int64)
    for size in range(1, width):
        used += coded >= np.uint64(1 << 7 * size)
        body[:, size - 1] &= np.where(used == size, 0x7F, 0xFF).astype(np.uint8)
    _put_padded(pieces, body, used, valid, kind)


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


def _varints(coded: np.ndarray, width: int) -> np.ndarray:
    """Varints of exactly ``width`` bytes, with the continuation bit on all but the last."""
    body = np.empty((len(coded), width), np.uint8)
    for i in range(width):
        shifted = coded >> np.uint64(7 * i) if i else coded
        body[:, i] = (shifted.astype(np.uint8) | 0x80) if i < width - 1 else shifted
    return body


def _put_small(pieces: Pieces, coded: np.ndarray, valid: np.ndarray | None, kind: AvroType) -> None:
    places = coded.astype(np.int32)
    if valid is not None:
        places = np.where(valid, places, _SMALL_NUMBERS).astype(np.int32)
    offsets, data = _small_numbers(branch(kind), 2 * (kind.null_branch or 0))
    taken = binary(offsets, data, _SMALL_NUMBERS + 1).take(pa.array(places))
    pieces.varying(taken, np.diff(offsets_of(taken)))


@lru_cache(maxsize=8)
def _small_numbers(branch: bytes, null: int) -> tuple[np.ndarray, bytes]:
    """Encoded forms of the zigzag codes 0 to 8191, followed by that of null."""
    forms = [
        branch + (bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7))) for n in range(_SMALL_NUMBERS)
    ]
    forms.append(bytes((null,)))
    offsets = np.zeros(len(forms) + 1, np.int32)
    np.cumsum([len(form) for form in forms], out=offsets[1:])
    return offsets, b"".join(forms)


def _put_padded(
    pieces: Pieces,
    body: np.ndarray,
    used: np.ndarray,
    valid: np.ndarray | None,
    kind: AvroType,
) -> None:
    """Append the first ``used`` bytes of each row of a uint8 matrix; null rows get the null branch."""
    if kind.nullable:
        whole = np.empty((len(body), body.shape[1] + 1), np.uint8)
        whole[:, 1:] = body
        whole[:, 0] = kind.value_tag
        used = used + 1
        if valid is not None:
            whole[:, 0][~valid] = kind.null_tag
            used = np.where(valid, used, 1)
        body = whole
    mask = np.arange(body.shape[1]) < used[:, None]
    offsets = np.zeros(len(body) + 1, np.int32)
    np.cumsum(used, out=offsets[1:])
    pieces.varying(binary(offsets, body[mask], len(body)), used)


def _put_real(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    size = 4 if kind.kind == "float" else 8
    dtype = f"<f{size}"
    values = _values(array, dtype)
    if valid is None:
        pieces.constant(branch(kind))
        pieces.fixed(dtype, values)
        return
    body = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
    _put_padded(pieces, body, np.full(len(body), size), valid, kind)


def _put_boolean(
    pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    values = np.unpackbits(bits, bitorder="little", count=array.offset + len(array))
    values = values[array.offset :]
    if valid is None:
        pieces.constant(branch(kind))
        pieces.fixed("u1", values)
        return
    _put_padded(pieces, values.reshape(-1, 1), np.ones(len(values), np.int64), valid, kind)


def _put_fixed(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    lengths = np.diff(offsets_of(array))
    wrong = lengths != kind.size if valid is None else (lengths != kind.size) & valid
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise Invalid(
            f"column {name!r} has {lengths[row]} bytes in row {row} of its batch, its schema expects "
            f"{kind.size}"
        )
    if valid is None:
        pieces.constant(branch(kind))
        pieces.varying(array, lengths)
        return
    pieces.fixed("u1", np.where(valid, kind.value_tag, kind.null_tag))
    pieces.varying(_nothing_behind_nulls(array, valid), np.where(valid, lengths, 0))


def _put_enum(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    places = pc.index_in(array, value_set=pa.array(kind.symbols, pa.string()))
    if places.null_count > array.null_count:
        wrong = array.filter(pc.and_(places.is_null(), array.is_valid()))[0].as_py()
        raise Invalid(
            f"column {name!r} holds {wrong!r:.80}, which is not a symbol of its enum: "
            f"{', '.join(kind.symbols)}"
        )
    put_numbers(pieces, places.fill_null(0).to_numpy().astype(np.int64), valid, kind)


def _put_decimal(
    pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    check_digits(array, kind, name)
    body = decimal_matrix(array)
    if valid is not None:
        body = np.where(valid[:, None], body, np.uint8(0))
    if kind.kind == "bytes":
        _put_short_decimals(pieces, body, valid, kind)
        return
    if kind.size >= 16:
        sign = np.where(body[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
        body = np.concatenate([np.repeat(sign, kind.size - 16, axis=1), body], axis=1)
    else:
        body = body[:, 16 - kind.size :]
    if valid is not None:
        _put_padded(pieces, body, np.full(len(body), kind.size), valid, kind)
        return
    pieces.constant(branch(kind))
    whole = np.ascontiguousarray(body).reshape(-1).view(f"V{kind.size}")
    pieces.fixed(f"V{kind.size}", whole)


def decimal_matrix(array: pa.Array) -> np.ndarray:
    """uint8[rows, 16]: big-endian two's complement of a decimal128 column; undefined for nulls."""
    raw = np.frombuffer(array.buffers()[1], np.uint8, 16 * len(array), 16 * array.offset)
    return raw.reshape(-1, 16)[:, ::-1]


def minimal_sizes(body: np.ndarray) -> np.ndarray:
    """Bytes that ``BigInteger.toByteArray`` needs for each row of a big-endian matrix, at least 1."""
    negative = body[:, :1] >= 0x80
    redundant = (body[:, :-1] == np.where(negative, 0xFF, 0)) & ((body[:, 1:] >= 0x80) == negative)
    return body.shape[1] - np.cumprod(redundant, axis=1).sum(axis=1)


def _put_short_decimals(pieces: Pieces, body: np.ndarray, valid: np.ndarray | None, kind: AvroType) -> None:
    """Append decimals of type ``bytes``: the length, then as few bytes as the value needs."""
    sizes = minimal_sizes(body)
    width = body.shape[1]
    left = np.zeros((len(body), width + 1), np.uint8)
    left[:, 0] = 2 * sizes
    place = np.arange(width) + (width - sizes)[:, None]
    left[:, 1:] = np.take_along_axis(body, np.minimum(place, width - 1), axis=1)
    _put_padded(pieces, left, sizes + 1, valid, kind)


def _put_vector(pieces: Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    """Append the elements of each vector, little-endian, as an Arrow list of fixed size stores them."""
    values = array.values.slice(array.offset * kind.precision, len(array) * kind.precision)
    whole = validity(values)
    if whole is not None:
        there = np.repeat(np.True_ if valid is None else valid, kind.precision)
        if (~whole & there).any():
            raise Invalid(f"column {name!r} has a vector with a null element; Hudi allows none")
    width = kind.size // kind.precision
    raw = np.frombuffer(values.buffers()[1], np.uint8, len(values) * width, values.offset * width)
    rows = raw.reshape(len(array), kind.size)
    if valid is None:
        pieces.constant(branch(kind))
    else:
        pieces.fixed("u1", np.where(valid, kind.value_tag, kind.null_tag))
        rows = rows[valid]
    places = np.zeros(len(array) + 1, np.int64)
    np.cumsum(np.full(len(array), kind.size) if valid is None else kind.size * valid, out=places[1:])
    pieces.varying(binary(places.astype(np.int32), np.ascontiguousarray(rows), len(array)), np.diff(places))


FLAT: dict[str, Callable] = {
    "boolean": _put_boolean,
    "int": _put_int,
    "long": _put_long,
    "float": _put_real,
    "double": _put_real,
    "string": _put_text,
    "bytes": _put_text,
    "fixed": _put_fixed,
    "enum": _put_enum,
    "decimal": _put_decimal,
    "vector": _put_vector,
}
