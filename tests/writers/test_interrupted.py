"""Goal: an exception that nobody foresees (Ctrl-C, a time-out, no memory) undoes no commit that is visible,
and whoever writes again has every row once.

Method: real tables below a storage, a clock and a lock that raise before or after one of their calls, at each
call of begin, write, commit and abort in turn; threads and signal handlers that get in between.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from small_table import content, rows

import mainstem
from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError, RolledBack, Unavailable
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.transaction import Transaction
from tests.storage.steps import Proxy, Told

CALLS = (
    "read", "read_range", "stat", "names", "entries", "put_new", "upload", "settle", "link", "same_file",
    "rename", "rename_new", "rename_over", "renew", "delete", "delete_tree", "make_folder", "sync_folder",
    "read_tagged", "swap", "swap_once",
)  # fmt: skip


IMPATIENT = {"hoodie.write.lock.wait_time_ms": "500", "hoodie.write.lock.client.num_retries": "0"}


class Plan:
    """Raises ``error`` at call ``at`` (counted from 0; ``only`` those of this name), before or after its
    effect."""

    def __init__(
        self,
        at: int = -1,
        *,
        after: bool = False,
        error: type[BaseException] = KeyboardInterrupt,
        only: str = "",
    ) -> None:
        self.at, self.after, self.error, self.only = at, after, error, only
        self.calls = 0
        self.hit = ""

    def around(self, name, call):
        if self.only not in name:
            return call

        def wrapped(*args, **kwargs):
            number, self.calls = self.calls, self.calls + 1
            if number == self.at and not self.after:
                self.hit = name
                raise self.error(f"before {name}")
            result = call(*args, **kwargs)
            if number == self.at:
                self.hit = name
                raise self.error(f"after {name}")
            return result

        return wrapped


class Wrapped:
    """Stands before a clock, a lock or a lease: the methods named go through the plan."""

    def __init__(self, real, plan: Plan, *names: str) -> None:
        self._real = real
        for name in names:
            setattr(self, name, plan.around(f"{type(real).__name__}.{name}", getattr(real, name)))

    def __getattr__(self, name):
        return getattr(self._real, name)


class Lock(Wrapped):
    def __init__(self, real, plan: Plan) -> None:
        super().__init__(real, plan)
        if hasattr(real, "clock"):  # asked while the lock is taken
            real.clock = Wrapped(real.clock, plan, "monotonic_ms", "now_ms", "every_ms")
        self.acquire = lambda: Wrapped(real.acquire(), plan, "check", "release")


def interrupted(table: Table, plan: Plan) -> Table:
    """The same table, opened anew behind ``plan``."""
    real = mainstem.open_table(table.path)
    storage: Any = storage_of(Location("file", "", table.path), sync=False)
    for name in CALLS:
        if hasattr(storage, name):
            setattr(storage, name, plan.around(name, getattr(storage, name)))
    clock = Wrapped(real.opened.seams.clock, plan, "now_ms", "sleep_ms")
    lock = Lock(real.opened.seams.lock, plan)
    seams = dataclasses.replace(real.opened.seams, storage=storage, clock=clock, lock=lock)
    return Table(seams, real.config, {})


def calls_of(table: Table, work) -> int:
    plan = Plan()
    work(interrupted(table, plan))
    return plan.calls


def upsert(table, keys, ts, guard=None):
    with table.begin(guard=guard) as txn:
        txn.write(rows(keys, ts=ts))
        return txn.commit()


@pytest.mark.parametrize("metadata", [False, True])
def test_a_micro_batch_that_is_replayed_after_an_interrupt_anywhere_is_there_once(make_table, metadata):
    table = make_table(buckets=1, hoodie__metadata__enable=metadata)
    upsert(table, [0], ts=1)
    upsert(table, [0], ts=1, guard=StreamGuard("s", 0))
    total = calls_of(table, lambda t: upsert(t, [0], ts=2, guard=StreamGuard("s", 1)))
    expected = content(table)
    batch = 1
    for at in range(0, total, 7 if metadata else 4):
        for after in (False, True):
            batch += 1
            plan = Plan(at, after=after)
            other = interrupted(table, plan)
            key = f"{at}{after}"
            try:
                upsert(other, [key], ts=1, guard=StreamGuard("s", batch))
            except KeyboardInterrupt:
                assert plan.hit
            seen = content(table)
            outcome = upsert(other, [key], ts=2, guard=StreamGuard("s", batch))
            expected[f"k{key}"] = f"v{key}"
            assert content(table) == expected, f"interrupted after={after} {plan.hit}"
            if f"k{key}" in seen:
                assert outcome.status == "already_committed"
    assert table.scan().to_arrow().num_rows == len(expected)
    pending = [i for i in table.timeline() if not i.is_completed]
    mainstem.open_table(table.path).rollback_failed_writes()
    assert not [i for i in table.timeline() if not i.is_completed], pending


KINDS = (
    MemoryError, RecursionError, GeneratorExit, SystemExit, RuntimeError, ArithmeticError, KeyboardInterrupt,
)  # fmt: skip


@pytest.mark.parametrize("error", KINDS)
def test_a_transaction_that_is_interrupted_in_its_commit_says_what_became_of_it(make_table, error):
    table = make_table(buckets=1)
    total = calls_of(table, lambda t: upsert(t, [0], ts=1))
    stood = undone = 0
    for at in range(KINDS.index(error) % 3, total, 3):
        for after in (False, True):
            key = f"{at}{after}"
            txn = interrupted(table, plan := Plan(after=after, error=error)).begin()
            txn.write(rows([key], ts=1))
            plan.at = plan.calls + at
            try:
                outcome = txn.commit()
            except error:
                table.writer_context().publisher.settle()  # a store may have decided it and not show it yet
                visible = f"k{key}" in content(table)
                if not txn._turns.ended:  # else all was done but tidying up
                    with pytest.raises(Invalid, match="abort"):
                        txn.commit()
                    with pytest.raises(Invalid, match="abort"):
                        txn.write(rows([key], ts=2))
                txn.abort()
                assert (f"k{key}" in content(table)) == visible, f"{error.__name__} at {plan.hit}"
                if visible:
                    outcome = txn.commit()
                    assert outcome.status == "committed" and outcome.rows == 1
                    completed = {i.requested: i.completion for i in table.timeline() if i.is_completed}
                    assert completed[txn.instant] == outcome.completion_time
                else:
                    assert all(i.requested != txn.instant for i in table.timeline())
                stood, undone = stood + visible, undone + (not visible)
            else:
                assert f"k{key}" in content(table)
    assert stood and undone


def test_an_abort_that_is_interrupted_anywhere_leaves_nothing_visible_and_is_gone_on_with(make_table):
    table = make_table(buckets=1)

    def give_up(other):
        with other.begin() as txn:
            txn.write(rows([1], ts=1))

    for at in range(0, calls_of(table, give_up), 3):
        for after in (False, True):
            with suppress(KeyboardInterrupt):
                give_up(interrupted(table, Plan(at, after=after)))
            assert content(table) == {}
    mainstem.open_table(table.path).rollback_failed_writes()
    assert not [i for i in table.timeline() if not i.is_completed]
    upsert(table, [1], ts=1)
    assert content(table) == {"k1": "v1"}


def test_a_resumed_transaction_that_another_process_committed_is_not_undone_by_its_abort(make_table):
    table = make_table()
    begun = table.begin()
    begun.declare(rows([], ts=1).schema)
    spec = begun.detach()
    first, second, third = (mainstem.open_table(table.path).resume(spec) for _ in range(3))
    first.write(rows(range(5), ts=1))
    done = first.commit()
    second.abort()
    assert second.commit().completion_time == done.completion_time
    assert third.commit().completion_time == done.completion_time
    assert len(content(table)) == 5
    assert [i.state for i in table.timeline() if i.requested == spec.instant] == ["completed"]
    names = {i.file_name for i in table.timeline()}
    assert sum(spec.instant in name for name in names) == 1
    assert len(list(Path(table.path).rglob(f"{spec.instant}.deltacommit.requested"))) == 1


def test_a_thread_that_leaves_the_block_while_commit_runs_undoes_nothing(make_table):
    table = make_table()
    other = mainstem.open_table(table.path)
    inside, go_on = threading.Event(), threading.Event()

    def wait(target):
        if target.endswith(".deltacommit"):  # the commit is visible
            inside.set()
            go_on.wait(20)

    seams = dataclasses.replace(other.opened.seams, storage=Told(other.opened.seams.storage, wait))
    slow = Table(seams, other.config, {})
    txn = slow.begin()
    txn.write(rows(range(10), ts=1))
    outcomes = []
    committing = threading.Thread(target=lambda: outcomes.append(txn.commit()))
    committing.start()
    assert inside.wait(20)
    leaving = threading.Thread(target=lambda: txn.__exit__(None, None, None))
    leaving.start()
    leaving.join(0.2)
    assert leaving.is_alive(), "abort does not wait for the commit that runs"
    go_on.set()
    committing.join(20)
    leaving.join(20)
    assert outcomes[0].status == "committed" and len(content(table)) == 10


def test_a_signal_handler_cannot_abort_a_commit_from_within_but_may_raise(make_table):
    table = make_table()
    refused = []

    def signalled(target):
        if target.endswith(".deltacommit"):
            signal.raise_signal(signal.SIGUSR1)

    def abort(*_):
        try:
            txn.abort()
        except MainstemError as error:
            refused.append(error)
            raise RuntimeError("too late") from error

    before = signal.signal(signal.SIGUSR1, abort)
    try:
        real = mainstem.open_table(table.path)
        storage = Told(real.opened.seams.storage, signalled)
        other = Table(dataclasses.replace(real.opened.seams, storage=storage), real.config, {})
        with pytest.raises(RuntimeError) as caught, other.begin() as txn:
            txn.write(rows(range(3), ts=1))
            txn.commit()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(refused[0], Invalid) and "commit() of this transaction is running" in str(refused[0])
    assert len(content(table)) == 3, caught.value


class Interruption(BaseException):
    pass


def interrupted_between_calls(txn, at, work):
    """Raise in ``work`` at one of the places where Python looks for signals, number ``at`` (from 1) of those
    in the code that takes turns, then abort. Returns whether there are so many."""
    files, places = ("writers/transaction.py", "writers/transaction_turns.py", "contextlib.py"), 0

    def look(frame, event, _):
        nonlocal places
        if event in ("call", "c_return", "c_exception") and frame.f_code.co_filename.endswith(files):
            places += 1
            if places == at:
                sys.setprofile(None)
                raise Interruption

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work(txn)
    except Interruption:
        sys.setprofile(before)
        txn.abort()  # within the except block, which keeps the frames alive
        return True
    finally:
        sys.setprofile(before)
    txn.abort()
    return False


@pytest.mark.parametrize("step", ["write", "commit"])
def test_an_abort_is_not_refused_wherever_a_step_was_interrupted(make_table, step):
    table = make_table(buckets=1)

    at, more = 0, True
    while more:
        at, txn = at + 1, table.begin()
        if step == "write":
            more = interrupted_between_calls(txn, at, lambda txn: txn.write(rows([1], ts=1)))
        else:
            txn.write(rows([1], ts=1))
            more = interrupted_between_calls(txn, at, Transaction.commit)
    assert at > 10
    assert content(table) == ({} if step == "write" else {"k1": "v1"})
    assert all(i.is_completed for i in table.timeline())


@pytest.mark.parametrize("call", ["Lease.check", "Lease.release", "monotonic_ms", "every_ms", "names"])
def test_a_lock_that_was_taken_when_the_interrupt_came_is_given_back(make_table, call):
    table = make_table()
    table.upsert(rows([0], ts=0))
    hits = 0
    for at in range(1 if call == "every_ms" else 4):
        for after in (False, True):
            plan = Plan(at, after=after, only=call)
            held = None
            try:
                upsert(interrupted(table, plan), [0], ts=1)
            except KeyboardInterrupt as error:
                held = error  # with its frames, as in an except block that writes again
            hits += held is not None
            upsert(mainstem.open_table(table.path, IMPATIENT), [1], ts=at)
            del held
    assert hits


def full_at(table, at, *, kind="append", options=None):
    """The table over a disk that is full at append ``at``, once, and has half of the bytes written."""
    import errno

    real = mainstem.open_table(table.path)
    state = {"calls": 0, "failed": 0}

    class Sink:
        def __init__(self, sink):
            self.sink = sink

        @property
        def size(self):
            return self.sink.size

        def append(self, buffers):
            state["calls"] += 1
            if kind == "append" and state["calls"] == at:
                state["failed"] += 1
                data = b"".join(bytes(b) for b in buffers)
                self.sink.append([data[: len(data) // 2]])
                raise OSError(errno.ENOSPC, "No space left on device")
            self.sink.append(buffers)

        def close(self, *, durable):
            state["calls"] += 1
            self.sink.close(durable=durable)
            if kind == "close" and durable and state["calls"] >= at and not state["failed"]:
                state["failed"] += 1
                raise OSError(errno.EIO, "Input/output error")

    class Disk(Proxy):
        def upload(self, path):
            sink = self.inner.upload(path)
            return Sink(sink) if ".log." in path else sink

    seams = dataclasses.replace(real.opened.seams, storage=Disk(real.opened.seams.storage))
    return Table(seams, real.config, options or {}), state


@pytest.mark.parametrize("at", [1, 2])
def test_a_batch_cut_by_a_full_disk_is_never_committed_with_what_is_written_again(make_table, at):
    table = make_table(hoodie__mainstem__fsync=True)
    other, state = full_at(table, at)
    txn = other.begin()
    with pytest.raises(Unavailable, match="new transaction"):
        txn.write(rows(range(20), ts=1))
    assert state["failed"] == 1
    with pytest.raises(Invalid, match="halfway"):
        txn.write(rows(range(20), ts=1))
    with pytest.raises(Invalid, match="halfway"):
        txn.commit()
    txn.abort()
    assert content(table) == {}
    assert upsert(other, range(20), ts=1).rows == 20
    assert len(content(table)) == 20
    table.compact()
    assert len(content(table)) == 20


def test_a_log_file_whose_closing_at_roll_over_fails_is_not_left_out_of_the_commit(make_table):
    table = make_table(buckets=1, hoodie__mainstem__fsync=True)
    other, state = full_at(table, 1, kind="close", options={"hoodie.logfile.max.size": "1024"})
    txn = other.begin()
    with pytest.raises(Unavailable):
        txn.write(rows(range(100), ts=1))
    assert state["failed"] == 1
    with pytest.raises(Invalid, match="halfway"):
        txn.write(rows(range(100, 200), ts=1))
    with pytest.raises(Invalid, match="halfway"):
        txn.commit()
    txn.abort()
    assert content(table) == {}


@pytest.mark.disk("files of a store are put together, not closed one by one")
def test_a_commit_whose_files_could_not_be_synced_is_not_tried_again(make_table):
    table = make_table(hoodie__mainstem__fsync=True)
    other, state = full_at(table, 1, kind="close")
    txn = other.begin()
    txn.write(rows(range(10), ts=1))
    with pytest.raises(Unavailable, match="closing log files failed"):
        txn.commit()
    assert state["failed"] == 1
    with pytest.raises(Invalid, match="halfway"):
        txn.commit()
    txn.abort()
    with pytest.raises(Invalid):
        txn.commit()
    assert content(table) == {}
    assert all(i.is_completed for i in table.timeline())


def test_a_commit_that_got_no_lock_may_be_tried_again(make_table):
    table = make_table()
    holder = mainstem.open_table(table.path).opened.seams.lock.acquire()
    txn = None
    try:
        holder.release()
        txn = mainstem.open_table(table.path, IMPATIENT).begin()
        txn.write(rows(range(3), ts=1))
        holder = mainstem.open_table(table.path).opened.seams.lock.acquire()
        with pytest.raises(MainstemError):
            txn.commit()
    finally:
        holder.release()
    assert txn.commit().rows == 3
    assert len(content(table)) == 3


def test_a_rolled_back_writer_is_told_so_also_after_a_step_that_failed_halfway(make_table):
    table = make_table()
    other, _ = full_at(table, 1)
    txn = other.begin()
    with pytest.raises(Unavailable):
        txn.write(rows(range(20), ts=1))
    mainstem.open_table(table.path).writer_context().heartbeats.stop(txn.instant)
    mainstem.open_table(table.path).rollback_failed_writes()
    with pytest.raises(RolledBack):
        txn.commit()
