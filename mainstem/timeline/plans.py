"""Writes and reads rollback plans, rollback metadata and compaction plans.

File names inside plans are instructions read from storage, so each must be the name of a data file in a
partition of this table before anything acts on it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import OUR_MARK, decode_container, encode_container, part, read_header
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.paths import inside
from mainstem.storage.protocol import Storage
from mainstem.storage.spellings import as_url
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from mainstem.timeline.instant import ACTIONS, COMPACTION, LOGCOMPACTION, REQUESTED, ROLLBACK

_LOG_COMPACTOR = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"

# Our mark is in the first entries of a container's header.
_HEAD_BYTES = 256
# Header key in a rollback of a completed instant; its value is that instant's completion time.
_WAS_COMPLETED = "mainstem.rolled.back.completion"


@dataclass(frozen=True)
class RollbackPlan:
    """The instant that a rollback undoes. Its files are looked up at execution, never taken from the plan.

    ``completion``: the completion time, if mainstem rolls back a completed instant. Java's record has no
    field for it, so it is kept in the file's header. ``partitions``: where the instant had files when
    the plan was made, as a stored plan tells; nothing is deleted by them.
    """

    instant: str
    action: str
    completion: str | None = None
    partitions: frozenset[str] = frozenset()


def is_our_plan(storage: Storage, path: str) -> bool:
    """Whether mainstem made the plan in this file of a timeline; also True if it is gone."""
    try:
        return OUR_MARK.encode() in storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)[:_HEAD_BYTES]
    except FileNotFoundError:
        return True


def encode_rollback_plan(
    instant: str,
    action: str,
    files: Sequence[tuple[str, str, str]],
    base: str,
    completion: str | None = None,
) -> bytes:
    """Bytes of ``.rollback.requested``, with absolute paths that carry a scheme, as Java expects them.

    ``files``: (partition, file id, file name).
    """
    requests = [
        {
            "partitionPath": partition,
            "fileId": file_id,
            "latestBaseInstant": instant,
            "filesToBeDeleted": [posixpath.join(as_url(base), paths.in_partition(partition, name))],
            "logBlocksToBeDeleted": {},
        }
        for partition, file_id, name in files
    ]
    record = {
        "instantToRollback": {"commitTime": instant, "action": action},
        "RollbackRequests": requests,
        "version": 1,
    }
    return encode_container(schema_text("HoodieRollbackPlan"), record, _marks(completion))


def _marks(completion: str | None) -> dict[str, bytes]:
    return VERSION_MARK if completion is None else {**VERSION_MARK, _WAS_COMPLETED: completion.encode()}


def taken_back(data: bytes, *, path: str) -> str | None:
    """Completion time of the completed instant that a rollback undoes, from its plan or metadata.

    None if the instant was pending or Java wrote the file.
    """
    mark = read_header(data, path=path)[0].get(_WAS_COMPLETED) if data else None
    return None if mark is None else mark.decode("ascii", "replace")


def decode_rollback_plan(data: bytes, *, path: str) -> RollbackPlan | None:
    """Decode a plan; None if it names no instant (an empty file, left by a scheduler that crashed)."""
    if not data:
        return None
    record, _ = decode_container(data, path=path)
    target = record.get("instantToRollback")
    if not isinstance(target, dict):
        return None
    instant, action = str(target.get("commitTime")), str(target.get("action"))
    if not (instant.isascii() and instant.isdigit()) or not 14 <= len(instant) <= 20:
        raise CorruptTable(f"rollback of {instant!r}, expected an instant time", path=path)
    if action not in ACTIONS:
        raise CorruptTable(f"rollback of the action {action!r}, which Hudi does not have", path=path)
    requests = [r for r in record.get("RollbackRequests") or () if isinstance(r, dict)]
    named = {str(r.get("partitionPath") or "") for r in requests}
    partitions = frozenset(name and inside(name, source=path) for name in named)
    return RollbackPlan(instant, action, taken_back(data, path=path), partitions)


def load_rollback_plan(storage: Storage, rollback: str) -> RollbackPlan | None:
    """Plan of the rollback requested at ``rollback``; None if the file is gone or holds no plan."""
    path = paths.timeline_file(f"{rollback}.{ROLLBACK}.{REQUESTED}")
    try:
        data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode_rollback_plan(data, path=path)


def encode_rollback_metadata(
    *,
    rollback_time: str,
    instant: str,
    action: str,
    taken_ms: int,
    deleted: dict[str, list[str]],
    completion: str | None = None,
) -> bytes:
    """Bytes of a completed ``.rollback``.

    ``deleted``: partition -> names of the deleted files; ``completion`` as in ``RollbackPlan``.
    """
    record = {
        "startRollbackTime": rollback_time,
        "timeTakenInMillis": taken_ms,
        "totalFilesDeleted": sum(len(names) for names in deleted.values()),
        "commitsRollback": [instant],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": [paths.in_partition(partition, n) for n in names],
                "failedDeleteFiles": [],
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition, names in deleted.items()
        },
        "version": 1,
        "instantsRollback": [{"commitTime": instant, "action": action}],
    }
    return encode_container(schema_text("HoodieRollbackMetadata"), record, _marks(completion))


@dataclass(frozen=True)
class CompactionOperation:
    """One file group of a compaction plan; names are bare file names (plan version 2)."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: tuple[str, ...]


def encode_compaction_plan(
    operations: Sequence[CompactionOperation],
    metrics: Sequence[Mapping[str, float]],
    action: str = COMPACTION,
    notes: Mapping[str, str] | None = None,
) -> bytes:
    """A plan as Java writes it (version 2: bare file names), with one entry of ``metrics`` per operation.

    ``action``: compaction or logcompaction. A log compaction's plan also names the class that executes it.
    ``notes``: texts for whoever executes it; Java copies them into its commit and heeds none.
    """
    merges_logs = action == LOGCOMPACTION
    executor = {"compactorClassName": _LOG_COMPACTOR, "strategyParams": {}, "version": 1}
    record = {
        "operations": [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.log_files),
                "dataFilePath": operation.base_file,
                "fileId": operation.file_id,
                "partitionPath": operation.partition,
                "metrics": dict(figures),
                "bootstrapFilePath": None,
            }
            for operation, figures in zip(operations, metrics, strict=True)
        ],
        "extraMetadata": dict(notes or {}),
        "version": 2,
        "strategy": executor if merges_logs else None,
        "preserveHoodieMetadata": merges_logs,
        "missingSchedulePartitions": [],
    }
    return encode_container(schema_text("HoodieCompactionPlan"), record, VERSION_MARK)


def load_compaction_plan(
    storage: Storage, requested: str, action: str = COMPACTION
) -> list[CompactionOperation]:
    """Operations of the compaction or log compaction requested at ``requested``.

    Raises ``FileNotFoundError`` if the plan is gone.
    """
    return load_noted_plan(storage, requested, action)[0]


def load_noted_plan(
    storage: Storage, requested: str, action: str = COMPACTION
) -> tuple[list[CompactionOperation], dict[str, str]]:
    """The same, with the plan's notes."""
    path = paths.timeline_file(f"{requested}.{action}.{REQUESTED}")
    return _decoded(storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path)


def decode_compaction_plan(data: bytes, *, path: str) -> list[CompactionOperation]:
    """Operations of a ``compaction.requested`` file; [] for an empty plan."""
    return _decoded(data, path)[0]


def _decoded(data: bytes, path: str) -> tuple[list[CompactionOperation], dict[str, str]]:
    if not data:
        return [], {}
    record, _ = decode_container(data, path=path)
    operations: list[CompactionOperation] = []
    for raw in part(record.get("operations"), list, path):
        operations.append(_operation(part(raw, dict, path), path))
    notes = record.get("extraMetadata")
    return operations, {str(k): str(v) for k, v in notes.items()} if isinstance(notes, dict) else {}


def _operation(raw: dict[str, Any], path: str) -> CompactionOperation:
    partition = part(raw.get("partitionPath"), str, path)
    if partition:
        paths.inside(partition, source=path)
    logs = tuple(name_in_plan(str(p), partition, path) for p in part(raw.get("deltaFilePaths"), list, path))
    base = raw.get("dataFilePath")
    base = name_in_plan(str(base), partition, path) if base else None
    for name in logs:
        if paths.parse_log_name(name) is None:
            raise CorruptTable(f"compaction plan names {name!r}, no log file", path=path)
    if base is not None and not (paths.parse_base_name(base) or paths.parse_hfile_name(base)):
        raise CorruptTable(f"compaction plan names {base!r}, no base file", path=path)
    return CompactionOperation(
        partition, str(raw.get("fileId") or ""), str(raw.get("baseInstantTime") or ""), base, logs
    )


def name_in_plan(found: str, partition: str, path: str) -> str:
    """The bare file name. Some plans hold whole paths; each must lie in its partition."""
    folder, _, name = found.rpartition("/")
    if folder and partition and not f"/{folder}".endswith(f"/{partition}"):
        raise CorruptTable(
            f"the plan names {found!r}, which is not in the partition {partition!r} beside it",
            path=path,
        )
    return name
