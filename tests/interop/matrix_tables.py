"""The tables of the interop matrix: how each kind is created, what is written to it, by us and by Java.

A `Bench` is one table together with the model of what it must answer. Whatever is written goes through
it, so the model hears of every commit; instants that Java made are found on the timeline.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
from java_hudi import nbcc_options
from matrix_cells import Kind
from matrix_model import Commit, Compaction, Model, Shape
from matrix_stores import Place

import mainstem

Rows = list[dict[str, Any]]

MARK = "_hoodie_is_deleted"
BUCKETS = 2
KEYS = 24
# What writers that meet send rows to; the other keys keep their rows in the base files.
CROSSED = range(6, KEYS)
FIELDS = [
    ("id", pa.string()),
    ("line", pa.int32()),
    ("region", pa.string()),
    ("city", pa.string()),
    ("ts", pa.int64()),
    ("seq", pa.int32()),
    ("name", pa.string()),
    ("price", pa.float64()),
    ("amount", pa.decimal128(12, 2)),
    ("day", pa.date32()),
    ("moment", pa.timestamp("us", "UTC")),
    ("tags", pa.list_(pa.string())),
]
REST = ("name", "price", "amount", "day", "moment", "tags")
# Nobody else writes while a table is prepared, on one machine with one clock.
NO_WAIT = {"hoodie.time.generator.max_expected_clock_skew_ms": "1"}
# No machine crashes here, and writers that meet are what is tested with Hudi's clock wait.
QUICK = {**NO_WAIT, "hoodie.mainstem.fsync": "false"}
# Without regard to time travel: what a clean leaves shows that nothing else was needed.
NEWEST_SLICES = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clean.fileversions.retained": "1",
}
# Both sides look for the lock every 50 ms; Java's default is 5 s.
PATIENCE = {
    "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
    "hoodie.write.lock.client.num_retries": "2400",
}


def schema_of(kind: Kind) -> pa.Schema:
    """The user columns."""
    marked = kind.merge in ("deletes", "several ordering fields")
    return pa.schema([*FIELDS, (MARK, pa.bool_())] if marked else FIELDS)


def shape_of(kind: Kind) -> Shape:
    """Keys, partitions and merge rules of a kind of table."""
    ordering: tuple[str, ...] = ("ts",)
    if kind.merge == "commit time":
        ordering = ()
    elif kind.merge == "several ordering fields":
        ordering = ("ts", "seq")
    two = kind.layout == "two levels"
    regions = {"non-partitioned": (), "hive-style": ("region",), "two levels": ("region", "city")}
    return Shape(
        record_key=("id", "line") if two else ("id",),
        partition_by=regions[kind.layout],
        hive_style=kind.layout == "hive-style",
        buckets=BUCKETS,
        ordering=ordering,
        partial=kind.merge == "partial update",
    )


MOMENT = dt.datetime(2024, 2, 29, 23, 59, tzinfo=dt.UTC)


def row(number: int, ts: int, commit: int, **other: Any) -> dict[str, Any]:
    """Row of key ``number``; every cell says which commit wrote it. ``other`` replaces cells."""
    made = {
        "id": f"k{number} é𝄞",
        "line": number % 3,
        "region": ("emea", "apac")[number % 2],
        "city": ("paris", "tokyo", "new york", "seoul")[number % 4],
        "ts": ts,
        "seq": commit,
        "name": None if (number + commit) % 5 == 0 else f"name {number} of {commit} ü",
        "price": number + commit / 8,
        "amount": Decimal(number * 1000 + commit) / 100,
        "day": dt.date(2024, 1, 31) + dt.timedelta(days=31 * number + commit),
        "moment": MOMENT + dt.timedelta(seconds=ts, microseconds=commit),
        "tags": [] if number % 7 == 0 else [f"t{number}", "", f"c{commit}"][: 1 + commit % 3],
    }
    return {**made, **other}


@dataclass(frozen=True)
class Step:
    """One commit: ``upsert`` of rows, ``delete`` of rows, or ``update`` of some columns of rows.

    ``more``: rows of a second write of the same transaction, which mainstem alone can do.
    """

    operation: str
    rows: Rows
    columns: tuple[str, ...] = ()
    more: Rows = field(default_factory=list)


def first_steps(kind: Kind) -> Iterator[Step]:
    """What is written before the first compaction."""
    yield Step("upsert", [row(n, 100, 1) for n in range(KEYS)])
    yield Step("upsert", [row(n, 200 if n % 2 else 50, 2) for n in range(4, 14)])  # even keys are late
    yield _special(kind, 3, range(6, 16))


def later_steps(kind: Kind) -> Iterator[Step]:
    """What is written onto the base files: newer, equal and late rows, new keys, deletes, revivals."""
    rows = [row(n, (300, 100, 20)[n % 3], 4) for n in range(8, 20)]
    yield Step("upsert", [*rows, *(row(n, 100, 4) for n in range(KEYS, KEYS + 6))])
    yield Step("delete", [row(n, 0, 5) for n in (0, 1, 9, 20, 21, KEYS)])
    yield _special(kind, 6, range(10, 18))
    revived = [row(0, 10, 7), row(9, 150, 7), row(KEYS, 400, 7)]
    again = [row(22, 450, 7, name="late in its own commit"), row(3, 500, 7), row(23, 90, 7)]
    yield Step("upsert", [*revived, row(22, 500, 7)], more=again)


def last_steps(kind: Kind) -> Iterator[Step]:
    """What is written after the second compaction."""
    yield Step("upsert", [row(n, (600, 40)[n % 2], 8) for n in range(5, 27, 2)])
    yield _special(kind, 9, range(12, 20))


def _special(kind: Kind, commit: int, numbers: Sequence[int]) -> Step:
    """The commit that this merge kind is about; ``commit`` is its number in the history."""
    ts = 100 * commit
    if kind.merge == "partial update":
        columns = (("name", "price"), ("amount", "tags"), ("day", "moment"))[commit // 3 - 1]
        full = (row(n, ts if n % 3 else 30, commit) for n in numbers)
        return Step("update", [{**r, "name": f"set by {commit}"} for r in full], columns)
    if kind.merge == "deletes":  # newer, late and equal deletes beside rows
        times = (ts, 20, 100)
        return Step("upsert", [row(n, times[n % 3], commit, **{MARK: n % 4 != 0}) for n in numbers])
    if kind.merge == "several ordering fields":  # the first field ties, the second decides; deletes too
        return Step(
            "upsert",
            [row(n, 100, commit, seq=(0, 1, commit)[n % 3], **{MARK: n % 4 == 1}) for n in numbers],
        )
    if kind.merge == "commit time":  # event times run backwards: they do not matter
        return Step("upsert", [row(n, 1000 - ts, commit) for n in numbers])
    return Step("upsert", [row(n, (ts, 100, 99)[n % 3], commit) for n in numbers])


def crossing_batch(kind: Kind, writer: int, turn: int) -> Rows:
    """Rows that several writers send to the same keys; in event time no two of a key are equal."""
    chance = random.Random(f"{kind} {writer} {turn}")
    made = []
    for number in chance.sample(CROSSED, 12):
        time = (chance.randrange(1, 5000) * 100 + turn) * 10 + writer
        cells: dict[str, Any] = {"seq": writer}
        if kind.merge == "several ordering fields":  # ties of the first field are the rule
            time, cells["seq"] = 100 + chance.randrange(3), chance.randrange(1000) * 100 + turn * 10 + writer
        if MARK in schema_of(kind).names:
            cells[MARK] = chance.random() < 0.3
        if kind.merge == "partial update":
            cells.update({name: None for name in REST if chance.random() < 0.5})
        made.append(row(number, time, 20 + writer * 10 + turn, **cells))
    return made


class Bench:
    """One table, who writes it, and what it must answer."""

    def __init__(
        self,
        place: Place,
        kind: Kind,
        name: str,
        lock: Mapping[str, str] | None = None,
        *,
        by_java: bool = False,
    ) -> None:
        self.java, self.kind, self.path = place.java, kind, f"{place.root}/{name}"
        self.schema, self.shape = schema_of(kind), shape_of(kind)
        self.model = Model(self.shape)
        self._lock = dict(place.lock if lock is None else lock)
        self._store = dict(place.options)
        self._by_java = by_java
        self._seen: set[str] = set()
        #: requested times of commits that mainstem made
        self.ours: set[str] = set()
        if not by_java:
            self._create()

    # -- options ---------------------------------------------------------------------------------

    def _blocks(self) -> dict[str, str]:
        """Avro is what both write when they are not told."""
        parquet = {"hoodie.logfile.data.block.format": "parquet"}
        return parquet if self.kind.blocks == "parquet" else {}

    def _layout(self) -> dict[str, str]:
        """Tables of version 10 have no log blocks, but a storage layout."""
        return {"hoodie.table.storage.layout": self.kind.blocks} if self.kind.version >= 10 else {}

    def _create(self) -> None:
        shape = self.shape
        properties = {**self._store, **self._lock, **self._layout()}
        if shape.hive_style:
            properties["hoodie.datasource.write.hive_style_partitioning"] = "true"
        if shape.partial:
            properties["hoodie.table.partial.update.mode"] = "IGNORE_DEFAULTS"
        mainstem.create_table(
            self.path,
            self.schema,
            record_key=shape.record_key,
            ordering=shape.ordering,
            partition_by=shape.partition_by,
            buckets=BUCKETS,
            table_version=self.kind.version,
            properties=properties,
            name="matrix",
        )

    def table(self, **options: str) -> mainstem.Table:
        """Our side. A table that Java made says nothing of index and lock: we are told as Java is."""
        given = {
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "SIMPLE",
            "hoodie.bucket.index.num.buckets": str(BUCKETS),
            **self._blocks(),
            **self._store,
            **self._lock,
            **options,
        }
        return mainstem.open_table(self.path, properties=given)

    def java_options(self, operation: str = "upsert", **more: str) -> dict[str, str]:
        """Java's side."""
        shape = self.shape
        extra = {
            "hoodie.write.table.version": str(self.kind.version),
            "hoodie.memory.dfs.buffer.max.size": "65536",
            "hoodie.datasource.write.hive_style_partitioning": str(shape.hive_style).lower(),
            **self._blocks(),
            **self._layout(),
            **self._lock,
            **more,
        }
        if shape.partial:
            extra["hoodie.write.partial.update.mode"] = "IGNORE_DEFAULTS"
            extra["hoodie.table.partial.update.mode"] = "IGNORE_DEFAULTS"
        if shape.partial and self._by_java:  # the Spark writer creates such a table from the payload alone
            payload = "org.apache.hudi.common.model.PartialUpdateAvroPayload"
            extra["hoodie.datasource.write.payload.class"] = payload
        return nbcc_options(
            "matrix",
            record_key=shape.record_key,
            partition_by=shape.partition_by,
            ordering=shape.ordering,
            buckets=BUCKETS,
            operation=operation,
            extra=extra,
        )

    # -- writing ---------------------------------------------------------------------------------

    def arrow(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows with the table's columns."""
        return pa.Table.from_pylist([dict(r) for r in rows], schema=self.schema)

    def we_write(self, steps: Iterable[Step], **options: str) -> None:
        """Commits of ours, one per step."""
        table = self.table(**QUICK, **options)
        for step in steps:
            rows = self.arrow(step.rows)
            if step.operation == "delete":
                outcome = table.delete(rows.select(self._named(step)))
            elif step.operation == "update":
                outcome = table.update_columns(rows.select(self._named(step)))
            else:
                with table.begin() as txn:
                    txn.write(rows)
                    txn.write(self.arrow(step.more))
                    outcome = txn.commit()
            assert outcome.status == "committed"
            self.record(outcome.instant, outcome.completion_time, step)

    def _named(self, step: Step) -> list[str]:
        """The columns that a delete, or an update of some columns, is given."""
        ordering = self.shape.ordering if step.operation == "update" else ()
        names = (*self.shape.record_key, *self.shape.partition_by, *ordering, *step.columns)
        return list(dict.fromkeys(names))

    def record(self, requested: str | None, completion: str | None, step: Step) -> None:
        """Tells the model of a commit of ours."""
        assert requested and completion
        rows = step.rows
        if step.operation == "update":
            named = self._named(step)
            rows = [{k: v if k in named else None for k, v in r.items()} for r in rows]
        self.model.add(requested, completion, rows, step.more, delete=step.operation == "delete")
        self.ours.add(requested)
        self._seen.add(requested)

    def java_writes(self, steps: Iterable[Step]) -> None:
        """Commits of Java, one per step."""
        for step in steps:
            assert step.operation != "update" and not step.more
            self.java.write(self.path, self.arrow(step.rows), self.java_options(step.operation, **NO_WAIT))
            self.record_java([step])

    def record_java(self, steps: Sequence[Step]) -> None:
        """Tells the model of commits that Java made since the last call, in the order of their instants."""
        new = [i for i in self.done() if i.action == "deltacommit" and i.requested not in self._seen]
        assert len(new) == len(steps), f"Java was to commit {len(steps)} times, the timeline shows {new}"
        for instant, step in zip(new, steps, strict=True):
            self.model.add(instant.requested, instant.completion or "", step.rows,
                           delete=step.operation == "delete")  # fmt: skip
            self._seen.add(instant.requested)

    def has_foreign_instant(self) -> bool:
        """Whether there is an instant, pending or not, that the model does not know of."""
        known = self._seen | {c.requested for c in self.model.compactions}
        found = mainstem.open_table(self.path, self._store).timeline()
        return any(i.action == "deltacommit" and i.requested not in known for i in found)

    def java_compacts(self) -> None:
        """Plan and execution."""
        requested = self.java.compact(self.path, self.java_options(**NO_WAIT))
        done = {i.requested: i for i in self.done()}
        self.model.compactions.append(Compaction(requested, done[requested].completion or ""))

    def java_cleans(self) -> None:
        """Only the newest file slices stay."""
        self.java.clean(self.path, self.java_options(**NO_WAIT, **NEWEST_SLICES))

    def we_compact_and_clean(self) -> None:
        """By mainstem; only the newest file slices stay."""
        table = self.table(**QUICK, **NEWEST_SLICES)
        planned = [done.requested for done in table.compact()]
        done = {i.requested: i for i in self.done()}
        self.model.compactions += [Compaction(at, done[at].completion or "") for at in planned]
        table.clean()

    def cleans(self) -> int:
        """Completed cleans, whoever made them."""
        return sum(i.action == "clean" for i in self.done())

    def done(self) -> list[Any]:
        """Completed instants, by requested time."""
        return [i for i in mainstem.open_table(self.path, self._store).timeline() if i.completion]

    # -- what both must read ---------------------------------------------------------------------

    def writes(self) -> list[Commit | Compaction]:
        """Everything that completed, by completion time."""
        both = [*self.model.commits, *self.model.compactions]
        return sorted(both, key=lambda i: i.completion)

    def overlaps(self) -> tuple[int, int]:
        """Pairs of open transactions that overlapped in time: Java's with ours, ours with ours."""
        mixed = own = 0
        for at, one in enumerate(self.model.commits):
            for other in self.model.commits[at + 1 :]:
                if other.requested < one.completion and one.requested < other.completion:
                    both = (one.requested in self.ours) + (other.requested in self.ours)
                    mixed += both == 1
                    own += both == 2
        return mixed, own
