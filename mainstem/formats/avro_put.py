"""Arrow columns of any type to Avro values, by columns: the dispatch by type, and nested types.

An Avro list is the number of its items, the items and a zero. All items of a chunk are encoded as one column;
the items of one list are neighbours in Arrow, so the list's bytes are a slice of that column's bytes. Maps
are lists of entries. A struct without nulls is just its fields. In a struct column with nulls, the rows with
a value are encoded and then spread among the null ones.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_fit import check_nulls, stored
from mainstem.formats.avro_pieces import Pieces, binary, offsets_of
from mainstem.formats.avro_put_flat import FLAT, branch, put_numbers, validity
from mainstem.formats.avro_rows import zigzag
from mainstem.formats.avro_schema import AvroType

_KEY = AvroType("string")
# Maps with up to this many entries are compared entry by entry; larger ones are sorted.
_SMALL_MAP = 8
_FEW_TEXTS = 16


def missing(name: str) -> Invalid:
    """The error for a column that the batch lacks although the schema does not allow nulls."""
    return Invalid(f"column {name!r} is missing and the schema declares it as not null")


def put_nulls(pieces: Pieces, kind: AvroType, name: str) -> None:
    """Append a column of nulls only; ``Invalid`` if the schema does not allow nulls."""
    if not kind.nullable:
        raise missing(name)
    pieces.constant(bytes((kind.null_tag,)))


def put(pieces: Pieces, column: pa.Array, kind: AvroType, name: str) -> None:
    """Append the encoded column to ``pieces``."""
    if column.null_count == len(column) and kind.nullable:
        return put_nulls(pieces, kind, name)
    if pa.types.is_dictionary(column.type):
        column = _from_dictionary(pieces, column, kind, name)
        if column is None:
            return None
    array = stored(column, kind, name)
    valid = validity(array)
    check_nulls(array, kind, name)
    putter = _NESTED.get(kind.kind) or FLAT.get(kind.logical) or FLAT[kind.kind]
    putter(pieces, array, valid, kind, name)
    return None


def _from_dictionary(
    pieces: Pieces, column: pa.DictionaryArray, kind: AvroType, name: str
) -> pa.Array | None:
    """Encode the dictionary once and gather its bytes; return the decoded column if that is impossible."""
    values = column.dictionary
    if len(values) > len(column) or values.null_count or kind.kind not in ("string", "bytes"):
        return column.dictionary_decode()
    nulls = column.null_count
    if nulls and not kind.nullable:
        return column.dictionary_decode()
    forms = _few_texts(values, kind)
    if len(values) == 1 and not nulls:
        pieces.constant(forms[0] if forms else encode_column(values, kind, name)[0].to_pybytes())
        return None
    if forms:
        raw, starts = b"".join(forms), np.array([0, *accumulate(map(len, forms))], np.int32)
    else:
        data, starts = encode_column(values, kind, name)
        raw = data.to_pybytes()
    indices = column.indices
    if nulls:
        indices = indices.cast(pa.int32()).fill_null(len(values))
        raw += bytes((kind.null_tag,))
        starts = np.append(starts, len(raw))
    entries = binary(starts.astype(np.int32), raw, len(starts) - 1)
    taken = entries.take(indices)
    pieces.varying(taken, np.diff(offsets_of(taken)))
    return None


def _few_texts(values: pa.Array, kind: AvroType) -> list[bytes] | None:
    """The encoded forms of a few texts, such as partitions and file names, which do not repay the fixed cost
    of columns. None if there are many, or if one is not UTF-8: then the columns' way names the column."""
    if len(values) > _FEW_TEXTS or kind.kind != "string" or values.type != pa.string():
        return None
    try:
        texts = [text.encode() for text in values.to_pylist()]
    except UnicodeDecodeError:
        return None
    first = branch(kind)
    return [first + zigzag(len(text)) + text for text in texts]


def encode_column(column: pa.Array, kind: AvroType, name: str) -> tuple[pa.Buffer, np.ndarray]:
    """``(bytes, where each value begins)`` of one column, without record framing."""
    pieces = Pieces(len(column), framed=False)
    put(pieces, column, kind, name)
    return pieces.joined()


# ------------------------------------------------------------------------------------- nested


def _put_record(
    pieces: Pieces, array: pa.StructArray, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    if valid is None:
        _put_fields(pieces, array, kind, name)
        return
    some = Pieces(int(valid.sum()), framed=False)
    _put_fields(some, array.filter(pa.array(valid)), kind, name)
    data, starts = some.joined()
    _put_spread(pieces, data, starts, valid, kind)


def _put_fields(pieces: Pieces, array: pa.StructArray, kind: AvroType, name: str) -> None:
    pieces.constant(branch(kind))
    for i, (inner, child) in enumerate(kind.fields):
        put(pieces, array.field(i), child, f"{name}.{inner}")


def _put_spread(
    pieces: Pieces, data: pa.Buffer, starts: np.ndarray, valid: np.ndarray, kind: AvroType
) -> None:
    """Append the encoded values to the rows that have one, and null to the others."""
    end = len(data)
    whole = data.to_pybytes() + bytes((kind.null_tag,))
    entries = binary(np.append(starts, end + 1).astype(np.int32), whole, len(starts))
    places = np.where(valid, np.cumsum(valid) - 1, len(starts) - 1)
    taken = entries.take(pa.array(places))
    pieces.varying(taken, np.diff(offsets_of(taken)))


def _put_list(
    pieces: Pieces, array: pa.ListArray, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    lengths, kept = _lengths(array, valid)
    values = _items(array.values, array, kept)
    bodies = None
    if len(values):
        bodies = encode_column(values, kind.fields[0][1], f"{name}.element")
    _put_blocks(pieces, lengths, bodies, valid, kind)


def _put_map(pieces: Pieces, array: pa.MapArray, valid: np.ndarray | None, kind: AvroType, name: str) -> None:
    lengths, kept = _lengths(array, valid)
    keys, values = _items(array.keys, array, kept), _items(array.items, array, kept)
    bodies = None
    if len(keys):
        _check_keys(keys, lengths, name)
        entries = Pieces(len(keys), framed=False)
        put(entries, keys, _KEY, f"{name}.key")
        put(entries, values, kind.fields[0][1], f"{name}.value")
        bodies = entries.joined()
    _put_blocks(pieces, lengths, bodies, valid, kind)


def _lengths(array: pa.ListArray, valid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Items per row, and a mask of the items to keep (None: all), since Arrow allows items under a null."""
    found = np.diff(offsets_of(array)).astype(np.int64)
    if valid is None or not found[~valid].any():
        return found, None
    return np.where(valid, found, 0), np.repeat(valid, found)


def _items(values: pa.Array, array: pa.ListArray, kept: np.ndarray | None) -> pa.Array:
    offsets = offsets_of(array)
    values = values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return values if kept is None else values.filter(pa.array(kept))


def _put_blocks(
    pieces: Pieces,
    lengths: np.ndarray,
    bodies: tuple[pa.Buffer, np.ndarray] | None,
    valid: np.ndarray | None,
    kind: AvroType,
) -> None:
    """Append lists as one block with a positive count, as Java's encoder does; a count of 0 ends the list."""
    put_numbers(pieces, lengths, valid, kind)
    if bodies is None:
        return
    data, starts = bodies
    edges = np.concatenate(([0], np.cumsum(lengths)))
    cuts = starts[edges]
    pieces.varying(binary(cuts.astype(np.int32), data, len(lengths)), np.diff(cuts))
    filled = lengths > 0
    if filled.all():
        pieces.constant(b"\0")
        return
    places = np.concatenate(([0], np.cumsum(filled))).astype(np.int32)
    pieces.varying(binary(places, bytes(int(places[-1])), len(lengths)), filled)


def _check_keys(keys: pa.Array, lengths: np.ndarray, name: str) -> None:
    """Raise ``Invalid`` for a map with one key twice: Java reads it as a map that has the key once."""
    most = int(lengths.max())
    if most < 2:
        return
    coded = keys.dictionary_encode() if not pa.types.is_dictionary(keys.type) else keys
    codes = coded.indices.fill_null(-1).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if most <= _SMALL_MAP:
        twice = any(bool(((codes[d:] == codes[:-d]) & (rows[d:] == rows[:-d])).any()) for d in range(1, most))
    else:
        pairs = np.sort(rows * (len(coded.dictionary) + 1) + codes)
        twice = bool((pairs[1:] == pairs[:-1]).any())
    if twice:
        raise Invalid(f"column {name!r} holds a map with the same key twice; Java keeps only one")


_NESTED = {"record": _put_record, "array": _put_list, "map": _put_map}
