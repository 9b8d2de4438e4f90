"""Framed Avro records to Arrow columns, column by column (content of Hudi's AVRO_DATA log blocks).

A chunk of records is read with one cursor per record: a column is decoded for all records at once
and moves the cursors on. Strings are gathered by one Arrow ``take`` over an array that lies on the
block's own bytes. In the end every cursor must stand exactly on the next record: Avro content has
no checksum, and this is the check that comes free.

Input is untrusted. Every length is compared with the bytes of the block before it is used, memory
grows with the block's size only, text is checked to be UTF-8, and all damage becomes
``CorruptTable``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import CorruptTable
from mainstem.formats.avro_nested import Malformed, reader_of
from mainstem.formats.avro_schema import AvroType, arrow_type, avro_to_arrow, record_type
from mainstem.formats.record_starts import joined_starts

_PAD = 16
# From this many records on, looking for columns of one size is worth its fixed cost.
_RUNS_FROM = 256
# Below this many records the fixed cost of numpy and Arrow calls exceeds a plain loop.
_FEW = 20
# Rows decoded together: their bytes should stay in the processor's cache from column to column.
_ROWS = 16_384


def decode_records(
    content: memoryview,
    count: int,
    schema_text: str,
    columns: Sequence[str] | None = None,
    *,
    path: str = "",
    offset: int = 0,
) -> pa.Table:
    """``count`` framed records as a table; ``columns`` in the order asked for, or all of the
    schema.

    A name that the schema has not is left out (older blocks lack newer columns; see
    ``project_to``). ``path`` and ``offset`` (of ``content`` in its file) appear in the
    ``CorruptTable`` that any damage raises.
    """
    return decode_many([(content, count)], schema_text, columns, path=path, places=[(path, offset)])


def decode_many(
    parts: Sequence[tuple[memoryview, int]],
    schema_text: str,
    columns: Sequence[str] | None = None,
    path: str = "",
    *,
    places: Sequence[tuple[str, int]] | None = None,
) -> pa.Table:
    """Several contents of one schema, in order, as one table; small ones are decoded together.

    ``places`` are the (path, offset) of the parts, for error messages.
    """
    record = record_type(schema_text, path)
    schema = _arrow_schema(schema_text)
    if columns is not None:
        known = set(schema.names)
        schema = pa.schema([schema.field(name) for name in columns if name in known])
    wanted = schema.names
    where = places or [(path, 0)] * len(parts)
    batches: list[pa.RecordBatch] = []
    for group in _groups(parts):
        chosen = [parts[i] for i in group]
        batches += _decode_group(chosen, [where[i] for i in group], record, wanted, schema)
    if not wanted:
        return _no_columns(sum(count for _, count in parts))
    return pa.Table.from_batches(batches, schema)


@lru_cache(maxsize=64)
def _arrow_schema(schema_text: str) -> pa.Schema:
    return avro_to_arrow(schema_text)


_reader = lru_cache(maxsize=1024)(reader_of)
_arrow_type = lru_cache(maxsize=1024)(arrow_type)


def _no_columns(rows: int) -> pa.Table:
    return pa.table({"rows": pa.nulls(rows)}).select([])


def _groups(parts: Sequence[tuple[memoryview, int]]) -> list[list[int]]:
    """Runs of parts that are joined before they are decoded: a copy of small ones saves fixed
    cost."""
    groups: list[list[int]] = []
    rows = size = 0
    for i, (content, count) in enumerate(parts):
        small = count < limits.CHUNK_ROWS // 4 and len(content) < 8 * limits.MIB
        if groups and small and rows < limits.CHUNK_ROWS and size < 64 * limits.MIB:
            groups[-1].append(i)
            rows, size = rows + count, size + len(content)
        else:
            groups.append([i])
            rows, size = (count, len(content)) if small else (limits.CHUNK_ROWS, 0)
    return groups


def _decode_group(
    parts: list[tuple[memoryview, int]],
    places: list[tuple[str, int]],
    record: AvroType,
    wanted: list[str],
    schema: pa.Schema,
) -> list[pa.RecordBatch]:
    try:
        data = parts[0][0] if len(parts) == 1 else memoryview(b"".join(p for p, _ in parts))
        data = data.cast("B") if data.format != "B" else data
        starts = joined_starts(data, [(len(content), count) for content, count in parts])
        shapes = _sampled(data, starts, record)
        return [
            _decode_chunk(data, starts[low : high + 1], record, shapes, wanted, schema)
            for low, high in _chunks(starts)
        ]
    except Malformed as error:
        if len(parts) > 1:  # decode one by one to say which part it is
            for part, place in zip(parts, places, strict=True):
                _decode_group([part], [place], record, wanted, schema)
        path, offset = places[0]
        raise CorruptTable(
            f"a damaged Avro log block: {error}; restore the file from a copy, or read the table "
            "as of an instant before it",
            path=path,
            offset=offset,
        ) from None


def _chunks(starts: np.ndarray) -> list[tuple[int, int]]:
    count, bounds, low = len(starts) - 1, [], 0
    while low < count:
        limit = int(np.searchsorted(starts, starts[low] + limits.CHUNK_BYTES_MAX, "right")) - 1
        high = max(low + 1, min(low + _ROWS, limit, count))
        bounds.append((low, high))
        low = high
    return bounds


def _decode_chunk(
    data: memoryview,
    starts: np.ndarray,
    record: AvroType,
    shapes: list,
    wanted: list[str],
    schema: pa.Schema,
) -> pa.RecordBatch:
    cursors = Cursors(data, starts)
    made = _read_columns(cursors, record.fields, shapes, frozenset(wanted))
    cursors.check_end()
    if not wanted:
        return _no_columns(cursors.rows).to_batches()[0]
    return pa.RecordBatch.from_arrays([made[name] for name in wanted], schema=schema)


def _sampled(data: memoryview, starts: np.ndarray, record: AvroType) -> list:
    """The shapes that columns probably have in all records; each is checked where it is used."""
    from mainstem.formats.avro_runs import sample_shapes

    if len(starts) <= _RUNS_FROM:
        return [None] * len(record.fields)
    return sample_shapes(data, starts, record.fields)


def _read_columns(
    cursors: Cursors,
    fields: Sequence[tuple[str, AvroType]],
    shapes: list,
    wanted: frozenset[str],
) -> dict[str, pa.Array | None]:
    """All columns, runs of columns of one size first tried together (see ``avro_runs``).

    A column that did not have its sampled shape loses it, for the chunks that follow as well.
    """
    from mainstem.formats.avro_runs import read_run, run_end

    made: dict[str, pa.Array | None] = {}
    done = 0
    while done < len(fields):
        name, kind = fields[done]
        end = run_end(shapes, done, cursors.size / cursors.rows)
        columns: list[pa.Array | None] = []
        try:
            if end > done:
                part, keep = fields[done:end], [n in wanted for n, _ in fields[done:end]]
                columns = read_run(cursors, part, shapes[done:end], keep)
                if len(columns) < end - done:
                    shapes[done + len(columns)] = None
            if not columns:
                columns = [read_column(cursors, kind, name in wanted)]
        except (IndexError, pa.ArrowException, ValueError, OverflowError) as error:
            raise Malformed(f"column {name!r}: {error}") from None
        for (name, _), column in zip(fields[done:], columns, strict=False):
            made[name] = column
        done += len(columns)
    return made


class Cursors:
    """The bytes of one chunk of records and how far each record has been read.

    ``at`` holds offsets into ``raw`` (uint8). ``word``/``wide``/``short`` gather unaligned numbers;
    where one would reach past the end, the chunk is copied once with a few bytes behind it.
    """

    def __init__(self, data: memoryview, starts: np.ndarray, header: int = 4) -> None:
        first, last = int(starts[0]), int(starts[-1])
        self.rows = len(starts) - 1
        self.size = last - first
        self.raw = np.frombuffer(data[first:last], np.uint8)
        self.ends = starts[1:] - first
        self.at = starts[:-1] + (header - first)
        self._padded = False

    def gather(self, dtype: str, at: np.ndarray) -> np.ndarray:
        """One number per position; bytes past the end of the chunk read as zero."""
        try:
            return self._view(dtype)[at]
        except (IndexError, ValueError):
            if self._padded:
                raise
            self._pad()
            return self._view(dtype)[at]

    def _view(self, dtype: str) -> np.ndarray:
        if dtype == "u1":
            return self.raw
        width = np.dtype(dtype).itemsize
        return np.ndarray((len(self.raw) - width + 1,), dtype, self.raw, strides=(1,))

    def _pad(self) -> None:
        whole = np.zeros(self.size + _PAD, np.uint8)
        whole[: self.size] = self.raw
        self.raw, self._padded = whole, True

    def check_end(self) -> None:
        wrong = self.at != self.ends
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise Malformed(
                f"record {row} of its chunk ends at byte {int(self.ends[row])}, its values end at "
                f"byte {int(self.at[row])}"
            )

    def skip(self, sizes: np.ndarray | int) -> None:
        """Move on; a size below zero or beyond the chunk is damage."""
        many = isinstance(sizes, np.ndarray) and len(sizes) > 0
        if many and (int(sizes.min()) < 0 or int(sizes.max()) > self.size):
            raise Malformed("a length that is negative or exceeds its block")
        self.at = self.at + sizes


def read_column(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    """Decode one column for all records and move the cursors behind it."""
    if cursors.rows < _FEW:
        return _read_rows(cursors, kind, wanted)
    reader = _READ.get(kind.logical or kind.kind, _READ.get(kind.kind, _read_rows))
    return reader(cursors, kind, wanted)


def _branches(cursors: Cursors, kind: AvroType) -> np.ndarray | None:
    """Step over the union branch; the validity mask, None when nothing is null."""
    if not kind.nullable:
        return None
    tags = cursors.gather("u1", cursors.at)
    cursors.at = cursors.at + 1
    valid = tags == 2 * kind.value_branch
    if valid.all():
        return None
    if not (valid | (tags == 2 * kind.null_branch)).all():
        row = int(np.flatnonzero(~valid & (tags != 2 * kind.null_branch))[0])
        raise Malformed(f"record {row} of its chunk has the union branch byte {int(tags[row])}")
    return valid


def _bitmap(valid: np.ndarray | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def read_numbers(cursors: Cursors, valid: np.ndarray | None) -> np.ndarray:
    """int64 per record from zigzag varints; 0 and no move where not ``valid``."""
    first = cursors.gather("u1", cursors.at)
    if valid is not None:  # what follows a null belongs to the next column
        first = np.where(valid, first, np.uint8(0))
    used: np.ndarray | int
    if not (first & 0x80).any():
        coded, used = first.astype(np.uint64), 1
    else:
        coded, used = _long_varints(cursors, valid)
    if valid is not None:
        used = np.where(valid, used, 0)
    cursors.skip(used)
    return unzigzag(coded)


def _u(number: int) -> np.uint64:
    return np.uint64(number)


def _long_varints(cursors: Cursors, valid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned varints of up to 10 bytes and their sizes, all at once in 64-bit words."""
    words = cursors.gather("<u8", cursors.at)
    if valid is not None:
        words = np.where(valid, words, _u(0))
    stops = ~words & _u(0x8080808080808080)
    lowest = stops & (~stops + _u(1))
    below = lowest - _u(1)  # all ones when the varint has more than 8 bytes
    used = ((below & _u(0x0101010101010101)) * _u(0x0101010101010101)) >> _u(56)
    x = compress_varints(words & below)
    used = used.view(np.int64)
    long = np.flatnonzero(stops == 0)
    if len(long):
        _longest_varints(cursors, long, x, used)
    return x, used


def compress_varints(words: np.ndarray) -> np.ndarray:
    """The 7-bit groups of little-endian uint64 words put together, lowest byte first."""
    x = words & _u(0x7F7F7F7F7F7F7F7F)
    x = (x & _u(0x007F007F007F007F)) | ((x & _u(0x7F007F007F007F00)) >> _u(1))
    x = (x & _u(0x00003FFF00003FFF)) | ((x & _u(0x3FFF00003FFF0000)) >> _u(2))
    return (x & _u(0x000000000FFFFFFF)) | ((x & _u(0x0FFFFFFF00000000)) >> _u(4))


def unzigzag(coded: np.ndarray) -> np.ndarray:
    """uint64 zigzag codes as int64."""
    return (coded >> _u(1)).view(np.int64) ^ -(coded & _u(1)).view(np.int64)


def _longest_varints(
    cursors: Cursors, rows: np.ndarray, coded: np.ndarray, used: np.ndarray
) -> None:
    """Bytes 9 and 10 of the few varints that have them."""
    tail = cursors.gather("<u2", cursors.at[rows] + 8).astype(np.uint64)
    ninth, tenth = tail & _u(0xFF), tail >> _u(8)
    more = ninth >= _u(0x80)
    if (more & (tenth > _u(1))).any():
        raise Malformed("a number of more than 64 bits")
    coded[rows] |= (ninth & _u(0x7F)) << _u(56)
    coded[rows] |= np.where(more, tenth, _u(0)) << _u(63)
    used[rows] = np.where(more, 10, 9)


def _read_long(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = _branches(cursors, kind)
    values = read_numbers(cursors, valid)
    return primitive(kind, values, valid) if wanted else None


def _read_int(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = _branches(cursors, kind)
    values = read_numbers(cursors, valid)
    if len(values) and (int(values.min()) < -(2**31) or int(values.max()) >= 2**31):
        raise Malformed("an int of more than 32 bits")
    return primitive(kind, values.astype(np.int32), valid) if wanted else None


def primitive(kind: AvroType, values: np.ndarray, valid: np.ndarray | None) -> pa.Array:
    """An array of fixed-width values that lies on ``values``."""
    return pa.Array.from_buffers(
        arrow_type(kind), len(values), [_bitmap(valid), pa.py_buffer(values)]
    )


def _read_real(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = _branches(cursors, kind)
    size = 4 if kind.kind == "float" else 8
    values = cursors.gather(f"<f{size}", cursors.at) if wanted else None
    cursors.skip(size if valid is None else np.where(valid, size, 0))
    if values is None:
        return None
    if valid is not None:
        values[~valid] = 0
    return primitive(kind, values, valid)


def _read_boolean(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid = _branches(cursors, kind)
    values = cursors.gather("u1", cursors.at)
    if valid is not None:
        values = np.where(valid, values, np.uint8(0))
    if len(values) and int(values.max()) > 1:
        raise Malformed(f"a boolean with the value {int(values.max())}")
    cursors.skip(1 if valid is None else valid.astype(np.int64))
    if not wanted:
        return None
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [_bitmap(valid), bits])


def _read_text(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    valid, lengths = _branch_and_length(cursors, kind)
    begins = cursors.at
    cursors.skip(lengths)
    if not wanted:
        return None
    return _gathered(cursors, begins, cursors.at, valid, arrow_type(kind))


def _branch_and_length(cursors: Cursors, kind: AvroType) -> tuple[np.ndarray | None, np.ndarray]:
    if kind.nullable and cursors.size > 1:  # branch and a length below 64 in one 16-bit number
        pair = cursors.gather("<u2", cursors.at)
        if ((pair & 0x81FF) == 2 * kind.value_branch).all():
            cursors.at = cursors.at + 2
            return None, (pair >> 9).astype(np.int64)
    valid = _branches(cursors, kind)
    return valid, read_numbers(cursors, valid)


def _gathered(
    cursors: Cursors,
    begins: np.ndarray,
    ends: np.ndarray,
    valid: np.ndarray | None,
    kind: pa.DataType,
) -> pa.Array:
    """The bytes between two ascending sets of offsets as an array of strings or binaries."""
    rows = cursors.rows
    if int(ends[-1]) > cursors.size or (begins[1:] < ends[:-1]).any():
        raise Malformed("a value reaches into the next record")
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2], offsets[1::2] = begins, ends
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), pa.py_buffer(cursors.raw)]
    )
    taken = whole.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    _, places, data = taken.buffers()
    return arrow_of_bytes(kind, rows, valid, places, data)


def arrow_of_bytes(
    kind: pa.DataType,
    rows: int,
    valid: np.ndarray | None,
    offsets: pa.Buffer,
    data: pa.Buffer | None,
) -> pa.Array:
    """A string or binary array from its buffers; text is checked to be UTF-8."""
    made = pa.Array.from_buffers(kind, rows, [_bitmap(valid), offsets, data])
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
    valid = _branches(cursors, kind)
    begins = cursors.at
    size = kind.size
    cursors.skip(np.full(cursors.rows, size) if valid is None else np.where(valid, size, 0))
    return _gathered(cursors, begins, cursors.at, valid, pa.binary()) if wanted else None


def _read_decimal(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    if kind.kind == "bytes" or kind.size > 16:
        return _read_rows(cursors, kind, wanted)
    valid = _branches(cursors, kind)
    begins = cursors.at
    cursors.skip(kind.size if valid is None else np.where(valid, kind.size, 0))
    if not wanted:
        return None
    raw = np.zeros((cursors.rows, 16), np.uint8)
    if valid is None:
        cells = cursors.gather(f"V{kind.size}", begins)
        raw[:, 16 - kind.size :] = cells.view(np.uint8).reshape(-1, kind.size)
    elif valid.any():
        cells = cursors.gather(f"V{kind.size}", begins[valid])
        raw[valid, 16 - kind.size :] = cells.view(np.uint8).reshape(-1, kind.size)
    return decimals(raw, kind.size, valid, arrow_type(kind))


def _read_vector(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array | None:
    """Hudi's VECTOR: the elements lie one behind the other, so an array of lists is a copy of them."""
    valid = _branches(cursors, kind)
    begins = cursors.at
    cursors.skip(np.full(cursors.rows, kind.size) if valid is None else np.where(valid, kind.size, 0))
    if not wanted:
        return None
    rows = np.arange(cursors.rows) if valid is None else np.flatnonzero(valid)
    raw = np.zeros((cursors.rows, kind.size), np.uint8)
    if len(rows):
        cells = cursors.gather(f"V{kind.size}", begins[rows])
        raw[rows] = cells.view(np.uint8).reshape(-1, kind.size)
    return vectors(pa.py_buffer(raw), cursors.rows, valid, arrow_type(kind))


def vectors(raw: pa.Buffer, rows: int, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    """An array of lists of fixed size on the bytes of ``rows`` vectors, nulls included."""
    values = pa.Array.from_buffers(kind.value_type, rows * kind.list_size, [None, raw])
    return pa.Array.from_buffers(kind, rows, [_bitmap(valid)], children=[values])


def decimals(raw: np.ndarray, size: int, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    """A decimal128 array from uint8[rows, 16], big-endian, of which the last ``size`` bytes are
    set."""
    if size < 16:
        raw[:, : 16 - size] = np.where(raw[:, 16 - size : 17 - size] >= 0x80, 0xFF, 0)
    little = np.ascontiguousarray(raw[:, ::-1])
    made = pa.Array.from_buffers(kind, len(raw), [_bitmap(valid), pa.py_buffer(little)])
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        raise Malformed(f"a decimal with more than {kind.precision} digits") from None
    return made


def _read_rows(cursors: Cursors, kind: AvroType, wanted: bool) -> pa.Array:
    """Nested types: a Python loop over the records."""
    read = _reader(kind)
    data = cursors.raw[: cursors.size].tobytes()
    values, nexts = [], []
    for at, end in zip(cursors.at.tolist(), cursors.ends.tolist(), strict=True):
        value, at = read(data, at, end)
        values.append(value)
        nexts.append(at)
    cursors.at = np.asarray(nexts, np.int64)
    return pa.array(values, _arrow_type(kind)) if wanted else None


_READ = {
    "boolean": _read_boolean,
    "int": _read_int,
    "long": _read_long,
    "float": _read_real,
    "double": _read_real,
    "string": _read_text,
    "bytes": _read_text,
    "fixed": _read_fixed,
    "decimal": _read_decimal,
    "vector": _read_vector,
}
