"""Encodes Arrow columns as framed Avro records, column by column (content of Hudi's AVRO_DATA log blocks).

A framed record is an int32 byte length (big-endian) and an Avro datum, as ``HoodieAvroDataBlock`` writes it;
the bytes equal those of fastavro and Java for the same values. ``avro_put`` turns columns of every type into
bytes, ``avro_pieces`` joins them into rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import Invalid
from mainstem.formats.avro_fit import check_digits, check_nulls, stored
from mainstem.formats.avro_pieces import Pieces, TooLarge
from mainstem.formats.avro_put import missing, put, put_nulls
from mainstem.formats.avro_rows import Writer, storage_type, writer_of
from mainstem.formats.avro_schema import AvroType, record_type

# With fewer rows, a plain loop is faster.
_FEW = 24


def encode_records(batch: pa.RecordBatch | pa.Table, schema_text: str) -> list[memoryview]:
    """All rows as framed Avro records of ``schema_text``, in order, as one or more buffers.

    Columns match by name; a column that the batch lacks is written as null. Numbers are widened if nothing
    is lost (int to long, float to double, timestamps to microseconds). Anything else raises ``Invalid``,
    naming the column: an unknown column, a wrong type, a null that the schema does not allow, an overflow.
    """
    return [part for part, _ in _encoded(batch, schema_text)]


def encode_groups(
    batch: pa.RecordBatch | pa.Table, schema_text: str, bounds: Sequence[int]
) -> list[list[memoryview]]:
    """Like ``encode_records`` for each range of rows ``bounds[i]:bounds[i + 1]``, at the cost of one call.

    ``bounds`` ascends from 0 to the number of rows. Use this for a batch that is sorted by bucket.
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


def _encoded(batch: pa.RecordBatch | pa.Table, schema_text: str) -> list[tuple[memoryview, np.ndarray]]:
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
        raise Invalid(f"the batch has columns that the table does not have: {', '.join(alien)}")


def _chunks(batch: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    if isinstance(batch, pa.Table):
        if batch.num_rows and any(c.num_chunks * 4096 > batch.num_rows for c in batch.columns):
            batch = batch.combine_chunks()
        batches = batch.to_batches(max_chunksize=limits.CHUNK_ROWS)
    else:
        step = limits.CHUNK_ROWS
        batches = [batch.slice(i, step) for i in range(0, batch.num_rows, step)]
    return [b for b in batches if b.num_rows]


def _places(batch: pa.RecordBatch) -> dict[str, int]:
    return {name: place for place, name in enumerate(batch.schema.names)}


@lru_cache(maxsize=64)
def _writers(schema_text: str) -> tuple[Writer, ...]:
    return tuple(writer_of(kind, name) for name, kind in record_type(schema_text).fields)


def _encode_few(
    batch: pa.RecordBatch, record: AvroType, writers: tuple[Writer, ...]
) -> tuple[memoryview, np.ndarray]:
    """Encode with a plain loop: fewer than ``_FEW`` rows do not repay the fixed cost of columns."""
    places = _places(batch)
    columns = []
    for name, kind in record.fields:
        if name in places:
            columns.append(_listed(batch.column(places[name]), kind, name))
        elif kind.nullable:
            columns.append([None] * batch.num_rows)
        else:
            raise missing(name)
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
    """Values as the row writers expect them: times and dates as plain integers."""
    if column.null_count == len(column) and kind.nullable:
        return [None] * len(column)
    array = stored(column, kind, name)
    check_nulls(array, kind, name)
    if kind.logical == "decimal":
        check_digits(array, kind, name)
    elif array.type != storage_type(kind):
        array = array.cast(storage_type(kind))
    try:
        return array.to_pylist()
    except UnicodeDecodeError as error:
        raise Invalid(f"column {name!r} holds text that is not UTF-8: {error}") from None


def _encode_chunk(batch: pa.RecordBatch, record: AvroType) -> list[tuple[memoryview, np.ndarray]]:
    if batch.nbytes > limits.CHUNK_BYTES_MAX and batch.num_rows > 1:
        return _halves(batch, record)
    try:
        return [_encode_rows(batch, record)]
    except TooLarge:
        return _halves(batch, record)


def _encode_rows(batch: pa.RecordBatch, record: AvroType) -> tuple[memoryview, np.ndarray]:
    pieces = Pieces(batch.num_rows, framed=True)
    places = _places(batch)
    for name, kind in record.fields:
        if name in places:
            put(pieces, batch.column(places[name]), kind, name)
        else:
            put_nulls(pieces, kind, name)
    data, starts = pieces.joined()
    return memoryview(data), starts


def _halves(batch: pa.RecordBatch, record: AvroType) -> list[tuple[memoryview, np.ndarray]]:
    if batch.num_rows == 1:
        raise Invalid(
            f"one row takes more than {limits.CHUNK_BYTES_MAX} bytes, the most that a log block should hold"
        )
    middle = batch.num_rows // 2
    return _encode_chunk(batch.slice(0, middle), record) + _encode_chunk(batch.slice(middle), record)
