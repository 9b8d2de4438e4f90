"""The main job: three Spark streams write two tables at once, one is killed, and pandas checks.

    python -m demos.main_job [--days 365] [--files 40] [--folder build/demo] [--store s3] [--cluster]

Each stream is one PySpark Structured Streaming query in a driver process of its own, with its own
checkpoint and a clock that is seconds off. All three write at the same time, on the same keys, to

  wide    one row per flight, of which each stream fills its own columns: COMMIT_TIME_ORDERING with
          hoodie.table.partial.update.mode=IGNORE_DEFAULTS
  status  the newest event of each flight, whatever order events come in: EVENT_TIME_ORDERING

While they write, three processes build three indexes of the wide table at once: a record index, a secondary
index and column statistics; the same questions are asked before and afterwards. One writer is killed with -9
in the middle of a transaction and started again. Beside the streams, in their processes, table services
compact, clean and archive the tables all the while. In the end both tables are compared, cell by cell, with
what pandas computes from the input, and their metadata tables with the data.

With --store tables, events, checkpoints and locks lie in an object store. With --cluster the streams' tasks
run on a standalone Spark cluster of two hosts that share nothing but the store, the services are a Spark job
of their own, and one host is killed with all that runs on it, instead of a writer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

import mainstem
from demos import flights
from demos.compare import differences
from demos.index_builds import IndexBuilds
from demos.places import Place
from demos.questions import WrongAnswer, ask, questions
from demos.services_done import services_done
from demos.stream_writer import STATUS, WIDE, table_options
from demos.supervise import Process, Writer, WriterFailed
from demos.throughput_picture import Throughput, draw_throughput, draw_throughput_svg
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

if TYPE_CHECKING:
    from tests.servers.spark_cluster import SparkCluster

FOLDER = Path(__file__).resolve().parents[1] / "build" / "demo"
BUCKETS = 4
CLOCK_OFFSETS_MS = {"schedule": 0, "departure": 3_000, "arrival": -2_000}
KILLED = "departure"
# On each table, of 3 x 40 transactions; 36 to 63 were seen on two cores that had other work too.
PAIRS_MIN = 10
# Of each stream, completed after the indexes were whole: all three wrote all the while.
LEFT_MIN = 1
# Mean rows per second are those of so long before and after the builds.
AROUND_MS = 15_000
TIME_LIMIT_S = 1800
ROLLBACK_LIMIT_S = 60
SERVICES_LIMIT_S = 120
PROGRESS_EVERY_S = 10
KILLS_MAX = 5


class CheckFailed(Exception):
    """The demo did not show what it is there to show."""


@dataclass(frozen=True)
class Job:
    """One run: where, what the tables must hold, how many pairs of transactions must overlap, how many
    commits each stream must have left when the indexes were whole."""

    place: Place
    folder: Path
    files: int
    pairs_min: int
    left_min: int
    events: Mapping[str, int]
    expected: Mapping[str, pa.Table]
    builds: IndexBuilds

    def path(self, table: str) -> str:
        return self.place.path(table)


#: table -> requested times of the transactions that the killed writer left behind
Dead = Mapping[str, frozenset[str]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--days", type=int, default=None, help="only the flights of the first days")
    parser.add_argument("--files", type=int, default=40, help="micro-batches per stream")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="is deleted first")
    parser.add_argument(
        "--store",
        help="s3: in a MinIO that is started for it; s3://BUCKET/PREFIX: there, where nothing may lie yet",
    )
    parser.add_argument("--endpoint", help="of the server of s3://BUCKET, if it is not Amazon's")
    parser.add_argument("--cluster", action="store_true", help="on a Spark cluster, and in a store")
    parser.add_argument(
        "--pairs-min", type=int, default=PAIRS_MIN, help="overlapping transactions, on each table"
    )
    parser.add_argument(
        "--left-min", type=int, default=LEFT_MIN, help="commits of each stream after the indexes were built"
    )
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and hosts of the run end with it
    started = time.monotonic()
    try:
        with opened_place(given) as place:
            job = prepare(given, place)
            with nullcontext() if not given.cluster else spark_cluster(job.folder) as cluster:
                dead = run_writers(job, cluster, started)
            check(job, dead)
    except (CheckFailed, WriterFailed, WrongAnswer) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    print(f"\nAll as it should be, in {time.monotonic() - started:.0f} s.")
    return 0


# ---------------------------------------------------------------- before


@contextmanager
def opened_place(given: argparse.Namespace) -> Iterator[Place]:
    """Where the tables are to lie; a server that is started for it ends behind the block."""
    folder, store = given.folder.resolve(), given.store or ("s3" if given.cluster else "")
    shutil.rmtree(folder, ignore_errors=True)
    if not store:
        yield Place(folder)
    elif store == "s3":
        from tests.servers.object_stores import Minio

        with Minio() as server:
            server.make_bucket("demo")
            os.environ |= server.variables()
            print(f"MinIO at {server.endpoint}: tables, events, checkpoints and locks lie there")
            yield Place("s3://demo/main")
    else:
        if given.endpoint:
            os.environ["AWS_ENDPOINT_URL"] = given.endpoint
        place = Place(store)
        if place.files().get_file_info(fs.FileSelector("", allow_not_found=True)):
            raise CheckFailed(f"{store} is not empty: choose another prefix")
        yield place


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A master and two workers, each with a home and temporary files of its own."""
    from tests.servers.hosts import Host
    from tests.servers.spark_cluster import SparkCluster

    hosts = [Host(f"worker-{number}", folder / f"hosts/worker-{number}") for number in (1, 2)]
    with SparkCluster(folder / "logs", Host("master"), hosts, cores=8, memory="5g") as cluster:
        yield cluster


def prepare(given: argparse.Namespace, place: Place) -> Job:
    """Make the input, compute with pandas what must come out, create the tables."""
    folder, files = given.folder.resolve(), given.files
    rows = flights.read_flights(given.days)
    events = flights.make_events(rows)
    flights.write_files(events, folder / "events", files)
    expected = {WIDE: flights.expected_wide(events), STATUS: flights.expected_status(events)}
    for name, table in expected.items():
        pq.write_table(table, folder / f"expected_{name}.parquet")
    if place.in_store:
        place.upload(folder / "events", "events")
    create_tables(place)
    counts = {stream: len(part) for stream, part in events.items()}
    told = ", ".join(f"{stream} {count:,}" for stream, count in counts.items())
    print(f"{len(rows):,} flights as {sum(counts.values()):,} events ({told}), some late, some twice")
    first = files // 3
    asked = questions(expected[WIDE], events, files, first)
    # By the clock that is most ahead the timeline tells how long builds took.
    builds = IndexBuilds(folder / "logs", place.path(WIDE), max(CLOCK_OFFSETS_MS.values()), asked, first)
    return Job(place, folder, files, given.pairs_min, given.left_min, counts, expected, builds)


def create_tables(place: Place) -> None:
    """The wide and the status table, partitioned by origin, each partition in buckets, both with a metadata
    table."""
    mainstem.create_table(
        place.path(WIDE),
        flights.WIDE_SCHEMA,
        record_key=flights.KEY,
        partition_by=[flights.PARTITION],
        buckets=BUCKETS,
        properties={
            "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
            "hoodie.metadata.enable": "true",
            "hoodie.mainstem.exclusive": "true",
        },
    )
    mainstem.create_table(
        place.path(STATUS),
        flights.STATUS_SCHEMA,
        record_key=flights.KEY,
        ordering=["event_time"],
        partition_by=[flights.PARTITION],
        buckets=BUCKETS,
        properties={"hoodie.metadata.enable": "true"},
    )


# ---------------------------------------------------------------- while they run


def run_writers(job: Job, cluster: SparkCluster | None, started: float) -> Dead:
    """Run the three writers to their end, beside them the builds of indexes; kill one writer in between and
    start it again, or one host of the cluster."""
    running = Running(job, cluster, started)
    skews = ", ".join(f"{w.stream} {w.clock_offset_ms / 1000:+.0f} s" for w in running.writers.values())
    print(f"starting three Spark drivers; their clocks: {skews}", flush=True)
    try:
        for process in running.processes:
            process.start()
        job.builds.start(running.writers)
        dead = kill_one(running) if cluster is None else kill_host(running, cluster)
        watch(running, lambda: all(w.finished for w in running.writers.values()) and job.builds.done)
        if cluster is not None:
            wait_until = time.monotonic() + SERVICES_LIMIT_S
            watch(running, lambda: running.served.enough() or time.monotonic() > wait_until)
    finally:
        job.builds.end()
        for process in running.processes:
            process.kill()
    told = f"; the job of services had something to do {running.served.rounds} times"
    if cluster is None:
        replayed = running.writers[KILLED].said.replayed
        told = (
            f"; {KILLED} ran its last batch again after the kill: {replayed} of its 2 writes stood already"
            " and was not repeated"
        )
    print(f"{running.clock}  all done{told}")
    return dead


class Running:
    """The processes of a run. On a cluster its services are one more, which nobody counts on to end."""

    def __init__(self, job: Job, cluster: SparkCluster | None, started: float) -> None:
        self.job, self.started = job, started
        place, logs, master = job.place.base, job.folder / "logs", "" if cluster is None else cluster.url
        self.writers = {
            stream: Writer(stream, place, logs, offset, master) for stream, offset in CLOCK_OFFSETS_MS.items()
        }
        self.processes: list[Process] = list(self.writers.values())
        self.served = Served()
        if cluster is not None:
            command = [sys.executable, "-m", "demos.spark_services", place, master]
            self.processes.append(Process(command, logs / "services.log", self.served))

    @property
    def clock(self) -> str:
        return f"{time.monotonic() - self.started:4.0f} s"


@dataclass
class Served:
    """What the services' job did: rounds in which there was something to do, and (table, service)."""

    rounds: int = 0
    done: set[tuple[str, str]] = field(default_factory=set)

    def note(self, what: dict[str, object]) -> None:
        if "served" in what:
            self.rounds += 1
            services = what["services"]
            assert isinstance(services, list)
            self.done |= {(str(what["served"]), service) for service in services}

    def enough(self) -> bool:
        """Whether both tables were compacted, cleaned and archived."""
        wanted = {(t, service) for t in (WIDE, STATUS) for service in ("compact", "clean", "archive")}
        return wanted <= self.done


def kill_one(running: Running) -> Dead:
    """Kill a writer inside a transaction, after half of its batches, and start it again."""
    job, victim = running.job, running.writers[KILLED]
    status = job.path(STATUS)
    watch(running, lambda: len(victim.said.batches) >= job.files // 2)
    for _ in range(KILLS_MAX):
        victim.kill_when(lambda: bool(open_transactions(status, KILLED)), TIME_LIMIT_S)
        dead = {name: open_transactions(job.path(name), KILLED) for name in (WIDE, STATUS)}
        done = len(victim.said.batches)
        left = sorted(set().union(*dead.values()))
        print(
            f"{running.clock}  kill -9 {victim.pid} ({KILLED}), which leaves behind"
            f" {', '.join(left) or 'nothing'}; started again",
            flush=True,
        )
        victim.start()
        if left:
            return dead
        watch(running, lambda done=done: len(victim.said.batches) > done)
    raise CheckFailed(f"{KILLS_MAX} kills, and never inside a transaction")


def kill_host(running: Running, cluster: SparkCluster) -> Dead:
    """Kill a worker host with all that runs there, inside a transaction whose rows executors write.

    Nothing is started again: Spark runs the tasks on the other host, and no transaction is given up.
    """
    job, host = running.job, cluster.workers[0]
    watch(running, lambda: len(running.writers[KILLED].said.batches) >= job.files // 2)
    watch(running, lambda: bool(open_transactions(job.path(WIDE), KILLED)))
    host.kill()
    print(
        f"{running.clock}  kill -9 for all that runs on host {host.name}, while {KILLED} was writing",
        flush=True,
    )
    return {WIDE: frozenset(), STATUS: frozenset()}


def watch(running: Running, until: Callable[[], bool]) -> None:
    """Print a line of progress every few seconds until ``until()``; fail when a process or an index does."""
    next_line = time.monotonic() + PROGRESS_EVERY_S
    while not until():
        for process in running.processes:
            process.check()
        running.job.builds.check()
        if time.monotonic() - running.started > TIME_LIMIT_S:
            raise CheckFailed(f"not done after {TIME_LIMIT_S} s")
        if time.monotonic() >= next_line:
            print(running.clock + "".join(map(_progress, running.writers.values())), flush=True)
            next_line += PROGRESS_EVERY_S
        time.sleep(0.2)


def _progress(writer: Writer) -> str:
    said = writer.said
    state = "done" if said.ended else f"{len(said.batches):3} batches" if said.batches else "starting"
    return f"  {writer.stream}: {state:<11} {said.rows:>9,} rows"


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
    tell_of_indexes(job, pictures)
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


def tell_of_indexes(job: Job, pictures: Mapping[str, Picture]) -> None:
    """Draw rows per second while indexes were built; then the questions, once more at the end, when nobody
    writes, with and without indexes: ``ask`` checks the rows."""
    builds = job.builds
    made = [told.build for told in builds.told if told.build is not None]
    throughput = Throughput.of(list(pictures.values()), made)
    print(f"\n{draw_throughput(throughput)}")
    svg = job.folder / "throughput.svg"
    heading = "Rows per second of three Spark streams, while three indexes are built beside them"
    svg.write_text(draw_throughput_svg(throughput, heading=heading))
    print(f"the same as a picture: {svg}\n\nindexes of the {WIDE} table, built at once by three processes")
    for told in builds.told:
        assert told.build is not None
        print(f"  {told.index:<24} {told.rows:>9,} rows in {told.seconds:4.1f} s")
    begin, end = min(b.start_ms for b in made), max(b.end_ms for b in made)
    rates = [(begin - AROUND_MS, begin), (begin, end), (end, end + AROUND_MS)]
    before, beside, after = (throughput.total(*window) for window in rates)
    print(f"  rows per second: {before:,.0f} before, {beside:,.0f} while they were built, {after:,.0f} after")
    _check_writing(job, pictures, begin, end)
    print("\nquestions to it, all answers equal to what pandas computed; the quickest of three tries")
    for kind, question in builds.questions.items():
        print(f"  {question.text} (rows: {len(question.answer)})")
        print(f"    while they write, before {builds.before[kind].describe()}")
        print(f"    while they write, after  {builds.after[kind].describe()}")
        print(f"    at the end, without      {ask(job.path(WIDE), question, indexes=False).describe()}")
        print(f"    at the end, with indexes {ask(job.path(WIDE), question).describe()}")


def _check_writing(job: Job, pictures: Mapping[str, Picture], begin: int, end: int) -> None:
    """Every stream went on to write after the indexes were whole."""
    spans = [s for p in pictures.values() for s in p.spans if s.state == COMMITTED]
    beside = Counter(s.writer for s in spans if s.end_ms is not None and begin < s.end_ms < end)
    later = Counter(s.writer for s in spans if s.end_ms is not None and s.end_ms > end)
    for name, counts in (("while they were built", beside), ("after", later)):
        print(f"  commits {name}: " + ", ".join(f"{stream} {counts[stream]}" for stream in job.events))
    if min(later[stream] for stream in job.events) < job.left_min:
        raise CheckFailed(f"expected that each stream had {job.left_min} commits left: not all wrote beside")


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
    report = table.validate_metadata()
    if report is None or not report.ok:
        told = "no metadata table" if report is None else "\n  ".join(map(str, report.differences[:10]))
        raise CheckFailed(f"the metadata table of {name} differs from the data:\n  {told}")
    compared = ", ".join(f"{p.partition} {p.rows:,} rows" for p in report.partitions if p.partition)
    print(f"{name}: metadata table as the data says: {compared}")
    cells = len(columns) * len(expected)
    print(f"{name}: {len(expected):,} rows, {cells:,} cells, all equal to what pandas computed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
