"""The contents that an index must have at one moment: files, ranges, filters and keys, taken from the data.

Everything is computed from the data table's files, nothing from its metadata table. ``validate`` compares
with it; a build takes its rows from it. Files are listed once and read in batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from mainstem.formats.log_file import BlockKind
from mainstem.layout.slicing import FileSlice, query_slice
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.derive.column_ranges import Range, base_file_ranges, ranges_of
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.derive.index_rows import bloom_of_footer
from mainstem.metadata.derive.lacking_columns import NOTHING, Lacking, lacks
from mainstem.metadata.derive.statistics_rows import expression_range
from mainstem.metadata.metadata_partitions import in_keys
from mainstem.readers.planning.file_presence import check_table, check_table_now
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import make_split, read_spec
from mainstem.readers.rows.base_rows import open_base
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.split import Split, read_split
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

_DATA = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA)


def _writer(name: str) -> tuple[str, str] | None:
    """File group and instant of a data file.

    If one pair has several files, some may come from a failed task attempt; then the instant's metadata,
    archived or not, decides.
    """
    parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
    return None if parsed is None else (parsed.file_id, parsed.instant)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a completed instant; ``partition`` is "" in a non-partitioned table."""

    partition: str
    name: str
    size: int

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return paths.in_partition(self.partition, self.name)

    @property
    def is_base(self) -> bool:
        return paths.parse_base_name(self.name) is not None

    @property
    def file_id(self) -> str:
        """Its file group; the name itself for a file that is neither base nor log file."""
        parsed = paths.parse_log_name(self.name) or paths.parse_base_name(self.name)
        return self.name if parsed is None else parsed.file_id

    @property
    def holds_rows(self) -> bool:
        """Base and log files, but not change logs."""
        log = paths.parse_log_name(self.name)
        return self.is_base or (log is not None and not log.is_cdc)


class _Reading:
    """Reads the contents of single files; ``FileNotFoundError`` for one that was cleaned meanwhile."""

    storage: Storage
    #: of log blocks, as in a scan
    damaged: str

    def batches(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows that a file holds, as it holds them, in those of the columns that it has."""
        if file.is_base:
            with open_base(self.storage, file.path) as base:
                yield from base.batches(columns)
            return
        blocks = blocks_of(self.storage, file.path, damaged=self.damaged)
        for block in blocks:
            if block.kind in _DATA:
                yield block.table(columns)

    def ranges(self, file: DataFile, columns: Sequence[str], lacking: Lacking = NOTHING) -> list[Range]:
        """Ranges of the columns that a file has, nulls of those in ``lacking`` that it has not; [] for a file
        without rows."""
        if not file.is_base:
            return self._ranges_of_log(file, columns, lacking)
        with open_base(self.storage, file.path) as base:
            found = base_file_ranges(base.source.metadata, columns, base.batches, lacking)
        return [r for r in found if r.rows]

    def _ranges_of_log(self, file: DataFile, columns: Sequence[str], lacking: Lacking) -> list[Range]:
        """As ``ranges``, of a log file: a column that partial updates did not set does not count as null."""
        tops = list(dict.fromkeys(name.partition(".")[0] for name in columns))
        blocks = blocks_of(self.storage, file.path, damaged=self.damaged)
        names: set[str] = set()
        partial = False

        def tables() -> Iterator[pa.Table]:
            nonlocal partial
            for block in blocks:
                if block.kind in _DATA:
                    made = block.table(tops)
                    partial |= block.partial
                    names.update(made.column_names)
                    yield made

        found = [r for r in ranges_of(tables(), columns, lacking) if r.rows]
        return [r for r in found if not lacks(names, r.column)] if partial else found

    def expression_range(self, file: DataFile, column: str, expression: Expression) -> Range | None:
        """Range of an expression over a file's rows; None for a file without rows, or without the column
        where that says nothing."""
        batches = self.batches(file, [KEY_COLUMN, column.partition(".")[0]])
        found = expression_range(batches, column, expression, file_size=file.size)
        return found if found is not None and found.rows else None

    def bloom(self, file: DataFile) -> tuple[str, bytes] | None:
        """Type and text of the bloom filter in a base file's footer."""
        if not file.is_base:
            return None
        with open_base(self.storage, file.path) as base:
            return bloom_of_footer(base.source.metadata.metadata)


@dataclass
class FileContents(_Reading):
    """Contents of given files, for example in a task of an engine."""

    storage: Storage
    damaged: str = "error"


@dataclass
class Contents(_Reading):
    """The data of ``state``."""

    state: TableState
    #: where the table lies
    storage: Storage = field(init=False, repr=False)
    damaged: str = "error"
    _ranges: dict[tuple[str, ...], list[tuple[DataFile, Range]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.storage = self.state.storage

    @cached_property
    def files(self) -> Mapping[str, Mapping[str, DataFile]]:
        """Partition -> file name -> file: what completed instants wrote and no clean removed.

        Files of pending, dead and rolled back instants are not among them, nor what a task attempt that
        lost left behind.
        """
        found: dict[str, dict[str, DataFile]] = {}
        for listing in self.state.partitions():
            here = found.setdefault(listing.partition, {})
            entries = [e for e in self.state.storage.entries(listing.partition) if not e.is_folder]
            written = Counter(_writer(entry.name) for entry in entries)
            for entry in entries:
                file = DataFile(listing.partition, entry.name, entry.size)
                if self._is_written(file, several=written[_writer(entry.name)] > 1):
                    here[file.name] = file
        return found

    def checked(self) -> Contents:
        """Returns self after a check that all files exist which the newest rows need.

        Raises ``CorruptTable`` if not: an index of the rest would be taken for complete.
        """
        try:
            check_table(self.state, self.files)
        except FileNotFoundError:  # a clean began since: what it takes is not missed by what comes after
            check_table_now(self.state.storage, self.state.config)
        return self

    @cached_property
    def shared_names(self) -> frozenset[str]:
        """Names that files of several partitions have, as mainstem once named the files of a commit. Java
        looks up statistics by bare names and takes the range of one file for another's."""
        names = Counter(f.name for here in self.files.values() for f in here.values() if f.holds_rows)
        return frozenset(name for name, count in names.items() if count > 1)

    def _is_written(self, file: DataFile, *, several: bool) -> bool:
        parsed = paths.parse_log_name(file.name) or paths.parse_base_name(file.name)
        if parsed is None or self.state.completion(parsed.instant) is None:
            return False
        named = self.state.written(parsed.instant) if several or parsed.instant in self._active else None
        change_log = isinstance(parsed, paths.LogName) and parsed.is_cdc
        return named is None or change_log or file.path in named

    @cached_property
    def _active(self) -> frozenset[str]:
        return frozenset(i.requested for i in self.state.writes)

    @cached_property
    def slices(self) -> Mapping[str, Sequence[FileSlice]]:
        """Partition -> the slices that a snapshot reads."""
        replaced = self.state.replaced(None)
        found: dict[str, list[FileSlice]] = {}
        for partition, names in self.files.items():
            here = found.setdefault(partition, [])
            for group in self.state.group(partition, sorted(names)):
                newest = query_slice(group, None)
                if newest is not None and (partition, group.file_id) not in replaced:
                    here.append(newest)
        return found

    def slice_files(self, found: FileSlice) -> list[DataFile]:
        """The files of a slice."""
        names = [*([found.base_file] if found.base_file else []), *found.log_files]
        return [self.files[found.partition][name] for name in names]

    def all_ranges(self, columns: Sequence[str]) -> list[tuple[DataFile, Range]]:
        """``ranges`` of every file of the table; read once for each choice of columns."""
        wanted = tuple(columns)
        if wanted not in self._ranges:
            files = [f for here in self.files.values() for f in here.values() if f.holds_rows]
            self._ranges[wanted] = [(file, found) for file in files for found in self.ranges(file, wanted)]
        return self._ranges[wanted]

    # -- merged rows -----------------------------------------------------------------------------

    def merged(self, columns: Sequence[str] = ()) -> Callable[[FileSlice], Iterator[pa.Table]]:
        """Function that reads a slice as a snapshot does: record keys and these columns, batch by batch."""
        split_of = merged_split(self.state, columns, self.damaged)

        def read(found: FileSlice) -> Iterator[pa.Table]:
            yield from read_split(self.state.storage, split_of(found))

        return read


def merged_split(
    state: TableState, columns: Sequence[str], damaged: str = "error"
) -> Callable[[FileSlice], Split]:
    """Function that says how a slice is read for record keys and these columns: as a snapshot reads it, but
    for values that it takes from the path, which are as the files hold them, like those that writers add."""
    wanted = [KEY_COLUMN, *(name for name in columns if name != KEY_COLUMN)]
    spec = read_spec(state, wanted, None, None, damaged, stored=True)
    return lambda found: replace(make_split(found, spec, state.config), path_values=())


def rows_by_partition(state: TableState) -> dict[str, int]:
    """Partition, as keys of the metadata table name it -> the rows in the base files that a snapshot reads,
    by their footers; those in log files are not counted."""
    counts = {}
    for partition, slices in Contents(state).slices.items():
        if slices:
            counts[in_keys(partition)] = sum(_rows_of_base(state.storage, found) for found in slices)
    return counts


def _rows_of_base(storage: Storage, found: FileSlice) -> int:
    if found.base_file is None:
        return 0
    try:
        with open_base(storage, paths.in_partition(found.partition, found.base_file)) as base:
            return base.source.metadata.num_rows
    except FileNotFoundError:
        return 0
