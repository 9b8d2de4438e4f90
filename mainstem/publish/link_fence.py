"""The fence on a file system: a process that lost the table lock publishes nothing.

A process can lose the lock without knowing it (it was stopped, its session expired, somebody removed the lock
file). So the right to publish is an *epoch*, which is kept in storage beside the lock. One file,
``epoch-n``, is the epoch's marker and at the same time a second name of the content to publish:

  1. take the lease; link the private file with the content to ``epoch-n``. n is greater than every number
     seen and was never used before
  2. list the fence's folder. If a marker greater than n is there, this epoch is superseded. Otherwise delete
     all tickets with smaller numbers, then all smaller markers
  3. list the timeline; choose the instant's time above the newest one listed
  4. publish: link(epoch-n, target), then sync the folder. The link fails if the marker was swept or if the
     target exists. A plain write syncs the folder after step 5 (``publish.publisher``)
  5. release the lease. The marker stays until the next section sweeps it

A section that enters later either sweeps our marker before step 4, and then our link fails, or it lists the
timeline (its step 3) after our step 4 and sees what we published.

**Two files.** A section that publishes one file ahead of another links the first one to a ticket in step 1,
beside its marker, and renames the ticket in step 4, before the link. If the section is superseded between the
two, it leaves what a crash would leave there.

**Replacing a file** (``replace``) also takes a ticket: link the new content to it, list the fence's folder
once more, rename the ticket to the target.

**Numbers.** A swept name must not come back with other content: its first owner may be about to link it. So n
is made of the clock's milliseconds, or the greatest number seen plus one, and a random part. Thanks to the
clock a section need not list the folder first, but nothing rests on it: if it is behind, the listing of step
2 shows a greater marker, and the section enters again above that.

**What it needs and what it survives.** ``link`` must be atomic and listings current (local POSIX file
systems). The fence survives any number of simultaneous holders, pauses of any length, crashes between any two
calls and arbitrary clocks. ``tests/model`` checks this exhaustively and refutes it when a step is left out.
It does not stop writers that take no part in it (Java; see SAFETY.md). Processes of earlier versions take
part: they make an empty marker ``last + 1`` and a ticket beside it, and sweep as above.

**One table's fence.** The folder, with everything that a process placed in it, is deleted with the table. So
a section that began in a table which was deleted and made anew publishes nothing in the new one. Every
listing of the folder also looks for the note of the table (``publish.table_identity``), at no extra call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mainstem.errors import CorruptTable, LeaseLost, MainstemError, Unavailable
from mainstem.publish.fence import Epoch, Notes
from mainstem.publish.fence_notes import note_foreign_writer, note_newest, notes_in
from mainstem.publish.staging import delete_quietly
from mainstem.publish.table_identity import check_same
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.links import links
from mainstem.storage.protocol import Storage
from mainstem.truetime.clock import Clock
from mainstem.truetime.seams import Randomness

# Numbers have at most 18 digits: milliseconds until the year 2200, and five random digits.
CHANCE, _CHANCE_BITS = 10**5, 16
_CLOCK_MS_MAX = 7_258_118_400_000
_ENTRIES_MAX = 2


class LinkEpoch:
    """The right to publish under one lease. Use it once, then drop it."""

    def __init__(
        self, storage: Storage, number: int, identity: str, content: str | None, table: str | None = None
    ) -> None:
        self._storage = storage
        self._table = table
        self._content = content
        self.number = number
        self.marker = paths.epoch_marker(number)
        #: second name of a file that is to replace another one
        self.ticket = paths.ticket(number, identity)
        #: second name of a file that is published ahead of the other
        self.ticket_ahead = paths.ticket(number, f"{identity}a")
        self._ahead: str | None = None
        self._ahead_waits = False
        self.notes = Notes()
        self.listed: Sequence[str] | None = None
        self.told = False
        self.ours: Sequence[str] = ()
        self.decided: Mapping[str, bytes] = {}

    # -- entering ----------------------------------------------------------------------------------

    def mark(self) -> None:
        """Step 1: the marker is a second name of the content (already durable), or an empty file."""
        try:
            if self._content is None:
                self._storage.put_new(self.marker, b"", durable=False)
            else:
                self._name(self._content, self.marker)
        except FileExistsError as error:
            raise LeaseLost(f"epoch {self.number} was begun by another holder") from error

    def place_ahead(self, prepared: str) -> None:
        """Step 1, for the file that is published first."""
        self._ahead, self._ahead_waits = prepared, True
        self._name(prepared, self.ticket_ahead)

    def _name(self, prepared: str, ticket: str) -> None:
        try:
            links(self._storage).link(prepared, ticket)
        except FileNotFoundError as error:
            check_same(self._storage.names(paths.FENCE), self._table, self._storage.base)
            if self._storage.stat(prepared) is not None:  # the first section of a table has no folder yet
                make_folder(self._storage, paths.FENCE)
                links(self._storage).link(prepared, ticket)
                return
            raise Unavailable(
                f"the prepared content {prepared} is gone; nothing was published",
                table=self._storage.base,
            ) from error

    def sweep(self, names: Sequence[str]) -> None:
        """Step 2: sections that entered earlier can no longer publish. ``names``: listed after step 1.

        All tickets are deleted before the first marker. A listing that runs meanwhile may miss both a marker
        that is being deleted and a greater one that is being created. An older section must not pass its
        check because of that while a ticket of the deleted marker's epoch can still be published
        (``tests/model``).
        """
        self.notes = notes_in(names)
        numbers = ((paths.parse_ticket_epoch(name), name) for name in names)
        tickets = [name for number, name in numbers if number is not None and number < self.number]
        markers = sorted((n, name) for name in names if (n := paths.parse_epoch(name)) is not None)
        for name in (*tickets, *(name for number, name in markers if number < self.number)):
            self._take_away(name)

    def _take_away(self, name: str) -> None:
        """Make it impossible to publish this marker or ticket of an earlier section."""
        self._storage.delete(f"{paths.FENCE}/{name}")

    # -- publishing --------------------------------------------------------------------------------

    def check(self) -> None:
        """Step 2 once more, without deleting anything."""
        names = self._storage.names(paths.FENCE)
        check_same(names, self._table, self._storage.base)
        greatest = greatest_epoch(names)
        if greatest > self.number:
            raise LeaseLost(f"epoch {self.number} was superseded by epoch {greatest}")

    def now_ms(self) -> int:
        """When the marker's content was written, by the store's clock: shortly before the entry."""
        info = self._storage.stat(self.marker)
        if info is None:
            raise LeaseLost(f"epoch {self.number} was superseded")
        return info.mtime_ms

    def publish(self, target: str, *, durable: bool = True) -> None:
        """Step 4. Raises ``LeaseLost`` if the marker was swept, ``FileExistsError`` if the target exists."""
        try:
            links(self._storage).link(self.marker, target, durable=durable)
        except FileNotFoundError as error:
            raise self._failed(self.marker, target) from error

    def published(self, target: str) -> bool:
        return links(self._storage).same_file(self._content or self.marker, target)

    def publish_ahead(self, target: str, folders: Iterable[str]) -> None:
        """Step 4, for the file that is published first. A rename cannot replace another section's file here:
        the target's name holds a time that only this section gives."""
        try:
            links(self._storage).rename(self.ticket_ahead, target, settle=folders)
        except FileNotFoundError as error:
            raise self._failed(self.ticket_ahead, target) from error
        self._ahead_waits = False

    def published_ahead(self, target: str) -> bool:
        return self._ahead is not None and links(self._storage).same_file(self._ahead, target)

    # -- notes -------------------------------------------------------------------------------------

    def note_newest(self, time: str) -> None:
        note_newest(self._storage, time)

    def note_foreign(self, evidence: str) -> None:
        note_foreign_writer(self._storage, evidence)

    def _failed(self, ticket: str, target: str) -> LeaseLost | CorruptTable:
        if self._storage.stat(ticket) is not None:  # then the target's folder is missing
            return CorruptTable(
                "the folder is missing in which this was to become visible: the table was removed in"
                " part. Nothing was published; bring the folder back, or remove the rest of the table",
                path=target,
                table=self._storage.base,
            )
        return LeaseLost(f"the ticket of epoch {self.number} was swept by a later one")

    def replace(self, prepared: str, target: str) -> None:
        """Step 4, for a target that exists already: a ticket is renamed over it."""
        self.place_ticket(prepared)
        self.check()
        self.put_in_place(target)

    def place_ticket(self, prepared: str) -> None:
        self._name(prepared, self.ticket)

    def put_in_place(self, target: str) -> None:
        try:
            links(self._storage).rename(self.ticket, target)
        except FileNotFoundError as error:
            raise LeaseLost(f"the ticket of epoch {self.number} was swept by a later one") from error

    def leave(self) -> None:
        if self._ahead_waits:
            delete_quietly(self._storage, self.ticket_ahead)

    def withdraw(self) -> None:
        """Undo an entry that failed. The marker may be deleted because a greater one exists."""
        self.leave()
        delete_quietly(self._storage, self.marker)


class LinkFence:
    """The fence of one table, as one process uses it. ``table``: the identity that the table must have
    (``publish.table_identity``); None accepts any."""

    def __init__(self, storage: Storage, clock: Clock, random: Randomness, table: str | None = None) -> None:
        self._storage = storage
        self._clock = clock
        self._random = random
        self._table = table
        #: the greatest number that this process has seen
        self._greatest = 0

    def look(self) -> Notes:
        """One listing of the folder."""
        names = self._storage.names(paths.FENCE)
        check_same(names, self._table, self._storage.base)
        return notes_in(names)

    def enter(
        self,
        content: str | None = None,
        ahead: str | None = None,
        *,
        carries: bool = False,
        again: Epoch | None = None,
    ) -> LinkEpoch:
        """Steps 1 and 2; once more above the greatest number if a greater marker turns up. Whoever publishes
        here puts what it decides at once, so nothing is ever carried."""
        if content is None:  # creating an empty marker would bring back the folder of a deleted table
            self._seen(self._storage.names(paths.FENCE))
        for _ in range(_ENTRIES_MAX):
            epoch = self._epoch(content)
            epoch.mark()
            try:
                if ahead is not None:
                    epoch.place_ahead(ahead)
                names = self._storage.names(paths.FENCE)
                if self._seen(names) <= epoch.number:
                    epoch.sweep(names)
                    return epoch
            except (OSError, MainstemError):
                epoch.leave()
                raise
            epoch.withdraw()
        raise LeaseLost(f"epoch {epoch.number} was superseded by epoch {self._greatest}")

    def note_foreign(self, evidence: str) -> None:
        note_foreign_writer(self._storage, evidence)

    def settle(self) -> None:
        """Nothing to do: what is decided is visible."""

    def sweep(self) -> None:
        """Nothing to do: the next entry sweeps."""

    def _epoch(self, content: str | None) -> LinkEpoch:
        by_clock = min(max(self._clock.now_ms(), 0), _CLOCK_MS_MAX) * CHANCE
        number = max(by_clock, self._greatest + 1) + self._random.getrandbits(_CHANCE_BITS)
        identity = f"{self._random.getrandbits(64):016x}"
        return self._made(number, identity, content)

    def _made(self, number: int, identity: str, content: str | None) -> LinkEpoch:
        return LinkEpoch(self._storage, number, identity, content, self._table)

    def _seen(self, names: Sequence[str]) -> int:
        """The greatest marker's number among ``names``. ``TableReplaced`` if they are another table's."""
        check_same(names, self._table, self._storage.base)
        greatest = greatest_epoch(names)
        self._greatest = max(self._greatest, greatest)
        return greatest


def greatest_epoch(names: Sequence[str]) -> int:
    """The greatest number of a marker among these names; 0 if there is none."""
    return max((n for n in map(paths.parse_epoch, names) if n is not None), default=0)
