"""What the tables of the crash matrix lie on: a disk, an object store, a store that renames.

Each is a folder of this machine, so that the same checks read its files. ``objects``: every table has a URL,
and so what a table in a store has: the gate, no lock where mainstem writes alone. ``shared``: the same with
tables that other engines may write, so that every section takes the storage lock. ``renames``: the fence of
HDFS, whose every step is one of a disk or a rename.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from mainstem.storage import backends
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage
from tests import quiet_writers  # noqa: F401
from tests.publish.renaming_store import renaming_store
from tests.storage.folder_objects import folder_objects


@dataclass(frozen=True)
class Death:
    """When an action dies: at which step, or after which request (``requests``)."""

    at: int
    travels: bool = False

    def __str__(self) -> str:
        return f"{'outlived by its request' if self.travels else 'killed at step'} {self.at}"


@dataclass(frozen=True)
class Body:
    """One kind of store. ``backend`` serves ``scheme``; None for what is there anyway."""

    name: str
    scheme: str = "file"
    backend: Callable[[Location, bool], Storage] | None = None
    #: whether its tables are declared to be mainstem's alone
    exclusive: bool = True
    #: what every process says
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_requests(self) -> bool:
        """Whether processes die at requests, and not at steps of a file system."""
        return self.scheme != "file"

    def place(self, path: Path | str) -> str:
        """What ``open_table`` takes for the table whose files lie in ``path``."""
        return f"{self.scheme}://crash{path}" if self.by_requests else str(path)

    def deaths(self, steps: int, every: int, chance: random.Random) -> Iterator[Death]:
        """Each ``every``-th death of an action with so many steps."""
        yield from map(Death, range(chance.randrange(every), steps + self.by_requests, every))
        if self.by_requests:
            for at in range(1 + chance.randrange(every), steps + 1, every):
                yield Death(at, travels=True)


#: what every process says, on every body
PROPERTIES = {"hoodie.mainstem.fsync": "false", "hoodie.mainstem.lock.expire_ms": "600000"}
# A store's lock outlives its holder, and nobody sees that he is dead: who comes at once does not wait long,
# but longer than the lock is left to other engines.
_IMPATIENT = {"hoodie.write.lock.wait_time_ms": "2500", "hoodie.write.lock.client.num_retries": "0"}
_IN_A_STORE = {
    **_IMPATIENT,
    "hoodie.write.lock.storage.validity.timeout.secs": "60",
    "hoodie.write.lock.storage.renew.interval.secs": "5",
}
_BESIDE_OTHERS = {
    **_IN_A_STORE,
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
    "hoodie.mainstem.archive.rest_ms": "0",
}
BODIES = {
    body.name: body
    for body in (
        Body("disk"),
        Body("objects", "s3", folder_objects, options=_IN_A_STORE),
        Body("shared", "s3", folder_objects, exclusive=False, options=_BESIDE_OTHERS),
        Body("renames", backend=renaming_store, options=_IMPATIENT),
    )
}
DISK = BODIES["disk"]
_current = DISK


def current() -> Body:
    """The body of this process's tables."""
    return _current


def place(path: Path | str) -> str:
    """What ``open_table`` takes for the table whose files lie in ``path``."""
    return _current.place(path)


@contextmanager
def on(body: Body) -> Iterator[None]:
    """Tables of this process lie on ``body``."""
    global _current
    before, _current = _current, body
    found = {} if body.backend is None else {body.scheme: body.backend}
    try:
        with patch.dict(backends.BACKENDS, found), patch.dict(PROPERTIES, body.options):
            yield
    finally:
        _current = before
