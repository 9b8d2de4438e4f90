"""Native log files of table version 10: one Parquet file (HFile in the metadata table) is one log block.

The header of the block is a JSON object, text to text, in the file's footer. Whether the file holds rows,
deletes or change data is told by its name (``storage.paths.LogName``), not by the header. A file appears when
it is closed and is never appended to, so it has no damaged part: it reads, or it is damaged.

A deletes file has the record key and each ordering field under its own name. A delete without ordering values
has nulls in all of them; under commit time ordering there are no such columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.log_file import BlockKind, Header, LogBlock
from mainstem.formats.schema_resolution import project_to

#: the key of the header in the footer
HEADER_KEY = "hudi.log.format.metadata"
KEY_COLUMN = META_FIELDS[2]
KINDS = {"log": BlockKind.PARQUET_DATA, "deletes": BlockKind.DELETE, "cdc": BlockKind.CDC_DATA}
_FORMAT_VERSION_MAX = 2  # HoodieLogFormat.CURRENT_VERSION
_NUMBERS = {header.name: header for header in Header}


class Rows(Protocol):
    """The rows of a native log file, read when they are asked for."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the file's columns."""

    @property
    def groups(self) -> Sequence[int]:
        """Number of rows of each row group."""

    @property
    def size(self) -> int:
        """Size of the file in bytes."""

    def read(self, names: Sequence[str], groups: Sequence[int]) -> pa.Table:
        """These columns, as far as the file has them, of these row groups."""

    def taken(self, names: Sequence[str], groups: Sequence[int], rows: np.ndarray) -> pa.Table:
        """As ``read``, rows by number (ascending, within ``groups``); other row groups are not read."""


@dataclass(frozen=True, slots=True)
class NativeBlock(LogBlock):
    """The block of a native log file. ``groups``: numbers of the row groups that it stands for."""

    rows: Rows | None = None
    groups: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._rows.size

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return sum(self._rows.groups[number] for number in self.groups)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows in the block's own schema; names that the schema lacks are left out."""
        target = self._target(columns)
        return project_to(self._rows.read(target.names, self.groups), target)

    def picked(self, columns: Sequence[str], rows: np.ndarray) -> pa.Table:
        """As ``table``, rows by number (ascending)."""
        target = self._target(columns)
        return project_to(self._rows.taken(target.names, self.groups, rows), target)

    def deleted(self, ordering: Sequence[str]) -> pa.Table:
        """The record keys of a deletes file, and its columns among ``ordering``."""
        if KEY_COLUMN not in self._rows.names:
            raise CorruptTable(f"deletes file without the column {KEY_COLUMN}", path=self.path)
        return self._rows.read([KEY_COLUMN, *ordering], self.groups)

    def columns(self, wanted: Sequence[str]) -> list[str]:
        """The columns that ``table`` reads for these."""
        return list(self._target(wanted).names)

    @property
    def ordered_by(self) -> list[str]:
        """The ordering fields that a deletes file has."""
        return [name for name in self._rows.names if name != KEY_COLUMN]

    @property
    def _rows(self) -> Rows:
        assert self.rows is not None
        return self.rows

    def _target(self, columns: Sequence[str] | None) -> pa.Schema:
        schema = avro_to_arrow(self.schema_text, path=self.path)
        wanted = schema.names if columns is None else [c for c in columns if schema.get_field_index(c) >= 0]
        return pa.schema([schema.field(name) for name in wanted])


def native_block(
    kind: str, instant: str, notes: Mapping[bytes, bytes] | None, rows: Rows, *, path: str
) -> NativeBlock:
    """The block of an opened file; ``kind`` and ``instant`` are those in its name, ``notes`` its footer's
    entries. Raises what ``read_header`` raises, ``CorruptTable`` if the header names no schema."""
    headers = read_header((notes or {}).get(HEADER_KEY.encode()), path=path)
    if Header.SCHEMA not in headers:
        raise CorruptTable("native log file without SCHEMA in its header; restore it from a copy", path=path)
    told = headers.get(Header.INSTANT_TIME, instant)
    groups = tuple(range(len(rows.groups)))
    return NativeBlock(KINDS[kind], told, headers, memoryview(b""), 0, path, 0, rows, groups)


def read_header(data: bytes | None, *, path: str) -> dict[int, str]:
    """The header in a footer's entry ``HEADER_KEY``, by the numbers that headers have in files of blocks.

    Raises ``CorruptTable`` for an entry that is missing or no header, ``Unsupported`` for one of a newer
    format.
    """
    if data is None:
        raise CorruptTable(
            f"native log file without {HEADER_KEY} in its footer; restore it from a copy", path=path
        )
    if len(data) > limits.LOG_HEADER_BYTES_MAX:
        raise CorruptTable(
            f"a header of {len(data)} bytes in a native log file; at most {limits.LOG_HEADER_BYTES_MAX} are"
            " read",
            path=path,
        )
    try:
        found = json.loads(data, object_pairs_hook=_pairs)
    except (ValueError, RecursionError) as error:
        raise _damaged(str(error), path) from error
    texts = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    if not texts:
        raise _damaged("expected an object of texts", path)
    version = found.get("VERSION", str(_FORMAT_VERSION_MAX))
    if not version.isdecimal() or not version.isascii() or len(version) > 9:
        raise _damaged(f"the version {version!r:.20}", path)
    if int(version) > _FORMAT_VERSION_MAX:
        raise Unsupported(
            f"native log file {path} of format version {version}; versions up to {_FORMAT_VERSION_MAX} can be"
            " read: use a newer mainstem"
        )
    return {_NUMBERS[name]: value for name, value in found.items() if name in _NUMBERS}


def is_partial(notes: Mapping[bytes, bytes] | None, *, path: str) -> bool:
    """Whether a file with these entries in its footer holds only the columns that an update set; False for
    one that is no native log. Raises what ``read_header`` raises."""
    data = (notes or {}).get(HEADER_KEY.encode())
    return data is not None and read_header(data, path=path).get(Header.IS_PARTIAL, "").lower() == "true"


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(pairs) > limits.LOG_HEADER_COUNT_MAX:
        raise ValueError(f"{len(pairs)} entries; at most {limits.LOG_HEADER_COUNT_MAX} are read")
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an entry that is there twice")
    return made


def _damaged(what: str, path: str) -> CorruptTable:
    return CorruptTable(
        f"native log file whose header is damaged ({what}); restore the file from a copy", path=path
    )
