"""Goal: a commit to a table in an object store waits for few requests, one after another.

Method: a store in memory that counts as far away. Each thread has a clock of its own, which a put or a delete
moves by 20 ms and any other request by 10 ms; whoever waits for work in other threads goes on at the latest
of their times. So the sum of a commit's waits does not depend on the machine. docs/stores.md has the figures.
"""

from __future__ import annotations

import concurrent.futures
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import object_store
from mainstem.storage.memory_store import forget
from mainstem.storage.object_store import ObjectStorage
from tests.storage.requests_made import Requests

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ALONE = {"hoodie.mainstem.exclusive": "true"}
SHARED = {"hoodie.time.generator.max_expected_clock_skew_ms": "1"}
ORDER = [(False, ALONE), (True, ALONE), (False, SHARED), (True, SHARED)]


class Clocks(threading.local):
    """Milliseconds of the running thread."""

    now_ms = 0


clocks = Clocks()


class Timed(Requests):
    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = super().__getattr__(name)

        def timed(*given: Any, **named: Any) -> Any:
            clocks.now_ms += 20 if name in ("put", "delete") else 10
            return call(*given, **named)

        return timed


class TimedPool(ThreadPoolExecutor):
    """Its work begins when it is handed in; leaving it waits for the last."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        began_ms = clocks.now_ms
        self.ends: list[int] = getattr(self, "ends", [])

        def timed() -> Any:
            clocks.now_ms = began_ms
            try:
                return work(*given, **named)
            finally:
                self.ends.append(clocks.now_ms)

        return super().submit(timed)

    def __exit__(self, *raised: Any) -> bool | None:
        result = super().__exit__(*raised)
        clocks.now_ms = max([clocks.now_ms, *getattr(self, "ends", [])])
        return result


@pytest.fixture(autouse=True)
def far(monkeypatch) -> Iterator[None]:
    real, made = ObjectStorage.__init__, Timed()

    def remote(self, *args, **how) -> None:
        real(self, *args, **{**how, "calls": made})
        self.remote = True

    monkeypatch.setattr(object_store.ObjectStorage, "__init__", remote)
    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", TimedPool)
    yield
    forget("waits")


def waited_ms(metadata: bool, options: dict[str, str]) -> int:
    table = mainstem.create_table(
        "memory://waits/t", SCHEMA, record_key="id", buckets=2,
        properties={"hoodie.metadata.enable": str(metadata).lower(), **options},
    )  # fmt: skip
    for number in range(4):
        clocks.now_ms = 0
        table.upsert(pa.table({"id": ["a", "b", "c"], "v": [number] * 3}, schema=SCHEMA))
    return clocks.now_ms


def on_the_page() -> list[int]:
    text = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"add up to\s+(\d+), (\d+), (\d+) and (\d+) ms", text)
    return [int(number) for number in found]


@pytest.mark.parametrize("place", range(4), ids=["alone", "metadata", "shared", "shared-metadata"])
def test_the_delays_of_a_commit_add_up_to_what_the_page_of_stores_says(place: int) -> None:
    assert waited_ms(*ORDER[place]) == on_the_page()[place]
