"""Lets a name in an Iceberg catalog stand for the newest version of a table's Iceberg metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.catalogs.entries import LAST_COMPLETION
from mainstem.catalogs.iceberg_rest import METADATA
from mainstem.catalogs.protocol import CatalogStore, Entry
from mainstem.catalogs.table_names import checked, split_name
from mainstem.errors import Invalid, Unsupported
from mainstem.storage.spellings import same_place

if TYPE_CHECKING:
    from mainstem.iceberg.publishing import Published


def name_version(store: CatalogStore, database: str, name: str, published: Published) -> bool:
    """Registers a version, or lets the name that is there stand for it, unless it stands for a later one;
    True if the name is new.

    Raises ``Invalid`` for a name that is another table's, ``Unavailable``.
    """
    metadata = published.metadata
    location = metadata.rpartition("/metadata/")[0]
    wanted = Entry(database, name, location, parameters={METADATA: metadata})
    found = store.entry(database, name)
    if found is None and store.create(wanted):
        return True
    found = found or store.entry(database, name)
    if found is not None and not same_place(found.location, location):
        raise Invalid(
            f"the name {wanted.full_name} of {store.place} is taken by the table at another place,"
            f" {found.location[:300]!r}: register under another name, or drop that entry first",
            table=location,
        )
    told = {} if found is None else found.parameters
    if told.get(METADATA) != metadata and told.get(LAST_COMPLETION, "") <= published.seen:
        store.alter(wanted, cascade=False)
    return False


class NamedAfterPublications:
    """Called with each version that this process publishes. ``name``: DATABASE.TABLE, or a table of the
    database ``default``."""

    def __init__(self, store: CatalogStore, name: str) -> None:
        """Raises ``Invalid`` for a name that is none, ``Unsupported`` for a catalog of another kind."""
        if not store.of_iceberg:
            raise Unsupported(f"{store.place} holds no Iceberg tables: expected rest:http://host:port")
        self._store, (self._database, self._name) = store, split_name(name)
        checked(self._name, "table")

    def __call__(self, published: Published) -> None:
        if not self._store.has_database(self._database):
            self._store.create_database(self._database, "")
        name_version(self._store, self._database, self._name, published)
