"""Goal: a small commit costs few storage calls, and few of them while others wait for the lock.

Method: every call on the store of an open table is counted, from outside: what a call does inside of the
store is its own business. Measured is the fourth upsert of one row into one bucket of a table as made by
``create_table``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.table import Table
from mainstem.layout import properties
from mainstem.storage import paths
from tests.storage.counted_calls import counted_table

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
NO_WAIT = {"hoodie.time.generator.max_expected_clock_skew_ms": "0"}


@pytest.fixture(params=[False, True], ids=["without metadata", "with metadata"])
def counted(request, tmp_path: Path) -> Table:
    options = {"hoodie.metadata.enable": str(request.param).lower(), **NO_WAIT}
    made = mainstem.create_table(str(tmp_path / "t"), SCHEMA, record_key="id", properties=options)
    return counted_table(made, NO_WAIT)[0]


def upsert(table: Table, value: int) -> None:
    assert table.upsert(pa.table({"id": ["a"], "v": [value]})).status == "committed"


def calls_of_an_upsert(table: Table) -> list[tuple[str, str, bool]]:
    for value in range(3):
        upsert(table, value)
    table.opened.seams.storage.calls.clear()
    upsert(table, 9)
    return list(table.opened.seams.storage.calls)


@pytest.mark.disk("it counts a disk's calls; tests/storage/test_requests_of_writes.py counts a store's")
def test_an_upsert_costs_few_calls_and_fewer_under_the_lock(counted: Table) -> None:
    has_metadata = bool(counted.config.metadata_partitions)
    calls = calls_of_an_upsert(counted)
    story = "\n".join(f"{'[[' if held else '  '} {name} {path}" for name, path, held in calls)
    # without metadata the last sync is a call of its own, after the lock
    most, most_held = (33, 15) if has_metadata else (23, 9)
    assert len(calls) <= most, story
    assert sum(held for _, _, held in calls) <= most_held, story


@pytest.mark.disk("it counts a disk's calls; tests/storage/test_requests_of_writes.py counts a store's")
def test_the_properties_are_read_once_before_the_lock_and_once_under_it(counted: Table) -> None:
    calls = calls_of_an_upsert(counted)
    reads = [held for name, path, held in calls if (name, path) == ("read", paths.PROPERTIES)]
    assert reads == [False, True]


def test_the_properties_are_parsed_once_for_each_change(counted: Table, monkeypatch) -> None:
    parsed: Counter[str] = Counter()
    parse = properties.parse_properties

    def noted(data, *, path):
        parsed[path] += 1
        return parse(data, path=path)

    monkeypatch.setattr(properties, "parse_properties", noted)
    for value in range(3):
        upsert(counted, value)
    parsed.clear()
    for value in range(3):
        upsert(counted, value)
    assert not parsed


@pytest.mark.disk("it counts a disk's calls")
def test_log_files_beyond_those_that_may_be_open_are_made_durable_hundreds_at_a_time(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string())])
    made = mainstem.create_table(tmp_path / "t", schema, record_key="id", partition_by="part", buckets=1)
    table, store = counted_table(made, NO_WAIT)
    keys = [f"k{n}" for n in range(900)]
    table.upsert(pa.table({"id": keys, "part": keys}))
    settled = [path.count("LocalUpload") for name, path, _ in store.calls if name == "settle"]
    assert sorted(files for files in settled if files > 1) == [200, 200, 200, 301]  # and the commit itself
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(keys)
