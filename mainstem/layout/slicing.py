"""File slices: which base file and which log files of a file group belong together.

Pure functions of names. They follow Hudi 1.x (HoodieFileGroup, CompletionTimeQueryView, RFC-66): barriers are
the instants of base files and of pending compactions. A log file belongs to the newest barrier that is not
later than the *completion* time of the log's instant. Within a slice, log files are merged by *requested*
time. Two deliberate differences from Java 1.2:

* A file group without base files starts at its first log of a *completed* instant (Hudi issue 19774: started
  at a failed write's log, the group loses its later committed rows in snapshots).
* An instant counts as completed only if the active timeline or the archive says so. Java considers every
  instant before the start of the active timeline completed, and so shows files of dead writers again.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from mainstem.storage.paths import (
    BaseName,
    LogName,
    in_partition,
    is_kept_deletes,
    parse_base_name,
    parse_log_name,
)

DataFile = TypeVar("DataFile", BaseName, LogName)

_order = attrgetter("order")

CompletionTime = Callable[[str], "str | None"]
"""Requested time -> completion time; None for an instant that is pending, failed or unknown."""

WrittenFiles = Callable[[str], "frozenset[str] | None"]
"""Requested time -> paths that the instant's metadata names; None if it names none."""


@dataclass(frozen=True)
class FileSlice:
    """One version of a file group: at most one base file, and the log files that belong to it.

    ``base_instant`` is the requested time of the base file, of the first log in a slice without a base file,
    or of a pending compaction. ``log_files`` are bare names in merge order. ``pending`` marks a slice whose
    base instant is not completed, ``latest`` the newest slice of its group that is not pending.
    """

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None = None
    log_files: tuple[str, ...] = ()
    pending: bool = False
    latest: bool = False

    @property
    def is_empty(self) -> bool:
        return self.base_file is None and not self.log_files

    @property
    def later_logs(self) -> tuple[str, ...]:
        """The log files without the deletes that the compaction kept which made the base file.

        Those say nothing of the base file's rows, only of rows in other logs.
        """
        base = None if self.base_file is None else parse_base_name(self.base_file)
        if base is None:
            return self.log_files
        return tuple(name for name in self.log_files if not is_kept_deletes(name, base))


@dataclass(frozen=True)
class FileGroup:
    """All slices of one file id in one partition, newest first."""

    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]
    pending_compaction: str | None = None


def group_files(
    partition: str,
    names: Iterable[str],
    completion: CompletionTime,
    pending_compactions: Mapping[str, str],
    *,
    visible_only: bool,
    written: WrittenFiles | None = None,
    parse_base: Callable[[str], BaseName | None] = parse_base_name,
) -> list[FileGroup]:
    """File groups of one partition, ordered by file id.

    ``pending_compactions`` maps file id -> requested time of the pending compaction that plans it.
    ``visible_only`` leaves out every file whose instant is not completed (what a query sees). Otherwise such
    files, and change logs (``.cdc``), appear where Java's file system view shows them. Names that are not
    those of data files are ignored.
    ``written`` is asked if one instant has several files in a group: a task attempt that lost the race may
    leave a file behind, even after the commit (Hudi issue 10803); a file that the instant's metadata does not
    name is not visible. ``parse_base``: the parser of base file names, another one for the metadata table.
    """
    bases: dict[str, list[BaseName]] = {}
    logs: dict[str, list[LogName]] = {}
    for name in sorted(names):  # a set's order would be another one in every process
        log = parse_log_name(name)
        if log is not None:
            if not (log.is_cdc and visible_only):
                logs.setdefault(log.file_id, []).append(log)
            continue
        base = parse_base(name)
        if base is not None:
            bases.setdefault(base.file_id, []).append(base)
    groups = (
        _group(
            partition,
            file_id,
            bases.get(file_id, []),
            logs.get(file_id, []),
            completion,
            pending_compactions.get(file_id),
            visible_only,
            written,
        )
        for file_id in sorted(bases.keys() | logs.keys())
    )
    return [group for group in groups if group.slices]


def _group(
    partition: str,
    file_id: str,
    bases: list[BaseName],
    logs: list[LogName],
    completion: CompletionTime,
    compaction: str | None,
    visible_only: bool,
    written: WrittenFiles | None,
) -> FileGroup:
    times = {t: completion(t) for t in sorted({b.instant for b in bases} | {f.instant for f in logs})}
    if visible_only:
        bases = [b for b in bases if times[b.instant] is not None]
        logs = [f for f in logs if times[f.instant] is not None]
        if written is not None:
            bases = _committed(bases, partition, written)
            logs = _committed(logs, partition, written)
    base_of: dict[str, str | None] = {}
    for base in sorted(bases, key=lambda b: (b.instant, b.name)):
        base_of[base.instant] = base.name
    if compaction is not None:
        base_of.setdefault(compaction, None)
    logs_of = _assign(logs, times, base_of)
    instants = sorted(base_of.keys() | logs_of.keys(), reverse=True)
    slices = [
        FileSlice(
            partition,
            file_id,
            instant,
            base_of.get(instant),
            tuple(f.name for f in logs_of.get(instant, ())),
            pending=instant == compaction or times.get(instant) is None,
        )
        for instant in instants
    ]
    return FileGroup(partition, file_id, _mark_latest(slices), compaction)


def _committed(files: list[DataFile], partition: str, written: WrittenFiles) -> list[DataFile]:
    """The files without extra ones beside those that their instant's metadata names."""
    if len(files) < 2:
        return files
    count = Counter(file.instant for file in files)
    left_over: set[str] = set()
    for instant in (t for t, number in count.items() if number > 1):
        named = written(instant) or frozenset()
        mine = [f.name for f in files if f.instant == instant]
        kept = {name for name in mine if in_partition(partition, name) in named}
        left_over.update(set(mine) - kept if kept else ())
    return [file for file in files if file.name not in left_over] if left_over else files


def _assign(
    logs: Iterable[LogName], times: Mapping[str, str | None], barriers: Iterable[str]
) -> dict[str, list[LogName]]:
    """Slice instant -> its logs, both in merge order. Completed logs come first: only they may start a slice
    (issue 19774)."""
    starts = sorted(barriers)
    placed: dict[str, list[LogName]] = {}
    waiting = []
    for log in sorted(logs, key=_order):
        done = times[log.instant]
        if done is None:
            waiting.append(log)
            continue
        at = bisect_right(starts, done)
        key = starts[at - 1] if at else log.instant
        if not at:
            insort(starts, key)
        placed.setdefault(key, []).append(log)
    for log in waiting:  # not completed: later than every barrier, so in the newest slice
        if not starts:
            starts.append(log.instant)
        placed.setdefault(starts[-1], []).append(log)
    if waiting:
        placed[starts[-1]].sort(key=_order)
    return placed


def _mark_latest(slices: list[FileSlice]) -> tuple[FileSlice, ...]:
    for at, slice_ in enumerate(slices):
        if not slice_.pending:
            slices[at] = replace(slice_, latest=True)
            break
    return tuple(slices)


def query_slice(group: FileGroup, until: str | None) -> FileSlice | None:
    """The slice of a visible group that a query as of requested time ``until`` (None: now) reads.

    Under a pending compaction, the compaction's own slice has no base file yet: its logs are read together
    with the slice before it (HoodieFileGroup's merged file slice). None if there is nothing to read.
    """
    candidates = [s for s in group.slices if until is None or s.base_instant <= until]
    candidates = [s for s in candidates if not s.is_empty or s.pending]
    if not candidates:
        return None
    newest = candidates[0]
    if newest.base_instant == group.pending_compaction:
        older = candidates[1] if len(candidates) > 1 else None
        if older is None:
            return None if newest.is_empty else newest
        logs = [parse_log_name(n) for n in (*older.log_files, *newest.log_files)]
        order = sorted((f for f in logs if f is not None), key=lambda f: f.order)
        newest = replace(older, log_files=tuple(f.name for f in order), latest=True)
    return None if newest.is_empty else newest


def base_slice(group: FileGroup, until: str | None) -> FileSlice | None:
    """The newest slice with a completed base file as of ``until``, for read optimized queries."""
    for slice_ in group.slices:
        fits = until is None or slice_.base_instant <= until
        if fits and slice_.base_file is not None and not slice_.pending:
            return slice_
    return None
