"""Private files: content that is about to become visible, and files that several may make at once.

What a publication or a service makes is written here first, under a name that nobody else has, made
durable, and then linked to its real name; see ``publish.publisher`` and ``services.compaction``.
"""

from __future__ import annotations

from mainstem.storage import paths
from mainstem.storage.protocol import Storage, Upload
from mainstem.truetime.seams import Seams


def create_once(storage: Storage, path: str) -> bool:
    """An empty file; False if somebody made it before."""
    try:
        storage.put_new(path, b"", durable=False)
    except FileExistsError:
        return False
    return True


def prepare(seams: Seams, instant: str, data: bytes) -> str:
    """A durable private file with the content of a timeline file that is about to be published."""
    path = _name(seams, instant)
    seams.storage.put_new(path, data, durable=True)
    return path


def begin(seams: Seams, instant: str, data: bytes) -> tuple[str, Upload]:
    """As ``prepare``, but not durable before its sink is settled, with others."""
    path = _name(seams, instant)
    sink = seams.storage.upload(path)
    sink.append([data])
    return path, sink


def _name(seams: Seams, instant: str) -> str:
    return paths.prepared(instant, f"{seams.random.getrandbits(64):016x}")


def forget(seams: Seams, prepared: str) -> None:
    """Remove a private file after its publication, which must not fail for that any more."""
    delete_quietly(seams.storage, prepared)


def delete_quietly(storage: Storage, path: str) -> None:
    """Remove a private file, now or, if that fails, with a later sweep."""
    try:
        storage.delete(path)
    except OSError:
        return
