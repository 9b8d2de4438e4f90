"""An answer that indexes cut equals the full one, at every instant.

At each change of a timeline, of the table's properties or of its definitions, in the middle of whatever the
actor that made it is doing, a query with a filter is asked of the table as it stands on the disk. Meant are
the rows of the ledger, which knows nothing of indexes, that pass the filter. Now and then ``validate``
compares every index with the data: statistics bound it, a record index misses no key and a secondary index no
pair.

The questions come from a random source of their own, and asking is no call of the world's: nothing else in a
run changes by it.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.api.table import Table
from mainstem.errors import Unavailable
from mainstem.indexing.differences import OF_LISTS
from mainstem.storage import paths
from tests.sim.oracle import Row
from tests.sim.plain_format import TIMELINE, pending, timeline_name
from tests.sim.sim_storage import Disk
from tests.sim.world import Violation, World

_FOLDERS = (TIMELINE, paths.METADATA_TIMELINE)
# Between two steps of a build or a drop.
VALIDATED_EVERY = 12


class Answers:
    """``opened``: the table as it is now; ``rows``: what it must hold now, of ``schema``; ``functions``:
    whether questions are about functions of columns, too.

    ``asked`` counts the questions.
    """

    def __init__(
        self,
        world: World,
        disk: Disk,
        schema: pa.Schema,
        opened: Callable[[], Table],
        rows: Callable[[], list[Row]],
        random_source: random.Random,
        *,
        functions: bool = False,
    ) -> None:
        self._functions = functions
        self._world = world
        self._disk = disk
        self._schema = schema
        self._opened = opened
        self._rows = rows
        self._random = random_source
        self.asked = 0
        disk.watchers.append(self._event)

    def _event(self, event: str, path: str, source: str) -> None:
        folder, _, name = path.rpartition("/")
        instant = timeline_name(name) if folder in _FOLDERS else None
        if event == "listed" or not (instant or path == paths.PROPERTIES or name == "index.json"):
            return
        if instant and self._random.random() > (0.1 if instant.completion is None else 0.4):
            return  # what is pending shows little
        try:
            with self._unseen():
                self.check()
        except Violation as violation:
            self._world.fail(violation)
        except Exception as error:  # not to be taken for trouble of the actor that wrote
            self._world.fail(Violation("index answers", "".join(traceback.format_exception(error))))

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Calls that are nobody's: they take no time, and nothing goes wrong with them."""
        actor, self._world.current = self._world.current, None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # an index that cannot be used warns
                yield
        finally:
            self._world.current = actor

    def check(self) -> None:
        """Raises ``Violation`` where an index hides a row, or is not what the data say."""
        self.asked += 1
        table, rows = self._opened(), pa.Table.from_pylist(self._rows(), schema=self._schema)
        question = self._question(rows)
        plan = table.scan(columns=self._schema.names, filter=question)
        found, meant = _counted(plan.to_arrow()), _counted(rows.filter(question))
        if found != meant:
            raise Violation(
                "index answers",
                f"{question}: missing {meant - found}, too many {found - meant}; {plan.explain()}",
            )
        if self.asked % VALIDATED_EVERY == 0:
            self.validate(table)

    def validate(self, table: Table) -> None:
        """Every index against the data."""
        try:
            report = table.validate_metadata()
        except Unavailable:
            # A completed commit is being taken back, and the metadata table with its rows not yet set aside;
            # or a clean has removed what is listed until it is completed.
            if {"rollback", "clean"}.intersection(pending(self._disk).values()):
                return
            raise
        wrong = [] if report is None else [d for d in report.differences if d.kind not in OF_LISTS]
        if wrong:
            raise Violation("indexes agree with the data", f"{len(wrong)} times, first {wrong[0]}")

    def _question(self, rows: pa.Table) -> pc.Expression:
        """About a row that is there, mostly, by key, by another column, or by both."""
        rng = self._random
        row = rng.choice(rows.to_pylist() or [dict.fromkeys(rows.schema.names)])
        ts, mark = row["ts"], rng.choice([row["v"], row["a"], row["b"], "w0:1"])
        about = [
            pc.field("id") == (row["id"] or "k0"),
            pc.field("id").isin(["k1", row["id"] or "k2"]),
            pc.field("v") == (mark or "w1:1"),
            pc.field("v").isin([mark or "w1:1", "w2:9"]),
            (pc.field("a") == (mark or "w1:1")) | (pc.field("b") == (mark or "w1:1")),
            pc.field("ts").is_null() if ts is None else pc.field("ts") == ts,
            pc.field("ts") >= (19 if ts is None else ts),
            pc.field("ts") <= (0 if ts is None else ts),
            pc.field(rng.choice("vab")).is_null(),
            pc.field(rng.choice("vab")).is_valid() & (pc.field("part") == (row["part"] or "x")),
        ]
        if self._functions:
            about += [pc.utf8_upper(pc.field("v")) == (mark or "w1:1").upper()] * 4
        one = rng.choice(about)
        return one & rng.choice(about) if rng.random() < 0.2 else one


def _counted(rows: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows.to_pylist())

