"""Reads the archived timeline: completion times of old instants, and their metadata.

Nothing is read before the first question, and of a large archive only a little after that: file names give
the range of their requested times, and statistics that of each row group. A reader that asks for very many
instants one by one gets the two time columns of all files at once.

Readers keep working while others merge and clean the archive: an open file stays readable, and a version's
files stay for some versions more. If one is gone all the same, the manifest is read again.

List the active timeline first, then ask the archive. An instant archived in between is then in both; in the
other order it may be in neither.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.errors import CorruptTable
from mainstem.forks import Mutex
from mainstem.lsm_archive.data_file import (
    ARCHIVED_INSTANTS_MAX,
    DataFile,
    no_times,
    places_of,
    time_key,
)
from mainstem.lsm_archive.manifest import Manifest, current_version, load_manifest
from mainstem.lsm_archive.names import ArchiveFile
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, REPLACECOMMIT

if TYPE_CHECKING:
    import pyarrow as pa

#: how often one version is read before a missing file counts as lost, and how many versions are tried
SAME_VERSION_MAX = 3
SWITCHES_MAX = 1000
# Bounds of what is remembered: answers, open files, and rows of row groups.
_ANSWERS_MAX = 65_536
_OPEN_FILES_MAX = 256
_KEPT_ROWS = 262_144
# After this many row groups read for single look-ups, reading all times is cheaper.
_SINGLE_READS_MAX = 400

Result = TypeVar("Result")
_REQUESTED, _COMPLETION, _ = _ROW = ("instantTime", "completionTime", "action")


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A row of the archive without its blobs; times as on the timeline."""

    requested: str
    completion: str
    action: str


class Archive:
    """The archive of one table. Reads nothing before the first question."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._manifest: Manifest | None = None
        self._open: OrderedDict[str, DataFile] = OrderedDict()
        #: (file, row group) -> its times, for the row groups used last
        self._kept: OrderedDict[tuple[str, int], tuple[Any, Any]] = OrderedDict()
        self._blobs: tuple[tuple[str, int], Any] | None = None
        self._single_reads = 0
        self._times: tuple[Any, Any] | None = None
        #: requested time -> completion time, found in this version before
        self._answers: dict[str, str] = {}
        # The view of an object store is shared by the queries of several threads.
        self._mutex = Mutex()

    @classmethod
    def load(cls, storage: Storage, folder: str = paths.HISTORY) -> Archive:
        """A lazy reader of ``folder`` (``TableConfig.history``)."""
        return cls(storage, folder)

    def refresh(self) -> None:
        """Switch to the newest version; what is known of its files stays known."""
        with self._mutex.held:
            if self._manifest is not None and current_version(self._storage, self._folder) != (
                self._manifest.version or None
            ):
                self._manifest = self._times = None
                self._answers.clear()

    @property
    def manifest(self) -> Manifest:
        """The version being read."""
        found = self._manifest
        if found is None:
            with self._mutex.held:
                found = self._manifest = self._retrying(lambda: load_manifest(self._storage, self._folder))
                listed = {file.name for file in found.files}
                for name in [n for n in self._open if n not in listed]:
                    self._open.pop(name).close()
        return found

    # -- questions ---------------------------------------------------------------------------------

    def completion_time(self, requested: str) -> str | None:
        """Completion time of an archived instant, None if the archive does not hold it."""
        found = self._answers.get(requested)
        if found is not None:
            return found
        with self._mutex.held:
            found = self._completion_time(requested)
            if found is not None:
                if len(self._answers) >= _ANSWERS_MAX:
                    self._answers.clear()
                self._answers[requested] = found
            return found

    def _completion_time(self, requested: str) -> str | None:
        key = time_key(requested)
        if key is None or not self.manifest.files:
            return None
        if self._times is None and self._single_reads <= _SINGLE_READS_MAX:
            return self._retrying(lambda: self._single(requested, key))
        keys, values = self.times()
        at = int(keys.searchsorted(key))
        return None if at >= len(keys) or keys[at] != key else values[at].decode()

    def is_archived(self, requested: str) -> bool:
        """Whether the archive holds this instant (only completed ones are archived)."""
        return self.completion_time(requested) is not None

    def completed(self, after: str, until: str | None = None) -> pa.Table:
        """Instants with ``after < completion <= until``: columns ``instantTime``, ``completionTime`` and
        ``action``, oldest request first."""
        # An instant completes after it is requested, so the file names bound the range from above.
        return self._retrying(lambda: self._select(("", until), _COMPLETION, after, until, open_below=True))

    def of_action(self, action: str, after: str = "") -> list[str]:
        """Requested times of an action's instants that completed after ``after``, oldest first."""
        found = self.completed(after)
        pairs = zip(found["instantTime"].to_pylist(), found["action"].to_pylist(), strict=True)
        return [requested for requested, its in pairs if its == action]

    def instants(self, first: str = "", last: str | None = None) -> list[ArchivedInstant]:
        """Instants requested in ``[first, last]``, oldest first."""
        found = self._retrying(lambda: self._select((first, last), _REQUESTED, first, last))
        columns = [column.to_pylist() for column in found.columns]
        return [ArchivedInstant(*row) for row in zip(*columns, strict=True)]

    def newest_first(self, after: str = "", last: str | None = None) -> Iterator[ArchivedInstant]:
        """Instants with ``after < requested <= last``, newest request first.

        Reads one row group at a time as the iterator advances, so the first ones are cheap in any archive.
        """
        below: str | None = None
        while True:
            low, rows = self._retrying(partial(self._newest_rows, after, last, below))
            if low is None:
                return
            yield from rows
            below = low

    def metadata(self, requested: str, action: str | None = None) -> bytes | None:
        """Bytes of the completed instant's file; None if it is not archived, or archived without them."""
        return self._retrying(lambda: next(self._found(requested, action), None))

    def with_bytes(self, needle: bytes) -> Iterator[tuple[str, bytes]]:
        """Requested time and metadata of every completed write whose metadata holds these bytes.

        Reads the whole archive, one row group at a time.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array([COMMIT, DELTACOMMIT, REPLACECOMMIT])
        for opened in self._retrying(lambda: [self._file(f) for f in self.manifest.files]):
            for group in range(opened.groups):
                rows, blobs = opened.texts(group), opened.blobs(group)
                hits = pc.match_substring(blobs, needle.decode("ascii")).fill_null(False)
                hits = pc.and_(hits, pc.is_in(rows["action"], wanted))
                for at in pc.indices_nonzero(hits.combine_chunks()).to_pylist():
                    yield rows[_REQUESTED][at].as_py(), blobs[at].as_py()

    def times(self) -> tuple[Any, Any]:
        """Requested and completion times of all instants, without repeats, sorted by requested time.

        Both are numpy arrays of fixed-width bytes.
        """
        if self._times is None:
            self._times = self._retrying(self._read_times)
        return self._times

    # -- how they are answered -----------------------------------------------------------------------

    def _single(self, requested: str, key: Any) -> str | None:
        for opened, group in self._groups_with(requested):
            keys, values = self._group_times(opened, group)
            for at in places_of(keys, key):
                return values[at].decode()
        return None

    def _groups_with(self, requested: str) -> Iterator[tuple[DataFile, int]]:
        for file in self._files(requested, requested):
            opened = self._file(file)
            for group in _overlapping(opened, _REQUESTED, requested, requested):
                yield opened, group

    def _found(self, requested: str, action: str | None) -> Iterator[bytes]:
        key = time_key(requested)
        for opened, group in self._groups_with(requested) if key is not None else ():
            keys, _ = self._group_times(opened, group)
            for at in places_of(keys, key):
                if action is None or opened.texts(group).column(2)[at].as_py() == action:
                    blob = self._group_blobs(opened, group)[at].as_py()
                    if blob is not None:
                        yield blob

    def _select(
        self,
        named: tuple[str, str | None],
        column: str,
        low: str,
        high: str | None,
        *,
        open_below: bool = False,
    ) -> pa.Table:
        """Rows whose ``column`` lies in the range, without repeats.

        Only files whose names overlap the requested times in ``named`` are read.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        found = []
        # Open all files first: however long the rest takes, no switch of versions can then remove them.
        for opened in [self._file(file) for file in self._files(*named)]:
            for group in _overlapping(opened, column, low, high):
                rows = opened.texts(group)
                inside = (pc.greater if open_below else pc.greater_equal)(rows[column], low)
                if high is not None:
                    inside = pc.and_(inside, pc.less_equal(rows[column], high))
                found.append(rows if pc.all(inside).as_py() else rows.filter(inside))
        if not found:
            return pa.table({name: pa.array([], pa.string()) for name in _ROW})
        return _each_once(pa.concat_tables(found).combine_chunks())

    def _newest_rows(
        self, after: str, last: str | None, below: str | None
    ) -> tuple[str | None, list[ArchivedInstant]]:
        """The next rows of ``newest_first`` and the time they reach down to; None at the end."""
        files = [
            f for f in self._files(after, last) if f.last > after and (below is None or f.first < below)
        ]
        if not files:
            return None, []
        newest = max(files, key=lambda file: file.last)
        low = newest.first
        for told in self._file(newest).ranges(_REQUESTED):  # without statistics: the whole file
            if told is not None and (last is None or told[0] <= last) and (below is None or told[0] < below):
                low = max(low, told[0])
        found = self._select((low, last), _REQUESTED, low, last)
        columns = (column.to_pylist() for column in found.columns)
        rows = [ArchivedInstant(*row) for row in zip(*columns, strict=True)]
        kept = [r for r in rows if r.requested > after and (below is None or r.requested < below)]
        return low, kept[::-1]

    def _read_times(self) -> tuple[Any, Any]:
        import numpy as np

        opened = [self._file(file) for file in sorted(self.manifest.files, key=lambda f: f.first)]
        if (total := sum(file.rows for file in opened)) > ARCHIVED_INSTANTS_MAX:
            raise CorruptTable(
                f"{total} archived instants, at most {ARCHIVED_INSTANTS_MAX} are accepted", path=self._folder
            )
        parts = [file.times() for file in opened]
        if not parts:
            return no_times(), no_times()
        key = np.concatenate([keys for keys, _ in parts])
        value = np.concatenate([values for _, values in parts])
        if not bool((key[1:] > key[:-1]).all()):
            _, first = np.unique(key, return_index=True)
            key, value = key[first], value[first]
        return key, value

    def _group_times(self, opened: DataFile, group: int) -> tuple[Any, Any]:
        where = opened.path, group
        if where in self._kept:
            self._kept.move_to_end(where)
            return self._kept[where]
        self._single_reads += 1
        self._kept[where] = opened.times(group)
        while len(self._kept) > 1 and sum(len(k) for k, _ in self._kept.values()) > _KEPT_ROWS:
            self._kept.popitem(last=False)
        return self._kept[where]

    def _group_blobs(self, opened: DataFile, group: int) -> Any:
        """The metadata of one row group. Keeps the last one, since callers ask for neighbours in turn."""
        where = opened.path, group
        if self._blobs is None or self._blobs[0] != where:
            self._blobs = None  # freed first: two at once would double the memory
            self._blobs = where, opened.blobs(group)
        return self._blobs[1]

    def _files(self, first: str, last: str | None) -> list[ArchiveFile]:
        files = self.manifest.files
        return [f for f in files if f.last >= first and (last is None or f.first <= last)]

    def _file(self, file: ArchiveFile) -> DataFile:
        opened = self._open.get(file.name)
        if opened is None:
            opened = self._open[file.name] = DataFile(self._storage, f"{self._folder}/{file.name}")
            if len(self._open) > _OPEN_FILES_MAX:
                self._open.popitem(last=False)
        return opened

    def _retrying(self, attempt: Callable[[], Result]) -> Result:
        """``attempt``, repeated with a newer version while files of the current one are gone."""
        same, before = 0, -1
        for _ in range(SWITCHES_MAX):
            try:
                with self._mutex.held:
                    return attempt()
            except FileNotFoundError:
                version = current_version(self._storage, self._folder) or 0
                same, before = (same + 1 if version == before else 1), version
                self._manifest = None
                if same > SAME_VERSION_MAX:
                    break
        raise CorruptTable(
            "the archive's manifest, or files that it names, are gone; restore the folder from a copy",
            path=self._folder,
        )


def _each_once(rows: pa.Table) -> pa.Table:
    """Rows sorted by requested time and action, without repeats: an archiver that died may leave some."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = rows[_REQUESTED]
    if len(times) < 2 or pc.all(pc.less(times[:-1], times[1:])).as_py():
        return rows
    rows = rows.sort_by([(_REQUESTED, "ascending"), ("action", "ascending")])
    actions, times = rows["action"], rows[_REQUESTED]
    same = pc.and_(pc.equal(times[:-1], times[1:]), pc.equal(actions[:-1], actions[1:]))
    first = pc.invert(same).combine_chunks()
    return pa.concat_tables([rows.slice(0, 1), rows.slice(1).filter(first)])


def _overlapping(opened: DataFile, column: str, low: str, high: str | None) -> Iterator[int]:
    """Row groups that may hold a value in ``[low, high]``."""
    for group, told in enumerate(opened.ranges(column)):
        if told is None or (told[1] >= low and (high is None or told[0] <= high)):
            yield group
