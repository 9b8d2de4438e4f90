"""Which table lock to take and how long to wait for it, in Hudi's option names.

Hudi: ``HoodieLockConfig`` (keys and defaults), ``LockManager`` (retries around the provider),
``FileSystemBasedLockProvider`` (path and expiry); the ZooKeeper lock has ``zookeeper_options``. Names,
defaults and bounds are declared in ``options.locks``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import Unsupported
from mainstem.options.locks import (
    DYNAMODB,
    DYNAMODB_IMPLICIT,
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
    STORAGE,
    WAIT_MS,
)
from mainstem.storage.backends import split_scheme
from mainstem.storage.hdfs_options import SCHEME as HDFS
from mainstem.truetime.locks.option_values import local_folder, shown, whole
from mainstem.truetime.locks.storage_options import SCHEMES, StorageLockOptions
from mainstem.truetime.locks.storage_record import LOCK_PATH

if TYPE_CHECKING:
    from mainstem.truetime.locks.dynamodb_options import DynamoDBOptions
    from mainstem.truetime.locks.zookeeper_options import ZooKeeperOptions

LOCK_NAME = "lock"


@dataclass(frozen=True, slots=True)
class LockOptions:
    """Validated lock settings of one table. All times are in milliseconds.

    ``folder`` is the absolute folder of the lock file (unused by the in-process lock). All writers of the
    table must agree on ``identity``: two providers, or one provider with two paths (Spark defaults to
    ``.hoodie/lock``, Flink to ``.hoodie/.aux/lock``), do not exclude each other. ``foreign_expire_ms`` is 0
    for "never". ``zookeeper`` is set for the ZooKeeper providers only, ``storage`` for the storage lock,
    ``dynamodb`` for the DynamoDB providers.
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
    storage: StorageLockOptions | None = None
    dynamodb: DynamoDBOptions | None = None

    @property
    def patience_ms(self) -> int:
        """How long ``acquire`` tries: as long as Java's ``LockManager``, pauses included."""
        return self.wait_ms * (self.retries + 1) + self.pause_ms * self.retries

    @classmethod
    def from_properties(cls, props: Mapping[str, str], *, base: str) -> LockOptions:
        """Read Hudi's lock keys; ``base`` is the absolute base path of the table, or its URL on a store.

        Without a provider, a table on an object store has the storage lock, any other the file-system lock.
        Raises ``Unsupported`` for providers and file systems that mainstem cannot lock with, and
        ``Invalid`` for a value that does not parse (key, value and what was expected).
        """
        scheme, _ = split_scheme(base)
        on_store = scheme not in (None, "file")
        provider = props.get(PROVIDER, default_provider(base)).strip()
        if provider not in PROVIDER.allowed:
            raise Unsupported(_unknown_provider(provider), table=base)
        in_hdfs = scheme == HDFS
        if on_store and (in_hdfs or provider != FILE_SYSTEM):
            base = base.rstrip("/")
        else:
            base = local_folder("base path", base)
        folder = posixpath.join(base, ".hoodie")
        zookeeper = None
        storage = StorageLockOptions.from_properties(props, base=base) if provider == STORAGE else None
        dynamodb = None
        if provider in (DYNAMODB, DYNAMODB_IMPLICIT):
            from mainstem.truetime.locks.dynamodb_options import DynamoDBOptions

            dynamodb = DynamoDBOptions.from_properties(
                props, base=base, implicit=provider == DYNAMODB_IMPLICIT
            )
        if provider == FILE_SYSTEM and props.get(FOLDER, "").strip():
            given = props[FOLDER].strip()
            folder = _hdfs_folder(base, given) if in_hdfs else local_folder(FOLDER, given)
        if provider in (EXPLICIT, IMPLICIT):
            from mainstem.truetime.locks.zookeeper_options import ZooKeeperOptions

            zookeeper = ZooKeeperOptions.from_properties(props, base=base, implicit=provider == IMPLICIT)
        there = zookeeper or dynamodb
        return cls(
            provider=provider,
            base=base,
            folder=folder,
            identity=there.identity if there else _identity(provider, base, folder),
            zookeeper=zookeeper,
            storage=storage,
            dynamodb=dynamodb,
            wait_ms=whole(props, WAIT_MS),
            retries=whole(props, RETRIES),
            pause_ms=whole(props, PAUSE_MS),
            foreign_expire_ms=60_000 * whole(props, FOREIGN_EXPIRE_MIN),
            expire_ms=whole(props, EXPIRE_MS),
        )


def default_provider(base: str) -> str:
    """The lock of a table at ``base`` that needs no service: one that works there."""
    return STORAGE if split_scheme(base)[0] in SCHEMES else FILE_SYSTEM


def _hdfs_folder(base: str, given: str) -> str:
    """The folder of the lock file in the cluster of the table, below its base."""
    root = base[: base.index("/", len(f"{HDFS}://"))]
    folder = (given if given.startswith(f"{HDFS}:") else root + given).rstrip("/")
    if not folder.startswith(f"{base}/"):
        raise Unsupported(
            f"{FOLDER}={shown(given)}: on HDFS the lock file lies in the table, in a folder below {base}",
            table=base,
        )
    return folder


def _identity(provider: str, base: str, folder: str) -> str:
    if provider == IN_PROCESS:
        return "in-process"
    if provider == STORAGE:
        return f"storage:{LOCK_PATH}"
    inside = posixpath.relpath(folder, base)
    where = folder if inside == ".." or inside.startswith("../") else inside
    return "filesystem:" + posixpath.normpath(posixpath.join(where, LOCK_NAME))


def _unknown_provider(provider: str) -> str:
    return (
        f"{PROVIDER}={shown(provider)}: mainstem locks with {FILE_SYSTEM} (the default), {EXPLICIT}, "
        f"{IMPLICIT}, {STORAGE}, {DYNAMODB}, {DYNAMODB_IMPLICIT} or {IN_PROCESS} only. "
        "Every writer of a table must use the same lock: set one of these for all writers of the table, or "
        "write with Hudi"
    )
