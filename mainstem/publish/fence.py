"""The right to publish: what the publisher asks of a fence.

A lock can be lost without its holder knowing. So a section under the lock *enters* the fence, and from then
on nobody who entered before can publish: what he had in hand is void, or is visible to whoever lists after
the entry. ``publish.link_fence`` does this with hard links, in files of the table. A store without links
needs another one: a single object that is swapped (``enter`` reads it, ``publish`` swaps it and then puts the
target); the publisher would not change.
"""

from __future__ import annotations

from typing import Protocol


class Epoch(Protocol):
    """The right to publish under one lease, from one entry on. Use it once, then drop it."""

    #: another kind of writer was seen on this table before
    foreign_seen: bool
    #: no time may be given at or below this one, whatever the timeline shows ("": any)
    newest_noted: str

    def check(self) -> None:
        """``LeaseLost`` when somebody entered since, ``TableReplaced`` in another table's fence."""

    def now_ms(self) -> int:
        """The store's clock at the entry, or a little earlier, in milliseconds."""

    def publish(self, target: str) -> None:
        """Make the entry's content visible under this name, durably.

        ``LeaseLost`` if somebody entered since, ``FileExistsError`` if the target exists, ``NotDurable`` if
        it is visible and may not survive a crash of the machine. Another ``OSError`` leaves open whether it
        is visible; ``published`` tells.
        """

    def published(self, target: str) -> bool:
        """Whether the target is there and has the entry's content. Raises ``OSError``."""

    def publish_ahead(self, target: str) -> None:
        """The same for the content that goes first, not durable yet."""

    def published_ahead(self, target: str) -> bool:
        """As ``published``, for the content that goes first."""

    def replace(self, prepared: str, target: str) -> None:
        """Put ``prepared`` in the place of ``target``, in one step, unless somebody entered since."""

    def leave(self) -> None:
        """Remove what the next entry need not find. Not needed to be safe; raises nothing."""


class Fence(Protocol):
    """Of one table, for one process."""

    def enter(self, content: str | None = None, ahead: str | None = None) -> Epoch:
        """Under the lock. ``content``: a durable private file that is to be published, None: nothing is, or
        an empty file; ``ahead``: one that goes before it.

        ``LeaseLost`` if somebody enters at the same time, ``TableReplaced`` for another table's fence,
        ``Unavailable`` if the private file is gone.
        """
