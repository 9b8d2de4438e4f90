"""Finds a store that does not keep what writers rely on, before anything is written to it.

Some servers that speak S3's protocol accept the conditions of a request and ignore them: every put succeeds,
and of two writers each believes that it was first. Some caches and replicas show listings of yesterday. Nine
requests on one object of its own show it; they cannot show what a store does rarely.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, cast

from mainstem.errors import Unsupported
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import Swappable, has_swaps


class ProbedStore(Storage, Swappable, Protocol):
    """An object store, as ``ObjectStorage`` is one."""

    def nonce_at(self, path: str) -> str | None:
        """The nonce that the object's last put carried."""


# By their options, too: one bucket's name may stand for two servers.
_probed: set[Location] = set()


def check_store(storage: Storage, folder: str, nonce: str) -> None:
    """``probe``, once in a process for each table; nothing for a store without swaps."""
    if has_swaps(storage) and storage.location not in _probed:
        probe(cast(ProbedStore, storage), folder, nonce)
        _probed.add(storage.location)


def probe(storage: ProbedStore, folder: str, nonce: str) -> None:
    """Try the store with the object ``nonce`` in ``folder``, which nobody else may use.

    Raises ``Unsupported`` with what the store did wrong, ``OSError`` if it does not answer or permits too
    little. Leaves nothing behind unless it is interrupted.
    """
    path = f"{folder}/{nonce}"
    try:
        _conditions(storage, path, nonce.encode())
        if nonce not in storage.names(folder):
            raise _refused(storage, "a listing does not show an object that was put before it")
    except BaseException:
        with suppress(OSError):  # the first error says more
            storage.delete(path)
        raise
    storage.delete(path)
    if nonce in storage.names(folder):
        raise _refused(storage, "a listing shows an object that was deleted before it")


def _conditions(storage: ProbedStore, path: str, nonce: bytes) -> None:
    first = storage.swap(path, nonce + b"1", None)
    if first is None:
        raise _refused(storage, "it says that a new name is taken")
    if storage.nonce_at(path) is None:
        raise _refused(storage, "it does not keep metadata of objects, by which a put is told from another's")
    if storage.swap(path, nonce + b"2", None) is not None:
        raise _refused(storage, "a put on the condition that there is no object (If-None-Match) replaced one")
    if storage.read_tagged(path) != (nonce + b"1", first):
        raise _refused(storage, "it does not give back the content and the ETag of what was put")
    second = storage.swap(path, nonce + b"3", first)
    if second is None:
        raise _refused(storage, "a put on the condition of the present ETag (If-Match) was refused")
    if storage.swap(path, nonce + b"4", first) is not None:
        raise _refused(storage, "a put on the condition of an older ETag (If-Match) replaced a newer object")


def _refused(storage: Storage, what: str) -> Unsupported:
    return Unsupported(
        f"the store of {storage.base} cannot hold a table with many writers: {what}. Use a store with"
        " conditional writes (Amazon S3, Google Cloud Storage, Azure Blob, MinIO, versitygw), and no cache in"
        " front of it",
        table=storage.base,
    )
