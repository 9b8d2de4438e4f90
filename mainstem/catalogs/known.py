"""Which catalog a text means, and where a name's table lies."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from mainstem.catalogs.belief import place_of, read_optimized
from mainstem.catalogs.folder import FolderCatalog
from mainstem.catalogs.glue import SCHEME as GLUE
from mainstem.catalogs.glue import Glue
from mainstem.catalogs.hive_metastore import SCHEME as THRIFT
from mainstem.catalogs.hive_metastore import HiveMetastore, check_uris
from mainstem.catalogs.iceberg_rest import SCHEME as REST
from mainstem.catalogs.iceberg_rest import IcebergRest, check_rest_place
from mainstem.catalogs.protocol import CatalogStore, Entry
from mainstem.catalogs.sync_options import SyncOptions
from mainstem.catalogs.table_names import split_name
from mainstem.errors import Invalid
from mainstem.storage.backends import Place, location_of
from mainstem.storage.location import Location

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def store_of(place: Place, options: Mapping[str, str] = _NO_OPTIONS) -> CatalogStore:
    """``thrift://host:port`` (several with commas): a Hive Metastore; ``glue:`` or ``glue://region``: AWS
    Glue; ``rest:http://host:port``: an Iceberg REST catalog; a path or URL: a folder. ``options``:
    those of the folder's store. Raises ``Invalid``."""
    if isinstance(place, str):
        if place.startswith(THRIFT):
            check_uris(place)
            return HiveMetastore(place)
        if place.startswith(GLUE):
            return Glue(place.removeprefix(GLUE).strip("/"))
        if place.startswith(REST):
            check_rest_place(place)
            return IcebergRest(place)
    return FolderCatalog(location_of(place, options=options))


def store_for_sync(options: SyncOptions) -> CatalogStore:
    """The catalog that options of a sync name."""
    if options.place.startswith(GLUE):
        region = options.place.removeprefix(GLUE).strip("/")
        return Glue(region, options.glue_listing, options.glue_skip_archive)
    check_uris(options.place)
    return HiveMetastore(options.place)


def entry_named(store: CatalogStore, name: str) -> Entry:
    """Raises ``Invalid`` for a name that is not there, with one that was perhaps meant."""
    database, table = split_name(name)
    entry = store.entry(database, table)
    if entry is not None:
        return entry
    if not store.has_database(database):
        raise Invalid(f"{store.place} has no database {database}: it has {', '.join(store.databases()[:20])}")
    names = store.tables(database)
    near = difflib.get_close_matches(table, names, n=1, cutoff=0.6)
    hint = f"did you mean {database}.{near[0]}?" if near else f"it has {', '.join(names[:20]) or 'none'}"
    raise Invalid(f"{store.place} has no table {database}.{table}: {hint}")


def located(store: CatalogStore, name: str) -> Location:
    """Where the table of a name lies, to open it.

    Raises ``Invalid`` for a name that is not there or is that of the base files alone, ``Unsupported`` for a
    table of another format.
    """
    entry = entry_named(store, name)
    place = place_of(entry, store.place)
    if read_optimized(entry):
        near = entry.name.removesuffix("_ro")
        raise Invalid(
            f"{entry.full_name} is the read optimized name of the table in {place.base}, which shows its"
            " base files"
            f" alone: open {entry.database}.{near} (or the path) and ask for scan(mode='read_optimized')"
        )
    return place


def gone(store: CatalogStore, name: str, place: Location) -> Invalid:
    """The error for an entry whose table is not there."""
    return Invalid(
        f"{name} in {store.place} names the folder {place.base}, and there is no table: bring the folder"
        " back, register"
        " the table's new place, or drop the entry. Nothing was changed"
    )
