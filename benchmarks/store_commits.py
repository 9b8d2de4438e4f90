"""Commits to a table in an object store: MinIO on loopback, each put and delete delayed by 20 ms, each get
and list by 10 ms, as a store in the same region answers.

1, 4 and 8 processes upsert the same keys for a fixed time: where mainstem writes alone (no lock), and shared
with another engine (lock, no skew wait). The bound is the same sequence of bare requests without any rows,
made by one process: what a commit of 14 requests costs at least.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

import mainstem
from benchmarks import Missing, Row, bound, row
from mainstem.storage import backends, object_store, store_options
from mainstem.storage.location import Location
from mainstem.storage.private_files import PrivateFiles
from tests.servers.object_stores import Minio, NoServer
from tests.storage.requests_made import Requests

PUT_S, GET_S = 0.020, 0.010
BUCKET = "benchmark"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
WRITERS = (1, 4, 8)


class Delayed(Requests):
    """obstore's functions, each behind the delay of its kind, and counted."""

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        def delayed(*given: Any, **named: Any) -> Any:
            time.sleep(PUT_S if name in ("put", "delete") else GET_S)
            return call(*given, **named)

        return delayed


def delay_requests() -> Delayed:
    """From now on every store on S3 that this process opens is slow."""
    calls = Delayed()

    def slow(location: Location, sync: bool) -> Any:
        store = store_options.open_store(location)
        return PrivateFiles(object_store.ObjectStorage(store, location, calls=calls))

    backends.BACKENDS["s3"] = slow
    return calls


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    seconds = 5.0 if reduced else 20.0
    try:
        with Minio() as server:
            server.make_bucket(BUCKET)
            least = _bare(server)
            return [
                made
                for exclusive in (True, False)
                for writers in WRITERS
                for made in _raced(server, writers, exclusive, seconds, least)
            ]
    except NoServer as missing:
        raise Missing(str(missing)) from None


def _raced(server: Minio, writers: int, exclusive: bool, seconds: float, least: float) -> list[Row]:
    location = server.location(BUCKET, f"t{writers}{exclusive}")
    options = dict(location.option_values())
    mainstem.create_table(
        location, SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={
            "hoodie.mainstem.exclusive": str(exclusive).lower(),
            "hoodie.time.generator.max_expected_clock_skew_ms": "0" if exclusive else "1", **options,
        },
    )  # fmt: skip
    context = multiprocessing.get_context("spawn")  # threads of obstore do not survive a fork
    start, out = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(target=_write, args=(location.base, options, start, seconds, out))
        for _ in range(writers)
    ]
    for process in processes:
        process.start()
    told = [out.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    commits = sum(len(one["ms"]) for one in told)
    latency = statistics.median(ms for one in told for ms in one["ms"])
    counts = [len(one["ms"]) for one in told]
    who = "alone" if exclusive else "shared, no skew wait"
    what = f"{writers} process{'es' if writers > 1 else ''}, same keys, {who}, 20/10 ms a request"
    note = (
        f"p50 {latency:.0f} ms, attempts {sum(o['attempts'] for o in told) / commits:.2f} and requests"
        f" {sum(o['requests'] for o in told) / commits:.1f} a commit"
    )
    target = None if not exclusive else 0.7 if writers == 1 else 15 / least
    return [
        row(what, commits / seconds, "commits/s", against="bare requests, one process", baseline=least,
            target=target, note=note),
        bound(f"aborts, {what}", sum(o["aborts"] for o in told), "aborts", most=0),
        row(f"slowest writer over mean, {what}", min(counts) * writers / commits, "", against="mean",
            baseline=1.0, target=0.5),
    ]  # fmt: skip


def _write(base: str, options: Mapping[str, str], start: Any, seconds: float, out: Any) -> None:
    calls = delay_requests()
    table = mainstem.open_table(base, properties=dict(options))

    def rows(number: int) -> pa.Table:
        return pa.table({"id": [f"k{n}" for n in range(4)], "v": [number] * 4, "ts": [number] * 4})

    for number in range(2):
        table.upsert(rows(number))
    start.wait()
    calls.made.clear()
    told: dict[str, Any] = {"ms": [], "aborts": 0, "attempts": 0}
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        try:
            told["attempts"] += table.upsert(rows(len(told["ms"]) + 2)).attempts
        except mainstem.MainstemError:
            told["aborts"] += 1
        told["ms"].append(1000 * (time.perf_counter() - began))
    out.put({**told, "requests": sum(calls.made.values())})


def _bare(server: Minio) -> float:
    """Commits a second of one process that makes the requests of a commit and nothing else."""
    location = server.location(BUCKET, "bare")
    calls: Any = Delayed()
    store = store_options.open_store(location)
    put, get, names = calls.put, calls.get, calls.list_with_delimiter
    put(store, "bare/gate", b"{}")

    def commit(number: int, pool: ThreadPoolExecutor) -> None:
        here = f"bare/{number}"
        for name in ("heartbeat", "requested"):
            put(store, f"{here}-{name}", b"")
        get(store, "bare/gate").bytes()
        put(store, f"{here}-inflight", b"x" * 1000)
        for kind in ("marker", "log"):
            list(pool.map(lambda n, kind=kind: put(store, f"{here}-{kind}{n}", b"x" * 1000), range(2)))
        get(store, "bare/gate").bytes()
        looks = (lambda: names(store, "bare/t/"), lambda: get(store, "bare/gate"))
        list(pool.map(lambda look: look(), looks))
        for name in ("gate", "target"):
            put(store, f"{here}-{name}", b"x" * 3000)
        calls.delete(store, [f"{here}-heartbeat", f"{here}-marker0", f"{here}-marker1"])

    taken = []
    with ThreadPoolExecutor(2) as pool:
        for number in range(12):
            began = time.perf_counter()
            commit(number, pool)
            taken.append(time.perf_counter() - began)
    return 1 / statistics.median(taken)
