"""A run's table in MinIO, behind a proxy that makes trouble: where it lies, and how its files are looked at.

Actors reach the server through the proxy; whoever watches and checks asks it directly. ``copy`` brings all
objects into a folder, where they are files of a table as on a disk.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

import obstore

from mainstem.storage import paths
from mainstem.storage.backends import location_of
from mainstem.storage.store_options import open_store
from tests.multiprocess.test_writer_processes import Observer
from tests.servers.http_proxy import HttpProxy
from tests.servers.object_stores import Minio

#: how often a request meets what, all the time
FAIR = {"delay": 0.03, "cut request": 0.004, "lose request": 0.004, "lose reply": 0.008, "cut reply": 0.004,
        "slow down": 0.01}  # fmt: skip
#: ... and what it meets in a storm
STORM = 0.3
LOCKS = ("none", "storage", "zookeeper")
_NAME = "bucket"
_numbers = itertools.count()
#: who finds trouble tells it before others take him for dead
_IMPATIENT = {
    "hoodie.mainstem.storage.timeout_ms": "3000",
    "hoodie.mainstem.storage.connect_timeout_ms": "2000",
    "hoodie.mainstem.storage.retry_timeout_ms": "6000",
}
_WATCHER = {
    **_IMPATIENT,
    "hoodie.mainstem.storage.timeout_ms": "500",
    "hoodie.mainstem.storage.retries": "0",
}


class Bucket:
    """One table's place. ``lock``: what keeps its writers apart (``LOCKS``)."""

    def __init__(self, lock: str, seed: int) -> None:
        self.lock = lock
        self.server = Minio()
        self.server.__enter__()
        self.server.make_bucket(_NAME)
        self.proxy = HttpProxy(self.server.port, FAIR, seed)
        self.path = f"t{next(_numbers)}"
        self.url = self.server.url(_NAME, self.path)
        self._watched = open_store(location_of(self.url, options={**self.direct, **_WATCHER}))

    def close(self) -> None:
        """Nothing of it runs any more."""
        self.proxy.close()
        self.server.__exit__()

    def options(self) -> dict[str, str]:
        """What reaches the table through the proxy."""
        return {**self.direct, "fs.s3a.endpoint": f"http://127.0.0.1:{self.proxy.port}", **_IMPATIENT}

    @property
    def direct(self) -> dict[str, str]:
        """What reaches it past the proxy."""
        return self.server.options()

    def properties(self) -> dict[str, object]:
        """What the table is created with."""
        return {"hoodie.mainstem.exclusive": self.lock != "storage"}

    def writer_properties(self) -> dict[str, str]:
        """What every process says of the lock; the clocks here are one."""
        return {
            "hoodie.time.generator.max_expected_clock_skew_ms": "10",
            "hoodie.write.lock.storage.validity.timeout.secs": "10",
            "hoodie.write.lock.storage.renew.interval.secs": "1",
            "hoodie.mainstem.archive.rest_ms": "0",
        }

    def storm(self, fault: str) -> None:
        """Much of one trouble; ``calm`` ends it."""
        self.proxy.weather = {**FAIR, fault: STORM}

    def calm(self) -> None:
        """As before."""
        self.proxy.weather = dict(FAIR)

    def clear(self) -> None:
        """No trouble at all."""
        self.proxy.weather = {}

    def serves(self) -> bool:
        """Whether the server answers."""
        try:
            self.completion_times()
        except Exception:  # of obstore's own kinds, too
            return False
        return True

    def completion_times(self) -> set[str]:
        """Of all instants that are visible now."""
        listed = obstore.list_with_delimiter(self._watched, prefix=f"{self.path}/{paths.TIMELINE}/")
        names = (found["path"].rpartition("/")[2] for found in listed["objects"])
        return {name.partition("_")[2].partition(".")[0] for name in names if "_" in name}

    def copy(self, folder: Path) -> None:
        """Every object as a file of ``folder``, and no other file."""
        there = set()
        for batch in obstore.list(self._watched, prefix=f"{self.path}/"):
            for found in batch:
                file = folder / found["path"].removeprefix(f"{self.path}/")
                there.add(file)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(obstore.get(self._watched, found["path"]).bytes())
        for file in sorted(folder.rglob("*"), reverse=True):  # what lies in a folder comes before it
            if file.is_file() and file not in there:
                file.unlink()
            elif file.is_dir() and not any(file.iterdir()):
                file.rmdir()  # a store has no empty folders


class BucketObserver(Observer):
    """Sees instants become visible, while the server answers."""

    def __init__(self, bucket: Bucket) -> None:
        super().__init__(Path())
        self.bucket = bucket

    def look(self) -> None:
        with suppress(Exception):  # of obstore's own kinds: the server is away
            self._seen(self.bucket.completion_times())
