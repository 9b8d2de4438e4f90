"""Goal: what a commit leaves on a store that is far away is removed without anybody waiting, and is removed.

Method: a store in memory that counts as far away, and whose deletions wait until they are let through; a
process of its own that ends right after its commit.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.storage import object_store, paths
from mainstem.storage.memory_store import forget
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.unwaited import Unwaited
from mainstem.timeline.instant import parse_instant
from tests.storage.requests_made import Requests

URL = "memory://unwaited/t"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ROWS = pa.table({"id": ["a", "b", "c"], "v": [1, 2, 3]}, schema=SCHEMA)


class Held(Requests):
    """Deletions wait for ``free``."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = super().__getattr__(name)
        if name != "delete":
            return call

        def waits(*given: Any, **named: Any) -> Any:
            assert self.free.wait(30)
            return call(*given, **named)

        return waits


@pytest.fixture
def far(monkeypatch) -> Iterator[Held]:
    made = Held()
    real = ObjectStorage.__init__

    def remote(self, *args, **how) -> None:
        real(self, *args, **{**how, "calls": made})
        self.remote = True

    monkeypatch.setattr(object_store.ObjectStorage, "__init__", remote)
    yield made
    made.free.set()
    forget("unwaited")


def table() -> mainstem.Table:
    return mainstem.create_table(
        URL, SCHEMA, record_key="id", buckets=2, properties={"hoodie.mainstem.exclusive": "true"}
    )


def left(of: mainstem.Table) -> list[str]:
    storage = of.opened.seams.storage
    return [*storage.names(paths.HEARTBEATS), *storage.names(paths.TEMP)]


def test_a_commit_does_not_wait_for_the_removal_of_its_heartbeat_and_markers(far) -> None:
    far.free.set()
    trips = table()
    far.free.clear()
    outcome = trips.upsert(ROWS)  # ends although nothing can be removed
    assert left(trips) == [outcome.instant, outcome.instant]
    far.free.set()
    trips.writer_context().unwaited.wait()
    assert left(trips) == []


def test_what_is_left_does_not_pile_up(far) -> None:
    far.free.set()
    trips = table()
    for _ in range(20):
        trips.upsert(ROWS)
        assert len(trips.writer_context().unwaited._running) <= 4
    trips.writer_context().unwaited.wait()
    assert left(trips) == []


def test_on_a_disk_work_is_done_at_once_by_the_caller(tmp_path) -> None:
    from mainstem.storage.local import LocalStorage

    who: list[threading.Thread] = []
    Unwaited(LocalStorage(str(tmp_path))).start(lambda: who.append(threading.current_thread()))
    assert who == [threading.current_thread()]


def test_a_process_that_ends_after_its_commit_removes_what_it_left(tmp_path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        from mainstem.storage.local import LocalStorage
        from mainstem.storage.unwaited import Unwaited
        storage = LocalStorage(sys.argv[1])
        storage.remote = True
        def slowly():
            time.sleep(0.3)
            Path(sys.argv[1], "done").touch()
        Unwaited(storage).start(slowly)
        print("ended")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout == "ended\n" and (tmp_path / "done").exists(), done.stderr


def keys(far: Held) -> list[str]:
    return [key.removeprefix("t/") for verb, key in far.log if verb == "put" and isinstance(key, str)]


def test_the_inflight_file_of_a_single_write_is_put_between_its_request_and_its_first_data_file(far) -> None:
    far.free.set()
    trips = table()
    trips.upsert(ROWS)
    far.log.clear()
    outcome = trips.upsert(ROWS)
    put = keys(far)
    requested, inflight = (
        put.index(paths.timeline_file(f"{outcome.instant}.deltacommit.{state}"))
        for state in ("requested", "inflight")
    )
    files = [at for at, key in enumerate(put) if paths.parse_log_name(key.rpartition("/")[2]) is not None]
    assert put.index(paths.heartbeat(outcome.instant)) < requested < inflight < min(files) and len(files) == 2


def test_a_single_write_whose_rows_are_refused_leaves_nothing(far) -> None:
    far.free.set()
    trips = table()
    with pytest.raises(Invalid):
        trips.upsert({"id": ["a"], "v": ["no number"]})
    trips.writer_context().unwaited.wait()
    storage = trips.opened.seams.storage
    assert left(trips) == [] and not [
        n for n in storage.names(paths.TIMELINE) if parse_instant(n) is not None
    ]
