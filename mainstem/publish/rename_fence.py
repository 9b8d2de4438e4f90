"""The fence on HDFS: a rename that does not overwrite publishes, where ``publish.link_fence`` links.

The steps are those of the link fence, with a file that *moves*: private file -> ``epoch-n`` (step 1) ->
target (step 4), each by one rename, which fails if the source is gone or the target is there. Nothing is
written under the lock: HDFS takes some 10 to 500 ms to close a file with content, and 1 ms to rename it.

Three things differ.

**Sweeping moves, too.** A section that enters later renames our marker to ``swept-epoch-n`` (tickets alike)
instead of deleting it. So a content is at exactly one of five places: private, marker, swept, target, removed
after it was published. And the section that was superseded finds its content again, for its next attempt.
What nobody comes back for is deleted a day later.

**Doubt.** The library repeats a rename whose reply was lost, and the repetition finds no source. So after any
failure but ``FileExistsError`` the section looks for its content (``_settle_doubt``): still at the marker, it
renames it back to its private name, so that a rename on its way finds none, and reports that nothing was
published; swept, it was superseded; at the target, it was published. If none of these places has it, the
outcome is unknown.

**A marker goes with the publication**, and ``leave`` takes it back if nothing was published. An older section
that lists the folder afterwards and finds no greater marker may publish: it lists the timeline after that,
which shows what we published (``tests/model`` checks it; ``tests/model/rename_model.py`` the doubt).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from mainstem.errors import CorruptTable, LeaseLost, OutcomeUnknown, Unavailable
from mainstem.publish.link_fence import CHANCE, LinkEpoch, LinkFence
from mainstem.publish.staging import delete_quietly
from mainstem.publish.table_identity import check_same
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.protocol import FileInfo, Storage
from mainstem.storage.renames import renames
from mainstem.truetime.clock import Clock
from mainstem.truetime.seams import Randomness

# How long a swept content waits for its section, by the milliseconds in its number.
_SWEPT_KEPT_MS = 24 * 3_600_000
_LOOKS_MAX = 3
# More than there are sections at the same time.
_HOMES_MAX = 1000
_SWEPT = "swept-"


class RenameEpoch(LinkEpoch):
    """The right to publish under one lease. Use it once, then drop it.

    ``homes``: for each private file that a section of this process took, where it was last.
    """

    def __init__(
        self,
        storage: Storage,
        number: int,
        identity: str,
        content: str | None,
        table: str | None,
        homes: dict[str, str],
    ) -> None:
        super().__init__(storage, number, identity, content, table)
        self._homes = homes
        self._identity = identity
        self._replacements = 0
        #: ticket -> private file whose content it is, as long as it may be taken back
        self._taken: dict[str, str] = {}

    # -- entering ----------------------------------------------------------------------------------

    def place_ahead(self, prepared: str) -> None:
        if self._homes.get(prepared, "").startswith(paths.METADATA_TIMELINE):
            return  # an attempt that was superseded right after this file was visible
        super().place_ahead(prepared)

    def _name(self, prepared: str, ticket: str) -> None:
        last = self._homes.get(prepared)
        swept = [_swept(last), last] if last is not None and last.startswith(paths.FENCE) else []
        if not any(self._took(source, ticket) for source in (prepared, *swept)):
            check_same(self._storage.names(paths.FENCE), self._table, self._storage.base)
            if self._storage.stat(ticket) is None:  # else the reply to a first try was lost
                if self._storage.stat(prepared) is None:
                    raise Unavailable(
                        f"the prepared content {prepared} is gone; nothing was published",
                        table=self._storage.base,
                    )
                make_folder(self._storage, paths.FENCE)  # the first section of a table has no folder yet
                renames(self._storage).rename_new(prepared, ticket)
        self._homes[prepared] = ticket
        self._taken[ticket] = prepared

    def _took(self, source: str, ticket: str) -> bool:
        try:
            renames(self._storage).rename_new(source, ticket)
        except FileNotFoundError:
            return False
        return True

    def _take_away(self, name: str) -> None:
        source = f"{paths.FENCE}/{name}"
        with suppress(FileNotFoundError):  # published meanwhile, or swept by another section
            renames(self._storage).rename_new(source, _swept(source))

    def sweep(self, names: Sequence[str]) -> None:
        super().sweep(names)
        for name in names:
            text = name.removeprefix(_SWEPT)
            number = paths.parse_epoch(text) or paths.parse_ticket_epoch(text) if text != name else None
            if number is not None and (self.number - number) // CHANCE > _SWEPT_KEPT_MS:
                self._storage.delete(f"{paths.FENCE}/{name}")

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, target: str, *, durable: bool = True) -> None:
        self._go(self.marker, target)

    def published(self, target: str) -> bool:
        """The publisher asks this after ``FileExistsError``, which only a source that was there can meet, and
        after ``LeaseLost``, which is raised only if the content was found elsewhere."""
        return False

    def publish_ahead(self, target: str, folders: Iterable[str]) -> None:
        if self._ahead is None:
            raise Unavailable(
                f"{target} was published, and taken away again; nothing else was published",
                table=self._storage.base,
            )
        try:
            self._go(self.ticket_ahead, target)
        except OutcomeUnknown as error:  # as the other content is not visible, nothing shows it
            raise Unavailable(error.message, table=self._storage.base) from error
        self._homes[self._ahead] = target

    def published_ahead(self, target: str) -> bool:
        return False

    def place_ticket(self, prepared: str) -> None:
        """Each replacement has a ticket of its own: a rename of the one before may still be on its way."""
        self._replacements += 1
        self.ticket = paths.ticket(self.number, f"{self._identity}b{self._replacements:x}")
        super().place_ticket(prepared)

    def put_in_place(self, target: str) -> None:
        before = self._storage.stat(self.ticket)
        try:
            renames(self._storage).rename_over(self.ticket, target)
            self._taken.pop(self.ticket, None)
        except OSError as error:
            self._settle_doubt(self.ticket, target, before, error)

    def _go(self, ticket: str, target: str) -> None:
        try:
            renames(self._storage).rename_new(ticket, target)
            self._taken.pop(ticket, None)
        except FileExistsError:
            raise
        except OSError as error:
            self._settle_doubt(ticket, target, None, error)

    def _settle_doubt(self, ticket: str, target: str, before: FileInfo | None, error: OSError) -> None:
        """Find the content after a rename that failed; returns if it is at the target.

        ``before``: the ticket, where the target was there before. Raises ``Unavailable`` if nothing was
        published, ``LeaseLost`` if it was swept, ``OutcomeUnknown``, ``CorruptTable``.
        """
        storage = self._storage
        try:
            for _ in range(_LOOKS_MAX):
                if storage.stat(ticket) is None:
                    break
                no_folder = isinstance(error, FileNotFoundError) and not _folder_is_there(storage, target)
                if self._take_back(ticket):
                    raise self._not_published(target, error, no_folder) from error
            if ticket in self._taken and storage.stat(self._taken[ticket]) is not None:
                raise self._not_published(target, error) from error
            if storage.stat(_swept(ticket)) is not None:
                raise LeaseLost(f"the ticket of epoch {self.number} was swept by a later one") from error
            there = storage.stat(target)
        except OSError as silent:
            raise self._unknown(target, silent) from error
        same = before is None or (there and (there.size, there.mtime_ms) == (before.size, before.mtime_ms))
        if there is None or not same:
            raise self._unknown(target, error) from error
        self._taken.pop(ticket, None)

    def _not_published(
        self, target: str, error: OSError, no_folder: bool = False
    ) -> Unavailable | CorruptTable:
        if no_folder:
            return CorruptTable(
                "the folder is missing in which this was to become visible: the table was removed in part."
                " Nothing was published; bring the folder back, or remove the rest of the table",
                path=target,
                table=self._storage.base,
            )
        return Unavailable(
            f"publishing {target} failed: {error}; nothing was published", table=self._storage.base
        )

    def _unknown(self, target: str, error: OSError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"publishing {target} failed ({error}) and its content is not where it should be, or the store"
            " does not answer: it may or may not be visible; look at the timeline before writing again,"
            " delete nothing",
            table=self._storage.base,
        )

    # -- leaving -----------------------------------------------------------------------------------

    def _take_back(self, ticket: str) -> bool:
        """Give the content its private name again: a rename that is still on its way then finds none.

        False if it is not there any more.
        """
        private = self._taken.get(ticket, _swept(ticket))  # an empty marker has no private name
        try:
            renames(self._storage).rename_new(ticket, private)
        except FileNotFoundError:
            return False
        self._taken.pop(ticket, None)
        self._homes.pop(private, None)
        return True

    def leave(self) -> None:
        for ticket in list(self._taken):
            with suppress(OSError):
                self._take_back(ticket)

    def withdraw(self) -> None:
        self.leave()
        if self._content is None:
            delete_quietly(self._storage, self.marker)


class RenameFence(LinkFence):
    """The fence of one table, as one process uses it; see ``LinkFence``."""

    def __init__(self, storage: Storage, clock: Clock, random: Randomness, table: str | None = None) -> None:
        super().__init__(storage, clock, random, table)
        self._homes: dict[str, str] = {}

    def _made(self, number: int, identity: str, content: str | None) -> RenameEpoch:
        while len(self._homes) > _HOMES_MAX:  # of sections that failed for good
            del self._homes[next(iter(self._homes))]
        return RenameEpoch(self._storage, number, identity, content, self._table, self._homes)


def _swept(ticket: str) -> str:
    return paths.swept(ticket.rpartition("/")[2])


def _folder_is_there(storage: Storage, path: str) -> bool:
    return storage.stat(path.rpartition("/")[0]) is not None
