"""Goal: processes that share nothing but a bucket write one table; none of them waits for a dead one, and no
row is lost or doubled.

Method: two spawned writers on the same keys, while this process runs the services; in the second test one of
them dies by SIGKILL around the moment that decides its commit, and is started again on the same batches. Half
of the tables have a metadata table and a lock for Java, half are mainstem's alone.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.object_stores import SERVERS, FakeGcs, Minio, StoreServer
from tests.stores import store_writer
from tests.stores.store_writer import stream_batch
from tests.stores.table_life import Rows, check_metadata, content, create, open_there, put_into, spawn

SCRIPT = str(Path(store_writer.__file__))
OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "10",
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "3",
    "hoodie.write.lock.storage.validity.timeout.secs": "10",
    "hoodie.write.lock.storage.renew.interval.secs": "1",
    "hoodie.compact.inline.max.delta.commits": "4",
    "hoodie.clean.commits.retained": "4",
    "hoodie.keep.min.commits": "6",
    "hoodie.keep.max.commits": "8",
}
BATCHES = 8
pytestmark = [pytest.mark.timeout(300), pytest.mark.nothing_lost]


@pytest.fixture(scope="module", params=SERVERS, ids=lambda kind: kind.name)
def server(request) -> Iterator[StoreServer]:
    with request.param() as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture(scope="module")
def minio() -> Iterator[StoreServer]:
    with Minio() as running:
        running.make_bucket("bucket")
        yield running


class Writer:
    """One writer process and its journal."""

    def __init__(self, server: StoreServer, path: str, folder: Path, number: int, **more: object) -> None:
        self.journal = folder / f"journal-{number}"
        self.given = {
            "path": server.location("bucket", path).base, "options": OPTIONS, "writer": number,
            "journal": str(self.journal), "batches": BATCHES, **more,
        }  # fmt: skip
        self.log = open(folder / f"log-{number}", "a")  # noqa: SIM115 - closed by end()
        self.child = spawn(server, SCRIPT, self.given, stderr=self.log)

    def entries(self) -> list[dict]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    def end(self) -> None:
        self.child.kill()
        self.child.wait()
        self.log.close()


def kind_of_table(metadata: bool) -> dict[str, object]:
    return {"hoodie.metadata.enable": metadata, "hoodie.mainstem.exclusive": not metadata}


def expected_rows(writers: int = 2) -> Rows:
    rows = Rows()
    for number in range(BATCHES):
        for writer in range(writers):
            put_into(rows, stream_batch(writer, number))
    return rows


def tend(table, children: list[subprocess.Popen]) -> int:
    """Services until all writers have ended; how many rounds did something."""
    done, end = 0, time.monotonic() + 200
    while any(child.poll() is None for child in children):
        assert time.monotonic() < end, "the writers do not come to an end"
        runs = table.run_services()
        assert all(run.error is None for run in runs), runs
        done += any(run.results for run in runs)
    return done


@pytest.mark.supports("Stores", "S3, Google Cloud Storage, Azure: writers and services in several processes")
def test_two_writers_and_services_lose_and_double_nothing(server: StoreServer, tmp_path: Path) -> None:
    path, metadata = "two", isinstance(server, Minio | FakeGcs)
    create(server, "bucket", path, kind_of_table(metadata))
    table = open_there(server, "bucket", path, **OPTIONS)
    writers = [Writer(server, path, tmp_path, number) for number in range(2)]
    try:
        assert tend(table, [writer.child for writer in writers])
        assert [writer.child.returncode for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.end()
    for writer in writers:
        said = writer.entries()
        assert [entry.get("status") for entry in said] == ["committed"] * BATCHES, said
    assert content(open_there(server, "bucket", path)) == expected_rows()
    check_metadata(table)


GATE, TARGET = r"gate\.json$", r"timeline/\d+_\d+\.deltacommit$"
#: name -> an object, before or after its put, which put; and whether the table has a metadata table
MOMENTS = {
    "before the decision": (GATE, "before", 5, True),
    "after a swap of the gate": (GATE, "after", 3, False),
    "before the file that shows": (TARGET, "before", 3, True),
    "after the file that shows": (TARGET, "after", 3, False),
    "in the middle of its files": (r"^(?!\.hoodie).*\.log\.", "after", 5, True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_writer_that_is_killed_and_started_again_loses_and_doubles_nothing(
    minio: StoreServer, tmp_path: Path, moment: str
) -> None:
    *dies, metadata = MOMENTS[moment]
    path = f"killed-{moment}".replace(" ", "-")
    create(minio, "bucket", path, kind_of_table(metadata))
    table = open_there(minio, "bucket", path, **OPTIONS)
    mortal = Writer(minio, path, tmp_path, 0, die_at=dies)
    other = Writer(minio, path, tmp_path, 1)
    writers = [mortal, other]
    try:
        mortal.child.wait(120)
        assert mortal.child.returncode == -9
        first = len([entry for entry in mortal.entries() if "batch" in entry])
        assert 0 < first < BATCHES
        writers.append(Writer(minio, path, tmp_path, 0, first=first))
        tend(table, [writer.child for writer in writers[1:]])
        assert [writer.child.returncode for writer in writers] == [-9, 0, 0]
    finally:
        for writer in writers:
            writer.end()
    assert [entry.get("status") for entry in other.entries()] == ["committed"] * BATCHES, other.entries()
    said = mortal.entries()
    assert [entry["batch"] for entry in said if "batch" in entry] == list(range(BATCHES)), said
    assert content(open_there(minio, "bucket", path)) == expected_rows()
    check_metadata(table)
