"""Appends rows on a table without buckets: each goes to the file group where its key lives.

Before rows are written, an index tells where their keys live (``KeyPlaces``). Rows of known keys are
appended to log files of their file groups, as ever. Rows of keys that lie nowhere yet are held until
``finish``, merged by the table's rules and written as base files of new file groups, as Java's writers of
such tables expect it: they look for keys in base files only. Where a record index tells them, or no other
engine writes, small file groups are filled up first, by log files of new keys alone.

Another writer may place such a key first. The commit finds that (``keys_placed_meanwhile``), and ``give_way``
moves the rows to where the key lives now: they are taken out of the new base file, which nobody has seen, and
appended to the other writer's file group. A delete of a key that lies nowhere is held as well, for the same
reason. Where a put may take effect late, a file that was put and deleted may come back, and would belong to a
completed instant: there, once the file is put, the transaction ends as ``KeyTaken``, and is written again.

A clustering may replace a file group that rows were appended to (``keys_placed_meanwhile`` finds that, too).
Then ``place_again`` goes by a new look at where keys live: the transaction's files go, which nobody has seen,
and all its rows are placed anew, in their order. Rows of keys that the clustering left out as deleted become
new ones. So it is if a known key was deleted, left its file group by a compaction, and was inserted into
another one.

Where keys are made up (``made_up_keys``), rows that are inserted are looked for nowhere, neither before they
are written nor at the commit.

Memory: the rows of new keys, until the commit, the batches up to ``_KEPT_BYTES_MAX``, and the known keys,
compressed. Where there were more batches, ``place_again`` ends as ``KeyTaken``.

``KeyTaken`` ends the instant, not the user's transaction: its rows are handed over to a later one
(``placed_anew``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, RolledBack, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.schema_resolution import project_to
from mainstem.formats.vectors import taken
from mainstem.layout.key_index import GroupOfKey, KeyIndex
from mainstem.layout.keys import KeyColumns
from mainstem.limits import MIB
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import NewKeysStat, WriteStat
from mainstem.truetime.seams import Randomness
from mainstem.writers.append import BucketAppender
from mainstem.writers.bulk_insert import BaseFileStat, BulkInserter
from mainstem.writers.encode_rows import BucketEncoder, Keyed, Place, Placed, Slab
from mainstem.writers.file_sizes import room_for, rows_per_file
from mainstem.writers.fit_rows import marked, with_marks, without_mark
from mainstem.writers.made_up_keys import KeyMaker, made_here
from mainstem.writers.open_logs import OpenLog, drop_log
from mainstem.writers.placed_anew import only_columns, rows_read_back
from mainstem.writers.row_order import stable_order
from mainstem.writers.write_spec import DELETES, WriteSpec

_KEY, _PARTITION, _FILE = META_FIELDS[2:5]
#: the bucket of rows whose keys lie nowhere
NOWHERE = 0
# Batches are kept up to this size, in case that their file groups are replaced.
_KEPT_BYTES_MAX = 128 * MIB


class KeyTaken(RolledBack):
    """Others placed a key of this transaction, or replaced its file groups, at the last moment: its rows must
    be written again, under another instant."""


class KeyPlaces(Protocol):
    """One look at where keys live (``readers.queries.key_places``)."""

    index: KeyIndex
    #: requested times of the completed instants that it goes by
    seen: frozenset[str]
    #: files went meanwhile, so that later keys were looked for in a later state than earlier ones
    looked_again: bool

    def find(self, partition: str | None, keys: pa.Array) -> tuple[np.ndarray, list[GroupOfKey]]:
        """For each of these distinct keys the number of its place in the list, or -1 where it lies nowhere;
        ``partition``: where to look, None for the whole table."""
        ...

    def to_fill(self, partition: str, room: int, *, alone: bool) -> GroupOfKey | None:
        """A small file group of at most ``room`` bytes that takes new keys in log files; None: put them into
        a new one. ``alone``: also without a record index, where only mainstem writes."""
        ...

    def keys_of(self, partition: str, path: str) -> Iterator[pa.Array]:
        """All keys of one data file, deleted ones included."""
        ...

    def look(self, *, first: bool = False) -> None:
        """Go by what is completed now; ``seen`` stays, unless this is the ``first`` look that counts."""
        ...

    def indexed(self, partition: str, keys: pa.Array) -> set[GroupOfKey]:
        """File groups that the record index names for these keys, replaced or not; none without it."""
        ...

    def groups_before(self, partitions: Sequence[str] | None, instant: str) -> list[GroupOfKey]:
        """File groups of these partitions (None: of all) with files of instants that completed before this
        one was requested."""
        ...

    def contest(self, place: GroupOfKey, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """For rows with Hudi's columns, of distinct keys: masks of those whose key has a row in this file
        group, and of those that would win against what the file group has of it."""
        ...


class _Groups:
    """File groups by number, which stand for buckets here. Number 0 is that of keys that lie nowhere."""

    def __init__(self) -> None:
        self._places: list[GroupOfKey] = [("", "")]
        self._numbers: dict[GroupOfKey, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def number(self, place: GroupOfKey) -> int:
        found = self._numbers.setdefault(place, len(self._places))
        if found == len(self._places):
            self._places.append(place)
        return found

    def place(self, number: int) -> GroupOfKey:
        return self._places[number]

    def another(self, place: GroupOfKey) -> int:
        """One more number for a file group: a log file of its own."""
        self._places.append(place)
        return len(self._places) - 1


class _Encoder(BucketEncoder):
    """Asks the index where the keys of a batch live."""

    def __init__(self, spec: WriteSpec, task: str, places: KeyPlaces, groups: _Groups) -> None:
        super().__init__(spec, task)
        self.places = places
        self._groups = groups

    def _placed(self, keys: KeyColumns, codes: np.ndarray, partitions: list[str]) -> Placed:
        texts = keys.texts
        if self.places.index.is_global:
            found = self._numbers(None, texts)
            codes, partitions = self._at_home(codes, partitions, found)
            return codes, partitions, found, len(self._groups)
        found = np.zeros(len(texts), np.int64)
        order = stable_order(codes)
        bounds = np.searchsorted(codes[order], np.arange(len(partitions) + 1))
        for partition, low, high in zip(partitions, bounds[:-1], bounds[1:], strict=True):
            rows = order[low:high]
            found[rows] = self._numbers(partition, texts.take(pa.array(rows)))
        return codes, partitions, found, len(self._groups)

    def _numbers(self, partition: str | None, texts: pa.Array) -> np.ndarray:
        """The number of each key's file group."""
        new = made_here(texts, self.spec)
        if new.any():
            found = np.full(len(texts), NOWHERE, np.int64)
            if not new.all():
                found[~new] = self._looked_up(partition, texts.filter(pa.array(~new)))
            return found
        return self._looked_up(partition, texts)

    def _looked_up(self, partition: str | None, texts: pa.Array) -> np.ndarray:
        coded = texts.dictionary_encode()
        at, places = self.places.find(partition, coded.dictionary)
        numbers = np.array([NOWHERE, *map(self._groups.number, places)], np.int64)
        return numbers[at + 1][coded.indices.to_numpy()]

    def _at_home(
        self, codes: np.ndarray, partitions: list[str], found: np.ndarray
    ) -> tuple[np.ndarray, list[str]]:
        """Rows whose key lies in another partition go there, as without ``update.partition.path`` in Hudi."""
        numbers = {partition: code for code, partition in enumerate(partitions)}
        home = np.zeros(len(self._groups), np.int64)
        for number in np.unique(found[found != NOWHERE]).tolist():
            home[number] = numbers.setdefault(self._groups.place(number)[0], len(numbers))
        at_home = np.where(found == NOWHERE, codes, home[found])
        away = np.flatnonzero(at_home != codes)
        partitions = list(numbers)
        if len(away) and self.places.index.moves:
            raise _refused_move(self.spec, self.places.index, partitions[at_home[away[0]]])
        return at_home, partitions


def _refused_move(spec: WriteSpec, index: KeyIndex, home: str) -> Unsupported:
    return Unsupported(
        f"a row's key lies in partition {home!r} and the row in another one: under {index.kind} Hudi would"
        " move it, which is not supported where rows are merged column by column or by a function of yours."
        " Write it with its old partition, or set the index's option update.partition.path to false: the row"
        " then stays where its key is",
        table=spec.base,
        instant=spec.instant,
    )


@dataclass
class _Fresh:
    """Rows of new keys, and their file, once it is made: nobody has seen it yet. ``bucket``: a log file's."""

    partition: str
    rows: pa.Table
    stat: WriteStat | None = None
    bucket: int = NOWHERE

    @cached_property
    def keys(self) -> pa.Array:
        """Their record keys."""
        column = self.rows.column(_KEY).cast(pa.string())
        return pa.concat_arrays([pa.array([], pa.string()), *column.chunks])


class Kept:
    """The batches of a transaction, with what each was written by, in case that it must be placed again."""

    def __init__(self) -> None:
        self._batches: list[tuple[WriteSpec, pa.Table, np.ndarray | None]] = []
        self._bytes = 0

    def add(self, spec: WriteSpec, batch: pa.Table, deleted: np.ndarray | None) -> None:
        self._bytes += batch.nbytes
        self._batches.append((spec, batch, deleted))
        if not self.whole:
            self._batches.clear()

    @property
    def whole(self) -> bool:
        return self._bytes <= _KEPT_BYTES_MAX

    def give_up(self) -> None:
        """Of batches that come from now on, not all are given to ``add``."""
        self._bytes = _KEPT_BYTES_MAX + 1
        self._batches.clear()

    def clear(self) -> None:
        self._batches.clear()

    def __iter__(self) -> Iterator[tuple[WriteSpec, pa.Table, np.ndarray | None]]:
        return iter(self._batches)


class _KnownKeys:
    """Known keys of a transaction, each with the number of its file group; compressed."""

    _SCHEMA = pa.schema([("number", pa.int32()), ("key", pa.string())])

    def __init__(self) -> None:
        self._parts: list[pa.Buffer] = []
        codec = "lz4" if pa.Codec.is_available("lz4") else None
        self._how = pa.ipc.IpcWriteOptions(compression=codec)

    def add(self, places: Sequence[Place], bounds: Sequence[int], keys: pa.Array) -> None:
        """Keys of these places, one place after the other."""
        numbers = np.repeat(np.array([number for _, number in places], np.int32), np.diff(bounds))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._SCHEMA, options=self._how) as stream:
            stream.write(pa.record_batch([pa.array(numbers), keys], schema=self._SCHEMA))
        self._parts.append(sink.getvalue())

    def numbers_of(self, keys: pa.Array) -> set[int]:
        """Numbers of the file groups of those that are among these keys."""
        found: set[int] = set()
        for part in self._parts:
            with pa.ipc.open_stream(part) as stream:
                for batch in stream:
                    met = pc.is_in(batch.column("key"), value_set=keys)
                    found.update(pc.unique(batch.column("number").filter(met)).to_pylist())
        return found

    def clear(self) -> None:
        self._parts.clear()


class PlacingAppender(BulkInserter):
    """Writes rows to the file groups of their keys; see above."""

    #: whether writes of others to keys that they found matter, too
    follows_updates = False
    #: whether everything counts that completed since its instant was requested, whatever was seen
    follows_since_begin = False
    #: whether it fills up file groups without a record index, where only mainstem writes
    fills_alone = True
    #: whether batches are kept for ``place_again``
    keeps_batches = True

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        token: str,
        places: KeyPlaces,
        random: Randomness,
        known_partitions: set[str] | None = None,
        surely_alive: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(storage, spec, token, None, known_partitions, surely_alive)
        self.places = places
        self._random = random
        self._groups = _Groups()
        self._looking = _Encoder(spec, token.split("-", 1)[0], places, self._groups)
        self._encoder: BucketEncoder = self._looking
        self._maker = KeyMaker(token.split("-", 1)[0])
        self._fresh: list[_Fresh] = []
        #: numbers of log files of new keys
        self._filled: set[int] = set()
        #: deletes of keys that lie nowhere: partition, rows, keys
        self._gone: list[tuple[str, pa.Table, pa.Array]] = []
        self._kept = Kept()
        self._known = _KnownKeys()
        #: of the rows that wait: in which order they came, and how many rows came in the batches before
        self._came: dict[Place, list[np.ndarray]] = {}
        self._before = 0
        #: log files of ``place_again`` have greater versions than those that it took back
        self._passed = 0
        #: how often all rows were placed again
        self.placed_again = 0
        self._begin(token.split("-", 1)[0])

    def _begin(self, task: str) -> None:
        """What a kind of appender has beside; its encoder, too."""

    def file_id(self, partition: str, bucket: int) -> str:
        """The file group with this number."""
        return self._groups.place(bucket)[1] if bucket != NOWHERE else ""

    @property
    def appended_to(self) -> set[GroupOfKey]:
        """File groups that get rows of this transaction and have files of others."""
        return {self._groups.place(number) for _, number in self._versions}

    @property
    def lost_to(self) -> set[GroupOfKey]:
        """File groups in which a row lies because of which one of this transaction is left out."""
        return set()

    def _write(self, batch: pa.Table, deleted: np.ndarray | None) -> int:
        if self._spec.keys.made_up:
            marks = without_mark(batch, self._spec)[1] if deleted is None else deleted
            batch = self._maker.keyed(batch, self._spec, marks)
        count = super()._write(batch, deleted)
        self._before += count
        if count and self.keeps_batches:
            self._kept.add(self._spec, batch, deleted)
        return count

    def _append(self, slab: Slab) -> None:
        new = np.array([bucket == NOWHERE for _, bucket in slab.places])
        came = self._encoder.arrived(slab.rows.num_rows) + self._before
        if new.any():
            if self._fresh:
                raise Invalid(
                    "rows of new keys after a commit that failed: commit it again, or write all rows in a new"
                    " transaction",
                    table=self._spec.base,
                    instant=self._spec.instant,
                )
            self.torn = True  # until the whole batch is held or written
            for at in np.flatnonzero(new).tolist():
                self._hold(_cut(slab, at), came[slab.bounds[at] : slab.bounds[at + 1]])
            slab = _without(slab, new)
        if slab.places:
            self._append_known(slab)

    def _append_known(self, slab: Slab) -> None:
        if not self.follows_updates:
            self._known.add(slab.places, slab.bounds, slab.keys)
        BucketAppender._append(self, slab)

    def _hold(self, part: Slab, came: np.ndarray) -> None:
        place = part.places[0]
        if part.deleted is not None:
            gone = pa.array(part.deleted)
            self._gone.append((place[0], part.rows.filter(gone), part.keys.filter(gone)))
        if part.deleted is None or not self._only_deletes:
            count = part.rows.num_rows
            rows = marked(part.rows, part.deleted)
            named = self._encoder.with_meta([place], [""], [0, count], rows, part.keys)
            self._waiting.setdefault(place, []).append(named)
            self._came.setdefault(place, []).append(came)

    @property
    def _only_deletes(self) -> bool:
        return self._spec.operation in DELETES

    # -- new file groups ---------------------------------------------------------------------------

    def gather(self) -> None:
        """Merges the rows of new keys: ``give_way`` then costs no file."""
        self._check_whole()
        self.torn = True  # until all are merged
        tables = [table for held in self._waiting.values() for table in held]
        schema = with_marks(avro_to_arrow(self._spec.log_schema), tables)
        held = {place[0]: [project_to(t, schema) for t in tables] for place, tables in self._waiting.items()}
        if self.places.index.is_global and held:  # a key counts once, whatever its partition
            rows = pa.concat_tables([t for tables in held.values() for t in tables])
            came = np.concatenate([came for place in self._waiting for came in self._came[place]])
            if (np.diff(came) < 0).any():  # each partition's rows came one after another
                rows = taken(rows.combine_chunks(), pa.array(np.argsort(came, kind="stable")))
            merged = self._merged(rows)
            held = {
                partition: [merged.filter(pc.equal(merged.column(_PARTITION), partition))]
                for partition in sorted(held)
            }
        for partition in sorted(held):
            self._to_make(partition, self._merged(pa.concat_tables(held[partition])))
        self._waiting.clear()
        self._came.clear()
        self.torn = False

    def _to_make(self, partition: str, rows: pa.Table) -> None:
        """Files to be made of rows of new keys."""
        step = rows_per_file(self._spec.layout, rows)
        for start in range(0, rows.num_rows, step):
            self._fresh.append(_Fresh(partition, rows.slice(start, step)))

    def finish(self) -> list[WriteStat]:
        """Writes the base files of new keys, then finishes the log files."""
        self.gather()
        self.torn = True  # until all base files are written
        for fresh in self._fresh:
            if fresh.stat is None:
                room = room_for(self._spec.layout, fresh.rows)
                small = self.places.to_fill(fresh.partition, room, alone=self.fills_alone)
                if small is None:
                    fresh.stat = self._put_fresh(fresh.partition, fresh.rows)
                else:
                    self._fill(fresh, small)
        self.torn = False
        return BucketAppender.finish(self)

    def _put_fresh(self, partition: str, rows: pa.Table) -> BaseFileStat:
        file_id = f"{UUID(int=self._random.getrandbits(128), version=4)}-0"
        name = paths.base_name(file_id, self._tokens(partition), self._spec.instant)
        named = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows.num_rows, np.int32)), pa.array([name]))
        at = rows.schema.get_field_index(_FILE)
        rows = rows.set_column(at, pa.field(_FILE, named.type), named)
        self._put_base(partition, file_id, rows, small=True)
        stat = self._closed[-1]
        assert isinstance(stat, BaseFileStat)
        return stat

    def _fill(self, fresh: _Fresh, place: GroupOfKey) -> None:
        """Appends new keys to a small file group, in a log file of their own, which can be taken back."""
        fresh.bucket = self._groups.another(place)
        self._filled.add(fresh.bucket)
        rows = fresh.rows.select([name for name in fresh.rows.column_names if name not in META_FIELDS])
        there = (fresh.partition, fresh.bucket)
        BucketAppender._append(self, Slab([there], [0, rows.num_rows], rows, fresh.keys))
        open_log = self._logs.get(there)
        name = self._log_name(*there, version=self._versions[there])
        closed = (stat for stat in self._closed if stat.file_name == name)
        fresh.stat = next(closed) if open_log is None else open_log.stats[0]

    def _open_log(self, partition: str, bucket: int) -> OpenLog:
        self._versions.setdefault((partition, bucket), self._passed)
        return super()._open_log(partition, bucket)

    def _stat(self, partition: str, bucket: int, name: str, version: int) -> WriteStat:
        stat = super()._stat(partition, bucket, name, version)
        return NewKeysStat(**vars(stat)) if bucket in self._filled else stat

    def _token(self, partition: str, bucket: int) -> str:
        # Two log files of one group: each with a token of its own.
        return self._tokens(f"{partition}\0{bucket}" if bucket in self._filled else partition)

    # -- keys that others placed -------------------------------------------------------------------

    def unplaced(self, partition: str) -> bool:
        """Whether a key that lies nowhere could be placed by a write to this partition."""
        held = [(fresh.partition, fresh.keys) for fresh in self._fresh]
        held += [(gone[0], gone[2]) for gone in self._gone]
        if self._spec.keys.made_up:  # nobody else has the keys that were made here
            held = [(where, keys) for where, keys in held if not made_here(keys, self._spec).all()]
        return any(self.places.index.is_global or where == partition for where, _ in held)

    def meets(self, place: GroupOfKey, keys: pa.Array) -> bool:
        """Whether ``give_way`` would move anything."""
        held = [(partition, texts) for partition, _, texts in self._gone]
        held += [(fresh.partition, fresh.keys) for fresh in self._fresh]
        return any(self._meets(partition, place, texts, keys).any() for partition, texts in held)

    def meets_elsewhere(self, place: GroupOfKey, keys: pa.Array) -> bool:
        """Whether some of these keys, which lie in this file group, were known in another one."""
        homes = {self._groups.place(number) for number in self._known.numbers_of(keys)} - {place}
        return any(self.places.index.is_global or home[0] == place[0] for home in homes)

    def indexed_in(self, places: set[GroupOfKey]) -> bool:
        """Whether the record index tells one of these places of a new key."""
        return any(
            not places.isdisjoint(self.places.indexed(fresh.partition, fresh.keys)) for fresh in self._fresh
        )

    def give_way(self, place: GroupOfKey, keys: pa.Array, requested: str) -> None:
        """Moves rows and deletes whose keys are among these, which this instant wrote, to this file group.

        Call it after ``gather``, and ``finish`` after it. Raises ``KeyTaken`` where that is impossible.
        """
        self._check_whole()
        self.torn = True  # until all are moved
        still: list[tuple[str, pa.Table, pa.Array]] = []
        for partition, rows, texts in self._gone:  # deletes came first, or their keys would not be in a file
            mask = self._meets(partition, place, texts, keys)
            if mask.any():
                self._move(place, rows.filter(pa.array(mask)), texts.filter(pa.array(mask)), True)
                rows, texts = rows.filter(pa.array(~mask)), texts.filter(pa.array(~mask))
            still.append((partition, rows, texts))
        self._gone = [gone for gone in still if len(gone[2])]
        for fresh in list(self._fresh):
            mask = self._meets(fresh.partition, place, fresh.keys, keys)
            if mask.any():
                self._take_back(fresh)
                if not mask.all():
                    self._fresh.append(_Fresh(fresh.partition, fresh.rows.filter(pa.array(~mask))))
                user = [name for name in fresh.rows.column_names if name not in META_FIELDS]
                rows = fresh.rows.filter(pa.array(mask)).select(user)
                self._move(place, rows, fresh.keys.filter(pa.array(mask)), False)
        self.torn = False

    def give_way_all(self, place: GroupOfKey, requested: str) -> None:
        """As ``give_way``, where it is unknown which keys the instant wrote; only if ``follows_updates``."""
        raise NotImplementedError

    def note_rewritten(self, places: Iterable[GroupOfKey]) -> None:
        """A clustering with a later requested time wrote these file groups; only if ``follows_updates``."""

    def settle_places(self) -> None:
        """After all ``give_way``."""

    # -- file groups that were replaced ------------------------------------------------------------

    @property
    def can_place_again(self) -> bool:
        """Whether this transaction is small enough for ``place_again``."""
        return self.keeps_batches and self._kept.whole

    def place_again(self, places: KeyPlaces) -> None:
        """Goes by this look from now on, and places all rows by it, in the order in which they were given.

        The files made so far go, durably before the commit, as in ``_take_back``. Call it after ``gather``,
        and ``finish`` after it. Raises ``KeyTaken`` where that is impossible.
        """
        self._check_whole()
        if not self.can_place_again:
            raise self._taken("its keys were moved by a clustering, or deleted and inserted again,")
        self.torn = True  # until all are placed
        self.placed_again += 1
        self.places = self._looking.places = places
        self._take_back_all()
        now = self._spec
        for spec, batch, deleted in self._kept:
            self.adopt(spec)
            for slab in self._encoder.split(batch, deleted):
                self._append(slab)
            self._before += batch.num_rows
        self.adopt(now)
        self.torn = False
        self.gather()

    def _take_back_all(self) -> None:
        if has_swaps(self._storage) and self._closed:
            raise self._taken("its keys were moved by a clustering, or deleted and inserted again,")
        self._passed = max(self._passed, self._take_back_files())
        for mine in (self._fresh, self._gone, self._waiting, self._came, self._filled, self._known):
            mine.clear()

    # -- another instant ---------------------------------------------------------------------------

    @property
    def can_hand_over(self) -> bool:
        """Whether it is known which of two rows of a key came first."""
        return self.can_place_again or not self.places.looked_again

    @property
    def reads_back(self) -> bool:
        """Whether ``hand_over`` reads this transaction's log files, which must be whole by then."""
        return not self.can_place_again

    def hand_over(self, later: PlacingAppender) -> None:
        """Gives all rows to the appender of a later transaction, in their order; call it after ``gather``."""
        self._check_whole()
        if self.can_place_again:
            now, instant = later._spec, later._spec.instant
            for spec, batch, deleted in self._kept:
                later.adopt(replace(spec, instant=instant))
                later.write(batch, deleted)
            later.adopt(now)
            return
        known = [stat for stat in self._closed if not isinstance(stat, (BaseFileStat, NewKeysStat))]
        is_global = self.places.index.is_global
        later.write_keyed(rows_read_back(self._storage, self._spec, known, one_per_table=is_global))
        later.write_keyed(self._unplaced())

    def _unplaced(self) -> Iterator[Keyed]:
        """What keys that lie nowhere get: deletes first, as in ``give_way``."""
        schema = self._encoder.schema
        for partition, rows, texts in self._gone:
            names, count = [name for name in self._spec.ordering if name in rows.column_names], len(texts)
            given = {name: rows.column(name).combine_chunks() for name in names}
            deletes = only_columns(given, schema, count)
            yield Keyed(deletes, texts, np.zeros(count, np.int64), [partition], np.ones(count, bool))
        for fresh in self._fresh:
            rows = project_to(fresh.rows.drop_columns(list(META_FIELDS)), schema)
            yield Keyed(rows, fresh.keys, *self._spec.keys.partitions(rows))

    def write_keyed(self, batches: Iterable[Keyed]) -> None:
        """Writes rows that an earlier transaction had; they are not kept."""
        self._check_whole()
        self._check_alive()
        self._kept.give_up()
        for batch in (batch for batch in batches if len(batch.keys)):
            slabs = list(self._encoder.split_keyed(batch))
            for partition in dict.fromkeys(place[0] for slab in slabs for place in slab.places):
                self._check_partition(partition)
            for slab in slabs:
                self._append(slab)
            self.rows += len(batch.keys)
            self._before += len(batch.keys)
            self.torn = False

    def passed_by(self) -> KeyTaken:
        """The error that ends this instant, after others replaced its file groups often."""
        return self._taken("its file groups were replaced again and again,")

    def _taken(self, what: str = "another writer inserted or moved a key of this transaction") -> KeyTaken:
        self.torn = False
        return KeyTaken(
            f"{what} just before it would have completed; nothing of it is visible: write its rows again in a"
            " new transaction",
            table=self._spec.base,
            instant=self._spec.instant,
        )

    def forget(self) -> None:
        """As of any appender."""
        super().forget()
        for mine in (self._kept, self._known, self._fresh, self._gone, self._waiting):
            mine.clear()

    def _meets(self, partition: str, place: GroupOfKey, texts: pa.Array, keys: pa.Array) -> np.ndarray:
        if partition != place[0] and not self.places.index.is_global:
            return np.zeros(len(texts), bool)
        mask = pc.is_in(texts, value_set=keys).to_numpy(zero_copy_only=False)
        if partition != place[0] and mask.any() and self.places.index.moves:
            self.torn = False
            raise _refused_move(self._spec, self.places.index, place[0])
        return mask

    def _move(self, place: GroupOfKey, rows: pa.Table, keys: pa.Array, deleted: bool) -> None:
        count = rows.num_rows
        there: Place = (place[0], self._groups.number(place))
        flags = np.ones(count, bool) if deleted else None
        self._append_known(Slab([there], [0, count], rows, keys, flags))

    def _take_back(self, fresh: _Fresh) -> None:
        """Durably before the commit, whose ``settle`` syncs the folder: no reader would know that this file
        of a completed instant does not count."""
        if fresh.stat is not None:
            if has_swaps(self._storage):
                raise self._taken()
            log = self._logs.pop((fresh.partition, fresh.bucket), None)
            if log is not None:
                drop_log(self._storage, log)
            else:
                self._closed.remove(fresh.stat)
            self.written.pop(fresh.stat.path, None)
            self._storage.delete(fresh.stat.path)
        self._fresh.remove(fresh)


def _without(slab: Slab, going: np.ndarray) -> Slab:
    """The rows of the other places; ``going``: mask of its places."""
    lengths = np.diff(slab.bounds)
    kept = np.repeat(~going, lengths)
    return Slab(
        [place for place, away in zip(slab.places, going, strict=True) if not away],
        [0, *np.cumsum(lengths[~going]).tolist()],
        slab.rows.filter(pa.array(kept)),
        slab.keys.filter(pa.array(kept)),
        None if slab.deleted is None else slab.deleted[kept],
    )


def _cut(slab: Slab, at: int) -> Slab:
    """The rows of one place."""
    low, high = slab.bounds[at], slab.bounds[at + 1]
    deleted = None if slab.deleted is None else slab.deleted[low:high]
    count = high - low
    rows, keys = slab.rows.slice(low, count), slab.keys.slice(low, count)
    return Slab([slab.places[at]], [0, count], rows, keys, deleted)
