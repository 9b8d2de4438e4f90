"""Arrow IPC files from storage, read without copying: what is read takes no more memory than the file.

A compressed file names the size that each buffer is to have, and pyarrow takes that much memory before it
looks at what there is: some bytes may ask for terabytes, or inflate to a thousand times their size. Ours are
never compressed, so a compressed one is refused before any of it is inflated. The batches are read message by
message, as they follow one another; the footer, which could name one batch a million times, is not needed.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from mainstem.errors import CorruptTable

_MAGIC = b"ARROW1"
_START = _MAGIC + b"\0\0"
# Places in the tables of Arrow's Message.fbs: of ``Message`` its ``header``, of ``RecordBatch`` its
# ``compression``.
_HEADER, _COMPRESSION = 2, 3


def plain_table(data: memoryview, schema: pa.Schema, rows: int) -> pa.Table:
    """The rows of a file that has this schema and so many rows, over its own bytes and checked in full.

    ``CorruptTable`` for anything else, compressed batches included.
    """
    if bytes(data[: len(_START)]) != _START or bytes(data[-len(_MAGIC) :]) != _MAGIC:
        raise CorruptTable("it is no Arrow file, or was cut")
    try:
        reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data[len(_START) :]))
        batches, held = [], 0
        for number, message in enumerate(reader):
            if number == 0:
                # pyarrow takes a message of another kind for a schema, and dies.
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
    """Whether a message of rows says that its buffers are compressed. pyarrow has checked that the tables lie
    within ``metadata``."""
    header = _field(metadata, _reference(metadata, 0), _HEADER)
    return bool(header and _field(metadata, _reference(metadata, header), _COMPRESSION))


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a FlatBuffers table is, 0 where it has none."""
    directory = table - _number("<i", data, table)
    place = 4 + 2 * number
    if place + 2 > _number("<H", data, directory):
        return 0
    offset = _number("<H", data, directory + place)
    return table + offset if offset else 0


def _reference(data: bytes, at: int) -> int:
    return at + _number("<I", data, at)


def _number(kind: str, data: bytes, at: int) -> int:
    if at < 0:  # Python would count from the end
        raise struct.error("a table before the beginning")
    return struct.unpack_from(kind, data, at)[0]
