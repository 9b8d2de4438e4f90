"""What the files show: some that a commit needs are gone, others that nothing needs are there, sizes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from mainstem.doctor.examined_table import ExaminedTable
from mainstem.doctor.finding import ERROR, NOTE, WARNING, Finding
from mainstem.errors import CorruptTable
from mainstem.layout.partitions import PartitionListing
from mainstem.layout.slicing import FileSlice
from mainstem.readers.planning.file_presence import check_files, check_listed, committed_sizes
from mainstem.storage import paths

#: findings of one kind that are told one by one
_TOLD_MAX = 20
_LONG_LOGS, _MANY_LOGS = 30, 100
_SKEWED, _SKEWED_BYTES_MIN = 10, 128 << 20
_SMALL_GROUPS_MIN, _SMALL_BYTES = 256, 256 << 10


@dataclass
class _Counted:
    """What adds up over the partitions."""

    logs: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    longest: tuple[int, str, str] = (0, "", "")
    largest: tuple[int, str, str] = (0, "", "")
    unused: list[tuple[str, int]] = field(default_factory=list)

    def slice_(self, found: FileSlice, sizes: dict[str, int]) -> None:
        total = sum(sizes.get(name, 0) for name in (*filter(None, [found.base_file]), *found.log_files))
        where = (found.partition, found.file_id)
        self.logs.append(len(found.log_files))
        self.bytes.append(total)
        self.longest = max(self.longest, (len(found.log_files), *where))
        self.largest = max(self.largest, (total, *where))


def file_findings(table: ExaminedTable) -> Iterator[Finding]:
    """Lists every partition once. Raises ``CorruptTable`` for a damaged timeline, ``OSError``."""
    state, counted, lost = table.state, _Counted(), 0
    replaced = state.replaced(None)
    pending = {i.requested for i in state.timeline.pending}
    newest = max((i.requested for i in state.timeline.instants), default="")
    listed = list(state.partitions())
    there = {listing.partition for listing in listed}
    gone = [PartitionListing(name, ()) for name in sorted(state.committed.by_partition.keys() - there)]
    for listing in [*listed, *gone]:
        sizes = {} if listing.names == () else {
            e.name: e.size for e in state.storage.entries(listing.partition) if not e.is_folder
        }  # fmt: skip
        seen: set[str] = set()
        for group in state.group(listing.partition, listing.names):
            seen.update(n for s in group.slices for n in (*filter(None, [s.base_file]), *s.log_files))
            latest = next((s for s in group.slices if s.latest), None)
            if latest is not None and (group.partition, group.file_id) not in replaced:
                counted.slice_(latest, sizes)
        for name in listing.names:
            instant = _instant_of(name)
            if instant is not None and name not in seen and instant not in pending and instant <= newest:
                counted.unused.append((paths.in_partition(listing.partition, name), sizes.get(name, 0)))
        for found in _lost(table, listing, replaced):
            lost += 1
            if lost <= _TOLD_MAX:
                yield found
    for instant in sorted(state.storage.names(paths.UNSHOWN)):
        if paths.is_instant_time(instant) and instant not in pending and instant <= newest:
            counted.unused.append((paths.unshown_folder(instant), 0))
    if lost > _TOLD_MAX:
        yield Finding(ERROR, "lost file", f"{lost - _TOLD_MAX} more partitions with lost files are not told")
    yield from _unused(table, counted)
    yield from _sizes(table, counted)


def _instant_of(name: str) -> str | None:
    log = paths.parse_log_name(name)
    if log is not None:
        return None if log.is_cdc else log.instant
    base = paths.parse_base_name(name)
    return None if base is None else base.instant


def _lost(
    table: ExaminedTable, listing: PartitionListing, replaced: set[tuple[str, str]]
) -> Iterator[Finding]:
    state = table.state
    try:
        check_listed(state, listing.partition, set(listing.names), replaced=replaced)
        needed = [
            name
            for group in state.group(listing.partition, listing.names)
            if (group.partition, group.file_id) not in replaced
            for slice_ in group.slices
            if slice_.latest
            for name in (*filter(None, [slice_.base_file]), *slice_.log_files)
        ]
        check_files(state, listing.partition, needed, committed_sizes(state, listing.partition))
    except CorruptTable as error:
        shown = {"partition": listing.partition, "file": error.path}
        yield Finding(ERROR, "lost file", error.message, shown)
    except FileNotFoundError:
        return  # a clean that runs now removed it


def _unused(table: ExaminedTable, counted: _Counted) -> Iterator[Finding]:
    if not counted.unused:
        return
    shown = {
        "files": len(counted.unused), "bytes": sum(size for _, size in counted.unused),
        "for instance": counted.unused[0][0],
    }  # fmt: skip
    yield Finding(
        WARNING, "file that nothing names",
        "no completed or pending instant names it, so no query reads it: a writer that had stalled left it,"
        " or an attempt that lost", shown, table.command("rollback"), fixable=True,
    )  # fmt: skip


def _sizes(table: ExaminedTable, counted: _Counted) -> Iterator[Finding]:
    logs, partition, file_id = counted.longest
    if logs > _LONG_LOGS:
        yield Finding(
            WARNING if logs > _MANY_LOGS else NOTE, "long file slice",
            "a query merges all log files of a slice",
            {
                "log files": logs, "partition": partition, "file id": file_id,
                "median of all": statistics.median(counted.logs),
            },
            table.command("compact"), fixable=True,
        )  # fmt: skip
    if len(counted.bytes) < 2:
        return
    size, partition, file_id = counted.largest
    middle = statistics.median(counted.bytes)
    if size > max(_SKEWED * middle, _SKEWED_BYTES_MIN):
        yield Finding(
            NOTE, "uneven file groups",
            "one file group is much larger than the others: queries, compactions and tasks wait for it",
            {"bytes": size, "partition": partition, "file id": file_id, "median of all": int(middle)},
        )
    if len(counted.bytes) >= _SMALL_GROUPS_MIN and middle < _SMALL_BYTES:
        yield Finding(
            NOTE, "small file groups",
            "most file groups hold little, so that opening files takes longer than reading them: fewer"
            " buckets (mainstem resize) or partitions would do",
            {"file groups": len(counted.bytes), "median in bytes": int(middle)},
        )
