"""Goal: what Java archives, rolls back or restores on an object store does not come back by our gate, and a
batch whose writer died around its decision is in the table once in the end (PROTOCOL.md, "Beside Java").

Method: MinIO, Java Hudi 1.2.0 with its storage lock. A writer process dies by SIGKILL around the put of a
completed file, so that the gate still names it. Java is the first to come by and takes the instant away in
its own manner; then mainstem enters the table, and the writer is started again on its batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import mainstem
from mainstem.options.locks import STORAGE
from tests.interop.java_hudi import JavaHudi
from tests.servers.object_stores import StoreServer
from tests.stores.beside_java import NAME, by_java, java_batch, java_options
from tests.stores.store_writer import stream_batch
from tests.stores.table_life import Rows, check_metadata, content, create, open_there, put_into
from tests.stores.test_writer_processes_in_stores import OPTIONS, Writer

pytestmark = [pytest.mark.timeout(900), pytest.mark.nothing_lost]
#: the file that shows a commit of the data table, and only that
TARGET = r"^\.hoodie/timeline/\d+_\d+\.deltacommit$"
#: by which Java judges the dead; the living beat as by default, since on a busy machine nobody is on time
IMPATIENT = {
    "hoodie.clean.automatic": "true",
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "3",
}
#: Java's first service would build them, which is not what this is about
STATISTICS = "hoodie.metadata.index.column.stats.enable"
SOON = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.archive.automatic": "true",
    "hoodie.metadata.compact.max.delta.commits": "1",
}
DIES_AT, BATCHES = 3, 5


@dataclass
class Scene:
    """A table in a bucket, Java beside it, and the writer that died at its third commit."""

    java: JavaHudi
    server: StoreServer
    path: str
    metadata: bool
    #: of the instant that the gate still names
    requested: str = ""
    javas: int = 0

    @property
    def url(self) -> str:
        return f"s3a://bucket/{self.path}"

    def table(self) -> mainstem.Table:
        return open_there(self.server, "bucket", self.path, **OPTIONS)

    def options(self, **more: str) -> dict[str, str]:
        """The lock is named for services: a client without a write does not ask the table's properties."""
        given = java_options(self.metadata, **{STATISTICS: "false"}, **more)
        return {**given, "hoodie.write.lock.provider": STORAGE}

    def on_timeline(self) -> list[str]:
        """Files of the instant on the active timeline, by the store's own listing."""
        names = self.server.storage("bucket", self.path).names(".hoodie/timeline")
        return [name for name in names if name.startswith((f"{self.requested}.", f"{self.requested}_"))]

    def java_writes(self, **more: str) -> None:
        self.java.write(self.url, java_batch(self.javas), self.options(**more))
        self.javas += 1

    def sql(self, text: str) -> None:
        self.java.call("sql", text=text, conf=self.options())


def java_rolls_back_the_pending(scene: Scene) -> None:
    """Java's lazy cleaning of failed writes, once the heartbeat has expired."""
    deadline = time.monotonic() + 120
    while scene.on_timeline():
        assert time.monotonic() < deadline, "Java does not roll the dead writer's instant back"
        scene.java.clean(scene.url, scene.options(**IMPATIENT))


def java_archives(scene: Scene) -> None:
    for _ in range(8):
        scene.java_writes(**SOON)
        if not scene.on_timeline():
            return
    raise AssertionError(f"Java does not archive {scene.requested}")


def java_rolls_back_the_completed(scene: Scene) -> None:
    name = f"{scene.path}_rolled".replace("-", "_")
    scene.sql(f"create table {name} using hudi location '{scene.url}'")
    scene.sql(f"call rollback_to_instant(table => '{name}', instant_time => '{scene.requested}')")
    scene.sql(f"drop table {name}")


def java_restores(scene: Scene) -> None:
    (saved,) = scene.table().savepoints()
    scene.sql(f"call rollback_to_savepoint(path => '{scene.url}', instant_time => '{saved.instant}')")


@dataclass(frozen=True)
class Case:
    """When the writer dies, what Java does, and what becomes of the batch when it is sent again."""

    when: str
    java: Callable[[Scene], None]
    again: str
    #: the savepoint that Java restores is made before this batch
    saved_at: int | None = None


CASES = {
    "decided, not put; rolled back": Case("before", java_rolls_back_the_pending, "committed"),
    "put, still named; archived": Case("after", java_archives, "already_committed"),
    "put, still named; rolled back": Case("after", java_rolls_back_the_completed, "committed"),
    "put, still named; restored": Case("after", java_restores, "committed", saved_at=DIES_AT - 1),
}


WITH_METADATA = next(iter(CASES))


@pytest.mark.parametrize(
    ("name", "metadata"), [*((name, False) for name in CASES), (WITH_METADATA, True)]
)
def test_what_java_took_away_stays_away_and_the_batch_is_there_once(
    java: JavaHudi, minio: StoreServer, tmp_path: Path, name: str, metadata: bool
) -> None:
    case = CASES[name]
    path = f"beside-{list(CASES).index(name)}-{metadata}".lower()
    create(minio, "bucket", path, {"hoodie.metadata.enable": metadata}, name=NAME)
    scene = Scene(java, minio, path, metadata)
    expected = Rows()
    # 1. The writer dies at the put of its third commit; the gate names that instant.
    dead = [Writer(minio, path, tmp_path, 0, batches=DIES_AT - 1)]
    try:
        assert dead[0].child.wait(120) == 0
        if case.saved_at is not None:
            scene.table().savepoint()
        known = {i.requested for i in scene.table().timeline()}
        dead.append(Writer(minio, path, tmp_path, 0, first=DIES_AT - 1, die_at=[TARGET, case.when, 1]))
        assert dead[1].child.wait(120) == -9
    finally:
        for writer in dead:
            writer.end()
    scene.requested = requested_behind(scene, known)
    shown = any("_" in file for file in scene.on_timeline())
    assert shown == (case.when == "after")
    # 2. Java, who knows no gate, is the first to come by.
    case.java(scene)
    assert scene.on_timeline() == []
    # 3. Everybody reads the table without it, or once from the archive.
    for number in range(DIES_AT - 1):
        put_into(expected, stream_batch(0, number))
    if case.again == "already_committed":
        put_into(expected, stream_batch(0, DIES_AT - 1))
    for number in range(scene.javas):
        put_into(expected, java_batch(number))
    assert content(scene.table()) == expected == by_java(java, scene.url)
    # 4. The writer is started again on its batches: it enters the gate, and does not put the file again. Java
    #    writes in turn.
    again = Writer(minio, path, tmp_path, 0, first=DIES_AT - 1, batches=BATCHES)
    try:
        assert again.child.wait(240) == 0
    finally:
        again.end()
    said = [entry.get("status") for entry in again.entries()]
    assert said == ["committed"] * (DIES_AT - 1) + [case.again] + ["committed"] * (BATCHES - DIES_AT)
    scene.java_writes()
    for number in range(DIES_AT - 1, BATCHES):
        put_into(expected, stream_batch(0, number))
    put_into(expected, java_batch(scene.javas - 1))
    assert scene.on_timeline() == []
    assert content(scene.table()) == expected == by_java(java, scene.url)
    check_metadata(scene.table())


def requested_behind(scene: Scene, known: set[str]) -> str:
    """The requested time of the one delta commit that is not known, by the store's own listing."""
    names = scene.server.storage("bucket", scene.path).names(".hoodie/timeline")
    found = {name[:17] for name in names if ".deltacommit" in name} - known
    (requested,) = found
    return requested
