"""Scenario ``indexes``: every kind of index is built, dropped, built again, used and compacted beside all
writers and services.

``compacted`` with fewer commits, and for each of ``kinds`` an indexer, or two; a dropper, and a reader whose
filters indexes answer. At changes of either timeline and of the lists of indexes, whatever their maker is in
the middle of, a filtered query equals the full answer and now and then every index equals the data
(``answers``); ``files`` always equals the listing (``metadata_rules``).

``indexes-of-files`` is the same with the indexes whose rows are each of one file, beside column statistics. A
new kind of index only has to be named in ``KINDS`` or ``KINDS_OF_FILES``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow.compute as pc

from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError
from mainstem.formats.java_properties import parse_properties
from mainstem.indexing.index_build import Built
from mainstem.indexing.index_lists import READY
from mainstem.options import UNSAFE_FOR_JAVA
from mainstem.storage import paths
from tests.sim.answers import Answers
from tests.sim.indexed_world import Compacted
from tests.sim.tables_world import SCHEMA
from tests.sim.world import Process


@dataclass(frozen=True)
class KindOfIndex:
    """``create_index(kind, columns, name=name, options=dict(options))``."""

    kind: str
    columns: tuple[str, ...] = ()
    name: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def partition(self) -> str:
        """Its partition of the metadata table."""
        return self.kind if self.name is None else f"{self.kind}_{self.name}"

    def create(self, table: Table) -> Built:
        """Build it."""
        return table.create_index(self.kind, self.columns, name=self.name, options=dict(self.options))


KINDS = (
    KindOfIndex("column_stats", ("ts", "v", "a")),
    KindOfIndex("partition_stats"),
    KindOfIndex("record_index"),
    KindOfIndex("secondary_index", ("v",), "by_v"),
)
KINDS_OF_FILES = (
    KindOfIndex("bloom_filters", options=((UNSAFE_FOR_JAVA, "true"),)),
    KindOfIndex(
        "expr_index", ("v",), "upper",
        (("expr", "upper"), ("type", "column_stats"), (UNSAFE_FOR_JAVA, "true")),
    ),
)  # fmt: skip


class Indexes(Compacted):
    """``compacted`` with indexers of each of ``kinds`` and a dropper."""

    scenario = "indexes"
    restores_too = False  # of which ``compacted`` has enough
    kinds = KINDS
    asks_functions = False
    busy_calls = 10_000

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] -= 4
        process = self.world.process("questions")
        self.answers = Answers(
            self.world,
            self.disk,
            SCHEMA,
            lambda: self.open(process),
            lambda: list(self.rules.ledger.rows(self.mode).values()),
            random.Random(f"{self.seed}/questions"),
            functions=self.asks_functions,
        )
        for wanted in self.kinds:
            for name in ["indexer", "indexer'"][: self.random.choice([1, 1, 2])]:
                self.start(f"{name} {wanted.partition}", self._indexer(wanted))
        if self.random.random() < 0.7:
            self.start("dropper", self._dropper, counted=False)
        self.start("asker", self._asker, counted=False)

    def _listed(self) -> set[str]:
        """Indexes that readers use."""
        found = self.disk.get(paths.PROPERTIES)
        text = b"" if found is None else bytes(found.data)
        return set(parse_properties(text, path=paths.PROPERTIES).get(READY, "").split(","))

    def _indexer(self, wanted: KindOfIndex) -> Callable[[Process], None]:
        def body(process: Process) -> None:
            table = self._patiently(process, lambda: self.open(process))
            for _ in range(4):
                self.pause_between(process, 3000)
                self._unless_refused(lambda: self._build(table, wanted))

        return body

    def _build(self, table: Table, wanted: KindOfIndex) -> None:
        if wanted.partition not in self._listed():
            wanted.create(table)
        elif self.random.random() < 0.3:
            table.reindex(wanted.partition)

    def _dropper(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            self.pause_between(process, 5000)
            self._unless_refused(lambda: table.drop_index(self._any_name(), if_exists=True))

    def _serve(self, table: Table) -> None:
        """What died builders and droppers left goes, then every index is whole."""
        for index in table.indexes():
            if index.state != "ready":
                table.drop_index(index.partition)
        for wanted in self.kinds:
            if wanted.partition not in self._listed():
                wanted.create(table)
        super()._serve(table)

    def _any_name(self) -> str:
        return self.random.choice(self.kinds).partition

    def _unless_refused(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Invalid:
            self.world.counts.refused += 1  # somebody else builds or drops it, or another one rests on it
        except MainstemError as error:
            self._accept(error)

    def _asker(self, process: Process) -> None:
        """Filtered queries that take their time, beside everybody."""
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            self._patiently(process, lambda: self._ask(table))
            self.world.counts.reads += 1
            self.pause_between(process, 1500)

    def _ask(self, table: Table) -> None:
        crashes, before = self.world.counts.host_crashes, len(self.watch.published)
        least = 1 + self.random.randrange(19)
        rows = table.scan(columns=SCHEMA.names, filter=pc.field("ts") >= least).to_arrow().to_pylist()
        if crashes == self.world.counts.host_crashes:
            self._matches_some_moment(rows, before, lambda row: (row["ts"] or 0) >= least)


class IndexesOfFiles(Indexes):
    """``indexes`` with kinds whose rows are each of one file."""

    scenario = "indexes-of-files"
    kinds = (KINDS[0], *KINDS_OF_FILES)
    asks_functions = True
