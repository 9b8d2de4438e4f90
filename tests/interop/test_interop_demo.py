"""Goal: real Hudi reads the two tables of the demo, at full size, equal in every cell.

Method: the demo runs with all its flights (three Spark streams, one of them killed, with services that
compact, clean and archive beside them); Java's snapshot is compared with what pandas computed from the
input, and Java's snapshot and incremental queries with ours, Hudi's meta columns included.
`MAINSTEM_DEMO_FOLDER` names the folder of a finished demo that is then used instead of a new run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare import assert_same, without_meta
from java_hudi import ROOT, JavaHudi

import mainstem

KEY = ("time_hour", "carrier", "flight")
FLIGHTS = 336_776
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished demo: tables `wide` and `status` and what pandas expects."""
    given = os.environ.get("MAINSTEM_DEMO_FOLDER")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("demo") / "run"
    # All flights, in fewer and larger micro-batches than `make demo` has: most of its time is theirs.
    command = [sys.executable, "-m", "demos.main_job", "--files", "14", "--pairs-min", "2"]
    command += ["--folder", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return folder


@pytest.fixture(scope="module")
def snapshots(demo: Path, java: JavaHudi) -> dict[str, pa.Table]:
    """What Java reads from the two tables."""
    return {name: java.read(demo / name) for name in ("wide", "status")}


def expected(demo: Path, name: str) -> pa.Table:
    """What pandas computed from the input."""
    return pq.read_table(demo / f"expected_{name}.parquet")


@pytest.mark.parametrize("name", ["wide", "status"])
def test_java_reads_the_demos_table_as_pandas_computed_it(
    demo: Path, snapshots: dict[str, pa.Table], name: str
) -> None:
    rows = expected(demo, name)
    assert rows.num_rows == FLIGHTS
    assert_same(rows, without_meta(snapshots[name]), KEY)


@pytest.mark.parametrize("name", ["wide", "status"])
def test_java_reads_the_demos_table_and_its_changes_as_we_do(
    demo: Path, java: JavaHudi, snapshots: dict[str, pa.Table], name: str
) -> None:
    path = demo / name
    table = mainstem.open_table(path)
    assert_same(snapshots[name], table.scan().to_arrow(), KEY)
    done = sorted(i.completion for i in table.timeline() if i.completion and i.action == "deltacommit")
    # The demo's services keep three commits; of older ranges files are gone.
    for after, until in ((done[-3], done[-2]), (done[-2], done[-1]), (done[-3], None)):
        ours = table.changes(after=after, until=until).to_arrow()  # none, where all came too late
        assert_same(java.changes(path, after, until), ours, [*KEY, "_hoodie_commit_time"])
