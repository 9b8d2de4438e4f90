"""Seeded bugs of an object store's fence, the gate, and of what writers take for granted of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mainstem.errors import LeaseLost, OutcomeUnknown, Unavailable
from mainstem.publish import gate_fence, publisher
from mainstem.publish.fence import Notes
from mainstem.publish.gate import Gate, Item
from mainstem.publish.gate_fence import GateEpoch, GateFence
from mainstem.publish.gate_object import GateObject
from mainstem.publish.publisher import Publisher
from mainstem.services import archive_plan
from mainstem.storage import paths
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.swaps import Tag
from mainstem.writers.append import BucketAppender
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

# Mixtures in which one kind of trouble is frequent.
LATER = Faults(late=0.08)
LATE = Faults(late=0.03, error_after=0.02, repeated=0.02, skew_ms=50)
DYING = Faults(crash_after=r"^SWAP .*/gate\.json$", crash_after_often=0.2, skew_ms=50)
CROWDED = Faults(pause=0.03, pause_ms_max=3000, repeated=0.05, error_after=0.02, skew_ms=50)
INTERRUPTED = Faults(interrupt=0.02, late=0.01)


@seeded_bug("a section does not carry out what was decided before", "publishers", DYING, body="store")
def nobody_helps() -> list[Patch]:
    return [patch.object(GateObject, "carry_out", lambda self, gate, read_ms, listed=None: gate)]


@seeded_bug("a refused swap is taken for somebody else's", "publishers", CROWDED, body="store")
def refused_is_anothers() -> list[Patch]:
    def blind(self: GateObject, before: Gate, tag: Tag, after: Gate, *, publishes: bool) -> tuple[Gate, Tag]:
        try:
            new = self._swaps.swap(paths.GATE, after.encode(), tag)
        except OSError:
            new = None
        if new is None:
            raise LeaseLost("refused, so it was somebody else")
        return after, new

    return [patch.object(GateObject, "swap", blind)]


@seeded_bug("the gate is put without a condition", "publishers", CROWDED, body="store")
def gate_without_condition() -> list[Patch]:
    def put(self: GateObject, before: Gate, tag: Tag, after: Gate, *, publishes: bool) -> tuple[Gate, Tag]:
        self.storage.put(paths.GATE, after.encode(), durable=True)
        return self.read()

    return [patch.object(GateObject, "swap", put)]


@seeded_bug("nobody looks for the own nonce among the past ones", "publishers", CROWDED, body="store")
def past_is_not_looked_at() -> list[Patch]:
    return [patch.object(Gate, "knows", lambda self, other: self.nonce == other.nonce)]


@seeded_bug("a swap is said to have failed without one that cancels it", "tables", LATER, body="store")
def no_cancelling_swap() -> list[Patch]:
    def hasty(self: GateObject, before: Gate, tag: Tag, after: Gate, *, publishes: bool) -> tuple[Gate, Tag]:
        try:
            new = self._swaps.swap(paths.GATE, after.encode(), tag)
        except OSError:
            found = self.read()
            if found[0].nonce == before.nonce:
                raise Unavailable("the gate is unchanged, so it failed") from None
            new = None
        found = (after, new) if new is not None else self.read()
        if not found[0].knows(after):
            raise LeaseLost("superseded")
        return found

    return [patch.object(GateObject, "swap", hasty)]


@seeded_bug("success is told before anything is put", "publishers", body="store")
def success_without_a_put() -> list[Patch]:
    return [patch.object(GateEpoch, "_put", nothing)]


@seeded_bug("trouble after the decision is told as a failure", "tables", LATE, body="store")
def trouble_is_a_failure() -> list[Patch]:
    def once(self: GateEpoch, decided: Gate, contents: Sequence[bytes], before_ms: float) -> None:
        try:
            for item, data in zip(decided.pending, contents, strict=True):
                self._object.put(item, decided, data)
        except OSError as error:
            raise Unavailable(f"it could not be put: {error}; nothing was published") from error

    return [patch.object(GateEpoch, "_put", once)]


@seeded_bug("the decision leaves the gate before it is put", "publishers", body="store")
def cleared_before_it_is_put() -> list[Patch]:
    whole = GateEpoch._put

    def early(self: GateEpoch, decided: Gate, contents: Sequence[bytes], before_ms: float) -> None:
        self._clear()
        whole(self, decided, contents, before_ms)

    return [patch.object(GateEpoch, "_put", early)]


@seeded_bug("a decided file is put over whatever is there", "publishers", LATE, body="store")
def decided_files_are_put_over() -> list[Patch]:
    def over(self: GateObject, item: Item, gate: Gate, data: bytes | None = None) -> None:
        content = self._content(item, gate) if data is None else data
        if content is not None:
            self.storage.put(item.target, content, durable=True)

    return [patch.object(GateObject, "put", over)]


@seeded_bug("the data table's file is decided ahead of the metadata table's", "indexed", body="store")
def data_goes_first() -> list[Patch]:
    def publish(self: GateEpoch, target: str, *, durable: bool = True) -> None:
        files = [(target, self._content, None)]
        if self._ahead_target is not None:
            assert self._ahead is not None
            files.append((self._ahead_target, self._ahead, None))
        self._decide(files)
        self._published = tuple(name for name, _, _ in files)

    return [patch.object(GateEpoch, "publish", publish)]


@seeded_bug(
    "whoever drops contents of decisions drops those of others, too", "publishers", DYING, body="store"
)
def contents_of_others_are_dropped() -> list[Patch]:
    def drop(self: GateEpoch, items: Sequence[Item]) -> None:
        storage = self._object.storage
        for name in storage.names(paths.DECIDED):
            gate_fence.delete_quietly(storage, f"{paths.DECIDED}/{name}")

    return [patch.object(GateEpoch, "_drop", drop)]


@seeded_bug("the archive's version is switched without a decision", "archives", body="store")
def replaced_without_a_decision() -> list[Patch]:
    def replace(self: GateEpoch, prepared: str, target: str) -> None:
        self.check()
        storage = self._object.storage
        storage.put(target, storage.read(prepared, max_bytes=2**20), durable=True)

    return [patch.object(GateEpoch, "replace", replace)]


@seeded_bug("a refused condition is always one's own success", "publishers", CROWDED, body="store")
def every_refusal_is_a_success() -> list[Patch]:
    def blind(whole: Any) -> Any:
        def swap(self: ObjectStorage, path: str, data: Any, tag: Any) -> Any:
            found = whole(self, path, data, tag)
            return found if found is not None else (self._nonce_and_tag(path) or (None, None))[1]

        return swap

    names = ("swap", "swap_once")
    return [patch.object(ObjectStorage, name, blind(getattr(ObjectStorage, name))) for name in names]


@seeded_bug(
    "a store's put carries no nonce: one's own second try is somebody else", "tables", CROWDED, body="store"
)
def no_nonce() -> list[Patch]:
    whole = ObjectStorage._nonce_and_tag

    def nameless(self: ObjectStorage, path: str) -> Any:
        found = whole(self, path)
        return None if found is None else (None, found[1])

    return [patch.object(ObjectStorage, "_nonce_and_tag", nameless)]


@seeded_bug("a heartbeat is renewed by a plain put, and comes back after a rollback", "tables", body="store")
def heartbeats_come_back() -> list[Patch]:
    def renew(self: ObjectStorage, path: str) -> None:
        self.put(path, self.read(path, max_bytes=2**20), durable=False)

    return [patch.object(ObjectStorage, "renew", renew)]


@seeded_bug("an interrupted commit judges by the timeline alone, and deletes its files", "tables",
            INTERRUPTED, body="store")  # fmt: skip
def doubt_is_not_ended() -> list[Patch]:
    return [patch.object(Publisher, "end_doubt", nothing)]


@seeded_bug(
    "a plan stays although another one became visible by the entry", "compactions", DYING, body="store"
)
def plans_decided_before_unseen() -> list[Patch]:
    def changed(before: Any, after: Any) -> bool:
        return {i.file_name for i in before.completed} != {i.file_name for i in after.completed}

    return [patch.object(publisher, "_changed", changed)]


@seeded_bug("a begin believes that nobody entered since", "publishers", CROWDED, body="store")
def begins_without_a_listing() -> list[Patch]:
    look = GateFence.look

    def unmoved(self: GateFence) -> Notes:
        notes = look(self)
        return Notes(notes.foreign_seen, "", False)

    return [patch.object(GateFence, "look", unmoved)]


@seeded_bug("markers are put after their log files on a store", "tables", body="store")
def markers_after_files() -> list[Patch]:
    return [patch.object(BucketAppender, "_put_markers", nothing)]


@seeded_bug("what is archived and came back is archived again", "archives",
            Faults(late=0.08, error_after=0.03), body="store")  # fmt: skip
def archived_twice() -> list[Patch]:
    return [patch.object(archive_plan, "_already_archived", lambda state: ([], []))]


@seeded_bug("a decision is put twice: under a second name after doubt", "publishers", LATE, body="store")
def decided_again_in_doubt() -> list[Patch]:
    whole = GateObject.swap

    def again(self: GateObject, before: Gate, tag: Tag, after: Gate, *, publishes: bool) -> tuple[Gate, Tag]:
        try:
            return whole(self, before, tag, after, publishes=publishes)
        except OutcomeUnknown as error:
            raise LeaseLost(str(error)) from error

    def forgetful(self: Gate, other: Gate) -> bool | None:
        return True if other.nonce == self.nonce else None

    return [patch.object(GateObject, "swap", again), patch.object(Gate, "knows", forgetful)]


@seeded_bug("a swap does not name what it takes along", "publishers", LATE, body="store")
def carried_is_forgotten() -> list[Patch]:
    whole = Gate.after

    def after(self: Gate, nonce: str, decided: Sequence[Item] = (), **named: Any) -> Gate:
        return whole(self, nonce, decided, **{**named, "carried": ()})

    return [patch.object(Gate, "after", after)]


@seeded_bug("what a swap takes along is not put, as it must be in place by now", "publishers", DYING,
            body="store")  # fmt: skip
def carried_is_thought_in_place() -> list[Patch]:
    return [patch.object(GateEpoch, "_is_put", lambda self, item: True)]


@seeded_bug("a section puts its own file before those that it takes along", "publishers", DYING, body="store")
def own_file_goes_first() -> list[Patch]:
    whole = GateEpoch._put

    def own_first(self: GateEpoch, decided: Gate, contents: Sequence[bytes], before_ms: float) -> None:
        self._object.put(decided.pending[-1], decided, contents[-1])
        whole(self, decided, contents, before_ms)

    return [patch.object(GateEpoch, "_put", own_first)]


@seeded_bug("a begin believes that all that completed meanwhile were commits beside it", "tables",
            CROWDED, body="store")  # fmt: skip
def plans_beside_a_begin_unseen() -> list[Patch]:
    look = GateFence.look

    def only_commits(self: GateFence) -> Notes:
        return replace(look(self), only_commits=True, commits_from=-1)

    return [patch.object(GateFence, "look", only_commits)]
