"""A session whose catalog is a Hive Metastore: tables that SQL makes are registered as Hudi's sync does.

Spark would note this source as the table's provider, and neither Hive nor a Spark with Hudi's jar could read
it. So the entry is made by our sync, under one name as Hudi's own CREATE TABLE makes it, and its properties
are options with which every later statement syncs, too (``ProvidesHoodieConfig`` of Hudi). None of them says
where the metastore is: the session does, as an entry could name anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mainstem.api.catalog import sync_by_options
from mainstem.api.table import Table
from mainstem.options.catalogs import (
    HIVE_SYNC,
    METASTORE_URIS,
    SYNC_DATABASE,
    SYNC_TABLE,
    TABLE_PROPERTIES,
    TABLE_STRATEGY,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URIS = "hive.metastore.uris"


def is_hive(spark: SparkSession) -> bool:
    """Whether the session's catalog is Hive's."""
    return bool(spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive")


def _uris(spark: SparkSession) -> str:
    """Where the session's metastore is; "" for one in this JVM, or if there is no client for it."""
    if find_spec("hive_metastore") is None:
        return ""
    return str(spark._jsparkSession.sparkContext().hadoopConfiguration().get(_URIS) or "")


def sync_options(spark: SparkSession, parts: tuple[str, ...]) -> dict[str, str]:
    """Options of the sync of a table of that name; none where the session's catalog is no Hive Metastore that
    can be spoken to from here."""
    uris = _uris(spark) if is_hive(spark) else ""
    if not uris:
        return {}
    database = parts[-2] if len(parts) > 1 else spark.catalog.currentDatabase()
    return {
        HIVE_SYNC: "true", METASTORE_URIS: uris, SYNC_DATABASE: database, SYNC_TABLE: parts[-1],
        TABLE_STRATEGY: "RT",
    }  # fmt: skip


def completed(spark: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """An entry's options with the session's metastore; without it nothing is synced."""
    if options.get(HIVE_SYNC, "").lower() != "true" or not is_hive(spark):
        return dict(options)
    uris = _uris(spark)
    if not uris:
        return {name: text for name, text in options.items() if name != HIVE_SYNC}
    return {**options, METASTORE_URIS: uris}


def register(spark: SparkSession, table: Table, options: Mapping[str, str], kept: Mapping[str, str]) -> None:
    """Makes the entry, or brings it up to the table. ``kept``: what stands among its properties."""
    told = (f"{name}={text}" for name, text in kept.items() if "\n" not in text and name != METASTORE_URIS)
    sync_by_options(table.path, {**options, TABLE_PROPERTIES: "\n".join(told)})
    spark.catalog.refreshTable(f"`{options[SYNC_DATABASE]}`.`{options[SYNC_TABLE]}`")
