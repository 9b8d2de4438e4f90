"""Columns whose type indexes of the table hold fast, asked when a transaction begins: rows that would change
it are refused when they are written. What an index that came later cannot hold is refused at commit."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.layout.properties import TableConfig
from mainstem.metadata.index_definitions import read_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, PARTITION_STATS, SECONDARY_PREFIX
from mainstem.storage.protocol import Storage


@dataclass(frozen=True)
class HeldColumns:
    """``kept``: columns that keep their type, since Java cannot merge statistics of partitions of two types;
    those of structs by the struct. ``whole``: whole numbers that stay such, since fractions have no text in a
    secondary index."""

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
