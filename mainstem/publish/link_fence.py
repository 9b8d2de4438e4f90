"""The completion fence: a holder that lost the table lock publishes nothing.

A lock can be lost without its holder knowing (a stopped process, an expired session, a file removed
by hand). So the right to publish is an *epoch* kept in storage, beside the lock:

  1. take the lease; create the marker of epoch n = last + 1, exclusively
  2. list, and delete every ticket of a smaller epoch (and every smaller marker, so that the number
     of files stays constant; the greatest marker always stays)
  3. put the own ticket in place: a private file with the content to publish, named by n
  4. check that no marker greater than n exists, else drop the ticket: superseded
  5. read the newest time on the timeline; choose the instant's time above it
  6. publish with link(ticket, target): fails if the ticket was swept or the target exists
  7. sync the folder, release the lease

Whoever enters later has either swept our ticket before step 6 (then the link fails) or sees in its
own step 5 what we published. A section that publishes two files, one ahead of the other, puts both tickets
in place in step 3 and links them in step 6, in that order: a holder that is superseded between the two
leaves what a crash leaves there, too. Assumed: ``link`` is atomic and listings are current (local POSIX file
systems). Survives: any number of simultaneous holders, pauses of any length, crashes between any two
calls, arbitrary clocks. Checked exhaustively in ``tests/model``; each omitted step is refuted there.
Does not hold against writers that do not take part (Java): see SAFETY.md.

The fence is a table's own: the folder goes with the table, and what a holder placed in it. So a section that
began in a table which was deleted and made anew publishes nothing in the new one; both listings of the folder
also look for the note of the table (``publish.table_identity``), which costs no call more.
"""

from __future__ import annotations

from mainstem.errors import CorruptTable, LeaseLost, Unavailable
from mainstem.publish.table_identity import check_same
from mainstem.storage import paths
from mainstem.storage.links import links
from mainstem.storage.protocol import Storage
from mainstem.truetime.seams import Randomness

FOREIGN_NOTE = "foreign"


class Epoch:
    """The right to publish under one lease. Use it once, then drop it."""

    def __init__(
        self, storage: Storage, number: int, identity: str, names: list[str], table: str | None = None
    ) -> None:
        self._storage = storage
        self._table = table
        self.number = number
        self.marker = paths.epoch_marker(number)
        self.ticket = paths.ticket(number, identity)
        #: of a file that is published ahead of the other
        self.ticket_ahead = paths.ticket(number, f"{identity}a")
        self._went_ahead = False
        #: another kind of writer was seen on this table before
        self.foreign_seen = FOREIGN_NOTE in names
        #: no time may be given at or below this one, whatever the timeline shows ("": any)
        self.newest_noted = max(filter(None, map(paths.parse_newest_note, names)), default="")

    def sweep(self) -> None:
        """Step 2: whoever entered before can no longer publish.

        All tickets go before the first marker. A listing that runs meanwhile may miss a marker that is
        deleted and a greater one that is created: an older holder must not pass its check because of
        that while a ticket of the deleted marker's epoch can still be published (``tests/model``).
        """
        markers = []
        for name in self._storage.names(paths.FENCE):
            ticket, marker = paths.parse_ticket_epoch(name), paths.parse_epoch(name)
            if ticket is not None and ticket < self.number:
                self._storage.delete(f"{paths.FENCE}/{name}")
            if marker is not None and marker < self.number:
                markers.append(name)
        for name in markers:
            self._storage.delete(f"{paths.FENCE}/{name}")

    def place_ticket(self, prepared: str | None) -> None:
        """Step 3: the content is a second name of ``prepared`` (already durable), or empty."""
        if prepared is None:
            self._storage.put_new(self.ticket, b"", durable=False)
        else:
            self._name(prepared, self.ticket)

    def place_ahead(self, prepared: str) -> None:
        """Step 3 for the file that is published first."""
        self._went_ahead = True
        self._name(prepared, self.ticket_ahead)

    def _name(self, prepared: str, ticket: str) -> None:
        try:
            links(self._storage).link(prepared, ticket)
        except FileNotFoundError as error:
            raise Unavailable(
                f"the prepared content {prepared} is gone; nothing was published",
                table=self._storage.base,
            ) from error

    def check(self) -> None:
        """Step 4. ``LeaseLost`` when a later epoch began, ``TableReplaced`` in another table's fence."""
        names = self._storage.names(paths.FENCE)
        check_same(names, self._table, self._storage.base)
        for name in names:
            number = paths.parse_epoch(name)
            if number is not None and number > self.number:
                raise LeaseLost(f"epoch {self.number} was superseded by epoch {number}")

    def publish(self, target: str) -> None:
        """Step 6. ``LeaseLost`` if the ticket was swept, ``FileExistsError`` if the target exists."""
        self._publish(self.ticket, target)

    def publish_ahead(self, target: str) -> None:
        """Step 6 for the file that is published first."""
        self._publish(self.ticket_ahead, target)

    def _publish(self, ticket: str, target: str) -> None:
        try:
            links(self._storage).link(ticket, target)
        except FileNotFoundError as error:
            if self._storage.stat(ticket) is not None:  # then it is the target's folder that is not there
                raise CorruptTable(
                    "the folder is missing in which this was to become visible: the table was removed in"
                    " part. Nothing was published; bring the folder back, or remove the rest of the table",
                    path=target,
                    table=self._storage.base,
                ) from error
            raise LeaseLost(f"the ticket of epoch {self.number} was swept by a later one") from error

    def replace(self, target: str) -> None:
        """Step 6 for a file that is there already: the ticket takes its place."""
        try:
            links(self._storage).rename(self.ticket, target)
        except FileNotFoundError as error:
            raise LeaseLost(f"the ticket of epoch {self.number} was swept by a later one") from error

    def drop_ticket(self) -> None:
        """Forget the tickets; a missing one is fine."""
        self._storage.delete(self.ticket)
        if self._went_ahead:
            self._storage.delete(self.ticket_ahead)


def enter_epoch(storage: Storage, random: Randomness, table: str | None = None) -> Epoch:
    """Steps 1 and 2. ``table``: which table's epoch it is to be (``publish.table_identity``), None: of any.

    Raises ``LeaseLost`` if another holder began the same epoch, ``TableReplaced`` for another table.
    """
    names = storage.names(paths.FENCE)
    check_same(names, table, storage.base)
    last = max((n for n in map(paths.parse_epoch, names) if n is not None), default=0)
    identity = f"{random.getrandbits(64):016x}"
    epoch = Epoch(storage, last + 1, identity, names, table)
    try:
        storage.put_new(epoch.marker, b"", durable=False)
    except FileExistsError as error:
        raise LeaseLost(f"epoch {last + 1} was begun by another holder") from error
    epoch.sweep()
    return epoch


def note_newest(storage: Storage, time: str) -> None:
    """Before a file with the newest time leaves the timeline, under the lock: it is not given again.

    Somebody may have read up to that time; an instant at or below it would never be seen by him.
    """
    try:
        storage.put_new(paths.newest_note(time), b"", durable=True)
    except FileExistsError:
        return
    storage.settle([], [paths.FENCE], durable=True)
    for name in sorted(storage.names(paths.FENCE)):
        noted = paths.parse_newest_note(name)
        if noted is not None and noted < time:
            storage.delete(f"{paths.FENCE}/{name}")


def note_foreign_writer(storage: Storage, evidence: str) -> None:
    """Remember for good that another kind of writer uses the table."""
    try:
        storage.put_new(f"{paths.FENCE}/{FOREIGN_NOTE}", evidence.encode(), durable=True)
    except FileExistsError:
        return
