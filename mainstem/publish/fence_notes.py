"""What is noted beside the fence, in files of its folder, and outlives every section.

- ``foreign``: another kind of writer (Java, say) was seen on the table. From then on every writer waits out
  the clock skew (``publish.skew_wait``).
- ``newest-T``: no instant may get the time T or an earlier one, although the file with that time has left the
  timeline. Services note it before they delete such a file.
- ``showing-T``: base files of the instant T are about to get their names (``publish.showing``).

A listing of the folder shows the notes at no extra call (``Fence.look``, ``Fence.enter``).
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.publish.fence import Notes
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

FOREIGN_NOTE = "foreign"


def notes_in(names: Sequence[str]) -> Notes:
    """The notes among the names in the fence's folder."""
    newest = max(filter(None, map(paths.parse_newest_note, names)), default="")
    showing = tuple(sorted(filter(None, map(paths.parse_showing_note, names))))
    return Notes(FOREIGN_NOTE in names, newest, showing=showing)


def note_newest(storage: Storage, time: str) -> None:
    """Note that no instant may get this time or an earlier one. Call it under the lock, before the file with
    the newest time leaves the timeline.

    A reader may have read up to that time, and would never see an instant at or below it.
    """
    try:
        storage.put_new(paths.newest_note(time), b"", durable=True)
    except FileExistsError:
        return
    storage.settle([], [paths.FENCE], durable=True)
    for name in sorted(storage.names(paths.FENCE)):
        noted = paths.parse_newest_note(name)
        if noted is not None and noted < time:
            storage.delete(f"{paths.FENCE}/{name}")


def note_foreign_writer(storage: Storage, evidence: str) -> None:
    """Remember for good that another kind of writer uses the table."""
    try:
        storage.put_new(f"{paths.FENCE}/{FOREIGN_NOTE}", evidence.encode(), durable=True)
    except FileExistsError:
        return
