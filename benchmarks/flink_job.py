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

from demos.nbcc_sql import environment, stop

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
        "visible": _visible,
    }
    return kinds[spec["kind"]](_environment(spec), spec, Path(spec["folder"]))


def _source(t_env) -> None:
    lengths = ", ".join(f"'fields.{name}.length' = '{length}'" for name, length in _TEXT_LENGTHS.items())
    t_env.execute_sql(
        f"CREATE TABLE source ({COLUMNS}) WITH ('connector' = 'datagen', {lengths},"
        f" 'rows-per-second' = '{AS_FAST_AS_IT_GOES}')"
    )


def _run(jobs: Sequence, spec: dict, folder: Path, seen: Callable[[], bool]) -> None:
    """Let the jobs run for the time asked for since they were ``seen`` to write; then stop them."""
    began = time.monotonic()
    while not seen():
        if time.monotonic() - began > START_MOST_S:
            raise RuntimeError(f"no output after {START_MOST_S} s")
        time.sleep(0.1)
    time.sleep(spec["seconds"])
    for job in jobs:
        stop(job, folder / "savepoints")


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


def _files_sink(format: str, path: Path, columns: str) -> str:
    return (
        f"CREATE TABLE sink ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path.as_uri()}',"
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
    from mainstem.flink.stage_function import COLUMN

    _source(t_env)
    out = folder / "out"
    for name in ("arrow.batch.size", "bundle.size"):
        t_env.get_config().set(f"python.fn-execution.{name}", str(BATCH_ROWS))
    t_env.get_config().set("python.fn-execution.bundle.time", str(spec["checkpoint_ms"]))
    t_env.create_temporary_function("counted", udf(Counted(), result_type="STRING", func_type="pandas"))
    t_env.execute_sql(_files_sink("raw", out, "line string"))
    names = [f"{COLUMN}{number}" for number in range(len(COLUMNS.split(", ")))]
    t_env.create_temporary_view("renamed", t_env.from_path("source").alias(*names))
    job = t_env.execute_sql(
        f"INSERT INTO sink SELECT line FROM (SELECT counted({', '.join(names)}) AS line FROM renamed)"
        " WHERE line IS NOT NULL"
    )
    _run([job], spec, folder, lambda: bool(_finished(out)))
    counted = [[file.stat().st_mtime, sum(map(int, file.read_text().split()))] for file in _finished(out)]
    return {"events": counted}


def _table(t, name: str, columns: str, folder: Path, **more: str) -> None:
    """Declare a Hudi table of the benchmark, in which commits wait out no clock skew."""
    given = {
        "connector": "hudi",
        "path": str(folder / "table"),
        "table.type": "MERGE_ON_READ",
        "index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": str(BUCKETS),
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.time.generator.max_expected_clock_skew_ms": "0",
        # The sink alone is measured here.
        "compaction.schedule.enabled": "false",
        "compaction.async.enabled": "false",
        "clean.async.enabled": "false",
        **more,
    }
    options = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    t.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")


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
    """Two jobs on the same thousand keys; commits of each while both were running."""
    columns = "uuid int, name varchar(10), age int, ts timestamp(3)"
    t_env.execute_sql(
        f"CREATE TABLE source ({columns}) WITH ('connector' = 'datagen', 'rows-per-second' = '200',"
        " 'fields.uuid.min' = '0', 'fields.uuid.max' = '999', 'fields.name.length' = '10')"
    )
    t = _connect(t_env)
    names = ("left_job", "right_job")
    for name in names:
        _table(t, name, columns, folder, **{"write.client.id": name, "hoodie.mainstem.writer.name": name})
    jobs = [t.execute_sql(f"INSERT INTO {name} SELECT * FROM source") for name in names]
    both = []

    def seen() -> bool:
        found = {span.writer for span in _commits(folder) if span.state == _COMMITTED} >= set(names)
        both.append(time.time())
        return found

    _run(jobs, spec, folder, seen)
    start, end = 1000 * both[-1], 1000 * (both[-1] + spec["seconds"])
    spans = _commits(folder)
    done = [span for span in spans if span.state == _COMMITTED and start < (span.end_ms or 0) <= end]
    counts = [sum(span.writer == name for span in done) for name in names]
    aborts = sum(span.state != _COMMITTED for span in spans)
    return {"seconds": spec["seconds"], "commits": counts, "aborts": aborts}


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
