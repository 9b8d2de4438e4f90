"""The instants within a range of completion times, and the files that they wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mainstem.errors import Invalid
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import CommitMetadata

#: Operations that change no row (WriteOperationType.isDataChange is false for them).
SERVICES = frozenset(("COMPACT", "LOG_COMPACT", "CLUSTER", "INDEX", "BUCKET_RESCALE", "ALTER_SCHEMA"))
Stat = Mapping[str, Any]


@dataclass(frozen=True)
class Window:
    """Completed writes of a range: requested time -> completion time."""

    instants: dict[str, str]

    @property
    def newest_requested(self) -> str:
        return max(self.instants, default="")


def check_bounds(after: str | None, until: str | None) -> None:
    """Raises ``Invalid`` for a bound that is not a string of digits."""
    for name, bound in (("after", after), ("until", until)):
        if bound is not None and not (isinstance(bound, str) and bound.isdecimal()):
            raise Invalid(f"{name}={bound!r} is no completion time; expected digits")


def completed_between(state: TableState, after: str | None, until: str | None) -> Window:
    """Completed writes with ``after < completion time <= until``, active and archived."""
    low = after or ""
    found = {
        i.requested: i.completion
        for i in state.writes
        if i.completion is not None and i.completion > low and (until is None or i.completion <= until)
    }
    archived = (column.to_pylist() for column in state.archive.completed(low, until).columns)
    for requested, completion, action in zip(*archived, strict=True):
        if action in WRITES and state.completion(requested):
            found.setdefault(requested, completion)
    return Window(found)


def write_times(state: TableState) -> list[str]:
    """Completion times of writes on the active timeline, oldest first, without holes; only the newest
    archived one where all writes are archived."""
    active = sorted(i.completion for i in state.writes if i.completion is not None)
    if active:
        return active
    archived = sorted(i.completion for i in state.archive.instants() if i.action in WRITES)
    return archived[-1:]


def written_files(state: TableState, instants: Iterable[str]) -> dict[str, dict[str, int]]:
    """Partition -> name -> bytes of the files that these instants (requested times) wrote."""
    files: dict[str, dict[str, int]] = {}
    for requested in instants:
        metadata = state.metadata(requested)
        for stat in chain.from_iterable(metadata.stats.values()) if metadata is not None else ():
            if stat.get("path"):
                partition, _, name = stat["path"].rpartition("/")
                files.setdefault(partition, {})[name] = told_size(stat)
    return files


def told_size(stat: Stat) -> int:
    """Size in bytes of the file that a write stat describes; 0 if the stat does not say."""
    told = stat.get("fileSizeInBytes")
    return told if isinstance(told, int) else 0


def stats_by_group(metadata: CommitMetadata) -> Iterator[tuple[str, str, list[Stat]]]:
    """(partition, file id, write stats) of each file group that an instant wrote to, in order."""
    for partition, stats in sorted(metadata.stats.items()):
        groups: dict[str, list[Stat]] = {}
        for stat in stats:
            groups.setdefault(stat.get("fileId") or "", []).append(stat)
        for file_id, group in sorted(groups.items()):
            yield partition, file_id, group


def base_before(state: TableState, partition: str, file_id: str, stat: Stat) -> str | None:
    """Name of the base file that a write stat's file supersedes, by ``prevBaseFile`` or ``prevCommit``."""
    name = (stat.get("prevBaseFile") or "").rsplit("/", 1)[-1]
    if name:
        return name
    known = paths.of_group(state.storage.names(partition), file_id)
    bases = [base for base in map(paths.parse_base_name, known) if base is not None]
    return next((b.name for b in bases if b.instant == stat.get("prevCommit")), None)


def in_merge_order(names: Iterable[str]) -> list[str]:
    """Log file names in replay order; names that are not log files are dropped."""
    parsed = [log for log in map(paths.parse_log_name, names) if log is not None]
    return [log.name for log in sorted(parsed, key=lambda log: log.order)]
