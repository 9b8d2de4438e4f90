"""What a process asks of an object store, one request after the other; it dies at one of them.

A request is a call that changes the store: a put, conditional or not, or a delete; reads and listings leave
nothing behind. Death 0 comes before the first request. Death n comes right after the effect of the n-th,
whose reply nobody reads, and so before the next one is sent. Or the n-th request *travels on*: the process is
dead, and the request takes effect when ``arrive`` is called, after others have gone on.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any

from tests.storage.folder_objects import FolderObjects

VERBS = ("put", "put_new", "swap", "renew", "delete")


@dataclass(frozen=True)
class Request:
    """One that was sent, and has not taken effect."""

    verb: str
    #: in the table
    path: str
    given: tuple[Any, ...]
    named: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


def travelling_from(base: str) -> Path:
    """Where a dead process leaves the request that outlives it: beside its table."""
    return Path(f"{base}.travelling")


def taken(base: Path) -> Request | None:
    """The request that outlived the last process on a table; None if none did."""
    place = travelling_from(str(base))
    if not place.exists():
        return None
    found: Request = pickle.loads(place.read_bytes())
    place.unlink()
    return found


def arrive(base: Path, request: Request) -> None:
    """The request takes effect, if its condition holds; nobody waits for the answer."""
    with suppress(FileExistsError, FileNotFoundError):
        getattr(FolderObjects(str(base), sync=False), request.verb)(
            request.path, *request.given, **request.named
        )


class Requests:
    """Counts the requests of the main thread in shared memory; this process dies at one of them."""

    def __init__(self, shared: mmap, kill_at: int | None, travels: bool) -> None:
        self.shared, self.kill_at, self.travels, self.count = shared, kill_at, travels, 0
        self.thread = threading.get_ident()
        self.inside = False
        for verb in VERBS:
            setattr(FolderObjects, verb, self._counted(verb, getattr(FolderObjects, verb)))
        if kill_at == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _counted(self, verb: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def request(storage: FolderObjects, path: str, *given: Any, **named: Any) -> Any:
            if self.inside or threading.get_ident() != self.thread:
                return original(storage, path, *given, **named)
            self.count += 1
            self.shared[:8] = struct.pack("<q", self.count)
            if self.count == self.kill_at and self.travels:
                sent = Request(verb, path, tuple(map(_as_bytes, given)), named)
                travelling_from(storage.base).write_bytes(pickle.dumps(sent))
                os.kill(os.getpid(), signal.SIGKILL)
            self.inside = True
            try:
                return original(storage, path, *given, **named)
            finally:
                self.inside = False
                if self.count == self.kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        return request


def _as_bytes(given: Any) -> Any:
    """Contents as they travel; anything else as it is."""
    if isinstance(given, (memoryview, bytearray)):
        return bytes(given)
    return b"".join(given) if isinstance(given, list) else given
