"""Watches of folders on Linux (inotify), where the kernel tells each change of a name.

Why this is as good as a listing. The kernel makes a creation, link, rename or removal, and queues its event,
while it holds the folder's lock (Documentation/filesystems/directory-locking). A listing waits for that lock,
and so does ``stands``, by removing a name that is never there. So what was under way then has its event once
that returns, also a link whose source was removed meanwhile, which the fence counts on. What cannot be
queued, as there is no room or no memory, is told as an overflow. A folder that is removed or unmounted is
told, too, and one that was moved away is found by its number at the path. All this holds for changes made
through this kernel; so only file systems count that no other machine changes, and that tell their own changes
(``_KINDS``; not network file systems, FUSE, or overlays). What kind it is stands in ``/proc/self/mountinfo``.

Each watch has a queue of its own, of which the system gives a user some hundred; so a process has few.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import weakref
from contextlib import suppress

from mainstem.forks import told_of_forks

__all__ = ["FolderWatch", "watched"]

_KINDS = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs"))
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_CAME, _WENT = _CREATE | _MOVED_TO, _DELETE | _MOVED_FROM
_ONLY_FOLDERS = 0x01000000
_ASKED = _CAME | _WENT | _DELETE_SELF | _MOVE_SELF | _ONLY_FOLDERS
_HEAD = struct.Struct("iIII")
# An event is never longer than this, so a read that leaves as much room has emptied the queue.
_EVENT_BYTES_MAX = _HEAD.size + 256
_BUFFER_BYTES = 64 * 1024
_WATCHES_MAX = 8
_NEVER_THERE = ".mainstem-never-there"


class FolderWatch:
    """``storage.watches.Watch`` of the folder ``full``; ``queue``, which it closes, gets the events."""

    def __init__(self, queue: int, full: str) -> None:
        # ``end`` empties it in one step: a descriptor closed twice may belong to another file by then.
        self._fds = [queue]
        self._full = full
        self._identity = 0, 0
        self.names: list[str] = []
        told_of_forks(self)

    def begin(self, system: ctypes.CDLL, folder: int) -> bool:
        """Watch the folder, which is open as ``folder``, and list it. False if it cannot be watched."""
        # By the descriptor: what is watched and what is listed are one folder.
        number: int = system.inotify_add_watch(self._fds[0], f"/proc/self/fd/{folder}".encode(), _ASKED)
        if number < 0:
            return False
        info = os.fstat(folder)
        self._identity = info.st_dev, info.st_ino
        self.names = os.listdir(folder)
        return True

    def stands(self) -> bool:
        """See ``Watch``."""
        try:
            info = os.stat(self._full)
            if (info.st_dev, info.st_ino) == self._identity:
                os.unlink(f"{self._full}/{_NEVER_THERE}")
        except FileNotFoundError as error:
            return bool(error.filename != self._full)
        except OSError:
            pass
        return False

    def news(self) -> list[tuple[str, bool]] | None:
        """See ``Watch``."""
        found: list[tuple[str, bool]] = []
        full = True
        while full:
            try:
                data = os.read(self._fds[0], _BUFFER_BYTES)
            except BlockingIOError:
                break
            except (OSError, IndexError):
                return None
            full = len(data) > _BUFFER_BYTES - _EVENT_BYTES_MAX
            at = 0
            while at < len(data):
                _, mask, _, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                if mask & _CAME:
                    found.append((os.fsdecode(data[at - length : at].rstrip(b"\0")), True))
                elif mask & _WENT:
                    found.append((os.fsdecode(data[at - length : at].rstrip(b"\0")), False))
                else:  # an overflow, or the folder itself is gone
                    self.end()
                    return None
        return found

    def end(self) -> None:
        """Watch no more."""
        with suppress(IndexError):
            os.close(self._fds.pop())

    def after_fork(self) -> None:
        """In a forked child, which would take events away from its parent."""
        self.end()

    def __del__(self) -> None:
        self.end()


_open: weakref.WeakSet[FolderWatch] = weakref.WeakSet()


def watched(full: str) -> FolderWatch | None:
    """List the folder and watch it; None where changes are not told for sure, or have no more room."""
    if not sys.platform.startswith("linux") or len(_open) >= _WATCHES_MAX:
        return None
    try:
        folder = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _kind(folder) not in _KINDS:
            return None
        system = ctypes.CDLL(None)
        queue = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if queue < 0:
            return None
        made = FolderWatch(queue, full)
        if not made.begin(system, folder):
            return None
        _open.add(made)
        return made
    except (OSError, AttributeError):
        return None
    finally:
        os.close(folder)


def _kind(folder: int) -> str:
    """The kind of file system in which an open folder lies; "" if the system does not say."""
    with open(f"/proc/self/fdinfo/{folder}") as lines:
        mount = next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")
    with open("/proc/self/mountinfo", errors="surrogateescape") as lines:
        for line in lines:
            before, _, after = line.partition(" - ")
            if before.split(" ", 1)[0] == mount:
                return after.split(" ", 1)[0]
    return ""
