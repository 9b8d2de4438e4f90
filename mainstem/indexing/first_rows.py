"""The first rows of an index: what was completed at its listing point, and instants that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from mainstem.indexing.contents import Contents, DataFile
from mainstem.indexing.spec import IndexSpec
from mainstem.metadata.build.ranges import Range
from mainstem.metadata.build.rows import files_rows
from mainstem.metadata.build.stats import stats_rows
from mainstem.metadata.partitions import COLUMN_STATS, FILES
from mainstem.metadata.records import SCHEMAS
from mainstem.readers.state import TableState
from mainstem.services.progress import Progress
from mainstem.timeline.instant import Instant

Files = Mapping[str, Mapping[str, DataFile]]


@dataclass(frozen=True)
class FirstRows:
    """``state``: the table at the listing point."""

    state: TableState
    spec: IndexSpec
    progress: Progress

    def of_listing(self) -> pa.Table:
        """Rows of all files that completed instants wrote. One that a clean removes meanwhile is left
        out: the
        clean completes later than the listing point, and tells the index itself."""
        return self._rows(Contents(self.state))

    def of_instant(self, instant: Instant) -> pa.Table:
        """Rows of the files that an instant wrote which completed after the listing point."""
        contents = Contents(TableState.load(self.state.storage, self.state.config))
        written = contents.state.written(instant.requested) or frozenset()
        return self._rows(contents, lambda file: file.path in written)

    def _rows(self, contents: Contents, wanted: Callable[[DataFile], bool] = lambda file: True) -> pa.Table:
        files = {
            partition: [file for file in here.values() if file.size and wanted(file)]
            for partition, here in contents.files.items()
        }
        if self.spec.partition == FILES:
            return files_rows({p: {f.name: f.size for f in here} for p, here in files.items() if here})
        assert self.spec.partition == COLUMN_STATS
        return self._stats(contents, [f for here in files.values() for f in here if f.holds_rows])

    def _stats(self, contents: Contents, files: list[DataFile]) -> pa.Table:
        entries = []
        for done, file in enumerate(files, 1):
            try:
                entries.append((file.partition, file.name, self._ranges(contents, file)))
            except FileNotFoundError:
                if self.state.storage.stat(file.path) is not None:
                    raise
            self.progress(f"index {self.spec.partition}, files", done, len(files))
        if not entries:
            return SCHEMAS[self.spec.content].empty_table()
        return stats_rows(entries, version=self.spec.version)

    def _ranges(self, contents: Contents, file: DataFile) -> list[Range]:
        """A file without rows has a row per column with nothing in it, as Java writes for deletes alone."""
        found = contents.ranges(file, self.spec.columns)
        return found or [Range(name, pa.null(), None, None, 0, 0) for name in self.spec.columns]
