"""What every catalog must do, and what it holds of a table. No catalog opens a table or deletes its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Column = tuple[str, str]
"""Name and type, as Hive spells it"""


@dataclass(frozen=True)
class Part:
    """A partition of an entry: a value for each partition column, and where it lies."""

    values: tuple[str, ...]
    location: str


@dataclass(frozen=True)
class Entry:
    """What a catalog holds of a table (Hive's ``Table`` with its ``StorageDescriptor``).

    ``found``: the catalog's own object, which is changed and not made anew, so that what others noted in it
    stays.
    """

    database: str
    name: str
    location: str
    columns: tuple[Column, ...] = ()
    partition_columns: tuple[Column, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    serde_parameters: Mapping[str, str] = field(default_factory=dict)
    serde: str = ""
    input_format: str = ""
    output_format: str = ""
    kind: str = "EXTERNAL_TABLE"
    found: Any = field(default=None, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """As users write it."""
        return f"{self.database}.{self.name}"


class CatalogStore(Protocol):
    """A catalog. Raises ``Unavailable`` where it does not answer, ``Invalid`` where it refuses.

    May be used from several threads, and in a forked child.
    """

    @property
    def place(self) -> str:
        """What ``open_catalog`` opens it by, for messages and pickles; holds no credentials."""

    #: whether it holds entries apart from the tables, which a sync keeps true
    keeps_entries: bool
    #: whether an entry is a version of a table's Iceberg metadata
    of_iceberg: bool

    def databases(self) -> list[str]:
        """Names in order."""

    def has_database(self, database: str) -> bool: ...

    def create_database(self, database: str, comment: str) -> bool:
        """False if it was there."""

    def drop_database(self, database: str) -> bool:
        """Drops an empty database; False if there was none. Raises ``Invalid`` for one with tables."""

    def tables(self, database: str) -> list[str]:
        """Names in order, whatever the tables' format. Raises ``Invalid`` for an unknown database."""

    def table_location(self, database: str, name: str) -> str:
        """Where a new table of that name goes."""

    def entry(self, database: str, name: str) -> Entry | None: ...

    def create(self, entry: Entry) -> bool:
        """False if another process has just made an entry of that name."""

    def alter(self, entry: Entry, *, cascade: bool) -> None:
        """Replaces ``entry.found``; ``cascade``: partitions get the columns, too."""

    def drop(self, database: str, name: str) -> bool:
        """Removes the name alone; False if there was none."""

    def partitions(self, entry: Entry) -> list[Part]: ...

    def add_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        """Those that another process adds meanwhile are no error."""

    def move_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        """Gives partitions that are there another location."""

    def drop_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        """Removes names alone; those that are gone are no error."""


class WithoutPartitions:
    """Part of a catalog that holds tables as a whole."""

    def partitions(self, entry: Entry) -> list[Part]:
        return []

    def add_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        return

    def move_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        return

    def drop_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        return


class Catalogued(Protocol):
    """A catalog as users hold it."""

    store: CatalogStore
