"""Scenario ``mixed``: our writers beside a writer and a compactor that behave like Java's: lock, clock, wait,
no fence.

Between the two kinds order rests on the lock and on clocks within the bound, so here leases are not
lost and clocks stay within it (SAFETY.md); processes still die and storage still fails. An exclusive
table must notice the stranger and keep clear of its clock again.

Java is of one of two kinds. From 1.1 on it makes its requests and plans in the section in which it takes
their times. 1.0, whose tables have version 8, makes them later: requests outside of any section, plans in
another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.api.write_request import write_spec
from mainstem.errors import MainstemError
from mainstem.formats.avro_container import encode_container
from mainstem.storage import paths
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import WriteStat, schema_text
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from mainstem.writers.append import BucketAppender
from mainstem.writers.write_spec import WriteSpec
from tests.sim.compactor import Compactor
from tests.sim.oracle import Intent
from tests.sim.sim_storage import Disk
from tests.sim.tables_world import SCHEMA, Tables
from tests.sim.world import Faults, Process, Violation

SKEW_WAIT_MS = 200


class Mixed(Tables):
    """``tables`` with a Java-like writer."""

    scenario = "mixed"
    fenced = False
    strangers = True
    knows_java_1_0 = True

    def __init__(
        self, seed: int, *, faults: Faults | None = None, log: bool = False, body: str = "disk"
    ) -> None:
        rng = random.Random(f"faults of {seed}")
        drawn = Faults(
            crash=rng.choice([0, 0.001, 0.004]),
            pause=rng.choice([0, 0.005]),
            pause_ms_max=100,
            error_before=rng.choice([0, 0.003]),
            skew_ms=rng.choice([0, 50, 99]),
            torn_listing=rng.choice([0, 0.3]),
            slow=rng.choice([0, 0.02]),
        )
        drawn = drawn.with_manners(random.Random(f"manners of mixed/{seed}"), seed)
        if body == "store":
            drawn = _short_requests(drawn, rng)
        super().__init__(seed, faults=faults or drawn, log=log, body=body)

    def build(self) -> None:
        super().build()
        self.strange_commits = self.random.choice([2, 4])
        self.compactions += 3
        self.start("j1", self._java)

    def _create(self) -> None:
        kind = random.Random(f"kind of mixed/{self.seed}")
        self.late = kind.random() < 0.4 and not self.mode.partial and self.knows_java_1_0
        self.version = 8 if self.late else self.version
        # Where 1.0 writes, a table declared exclusive has no order until we see that (SAFETY.md).
        self.exclusive = self.exclusive and not self.late
        super()._create()

    def _java_compaction(self, process: Process) -> Callable[[], Any]:
        return JavaCompactor(self.seams(process), self.disk, late=self.late).run

    def _ours_compact(self) -> bool:
        return random.Random(f"{self.seed}/compactor").random() < 0.4

    def _java(self, process: Process) -> None:
        process.uninterrupted = True
        table = self._patiently(process, lambda: self.open(process))
        while self.strange_commits > 0:
            self.strange_commits -= 1
            try:
                self._java_commit(process, table)
            except MainstemError as error:
                self._accept(error)
            except OSError:
                self.world.counts.refused += 1
            self.pause_between(process, 300)

    def _java_commit(self, process: Process, table: Table) -> None:
        seams = table.opened.seams
        storage = seams.storage
        ctx = table.writer_context()
        spec = write_spec(table.opened, ctx, "upsert")
        with _JavaTurn(seams, late=self.late) as instant:
            if self.late:
                self.pause_between(process, 400)
            try:
                ctx.heartbeats.start(instant)
                storage.put_new(f".hoodie/timeline/{instant}.deltacommit.requested", b"", durable=False)
            except OSError:
                ctx.heartbeats.leave(instant)
                raise
        spec = self._java_spec(table, spec)
        try:
            self._java_write(process, table, replace(spec, instant=instant))
        finally:
            ctx.heartbeats.leave(instant)
        storage.delete(paths.heartbeat(instant))
        storage.delete_tree(paths.marker_folder(instant))

    def _java_spec(self, table: Table, spec: WriteSpec) -> WriteSpec:
        """What it writes by, once its request is there."""
        return spec

    def _java_write(self, process: Process, table: Table, spec) -> None:
        storage, instant = table.opened.seams.storage, spec.instant
        inflight = f".hoodie/timeline/{instant}.deltacommit.inflight"
        storage.put_new(inflight, _metadata([], spec.user_schema), durable=False)
        intent = Intent("j1", instant)
        self.audit.intents[instant] = intent
        rows = [*self._rows(self.random, "w1", 3), self._tracer(Intent("w1", instant), self.random)]
        intent.operations = [("upsert", row) for row in rows]
        appender = BucketAppender(storage, spec, "0-1-0")
        appender.write(pa.Table.from_pylist(rows, schema=SCHEMA))
        stats = appender.close()
        self.pause_between(process, 100)
        with _JavaTurn(table.opened.seams) as completion:
            if storage.stat(inflight) is None:
                return  # rolled back
            target = f".hoodie/timeline/{instant}_{completion}.deltacommit"
            _java_put(storage, target, _metadata(stats, spec.user_schema))
            intent.fate = "committed"
            self.world.counts.commits += 1
            storage.settle([], [".hoodie/timeline"], durable=True)

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        strange = any(i.writer == "j1" for i in self.audit.committed())
        noticed = self.watch.foreign_noted()
        if self.exclusive and strange and not noticed:
            raise Violation("strangers", "another kind of writer was not noticed")


class _JavaTurn:
    """A section of Java's: the clock, then the wait, as ``SkewAdjustingTimeGenerator`` does it.

    The timeline is not asked. ``late``: the lock is free before the time is used.
    """

    def __init__(self, seams: Seams, *, late: bool = False) -> None:
        self._seams = seams
        self._late = late

    def __enter__(self) -> str:
        self._lease = self._seams.lock.acquire()
        try:
            now = self._seams.clock.now_ms()
            self._seams.clock.sleep_ms(SKEW_WAIT_MS)
        except BaseException:
            self._lease.release()
            raise
        if self._late:
            self._lease.release()
        return InstantTimes().format(now)

    def __exit__(self, *exception: object) -> None:
        if not self._late:
            self._lease.release()


class JavaCompactor(Compactor):
    """Plans under the lock, at a time taken there or, if it is ``late``, in an earlier section."""

    def __init__(self, seams: Seams, disk: Disk, *, late: bool) -> None:
        super().__init__(seams, disk, exclusive=False)
        self._late = late

    def _schedule(self) -> str:
        with _JavaTurn(self._seams, late=self._late) as time:
            if not self._late:
                self._plan_at(time)
                return time
        self._seams.clock.sleep_ms(self._seams.random.uniform(0, 400))
        lease = self._seams.lock.acquire()
        try:
            self._plan_at(time)
        finally:
            lease.release()
        return time

    def _plan_at(self, time: str) -> None:
        plan = self.content(before=time, marks={})
        _java_put(self._seams.storage, f".hoodie/timeline/{time}.compaction.requested", plan)
        self._seams.storage.settle([], [".hoodie/timeline"], durable=True)

    def _complete(self, time: str, stats: list[WriteStat]) -> None:
        with _JavaTurn(self._seams) as completion:
            target = f".hoodie/timeline/{time}_{completion}.commit"
            _java_put(self._seams.storage, target, _metadata(stats, "", "COMPACT"))
            self._seams.storage.settle([], [".hoodie/timeline"], durable=True)


def _java_put(storage: Storage, target: str, data: bytes) -> None:
    """As Java makes a file: by a rename, or on a store by a put."""
    if not has_links(storage):
        storage.put_new(target, data, durable=True)
        return
    storage.put_new(f"{target}.tmp-1", data, durable=True)
    storage.rename(f"{target}.tmp-1", target)


def _short_requests(drawn: Faults, rng: random.Random) -> Faults:
    """On a store, what a writer decided and could not put becomes visible when the next one of ours comes
    by, below what Java published in between (SAFETY.md): here nobody dies or gives up between the two."""
    none = replace(drawn, crash=0.0, error_before=0.0, interrupt=0.0, full_disk=0.0)
    return replace(none, repeated=rng.choice([0, 0.003, 0.03]))


def _metadata(stats: list[WriteStat], user_schema: str, operation: str = "UPSERT") -> bytes:
    """Commit metadata without our mark."""
    by_partition: dict[str, list] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition, []).append(stat.record())
    record = {
        "partitionToWriteStats": by_partition,
        "compacted": False,
        "extraMetadata": {"schema": user_schema},
        "version": None,
        "operationType": operation,
    }
    return encode_container(schema_text("HoodieCommitMetadata"), record, {})
