"""Fuzz targets of native log files (table version 10): names, footers, rows, deletes, HFiles."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.formats.base_file import Collected, SinkFile
from mainstem.formats.native_hfile import empty_native_hfile, native_hfiles
from mainstem.formats.native_log import (
    DELETES,
    HEADER_KEY,
    LOG,
    NativeBlock,
    deletes_table,
    header_note,
    kept_note,
    native_block,
    read_header,
)
from mainstem.formats.parquet_footer import close_with_notes
from mainstem.metadata.records.group_logs import open_native_hfile
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from tests.fuzz.corpus import INSTANT, TABLE, TEXT
from tests.fuzz.files import in_file
from tests.fuzz.harness import Target

_KEYS = pa.array(["a", "b", "cé"])
_ORDERING = ("n",)
_KEPT = kept_note([INSTANT, "20261120100406891"], np.array([0, 1, 0]))


def _path(kind: str) -> str:
    return paths.native_log_name("f-0", INSTANT, 1, "0-1-2", kind)


def _block(storage: LocalStorage, kind: str) -> NativeBlock:
    (block,) = blocks_of(storage, _path(kind))
    assert isinstance(block, NativeBlock)
    return block


def _rows(storage: LocalStorage) -> object:
    """Rows have the header's schema, wholly and by some columns. Texts may be no UTF-8."""
    block = _block(storage, LOG)
    found = block.table()
    found.validate()
    assert found.schema.equals(avro_to_arrow(block.schema_text)) and found.num_rows == block.row_count
    few = block.table(found.schema.names[:2])
    assert few.equals(found.select(found.schema.names[:2]))
    return (block.instant, found)


def _deletes(storage: LocalStorage) -> object:
    block = _block(storage, DELETES)
    found = block.deletes()
    found.validate()
    assert found.num_rows == block.row_count
    since = block.kept_since()
    assert since is None or len(since) == block.row_count
    return (block.instant, found, None if since is None else since.tolist())


def _file(rows: pa.Table, notes: dict[str, str]) -> bytes:
    collected = Collected()
    output = SinkFile(collected)
    with pq.ParquetWriter(pa.PythonFile(output, mode="w"), rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        close_with_notes(writer, output, notes)
    output.flush()
    return collected.stream.getvalue()


@cache
def _row_files() -> list[bytes]:
    return [_file(TABLE, header_note(INSTANT, TEXT)), _file(TABLE[:1], {HEADER_KEY: _plain(TEXT)})]


@cache
def _deletes_files() -> list[bytes]:
    note = header_note(INSTANT, TEXT)
    values = [pa.array([1, None, -5])]
    given = [deletes_table(TEXT, (), _KEYS, None), deletes_table(TEXT, _ORDERING, _KEYS, values)]
    return [*(_file(rows, note) for rows in given), _file(given[1], {**note, **_KEPT})]


def _plain(schema_text: str) -> str:
    return json.dumps({"SCHEMA": schema_text})


class _NoRows:
    """The rows of a file of which the footer is looked at."""

    names, groups, size = ("_hoodie_record_key", "n"), (3,), 9


def _footer(data: bytes) -> object:
    """A header and a note of kept deletes, the first two bytes say where one ends."""
    size = int.from_bytes(data[:2], "big")
    header, kept = data[2 : 2 + size], data[2 + size :]
    found = read_header(header, path="f")
    assert all(isinstance(name, int) and isinstance(text, str) for name, text in found.items())
    notes = {HEADER_KEY.encode(): header, **({next(iter(_KEPT)).encode(): kept} if kept else {})}
    block = native_block(DELETES, INSTANT, notes, _NoRows(), path="f")  # type: ignore[arg-type]
    since = block.kept_since()
    assert since is None or len(since) == 3
    return (block.headers, None if since is None else since.tolist())


def _footers() -> list[bytes]:
    kept = next(iter(_KEPT.values())).encode()
    made = []
    for header in (header_note(INSTANT, TEXT)[HEADER_KEY], _plain("x")):
        made += [len(header).to_bytes(2, "big") + header.encode() + note for note in (b"", kept)]
    return made


def _hfile(data: bytes) -> object:
    """The first byte says of which kind its name is."""
    name = paths.parse_log_name(
        paths.native_log_name("files-0000-0", INSTANT, 1, "0-1-2", (LOG, DELETES)[data[0] % 2], "hfile")
    ) if data else None
    assert name is not None or not data
    if name is None:
        return None
    file, instant = open_native_hfile(memoryview(data)[1:], name, path="f")
    keys, values = file.rows()
    for column in (keys, values):
        column.validate(full=True)
    assert len(keys) == len(values) == file.entry_count
    return (instant, keys.to_pylist(), values.to_pylist())


def _hfiles() -> list[bytes]:
    keys = pa.array([f"k{number:02}".encode() for number in range(20)], pa.binary())
    values = pa.array([bytes(number % 7) for number in range(20)], pa.binary())
    made = [*native_hfiles(INSTANT, TEXT, keys, values, (0, 1, 20)), empty_native_hfile(INSTANT, TEXT)]
    return [bytes([kind]) + file for kind in (0, 1) for file in made]


def _name(data: bytes) -> object:
    """A native name is the one that its parts make, a log's and no base file's; nothing near it is one."""
    text = data.decode("utf-8", "surrogateescape")
    log = paths.parse_log_name(text)
    if log is None:
        return None
    assert paths.parse_base_name(text) is None and paths.parse_hfile_name(text) is None
    assert paths.inside(text, source="f") == text and "/" not in text
    assert paths.file_id_of(text) == log.file_id
    if not log.is_native:
        return log.order
    made = paths.native_log_name(log.file_id, log.instant, log.version, log.token, log.kind, log.format)
    version = text.split("_")[3].split(".")[0]
    assert made == text or version != str(log.version), f"{made} is made of the parts of {text}"
    assert log.is_cdc == (log.kind == "cdc") and log.is_deletes == (log.kind == DELETES)
    return log.order


def _names() -> list[bytes]:
    made = [
        paths.native_log_name("00000001-0000-0000-0000-000000000000-0", INSTANT, 1, "0-1-2", kind, ending)
        for kind in (LOG, DELETES, "cdc") for ending in ("parquet", "hfile")
    ]  # fmt: skip
    return [name.encode() for name in (*made, paths.log_name("f-0", INSTANT, 2, "0-1-2"))]


NATIVE_TARGETS = [
    Target("names of native log files", _name, _names, lambda whole, found: True),
    Target("native log file of rows", in_file(_path(LOG), _rows), _row_files, slow=True),
    Target("native log file of deletes", in_file(_path(DELETES), _deletes), _deletes_files, slow=True),
    Target("footer of native log files", _footer, _footers, lambda whole, found: found[0] == whole[0]),
    Target("native HFile", _hfile, _hfiles, lambda whole, found: found is None),
]
