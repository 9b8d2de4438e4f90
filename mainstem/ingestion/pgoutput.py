"""PostgreSQL's logical replication messages (plugin ``pgoutput``, protocol version 1) as columns.

A transaction comes whole, after its commit: Begin, then for each change Insert, Update or Delete, then
Commit. Before the first change of a table, and whenever its columns changed, a Relation says what they are.
Changes of one relation are read together: a step for each column over all of them, none for each value.

  Begin     B  LSN of the commit's record (int64), microseconds since 2000 (int64), transaction (int32)
  Relation  R  id (int32), schema, name, replica identity (d n f i), columns (int16) of
               flags (1: part of the identity), name, type's OID (int32), modifier (int32)
  Insert    I  id, N row           Delete  D  id, K or O row
  Update    U  id, [K or O row before], N row
  row          columns (int16) of  n (null)  u (unchanged, stored apart: TOAST)  t length (int32), text

Every length is checked against the end of its message.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid

BEGIN, COMMIT, RELATION, TYPE, ORIGIN, TRUNCATE, MESSAGE = b"BCRYOTM"
INSERT, UPDATE, DELETE = b"IUD"
CHANGES = (INSERT, UPDATE, DELETE)
IDENTITY_FULL = "f"
_NEW, _KEY, _OLD = b"NKO"
_NULL, _UNCHANGED, _TEXT = b"nut"
#: columns of a table in PostgreSQL
_COLUMNS_MAX = 1600
# Longer values are cut out one by one.
_SHORT = 64
#: the server's clock counts from the year 2000
EPOCH_US = 946_684_800_000_000


@dataclass(frozen=True)
class SourceColumn:
    """A column: its name, its type's OID and modifier, and whether the replica identity holds it."""

    name: str
    type_oid: int
    modifier: int
    in_identity: bool


@dataclass(frozen=True)
class Relation:
    """A table as its next changes have it."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[SourceColumn, ...]

    @property
    def names(self) -> list[str]:
        """Its columns' names."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class Values:
    """One column of rows: text, null where there is none. ``unchanged``: values that were not sent."""

    text: pa.Array
    unchanged: np.ndarray


@dataclass(frozen=True)
class Changes:
    """Changes of one relation, in order. ``kinds``: a letter each. ``before`` and ``after``: per column, for
    the changes at ``before_at`` and ``after_at``. ``whole``: per row before, whether it has all columns."""

    kinds: np.ndarray
    after_at: np.ndarray
    after: list[Values]
    before_at: np.ndarray
    before: list[Values]
    whole: np.ndarray


def _refused(what: str) -> Invalid:
    return Invalid(f"a message of PostgreSQL's log does not parse: {what}; is it another protocol's?")


def parse_begin(message: bytes) -> tuple[int, int]:
    """LSN of the transaction's commit, and its time in microseconds since 1970."""
    if len(message) != 21:
        raise _refused(f"Begin has {len(message)} bytes, expected 21")
    lsn, time_us = struct.unpack_from(">Qq", message, 1)
    return lsn, time_us + EPOCH_US


def parse_commit(message: bytes) -> int:
    """LSN of the transaction's commit."""
    if len(message) != 26:
        raise _refused(f"Commit has {len(message)} bytes, expected 26")
    return int(struct.unpack_from(">Q", message, 2)[0])


def parse_relation(message: bytes) -> Relation:
    """A Relation message."""
    try:
        (oid,) = struct.unpack_from(">I", message, 1)
        schema, at = _name(message, 5)
        name, at = _name(message, at)
        identity, count = struct.unpack_from(">ch", message, at)
        at += 3
        if not 0 <= count <= _COLUMNS_MAX:
            raise _refused(f"a relation of {count} columns")
        columns = []
        for _ in range(count):
            flags = message[at]
            column, at = _name(message, at + 1)
            kind, modifier = struct.unpack_from(">Ii", message, at)
            at += 8
            columns.append(SourceColumn(column, kind, modifier, bool(flags & 1)))
    except (struct.error, IndexError, ValueError) as error:
        raise _refused(f"Relation: {error}") from error
    if at != len(message):
        raise _refused(f"{len(message) - at} bytes after a Relation")
    return Relation(oid, schema, name, identity.decode("latin-1"), tuple(columns))


def _name(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode("utf-8"), end + 1


def parse_truncate(message: bytes) -> list[int]:
    """OIDs of the tables that were truncated."""
    if len(message) < 6:
        raise _refused("Truncate is cut off")
    (count,) = struct.unpack_from(">I", message, 1)
    if len(message) != 6 + 4 * count:
        raise _refused(f"Truncate of {count} tables has {len(message)} bytes")
    return list(struct.unpack_from(f">{count}I", message, 6))


def read_changes(messages: Sequence[bytes], relation: Relation) -> Changes:
    """Columns of Insert, Update and Delete messages of one relation."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    if len(messages) and int(lengths.min()) < 8:
        raise _refused("a change is cut off")
    data = np.frombuffer(b"".join(messages), np.uint8)
    kinds = data[starts] if len(messages) else np.zeros(0, np.uint8)
    if not np.isin(kinds, CHANGES).all():
        raise _refused("a change of unknown kind")
    if (_numbers(data, starts + 1, 4) != relation.oid).any():
        raise _refused("a change of another table than the relation before it")
    at, marks = starts + 5, data[starts + 5] if len(messages) else kinds
    has_before = marks != _NEW
    allowed = np.where(kinds == INSERT, marks == _NEW, np.isin(marks, (_NEW, _KEY, _OLD)))
    if not np.where(kinds == DELETE, has_before & allowed, allowed).all():
        raise _refused("a row of unknown kind")
    columns = len(relation.columns)
    before_at = np.flatnonzero(has_before)
    before, behind = _rows(data, at[before_at] + 1, ends[before_at], columns)
    at = at.copy()
    at[before_at] = behind
    after_at = np.flatnonzero(kinds != DELETE)
    late = after_at[at[after_at] >= ends[after_at]]
    if len(late) or (data[at[after_at]] != _NEW).any():
        raise _refused("an update without its new row")
    after, behind = _rows(data, at[after_at] + 1, ends[after_at], columns)
    at[after_at] = behind
    if (at != ends).any():
        raise _refused("bytes after a change")
    return Changes(kinds, after_at, after, before_at, before, marks[before_at] == _OLD)


def _rows(
    data: np.ndarray, at: np.ndarray, ends: np.ndarray, columns: int
) -> tuple[list[Values], np.ndarray]:
    """Rows that begin ``at``; and where each of them ends."""
    if (at + 2 > ends).any():
        raise _refused("a row is cut off")
    if (_numbers(data, at, 2) != columns).any():
        raise _refused(f"a row has not the {columns} columns of its relation")
    at = at + 2
    found = []
    for _ in range(columns):
        if (at >= ends).any():
            raise _refused("a row is cut off")
        kind = data[at]
        is_text = kind == _TEXT
        if not (is_text | (kind == _NULL) | (kind == _UNCHANGED)).all():
            raise _refused("a value that is neither text nor null")
        texts = np.flatnonzero(is_text)
        if (at[texts] + 5 > ends[texts]).any():
            raise _refused("a value is cut off")
        lengths = np.zeros(len(at), np.int64)
        lengths[texts] = _numbers(data, at[texts] + 1, 4)
        starts = at + 1
        starts[texts] += 4
        at = starts + lengths
        if (at > ends).any():
            raise _refused("a value is longer than its message")
        found.append(Values(_texts(data, starts, lengths, is_text), kind == _UNCHANGED))
    return found, at


def _numbers(data: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    """Unsigned numbers, their highest byte first."""
    found = np.zeros(len(at), np.int64)
    for i in range(size):
        found = (found << 8) | data[at + i]
    return found


def _texts(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray, valid: np.ndarray) -> pa.Array:
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if int(offsets[-1]) > 2**31 - 1:
        raise Invalid("more than 2 GB of one column in one batch: commit less at once (--bytes)")
    total = int(offsets[-1])
    if total > _SHORT * max(len(starts), 1):  # an index for each byte would be eight times as large
        view = memoryview(data)
        text: Any = b"".join(
            [view[s : s + n] for s, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
        )
    else:
        text = data[np.repeat(starts - offsets[:-1], lengths) + np.arange(total)]
    bits = np.packbits(valid, bitorder="little")
    buffers = [pa.py_buffer(bits), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text)]
    array = pa.Array.from_buffers(pa.string(), len(starts), buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _refused(str(error)) from error
    return array
