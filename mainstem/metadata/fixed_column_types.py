"""Finds columns whose type the table's indexes fix. A transaction looks when it begins, and refuses rows that
would change such a type when they are written. What an index created later cannot hold is refused at
commit."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.layout.properties import TableConfig
from mainstem.metadata.index_definitions import read_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, PARTITION_STATS, SECONDARY_PREFIX
from mainstem.storage.protocol import Storage


@dataclass(frozen=True)
class HeldColumns:
    """``kept``: columns that keep their type, since Java cannot merge partition statistics of two types; a
    struct's field is named by the struct. ``whole``: columns that stay integers, since a secondary index has
    no text for fractions."""

    kept: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()


def held_columns(storage: Storage, config: TableConfig) -> HeldColumns:
    """Of the table with these properties. Raises ``CorruptTable`` for damaged definitions."""
    listed = config.metadata_partitions
    secondary = [name for name in listed if name.startswith(SECONDARY_PREFIX)]
    if PARTITION_STATS not in listed and not secondary:
        return HeldColumns()
    known = read_definitions(storage, config)
    stats = known.get(COLUMN_STATS) if PARTITION_STATS in listed else None
    indexes = [found for found in map(known.get, secondary) if found is not None]
    return HeldColumns(
        tuple(dict.fromkeys(name.partition(".")[0] for name in (stats.fields if stats else ()))),
        tuple(dict.fromkeys(name for index in indexes for name in index.fields)),
    )
