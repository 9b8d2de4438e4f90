"""The fence on an object store: one object, the gate, is swapped, and that decides who publishes.

No store has a write that depends on a second object, as a hard link depends on its source. So publishing has
two steps: a compare-and-swap of the gate *decides* which files become visible, with their content; then they
are put, by the process that decided, or by whoever comes next.

  1. read the gate, with its tag
  2. list the timeline. *Help*: put what the gate names and the table does not show, or *carry* it
  3. decide, choose the instant's time above the listing and the gate's ``newest``
  4. swap the gate, on the condition of the tag of 1: **decided**, or superseded
  5. put the files that the gate names now, if absent, in their order: what is carried, the metadata table's,
     the data table's
  6. report success

A section that enters later reads the gate either before 4, and then its own swap fails or ours does, or after
it, and then it knows our decision, which is in place by its own swap or named by it again. PROTOCOL.md has
each step, what a crash after it leaves, and what late requests do; ``tests/model/gate_model.py`` checks it
and refutes it where a rule is left out.

**Doubt.** A store's client repeats requests by itself, so a refused swap may have been refused because of its
own first try, and an error may come after the effect. The gate tells: it holds the nonces of the last 64
swaps. If ours is among them, it was decided; if it is not the newest, and the gate names it no more, others
have put it. If the gate is unchanged, the same swap is sent again: it cannot take effect twice. A failure is
reported only after another swap made the first one impossible. What remains is ``OutcomeUnknown``: the store
does not answer, or more than 64 swaps came in between.

**Many writers.** A section that publishes a delta commit does not put the delta commits of others that are
decided and missing: its swap names them again, before its own file, and it puts all of them afterwards. If
its swap is refused, the gate's ``recent`` tells whether nothing but delta commits was decided since it listed
the timeline. Then the listing and these names are what a new one would show, and the next swap follows at
once. Contents of files that are not there yet are in the gate (``Epoch.decided``).

**A put that was refused** found a file of its name: the same bytes are a success, others are
``CorruptTable``.

**A process that stood still** for more than ten seconds after its swap looks at the gate before it puts
anything: if the gate has moved on and names it no more, others have put it. If it stands still between this
look and its put, or if the put travels for long, the file may come back after an archiver or a restore
removed it. PROTOCOL.md says what makes that harmless.

**Beside an engine without a gate.** It may archive or roll back an instant that the gate still names as
pending. So a decision is taken out of the gate once it is put (``clears``). And a missing completed file
whose earlier states are gone, too, is not put but noted as dropped; its writer, if it lives, is told
``OutcomeUnknown``.

**Sections without content** (``enter()``, for ``Publisher.guarded``) swap the gate when they enter: then
nobody who entered before publishes any more, as with links.

**Contents.** What is to be published is read from its private file when the section begins. Up to 64 KiB lie
in the gate itself. More goes to an object whose name holds the epoch that the swap would make and its nonce:
once the gate is at that epoch or beyond and does not name it, nothing ever will, so it can be swept without
asking a clock.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

from mainstem.errors import LeaseLost, MainstemError, OutcomeUnknown, Unavailable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.publish.fence import Epoch, Notes
from mainstem.publish.gate import CARRIED_MAX, INLINE_BYTES_MAX, Gate, Item, checksum, fresh
from mainstem.publish.gate_object import LOOK_AGAIN_MS, TRIES_MAX, GateObject
from mainstem.publish.staging import delete_quietly
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import Tag, swappable
from mainstem.truetime.clock import Clock
from mainstem.truetime.seams import Randomness


class GateEpoch:
    """The right to publish under one lease, from one entry on. Use it once, then drop it."""

    def __init__(
        self,
        gate: GateObject,
        clock: Clock,
        entered: tuple[Gate, Tag, float],
        content: bytes,
        ahead: bytes | None,
        *,
        carries: bool = False,
        again: GateEpoch | None = None,
    ) -> None:
        self._object = gate
        self._clock = clock
        self._gate, self._tag, self._read_ms = entered
        self._entered_ms = clock.monotonic_ms()
        self._content = content
        self._ahead = ahead
        self._carries = carries and ahead is None and not gate.clears and not self._gate.foreign
        #: the timeline's names as this section knows them, and the decided files that it takes along
        self._names: Sequence[str] | None = None
        self._carried: tuple[Item, ...] = ()
        self._helped = False
        self.told = self._carries and again is not None and self._is_told(again)
        self._ahead_target: str | None = None
        self._published: tuple[str, ...] = ()
        self._swapped = False
        self.notes = Notes(self._gate.foreign, self._gate.newest)

    @property
    def epoch(self) -> int:
        """The gate's epoch that this section goes by."""
        return self._gate.epoch

    @property
    def ours(self) -> Sequence[str]:
        """Whatever a gate decides is mainstem's."""
        return [name for name in self._gate.recent if name]

    # -- the timeline ----------------------------------------------------------------------------------

    @property
    def listed(self) -> Sequence[str] | None:
        """Steps 2 and 3: the timeline's names, and what is decided and not visible yet."""
        if self._names is None:
            self._names = self._looked()
        return self._names

    @property
    def decided(self) -> Mapping[str, bytes]:
        return {item.name: item.content for item in self._carried if item.content is not None}

    def _looked(self) -> Sequence[str]:
        listed = self._object.storage.names(paths.TIMELINE)
        missing = self._missing(set(listed))
        if self._carries and missing is not None:
            self._carried = missing
            return [*listed, *(item.name for item in missing)]
        self._gate = self._object.help(self._gate, self._read_ms, listed)
        self._helped = True
        put = (item.name for item in self._gate.pending if _is_shown(item, self._gate))
        return [*listed, *put]

    def _missing(self, there: Container[str]) -> tuple[Item, ...] | None:
        """What the gate names beside these files of the timeline; None if a section cannot carry that."""
        if self._gate.nonce == self._object.carried_out:
            return ()
        missing = tuple(
            item for item in self._gate.pending if not (item.is_commit and item.name in there)
        )
        can = len(missing) <= CARRIED_MAX and all(i.is_commit and i.content is not None for i in missing)
        return missing if can else None

    def _is_told(self, before: GateEpoch) -> bool:
        """Whether the gate tells all that was decided since this section's earlier attempt listed the
        timeline: then it need not be listed again."""
        commits = self._gate.commits_since(before.epoch)
        names, waiting = before._names, {item.name for item in before._carried}
        if commits is None or names is None or self._object.is_late(before._read_ms):
            return False
        missing = self._missing(set(names) - waiting)
        if missing is None:
            return False
        self._names, self._carried = [*names, *commits], missing
        self._read_ms = before._read_ms
        return True

    def _help(self) -> None:
        """Put what the gate names, before this section swaps it for one that does not."""
        if not (self._swapped or self._helped):
            self._helped = True
            self._gate = self._object.help(self._gate, self._read_ms)
            self._carried = ()

    # -- entering and checking -------------------------------------------------------------------------

    def claim(self) -> None:
        """Swap the gate without publishing anything: nobody who entered before publishes any more."""
        if self._swapped:
            return
        self._help()
        if not self._swap(self._gate.after(self._object.nonce()), publishes=False):
            raise LeaseLost(f"epoch {self.epoch} of the gate was superseded as soon as it began")

    def check(self) -> None:
        found = self._object.find()
        if found is None or found[0].nonce != self._gate.nonce:
            epoch = "none" if found is None else str(found[0].epoch)
            raise LeaseLost(f"epoch {self.epoch} of the gate was superseded by epoch {epoch}")

    def now_ms(self) -> int:
        """When the gate was swapped; for that it is swapped, unless this section has done so."""
        self.claim()
        info = self._object.storage.stat(paths.GATE)
        if info is None:
            raise LeaseLost(f"{paths.GATE} is gone, and the table with it")
        return info.mtime_ms

    # -- publishing ------------------------------------------------------------------------------------

    def publish_ahead(self, target: str, folders: Iterable[str]) -> None:
        """Note the target: one swap decides both files, in ``publish``, which puts this one first.

        An answered put is durable, so nothing is done for ``folders``.
        """
        self._ahead_target = target

    def published_ahead(self, target: str) -> bool:
        return target in self._published

    def publish(self, target: str, *, durable: bool = True) -> None:
        """Steps 4 and 5. Raises ``LeaseLost`` or ``Unavailable`` if nothing was decided, ``OutcomeUnknown``
        if it was and cannot be put, or if nobody can tell."""
        files = [(target, self._content)]
        if self._ahead_target is not None:
            assert self._ahead is not None, "the section entered without a file that goes ahead"
            files.insert(0, (self._ahead_target, self._ahead))
        self._decide([(name, data, None) for name, data in files])
        self._published = tuple(name for name, _ in files)

    def published(self, target: str) -> bool:
        return target in self._published

    def replace(self, prepared: str, target: str) -> None:
        """A decision too: else a section that entered before could publish by what was replaced."""
        storage = self._object.storage
        data = _private_content(storage, prepared)
        found = swappable(storage).read_tagged(target)
        was = "" if found is None else checksum(found[0])
        if checksum(data) == was:
            self.check()
            return
        self._decide([(target, data, was)])

    def _decide(self, files: Sequence[tuple[str, bytes, str | None]]) -> None:
        """Swap the gate for one that names these files (target, content, checksum of what is replaced), then
        put them."""
        if self._object.is_late(self._entered_ms):
            self.check()  # a swap that was never sent leaves no doubt
        nonce, storage = self._object.nonce(), self._object.storage
        length = sum(len(data) for _, data, _ in files)
        large = length > INLINE_BYTES_MAX
        if self._names is None or length + sum(i.size for i in self._carried) > INLINE_BYTES_MAX:
            self._help()
        carried = self._carried
        items, contents = [], [item.content or b"" for item in carried]
        for place, (target, data, was) in enumerate(files):
            data = data if was is None else fresh(target, data, nonce)
            prepared = paths.decided(self.epoch + 1, nonce, place) if large else None
            if prepared is not None:
                storage.put_new(prepared, data, durable=True)
            items.append(Item.of(target, data, prepared=prepared, was=was))
            contents.append(data)
        before_ms = self._clock.monotonic_ms()
        decided = self._gate.after(nonce, items, carried=carried)
        try:
            current = self._swap(decided, publishes=True)
            self._put(decided, contents, before_ms if current else -LOOK_AGAIN_MS)
            if current:
                self._object.carried_out = nonce
                if self._object.clears or decided.foreign:
                    self._clear()
        except OutcomeUnknown:
            raise  # the gate may name them
        except (MainstemError, OSError):
            self._drop(items)
            raise
        self._drop(items)

    def _swap(self, after: Gate, *, publishes: bool) -> bool:
        """Whether ``after`` is the gate now; False if others have swapped it since."""
        before = self._gate
        found, tag = self._object.swap(before, self._tag, after, publishes=publishes)
        self._drop(before.pending)  # those with contents of their own are in place: this section entered
        current = found.nonce == after.nonce
        if not current:
            self._object.check_kept(after, found)
        self._gate, self._swapped = after, True
        if current:  # otherwise the old tag stays, and whatever this section tries next is superseded
            self._tag = tag
            self._object.left, self._object.left_epoch = after.nonce, after.epoch
        return current

    def _clear(self) -> None:
        """Nothing is pending any more. Else, if an engine without a gate removed a file that was put, whoever
        enters next would put it again."""
        with suppress(MainstemError, OSError):
            self._swap(self._gate.after(self._object.nonce()), publishes=False)

    def _drop(self, items: Sequence[Item]) -> None:
        """Remove contents that were put, or will never be."""
        for item in items:
            if item.prepared is not None:
                delete_quietly(self._object.storage, item.prepared)

    def _put(self, decided: Gate, contents: Sequence[bytes], before_ms: float) -> None:
        """Step 5, in the process that decided."""
        left = list(zip(decided.pending, contents, strict=True))
        carried, why = len(self._carried), None
        for _ in range(TRIES_MAX):
            try:
                if carried and self._is_put(decided.pending[carried - 1]):  # and those before it
                    del left[:carried]
                carried = 0
                while left:
                    if (why is not None or self._object.is_late(before_ms)) and self._object.moved(decided):
                        return
                    self._put_one(decided, *left[0])
                    del left[0]
                return
            except OSError as error:
                why = error
        raise OutcomeUnknown(
            f"{decided.pending[-1].target} is decided and could not be put ({why}): it becomes visible as"
            " soon as any process enters the table. Do not write it again, delete nothing",
            table=self._object.storage.base,
        ) from why

    def _put_one(self, decided: Gate, item: Item, data: bytes) -> None:
        if item.was is None:
            self._object.put(item, decided, data)
        elif not self._object.replace(item, decided, data) and not self._object.moved(decided):
            raise LeaseLost(
                f"{item.target} was replaced meanwhile by a writer that knows no gate",
                table=self._object.storage.base,
            )

    def _is_put(self, item: Item) -> bool:
        return self._object.storage.stat(item.target) is not None

    # -- notes -----------------------------------------------------------------------------------------

    def note_newest(self, time: str) -> None:
        if self._gate.newest < time:
            self._help()
            self._note(self._gate.after(self._object.nonce(), newest=time))

    def note_foreign(self, evidence: str) -> None:
        if not self._gate.foreign:
            self._help()
            self._note(self._gate.after(self._object.nonce(), foreign=True))

    def _note(self, after: Gate) -> None:
        if not self._swap(after, publishes=False):
            raise LeaseLost(f"epoch {self.epoch} of the gate was superseded")

    def leave(self) -> None:
        """Nothing is left to remove."""


class GateFence:
    """The fence of one table on a store with swaps, as one process uses it.

    ``table``: the identity that the gate must have; None accepts any, and makes a gate where there is none.
    ``clears``: where other engines may write, take a decision out of the gate once it is put, at one request
    more; always done once one was seen. Raises ``Unsupported`` for a store without swaps.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        random: Randomness,
        table: str | None = None,
        *,
        clears: bool = False,
    ) -> None:
        self._clock = clock
        self._gate = GateObject(storage, clock, random, table, clears)

    def look(self) -> Notes:
        """One read. ``newest`` counts what is decided and not visible yet."""
        found = self._gate.find()
        if found is None:
            return Notes()
        gate, moved = found[0], found[0].nonce != self._gate.left
        if self._gate.clears or gate.foreign:
            return Notes(gate.foreign, gate.newest, moved)
        if not moved:
            self._gate.remember(*found)  # this process is alone: its next section need not look again
        only_commits = bool(self._gate.left) and self._gate.left_epoch >= gate.commits_from
        return Notes(False, gate.newest, moved, only_commits, gate.epoch, gate.commits_from)

    def enter(
        self,
        content: str | None = None,
        ahead: str | None = None,
        *,
        carries: bool = False,
        again: Epoch | None = None,
    ) -> GateEpoch:
        """Step 1; step 2 comes with the first look at the timeline. Without content the gate is swapped."""
        storage = self._gate.storage
        data = b"" if content is None else _private_content(storage, content)
        first = None if ahead is None else _private_content(storage, ahead)
        before = again if isinstance(again, GateEpoch) else None
        epoch = GateEpoch(
            self._gate, self._clock, self._gate.enter(), data, first, carries=carries, again=before
        )
        if content is None:
            epoch.claim()
        return epoch

    def settle(self) -> None:
        if self._gate.find() is not None:
            self._gate.enter_helping()

    def note_foreign(self, evidence: str) -> None:
        self._gate.change(lambda gate, nonce: None if gate.foreign else gate.after(nonce, foreign=True))

    def sweep(self) -> None:
        """Remove contents that no decision names, nor ever will."""
        storage = self._gate.storage
        names = storage.names(paths.DECIDED)
        if not names:
            return
        # After the listing: what it names was listed before it was decided.
        gate, _ = self._gate.enter_helping()
        named = {item.prepared for item in gate.pending}
        for name in sorted(names):
            epoch, path = paths.parse_decided(name), f"{paths.DECIDED}/{name}"
            if epoch is not None and epoch <= gate.epoch and path not in named:
                storage.delete(path)


def _private_content(storage: Storage, path: str) -> bytes:
    try:
        return storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    except FileNotFoundError as error:
        raise Unavailable(
            f"the prepared content {path} is gone; nothing was published", table=storage.base
        ) from error


def _is_shown(item: Item, gate: Gate) -> bool:
    """Whether the timeline shows the decided file now, unless it did so before."""
    folder = item.target.rpartition("/")[0]
    return item.was is None and folder == paths.TIMELINE and item.target not in gate.dropped
