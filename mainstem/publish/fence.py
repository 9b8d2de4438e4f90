"""The right to publish: what the publisher asks of a fence.

A process can lose the lock without knowing it. So a section under the lock *enters* the fence. From then on
no process that entered earlier can publish: its attempt fails, or it published before the entry, and then
every listing made after the entry shows the file.

``publish.link_fence`` does this with hard links, in files of the table. A store without links would need
another fence, such as a single object that is swapped: ``enter`` reads it, ``publish`` swaps it and then
writes the target. The publisher would not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Notes:
    """What is noted beside the fence and outlives every section.

    ``foreign_seen``: another kind of writer (Java, say) was seen on this table. ``newest``: no instant may
    get this time or an earlier one, whatever the timeline shows ("": no limit).
    """

    foreign_seen: bool = False
    newest: str = ""


class Epoch(Protocol):
    """The right to publish under one lease, from one entry on. Use it once, then drop it."""

    #: as they were at the entry
    notes: Notes

    def check(self) -> None:
        """Raises ``LeaseLost`` if another section entered since, ``TableReplaced`` for another table."""

    def now_ms(self) -> int:
        """The store's clock at the entry, or a little earlier, in milliseconds."""

    def publish(self, target: str) -> None:
        """Make the entry's content visible under this name, durably.

        Raises ``LeaseLost`` if another section entered since, ``FileExistsError`` if the target exists,
        ``NotDurable`` if the target is visible but may not survive a crash of the machine. After any other
        ``OSError`` the target may or may not be visible; ``published`` tells.
        """

    def published(self, target: str) -> bool:
        """Whether the target exists with the entry's content. Raises ``OSError``."""

    def publish_ahead(self, target: str, folders: Iterable[str]) -> None:
        """As ``publish``, for the content that goes first. ``folders``: made durable with it, as far as they
        are not yet; ``NotDurable`` if that fails. Nothing is lost then, as the other content is not visible.
        """

    def published_ahead(self, target: str) -> bool:
        """As ``published``, for the content that goes first."""

    def replace(self, prepared: str, target: str) -> None:
        """Replace ``target`` by ``prepared`` in one step. ``LeaseLost`` if another section entered since."""

    def leave(self) -> None:
        """Remove what the next entry would sweep. Safety does not rest on it; raises nothing."""


class Fence(Protocol):
    """The fence of one table, as one process uses it."""

    def look(self) -> Notes:
        """What is noted, without entering. ``TableReplaced`` for another table's fence."""

    def enter(self, content: str | None = None, ahead: str | None = None) -> Epoch:
        """Enter, under the lock.

        ``content``: the durable private file to publish; None publishes an empty file, or nothing.
        ``ahead``: a durable private file that is published before it. Raises ``LeaseLost`` if another
        section enters at the same time, ``TableReplaced`` for another table's fence, ``Unavailable`` if the
        private file is gone.
        """
