"""One Flink job (or two on one table) in a process of its own, started by ``benchmarks.flink``.

Argument: a JSON object (kind, folder, seconds, checkpoint_ms, ...). The source is unbounded; after
``seconds`` since its first output the job is stopped by a savepoint, so that everything it read is
written. Prints a JSON object with the output's events: [seconds since the epoch, rows].
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyflink.table.udf import FunctionContext, ScalarFunction, udf

from demos.flink_jobs import declare, environment, stop

#: One row of the load, as Flink's datagen makes it: eleven columns, about 150 bytes
COLUMNS = (
    "uuid varchar(20), name varchar(10), rider varchar(12), driver varchar(12), city varchar(8), age int,"
    " ts timestamp(3), begin_lat double, begin_lon double, fare double, trips bigint"
)
_TEXT_LENGTHS = {"uuid": 20, "name": 10, "rider": 12, "driver": 12, "city": 8}
BUCKETS = 8
_COMMITTED = "committed"
#: as ``mainstem.flink.pipeline`` sets it where the user says nothing
BATCH_ROWS = 50_000
AS_FAST_AS_IT_GOES = 100_000_000
START_MOST_S = 120
TWO = ("left_job", "right_job")
EVEN_PER_SECOND = 200
EVEN_ROWS = EVEN_PER_SECOND * 600
#: Rows that wait for the first Python workers say nothing about those that come later
START_LEFT_OUT_MS = 5_000


def main(spec: dict) -> dict:
    """Run the job that ``spec`` names."""
    kinds = {
        "csv": _csv,
        "counted": _counted,
        "hudi": _hudi,
        "updating": _updating,
        "two": _two,
        "two_counted": _two_counted,
        "visible": _visible,
    }
    return kinds[spec["kind"]](_environment(spec), spec, Path(spec["folder"]))


def _source(t_env) -> None:
    lengths = ", ".join(f"'fields.{name}.length' = '{length}'" for name, length in _TEXT_LENGTHS.items())
    t_env.execute_sql(
        f"CREATE TABLE source ({COLUMNS}) WITH ('connector' = 'datagen', {lengths},"
        f" 'rows-per-second' = '{AS_FAST_AS_IT_GOES}')"
    )


def _even_source(t_env) -> None:
    """``source`` of a thousand keys, 200 rows a second at an even pace.

    Flink's ``datagen`` makes the rows of a second at once: of the five checkpoints in a second four would be
    empty, and nothing could be committed of them.
    """
    from pyflink.common import Types, WatermarkStrategy
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.connectors.base import Source
    from pyflink.java_gateway import get_gateway

    from mainstem.flink.stream_workers import stream_environment

    java = get_gateway().jvm
    flink, longs = java.org.apache.flink, java.org.apache.flink.api.common.typeinfo.Types.LONG
    numbers = java.java.util.stream.LongStream.range(0, EVEN_ROWS).boxed().toList()
    rows = flink.connector.datagen.functions.IndexLookupGeneratorFunction(longs, numbers)
    pace = flink.api.connector.source.util.ratelimit.RateLimiterStrategy.perSecond(float(EVEN_PER_SECOND))
    source = flink.connector.datagen.source.DataGeneratorSource(rows, EVEN_ROWS, pace, longs)
    streams = stream_environment(t_env)
    env = StreamExecutionEnvironment(streams._j_tenv.getPlanner().getExecEnv())
    stream = env.from_source(Source(source), WatermarkStrategy.no_watermarks(), "even", Types.LONG())
    streams.create_temporary_view("numbers", streams.from_data_stream(stream))
    columns = (
        "CAST(MOD(f0 * 7919, 1000) AS INT) AS uuid, CAST(f0 AS VARCHAR(10)) AS name,"
        " CAST(MOD(f0, 90) AS INT) AS age, CAST(CURRENT_ROW_TIMESTAMP() AS TIMESTAMP(3)) AS ts"
    )
    streams.create_temporary_view("source", streams.sql_query(f"SELECT {columns} FROM numbers"))


def _run(jobs: Sequence, spec: dict, folder: Path, seen: Callable[[], bool]) -> list[int]:
    """Let the jobs run for the time asked for since they were ``seen`` to write; then stop them.

    Returns how many checkpoints each completed in that time.
    """
    began = time.monotonic()
    while not seen():
        if time.monotonic() - began > START_MOST_S:
            raise RuntimeError(f"no output after {START_MOST_S} s")
        time.sleep(0.1)
    before = [_checkpoints(job) for job in jobs]
    time.sleep(spec["seconds"])
    completed = [_checkpoints(job) - first for job, first in zip(jobs, before, strict=True)]
    for job in jobs:
        stop(job, folder / "savepoints")
    return completed


def _checkpoints(job) -> int:
    """How many a job of this process has completed."""
    from mainstem.flink.stream_workers import java_field

    client = job.get_job_client()._j_job_client
    graph = java_field(client, "miniCluster").getExecutionGraph(client.getJobID()).get()
    return graph.getCheckpointStatsSnapshot().getCounts().getNumberOfCompletedCheckpoints()


def _environment(spec: dict):
    """Two slots, and Python workers that are processes of their own."""
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 (Flink reads it so)
    return environment(
        {
            "execution.checkpointing.interval": f"{spec['checkpoint_ms']} ms",
            "parallelism.default": "2",
            "table.local-time-zone": "UTC",
            # For every job measured: Flink's SQL operators need no copies of rows between them.
            "pipeline.object-reuse": "true",
        }
    )


def _files_sink(format: str, path: Path, columns: str, name: str = "sink") -> str:
    return (
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path.as_uri()}',"
        f" 'format' = '{format}', 'sink.rolling-policy.rollover-interval' = '1s',"
        " 'sink.rolling-policy.check-interval' = '1s')"
    )


def _csv(t_env, spec: dict, folder: Path) -> dict:
    """Flink's own sink: the same rows as CSV files."""
    _source(t_env)
    out = folder / "out"
    t_env.execute_sql(_files_sink("csv", out, COLUMNS))
    job = t_env.execute_sql("INSERT INTO sink SELECT * FROM source")
    _run([job], spec, folder, lambda: bool(_finished(out)))
    return {"events": [[file.stat().st_mtime, _lines(file)] for file in _finished(out)]}


class Counted(ScalarFunction):
    """What stages rows, without staging them: the batches come the same way, and are counted."""

    def open(self, function_context: FunctionContext) -> None:
        from mainstem.flink.stage_function import pass_arrow_on

        pass_arrow_on()

    def eval(self, *columns):
        import numpy as np
        import pandas as pd

        lines = np.full(len(columns[0]), None, object)
        lines[0] = str(len(columns[0]))
        return pd.Series(lines)


def _counted(t_env, spec: dict, folder: Path) -> dict:
    """The way of our sink with nothing at its end."""
    _source(t_env)
    out = folder / "out"
    job = _count(t_env, spec, len(COLUMNS.split(", ")), "sink", out)
    _run([job], spec, folder, lambda: bool(_finished(out)))
    counted = [[file.stat().st_mtime, sum(map(int, file.read_text().split()))] for file in _finished(out)]
    return {"events": counted}


def _count(t_env, spec: dict, columns: int, sink: str, out: Path):
    """A job that sends the rows of ``source`` the way of our sink, and counts them there."""
    from mainstem.flink.stage_function import COLUMN

    for name in ("arrow.batch.size", "bundle.size"):
        t_env.get_config().set(f"python.fn-execution.{name}", str(BATCH_ROWS))
    t_env.get_config().set("python.fn-execution.bundle.time", str(max(1000, spec["checkpoint_ms"])))
    t_env.create_temporary_function(f"{sink}_rows", udf(Counted(), result_type="STRING", func_type="pandas"))
    t_env.execute_sql(_files_sink("raw", out, "line string", sink))
    names = [f"{COLUMN}{number}" for number in range(columns)]
    t_env.create_temporary_view(f"{sink}_source", t_env.from_path("source").alias(*names))
    return t_env.execute_sql(
        f"INSERT INTO {sink} SELECT line FROM (SELECT {sink}_rows({', '.join(names)}) AS line FROM"
        f" {sink}_source) WHERE line IS NOT NULL"
    )


def _table(t, name: str, columns: str, folder: Path, **more: str) -> None:
    """Declare a Hudi table of the benchmark."""
    given = {
        "hoodie.bucket.index.num.buckets": str(BUCKETS),
        # The sink alone is measured here.
        "compaction.schedule.enabled": "false",
        "compaction.async.enabled": "false",
        "clean.async.enabled": "false",
    }
    declare(t, name, columns, folder / "table", **given, **more)


def _connect(t_env):
    from mainstem.flink import connect

    return connect(t_env)


def _commits(folder: Path) -> list:
    """The table's transactions so far, as ``demos.timeline_picture`` reads them."""
    import mainstem
    from demos.timeline_picture import read_spans

    if not (folder / "table" / ".hoodie" / "hoodie.properties").exists():
        return []
    return read_spans(mainstem.open_table(folder / "table"), {})


def _hudi(t_env, spec: dict, folder: Path) -> dict:
    """Ours: the same rows into a table."""
    _source(t_env)
    t = _connect(t_env)
    _table(t, "sink", COLUMNS, folder)
    job = t.execute_sql("INSERT INTO sink SELECT * FROM source")
    _run([job], spec, folder, lambda: any(span.rows for span in _commits(folder)))
    done = [span for span in _commits(folder) if span.state == _COMMITTED]
    return {"events": [[(span.end_ms or 0) / 1000, span.rows] for span in done]}


def _updating(t_env, spec: dict, folder: Path) -> dict:
    """Ours with an updating query: totals of ten thousand groups, whose changes are upserts."""
    t_env.execute_sql(
        "CREATE TABLE source (uuid int, fare double) WITH ('connector' = 'datagen', 'fields.uuid.min' = '0',"
        f" 'fields.uuid.max' = '9999', 'rows-per-second' = '{AS_FAST_AS_IT_GOES}')"
    )
    t = _connect(t_env)
    _table(t, "sink", "uuid int, trips bigint, fare double, PRIMARY KEY (uuid) NOT ENFORCED", folder)
    job = t.execute_sql("INSERT INTO sink SELECT uuid, COUNT(*), SUM(fare) FROM source GROUP BY uuid")
    _run([job], spec, folder, lambda: any(span.rows for span in _commits(folder)))
    done = [span for span in _commits(folder) if span.state == _COMMITTED]
    return {"events": [[(span.end_ms or 0) / 1000, span.rows] for span in done]}


def _two(t_env, spec: dict, folder: Path) -> dict:
    """Two jobs on the same thousand keys; commits and checkpoints of each while both were running."""
    _even_source(t_env)
    t = _connect(t_env)
    for name in TWO:
        columns = "uuid int, name varchar(10), age int, ts timestamp(3)"
        _table(t, name, columns, folder, **{"write.client.id": name, "hoodie.mainstem.writer.name": name})
    jobs = [t.execute_sql(f"INSERT INTO {name} SELECT * FROM source") for name in TWO]
    both = []

    def seen() -> bool:
        found = {span.writer for span in _commits(folder) if span.state == _COMMITTED} >= set(TWO)
        both.append(time.time())
        return found

    checkpoints = _run(jobs, spec, folder, seen)
    start, end = 1000 * both[-1], 1000 * (both[-1] + spec["seconds"])
    spans = _commits(folder)
    done = [span for span in spans if span.state == _COMMITTED and start < (span.end_ms or 0) <= end]
    counts = [sum(span.writer == name for span in done) for name in TWO]
    aborts = sum(span.state != _COMMITTED for span in spans)
    return {"seconds": spec["seconds"], "commits": counts, "checkpoints": checkpoints, "aborts": aborts}


def _two_counted(t_env, spec: dict, folder: Path) -> dict:
    """The same two jobs, which write nothing."""
    _even_source(t_env)
    outs = {name: folder / name for name in TWO}
    jobs = [_count(t_env, spec, 4, name, out) for name, out in outs.items()]
    completed = _run(jobs, spec, folder, lambda: all(_finished(out) for out in outs.values()))
    return {"seconds": spec["seconds"], "checkpoints": completed}


def _visible(t_env, spec: dict, folder: Path) -> dict:
    """Milliseconds from a row's birth in the source to the completion of its commit."""
    import pyarrow as pa

    import mainstem

    t_env.execute_sql(
        "CREATE TABLE source (uuid varchar(20), age int, born AS CAST(CURRENT_ROW_TIMESTAMP() AS"
        " TIMESTAMP(3))) WITH ('connector' = 'datagen', 'rows-per-second' = '200',"
        " 'fields.uuid.length' = '20')"
    )
    t = _connect(t_env)
    _table(t, "sink", "uuid varchar(20), age int, born timestamp(3)", folder)
    job = t.execute_sql("INSERT INTO sink SELECT * FROM source")
    _run([job], spec, folder, lambda: any(span.rows for span in _commits(folder)))
    completed = {span.instant: span.end_ms or 0 for span in _commits(folder) if span.state == _COMMITTED}
    rows = mainstem.open_table(folder / "table").scan(columns=["_hoodie_commit_time", "born"]).to_arrow()
    born = rows["born"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    times = zip(rows["_hoodie_commit_time"].to_pylist(), born, strict=True)
    first = min(born) + START_LEFT_OUT_MS
    return {"latencies_ms": [completed[instant] - at for instant, at in times if at > first]}


def _finished(out: Path) -> list[Path]:
    return [file for file in out.glob("*") if not file.name.startswith(".")] if out.exists() else []


def _lines(file: Path) -> int:
    with open(file, "rb") as data:
        return sum(piece.count(b"\n") for piece in iter(lambda: data.read(1 << 20), b""))


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
