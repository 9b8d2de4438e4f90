"""The storage protocol: files, and nothing else. Other code gets a ``Storage`` and never opens a file itself.

A path is relative to the table's base path, with ``/`` between segments and no leading slash; ``""`` is the
base path. A folder is there when a file below it is: what makes a file makes its folder, where the
store has such. Every verb raises ``FileNotFoundError`` and ``FileExistsError`` for exactly those two outcomes
and another ``OSError`` for trouble (full disk, no permission, no network), which callers turn into errors of
``mainstem.errors``.

Fault model: a process may die between any two calls, and within ``append``. With ``durable=True`` the bytes
survive a crash of the machine once the call has returned; the *name* survives once ``settle`` was called for
its folder. An object store makes both durable in every call.

What only a file system can do is not here: second names and renames (``storage.links``), folders
(``storage.folders``), memory maps (``storage.maps``). Nor are thread pools (``storage.side_by_side``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mainstem.storage.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

Content = bytes | Sequence[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder. ``mtime_ms`` is the store's clock (heartbeats are judged by it)."""

    name: str
    size: int
    mtime_ms: int
    is_folder: bool


class Upload(Protocol):
    """A new file that grows by whole blocks; nobody reads it before its instant is completed."""

    size: int

    def append(self, buffers: Sequence[bytes | memoryview]) -> None: ...

    def close(self, *, durable: bool) -> None:
        """The file is whole; a second call does nothing. ``FileExistsError`` if the name was taken meanwhile,
        where the store learns of it this late."""


@runtime_checkable
class Storage(Protocol):
    """What mainstem needs of a store of files.

    ``location`` is where the table lies, to make the same store elsewhere, and ``base`` its text; ``width``:
    how many calls at once the store answers sooner than one after another (``storage.side_by_side``).
    Listings must show every file whose creation returned before the listing began.
    """

    base: str

    @property
    def location(self) -> Location: ...

    @property
    def width(self) -> int: ...

    # -- reading -----------------------------------------------------------------------------------

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """Whole content; raises ``CorruptTable`` when the file is larger than ``max_bytes``."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end of the file."""

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable binary file for pyarrow (base files)."""

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        """Names in a folder that begin with ``prefix`` and sort behind ``after``, in any order; [] when there
        is no such folder."""

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        """The same with size and time."""

    def stat(self, path: str) -> FileInfo | None:
        """None when there is no such file or folder."""

    # -- writing -----------------------------------------------------------------------------------

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        """A new file, whole or not at all, whoever dies or is interrupted; ``FileExistsError`` if the name is
        taken."""

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        """A file with this content, whole or not at all, in the place of what was there."""

    def upload(self, path: str) -> Upload:
        """A new file in pieces; ``FileExistsError`` if the name is taken, now or when it is closed.

        A crash may leave part of it under its name, where the store shows files that are being written.
        """

    def renew(self, path: str) -> None:
        """The file's time becomes now and its content stays; ``FileNotFoundError`` if it is gone. It never
        comes back by this call: a store without times of its own puts the content again on the condition that
        the file is there."""

    def delete(self, path: str) -> bool:
        """True if a file was removed, False if there was none."""

    def delete_tree(self, path: str) -> None:
        """Remove a folder and all below it; a missing folder is fine. Never follows a link."""

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        """Close all uploads; with ``durable`` their bytes survive a crash of the machine once this returns,
        and so does which names are in ``folders``, whatever process made or removed them.

        One call for all files of a commit, since a file system can settle them together; a store without
        folders passes over them. All uploads are closed, whatever fails; the first failure is raised.
        """
