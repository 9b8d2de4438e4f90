"""Writes Parquet files whose pages are compressed with gzip, here and not by pyarrow.

Hudi's base files are gzip, which every reader knows, and gzip by zlib is most of the cost of writing them.
pyarrow knows zlib's levels only (and before version 22 but one, apache/arrow#47591). ISA-L takes an eighth of
the time of level 3, with 0.9 to 1.06 of its bytes, of texts of few words up to 1.2. Where it is missing, zlib
can leave out the search for repeated texts, which finds none in random keys: half the time, and fewer bytes
than the fastest level. And a column that repeats the record key is compressed once and copied.

pyarrow encodes a run of columns without compression into memory. Its pages are compressed one by one, and the
footer is put together from what pyarrow's footers say.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.parquet_columns import ColumnChoice, leaves_of
from mainstem.formats.thrift_compact import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    read_struct,
    struct_bytes,
)
from mainstem.limits import MIB

try:
    from isal import isal_zlib
except ImportError:  # no wheel for this machine
    isal_zlib = None

_MAGIC = b"PAR1"
_GZIP = 2
# zlib's names for: a gzip header and trailer, the most memory (the fastest).
_WINDOW, _MEMORY = 31, 9
# Columns are encoded together until they take this much memory.
_RUN_BYTES = 16 * MIB
# Up to how many bytes of a page are compressed to choose how the column's pages are; smaller pages are not
# worth it.
_SAMPLE_BYTES, _SAMPLE_BYTES_MIN = 64 * 1024, 4 * 1024
# The slower way must save this share, or the quicker one is taken.
_GAIN_MIN = 0.02
# ISA-L's levels.
_QUICK, _THOROUGH = 1, 3
# Fields of Parquet's structs, see its parquet.thrift.
_SCHEMA, _ROWS, _GROUPS, _ENTRIES, _CREATED_BY = 2, 3, 4, 5, 6
_ARROW = b"parquet-cpp-arrow"
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_START, _GROUP_STORED, _GROUP_NUMBER = 1, 2, 3, 5, 6, 7
_CHUNK_START, _CHUNK = 2, 3
_PATH, _CODEC, _PLAIN_BYTES, _STORED_BYTES, _DATA_AT, _DICTIONARY_AT = 3, 4, 6, 7, 9, 11
# type, encodings, path, codec, counts, sizes, places of pages, statistics, encodings of pages
_CHUNK_FIELDS = (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13)
_STATISTICS = 12
_NULLS, _MOST, _LEAST = 3, 5, 6  # of statistics
_PICKS: dict[str, Callable[..., Any]] = {"min": min, "max": max}
# Longer ones are left out, as by pyarrow.
_STATISTICS_BYTES_MAX = 4096
_NAME = 4  # of a schema's element
_PAGE_PLAIN, _PAGE_STORED, _PAGE_CHECKSUM = 2, 3, 4


class Output(Protocol):
    """Where the file is written to."""

    def write(self, data: bytes) -> int: ...
    def tell(self) -> int: ...


@dataclass(frozen=True)
class Stored:
    """A column chunk as it is stored: its metadata, whose places count from its own start, and its bytes."""

    about: Struct
    parts: list[bytes]


class KeyChunks:
    """The chunks of record keys in a file that this module wrote, to be copied where its keys stay.

    ``file``: the open file; ``name``: the column. Nothing is read before the first chunk is asked for.
    """

    def __init__(self, file: pa.NativeFile, name: str) -> None:
        self._file = file
        self._name = name

    @cached_property
    def _footer(self) -> Struct:
        end = self._file.size()
        size = int.from_bytes(self._file.read_at(8, end - 8)[:4], "little")
        return read_struct(memoryview(self._file.read_at(size, end - 8 - size)))[0]

    @property
    def element(self) -> Struct | None:
        """What the file's schema says of the column; None if the file is not Arrow's, as ours are, or says
        what is not known here."""
        try:
            footer = self._footer
        except ValueError:
            return None
        if not footer.get(_CREATED_BY, (BINARY, b""))[1].startswith(_ARROW):
            return None
        return _element(footer, self._name)

    def chunk(self, group: int) -> Stored | None:
        """The column's chunk in a row group; None if it is not compressed with gzip."""
        (_, (_, groups)) = self._footer[_GROUPS]
        for column in groups[group][_COLUMNS][1][1]:
            about = column.get(_CHUNK, (STRUCT, {}))[1]
            if about and _path(about) == self._name and about[_CODEC][1] == _GZIP:
                begin, size = _start(about), about[_STORED_BYTES][1]
                data = self._file.read_at(size, begin)
                kept = {field: value for field, value in about.items() if field in _CHUNK_FIELDS}
                return Stored(_moved(kept, -begin), [data]) if len(data) == size else None
        return None


class GzipParquet:
    """A file that grows by row groups, like ``pyarrow.parquet.ParquetWriter``.

    ``choice``: how columns are encoded; ``level``: of gzip; ``for_all``: use it even where it gains nothing.
    """

    def __init__(
        self, output: Output, schema: pa.Schema, choice: ColumnChoice, level: int, *, for_all: bool
    ) -> None:
        self._output = output
        self._choice = choice
        self._usual, self._quick = (_zlib(level), None) if for_all else _ways(level)
        self._chosen: dict[str, _Way] = {}
        self._groups: list[Struct] = []
        self._rows = 0
        self._key_chunk: Stored | None = None
        self._footer = _footer(_encoded(schema.empty_table(), choice))
        output.write(_MAGIC)

    def write_table(self, rows: pa.Table, keys: Stored | None = None) -> None:
        """Add a row group; ``keys``: the record keys as another file holds them, see ``takes``."""
        chunks: list[Struct] = []
        plain = stored = 0
        begin = self._output.tell()
        for chunk in self._chunks(rows, keys):
            at = self._output.tell()
            for part in chunk.parts:
                self._output.write(part)
            about = _moved(chunk.about, at)
            plain, stored = plain + about[_PLAIN_BYTES][1], stored + about[_STORED_BYTES][1]
            chunks.append({_CHUNK_START: (I64, about[_DATA_AT][1]), _CHUNK: (STRUCT, about)})
        self._groups.append(
            {
                _COLUMNS: (LIST, (STRUCT, chunks)),
                _GROUP_BYTES: (I64, plain),
                _GROUP_ROWS: (I64, rows.num_rows),
                _GROUP_START: (I64, begin),
                _GROUP_STORED: (I64, stored),
                _GROUP_NUMBER: (I16, len(self._groups)),
            }
        )
        self._rows += rows.num_rows
        self._key_chunk = None

    def takes(self, keys: KeyChunks) -> bool:
        """Whether another file's chunks of record keys may be copied into this one."""
        ours = _element(self._footer, self._choice.repeated)
        return self._quick is not None and ours is not None and keys.element == ours

    def close(self, notes: Mapping[str, str]) -> None:
        """Write the footer, with these entries."""
        entries = [{1: (BINARY, key.encode()), 2: (BINARY, text.encode())} for key, text in notes.items()]
        footer = self._footer | {_ROWS: (I64, self._rows), _GROUPS: (LIST, (STRUCT, self._groups))}
        footer[_ENTRIES] = (LIST, (STRUCT, entries))
        data = struct_bytes(dict(sorted(footer.items())))
        self._output.write(data + len(data).to_bytes(4, "little") + _MAGIC)

    def _chunks(self, rows: pa.Table, keys: Stored | None) -> Iterator[Stored]:
        """The column chunks of a row group, in order."""
        kept = () if keys is None else (self._choice.repeated,)
        for names in self._runs(rows, {*self._choice.repeating, *kept}):
            if keys is not None and names[0] == self._choice.repeated:
                self._key_chunk = keys
                yield keys
                continue
            if (first := self._repeated(rows, names[0])) is not None:
                yield first
                continue
            some = rows.select(names)
            data = _encoded(some, self._choice)
            (group,) = _footer(data)[_GROUPS][1][1]
            for column in group[_COLUMNS][1][1]:
                about = column[_CHUNK][1]
                if (path := _path(about)) in names and _is_coded(some, path):
                    about = _with_statistics(about, some.column(path))
                stored = self._compressed(data, about)
                if _path(stored.about) == self._choice.repeated:
                    self._key_chunk = stored
                yield stored

    def _runs(self, rows: pa.Table, lonely: Collection[str]) -> Iterator[list[str]]:
        """Names of columns to encode together; those of ``lonely`` are alone."""
        run: list[str] = []
        size = 0
        for field, column in zip(rows.schema, rows.columns, strict=True):
            alone = field.name in lonely
            if run and (alone or size + column.nbytes > _RUN_BYTES):
                yield run
                run, size = [], 0
            run.append(field.name)
            size += column.nbytes
            if alone:
                yield run
                run, size = [], 0
        if run:
            yield run

    def _repeated(self, rows: pa.Table, name: str) -> Stored | None:
        """The key's chunk under another name, if all values are equal."""
        key, chunk = self._choice.repeated, self._key_chunk
        if chunk is None or name not in self._choice.repeating:
            return None
        if not rows.column(name).equals(rows.column(key)):
            return None
        return Stored(chunk.about | {_PATH: (LIST, (BINARY, [name.encode()]))}, chunk.parts)

    def _compressed(self, data: memoryview, about: Struct) -> Stored:
        """A chunk of a file that pyarrow encoded, compressed."""
        at = begin = _start(about)
        end = begin + about[_STORED_BYTES][1]
        if _path(about) in self._choice.plain:
            return Stored(_moved(about, -begin), [bytes(data[begin:end])])
        parts: list[bytes] = []
        places: dict[int, int] = {}
        plain = stored = 0
        while at < end:
            places[at] = stored
            head, body_at = read_struct(data, at)
            at = body_at + head[_PAGE_STORED][1]
            body = data[body_at:at]
            packed = self._gzip(_path(about), body)
            head |= {
                _PAGE_STORED: (I32, len(packed)),
                # a 32-bit integer with a sign
                _PAGE_CHECKSUM: (I32, (zlib.crc32(packed) ^ 0x8000_0000) - 0x8000_0000),
            }
            packed_head = struct_bytes(dict(sorted(head.items())))
            parts += [packed_head, packed]
            stored += len(packed_head) + len(packed)
            plain += len(packed_head) + len(body)
        made = about | {
            _CODEC: (I32, _GZIP), _PLAIN_BYTES: (I64, plain), _STORED_BYTES: (I64, stored),
            _DATA_AT: (I64, places[about[_DATA_AT][1]]),
        }  # fmt: skip
        if _DICTIONARY_AT in about:
            made[_DICTIONARY_AT] = (I64, places[about[_DICTIONARY_AT][1]])
        return Stored(made, parts)

    def _gzip(self, path: str, body: memoryview) -> bytes:
        if self._quick is None or len(body) < _SAMPLE_BYTES_MIN:
            return self._usual(body)
        if path not in self._chosen:
            sample = body[:_SAMPLE_BYTES]
            gains = len(self._usual(sample)) < (1 - _GAIN_MIN) * len(self._quick(sample))
            self._chosen[path] = self._usual if gains else self._quick
        return self._chosen[path](body)


_Way = Callable[[memoryview], bytes]


def _ways(level: int) -> tuple[_Way, _Way | None]:
    """The usual way to compress a page, about as small as zlib's ``level``, and a quicker one."""
    if isal_zlib is None:
        return _zlib(level), _zlib(level, zlib.Z_HUFFMAN_ONLY)
    return _isal(_THOROUGH), _isal(_QUICK)


def _zlib(level: int, way: int = zlib.Z_DEFAULT_STRATEGY) -> _Way:
    return lambda page: _deflated(page, level, way)


def _isal(level: int) -> _Way:
    return lambda page: bytes(isal_zlib.compress(page, level, _WINDOW))


def _deflated(body: memoryview, level: int, way: int) -> bytes:
    made = zlib.compressobj(level, zlib.DEFLATED, _WINDOW, _MEMORY, way)
    return made.compress(body) + made.flush()


def _encoded(rows: pa.Table, choice: ColumnChoice) -> memoryview:
    """A whole file without compression, of one row group or none."""
    import pyarrow.parquet as pq

    made = pa.BufferOutputStream()
    encodings = choice.encodings
    if any(_is_coded(rows, name) for name in rows.schema.names):
        wanted = leaves_of(rows.schema) if choice.statistics is None else choice.statistics
        encodings["write_statistics"] = [
            path for path in wanted if path not in rows.schema.names or not _is_coded(rows, path)
        ] or False
    with pq.ParquetWriter(
        made,
        rows.schema,
        compression="none",
        store_schema=False,
        version="2.6",
        data_page_version="1.0",
        **encodings,
    ) as writer:
        if rows.num_rows:
            writer.write_table(rows, row_group_size=rows.num_rows)
    return memoryview(made.getvalue()).cast("B")


def _is_coded(rows: pa.Table, name: str) -> bool:
    return bool(pa.types.is_dictionary(rows.schema.field(name).type))


def _with_statistics(about: Struct, column: pa.ChunkedArray) -> Struct:
    """The metadata of a chunk of dictionary-coded texts with their range, for which pyarrow would look all
    values up again."""
    found: Struct = {_NULLS: (I64, column.null_count)}
    ends = [pc.min_max(chunk.dictionary).as_py() for chunk in column.chunks if len(chunk.dictionary)]
    if ends:
        least, most = (_encoded_text(pick(end[name] for end in ends)) for name, pick in _PICKS.items())
        if max(len(least), len(most)) <= _STATISTICS_BYTES_MAX:
            found |= {_MOST: (BINARY, most), _LEAST: (BINARY, least)}
    return dict(sorted((about | {_STATISTICS: (STRUCT, found)}).items()))


def _encoded_text(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _footer(data: memoryview) -> Struct:
    size = int.from_bytes(data[-8:-4], "little")
    return read_struct(data[-8 - size : -8])[0]


def _element(footer: Struct, name: str) -> Struct | None:
    """What a footer's schema says of a column that is not nested."""
    found = [one for one in footer[_SCHEMA][1][1] if one.get(_NAME, (BINARY, b""))[1] == name.encode()]
    return found[0] if len(found) == 1 else None


def _path(about: Struct) -> str:
    return ".".join(part.decode() for part in about[_PATH][1][1])


def _start(about: Struct) -> int:
    places = [about[field][1] for field in (_DATA_AT, _DICTIONARY_AT) if field in about]
    return min(places)


def _moved(about: Struct, by: int) -> Struct:
    """The metadata of a chunk that lies ``by`` bytes further on."""
    places: dict[int, tuple[int, Any]] = {
        field: (I64, about[field][1] + by) for field in (_DATA_AT, _DICTIONARY_AT) if field in about
    }
    return about | places
