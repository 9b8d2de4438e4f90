"""Who holds a table's lock and who waits for it, as far as files of the table tell; nothing is judged.

The lock file of ``file_system`` and the object of ``storage_lock`` name their holder, and each thread that
waits on a disk has a file of its own. Of a lock that lies elsewhere, or in a service, nothing is told.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.truetime.locks.file_system import PRIVATE_FOLDERS, WAIT
from mainstem.truetime.locks.owner_record import parse_owner_record
from mainstem.truetime.locks.storage_record import LOCK_PATH, parse_record

_FILE, _OBJECT = "filesystem:", f"storage:{LOCK_PATH}"
_TOLD_MAX = 50


@dataclass(frozen=True)
class LockState:
    """``lock``: which one (``LockProvider.identity``). ``holder``: who holds it, for people: "" while it is
    free, None where that is not told. ``since_s``: how long ago the holder asked for it, or showed last that
    it lives, by the clocks of two machines. ``waiting``: who waits, the first first, at most 50; None where
    that is not told."""

    lock: str
    holder: str | None = None
    since_s: float | None = None
    waiting: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def lock_state(storage: Storage, identity: str, now_ms: int) -> LockState:
    """Of the table in ``storage`` whose lock has this identity. Raises ``OSError``."""
    if identity == _OBJECT:
        return _of_object(storage, identity, now_ms)
    path = identity.removeprefix(_FILE)
    if path == identity or path.startswith("/") or ":" in path:
        return LockState(identity)
    return _of_file(storage, identity, path, now_ms)


def _of_object(storage: Storage, identity: str, now_ms: int) -> LockState:
    try:
        found = parse_record(storage.read(LOCK_PATH, max_bytes=LOCK_FILE_BYTES_MAX), storage.base)
    except FileNotFoundError:
        return LockState(identity, "")
    except CorruptTable as error:
        return LockState(identity, f"nobody can tell: {error.message}")
    held = not found.expired and found.valid_until_ms > now_ms
    return LockState(identity, found.describe(now_ms) if held else "")


def _of_file(storage: Storage, identity: str, path: str, now_ms: int) -> LockState:
    waiting = None
    folder = "/".join([path.rpartition("/")[0], *PRIVATE_FOLDERS])
    if has_links(storage):  # on HDFS an idle process keeps its file
        names = sorted(name for name in storage.names(folder) if name.startswith(WAIT))[:_TOLD_MAX]
        waiting = tuple(filter(None, (_owner(storage, f"{folder}/{name}") for name in names)))
    try:
        content = storage.read(path, max_bytes=LOCK_FILE_BYTES_MAX)
    except FileNotFoundError:
        return LockState(identity, "", None, waiting)
    except CorruptTable:
        content = b""
    record = parse_owner_record(content)
    if record is None:
        return LockState(identity, "another engine", None, waiting)
    info = storage.stat(path)  # its content may be that of an earlier turn
    since_s = None if info is None else max(0.0, (now_ms - info.mtime_ms) / 1000)
    return LockState(identity, record.describe(), since_s, waiting)


def _owner(storage: Storage, path: str) -> str | None:
    try:
        record = parse_owner_record(storage.read(path, max_bytes=LOCK_FILE_BYTES_MAX))
    except (FileNotFoundError, CorruptTable):
        return None
    return None if record is None else record.describe()
