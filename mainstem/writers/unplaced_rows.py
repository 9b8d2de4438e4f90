"""Rows of a table without buckets that workers hand over: plain Arrow, placed by whoever commits them.

Where a key lives is decided at the commit, which looks at what others completed until then. So a task of an
engine neither looks for keys nor makes a data file: it checks its rows as a write would, and puts them into a
file of its own, in segments. The commit writes them as if it had been given them, in one transaction.

  in a worker   fit the rows to the table, make their keys and partitions -> a segment, appended to the file
  the commit    segments are read in order, and joined up to ``TOGETHER_BYTES`` -> ``Transaction`` writes them

A segment holds the rows' columns as they were given (a delete has the key columns only, and where keys are
made up each row that is there already has its own), which of them are
deletions whatever their columns say, and the table's schema that they fit. Widening that happened meanwhile
is caught up with by the commit (``transaction_schema.taken_in``).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid
from mainstem.formats.arrow_file import plain_table
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.limits import MIB
from mainstem.storage.protocol import Storage
from mainstem.writers.encode_rows import BucketEncoder
from mainstem.writers.fit_rows import without_mark
from mainstem.writers.write_spec import UPDATE_COLUMNS

#: rows are looked for together up to this size: each look may read all keys of the table
TOGETHER_BYTES = 128 * MIB
_MAGIC = b"MSROWS1\n"
_HEAD = struct.Struct("<II")
# No Avro name has a question mark, so no column of a table has this one.
_DELETED = "deleted?"
_FLAGS = pa.field(_DELETED, pa.bool_(), nullable=False)
_KEY = pa.field(KEY_COLUMN, pa.string())
_ALIGNED = 64
_COUNT_MAX = 2**40


@dataclass(frozen=True)
class Segment:
    """One of the consecutive segments that make up a file: rows, bytes and their CRC-32."""

    rows: int
    size: int
    checksum: int

    @classmethod
    def parsed(cls, record: Any) -> Segment:
        """From JSON. Raises ``ValueError`` or ``TypeError``."""
        rows, size, checksum = record
        numbers = all(type(n) is int and 0 <= n <= _COUNT_MAX for n in (rows, size, checksum))
        if not numbers or not rows or not size:
            raise ValueError(f"no segment: {record!r}")
        return cls(rows, size, checksum)

    def record(self) -> list[int]:
        """For JSON."""
        return [self.rows, self.size, self.checksum]


def segment_of(
    encoder: BucketEncoder, batch: pa.Table, deleted: np.ndarray | None = None
) -> tuple[Segment, bytes]:
    """A segment and its bytes. Raises ``Invalid`` for rows that a write to the table would refuse."""
    spec = encoder.spec
    batch, marked = without_mark(batch, spec)
    deleted = marked if deleted is None else deleted
    rows = encoder.checked(batch)
    if spec.operation == UPDATE_COLUMNS:  # the columns left out are filled by the commit
        rows = rows.select([name for name in rows.column_names if name in batch.column_names])
    rows = rows.cast(schema_of_rows(encoder.schema, rows.column_names))
    flags = np.zeros(rows.num_rows, bool) if deleted is None else deleted
    table = rows.append_column(_FLAGS, pa.array(flags)).combine_chunks()
    head = json.dumps({"schema": spec.user_schema, "columns": rows.column_names}).encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None))
    start = _MAGIC + _HEAD.pack(len(head), 0) + head
    data = start + bytes(-len(start) % _ALIGNED) + sink.getvalue().to_pybytes()
    return Segment(rows.num_rows, len(data), zlib.crc32(data)), data


def schema_of_rows(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """These columns of a table, or of rows that come with their keys. Raises ``KeyError`` for others."""
    return pa.schema([_KEY if name == _KEY.name else schema.field(name) for name in names])


def segments_of_file(
    storage: Storage, path: str, segments: Iterable[Segment]
) -> Iterator[tuple[str, pa.Table, np.ndarray]]:
    """(schema that the rows fit, rows, mask of deletions) of each segment of a file, one in memory at a time.

    Raises ``CorruptTable`` for a file that is missing or not what the segments say.
    """
    segments = list(segments)
    info = storage.stat(path)
    if info is None or info.is_folder:
        raise CorruptTable(
            "rows that a worker handed over are missing; nothing was committed. If somebody removed the file,"
            " its rows are lost: run the job again, or take it back to a savepoint that was made before",
            path=path,
        )
    size = sum(one.size for one in segments)
    if info.size != size:
        raise _damaged(path, f"{info.size} bytes, {size} were written")
    offset = 0
    for one in segments:
        try:
            data = storage.read_range(path, offset, one.size)
        except FileNotFoundError:
            raise _damaged(path, "it was removed while it was read") from None
        if len(data) != one.size or zlib.crc32(data) != one.checksum:
            raise _damaged(path, f"the {one.size} bytes at offset {offset} are not those that were written")
        yield _decoded(data, path, one.rows)
        offset += one.size


def _decoded(data: bytes, path: str, rows: int) -> tuple[str, pa.Table, np.ndarray]:
    try:
        if data[: len(_MAGIC)] != _MAGIC:
            raise ValueError("it does not begin as a segment")
        length, _ = _HEAD.unpack_from(data, len(_MAGIC))
        start = len(_MAGIC) + _HEAD.size
        head = json.loads(data[start : start + length])
        text, names = str(head["schema"]), [str(name) for name in head["columns"]]
        schema = arrow_user_schema(text)
        fields = list(schema_of_rows(schema, names))
        end = start + length
        content = memoryview(data)[end + -end % _ALIGNED :]
        stored = pa.schema([*fields, _FLAGS])
        table = plain_table(content, stored, rows)
    except (ValueError, KeyError, TypeError, struct.error, RecursionError, CorruptTable, Invalid) as error:
        raise _damaged(path, str(error)) from error
    flags = table.column(_DELETED).to_numpy()
    return text, table.select(names).cast(pa.schema(fields)), flags


def _damaged(path: str, what: str) -> CorruptTable:
    return CorruptTable(
        f"rows that a worker handed over are damaged: {what}; nothing was committed. Run the job again, or"
        " take it back to a savepoint that was made before",
        path=path,
    )


def joined(tables: Iterable[tuple[pa.Table, np.ndarray]]) -> Iterator[tuple[pa.Table, np.ndarray | None]]:
    """Tables of equal columns in a row, joined up to ``TOGETHER_BYTES``; masks of deletions are None without
    any."""
    waiting: list[tuple[pa.Table, np.ndarray]] = []
    size = 0
    for table, flags in tables:
        other = bool(waiting) and not table.schema.equals(waiting[0][0].schema)
        if other or (waiting and size + table.nbytes > TOGETHER_BYTES):
            yield _together(waiting)
            waiting, size = [], 0
        waiting.append((table, flags))
        size += table.nbytes
    if waiting:
        yield _together(waiting)


def _together(waiting: list[tuple[pa.Table, np.ndarray]]) -> tuple[pa.Table, np.ndarray | None]:
    flags = np.concatenate([flags for _, flags in waiting])
    return pa.concat_tables([table for table, _ in waiting]), flags if flags.any() else None
