"""The indexes of a table: two lists in ``hoodie.properties``, changed under the table lock.

``hoodie.table.metadata.partitions`` names the partitions of the metadata table that are ready,
``hoodie.table.metadata.partitions.inflight`` those that are being built. Every writer maintains both
(``HoodieTableConfig.setMetadataPartitionState``); readers use the first only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from mainstem.layout.properties import FOR_JAVA, TableConfig
from mainstem.layout.property_change import change_properties, date_text
from mainstem.metadata.commits.setting_aside import without_rebuild
from mainstem.metadata.index_definitions import definitions_path
from mainstem.metadata.metadata_partitions import PARTITION_STATS
from mainstem.options.metadata import (
    AUTO_DELETE,
    COLUMN_STATS,
    DEFINITIONS_PATH,
    METADATA,
    PARTITIONS,
    PARTITIONS_INFLIGHT,
)
from mainstem.publish.publisher import Guarded
from mainstem.truetime.seams import Seams

READY, BUILDING = PARTITIONS, PARTITIONS_INFLIGHT
#: of ``FOR_JAVA``: Java's writers with statistics on make those of partitions too, and refuse a table without

Changes = Mapping[str, str | None]


def ready(config: TableConfig) -> tuple[str, ...]:
    """Partitions of the metadata table that are whole."""
    return _names(config, READY)


def building(config: TableConfig) -> tuple[str, ...]:
    """Partitions that are being built, and that every writer maintains already."""
    return _names(config, BUILDING)


def without(config: TableConfig) -> TableConfig:
    """The table's properties as if it had no metadata table."""
    return replace(config, raw={k: v for k, v in config.raw.items() if k not in (READY, BUILDING)})


def begun(config: TableConfig, partition: str) -> Changes:
    """The partition is being built from now on. A table of ours that had no metadata table told Java's
    writers to do without one; they would delete it. Where partitions have statistics it is up to them whether
    they have theirs on, as they do by default."""
    definitions: Changes = {DEFINITIONS_PATH: definitions_path(config)}
    ours = config.raw.get(METADATA, "").strip().lower() == "false"
    lists = _lists(ready(config), {*building(config), partition})
    told = partition == PARTITION_STATS and _told(config, COLUMN_STATS)
    theirs: Changes = {COLUMN_STATS: None} if told else {}
    return {**lists, **definitions, **(FOR_JAVA if ours else {}), **theirs}


def _told(config: TableConfig, key: str) -> bool:
    """Whether a table of ours tells Java's writers to do without something."""
    return key in FOR_JAVA and config.raw.get(key, "").strip().lower() == FOR_JAVA[key] == "false"


def finished(config: TableConfig, partition: str) -> Changes:
    """The partition is whole from now on."""
    made = _lists({*ready(config), partition}, {*building(config)} - {partition})
    return {**made, **without_rebuild(config, [partition])}


def gone(config: TableConfig, partitions: Collection[str], anew: Collection[str] = ()) -> Changes:
    """The partitions are in neither list from now on. ``anew``: those that are to be built anew all the
    same."""
    left = _lists({*ready(config)} - {*partitions}, {*building(config)} - {*partitions})
    again = PARTITION_STATS in partitions and _told(config, AUTO_DELETE)
    theirs: Changes = {COLUMN_STATS: FOR_JAVA[COLUMN_STATS]} if again else {}
    return {**left, **without_rebuild(config, {*partitions} - {*anew}), **theirs}


def change(
    seams: Seams, section: Guarded, wanted: Callable[[TableConfig], Changes]
) -> TableConfig:
    """Change the lists under the lock, in one step (``layout.property_change``)."""
    return change_properties(section, seams.random, wanted, date_text(seams))


def _lists(whole: Iterable[str], unfinished: Iterable[str]) -> Changes:
    return {READY: ",".join(sorted(whole)), BUILDING: ",".join(sorted(unfinished))}


def _names(config: TableConfig, key: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.strip() for n in config.raw.get(key, "").split(",") if n.strip()))
