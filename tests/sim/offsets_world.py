"""Scenario ``offsets``: processes of one group bring a Kafka topic into a table, beside all of ``archives``.

The loop, the reading of the topic and the guard are production code (``ingestion.ingester``,
``ingestion.kafka_topic``, ``writers.stream_positions``); the broker is ``sim_broker``. Whoever dies, stops,
holds partitions that are no longer its own or commits with unknown outcome: each record is in exactly one
commit.
"""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.errors import MainstemError
from mainstem.ingestion import kafka_topic
from mainstem.ingestion.ingest_progress import IngestProgress
from mainstem.ingestion.ingester import Ingester, Pace
from mainstem.ingestion.json_rows import JsonDecoder
from mainstem.ingestion.kafka_topic import KafkaTopic, TopicIdentity
from mainstem.ingestion.target_table import NewTable, TargetTable
from mainstem.merge.rules import DELETED_COLUMN
from mainstem.writers.outcome import Outcome
from mainstem.writers.stream_positions import Positions, StreamPositions
from tests.sim.archive_world import Archives
from tests.sim.oracle import Intent, Row
from tests.sim.sim_broker import TOPIC, SimBroker, SimConsumer
from tests.sim.sim_clock import SimClock
from tests.sim.simulation import Result
from tests.sim.world import Process, Violation


class _Topic(KafkaTopic):
    """The topic, which is never created again."""

    def identity(self) -> TopicIdentity:
        return TopicIdentity("simulated", "1")


class _Recorded:
    """A transaction of an ingester, whose intent is written down as it is made."""

    def __init__(self, world: Offsets, txn: Any, intent: Intent) -> None:
        self._world, self._txn, self._intent = world, txn, intent

    def __enter__(self) -> _Recorded:
        self._txn.__enter__()
        return self

    def __exit__(self, *told: Any) -> Any:
        return self._txn.__exit__(*told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._txn, name)

    def write(self, rows: pa.Table) -> None:
        names = self._world.schema.names
        meant = [{n: row.get(n) for n in names} for row in rows.to_pylist()]
        self._intent.operations += [("upsert", row) for row in meant]
        self._txn.write(rows)

    def commit(self) -> Outcome:
        return self._world.told(self._txn.commit, self._intent)


class _Opened:
    """A table whose transactions are recorded."""

    def __init__(self, world: Offsets, process: Process, table: Table) -> None:
        self._world, self._process, self._table = world, process, table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def begin(self, kind: str, *, guard: StreamPositions, at_once: bool = False) -> _Recorded:
        txn, intent = self._world._begin(self._table, self._process.name, kind, guard=guard, at_once=at_once)
        self._world.moves[intent.instant] = (dict(guard.starts), dict(guard.ends))
        return _Recorded(self._world, txn, intent)


class _Target(TargetTable):
    def __init__(self, world: Offsets, opened: _Opened) -> None:
        self._world, self._opened, self._new = world, opened, NewTable()

    @property
    def base(self) -> str:
        return self._world.base

    @property
    def table(self) -> Any:
        return self._opened

    def positions(self, source: str) -> Positions:
        found = self._opened.opened.stream_positions(source)
        self._world.reach(found.ends)
        return found


class Offsets(Archives):
    """``archives`` with a group of ingesters. Offsets have gaps, as those of compacted topics have."""

    scenario = "offsets"
    busy_calls = 6000

    def _run(self) -> Result:
        with patch.object(kafka_topic, "client", lambda: self.broker):
            return super()._run()

    def build(self) -> None:
        rng = random.Random(f"{self.seed}/topic")
        #: instant -> starts and ends of its partitions
        self.moves: dict[str, tuple[dict[str, int | None], dict[str, int]]] = {}
        self.read_up_to: dict[str, int] = {}
        super().build()
        for name in self.left:
            self.left[name] = min(self.left[name], 4)
        logs: dict[int, list[tuple[int, bytes]]] = {}
        for partition in range(rng.choice([1, 2, 3])):
            offset, log = rng.randrange(2), []
            for _ in range(rng.choice([4, 8, 12])):
                log.append((offset, json.dumps(self._record(rng)).encode()))
                offset += rng.choice([1, 1, 1, 2, 4])
            logs[partition] = log
        self.broker = SimBroker(self.world, logs, f"{self.seed}/group")
        #: consumer -> the process that it is part of
        self.owners: dict[int, Process] = {}
        for number in range(rng.choice([1, 2, 2, 3])):
            self.start(f"s{number} ingests", self._ingests)
        self.start("coordinator", self._coordinates, counted=False)

    def _calm(self) -> None:
        super()._calm()
        self.broker.stale, self.broker.hears = 0.0, 1.0

    def _record(self, rng: random.Random) -> Row:
        row = self._rows(rng, "s0", 1)[0]
        return {name: value for name, value in row.items() if value is not None}

    def reach(self, ends: Mapping[str, int]) -> None:
        """The table is known to hold records up to these offsets."""
        for partition, end in ends.items():
            self.read_up_to[partition] = max(end, self.read_up_to.get(partition, 0))

    def _all_in(self) -> bool:
        return all(self.read_up_to.get(str(p), 0) >= end for p, end in sorted(self.broker.ends.items()))

    def _ingests(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        clock = SimClock(self.world, process)

        def told(progress: IngestProgress) -> None:
            self.reach(progress.positions)

        while not self._all_in():
            ingester = Ingester(
                _Target(self, _Opened(self, process, table)), JsonDecoder(lambda: ("id",), DELETED_COLUMN),
                functools.partial(_Topic, "sim", TOPIC, "group"), source=TOPIC,
                pace=Pace(every_s=0.2, rows=6), on_progress=told,
                now_s=lambda: clock.monotonic_ms() / 1000, sleep_s=lambda s: clock.sleep_ms(s * 1000),
            )  # fmt: skip
            self.owners[id(ingester._topic._consumer)] = process
            try:
                ingester.run(self._all_in)
            except MainstemError as error:
                self._accept(error)
                self.pause_between(process, 300)

    def _coordinates(self, process: Process) -> None:
        """Partitions change hands, and members that died are noticed with it; in the end, only that."""
        process.immune = True
        while not self.over():
            self.pause_between(process, 5000)
            if not self.calm or any(map(self._is_dead, self.broker.members)):
                self.broker.share_out(self._is_dead)

    def _is_dead(self, member: SimConsumer) -> bool:
        process = self.owners.get(id(member))
        return process is not None and process.dead

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        held: Counter[tuple[int, int]] = Counter()
        for intent in self.audit.committed():
            starts, ends = self.moves.get(intent.instant, ({}, {}))
            for name, end in sorted(ends.items()):
                low = starts[name] or 0
                held.update((int(name), o) for o, _ in self.broker.logs[int(name)] if low <= o < end)
        meant = {(p, offset) for p, log in sorted(self.broker.logs.items()) for offset, _ in log}
        wrong = {where: held[where] for where in sorted(meant) if held[where] != 1}
        if wrong:
            raise Violation("exactly once", f"records and how many commits hold them: {wrong}")
        found = table.opened.stream_positions(TOPIC).ends
        if found != {str(p): end for p, end in sorted(self.broker.ends.items()) if self.broker.logs[p]}:
            raise Violation("exactly once", f"the table stands at {found}, not at {self.broker.ends}")
        self._rows_of_records()

    def _rows_of_records(self) -> None:
        """What a commit wrote is what its offsets stand for."""
        for intent in self.audit.committed():
            starts, ends = self.moves.get(intent.instant, ({}, {}))
            meant = [
                json.loads(value)
                for name, end in sorted(ends.items())
                for offset, value in self.broker.logs[int(name)]
                if (starts[name] or 0) <= offset < end
            ]
            written = [{n: v for n, v in row.items() if v is not None} for _, row in intent.operations]
            if ends and sorted(map(str, meant)) != sorted(map(str, written)):
                raise Violation("exactly once", f"{intent.instant} wrote {written}, its offsets are {meant}")
