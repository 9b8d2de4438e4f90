"""Hard links and renames, which a POSIX file system has and an object store has not.

The fence of today rests on ``link``: in one atomic step, it fails if the target exists or the source is gone.
Code that uses ``links`` therefore works on file systems only; a store that decides in another way who was
first needs its own fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

from mainstem.errors import Unsupported
from mainstem.storage.protocol import Storage


class NotDurable(OSError):
    """The name is there, and a crash of the machine may take it away."""


class LinkStore(Protocol):
    """The operations on names that only a file system has. Errors as in ``Storage``."""

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        """Give a file a second name, atomically; this publishes every instant.

        ``FileExistsError`` if the target exists, ``FileNotFoundError`` if the source was removed or the
        target's folder is missing. With ``durable`` the name also survives a machine crash; ``NotDurable`` if
        only that part fails, although the name exists.
        """

    def same_file(self, path: str, other: str) -> bool:
        """Whether both names exist and refer to one file (made by ``link``)."""

    def rename(self, source: str, target: str, *, settle: Iterable[str] = ()) -> None:
        """Move a file, replacing the target; then make the names in the folders ``settle`` durable.

        ``NotDurable`` if only that fails, although the file has moved.
        """


def has_links(storage: Storage) -> bool:
    """Whether the store has an atomic, exclusive ``link``."""
    return bool(getattr(storage, "links", False))


def links(storage: Storage) -> LinkStore:
    """The same store, typed as one with links. Raises ``Unsupported`` if it has none."""
    if not has_links(storage):
        raise Unsupported(
            "the storage has no hard links, which make a commit visible: expected a local file system",
            table=storage.base,
        )
    return cast(LinkStore, storage)
