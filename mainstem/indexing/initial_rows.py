"""The first rows of an index: those of instants completed at its listing point, and of uncovered later ones.

Rows are made in pieces of one file group each, by a function of the storage and the piece alone. Pieces run
here, several at once, or wherever ``Run`` sends them (a task of an engine), and can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from mainstem.indexing.expected_contents import Contents, DataFile, FileContents
from mainstem.indexing.index_spec import IndexSpec
from mainstem.metadata.commits.expression_rows import kept_expression, loose_expression_rows
from mainstem.metadata.derive.bootstrap import table_groups
from mainstem.metadata.derive.column_ranges import Range
from mainstem.metadata.derive.index_rows import bloom_rows_of_files, files_rows
from mainstem.metadata.derive.lacking_columns import Lacking, lacking
from mainstem.metadata.derive.statistics_rows import partition_ranges, partition_stats_rows, stats_rows
from mainstem.metadata.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    Kind,
    file_id,
    kind_of,
)
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.services.progress import Progress
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.instant import Instant


class Run(Protocol):
    """``work(storage, piece)`` for each piece, in their order; ``told`` is called with how many are done.

    ``work`` is a function of a module and pieces can be pickled, so they may run in other processes; one
    piece may run several times, at once too.
    """

    def __call__(
        self, work: Callable[[Storage, Any], Any], pieces: Sequence[Any], told: Callable[[int], None]
    ) -> list[Any]: ...


def here(storage: Storage) -> Run:
    """A ``Run`` in this process."""

    def run(
        work: Callable[[Storage, Any], Any], pieces: Sequence[Any], told: Callable[[int], None]
    ) -> list[Any]:
        return side_by_side(storage, lambda piece: work(storage, piece), pieces, told)

    return run


@dataclass(frozen=True)
class FilesPiece:
    """Files of one file group; ``lacking``: columns that are nulls in a file without them."""

    spec: IndexSpec
    files: tuple[DataFile, ...]
    lacking: Lacking = field(default_factory=dict)


@dataclass
class InitialRows:
    """``state``: the table at the listing point. Ask for ``of_listing`` first. ``run``: where pieces run."""

    state: TableState
    spec: IndexSpec
    progress: Progress
    run: Run
    _sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    _made: list[pa.Table] = field(default_factory=list)
    _ranges: list[tuple[str, list[Range]]] = field(default_factory=list)
    _expressions: list[tuple[str, str, Range]] = field(default_factory=list)
    _rows: pa.Table = field(init=False)

    @property
    def rows(self) -> int:
        """How many rows were made."""
        return self._rows.num_rows

    def groups(self, schema_text: str) -> Iterator[tuple[str, pa.Array, pa.Array]]:
        """The index's file groups, each with its keys in their order and the values of its rows."""
        made = table_groups(self.spec.content, self._rows, self.spec.groups, schema_text=schema_text)
        for number, keys, values in made:
            yield file_id(self.spec.partition, number), keys, values

    def of_listing(self) -> None:
        """Rows of all files that completed instants wrote. One that a clean removes meanwhile is left out:
        the clean completes later than the listing point, and tells the index itself."""
        self._rows = self._with(Contents(self.state).checked(), lambda file: True)

    def and_of(self, instants: Sequence[Instant]) -> None:
        """Add the rows of files that these instants wrote, which completed since."""
        contents = Contents(TableState.load(self.state.storage, self.state.config))
        written = {path for i in instants for path in contents.state.written(i.requested) or ()}
        self._rows = self._with(contents, lambda file: file.path in written)

    def _with(self, contents: Contents, wanted: Callable[[DataFile], bool]) -> pa.Table:
        files = [f for here in contents.files.values() for f in here.values() if f.size and wanted(f)]
        if self.spec.partition == FILES:
            for file in files:
                self._sizes.setdefault(file.partition, {})[file.name] = file.size
            return files_rows(self._sizes)
        files = [file for file in files if file.holds_rows]
        if self.spec.partition == COLUMN_STATS:
            # Java would confuse files that share a name.
            files = [file for file in files if file.name not in contents.shared_names]
        pieces = self._pieces(files)
        told = self._told(len(pieces))
        if self.spec.partition == PARTITION_STATS:
            self._ranges += self.run(ranges_of_files, pieces, told)
            return self._of_partitions()
        if kind_of(self.spec.partition) == Kind.EXPRESSION_INDEX:
            for found in self.run(expressions_of_files, pieces, told):
                self._expressions += found
            return loose_expression_rows(self._expressions, contents.shared_names)
        work = blooms_of_files if self.spec.partition == BLOOM_FILTERS else stats_of_files
        self._made += self.run(work, pieces, told)
        return pa.concat_tables([SCHEMAS[self.spec.content].empty_table(), *self._made])

    def _of_partitions(self) -> pa.Table:
        """Loose ranges that include older files: rows that a rollback or restore brings back stay within."""
        found: dict[str, list[list[Range]]] = {}
        for partition, ranges in self._ranges:
            found.setdefault(partition, []).append(ranges)
        together = [(partition, partition_ranges(ranges)) for partition, ranges in found.items()]
        return partition_stats_rows(together, version=self.spec.version, tight=False)

    def _pieces(self, files: Sequence[DataFile]) -> list[FilesPiece]:
        groups: dict[tuple[str, str], list[DataFile]] = {}
        for file in files:
            groups.setdefault((file.partition, file.file_id), []).append(file)
        nulls = dict(self._lacking)
        return [FilesPiece(self.spec, tuple(group), nulls) for group in groups.values()]

    @cached_property
    def _lacking(self) -> Lacking:
        if self.spec.partition not in (COLUMN_STATS, PARTITION_STATS):
            return {}
        return lacking([schema_text(self.state)], self.spec.columns, self.state.config.partition_fields)

    def _told(self, total: int) -> Callable[[int], None]:
        return lambda done: self.progress(f"index {self.spec.partition}, file groups", done, total)


def stats_of_files(storage: Storage, piece: FilesPiece) -> pa.Table:
    """Rows of column statistics; of a file that is gone there are none."""
    # A file without rows has a row per column with nothing in it, as Java writes for deletes alone.
    empty = [Range(name, pa.null(), None, None, 0, 0) for name in piece.spec.columns]
    entries = [(file.partition, file.name, found or empty) for file, found in _ranges(storage, piece)]
    if not entries:
        return SCHEMAS[piece.spec.content].empty_table()
    return stats_rows(entries, version=piece.spec.version)


def blooms_of_files(storage: Storage, piece: FilesPiece) -> pa.Table:
    """Rows of bloom filters: those in the footers of base files; of a file that is gone there is none."""
    contents, found = FileContents(storage), []
    for file in piece.files:
        with _unless_gone(storage, file):
            found.append((file.name, contents.bloom(file)))
    return bloom_rows_of_files(piece.files[0].partition, found)


def expressions_of_files(storage: Storage, piece: FilesPiece) -> list[tuple[str, str, Range]]:
    """Partition, name and range of an expression's values of files that are still there and have rows."""
    column, expression = kept_expression(piece.spec.partition, piece.spec.definition)
    contents, made = FileContents(storage), []
    for file in piece.files:
        with _unless_gone(storage, file):
            found = contents.expression_range(file, column, expression)
            if found is not None:
                made.append((file.partition, file.name, found))
    return made


def ranges_of_files(storage: Storage, piece: FilesPiece) -> tuple[str, list[Range]]:
    """The partition that a file group lies in, and the ranges of its files together."""
    return piece.files[0].partition, partition_ranges(found for _, found in _ranges(storage, piece))


def _ranges(storage: Storage, piece: FilesPiece) -> Iterator[tuple[DataFile, list[Range]]]:
    """Files that are still there, with the ranges of the index's columns that they have."""
    contents = FileContents(storage)
    for file in piece.files:
        with _unless_gone(storage, file):
            yield file, contents.ranges(file, piece.spec.columns, piece.lacking)


@contextmanager
def _unless_gone(storage: Storage, file: DataFile) -> Iterator[None]:
    """Reading a file that a clean may have removed since it was listed."""
    try:
        yield
    except FileNotFoundError:
        if storage.stat(file.path) is not None:
            raise
