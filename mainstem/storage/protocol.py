"""The storage protocol: files and nothing else. Other code gets a ``Storage`` and never opens files itself.

A path is relative to the table's base path, with ``/`` between segments and no leading slash; ``""`` is the
base path. A folder exists when a file below it does: creating a file creates its folder, where the store has
folders. Every verb raises ``FileNotFoundError`` and ``FileExistsError`` for exactly those two outcomes, and
another ``OSError`` for trouble (full disk, no permission, no network). Callers turn those into errors of
``mainstem.errors``.

Fault model: a process may die between any two calls, and within ``append``. With ``durable=True`` the bytes
survive a machine crash once the call has returned; the *name* survives once ``settle`` was called for its
folder. An object store makes both durable in every call.

Operations that only a file system has are elsewhere: hard links and renames (``storage.links``), folders
(``storage.folders``), memory maps (``storage.maps``). So is what only an object store has
(``storage.swaps``), and thread pools (``storage.side_by_side``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mainstem.storage.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

Content = bytes | Sequence[bytes | memoryview]


class Alike(bytes):
    """Content that many new files have, none of which is ever changed in place or asked for its time. So a
    file system may make them names of one file (``put_new``): a name costs a fraction of what a file does."""


#: of a file whose name says everything
EMPTY = Alike(b"")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder. ``mtime_ms`` is the store's clock (heartbeats are judged by it)."""

    name: str
    size: int
    mtime_ms: int
    is_folder: bool


class Upload(Protocol):
    """A new file that grows by whole blocks; nobody reads it before its instant completes."""

    size: int

    def append(self, buffers: Sequence[bytes | memoryview]) -> None: ...

    def close(self, *, durable: bool) -> None:
        """Finish the file; a second call does nothing.

        ``FileExistsError`` if the name was taken meanwhile, on stores that notice it only now.
        """


def drop(upload: Upload) -> None:
    """End a file that nobody wants any more. On a disk its bytes are there; a store never gets them."""
    forget = getattr(upload, "forget", None)
    if forget is not None:
        forget()
    else:
        upload.close(durable=False)


@runtime_checkable
class Storage(Protocol):
    """What mainstem needs from a store of files.

    ``location`` is the table's location, from which another process can make the same store; ``base`` is the
    same as text. ``width``: the number of concurrent calls that pays off (``storage.side_by_side``). Listings
    must show every file whose creation returned before the listing began.
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
        """Names in a folder that start with ``prefix`` and sort after ``after``, in any order.

        [] if there is no such folder.
        """

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        """As ``names``, with size and time."""

    def stat(self, path: str) -> FileInfo | None:
        """Size and time of a file or folder; None if it does not exist."""

    # -- writing -----------------------------------------------------------------------------------

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        """Create a file, whole or not at all, even if this process dies or is interrupted.

        ``FileExistsError`` if the name is taken.
        """

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        """Create or replace a file with this content, whole or not at all."""

    def upload(self, path: str) -> Upload:
        """Create a file piece by piece; ``FileExistsError`` if the name is taken, now or at ``close``.

        A crash may leave part of it under its name, on stores that show files while they are written.
        """

    def renew(self, path: str) -> None:
        """Set the file's time to now and keep its content; ``FileNotFoundError`` if it is gone.

        This call never brings a removed file back: a store that cannot set times must rewrite the content on
        the condition that the file exists.
        """

    def delete(self, path: str) -> bool:
        """True if a file was removed, False if there was none.

        A store that does not say whether there was one (S3) gives True.
        """

    def create_all(self, paths: Iterable[str]) -> None:
        """Create empty files, in this order where the store keeps one; a name that is taken stays as it is.

        One call, because a store can do all of it at once. Stops at the first failure.
        """

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove files, one call for all; a missing file is fine. The first failure is raised at the end."""

    def delete_tree(self, path: str) -> None:
        """Remove a folder and everything below it; a missing folder is fine. Never follows a link."""

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        """Close all uploads and, with ``durable``, make them and the names in ``folders`` durable.

        Once this returns, the uploads' bytes survive a machine crash, and so do creations and removals of
        names in ``folders``, whichever process made them. One call covers all files of a commit, because a
        file system can settle them together; a store without folders ignores them. All uploads are closed
        even if some fail; the first failure is raised.
        """
