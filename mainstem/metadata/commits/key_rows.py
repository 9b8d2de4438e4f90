"""Rows of the record index and of secondary indexes for the record keys that an action adds.

Every record key in a write's data blocks gets a row that names its file group; every row with a value of an
indexed column gets a pair of value and key. Compactions add no keys. Nothing is ever removed: of two
concurrent writers, neither knows which of their rows or deletes will win, and log blocks are merged in the
order of requested times, whatever their completion order. So rows must commute, and these do: a key's file
group is that of its bucket, whichever writer adds it, and a repeated pair is the same pair. An index may name
keys and pairs that are gone, but it never lacks any that exist; look-ups verify the row, and building the
index anew makes it exact.

**What an update leaves out.** Blocks of partial updates hold only the columns that were set. Without the
indexed column they add no pair, since the row keeps the pair that it has. If a whole row lacks the column,
the value is null, as for readers.

**A new partition of the data** has no file groups in a partitioned record index. The commit that adds its
first keys creates them, ``hoodie.metadata.record.level.index.min.filegroup.count`` of the table's properties
(1). Like Java's writers, it gives groups without rows a log file with one empty delete block. The groups are
looked up when the rows are made, and again under the lock before any name is created (``Maintained``). So if
two writers add the partition at once, the second sees the first one's groups and makes its rows for these.
The first may have died between its files and its completion, and a rollback may then remove its groups.
Therefore every writer gives each group without a base file a file of its own, with rows or empty: the number
of groups, by which keys are found, then stays the same whichever writer is rolled back.

Memory: keys and values of one action, and rows of one file group.

Hudi: ``HoodieTableMetadataUtil.convertMetadataToRecordIndexRecords``,
``SecondaryIndexRecordGenerationUtils``, RFC-106.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Unsupported
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.commits.action import Action
from mainstem.metadata.derive.bootstrap import (
    RUN_BYTES,
    Place,
    Sorter,
    check_lengths,
    pair_rows,
    placed_rows,
    sort_keys,
)
from mainstem.metadata.derive.column_ranges import column_at
from mainstem.metadata.derive.index_rows import secondary_rows
from mainstem.metadata.metadata_partitions import (
    RECORD_INDEX,
    Content,
    data_partition_of,
    file_id,
    group_index,
    in_keys,
    is_partitioned_group,
)
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.metadata.records.keyed_rows import KeyedRows
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.options import record_index_groups
from mainstem.storage import paths

#: file group, content of its rows, and the rows; no rows for a group that only must exist
GroupRows = tuple[str, Content, pa.Table | KeyedRows | ListedRows]
#: values and record keys of the same rows
Columns = tuple[pa.ChunkedArray, pa.ChunkedArray]
_A_PAIR = pair_rows(pa.array([""]))


def groups_touched(partition: str, ids: Sequence[str], touched: frozenset[str]) -> tuple[str, ...]:
    """File groups of a metadata table partition whose number decides where the action's rows go.

    ``touched``: data partitions to which it adds keys.
    """
    if partition != RECORD_INDEX:
        return tuple(ids)
    wanted = {in_keys(name) for name in touched}
    return tuple(i for i in ids if not is_partitioned_group(i) or data_partition_of(i) in wanted)


def record_rows(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    """Rows of ``record_index``. ``groups``: its file groups; if it is partitioned, only those of partitions
    to which the action adds keys."""
    if not action.changes.new_keys:
        return
    if is_partitioned(action, groups):
        yield from _partitioned(action, partition)
        return
    places, sorter = _sorted_keys(action, sorted(action.changes.added), len(groups))
    for number, rows in _placed(sorter, places):
        yield groups[number], Content.RECORDS, rows


def is_partitioned(action: Action, groups: Sequence[str]) -> bool:
    """Whether the record index has separate file groups for each partition of the data."""
    told = action.definitions.partitioned_record_index
    return any(map(is_partitioned_group, groups)) or (not groups and bool(told))


def _partitioned(action: Action, partition: str) -> Iterator[GroupRows]:
    folder = f"{paths.METADATA}/{partition}"
    names = action.storage.names(folder)
    begun = paths.partition_metafile(folder).rpartition("/")[2] in names
    if not begun and partition not in action.config.ready_metadata_partitions:
        return  # another process is still building it, from all files completed by the end of the build
    there = {found for found in map(paths.file_id_of, names) if found is not None}
    based = {base.file_id for base in map(paths.parse_hfile_name, names) if base is not None}
    for data_partition in sorted(action.changes.added):
        groups = groups_of_partition(action, data_partition, there)
        places, sorter = _sorted_keys(action, [data_partition], len(groups))
        if not places or not sorter.rows:
            continue
        made = dict(_placed(sorter, places))
        for number, group in enumerate(groups):
            if number in made:
                yield group, Content.RECORDS, made[number]
            elif group not in based:
                yield group, Content.RECORDS, SCHEMAS[Content.RECORDS].empty_table()


def groups_of_partition(action: Action, data_partition: str, there: set[str]) -> list[str]:
    """File groups of a data partition: the existing ones, else as many as a new partition gets."""
    name = in_keys(data_partition)
    mine = [i for i in there if "." not in i and is_partitioned_group(i) and data_partition_of(i) == name]
    least, _ = record_index_groups(action.config.raw, partitioned=True)
    count = max((group_index(i) or 0 for i in mine), default=least - 1) + 1
    return [file_id(RECORD_INDEX, number, name) for number in range(count)]


def _sorted_keys(action: Action, partitions: Sequence[str], groups: int) -> tuple[list[Place], Sorter]:
    """The record keys that the action adds to these partitions; numbers are positions in the places."""
    if action.changes.moved_keys is not None:
        return sort_keys(_moved(action, partitions), groups)
    places: list[Place] = []
    sorter, wanted = Sorter(groups), frozenset(partitions)
    for rows, files in action.new_runs:
        mine = [(place, count) for place, count in files if place[0] in wanted]
        numbers = range(len(places), len(places) + len(mine))
        places += [Place(p, _group_of(name), action.instant) for (p, name), _ in mine]
        if mine:
            keys = _keys(rows.table, files[0][0][1])
            if len(mine) < len(files):
                ours = np.repeat([f[0] in wanted for f, _ in files], [count for _, count in files])
                keys = keys.filter(pa.array(ours))
            sorter.add(keys, np.repeat(numbers, [count for _, count in mine]))
    return places, sorter


def _group_of(name: str) -> str:
    group = paths.file_id_of(name)
    assert group is not None
    return group


def _moved(action: Action, partitions: Sequence[str]) -> Iterator[tuple[Place, list[pa.ChunkedArray]]]:
    """Of a resize, the keys that have another file group than before."""
    moved_keys = action.changes.moved_keys
    assert moved_keys is not None
    for data_partition, name in action.changes.files():
        if data_partition not in partitions:
            continue
        found = []
        for batch in action.batches(data_partition, name, [KEY_COLUMN]):
            keys = _keys(batch, name).cast(pa.string()).combine_chunks()
            keys = keys if isinstance(keys, pa.Array) else pa.concat_arrays(keys.chunks)
            found.append(pa.chunked_array([keys.filter(pa.array(moved_keys(keys, name)))]))
        if any(map(len, found)):
            yield Place(data_partition, _group_of(name), action.instant), found


def _keys(batch: pa.Table, name: str) -> pa.ChunkedArray:
    if KEY_COLUMN not in batch.column_names:
        raise CorruptTable(f"rows without {KEY_COLUMN}, which the table's record index needs", path=name)
    keys = batch.column(KEY_COLUMN)
    if keys.null_count:
        raise CorruptTable(f"{keys.null_count} of {len(keys)} record keys are null", path=name)
    return keys


def _placed(sorter: Sorter, places: list[Place]) -> Iterator[tuple[int, KeyedRows]]:
    """File groups and their rows: each key once, with the last of its places."""
    kinds = placed_rows(pa.array([""] * len(places), pa.string()), np.arange(len(places)), places)
    for keys, numbers, group in sorter.sorted_parts():
        check_lengths(keys, RECORD_INDEX)
        last = np.append(_differs(keys), True)[: len(keys)]
        yield from _cut(KeyedRows(keys, numbers, kinds), group, last)


def _differs(keys: pa.Array) -> np.ndarray:
    """For each key of a sorted array except the last: whether the next one differs."""
    return pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)


def _cut(rows: KeyedRows, group: np.ndarray, kept: np.ndarray) -> Iterator[tuple[int, KeyedRows]]:
    """The kept rows of each file group; rows of one group are neighbours."""
    if not kept.all():
        rows = KeyedRows(rows.keys.filter(pa.array(kept)), rows.which[kept], rows.kinds)
        group = group[kept]
    starts = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist()] if len(group) else []
    numbers = group[starts].tolist()
    for number, low, high in zip(numbers, starts, [*starts[1:], len(group)], strict=True):
        yield number, rows.part(low, high)


def secondary_index_rows(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[GroupRows]:
    """Pairs of value and key for a secondary index; a resize leaves them as they are."""
    if not action.changes.new_keys or action.changes.moved_keys is not None:
        return
    column = secondary_column(action, partition)
    version = action.definitions.secondary_version(partition)
    sorter = Sorter(len(groups), secondary_version=version)
    for values, keys in _joined(_with_values(action, column)):
        sorter.add(_pairs(values, keys, partition).column("key"), 0)
    for keys, _, group in sorter.sorted_parts():
        check_lengths(keys, partition)
        first = np.append(True, _differs(keys))[: len(keys)]
        rows = KeyedRows(keys, np.zeros(len(keys), np.int64), _A_PAIR)
        for number, found in _cut(rows, group, first):
            yield groups[number], Content.SECONDARY, found


def _with_values(action: Action, column: str) -> Iterator[Columns]:
    """Values of the column, with the record keys of their rows, in the order of the files."""
    for rows, files in action.new_runs:
        values = column_at(rows.table, column)
        if values is None and rows.partial:
            continue
        keys = _keys(rows.table, files[0][0][1])
        yield pa.chunked_array([pa.nulls(len(keys), pa.string())]) if values is None else values, keys


def _joined(parts: Iterable[Columns]) -> Iterator[Columns]:
    """Values and keys of neighbours with equal types, joined: each composing of pairs has a fixed cost."""
    waiting: list[Columns] = []
    for values, keys in parts:
        size = values.nbytes + keys.nbytes + sum(v.nbytes + k.nbytes for v, k in waiting)
        alike = waiting and (waiting[0][0].type, waiting[0][1].type) == (values.type, keys.type)
        if waiting and not (alike and size <= RUN_BYTES):
            yield _as_one(waiting)
            waiting = []
        waiting.append((values, keys))
    if waiting:
        yield _as_one(waiting)


def _as_one(parts: list[Columns]) -> Columns:
    values = [chunk for column, _ in parts for chunk in column.chunks]
    keys = [chunk for _, column in parts for chunk in column.chunks]
    return pa.chunked_array(values, parts[0][0].type), pa.chunked_array(keys, parts[0][1].type)


def _pairs(values: pa.ChunkedArray, keys: pa.ChunkedArray, partition: str) -> pa.Table:
    try:
        return secondary_rows(values, keys)
    except Unsupported as error:  # the column was widened
        error.message += f"; cast the values before writing, or drop {partition}; nothing was published"
        raise


def secondary_column(action: Action, partition: str) -> str:
    """The column of a secondary index. Raises ``CorruptTable`` if no definition names one."""
    definition = action.definitions.get(partition)
    if definition is None or len(definition.fields) != 1:
        raise CorruptTable(
            f"hoodie.properties lists the index {partition}, but no definition names its column; drop it",
            path=paths.INDEX_DEFINITIONS,
            table=action.storage.base,
        )
    return definition.fields[0]
