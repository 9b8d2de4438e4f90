"""Writes and reads savepoints and restores on the timeline.

HoodieSavepointMetadata, HoodieRestorePlan and HoodieRestoreMetadata are written as Java 1.2 fills them, and
read whether Java or mainstem wrote them. Content is untrusted: instants must look like instant times, actions
must be Hudi's, file names must be those of data files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import decode_container, encode_container, part
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from mainstem.timeline.instant import (
    COMMIT,
    COMPACTION,
    REQUESTED,
    RESTORE,
    ROLLBACK,
    WRITE_ACTIONS,
    Instant,
)
from mainstem.timeline.plans import load_rollback_plan


@dataclass(frozen=True)
class SavepointRecord:
    """Content of a savepoint: who made it, when (epoch ms), and which files it keeps.

    ``files``: partition -> bare names of base and log files.
    """

    user: str
    comment: str
    made_ms: int
    files: Mapping[str, tuple[str, ...]]


def encode_savepoint(record: SavepointRecord) -> bytes:
    """Bytes of a completed ``.savepoint``."""
    body = {
        "savepointedBy": record.user,
        "savepointedAt": record.made_ms,
        "comments": record.comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in record.files.items()
        },
        "version": 1,
    }
    return encode_container(schema_text("HoodieSavepointMetadata"), body, VERSION_MARK)


def decode_savepoint(data: bytes, *, path: str) -> SavepointRecord:
    """Decode a savepoint.

    Raises ``CorruptTable`` for damage, hostile partition names and files that are no data files.
    """
    if not data:
        raise CorruptTable("savepoint without content", path=path, offset=0)
    record, _ = decode_container(data, path=path)
    files: dict[str, tuple[str, ...]] = {}
    for partition, kept in part(record.get("partitionMetadata"), dict, path).items():
        if partition:
            paths.inside(partition, source=path)
        names = part(part(kept, dict, path).get("savepointDataFile"), list, path)
        for name in names:
            if paths.file_id_of(part(name, str, path)) is None:
                raise CorruptTable(f"savepoint names {name!r}, no data file", path=path)
        files[partition] = tuple(names)
    return SavepointRecord(
        part(record.get("savepointedBy"), str, path),
        part(record.get("comments"), str, path),
        part(record.get("savepointedAt"), int, path),
        files,
    )


@dataclass(frozen=True)
class PlannedInstant:
    """An instant that a restore removes. ``action`` is ``commit`` for a completed compaction."""

    requested: str
    action: str


@dataclass(frozen=True)
class RestorePlan:
    """Restores the table to ``savepoint`` (a requested time) by removing ``instants``, newest first."""

    savepoint: str
    instants: tuple[PlannedInstant, ...]


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """Bytes of ``.restore.requested`` (version 2)."""
    body = {
        "instantsToRollback": [_info(i) for i in plan.instants],
        "version": 2,
        "savepointToRestoreTimestamp": plan.savepoint,
    }
    return encode_container(schema_text("HoodieRestorePlan"), body, VERSION_MARK)


def load_restore_plan(storage: Storage, restore: str) -> RestorePlan | None:
    """Plan of the restore requested at ``restore``; None if the file is gone."""
    path = paths.timeline_file(f"{restore}.{RESTORE}.{REQUESTED}")
    try:
        data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode_restore_plan(data, path=path)


def decode_restore_plan(data: bytes, *, path: str) -> RestorePlan:
    """Decode a restore plan. Raises ``CorruptTable`` for damage and for instants that are no writes."""
    record, _ = decode_container(data, path=path)
    planned = []
    for raw in part(record.get("instantsToRollback"), list, path):
        info = part(raw, dict, path)
        requested = _time(part(info.get("commitTime"), str, path), path)
        action = part(info.get("action"), str, path)
        if action not in WRITE_ACTIONS:
            raise CorruptTable(f"restore of the action {action!r}, which writes nothing", path=path)
        planned.append(PlannedInstant(requested, action))
    savepoint = part(record.get("savepointToRestoreTimestamp"), str, path)
    return RestorePlan(_time(savepoint, path) if savepoint else "", tuple(planned))


def _time(text: str, path: str) -> str:
    if not (text.isascii() and text.isdigit()) or not 14 <= len(text) <= 20:
        raise CorruptTable(f"restore of {text[:80]!r}, expected an instant time", path=path)
    return text


def pending_restores(timeline: ActiveTimeline) -> list[str]:
    """Requested times of restores that are planned but not completed, oldest first."""
    return [i.requested for i in timeline.pending_services if i.action == RESTORE]


def being_restored(storage: Storage, timeline: ActiveTimeline) -> dict[str, str]:
    """Requested time of each instant that a pending restore removes -> that restore's requested time."""
    found: dict[str, str] = {}
    for restore in pending_restores(timeline):
        plan = load_restore_plan(storage, restore)
        for instant in plan.instants if plan is not None else ():
            found[instant.requested] = restore
    return found


def shown_timeline(storage: Storage, timeline: ActiveTimeline) -> ActiveTimeline:
    """The timeline as queries see it, without instants that a pending restore or rollback removes.

    Storage loses their files one by one; for readers they disappear all at once. A rollback with a damaged
    plan hides nothing, because nothing can execute it. Nor do queries see what ``came_back``.
    """
    undone = {*being_restored(storage, timeline), *(i.requested for i in came_back(storage, timeline))}
    for instant in timeline.pending_services:
        if instant.action == ROLLBACK:
            with suppress(CorruptTable):
                plan = load_rollback_plan(storage, instant.requested)
                if plan is not None and plan.instant in timeline.completion_times:
                    undone.add(plan.instant)
    return timeline.without_instants(undone) if undone else timeline


def came_back(storage: Storage, timeline: ActiveTimeline) -> list[Instant]:
    """Completed instants that a completed restore or rollback took back, and whose file is there again.

    On an object store a put may arrive after that: of a writer that stood still, or by a request that
    travelled for long. Only the completed file is there then, so nothing is read for any other instant.
    """
    if not has_swaps(storage):
        return []
    writes = [i for i in timeline.completed if i.action in WRITE_ACTIONS]
    alone = [i for i in writes if not timeline.has(f"{i.requested}.{_planned_as(i.action)}.{REQUESTED}")]
    if not alone:
        return []
    gone: dict[str, str] = {}  # requested time -> that of the newest restore or rollback which took it back
    for taker in timeline.completed:
        with suppress(CorruptTable):
            if taker.action == RESTORE:
                plan = load_restore_plan(storage, taker.requested)
                gone.update((i.requested, taker.requested) for i in (plan.instants if plan else ()))
            elif taker.action == ROLLBACK:
                undone = load_rollback_plan(storage, taker.requested)
                if undone is not None and undone.completion is not None:
                    gone[undone.instant] = taker.requested
    return [i for i in alone if (i.completion or "") < gone.get(i.requested, "")]


def _planned_as(action: str) -> str:
    return COMPACTION if action == COMMIT else action


def taking_back(storage: Storage, timeline: ActiveTimeline) -> Instant | None:
    """A pending action that undoes completed instants, or None.

    That is a restore, or a rollback whose plan says that its instant was completed (Java's plans do not).
    """
    for instant in timeline.pending_services:
        if instant.action == RESTORE:
            return instant
        if instant.action == ROLLBACK:
            plan = load_rollback_plan(storage, instant.requested)
            if plan is not None and plan.completion is not None:
                return instant
    return None


def encode_restore_metadata(
    *,
    restore: str,
    plan: RestorePlan,
    taken_ms: int,
    deleted: Mapping[str, Mapping[str, Sequence[str]]],
    base: str,
) -> bytes:
    """Bytes of a completed ``.restore``. ``deleted``: instant -> partition -> names of deleted files.

    As in Java, each instant's rollback is keyed by its requested time, and files are absolute paths without
    a scheme.
    """
    infos = [_info(i) for i in plan.instants]
    body = {
        "startRestoreTime": restore,
        "timeTakenInMillis": taken_ms,
        "instantsToRollback": [i.requested for i in plan.instants],
        "hoodieRestoreMetadata": {
            instant.requested: [_rolled_back(instant, restore, deleted.get(instant.requested, {}), base)]
            for instant in plan.instants
        },
        "version": 1,
        "restoreInstantInfo": infos,
    }
    return encode_container(schema_text("HoodieRestoreMetadata"), body, VERSION_MARK)


def _info(instant: PlannedInstant) -> dict[str, str]:
    return {"commitTime": instant.requested, "action": instant.action}


def _rolled_back(
    instant: PlannedInstant, restore: str, deleted: Mapping[str, Sequence[str]], base: str
) -> dict[str, Any]:
    return {
        "startRollbackTime": restore,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": sum(len(names) for names in deleted.values()),
        "commitsRollback": [instant.requested],
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "successDeleteFiles": [posixpath.join(base, paths.in_partition(partition, n)) for n in names],
                "failedDeleteFiles": [],
                "rollbackLogFiles": {},
                "logFilesFromFailedCommit": {},
            }
            for partition, names in deleted.items()
        },
        "version": 1,
        "instantsRollback": [_info(instant)],
    }
