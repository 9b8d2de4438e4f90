"""Writes and reads the timeline files of cleans: plan (HoodieCleanerPlan) and metadata (HoodieCleanMetadata).

A plan is a list of files to delete, read from storage, so it is not trusted: every path must name a data
file (by Hudi's patterns) in a partition folder of this table. Whether a file may be deleted is a separate
question; the cleaning service checks it against the table before it deletes anything.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_container import OUR_MARK, decode_container, encode_container, part
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.backends import names_place
from mainstem.storage.protocol import Storage
from mainstem.storage.spellings import as_url, is_plain, same_place
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from mainstem.timeline.instant import CLEAN, COMPLETED, REQUESTED, SAVEPOINT, Instant
from mainstem.timeline.restore_records import decode_savepoint

#: CleanPlanner.SAVEPOINTED_TIMESTAMPS: tells Java's next clean which files a deleted savepoint had kept.
SAVEPOINTED = "savepointed_timestamps"


@dataclass(frozen=True)
class CleanPlan:
    """The files that a clean removes, and why.

    ``files``: partition -> names of data files in it; ``earliest``: requested time and action of the oldest
    commit whose snapshot stays readable, None under KEEP_LATEST_FILE_VERSIONS; ``last_completed``: requested
    time of the newest commit that the planner saw.
    """

    policy: str
    files: Mapping[str, tuple[str, ...]]
    earliest: tuple[str, str] | None = None
    last_completed: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    def paths(self) -> list[str]:
        """Paths of all files, relative to the table."""
        return [paths.in_partition(p, name) for p, names in self.files.items() for name in names]


def encode_clean_plan(plan: CleanPlan, base: str) -> bytes:
    """A plan as Java writes it (version 2: absolute paths with a scheme)."""
    earliest = None
    if plan.earliest is not None:
        time, action = plan.earliest
        earliest = {"timestamp": time, "action": action, "state": COMPLETED.upper()}
    record: dict[str, Any] = {
        "earliestInstantToRetain": earliest,
        "lastCompletedCommitTimestamp": plan.last_completed,
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {
                    "filePath": posixpath.join(as_url(base), paths.in_partition(partition, name)),
                    "isBootstrapBaseFile": False,
                }
                for name in names
            ]
            for partition, names in plan.files.items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": dict(plan.extra),
    }
    return encode_container(schema_text("HoodieCleanerPlan"), record, VERSION_MARK)


def decode_clean_plan(data: bytes, *, path: str, base: str) -> CleanPlan | None:
    """Decode a plan; None for an empty file, left by a scheduler that died.

    ``base``: the table's base path. Raises ``CorruptTable`` for a path that is no data file of this table,
    ``Unsupported`` for the source files of a bootstrapped table.
    """
    if not data:
        return None
    record, header = decode_container(data, path=path)
    where = _Where(path, base, OUR_MARK in header)
    files: dict[str, list[str]] = {}
    for partition, planned in _lists(record, "filePathsToBeDeletedPerPartition", path):
        for entry in planned:
            one = part(entry, dict, path)
            if one.get("isBootstrapBaseFile"):
                raise Unsupported(
                    f"{path} deletes source files of a bootstrapped table; let Hudi execute that clean"
                )
            name = where.name(partition, part(one.get("filePath"), str, path))
            files.setdefault(partition, []).append(name)
    for partition, planned in _lists(record, "filesToBeDeletedPerPartition", path):
        names = [where.name(partition, part(name, str, path)) for name in planned]
        files.setdefault(partition, []).extend(names)
    earliest = part(record.get("earliestInstantToRetain"), dict, path)
    time = str(earliest.get("timestamp"))
    if earliest and not (time.isascii() and time.isdecimal() and 14 <= len(time) <= 20):
        raise CorruptTable(f"clean plan retains all since {time!r}, expected an instant time", path=path)
    extra = part(record.get("extraMetadata"), dict, path)
    return CleanPlan(
        part(record.get("policy"), str, path),
        {partition: tuple(dict.fromkeys(names)) for partition, names in files.items()},
        (time, str(earliest.get("action"))) if earliest else None,
        part(record.get("lastCompletedCommitTimestamp"), str, path),
        {key: part(value, str, path) for key, value in extra.items()},
    )


@dataclass(frozen=True)
class _Where:
    """The plan's file, the table's base path, and whether mainstem wrote the plan.

    The table may have been moved since then, to another folder or bucket, or from a local disk to a store.
    """

    plan: str
    base: str
    ours: bool

    def name(self, partition: str, path: str) -> str:
        """The file name in ``path``; raises ``CorruptTable`` unless it is a data file in this partition."""
        if partition:
            paths.inside(partition, source=self.plan)
        if partition.split("/")[0] == paths.HOODIE:
            raise CorruptTable(f"clean plan names {partition!r}, which is no partition", path=self.plan)
        folder, _, name = path.rpartition("/")
        if paths.file_id_of(name) is None:
            raise CorruptTable(f"clean plan names {path!r}, no data file", path=self.plan)
        if folder and not self._is(folder, partition):
            raise CorruptTable(
                f"clean plan names {path!r}, which is not in partition {partition!r} of this table; nothing"
                " was deleted. If the table was moved while the clean was pending, remove the clean's"
                " .requested and .inflight files: a later clean plans anew",
                path=self.plan,
            )
        return name

    def _is(self, folder: str, partition: str) -> bool:
        if not self.ours:
            return same_place(folder, posixpath.join(self.base, partition))
        moved = is_plain(folder) or not is_plain(self.base)
        return moved and names_place(folder) and (not partition or folder.endswith("/" + partition))


def _lists(record: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, list[Any]]]:
    for partition, planned in part(record.get(name), dict, path).items():
        yield partition, part(planned, list, path)


def load_clean_plan(storage: Storage, clean: str) -> CleanPlan | None:
    """Plan of the clean requested at ``clean``; None for an empty file, ``FileNotFoundError`` if gone."""
    path = paths.timeline_file(f"{clean}.{CLEAN}.{REQUESTED}")
    data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    return decode_clean_plan(data, path=path, base=storage.base)


def encode_clean_metadata(plan: CleanPlan, *, requested: str, taken_ms: int) -> bytes:
    """Bytes of a completed ``.clean``, which says that every file of the plan is gone."""
    record = {
        "startCleanTime": requested,
        "timeTakenInMillis": taken_ms,
        "totalFilesDeleted": sum(len(names) for names in plan.files.values()),
        "earliestCommitToRetain": plan.earliest[0] if plan.earliest is not None else "",
        "lastCompletedCommitTimestamp": plan.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": plan.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in plan.files.items()
        },
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(plan.extra),
    }
    return encode_container(schema_text("HoodieCleanMetadata"), record, VERSION_MARK)


def load_clean_boundary(storage: Storage, clean: Instant) -> tuple[str, Mapping[str, str]]:
    """Oldest commit that a completed clean retained, and the clean's extra metadata.

    The commit is "" under KEEP_LATEST_FILE_VERSIONS.
    """
    path = paths.timeline_file(clean.file_name)
    record, _ = decode_container(storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)
    extra = part(record.get("extraMetadata"), dict, path)
    return part(record.get("earliestCommitToRetain"), str, path), extra


def named_files(record: Mapping[str, Any], path: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each partition and its file names from a decoded HoodieCleanMetadata or HoodieCleanerPlan."""

    def names(files: Sequence[Any]) -> set[str]:
        return {str(file).rsplit("/", 1)[-1] for file in files if file}

    for partition, done in part(record.get("partitionMetadata"), dict, path).items():
        found = part(done, dict, path)
        lists = [part(found.get(f"{word}DeleteFiles"), list, path) for word in ("success", "failed")]
        yield partition, names([*lists[0], *lists[1]])
    for partition, planned in _lists(record, "filePathsToBeDeletedPerPartition", path):
        yield partition, names([part(file, dict, path).get("filePath") for file in planned])
    for partition, planned in _lists(record, "filesToBeDeletedPerPartition", path):
        yield partition, names(planned)


def savepointed_files(storage: Storage, timeline: ActiveTimeline) -> dict[str, set[str]]:
    """Partition -> names of the files that completed savepoints keep."""
    kept: dict[str, set[str]] = {}
    for instant in timeline.completed:
        if instant.action != SAVEPOINT:
            continue
        path = paths.timeline_file(instant.file_name)
        try:
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            continue  # deleted since the listing
        for partition, names in decode_savepoint(data, path=path).files.items():
            kept.setdefault(partition, set()).update(names)
    return kept
