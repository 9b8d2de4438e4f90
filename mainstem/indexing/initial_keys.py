"""The first entries of a record index or a secondary index: keys sorted by file group, in bounded memory.

Data that was completed at the listing point is read as a snapshot reads it, file group by file group, so that
the index names exactly the visible rows. If a clean removes a file meanwhile, its group was compacted before:
then the group's newest slice is read, including later keys, which their writers add as well. For instants
that a writer left out, the files themselves are read.

**Values that reappear.** Log files are merged in the order of requested times. A write in flight that updates
some columns may have an earlier requested time than a completed write that hides the row or its value, but a
greater ordering value. Once it completes, the row shows again, with a value that this write does not contain.
So if a slice has log files requested after a write in flight, a secondary index takes the contents of each
file. A pending compaction has the same effect: a row behind its plan that the base file's row outranks shows
once the compaction has applied a delete to that. So a slice with log files completed after a plan is taken
the same way.

Pieces run wherever ``Run`` sends them (``initial_rows``), some at a time; what they find is sorted here, in
runs that go to disk. In memory at a time: the keys of as many file groups as ``_AT_ONCE`` and
``_AT_ONCE_BYTES`` of their files allow (one at least), one run, and the entries of one file group of the
index. Where pieces are tasks of an engine, this is its driver's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unavailable
from mainstem.indexing.expected_contents import Contents, DataFile, FileContents, merged_split
from mainstem.indexing.index_spec import IndexSpec
from mainstem.indexing.initial_rows import FilesPiece, InitialRows, Run
from mainstem.indexing.spill import spilled
from mainstem.layout.slicing import FileSlice
from mainstem.limits import MIB
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.derive.bootstrap import (
    Keep,
    Place,
    Sorter,
    check_lengths,
    check_single,
    pair_rows,
    placed_rows,
)
from mainstem.metadata.derive.index_rows import secondary_rows
from mainstem.metadata.metadata_partitions import Content, file_id, in_keys
from mainstem.metadata.records.flat_rows import encode
from mainstem.options import record_index_groups
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.rows.split import Split, read_split
from mainstem.services.progress import Progress
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import COMPACTION, DELTACOMMIT, Instant

# Pieces whose keys are in memory at once, and the bytes of their files.
_AT_ONCE = 64
_AT_ONCE_BYTES = 1024 * MIB
_ATTEMPTS = 5

T = TypeVar("T")
Encoded = tuple[str, pa.Array, pa.Array]
"""A file group of the index, its keys in their order and the values of its rows."""


@contextmanager
def initial_contents(
    state: TableState, spec: IndexSpec, progress: Progress, run: Run
) -> Iterator[InitialRows | InitialKeys]:
    """The initial contents of this index, to be built."""
    if spec.content not in (Content.RECORDS, Content.SECONDARY):
        yield InitialRows(state, spec, progress, run)
        return
    with spilled() as keep:
        yield InitialKeys(state, spec, progress, run, keep)


@dataclass(frozen=True)
class SlicePiece:
    """A file slice, read as a snapshot reads it; ``column``: that of a secondary index."""

    split: Split
    column: str | None


@dataclass
class InitialKeys:
    """``state``: the table at the listing point. Ask for ``of_listing`` first. ``run``: where pieces run;
    ``keep``: where sorted runs are kept."""

    state: TableState
    spec: IndexSpec
    progress: Progress
    run: Run
    keep: Keep
    #: partition of the data (of a partitioned record index, else None) -> its keys
    _sorters: dict[str | None, Sorter] = field(default_factory=dict)
    _numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    _places: list[Place] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many entries were made."""
        return sum(sorter.rows for sorter in self._sorters.values())

    def of_listing(self) -> None:
        """The entries of all rows at the listing point."""
        contents = Contents(self.state).checked()
        slices = [found for here in contents.slices.values() for found in here]
        piece_of = self._pieces(contents)
        for low, some in _portions(slices, lambda found: _bytes(contents.slice_files(found))):
            keys = self.run(keys_of_piece, [piece_of(found) for found in some], self._told(low, len(slices)))
            for found, mine in zip(some, keys, strict=True):
                self._add(found, self._newest(found.partition, found.file_id) if mine is None else mine)

    def and_of(self, instants: Sequence[Instant]) -> None:
        """Add the entries of files that these instants wrote, which completed since."""
        contents = Contents(TableState.load(self.state.storage, self.state.config))
        written = {path for i in instants for path in contents.state.written(i.requested) or ()}
        groups: dict[tuple[str, str], list[DataFile]] = {}
        for path in sorted(written):
            partition, _, name = path.rpartition("/")
            file = contents.files.get(partition, {}).get(name) or DataFile(partition, name, 0)
            if file.holds_rows:
                groups.setdefault((partition, file.file_id), []).append(file)
        pieces = [FilesPiece(self.spec, tuple(files)) for files in groups.values()]
        for low, some in _portions(pieces, lambda piece: _bytes(piece.files)):
            found = self.run(keys_of_piece, some, self._told(low, len(pieces)))
            for piece, mine in zip(some, found, strict=True):
                file = piece.files[0]
                keys = self._newest(file.partition, file.file_id) if mine is None else mine
                self._add(FileSlice(file.partition, file.file_id, instants[0].requested, None, ()), keys)

    def groups(self, schema_text: str) -> Iterator[Encoded]:
        """The index's file groups. Of a partitioned record index empty ones too, whose number says where keys
        are looked for. Raises ``Invalid`` for a key in two file groups."""
        for partition, sorter in sorted(self._sorters.items(), key=lambda item: item[0] or ""):
            for number, keys, numbers in sorter.sorted_groups():
                name = file_id(self.spec.partition, number, partition)
                check_lengths(keys, self.spec.partition)
                if self.spec.content == Content.SECONDARY:
                    yield (name, *encode(Content.SECONDARY, pair_rows(keys), schema_text))
                    continue
                keys, numbers = _each_once(keys, numbers)
                check_single(keys, numbers, self._places)
                yield (name, *encode(Content.RECORDS, placed_rows(keys, numbers, self._places), schema_text))

    # -- pieces --------------------------------------------------------------------------------------

    @property
    def _column(self) -> str | None:
        return self.spec.columns[0] if self.spec.content == Content.SECONDARY else None

    def _pieces(self, contents: Contents) -> Callable[[FileSlice], SlicePiece | FilesPiece]:
        """How the slices of a state are read."""
        split_of = merged_split(contents.state, [*self.spec.columns])
        pending = (i.requested for i in contents.state.timeline.pending if i.action == DELTACOMMIT)
        oldest = min(pending, default="~")
        plans = (i.requested for i in contents.state.timeline.pending if i.action == COMPACTION)
        first_plan = min(plans, default="~")

        def settled(log: paths.LogName) -> bool:
            completion = contents.state.completion(log.instant)
            return log.instant < oldest and completion is not None and completion < first_plan

        def piece(found: FileSlice) -> SlicePiece | FilesPiece:
            logs = filter(None, map(paths.parse_log_name, found.log_files))
            if self._column is None or all(map(settled, logs)):
                return SlicePiece(split_of(found), self._column)
            files = (file for file in contents.slice_files(found) if file.holds_rows)
            return FilesPiece(self.spec, tuple(files))

        return piece

    def _told(self, before: int, total: int) -> Callable[[int], None]:
        return lambda done: self.progress(f"index {self.spec.partition}, file groups", before + done, total)

    def _newest(self, partition: str, file_id: str) -> pa.ChunkedArray:
        """Keys of the newest slice of a group whose older files are gone; none where the group is gone."""
        for _ in range(_ATTEMPTS):
            contents = Contents(TableState.load(self.state.storage, self.state.config))
            slices = [s for s in contents.slices.get(partition, ()) if s.file_id == file_id]
            keys = [keys_of_piece(self.state.storage, piece) for piece in map(self._pieces(contents), slices)]
            there = [k for k in keys if k is not None]
            if len(there) == len(keys):
                return pa.chunked_array([c for k in there for c in k.chunks], pa.string())
        raise Unavailable(
            f"files of the group {file_id} were removed while its keys were read, {_ATTEMPTS} times; try"
            " again",
            table=self.state.storage.base,
        )

    # -- sorting -------------------------------------------------------------------------------------

    def _add(self, found: FileSlice, keys: pa.ChunkedArray) -> None:
        partition = in_keys(found.partition) if self.spec.by_partition is not None else None
        sorter = self._sorters.get(partition)
        if sorter is None:
            if partition is not None:
                for other in self._sorters.values():
                    other.settle()  # slices come partition by partition
            version = self.spec.version if self.spec.content == Content.SECONDARY else None
            sorter = Sorter(self._count(partition), secondary_version=version, keep=self.keep)
            self._sorters[partition] = sorter
        place = (found.partition, found.file_id)
        if place not in self._numbers:
            self._numbers[place] = len(self._places)
            self._places.append(Place(found.partition, found.file_id, found.base_instant))
        sorter.add(keys, self._numbers[place])

    def _count(self, partition: str | None) -> int:
        if partition is None or self.spec.by_partition is None:
            return self.spec.groups
        if partition in self.spec.by_partition:
            return self.spec.by_partition[partition]
        return record_index_groups(self.state.config.raw, partitioned=True)[0]  # as writers make them


def _bytes(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)


def _portions(items: Sequence[T], size: Callable[[T], int]) -> Iterator[tuple[int, Sequence[T]]]:
    """The items in their order, as many at once as may be; with each portion the place where it begins."""
    low = held = 0
    for at, item in enumerate(items):
        mine = size(item)
        if at > low and (at - low == _AT_ONCE or held + mine > _AT_ONCE_BYTES):
            yield low, items[low:at]
            low, held = at, 0
        held += mine
    if len(items) > low:
        yield low, items[low:]


def _each_once(keys: pa.Array, numbers: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Without the repetitions of a key in one place."""
    if len(keys) < 2:
        return keys, numbers
    again = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False) & (numbers[1:] == numbers[:-1])
    kept = np.append(True, ~again)
    return keys.filter(pa.array(kept)), numbers[kept]


def keys_of_piece(storage: Storage, piece: SlicePiece | FilesPiece) -> pa.ChunkedArray | None:
    """Keys of the index for the rows of a piece; None where a file of it is gone."""
    return keys_of_slice(storage, piece) if isinstance(piece, SlicePiece) else keys_of_files(storage, piece)


def keys_of_slice(storage: Storage, piece: SlicePiece) -> pa.ChunkedArray | None:
    """Keys of the index for the rows of a slice; None where a file of it is gone."""
    try:
        found = [_stored(batch, piece.column) for batch in read_split(storage, piece.split)]
    except FileNotFoundError:
        return None
    return pa.chunked_array([chunk for column in found for chunk in column.chunks], pa.string())


def keys_of_files(storage: Storage, piece: FilesPiece) -> pa.ChunkedArray | None:
    """The same for files of one group, as they hold the rows. Rows without the column have no entry: an
    update that did not set it, or a null, which nobody looks for."""
    contents, column = FileContents(storage), next(iter(piece.spec.columns), None)
    wanted = [KEY_COLUMN] if column is None else [KEY_COLUMN, column]
    try:
        batches = [batch for file in piece.files for batch in contents.batches(file, wanted)]
    except FileNotFoundError:
        return None
    found = [_stored(batch, column) for batch in batches if column is None or column in batch.column_names]
    return pa.chunked_array([chunk for part in found for chunk in part.chunks], pa.string())


def _stored(batch: pa.Table, column: str | None) -> pa.ChunkedArray:
    keys = batch.column(KEY_COLUMN)
    if column is None:
        return keys.cast(pa.string())
    return secondary_rows(batch.column(column), keys).column("key")
