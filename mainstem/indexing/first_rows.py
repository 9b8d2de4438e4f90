"""The first rows of an index: what was completed at its listing point, and instants that are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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


@dataclass
class FirstRows:
    """``state``: the table at the listing point. Ask for ``of_listing`` first."""

    state: TableState
    spec: IndexSpec
    progress: Progress
    _sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    _made: list[pa.Table] = field(default_factory=list)

    def of_listing(self) -> pa.Table:
        """Rows of all files that completed instants wrote. One that a clean removes meanwhile is left out:
        the clean completes later than the listing point, and tells the index itself."""
        return self._with(Contents(self.state), lambda file: True)

    def and_of(self, instants: Sequence[Instant]) -> pa.Table:
        """All rows until now, and those of the files that these instants wrote, completed since."""
        contents = Contents(TableState.load(self.state.storage, self.state.config))
        written = {path for i in instants for path in contents.state.written(i.requested) or ()}
        return self._with(contents, lambda file: file.path in written)

    def _with(self, contents: Contents, wanted: Callable[[DataFile], bool]) -> pa.Table:
        files = [f for here in contents.files.values() for f in here.values() if f.size and wanted(f)]
        if self.spec.partition == FILES:
            for file in files:
                self._sizes.setdefault(file.partition, {})[file.name] = file.size
            return files_rows(self._sizes)
        assert self.spec.partition == COLUMN_STATS
        self._made.append(self._stats(contents, [file for file in files if file.holds_rows]))
        return pa.concat_tables(self._made)

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
