"""Commits to a table in an object store: MinIO on loopback, each put and delete delayed by 20 ms, each get
and list by 10 ms, as a store in the same region answers.

1, 4 and 8 processes upsert the same keys for a fixed time: where mainstem writes alone (no lock), and shared
with another engine (under the lock). The bound is what as many processes reach
in the same run that make the same necessary requests bare, in the best order, and race at one object by its
tag: no rows, no tables. Where that bound itself misses a target, 70 % of it is asked for. Processor time of a
commit, ours and the server's, tells what is this machine: ``tests/publish/test_gate_pace.py`` has the
protocol's own figures.

delta-rs and pyiceberg upsert the same rows with the same delays, which a proxy in front of the server makes;
so does mainstem once more, for these rows. A commit that is refused is tried again on the newest version, and
counted as an abort. (PyPI's hudi only reads.)
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from obstore.exceptions import AlreadyExistsError, PreconditionError

import mainstem
from benchmarks import Missing, Row, asked, bound, row, store_peers
from mainstem.storage import backends, object_store, store_options
from mainstem.storage.backends import location_of
from mainstem.storage.location import Location
from mainstem.storage.private_files import PrivateFiles
from tests.servers.http_proxy import HttpProxy
from tests.servers.object_stores import Minio, NoServer
from tests.storage.requests_made import Requests

PUT_S, GET_S = 0.020, 0.010
DELAYS = {"PUT": PUT_S, "DELETE": PUT_S, "POST": PUT_S, "GET": GET_S, "HEAD": GET_S}
BUCKET = "benchmark"
WRITERS = (1, 4, 8)


class Delayed(Requests):
    """obstore's functions, each behind the delay of its kind, and counted."""

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        def delayed(*given: Any, **named: Any) -> Any:
            time.sleep(PUT_S if name in ("put", "delete") else GET_S)
            return call(*given, **named)

        return delayed


def count_requests(delayed: bool) -> Requests:
    """Counts, and delays, the requests to every store on S3 that this process opens from now on."""
    calls = Delayed() if delayed else Requests()

    def counted(location: Location, sync: bool) -> Any:
        store = store_options.open_store(location)
        return PrivateFiles(object_store.ObjectStorage(store, location, calls=calls))

    backends.BACKENDS["s3"] = counted
    return calls


@dataclass(frozen=True)
class Server:
    """MinIO, and the proxy by which it is slow."""

    minio: Minio
    proxy: HttpProxy

    def location(self, path: str, *, slow: bool = True) -> Location:
        """A place in it."""
        there = self.minio.location(BUCKET, path)
        return self.proxy.reach(there) if slow else there

    def cpu_seconds(self) -> float:
        """Processor time that the server has used."""
        fields = Path(f"/proc/{self.minio.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    seconds = 5.0 if reduced else 20.0
    try:
        with Minio() as minio, HttpProxy(minio.port, delays=DELAYS) as proxy:
            minio.make_bucket(BUCKET)
            server = Server(minio, proxy)
            bare = {writers: _race(server, writers, seconds, _bare, f"bare{writers}") for writers in WRITERS}
            made = []
            for exclusive in (True, False):
                for writers in WRITERS:
                    made += _rows(server, writers, exclusive, seconds, bare[writers])
            for writers in WRITERS:
                made += _beside(server, writers, seconds)
            return made
    except NoServer as missing:
        raise Missing(str(missing)) from None


@dataclass
class Raced:
    """What processes did that raced for some seconds: milliseconds of each commit, by process."""

    seconds: float
    told: list[dict[str, Any]]
    server_s: float

    @property
    def commits(self) -> int:
        return sum(len(one["ms"]) for one in self.told)

    @property
    def per_second(self) -> float:
        return self.commits / self.seconds

    @property
    def median_ms(self) -> float:
        return statistics.median(ms for one in self.told for ms in one["ms"])

    def mean(self, name: str) -> float:
        """Per commit."""
        return sum(one[name] for one in self.told) / self.commits


def _race(
    server: Server,
    writers: int,
    seconds: float,
    body: Callable[..., None],
    folder: str,
    *,
    slow: bool = False,
) -> Raced:
    location = server.location(folder, slow=slow)
    context = multiprocessing.get_context("spawn")  # threads of obstore do not survive a fork
    start, out = context.Barrier(writers), context.Queue()
    given = (location.base, dict(location.option_values()), start, seconds, out)
    processes = [context.Process(target=body, args=given) for _ in range(writers)]
    for process in processes:
        process.start()
    before_s = server.cpu_seconds()
    told = [out.get(timeout=300) for _ in processes]
    server_s = server.cpu_seconds() - before_s
    for process in processes:
        process.join()
    return Raced(seconds, told, server_s)


def _create(location: Location, exclusive: bool) -> None:
    mainstem.create_table(
        location, store_peers.SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={
            "hoodie.mainstem.exclusive": str(exclusive).lower(), **location.option_values(),
        },
    )  # fmt: skip


def _rows(server: Server, writers: int, exclusive: bool, seconds: float, bare: Raced) -> list[Row]:
    folder = f"t{writers}{exclusive}"
    _create(server.location(folder, slow=False), exclusive)
    raced = _race(server, writers, seconds, _write, folder)
    counts = [len(one["ms"]) for one in raced.told]
    who = "alone" if exclusive else "shared, by default"
    what = f"{writers} process{'es' if writers > 1 else ''}, same keys, {who}, 20/10 ms a request"
    note = (
        f"p50 {raced.median_ms:.0f} ms, attempts {raced.mean('attempts'):.2f} and requests"
        f" {raced.mean('requests'):.1f} a commit; processor {1000 * raced.mean('cpu_s'):.0f} ms a commit, the"
        f" server's {1000 * raced.server_s / raced.commits:.0f} ms with the warm-up; bare"
        f" {1000 * bare.mean('cpu_s'):.0f} and {1000 * bare.server_s / bare.commits:.0f} ms"
    )
    target = None
    if exclusive:
        least = 5.0 if writers == 1 else 15.0  # a second holds five commits of 200 ms
        target = asked(least, bare.per_second) / bare.per_second
    return [
        row(what, raced.per_second, "commits/s", against=f"bare requests, {writers} at one gate",
            baseline=bare.per_second, target=target, note=note),
        bound(f"aborts, {what}", sum(o["aborts"] for o in raced.told), "aborts", most=0),
        row(f"slowest writer over mean, {what}", min(counts) * writers / raced.commits, "", against="mean",
            baseline=1.0, target=0.5),
    ]  # fmt: skip


def _beside(server: Server, writers: int, seconds: float) -> list[Row]:
    """Ours and the peers' behind the proxy."""
    folder = f"proxied{writers}"
    _create(server.location(folder), exclusive=True)
    ours = _race(server, writers, seconds, partial(_write, delayed=False), folder, slow=True)
    what = f"{writers} process{'es' if writers > 1 else ''}, same keys, 20/10 ms a request, by a proxy"
    rows = []
    for name in store_peers.PEERS:
        peer = store_peers.race(
            name, lambda body, folder: _race(server, writers, seconds, body, folder, slow=True), writers,
            server.location,
        )  # fmt: skip
        if isinstance(peer, str):
            rows.append(row(what, ours.per_second, "commits/s", against=name, note=peer))
            continue
        aborts = sum(one["aborts"] for one in peer.told)
        note = f"peer: {aborts} of {aborts + peer.commits} attempts aborted"
        if not peer.commits:
            note += f", the last with {peer.told[0]['why'][:200]}"
        rows.append(
            row(what, ours.per_second, "commits/s", against=name, baseline=peer.per_second or None, note=note)
        )
    return rows


def _write(
    base: str, options: Mapping[str, str], start: Any, seconds: float, out: Any, *, delayed: bool = True
) -> None:
    calls = count_requests(delayed)
    table = mainstem.open_table(base, properties=dict(options))
    told: dict[str, Any] = {"aborts": 0, "attempts": 0}

    def commit(number: int) -> bool:
        try:
            told["attempts"] += table.upsert(store_peers.batch(number)).attempts
            return True
        except mainstem.MainstemError:
            told["aborts"] += 1
            return False

    store_peers.measure(commit, told, start, seconds, out, calls.made)


def _bare(base: str, options: Mapping[str, str], start: Any, seconds: float, out: Any) -> None:
    """The necessary requests of commits, and a gate that is swapped by its tag, and nothing else."""
    calls: Any = Delayed()
    store = store_options.open_store(location_of(base, options=options))
    own, gate, names = f"bare/{os.getpid()}", "bare/gate", calls.list_with_delimiter
    told: dict[str, Any] = {"attempts": 0}

    def put(name: str) -> Callable[[], object]:
        return lambda: calls.put(store, name, b"x" * 1000)

    def read() -> str:
        found = calls.get(store, gate)
        found.bytes()
        return str(found.meta["e_tag"])

    with suppress(AlreadyExistsError):
        calls.put(store, gate, b"{}", mode="create")
    with ThreadPoolExecutor(4) as pool:

        def together(*requests: Callable[[], object]) -> None:
            list(pool.map(lambda request: request(), requests))

        def commit(number: int) -> bool:
            here = f"{own}-{number}"
            for name in ("heartbeat", "requested"):
                put(f"{here}-{name}")()
            read()
            together(*(put(f"{here}-{name}") for name in ("inflight", "marker0", "marker1")))
            together(*(put(f"{here}-{name}") for name in ("log0", "log1")))
            _, tag = pool.map(lambda look: look(), (lambda: names(store, "bare/t/"), read))
            while True:
                told["attempts"] += 1
                try:
                    calls.put(store, gate, os.urandom(3000), mode={"e_tag": tag})
                    break
                except PreconditionError:
                    tag = read()
            put(f"{here}-completed")()
            left = [f"{here}-{name}" for name in ("heartbeat", "marker0", "marker1")]
            pool.submit(calls.delete, store, left)
            return True

        store_peers.measure(commit, told, start, seconds, out, calls.made)
