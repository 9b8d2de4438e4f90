"""Goal: what works in a session of Spark works from a client of Spark Connect, or is refused in one line.

Method: one client in a process of its own (``connect_client``), with a server that finds the data source by
itself; what it says is compared with the tables that it wrote.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="Spark Connect needs pyspark[connect]")

import mainstem

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    variables = {name: text for name, text in os.environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", str(folder)],
        cwd=folder,
        env={**variables, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


def _rows(path: Path) -> dict[int, int]:
    found = mainstem.open_table(path).scan(columns=["id", "v"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.supports("Engines", "Spark Connect: reads, batch writes and streams; services, indexes, queries")
def test_a_client_writes_in_batches_and_streams_and_learns_the_outcome(told: dict[str, Any], folder: Path):
    assert told["session"] == "pyspark.sql.connect.session"
    assert _rows(folder / "first") == _rows(folder / "second") == {n: n + 1 for n in range(6)}
    versions = [mainstem.open_table(folder / name).config.version for name in ("first", "second", "changed")]
    assert versions == [9, 10, 10]  # the latter two are LSM trees
    status, rows, instant = told["outcome"]
    assert (status, rows, told["empty"], told["bulk"]) == ("committed", 6, "empty", 6)
    assert instant in [i.requested for i in mainstem.open_table(folder / "first").timeline()]
    commit = mainstem.open_table(folder / "second").timeline()[-1]
    assert (told["stream"]["rows"], told["stream"]["instants"]) == (6, [commit.requested])
    assert told["stream"]["lagMs"] == 0


def test_services_indexes_and_queries_by_path_run_on_the_server(told: dict[str, Any]):
    assert told["services"] == [["compact", 1]]
    assert (told["built"], told["indexes"]) == ("column_stats", ["column_stats"])
    assert told["query"] == [3 + 4 + 5 + 6, "{}"]


@pytest.mark.supports("Engines", "Spark Connect: DELETE, UPDATE, MERGE")
def test_a_client_deletes_updates_and_merges_rows(told: dict[str, Any]):
    found = told["changed"]
    assert found["counts"] == [1, 2, 4, 1]
    assert found["rows"] == [
        [1, 10, "N", 10], [2, 20, "N", 10], [4, 5, "n", 10], [5, 5, "left", 10], [8, 8, None, 7],
        [9, 8, None, 7],
    ]  # fmt: skip
    twice, key, kind, back = found["wrong"]
    assert twice.startswith("Invalid: MERGE: several rows of the source match one row, with id=1")
    assert "'id' is a record key or partition column" in key
    assert "a value of type string is assigned to 'v', which is bigint: cast it" in kind
    assert "a smaller ordering value than it has" in back


def test_what_cannot_be_is_refused_in_one_line(told: dict[str, Any]):
    assert told["no key"].startswith("Invalid: record key field 'id' is null")
    assert told["insert"].startswith("Unsupported: INSERT needs Spark's parser in this process")
    assert told["update"].startswith("Unsupported: Spark Connect writes streams by the data source")
    assert not [text for text in told.values() if isinstance(text, str) and "\n" in text]
