"""Appends rows on a table without buckets whose keys move: a row of a key that lies in another partition is
deleted there and inserted into its own, in one commit (Hudi's global indexes with ``update.partition.path``).

All rows are held until the commit and merged, so that each key stands once. Then the index is asked where the
keys live, and each row gets its fate:

  nowhere                         a new key, as ever (``placed_rows``)
  in the row's partition          appended to the file group of its key
  elsewhere, but deleted          a new key
  elsewhere, and the row wins     a delete there, and a new key here
  elsewhere, and the row loses    left out, as Hudi does: the row that is there stays

**At the commit** every instant that completed since is looked at (``keys_placed_meanwhile``), updates and
deletes too, since they decide who wins. Keys that it has are looked for once more, and files whose rows got
another fate are taken back and made again: nobody has seen them. So every commit goes by what completed
before it, and a key has one place. If an overwrite hid the row against which another one lost, the
transaction ends as ``KeyTaken``, and an overwrite is made again after such a write (``placed_overwrites``).
All writers of a table must let keys move, or none.

**Requested times.** Log files, and the rows of the metadata table's record index, count in the order of
requested times. A row that must go elsewhere than where an instant with a later requested time wrote its key
would be hidden behind it, and so would one behind a delete. The transaction ends as ``KeyTaken`` then, and is
written again with a later time. A clustering with a later requested time writes keys where they were, and
the record index, if there is one, then says that: who moves such a key ends as well. So the delete of a
move, which has no ordering value, as Java's, comes after all that its file group has of the key; and what is
written to that file group later comes after the delete.

Memory: all rows, until the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.schema_resolution import project_to
from mainstem.formats.vectors import taken
from mainstem.layout.key_index import GroupOfKey
from mainstem.layout.keys import KeyColumns
from mainstem.merge.fold import fold, positions
from mainstem.merge.log_entries import DataRows, deleted_rows
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import NewKeysStat, WriteStat
from mainstem.writers.append import BucketAppender
from mainstem.writers.bulk_insert import BaseFileStat
from mainstem.writers.encode_rows import BucketEncoder, Keyed, Placed, Slab
from mainstem.writers.fit_rows import marked, with_marks
from mainstem.writers.open_logs import drop_log
from mainstem.writers.placed_rows import NOWHERE, KeyPlaces, PlacingAppender
from mainstem.writers.row_order import stable_order
from mainstem.writers.write_spec import DELETE, MERGE_ROWS, WriteSpec

_KEY, _PARTITION = META_FIELDS[2:4]
# Fates of rows. Of the first and the last one the key's file group gets a record; the last two are new keys.
_KEPT, _LOST, _NEW, _MOVED = range(4)
_RECORDED, _INSERTED = (_KEPT, _MOVED), (_NEW, _MOVED)


def lets_keys_move(spec: WriteSpec, places: KeyPlaces) -> bool:
    """Whether rows of this write may have to move. Where they would, and rows are merged column by column or
    by a function, ``PlacingAppender`` refuses them."""
    whole_rows = spec.rules.partial is None and spec.rules.merger is None
    return places.index.moves and whole_rows and bool(spec.keys.partition_fields) and not spec.keys.made_up


class Gatherer(BucketEncoder):
    """Asks nobody where keys live."""

    def _placed(self, keys: KeyColumns, codes: np.ndarray, partitions: list[str]) -> Placed:
        return codes, partitions, np.full(len(codes), NOWHERE, np.int64), NOWHERE + 1


class _Keys:
    """Keys of a transaction, each once, and what becomes of them."""

    def __init__(self, rows: pa.Table, texts: pa.Array, fate: int) -> None:
        self.rows, self.texts = rows, texts
        count = len(texts)
        #: number of the file group in which the key lives
        self.home = np.full(count, NOWHERE, np.int64)
        self.fate = np.full(count, fate, np.int8)
        self.touched = np.zeros(count, bool)
        #: number of the file group to which instants with later requested times wrote it, or ``_SEVERAL``
        self.later = np.full(count, NOWHERE, np.int64)

    def among(self, keys: pa.Array) -> np.ndarray:
        return pc.is_in(self.texts, value_set=keys).to_numpy(zero_copy_only=False)

    @property
    def recorded(self) -> np.ndarray:
        """Mask of those of which their file group gets a record."""
        return np.isin(self.fate, _RECORDED) & (self.home != NOWHERE)


_SEVERAL = -1


class MovingAppender(PlacingAppender):
    """Writes rows to the file groups of their keys, which move with their partition; see above."""

    follows_updates = True
    # A key that was deleted counts as a new one here: its old row may lie in the very base file.
    fills_alone = False
    keeps_batches = False

    def _begin(self, task: str) -> None:
        self._encoder = Gatherer(self._spec, task)
        #: rows that were given, and in which order they came
        self._held: list[tuple[pa.Table, np.ndarray]] = []
        #: rows, and deletes; None before the commit
        self._puts: _Keys | None = None
        self._deletes: _Keys | None = None
        #: numbers of file groups whose log files must be made
        self._unwritten: set[int] = set()
        #: file groups that clusterings with later requested times wrote
        self._rewritten: set[GroupOfKey] = set()

    @property
    def wrote(self) -> bool:
        """Whether this writer has made a file, or holds rows that will make one."""
        return super().wrote or bool(self._held) or self._puts is not None

    @property
    def appended_to(self) -> set[GroupOfKey]:
        """File groups that get rows or deletes of this transaction and have files of others."""
        numbers = {fresh.bucket for fresh in self._fresh}
        for part in self._parts:
            numbers.update(part.home[part.recorded].tolist())
        return {self._groups.place(number) for number in sorted(numbers - {NOWHERE})}

    @property
    def lost_to(self) -> set[GroupOfKey]:
        """File groups in which a row lies because of which one of this transaction is left out."""
        if self._puts is None:
            return set()
        lost = np.unique(self._puts.home[self._puts.fate == _LOST]).tolist()
        return {self._groups.place(number) for number in lost if number != NOWHERE}

    @property
    def _parts(self) -> list[_Keys]:
        return [part for part in (self._puts, self._deletes) if part is not None]

    def _append(self, slab: Slab) -> None:
        if self._puts is not None:
            raise Invalid(
                "rows after a commit that failed: commit it again, or write all rows in a new transaction",
                table=self._spec.base,
                instant=self._spec.instant,
            )
        self.torn = True  # until the whole batch is held
        count = slab.rows.num_rows
        files = [""] * len(slab.places)
        rows = marked(slab.rows, None if self._only_deletes else slab.deleted)
        named = self._encoder.with_meta(slab.places, files, slab.bounds, rows, slab.keys)
        self._held.append((named, self._encoder.arrived(count) + self.rows))

    # -- fates --------------------------------------------------------------------------------------

    @property
    def _ordering_of_deletes(self) -> tuple[str, ...]:
        """The columns of their ordering values; a plain ``delete`` has none."""
        return () if self._spec.operation == DELETE else self._spec.ordering

    def gather(self) -> None:
        """Merges all rows, so that each key stands once, and decides their fates."""
        self._check_whole()
        if self._puts is not None:
            return
        self.torn = True  # until all have a fate
        stored = schema = avro_to_arrow(self._spec.log_schema)
        if self._only_deletes:
            needed = {*self._spec.keys.needed_columns, *self._ordering_of_deletes}
            names = [name for name in schema.names if name in needed]
            stored = schema = pa.schema([schema.field(name) for name in (*META_FIELDS, *names)])
        else:
            schema = with_marks(schema, [table for table, _ in self._held])
        rows = pa.concat_tables([schema.empty_table(), *(project_to(t, schema) for t, _ in self._held)])
        self._check_actions(rows)
        once = self._once(rows, [order for _, order in self._held])
        puts, deletes = (part.select(stored.names) for part in once)
        self._puts = _Keys(puts, _texts(puts), _LOST)
        self._deletes = _Keys(deletes, _texts(deletes), _KEPT)
        self._held.clear()
        self.places.look(first=True)
        self._decide(np.arange(puts.num_rows), np.arange(deletes.num_rows))
        for part in self._parts:
            self._unwritten.update(part.home[part.recorded].tolist())
        inserted = np.isin(self._puts.fate, _INSERTED)
        self._insert(pc.unique(puts.column(_PARTITION).filter(pa.array(inserted))).to_pylist())
        self.torn = False

    def _check_actions(self, rows: pa.Table) -> None:
        """A ``MERGE`` may delete a row of one partition and insert one of the same key into another. Under
        this index they are one key, and their ordering values would say whether the row is there or not."""
        gone = deleted_rows(rows, self._spec.rules) if self._spec.operation == MERGE_ROWS else None
        if gone is None:
            return
        texts, mask = _texts(rows), pa.array(gone)
        written = texts.filter(pc.invert(mask))
        both = pc.and_(mask, pc.is_in(texts, value_set=written))
        if pc.any(both).as_py():
            self.torn = False
            raise Unsupported(
                f"the record key {texts.filter(both)[0].as_py()!r} is deleted in one partition and written in"
                " another by one commit, where keys move with their partition: leave the delete out, the key"
                " moves by itself, or write them in two (a MERGE without, and a DELETE)",
                table=self._spec.base,
                instant=self._spec.instant,
            )

    def _once(self, rows: pa.Table, orders: list[np.ndarray]) -> tuple[pa.Table, pa.Table]:
        """The rows that count, and the deletes that do, of keys that stand once."""
        texts = _texts(rows).dictionary_encode()
        order = np.concatenate([np.zeros(0, np.int64), *orders])
        if len(texts.dictionary) < rows.num_rows and (np.diff(order) < 0).any():
            came = pa.array(np.argsort(order, kind="stable"))
            rows, texts = rows.take(came), texts.take(came)
        if self._only_deletes:
            if self._ordering_of_deletes and len(texts.dictionary) < rows.num_rows:
                greatest = [(name, "descending") for name in self._ordering_of_deletes]
                came = pc.sort_indices(rows, sort_keys=greatest)
                rows, texts = rows.take(came), texts.take(came)
            first = np.unique(texts.indices.to_numpy(), return_index=True)[1]
            return rows.slice(0, 0), rows.take(pa.array(np.sort(first)))
        if not rows.num_rows:
            return rows, rows
        rules = self._spec.rules
        folded = fold(positions([DataRows(rows)], rules, rules.ordering_types(rows.schema)))
        puts, deletes = folded.winner[~folded.is_delete], folded.winner[folded.is_delete]
        whole = len(puts) == rows.num_rows
        return rows if whole else rows.take(pa.array(np.sort(puts))), rows.take(pa.array(np.sort(deletes)))

    def _decide(self, puts: np.ndarray, deletes: np.ndarray) -> None:
        """Ask where these keys live, and what becomes of their rows."""
        assert self._puts is not None and self._deletes is not None
        texts = [self._puts.texts.take(pa.array(puts)), self._deletes.texts.take(pa.array(deletes))]
        at, places = self.places.find(None, pa.concat_arrays(texts))
        numbers = np.array([NOWHERE, *map(self._groups.number, places)], np.int64)[at + 1]
        self._puts.home[puts], self._deletes.home[deletes] = np.split(numbers, [len(puts)])
        home = self._puts.home[puts]
        lies = pa.array([self._groups.place(number)[0] for number in range(len(self._groups))], pa.string())
        wanted = self._puts.rows.column(_PARTITION).take(pa.array(puts))
        same = pc.equal(wanted, lies.take(pa.array(home))).to_numpy()
        fate = np.where(home == NOWHERE, _NEW, _KEPT)
        away = (home != NOWHERE) & ~same
        for number in np.unique(home[away]).tolist():
            here = np.flatnonzero(away & (home == number))
            place = self._groups.place(number)
            alive, wins = self.places.contest(place, self._puts.rows.take(pa.array(puts[here])))
            fate[here] = np.where(~alive, _NEW, np.where(wins, _MOVED, _LOST))
        self._puts.fate[puts] = fate

    def unplaced(self, partition: str) -> bool:
        """Whether a write to this partition could change a fate."""
        return any(len(part.texts) for part in self._parts)

    def meets(self, place: GroupOfKey, keys: pa.Array) -> bool:
        """Whether a fate must be decided again."""
        return any(part.among(keys).any() for part in self._parts)

    def give_way(self, place: GroupOfKey, keys: pa.Array, requested: str) -> None:
        """Note that an instant wrote these keys; ``settle_places`` decides their fates again."""
        for part in self._parts:
            self._touch(part, part.among(keys), place, requested)

    def give_way_all(self, place: GroupOfKey, requested: str) -> None:
        """The same where it is unknown which keys the instant wrote."""
        for part in self._parts:
            self._touch(part, np.ones(len(part.texts), bool), place, requested)

    def _touch(self, part: _Keys, mask: np.ndarray, place: GroupOfKey, requested: str) -> None:
        part.touched |= mask
        if requested > self._spec.instant and mask.any():
            number = self._groups.number(place)
            other = mask & (part.later != NOWHERE) & (part.later != number)
            part.later[mask] = number
            part.later[other] = _SEVERAL

    def note_rewritten(self, places: Iterable[GroupOfKey]) -> None:
        """A clustering with a later requested time wrote these file groups."""
        self._rewritten.update(places)

    def settle_places(self) -> None:
        """Decide fates again, after all ``give_way``; call ``finish`` after it. Raises ``KeyTaken`` where
        that is impossible."""
        puts, deletes = self._puts, self._deletes
        assert puts is not None and deletes is not None
        if not (puts.touched.any() or deletes.touched.any()):
            if self._hidden_in_index():
                raise self._taken()
            return
        self._check_whole()
        self.torn = True  # until the files fit the fates
        before = [(part.home.copy(), part.fate.copy(), part.recorded) for part in (puts, deletes)]
        self.places.look()
        self._decide(np.flatnonzero(puts.touched), np.flatnonzero(deletes.touched))
        if self._hidden() or self._hidden_in_index():
            self.torn = False
            raise self._taken()
        stale: set[int] = set()
        for part, (home, fate, recorded) in zip((puts, deletes), before, strict=True):
            part.touched[:] = False
            other = (home != part.home) | (fate != part.fate)
            stale.update(home[other & recorded].tolist(), part.home[other & part.recorded].tolist())
        for number in sorted(stale):
            self._take_back_logs(number)
        self._unwritten |= stale
        swapped = np.isin(before[0][1], _INSERTED) != np.isin(puts.fate, _INSERTED)
        partitions = pc.unique(puts.rows.column(_PARTITION).filter(pa.array(swapped))).to_pylist()
        for fresh in [fresh for fresh in self._fresh if fresh.partition in partitions]:
            self._take_back(fresh)
        self._insert(partitions)
        self.torn = False

    def _hidden(self) -> bool:
        """Whether a row would be hidden behind an instant with a later requested time."""
        puts = self._puts
        assert puts is not None
        behind = (puts.later != NOWHERE) & (puts.fate != _LOST)
        there = behind & (puts.fate == _KEPT) & (puts.later == puts.home)
        if (behind & ~there).any():
            return True
        for number in np.unique(puts.home[there]).tolist():
            rows = puts.rows.filter(pa.array(there & (puts.home == number)))
            alive, _ = self.places.contest(self._groups.place(number), rows)
            if not alive.all():
                return True
        return False

    def _hidden_in_index(self) -> bool:
        """Whether the record index would go on telling where a clustering wrote a key that moved since."""
        puts = self._puts
        assert puts is not None
        left = puts.home[np.isin(puts.fate, _INSERTED)]
        return any(self._groups.place(number) in self._rewritten for number in np.unique(left).tolist())

    # -- another instant ----------------------------------------------------------------------------

    can_hand_over = True
    reads_back = False

    def hand_over(self, later: PlacingAppender) -> None:
        """Gives the merged rows and deletes to the appender of a later transaction."""
        self._check_whole()
        for part in self._parts:
            rows = part.rows.drop_columns(list(META_FIELDS))
            if rows.num_rows:
                deleted = np.ones(rows.num_rows, bool) if part is self._deletes else None
                later.write_keyed([Keyed(rows, part.texts, *self._spec.keys.partitions(rows), deleted)])

    def forget(self) -> None:
        """As of any appender."""
        super().forget()
        self._held.clear()
        self._puts = self._deletes = None

    # -- files --------------------------------------------------------------------------------------

    def _insert(self, partitions: list[str]) -> None:
        """Files to be made of the new keys of these partitions."""
        assert self._puts is not None
        inserted = pa.array(np.isin(self._puts.fate, _INSERTED))
        for partition in sorted(partitions):
            here = pc.and_(pc.equal(self._puts.rows.column(_PARTITION), partition), inserted)
            self._to_make(partition, self._puts.rows.filter(here))

    def finish(self) -> list[WriteStat]:
        """Writes what is not written yet, then finishes the files."""
        self.gather()
        self.torn = True  # until all log files are written
        if self._unwritten:
            self._append_records()
            self._unwritten.clear()
        self.torn = False
        return super().finish()

    def _append_records(self) -> None:
        """Records for file groups whose log files must be made: rows and deletes, then the deletes of moves,
        which have no ordering value."""
        puts, deletes = self._puts, self._deletes
        assert puts is not None and deletes is not None
        wanted = np.array(sorted(self._unwritten))
        here = [part.recorded & np.isin(part.home, wanted) for part in (puts, deletes)]
        moved = puts.fate == _MOVED
        self._append_sorted([(puts, here[0] & ~moved), (deletes, here[1])])
        encoder = self._encoder
        self._encoder = BucketEncoder(replace(self._spec, operation=DELETE), "0")
        try:
            self._append_sorted([(puts, here[0] & moved)], all_deleted=True)
        finally:
            self._encoder = encoder

    def _append_sorted(self, parts: list[tuple[_Keys, np.ndarray]], *, all_deleted: bool = False) -> None:
        home = np.concatenate([part.home[mask] for part, mask in parts])
        if not len(home):
            return
        deleted = [np.full(int(mask.sum()), all_deleted or part is self._deletes) for part, mask in parts]
        gone = np.concatenate(deleted)
        rows = pa.concat_tables([part.rows.filter(pa.array(mask)) for part, mask in parts])
        rows = rows.select([name for name in rows.column_names if name not in META_FIELDS])
        texts = pa.concat_arrays([part.texts.filter(pa.array(mask)) for part, mask in parts])
        numbers = np.unique(home).tolist()
        partitions = sorted({self._groups.place(number)[0] for number in numbers})
        code = np.zeros(len(self._groups), np.int64)
        code[numbers] = [partitions.index(self._groups.place(number)[0]) for number in numbers]
        group = code[home] * len(self._groups) + home
        order = stable_order(group)
        came = pa.array(order)
        for slab in self._encoder.cut(
            group[order], len(self._groups), partitions, taken(rows.combine_chunks(), came),
            texts.take(came), gone[order] if gone.any() else None,
        ):  # fmt: skip
            BucketAppender._append(self, slab)

    def _take_back_logs(self, number: int) -> None:
        """Log files of a file group that hold records of another fate; durable as ``_take_back``."""
        place = self._groups.place(number)
        log = self._logs.pop((place[0], number), None)
        closed = [
            stat for stat in self._closed
            if (stat.partition, stat.file_id) == place and not isinstance(stat, (BaseFileStat, NewKeysStat))
        ]  # fmt: skip
        if closed and has_swaps(self._storage):
            self.torn = False
            raise self._taken()
        if log is not None:
            drop_log(self._storage, log)
            for stat in log.stats:
                self.written.pop(stat.path, None)
        for stat in closed:
            if stat in self._closed:
                self._closed.remove(stat)
            self.written.pop(stat.path, None)
            if not has_swaps(self._storage):  # there it was never put
                self._storage.delete(stat.path)


def _texts(rows: pa.Table) -> pa.Array:
    column = rows.column(_KEY).cast(pa.string())
    return pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
