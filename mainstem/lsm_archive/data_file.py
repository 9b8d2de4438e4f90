"""Reads one data file of the archive by row groups, and checks what the file says of itself.

Times come out as fixed-width numpy bytes, so they are compared, searched and sorted without a Python object
per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mainstem.errors import CorruptTable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage.protocol import Storage

if TYPE_CHECKING:
    import pyarrow as pa

ARCHIVED_INSTANTS_MAX = 50_000_000
TIME_BYTES = 20
# A file may hold as many instants as it has bytes, or this many (each instant has a blob of metadata).
_ROWS_ALWAYS = 100_000
_TIMES = ("instantTime", "completionTime")
_BATCH_ROWS = 4096
_BATCH_BYTES = 64 * 1024 * 1024


class DataFile:
    """An open data file. Its bytes stay readable after a newer version of the archive removes its name.

    Raises ``FileNotFoundError`` if the file is gone, ``CorruptTable`` if its rows are no
    ``HoodieLSMTimelineInstant``.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        import pyarrow.parquet as pq

        self.path = path
        with self._decoding():
            data = storage.open_input(path)
            # A ParquetFile can be closed; the thread pool of ``read_table`` pays only for larger columns.
            self._source = pq.ParquetFile(data)
            self.rows = self._source.metadata.num_rows
            self.groups = self._source.metadata.num_row_groups
            if self.rows > max(_ROWS_ALWAYS, data.size()):
                raise CorruptTable(
                    f"archive file of {data.size()} bytes with {self.rows} instants", path=path
                )
            if self.rows > ARCHIVED_INSTANTS_MAX:
                raise CorruptTable(
                    f"archive file of {self.rows} instants, at most {ARCHIVED_INSTANTS_MAX} are accepted",
                    path=path,
                )
            self._names = self._source.schema_arrow.names

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def ranges(self, column: str) -> list[tuple[str, str] | None]:
        """Least and greatest value of a column per row group; None where statistics are missing."""
        return self._requested_ranges if column == _TIMES[0] else self._completion_ranges

    @cached_property
    def _requested_ranges(self) -> list[tuple[str, str] | None]:
        return self._ranges(_TIMES[0])

    @cached_property
    def _completion_ranges(self) -> list[tuple[str, str] | None]:
        return self._ranges(_TIMES[1])

    def _ranges(self, column: str) -> list[tuple[str, str] | None]:
        self._check([column])
        at = self._names.index(column)
        with self._decoding():
            found = []
            for group in range(self.groups):
                told = self._source.metadata.row_group(group).column(at).statistics
                # A legacy row without a completion time counts with its requested time.
                whole = told is not None and told.has_min_max and told.null_count == 0
                ends = (told.min, told.max) if whole else ()
                found.append(ends if ends and all(map(_is_time, ends)) else None)
            return found

    def times(self, group: int | None = None) -> tuple[Any, Any]:
        """Requested and completion times of a row group (None: of the file), as numpy bytes in file order."""
        import pyarrow.compute as pc

        with self._decoding():
            requested, completion = self.table(_TIMES, group).columns
            if completion.null_count:
                completion = pc.coalesce(completion, requested)
            return _as_bytes(requested, self.path), _as_bytes(completion, self.path)

    def texts(self, group: int) -> pa.Table:
        """Requested time, completion time and action of a row group, as validated text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = (*_TIMES, "action")
        with self._decoding():
            found = self.table(names, group).cast(pa.schema([(name, pa.string()) for name in names]))
            found.validate(full=True)  # parquet does not check that a string column is UTF-8
            requested, completion, action = found.columns
            if completion.null_count:
                completion = pc.coalesce(completion, requested)
            for times in (requested, completion):
                _as_bytes(times, self.path)
        return pa.table([requested, completion, action.fill_null("")], names=list(names))

    def blobs(self, group: int) -> pa.ChunkedArray:
        """The metadata of a row group's instants; raises ``CorruptTable`` for an oversized blob."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with self._decoding():
            found = self.table(("metadata",), group).column(0).cast(pa.binary())
        longest = pc.max(pc.binary_length(found)).as_py() or 0
        if longest > TIMELINE_FILE_BYTES_MAX:
            raise CorruptTable(
                f"archived metadata of {longest} bytes, at most {TIMELINE_FILE_BYTES_MAX} allowed",
                path=self.path,
            )
        return found

    def table(self, columns: tuple[str, ...], group: int | None = None) -> pa.Table:
        """The given columns of a row group, or of the whole file, in this order."""
        self._check(columns)
        with self._decoding():
            if group is None:
                return self._source.read(columns=list(columns)).select(columns)
            alone = len(columns) == 1 or self._source.metadata.row_group(group).num_rows < 100_000
            found = self._source.read_row_group(group, columns=list(columns), use_threads=not alone)
            return found.select(columns)

    def batches(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The whole file as ``schema``, in batches of bounded rows and bytes."""
        import pyarrow as pa

        self._check(schema.names)
        for group in range(self.groups):
            about = self._source.metadata.row_group(group)
            each = max(1, about.total_byte_size // max(1, about.num_rows))
            rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // each))
            with self._decoding():
                for batch in self._source.iter_batches(rows, row_groups=[group], columns=schema.names):
                    yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)

    def _check(self, columns: Any) -> None:
        missing = [c for c in columns if c not in self._names]
        if missing:
            raise CorruptTable(
                f"archive file without column {missing[0]}; expected a HoodieLSMTimelineInstant",
                path=self.path,
            )

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Turn pyarrow's errors about bytes that do not decode into ``CorruptTable``."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise CorruptTable(
                f"archive file does not read as parquet ({error})", path=self.path
            ) from error


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= TIME_BYTES


def time_key(text: str) -> Any:
    """A time in the form of ``DataFile.times``; None for a text that cannot be a time."""
    import numpy as np

    if not text.isascii() or len(text) > TIME_BYTES:
        return None
    return np.array(text.encode(), f"S{TIME_BYTES}")


def places_of(keys: Any, key: Any) -> list[int]:
    """Places of a time among the requested times of a row group (normally sorted, but not always)."""
    first, last = int(keys.searchsorted(key)), int(keys.searchsorted(key, "right"))
    if first < last and keys[first] == key and last - first == 1:
        return [first]
    return (keys == key).nonzero()[0].tolist()


def no_times() -> Any:
    """An empty array of times."""
    import numpy as np

    return np.empty(0, f"S{TIME_BYTES}")


def _as_bytes(column: pa.ChunkedArray, path: str) -> Any:
    import numpy as np
    import pyarrow as pa

    if column.null_count:
        raise CorruptTable("archived instant without a time", path=path)
    chunks = [_fixed_width(chunk.cast(pa.binary()), path) for chunk in column.chunks if len(chunk)]
    if not chunks:
        return no_times()
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _fixed_width(texts: pa.Array, path: str) -> Any:
    """Texts as fixed-width bytes. Checks that each has 14 to 20 digits: later steps rely on it."""
    import numpy as np

    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    least, most = int(lengths.min()), int(lengths.max())
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    # uint8: a character below "0" wraps around to a number above 9.
    if least < 14 or most > TIME_BYTES or int((data - 48).max()) > 9:
        raise CorruptTable("archived instant whose time is not 14 to 20 digits", path=path)
    if least == most:
        return data.view(f"S{most}")
    return np.array(texts.to_pylist(), dtype=f"S{TIME_BYTES}")  # legacy times of other lengths
