"""Goal: what Dask pushes down reaches the files, and workers and drivers that die lose and double nothing.

Method: plans are computed in this process; workers of a cluster on this machine kill themselves, and a driver
is killed from outside; a ledger of keys decides.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.engines.pinned import ReadTask
from mainstem.errors import Invalid
from tests.engines.conftest import SCHEMA, rows

ROOT = Path(__file__).resolve().parents[2]


def test_columns_and_the_filter_reach_the_files(table, monkeypatch) -> None:
    import mainstem.dask as md

    table.upsert(rows(range(100)))
    asked, narrowed = [], ReadTask.narrowed
    monkeypatch.setattr(
        ReadTask, "narrowed", lambda self, columns: (asked.append(columns), narrowed(self, columns))[1]
    )
    frame = md.read(table, filter=pc.field("fare") >= 40.0)
    assert frame["fare"].sum().compute(scheduler="sync") == sum(i / 2 for i in range(80, 100))
    assert asked == [["fare"]] * 3 and len(frame) == 20
    assert md.read(table, npartitions=2).npartitions == 2
    assert md.read(table, filter=pc.field("id") == "k7").npartitions == 1


def test_equal_frames_have_equal_names_and_whole_numbers_stay_so(table) -> None:
    import mainstem.dask as md

    table.upsert(rows(range(9)))
    tips = pd.array([2**53 + 1, None] * 4 + [1], "Int64")
    wider = table.scan(columns=SCHEMA.names).to_pandas().assign(tip=tips)
    table.upsert(wider)
    frame = md.read(table, columns=["id", "tip"])
    assert frame._name == md.read(table, columns=["id", "tip"])._name != md.read(table, columns=["id"])._name
    assert frame.tip.max().compute() == 2**53 + 1
    with pytest.raises(Invalid, match="found DataFrame"):
        md.write(wider, table)


def _dies(part: pd.DataFrame, deaths: str) -> pd.DataFrame:
    """Kills its worker once, after another task of it has staged its rows."""
    if (part["id"] == "k60").any() and not os.path.exists(f"{deaths}/k60"):
        time.sleep(0.5)
        Path(deaths, "k60").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.nothing_lost
def test_a_worker_of_a_cluster_that_is_killed_loses_and_doubles_nothing(tmp_path) -> None:
    import dask.dataframe as dd
    import distributed

    import mainstem.dask as md

    table = mainstem.create_table(tmp_path / "t", SCHEMA)
    (tmp_path / "deaths").mkdir()
    frame = dd.from_pandas(rows(range(100)).to_pandas(types_mapper=pd.ArrowDtype), npartitions=5)
    frame = frame.map_partitions(_dies, str(tmp_path / "deaths"), meta=frame._meta)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        outcome = md.write(frame, table, "insert")
        assert len(md.read(table)) == 100
    assert (tmp_path / "deaths" / "k60").exists() and outcome.rows == 100
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(f"k{i}" for i in range(100))
    assert set(table.files()["state"].to_pylist()) == {"current"} and len(table.timeline()) == 1


DRIVER = """
import sys, time
import dask.dataframe as dd
import mainstem, mainstem.dask as md
from mainstem.engines.write_job import WriteTask
from tests.engines.conftest import rows

def slow(self, rows):
    result = staged(self, rows)
    print("staged", flush=True)
    time.sleep(60)
    return result

staged, WriteTask.write = WriteTask.write, slow
frame = dd.from_pandas(rows(range(1000)).to_pandas(), npartitions=2)
md.write(frame, mainstem.open_table(sys.argv[1]), scheduler="threads")
"""


@pytest.mark.nothing_lost
def test_a_driver_that_dies_leaves_nothing_visible_and_is_rolled_back(tmp_path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=3,
        properties={"hoodie.client.heartbeat.interval_in_ms": 300},
    )  # fmt: skip
    table.upsert(rows(range(5)))
    command = [sys.executable, "-c", DRIVER, table.path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert [driver.stdout.readline() for _ in range(2)] == ["staged\n"] * 2
        driver.kill()
    assert table.files()["state"].to_pylist().count("pending") == 6 and table.scan().count_rows() == 5
    deadline = time.monotonic() + 30
    while not (undone := table.rollback_failed_writes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(undone) == 1 and table.scan().count_rows() == 5
    assert set(table.files()["state"].to_pylist()) == {"current"}
