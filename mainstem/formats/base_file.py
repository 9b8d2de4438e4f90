"""Writes base files: Parquet with the footer of Hudi's writers (HoodieParquetWriter).

The footer holds the Avro schema, the range of record keys (in Java's order of strings) and a bloom filter of
them. Meta columns come first. Lists have three levels, as Spark's row writer lays them out, since the
two-level form of Hudi's Avro writer cannot hold null elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.bloom_filter import DYNAMIC, TYPE_CODE_KEY, BloomFilter, BloomSize, text_bytes
from mainstem.formats.file_form import FileForm
from mainstem.formats.gzip_parquet import GzipParquet, KeyChunks, Stored
from mainstem.formats.parquet_columns import column_choice, gzip_level
from mainstem.formats.parquet_footer import CALENDAR_NOTE, close_with_notes, with_notes
from mainstem.formats.quick_parquet import CODEC as QUICK_CODEC
from mainstem.formats.vectors import stored_as_bytes
from mainstem.limits import MIB
from mainstem.options import GZIP_LEVEL
from mainstem.options.writing import (
    BLOOM,
    BLOOM_ENTRIES,
    BLOOM_ENTRIES_MAX,
    BLOOM_ERROR,
    BLOOM_TYPE,
    COMPRESSION,
    GROUP_BYTES,
)

if TYPE_CHECKING:
    import pyarrow.parquet as pq

KEY_COLUMN = META_FIELDS[2]
_UNIQUE = (KEY_COLUMN, META_FIELDS[1])
SCHEMA_KEY = "parquet.avro.schema"
BLOOM_KEY = "org.apache.hudi.bloomfilter"
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"
#: our own entry of the footer: the order in which a compaction wrote the rows
ORDER_KEY = "mainstem.rows.ordered.by"
CODECS = ("gzip", "snappy", "zstd", "lz4", "brotli", "none")
_PIECE_BYTES = 4 * MIB
#: of so few rows the quickest way to write a file is another one, without dictionaries
FEW_ROWS = 2000
# Smaller chunks of keys are encoded as fast as they are copied.
_COPIED_ROWS_MIN = 4096
# How many keys are looked for in a filter that is taken over.
_LOOKED_FOR = 256
# of gzip, unless an option says otherwise
USUAL_GZIP_LEVEL = 3
# pyarrow does not write larger row groups.
_GROUP_ROWS_MAX = 64 * MIB
# Java's names for the absence of compression and for Hadoop's lz4, and pyarrow's names for the same.
_CODEC_NAMES = {"uncompressed": "none", "lz4_raw": "lz4"}


def codec_level(compression: str) -> int | None:
    """The level to pass to pyarrow where Java's default differs from Arrow's, else None: gzip 6 instead of 9,
    which takes four times as long for the same bytes."""
    return gzip_level(6) if compression == "gzip" else None


class Sink(Protocol):
    """Accepts bytes, in order."""

    def append(self, buffers: list[bytes | memoryview]) -> None: ...


@dataclass(frozen=True)
class BaseFileFormat:
    """How base files are written; picklable.

    ``bloom`` None leaves the filter out. ``group_bytes``: a row group ends when its rows take this many bytes
    in memory (Java counts encoded bytes, which are fewer). ``gzip_level`` None means ISA-L, or
    zlib's 3 where it is missing: sixteen times and twice as fast as Java's 6, with about as many bytes for
    keys and up to a fifth more for texts. ``order``: what the footer says of the order of the rows.
    ``key_range``: the footer tells the least and the greatest record key. ``quick``: the file is soon written
    again, so that the codec is for columns that it makes much smaller only.
    """

    compression: str = COMPRESSION.default
    bloom: BloomSize | None = field(default_factory=BloomSize)
    group_bytes: int = GROUP_BYTES.default
    gzip_level: int | None = None
    order: str = ""
    key_range: bool = True
    quick: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BaseFileFormat:
        """Hudi's options and defaults. Raises ``Invalid`` for a value that Hudi does not have."""
        name = COMPRESSION.read(properties).lower()
        codec = _CODEC_NAMES.get(name, name)
        if codec not in CODECS:
            raise Invalid(f"{COMPRESSION}={name!r}, expected one of {', '.join(CODECS)}")
        wanted = BLOOM.read(properties).lower()
        if wanted not in ("true", "false"):
            raise Invalid(f"{BLOOM}={wanted!r}, expected true or false")
        try:
            bloom = BloomSize(
                int(BLOOM_ENTRIES.read(properties)),
                float(BLOOM_ERROR.read(properties)),
                BLOOM_TYPE.read(properties).upper(),
                int(BLOOM_ENTRIES_MAX.read(properties)),
            )
        except ValueError as error:
            raise Invalid(f"hoodie.index.bloom.* is no number: {error}") from error
        return cls(
            codec,
            bloom if wanted == "true" else None,
            GROUP_BYTES.read(properties),
            GZIP_LEVEL.read_if_given(properties),
        )

    @classmethod
    def of_logs(cls, properties: Mapping[str, str]) -> BaseFileFormat:
        """As ``from_properties``, for native log files. A compaction soon writes their rows again, so without
        ``hoodie.parquet.compression.codec``, which holds for them as in Hudi, their codec is a quicker one.
        They have no bloom filter and no range of keys: Java, which writes both, asks those of base files
        alone (``BloomFiltersIndexer``)."""
        how = replace(cls.from_properties(properties), bloom=None, key_range=False)
        given = COMPRESSION.found_as(properties) in properties
        return how if given else replace(how, compression=QUICK_CODEC, quick=True)


def encode_base_file(rows: pa.Table, avro_schema: str, how: BaseFileFormat | None = None) -> pa.Buffer:
    """A base file in memory; see ``write_base_file``."""
    collected = Collected()
    write_base_file([rows], avro_schema, collected, how)
    return collected.stream.getvalue()


def write_base_file(
    batches: Iterable[pa.Table],
    avro_schema: str,
    sink: Sink,
    how: BaseFileFormat | None = None,
) -> int:
    """Write a base file, gathering batches into row groups; return the number of rows.

    ``avro_schema`` is the writer schema with meta fields. It decides names, types and order of the columns;
    ``_hoodie_record_key`` must be filled. Raises ``Invalid`` for a null key, or a null in a column that the
    schema declares as not null.
    """
    how = how or BaseFileFormat()
    file = BaseFileWriter(avro_schema, sink, how)
    try:
        for group in in_pieces(batches, how.group_bytes):
            file.write(group)
        file.close()
    finally:
        file.give_up()
    return file.rows


@dataclass(frozen=True)
class OlderFile:
    """The base file that a new one replaces, of whose keys it has all.

    ``file``: open; ``rows``: how many it has; ``said``: the entries of its footer.
    """

    file: pa.NativeFile
    rows: int
    said: Mapping[bytes, bytes]

    @cached_property
    def keys(self) -> KeyChunks:
        """Its chunks of record keys."""
        return KeyChunks(self.file, KEY_COLUMN)

    def filter(self, size: BloomSize) -> BloomFilter | None:
        """Its Bloom filter, if that is of this size and for as many keys as it has rows."""
        text = self.said.get(BLOOM_KEY.encode())
        return None if text is None else BloomFilter.resumed(text, size, self.rows)


class BaseFileWriter:
    """A base file that grows by row groups; arguments and errors are those of ``write_base_file``.

    ``said``: further entries of the footer. ``whole``: the first row group is the only one, so that a quick
    file is put together in memory. ``form``: what it has in common with other files of its write. ``older``:
    the file that it replaces.
    """

    def __init__(
        self,
        avro_schema: str,
        sink: Sink,
        how: BaseFileFormat,
        *,
        said: Mapping[str, str] | None = None,
        whole: bool = False,
        form: FileForm | None = None,
        older: OlderFile | None = None,
    ) -> None:
        self._form = FileForm(avro_schema) if form is None else form
        self._how = how
        self._whole = whole
        self._older = older
        self._notes = _Notes(avro_schema, {**self._form.vectors, **(said or {})}, how, older)
        self._output = SinkFile(sink)
        self._writer: _Writer | None = None
        self.rows = 0

    def write(self, group: pa.Table, known: int = 0, same: int | None = None) -> None:
        """Add a row group. ``known``: so many of its first keys are in the older file; ``same``: its keys are
        those of this row group of the older file, in their order."""
        if _keyed(group):
            self._notes.add(_keys(group), known)
        few = self._is_of_few(group)
        if self._how.quick:
            group = self._form.laid_out(group, narrowed=not few)
        else:
            group = self._form.stored(group, coded=self._how.compression == "gzip" and not few)
        self._writer = self._writer or self._opened(group)
        if isinstance(self._writer, GzipParquet):
            self._writer.write_table(group, self._kept_keys(self._writer, group, same))
        else:
            self._writer.write_table(group)
        self.rows += group.num_rows

    def _kept_keys(self, writer: GzipParquet, group: pa.Table, same: int | None) -> Stored | None:
        if self._older is None or same is None or group.num_rows < _COPIED_ROWS_MIN:
            return None
        keys = self._older.keys
        return keys.chunk(same) if writer.takes(keys) else None

    def close(self) -> None:
        """Write the footer, and pass all bytes on to the sink."""
        writer = self._writer or self._opened(stored_as_bytes(self._form.schema.empty_table()))
        writer.close(self._notes.footer())
        self._output.flush()

    def give_up(self) -> None:
        """Let go of what the writer holds, if it is not closed."""
        if isinstance(self._writer, _OtherParquet):
            self._writer.give_up()

    def _is_of_few(self, rows: pa.Table) -> bool:
        return self._whole and rows.num_rows < FEW_ROWS

    def _opened(self, rows: pa.Table) -> _Writer:
        """A Parquet writer whose settings are chosen by the first rows."""
        output, how = self._output, self._how
        if self._is_of_few(rows):
            few = _of_few(rows, how.compression, vectors=bool(self._form.vectors))
            return _WholeParquet(output, rows.schema, few)
        if how.quick:
            quick = self._form.choice(rows)
            settings = {**_SETTINGS, **quick.encodings}
            kind = _WholeParquet if self._whole else _OtherParquet
            return kind(output, rows.schema, settings, quick.laid_out)
        if how.compression != "gzip" or not _keyed(rows):
            return _OtherParquet(output, rows.schema, _as_ever(rows, how.compression))
        level, for_all = how.gzip_level or USUAL_GZIP_LEVEL, how.gzip_level is not None
        choice = column_choice(rows, _UNIQUE, level, for_all=for_all)
        return GzipParquet(output, rows.schema, choice, level, for_all=for_all)


_LaidOut = Callable[[pa.Table], pa.Table]


def _keyed(rows: pa.Table) -> bool:
    """Whether the rows have record keys; those of change data are no rows of the table."""
    return rows.schema.get_field_index(KEY_COLUMN) >= 0


class _Writer(Protocol):
    def write_table(self, rows: pa.Table) -> None: ...
    def close(self, notes: Mapping[str, str]) -> None: ...


class _WholeParquet:
    """Parquet of one row group as pyarrow writes it, put together in memory: each page costs a call
    otherwise. ``laid_out``: how rows are given to pyarrow."""

    def __init__(
        self,
        output: SinkFile,
        schema: pa.Schema,
        settings: Mapping[str, Any],
        laid_out: _LaidOut = lambda rows: rows,
    ) -> None:
        self._output, self._settings, self._laid_out = output, settings, laid_out
        self._schema = schema
        self._rows: pa.Table | None = None

    def write_table(self, rows: pa.Table) -> None:
        assert self._rows is None, "a whole file has one row group"
        self._rows = rows

    def close(self, notes: Mapping[str, str]) -> None:
        import pyarrow.parquet as pq

        made = pa.BufferOutputStream()
        rows = self._laid_out(self._schema.empty_table() if self._rows is None else self._rows)
        writer = pq.ParquetWriter(made, rows.schema, **self._settings)
        if rows.num_rows:
            writer.write_table(rows, row_group_size=rows.num_rows)
        late = hasattr(writer, "add_key_value_metadata")
        if late:
            writer.add_key_value_metadata(dict(notes))
        writer.close()
        data = memoryview(made.getvalue())
        if late:
            self._output.write(data)
        else:
            ahead = max(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
            self._output.write(data[:ahead])
            self._output.write(with_notes(bytes(data[ahead:]), notes))


_SETTINGS = {"store_schema": False, "write_page_checksum": True, "version": "2.6", "data_page_version": "1.0"}


def _as_ever(rows: pa.Table, codec: str) -> dict[str, Any]:
    """Arguments of pyarrow's writer."""
    chosen = column_choice(rows, _UNIQUE).encodings if _keyed(rows) else {}
    return {
        **_SETTINGS,
        "compression": codec,
        "compression_level": codec_level(codec),
        **chosen,
    }


def _of_few(rows: pa.Table, codec: str, *, vectors: bool) -> dict[str, Any]:
    """The same for a file of so few rows that a look at them, and dictionaries, cost more than they save."""
    if vectors:
        return _as_ever(rows, codec)
    level = codec_level(codec)
    return {**_SETTINGS, "compression": codec, "compression_level": level, "use_dictionary": False}


class _OtherParquet:
    """Parquet as pyarrow writes it."""

    def __init__(
        self,
        output: SinkFile,
        schema: pa.Schema,
        settings: Mapping[str, Any],
        laid_out: _LaidOut = lambda rows: rows,
    ) -> None:
        import pyarrow.parquet as pq

        self._output, self._laid_out = output, laid_out
        schema = laid_out(schema.empty_table()).schema
        self._writer: pq.ParquetWriter = pq.ParquetWriter(pa.PythonFile(output, mode="w"), schema, **settings)

    def write_table(self, rows: pa.Table) -> None:
        self._writer.write_table(self._laid_out(rows), row_group_size=rows.num_rows)

    def close(self, notes: Mapping[str, str]) -> None:
        close_with_notes(self._writer, self._output, notes)

    def give_up(self) -> None:
        """Let go of what the writer holds, if it is not closed."""
        self._writer.close()


def in_pieces(batches: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Join neighbouring batches, and divide large ones, into tables of about ``size`` bytes, such as row
    groups."""
    run: list[pa.Table] = []
    waiting = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = min(_GROUP_ROWS_MAX, max(1, size * batch.num_rows // max(1, batch.nbytes)))
        for part in (batch.slice(at, rows) for at in range(0, batch.num_rows, rows)):
            if run and waiting + part.nbytes > size:
                yield pa.concat_tables(run)
                run, waiting = [], 0
            run.append(part)
            waiting += part.nbytes
    if run:
        yield pa.concat_tables(run)


def _keys(batch: pa.Table) -> pa.ChunkedArray:
    column = batch.column(KEY_COLUMN)
    if column.null_count:
        raise Invalid(f"{column.null_count} rows without {KEY_COLUMN}: every row of a base file needs one")
    return column if column.type == pa.string() else column.cast(pa.string())


class _Notes:
    """What the footer says about the rows; gathered while they are written."""

    def __init__(
        self, avro_schema: str, vectors: dict[str, str], how: BaseFileFormat, older: OlderFile | None = None
    ) -> None:
        self._said = {SCHEMA_KEY: avro_schema, "writer.model.name": "avro", **CALENDAR_NOTE, **vectors}
        if how.order:
            self._said[ORDER_KEY] = how.order
        resumed = None if how.bloom is None or older is None else older.filter(how.bloom)
        self._has_known = resumed is not None
        self._bloom = resumed or (None if how.bloom is None else BloomFilter(how.bloom))
        self._dynamic = how.bloom is not None and how.bloom.kind == DYNAMIC
        self._key_range = how.key_range
        self._ends: list[str] = []

    def add(self, keys: pa.ChunkedArray, known: int = 0) -> None:
        """Take note of the next rows' keys; ``known``: so many of the first are in the older file."""
        if self._bloom is not None:
            # Of a filter that somebody else may have written some keys are looked for.
            if self._has_known and known and self._bloom.holds(_some(keys, known)):
                self._bloom.add(keys.slice(known))
            else:
                self._bloom.add(keys)
        if self._key_range:
            self._ends = list(key_range(pa.array([*self._ends, *key_range(keys)], pa.string())))

    def footer(self) -> dict[str, str]:
        """The footer's keys and values."""
        notes = dict(self._said)
        if self._bloom is not None:
            notes[BLOOM_KEY] = self._bloom.text()
            if self._dynamic:
                notes[TYPE_CODE_KEY] = DYNAMIC
        if self._ends:
            notes[MIN_KEY], notes[MAX_KEY] = self._ends
        return notes


def _some(keys: pa.ChunkedArray, count: int) -> pa.Array:
    """Some of the first ``count`` keys, from all of them."""
    return keys.take(pa.array(range(0, count, -(-count // _LOOKED_FOR)))).combine_chunks()


def key_range(keys: pa.Array | pa.ChunkedArray) -> tuple[str, str]:
    """Smallest and greatest key in the order of Java's ``String.compareTo`` (by UTF-16 units)."""
    ends = pc.min_max(keys).as_py()
    # UTF-8 and UTF-16 order differ only between characters outside the basic plane and those from U+E000 on.
    if any(_from_e000(chunk) for chunk in (keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys])):
        texts = pc.unique(keys).to_pylist()  # row by row: such keys are rare
        in_order = {text.encode("utf-16-be", "surrogatepass"): text for text in texts}
        return in_order[min(in_order)], in_order[max(in_order)]
    return ends["min"], ends["max"]


def _from_e000(keys: pa.Array) -> bool:
    """Whether any character is U+E000 or greater: only those begin with a UTF-8 byte of 0xEE or more."""
    return int(text_bytes(keys)[1].max(initial=0)) >= 0xEE


class SinkFile:
    """The file that pyarrow writes to, page by page; passes the bytes on to a sink in larger pieces."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._size = 0
        self._waiting: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self._held: list[bytes] | None = None

    def hold(self) -> None:
        """Keep back what is written from now on, until ``held`` takes it."""
        self._held = []

    def held(self) -> bytes:
        """Take what was written since ``hold``, as if it had never been written."""
        taken = b"".join(self._held or ())
        self._held = None
        self._size -= len(taken)
        return taken

    def write(self, data: bytes | memoryview) -> int:
        if self._held is not None:
            self._held.append(bytes(data))
            self._size += len(data)
            return len(data)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._size += len(data)
        if self._waiting_bytes >= _PIECE_BYTES:
            self.flush()
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Pass everything on to the sink; making it durable is up to the sink."""
        if self._waiting:
            self._sink.append(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        self.closed = True


class Collected:
    """A sink in memory."""

    def __init__(self) -> None:
        self.stream = pa.BufferOutputStream()

    def append(self, buffers: list[bytes | memoryview]) -> None:
        for part in buffers:
            self.stream.write(part)
