"""Where the tables of the interop matrix lie: on a local disk, on MinIO by `s3a://`, on HDFS.

Java reaches HDFS by what Spark brings. On MinIO it runs with hadoop-aws, in a worker of its own, and takes
its storage lock (`tests/stores/java_on_s3a.py`). A server and its worker start with the first table there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from java_hudi import LOCK_PROVIDER, QUICK_JVM, JavaHudi
from matrix_cells import HDFS, LOCAL, S3A

from mainstem.options.locks import STORAGE
from tests.servers import hdfs
from tests.servers.hdfs import Hdfs
from tests.servers.object_stores import Minio
from tests.stores import java_on_s3a

BUCKET = "matrix"


def missing_here(store: str) -> str | None:
    """Why there are no tables in the store on this machine; None where there are."""
    if store == S3A:
        return java_on_s3a.missing()
    if store == HDFS and not hdfs.installed():
        return "HDFS is not installed: make stores"
    return None


@dataclass(frozen=True)
class Place:
    """A folder in a store, and who works there."""

    java: JavaHudi
    #: URL or path; tables are below it
    root: str
    #: the lock that needs no service, for both sides
    lock: Mapping[str, str] = field(default_factory=lambda: {"hoodie.write.lock.provider": LOCK_PROVIDER})
    #: what brings mainstem to the store
    options: Mapping[str, str] = field(default_factory=dict)


class Places:
    """Folders in stores, each used once; a context manager, which ends the servers.

    `java`: the worker for local disks and HDFS; without it one is started. `folder`: for local tables and
    for what workers leave.
    """

    def __init__(self, folder: Path, java: JavaHudi | None = None) -> None:
        self._folder, self._java = folder, java
        self._stack = ExitStack()
        self._numbers = itertools.count()
        self._servers: dict[str, Place] = {}

    def __enter__(self) -> Places:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def fresh(self, store: str) -> Place:
        """A folder without tables."""
        if store not in self._servers:
            self._servers[store] = {LOCAL: self._disk, S3A: self._minio, HDFS: self._hdfs}[store]()
        place = self._servers[store]
        return Place(place.java, f"{place.root}/{next(self._numbers)}", place.lock, place.options)

    def _disk(self) -> Place:
        return Place(self._worker(), str(self._folder))

    def _hdfs(self) -> Place:
        cluster = self._stack.enter_context(Hdfs())
        return Place(self._worker(), cluster.url("matrix"), options=cluster.options())

    def _minio(self) -> Place:
        server = self._stack.enter_context(Minio())
        server.make_bucket(BUCKET)
        classes = self._folder / "classes"
        classes.mkdir(parents=True)
        java = JavaHudi(
            memory="1g", jvm=QUICK_JVM, log=self._folder / "s3a.log",
            settings=java_on_s3a.spark_settings(server, classes),
            environment=server.variables(),
        )  # fmt: skip
        lock = {"hoodie.write.lock.provider": STORAGE}
        return Place(self._stack.enter_context(java), f"s3a://{BUCKET}", lock, server.options())

    def _worker(self) -> JavaHudi:
        if self._java is None:
            self._java = self._stack.enter_context(JavaHudi(memory="1g", jvm=QUICK_JVM))
        return self._java
