"""Decodes framed Avro records to Arrow columns, column by column (content of Hudi's AVRO_DATA log blocks).

A chunk of records is read with one cursor per record: each column is decoded for all records at once and
advances the cursors. Strings are gathered by one Arrow ``take`` from an array over the block's own bytes. At
the end every cursor must stand exactly at the next record. Avro content has no checksum; this check is free.

Input is untrusted. Every length is compared with the block's size before it is used, memory grows only with
that size, text is checked to be UTF-8, and all damage becomes ``CorruptTable``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import CorruptTable
from mainstem.formats.avro_cursors import Cursors
from mainstem.formats.avro_read import read_column
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.avro_runs import read_run, run_end, sample_shapes
from mainstem.formats.avro_schema import AvroType, avro_to_arrow, record_type
from mainstem.formats.record_starts import joined_starts

# With at least this many records, looking for columns of constant size is worth its fixed cost.
_RUNS_FROM = 256
# Rows decoded together: few enough that their bytes stay in the processor's cache between columns.
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
    """``count`` framed records as a table of ``columns`` in that order, or of all columns of the schema.

    Names that the schema lacks are left out (older blocks lack newer columns; see ``project_to``). Any damage
    raises ``CorruptTable`` with ``path`` and ``offset`` (of ``content`` in its file).
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
    """Several contents of one schema as one table, in order; small ones are decoded together.

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


def decode_messages(messages: Sequence[bytes], schema_text: str, header: int) -> pa.Table:
    """Messages of one record each, behind a header of so many bytes, as a table of all columns.

    Raises ``CorruptTable`` unless each message is exactly one record, ``Unsupported`` for schemas that no
    table can hold.
    """
    record, schema = record_type(schema_text), _arrow_schema(schema_text)
    if not messages:
        return schema.empty_table()
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    if int(sizes.min()) < header:
        raise CorruptTable(f"a message of {int(sizes.min())} bytes, expected a header of {header}")
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    data, batches = memoryview(b"".join(messages)), []
    try:
        for low, high in _chunks(starts):
            cursors = Cursors(data, starts[low : high + 1], header)
            shapes: list = [None] * len(record.fields)
            made = _read_columns(cursors, record.fields, shapes, frozenset(schema.names))
            cursors.check_end()
            arrays = [made[name] for name in schema.names]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    except Malformed as error:
        raise CorruptTable(f"a message is not a record of its schema: {error}") from None
    return pa.Table.from_batches(batches, schema)


@lru_cache(maxsize=64)
def _arrow_schema(schema_text: str) -> pa.Schema:
    return avro_to_arrow(schema_text)


def _no_columns(rows: int) -> pa.Table:
    return pa.table({"rows": pa.nulls(rows)}).select([])


def _groups(parts: Sequence[tuple[memoryview, int]]) -> list[list[int]]:
    """Groups of parts to join before decoding: copying small parts costs less than decoding each alone."""
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
        if len(parts) > 1:  # decode them one by one to name the damaged part
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
    """The shapes that columns probably have in all records; each is checked before it is used."""
    if len(starts) <= _RUNS_FROM:
        return [None] * len(record.fields)
    return sample_shapes(data, starts, record.fields)


def _read_columns(
    cursors: Cursors,
    fields: Sequence[tuple[str, AvroType]],
    shapes: list,
    wanted: frozenset[str],
) -> dict[str, pa.Array | None]:
    """All columns; runs of columns of constant size are tried together first (see ``avro_runs``).

    A column that does not have its sampled shape loses it, also for the following chunks.
    """
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
