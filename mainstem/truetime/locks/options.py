"""Which table lock to take, and how long to wait for it, in Hudi's own words.

Hudi: ``HoodieLockConfig`` (keys and defaults), ``LockManager`` (retries around the provider),
``FileSystemBasedLockProvider`` (path and expiry); the ZooKeeper lock has ``zk_options``. Defaults
are those of Hudi 1.2, but for the provider: Hudi names none since 1.1, mainstem takes the file-system
lock, because a lock inside one process (Hudi's silent fallback) does not order several writers.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, Unsupported
from mainstem.storage.backends import location_of, split_scheme

if TYPE_CHECKING:
    from mainstem.truetime.clock import Clock
    from mainstem.truetime.locks.protocol import LockProvider
    from mainstem.truetime.locks.zookeeper_options import ZooKeeperOptions
    from mainstem.truetime.seams import Randomness

PROVIDER = "hoodie.write.lock.provider"
WAIT_MS = "hoodie.write.lock.wait_time_ms"
RETRIES = "hoodie.write.lock.client.num_retries"
PAUSE_MS = "hoodie.write.lock.client.wait_time_ms_between_retry"
FOLDER = "hoodie.write.lock.filesystem.path"
FOREIGN_EXPIRE_MIN = "hoodie.write.lock.filesystem.expire"
EXPIRE_MS = "hoodie.mainstem.lock.expire_ms"

FILE_SYSTEM = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"

LOCK_NAME = "lock"
# Below 200 ms a busy machine misses refreshes; above 10 minutes a dead holder blocks for too long.
EXPIRE_MS_MIN = 200
EXPIRE_MS_MAX = 600_000
_JAVA_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LockOptions:
    """Checked lock settings of one table.

    ``folder`` is the absolute folder of the lock file (unused by the in-process lock), ``identity``
    what all writers of the table must agree on: two providers, or one provider with two paths
    (Spark defaults to ``.hoodie/lock``, Flink to ``.hoodie/.aux/lock``), do not exclude each other.
    ``foreign_expire_ms`` is 0 for "never". All times are in milliseconds. ``zookeeper`` is there for
    the ZooKeeper providers only.
    """

    provider: str
    base: str
    folder: str
    identity: str
    wait_ms: int = 60_000
    retries: int = 50
    pause_ms: int = 5_000
    foreign_expire_ms: int = 0
    expire_ms: int = 60_000
    zookeeper: ZooKeeperOptions | None = None

    @property
    def patience_ms(self) -> int:
        """How long ``acquire`` tries: what Java's ``LockManager`` spends, pauses included."""
        return self.wait_ms * (self.retries + 1) + self.pause_ms * self.retries

    @classmethod
    def from_properties(cls, props: Mapping[str, str], *, base: str) -> LockOptions:
        """Read Hudi's lock keys; ``base`` is the absolute base path of the table.

        Raises ``Unsupported`` for providers and file systems that mainstem cannot lock with, and
        ``Invalid`` for a value that does not parse (key, value and what was expected).
        """
        from mainstem.truetime.locks import zookeeper_options

        base = local_folder("base path", base)
        provider = props.get(PROVIDER, FILE_SYSTEM).strip()
        if provider not in (FILE_SYSTEM, IN_PROCESS, zookeeper_options.EXPLICIT, zookeeper_options.IMPLICIT):
            raise Unsupported(_unknown_provider(provider), table=base)
        folder = posixpath.join(base, ".hoodie")
        zookeeper = None
        if provider == FILE_SYSTEM and props.get(FOLDER, "").strip():
            folder = local_folder(FOLDER, props[FOLDER].strip())
        if provider in (zookeeper_options.EXPLICIT, zookeeper_options.IMPLICIT):
            zookeeper = zookeeper_options.ZooKeeperOptions.from_properties(
                props, base=base, implicit=provider == zookeeper_options.IMPLICIT
            )
        return cls(
            provider=provider,
            base=base,
            folder=folder,
            identity=zookeeper.identity if zookeeper else _identity(provider, base, folder),
            zookeeper=zookeeper,
            wait_ms=whole(props, WAIT_MS, 60_000, "milliseconds"),
            retries=whole(props, RETRIES, 50, "retries"),
            pause_ms=whole(props, PAUSE_MS, 5_000, "milliseconds"),
            foreign_expire_ms=60_000 * whole(props, FOREIGN_EXPIRE_MIN, 0, "minutes (0 = never)"),
            expire_ms=whole(
                props, EXPIRE_MS, 60_000, "milliseconds", EXPIRE_MS_MIN, EXPIRE_MS_MAX
            ),
        )


def open_lock(options: LockOptions, *, clock: Clock, random: Randomness) -> LockProvider:
    """The lock provider that ``options`` ask for; nothing is written before ``acquire``."""
    if options.provider == IN_PROCESS:
        from mainstem.truetime.locks.in_process import InProcessLock

        return InProcessLock(options)
    if options.zookeeper is not None:
        from mainstem.truetime.locks.zookeeper import ZooKeeperLock

        return ZooKeeperLock(options, options.zookeeper, clock=clock, random=random)
    from mainstem.truetime.locks.file_system import FileSystemLock

    return FileSystemLock(options, clock=clock, random=random)


def _identity(provider: str, base: str, folder: str) -> str:
    if provider == IN_PROCESS:
        return "in-process"
    inside = posixpath.relpath(folder, base)
    where = folder if inside == ".." or inside.startswith("../") else inside
    return "filesystem:" + posixpath.normpath(posixpath.join(where, LOCK_NAME))


def _unknown_provider(provider: str) -> str:
    from mainstem.truetime.locks.zookeeper_options import EXPLICIT, IMPLICIT

    return (
        f"{PROVIDER}={shown(provider)}: mainstem locks with {FILE_SYSTEM} (the default), {EXPLICIT}, "
        f"{IMPLICIT} or {IN_PROCESS} only. Every writer of a table must use the same lock: set one of "
        "these for all writers of the table, or write with Hudi"
    )


def local_folder(key: str, value: str) -> str:
    """``/x/y`` from ``/x/y``, ``file:/x/y`` or ``file:///x/y``; ``Invalid``/``Unsupported`` for others."""
    scheme, _ = split_scheme(value)
    if scheme not in (None, "file"):
        raise Unsupported(
            f"{key}={shown(value)}: the file-system lock needs hard links and OS locks of a local "
            f"POSIX file system, found scheme {scheme}:; use a local path"
        )
    try:
        return location_of(value, absolute=True).path
    except (Invalid, Unsupported) as error:
        raise Invalid(
            f"{key}={shown(value)}: expected an absolute local path (Java resolves a relative one "
            "against its working folder, so that two writers would lock different files)"
        ) from error


def whole(
    props: Mapping[str, str],
    key: str,
    default: int,
    unit: str,
    low: int = 0,
    high: int = _JAVA_INT_MAX,
) -> int:
    """A whole number of ``unit`` under ``key``; ``Invalid`` names key, value and bounds."""
    text = str(props.get(key, default)).strip()
    if re.fullmatch(r"[0-9]{1,10}", text) and low <= int(text) <= high:
        return int(text)
    raise Invalid(f"{key}={shown(text)}: expected a whole number of {unit}, {low} to {high}")


def shown(value: str) -> str:
    """A value as a message shows it, shortened."""
    return repr(value if len(value) <= 200 else value[:200] + "...")
