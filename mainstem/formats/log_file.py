"""Hudi log files: the framing of blocks (``HoodieLogFormat``) and the content of each kind of block.

A block is ``#HUDI#``, int64 size (of all that follows this field), int32 log version 1, int32 kind, header
map, int64 content length, content, footer map (empty), int64 distance back to the magic. All integers are
big-endian. Blocks follow one another without padding; the file has no header of its own.

Reading is strict by default. ``damaged="skip"`` treats a block whose size, trailer or successor is wrong like
Java's ``HoodieLogFileReader``: it continues at the next magic, so the rows of the damaged block are silently
missing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.avro_columns import decode_records, encode_groups
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.formats.base_file import KEY_COLUMN, USUAL_GZIP_LEVEL, Collected, SinkFile, codec_level
from mainstem.formats.delete_records import decode_deletes, encode_deletes
from mainstem.formats.gzip_parquet import GzipParquet
from mainstem.formats.hfile import HFile, entries_in, open_hfile
from mainstem.formats.hfile_write import write_hfile, write_log_hfiles
from mainstem.formats.parquet_columns import column_choice, dictionary_columns
from mainstem.formats.parquet_footer import close_with_notes
from mainstem.formats.schema_resolution import project_to
from mainstem.formats.vectors import footer_note, stored_as_bytes

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAGIC = b"#HUDI#"
_CONTENT_VERSION = 3
_LOG_VERSION = 1
_PREFIX = struct.Struct(">6sqiii")  # magic, size, log version, kind, number of headers
_ENTRY = struct.Struct(">ii")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
# A parquet block that would inflate more than this is refused (dictionary and run-length bombs).
_PARQUET_RATIO_MAX = 200
_PARQUET_ALWAYS_BYTES = 64 * limits.MIB
# From so many rows on, compressing pages here saves more time than putting the file together takes.
_GZIP_ROWS_MIN = 1000


class BlockKind(IntEnum):
    """``HoodieLogBlockType``; CORRUPT results from ``damaged="skip"`` and is never written."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


_BLOCK_KINDS = {"avro": BlockKind.AVRO_DATA, "parquet": BlockKind.PARQUET_DATA}


class Header(IntEnum):
    """``HeaderMetadataType``: keys of a block's header map. Unknown numbers are kept as they are."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


def replaced_by(headers: Mapping[int, str]) -> frozenset[str]:
    """The instants whose blocks this one of a log compaction replaces; empty for other blocks."""
    return frozenset(headers.get(Header.COMPACTED_BLOCK_TIMES, "").split(",")) - {""}


@dataclass(frozen=True, slots=True)
class LogBlock:
    """A block. ``content`` is a view of the file's bytes; ``offset`` is that of the block's magic."""

    kind: BlockKind
    instant: str
    headers: dict[int, str]
    content: memoryview
    offset: int
    path: str = ""
    content_offset: int = 0

    @property
    def schema_text(self) -> str:
        """The Avro schema with which the block was written, meta fields included."""
        text = self.headers.get(Header.SCHEMA)
        if text is None:
            raise self._corrupt("a data block without its schema header")
        return text

    @property
    def partial(self) -> bool:
        """IS_PARTIAL: the block holds only the columns that an update set (Spark's MERGE INTO)."""
        return self.headers.get(Header.IS_PARTIAL, "").lower() == "true"

    def records(self) -> tuple[memoryview, int]:
        """``(framed records, their number)`` of an AVRO_DATA or CDC_DATA block, for ``decode_many``."""
        if self.kind not in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
            raise Unsupported(f"a {self.kind.name} block has no Avro records")
        if len(self.content) < 8:
            raise self._corrupt(f"an Avro block of {len(self.content)} bytes; at least 8 are expected")
        version, count = _INT.unpack_from(self.content)[0], _INT.unpack_from(self.content, 4)[0]
        self._check_version(version)
        if count < 0:
            raise self._corrupt(f"an Avro block with {count} records")
        return self.content[8:], count

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows of a data block in its own schema; names that the schema lacks are left out."""
        if self.kind == BlockKind.PARQUET_DATA:
            return self._parquet(columns)
        if self.kind in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
            data, count = self.records()
            where = self.content_offset + 8
            return decode_records(data, count, self.schema_text, columns, path=self.path, offset=where)
        raise Unsupported(
            f"a log block of kind {self.kind.name} cannot be read as rows (file {self.path}, "
            f"offset {self.offset})"
        )

    def hfile(self) -> HFile:
        """The HFile of an HFILE_DATA block; offsets in its errors count from the start of the content."""
        if self.kind != BlockKind.HFILE_DATA:
            raise Unsupported(f"a log block of kind {self.kind.name} is no HFile")
        return open_hfile(self.content, path=f"{self.path}, from offset {self.content_offset} on")

    def hfile_entries(self) -> int:
        """The number of entries of an HFILE_DATA block, as its HFile says."""
        return entries_in(self.content, path=f"{self.path}, from offset {self.content_offset} on")

    def deletes(self) -> pa.Table:
        """A DELETE block as columns record_key, partition_path, ordering, ordering_is_default."""
        if self.kind != BlockKind.DELETE:
            raise Unsupported(f"a log block of kind {self.kind.name} holds no deletes")
        if len(self.content) < 8:
            raise self._corrupt(f"a delete block of {len(self.content)} bytes; 8 are expected")
        self._check_version(_INT.unpack_from(self.content)[0])
        size = _INT.unpack_from(self.content, 4)[0]
        if size != len(self.content) - 8:
            raise self._corrupt(
                f"a delete block that declares {size} bytes of deletes and holds {len(self.content) - 8}"
            )
        try:
            return decode_deletes(self.content[8:])
        except Malformed as error:
            raise self._corrupt(f"a damaged delete block: {error}") from None

    def _check_version(self, version: int) -> None:
        if version in (1, 2):
            raise Unsupported(
                f"a {self.kind.name} block of content version {version} (Hudi before 0.14) in "
                f"{self.path} at {self.offset}: compact the table with Java Hudi first"
            )
        if version != _CONTENT_VERSION:
            raise self._corrupt(f"block content version {version}; {_CONTENT_VERSION} is expected")

    def _parquet(self, columns: Sequence[str] | None) -> pa.Table:
        schema = avro_to_arrow(self.schema_text, path=self.path)
        wanted = schema.names if columns is None else [c for c in columns if schema.get_field_index(c) >= 0]
        target = pa.schema([schema.field(name) for name in wanted])
        return project_to(self._parquet_rows(wanted), target)

    def _parquet_rows(self, wanted: list[str]) -> pa.Table:
        import pyarrow.parquet as pq

        try:
            source = pa.BufferReader(pa.py_buffer(self.content))
            footer = pq.read_metadata(source)
            _check_parquet(footer, len(self.content))
            _check_names(footer.schema.to_arrow_schema().names)
            # Strings stay dictionary-encoded until their full size is known.
            texts = [c.path for c in map(footer.schema.column, range(footer.num_columns)) if _flat(c)]
            file = pq.ParquetFile(source, read_dictionary=texts, page_checksum_verification=True)
            there = set(file.schema_arrow.names)
            found = [name for name in wanted if name in there]
            rows = file.read(columns=found, use_threads=False)
            _check_texts(rows, len(self.content))
            rows.validate(full=True)  # parquet does not check that a string column is UTF-8
            return rows
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise self._corrupt(f"a damaged parquet block: {error}") from None

    def _corrupt(self, message: str) -> CorruptTable:
        return CorruptTable(message, path=self.path, offset=self.offset, instant=self.instant)


def _flat(column: pq.ColumnSchema) -> bool:
    return column.physical_type == "BYTE_ARRAY" and "." not in column.path


def _check_parquet(footer: pq.FileMetaData, size: int) -> None:
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    inflated = sum(group.total_byte_size for group in groups)
    cells = sum(group.num_rows for group in groups) * max(1, footer.num_columns)
    if any(g.num_rows < 0 or g.total_byte_size < 0 for g in groups):
        raise ValueError("a row group of negative size")
    _check_ratio(inflated, size)
    _check_ratio(cells, size)


def _check_names(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise ValueError("two columns of one name")


def _check_texts(rows: pa.Table, size: int) -> None:
    """Check the size of the strings once they are decoded, one copy per row."""
    total = 0
    for column in rows.columns:
        for chunk in column.chunks:
            if isinstance(chunk, pa.DictionaryArray) and len(chunk.dictionary):
                lengths = pc.binary_length(chunk.dictionary)
                total += pc.sum(lengths.take(chunk.indices).cast(pa.int64())).as_py() or 0
    _check_ratio(total, size)


def _check_ratio(inflated: int, size: int) -> None:
    if inflated > max(_PARQUET_ALWAYS_BYTES, _PARQUET_RATIO_MAX * size):
        raise ValueError(f"{size} bytes would become {inflated}")


# ---------------------------------------------------------------------------------------- writing


def data_block(
    instant: str,
    schema_text: str,
    batch: pa.RecordBatch | pa.Table,
    *,
    block_format: str = "avro",
    compression: str = "gzip",
    extra: Mapping[Header, str] | None = None,
) -> list[bytes | memoryview]:
    """One data block with these rows, as buffers to write one after another.

    See ``data_blocks`` for the options.
    """
    (block,) = data_blocks(
        instant,
        schema_text,
        batch,
        [0, batch.num_rows],
        block_format=block_format,
        compression=compression,
        extra=extra,
        keep_empty=True,
    )
    return block


def data_blocks(
    instant: str,
    schema_text: str,
    batch: pa.RecordBatch | pa.Table,
    bounds: Sequence[int],
    *,
    block_format: str = "avro",
    compression: str = "gzip",
    extra: Mapping[Header, str] | None = None,
    keep_empty: bool = False,
) -> list[list[bytes | memoryview]]:
    """One data block per range of rows ``bounds[i]:bounds[i + 1]``, all encoded in one pass.

    This is the cheap way to write a batch that is sorted by bucket; an empty range gives an empty list.
    ``block_format`` is ``hoodie.logfile.data.block.format``: "avro" makes AVRO_DATA blocks, "parquet"
    PARQUET_DATA blocks, each a complete Parquet file compressed with ``compression``
    (``hoodie.parquet.compression.codec``). ``extra`` are further headers of every block, such as IS_PARTIAL.
    Raises ``Invalid``, naming the column, for rows that ``schema_text`` cannot hold.
    """
    if block_format not in _BLOCK_KINDS:
        raise Invalid(
            f"a log block format {block_format!r}: {' and '.join(sorted(_BLOCK_KINDS))} are written"
        )
    headers = _entries({Header.INSTANT_TIME: instant, Header.SCHEMA: schema_text, **(extra or {})})
    if block_format == "parquet":
        contents = _parquet_contents(schema_text, batch, bounds, compression)
    else:
        contents = _avro_contents(schema_text, batch, bounds)
    return [
        _framed(_BLOCK_KINDS[block_format], headers, content) if high > low or keep_empty else []
        for content, low, high in zip(contents, bounds[:-1], bounds[1:], strict=True)
    ]


def _avro_contents(
    schema_text: str, batch: pa.RecordBatch | pa.Table, bounds: Sequence[int]
) -> Iterator[list[bytes | memoryview]]:
    groups = encode_groups(batch, schema_text, bounds)
    for group, low, high in zip(groups, bounds[:-1], bounds[1:], strict=True):
        yield [struct.pack(">ii", _CONTENT_VERSION, int(high) - int(low)), *group]


def _parquet_contents(
    schema_text: str, batch: pa.RecordBatch | pa.Table, bounds: Sequence[int], compression: str
) -> Iterator[list[bytes | memoryview]]:
    """Complete Parquet files with the footer entries of Java's Avro writer."""
    schema = avro_to_arrow(schema_text)
    alien = [name for name in batch.schema.names if schema.get_field_index(name) < 0]
    if alien:
        raise Invalid(f"the batch has columns that the table does not have: {', '.join(alien)}")
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    table = project_to(table, schema)
    for field, column in zip(schema, table.columns, strict=True):
        if column.null_count and not field.nullable:
            raise Invalid(f"column {field.name!r} has a null, but the schema declares it as not null")
    table = stored_as_bytes(table)
    notes = {"parquet.avro.schema": schema_text, "writer.model.name": "avro", **footer_note(schema)}
    for low, high in zip(bounds[:-1], bounds[1:], strict=True):
        collected = Collected()
        output = SinkFile(collected)
        rows = table.slice(low, high - low)
        if compression == "gzip" and rows.num_rows >= _GZIP_ROWS_MIN and KEY_COLUMN in rows.schema.names:
            choice = column_choice(rows, [KEY_COLUMN], USUAL_GZIP_LEVEL)
            file = GzipParquet(output, rows.schema, choice, USUAL_GZIP_LEVEL, for_all=False)
            file.write_table(rows)
            file.close(notes)
        else:
            _write_by_pyarrow(output, rows, compression, notes)
        output.flush()
        yield [memoryview(collected.stream.getvalue())]


def _write_by_pyarrow(output: SinkFile, rows: pa.Table, compression: str, notes: Mapping[str, str]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(
        pa.PythonFile(output, mode="w"),
        rows.schema,
        compression=compression,
        compression_level=codec_level(compression),
        use_dictionary=dictionary_columns(rows.schema),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        if rows.num_rows:
            writer.write_table(rows)
        close_with_notes(writer, output, notes)


def delete_block(
    instant: str,
    schema_text: str,
    keys: pa.Array,
    partition_path: str,
    ordering: Sequence[pa.Array] | None,
    extra: Mapping[Header, str] | None = None,
) -> list[bytes | memoryview]:
    """A DELETE block; without ``ordering`` it deletes whatever was written before (``IntWrapper(0)``).

    ``extra``: further headers.
    """
    data = encode_deletes(keys, partition_path, ordering)
    frame = struct.pack(">ii", _CONTENT_VERSION, len(data))
    headers = {Header.INSTANT_TIME: instant, Header.SCHEMA: schema_text, **(extra or {})}
    return _block(BlockKind.DELETE, headers, [frame, data])


def hfile_block(
    instant: str, schema_text: str, keys: pa.Array, values: pa.Array, *, compression: str = "GZ"
) -> list[bytes | memoryview]:
    """An HFILE_DATA block, which a delta commit adds to a file group of the metadata table.

    Keys and values are those of ``write_hfile``; ``schema_text`` is the Avro schema of the values.
    """
    content = write_hfile(keys, values, schema_text=schema_text, base_file=False, compression=compression)
    return _block(BlockKind.HFILE_DATA, {Header.INSTANT_TIME: instant, Header.SCHEMA: schema_text}, [content])


def hfile_blocks(
    instant: str, schema_text: str, keys: pa.Array, values: pa.Array, bounds: Sequence[int]
) -> Iterator[list[bytes | memoryview]]:
    """``hfile_block`` for each range of rows ``bounds[i]:bounds[i + 1]``; cheaper than single calls."""
    headers = _entries({Header.INSTANT_TIME: instant, Header.SCHEMA: schema_text})
    for content in write_log_hfiles(keys, values, bounds, schema_text=schema_text):
        yield _framed(BlockKind.HFILE_DATA, headers, [content])


def empty_group_block(instant: str) -> list[bytes | memoryview]:
    """The empty delete block in the first log file of a file group of the metadata table."""
    content = struct.pack(">ii", _CONTENT_VERSION, 1) + b"\0"
    return _block(BlockKind.DELETE, {Header.INSTANT_TIME: instant}, [content])


def rollback_block(instant: str, target: str) -> list[bytes | memoryview]:
    """A COMMAND block that rolls back the blocks of ``target``; ``instant`` is the rollback's own."""
    headers = {
        Header.INSTANT_TIME: instant,
        Header.TARGET_INSTANT_TIME: target,
        Header.COMMAND_BLOCK_TYPE: "0",
    }
    return _block(BlockKind.COMMAND, headers, [])


def _block(
    kind: BlockKind, headers: Mapping[Header, str], content: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    return _framed(kind, _entries(headers), content)


def _entries(headers: Mapping[Header, str]) -> tuple[int, bytes]:
    """The number of headers, and their bytes."""
    texts = ((key, headers[key].encode()) for key in sorted(headers))
    return len(headers), b"".join(_ENTRY.pack(key, len(text)) + text for key, text in texts)


def _framed(
    kind: BlockKind, headers: tuple[int, bytes], content: Sequence[bytes | memoryview]
) -> list[bytes | memoryview]:
    count, entries = headers
    length = sum(map(len, content))
    size = _PREFIX.size - 14 + len(entries) + 8 + length + 4 + 8
    if size > limits.LOG_BLOCK_BYTES_MAX - 14:
        raise Invalid(
            f"a log block of {size} bytes; Hudi reads at most {limits.LOG_BLOCK_BYTES_MAX}: write "
            "smaller batches"
        )
    head = _PREFIX.pack(MAGIC, size, _LOG_VERSION, kind, count) + entries + _LONG.pack(length)
    return [head, *content, struct.pack(">iq", 0, size + 6)]


# ---------------------------------------------------------------------------------------- reading


def read_blocks(
    view: memoryview, *, path: str, damaged: str = "error"
) -> list[LogBlock]:
    """All blocks of a log file, in order; contents are views, not decoded yet.

    A file of zero bytes has no blocks. With ``damaged="error"`` anything but a whole block raises
    ``CorruptTable`` with path and offset, an unfinished block at the end included. With ``damaged="skip"``
    damage becomes a block of kind CORRUPT that reaches to the next magic, as in Java, and fewer than six
    bytes at the end are ignored; a boundary without magic is an error even then.
    """
    if damaged not in ("error", "skip"):
        raise Invalid(f"damaged={damaged!r}: 'error' and 'skip' are possible")
    return _Walk(view, path).strict() if damaged == "error" else _Walk(view, path).lenient()


class _Walk:
    def __init__(self, view: memoryview, path: str) -> None:
        self.view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        self.size = len(self.view)
        self.path = path
        self.texts: dict[bytes, str] = {}  # one string object per schema, shared by all its blocks

    def strict(self) -> list[LogBlock]:
        blocks, at = [], 0
        while at < self.size:
            self._check_magic(at)
            end = self._end(at)
            blocks.append(self._block(at, end))
            at = end
        return blocks

    def lenient(self) -> list[LogBlock]:
        blocks, at = [], 0
        while at + len(MAGIC) <= self.size:
            self._check_magic(at)
            end = self._java_end(at)
            if end is None:
                end = self._next_magic(at + len(MAGIC))
                blocks.append(self._gap(at, end))
            else:
                blocks.append(self._block(at, end))
            at = end
        return blocks

    def _corrupt(self, message: str, at: int) -> CorruptTable:
        return CorruptTable(
            f"{message}; restore the file from a copy, or read with damaged blocks skipped (their "
            "rows are then missing)",
            path=self.path,
            offset=at,
        )

    def _check_magic(self, at: int) -> None:
        found = bytes(self.view[at : at + len(MAGIC)])
        if found != MAGIC:
            raise self._corrupt(f"no log block begins here: {MAGIC!r} expected, found {found!r}", at)

    def _end(self, at: int) -> int:
        """The end of the block at ``at``; checks its size and trailer."""
        if at + 14 > self.size:
            raise self._corrupt("a log block that is cut off in its size field", at)
        size = _LONG.unpack_from(self.view, at + 6)[0]
        end = at + 14 + size
        smallest = _PREFIX.size - 14 + 8 + 4 + 8
        if size < smallest or size > limits.LOG_BLOCK_BYTES_MAX:
            raise self._corrupt(
                f"a log block with a size of {size} bytes; {smallest} to "
                f"{limits.LOG_BLOCK_BYTES_MAX} are possible",
                at,
            )
        if end > self.size:
            raise self._corrupt(
                f"a log block of {size} bytes that is cut off: the file has {self.size - at - 14}",
                at,
            )
        back = _LONG.unpack_from(self.view, end - 8)[0]
        if back != size + 6:
            raise self._corrupt(f"a log block whose trailer is {back} where {size + 6} is expected", at)
        return end

    def _java_end(self, at: int) -> int | None:
        """``HoodieLogFileReader.isBlockCorrupted``: None if the block counts as damaged."""
        if at + 14 > self.size:
            return None
        size = _INT.unpack_from(self.view, at + 10)[0]  # Java casts the int64 to int
        end = at + 14 + size
        if end > self.size or end - 8 < at + 14:
            return None
        if _LONG.unpack_from(self.view, end - 8)[0] - len(MAGIC) != size:
            return None
        follows = bytes(self.view[end : end + len(MAGIC)])
        return end if len(follows) < len(MAGIC) or follows == MAGIC else None

    def _next_magic(self, at: int) -> int:
        step = limits.MIB
        while at < self.size:
            window = bytes(self.view[at : at + step + len(MAGIC) - 1])
            hit = window.find(MAGIC)
            if hit >= 0:
                return at + hit
            at += step
        return self.size

    def _gap(self, at: int, end: int) -> LogBlock:
        begin = at + len(MAGIC)
        return LogBlock(BlockKind.CORRUPT, "", {}, self.view[begin:end], at, self.path, begin)

    def _block(self, at: int, end: int) -> LogBlock:
        if end - at < _PREFIX.size + 20:
            raise self._corrupt(f"a log block of {end - at} bytes, too few for one", at)
        _, _, version, kind, count = _PREFIX.unpack_from(self.view, at)
        if version != _LOG_VERSION:
            raise self._corrupt(f"log format version {version}; {_LOG_VERSION} is expected", at)
        if kind not in _KINDS or kind == BlockKind.CORRUPT:
            raise self._corrupt(f"a log block of the unknown kind {kind}", at)
        headers, place = self._headers(at, at + _PREFIX.size, count, end - 8)
        if place + 8 > end - 8:
            raise self._corrupt("a log block whose headers leave no room for its content", at)
        length = _LONG.unpack_from(self.view, place)[0]
        place += 8
        if length < 0 or length > end - 12 - place:
            raise self._corrupt(
                f"a log block with a content of {length} bytes, but only {end - 12 - place} are left", at
            )
        self._check_footer(at, place + length, end - 8)
        instant = headers.get(Header.INSTANT_TIME)
        if instant is None:
            raise self._corrupt("a log block without an instant time", at)
        content = self.view[place : place + length]
        return LogBlock(BlockKind(kind), instant, headers, content, at, self.path, place)

    def _check_footer(self, at: int, place: int, end: int) -> None:
        count = _INT.unpack_from(self.view, place)[0]
        _, place = self._headers(at, place + 4, count, end)
        if place != end:
            raise self._corrupt(f"a log block with {end - place} bytes after its footer", at)

    def _headers(self, at: int, place: int, count: int, end: int) -> tuple[dict[int, str], int]:
        if not 0 <= count <= limits.LOG_HEADER_COUNT_MAX:
            raise self._corrupt(
                f"a log block with {count} headers; at most {limits.LOG_HEADER_COUNT_MAX} are read",
                at,
            )
        headers: dict[int, str] = {}
        for _ in range(count):
            if place + 8 > end:
                raise self._corrupt("a log block whose headers are cut off", at)
            key, length = _ENTRY.unpack_from(self.view, place)
            place += 8
            if not 0 <= length <= min(limits.LOG_HEADER_BYTES_MAX, end - place):
                raise self._corrupt(f"a log block header of {length} bytes", at)
            headers[key] = self._text(bytes(self.view[place : place + length]), at)
            place += length
        return headers, place

    def _text(self, data: bytes, at: int) -> str:
        found = self.texts.get(data)
        if found is None:
            try:
                found = self.texts[data] = data.decode()
            except UnicodeDecodeError as error:
                raise self._corrupt(f"a log block header that is not UTF-8: {error}", at) from None
        return found


_KINDS = frozenset(int(kind) for kind in BlockKind)
