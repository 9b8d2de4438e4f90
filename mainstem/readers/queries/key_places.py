"""Finds the file group of record keys on a table without buckets, as Hudi's ``HoodieIndex.tagLocation`` does.

A global or partitioned record index tells it. Otherwise the files do: the keys of each slice's base file and
of its log blocks, deletes included, since a key that was deleted in a file group still belongs there: what
comes late for it must meet the delete. Java's SIMPLE and BLOOM look into base files only, which is the same
where log files hold no new keys; here they may (Flink puts some there).

Keys of base files, which never change, are kept in memory up to a bound.

One look (``KeyPlaces``) goes by the instants that were completed when it began. Whoever publishes by it must
look at what completed since (``writers.keys_placed_meanwhile``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Unavailable
from mainstem.forks import Mutex
from mainstem.layout.key_index import GroupOfKey, KeyIndex
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.slicing import query_slice
from mainstem.limits import MIB
from mainstem.merge.log_entries import joined_keys
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.metadata_partitions import (
    BLOOM_FILTERS,
    RECORD_INDEX,
    in_keys,
    is_partitioned_group,
    ready_partitions,
)
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.recent_rows import RecentRows
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.key_contest import contest, contest_spec
from mainstem.readers.queries.key_sieve import KEYS_MIN, KeySieve
from mainstem.readers.queries.snapshot import make_split, read_spec
from mainstem.readers.rows.base_rows import open_base
from mainstem.readers.rows.split import ReadSpec, Split, log_entries, read_split
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import CLUSTERING

_Found = TypeVar("_Found")
_KEPT_BYTES_MAX = 64 * MIB
_LOOKS_MAX = 10
# Stored keys that are compared at once; and so many that hashing them costs less than hashing what is asked.
_RUN_BYTES = 128 * MIB
_FEW = 10_000
# Of so many file groups, the newest ones, the smallest one is filled up: each costs a look at its base file.
_LOOKED_AT_MAX = 16


class StoredKeys:
    """Record keys of data files; those of base files are kept for the next look. Threads may share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, pa.ChunkedArray] = OrderedDict()
        self._bytes = 0
        self._mutex = Mutex()

    def of_split(self, storage: Storage, split: Split) -> Iterator[pa.Array]:
        """Keys of the base file and of the log files, deleted ones included, with repetitions."""
        if split.base_file is not None:
            yield from self._of_base(storage, split.base_file).chunks
        if split.log_files:
            yield joined_keys(log_entries(storage, split)).cast(pa.string())

    def _of_base(self, storage: Storage, path: str) -> pa.ChunkedArray:
        with self._mutex.held:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found
        with open_base(storage, path, final=True) as base:
            columns = [table.column(KEY_COLUMN).cast(pa.string()) for table in base.batches([KEY_COLUMN])]
        found = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
        if found.nbytes <= _KEPT_BYTES_MAX:
            with self._mutex.held:
                self._keep(path, found)
        return found

    def _keep(self, path: str, keys: pa.ChunkedArray) -> None:
        if path in self._kept:
            return
        self._kept[path] = keys
        self._bytes += keys.nbytes
        while self._bytes > _KEPT_BYTES_MAX:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes


class KeyPlaces:
    """One look at where keys live; ``seen``: requested times of the instants that it goes by.

    ``small_bytes``: a file group below that is filled up, 0: none is; a byte of its log files counts
    ``log_ratio``. ``alone``: whether only mainstem writes the table. ``elsewhere``: who reads many file
    groups. ``recent``: what this writer wrote to the metadata table lately.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        index: KeyIndex,
        stored: StoredKeys,
        small_bytes: int = 0,
        log_ratio: float = 1.0,
        alone: Callable[[], bool] = lambda: False,
        elsewhere: Elsewhere | None = None,
        recent: RecentRows | None = None,
    ) -> None:
        self._storage, self._config, self._stored = storage, config, stored
        self._small_bytes, self._log_ratio, self._alone = small_bytes, log_ratio, alone
        self._elsewhere, self._recent = elsewhere, recent
        self.index = index
        #: later keys were looked for in a later state than earlier ones
        self.looked_again = False
        self.look(first=True)

    def look(self, *, first: bool = False) -> None:
        """Go by what is completed now. ``seen`` stays, as earlier keys were looked for by it, unless this is
        the ``first`` look that counts."""
        self._state = TableState.load(self._storage, self._config)
        self._replaced = self._state.replaced(None)
        self._spec: ReadSpec | None = None
        self._values: ReadSpec | None = None
        self._splits: dict[str, list[Split]] = {}
        if first:
            self.seen = frozenset(i.requested for i in self._state.timeline.completed)

    def find(self, partition: str | None, keys: pa.Array) -> tuple[np.ndarray, list[GroupOfKey]]:
        """For each of these distinct keys the number of its place in the list, or -1 where it lies nowhere.

        ``partition``: where to look; None: in the whole table. Raises ``CorruptTable`` for damaged files,
        ``Unavailable`` if services removed files faster than they were read.
        """
        return self._patiently(lambda: self._find(partition, keys))

    def contest(self, place: GroupOfKey, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """For rows with Hudi's columns, of distinct keys and one instant: masks of those whose key has a row
        in this file group, and of those that would win against it as the last ones.

        Raises as ``find`` does.
        """
        return self._patiently(lambda: self._contest(place, rows))

    def _patiently(self, work: Callable[[], _Found]) -> _Found:
        for _ in range(_LOOKS_MAX):
            try:
                return work()
            except FileNotFoundError:
                self.look()  # a clean came
            except CorruptTable:
                if not self._has_other_indexes():
                    raise
            self.looked_again = True
        raise Unavailable(
            f"files vanished {_LOOKS_MAX} times while record keys were looked for: clean less often, or keep"
            " more versions",
            table=self._storage.base,
        )

    def _has_other_indexes(self) -> bool:
        """Whether indexes were dropped or built anew, or the metadata table's files cleaned, since the look;
        goes by what there is now."""
        before = self._indexes()
        self._config = load_config(self._storage)
        self.look()
        return self._indexes() != before

    def _indexes(self) -> tuple[object, object]:
        try:
            table = self._state.metadata_table
        except (CorruptTable, FileNotFoundError):
            table = None
        return ready_partitions(self._config.raw), None if table is None else table.timeline.names

    def groups_before(self, partitions: Sequence[str] | None, instant: str) -> list[GroupOfKey]:
        """File groups of these partitions (None: of all) with files of instants that completed before this
        one was requested. Those that were replaced are left out."""
        listed = [(p, tuple(self._storage.names(p))) for p in partitions or ()]
        if partitions is None:
            listed = [(listing.partition, listing.names) for listing in self._state.partitions()]
        found: set[GroupOfKey] = set()
        for partition, names in listed:
            parsed = (paths.parse_log_name(name) or paths.parse_base_name(name) for name in names)
            for one in parsed:
                if one is None or (place := (partition, one.file_id)) in found or place in self._replaced:
                    continue
                completion = self._state.completion(one.instant)
                if completion is not None and completion < instant:
                    found.add(place)
        return sorted(found)

    def to_fill(self, partition: str, room: int, *, alone: bool) -> GroupOfKey | None:
        """A file group of at most ``room`` bytes that takes new keys in log files; None: put them into a new
        one. ``alone``: whether it may be one of a table that only mainstem writes, without a record index.

        Only where the record index tells where keys live, or only mainstem writes: Java looks into base files
        otherwise, and so would double the keys. It writes small base files anew instead
        (``UpsertPartitioner``), and ends every other writer of their file groups. Ours would go on, and
        Java's views leave out what is appended behind a base file that is not completed yet
        (``HoodieFileGroup``).
        """
        if not self._small_bytes:
            return None
        indexed = self._record_index(None if self.index.is_global else partition) is not None
        if not indexed and not (alone and self._alone()):
            return None
        if BLOOM_FILTERS in ready_partitions(self._config.raw):
            return None  # Java's queries leave out file groups by it whose base file lacks a key
        if any(i.action == CLUSTERING for i in self._state.timeline.pending):
            return None  # it may replace that file group
        sizes = []
        based = [split for split in self._slices_in(partition, None) if split.base_file is not None]
        for split in sorted(based, key=_made, reverse=True)[:_LOOKED_AT_MAX]:
            if (found := self._storage.stat(split.base_file or "")) is not None:
                sizes.append((found.size, split.file_id, split))
        for base_bytes, file_id, split in sorted(sizes, key=lambda size: size[:2]):
            if self._has_room(base_bytes, split, min(self._small_bytes - 1, room)):
                return partition, file_id
        return None

    def _has_room(self, size: float, split: Split, most: int) -> bool:
        """Whether a base file of this size has with its log files at most so many bytes."""
        for path in split.log_files:
            if size > most:
                break
            found = self._storage.stat(path)
            size += 0 if found is None else found.size * self._log_ratio
        return size <= most

    def indexed(self, partition: str, keys: pa.Array) -> set[GroupOfKey]:
        """File groups that the record index names for these keys of a partition, replaced or not; none
        without it. Raises as ``find`` does."""
        return self._patiently(lambda: self._indexed(partition, keys))

    def _indexed(self, partition: str, keys: pa.Array) -> set[GroupOfKey]:
        table = self._metadata_table()
        if RECORD_INDEX not in ready_partitions(self._config.raw) or table is None:
            return set()
        of = in_keys(partition) if _is_split(table) else None
        found = table.lookup(RECORD_INDEX, keys, data_partition=of).select(["partition", "file_id"])
        once = found.group_by(found.column_names).aggregate([]).to_pylist()
        return {(one["partition"], one["file_id"]) for one in once}

    def keys_of(self, partition: str, path: str) -> Iterator[pa.Array]:
        """All keys of one data file. Raises ``FileNotFoundError`` if it is gone."""
        yield from self._stored.of_split(self._storage, _of_file(partition, path, self._keys_only()))

    def _find(self, partition: str | None, keys: pa.Array) -> tuple[np.ndarray, list[GroupOfKey]]:
        told = self._record_index(partition)
        if told is not None:
            return self._told(told, partition, keys)
        codes, places = np.full(len(keys), -1, np.int64), list[GroupOfKey]()
        for split, met in self._met(self._slices(partition), keys):
            before = codes[met] >= 0
            if before.any():  # only one of them can hold a row that is not deleted
                alive = np.ones(len(met), bool)
                alive[before] = self._alive(split, keys.take(pa.array(met[before])))
                met = met[alive]
            codes[met] = len(places)
            places.append((split.partition, split.file_id))
        return codes, places

    def _met(self, splits: Iterable[Split], keys: pa.Array) -> Iterator[tuple[Split, np.ndarray]]:
        """Each file slice that has some of the keys, with their numbers."""
        splits = splits if self._elsewhere is None else list(splits)
        told = None if self._elsewhere is None else self._elsewhere(list(splits), keys)
        if told is None:
            yield from _met_in_runs(self._storage, self._stored, splits, keys)
            return
        for split, met in zip(splits, told, strict=True):
            if met is None:
                raise FileNotFoundError(split.base_file or split.file_id)
            yield split, met

    def _record_index(self, partition: str | None) -> MetadataTable | None:
        """The metadata table, if its record index can be asked. Like Java, look into the files otherwise."""
        if not self.index.of_records or RECORD_INDEX not in ready_partitions(self._config.raw):
            return None
        table = self._metadata_table()
        assert table is not None, "the record index is ready"
        return None if partition is None and _is_split(table) else table

    def _metadata_table(self) -> MetadataTable | None:
        """It knows what this writer wrote, and need not read it."""
        table = self._state.metadata_table
        return table if table is None or self._recent is None else replace(table, recent=self._recent)

    def _told(
        self, table: MetadataTable, partition: str | None, keys: pa.Array
    ) -> tuple[np.ndarray, list[GroupOfKey]]:
        of = in_keys(partition) if partition is not None and _is_split(table) else None
        found = table.lookup(RECORD_INDEX, keys, data_partition=of)
        texts = found.column("partition"), found.column("file_id")
        told = pc.binary_join_element_wise(*texts, "\0").combine_chunks().dictionary_encode()
        parts = (text.partition("\0") for text in told.dictionary.to_pylist())
        places = [(home, file_id) for home, _, file_id in parts]
        lives = [p not in self._replaced and partition in (None, p[0]) for p in places]
        numbers = np.where(lives, np.arange(len(places)), -1)
        codes = np.full(len(keys), -1, np.int64)
        codes[pc.index_in(found.column("key"), value_set=keys).to_numpy()] = numbers[told.indices.to_numpy()]
        return codes, places

    def _slices(self, partition: str | None) -> Iterator[Split]:
        if partition is None:
            for listing in self._state.partitions():
                yield from self._slices_in(listing.partition, listing.names)
        else:
            yield from self._slices_in(partition, None)

    def _slices_in(self, partition: str, names: tuple[str, ...] | None) -> list[Split]:
        found = self._splits.get(partition)
        if found is None:
            listed = self._storage.names(partition) if names is None else names
            groups = self._state.group(partition, listed)
            picked = (query_slice(g, None) for g in groups if (partition, g.file_id) not in self._replaced)
            spec = self._keys_only()
            found = [make_split(one, spec, self._config) for one in picked if one is not None]
            self._splits[partition] = found
        return found

    def _keys_only(self) -> ReadSpec:
        if self._spec is None:
            self._spec = _keys_only(self._state)
        return self._spec

    def _contest(self, place: GroupOfKey, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        if self._values is None:
            self._values = contest_spec(self._state)
        split = next((s for s in self._slices_in(place[0], None) if s.file_id == place[1]), None)
        keys = rows.column(KEY_COLUMN).combine_chunks()
        there, won = contest(self._storage, split, self._values, rows)
        return _among(keys, there), _among(keys, won)

    def _alive(self, split: Split, keys: pa.Array) -> np.ndarray:
        """Mask of the keys that have a row in this slice."""
        alive = np.zeros(len(keys), bool)
        for table in read_split(self._storage, split):
            alive |= _among(keys, table.column(KEY_COLUMN))
        return alive


class Elsewhere(Protocol):
    """Looks into many file groups by the tasks of an engine."""

    def __call__(self, splits: Sequence[Split], keys: pa.Array) -> list[np.ndarray | None] | None:
        """For each file slice the numbers of the keys that it has, None where a file is gone; None at all:
        look here."""
        ...


def met_keys(storage: Storage, split: Split, keys: pa.Array) -> np.ndarray:
    """Numbers of the keys that a file slice has, deleted ones included: for tasks."""
    found = list(_met_in_runs(storage, StoredKeys(), [split], keys))
    return found[0][1] if found else np.zeros(0, np.int64)


def _met_in_runs(
    storage: Storage, stored: StoredKeys, splits: Iterable[Split], keys: pa.Array
) -> Iterator[tuple[Split, np.ndarray]]:
    """Each file slice that has some of the keys, with their numbers, each once.

    The keys of several file slices are compared at once, up to ``_RUN_BYTES``: each comparison makes a hash
    table of all keys that are looked for.
    """
    run: list[Split] = []
    chunks: list[pa.Array] = []
    ends: list[int] = []
    rows = size = 0
    sieve = KeySieve(keys) if len(keys) >= KEYS_MIN and keys.type == pa.string() else None
    for split in splits:
        for some in stored.of_split(storage, split):
            if sieve is not None:
                some = sieve.through(some)
            chunks.append(some)
            rows += len(some)
            size += some.nbytes
        run.append(split)
        ends.append(rows)
        if size >= _RUN_BYTES:
            yield from _met_in_run(run, ends, chunks, keys)
            run, chunks, ends, rows, size = [], [], [], 0, 0
    yield from _met_in_run(run, ends, chunks, keys)


def _met_in_run(
    run: list[Split], ends: list[int], chunks: list[pa.Array], keys: pa.Array
) -> Iterator[tuple[Split, np.ndarray]]:
    places, met = _positions(pa.chunked_array(chunks, pa.string()), keys)
    bounds = np.searchsorted(places, [0, *ends])
    for split, low, high in zip(run, bounds[:-1], bounds[1:], strict=True):
        if low < high:
            yield split, np.unique(met[low:high])


def _positions(stored: pa.ChunkedArray, keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where in ``stored`` one of the keys stands, in order, and the number of that key."""
    if len(stored) < _FEW and len(stored) < len(keys):  # hash the smaller side
        keys_there = np.flatnonzero(_among(keys, stored))
        found = pc.index_in(stored, value_set=keys.take(pa.array(keys_there)))
        numbers = pc.fill_null(found, -1).to_numpy()
        places = np.flatnonzero(numbers >= 0)
        return places, keys_there[numbers[places]]
    numbers = pc.fill_null(pc.index_in(stored, value_set=keys), -1).to_numpy()
    places = np.flatnonzero(numbers >= 0)
    return places, numbers[places].astype(np.int64)


def keys_in_files(state: TableState, partition: str, files: Iterable[str]) -> Iterator[pa.Array]:
    """All keys of data files, deleted ones included. Raises ``FileNotFoundError`` for one that is gone."""
    stored, spec = StoredKeys(), _keys_only(state)
    for path in files:
        yield from stored.of_split(state.storage, _of_file(partition, path, spec))


def _keys_only(state: TableState) -> ReadSpec:
    return read_spec(state, [KEY_COLUMN], None, None, "error")


def _of_file(partition: str, path: str, spec: ReadSpec) -> Split:
    is_base = paths.parse_base_name(path.rpartition("/")[2]) is not None
    return Split(partition, "", path if is_base else None, () if is_base else (path,), spec)


def _made(split: Split) -> str:
    """When the base file of a slice was made."""
    name = paths.parse_base_name((split.base_file or "").rpartition("/")[2])
    return "" if name is None else name.instant


def _is_split(table: MetadataTable) -> bool:
    return any(is_partitioned_group(group.file_id) for group in table.groups(RECORD_INDEX))


def _among(keys: pa.Array, stored: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Mask of the keys that occur in ``stored``; hashes the smaller side."""
    if len(stored) <= len(keys):
        return pc.is_in(keys, value_set=stored).to_numpy(zero_copy_only=False)
    at = pc.index_in(stored, value_set=keys).drop_null().to_numpy()
    mask = np.zeros(len(keys), bool)
    mask[at] = True
    return mask
