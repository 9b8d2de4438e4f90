"""The metadata table's indexes as one query uses them: they may name too many places, never too few.

An index is used only if the table lists it as ready and no pending index action is still filling it
(``async_index``: Java lists it before it is complete). The metadata table must also know every write of the
view: an unknown write came from a writer that did not maintain it. Column statistics and bloom filters
describe files, which never change, so they also serve time travel. Partition statistics, record index and
secondary indexes describe the newest state; only a view that is not older than the index uses them. After the
last use, the table's properties are read again: a partition of the metadata table is unlisted before it is
deleted, so one that is still listed was whole.

A record index names the file groups of keys, at worst too many; rows are filtered afterwards. Java keeps one
location per key. If a partitioned table allows one key in two partitions, through its buckets or its writers,
one of the two locations is lost, so the index is not used there.

A secondary index holds (value, key) pairs without the partition. If a key is in two partitions with the same
value, Java removes the pair when the value changes in one of them. Mainstem's writers never remove a pair, so
such a table's secondary index is used until another engine writes (``kept_up``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.filters.predicates import Ranges
from mainstem.formats.avro_container import OUR_MARK, decode_container
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.properties import load_config
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.metadata.index_definitions import Definition
from mainstem.metadata.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_PREFIX,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    data_partition_of,
    in_paths,
    is_partitioned_group,
    ready_partitions,
)
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.metafile import read_metafile
from mainstem.metadata.records.row_keys import (
    bloom_keys,
    column_stats_keys,
    partition_stats_keys,
    secondary_keys,
    secondary_prefixes,
    split_secondary,
)
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.skipping.other_engines import stranger_since_built
from mainstem.readers.skipping.stored_ranges import (
    stored_ranges,
    unknown,
    without_merged_floats,
    without_rows,
)
from mainstem.storage import paths
from mainstem.storage.final_files import read_final
from mainstem.timeline.index_records import decode_index_builds, load_index_plan, pending_index_actions
from mainstem.timeline.instant import INDEXING, WRITE_ACTIONS, Instant

File = tuple[str, str]
"""Partition and bare name of a data file."""


class Indexes:
    """The indexes that a view of a table may use; ``notes``: why others are not used."""

    def __init__(self, state: TableState, metadata: MetadataTable, *, newest: bool) -> None:
        self._state = state
        self._metadata = metadata
        self._used: set[str] = set()
        self.notes: list[str] = []
        self._filling = self._pending_builds()
        self._newest = newest and self._knows_every_write()

    @classmethod
    def of(cls, state: TableState, *, newest: bool) -> Indexes | None:
        """None where the table has no metadata table."""
        metadata = state.metadata_table
        return None if metadata is None else cls(state.view, metadata, newest=newest)

    # ---------------------------------------------------------------------------------- what may be asked

    def _pending_builds(self) -> set[str]:
        found: set[str] = set()
        for requested in pending_index_actions(self._state.timeline):
            plan = load_index_plan(self._state.storage, requested)
            if plan is None:  # completed or taken back since
                raise FileNotFoundError(f"the plan of the index action {requested}")
            found.update(build.partition for build in plan)
        return found

    def _knows_every_write(self) -> bool:
        """Whether the metadata table's timeline has every write that completed since it was created."""
        own = self._metadata.timeline
        made = min((i.completion or "" for i in own.completed), default="")
        for instant in self._state.timeline.completed:
            if instant.action not in WRITE_ACTIONS or (instant.completion or "") <= made:
                continue
            known = own.completion_times.get(instant.requested)
            if known is None and self._metadata.archive.completion_time(instant.requested) is None:
                self.notes.append(f"the metadata table does not know instant {instant.requested}")
                return False
        return True

    def _usable(self, partition: str) -> bool:
        if partition not in self._metadata.partitions:
            return False
        if partition in self._filling:
            self.notes.append(f"{partition} is still being built")
            return False
        return True

    def _usable_now(self, partition: str) -> bool:
        """Whether an index that describes only the newest state may be used."""
        if not (self._newest and self._usable(partition)):
            return False
        if partition in self._doubtful:
            self.notes.append(f"{partition} was built beside writers that Java did not wait for")
            return False
        if self._built_since(partition):
            self.notes.append(f"{partition} was built anew after this query began")
            return False
        return True

    def _built_since(self, partition: str) -> bool:
        """Whether an index was built after this view; it lacks rows that were removed in between."""
        instant = read_metafile(self._state.storage, partition).instant
        if instant is None:
            return False  # mainstem writes a metafile for each index that it builds
        done = self._metadata.timeline.completion_times.get(instant, instant)
        return max(instant, done) > self._state.timeline.newest_time

    @cached_property
    def _doubtful(self) -> set[str]:
        """Index partitions built by a Java index action that may have missed writes (Hudi 1.2.0).

        Java's catch-up assumes that writers in flight also wrote to the index, and an action with two
        partitions deletes what it built of the first. Such actions stay on the active timeline.
        """
        found: set[str] = set()
        for action in (i for i in self._state.timeline.completed if i.action == INDEXING):
            path = paths.timeline_file(action.file_name)
            data = read_final(self._state.storage, path, max_bytes=TIMELINE_FILE_BYTES_MAX)
            if OUR_MARK in decode_container(data, path=path)[1]:
                continue
            builds = decode_index_builds(data, path=path)
            if len(builds) > 1 or self._had_writers_beside(action):
                found.update(build.partition for build in builds)
        return found

    def _had_writers_beside(self, action: Instant) -> bool:
        """Whether a write overlapped with an index action in time."""
        done, began = action.completion or "", action.requested
        writes = [(i.requested, i.completion or "") for i in self._state.timeline.completed
                  if i.action in WRITE_ACTIONS]  # fmt: skip
        if not writes or min(writes)[0] > began:  # some writes of that time may be archived
            archived = self._state.archive.completed(began)
            rows = zip(*(column.to_pylist() for column in archived.columns), strict=True)
            writes += [(r, c or r) for r, c, kind in rows if kind in WRITE_ACTIONS]
        return any(requested < done and completion > began for requested, completion in writes)

    def confirm(self) -> None:
        """Call after the last use: ``FileNotFoundError`` if an index that was used is being dropped."""
        if self._used:
            gone = self._used.difference(ready_partitions(load_config(self._state.storage).raw))
            if gone:
                raise FileNotFoundError(f"the index {min(gone)} was dropped")

    # -------------------------------------------------------------------------------------------- ranges

    def has_file_ranges(self, column: str) -> bool:
        """Whether the column's statistics are kept by file."""
        return column in self._columns and self._usable(COLUMN_STATS)

    def has_partition_ranges(self, column: str) -> bool:
        """Whether the column's statistics are kept by partition."""
        if column not in self._columns or COLUMN_STATS in self._doubtful:
            return False  # files may have lost their statistics; the partition's then do not cover them
        return self._usable_now(PARTITION_STATS)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        """Columns that the index definition lists; rows of other columns may be stale leftovers."""
        found = self._metadata.definitions.get(COLUMN_STATS)
        return () if found is None else found.fields

    def file_ranges(self, column: str, kind: pa.DataType, files: Sequence[File]) -> Ranges:
        """Ranges of a column in files. Raises ``CorruptTable``."""
        return self._ranges(COLUMN_STATS, column, kind, files)

    def partition_ranges(self, column: str, kind: pa.DataType, partitions: Sequence[str]) -> Ranges:
        """Ranges of a column in whole partitions, only where every row was counted.

        Java joins the ranges of the files that have one. A file from before the column was indexed has none:
        its rows count only for the record key column, which is always indexed. So the counts must agree.
        """
        if not partitions:
            return unknown(0, kind)
        asked = [column] * len(partitions) + [META_FIELDS[2]] * len(partitions)
        keys = partition_stats_keys(pa.array(asked), pa.array([*partitions, *partitions]))
        self._used.add(PARTITION_STATS)
        rows = self._metadata.lookup(PARTITION_STATS, keys)
        counts = dict(zip(rows["key"].to_pylist(), rows["value_count"].to_pylist(), strict=True))
        mine, of_keys = keys.slice(0, len(partitions)), keys.slice(len(partitions))
        whole = [
            own in counts and counts[own] == counts.get(other)
            for own, other in zip(mine.to_pylist(), of_keys.to_pylist(), strict=True)
        ]
        rows = rows.filter(pc.is_in(rows["key"], value_set=mine.filter(pa.array(whole, pa.bool_()))))
        none = np.zeros(len(partitions), bool)
        found = stored_ranges(rows, mine, kind, logs=none, path=PARTITION_STATS)
        return without_merged_floats(found, rows, mine)

    def _ranges(self, index: str, column: str, kind: pa.DataType, files: Sequence[File]) -> Ranges:
        if not files:
            return unknown(0, kind)
        partitions, names = (pa.array(part, pa.string()) for part in zip(*files, strict=True))
        keys = column_stats_keys(pa.array([column] * len(files)), partitions, names)
        self._used.add(index)
        rows = self._metadata.lookup(index, keys)
        logs = [paths.parse_log_name(name) for _, name in files]
        blocks = np.array([log is not None and not log.is_native for log in logs])
        # Every row has a key: if the key column is indexed, a file that counts no value has no row.
        told = index == COLUMN_STATS and META_FIELDS[2] in self._columns
        found = stored_ranges(rows, keys, kind, logs=blocks, deletes_told=told, path=index)
        return without_rows(found, np.array([log is not None and log.is_deletes for log in logs]))

    # -------------------------------------------------------------------------------------- expressions

    def expressions(self, column: str) -> list[Definition]:
        """Expression indexes on a column that store ranges of the expression's values."""
        return [
            d for name, d in self._metadata.definitions.by_partition.items()
            if name.startswith(EXPRESSION_PREFIX) and d.index_type == COLUMN_STATS and d.fields == (column,)
            and self._usable(name)
        ]  # fmt: skip

    def expression_ranges(self, index: Definition, kind: pa.DataType, files: Sequence[File]) -> Ranges:
        """Ranges of the values of an expression, of type ``kind``, in files."""
        return self._ranges(index.partition, index.fields[0], kind, files)

    # --------------------------------------------------------------------------------------------- keys

    def has_places(self, unique_keys: bool) -> bool:
        """Whether a record index can locate keys. ``unique_keys``: each key is in one partition only."""
        return self._usable_now(RECORD_INDEX) and (self._partitioned or unique_keys)

    @cached_property
    def _partitioned(self) -> bool:
        return any(is_partitioned_group(g.file_id) for g in self._metadata.groups(RECORD_INDEX))

    def unindexed(self, partitions: Iterable[str]) -> set[str]:
        """Partitions for which a partitioned record index has no file group, so it cannot rule them out. The
        same holds for a Java file group with a dot in its id: no reader recognises its log files."""
        if not self._partitioned:
            return set()
        known = [group.file_id for group in self._metadata.groups(RECORD_INDEX)]
        short = {data_partition_of(name) for name in known if "." in name}
        return set(partitions) - ({data_partition_of(name) for name in known} - short)

    def places(self, keys: pa.Array, partitions: Sequence[str]) -> set[tuple[str, str]]:
        """(partition, file id) of the file groups that may hold these keys, among ``partitions``."""
        self._used.add(RECORD_INDEX)
        if self._partitioned:
            found = [self._metadata.lookup(RECORD_INDEX, keys, data_partition=p) for p in partitions]
        else:
            found = [self._metadata.lookup(RECORD_INDEX, keys)]
        rows = pa.concat_tables(found) if found else None
        if rows is None:
            return set()
        pairs = zip(rows["partition"].to_pylist(), rows["file_id"].to_pylist(), strict=True)
        return {(in_paths(partition or ""), file_id) for partition, file_id in pairs}

    def places_of_each(self, keys: pa.Array, partitions: Sequence[str]) -> list[tuple[str, str]] | None:
        """As ``places``, in order; None where no record index may be asked."""
        if not self._usable_now(RECORD_INDEX):
            return None
        return sorted(self.places(keys, partitions))

    def secondaries(self) -> list[Definition]:
        """The secondary indexes that may be asked, by name."""
        return [
            d for name, d in sorted(self._metadata.definitions.by_partition.items())
            if name.startswith(SECONDARY_PREFIX) and len(d.fields) == 1 and self._usable_now(name)
        ]  # fmt: skip

    def has_secondary(self, index: str, value: pa.Array, keys: pa.Array) -> bool:
        """Whether a secondary index has one of these keys under a value, its text as Java prints it."""
        self._used.add(index)
        entries = secondary_keys(pa.concat_arrays([value] * len(keys)), keys)
        return self._metadata.lookup(index, entries).num_rows > 0

    def secondary(self, column: str) -> Definition | None:
        """A secondary index on the column; None if none may be used."""
        return next(
            (
                d for name, d in self._metadata.definitions.by_partition.items()
                if name.startswith(SECONDARY_PREFIX) and d.fields == (column,) and self._usable_now(name)
            ),
            None,
        )  # fmt: skip

    def kept_up(self, partition: str) -> bool:
        """Whether a bucketed table's index of keys can be trusted: only mainstem's writers wrote since it was
        built."""
        stranger = stranger_since_built(self._state, partition)
        if stranger is not None:
            self.notes.append(
                f"{partition} is not asked: {stranger} was written by another engine, which does not keep it"
                " up beside writers of buckets; build it anew (reindex)"
            )
        return stranger is None

    def keys_of(self, index: Definition, values: pa.Array) -> pa.Array:
        """Record keys of the rows with one of these values (texts as Java prints them, no nulls)."""
        self._used.add(index.partition)
        rows = self._metadata.prefixes(index.partition, secondary_prefixes(values))
        keys = rows["key"].combine_chunks() if rows.num_rows else pa.array([], pa.string())
        return split_secondary(keys, path=index.partition)[1]

    # ------------------------------------------------------------------------------------------- blooms

    def has_blooms(self) -> bool:
        """Whether bloom filters of base files are indexed."""
        return self._usable(BLOOM_FILTERS)

    def blooms(self, files: Sequence[File]) -> dict[File, bytes]:
        """Stored bloom filters of base files; files without one are left out."""
        partitions, names = (pa.array(part, pa.string()) for part in zip(*files, strict=True))
        keys = bloom_keys(partitions, names)
        self._used.add(BLOOM_FILTERS)
        rows = self._metadata.lookup(BLOOM_FILTERS, keys)
        stored = dict(zip(rows["key"].to_pylist(), rows["bloom"].to_pylist(), strict=True))
        return {f: stored[k] for f, k in zip(files, keys.to_pylist(), strict=True) if stored.get(k)}
