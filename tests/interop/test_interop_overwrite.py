"""Goal: overwrites beside Java's and our own writers and compactions lose nothing and bring nothing back, and
Java reads the same.

Method: Java upserts and compacts in a loop, a mainstem process upserts, and this process overwrites one
partition after another. What must be there follows from the batches, the overwrites' requested times and the
other commits' completion times alone: of a partition the rows of its last overwrite, and of every commit that
completed after that was requested, the row with the newest event time of each key. Then step by step: a write
or a compaction of Java's and an overwrite of ours, each of which begins and ends, in every order of the four;
Java's process is stopped between its two.
"""

from __future__ import annotations

from pathlib import Path

import event_batches
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same, without_meta
from dead_writes import dies_at, dies_with_its_files, files_of
from java_hudi import JavaHudi, changes_options
from test_interop_concurrent import JAVA, Run, wait_for

import mainstem
from mainstem.storage import paths

CITIES = ("paris", "rome", "oslo")
OVERWRITER = 5
SERVICES = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}


@pytest.fixture
def run(java: JavaHudi, tmp_path: Path) -> Run:
    return Run.on_new_table(java, tmp_path, "overwritten")


def of_city(rows: pa.Table, city: str) -> pa.Table:
    return rows.filter(pc.equal(rows["city"], city))


@pytest.mark.timeout(900)
def test_overwrites_beside_java_hide_what_was_there_and_nothing_that_came_later(
    java: JavaHudi, run: Run
) -> None:
    table = mainstem.open_table(run.path)
    files = [java.rows_file(event_batches.batch(JAVA, commit)) for commit in range(5)]
    overwrites: list[tuple[str, str, pa.Table]] = []
    try:
        run.start(0)
        (run.signals / "go").touch()
        wait_for(lambda: run.writers[0].commits())
        java.send("write_loop", path=run.path, files=files, options={**run.options, **SERVICES})
        while not java.answered():
            number = len(overwrites)
            rows = of_city(event_batches.batch(OVERWRITER, number), CITIES[number % 3])
            outcome = table.insert_overwrite(rows)
            overwrites.append((outcome.instant or "", CITIES[number % 3], rows))
        java.receive()
        (run.signals / "stop").touch()
        for writer in run.writers:
            writer.finish()
    finally:
        for writer in run.writers:
            writer.end()
    assert len(overwrites) >= 3
    timeline = [i for i in table.timeline() if i.completion]
    assert [i for i in timeline if i.action == "commit"], "nothing was compacted"

    known = {instant for instant, _, _ in overwrites}
    ours = {line["instant"]: line["commit"] for line in run.writers[0].commits()}
    deltas = sorted((i for i in timeline if i.action == "deltacommit"), key=lambda i: i.requested)
    theirs = [i.requested for i in deltas if i.requested not in known | ours.keys()]
    assert len(theirs) == len(files)
    written = {t: event_batches.batch(JAVA, commit) for commit, t in enumerate(theirs)}
    written |= {t: event_batches.batch(0, commit) for t, commit in ours.items()}
    completed = {i.requested: i.completion or "" for i in deltas}
    expected = []
    for city in CITIES:
        last, _, rows = max(one for one in overwrites if one[1] == city)
        later = [of_city(batch, city) for t, batch in written.items() if completed[t] > last]
        expected.append(event_batches.newest([rows, *later]))
    snapshot = table.scan().to_arrow()
    assert_same(pa.concat_tables(expected), without_meta(snapshot), ["id"])
    assert_same(java.read(run.path), snapshot, ["id"])
    assert_same(java.read_by_default(run.path), snapshot, ["id"])
    table.upsert(event_batches.batch(OVERWRITER, len(overwrites)))  # else Java may have compacted all by now
    snapshot = table.scan().to_arrow()
    java.compact(run.path, run.options)
    again = table.scan().to_arrow()
    assert_same(without_meta(snapshot), without_meta(again), ["id"])
    assert_same(java.read(run.path), again, ["id"])


def test_java_reads_and_goes_on_with_a_truncated_table_and_a_deleted_partition(
    java: JavaHudi, run: Run
) -> None:
    table = mainstem.open_table(run.path)
    for commit in range(2):
        java.write(run.path, event_batches.batch(JAVA, commit), run.options)
    before = table.timeline()[-1]
    old = table.scan().to_arrow()
    table.delete_partition("rome")
    assert_same(java.read(run.path), table.scan().to_arrow(), ["id"])
    assert "rome" not in java.read(run.path)["city"].to_pylist()
    table.truncate()
    assert java.read(run.path).num_rows == 0 and java.read_optimized(run.path).num_rows == 0
    assert_same(java.read_as_of(run.path, before.requested), old, ["id"])
    java.write(run.path, event_batches.batch(JAVA, 7), run.options)
    assert_same(event_batches.batch(JAVA, 7), without_meta(java.read(run.path)), ["id"])
    java.compact(run.path, run.options)
    java.clean(run.path, {**run.options, "hoodie.clean.commits.retained": "1"})
    assert_same(event_batches.batch(JAVA, 7), without_meta(table.scan().to_arrow()), ["id"])
    assert_same(java.read(run.path), table.scan().to_arrow(), ["id"])


#: R and C: Java's transaction is requested, and completes; r and c: ours
ORDERS = ("RCrc", "RrCc", "RrcC", "rRCc", "rRcC", "rcRC")


class Rounds:
    """Steps of both engines on one table, and what must be there after them."""

    def __init__(self, java: JavaHudi, run: Run) -> None:
        self.java, self.run, self.table = java, run, mainstem.open_table(run.path)
        self.number = 0
        self.overwrites: list[tuple[str, str, pa.Table]] = []
        self.written: dict[str, pa.Table] = {}
        self.theirs: list[str] = []

    def batch(self, writer: int) -> pa.Table:
        self.number += 1
        return event_batches.batch(writer, self.number)

    def known(self) -> set[str]:
        return {i.requested for i in self.table.timeline()}

    def java_requests(self) -> None:
        """Java begins to write, and stands still before it completes."""
        before, rows = self.known(), self.batch(JAVA)
        arguments = {"rows": self.java.rows_file(rows), "options": self.run.options, "mode": "append"}
        self.java.send("write", path=self.run.path, types={}, **arguments)
        timeline = Path(self.run.path, ".hoodie/timeline")

        def began() -> str:
            new = {name.name.split(".")[0] for name in timeline.glob("*.deltacommit.inflight")} - before
            return next(iter(new), "")

        wait_for(began)
        self.java.stop()
        self.theirs.append(began())
        self.written[self.theirs[-1]] = rows

    def java_completes(self) -> None:
        self.java.go_on()
        self.java.receive()

    def java_plans(self) -> None:
        self.plan = self.java.schedule_compaction(self.run.path, self.run.options)
        assert self.plan is not None

    def java_executes(self) -> None:
        self.java.run_compaction(self.run.path, self.run.options, self.plan)

    def request(self) -> None:
        self.city = CITIES[self.number % 3]
        self.rows = of_city(self.batch(OVERWRITER), self.city)
        self.txn = self.table.begin("insert_overwrite")
        self.txn.write(self.rows)

    def complete(self) -> None:
        with self.txn:
            outcome = self.txn.commit()
        self.overwrites.append((outcome.instant or "", self.city, self.rows))

    def upsert(self) -> None:
        """Of ours, so that there are logs to compact."""
        rows = self.batch(0)
        self.written[self.table.upsert(rows).instant or ""] = rows

    def expected(self) -> pa.Table:
        completed = {i.requested: i.completion or "" for i in self.table.timeline() if i.completion}
        found = []
        for city in CITIES:
            last, _, rows = max((one for one in self.overwrites if one[1] == city), default=("", "", None))
            later = [of_city(batch, city) for t, batch in self.written.items() if completed[t] > last]
            found.append(event_batches.newest([*later, *([rows] if rows is not None else [])]))
        return pa.concat_tables(found)

    def order(self) -> str:
        """In which order Java's newest write and our newest overwrite really began and ended."""
        completed = {i.requested: i.completion or "" for i in self.table.timeline()}
        theirs, ours = max(self.theirs), self.overwrites[-1][0]
        times = {"R": theirs, "C": completed[theirs], "r": ours, "c": completed[ours]}
        return "".join(sorted(times, key=times.__getitem__))

    def check(self, after: str) -> None:
        """Snapshots of both engines are the ledger's; what changed since ``after`` is the same to both."""
        found = self.table.scan().to_arrow()
        assert_same(self.expected(), without_meta(found), ["id"])
        changes = self.table.changes(after=after).to_arrow()
        theirs = self.java.read_many(self.run.path, [{}, changes_options(after)])
        for one, other in zip(theirs, (found, changes), strict=True):
            assert_same(one, other, ["id"])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("beside", ["a write", "a compaction"])
def test_steps_of_java_and_of_an_overwrite_give_the_same_in_every_order(
    java: JavaHudi, run: Run, beside: str
) -> None:
    rounds = Rounds(java, run)
    steps = {"r": rounds.request, "c": rounds.complete}
    if beside == "a write":
        steps |= {"R": rounds.java_requests, "C": rounds.java_completes}
    else:
        steps |= {"R": rounds.java_plans, "C": rounds.java_executes}
    for order in ORDERS:
        rounds.upsert()
        rounds.upsert()
        after = max(i.completion or "" for i in rounds.table.timeline())
        try:
            for step in order:
                steps[step]()
        finally:
            java.go_on()
        if beside == "a write":
            assert rounds.order() == order
        rounds.check(after)


#: before which call of storage an overwrite is killed, and whether it is published then. From the second one
#: on it holds the lock, which mainstem takes over at once and Java waits for.
DEATHS = [
    ("upload", paths.PREPARED, 1, False),
    ("link", "/unshown/", 2, False),
    ("delete", "/showing-", 1, True),
]


@pytest.mark.timeout(900)
def test_java_loses_no_row_beside_an_overwrite_that_is_killed(java: JavaHudi, run: Run) -> None:
    rounds = Rounds(java, run)
    rounds.upsert()
    for call, of, nth, published in DEATHS:
        before, rows = rounds.known(), of_city(rounds.batch(OVERWRITER), "rome")
        dies_at(run.path, rows, call, of, nth)
        (dead,) = rounds.known() - before
        if published:
            rounds.overwrites.append((dead, "rome", rows))
        if of != paths.PREPARED:
            rounds.upsert()
        shown = [name for name in files_of(run.path, dead) if name.endswith(".parquet")]
        before, theirs = rounds.known(), rounds.batch(JAVA)
        java.write(run.path, theirs, run.options)
        (written,) = rounds.known() - before
        rounds.written[written] = theirs
        java.compact(run.path, run.options)
        for found in (java.read(run.path), rounds.table.scan().to_arrow()):
            assert_same(rounds.expected(), without_meta(found), ["id"])
        assert bool(shown) == published


@pytest.mark.timeout(900)
def test_java_rolls_an_overwrite_back_that_died_and_restores_to_before_and_after_one(
    java: JavaHudi, run: Run
) -> None:
    rounds = Rounds(java, run)
    for _ in range(2):
        rounds.upsert()
    rounds.table.compact()
    rounds.upsert()
    before = rounds.table.scan().to_arrow()
    saved = rounds.table.savepoint().instant
    rows = of_city(rounds.batch(OVERWRITER), "rome")
    dead = dies_with_its_files(rounds.table, rows, "insert_overwrite")
    assert files_of(run.path, dead)
    java.clean(run.path, run.options)
    assert not files_of(run.path, dead)
    assert_same(java.read(run.path), before, ["id"])
    assert_same(rounds.table.scan().to_arrow(), before, ["id"])

    rounds.request()
    rounds.complete()
    java.write(run.path, rounds.batch(JAVA), run.options)
    overwritten = rounds.table.scan().to_arrow()
    later = rounds.table.savepoint().instant
    rounds.upsert()
    for savepoint, meant in ((later, overwritten), (saved, before)):
        java.call(
            "sql", conf=run.options,
            text=f"call rollback_to_savepoint(path => '{run.path}', instant_time => '{savepoint}')",
        )  # fmt: skip
        assert_same(rounds.table.scan().to_arrow(), meant, ["id"])
        assert_same(java.read(run.path), meant, ["id"])
        rounds.table.delete_savepoint(savepoint)  # Java restores to no time before another one
    java.write(run.path, rounds.batch(JAVA), run.options)
    assert_same(java.read(run.path), rounds.table.scan().to_arrow(), ["id"])
