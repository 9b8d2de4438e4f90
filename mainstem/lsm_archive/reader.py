"""Reading the archived timeline: completion times of old instants, and their metadata.

The two time columns of all files are loaded once, on first use (cheaper than ten look-ups by
instant); metadata is read file by file. While Java compacts or cleans the archive,
files named by an older manifest stay for at least three rounds; should one be gone, the manifest is
read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mainstem.errors import CorruptTable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.manifest import Manifest, load_manifest
from mainstem.lsm_archive.names import ArchiveFile
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

SWITCHES_MAX = 5
ARCHIVED_INSTANTS_MAX = 50_000_000
# A file may hold as many instants as it has bytes, or this many (each has a blob of its metadata).
_ROWS_ALWAYS = 100_000
_TIME_BYTES = 20
_BLOB_ROWS = 256

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A row of the archive without its blobs. Times as on the timeline."""

    requested: str
    completion: str
    action: str


class Archive:
    """The archive of one table. Nothing is read before the first question is asked."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._manifest: Manifest | None = None
        self._times: tuple[Any, Any] | None = None

    @classmethod
    def load(cls, storage: Storage, folder: str = paths.HISTORY) -> Archive:
        """A lazy reader of ``folder`` (``hoodie.timeline.history.path``)."""
        return cls(storage, folder)

    def completion_time(self, requested: str) -> str | None:
        """Completion time of an archived instant, None if the archive does not hold it."""
        import numpy as np

        keys, values = self._load_times()
        key = np.array(requested.encode("ascii", "replace"), dtype=keys.dtype)
        at = int(np.searchsorted(keys, key))
        if len(requested) > _TIME_BYTES or at >= len(keys) or keys[at] != key:
            return None
        return values[at].decode("ascii")

    def is_archived(self, requested: str) -> bool:
        """Whether the archive holds this instant (only completed ones are archived)."""
        return self.completion_time(requested) is not None

    def completed_in(self, after: str, until: str | None) -> list[str]:
        """Requested times of instants with ``after < completion <= until``, oldest first."""
        keys, values = self._load_times()
        chosen = values > after.encode()
        if until is not None:
            chosen &= values <= until.encode()
        return [key.decode("ascii") for key in keys[chosen]]

    def instants(self, first: str = "", last: str | None = None) -> list[ArchivedInstant]:
        """Instants requested in ``[first, last]``, oldest first; files outside are not opened."""
        columns = ["instantTime", "completionTime", "action"]

        def collect(files: Sequence[ArchiveFile]) -> list[ArchivedInstant]:
            found: dict[tuple[str, str], ArchivedInstant] = {}
            for file in files:
                for row in self._rows(file, columns):
                    requested, completion, action = row
                    if requested >= first and (last is None or requested <= last):
                        found[requested, action] = ArchivedInstant(
                            requested, completion or requested, action or ""
                        )
            return sorted(found.values(), key=lambda i: (i.requested, i.action))

        return self._retrying(lambda: collect(self._files(first, last)))

    def metadata(self, requested: str, action: str | None = None) -> bytes | None:
        """Bytes of the completed instant's file, None if not archived (or archived without)."""

        def find() -> bytes | None:
            for file in self._files(requested, requested):
                for blob in self._blobs(file, requested, action):
                    return blob
            return None

        return self._retrying(find)

    def _files(self, first: str, last: str | None) -> list[ArchiveFile]:
        files = self._current().files
        return [f for f in files if f.last >= first and (last is None or f.first <= last)]

    def _current(self) -> Manifest:
        if self._manifest is None:
            self._manifest = load_manifest(self._storage, self._folder)
        return self._manifest

    def _retrying(self, attempt: Callable[[], Result]) -> Result:
        for _ in range(SWITCHES_MAX):
            try:
                return attempt()
            except FileNotFoundError:
                self._manifest = None  # the archive was compacted and cleaned while we read
        raise CorruptTable(
            f"the archive's manifest names files that are gone, after {SWITCHES_MAX} readings;"
            " restore the folder from a copy",
            path=self._folder,
        )

    def _load_times(self) -> tuple[Any, Any]:
        if self._times is None:
            self._times = self._retrying(lambda: self._read_times(self._files("", None)))
        return self._times

    def _read_times(self, files: Sequence[ArchiveFile]) -> tuple[Any, Any]:
        import numpy as np

        keys, values = [np.empty(0, "S17")], [np.empty(0, "S17")]
        total = 0
        for file in files:
            table = self._table(file, ["instantTime", "completionTime"])
            total += table.num_rows
            if total > ARCHIVED_INSTANTS_MAX:
                raise CorruptTable(f"more than {ARCHIVED_INSTANTS_MAX} archived instants", path=self._folder)
            requested = _as_bytes(table.column(0), self._path(file))
            completion = _as_bytes(_coalesce(table.column(1), table.column(0)), self._path(file))
            keys.append(requested)
            values.append(completion)
        key, value = np.concatenate(keys), np.concatenate(values)
        order = np.argsort(key, kind="stable")
        return key[order], value[order]

    def _rows(self, file: ArchiveFile, columns: list[str]) -> Iterator[tuple]:
        table = self._table(file, columns)
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)

    def _blobs(self, file: ArchiveFile, requested: str, action: str | None) -> Iterator[bytes]:
        import pyarrow.compute as pc

        rows = self._table(file, ["instantTime", "action"])
        hits = pc.equal(rows.column(0), requested)
        if action is not None:
            hits = pc.and_(hits, pc.equal(rows.column(1), action))
        for at in pc.indices_nonzero(hits.combine_chunks()).to_pylist():
            blob = self._blob_at(file, at)
            if blob is not None:
                yield blob

    def _blob_at(self, file: ArchiveFile, row: int) -> bytes | None:
        """The blob of one row; a bounded number of rows is held at a time."""
        import pyarrow as pa

        with self._open(file) as source:
            for batch in source.iter_batches(batch_size=_BLOB_ROWS, columns=["metadata"]):
                if row < batch.num_rows:
                    blob = batch.column(0).cast(pa.binary())[row].as_py()
                    self._bound(blob, file)
                    return blob
                row -= batch.num_rows
        return None

    def _bound(self, blob: bytes | None, file: ArchiveFile) -> None:
        if blob is not None and len(blob) > TIMELINE_FILE_BYTES_MAX:
            raise CorruptTable(
                f"archived metadata of {len(blob)} bytes, at most {TIMELINE_FILE_BYTES_MAX} allowed",
                path=self._path(file),
            )

    def _table(self, file: ArchiveFile, columns: list[str]) -> Any:
        import pyarrow as pa

        with self._open(file) as source:
            missing = [c for c in columns if c not in source.schema_arrow.names]
            if missing:
                raise CorruptTable(
                    f"archive file without column {missing[0]}; expected a HoodieLSMTimelineInstant",
                    path=self._path(file),
                )
            if source.metadata.num_rows > ARCHIVED_INSTANTS_MAX:
                raise CorruptTable(
                    f"archive file of {source.metadata.num_rows} instants, at most"
                    f" {ARCHIVED_INSTANTS_MAX} are believed",
                    path=self._path(file),
                )
            texts = pa.schema([(name, pa.string()) for name in columns])
            found = source.read(columns=columns).select(columns).cast(texts)
            found.validate(full=True)  # parquet does not look at what it calls text
            return found

    @contextmanager
    def _open(self, file: ArchiveFile) -> Iterator[Any]:
        """The file; what pyarrow says about bytes that do not decode becomes ``CorruptTable``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            data = self._storage.open_input(self._path(file))
            with pq.ParquetFile(data) as source:
                rows = source.metadata.num_rows
                if rows > max(_ROWS_ALWAYS, data.size()):
                    raise CorruptTable(
                        f"archive file of {data.size()} bytes with {rows} instants", path=self._path(file)
                    )
                yield source
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise CorruptTable(
                f"archive file does not read as parquet ({error})", path=self._path(file)
            ) from error

    def _path(self, file: ArchiveFile) -> str:
        return f"{self._folder}/{file.name}"


def _coalesce(first: Any, second: Any) -> Any:
    import pyarrow.compute as pc

    return pc.coalesce(first, second)


def _as_bytes(column: Any, path: str) -> Any:
    """Fixed-width numpy bytes of an Arrow string column of instant times."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise CorruptTable("archived instant without a time", path=path)
    text = column.cast(pa.string())
    good = pc.all(pc.match_substring_regex(text, r"^[0-9]{14,20}$"), min_count=0).as_py()
    if not good:
        raise CorruptTable("archived instant whose time is not 14 to 20 digits", path=path)
    chunks = [_fixed_width(chunk) for chunk in text.chunks]
    return np.concatenate([np.empty(0, f"S{_TIME_BYTES}"), *chunks])


def _fixed_width(texts: Any) -> Any:
    import numpy as np
    import pyarrow.compute as pc

    lengths = pc.binary_length(texts)
    widths = pc.unique(lengths).to_pylist()
    if len(widths) != 1:  # legacy times of 14 digits among others
        return np.array(texts.to_pylist(), dtype=f"S{_TIME_BYTES}").reshape(-1)
    (width,) = widths
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + 1]
    return np.frombuffer(texts.buffers()[2], f"S{width}", count=len(texts), offset=int(offsets[0]))
