"""Cleans up after executions of a plan: files of another engine's attempt, private files, markers.

Java's executors show no heartbeat and choose their own file names; ours use one name per file group,
whichever process executes. So any other file with the plan's time in its name is Java's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mainstem.errors import Unavailable
from mainstem.services.claim import store_now_ms
from mainstem.services.planned_files import Parse
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.plans import CompactionOperation
from mainstem.writers.context import WriterContext


def other_files(
    storage: Storage,
    time: str,
    operations: Sequence[CompactionOperation],
    ours: Collection[str],
    parse: Parse,
) -> dict[str, int]:
    """Path -> store time of files that another engine's execution of the plan left; ``ours`` are paths."""
    groups = {(o.partition, o.file_id) for o in operations}
    found = {}
    for partition in sorted({o.partition for o in operations}):
        for entry in storage.entries(partition):
            name = parse(entry.name)
            path = paths.in_partition(partition, entry.name)
            if name is None or name.instant != time or path in ours:
                continue
            if (partition, name.file_id) in groups:
                found[path] = entry.mtime_ms
    return found


def forget_other_attempt(ctx: WriterContext, time: str, files: dict[str, int], what: str) -> None:
    """Remove the files that a dead Java executor of ``what`` left (``other_files``).

    An executor counts as dead once its files have not changed for as long as another engine's heartbeat may
    be silent; before that, raises ``Unavailable`` and names a file.
    """
    if not files:
        return
    if store_now_ms(ctx, time) - max(files.values()) <= ctx.heartbeats.silent_ms:
        raise Unavailable(
            f"another engine seems to execute the {what} {time} ({min(files)} is new); wait until it"
            f" ends, or for {ctx.heartbeats.silent_ms // 1000} s if it died",
            table=ctx.base,
        )
    for path in sorted(files):
        ctx.seams.storage.delete(path)
        ctx.seams.storage.delete(paths.checksum_file(path))


def sweep_private(storage: Storage, time: str) -> None:
    """Remove a plan's private files and markers after its end, when nothing can link its files any more."""
    try:
        for name in sorted(storage.names(paths.PREPARED)):
            if name.startswith(f"{time}-"):
                storage.delete(f"{paths.PREPARED}/{name}")
        storage.delete_tree(paths.marker_folder(time))
    except OSError:
        return  # swept later
