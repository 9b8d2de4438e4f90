"""Native log files of table version 10: one Parquet file (HFile in the metadata table) is one log block.

The header of the block is a JSON object, text to text, in the file's footer. Whether the file holds rows,
deletes or change data is told by its name (``storage.paths.LogName``), not by the header. A file appears when
it is closed and is never appended to, so it has no damaged part: it reads, or it is damaged.

A deletes file has the record key and each ordering field under its own name. A delete without ordering values
has nulls in all of them; under commit time ordering there are no such columns.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from mainstem import limits
from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow, parse_schema
from mainstem.formats.log_file import BlockKind, Header, LogBlock
from mainstem.formats.schema_resolution import project_to

#: the key of the header in the footer
HEADER_KEY = "hudi.log.format.metadata"
#: the key of what ``services.kept_deletes`` notes of its files
KEPT_KEY = "mainstem-kept-deletes"
KEY_COLUMN = META_FIELDS[2]
#: kinds of native log files, as their names have them
LOG, DELETES, CHANGES = "log", "deletes", "cdc"
KINDS = {LOG: BlockKind.PARQUET_DATA, DELETES: BlockKind.DELETE, CHANGES: BlockKind.CDC_DATA}
_FORMAT_VERSION_MAX = 2  # HoodieLogFormat.CURRENT_VERSION
# Greater headers are parsed for each file.
_KEPT_BYTES_MAX = 64 * 1024
_INSTANT = re.compile(r"^[0-9]{17}\Z")
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
    #: the footer's entry ``KEPT_KEY``, if it has one
    kept: bytes | None = None

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

    def deletes(self) -> pa.Table:
        """As of a block in a file of blocks: record_key, partition_path (null: that of the file's folder),
        ordering, ordering_is_default."""
        names = self.ordered_by
        rows = self.deleted(names).combine_chunks()
        columns = [rows.column(name) for name in names]
        arrays = [pa.concat_arrays([pa.nulls(0, c.type), *c.chunks]) for c in columns]
        ordering = arrays[0] if len(arrays) == 1 else pa.nulls(rows.num_rows)
        if len(arrays) > 1:
            ordering = pa.StructArray.from_arrays(arrays, names=names)
        default = np.ones(rows.num_rows, bool)
        for array in arrays:
            default &= np.asarray(array.is_null())
        return pa.table(
            {
                "record_key": rows.column(KEY_COLUMN), "partition_path": pa.nulls(rows.num_rows, pa.string()),
                "ordering": ordering, "ordering_is_default": pa.array(default),
            }
        )  # fmt: skip

    def kept_since(self) -> np.ndarray | None:
        """Of deletes that compactions keep, for each row the instant of the one that kept it first; None for
        other files. Raises ``CorruptTable`` if the footer does not say it."""
        return None if self.kept is None else _instants_of(self.kept, self.row_count, self.path)

    @property
    def ordered_by(self) -> list[str]:
        """The ordering fields that a deletes file has."""
        return [name for name in self._rows.names if name != KEY_COLUMN]

    @property
    def _rows(self) -> Rows:
        assert self.rows is not None
        return self.rows

    def _target(self, columns: Sequence[str] | None) -> pa.Schema:
        try:
            target = _target(self.schema_text, None if columns is None else tuple(columns))
        except CorruptTable as error:
            error.path = error.path or self.path
            raise
        there = {*self._rows.names, *META_FIELDS}
        if missing := [name for name in target.names if name not in there]:
            raise CorruptTable(
                f"native log file without the column {missing[0]!r:.100}, which its header names; restore it"
                " from a copy",
                path=self.path,
            )
        return target


@lru_cache(maxsize=64)  # the logs of a slice have the same, mostly
def _target(schema_text: str, columns: tuple[str, ...] | None) -> pa.Schema:
    schema = avro_to_arrow(schema_text)
    wanted = schema.names if columns is None else [c for c in columns if schema.get_field_index(c) >= 0]
    return pa.schema([schema.field(name) for name in wanted])


def native_block(
    kind: str, instant: str, notes: Mapping[bytes, bytes] | None, rows: Rows, *, path: str
) -> NativeBlock:
    """The block of an opened file; ``kind`` and ``instant`` are those in its name, ``notes`` its footer's
    entries. Raises what ``read_header`` raises, ``CorruptTable`` if the header names no schema."""
    notes = notes or {}
    headers = read_header(notes.get(HEADER_KEY.encode()), path=path)
    if Header.SCHEMA not in headers:
        raise CorruptTable("native log file without SCHEMA in its header; restore it from a copy", path=path)
    told = headers.get(Header.INSTANT_TIME, instant)
    groups = tuple(range(len(rows.groups)))
    kept = notes.get(KEPT_KEY.encode())
    return NativeBlock(KINDS[kind], told, headers, memoryview(b""), 0, path, 0, rows, groups, kept)


def kept_note(instants: Sequence[str], which: np.ndarray) -> dict[str, str]:
    """The entry of a footer that says of each row which of these instants kept it first (``which``: their
    numbers). Other readers do not know it: for them, all deletes are the file's own."""
    packed = base64.b64encode(zlib.compress(which.astype(np.uint8).tobytes())).decode()
    return {KEPT_KEY: json.dumps({"instants": list(instants), "rows": packed}, separators=(",", ":"))}


def _instants_of(note: bytes, rows: int, path: str) -> np.ndarray:
    try:
        found = json.loads(note)
        instants, packed = found["instants"], base64.b64decode(found["rows"], validate=True)
        plain = zlib.decompressobj()
        which = np.frombuffer(plain.decompress(packed, rows + 1), np.uint8)
        whole = len(which) == rows and all(map(_INSTANT.match, instants))
        if not whole or (rows and int(which.max()) >= len(instants)):
            raise ValueError("it does not fit the rows")
        return np.asarray(instants, "U20")[which]
    except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
        raise _damaged(f"{KEPT_KEY}: {error}", path) from error


def header_note(
    instant: str, schema_text: str, *, partial: bool = False, compacted: Sequence[str] = ()
) -> dict[str, str]:
    """The entry of a footer that makes a file a native log of this instant. ``schema_text``: of its rows, or
    of the table where it holds deletes; with Hudi's meta fields. ``compacted``: instants that it replaces."""
    header = {"VERSION": str(_FORMAT_VERSION_MAX), "SCHEMA": schema_text, "INSTANT_TIME": instant}
    if partial:
        header["IS_PARTIAL"] = "true"
    if compacted:
        header["COMPACTED_BLOCK_TIMES"] = ",".join(compacted)
    return {HEADER_KEY: json.dumps(header, separators=(",", ":"), ensure_ascii=False)}


@lru_cache(maxsize=64)
def deletes_schema(schema_text: str, ordering: tuple[str, ...]) -> str:
    """The Avro schema of a deletes file (``HoodieSchemas.createDeleteLogSchema``): the record key, and these
    fields of the table's schema, which may be null."""
    kinds = {field["name"]: field["type"] for field in parse_schema(schema_text)["fields"]}
    fields: list[dict[str, object]] = [{"name": KEY_COLUMN, "type": "string"}]
    for name in ordering:
        branches = kinds[name] if isinstance(kinds[name], list) else [kinds[name]]
        branches = ["null", *(branch for branch in branches if branch != "null")]
        fields.append({"name": name, "type": branches, "default": None})
    record = {"type": "record", "name": "hudi_delete_log_record", "fields": fields}
    return json.dumps(record, separators=(",", ":"))


def deletes_table(
    schema_text: str, ordering: tuple[str, ...], keys: pa.Array, values: Sequence[pa.Array] | None
) -> pa.Table:
    """Rows of a deletes file. ``values``: those of the ordering fields; None: the keys are deleted whatever
    the values of their rows."""
    schema = avro_to_arrow(deletes_schema(schema_text, ordering))
    columns = [keys.cast(pa.string())]
    for place, name in enumerate(ordering):
        kind = schema.field(name).type
        columns.append(pa.nulls(len(keys), kind) if values is None else values[place].cast(kind))
    return pa.table(columns, schema=schema)


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
    if len(data) <= _KEPT_BYTES_MAX:  # the logs of one write have the same
        return dict(_kept_header(data) or _header(data, path))
    return _header(data, path)


@lru_cache(maxsize=64)
def _kept_header(data: bytes) -> dict[int, str] | None:
    """None for one that is damaged: who asks says of which file."""
    try:
        return _header(data, "")
    except (CorruptTable, Unsupported):
        return None


def _header(data: bytes, path: str) -> dict[int, str]:
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
