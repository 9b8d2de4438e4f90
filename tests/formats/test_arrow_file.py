"""Goal: Arrow files from storage take no more memory than they are long, whatever they say.

Method: files of pyarrow as they are meant, and files that are whole and compressed, lie about their buffers,
or hold other rows than expected.
"""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable
from mainstem.formats.arrow_file import plain_table

SCHEMA = pa.schema([pa.field("key", pa.string(), nullable=False), ("n", pa.int32())])
ROWS = pa.table([["a", "bc", "", "d"] * 50, [1, None, 3, 4] * 50], schema=SCHEMA)


def file(rows: pa.Table = ROWS, compression: str | None = None, pieces: int = 70) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows, max_chunksize=pieces)
    return sink.getvalue()


def read(data: bytes, rows: int = len(ROWS)) -> pa.Table:
    return plain_table(memoryview(data), SCHEMA, rows)


def test_rows_come_back_over_the_bytes_of_the_file():
    data = file()
    before = pa.total_allocated_bytes()
    found = read(data)
    assert pa.total_allocated_bytes() == before
    assert found.equals(ROWS)
    assert read(file(ROWS.slice(0, 0)), 0).num_rows == 0


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_rows_are_refused_before_a_byte_is_inflated(compression):
    wide = pa.table([["x" * 10_000] * 200, [0] * 200], schema=SCHEMA)
    data = file(wide, compression, 200)
    said = struct.pack("<q", 2_000_000)
    assert len(data) < 100_000
    assert said in data  # the size of the texts, before the buffer
    for claimed in (data, data.replace(said, struct.pack("<q", 1 << 62), 1)):
        with pytest.raises(CorruptTable, match="compressed"):
            read(claimed, 200)


@pytest.mark.parametrize("rows", [len(ROWS) - 1, len(ROWS) + 1, 0])
def test_other_numbers_of_rows_than_expected_are_damage(rows):
    with pytest.raises(CorruptTable, match=r"rows"):
        read(file(), rows)


def test_other_columns_and_other_messages_are_damage():
    with pytest.raises(CorruptTable, match="columns"):
        read(file(ROWS.select(["key"])))
    texts = pa.table({"key": ROWS["key"].cast(pa.string()).dictionary_encode()})
    data = file(texts)
    with pytest.raises(CorruptTable, match="columns"):
        read(data)
    with pytest.raises(CorruptTable, match="'dictionary'"):
        plain_table(memoryview(data), texts.schema, len(texts))


def test_names_that_are_no_texts_are_damage():
    with pytest.raises(CorruptTable, match="other columns"):
        read(file().replace(b"key\0", b"k\x80y\0"))


def test_rows_where_the_columns_are_expected_are_damage():
    data = file()
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data[8:]))
    columns = reader.read_next_message().serialize().size
    with pytest.raises(CorruptTable, match="other columns"):
        read(data[:8] + data[8 + columns :])


def test_what_was_cut_anywhere_is_damage():
    data = file(ROWS.slice(0, 3))
    assert read(data, 3).num_rows == 3
    for size in range(len(data)):
        with pytest.raises(CorruptTable):
            read(data[:size], 3)
