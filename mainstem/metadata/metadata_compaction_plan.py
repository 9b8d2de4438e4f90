"""Plans a compaction of the metadata table and makes its base files: which instant, file groups and rows.

Locks and publication are in ``services.metadata.metadata_compaction``.

**The instant.** An instant that is completed on the metadata table but pending on the data table (its writer
died or stalled in between) may still be rolled back, so its rows must not get into base files. If there are
such instants, the compaction's instant is one millisecond before the earliest of them. Log files that
completed later, its own included, remain log files. Otherwise the compaction gets a fresh instant.

**The file groups.** All groups with log files, of every partition that readers use. Partitions being built
are left to their builders (RFC-45).

Hudi: ``HoodieBackedTableMetadataWriter.compactIfNecessary``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from mainstem.formats.hfile_write import write_hfile
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.layout.slicing import FileSlice
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.group_logs import open_native_hfile
from mainstem.metadata.records.record_schema import schema_of_version
from mainstem.options.services import (
    METADATA_COMMITS,
    METADATA_GROWTH,
    METADATA_SECONDS,
    METADATA_TRIGGER,
)
from mainstem.storage import maps, paths
from mainstem.timeline.compaction_trigger import pending
from mainstem.timeline.instant import DELTACOMMIT
from mainstem.timeline.plans import CompactionOperation, load_compaction_plan
from mainstem.truetime.instant_times import parse_wall

_TIME = "%Y%m%d%H%M%S%f"


@dataclass(frozen=True)
class MetadataCompactionOptions:
    """Checked options, with Hudi's names and defaults."""

    delta_commits: int = METADATA_COMMITS.default
    trigger: str = METADATA_TRIGGER.default
    delta_seconds: int = METADATA_SECONDS.default
    #: see ``services.metadata.metadata_growth``
    growth_percent: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> MetadataCompactionOptions:
        """Raises ``Invalid`` for a value that does not parse."""
        return cls(
            METADATA_COMMITS.read(properties),
            METADATA_TRIGGER.read(properties),
            METADATA_SECONDS.read(properties),
            0 if METADATA_COMMITS.found_as(properties) in properties else METADATA_GROWTH.read(properties),
        )


def earliest_unsure(table: MetadataTable) -> str | None:
    """The earliest instant that is completed on the metadata table but does not count (yet)."""
    deltas = (i.requested for i in table.timeline.completed if i.action == DELTACOMMIT)
    return min((t for t in deltas if not table.validity.counts(t)), default=None)


def before(instant: str) -> str:
    """The instant one millisecond earlier."""
    return (parse_wall(instant) - timedelta(milliseconds=1)).strftime(_TIME)[:17]


def operations(table: MetadataTable, until: str | None) -> list[CompactionOperation]:
    """The operations of a compaction: in every group's newest slice, the log files that completed before
    ``until`` (None: all). Groups of a pending compaction are left out."""
    taken = {
        (o.partition, o.file_id)
        for time in pending(table.timeline)
        for o in load_compaction_plan(table.folder, time)
    }
    found = []
    for partition in table.partitions:
        for group in table.groups(partition):
            newest_slice = group.slices[0]
            logs = tuple(n for n in newest_slice.log_files if _completed_before(table, n, until))
            if not logs or (partition, group.file_id) in taken:
                continue
            if until is not None and newest_slice.base_file and newest_slice.base_instant >= until:
                continue
            found.append(
                CompactionOperation(
                    partition, group.file_id, newest_slice.base_instant, newest_slice.base_file, logs
                )
            )
    return found


def _completed_before(table: MetadataTable, name: str, until: str | None) -> bool:
    log = paths.parse_log_name(name)
    done = None if log is None else table.validity.completion(log.instant)
    return done is not None and (until is None or done < until)


def compacted(
    table: MetadataTable, operation: CompactionOperation, file_name: str, created_ms: int
) -> tuple[bytes, int]:
    """The base file that merges the operation's files, and the number of rows and deletes in its log files.

    The file's entries equal Java's byte for byte, except for the order of names in a ``files`` row. Each
    file is read once.
    """
    found = FileSlice(
        operation.partition,
        operation.file_id,
        operation.base_instant,
        operation.base_file,
        tuple(sorted(operation.log_files, key=_order)),
    )
    merged = table.slice_content(found)
    # The longest, so that no field is lost: Java 1.2 writes its newest schema even into tables of version 8.
    schema = max([schema_of_version(table.config.version), *sorted(merged.schema_texts)], key=len)
    keys, values = merged.encoded(schema, file_name)
    data = write_hfile(keys, values, schema_text=schema, base_file=True, created_ms=created_ms)
    return data, merged.log_rows


def _order(name: str) -> tuple[str, int, str, int, str]:
    log = paths.parse_log_name(name)
    return ("", 0, "", 0, "") if log is None else log.order


def log_rows(table: MetadataTable, operation: CompactionOperation) -> int:
    """Number of rows and deletes in the operation's log files."""
    total = 0
    for name in operation.log_files:
        path = paths.in_partition(operation.partition, name)
        view, where, log = maps.view(table.folder, path), table.folder.outer(path), paths.parse_log_name(name)
        if log is not None and log.is_native:
            total += open_native_hfile(view, log, path=where)[0].entry_count
            continue
        for block in read_blocks(view, path=where):
            deletes = block.kind == BlockKind.DELETE
            total += block.deletes().num_rows if deletes else block.hfile_entries()
    return total
