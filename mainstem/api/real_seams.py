"""Makes the real parts of a table: its location's storage, the system clock, the lock its properties name."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, Unavailable
from mainstem.layout.properties import TableConfig
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options import WriterOptions
from mainstem.options.locks import AUTH, FILE_SYSTEM, LOCK_KEYS, PROVIDER, REGION, STORAGE
from mainstem.options.services import BESIDE_COMMITS
from mainstem.options.tables import EXCLUSIVE, TABLE_NAME
from mainstem.publish.staging import delete_quietly
from mainstem.storage import paths
from mainstem.storage.backends import is_local, storage_of
from mainstem.storage.location import Location
from mainstem.storage.probe import check_store
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import has_renames
from mainstem.storage.swaps import has_swaps
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.deferred import DeferredLock
from mainstem.truetime.locks.options import LockOptions, default_provider
from mainstem.truetime.locks.protocol import LockProvider
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.storage_record import LOCK_PATH
from mainstem.truetime.seams import Seams

if TYPE_CHECKING:
    from mainstem.publish.fence import Fence

#: credentials for ZooKeeper, where the option ``hoodie.mainstem.lock.zookeeper.auth`` is not given
ZOOKEEPER_AUTH_VARIABLE = "MAINSTEM_ZOOKEEPER_AUTH"
#: ``hoodie.mainstem.services`` of a process, where neither its options nor the table say it
SERVICES_VARIABLE = "MAINSTEM_SERVICES"


def note_lock(seams: Seams) -> None:
    """Make all mainstem writers of a table take the same lock: the first one notes it, others must agree.

    The first one acquires the lock once before it writes the note. So a lock that cannot be reached leaves no
    note, which would refuse the right lock later.
    """
    storage = seams.storage
    identity = seams.lock.identity
    try:
        found = _noted_lock(storage)
        if found is None:
            seams.lock.acquire().release()
            try:
                storage.put_new(paths.LOCK_NOTE, identity.encode(), durable=True)
                return
            except FileExistsError:
                found = _noted_lock(storage)
    except OSError as error:
        raise Unavailable(
            f"the table cannot be written: {error}", table=storage.base
        ) from error
    if found and found != identity:
        if found.startswith("filesystem:" if has_swaps(storage) else "storage:"):
            # It is of the place that the table was copied from.
            if not has_swaps(storage):
                delete_quietly(storage, paths.GATE)  # should the table go back, what it decided is old
            storage.put(paths.LOCK_NOTE, identity.encode(), durable=True)
            return
        raise Invalid(
            f"this process would take the lock {identity!r}, but other writers of the table take"
            f" {found!r}: they would not exclude each other. Set {PROVIDER} and the options of the lock's"
            f" place alike for all writers (if the other writers are gone, delete {paths.LOCK_NOTE})",
            table=storage.base,
        )


def _noted_lock(storage: Storage) -> str | None:
    try:
        found = storage.read(paths.LOCK_NOTE, max_bytes=LOCK_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return found.decode("utf-8", "replace")


def check_writable(seams: Seams) -> None:
    """Before the first write to a store: refuse one that does not keep what writers rely on.

    Raises ``Unsupported`` with what it does wrong, ``Unavailable`` if it does not answer or permits too
    little.
    """
    try:
        check_store(seams.storage, paths.OWN, f"{paths.PROBE}{seams.random.getrandbits(64):016x}")
    except OSError as error:
        raise Unavailable(
            f"the table cannot be written: {error}", table=seams.storage.base
        ) from error


def real_seams(location: Location, config: TableConfig, properties: Mapping[str, str]) -> Seams:
    """The storage, clock, lock and randomness of this process for one table."""
    options = WriterOptions.from_properties(properties)
    storage = storage_of(location, sync=options.fsync)
    clock = SystemClock(options.clock_offset_ms)
    chance = random.SystemRandom()
    def lock() -> LockProvider:
        chosen = _chosen_lock(location, config, properties)
        return open_lock(chosen, clock=clock, random=chance, storage=storage)

    # On a store even a reader has many options, of which those of the lock are left to writers.
    return Seams(storage, clock, lock() if is_local(location) else DeferredLock(lock), chance)


def _chosen_lock(location: Location, config: TableConfig, properties: Mapping[str, str]) -> LockOptions:
    kept = (*LOCK_KEYS, TABLE_NAME)
    own: dict[str, str] = {k: config.raw[k] for k in kept if k in config.raw}
    here = default_provider(location.base)
    if own.get(PROVIDER, "").strip() in {FILE_SYSTEM, STORAGE} - {here}:
        del own[PROVIDER]  # copied: no store has the lock file of a disk, no disk has the object of a store
    for key in LOCK_KEYS:
        if key in own and key in properties and properties[key] != own[key]:
            raise Invalid(
                f"{key}={properties[key]!r} contradicts the table, which says {own[key]!r}: writers with"
                " different locks do not exclude each other. Leave the option out, or give the table's value",
                table=location.base,
            )
    exclusive: dict[str, str] = {EXCLUSIVE: str(config.exclusive).lower()}
    return _lock_options(location.base, {**own, **exclusive, **properties})


def fence_of(seams: Seams, identity: str | None, *, exclusive: bool = False) -> Fence:
    """The fence of the table with this identity (``publish.table_identity``), for this process.

    ``exclusive``: the table is declared to be written by mainstem alone.
    """
    if has_swaps(seams.storage):
        from mainstem.publish.gate_fence import GateFence

        return GateFence(seams.storage, seams.clock, seams.random, identity, clears=not exclusive)
    if has_renames(seams.storage):
        from mainstem.publish.rename_fence import RenameFence

        return RenameFence(seams.storage, seams.clock, seams.random, identity)
    from mainstem.publish.link_fence import LinkFence

    return LinkFence(seams.storage, seams.clock, seams.random, identity)


def needs_no_lock(seams: Seams) -> bool:
    """Whether mainstem's writers can do without the lock, as long as no other kind of writer is there.

    So it is on an object store, where a swap decides, with the lock that lies in the table; who names another
    one wants it.
    """
    return has_swaps(seams.storage) and seams.lock.identity == f"storage:{LOCK_PATH}"


def reach_lock(location: Location, properties: Mapping[str, str]) -> None:
    """Raises ``Unavailable`` if the table's ZooKeeper does not answer. For a table about to be created and
    written at once.

    With a lock file it does nothing: the file lies in the table.
    """
    options = _lock_options(location.base, properties)
    if options.zookeeper is not None:
        from mainstem.truetime.locks.zookeeper_session import ZooKeeperSession

        session = ZooKeeperSession(options.zookeeper, options.base)
        session.connect()
        session.close_later()


def _lock_options(base: str, properties: Mapping[str, str]) -> LockOptions:
    known: dict[str, str] = {AUTH: os.environ.get(ZOOKEEPER_AUTH_VARIABLE, "")}
    if region := os.environ.get("AWS_REGION"):  # as Hudi infers it
        known[REGION] = region
    return LockOptions.from_properties({**known, **properties}, base=base)


def usual_services() -> dict[str, str]:
    """What the environment says about services beside commits, where nobody else says it."""
    word = os.environ.get(SERVICES_VARIABLE, "").strip()
    return {BESIDE_COMMITS: word} if word else {}


def as_text(properties: Mapping[str, object] | None) -> dict[str, str]:
    """Options as text, as Hudi keeps them."""
    return {
        str(key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (properties or {}).items()
    }
