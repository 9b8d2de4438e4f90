"""Builds a whole index from the data, in bounded memory: sorts rows into a metadata partition's file groups.

Keys arrive slice by slice, in any order. They are gathered into runs of ``RUN_BYTES``. Each run is cut by
file group and passed to ``keep``, which may put the pieces on disk. At the end, the pieces of one file group
after another are joined from all runs, sorted and encoded. Memory holds one run and one file group at a time;
without ``keep`` it holds all keys.

A key's place (partition, file id, instant) is stored as one number beside it: places are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.hfile_entries import ROW_BYTES_MAX
from mainstem.limits import MIB
from mainstem.metadata.derive.index_rows import id_encoding, instant_ms
from mainstem.metadata.metadata_partitions import Content, in_keys
from mainstem.metadata.records.flat_rows import SCHEMAS, encode
from mainstem.metadata.records.key_order import key_order
from mainstem.metadata.records.row_keys import file_groups

RUN_BYTES = 64 * MIB
# A key has at most 32 KiB and an array of strings 2 GiB, so this many always fit.
_ROWS_AT_ONCE = 16_384
Keep = Callable[[Sequence[pa.RecordBatch]], Callable[[int], pa.RecordBatch]]
"""Stores the pieces of a run, one per file group; returns a function from their number to the piece."""

Group = tuple[int, pa.Array, pa.Array]
"""A file group's number, its keys sorted by bytes, and its rows' values, as ``write_hfile`` takes them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where rows are stored; ``partition`` is "" in a non-partitioned table."""

    partition: str
    file_id: str
    instant: str


@dataclass
class Sorter:
    """Sorts keys, each with a number, into ``groups`` file groups.

    ``secondary_version``: the version in a secondary index's definition; keys of V2 are hashed differently.
    """

    groups: int
    secondary_version: str | None = None
    keep: Keep | None = None
    run_bytes: int = RUN_BYTES
    #: number of keys added
    rows: int = 0
    _waiting: list[tuple[list[pa.Array], int | np.ndarray]] = field(default_factory=list)
    _waiting_bytes: int = 0
    _runs: list[tuple[Callable[[int], pa.RecordBatch], np.ndarray]] = field(default_factory=list)

    def add(self, keys: pa.Array | pa.ChunkedArray, number: int | np.ndarray) -> None:
        """Add keys (strings without nulls), all with this number, or each with its own."""
        self.rows += len(keys)
        for low in range(0, len(keys), _ROWS_AT_ONCE):
            some = keys.slice(low, _ROWS_AT_ONCE).cast(pa.string())
            mine = number if isinstance(number, int) else number[low : low + _ROWS_AT_ONCE]
            self._waiting.append((some.chunks if isinstance(some, pa.ChunkedArray) else [some], mine))
            self._waiting_bytes += some.nbytes + 4 * len(some)
            if self._waiting_bytes >= self.run_bytes:
                self._close_run()

    def _taken(self) -> tuple[pa.Array, np.ndarray]:
        """Take the waiting keys and their numbers."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        chunks = [chunk for chunks, _ in waiting for chunk in chunks]
        numbers = np.empty(sum(map(len, chunks)), np.int32)
        at = 0
        for some, number in waiting:
            size = sum(map(len, some))
            numbers[at : at + size] = number
            at += size
        return _whole(pa.chunked_array(chunks, pa.string())), numbers

    def settle(self) -> None:
        """Move waiting keys to where runs are kept, since no more will come for a while."""
        self._close_run()

    def _close_run(self) -> None:
        if not self._waiting:
            return
        keys, numbers = self._taken()
        group = file_groups(keys, self.groups, self.secondary_version)
        starts = np.zeros(self.groups + 1, np.int64)
        np.cumsum(np.bincount(group, minlength=self.groups), out=starts[1:])
        order = np.argsort(group, kind="stable")
        run = pa.record_batch([keys.take(pa.array(order)), pa.array(numbers[order])], ["key", "number"])
        sizes = np.diff(starts)
        pieces = [run.slice(low, size) for low, size in zip(starts[:-1], sizes, strict=True)]
        self._runs.append((pieces.__getitem__ if self.keep is None else self.keep(pieces), sizes))

    def sorted_parts(self) -> Iterator[tuple[pa.Array, np.ndarray, np.ndarray]]:
        """Keys, their numbers, and their file groups. Keys come by file group, in each sorted by unsigned
        bytes.

        One part if there is less than a run in all, else one per file group.
        """
        if self._runs:
            for group, keys, numbers in self.sorted_groups():
                yield keys, numbers, np.full(len(keys), group, np.int64)
        elif self._waiting:
            keys, numbers = self._taken()
            order = key_order(keys)
            group = file_groups(keys, self.groups, self.secondary_version)
            small = group.astype(np.min_scalar_type(self.groups))  # small integers get a radix sort
            order = order[np.argsort(small[order], kind="stable")]
            yield keys.take(pa.array(order)), numbers[order], group[order]

    def sorted_groups(self) -> Iterator[tuple[int, pa.Array, np.ndarray]]:
        """For every group, even an empty one: its number, its keys by unsigned bytes, their numbers."""
        self._close_run()
        for group in range(self.groups):
            pieces = [piece(group) for piece, sizes in self._runs if sizes[group]]
            if not pieces:
                yield group, pa.array([], pa.string()), np.zeros(0, np.int32)
                continue
            table = pa.Table.from_batches(pieces).combine_chunks()
            keys = _whole(table.column("key"))
            order = pc.sort_indices(keys.cast(pa.binary()))
            yield group, keys.take(order), table.column("number").take(order).to_numpy()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def sort_keys(
    slices: Iterable[tuple[Place, Iterable[pa.Array | pa.ChunkedArray]]],
    groups: int,
    *,
    keep: Keep | None = None,
) -> tuple[list[Place], Sorter]:
    """Sort the slices' record keys by file group; numbers are positions in the returned list of places."""
    places: list[Place] = []
    sorter = Sorter(groups, keep=keep)
    for place, batches in slices:
        places.append(place)
        for keys in batches:
            sorter.add(keys, len(places) - 1)
    return places, sorter


def check_single(keys: pa.Array, numbers: np.ndarray, places: list[Place]) -> None:
    """Raise ``Invalid``, naming both places, if a key occurs twice in a sorted array."""
    if len(keys) < 2:
        return
    same = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    if not same.any():
        return
    at = int(np.flatnonzero(same)[0])
    first, second = places[numbers[at]], places[numbers[at + 1]]
    raise Invalid(
        f"the record key {keys[at].as_py()!r:.100} lies in partition {in_keys(first.partition)!r}, file group"
        f" {first.file_id}, and in {in_keys(second.partition)!r}, {second.file_id}: a global record index"
        " holds one place per key; build a partitioned one"
    )


def placed_rows(keys: pa.Array, numbers: np.ndarray, places: list[Place]) -> pa.Table:
    """Rows of ``record_index``: each key with its place."""
    rows = _row_of_each(tuple(places)).take(pa.array(numbers))
    return rows.set_column(0, SCHEMAS[Content.RECORDS].field(0), keys)


@lru_cache(maxsize=4)  # all file groups of an index share its places
def _row_of_each(places: tuple[Place, ...]) -> pa.Table:
    rows = len(places)
    columns = [
        pa.array([""] * rows, pa.string()),
        pa.array([place.partition for place in places], pa.string()),
        pa.array([place.file_id for place in places], pa.string()),
        pa.array([instant_ms(place.instant) for place in places], pa.int64()),
        pa.array([id_encoding(place.file_id) for place in places], pa.int32()),
        pa.nulls(rows, pa.int64()),
    ]
    return pa.table(columns, SCHEMAS[Content.RECORDS])


def check_lengths(keys: pa.Array, partition: str) -> None:
    """Raise ``Invalid``, naming the index, for a key too long for an HFile."""
    longest = pc.max(pc.binary_length(keys)).as_py() or 0
    if longest > ROW_BYTES_MAX:
        raise Invalid(
            f"a key of {longest:,} bytes for {partition}, whose keys have {ROW_BYTES_MAX:,} bytes at most;"
            " write the row without it, or drop the index"
        )


def pair_rows(keys: pa.Array) -> pa.Table:
    """Rows of a secondary index, one per distinct key: if record keys are unique only within partitions, the
    same pair may occur in several."""
    keys = pc.unique(keys)
    return pa.table([keys, pa.array(np.zeros(len(keys), bool))], SCHEMAS[Content.SECONDARY])


def table_groups(content: Content, rows: pa.Table, groups: int, *, schema_text: str) -> Iterator[Group]:
    """Rows of ``files``, statistics or bloom filters by file group; they must fit into memory."""
    group = file_groups(_whole(rows.column("key")), groups)
    for number in range(groups):
        mine = rows.filter(pa.array(group == number))
        yield (number, *encode(content, mine, schema_text))
