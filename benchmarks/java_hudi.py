"""What Java Hudi 1.2.0 (Spark 3.5) does here: upsert batches, commits per second, its sink.

Every function takes the rows from its caller, so that mainstem is measured with the very same rows
in the same run, and returns figures; nothing is printed here. The JVM is warmed up on another table
first: its start and its first commits are in no figure. Java runs without a metadata table, without
cleaning, archival and compaction, which only makes it faster. Java does not fsync on a local file
system.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_HARNESS = Path(__file__).resolve().parents[1] / "tests" / "interop" / "java_hudi.py"


def _harness() -> ModuleType:
    """The Java harness of the interop tests, loaded by path: tests are not installed."""
    name = "mainstem_interop_java_hudi"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _HARNESS)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def is_available() -> bool:
    """Whether the venv with Spark 3.5 is there (`make interop` creates it)."""
    return bool(python().exists())


def python() -> Path:
    """The Python of that venv."""
    return _harness().PYTHON


@dataclass(frozen=True, slots=True)
class JavaTable:
    """How the measured table is keyed; the same words as `mainstem.create_table`."""

    record_key: tuple[str, ...]
    ordering: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    buckets: int = 8

    def options(self, name: str, **extra: str) -> dict[str, str]:
        """Writer options of a Spark job."""
        options: dict[str, str] = _harness().nbcc_options(
            name,
            record_key=self.record_key,
            partition_by=self.partition_by,
            ordering=self.ordering,
            buckets=self.buckets,
        )
        # Writers of a benchmark meet at the lock all the time: let Java look for it often.
        options["hoodie.write.lock.client.wait_time_ms_between_retry"] = "20"
        options["hoodie.write.lock.client.num_retries"] = "3000"
        options.update({key.replace("__", "."): value for key, value in extra.items()})
        return options


@dataclass(frozen=True, slots=True)
class UpsertFigures:
    """Seconds per batch and the rows of all batches; bytes are those of the table's data files."""

    seconds: list[float]
    rows: int
    bytes: int

    @property
    def rows_per_second(self) -> float:
        """Over all batches."""
        return self.rows / sum(self.seconds)


@dataclass(frozen=True, slots=True)
class CommitFigures:
    """Commits of all writers, seconds from the common start to the last end, seconds of each."""

    writers: int
    commits: int
    seconds: float
    latencies: list[float] = field(repr=False)
    slowest_writer: float = 0.0
    mean_writer: float = 0.0

    @property
    def commits_per_second(self) -> float:
        """All writers together."""
        return self.commits / self.seconds


@dataclass(frozen=True, slots=True)
class SinkFigures:
    """Rows that the streaming query read, its micro-batches and seconds."""

    rows: int
    batches: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Of the whole query."""
        return self.rows / self.seconds


def upsert_batches(
    batches: Sequence[pa.Table], folder: Path, table: JavaTable, *, cores: int = 2, warm: int = 3
) -> UpsertFigures:
    """Upserts the batches one after the other, one commit each, into a new table under `folder`."""
    path = folder / "java_upserts"
    with _harness().JavaHudi(cores=cores, memory="3g") as java:
        for turn in range(warm):
            small = batches[turn % len(batches)].slice(0, 5_000)
            java.write(folder / "java_warm", small, table.options("java_warm"))
        names = [java.rows_file(batch) for batch in batches]
        answer = java.call(
            "write_loop", path=str(path), files=names, options=table.options("java_upserts")
        )
    seconds = [commit["end"] - commit["start"] for commit in answer["commits"]]
    return UpsertFigures(seconds, sum(b.num_rows for b in batches), _data_bytes(path))


def snapshot_seconds(
    tables: Mapping[str, Path], *, repeats: int, cores: int = 2, warm: int = 2
) -> dict[str, float]:
    """Median seconds of a snapshot of all columns into Spark's ``noop`` sink, per table, on a warm JVM."""
    found = {}
    with _harness().JavaHudi(cores=cores, memory="3g") as java:
        for name, path in tables.items():
            answer = java.call("read_loop", path=str(path), times=warm + repeats)
            found[name] = statistics.median(answer["seconds"][warm:])
    return found


def session(cores: int = 2) -> Any:
    """A Java Hudi session (context manager) of the interop harness."""
    return _harness().JavaHudi(cores=cores, memory="3g")


def commits_per_second(
    batches: Sequence[Sequence[pa.Table]],
    folder: Path,
    table: JavaTable,
    *,
    skew_ms: int = 200,
    warm: int = 3,
    memory: str = "1g",
) -> CommitFigures:
    """One Java process per item of `batches`, all upserting into one new table at the same time.

    `batches[w]` are the commits of writer w. Each process has one core of Spark. The first batches
    are written once by every process before the clock starts. Raises `JavaFailed` if any commit
    fails.
    """
    harness = _harness()
    name = f"java_commits_{len(batches)}_{skew_ms}"
    path = folder / name
    options = table.options(name)
    options["hoodie.time.generator.max_expected_clock_skew_ms"] = str(skew_ms)
    writers = [harness.JavaHudi(cores=1, memory=memory) for _ in batches]
    try:
        writers[0].wait_started()
        writers[0].write(path, batches[0][0], options)
        go, ready = (
            folder / f"{name}.go",
            [folder / f"{name}.ready{w}" for w in range(len(batches))],
        )
        for writer, own, sign in zip(writers, batches, ready, strict=True):
            files = [writer.rows_file(batch) for batch in own]
            arguments: dict[str, Any] = {"ready": str(sign), "go": str(go), "options": options}
            writer.send(
                "write_loop", path=str(path), files=files, warm_files=files[:warm], **arguments
            )
        while not all(sign.exists() for sign in ready):
            time.sleep(0.05)
        begun = time.time()
        go.touch()
        answers = [writer.receive()["commits"] for writer in writers]
    finally:
        for writer in writers:
            writer.close()
    return _commit_figures(answers, begun)


def _commit_figures(answers: list[list[dict[str, float]]], begun: float) -> CommitFigures:
    rates = [len(own) / (own[-1]["end"] - begun) for own in answers]
    latencies = [commit["end"] - commit["start"] for own in answers for commit in own]
    end = max(commit["end"] for own in answers for commit in own)
    return CommitFigures(
        len(answers), len(latencies), end - begun, latencies, min(rates), sum(rates) / len(rates)
    )


def streaming_sink(
    rows: pa.Table, folder: Path, table: JavaTable, *, batches: int = 10, cores: int = 2
) -> SinkFigures:
    """Java's own streaming sink over Parquet files of equal size, one file per micro-batch."""
    source = folder / "java_sink_source"
    source.mkdir(parents=True)
    step = -(-rows.num_rows // batches)
    for turn in range(batches):
        pq.write_table(rows.slice(turn * step, step), source / f"{turn:04}.parquet")
    warm = folder / "java_sink_warm_source"
    warm.mkdir()
    pq.write_table(rows.slice(0, 5_000), warm / "0000.parquet")
    extra = {
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.datasource.write.streaming.disable.compaction": "true",
        "hoodie.datasource.write.streaming.checkpoint.identifier": "benchmark",
    }
    with _harness().JavaHudi(cores=cores, memory="3g") as java:
        answers = []
        for name, where in (("java_sink_warm", warm), ("java_sink", source)):
            answers.append(
                java.call(
                    "stream",
                    path=str(folder / name),
                    source=str(where),
                    schema_of=str(warm / "0000.parquet"),
                    checkpoint=str(folder / f"{name}_checkpoint"),
                    options={**table.options(name), **extra},
                    files_per_batch=1,
                )
            )
    answer = answers[-1]
    if answer["rows"] != rows.num_rows:
        raise RuntimeError(f"Java's sink read {answer['rows']} rows, expected {rows.num_rows}")
    return SinkFigures(answer["rows"], answer["batches"], answer["seconds"])


def _data_bytes(path: Path) -> int:
    """Bytes of log and base files (Hadoop's checksum side files left out)."""
    files = [f for f in path.rglob("*") if f.is_file() and ".hoodie" not in f.parts]
    return sum(f.stat().st_size for f in files if not f.name.endswith(".crc"))
