"""The rows that an action adds to each partition of the metadata table, by file group.

Statistics come from the files that the action wrote, once these are complete and before they are visible, or
from the rows themselves if their writer still holds them (``written``). So they are the same for every kind
of writer: a transaction, tasks of Spark executors, staged rows of Flink, a bulk insert, a service. A row
either describes one file, whose name is unique, so that rows of concurrent writers never meet, or it commutes
with theirs (``partition_statistics``, ``key_rows``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.layout.properties import TableConfig
from mainstem.limits import CHUNK_ROWS
from mainstem.metadata.commits.action import Action, FileChanges
from mainstem.metadata.commits.expression_rows import expression_stats
from mainstem.metadata.commits.key_rows import (
    GroupRows,
    groups_touched,
    is_partitioned,
    record_rows,
    secondary_index_rows,
)
from mainstem.metadata.commits.known_groups import KnownGroups
from mainstem.metadata.commits.partition_statistics import partition_stats
from mainstem.metadata.derive.index_rows import bloom_rows_of_files, files_rows, removed_blooms
from mainstem.metadata.derive.statistics_rows import few_stats_rows, removed_stats, stats_rows
from mainstem.metadata.index_definitions import Definition, Definitions, read_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, FILES, Content, Kind, file_id, kind_of
from mainstem.metadata.records.flat_rows import SCHEMAS, encode, encode_keyed, encode_listed
from mainstem.metadata.records.keyed_rows import KeyedRows
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.metadata.records.row_keys import file_groups
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

#: up to so many rows of statistics are made as lists
_LISTED = 256


@dataclass(frozen=True)
class Maintained:
    """The partitions to write to, their file groups, and the definitions of the indexes.

    Definitions matter because an index dropped and made anew on other columns may have the same groups, and
    ``native_logs`` because the table's version may change meanwhile: readers of version 9 take native log
    files for base files. Rows made for another ``Maintained`` are made again.
    """

    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    definitions: tuple[Definition | None, ...] = ()
    native_logs: bool = False

    @classmethod
    def now(
        cls,
        storage: Storage,
        config: TableConfig,
        changes: FileChanges,
        known: KnownGroups,
        *,
        locked: bool = False,
    ) -> Maintained:
        """What the table's lists say now, as far as these changes are concerned.

        A partition still being built may have no groups yet: its rows come from the files that are completed
        when it is finished. ``locked``: the lists were read under the table lock, which is still held.
        """
        found = []
        touched = frozenset(changes.added if changes.new_keys else ())
        for partition in dict.fromkeys(config.metadata_partitions):
            files = partition == FILES
            ids = (file_id(FILES, 0),) if files else known.ids(storage, partition, locked=locked)
            found.append((partition, groups_touched(partition, ids, touched)))
        indexes = [partition for partition, _ in found if partition != FILES]
        definitions = read_definitions(storage, config) if indexes else Definitions()
        native = bool(found) and config.native_logs
        return cls(tuple(found), tuple(map(definitions.get, indexes)), native)

    def __bool__(self) -> bool:
        return bool(self.groups)


def action_rows(
    action: Action, maintained: Maintained
) -> Iterator[tuple[str, str, Content, pa.Table | KeyedRows | ListedRows]]:
    """(partition, file group, content, rows) of every file group that the action touches.

    Raises ``CorruptTable`` for a partition that readers use but that has no files.
    """
    for partition, groups in maintained.groups:
        kind = kind_of(partition)
        by_data = kind == Kind.RECORD_INDEX and is_partitioned(action, groups)
        if not groups and not by_data and partition in action.config.ready_metadata_partitions:
            raise CorruptTable(
                f"hoodie.properties lists the index {partition}, but it has no files; drop it with Hudi",
                path=f"{paths.METADATA}/{partition}",
                table=action.storage.base,
            )
        if (groups or by_data) and kind is not None and kind in _ROWS_OF:
            for group, content, rows in _ROWS_OF[kind](action, partition, groups):
                yield partition, group, content, rows


@dataclass(frozen=True)
class EncodedRows:
    """Rows of some file groups of one partition: those of ``groups[i]`` are ``bounds[i]:bounds[i + 1]``."""

    partition: str
    groups: tuple[str, ...]
    keys: pa.Array
    values: pa.Array
    bounds: tuple[int, ...]

    @property
    def counts(self) -> list[int]:
        """Number of rows of each group."""
        return [high - low for low, high in pairwise(self.bounds)]


def encoded_rows(action: Action, maintained: Maintained, schema: str) -> Iterator[EncodedRows]:
    """``action_rows``, encoded: one file group at a time, or several together if they are small."""
    together: list[tuple[str, KeyedRows]] = []
    waiting = 0  # rows of ``together``
    before: tuple[str, Content] | None = None

    def flushed() -> Iterator[EncodedRows]:
        if together and before is not None:
            groups, found = zip(*together, strict=True)
            bounds = accumulate((rows.num_rows for rows in found), initial=0)
            yield EncodedRows(before[0], groups, *encode_keyed(before[1], found, schema), tuple(bounds))
            together.clear()

    for partition, group, content, rows in action_rows(action, maintained):
        size = waiting + rows.num_rows
        if before != (partition, content) or size > CHUNK_ROWS or not isinstance(rows, KeyedRows):
            yield from flushed()
            waiting = 0
        before = (partition, content)
        if isinstance(rows, KeyedRows):
            together.append((group, rows))
            waiting += rows.num_rows
        else:
            listed = isinstance(rows, ListedRows)
            keys, values = (
                encode_listed(content, rows, schema) if listed else encode(content, rows, schema)
            )
            # All rows of a key of ``files`` are one value: so many rows as there are keys.
            yield EncodedRows(partition, (group,), keys, values, (0, len(keys)))
    yield from flushed()


def by_group(groups: tuple[str, ...], content: Content, rows: pa.Table) -> Iterator[GroupRows]:
    """The rows by file group, which the hash of the whole key determines."""
    numbers = pa.array(file_groups(rows["key"].combine_chunks(), len(groups)))
    for number in sorted(set(numbers.to_pylist())):
        yield groups[number], content, rows.filter(pc.equal(numbers, number))


def few_by_group(groups: tuple[str, ...], content: Content, rows: ListedRows) -> Iterator[GroupRows]:
    """``by_group`` for rows as lists."""
    places: dict[int, list[int]] = {}
    for place, number in enumerate(file_groups(pa.array(rows.columns["key"]), len(groups)).tolist()):
        places.setdefault(number, []).append(place)
    for number in sorted(places):
        yield groups[number], content, rows.take(places[number])


def _files(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    yield groups[0], Content.FILES, files_rows(action.changes.added, action.changes.deleted)


def _column_stats(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    definition = action.definitions.get(COLUMN_STATS)
    columns = [] if definition is None else list(definition.fields)
    version = action.definitions.stats_version(COLUMN_STATS, action.config.version)
    found = [(p, name, ranges) for (p, name), ranges in action.ranges.items()]
    if not action.changes.deleted and sum(len(ranges) for _, _, ranges in found) <= _LISTED:
        yield from few_by_group(groups, Content.STATS, few_stats_rows(found, version=version))
        return
    deleted = action.changes.deleted.items()
    gone = [removed_stats(p, names, columns, version=version) for p, names in deleted]
    rows = pa.concat_tables([stats_rows(found, version=version), *gone])
    yield from by_group(groups, Content.STATS, rows)


def _partition_stats(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    yield from by_group(groups, Content.STATS, partition_stats(action))


def _bloom_filters(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    """Bloom filters from the footers of base files; log files have none."""
    tables = []
    for data_partition, names in action.changes.added.items():
        blooms = ((name, action.bloom(data_partition, name)) for name in names)
        tables.append(bloom_rows_of_files(data_partition, blooms))
    for data_partition, gone in action.changes.deleted.items():
        bases = [name for name in gone if paths.parse_base_name(name) is not None]
        tables.append(removed_blooms(data_partition, bases))
    rows = pa.concat_tables([SCHEMAS[Content.BLOOM].empty_table(), *tables])
    if rows.num_rows:
        yield from by_group(groups, Content.BLOOM, rows)


def _expressions(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    yield from by_group(groups, Content.STATS, expression_stats(action, partition))


#: kind of partition -> function of (action, partition, its file groups) that makes its rows
_ROWS_OF: Mapping[Kind, Callable[[Action, str, tuple[str, ...]], Iterator[GroupRows]]] = {
    Kind.FILES: _files,
    Kind.COLUMN_STATS: _column_stats,
    Kind.PARTITION_STATS: _partition_stats,
    Kind.BLOOM_FILTERS: _bloom_filters,
    Kind.EXPRESSION_INDEX: _expressions,
    Kind.RECORD_INDEX: record_rows,
    Kind.SECONDARY_INDEX: secondary_index_rows,
}
