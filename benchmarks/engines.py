"""What Ray, Daft and Dask take to read and write a table, beside their own Parquet, in the same run.

    python scripts/environment.py install engines
    python scripts/environment.py run engines -- -m benchmarks.engines [--rows 1000000] [--rounds 3] [ENGINE]

Rows per second of processor time, of this process and all that it started; the median of the rounds, in which
both take turns. A table of 8 buckets, read from base files; written as log files, upsert by key. Parquet lies
in 8 files, and is written without keys, without an order and without a commit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import mainstem

FILES = 8


def some_rows(count: int) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table({
        "id": pa.array([f"trip-{i:012d}" for i in range(count)]),
        "ts": pa.array(rng.integers(0, 1_000_000, count)),
        "city": pa.array(np.array(["oslo", "rome", "lima", "kyoto"])[rng.integers(0, 4, count)]),
        "fare": pa.array(rng.random(count) * 100),
        "tip": pa.array(rng.random(count)),
        "note": pa.array([f"note {i % 9973} of a trip" for i in range(count)]),
    })  # fmt: skip


def parts(rows: pa.Table) -> list[pa.Table]:
    return [rows.slice(i * len(rows) // FILES, len(rows) // FILES) for i in range(FILES)]


def spent() -> float:
    """Seconds of processor time of this process and of all that it started."""
    total = 0.0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def of_ray(rows: pa.Table) -> dict[str, Callable[..., Any]]:
    import ray

    import mainstem.ray as mr

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    frame = ray.data.from_arrow(parts(rows)).materialize()
    return {
        "read": lambda table: _drained(mr.read(table, columns=rows.column_names)),
        "read parquet": lambda path: _drained(ray.data.read_parquet(str(path))),
        "write": lambda table: mr.write(frame, table),
        "write parquet": lambda path: frame.write_parquet(str(path)),
    }


def _drained(dataset: Any) -> int:
    return sum(batch.num_rows for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow"))


def of_daft(rows: pa.Table) -> dict[str, Callable[..., Any]]:
    import daft

    import mainstem.daft as md

    daft.set_runner_native()
    frame = daft.from_arrow(rows).collect()
    return {
        "read": lambda table: len(md.read(table).select(*rows.column_names).to_arrow()),
        "read parquet": lambda path: len(daft.read_parquet(f"{path}/*.parquet").to_arrow()),
        "write": lambda table: md.write(frame, table),
        "write parquet": lambda path: frame.write_parquet(str(path)),
    }


def of_dask(rows: pa.Table) -> dict[str, Callable[..., Any]]:
    import dask.dataframe as dd
    import pandas as pd

    import mainstem.dask as md

    frame = dd.from_pandas(rows.to_pandas(types_mapper=pd.ArrowDtype), npartitions=FILES, sort=False)
    return {
        "read": lambda table: len(md.read(table, columns=rows.column_names).compute()),
        "read parquet": lambda path: len(dd.read_parquet(str(path), dtype_backend="pyarrow").compute()),
        "write": lambda table: md.write(frame, table),
        "write parquet": lambda path: frame.to_parquet(str(path), write_index=False),
    }


ENGINES = {"ray": of_ray, "daft": of_daft, "dask": of_dask}


def measured(name: str, rows: pa.Table, rounds: int, folder: Path) -> None:
    def made(place: Path) -> mainstem.Table:
        return mainstem.create_table(place, rows.schema, record_key="id", ordering="ts", buckets=FILES)

    table, files = made(folder / "table"), folder / "parquet"
    table.bulk_insert(rows)
    files.mkdir()
    for i, part in enumerate(parts(rows)):
        pq.write_table(part, files / f"{i}.parquet")
    calls, times = ENGINES[name](rows), dict[str, list[tuple[float, float]]]()
    for number in range(rounds + 1):
        for what, call in calls.items():
            place: Any = {"read": table, "read parquet": files}.get(what, folder / f"out-{number}")
            if what == "write":
                place = made(folder / f"table-{number}")
            used, begun = spent(), time.perf_counter()
            call(place)
            took = spent() - used, time.perf_counter() - begun
            if number:  # the first round warms up
                times.setdefault(what, []).append(took)
        for made_here in (folder / f"out-{number}", folder / f"table-{number}"):
            shutil.rmtree(made_here, ignore_errors=True)
    for what, took in times.items():
        cpu, wall = (statistics.median(each) for each in zip(*took, strict=True))
        rate = len(rows) / cpu
        print(f"{name:5} {what:14} {rate:12,.0f} rows per processor second {wall:8.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("engines", nargs="*", metavar="ENGINE", default=list(ENGINES))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows = some_rows(given.rows // FILES * FILES)
    for name in given.engines:
        with tempfile.TemporaryDirectory(prefix="engines-") as folder:
            measured(name, rows, given.rounds, Path(folder))


if __name__ == "__main__":
    main()
