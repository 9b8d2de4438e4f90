"""A catalog as users see it: tables by name, registered, opened, listed, dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mainstem.api.create import create_table
from mainstem.api.purging import Purged, purge
from mainstem.api.real_seams import as_text
from mainstem.api.table import Table, open_table
from mainstem.catalogs.belief import HUDI, kind_of, place_of, read_optimized
from mainstem.catalogs.entries import LAST_COMPLETION, LAST_TIME
from mainstem.catalogs.iceberg_names import name_version
from mainstem.catalogs.known import entry_named, store_for_sync, store_of
from mainstem.catalogs.protocol import Column, Entry
from mainstem.catalogs.sync_options import SyncOptions
from mainstem.catalogs.synchronising import Synced, Synchroniser
from mainstem.catalogs.table_names import DEFAULT_DATABASE, checked, split_name
from mainstem.errors import Invalid, MainstemError, TableExists, Unsupported
from mainstem.options.catalogs import SYNC_OPTIONS, TABLE_STRATEGY
from mainstem.storage.backends import Place, location_of
from mainstem.storage.spellings import same_place
from mainstem.storage.store_options import split

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.catalogs.protocol import CatalogStore


@dataclass(frozen=True)
class CatalogEntry:
    """What a catalog says of a name. ``format``: ``hudi``, ``iceberg``, ``delta``, ``view`` or another
    provider; ``columns`` and ``partition_columns``: names and types of Hive, empty where the catalog keeps
    none; the two times: up to when the entry was synced."""

    name: str
    format: str
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    read_optimized: bool
    last_instant: str | None
    last_completion_time: str | None


class Catalog:
    """Names of tables. Made by ``open_catalog``; cheap, holds no connection, may be used from several threads
    and pickled. A name is ``table`` (of the database ``default``) or ``database.table``."""

    def __init__(self, store: CatalogStore, properties: Mapping[str, str]) -> None:
        self.store = store
        self._given = dict(properties)

    def __repr__(self) -> str:
        return f"Catalog({self.place!r})"

    def __reduce__(self) -> Any:
        return open_catalog, (self.place, self._given)

    @property
    def place(self) -> str:
        """What it was opened by."""
        return self.store.place

    # -- databases -------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """Names in order."""
        return self.store.databases()

    def create_database(self, name: str, *, if_not_exists: bool = False, comment: str = "") -> None:
        """Raises ``Invalid`` if it is there."""
        if not self.store.create_database(checked(name, "database"), comment) and not if_not_exists:
            raise Invalid(f"{self.place} has a database {name} already")

    def drop_database(self, name: str, *, if_exists: bool = False) -> None:
        """Drops an empty database. Raises ``Invalid`` for one with tables, or if there is none."""
        if not self.store.drop_database(checked(name, "database")) and not if_exists:
            raise Invalid(f"{self.place} has no database {name}")

    # -- tables ----------------------------------------------------------------------------------

    def tables(self, database: str = DEFAULT_DATABASE) -> list[str]:
        """Names in order, of tables of other formats, too."""
        return self.store.tables(checked(database, "database"))

    def describe(self, name: str) -> CatalogEntry:
        """What the catalog says, without a look at the table. Raises ``Invalid`` for an unknown name."""
        entry = entry_named(self.store, name)
        said = entry.parameters.get
        return CatalogEntry(
            entry.full_name, kind_of(entry), entry.location, entry.columns, entry.partition_columns,
            read_optimized(entry), said(LAST_TIME), said(LAST_COMPLETION),
        )  # fmt: skip

    def open_table(self, name: str, properties: Mapping[str, object] | None = None) -> Table:
        """``mainstem.open_table`` of the place that the name stands for.

        Raises ``Invalid`` for a name that is not there and for an entry whose table is gone, ``Unsupported``
        for a table of another format.
        """
        return open_table(name, {**self._given, **(properties or {})}, catalog=self)

    def create_table(
        self, name: str, schema: pa.Schema, *, record_key: Sequence[str] | str, location: Place | None = None,
        properties: Mapping[str, object] | None = None, **options: Any,
    ) -> Table:  # fmt: skip
        """``mainstem.create_table`` and its registration. ``location``: without it, the place that the
        catalog has for the name; ``options``: the other arguments of ``mainstem.create_table``.

        Raises ``TableExists`` for a name that is taken, ``Invalid`` for an unknown database.
        """
        database, table = split_name(name)
        if not self.store.has_database(database):
            raise Invalid(f"{self.place} has no database {database}: create_database({database!r}) makes it")
        known = self.store.entry(database, table)
        if known is not None:
            raise TableExists(
                f"{database}.{table} of {self.place} is there already, in {known.location}: open it by its"
                " name, or drop"
                " the entry"
            )
        place = self.store.table_location(database, table) if location is None else location
        of_store, given = split({**self._given, **as_text(properties)})
        of_sync = {key: given.pop(key) for key in (*SYNC_OPTIONS,) if key in given}
        made = create_table(
            location_of(place, options=of_store), schema, record_key=record_key, properties=given,
            **{"name": table, **options},
        )  # fmt: skip
        self._sync(made, database, table, of_sync)
        return made

    def register(
        self, name: str, path: Place, properties: Mapping[str, object] | None = None
    ) -> Synced:
        """Gives the table at ``path`` a name: entries, columns and partitions as Hudi's own sync makes them.
        A name that the table has already is brought up to date.

        ``properties``: Hudi's options of the sync, and those of the table's store. Raises ``Invalid`` for a
        name that is another table's.
        """
        database, table = split_name(name)
        of_sync, others = _apart(as_text(properties))
        return self._sync(open_table(path, {**self._given, **others}), database, table, of_sync)

    def refresh(self, name: str, properties: Mapping[str, object] | None = None) -> Synced:
        """Brings an entry up to its table: columns, partitions and properties."""
        database, table = split_name(name)
        entry = entry_named(self.store, name)
        for suffix in ("_ro", "_rt"):
            whole = table.removesuffix(suffix)
            if whole != table and (one := self.store.entry(database, whole)) is not None:
                table = whole if same_place(one.location, entry.location) else table
        of_sync, others = _apart(as_text(properties))
        whole_entry = self.store.entry(database, table) or entry
        if TABLE_STRATEGY not in of_sync and self.store.keeps_entries and not self._companions(whole_entry):
            of_sync[TABLE_STRATEGY] = "RO" if read_optimized(whole_entry) else "RT"  # as it was registered
        place = place_of(entry, self.place)
        return self._sync(open_table(place, {**self._given, **others}), database, table, of_sync)

    def drop_table(self, name: str, *, if_exists: bool = False, purge: bool = False) -> Purged | None:
        """Removes a name; with it NAME_ro and NAME_rt, if they are the same table's. The table stays.

        ``purge``: deletes the table with all of its rows, too: what parses as a file of it, and nothing else.
        Writers that are open are refused from then on. Returns what that did. Raises ``Invalid`` for a name
        that is not there, ``Unsupported`` for a table of another format, and without ``purge`` in a folder as
        catalog, where name and table are one.
        """
        database, table = split_name(name)
        entry = self.store.entry(database, table)
        if entry is None:
            if if_exists:
                return None
            entry = entry_named(self.store, name)
        kind = kind_of(entry)
        if kind != HUDI:
            raise Unsupported(
                f"{entry.full_name} of {self.place} is no Hudi table but {kind[:40]!r}: drop it there"
            )
        names = [entry, *self._companions(entry)]
        if not purge:
            for one in names:
                self.store.drop(one.database, one.name)
            return None
        of_store, _ = split(self._given)
        done = _purged(entry, self.place, of_store)
        if self.store.keeps_entries:
            for one in names:
                self.store.drop(one.database, one.name)
        return done

    def _companions(self, entry: Entry) -> list[Entry]:
        if not self.store.keeps_entries:
            return []
        found = (self.store.entry(entry.database, f"{entry.name}{suffix}") for suffix in ("_ro", "_rt"))
        return [
            one for one in found
            if one is not None and kind_of(one) == HUDI and same_place(one.location, entry.location)
        ]  # fmt: skip

    def _sync(self, table: Table, database: str, name: str, of_sync: Mapping[str, str]) -> Synced:
        store = self.store
        if store.of_iceberg:
            return self._sync_iceberg(table, database, name)
        options = replace(SyncOptions.of(of_sync, self.place), database=database, table=name)
        if not store.keeps_entries:
            store.create(Entry(database, name, table.path))  # raises for another place
            done = [i for i in table.timeline() if i.is_completed]
            last = max(done, key=lambda i: i.completion or "", default=None)
            told = (None, None) if last is None else (last.requested, last.completion)
            return Synced((f"{database}.{name}",), (), 0, 0, 0, (), *told)
        try:
            return Synchroniser(table.opened.seams.storage, table.config, store, options).sync()
        except MainstemError as error:
            error.table = error.table or table.path
            raise


    def _sync_iceberg(self, table: Table, database: str, name: str) -> Synced:
        """Publishes Iceberg's metadata, and lets the name stand for it."""
        published = table.services.publish_iceberg()
        full_name = f"{database}.{name}"
        made = (full_name,) if name_version(self.store, database, name, published) else ()
        return Synced((full_name,), made, 0, 0, 0, (), None, published.seen or None)


def open_catalog(place: Place, properties: Mapping[str, object] | None = None) -> Catalog:
    """The catalog of a Hive Metastore (``thrift://host:9083``, several with commas), of AWS Glue (``glue:``
    or ``glue://region``), of Iceberg's REST protocol (``rest:http://host:8181``), or of a
    folder: a path or URL, whose folders are databases and theirs tables.

    ``properties``: options of the store in which the folder or the tables lie, and what every ``open_table``
    of this catalog is given. Nothing is asked yet. Raises ``Invalid`` for text that names no catalog.
    """
    given = as_text(properties)
    return Catalog(store_of(place, split(given)[0]), given)


def sync_by_options(
    path: Place, properties: Mapping[str, object] | None = None, *, catalog: str | None = None
) -> Synced:
    """One sync by Hudi's options (``hoodie.datasource.hive_sync.*``), as ``HiveSyncTool`` runs it.

    ``catalog``: ``path`` is a name in it, and that is what is brought up to the table.
    """
    if catalog is not None:
        if not isinstance(path, str):
            raise Invalid(f"{path!r} is no name in {catalog}")
        return open_catalog(catalog).refresh(path, properties)
    of_sync, others = _apart(as_text(properties))
    table = open_table(path, others)
    options = SyncOptions.of(of_sync)
    try:
        return Synchroniser(
            table.opened.seams.storage, table.config, store_for_sync(options), options
        ).sync()
    except MainstemError as error:
        error.table = error.table or table.path
        raise


def _apart(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the sync, and the others."""
    of_sync = {key: text for key, text in given.items() if key in SYNC_OPTIONS}
    return of_sync, {key: text for key, text in given.items() if key not in of_sync}


def _purged(entry: Entry, catalog: str, of_store: Mapping[str, str]) -> Purged:
    return purge(location_of(place_of(entry, catalog), options=of_store))
