"""The right to publish: what the publisher asks of a fence.

A process can lose the lock without knowing it. So a section under the lock *enters* the fence. From then on
no process that entered earlier can publish: its attempt fails, or it published before the entry, and then
every listing made after the entry shows the file.

``publish.link_fence`` does this with hard links, in files of the table. ``publish.gate_fence`` is for stores
without links: a single object, the gate, is swapped, and then the targets are put.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Notes:
    """What is noted beside the fence and outlives every section.

    ``foreign_seen``: another kind of writer (Java, say) was seen on this table. ``newest``: no instant may
    get this time or an earlier one, whatever the timeline shows ("": no limit). ``moved``: another section
    may have entered since this process's latest one; ``only_commits``: those that did decided delta commits
    and nothing else. ``epoch``: of this look; after the epoch ``commits_from`` nothing but delta commits was
    decided. ``showing``: instants whose base files were about to get their names (``publish.showing``).
    """

    foreign_seen: bool = False
    newest: str = ""
    moved: bool = True
    only_commits: bool = False
    epoch: int = 0
    commits_from: int = 1 << 62
    showing: tuple[str, ...] = ()


class Epoch(Protocol):
    """The right to publish under one lease, from one entry on. Use it once, then drop it."""

    #: as they were at the entry
    notes: Notes
    #: whether ``listed`` is known without a look: since the listing of the section that this one repeats,
    #: nothing but delta commits was decided
    told: bool

    @property
    def ours(self) -> Sequence[str]:
        """Names of files of the timeline that are known to be mainstem's."""

    @property
    def listed(self) -> Sequence[str] | None:
        """The names in the timeline's folder, if the fence lists them itself; else None. Raises what
        ``enter`` raises."""

    @property
    def decided(self) -> Mapping[str, bytes]:
        """Contents of files that ``listed`` shows and that may not be visible yet."""

    def check(self) -> None:
        """Raises ``LeaseLost`` if another section entered since, ``TableReplaced`` for another table."""

    def now_ms(self) -> int:
        """The store's clock at the entry, or a little earlier, in milliseconds."""

    def publish(self, target: str, *, durable: bool = True) -> None:
        """Make the entry's content visible under this name, durably.

        Without ``durable`` a fence may leave it to the caller to make the target's folder durable.

        Raises ``LeaseLost`` if another section entered since, ``FileExistsError`` if the target exists,
        ``NotDurable`` if the target is visible but may not survive a crash of the machine. After any other
        ``OSError`` the target may or may not be visible; ``published`` tells. A fence that knows better
        raises ``Unavailable`` (nothing was published) or ``OutcomeUnknown`` itself.
        """

    def published(self, target: str) -> bool:
        """Whether the target exists with the entry's content. Raises ``OSError``."""

    def publish_ahead(self, target: str, folders: Iterable[str]) -> None:
        """As ``publish``, for the content that goes first. ``folders``: made durable with it, as far as they
        are not yet; ``NotDurable`` if that fails. Nothing is lost then, as the other content is not visible.

        It may become visible only in ``publish``, right before the other: one step can then decide both.
        """

    def published_ahead(self, target: str) -> bool:
        """As ``published``, for the content that goes first."""

    def replace(self, prepared: str, target: str) -> None:
        """Replace ``target`` by ``prepared`` in one step. ``LeaseLost`` if another section entered since."""

    def note_newest(self, time: str) -> None:
        """No instant may get this time or an earlier one. Call it before the file with the newest time leaves
        the timeline, and before a time is given to a timeline that others do not list.

        Raises ``LeaseLost`` if another section entered since, ``OSError``.
        """

    def note_foreign(self, evidence: str) -> None:
        """Remember for good that another kind of writer uses the table. Raises as ``note_newest``."""

    def leave(self) -> None:
        """Remove what the next entry would sweep. Safety does not rest on it; raises nothing."""


class Fence(Protocol):
    """The fence of one table, as one process uses it."""

    def look(self) -> Notes:
        """What is noted, without entering. ``TableReplaced`` for another table's fence."""

    def enter(
        self,
        content: str | None = None,
        ahead: str | None = None,
        *,
        carries: bool = False,
        again: Epoch | None = None,
    ) -> Epoch:
        """Enter, under the lock.

        ``carries``: the section publishes one delta commit, and its caller reads the files of earlier ones
        that are not visible yet in ``Epoch.decided``. ``again``: the epoch of the same section that was
        superseded just now.

        ``content``: the durable private file to publish; None publishes an empty file, or nothing.
        ``ahead``: a durable private file that is published before it. Raises ``LeaseLost`` if another
        section enters at the same time, ``TableReplaced`` for another table's fence, ``Unavailable`` if the
        private file is gone.
        """

    def note_foreign(self, evidence: str) -> None:
        """As in ``Epoch``, without entering. Raises ``LeaseLost``, ``OSError``."""

    def settle(self) -> None:
        """Carry out what is decided: from then on the timeline shows whatever was decided before this call.

        Whoever judges by the timeline whether a commit of unknown outcome happened calls this first. Raises
        ``Unavailable``, ``OSError``.
        """

    def sweep(self) -> None:
        """Remove what sections that failed left beside the fence. Raises as ``settle``."""
