"""Compare-and-swap of one object, which an object store has and a POSIX file system has not.

Where ``links`` decide on a file system who was first, a swap decides on an object store: of several writers
that read one state, the store lets one replace it.

A tag stands for a state of the object. On S3 it is a hash of the content, so the same bytes give the same
tag: **put a nonce into the content**, else a swap may succeed although the object changed and changed back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from mainstem.errors import Unsupported
from mainstem.limits import SWAPPED_BYTES_MAX
from mainstem.storage.protocol import Content, Storage

#: ETag and version of an object, as the store gave them; callers pass it on and do not look inside
Tag = tuple[str | None, str | None]


class Swappable(Protocol):
    """The operations that only an object store has. Errors as in ``Storage``."""

    def read_tagged(self, path: str, *, max_bytes: int = SWAPPED_BYTES_MAX) -> tuple[bytes, Tag] | None:
        """Whole content and its tag, which belong together; None if there is no such object.

        Raises ``CorruptTable`` when the object is larger than ``max_bytes``.
        """

    def swap(self, path: str, data: Content, tag: Tag | None) -> Tag | None:
        """Replace the state that ``tag`` stands for (None: no object); return the new tag.

        Returns None if the object is in another state: nothing was replaced, **or** the reply to a first try
        was lost, that try took effect, and another writer has replaced it since. Where that matters, the
        content must name those who came before. An ``OSError`` means that the outcome is unknown: the swap
        may have taken effect, and may still take effect as long as its ``tag`` is current.
        """


def swap_once(storage: Storage, path: str, data: Content, tag: Tag | None) -> Tag | None:
    """``Swappable.swap`` of content that tells its writer; a store may save the look after a refusal. After
    None, too, the object may have this content."""
    once: Callable[[str, Content, Tag | None], Tag | None] = getattr(storage, "swap_once", None) or swappable(
        storage
    ).swap
    return once(path, data, tag)


def has_swaps(storage: Storage) -> bool:
    """Whether the store has an atomic compare-and-swap."""
    return bool(getattr(storage, "swaps", False))


def swappable(storage: Storage) -> Swappable:
    """The same store, typed as one with swaps. Raises ``Unsupported`` if it has none."""
    if not has_swaps(storage):
        raise Unsupported(
            "the storage cannot swap the content of a file: expected an object store", table=storage.base
        )
    return cast(Swappable, storage)
