"""Arrow columns to framed Avro records, column by column (content of Hudi's AVRO_DATA log blocks).

A framed record is an int32 (big-endian) byte length and an Avro datum, as ``HoodieAvroDataBlock``
writes it; the bytes equal what fastavro and Java write for the same values.

Method: each column becomes pieces. Values that take the same number of bytes in every row
(doubles, constants, keys of one length, small numbers) are put side by side into one row-major
matrix; the others are Arrow binary arrays. One ``binary_join_element_wise`` per chunk lays all
pieces end to end, and its data buffer is the content. A piece costs about 8 ns per row whatever it
holds, so fewer pieces is what makes this fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import Invalid
from mainstem.formats.avro_nested import Writer, storage_type, writer_of, zigzag
from mainstem.formats.avro_schema import AvroType, arrow_type, record_type, value_type

# Values up to this length are copied into the row matrix when all rows have the same length.
_FIXED_BYTES_MAX = 64
# Values below this many are encoded by table look-up.
_SMALL_NUMBERS = 8192
# Below this many rows a plain loop is faster.
_FEW = 24


class _Pieces:
    """The pieces of one chunk of ``rows`` rows, in the order of their bytes in a record."""

    def __init__(self, rows: int, framed: bool) -> None:
        self.rows = rows
        self.framed = framed
        self.lengths: np.ndarray | int = 0
        self._runs: list[list[tuple[str, object]] | pa.Array] = []
        self._literal = b""

    def constant(self, data: bytes) -> None:
        """The same bytes in every row."""
        self._literal += data
        self.lengths = self.lengths + len(data)

    def fixed(self, dtype: str, values: np.ndarray) -> None:
        """``values.dtype.itemsize`` bytes in every row."""
        run = self._open_run()
        run.append((dtype, values))
        self.lengths = self.lengths + np.dtype(dtype).itemsize

    def varying(self, values: pa.Array, lengths: np.ndarray) -> None:
        """A binary array without nulls; ``lengths`` are its value lengths."""
        self._flush_literal()
        self._runs.append(values)
        self.lengths = self.lengths + lengths.astype(np.int64)

    def _open_run(self) -> list[tuple[str, object]]:
        if not self._runs or isinstance(self._runs[-1], pa.Array):
            self._runs.append([])
        run = self._runs[-1]
        if self._literal:
            run.append((f"V{len(self._literal)}", np.void(self._literal)))
            self._literal = b""
        return run

    def _flush_literal(self) -> None:
        if self._literal:
            self._open_run()

    def joined(self) -> tuple[pa.Buffer, np.ndarray]:
        """``(bytes of all rows, int64[rows + 1] where each row begins)``."""
        self._flush_literal()
        lengths = np.broadcast_to(np.asarray(self.lengths, np.int64), (self.rows,))
        runs = self._runs
        if self.framed:
            runs = self._with_frame(lengths)
            lengths = lengths + 4
        starts = np.zeros(self.rows + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        arrays = [run if isinstance(run, pa.Array) else self._matrix(run) for run in runs]
        if len(arrays) == 1 and isinstance(arrays[0], np.ndarray):
            return pa.py_buffer(arrays[0]), starts
        made = [a if isinstance(a, pa.Array) else _fixed_width(a, self.rows) for a in arrays]
        whole = made[0] if len(made) == 1 else pc.binary_join_element_wise(*made, b"")
        return _data_of(whole), starts

    def _with_frame(self, lengths: np.ndarray) -> list:
        frame = (">i4", lengths)
        if self._runs and not isinstance(self._runs[0], pa.Array):
            return [[frame, *self._runs[0]], *self._runs[1:]]
        return [[frame], *self._runs]

    def _matrix(self, run: list[tuple[str, object]]) -> np.ndarray:
        made = np.empty(self.rows, np.dtype([(f"f{i}", dtype) for i, (dtype, _) in enumerate(run)]))
        for i, (_, values) in enumerate(run):
            made[f"f{i}"] = values
        return made


def _fixed_width(matrix: np.ndarray, rows: int) -> pa.Array:
    width = matrix.dtype.itemsize
    offsets = np.arange(0, width * (rows + 1), width, dtype=np.int32)[: rows + 1]
    return _binary(offsets, matrix, rows)


def _binary(offsets: np.ndarray, data: object, rows: int) -> pa.Array:
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _data_of(array: pa.Array) -> pa.Buffer:
    offsets = _offsets(array)
    data = array.buffers()[2]
    if data is None:
        return pa.py_buffer(b"")
    return data.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))


def _offsets(array: pa.Array) -> np.ndarray:
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, 4 * array.offset)


# ------------------------------------------------------------------------------------- public


def encode_records(batch: pa.RecordBatch | pa.Table, schema_text: str) -> list[memoryview]:
    """All rows as framed Avro records of ``schema_text``, in order, as one or more buffers.

    Columns are matched by name; a column that the batch lacks is written as null. Numbers are
    widened when nothing is lost (int to long, float to double, timestamps to microseconds).
    ``Invalid`` names the column for anything else: unknown column, wrong type, null where the
    schema has none, overflow.
    """
    return [part for part, _ in _encoded(batch, schema_text)]


def encode_groups(
    batch: pa.RecordBatch | pa.Table, schema_text: str, bounds: Sequence[int]
) -> list[list[memoryview]]:
    """Like ``encode_records`` for each range of rows ``bounds[i]:bounds[i + 1]``, at the cost of
    one call.

    ``bounds`` ascends from 0 to the number of rows: the way to encode a batch that is sorted by
    bucket.
    """
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != batch.num_rows:
        raise Invalid(f"bounds must ascend from 0 to {batch.num_rows}, found {list(bounds)[:10]}")
    groups: list[list[memoryview]] = [[] for _ in range(len(bounds) - 1)]
    edges = np.asarray(bounds, np.int64)
    first = 0
    for part, starts in _encoded(batch, schema_text):
        rows = len(starts) - 1
        low = int(np.searchsorted(edges, first, "right")) - 1
        high = int(np.searchsorted(edges, first + rows, "left"))
        cuts = starts[np.clip(edges[low : high + 1] - first, 0, rows)]
        for group, begin, end in zip(range(low, high), cuts[:-1], cuts[1:], strict=True):
            if end > begin:
                groups[group].append(part[begin:end])
        first += rows
    return groups


def _encoded(
    batch: pa.RecordBatch | pa.Table, schema_text: str
) -> list[tuple[memoryview, np.ndarray]]:
    record = record_type(schema_text)
    _check_columns(batch, record)
    made: list[tuple[memoryview, np.ndarray]] = []
    for chunk in _chunks(batch):
        if chunk.num_rows < _FEW:
            made.append(_encode_few(chunk, record, _writers(schema_text)))
        else:
            made += _encode_chunk(chunk, record)
    return made


def _check_columns(batch: pa.RecordBatch | pa.Table, record: AvroType) -> None:
    names = batch.schema.names
    if len(set(names)) != len(names):
        raise Invalid(f"the batch has two columns of one name: {names}")
    known = {name for name, _ in record.fields}
    alien = [name for name in names if name not in known]
    if alien:
        raise Invalid(f"the batch has columns that the table has not: {', '.join(alien)}")


def _chunks(batch: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    if isinstance(batch, pa.Table):
        if batch.num_rows and any(c.num_chunks * 4096 > batch.num_rows for c in batch.columns):
            batch = batch.combine_chunks()
        batches = batch.to_batches(max_chunksize=limits.CHUNK_ROWS)
    else:
        step = limits.CHUNK_ROWS
        batches = [batch.slice(i, step) for i in range(0, batch.num_rows, step)]
    return [b for b in batches if b.num_rows]


@lru_cache(maxsize=64)
def _writers(schema_text: str) -> tuple[Writer, ...]:
    return tuple(writer_of(kind, name) for name, kind in record_type(schema_text).fields)


def _encode_few(
    batch: pa.RecordBatch, record: AvroType, writers: tuple[Writer, ...]
) -> tuple[memoryview, np.ndarray]:
    """A plain loop over the rows: fewer than ``_FEW`` do not repay the fixed cost of columns."""
    names = batch.schema.names
    columns = []
    for name, kind in record.fields:
        if name in names:
            columns.append(_listed(batch.column(names.index(name)), kind, name))
        elif kind.nullable:
            columns.append([None] * batch.num_rows)
        else:
            raise _missing(name)
    out, starts = bytearray(), [0]
    for values in zip(*columns, strict=True):
        begin = len(out)
        out += b"\0\0\0\0"
        for write, value in zip(writers, values, strict=True):
            write(value, out)
        out[begin : begin + 4] = (len(out) - begin - 4).to_bytes(4, "big")
        starts.append(len(out))
    return memoryview(out).toreadonly(), np.asarray(starts, np.int64)


def _listed(column: pa.Array, kind: AvroType, name: str) -> list:
    """Values as the row writers take them: times and dates as plain integers."""
    if column.null_count == len(column) and kind.nullable:
        return [None] * len(column)
    array = stored(column, kind, name)
    _check_nulls(array, kind, name)
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if kind.kind == "int" else pa.int64())
    elif kind.logical == "decimal":
        _check_digits(array, kind, name)
    try:
        return array.to_pylist()
    except UnicodeDecodeError as error:
        raise Invalid(f"column {name!r} holds text that is not UTF-8: {error}") from None


def _missing(name: str) -> Invalid:
    return Invalid(f"column {name!r} is missing and the schema declares it as not null")


def _check_nulls(array: pa.Array, kind: AvroType, name: str) -> None:
    if array.null_count and not kind.nullable:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise Invalid(
            f"column {name!r} has a null in row {row} of its batch, but the schema declares it as "
            "not null"
        )


def _encode_chunk(batch: pa.RecordBatch, record: AvroType) -> list[tuple[memoryview, np.ndarray]]:
    if batch.nbytes > limits.CHUNK_BYTES_MAX and batch.num_rows > 1:
        return _halves(batch, record)
    pieces = _Pieces(batch.num_rows, framed=True)
    names = batch.schema.names
    for name, kind in record.fields:
        if name in names:
            _put(pieces, batch.column(names.index(name)), kind, name)
        else:
            _put_nulls(pieces, kind, name)
    total = int(np.sum(pieces.lengths)) if pieces.rows > 1 else 0
    if isinstance(pieces.lengths, int):
        total = pieces.lengths * pieces.rows
    if total + 4 * pieces.rows > limits.CHUNK_BYTES_MAX:
        return _halves(batch, record)
    data, starts = pieces.joined()
    return [(memoryview(data), starts)]


def _halves(batch: pa.RecordBatch, record: AvroType) -> list[tuple[memoryview, np.ndarray]]:
    if batch.num_rows == 1:
        raise Invalid(
            f"one row takes more than {limits.CHUNK_BYTES_MAX} bytes, more than a log block "
            "should hold"
        )
    middle = batch.num_rows // 2
    return _encode_chunk(batch.slice(0, middle), record) + _encode_chunk(
        batch.slice(middle), record
    )


# ------------------------------------------------------------------------------------- columns


def _put_nulls(pieces: _Pieces, kind: AvroType, name: str) -> None:
    if not kind.nullable:
        raise _missing(name)
    pieces.constant(bytes((2 * kind.null_branch,)))


def _put(pieces: _Pieces, column: pa.Array, kind: AvroType, name: str) -> None:
    """Append the encoded column to ``pieces``."""
    if column.null_count == len(column) and kind.nullable:
        return _put_nulls(pieces, kind, name)
    if pa.types.is_dictionary(column.type):
        column = _from_dictionary(pieces, column, kind, name)
        if column is None:
            return None
    array = stored(column, kind, name)
    valid = _validity(array)
    _check_nulls(array, kind, name)
    _PUT.get(kind.logical or kind.kind, _PUT.get(kind.kind, _put_rows))(
        pieces, array, valid, kind, name
    )
    return None


def _from_dictionary(
    pieces: _Pieces, column: pa.DictionaryArray, kind: AvroType, name: str
) -> pa.Array | None:
    """Encode the dictionary once and gather its bytes; None when that was possible."""
    values = column.dictionary
    if len(values) > len(column) or values.null_count or kind.kind not in ("string", "bytes"):
        return column.dictionary_decode()
    if len(values) == 1 and column.null_count == 0:
        framed, _ = encode_column(values, kind, name)
        pieces.constant(framed.to_pybytes())
        return None
    if column.null_count and not kind.nullable:
        return column.dictionary_decode()
    data, starts = encode_column(values, kind, name)
    indices = column.indices
    raw = data.to_pybytes()
    if column.null_count:
        indices = indices.cast(pa.int32()).fill_null(len(values))
        raw += bytes((2 * kind.null_branch,))
        starts = np.append(starts, len(raw))
    entries = _binary(starts.astype(np.int32), raw, len(starts) - 1)
    taken = entries.take(indices)
    pieces.varying(taken, np.diff(_offsets(taken)))
    return None


def encode_column(column: pa.Array, kind: AvroType, name: str) -> tuple[pa.Buffer, np.ndarray]:
    """``(bytes, where each value begins)`` of one column without record framing."""
    pieces = _Pieces(len(column), framed=False)
    _put(pieces, column, kind, name)
    return pieces.joined()


def stored(column: pa.Array, kind: AvroType, name: str) -> pa.Array:
    """The column in the Arrow type that the encoder reads, or ``Invalid`` naming it."""
    target = arrow_type(kind) if kind.kind in _PUT else storage_type(kind)
    if column.type == target:
        return column
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
    except pa.ArrowNotImplementedError:  # pyarrow 16 and 17 have views, but no cast from them
        return pa.array(column.to_pylist(), target)


def fits(source: pa.DataType, kind: AvroType) -> bool:
    """Whether values of an Arrow type may be written to a column, range checks aside."""
    source, types = value_type(source), pa.types
    name = kind.logical or kind.kind
    if name == "decimal":
        return types.is_decimal(source)
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


def _validity(array: pa.Array) -> np.ndarray | None:
    if array.null_count == 0:
        return None
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    mask = np.unpackbits(bits, bitorder="little", count=array.offset + len(array))
    return mask[array.offset :].view(np.bool_)


def _values(array: pa.Array, dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * size)


def _branch(kind: AvroType) -> bytes:
    return bytes((2 * kind.value_branch,)) if kind.nullable else b""


def _put_text(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    offsets = _offsets(array)
    if kind.kind == "string":
        _check_text(array, offsets, name)
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
        _put_numbers(pieces, lengths.astype(np.int64), None, kind)
    pieces.varying(array, lengths)


def _check_text(array: pa.Array, offsets: np.ndarray, name: str) -> None:
    """Arrow lets foreign code hand over anything as a string; readers would refuse the block."""
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


def _put_short_prefix(pieces: _Pieces, lengths: np.ndarray, kind: AvroType) -> None:
    if kind.nullable:  # union branch and length in one 16-bit number
        pieces.fixed("<u2", (lengths << 9) | (2 * kind.value_branch))
    else:
        pieces.fixed("u1", lengths << 1)


def _put_one_length(
    pieces: _Pieces, array: pa.Array, first: int, size: int, kind: AvroType
) -> None:
    prefix = _branch(kind) + zigzag(size)
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
    few = rows[:: max(1, len(rows) // 8)]  # most columns differ here already
    return bool((few == first).all()) and bool((rows == first).all())


def _put_text_with_nulls(
    pieces: _Pieces, array: pa.Array, lengths: np.ndarray, valid: np.ndarray, kind: AvroType
) -> None:
    lengths = np.where(valid, lengths, 0)
    _put_numbers(pieces, lengths.astype(np.int64), valid, kind)
    if bool((np.diff(_offsets(array))[~valid] != 0).any()):
        array = pc.fill_null(array, b"")  # Arrow allows bytes behind a null
    else:
        array = pa.Array.from_buffers(
            pa.binary(), len(array), [None, *array.buffers()[1:]], 0, array.offset
        )
    pieces.varying(array, lengths)


def _put_int(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    _put_numbers(pieces, _values(array, "<i4").astype(np.int64), valid, kind)


def _put_long(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    _put_numbers(pieces, _values(array, "<i8"), valid, kind)


def _put_numbers(
    pieces: _Pieces, values: np.ndarray, valid: np.ndarray | None, kind: AvroType
) -> None:
    """Union branch and zigzag varint of int64 values."""
    coded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    if valid is not None:
        coded = np.where(valid, coded, np.uint64(0))
    low, high = int(coded.min()), int(coded.max())
    if high < _SMALL_NUMBERS:
        if valid is None and high < 128 and kind.nullable:
            pieces.fixed("<u2", (coded.astype(np.uint16) << 8) | (2 * kind.value_branch))
        else:
            _put_small(pieces, coded, valid, kind)
        return
    width = _width(high)
    if valid is None and _width(low) == width:
        pieces.constant(_branch(kind))
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
    """Varints of exactly ``width`` bytes; the continuation bit is set on all but the last."""
    body = np.empty((len(coded), width), np.uint8)
    for i in range(width):
        shifted = coded >> np.uint64(7 * i) if i else coded
        body[:, i] = (shifted.astype(np.uint8) | 0x80) if i < width - 1 else shifted
    return body


def _put_small(
    pieces: _Pieces, coded: np.ndarray, valid: np.ndarray | None, kind: AvroType
) -> None:
    places = coded.astype(np.int32)
    if valid is not None:
        places = np.where(valid, places, _SMALL_NUMBERS).astype(np.int32)
    offsets, data = _small_numbers(_branch(kind), 2 * (kind.null_branch or 0))
    taken = _binary(offsets, data, _SMALL_NUMBERS + 1).take(pa.array(places))
    pieces.varying(taken, np.diff(_offsets(taken)))


@lru_cache(maxsize=8)
def _small_numbers(branch: bytes, null: int) -> tuple[np.ndarray, bytes]:
    """Encoded forms of the zigzag codes 0 to 8191, then of null."""
    forms = [
        branch + (bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)))
        for n in range(_SMALL_NUMBERS)
    ]
    forms.append(bytes((null,)))
    offsets = np.zeros(len(forms) + 1, np.int32)
    np.cumsum([len(form) for form in forms], out=offsets[1:])
    return offsets, b"".join(forms)


def _put_padded(
    pieces: _Pieces,
    body: np.ndarray,
    used: np.ndarray,
    valid: np.ndarray | None,
    kind: AvroType,
) -> None:
    """Rows of a uint8 matrix of which the first ``used`` bytes count; null rows get the null
    branch."""
    if kind.nullable:
        whole = np.empty((len(body), body.shape[1] + 1), np.uint8)
        whole[:, 1:] = body
        whole[:, 0] = 2 * kind.value_branch
        used = used + 1
        if valid is not None:
            whole[:, 0][~valid] = 2 * kind.null_branch
            used = np.where(valid, used, 1)
        body = whole
    mask = np.arange(body.shape[1]) < used[:, None]
    offsets = np.zeros(len(body) + 1, np.int32)
    np.cumsum(used, out=offsets[1:])
    pieces.varying(_binary(offsets, body[mask], len(body)), used)


def _put_real(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    size = 4 if kind.kind == "float" else 8
    dtype = f"<f{size}"
    values = _values(array, dtype)
    if valid is None:
        pieces.constant(_branch(kind))
        pieces.fixed(dtype, values)
        return
    body = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
    _put_padded(pieces, body, np.full(len(body), size), valid, kind)


def _put_boolean(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    values = np.unpackbits(bits, bitorder="little", count=array.offset + len(array))
    values = values[array.offset :]
    if valid is None:
        pieces.constant(_branch(kind))
        pieces.fixed("u1", values)
        return
    _put_padded(pieces, values.reshape(-1, 1), np.ones(len(values), np.int64), valid, kind)


def _put_fixed(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    lengths = np.diff(_offsets(array))
    wrong = lengths != kind.size if valid is None else (lengths != kind.size) & valid
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise Invalid(
            f"column {name!r} has {lengths[row]} bytes in row {row} of its batch, its schema wants "
            f"{kind.size}"
        )
    if valid is not None:
        _put_rows(pieces, array, valid, kind, name)
        return
    pieces.constant(_branch(kind))
    pieces.varying(array, lengths)


def _put_decimal(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    _check_digits(array, kind, name)
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
    pieces.constant(_branch(kind))
    whole = np.ascontiguousarray(body).reshape(-1).view(f"V{kind.size}")
    pieces.fixed(f"V{kind.size}", whole)


def _check_digits(array: pa.Array, kind: AvroType, name: str) -> None:
    """Arrow does not look at what foreign code hands over as a decimal; readers would refuse it."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Invalid(
            f"column {name!r} has a value that does not fit decimal({kind.precision},"
            f"{kind.scale}): "
            f"{error}"
        ) from None


def decimal_matrix(array: pa.Array) -> np.ndarray:
    """uint8[rows, 16]: big-endian two's complement of a decimal128 column; undefined where null."""
    raw = np.frombuffer(array.buffers()[1], np.uint8, 16 * len(array), 16 * array.offset)
    return raw.reshape(-1, 16)[:, ::-1]


def minimal_sizes(body: np.ndarray) -> np.ndarray:
    """Bytes that ``BigInteger.toByteArray`` needs for each row of a big-endian matrix, at least
    1."""
    negative = body[:, :1] >= 0x80
    redundant = (body[:, :-1] == np.where(negative, 0xFF, 0)) & ((body[:, 1:] >= 0x80) == negative)
    return body.shape[1] - np.cumprod(redundant, axis=1).sum(axis=1)


def _put_short_decimals(
    pieces: _Pieces, body: np.ndarray, valid: np.ndarray | None, kind: AvroType
) -> None:
    """A decimal on ``bytes``: the length, then as few bytes as the value needs."""
    sizes = minimal_sizes(body)
    width = body.shape[1]
    left = np.zeros((len(body), width + 1), np.uint8)
    left[:, 0] = 2 * sizes
    place = np.arange(width) + (width - sizes)[:, None]
    left[:, 1:] = np.take_along_axis(body, np.minimum(place, width - 1), axis=1)
    _put_padded(pieces, left, sizes + 1, valid, kind)


def _put_rows(
    pieces: _Pieces, array: pa.Array, valid: np.ndarray | None, kind: AvroType, name: str
) -> None:
    """Nested types: a Python loop over the rows."""
    write = writer_of(kind, name)
    out = bytearray()
    offsets = np.zeros(len(array) + 1, np.int64)
    for row, item in enumerate(array.to_pylist()):
        write(item, out)
        offsets[row + 1] = len(out)
    if len(out) > limits.CHUNK_BYTES_MAX:
        raise Invalid(
            f"column {name!r} takes more than {limits.CHUNK_BYTES_MAX} bytes in one batch"
        )
    pieces.varying(_binary(offsets.astype(np.int32), bytes(out), len(array)), np.diff(offsets))


_PUT = {
    "boolean": _put_boolean,
    "int": _put_int,
    "long": _put_long,
    "float": _put_real,
    "double": _put_real,
    "string": _put_text,
    "bytes": _put_text,
    "fixed": _put_fixed,
    "decimal": _put_decimal,
}
