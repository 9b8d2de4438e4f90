"""What a table must answer, from what its writers wrote and when: plain dictionaries, no reader.

The rules are Hudi's (record merge modes, RFC-66 file slices, incremental queries by completion time),
written down row by row. Nothing of mainstem is imported: bucket hash, record keys, partition paths and
merges are a second writing of the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Row = Mapping[str, Any]
Place = tuple[str, str]
"""Partition path and record key."""

CONSTANT_ID = "-0000-0000-0000-000000000000-0"


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 units, 32 bits, signed."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def bucket_of(values: Sequence[str], buckets: int) -> int:
    """``List.hashCode`` of the key's values, without its sign bit, modulo the number of buckets."""
    value = 1
    for text in values:
        value = (31 * value + java_hash(text)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % buckets


@dataclass(frozen=True)
class Shape:
    """Where rows land and who wins. ``ordering`` is empty under COMMIT_TIME_ORDERING."""

    record_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    hive_style: bool
    buckets: int
    ordering: tuple[str, ...]
    partial: bool

    def place(self, row: Row) -> Place:
        """Partition path and record key of a row."""
        values = [(name, str(row[name])) for name in self.partition_by]
        path = "/".join(f"{name}={text}" if self.hive_style else text for name, text in values)
        if len(self.record_key) == 1:
            return path, str(row[self.record_key[0]])
        return path, ",".join(f"{name}:{row[name]}" for name in self.record_key)

    def file_id(self, row: Row) -> str:
        """The constant file id of the row's bucket under non-blocking concurrency control."""
        bucket = bucket_of([str(row[name]) for name in self.record_key], self.buckets)
        return f"{bucket:08d}{CONSTANT_ID}"

    def order(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.ordering)


@dataclass(frozen=True)
class Entry:
    """What one commit says about one key. ``order`` None: a delete that wins over whatever is older."""

    place: Place
    file_id: str
    instant: str
    row: Row | None
    order: tuple[Any, ...] | None
    #: requested time of the compaction whose base file holds the row; None for a row of a log
    base: str | None = None


@dataclass(frozen=True)
class Commit:
    """One delta commit with its rows and deletes, in the order in which readers replay them."""

    requested: str
    completion: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Compaction:
    """A compaction that ran while nobody had a transaction open."""

    requested: str
    completion: str


@dataclass
class Model:
    """All that happened to a table, and the answers that follow from it."""

    shape: Shape
    commits: list[Commit] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)

    def add(
        self,
        requested: str,
        completion: str,
        *writes: Iterable[Row],
        delete: bool = False,
        flag: str = "_hoodie_is_deleted",
    ) -> None:
        """One delta commit: upserts (``flag`` marks rows that are deletes), or Hudi's ``delete``.

        Within each write of a commit the deletes are appended behind the rows.
        """
        entries: list[Entry] = []
        for rows in writes:
            made = [self._entry(requested, row, delete, flag) for row in rows]
            entries += sorted(made, key=lambda entry: entry.row is None)
        self.commits.append(Commit(requested, completion, tuple(entries)))

    def _entry(self, requested: str, row: Row, delete: bool, flag: str) -> Entry:
        place, file_id = self.shape.place(row), self.shape.file_id(row)
        if delete:
            return Entry(place, file_id, requested, None, None)
        gone = bool(row.get(flag))
        return Entry(place, file_id, requested, None if gone else row, self.shape.order(row))

    # -- answers ---------------------------------------------------------------------------------

    def snapshot(self, as_of: str | None = None) -> list[Entry]:
        """All rows; ``as_of`` is a requested time, as in Hudi's time travel."""
        shown = []
        for history in self._groups().values():
            slices = [s for s in self._slices(history) if as_of is None or s.instant <= as_of]
            if slices:
                logs = [c for c in slices[-1].logs if as_of is None or c.requested <= as_of]
                shown += self._merged(slices[-1].base, logs).values()
        return shown

    def read_optimized(self) -> list[Entry]:
        """Rows of the newest base files."""
        shown: list[Entry] = []
        for history in self._groups().values():
            bases = [s.base for s in self._slices(history) if s.has_base]
            shown += bases[-1].values() if bases else ()
        return shown

    def changes(self, after: str, until: str | None) -> list[Entry]:
        """Rows that instants completed in (after, until] wrote, one per key.

        Per file group the newest slice among the files of those instants is merged, of a base file only
        the rows that one of those instants wrote.
        """

        def inside(instant: Commit | Compaction) -> bool:
            return after < instant.completion and (until is None or instant.completion <= until)

        window = {i.requested for i in (*self.commits, *self.compactions) if inside(i)}
        shown = []
        for history in self._groups().values():
            slices = self._slices(history)
            known = [s for s in slices if s.has_base and s.instant in window]
            base, since = (known[-1].base, known[-1].instant) if known else ({}, "")
            base = {place: entry for place, entry in base.items() if entry.instant in window}
            logs = [c for c in history if c.requested in window and c.completion > since]
            shown += self._merged(base, logs).values()
        return shown

    # -- file slices -----------------------------------------------------------------------------

    def _groups(self) -> dict[tuple[str, str], list[Commit]]:
        """(partition, file id) -> its part of each commit, in order of requested time."""
        groups: dict[tuple[str, str], list[Commit]] = {}
        for commit in sorted(self.commits, key=lambda c: c.requested):
            for group in dict.fromkeys((e.place[0], e.file_id) for e in commit.entries):
                mine = tuple(e for e in commit.entries if (e.place[0], e.file_id) == group)
                groups.setdefault(group, []).append(replace(commit, entries=mine))
        return groups

    def _slices(self, history: Sequence[Commit]) -> list[_Slice]:
        """Of one file group, oldest first; a compaction leaves out a group without new logs."""
        slices: list[_Slice] = []
        base: dict[Place, Entry] = {}
        begin, start = "", None
        for compaction in sorted(self.compactions, key=lambda c: c.requested):
            logs = [c for c in history if begin <= c.completion < compaction.requested]
            if not logs:
                continue
            slices.append(_Slice(start or logs[0].requested, base, logs, start is not None))
            merged = self._merged(base, logs)
            base = {place: replace(e, base=compaction.requested) for place, e in merged.items()}
            begin = start = compaction.requested
        logs = [c for c in history if begin <= c.completion]
        if start is not None or logs:
            slices.append(_Slice(start or logs[0].requested, base, logs, start is not None))
        return slices

    # -- merging ---------------------------------------------------------------------------------

    def _merged(self, base: Mapping[Place, Entry], logs: Sequence[Commit]) -> dict[Place, Entry]:
        """Base rows under what the logs say; the logs are folded among themselves first."""
        folded: dict[Place, Entry] = {}
        for commit in logs:
            for new in commit.entries:
                old = folded.get(new.place)
                folded[new.place] = new if old is None else self._fold(old, new)
        rows = dict(base)
        for place, entry in folded.items():
            found = self._onto_base(rows.get(place), entry)
            if found is None:
                rows.pop(place, None)
            else:
                rows[place] = found
        return rows

    def _fold(self, old: Entry, new: Entry) -> Entry:
        """A later entry of the logs meets an earlier one."""
        if not self.shape.ordering:
            return self._filled(new, old)
        if new.row is None:
            keep_old = old.order is None or (new.order is not None and old.order > new.order)
            return old if keep_old else new
        assert new.order is not None
        if old.order is None or new.order >= old.order:
            return self._filled(new, old)
        return self._filled(old, new)

    def _onto_base(self, base: Entry | None, log: Entry) -> Entry | None:
        if base is None:
            return None if log.row is None else log
        assert base.order is not None
        wins = not self.shape.ordering or log.order is None or log.order >= base.order
        if log.row is None:
            return None if wins else base
        return self._filled(log, base) if wins else self._filled(base, log)

    def _filled(self, winner: Entry, loser: Entry) -> Entry:
        """Under IGNORE_DEFAULTS the winner's nulls are taken from the row it beat."""
        if not self.shape.partial or winner.row is None or loser.row is None:
            return winner
        row = {k: loser.row[k] if v is None else v for k, v in winner.row.items()}
        return replace(winner, row=row)


@dataclass(frozen=True)
class _Slice:
    instant: str
    base: dict[Place, Entry]
    logs: list[Commit]
    has_base: bool
