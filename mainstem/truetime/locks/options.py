"""Which table lock to take, and how long to wait for it, in Hudi's own words.

Hudi: ``HoodieLockConfig`` (keys and defaults), ``LockManager`` (retries around the provider),
``FileSystemBasedLockProvider`` (path and expiry); the ZooKeeper lock has ``zookeeper_options``. Names,
defaults and bounds are declared in ``options.locks``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, Unsupported
from mainstem.options.declared import Whole
from mainstem.options.locks import (
    EXPIRE_MS,
    EXPLICIT,
    FILE_SYSTEM,
    FOLDER,
    FOREIGN_EXPIRE_MIN,
    IMPLICIT,
    IN_PROCESS,
    PAUSE_MS,
    PROVIDER,
    RETRIES,
    WAIT_MS,
)

if TYPE_CHECKING:
    from mainstem.truetime.clock import Clock
    from mainstem.truetime.locks.protocol import LockProvider
    from mainstem.truetime.locks.zookeeper_options import ZooKeeperOptions
    from mainstem.truetime.seams import Randomness


LOCK_NAME = "lock"
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(.*)$", re.DOTALL)


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
    wait_ms: int = WAIT_MS.default
    retries: int = RETRIES.default
    pause_ms: int = PAUSE_MS.default
    foreign_expire_ms: int = FOREIGN_EXPIRE_MIN.default
    expire_ms: int = EXPIRE_MS.default
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
        provider = props.get(PROVIDER, PROVIDER.default).strip()
        if provider not in (FILE_SYSTEM, IN_PROCESS, EXPLICIT, IMPLICIT):
            raise Unsupported(_unknown_provider(provider), table=base)
        folder = posixpath.join(base, ".hoodie")
        zookeeper = None
        if provider == FILE_SYSTEM and props.get(FOLDER, "").strip():
            folder = local_folder(FOLDER, props[FOLDER].strip())
        if provider in (EXPLICIT, IMPLICIT):
            zookeeper = zookeeper_options.ZooKeeperOptions.from_properties(
                props, base=base, implicit=provider == IMPLICIT
            )
        return cls(
            provider=provider,
            base=base,
            folder=folder,
            identity=zookeeper.identity if zookeeper else _identity(provider, base, folder),
            zookeeper=zookeeper,
            wait_ms=whole(props, WAIT_MS),
            retries=whole(props, RETRIES),
            pause_ms=whole(props, PAUSE_MS),
            foreign_expire_ms=60_000 * whole(props, FOREIGN_EXPIRE_MIN),
            expire_ms=whole(props, EXPIRE_MS),
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
    return (
        f"{PROVIDER}={shown(provider)}: mainstem locks with {FILE_SYSTEM} (the default), {EXPLICIT}, "
        f"{IMPLICIT} or {IN_PROCESS} only. Every writer of a table must use the same lock: set one of "
        "these for all writers of the table, or write with Hudi"
    )


def local_folder(key: str, value: str) -> str:
    """``/x/y`` from ``/x/y``, ``file:/x/y`` or ``file:///x/y``; ``Invalid``/``Unsupported`` for others."""
    match = _SCHEME.match(value)
    if match and match[1].lower() != "file":
        raise Unsupported(
            f"{key}={shown(value)}: the file-system lock needs hard links and OS locks of a local "
            f"POSIX file system, found scheme {match[1]}:; use a local path"
        )
    path = match[2] if match else value
    if path.startswith("//"):
        authority, slash, rest = path[2:].partition("/")
        path = slash + rest if authority in ("", "localhost") else ""
    if not path.startswith("/") or "\0" in path:
        raise Invalid(
            f"{key}={shown(value)}: expected an absolute local path (Java resolves a relative one "
            "against its working folder, so that two writers would lock different files)"
        )
    return "/" + posixpath.normpath(path).lstrip("/")


def whole(props: Mapping[str, str], option: Whole) -> int:
    """The option's whole number; ``Invalid`` names key, value, unit and bounds."""
    text = str(props.get(option, option.default)).strip()
    if re.fullmatch(r"[0-9]{1,10}", text) and option.low <= int(text) <= option.high:
        return int(text)
    raise Invalid(
        f"{option}={shown(text)}: expected a whole number of {option.unit}, {option.low} to {option.high}"
    )


def shown(value: str) -> str:
    """A value as a message shows it, shortened."""
    return repr(value if len(value) <= 200 else value[:200] + "...")
