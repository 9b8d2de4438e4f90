"""Numbers the writes of a micro-batch; the count is kept in storage, per run of the batch.

A user's function may write one micro-batch several times (``foreachBatch``). The streaming guard
tells these writes apart by an ordinal: 0 for the first, 1 for the second. A replay of the batch (a
restarted query, a second driver on the same checkpoint) counts from 0 again and so finds the same
ordinals for the same writes. Java's sink has one write per batch and no ordinal
(HoodieStreamingSink).

The count cannot live in process memory: Spark calls a data source in planner, task and commit
processes which come and go. It lives in ``.hoodie/.mainstem/streams/<stream>/state-<n>``: a
register whose next version is put in place by ``link``, so two writers never both make version n +
1. On an object store it is one object, ``state``, which is swapped.

An ordinal that may be wrong would skip a write that was never made, so these are refused:

* a write that begins while another of the same run is open, or began before that one ended: the
  batch is written from several threads, whose order may differ in a replay. The batch is marked; a
  later run of it is refused too;
* a write after one that failed (is it the same write again, or the next?);
* a write that looks different (columns, operation) from what an earlier run committed as this
  ordinal;
* an ordinal given twice in one run, or given to some writes and not to others;
* a batch older than one that another driver of the same stream has begun.

An ordinal given by the caller (``hoodie.mainstem.stream.ordinal``) is free of the first two rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mainstem.errors import CorruptTable, Invalid, Unavailable
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.options.engines import IDENTIFIER, ORDINAL
from mainstem.publish.staging import Swept, put_whole
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import Tag, has_swaps, swappable
from mainstem.truetime.seams import Randomness

T = TypeVar("T")

OPEN, DONE, FAILED = "open", "done", "failed"
_VERSION = "state-"
# the one object that holds the register on an object store
_SWAPPED = "state"
_WAIT = "wait-"
_TICKET = "ticket-"
#: Number of runs of a batch that are remembered. A run that was forgotten may not count further writes.
_RUNS_MAX = 32
_FORGOTTEN_MAX = 4_000
_ATTEMPTS_MAX = 200


@dataclass(frozen=True)
class StreamWrite:
    """One write of one run of one micro-batch.

    ``run`` names the attempt to execute the batch (a restarted query or a second driver has another
    one), ``write`` this write in it: calls that repeat both get the same answer. ``query`` is the
    id of the streaming query, "" if unknown. ``looks`` is any text that is equal in a replay of
    this write.
    """

    identifier: str
    query: str
    batch_id: int
    run: str
    write: str
    looks: str = ""


def allocate(
    storage: Storage,
    random: Randomness,
    what: StreamWrite,
    *,
    ordinal: int | None = None,
    started_ms: int | None = None,
) -> int:
    """The ordinal of this write: counted, or ``ordinal`` as given, checked either way.

    ``started_ms`` is when the write began, by the clock that ``finish`` is given, or None if
    unknown. Raises ``Invalid`` for everything in the module's list, naming stream, batch and way
    round.
    """
    if ordinal is not None and ordinal < 0:
        raise Invalid(f"{ORDINAL}={ordinal}, expected a number from 0", table=storage.base)

    def change(state: _State) -> tuple[_State, int]:
        state = _for_batch(state, what, storage.base)
        run = state.run(what.run)
        for entry in run:
            if entry.write == what.write:
                return state, entry.ordinal
        chosen = _choose(state, run, what, ordinal, started_ms, storage.base)
        _compare_with_earlier_runs(state, what, chosen, storage.base)
        entry = _Entry(what.write, chosen, ordinal is not None, what.looks, OPEN, None)
        return state.with_entry(what.run, entry), chosen

    return _update(storage, random, what.identifier, change)


def finish(
    storage: Storage, random: Randomness, what: StreamWrite, *, ok: bool, now_ms: int | None = None
) -> None:
    """Note the end of a write: ``ok`` when its rows are on the timeline or there were none.

    A write that ends without this call stays open: the rest of its run is refused, a replay is not.
    """

    def change(state: _State) -> tuple[_State, None]:
        if state.batch_id != what.batch_id:
            return state, None
        for entry in state.run(what.run):
            if entry.write == what.write:
                ended = _Entry(
                    entry.write,
                    entry.ordinal,
                    entry.given,
                    entry.looks,
                    DONE if ok else FAILED,
                    now_ms,
                )
                return state.with_entry(what.run, ended), None
        return state, None

    _update(storage, random, what.identifier, change)


def claim(storage: Storage, random: Randomness, identifier: str, query: str) -> None:
    """Tie a checkpoint identifier to one streaming query. Raises ``Invalid`` if it has another one.

    Two queries under one identifier would skip each other's batches (in Java: silent loss).
    """

    def change(state: _State) -> tuple[_State, None]:
        return _owned(state, identifier, query, storage.base), None

    _update(storage, random, identifier, change)


# ------------------------------------------------------------------------------------------- rules


def _owned(state: _State, identifier: str, query: str, base: str) -> _State:
    if state.query and query and state.query != query:
        raise Invalid(
            f"checkpoint identifier {identifier!r} belongs to the streaming query {state.query},"
            f" this is query {query}: the two would skip each other's batches. Give each query its"
            f" own {IDENTIFIER}; a query that starts"
            " from a new checkpoint folder needs a new identifier too, since its batches count"
            " from 0 again",
            table=base,
        )
    if state.query or not query:
        return state
    return _State(state.batch_id, query, state.threads, state.runs, state.forgotten)


def _for_batch(state: _State, what: StreamWrite, base: str) -> _State:
    state = _owned(state, what.identifier, what.query, base)
    if what.batch_id < state.batch_id:
        raise Invalid(
            f"batch {what.batch_id} of stream {what.identifier!r} is over: batch {state.batch_id}"
            " has begun. Another driver runs the same checkpoint, or an older copy of the"
            " checkpoint was restored: stop one of the drivers; for a restored checkpoint choose"
            f" a new {IDENTIFIER}",
            table=base,
        )
    if what.batch_id > state.batch_id:
        return _State(what.batch_id, state.query, False, (), ())
    if _short(what.run) in state.forgotten:
        raise Invalid(
            f"batch {what.batch_id} of stream {what.identifier!r} was begun more than {_RUNS_MAX}"
            " times after this run of it: its ordinals are forgotten; stop this driver",
            table=base,
        )
    return state


def _choose(
    state: _State,
    run: tuple[_Entry, ...],
    what: StreamWrite,
    ordinal: int | None,
    started_ms: int | None,
    base: str,
) -> int:
    where = f"batch {what.batch_id} of stream {what.identifier!r}"
    if any(entry.given != (ordinal is not None) for entry in run):
        raise Invalid(
            f"{where}: some of its writes give {ORDINAL} and some do not; give it to all of"
            " them (0, 1, ...) or to none",
            table=base,
        )
    if ordinal is not None:
        for entry in run:
            if entry.ordinal == ordinal and entry.state != FAILED:
                raise Invalid(
                    f"{where}: {ORDINAL}={ordinal} was given to two writes; the second would"
                    " count as already committed and be lost. Number the writes of a batch 0, 1,"
                    " ...",
                    table=base,
                )
        return ordinal
    overlap = any(
        entry.state == OPEN
        or (started_ms is not None and entry.ended_ms is not None and started_ms < entry.ended_ms)
        for entry in run
    )
    if state.threads or overlap:
        raise _SeveralThreads(
            f"{where}: it is written from several threads, or an earlier write of it never ended;"
            " the order of its writes cannot be known, and a replay could skip the wrong one."
            f" Write one after the other, or number the writes with the option {ORDINAL}"
            " (0, 1, ...) so that each has the same number in every run",
            table=base,
        )
    if any(entry.state == FAILED for entry in run):
        raise Invalid(
            f"{where}: an earlier write of this run failed, so it is not known whether this is the"
            " same write again or the next one. Let the batch fail (the query replays it), or"
            f" number the writes with the option {ORDINAL}",
            table=base,
        )
    return len(run)


class _SeveralThreads(Invalid):
    """A refusal that is recorded for the whole batch: its later runs are refused too."""


def _compare_with_earlier_runs(state: _State, what: StreamWrite, ordinal: int, base: str) -> None:
    for name, entries in state.runs:
        if name == what.run:
            continue
        for entry in entries:
            if entry.ordinal == ordinal and entry.state == DONE and entry.looks != what.looks:
                raise Invalid(
                    f"batch {what.batch_id} of stream {what.identifier!r}: write {ordinal} of this"
                    f" replay is [{what.looks}], but an earlier run committed [{entry.looks}] as"
                    f" write {ordinal}. Skipping it could lose rows. Write in the same order as"
                    f" before, or number the writes with the option {ORDINAL}: {ordinal}"
                    " for the one that is committed",
                    table=base,
                )


# ---------------------------------------------------------------------------------------- register


@dataclass(frozen=True)
class _Entry:
    write: str
    ordinal: int
    given: bool
    looks: str
    state: str
    ended_ms: int | None


@dataclass(frozen=True)
class _State:
    batch_id: int = -1
    query: str = ""
    threads: bool = False
    runs: tuple[tuple[str, tuple[_Entry, ...]], ...] = ()
    forgotten: tuple[str, ...] = ()

    def run(self, name: str) -> tuple[_Entry, ...]:
        return next((entries for known, entries in self.runs if known == name), ())

    def with_entry(self, run: str, entry: _Entry) -> _State:
        """Add or replace an entry; the oldest runs beyond the bound are forgotten by name."""
        kept = [e for e in self.run(run) if e.write != entry.write]
        place = next((i for i, e in enumerate(self.run(run)) if e.write == entry.write), len(kept))
        entries = (*kept[:place], entry, *kept[place:])
        runs = dict(self.runs)
        runs[run] = entries
        gone = list(runs)[: max(0, len(runs) - _RUNS_MAX)]
        for name in gone:
            del runs[name]
        forgotten = (*self.forgotten, *map(_short, gone))[-_FORGOTTEN_MAX:]
        return _State(self.batch_id, self.query, self.threads, tuple(runs.items()), forgotten)

    def marked(self) -> _State:
        return _State(self.batch_id, self.query, True, self.runs, self.forgotten)


def _short(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:12]


def stream_folder(identifier: str) -> str:
    """Folder of a stream's register; the identifier may hold any character, a name may not."""
    return f"{paths.STREAMS}/{hashlib.sha256(identifier.encode()).hexdigest()[:32]}"


def _update(
    storage: Storage,
    random: Randomness,
    identifier: str,
    change: Callable[[_State], tuple[_State, T]],
) -> T:
    """Apply ``change`` to the newest state; again from the start when another writer was faster."""
    kind = _SwappedRegister if has_swaps(storage) else _Register
    register = kind(storage, random, stream_folder(identifier), identifier)
    for _ in range(_ATTEMPTS_MAX):
        try:
            made = register.attempt(change)
        except OSError as error:
            raise Unavailable(
                f"the register of stream {identifier!r} cannot be read or written: {error}; nothing"
                " was published",
                table=storage.base,
            ) from error
        if made:
            return made[0]
    raise Unavailable(
        f"the register of stream {identifier!r} changed {_ATTEMPTS_MAX} times in a row; nothing was"
        " written: look for drivers that share a checkpoint identifier",
        table=storage.base,
    )


def _changed(
    state: _State, change: Callable[[_State], tuple[_State, T]], keep: Callable[[_State], bool]
) -> tuple[T, ...]:
    """What ``change`` returns beside the new state, once ``keep`` has kept that; () if another writer was
    faster. What ``change`` raises is raised if the state was current."""
    refusal: Invalid | None = None
    made: tuple[T, ...] = ()
    new = state
    try:
        new, result = change(state)
        made = (result,)
    except _SeveralThreads as error:
        new, refusal = state.marked(), error
    except Invalid as error:
        refusal = error
    if not keep(new):
        return ()
    if refusal is not None:
        raise refusal
    return made


class _Register:
    """A value with versions ``state-1``, ``state-2``, ...; the highest counts. One attempt to change it:

    1. create ``wait-<x>``; list the versions, read the highest, n; decide
    2. create ``ticket-<x>`` with the new content; stop if ``wait-<x>`` is gone
    3. link ``ticket-<x>`` as version n + 1: exclusive, and fails if the ticket is gone
    4. twice: list and delete everybody else's ``wait-*`` and ``ticket-*``
    5. delete the versions below n, in rising order

    So an attempt that read the versions before another one deleted some has lost its ticket, or finds at
    step 2 that its ``wait`` is gone. No stopped attempt puts a version into a swept place, and none decides
    by a listing that missed the newest version because it was made and swept around it.
    """

    def __init__(self, storage: Storage, random: Randomness, folder: str, identifier: str) -> None:
        self._storage = storage
        self._random = random
        self._folder = folder
        self._identifier = identifier

    def attempt(self, change: Callable[[_State], tuple[_State, T]]) -> tuple[T, ...]:
        """The result alone; () if another writer was faster. What ``change`` raises is raised if the state
        was current."""
        name = f"{self._random.getrandbits(64):016x}"
        wait = f"{self._folder}/{_WAIT}{name}"
        self._storage.put_new(wait, b"", durable=False)
        try:
            version, state = self.load()
            return _changed(state, change, lambda new: self._put(version, state, new, wait, name))
        finally:
            self._storage.delete(wait)

    def load(self) -> tuple[int, _State]:
        """The highest version and what it says."""
        while True:
            names = self._storage.names(self._folder)
            version = max(self._versions(names), default=0)
            if version == 0 and _SWAPPED not in names:
                return 0, _State()
            # In a table that was copied from an object store, the state has the name that it has there.
            path = self._path(version) if version else f"{self._folder}/{_SWAPPED}"
            try:
                data = self._storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
            except FileNotFoundError:
                continue  # swept between the listing and the reading: there is a newer one
            return version, _decode(data, self._identifier, path, self._storage.base)

    def _put(self, version: int, state: _State, new: _State, wait: str, name: str) -> bool:
        storage = self._storage
        if new == state:
            return storage.stat(wait) is not None
        ticket = f"{self._folder}/{_TICKET}{name}"
        try:
            made = put_whole(
                storage,
                ticket,
                self._path(version + 1),
                _encode(new, self._identifier),
                durable=True,
                wanted=lambda: storage.stat(wait) is not None,
            )
        except Swept:
            return False
        if made:  # else another writer was faster
            self._sweep(version + 1, name)
        return made

    def _sweep(self, newest: int, own: str) -> None:
        names: list[str] = []
        for _ in range(2):
            names = self._storage.names(self._folder)
            for name in names:
                if name.startswith((_WAIT, _TICKET)) and not name.endswith(own):
                    self._storage.delete(f"{self._folder}/{name}")
        for number in sorted(self._versions(names)):
            if number < newest - 1:
                self._storage.delete(self._path(number))

    @staticmethod
    def _versions(names: list[str]) -> list[int]:
        texts = [n.removeprefix(_VERSION) for n in names if n.startswith(_VERSION)]
        return [int(text) for text in texts if text.isdecimal()]

    def _path(self, version: int) -> str:
        return f"{self._folder}/{_VERSION}{version}"


class _SwappedRegister:
    """The same value on an object store: one object, ``state``, which each change swaps."""

    def __init__(self, storage: Storage, random: Randomness, folder: str, identifier: str) -> None:
        self._storage = storage
        self._random = random
        self._path = f"{folder}/{_SWAPPED}"
        self._identifier = identifier
        self._files = _Register(storage, random, folder, identifier)

    def attempt(self, change: Callable[[_State], tuple[_State, T]]) -> tuple[T, ...]:
        """As ``_Register.attempt``."""
        found = swappable(self._storage).read_tagged(self._path, max_bytes=PROPERTIES_BYTES_MAX)
        if found is None:  # perhaps the table was copied from a disk
            _, state = self._files.load()
        else:
            state = _decode(found[0], self._identifier, self._path, self._storage.base)
        tag = None if found is None else found[1]
        return _changed(state, change, lambda new: new == state or self._swap(new, tag))

    def _swap(self, new: _State, tag: Tag | None) -> bool:
        # No two contents are alike: a swap that arrives late must not find its tag again.
        nonce = f"{self._random.getrandbits(128):032x}"
        content = _encode(new, self._identifier, nonce)
        return swappable(self._storage).swap(self._path, content, tag) is not None


def _encode(state: _State, identifier: str, nonce: str = "") -> bytes:
    runs = [
        [run, [[e.write, e.ordinal, e.given, e.looks, e.state, e.ended_ms] for e in entries]]
        for run, entries in state.runs
    ]
    record = {
        "identifier": identifier,
        "query": state.query,
        "batch": state.batch_id,
        "threads": state.threads,
        "runs": runs,
        "forgotten": list(state.forgotten),
        **({"nonce": nonce} if nonce else {}),
    }
    return json.dumps(record, separators=(",", ":")).encode()


def _decode(data: bytes, identifier: str, path: str, base: str) -> _State:
    try:
        record = json.loads(data)
        if record["identifier"] != identifier:
            raise ValueError(f"it is the register of {record['identifier']!r}, not {identifier!r}")
        runs = tuple(
            (str(run), tuple(_Entry(*entry) for entry in entries)) for run, entries in record["runs"]
        )
        return _State(
            int(record["batch"]),
            str(record["query"]),
            bool(record["threads"]),
            runs,
            tuple(map(str, record["forgotten"])),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CorruptTable(
            f"the register of stream {identifier!r} does not parse: {error}; if no query of this"
            " stream runs, and its last batch is complete, its folder may be deleted",
            path=path,
            table=base,
        ) from error
