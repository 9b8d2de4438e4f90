"""Scenario ``vectors``: a vector index beside all writers and services of ``compacted``, rollbacks of
completed commits and restores; two refreshers, one who drops it and makes it anew, and searchers.

At changes of the timeline, of the list of vector indexes and of manifests, whatever their maker is in the
middle of, a search by the index and an exact one equal brute force over the rows that the ledger says there
are. What a searcher with a table of its own finds, which remembers graphs and deltas, equals brute force at
one moment of its search.

The engine is ``flat``, which is exact, so that every wrong answer is one of the index's upkeep.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError
from mainstem.storage import paths
from mainstem.vectors.index import lifecycle
from tests.sim.indexed_world import Compacted
from tests.sim.oracle import Intent, Row
from tests.sim.plain_format import TIMELINE, timeline_name
from tests.sim.tables_world import SCHEMA
from tests.sim.world import Process, Violation

COLUMN = "emb"
_DIMENSION = 3
_OPTIONS = {"engine": "flat", "metric": "l2", "clusters": "2"}

Found = list[tuple[str, str, float]]


def nearest(rows: Iterable[Row], query: list[float], k: int) -> Found:
    """Key, partition and distance of the ``k`` nearest rows, by looking at each."""
    measured = []
    for row in rows:
        if row[COLUMN] is not None:
            apart = sum((a - b) ** 2 for a, b in zip(row[COLUMN], query, strict=True)) ** 0.5
            measured.append((round(apart, 9), row["id"], row["part"]))
    return [(key, part, apart) for apart, key, part in sorted(measured)[:k]]


class Vectors(Compacted):
    """``compacted`` with a vector index; where the seed is even, no metadata table is made for its sake."""

    scenario = "vectors"
    schema = SCHEMA.append(pa.field(COLUMN, pa.list_(pa.float32())))
    busy_calls = 8_000

    def more_properties(self) -> dict[str, str]:
        return {**super().more_properties(), "hoodie.metadata.enable": str(bool(self.seed % 2)).lower()}

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] -= 4
        self._questions = random.Random(f"{self.seed}/questions")
        self._asking = self.world.process("questions")
        self.disk.watchers.append(self._event)
        if self.random.random() < 0.5:
            self.start("undoer'", self._chore(self._take_back), counted=False)
        for name in ("refresher", "refresher'"):
            self.start(name, self._chore(self._refresh), counted=False)
        if self.random.random() < 0.5:
            self.start("dropper", self._chore(self._drop), counted=False)
        for name in ("searcher", "searcher'"):
            self.start(name, self._searcher, counted=False)

    def _create(self) -> None:
        super()._create()
        self.open(self.world.process("builder")).create_index("vector", [COLUMN], options=_OPTIONS)

    def _write(self, txn: Any, intent: Intent, kind: str, rows: list[Row]) -> None:
        """Some rows have no vector, and updates of some columns leave it as it is."""
        for row in rows:
            some = kind == "upsert" and self.random.random() < 0.8
            row[COLUMN] = [float(self.random.randrange(8)) for _ in range(_DIMENSION)] if some else None
        super()._write(txn, intent, kind, rows)

    # -- the index -----------------------------------------------------------------------------------

    def _refresh(self, process: Process, table: Table) -> None:
        try:
            if self.random.random() < 0.5:
                table.refresh_index(COLUMN)
            else:
                for _ in lifecycle.tend(table.writer_context(), if_due=self.random.random() < 0.7):
                    continue
        except Invalid:
            self.world.counts.refused += 1  # dropped

    def _drop(self, process: Process, table: Table) -> None:
        self.pause_between(process, 8000)
        try:
            if self.random.random() < 0.5:
                table.drop_index(COLUMN)
            table.create_index("vector", [COLUMN], options=_OPTIONS)
        except Invalid:
            self.world.counts.refused += 1  # it is there, or somebody builds it

    def _searcher(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            crashes, before = self.world.counts.host_crashes, len(self.watch.published)
            query, k = self._question(self.random)
            found = self._patiently(process, lambda: self._search(table, query, k, exact=False))  # noqa: B023
            self.world.counts.reads += 1
            if crashes == self.world.counts.host_crashes:
                moments = (self._rows_after(count) for count in range(before, len(self.watch.published) + 1))
                self._check(found, [nearest(rows.values(), query, k) for rows in moments], "a searcher")
            self.pause_between(process, 1000)

    @staticmethod
    def _question(source: random.Random) -> tuple[list[float], int]:
        return [float(source.randrange(8)) for _ in range(_DIMENSION)], 1 + source.randrange(6)

    @staticmethod
    def _search(table: Table, query: list[float], k: int, *, exact: bool) -> Found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an index that goes, or comes, while it is searched
            shown = ["id", "part"]
            rows = table.search(COLUMN, query, k, metric="l2", exact=exact, columns=shown).to_pylist()
        return [(row["id"], row["part"], round(row["_hudi_distance"], 9)) for row in rows]

    @staticmethod
    def _check(found: Found, meant: list[Found], who: str) -> None:
        if found not in meant:
            raise Violation("nearest rows", f"{who} found {found}, of {len(meant)} moments first {meant[0]}")

    # -- at every instant ----------------------------------------------------------------------------

    def _event(self, event: str, path: str, source: str) -> None:
        folder, _, name = path.rpartition("/")
        instant = timeline_name(name) if folder == TIMELINE else None
        ours = path == paths.VECTOR_PROPERTIES or name == "manifest.json"
        if event == "listed" or self.settling or not (ours or (instant and instant.completion is not None)):
            return
        if self._questions.random() > (0.5 if ours else 0.3):
            return
        actor, self.world.current = self.world.current, None  # calls that are nobody's
        try:
            self._ask(self.open(self._asking), "the question at this instant")
        except Violation as violation:
            self.world.fail(violation)
        except Exception as error:  # not to be taken for trouble of the actor that made the change
            self.world.fail(Violation("nearest rows", "".join(traceback.format_exception(error))))
        finally:
            self.world.current = actor

    def _ask(self, table: Table, who: str) -> None:
        query, k = self._question(self._questions)
        meant = [nearest(self.rules.ledger.rows(self.mode).values(), query, k)]
        for exact in (False, True):
            self._check(self._search(table, query, k, exact=exact), meant, f"{who}, exact={exact},")

    # -- the end -------------------------------------------------------------------------------------

    def _serve(self, table: Table) -> None:
        super()._serve(table)
        self._quietly(lambda: table.drop_index(COLUMN) if table.index(COLUMN).state != "ready" else None)
        self._quietly(lambda: table.create_index("vector", [COLUMN], options=_OPTIONS))

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Invalid:  # it is not there, or it is
            self.world.counts.refused += 1

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        for _ in range(5):
            self._ask(table, "the last reader")
        table.refresh_index(COLUMN)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                rows = table.search(COLUMN, [0.0] * _DIMENSION, 1_000, columns=["id"]).num_rows
            except (Warning, MainstemError) as error:
                raise Violation("an index that is whole", repr(error)) from error
        meant = len(nearest(self.rules.ledger.rows(self.mode).values(), [0.0] * _DIMENSION, 1_000))
        if rows != meant:
            raise Violation("nearest rows", f"{rows} rows have vectors, expected {meant}")
        self._leftovers()

    def _leftovers(self) -> None:
        """After a refresh nothing is there but the versions of the index that is listed."""
        if builders := self.disk.folders.get(paths.VECTOR_BUILDERS):
            raise Violation("nothing left over", f"heartbeats of builders: {sorted(builders)}")
        for folder, names in self.disk.folders.items():
            version = paths.parse_vector_version(folder.rpartition("/")[2]) is not None
            if version and names and "manifest.json" not in names:
                raise Violation("nothing left over", f"{folder} has {sorted(names)} and no manifest")
