"""Goal: a completed file that a late put brings back on an object store, after a restore took its
instant back or an archiver archived it, changes no answer, and goes with the next sweep or archiving.

Method: the file's own bytes are put again, as a request that travelled for long would do it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import paths
from mainstem.storage.memory_store import forget
from mainstem.writers.leftovers import sweep_leftovers

URL = "memory://late/t"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


FEW = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}


@pytest.fixture(params=[False, True], ids=["folders", "metadata"])
def table(request) -> Iterator[mainstem.Table]:
    yield mainstem.create_table(
        URL, SCHEMA, record_key="id", buckets=1,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.metadata.enable": request.param},
    )  # fmt: skip
    forget("late")


def upsert(table: mainstem.Table, value: int) -> str:
    done = table.upsert(pa.table({"id": ["a", f"b{value}"], "v": [value, value]}, schema=SCHEMA))
    return paths.timeline_file(f"{done.instant}_{done.completion_time}.deltacommit")


def content(table: mainstem.Table) -> dict[str, int]:
    rows = mainstem.open_table(URL).scan().to_arrow()
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def test_what_a_restore_took_back_stays_away_when_its_file_comes_back(table) -> None:
    storage = table.opened.seams.storage
    upsert(table, 1)
    savepoint = table.savepoint()
    gone = [upsert(table, 2), upsert(table, 3)]
    files = {path: storage.read(path, max_bytes=10**6) for path in gone}
    table.restore(savepoint.instant)
    for path, data in files.items():
        storage.put_new(path, data, durable=True)
    assert content(table) == {"a": 1, "b1": 1}
    upsert(table, 4)
    table.compact()
    assert content(table) == {"a": 4, "b1": 1, "b4": 4}
    sweep_leftovers(table.writer_context(), thorough=False)
    assert not [path for path in gone if storage.stat(path)]
    assert content(table) == {"a": 4, "b1": 1, "b4": 4}


@pytest.mark.parametrize("table", [False], indirect=True)
def test_what_was_archived_counts_once_when_its_file_comes_back(table) -> None:
    storage = table.opened.seams.storage
    first = upsert(table, 0)
    data = storage.read(first, max_bytes=10**6)
    for value in range(1, 8):
        upsert(table, value)
    table.compact()
    archiving = mainstem.open_table(URL, FEW)
    assert archiving.archive() is not None
    assert storage.stat(first) is None
    expected = content(table)
    storage.put_new(first, data, durable=True)
    assert content(table) == expected
    assert archiving.archive() is not None
    assert storage.stat(first) is None


@pytest.mark.parametrize("table", [False], indirect=True)
def test_on_a_table_that_others_may_write_young_instants_are_not_archived(table) -> None:
    for value in range(8):
        upsert(table, value)
    table.compact()
    table.writer_context().publisher.guarded(lambda section: section.epoch.note_foreign("Java's"))
    assert mainstem.open_table(URL, FEW).archive() is None
    assert mainstem.open_table(URL, {**FEW, "hoodie.mainstem.archive.rest_ms": 0}).archive() is not None
