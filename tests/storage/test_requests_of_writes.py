"""Goal: a commit to a table in an object store makes few requests, and few of them while others are kept out.

Method: the requests of an upsert of two log files, with the table open, in a store in memory: where mainstem
writes alone and beside another engine, with and without a metadata table. docs/stores.md has the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import object_store, paths
from mainstem.storage.memory_store import forget
from mainstem.storage.object_store import ObjectStorage
from mainstem.truetime.locks.storage_record import LOCK_PATH
from tests.storage.requests_made import Requests

URL = "memory://writes/t"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ALONE = {"hoodie.mainstem.exclusive": "true"}
SHARED = {"hoodie.time.generator.max_expected_clock_skew_ms": "1"}


def rows(number: int) -> pa.Table:
    return pa.table({"id": ["a", "b", "c"], "v": [number] * 3}, schema=SCHEMA)


@pytest.fixture
def requests(monkeypatch) -> Iterator[Requests]:
    made = Requests()
    real = ObjectStorage.__init__

    def counting(self, *args, **how) -> None:
        real(self, *args, **{**how, "calls": made})

    monkeypatch.setattr(object_store.ObjectStorage, "__init__", counting)
    yield made
    forget("writes")


def table_with(metadata: bool, options: dict[str, str]) -> mainstem.Table:
    table = mainstem.create_table(
        URL, SCHEMA, record_key="id", buckets=2,
        properties={"hoodie.metadata.enable": str(metadata).lower(), **options},
    )  # fmt: skip
    for number in range(3):
        table.upsert(rows(number))
    return table


@pytest.mark.parametrize(
    ("metadata", "options", "budget"),
    [(False, ALONE, 14), (True, ALONE, 20), (False, SHARED, 25), (True, SHARED, 34)],
)
def test_an_upsert_stays_within_its_budget(requests, metadata, options, budget) -> None:
    table = table_with(metadata, options)
    for number in range(3, 6):
        requests.made.clear()
        assert table.upsert(rows(number)).files == 2
        assert sum(requests.made.values()) <= budget, requests.made


@pytest.mark.parametrize(("metadata", "most"), [(False, 8), (True, 12)])
def test_few_requests_are_made_while_the_lock_is_held(requests, metadata, most) -> None:
    table = table_with(metadata, SHARED)
    requests.log.clear()
    table.upsert(rows(9))
    # The lock itself: taken and released by a put each; asked for by gets.
    held, counts = False, []
    for verb, key in requests.log:
        if key == f"t/{LOCK_PATH}" and verb == "put":
            held = not held
            if held:
                counts.append(0)
        elif held and key != f"t/{LOCK_PATH}":
            counts[-1] += 1
    assert len(counts) == 2, "one section begins the write, one publishes it"
    assert max(counts) <= most, counts


def test_alone_nobody_takes_the_lock_and_the_gate_is_swapped_once(requests) -> None:
    table = table_with(False, ALONE)
    requests.log.clear()
    table.upsert(rows(9))
    touched = [(verb, key.removeprefix("t/")) for verb, key in requests.log if isinstance(key, str)]
    assert not [key for _, key in touched if key == LOCK_PATH]
    assert touched.count(("put", paths.GATE)) == 1


def test_once_another_engine_was_seen_every_section_takes_the_lock(requests) -> None:
    table = table_with(False, ALONE)
    storage = table.opened.seams.storage
    storage.put_new(paths.timeline_file("20200101000000001.deltacommit.requested"), b"", durable=True)
    storage.put_new(
        paths.timeline_file("20200101000000001.deltacommit.inflight"), b"Obj\x01" + b"x" * 400, durable=True
    )
    with pytest.warns(UserWarning, match="written by another kind of writer"):
        table.upsert(rows(8))
    requests.log.clear()
    table.upsert(rows(9))
    assert ("put", f"t/{LOCK_PATH}") in requests.log
    assert table.scan().to_arrow().column("v").to_pylist() == [9] * 3


def on_the_page(rows_of: str) -> dict[str, int]:
    """What docs/stores.md says that this kind of commit costs."""
    text = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
    (cells,) = re.findall(rf"^\| {re.escape(rows_of)} \|([0-9 |]+)\|", text, re.MULTILINE)
    return dict(zip(("put", "get", "list", "delete", "all"), map(int, cells.split("|")), strict=False))


PAGE = [
    ("mainstem alone (`exclusive`)", False, ALONE),
    ("the same with a metadata table", True, ALONE),
    ("mainstem, others may write", False, SHARED),
    ("the same with a metadata table, others may write", True, SHARED),
]


@pytest.mark.parametrize(("rows_of", "metadata", "options"), PAGE, ids=[one[0] for one in PAGE])
def test_a_commit_costs_what_the_page_of_stores_says(requests, rows_of, metadata, options) -> None:
    table = table_with(metadata, options)
    requests.made.clear()
    table.upsert(rows(9))
    made = {"list_with_delimiter": "list"}
    counted = {made.get(kind, kind): number for kind, number in requests.made.items()}
    assert {**counted, "all": sum(counted.values())} == on_the_page(rows_of)


def test_instants_that_are_too_young_to_be_archived_do_not_make_each_commit_dearer(requests) -> None:
    table = table_with(True, SHARED)
    for number in range(3, 40):
        table.upsert(rows(number))
    spent = []
    for number in range(40, 44):
        requests.made.clear()
        table.upsert(rows(number))
        spent.append(sum(requests.made.values()))
    assert max(spent) <= 34, spent
