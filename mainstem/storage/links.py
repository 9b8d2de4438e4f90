"""Second names and renames of files, which a POSIX file system has and an object store has not.

Today's fence rests on ``link``: it fails, in one atomic step, if the target is there or the source is gone.
Whoever asks for ``links`` therefore works on file systems only; a store that decides otherwise who was first
has a fence of its own.
"""

from __future__ import annotations

from typing import Protocol, cast

from mainstem.errors import Unsupported
from mainstem.storage.protocol import Storage


class NotDurable(OSError):
    """The name is there, and a crash of the machine may take it away."""


class LinkStore(Protocol):
    """What a file system can do with names. Errors as in ``Storage``."""

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        """Give a file a second name, atomically; the publication step of every instant.

        ``FileExistsError`` if the target is there, ``FileNotFoundError`` if the source was removed or the
        target's folder is missing. With ``durable`` the name also survives a crash of the machine;
        ``NotDurable`` when that fails, and the name is there.
        """

    def same_file(self, path: str, other: str) -> bool:
        """Whether both names are there and are names of one file (made by ``link``)."""

    def rename(self, source: str, target: str) -> None:
        """Move a file, replacing the target."""


def has_links(storage: Storage) -> bool:
    """Whether ``links`` gives something: ``link`` is atomic and exclusive."""
    return bool(getattr(storage, "links", False))


def links(storage: Storage) -> LinkStore:
    """The same store, as one that has links. Raises ``Unsupported`` where there are none."""
    if not has_links(storage):
        raise Unsupported(
            "the storage has no hard links, by which a commit becomes visible: expected a local file system",
            table=storage.base,
        )
    return cast(LinkStore, storage)
