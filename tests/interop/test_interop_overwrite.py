"""Goal: overwrites beside Java's and our own writers and compactions lose nothing and bring nothing back, and
Java reads the same.

Method: Java upserts and compacts in a loop, a mainstem process upserts, and this process overwrites one
partition after another. What must be there follows from the batches, the overwrites' requested times and the
other commits' completion times alone: of a partition the rows of its last overwrite, and of every commit that
completed after that was requested, the row with the newest event time of each key.
"""

from __future__ import annotations

from pathlib import Path

import event_batches
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same, without_meta
from java_hudi import JavaHudi
from test_interop_concurrent import JAVA, Run, wait_for

import mainstem

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
