"""The storage seam. Protocol code receives a ``Storage`` and never opens a file itself.

Paths are relative to the table's base path, with ``/`` between segments and no leading slash; ``""``
is the base path. Every method raises ``FileNotFoundError``/``FileExistsError`` for exactly those two
outcomes and another ``OSError`` for trouble (full disk, read-only folder), which callers turn into
errors of ``mainstem.errors``.

Fault model: a process may die between any two calls. ``durable=True`` means that the bytes survive a
crash of the machine once the call has returned; the *name* survives once ``sync_folder`` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a folder. ``mtime_ms`` is the store's clock (heartbeats are judged by it)."""

    name: str
    size: int
    mtime_ms: int
    is_folder: bool


class NotDurable(OSError):
    """The name is there, and a crash of the machine may take it away."""


class LogSink(Protocol):
    """A new file that grows by whole blocks; nobody reads it before its instant is completed."""

    size: int

    def append(self, buffers: Sequence[bytes | memoryview]) -> None: ...

    def close(self, *, durable: bool) -> None: ...


def in_turn(
    work: Callable[[Item], Result], items: Sequence[Item], ended: Callable[[int], None] | None = None
) -> list[Result]:
    """``Storage.side_by_side`` in one thread."""
    results = []
    for item in items:
        results.append(work(item))
        if ended is not None:
            ended(len(results))
    return results


@runtime_checkable
class Storage(Protocol):
    """What mainstem needs of a file system; ``links`` tells whether ``link`` is atomic and exclusive,
    ``width`` how many items ``side_by_side`` works on at once at most.

    Guarantees asked for: ``create`` is exclusive; ``link`` fails with ``FileExistsError`` if the target
    exists and with ``FileNotFoundError`` if the source was removed, in one atomic step; listings show
    every file whose creation returned before the listing began.
    """

    base: str
    links: bool
    width: int

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """Whole content; raises ``CorruptTable`` when the file is larger than ``max_bytes``."""

    def read_range(self, path: str, offset: int, length: int) -> bytes: ...

    def view(self, path: str) -> memoryview:
        """Whole content of a large file without copying where possible (memory map)."""

    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        """The first ``size`` bytes of a file, fewer if it is shorter, copied to where nobody else can change
        or cut them, read-only: to memory, or with ``spill`` to a file of this machine that has no name, whose
        pages need not stay in memory."""

    def open_input(self, path: str):
        """A seekable binary file for pyarrow (base files)."""

    def stat(self, path: str) -> FileInfo | None:
        """None when there is no such file or folder."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, any order; [] when the folder does not exist."""

    def entries(self, folder: str) -> list[FileInfo]:
        """Entries of a folder with size and time; [] when the folder does not exist."""

    def create(self, path: str, data: bytes | Sequence[bytes | memoryview], *, durable: bool) -> None:
        """Create a new file with this content; ``FileExistsError`` if the name is taken.

        Missing parent folders are made. A crash may leave a shorter file: use ``link`` to publish.
        """

    def open_sink(self, path: str) -> LogSink:
        """Create a new file for appending; ``FileExistsError`` if the name is taken."""

    def settle(self, sinks: Sequence[LogSink], folders: Iterable[str], *, durable: bool) -> None:
        """Close all sinks; with ``durable`` make their bytes and the folders' entries durable too.

        One call for all files of a commit, since a file system can settle them together. All sinks are
        closed, whatever fails; the first failure is raised.
        """

    def side_by_side(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        ended: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """``work`` for each item, in their order: work that does not depend on each other.

        A store may run them in threads, ``width`` at once, so ``work`` must not touch anything that
        another call changes. ``ended`` is called from the caller's thread with the number of results
        that are there. The first failure is raised after all that had begun have ended.
        """

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        """Give an existing file a second name, atomically; the publication step of every instant.

        ``durable``: the name, too, when the call returns; ``NotDurable`` if it is there and may not survive a
        crash."""

    def same_file(self, path: str, other: str) -> bool:
        """Whether both names are there and are names of one file (made by ``link``)."""

    def rename(self, source: str, target: str) -> None:
        """Move, replacing the target."""

    def move_folder(self, source: str, target: str) -> None:
        """Rename a folder, atomically; ``FileExistsError`` if the target is there and not empty."""

    def touch(self, path: str) -> None:
        """Set the file's time to now; ``FileNotFoundError`` if it is gone."""

    def delete(self, path: str) -> bool:
        """True if a file was removed, False if there was none."""

    def delete_folder(self, path: str) -> None:
        """Remove a folder and all below it; a missing folder is fine. Never follows a link."""

    def make_folder(self, path: str) -> bool:
        """Make a folder and its parents; True if it was new."""

    def sync_folder(self, path: str) -> None: ...

    def sync_folders(self, paths: Iterable[str]) -> None: ...
