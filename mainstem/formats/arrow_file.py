"""Reads Arrow IPC files without copying; a file's rows take no more memory than the file itself.

A compressed file names the size of each buffer, and pyarrow allocates that much before it looks at the data:
a few bytes may ask for terabytes, or inflate to a thousand times their size. mainstem's own files are never
compressed, so a compressed file is refused before any of it is inflated. Batches are read message by message
in file order; the footer, which could list one batch a million times, is not used.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from mainstem.errors import CorruptTable

_MAGIC = b"ARROW1"
_START = _MAGIC + b"\0\0"
# Numbers of fields in Arrow's Message.fbs: ``header`` of ``Message``, ``compression`` of ``RecordBatch``.
_HEADER, _COMPRESSION = 2, 3


def plain_table(data: memoryview, schema: pa.Schema, rows: int) -> pa.Table:
    """The file's rows over its own bytes, fully validated.

    Raises ``CorruptTable`` unless the file has exactly this schema and this many rows, uncompressed.
    """
    if bytes(data[: len(_START)]) != _START or bytes(data[-len(_MAGIC) :]) != _MAGIC:
        raise CorruptTable("it is no Arrow file, or was cut off")
    try:
        reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data[len(_START) :]))
        batches, held = [], 0
        for number, message in enumerate(reader):
            if number == 0:
                # Given a message of another kind, pyarrow's ``read_schema`` crashes the process.
                if message.type != "schema" or not pa.ipc.read_schema(message).equals(schema):
                    raise CorruptTable(f"it has other columns than {', '.join(schema.names)}")
                continue
            batch = _batch(message, schema)
            held += batch.num_rows
            if held > rows or not batch.num_rows:
                raise CorruptTable(f"its batches have more than {rows} rows, or none")
            batches.append(batch)
        table = pa.Table.from_batches(batches, schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise CorruptTable(f"it is no Arrow file: {error}") from None
    if held != rows:
        raise CorruptTable(f"it has {held} rows, {rows} expected")
    return table


def _batch(message: pa.ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != "record batch":
        raise CorruptTable(f"a message of the kind {message.type!r}, where rows are expected")
    if _is_compressed(bytes(message.metadata)):
        raise CorruptTable("its rows are compressed, which ours never are: they could inflate to any size")
    return pa.ipc.read_record_batch(message, schema)


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch message has compressed buffers.

    pyarrow has already checked that the message's tables lie within ``metadata``.
    """
    header = _field(metadata, _reference(metadata, 0), _HEADER)
    return bool(header and _field(metadata, _reference(metadata, header), _COMPRESSION))


def _field(data: bytes, table: int, number: int) -> int:
    """Position of a field of a FlatBuffers table; 0 if the table lacks it."""
    directory = table - _number("<i", data, table)
    place = 4 + 2 * number
    if place + 2 > _number("<H", data, directory):
        return 0
    offset = _number("<H", data, directory + place)
    return table + offset if offset else 0


def _reference(data: bytes, at: int) -> int:
    return at + _number("<I", data, at)


def _number(kind: str, data: bytes, at: int) -> int:
    if at < 0:  # a negative offset would count from the end
        raise struct.error("a table before the beginning")
    return struct.unpack_from(kind, data, at)[0]
