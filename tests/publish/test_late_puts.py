"""Goal: a decided file that an object store puts late, after it left the timeline, does no harm.

Method: on a store in memory the file is put once more, as a request would that travelled for long
(PROTOCOL.md, "Late puts").
"""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import paths
from mainstem.storage.backends import location_of, storage_of

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.mainstem.exclusive": "true",
    "hoodie.keep.min.commits": "1",
    "hoodie.keep.max.commits": "2",
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
}


@pytest.fixture
def place() -> str:
    return f"memory://late-{uuid.uuid4().hex}/table"


@pytest.fixture
def table(place: str) -> mainstem.Table:
    made = mainstem.create_table(place, SCHEMA, record_key="id", ordering="ts", properties=OPTIONS)
    for number in range(3):
        made.upsert(rows(number))
    return made


def rows(number: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{number}", "ts": number}], schema=SCHEMA)


def keys(place: str) -> list[str]:
    return sorted(mainstem.open_table(place).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def timeline_files(place: str) -> dict[str, bytes]:
    storage = storage_of(location_of(place))
    found = storage.names(paths.TIMELINE)
    there = [paths.timeline_file(name) for name in found if "." in name]
    return {path: storage.read(path, max_bytes=2**24) for path in there}


def put_late(place: str, files: dict[str, bytes]) -> None:
    storage = storage_of(location_of(place))
    for path, data in files.items():
        storage.put(path, data, durable=True)


def test_an_archived_commit_that_comes_back_counts_once(place, table) -> None:
    for number in range(3, 8):
        table.upsert(rows(number))
    before = timeline_files(place)
    table.archive()
    after = timeline_files(place)
    gone = {path: data for path, data in before.items() if path not in after and "_" in path}
    assert gone
    put_late(place, gone)
    assert keys(place) == [f"k{number}" for number in range(8)]
    again = mainstem.open_table(place)
    again.archive()
    assert not set(gone) & set(timeline_files(place)), "the next archiver takes it away"


def test_a_plan_that_was_archived_and_comes_back_is_not_executed_and_goes(place, table) -> None:
    table.compact()
    for number in range(3, 12):
        table.upsert(rows(number))
        table.compact()
    before = timeline_files(place)
    table.clean()
    table.archive()
    after = timeline_files(place)
    plans = {
        path: data
        for path, data in before.items()
        if path not in after and path.endswith("compaction.requested")
    }
    assert plans
    put_late(place, plans)
    again, before = mainstem.open_table(place), keys(place)
    assert not [done for done in again.compact() if f"{done.requested}.compaction.requested" in str(plans)]
    assert keys(place) == before
    again.rollback_failed_writes()
    assert not set(plans) & set(timeline_files(place))
    assert not [i for i in again.timeline() if i.action == "compaction" and not i.is_completed]
