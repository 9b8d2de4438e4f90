"""The rows that an action adds to each partition of the metadata table, by file group.

Statistics are read from the files that the action wrote, when they are durable and before anybody sees
them. So they are the same whoever wrote the files: a transaction, tasks of Spark executors, staged rows of
Flink, a bulk insert, a service. A row describes one file, whose name nobody else uses: the rows of
concurrent writers never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.errors import CorruptTable
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.metadata.build.ranges import Range, base_file_ranges, ranges_of
from mainstem.metadata.build.rows import files_rows
from mainstem.metadata.build.stats import removed_stats, stats_rows
from mainstem.metadata.definitions import read_definitions
from mainstem.metadata.keys import file_groups
from mainstem.metadata.partitions import COLUMN_STATS, FILES, Content, file_id
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.table.properties import TableConfig

_DATA = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA)


@dataclass(frozen=True)
class FileChanges:
    """What one action did to the data table's files: partition -> name -> bytes, and the names that went."""

    added: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    deleted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of_stats(cls, stats: Iterable[Any]) -> FileChanges:
        """Files of write stats (``WriteStat``, ``CompactionStat``, ``LogCompactionStat``)."""
        added: dict[str, dict[str, int]] = {}
        for stat in stats:
            added.setdefault(stat.partition, {})[stat.file_name] = stat.size_bytes
        return cls(added)

    @classmethod
    def of_names(cls, deleted: Mapping[str, Iterable[str]]) -> FileChanges:
        """Files that were removed: partition -> names."""
        return cls({}, {p: frozenset(names) for p, names in deleted.items() if names})

    def files(self) -> Iterator[tuple[str, str]]:
        """(partition, name) of the files that were added."""
        for partition, names in sorted(self.added.items()):
            yield from ((partition, name) for name in sorted(names))


@dataclass(frozen=True)
class Maintained:
    """The partitions to write to and the file groups of each. What was made for another one is made anew."""

    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def now(cls, storage: Storage, config: TableConfig) -> Maintained:
        """By the table's lists. A partition that somebody has only begun to make may have no groups yet: its
        rows come from the files that are completed by the time when it has."""
        found = []
        for partition in dict.fromkeys(config.metadata_partitions):
            ids = (file_id(FILES, 0),) if partition == FILES else _file_ids(storage, partition)
            found.append((partition, ids))
        return cls(tuple(found))

    def __bool__(self) -> bool:
        return bool(self.groups)


def _file_ids(storage: Storage, partition: str) -> tuple[str, ...]:
    names = storage.names(f"{paths.METADATA}/{partition}")
    return tuple(sorted({found for found in map(paths.file_id_of, names) if found is not None}))


def action_rows(
    storage: Storage, config: TableConfig, maintained: Maintained, changes: FileChanges
) -> Iterator[tuple[str, str, Content, pa.Table]]:
    """(partition, file group, content, rows) of every file group that the changes touch.

    Raises ``CorruptTable`` for a partition that readers use and that has no files.
    """
    for partition, groups in maintained.groups:
        if not groups and partition in config.ready_metadata_partitions:
            raise CorruptTable(
                f"hoodie.properties names the index {partition}, which has no files; drop it with Hudi",
                path=f"{paths.METADATA}/{partition}",
                table=storage.base,
            )
        if partition == FILES:
            yield FILES, groups[0], Content.FILES, files_rows(changes.added, changes.deleted)
        elif groups and partition == COLUMN_STATS:
            rows = _column_stats(storage, config, changes)
            yield from _by_group(partition, groups, rows)


def _by_group(
    partition: str, groups: tuple[str, ...], rows: pa.Table
) -> Iterator[tuple[str, str, Content, pa.Table]]:
    numbers = pa.array(file_groups(rows["key"].combine_chunks(), len(groups)))
    for number in sorted(set(numbers.to_pylist())):
        yield partition, groups[number], Content.STATS, rows.filter(pc.equal(numbers, number))


def _column_stats(storage: Storage, config: TableConfig, changes: FileChanges) -> pa.Table:
    definitions = read_definitions(storage, config)
    definition = definitions.get(COLUMN_STATS)
    columns = [] if definition is None else list(definition.fields)
    version = definitions.stats_version(COLUMN_STATS, config.version)
    found = [(p, name, _ranges(storage, paths.in_partition(p, name), columns)) for p, name in changes.files()]
    gone = [removed_stats(p, names, columns, version=version) for p, names in changes.deleted.items()]
    return pa.concat_tables([stats_rows(found, version=version), *gone])


def _ranges(storage: Storage, path: str, columns: list[str]) -> list[Range]:
    """Ranges of the columns that a file has; of a log file that only deletes, that it has nothing, as Java
    writes (readers know by that that no row of it can pass a filter)."""
    tops = list(dict.fromkeys(name.partition(".")[0] for name in columns))
    if paths.parse_base_name(path.rpartition("/")[2]) is None:
        blocks = [b for b in read_blocks(storage.view(path), path=path) if b.kind in _DATA]
        if not blocks:
            return [Range(name, pa.null(), None, None, 0, 0) for name in columns]
        return [r for r in ranges_of((block.table(tops) for block in blocks), columns) if r.rows]
    with pq.ParquetFile(storage.open_input(path)) as source:

        def batches(names: list[str]) -> Iterator[pa.Table]:
            for batch in source.iter_batches(columns=names):
                yield pa.Table.from_batches([batch])

        return [r for r in base_file_ranges(source.metadata, columns, batches) if r.rows]
