"""Brings a catalog's entries up to a table, as ``HiveSyncTool`` does, in this order:

  1. one look at the table: its schema, its completed writes
  2. the database, if it may be made
  3. for each name of the table (NAME_ro, NAME_rt, NAME): the entry is made, or brought up to schema and
     properties
  4. its partitions: new ones added, moved ones moved, those that are gone dropped
  5. last, the times up to which the entry is true

A process that dies in between leaves an entry whose times are older: the next sync does the rest. Two that
sync at once do the same twice. Each finishes 4 before 5, and one whose look is older than an entry's times
leaves it alone.

The first sync of a process compares all partitions; later ones look at those that were written since. That
misses none: a write that this process has not seen yet was pending at its last look, or began after it, so it
is on the timeline as long as nothing of that age was archived. Otherwise all are compared again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from mainstem.catalogs.belief import kind_of
from mainstem.catalogs.entries import (
    LAST_COMPLETION,
    PART,
    Look,
    Role,
    check_type_change,
    entry_of,
    marks,
    roles,
    shows_timestamps,
)
from mainstem.catalogs.partition_values import PartitionValues
from mainstem.catalogs.protocol import CatalogStore, Entry, Part
from mainstem.catalogs.sync_options import SyncOptions
from mainstem.catalogs.table_names import checked
from mainstem.errors import Invalid
from mainstem.layout.properties import MERGE_ON_READ, TableConfig
from mainstem.readers.planning.file_listing import query_listing
from mainstem.readers.planning.query_schema import table_schema
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.protocol import Storage
from mainstem.storage.spellings import same_place
from mainstem.timeline.active import ActiveTimeline

_COMMENT = "automatically created by mainstem"
_DROPPING = "DELETE_PARTITION"


@dataclass(frozen=True)
class Synced:
    """What a sync did. ``names``: the entries; partitions are counted over all of them; ``left_alone``:
    locations of partitions in the catalog that lie outside the table, which is never what a sync makes."""

    names: tuple[str, ...]
    created: tuple[str, ...]
    added: int
    moved: int
    dropped: int
    left_alone: tuple[str, ...]
    instant: str | None
    completion_time: str | None


@dataclass
class _Done:
    created: list[str] = field(default_factory=list)
    added: int = 0
    moved: int = 0
    dropped: int = 0
    left_alone: list[str] = field(default_factory=list)


@dataclass
class Synchroniser:
    """Keeps the entries of one table in one catalog. Not for several threads at once."""

    storage: Storage
    config: TableConfig
    catalog: CatalogStore
    options: SyncOptions
    _seen: ActiveTimeline | None = None
    #: name of an entry -> values of the partitions that it is known to have
    _known: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self._values  # raises ``Unsupported`` before anything is written

    def sync(self) -> Synced:
        """Raises ``Invalid`` for a name that is another table's, ``Unsupported`` for columns that cannot
        follow, and ``Unavailable`` where the catalog does not answer. The table is not changed."""
        name = self.options.table or checked(self.config.name, "table")
        state = TableState.load(self.storage, self.config)
        seen, self._seen = self._seen, None  # after a failure all partitions are compared again
        look = self._look(state)
        done = _Done()
        self._provide_database()
        wanted = roles(look, self.options, name)
        listed: dict[tuple[str, ...], str] | None = None
        for role in wanted:
            entry, is_new = self._entry(look, role, done)
            if entry is None:
                continue  # a later look was here already
            if look.partition_columns:
                changed = None if is_new or seen is None else self._written_since(state, seen)
                if changed is None and listed is None:
                    listed = self._by_values(p.partition for p in query_listing(state, metadata=True))
                if changed is None:
                    self._all_partitions(entry, look, listed or {}, done)
                else:
                    self._some_partitions(entry, look, changed, done)
            self._note(entry, look, done)
        self._seen = state.timeline
        requested, completion = look.last
        return Synced(
            tuple(f"{self.options.database}.{role.name}" for role in wanted), tuple(done.created), done.added,
            done.moved, done.dropped, tuple(done.left_alone), requested or None, completion or None,
        )  # fmt: skip

    # -- the table -------------------------------------------------------------------------------

    def _look(self, state: TableState) -> Look:
        base = self.options.base or self.storage.base
        if not same_place(base, self.storage.base):
            raise Invalid(f"the location {base!r} for the catalog is another place than the table's",
                          table=self.storage.base)  # fmt: skip
        columns = self.options.partition_columns
        last = ("", "")
        if state.writes:
            completions = [one.completion or "" for one in state.writes]
            last = (state.writes[-1].requested, max(completions))
        return Look(
            base, table_schema(state).text, self.config.partition_fields if columns is None else columns,
            self.config.table_type == MERGE_ON_READ, last,
        )  # fmt: skip

    @property
    def _values(self) -> PartitionValues:
        columns = self.options.partition_columns
        return PartitionValues.of(
            self.config, self.config.partition_fields if columns is None else columns, self.options.extractor,
            self.options.decode_partition,
        )  # fmt: skip

    def _by_values(self, partitions: Iterable[str]) -> dict[tuple[str, ...], str]:
        """Values -> path, in the order of the paths."""
        take = self._values
        return {take(path): path for path in sorted(partitions) if path}

    def _written_since(
        self, state: TableState, seen: ActiveTimeline
    ) -> dict[tuple[str, ...], str | None] | None:
        """Values of the partitions that were written since -> their path, None for those that were dropped.
        None if that cannot be known."""
        open_then = [i.requested for i in seen.pending] + ([seen.newest_time] if seen.newest_time else [])
        start = state.timeline.start
        if start is None or not open_then or start > min(open_then):
            return None
        known = {i.file_name for i in seen.completed}
        news = (i for i in state.writes if i.file_name not in known)
        fresh = sorted(news, key=lambda i: i.completion or "")
        found: dict[str, bool] = {}
        for instant in fresh:
            metadata = state.metadata(instant.requested)
            if metadata is None:
                return None
            found |= dict.fromkeys(metadata.stats, True)
            if metadata.operation.upper() == _DROPPING:
                found |= dict.fromkeys(metadata.replaced, False)
        take = self._values
        return {take(path): path if there else None for path, there in sorted(found.items()) if path}

    # -- the catalog -----------------------------------------------------------------------------

    def _provide_database(self) -> None:
        database = self.options.database
        if self.catalog.has_database(database):
            return
        if not self.options.auto_database:
            raise Invalid(f"{self.catalog.place} has no database {database}: create it first")
        self.catalog.create_database(database, _COMMENT)

    def _entry(self, look: Look, role: Role, done: _Done) -> tuple[Entry | None, bool]:
        """The entry, up to schema and properties, and whether it was made now; None for one that is newer."""
        database = self.options.database
        found = self.catalog.entry(database, role.name)
        if found is None:
            wanted = entry_of(look, self.options, role, self.options.timestamps is not False)
            made = self.catalog.create(wanted)
            if made:
                done.created.append(wanted.full_name)
            found = self.catalog.entry(database, role.name) or wanted
            if made:
                return found, True
        self._check_same(found, look)
        if found.parameters.get(LAST_COMPLETION, "") > look.last[1] and self._is_overtaken(found):
            return None, False
        timestamps = self.options.timestamps
        wanted = entry_of(
            look, self.options, role, shows_timestamps(found, look) if timestamps is None else timestamps
        )
        return self._brought_up(found, wanted, look), False

    def _is_overtaken(self, found: Entry) -> bool:
        """Whether another process synced a later look; else the entry's time was taken back by a restore."""
        now = self._look(TableState.load(self.storage, self.config))
        return found.parameters[LAST_COMPLETION] <= now.last[1]

    def _check_same(self, found: Entry, look: Look) -> None:
        kind = kind_of(found)
        if kind != "hudi":
            raise Invalid(
                f"the name {found.full_name} of {self.catalog.place} is that of a table of the format"
                f" {kind[:40]!r}:"
                " register under another name, or drop that entry first. Nothing was changed",
                table=self.storage.base,
            )
        if not same_place(found.location, look.location):
            raise Invalid(
                f"the name {found.full_name} of {self.catalog.place} is taken by the table at another place,"
                f" {found.location[:300]!r}: register under another name, or drop that entry first (its"
                " table stays)."
                " Nothing was changed",
                table=self.storage.base,
            )

    def _brought_up(self, found: Entry, wanted: Entry, look: Look) -> Entry:
        if not self.catalog.keeps_entries:
            return found
        if [name for name, _ in found.partition_columns] != [name for name, _ in wanted.partition_columns]:
            raise Invalid(
                f"{found.full_name} of {self.catalog.place} has the partition columns"
                f" {[name for name, _ in found.partition_columns]}, and the table"
                f" {[name for name, _ in wanted.partition_columns]}: drop the entry (the table stays) and"
                " sync again",
                table=self.storage.base,
            )
        check_type_change(found, (*wanted.columns, *wanted.partition_columns))
        columns = tuple((name.lower(), kind.lower().replace(" ", "")) for name, kind in found.columns)
        new_columns = columns != wanted.columns
        parameters = {
            key: text for key, text in found.parameters.items() if not key.startswith(PART) or key in
            wanted.parameters
        }
        parameters |= wanted.parameters
        serde = {**found.serde_parameters, **wanted.serde_parameters}
        same = (
            not new_columns and parameters == dict(found.parameters) and serde == dict(found.serde_parameters)
            and (found.input_format, found.output_format, found.serde)
            == (wanted.input_format, wanted.output_format, wanted.serde)
        )  # fmt: skip
        if same:
            return found
        changed = replace(
            wanted, parameters=parameters, serde_parameters=serde, partition_columns=found.partition_columns,
            location=found.location, found=found.found,
        )  # fmt: skip
        self.catalog.alter(changed, cascade=new_columns and bool(found.partition_columns))
        return self.catalog.entry(found.database, found.name) or changed

    def _note(self, entry: Entry, look: Look, done: _Done) -> None:
        wanted = marks(look)
        changed = bool(done.created or done.added or done.moved or done.dropped)
        if not self.catalog.keeps_entries or (self.options.conditional and not changed):
            return
        if any(entry.parameters.get(key) != text for key, text in wanted.items()):
            self.catalog.alter(replace(entry, parameters={**entry.parameters, **wanted}), cascade=False)

    # -- partitions ------------------------------------------------------------------------------

    def _all_partitions(
        self, entry: Entry, look: Look, wanted: dict[tuple[str, ...], str], done: _Done
    ) -> None:
        there = {part.values: part for part in self.catalog.partitions(entry)}
        self._known[entry.name] = set(there)
        add = [self._part(look, values, path) for values, path in wanted.items() if values not in there]
        move, drop = [], []
        for values, part in sorted(there.items()):
            if values in wanted:
                mine = self._part(look, values, wanted[values])
                if not same_place(part.location, mine.location):
                    move.append(mine)
            elif _inside(part.location, look.location):
                drop.append(part)
            else:
                done.left_alone.append(part.location)
        self._change(entry, add, move, drop, done)

    def _some_partitions(
        self, entry: Entry, look: Look, changed: dict[tuple[str, ...], str | None], done: _Done
    ) -> None:
        if not changed:
            return
        known = self._known.get(entry.name, set())
        add = [
            self._part(look, values, path)
            for values, path in changed.items()
            if path is not None and values not in known
        ]
        drop = [self._part(look, values, "") for values, path in changed.items() if path is None]
        self._change(entry, add, [], drop, done)

    def _part(self, look: Look, values: tuple[str, ...], path: str) -> Part:
        return Part(values, f"{look.location}/{path}")

    def _change(self, entry: Entry, add: list[Part], move: list[Part], drop: list[Part], done: _Done) -> None:
        size = self.options.batch
        for parts, change in (
            (add, self.catalog.add_partitions), (move, self.catalog.move_partitions),
            (drop, self.catalog.drop_partitions),
        ):  # fmt: skip
            for at in range(0, len(parts), size):
                change(entry, parts[at : at + size])
        known = self._known.setdefault(entry.name, set())
        known.update(part.values for part in (*add, *move))
        known.difference_update(part.values for part in drop)
        done.added += len(add)
        done.moved += len(move)
        done.dropped += len(drop)


def _inside(place: str, base: str) -> bool:
    """Whether a place lies in a folder of the table, by its names alone."""
    above = place.rstrip("/")
    while "/" in above:
        above = above.rpartition("/")[0]
        if above and same_place(above, base):
            return True
    return False
