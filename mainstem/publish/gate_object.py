"""The gate's object in the store: read, swapped, carried out, and the identity that it holds.

``gate_fence`` says in which order, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainstem.errors import CorruptTable, LeaseLost, OutcomeUnknown, TableReplaced, Unavailable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.publish.gate import GATE_BYTES_MAX, Gate, Item, checksum, parse_gate
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import Tag, swap_once, swappable
from mainstem.timeline.instant import parse_instant
from mainstem.truetime.clock import Clock
from mainstem.truetime.seams import Randomness

#: how often a request without a clear answer is sent again, after a look
TRIES_MAX = 3
# How often the gate is swapped for a note, or to enter, while others swap it too.
_ENTRIES_MAX = 20
# What was read this long ago need not be read again to enter: if it is old, the swap finds out.
_FRESH_MS = 1000.0
#: a decision older than this may have been carried out by others, and its files may have been archived
LOOK_AGAIN_MS = 10_000


class GateObject:
    """The gate's object in the store. ``table``: the identity that it must have; None accepts any."""

    def __init__(
        self, storage: Storage, clock: Clock, random: Randomness, table: str | None, clears: bool
    ) -> None:
        self.storage = storage
        self.clears = clears
        self._clock = clock
        self._swaps = swappable(storage)
        self._random = random
        self._table = table
        #: nonce of a decision whose files this process has seen in place
        self.carried_out = ""
        #: nonce and epoch that this process's latest section left
        self.left, self.left_epoch = "", -1
        # what was read just before a section, and when: the section enters by it
        self._found: tuple[Gate, Tag, float] | None = None

    def nonce(self) -> str:
        """128 random bits."""
        return f"{self._random.getrandbits(128):032x}"

    def find(self) -> tuple[Gate, Tag] | None:
        """The gate; None if there is none. Raises ``TableReplaced`` for another table's, ``OSError``."""
        found = self._swaps.read_tagged(paths.GATE, max_bytes=GATE_BYTES_MAX)
        gate = None if found is None else parse_gate(found[0], self.storage.base)
        if self._table is not None and (gate is None or gate.table != self._table):
            what = "is missing" if gate is None else "is of another table"
            raise replaced(f"{paths.GATE} {what}", self.storage.base)
        return None if found is None or gate is None else (gate, found[1])

    def read(self) -> tuple[Gate, Tag]:
        """As ``find``, but makes a gate if there is none."""
        for _ in range(TRIES_MAX):
            found = self.find()
            if found is not None:
                return found
            self._swaps.swap(paths.GATE, _first_gate(self._random), None)
        raise LeaseLost(f"{paths.GATE} comes and goes: the table is being deleted", table=self.storage.base)

    def remember(self, gate: Gate, tag: Tag) -> None:
        """The next section enters by this gate, which was just read, unless it begins much later."""
        self._found = (gate, tag, self._clock.monotonic_ms())

    # -- swapping --------------------------------------------------------------------------------------

    def swap(self, before: Gate, tag: Tag, after: Gate, *, publishes: bool) -> tuple[Gate, Tag]:
        """Put ``after`` in the place of ``before``; the gate that is there afterwards: ours, or a later one.

        Raises ``LeaseLost`` if others swapped it first, ``Unavailable`` if it failed for good,
        ``OutcomeUnknown`` if nobody can tell; ``Unavailable`` instead unless the swap ``publishes``.
        """
        why = ""
        carried = [item for item in after.pending if item in before.pending]
        for one in (*[after] * TRIES_MAX, before.after(self.nonce(), carried=carried)):
            try:
                new = swap_once(self.storage, paths.GATE, one.encode(), tag)
                found = None if new is None else (one, new)
            except OSError as error:
                why, found = str(error), None
            try:
                found = found or self.find()
            except OSError as error:
                why = str(error)
                continue
            if found is None:
                raise TableReplaced(f"{paths.GATE} is gone, and the table with it", table=self.storage.base)
            known = found[0].knows(after)
            if known:
                return found
            if found[0].nonce != before.nonce:  # ours can take effect no more
                if known is None and publishes:
                    why = f"{found[0].epoch - before.epoch} swaps came in between, too many to tell"
                    break
                if one is not after and found[0].nonce == one.nonce:
                    raise Unavailable(
                        f"the gate could not be swapped: {why}; nothing was published",
                        table=self.storage.base,
                    )
                self.remember(*found)
                raise LeaseLost(
                    f"epoch {before.epoch} of the gate was superseded by epoch {found[0].epoch}",
                    table=self.storage.base,
                )
        if not publishes:
            raise Unavailable(f"the gate could not be swapped: {why}", table=self.storage.base)
        raise OutcomeUnknown(
            f"publishing {after.pending[-1].target} failed ({why}) and the gate does not tell whether it was"
            " decided: it may become visible; enter the table again, then look at the timeline and the"
            " archive. Delete nothing",
            table=self.storage.base,
        )

    def change(self, change: Callable[[Gate, str], Gate | None]) -> None:
        """Swap the gate for ``change(gate, nonce)``, after its decision was carried out; nothing if None."""
        for _ in range(_ENTRIES_MAX):
            before, tag = self.enter_helping()
            after = change(before, self.nonce())
            if after is None:
                return
            try:
                self.swap(before, tag, after, publishes=False)
            except LeaseLost:
                continue
            return
        raise LeaseLost(f"the gate was swapped {_ENTRIES_MAX} times meanwhile", table=self.storage.base)

    # -- carrying out ----------------------------------------------------------------------------------

    def enter(self) -> tuple[Gate, Tag, float]:
        """Step 1: the gate, its tag, and when it was read."""
        read_ms = self._clock.monotonic_ms()
        found, self._found = self._found, None
        if found is not None and read_ms - found[2] < _FRESH_MS:
            return found
        return *self.read(), read_ms

    def enter_helping(self) -> tuple[Gate, Tag]:
        """Steps 1 and 2: the gate, whose decisions are carried out, and its tag."""
        gate, tag, read_ms = self.enter()
        return self.help(gate, read_ms), tag

    def help(self, gate: Gate, read_ms: float, listed: Sequence[str] | None = None) -> Gate:
        """As ``carry_out``, but raises ``Unavailable`` if something cannot be put."""
        try:
            return self.carry_out(gate, read_ms, listed)
        except OSError as error:
            raise Unavailable(
                f"what was decided before could not be put ({error}); nothing else was published",
                table=self.storage.base,
            ) from error

    def carry_out(self, gate: Gate, read_ms: float, listed: Sequence[str] | None = None) -> Gate:
        """Put what the gate, read at this time, names, where it is missing; the gate to go on with.

        ``listed``: the timeline's names, if they were listed after that. Raises ``OSError``, ``LeaseLost`` if
        others have put it while this process stood still.
        """
        if gate.nonce == self.carried_out or not gate.pending:
            return gate
        after = gate
        for item in gate.pending:
            if item.was is not None:
                self.replace(item, gate)
                continue
            if listed is None:
                listed = self.storage.names(paths.TIMELINE)
            if self._is_there(gate.pending[-1], listed):  # it is put after all others
                continue
            if self.is_late(read_ms) and self.moved(gate):
                raise LeaseLost(f"epoch {gate.epoch} of the gate was superseded", table=self.storage.base)
            if self._taken_back(item, listed):
                after = after.without(item)
                continue
            self.put(item, gate)
        if after == gate:
            self.carried_out = gate.nonce
        return after

    def _is_there(self, item: Item, listed: Sequence[str]) -> bool:
        folder, _, name = item.target.rpartition("/")
        return name in listed if folder == paths.TIMELINE else self.storage.stat(item.target) is not None

    def _taken_back(self, item: Item, listed: Sequence[str]) -> bool:
        """Whether an engine without a gate has removed the instant since it was decided.

        A completed file that is missing has its earlier states beside it, unless somebody archived the
        instant, restored or rolled it back. We help before we do that; others do not.
        """
        instant = parse_instant(item.target.rpartition("/")[2])
        if instant is None or not instant.is_completed:
            return False
        folder, earlier = item.target.rpartition("/")[0], f"{instant.requested}."
        names = [*listed, *(self.storage.names(folder) if folder != paths.TIMELINE else ())]
        return not any(name.startswith(earlier) for name in names)

    def is_late(self, since_ms: float) -> bool:
        """Whether others may have carried a decision of that time out, and archived its files."""
        return self._clock.monotonic_ms() - since_ms >= LOOK_AGAIN_MS

    def moved(self, gate: Gate) -> bool:
        """Whether others have swapped the gate since, and have put what it names.

        Raises ``OutcomeUnknown`` if they have dropped it.
        """
        found = self.find()
        if found is None or found[0].nonce == gate.nonce:
            return False
        if any(item.was is None and item in found[0].pending for item in gate.pending):
            return False  # they only took it along
        self.check_kept(gate, found[0])
        return True

    def check_kept(self, decided: Gate, now: Gate) -> None:
        """Raises ``OutcomeUnknown`` if a later section has dropped what was decided."""
        for item in decided.pending:
            if item.target in now.dropped:
                raise OutcomeUnknown(
                    f"{item.target} was decided, and another engine took its instant back before it became"
                    " visible: look at the timeline and the archive before writing again",
                    table=self.storage.base,
                )

    def put(self, item: Item, gate: Gate, data: bytes | None = None) -> None:
        """Put a new file, if it is not there with the same content. ``data``: the content, where it is at
        hand. Raises ``CorruptTable``, ``LeaseLost`` (others have done it), ``OSError``."""
        data = self._content(item, gate) if data is None else data
        if data is None:
            return
        try:
            self.storage.put_new(item.target, data, durable=True)
        except FileExistsError as error:
            try:
                found = self.storage.read(item.target, max_bytes=TIMELINE_FILE_BYTES_MAX)
            except FileNotFoundError:
                return  # it was there, and was archived since: the gate has moved on
            if not item.holds(found):
                raise CorruptTable(
                    f"it should hold the {item.size} bytes that epoch {gate.epoch} of the gate decided, and"
                    f" has {len(found)} others: something else wrote it. Stop all writers and look at it",
                    path=item.target,
                    table=self.storage.base,
                ) from error

    def replace(self, item: Item, gate: Gate, data: bytes | None = None) -> bool:
        """Replace a file; False if it has neither its old content nor the new one. As ``put`` otherwise."""
        for _ in range(TRIES_MAX):
            found = self._swaps.read_tagged(item.target)
            if found is not None and item.holds(found[0]):
                return True
            if item.was != ("" if found is None else checksum(found[0])):
                return False  # somebody who knows no gate has replaced it since, or a later section did
            new = self._content(item, gate) if data is None else data
            if new is None:
                continue
            if self._swaps.swap(item.target, new, None if found is None else found[1]) is not None:
                return True
        return False

    def _content(self, item: Item, gate: Gate) -> bytes | None:
        """The decided content; None if it is gone because it was put.

        Raises ``CorruptTable``, ``LeaseLost`` (the gate has moved on), ``OSError``.
        """
        if item.prepared is None:
            assert item.content is not None
            return item.content
        try:
            data = self.storage.read(item.prepared, max_bytes=item.size)
        except FileNotFoundError:
            if self._in_place(item):
                return None
            now = self.find()
            if now is None or now[0].nonce != gate.nonce:
                raise LeaseLost(
                    f"epoch {gate.epoch} of the gate was superseded", table=self.storage.base
                ) from None
            raise CorruptTable(
                f"it holds what epoch {gate.epoch} of the gate decided to publish as {item.target}, and is"
                " gone: bring it back from a copy. Until then nothing else is published",
                path=item.prepared,
                table=self.storage.base,
            ) from None
        if not item.holds(data):
            raise CorruptTable(
                f"it is not what epoch {gate.epoch} of the gate decided to publish as {item.target}",
                path=item.prepared,
                table=self.storage.base,
            )
        return data

    def _in_place(self, item: Item) -> bool:
        if item.was is None:
            return self.storage.stat(item.target) is not None
        found = self._swaps.read_tagged(item.target)
        return found is not None and item.holds(found[0])


# -- which table it is ---------------------------------------------------------------------------------


def replaced(what: str, base: str) -> TableReplaced:
    """The error for a table that is not the one that was opened; ``what`` shows it."""
    return TableReplaced(
        "the table that was opened here is gone: it was deleted, and perhaps another one made at its path"
        f" ({what}). Nothing was published on what is there now; open the table again",
        table=base,
    )


def known_identity(storage: Storage) -> str | None:
    """The identity in the table's gate; None if it has none yet. Raises ``OSError``."""
    found = swappable(storage).read_tagged(paths.GATE, max_bytes=GATE_BYTES_MAX)
    return None if found is None else parse_gate(found[0], storage.base).table


def note_identity(storage: Storage, random: Randomness) -> str:
    """As ``known_identity``, but makes a gate if there is none. Raises ``OSError``, ``LeaseLost``."""
    for _ in range(TRIES_MAX):
        known = known_identity(storage)
        if known is not None:
            return known
        swappable(storage).swap(paths.GATE, _first_gate(random), None)
    raise LeaseLost(f"{paths.GATE} comes and goes: the table is being deleted", table=storage.base)


def _first_gate(random: Randomness) -> bytes:
    identity, nonce = (f"{random.getrandbits(128):032x}" for _ in range(2))
    return Gate(identity, 0, nonce).encode()
