"""The storage lock: the object that Java's ``StorageBasedLockProvider`` locks, swapped on condition.

The object (``storage_record``) is taken by put-if-absent or by a swap of a free or expired record, renewed
by swaps while it is held, and freed by a swap. A record that nobody freed has expired 500 ms after its
``validUntil``, by the clock of whoever looks. Java asks once a second, and does not tell a holder that it
lost the lock.

What we add to RFC-91:

* **A refused write may be our own.** The client, or we, may have repeated a put whose reply was lost. So
  after every refusal and every trouble we read the object: it is ours if it holds exactly the bytes that we
  sent. Every record that we send has bytes of its own.
* **A put may arrive late.** It then meets the tag that it was sent for, or fails. A waiter that gives up
  swaps the object once more, so that a put of its own that is still on its way can never take the lock.
* ``check`` asks the store. If less than half of the validity is left, it renews first, so the holder has
  that much time for what it does next. A holder that was stopped finds out there: ``LeaseLost``.
* **A turn for Java.** Java asks once a second and does not queue, while mainstem looks some 20 times a second
  and would take the lock first again and again. So when mainstem writers have used the lock for 3.5 s
  without a pause, whoever frees it then says in the object that mainstem leaves it alone for 1.25 s, and all
  do. Nobody pauses where ``hoodie.mainstem.exclusive`` is set and no other engine was seen.

The lock orders; what excludes is the fence (``mainstem.publish``). Nothing here compares the clocks of store
and writer.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, LeaseLost, MainstemError, Unavailable
from mainstem.forks import told_of_forks
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options.locks import RETRIES, VALIDITY_S, WAIT_MS
from mainstem.storage.swaps import Swappable, Tag
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.patience import Patience
from mainstem.truetime.locks.storage_audit import AuditFile, AuditSwitch
from mainstem.truetime.locks.storage_options import StorageLockOptions
from mainstem.truetime.locks.storage_record import LOCK_PATH, LockRecord, new_owner, parse_record

if TYPE_CHECKING:
    from mainstem.truetime.clock import Clock, Periodic
    from mainstem.truetime.seams import Randomness

_log = logging.getLogger(__name__)

# Hudi: CLOCK_DRIFT_BUFFER_MS.
DRIFT_MS = 500
# No holder asks for more than a day; what lies farther ahead is a broken clock or somebody's joke.
AHEAD_MS_MAX = 1000 * VALIDITY_S.high + 600_000
# Java asks every 1000 ms and a request: it asks once in a pause of GAP_MS, with time left to take the lock.
STRETCH_MS = 3_500
GAP_MS = 1_250
_NOTICED_MS = 1_100
# Whoever sees the lock change hands asks often, whoever waits for one long holder asks seldom.
_PAUSE_MS = (25.0, 1_000.0)
_FREE_TRIES = 6
_RETRY_MS = 50.0
_RENEW_TRIES = 3
_TURN_MS = 2.0
_EXIT_S = 1.0

Tagged = tuple[bytes, Tag]

_open_locks: weakref.WeakSet[StorageLock] = weakref.WeakSet()


def _free_all() -> None:
    """At the end of the interpreter: what is held would block everybody until it expires."""
    for lock in list(_open_locks):
        lock.close()


atexit.register(_free_all)


class StorageLock:
    """A table lock in an object store, shared with Java. Threads and processes may use it concurrently.

    ``storage`` may also be what keeps one object only, ``place``; then there is no audit.
    """

    weaker: str | None = None

    def __init__(
        self,
        options: LockOptions,
        settings: StorageLockOptions,
        storage: Swappable,
        *,
        clock: Clock,
        random: Randomness,
        place: str = "",
    ) -> None:
        self.identity = options.identity
        #: the lock as messages name it
        self.place = place or f"lock object {options.base}/{LOCK_PATH}"
        self.options = options
        self.settings = settings
        self.storage = storage
        self.clock = clock
        self.random = random
        self.audit = None if place else AuditSwitch(storage, clock)
        #: whether another engine's record was seen by this process
        self.foreign_seen = False
        self.after_fork()
        told_of_forks(self)
        _open_locks.add(self)

    def after_fork(self) -> None:
        """Threads and leases of the parent do not exist in a child."""
        self._mutex = threading.Lock()
        self._renewer: Periodic | None = None
        self._leases: weakref.WeakSet[StorageLease] = weakref.WeakSet()
        self._unfreed: set[StorageLease] = set()

    def read(self) -> Tagged | None:
        """What the lock object holds; raises ``CorruptTable`` if that is too large."""
        return self.storage.read_tagged(LOCK_PATH, max_bytes=LOCK_FILE_BYTES_MAX)

    def acquire(self) -> StorageLease:
        """Wait for the lock for at most ``options.patience_ms``.

        Raises ``LockUnavailable`` (who holds it, what to do), ``Unavailable`` (the store refuses, or has not
        answered for a fifth of the validity) or ``CorruptTable`` (the object holds no lock).
        """
        contender = _Contender(self)
        try:
            lease = contender.wait()
            self._keep_renewed(lease)
            return lease
        except BaseException:  # including Ctrl-C: nothing would ever free this lock
            contender.lease.withdraw()
            raise

    def close(self) -> None:
        """Free what this process still holds, with one request each. Idempotent; raises nothing."""
        for lease in list(self._leases):
            lease.release_at_exit()

    def _keep_renewed(self, lease: StorageLease) -> None:
        with self._mutex:
            self._leases.add(lease)
            self._start_renewer()

    def free_later(self, lease: StorageLease) -> None:
        """Try again at each renewal to free a lease that could not be freed."""
        with self._mutex:
            self._unfreed.add(lease)
            self._start_renewer()

    def _start_renewer(self) -> None:
        if self._renewer is None:
            self._renewer = self.clock.every_ms(self.settings.renew_ms, self._renew, "lock-renewal")

    def _renew(self) -> None:
        with self._mutex:
            self._unfreed = {lease for lease in self._unfreed if lease.to_free}
            held = {lease for lease in self._leases if lease.held}
            if not held and not self._unfreed and self._renewer is not None:
                self._renewer.stop()
                self._renewer = None
            due = held | self._unfreed
        for lease in due:
            lease.renew()


class StorageLease:
    """One acquisition, first of a contender, then of a holder; only ``StorageLock.acquire`` creates it."""

    def __init__(self, lock: StorageLock) -> None:
        self._lock = lock
        self._clock = lock.clock
        self._validity_ms = lock.settings.validity_ms
        # Every record that we sent to take or to renew -> when, by the monotonic clock.
        self._sent: dict[bytes, float] = {}
        self._record: LockRecord | None = None  # the newest that is known to have been in the object
        self._tag: Tag | None = None  # of the content that our next write replaces
        self._open = False  # a write was sent whose outcome is unknown
        self._over: str | None = None
        self._audit: AuditFile | None = None
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._free_until_ms: float | None = None

    @property
    def held(self) -> bool:
        """Whether it is ours, as far as this process knows."""
        return self._record is not None and self._over is None

    @property
    def to_free(self) -> bool:
        """Whether it is over, but the object may still say that it is held."""
        return self._free_until_ms is not None

    @property
    def remaining_ms(self) -> float:
        """How long the record stays valid, by the slower of two clocks: that of the day may jump."""
        if self._record is None:
            return 0.0
        passed_ms = self._clock.monotonic_ms() - self._sent[self._record.encode()]
        return min(self._validity_ms - passed_ms, self._record.valid_until_ms - self._clock.now_ms())

    # Requests. Each may raise ``OSError``; then its outcome is open.

    def take(self, tag: Tag | None, busy_since_ms: int) -> bool:
        """Put a record of ours in place of the content with this tag: True if the lock is ours now."""
        owner = new_owner(busy_since_ms, self._lock.random.getrandbits(62))
        self._tag = tag
        if not self._adopt(self._swap(self._next_record(owner))):
            return False
        if self._lock.audit and self._lock.audit.is_on():
            now = self._clock.now_ms()
            self._audit = AuditFile(self._lock.storage, owner, now, self._validity_ms)
            self._audit.note("START", now)
        return True

    def arrived(self, found: Tagged | None) -> bool:
        """Whether this content is our own record after all: the reply to an earlier ``take`` was lost."""
        return self._open and self._adopt(found)

    def _next_record(self, owner: str) -> LockRecord:
        """A record that we never sent before: two equal contents may have one tag."""
        until = self._clock.now_ms() + self._validity_ms
        while (record := LockRecord(False, until, owner)).encode() in self._sent:
            until += 1
        self._sent[record.encode()] = self._clock.monotonic_ms()
        return record

    def _swap(self, record: LockRecord) -> Tagged | None:
        """Write the record; then what the object holds, which may be what somebody else wrote."""
        storage, data = self._lock.storage, record.encode()
        trouble: OSError | None = None
        self._open = True
        try:
            tag = storage.swap(LOCK_PATH, data, self._tag)
            if tag is not None:
                self._open = False
                return data, tag
        except OSError as error:
            trouble = error
        found = self._lock.read()
        if trouble is not None and (found[1] if found else None) == self._tag:
            raise trouble  # not there, but it may still arrive
        self._open = False
        return found

    def _adopt(self, found: Tagged | None) -> bool:
        if found is None or found[0] not in self._sent:
            return False
        self._record = parse_record(found[0], self._lock.options.base)
        self._tag = found[1]
        self._open = False
        return True

    # Holding.

    def check(self) -> None:
        """Ask the store; raises ``LeaseLost`` if the lock is not ours, ``Unavailable`` without an answer.

        After it, the lock is ours for at least half of its validity.
        """
        if self._pid != os.getpid():
            self._raise("it was taken before the process forked and belongs to the parent")
        until_ms = self._clock.monotonic_ms() + self._validity_ms / 5
        while True:
            with self._alone():
                try:
                    if self._over is None:
                        self._look()
                    break
                except OSError as error:
                    if self._clock.monotonic_ms() >= until_ms:
                        raise _away(self._lock, error) from error
            self._clock.sleep_ms(_RETRY_MS)
        if self._over is not None:
            self._raise(self._over)

    def renew(self) -> None:
        """Called by the provider's periodic task: renew what is held, free what could not be freed."""
        if self._pid != os.getpid() or not self._turn.acquire(blocking=False):
            return  # a check under way renews by itself
        try:
            if self._free_until_ms is not None:
                if self._clock.monotonic_ms() > self._free_until_ms or self._free():
                    self._free_until_ms = None
            elif self.held and self._validity_ms - self.remaining_ms >= 0.5 * self._lock.settings.renew_ms:
                self._renew()
                if self._over:
                    _log.warning("%s was lost: %s", self._lock.place, self._over)
        except (OSError, MainstemError) as error:
            _log.warning("%s could not be renewed or freed: %s", self._lock.place, error)
        finally:
            self._turn.release()

    def _look(self) -> None:
        try:
            found = self._lock.read()
        except CorruptTable as error:
            self._over = error.message
            return
        if not self._adopt(found):
            self._over = self._instead(found)
            return
        for _ in range(_RENEW_TRIES):
            if self._over or self.remaining_ms >= self._validity_ms / 2:
                return
            self._renew()
        if self.remaining_ms <= 0:
            self._over = "it expires faster than it can be renewed (does the clock jump?)"

    def _renew(self) -> None:
        assert self._record is not None
        found = self._swap(self._next_record(self._record.owner))
        if not self._adopt(found):
            self._over = self._instead(found)
        elif self._audit:
            self._audit.note("RENEW", self._clock.now_ms())

    def _instead(self, found: Tagged | None) -> str:
        """Why the lock is lost, from what is there instead."""
        if found is None:
            return "the object was deleted"
        try:
            record = parse_record(found[0], self._lock.options.base)
        except CorruptTable as error:
            return error.message
        state = "freed by" if record.expired else "held by"
        return f"it is {state} {record.describe(self._clock.now_ms())} now (was this process stopped?)"

    def _raise(self, reason: str) -> None:
        raise LeaseLost(
            f"the table lock, {self._lock.place}, is no longer ours: {reason}. Nothing was published; take"
            " the lock again",
            table=self._lock.options.base,
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep the renewal out. Waits by the clock, as no thread may stand still within a request."""
        while not self._turn.acquire(blocking=False):
            self._clock.sleep_ms(_TURN_MS)
        try:
            yield
        finally:
            self._turn.release()

    # Freeing.

    def release(self) -> None:
        """Free the lock if it is still ours; never raises, never frees a successor's lock."""
        if self._pid != os.getpid():
            return
        with self._alone():
            if not self.held:
                return
            self._over = "it was released already"
            freed = self._try_to_free()
        if freed and self._audit:
            self._audit.note("END", self._clock.now_ms())

    def release_at_exit(self) -> None:
        """Try once to free the lock, if it is held; waits for a renewal under way, for a moment only."""
        if self._pid != os.getpid() or not self.held or not self._turn.acquire(timeout=_EXIT_S):
            return
        try:
            self._over = "this process ends"
            self._free()
        except (OSError, MainstemError) as error:
            _log.warning("%s could not be freed: %s", self._lock.place, error)
        finally:
            self._turn.release()

    def withdraw(self) -> None:
        """Give up in ``acquire``: free what we took, and make sure that no put of ours arrives later."""
        if self.held:
            self.release()
        elif self._open:
            self._over = "it was given up"
            self._try_to_free()

    def _try_to_free(self) -> bool:
        """True if it is free; otherwise, also if interrupted, the renewal goes on trying."""
        self._free_until_ms = self._clock.monotonic_ms() + self._validity_ms + DRIFT_MS
        try:
            for attempt in range(_FREE_TRIES):
                try:
                    if self._free():
                        self._free_until_ms = None
                        return True
                    trouble = "it changes again and again"
                except (OSError, MainstemError) as error:
                    trouble = str(error)
                self._clock.sleep_ms(_RETRY_MS * 2**attempt)
        finally:
            if self.to_free:
                self._lock.free_later(self)
        _log.warning(
            "%s could not be freed (%s): trying on in the background; others can take it when it expires, in"
            " %.0f s",
            self._lock.place, trouble, max(self.remaining_ms, 0) / 1000,
        )  # fmt: skip
        return False

    def _free(self) -> bool:
        """Replace our record by a free one: True if the object holds no lock of ours and will not."""
        now = self._clock.now_ms()
        owner = self._record.owner if self._record else new_owner(now, self._lock.random.getrandbits(62))
        free = LockRecord(True, now + self._gap_ms(now), owner)
        found = self._swap(free)
        return not self._adopt(found)  # else an earlier write has arrived meanwhile: its tag is known now

    def _gap_ms(self, now_ms: int) -> int:
        """How long mainstem is to leave the lock alone from now on."""
        since = self._record.busy_since_ms if self._record else None
        alone = self._lock.settings.exclusive and not self._lock.foreign_seen
        return 0 if alone or since is None or now_ms - since <= STRETCH_MS else GAP_MS


class _Contender:
    """One call of ``acquire``: what it has seen of the holder."""

    def __init__(self, lock: StorageLock) -> None:
        self.lock = lock
        self.clock = lock.clock
        self.base = lock.options.base
        self.lease = StorageLease(lock)
        self.patience = Patience(lock.options, lock.clock, lock.place)
        self.held_by = "nobody that was seen"
        self.seen: Tag | None = None
        self.seen_since_ms = 0.0
        self.trouble_since_ms: float | None = None

    def wait(self) -> StorageLease:
        while True:
            try:
                pause_ms = self._try()
                self.trouble_since_ms = None
            except OSError as error:
                pause_ms = self._after_trouble(error)
            if pause_ms is None:
                return self.lease
            left_ms = self.patience.left_ms(self.held_by, self._refusal)
            self.clock.sleep_ms(min(pause_ms, left_ms))

    def _refusal(self, waited_ms: float) -> str:
        return (
            f"{self.lock.place} was held by {self.held_by} for the {waited_ms:.0f} ms that"
            f" {WAIT_MS} and {RETRIES} allow. Wait for that writer or stop it; the lock of a dead one is free"
            " when it is no longer valid"
        )

    def _after_trouble(self, error: OSError) -> float:
        """Milliseconds to the next try; raises ``Unavailable`` if it went on for too long."""
        now = self.clock.monotonic_ms()
        if self.trouble_since_ms is None:
            self.trouble_since_ms = now
        lasts_ms = now - self.trouble_since_ms
        if isinstance(error, PermissionError) or lasts_ms > self.lock.settings.validity_ms / 5:
            raise _away(self.lock, error) from error
        self.held_by = f"nobody that could be read ({error})"
        return (_RETRY_MS + lasts_ms / 4) * (0.5 + self.lock.random.random())

    def _try(self) -> float | None:
        """Take the lock and return None, or milliseconds until the next look."""
        found = self.lock.read()
        if self.lease.arrived(found):
            return None
        if found is None:
            return None if self.lease.take(None, self.clock.now_ms()) else self._pause_ms()
        now = self.clock.now_ms()
        record = parse_record(found[0], self.base)
        if record.busy_since_ms is None:
            self.lock.foreign_seen = True
        if found[1] != self.seen:
            self.seen, self.seen_since_ms = found[1], self.clock.monotonic_ms()
        wait_ms = self._held_ms(record, now)
        if wait_ms > 0:
            return min(self._pause_ms(), wait_ms)
        gap_ms = self._gap_ms(record, now)
        if gap_ms > 0:
            self.held_by = "nobody (mainstem leaves it to other engines for a moment)"
            return gap_ms + self._pause_ms()
        if not record.expired:
            _log.warning("took over %s: left by %s", self.lock.place, record.describe(now))
        return None if self.lease.take(found[1], _busy_since(record, now)) else self._pause_ms()

    def _held_ms(self, record: LockRecord, now: int) -> float:
        """How long the record still excludes us; 0 if it is free or has expired."""
        left_ms = record.valid_until_ms + DRIFT_MS - now
        if record.expired or left_ms < 0:
            return 0
        self.held_by = record.describe(now)
        if left_ms > AHEAD_MS_MAX:
            raise CorruptTable(
                f"the lock object is held by {self.held_by}, but no writer asks for more than"
                f" {VALIDITY_S.high} s: the clock of that machine or of this one is wrong. Set it; if no"
                " writer runs, delete the object",
                path=LOCK_PATH,
                table=self.base,
            )
        return left_ms + 1

    def _gap_ms(self, record: LockRecord, now: int) -> float:
        """How long to leave a free lock to others; whoever came late sees the end of it in the record."""
        gap_ms, since = record.valid_until_ms - now, record.busy_since_ms
        left = record.expired and since is not None and record.valid_until_ms - since > STRETCH_MS
        return gap_ms if left and 0 < gap_ms <= GAP_MS + DRIFT_MS else 0

    def _pause_ms(self) -> float:
        """Until the next look: longer while nothing changes. All wait alike, so that nobody starves."""
        low, high = _PAUSE_MS
        unchanged_ms = self.clock.monotonic_ms() - self.seen_since_ms if self.seen else 0
        return min(max(unchanged_ms / 8, low), high) * (0.5 + self.lock.random.random())


def _busy_since(record: LockRecord, now_ms: int) -> int:
    """Since when mainstem has used the lock without a pause, for whoever takes it after this record."""
    since, free_since = record.busy_since_ms, record.valid_until_ms
    if not record.expired or since is None:
        return now_ms  # others had a turn
    paused = now_ms - free_since >= _NOTICED_MS or free_since - since > STRETCH_MS
    return now_ms if paused or max(since, free_since) > now_ms + DRIFT_MS else since


def _away(lock: StorageLock, error: OSError) -> Unavailable:
    advice = "try again when the store answers"
    if isinstance(error, PermissionError):
        advice = "give this user the right to read and write it"
    text = f"{lock.place}: {error}: {advice}; nothing was published"
    return Unavailable(text, table=lock.options.base)
