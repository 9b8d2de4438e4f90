"""Reads a base file: all rows in batches of bounded size, or selected rows of a row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.errors import CorruptTable, Unavailable
from mainstem.layout.committed_files import cut_off
from mainstem.limits import MIB
from mainstem.readers.rows.equal_chunks import chunk_start, doubles
from mainstem.readers.rows.slice_query import SliceQuery
from mainstem.storage.final_files import open_final
from mainstem.storage.protocol import Storage

# A batch has at most BATCH_ROWS rows, and about BATCH_BYTES bytes if rows are wide.
BATCH_ROWS = 32_768
BATCH_BYTES = 16 * MIB
_BATCH_ROWS_MIN = 256
# Column chunks are read in parts of this size, but whole in small files: when reading in parts, pyarrow 16
# allocates whatever size a damaged page header states.
_BUFFER_BYTES = MIB
_SMALL_FILE_BYTES = 8 * MIB
# Below this, handing columns to threads takes longer than decoding them (native log files of small commits).
_THREADS_FROM_BYTES = MIB
# A text column with fewer bytes per value than this is taken to be dictionary-encoded.
_CODED_BYTES_PER_ROW = 4
# Row groups that claim more than these limits are refused (dictionary and run-length bombs).
PARQUET_ALWAYS_BYTES = 64 * MIB
PARQUET_RATIO_MAX = 2000


@contextmanager
def open_base(
    storage: Storage, path: str, *, least: int = 0, final: bool = False, footer: Any = None
) -> Iterator[BaseFile]:
    """Opens the base file at ``path``.

    ``least``: the size in bytes that its commit says; ``final``: it never changes again; ``footer``: its
    Parquet metadata, if it was opened and checked before. Raises
    ``CorruptTable`` for a shorter file, and for bytes that do not decode, here and while rows are read;
    ``FileNotFoundError`` if the file is gone; ``Unavailable`` if reading fails otherwise.
    """
    file = opened_base(storage, path, least=least, final=final, footer=footer)
    with file.source:
        yield file


def open_base_of(storage: Storage, split: SliceQuery) -> AbstractContextManager[BaseFile]:
    """Opens the base file that a slice has; see ``open_base``."""
    assert split.base_file is not None
    least, final = split.least_bytes(split.base_file), split.spec.damaged == "error"
    return open_base(storage, split.base_file, least=least, final=final)


def opened_base(
    storage: Storage, path: str, *, least: int = 0, final: bool = False, footer: Any = None
) -> BaseFile:
    """As ``open_base``; the file is closed when nothing refers to it any more."""
    with _reading(path):
        file = open_final(storage, path) if final else storage.open_input(path)
        if least and file.size() < least:
            raise cut_off(path, file.size(), least, storage.base)
        source = pq.ParquetFile(file, metadata=footer, buffer_size=_buffer_bytes(file))
        if footer is None:
            _check_names(source.schema_arrow.names, path)
            _check_size(source.metadata, file.size(), path)
    return BaseFile(file, source, path)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if error.errno is None:  # pyarrow's way of saying that bytes do not decode
            raise _damaged(path, error) from error
        raise Unavailable(f"reading {path}: {error}; try again") from error


def _buffer_bytes(file: pa.NativeFile) -> int:
    return _BUFFER_BYTES if file.size() > _SMALL_FILE_BYTES else 0


def _check_names(names: list[str], path: str) -> None:
    if len(set(names)) != len(names):
        raise CorruptTable("base file with two columns of one name; restore it from a copy", path=path)


class BaseFile:
    """An open base file (see ``open_base``)."""

    def __init__(self, file: pa.NativeFile, source: pq.ParquetFile, path: str) -> None:
        self.file = file
        self.source = source
        self.path = path
        self.names = source.schema_arrow.names

    @cached_property
    def _places(self) -> dict[str, int]:
        described = self.source.schema
        paths = [described.column(n).path for n in range(len(described))]
        return {path: n for n, path in enumerate(paths) if "." not in path}

    @property
    def group_count(self) -> int:
        """Number of row groups."""
        return self.source.metadata.num_row_groups

    def held(self, names: Sequence[str]) -> list[str]:
        """The columns of ``names`` that the file has."""
        there = set(self.names)
        return [name for name in names if name in there]

    def batches(
        self,
        names: Sequence[str],
        groups: Sequence[int] | None = None,
        *,
        coded: Sequence[str] = (),
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[pa.Table]:
        """The rows of these row groups (None: all), in order, in batches of at most about ``batch_bytes``.

        ``coded``: columns that may stay dictionary-encoded if the file stores them so. That is cheaper when
        rows are dropped before the strings are materialised.
        """
        for _, table in self.numbered(names, groups, coded=coded, batch_bytes=batch_bytes):
            yield table

    def numbered(
        self,
        names: Sequence[str],
        groups: Sequence[int] | None = None,
        *,
        coded: Sequence[str] = (),
        batch_bytes: int = BATCH_BYTES,
    ) -> Iterator[tuple[int, pa.Table]]:
        """As ``batches``, each with the number of its row group."""
        groups = range(self.group_count) if groups is None else groups
        source = self._coded(groups, coded)
        for number in groups:
            # One row group at a time: pyarrow keeps what it has read of all requested row groups.
            for table in self._group(source, number, names, batch_bytes):
                yield number, table

    def _group(
        self, source: pq.ParquetFile, number: int, names: Sequence[str], batch_bytes: int = BATCH_BYTES
    ) -> Iterator[pa.Table]:
        names = self.held(names) or self.names[:1]  # a batch without columns would have no rows
        schema, size = source.schema_arrow, self._batch_rows(number, min(batch_bytes, BATCH_BYTES))
        with _reading(self.path):
            self._prefetch(number, names)
            twice = doubles(self.file, source, number, names, compressed=True)
            once = [name for name in names if name not in twice]
            threads = self.source.metadata.row_group(number).total_byte_size > _THREADS_FROM_BYTES
            batches = source.iter_batches(
                batch_size=size, row_groups=[number], columns=once, use_threads=threads
            )
        read, told = 0, self.source.metadata.row_group(number).num_rows
        while True:
            with _reading(self.path):
                batch = next(batches, None)
            if batch is None:
                if read != told:  # pyarrow gives as many rows as the shortest column has
                    raise _damaged(self.path, f"a row group of {told} rows holds {read}")
                return
            read += batch.num_rows
            table = pa.Table.from_batches([batch])
            for name, same in twice.items():
                table = table.append_column(schema.field(name), table.column(same))
            yield table.select(names)

    def _prefetch(self, group: int, names: Sequence[str]) -> None:
        """Fetch the chunks of these columns together, where each read would be a request (object stores)."""
        prefetch = getattr(self.file, "prefetch", None)
        if prefetch is None:
            return
        described, wanted = self.source.metadata.row_group(group), set(names)
        chunks = map(described.column, range(described.num_columns))
        chosen = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in wanted]
        prefetch((chunk_start(chunk), chunk.total_compressed_size) for chunk in chosen)

    def _batch_rows(self, group: int, batch_bytes: int) -> int:
        found = self.source.metadata.row_group(group)
        per_row = max(1, found.total_byte_size // max(1, found.num_rows))
        return min(BATCH_ROWS, max(_BATCH_ROWS_MIN, batch_bytes // per_row))

    def taken(self, group: int, names: Sequence[str], rows: np.ndarray) -> Iterator[pa.Table]:
        """Rows by number (ascending within the row group); one table per batch that contains any."""
        names = self.held(names) or self.names[:1]  # as ``_group`` has it
        schema = pa.schema([self.source.schema_arrow.field(name) for name in names])
        first = 0
        for table in self._group(self._coded([group], schema.names), group, names):
            low, high = np.searchsorted(rows, (first, first + table.num_rows))
            if high > low:
                yield table.take(pa.array(rows[low:high] - first)).cast(schema)
            first += table.num_rows
            if high == len(rows):
                return

    def _coded(self, groups: Sequence[int], names: Sequence[str]) -> pq.ParquetFile:
        """The file, with repetitive text columns among ``names`` read as dictionaries, so that strings of
        dropped rows are never materialised. All of ``groups`` get the same schema."""
        texts, schema = [], self.source.schema_arrow
        for field in (schema.field(name) for name in self.held(names)):
            if field.type not in (pa.string(), pa.binary()):
                continue
            chunks = [c for c in (self.column_of(group, field.name) for group in groups) if c is not None]
            size = sum(chunk.total_uncompressed_size for chunk in chunks)
            if size < _CODED_BYTES_PER_ROW * sum(chunk.num_values for chunk in chunks):
                texts.append(field.name)
        if not texts:
            return self.source
        with _reading(self.path):
            return pq.ParquetFile(
                self.file,
                metadata=self.source.metadata,
                read_dictionary=texts,
                buffer_size=_buffer_bytes(self.file),
            )

    def column_of(self, group: int, name: str) -> Any:
        """Parquet metadata of a flat column's chunk; None if the file has no such column."""
        number = self._places.get(name)
        described = self.source.metadata.row_group(group)
        if number is None or number >= described.num_columns:
            return None
        return described.column(number)


def _damaged(path: str, error: Exception | str) -> CorruptTable:
    return CorruptTable(f"base file does not read as parquet ({error}); restore it from a copy", path=path)


def _check_size(metadata: Any, size: int, path: str) -> None:
    """Refuses a file that claims an absurdly large row group, before anything is allocated."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    largest = max((max(g.num_rows, g.total_byte_size) for g in groups), default=0)
    smallest = min((min(g.num_rows, g.total_byte_size) for g in groups), default=0)
    limit = max(PARQUET_ALWAYS_BYTES, PARQUET_RATIO_MAX * size)
    if smallest < 0 or largest > limit:
        raise CorruptTable(
            f"base file of {size} bytes with a row group of {largest} bytes or rows, at most"
            f" {limit}"
            " are believed; restore it from a copy",
            path=path,
        )
