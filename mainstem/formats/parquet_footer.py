"""Adds footer entries that are known only after the last row: the bloom filter and the range of keys.

pyarrow from 17 on accepts them at the end. pyarrow 16, the newest that PyFlink allows, does not. There the
entries are added to the finished footer, as one more field of Parquet's ``FileMetaData`` (a struct in
Thrift's compact protocol, whose fields may come in any order).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Spark looks for this entry in files with dates before 1582-10-15 or times before 1900, which Spark 2 counted
# in another calendar. Without it, Java's readers refuse such rows by default (READ_ANCIENT_DATETIME). Any
# version from 3.1.0 on means the Gregorian calendar everywhere, as written here; Java's files say this one.
CALENDAR_NOTE = {"org.apache.spark.version": "3.5.9"}
_STRUCT_END = b"\x00"
# A field header that spells out its number: type list, then 5 (key_value_metadata) in zigzag form.
_ENTRIES_FIELD = b"\x09\x0a"
# The header of the next field (its number is the last one plus one), of type binary.
_NEXT_BINARY = b"\x18"
_STRUCT = 0x0C
_SHORT_LIST_MAX = 14
_TAIL_BYTES = 8


class _Output(Protocol):
    def hold(self) -> None: ...
    def held(self) -> bytes: ...
    def write(self, data: bytes) -> int: ...


def close_with_notes(writer: pq.ParquetWriter, output: _Output, notes: Mapping[str, str]) -> None:
    """Close the file that ``writer`` writes to ``output``, with these entries in its footer."""
    if hasattr(writer, "add_key_value_metadata"):
        writer.add_key_value_metadata(dict(notes))
        writer.close()
        return
    output.hold()
    writer.close()
    output.write(with_notes(output.held(), notes))


def with_notes(data: bytes, notes: Mapping[str, str]) -> bytes:
    """The end of a Parquet file (at least its footer, without entries so far), with ``notes`` added."""
    at = len(data) - _TAIL_BYTES - int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    footer = data[at:-_TAIL_BYTES]
    count = len(notes)
    short = count <= _SHORT_LIST_MAX
    size = bytes([count << 4 | _STRUCT]) if short else bytes([0xF0 | _STRUCT]) + _varint(count)
    entries = _entries(tuple(notes.items()))
    footer = footer.removesuffix(_STRUCT_END) + _ENTRIES_FIELD + size + entries + _STRUCT_END
    return data[:at] + footer + len(footer).to_bytes(4, "little") + data[-4:]


@lru_cache(maxsize=8)  # small files of one write have the same
def _entries(notes: tuple[tuple[str, str], ...]) -> bytes:
    return b"".join(
        _NEXT_BINARY + _text(key) + _NEXT_BINARY + _text(value) + _STRUCT_END for key, value in notes
    )


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _varint(len(encoded)) + encoded


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
