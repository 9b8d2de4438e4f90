"""A folder as a catalog, for one machine or one bucket: databases are its folders, tables the folders in
them.

It is what Hudi's Flink catalog has in the mode ``dfs`` (``HoodieCatalog``). Nothing is kept beside the
tables, so nothing can be out of date: a name is a place. On an object store a database is there while
something lies in it, so an empty one is kept by an object of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.catalogs.entries import PROVIDER
from mainstem.catalogs.protocol import Entry, WithoutPartitions
from mainstem.catalogs.table_names import DEFAULT_DATABASE, checked
from mainstem.errors import Invalid, MainstemError, Unavailable, Unsupported
from mainstem.layout.properties import has_table
from mainstem.storage.backends import storage_of
from mainstem.storage.folders import has_folders, make_folder
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage
from mainstem.storage.spellings import same_place


class FolderCatalog(WithoutPartitions):
    """``location``: the catalog's folder, which need not be there while nothing is in it."""

    keeps_entries = False
    of_iceberg = False

    def __init__(self, location: Location) -> None:
        self.location = location

    @property
    def place(self) -> str:
        return self.location.base

    @contextmanager
    def _storage(self, doing: str) -> Iterator[Storage]:
        try:
            yield storage_of(self.location)
        except OSError as error:
            raise Unavailable(f"the catalog {self.place} cannot be {doing}: {error}; try again") from error

    def _folders(self, folder: str) -> list[str]:
        with self._storage("listed") as storage:
            found = [entry.name for entry in storage.entries(folder) if entry.is_folder]
        return sorted(name for name in found if _is_name(name))

    def databases(self) -> list[str]:
        return sorted({DEFAULT_DATABASE, *self._folders("")})

    def has_database(self, database: str) -> bool:
        return checked(database, "database") in self.databases()

    def create_database(self, database: str, comment: str) -> bool:
        if checked(database, "database") in self._folders(""):
            return False
        with self._storage("written") as storage:
            if has_folders(storage):
                make_folder(storage, database)
                storage.settle([], [""], durable=True)
            else:
                storage.put(_kept(database), b"", durable=True)
        return True

    def drop_database(self, database: str) -> bool:
        if database not in self._folders(""):
            return False
        with self._storage("read") as storage:
            there = [e.name for e in storage.entries(database) if f"{database}/{e.name}" != _kept(database)]
        if there:
            raise Invalid(
                f"the database {database} of {self.place} is not empty: it holds {min(there)}; drop its"
                " tables first"
            )
        with self._storage("changed") as storage:
            if has_folders(storage):
                storage.delete_tree(database)
            else:
                storage.delete(_kept(database))
        return True

    def tables(self, database: str) -> list[str]:
        if not self.has_database(database):
            raise Invalid(
                f"the catalog {self.place} has no database {database}: it has {', '.join(self.databases())}"
            )
        return self._folders(database)

    def table_location(self, database: str, name: str) -> str:
        return self.location.below(f"{checked(database, 'database')}/{checked(name, 'table')}").base

    def entry(self, database: str, name: str) -> Entry | None:
        where = self.table_location(database, name)
        folder = f"{database}/{name}"
        with self._storage("read") as storage:
            if has_table(storage, folder):
                return Entry(database, name, where, parameters={PROVIDER: "hudi"})
            there = sorted(e.name for e in storage.entries(folder))
        if not there:
            return None
        kind = {"_delta_log": "delta", "metadata": "iceberg"}
        found = next((kind[one] for one in there if one in kind), "")
        return Entry(database, name, where, parameters={PROVIDER: found or "folder"})

    def create(self, entry: Entry) -> bool:
        """Only what lies in its folder has a name."""
        where = self.table_location(entry.database, entry.name)
        if not same_place(where, entry.location):
            raise Unsupported(
                f"{entry.full_name} of the catalog {self.place} is the folder {where}, and the table lies in"
                f" {entry.location}: in a folder as catalog a table's place is its name. Move the folder"
                " while nobody"
                " writes, or use a Hive Metastore"
            )
        return True

    def alter(self, entry: Entry, *, cascade: bool) -> None:
        return

    def drop(self, database: str, name: str) -> bool:
        if self.entry(database, name) is None:
            return False
        where = self.table_location(database, name)
        raise Unsupported(
            f"{database}.{name} is the folder {where} itself: there is no name apart from the table. To"
            " delete the"
            " table with all of its rows say purge=True (command line: --purge)"
        )


def _is_name(name: str) -> bool:
    try:
        return bool(checked(name, "table"))
    except MainstemError:
        return False


def _kept(database: str) -> str:
    return f"{database}/.database"
