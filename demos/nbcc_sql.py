"""Hudi's own demo of non-blocking concurrency control, in PyFlink: two SQL pipelines into one table path.

    python -m demos.nbcc_sql [--seconds 60] [--folder build/nbcc_sql]

The SQL is what Flink users of Hudi write, word for word, but for the path. A first job makes the table and
is stopped; then both pipelines run at once, with asynchronous compaction in the first, and are stopped by a
savepoint, so that every row that the source made is written. ``datagen`` makes random rows: what must be in
the table is what the commits say that they wrote. Afterwards the timeline is drawn.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import mainstem
from demos.flink_jobs import environment, stop
from demos.services_done import services_done
from demos.timeline_picture import (
    COMMITTED,
    LEGEND,
    Span,
    draw_svg,
    draw_text,
    draw_window,
    overlapping_pairs,
    read_picture,
)

FOLDER = Path(__file__).resolve().parents[1] / "build" / "nbcc_sql"
CHECKPOINT_S = 2
FIRST_S = 10
COMMIT_TIME = "_hoodie_commit_time"

SOURCE = """
CREATE TABLE sourceT (uuid varchar(20), name varchar(10), age int, ts timestamp(3), `partition` as 'par1')
  WITH ('connector' = 'datagen', 'rows-per-second' = '200');
"""
FIRST_TABLE = """
create table t1 (uuid varchar(20), name varchar(10), age int, ts timestamp(3), `partition` varchar(20))
  with ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ', 'index.type' = 'BUCKET',
        'hoodie.write.concurrency.mode' = 'NON_BLOCKING_CONCURRENCY_CONTROL', 'write.tasks' = '2');
"""
FIRST_INSERT = "insert into t1/*+options('metadata.enabled'='true')*/ select * from sourceT;"
SECOND_TABLE = """
create table t1_2 (uuid varchar(20), name varchar(10), age int, ts timestamp(3), `partition` varchar(20))
  with ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ', 'index.type' = 'BUCKET',
        'hoodie.write.concurrency.mode' = 'NON_BLOCKING_CONCURRENCY_CONTROL', 'write.tasks' = '2',
        'compaction.schedule.enabled' = 'false', 'compaction.async.enabled' = 'false',
        'clean.async.enabled' = 'false');
"""
PIPELINES = ("insert into t1 select * from sourceT;", "insert into t1_2 select * from sourceT;")


class CheckFailed(Exception):
    """The table does not hold what the commits say."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="so long both pipelines run")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="is deleted first")
    given = parser.parse_args(arguments)
    if find_spec("pyflink") is None:
        print("this demo needs apache-flink, which has wheels for Python 3.11 and 3.12", file=sys.stderr)
        return 1
    folder = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    path = folder / "t1"
    run(path, given.seconds)
    try:
        check(path)
    except CheckFailed as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    print("\nAll as it should be.")
    return 0


# ---------------------------------------------------------------- the SQL


def run(path: Path, seconds: int) -> None:
    """The statements, one after the other; only the two pipelines run at once."""
    from mainstem.flink import connect

    t = connect(environment({"execution.checkpointing.interval": f"{CHECKPOINT_S} s"}))
    savepoints = path.with_name("savepoints")
    _say(SOURCE)
    t.execute_sql(SOURCE)
    _say(create := FIRST_TABLE.format(path=path))
    t.execute_sql(create)
    _say(FIRST_INSERT)
    first = t.execute_sql(FIRST_INSERT)
    time.sleep(FIRST_S)
    stop(first, savepoints)
    _say(create := SECOND_TABLE.format(path=path))
    t.execute_sql(create)
    running = []
    for pipeline in PIPELINES:
        _say(pipeline)
        running.append(t.execute_sql(pipeline))
    print(f"  ... both for {seconds} s\n", flush=True)
    time.sleep(seconds)
    for job in running:
        stop(job, savepoints)


def _say(statement: str) -> None:
    print(f"Flink SQL> {statement.strip()}", flush=True)


# ---------------------------------------------------------------- afterwards


def check(path: Path) -> None:
    """Draw the timeline; then compare what every commit says that it wrote with what the table holds."""
    picture = read_picture(path)
    start, end = picture.range_ms
    print(f"{LEGEND}\n\n{draw_text(picture)}\n")
    print(draw_window(picture, (start + end) // 2 - 3_000, (start + end) // 2 + 3_000))
    svg = path.with_name("timeline.svg")
    svg.write_text(draw_svg([picture], heading="Two Flink SQL pipelines write one table"))
    print(f"the same as a picture: {svg}\n")
    commits = [span for span in picture.spans if span.state == COMMITTED]
    for writer in picture.writers:
        own = [span for span in picture.spans if span.writer == writer]
        lost = sum(span.state != COMMITTED for span in own)
        done = [span for span in own if span.state == COMMITTED]
        print(f"  {writer:<12} {len(done):>4} commits, {sum(s.rows for s in done):>8,} rows, {lost} aborts")
        if lost:
            raise CheckFailed(f"{writer}: {lost} transactions did not end in a commit")
    pairs = overlapping_pairs(picture.spans).total()
    print(f"  {pairs} pairs of transactions overlapped")
    print(f"  services beside them: {services_done(path).describe()}")
    compare(path, commits)


def compare(path: Path, commits: Sequence[Span]) -> None:
    """Every row is there, once: keys are random and never meet, so per commit as many as it wrote."""
    rows = mainstem.open_table(path).scan(columns=[COMMIT_TIME, "uuid"]).to_arrow()
    keys = len(rows["uuid"].unique())
    if keys != len(rows):
        raise CheckFailed(f"{len(rows):,} rows with {keys:,} different keys")
    found = Counter(rows[COMMIT_TIME].to_pylist())
    written = Counter({span.instant: span.rows for span in commits if span.rows})
    if found != written:
        different = {time for time in found.keys() | written.keys() if found[time] != written[time]}
        shown = ", ".join(f"{t}: {found[t]} of {written[t]}" for t in sorted(different)[:5])
        raise CheckFailed(f"{len(different)} commits whose rows are not there once: {shown}")
    print(f"{len(rows):,} rows of {len(written)} commits, every one there once")
    report = mainstem.open_table(path).validate_metadata()
    if report is None or not report.ok:
        raise CheckFailed(f"'metadata.enabled'='true', but the metadata table does not agree: {report}")
    print("the metadata table, which the first job made and both kept up, agrees with the data")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
