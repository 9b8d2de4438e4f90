"""The main job: three Spark streams write two tables at once, one is killed, and pandas checks.

    python -m demos.main_job [--days 365] [--files 40] [--folder build/demo]

Each stream is one PySpark Structured Streaming query in a driver process of its own, with its own
checkpoint and a clock that is seconds off. All three write at the same time, on the same keys, to

  wide    one row per flight, of which each stream fills its own columns: COMMIT_TIME_ORDERING with
          hoodie.table.partial.update.mode=IGNORE_DEFAULTS
  status  the newest event of each flight, whatever order events come in: EVENT_TIME_ORDERING

One writer is killed with -9 in the middle of a transaction and started again. Beside the streams, in
their processes, table services compact, clean and archive the tables all the while. In the end both
tables are compared, cell by cell, with what pandas computes from the input.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import mainstem
from demos import flights
from demos.compare import differences
from demos.services_done import services_done
from demos.stream_writer import STATUS, WIDE, table_options
from demos.supervise import Writer, WriterFailed
from demos.timeline_picture import (
    COMMITTED,
    LEGEND,
    Picture,
    Span,
    draw_svg,
    draw_text,
    draw_window,
    open_transactions,
    overlapping_pairs,
    read_picture,
)

FOLDER = Path(__file__).resolve().parents[1] / "build" / "demo"
BUCKETS = 4
CLOCK_OFFSETS_MS = {"schedule": 0, "departure": 3_000, "arrival": -2_000}
KILLED = "departure"
# On each table, of 3 x 40 transactions; 36 to 63 were seen on two cores that had other work too.
PAIRS_MIN = 10
TIME_LIMIT_S = 600
ROLLBACK_LIMIT_S = 60
PROGRESS_EVERY_S = 10
KILLS_MAX = 5


class CheckFailed(Exception):
    """The demo did not show what it is there to show."""


@dataclass(frozen=True)
class Job:
    """One run: where, what the tables must hold, how many pairs of transactions must overlap."""

    folder: Path
    files: int
    pairs_min: int
    events: Mapping[str, int]
    expected: Mapping[str, pa.Table]

    def path(self, table: str) -> Path:
        return self.folder / table


#: table -> requested times of the transactions that the killed writer left behind
Dead = Mapping[str, frozenset[str]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--days", type=int, default=None, help="only the flights of the first days")
    parser.add_argument("--files", type=int, default=40, help="micro-batches per stream")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="is deleted first")
    parser.add_argument(
        "--pairs-min", type=int, default=PAIRS_MIN, help="overlapping transactions, on each table"
    )
    given = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        job = prepare(given.folder.resolve(), given.days, given.files, given.pairs_min)
        dead = run_writers(job, started)
        check(job, dead)
    except (CheckFailed, WriterFailed) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    print(f"\nAll as it should be, in {time.monotonic() - started:.0f} s.")
    return 0


# ---------------------------------------------------------------- before


def prepare(folder: Path, days: int | None, files: int, pairs_min: int) -> Job:
    """Make the input, compute with pandas what must come out, create the tables."""
    shutil.rmtree(folder, ignore_errors=True)
    rows = flights.read_flights(days)
    events = flights.make_events(rows)
    flights.write_files(events, folder / "events", files)
    expected = {WIDE: flights.expected_wide(events), STATUS: flights.expected_status(events)}
    for name, table in expected.items():
        pq.write_table(table, folder / f"expected_{name}.parquet")
    create_tables(folder)
    counts = {stream: len(part) for stream, part in events.items()}
    told = ", ".join(f"{stream} {count:,}" for stream, count in counts.items())
    print(f"{len(rows):,} flights as {sum(counts.values()):,} events ({told}), some late, some twice")
    return Job(folder, files, pairs_min, counts, expected)


def create_tables(folder: Path) -> None:
    """The wide and the status table, partitioned by origin, each partition in buckets."""
    mainstem.create_table(
        folder / WIDE,
        flights.WIDE_SCHEMA,
        record_key=flights.KEY,
        partition_by=[flights.PARTITION],
        buckets=BUCKETS,
        properties={
            "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
            "hoodie.mainstem.exclusive": "true",
        },
    )
    mainstem.create_table(
        folder / STATUS,
        flights.STATUS_SCHEMA,
        record_key=flights.KEY,
        ordering=["event_time"],
        partition_by=[flights.PARTITION],
        buckets=BUCKETS,
    )


# ---------------------------------------------------------------- while they run


def run_writers(job: Job, started: float) -> Dead:
    """Run the three writers to their end; kill one in between and start it again."""
    writers = {stream: Writer(stream, job.folder, offset) for stream, offset in CLOCK_OFFSETS_MS.items()}
    skews = ", ".join(f"{w.stream} {w.clock_offset_ms / 1000:+.0f} s" for w in writers.values())
    print(f"starting three Spark drivers; their clocks: {skews}", flush=True)
    try:
        for writer in writers.values():
            writer.start()
        dead = kill_one(job, writers, started)
        watch(writers, lambda: all(w.finished for w in writers.values()), started)
    finally:
        for writer in writers.values():
            writer.kill()
    print(
        f"{_clock(started)}  all done; {KILLED} ran its last batch again after the kill:"
        f" {writers[KILLED].said.replayed} of its 2 writes stood already and was not repeated"
    )
    return dead


def kill_one(job: Job, writers: Mapping[str, Writer], started: float) -> Dead:
    """Kill a writer inside a transaction, at a third of its batches, and start it again."""
    victim = writers[KILLED]
    status = job.path(STATUS)
    watch(writers, lambda: len(victim.said.batches) >= job.files // 3, started)
    for _ in range(KILLS_MAX):
        victim.kill_when(lambda: bool(open_transactions(status, KILLED)), TIME_LIMIT_S)
        dead = {name: open_transactions(job.path(name), KILLED) for name in (WIDE, STATUS)}
        done = len(victim.said.batches)
        left = sorted(set().union(*dead.values()))
        print(
            f"{_clock(started)}  kill -9 {victim.pid} ({KILLED}), which leaves behind"
            f" {', '.join(left) or 'nothing'}; started again",
            flush=True,
        )
        victim.start()
        if left:
            return dead
        watch(writers, lambda done=done: len(victim.said.batches) > done, started)
    raise CheckFailed(f"{KILLS_MAX} kills, and never inside a transaction")


def watch(writers: Mapping[str, Writer], until: object, started: float) -> None:
    """Print a line of progress every few seconds until ``until()``; fail when a writer fails."""
    assert callable(until)
    next_line = time.monotonic() + PROGRESS_EVERY_S
    while not until():
        for writer in writers.values():
            writer.check()
        if time.monotonic() - started > TIME_LIMIT_S:
            raise CheckFailed(f"not done after {TIME_LIMIT_S} s")
        if time.monotonic() >= next_line:
            print(_clock(started) + "".join(_progress(w) for w in writers.values()), flush=True)
            next_line += PROGRESS_EVERY_S
        time.sleep(0.2)


def _progress(writer: Writer) -> str:
    said = writer.said
    state = "done" if said.ended else f"{len(said.batches):3} batches" if said.batches else "starting"
    return f"  {writer.stream}: {state:<11} {said.rows:>9,} rows"


def _clock(started: float) -> str:
    return f"{time.monotonic() - started:4.0f} s"


# ---------------------------------------------------------------- afterwards


def check(job: Job, dead: Dead) -> None:
    """Everything that must hold, printed while it is found out."""
    pictures = {}
    for name in (WIDE, STATUS):
        table = mainstem.open_table(job.path(name), properties=table_options("check", 0))
        finish_services(table, dead[name])
        owners = dict.fromkeys(dead[name], KILLED)
        pictures[name] = read_picture(job.path(name), title=name, dead=owners)
    print(f"\n{LEGEND}")
    for picture in pictures.values():
        draw(picture, dead)
    svg = job.folder / "timeline.svg"
    heading = "Three Spark streams write the same keys at once; one is killed and rolled back"
    svg.write_text(draw_svg(list(pictures.values()), heading=heading))
    print(f"the same as a picture: {svg}\n")
    for name, picture in pictures.items():
        count_transactions(job, name, picture, dead[name])
        tell_of_services(job, name)
    for name in pictures:
        compare(job, name)


def finish_services(table: mainstem.Table, dead: frozenset[str]) -> None:
    """Go on with what the processes left half done, until the dead writer's instants and all plans are
    gone; other writers may have done it already."""
    limit = time.monotonic() + ROLLBACK_LIMIT_S
    while pending := [i for i in table.timeline() if i.completion is None]:
        if time.monotonic() > limit:
            raise CheckFailed(f"{table.path}: still pending after {ROLLBACK_LIMIT_S} s: {pending}")
        table.rollback_failed_writes()
        table.run_services()
        time.sleep(0.5)
    left = [i for i in table.timeline() if i.requested in dead]
    if left:
        raise CheckFailed(f"{table.path}: the dead writer's instants are still there: {left}")


def draw(picture: Picture, dead: Dead) -> None:
    print(f"\n{draw_text(picture)}\n")
    lost = [s for s in picture.spans if s.instant in dead[picture.title]]
    middle = lost[0].start_ms if lost else sum(picture.range_ms) // 2
    window = 12_000 if lost else 6_000
    print(draw_window(picture, middle - 2_000, middle - 2_000 + window))


def count_transactions(job: Job, name: str, picture: Picture, dead: frozenset[str]) -> None:
    """Print rows, commits and aborts per writer; every batch once, no abort, enough overlaps."""
    print(f"{name} table")
    aborted = 0
    for stream, events in job.events.items():
        own = [s for s in picture.spans if s.writer == stream]
        commits = [s for s in own if s.state == COMMITTED]
        lost = [s for s in own if s.state != COMMITTED]
        killed = sum(s.instant in dead for s in lost)
        aborted += len(lost) - killed
        rows = sum(s.rows for s in commits)
        told = f", {killed} killed in flight and rolled back" if killed else ""
        print(
            f"  {stream:<10} {events:>8,} events, {rows:>8,} rows sent, {len(commits):>3} commits,"
            f" {len(lost) - killed} aborts{told}"
        )
        _check_batches(job, name, stream, commits)
        if name == STATUS and rows != events:
            raise CheckFailed(f"{stream} committed {rows:,} rows of {events:,} events to {name}")
    aborted += sum(s.writer not in job.events for s in picture.spans)
    if aborted:
        raise CheckFailed(f"{aborted} transactions of the {name} table were aborted, expected none")
    _check_overlaps(job, name, picture)


def _check_batches(job: Job, name: str, stream: str, commits: Sequence[Span]) -> None:
    """Each micro-batch stands on the timeline exactly once, replayed or not."""
    batches = Counter(_batch_id(span) for span in commits)
    if batches != Counter(range(job.files)):
        twice = sorted(b for b, count in batches.items() if count > 1)
        missing = sorted(set(range(job.files)) - set(batches))
        raise CheckFailed(f"{stream} on {name}: batches {twice} twice, {missing} missing")


def _batch_id(span: Span) -> int:
    """From the form in which Java's streaming sink keeps it, too."""
    (number,) = json.loads((span.extra or {})["_hudi_streaming_sink_checkpoint"]).values()
    return int(number)


def _check_overlaps(job: Job, name: str, picture: Picture) -> None:
    pairs = overlapping_pairs(picture.spans)
    told = ", ".join(f"{a} and {b} {count}" for (a, b), count in sorted(pairs.items()))
    print(f"  overlapping pairs of transactions: {pairs.total()} ({told})")
    if pairs.total() < job.pairs_min:
        raise CheckFailed(
            f"{pairs.total()} pairs overlapped on {name}, expected at least {job.pairs_min}: the"
            " writers did not run at the same time"
        )


def tell_of_services(job: Job, name: str) -> None:
    """Print what services did beside the streams; then a last round, which leaves nothing to merge."""
    done = services_done(job.path(name))
    print(f"  services beside them: {done.describe()}")
    if not (done.compactions and done.cleans and done.archived):
        raise CheckFailed(f"{name}: services beside the streams left something undone: {done}")
    table = mainstem.open_table(job.path(name), properties=table_options("check", 0))
    failed = [run for run in table.run_services(if_due=False) if run.error is not None]
    if failed:
        raise CheckFailed(f"{name}: {failed[0].describe()}")


def compare(job: Job, name: str) -> None:
    """Both the snapshot and, after the last compaction, the base files alone are what pandas computed."""
    expected = job.expected[name]
    columns = expected.schema.names
    table = mainstem.open_table(job.path(name))
    for mode in ("snapshot", "read_optimized"):
        different = differences(table.scan(columns=columns, mode=mode).to_arrow(), expected)
        if different:
            told = "\n  ".join(different)
            raise CheckFailed(f"{name} ({mode}) differs from what pandas computed:\n  {told}")
    cells = len(columns) * len(expected)
    print(f"{name}: {len(expected):,} rows, {cells:,} cells, all equal to what pandas computed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
