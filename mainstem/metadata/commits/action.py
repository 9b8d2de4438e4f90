"""An action as the metadata table sees it: the files that it added and removed, and their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.formats.avro_decode import decode_many
from mainstem.formats.log_file import BlockKind, LogBlock, read_blocks
from mainstem.formats.native_log import is_partial
from mainstem.layout.properties import TableConfig
from mainstem.limits import MIB
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.commits.written_rows import WrittenRows, as_decoded
from mainstem.metadata.derive.column_ranges import Range, base_file_ranges, ranges_of, ranges_of_slices
from mainstem.metadata.derive.index_rows import bloom_of_footer
from mainstem.metadata.derive.lacking_columns import NOTHING, Lacking, lacking
from mainstem.metadata.index_definitions import Definitions, read_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, Kind, kind_of
from mainstem.storage import maps, paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import CompactionStat, every_file

_TOGETHER_BYTES = 4 * MIB
_DATA = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA)


@dataclass(frozen=True)
class FileChanges:
    """What one action did to the data table's files.

    ``added``: partition -> name -> bytes. ``deleted``: partition -> names. ``new_keys``: whether the files
    may hold record keys new to the table; those of a compaction do not. ``schemas``: the Avro JSON of the
    writer's schema, then of the table's, for columns that files lack; none for services, whose files have all
    columns. ``written``: path of an added log file -> the rows of all its data blocks, in order, if the
    writer still holds them. ``show``: called before added files are read, for stores that show a file only
    when its writer has closed it.
    """

    added: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    deleted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    new_keys: bool = True
    schemas: Callable[[], Iterable[str]] = field(default=tuple, compare=False, repr=False)
    written: Mapping[str, Sequence[WrittenRows]] = field(default_factory=dict, compare=False, repr=False)
    show: Callable[[], object] = field(default=tuple, compare=False, repr=False)
    #: of a resize: (record keys, file name) -> mask of those that were in another file group; None: any write
    moved_keys: Callable[[pa.Array, str], np.ndarray] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_stats(
        cls,
        stats: Iterable[Any],
        *,
        new_keys: bool = True,
        schemas: Callable[[], Iterable[str]] = tuple,
        written: Mapping[str, Sequence[WrittenRows]] = MappingProxyType({}),
        show: Callable[[], object] = tuple,
    ) -> FileChanges:
        """The files that write stats name (``WriteStat``, ``CompactionStat``, ``LogCompactionStat``)."""
        added: dict[str, dict[str, int]] = {}
        for stat in every_file(stats):
            added.setdefault(stat.partition, {})[stat.file_name] = stat.size_bytes
            if isinstance(stat, CompactionStat) and stat.changes is not None:
                path, size = stat.changes
                added[stat.partition][path.rpartition("/")[2]] = size
        return cls(added, new_keys=new_keys, schemas=schemas, written=written, show=show)

    @classmethod
    def of_names(cls, deleted: Mapping[str, Iterable[str]]) -> FileChanges:
        """Removed files: partition -> names."""
        return cls({}, {p: frozenset(names) for p, names in deleted.items() if names}, new_keys=False)

    def files(self) -> Iterator[tuple[str, str]]:
        """(partition, name) of the added files that rows are looked for in: not those of change data."""
        for partition, names in sorted(self.added.items()):
            for name in sorted(names):
                log = paths.parse_log_name(name)
                if log is None or not log.is_cdc:
                    yield partition, name


@dataclass(frozen=True)
class Rows:
    """Rows of a file: ``count`` rows of a batch, from ``low`` on. ``partial``: they hold only the columns
    that an update set."""

    batch: pa.Table
    low: int
    count: int
    partial: bool

    @classmethod
    def all_of(cls, batch: pa.Table, partial: bool) -> Rows:
        """All rows of a batch."""
        return cls(batch, 0, batch.num_rows, partial)

    def is_followed_by(self, other: Rows) -> bool:
        """Whether both lie one behind the other in one batch."""
        alike = self.batch is other.batch and self.partial == other.partial
        return alike and self.low + self.count == other.low

    @cached_property
    def table(self) -> pa.Table:
        """The rows."""
        return self.batch if self.count == self.batch.num_rows else self.batch.slice(self.low, self.count)


@dataclass(frozen=True)
class Action:
    """An action at requested time ``instant``; ``config``: the table's properties when its rows are made."""

    storage: Storage
    instant: str
    config: TableConfig
    changes: FileChanges

    @cached_property
    def _files(self) -> Storage:
        """The storage, for reading added files."""
        self.changes.show()
        return self.storage

    @cached_property
    def definitions(self) -> Definitions:
        """Definitions of the table's indexes."""
        return read_definitions(self.storage, self.config)

    @cached_property
    def ranges(self) -> Mapping[tuple[str, str], list[Range]]:
        """(partition, name) of each added file -> ranges of the columns in ``column_stats``."""
        definition = self.definitions.get(COLUMN_STATS)
        columns = [] if definition is None else list(definition.fields)
        found = self._ranges_together(columns)
        return {file: found.get(file) or self._ranges(*file, columns) for file in self.changes.files()}

    @cached_property
    def _lacking(self) -> Lacking:
        """Indexed columns that count as nulls in a file that lacks them."""
        definition = self.definitions.get(COLUMN_STATS)
        columns = () if definition is None else definition.fields
        return lacking(self.changes.schemas(), columns, self.config.partition_fields)

    @cached_property
    def new_runs(self) -> list[tuple[Rows, list[tuple[tuple[str, str], int]]]]:
        """The rows of the added files, in the order of the files, with at least the record key and the
        columns of secondary indexes; and how many are of which file, (partition, name). Files of a small
        action, whose rows lie one behind another in a batch, have one run: each look at one costs the same.
        """
        listed = [p for p in self.config.metadata_partitions if kind_of(p) == Kind.SECONDARY_INDEX]
        known = [found for found in map(self.definitions.get, listed) if found is not None]
        columns = [KEY_COLUMN, *(name.partition(".")[0] for found in known for name in found.fields)]
        columns = list(dict.fromkeys(columns))
        whole = self._indexed.issuperset(columns)
        runs: list[tuple[Rows, list[tuple[tuple[str, str], int]]]] = []
        for file in self.changes.files():
            together = self._decoded_together.get(paths.in_partition(*file)) if whole else None
            for rows in self._rows(*file, columns) if together is None else together:
                last = runs[-1][0] if runs else None
                if last is not None and last.is_followed_by(rows):
                    joined = Rows(last.batch, last.low, last.count + rows.count, last.partial)
                    runs[-1] = joined, [*runs[-1][1], (file, rows.count)]
                else:
                    runs.append((rows, [(file, rows.count)]))
        return runs

    def bloom(self, partition: str, name: str) -> tuple[str, bytes] | None:
        """Type and text of the bloom filter in an added base file's footer; None without one."""
        if paths.parse_base_name(name) is None:
            return None
        with pq.ParquetFile(self._files.open_input(paths.in_partition(partition, name))) as source:
            return bloom_of_footer(source.metadata.metadata)

    def batches(self, partition: str, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of an added file as stored, with those of the columns that it has; nothing for a log file
        that only deletes."""
        return (rows.table for rows in self._rows(partition, name, columns))

    def _rows(self, partition: str, name: str, columns: Sequence[str]) -> Iterator[Rows]:
        path = paths.in_partition(partition, name)
        together = self._decoded_together.get(path)
        if together is not None and self._indexed.issuperset(columns):
            for rows in together:
                held = set(rows.table.column_names)
                there = [column for column in columns if column in held]
                yield Rows.all_of(rows.table.select(there), rows.partial)
            return
        if _has_blocks(name):
            for block in read_blocks(maps.view(self._files, path), path=path):
                if block.kind in _DATA:
                    yield Rows.all_of(block.table(columns), block.partial)
        elif _has_rows(name):
            yield from self._parquet_rows(path, columns)

    def _parquet_rows(self, path: str, columns: Sequence[str]) -> Iterator[Rows]:
        with pq.ParquetFile(self._files.open_input(path)) as source:
            held = set(source.schema_arrow.names)
            there = [column for column in columns if column in held]
            partial = is_partial(source.metadata.metadata, path=path)
            for batch in source.iter_batches(columns=there):
                yield Rows.all_of(pa.Table.from_batches([batch]), partial)

    @cached_property
    def _indexed(self) -> frozenset[str]:
        """The columns that the indexes need."""
        listed = self.config.metadata_partitions
        known = [found for found in map(self.definitions.get, listed) if found is not None]
        keyed = {Kind.RECORD_INDEX, Kind.SECONDARY_INDEX, Kind.EXPRESSION_INDEX}
        names = [name.partition(".")[0] for found in known for name in found.fields]
        return frozenset((*names, *(KEY_COLUMN for p in listed if kind_of(p) in keyed)))

    @cached_property
    def _decoded_together(self) -> Mapping[str, list[Rows]]:
        """Path of each log file whose rows the writer still holds, or of a small action -> its rows in all
        indexed columns.

        Rows that the writer still holds are not decoded, however many. Decoding several small blocks at once
        for all indexes costs hardly more than decoding one for one index.
        """
        columns = sorted(self._indexed)
        found = self._still_there(columns)
        logs = [
            (p, name)
            for p, name in self.changes.files()
            if paths.parse_base_name(name) is None and paths.in_partition(p, name) not in found
        ]
        if sum(self.changes.added[p][name] for p, name in logs) > _TOGETHER_BYTES:
            return found
        waiting: dict[str, list[tuple[LogBlock, list[Rows], int]]] = {}
        for p, name in logs:
            path = paths.in_partition(p, name)
            rows = found[path] = []
            if not _has_blocks(name):
                rows += self._parquet_rows(path, columns) if _has_rows(name) else ()
                continue
            for block in read_blocks(maps.view(self._files, path), path=path):
                if block.kind == BlockKind.AVRO_DATA:
                    waiting.setdefault(block.schema_text, []).append((block, rows, len(rows)))
                if block.kind in _DATA:
                    rows.append(Rows.all_of(pa.table({}), block.partial))
                if block.kind == BlockKind.PARQUET_DATA:
                    rows[-1] = Rows.all_of(block.table(columns), block.partial)
        for schema_text, blocks in waiting.items():
            parts = [block.records() for block, _, _ in blocks]
            places = [(block.path, block.content_offset + 8) for block, _, _ in blocks]
            table, low = decode_many(parts, schema_text, columns, places=places), 0
            for (block, rows, at), (_, count) in zip(blocks, parts, strict=True):
                rows[at] = Rows(table, low, count, block.partial)
                low += count
        return found

    def _still_there(self, columns: list[str]) -> dict[str, list[Rows]]:
        """Path of each log file whose writer still holds its rows -> these rows, in all indexed columns."""
        batches: dict[int, pa.Table | None] = {}
        found = {}
        for path, written in self.changes.written.items():
            for one in written:
                if id(one.batch) not in batches:
                    batches[id(one.batch)] = as_decoded(one.batch, one.schema_text, columns)
            tables = [(batches[id(one.batch)], one) for one in written]
            if all(table is not None for table, _ in tables):
                found[path] = [Rows(table, one.low, one.count, one.partial) for table, one in tables]
        return found

    def _ranges_together(self, columns: list[str]) -> dict[tuple[str, str], list[Range]]:
        """Ranges of log files with a single block; files whose rows share a batch are computed together."""
        if not self._indexed.issuperset(column.partition(".")[0] for column in columns):
            return {}
        of_batch: dict[tuple[int, bool], list[tuple[tuple[str, str], Rows]]] = {}
        for file in self.changes.files():
            found = self._decoded_together.get(paths.in_partition(*file), [])
            if len(found) == 1 and found[0].count:
                shared = (id(found[0].batch), found[0].partial)
                of_batch.setdefault(shared, []).append((file, found[0]))
        made: dict[tuple[str, str], list[Range]] = {}
        for together in of_batch.values():
            slices = [(rows.low, rows.count) for _, rows in together]
            nulls = NOTHING if together[0][1].partial else self._lacking
            ranges = ranges_of_slices(together[0][1].batch, slices, columns, nulls)
            made |= {file: some for (file, _), some in zip(together, ranges, strict=True)}
        return made

    def _ranges(self, partition: str, name: str, columns: list[str]) -> list[Range]:
        """Ranges of a file's columns; columns that it lacks count as nulls.

        A log file that only deletes gets empty ranges, as from Java: readers then know that none of its rows
        can pass a filter.
        """
        if not _has_rows(name):
            return [Range(column, pa.null(), None, None, 0, 0) for column in columns]
        if _has_blocks(name):
            tops = list(dict.fromkeys(column.partition(".")[0] for column in columns))
            blocks = list(self._rows(partition, name, tops))
            if not blocks:
                return [Range(column, pa.null(), None, None, 0, 0) for column in columns]
            nulls = NOTHING if any(block.partial for block in blocks) else self._lacking
            return [r for r in ranges_of((block.table for block in blocks), columns, nulls) if r.rows]
        with pq.ParquetFile(self._files.open_input(paths.in_partition(partition, name))) as source:

            def batches(names: list[str]) -> Iterator[pa.Table]:
                return self.batches(partition, name, names)

            partial = is_partial(source.metadata.metadata, path=paths.in_partition(partition, name))
            nulls = NOTHING if partial else self._lacking
            found = base_file_ranges(source.metadata, columns, batches, nulls)
        return [r for r in found if r.rows]


def _has_blocks(name: str) -> bool:
    """Whether a data file is a log file of blocks; others are Parquet files."""
    log = paths.parse_log_name(name)
    return log is not None and not log.is_native


def _has_rows(name: str) -> bool:
    """Whether a data file may hold rows, by its name."""
    log = paths.parse_log_name(name)
    return log is None or log.kind == "log"
