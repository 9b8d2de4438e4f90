"""Goal: the main job passes with its tables, events, checkpoints and locks in MinIO, and on a Spark cluster
whose hosts share nothing but that.

Method: the commands of `make demo ARGS="--store s3"` and of `make demo-cluster`, with the flights of two
weeks. Whatever they promise they check themselves and fail otherwise.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.object_stores import PROGRAMS
from tests.spark.conftest import ROOT

pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.nothing_lost,
    pytest.mark.timeout(1900),
    pytest.mark.skipif(not (PROGRAMS / "spark-s3a").is_dir(), reason="scripts/stores.py spark-s3a"),
]


WAYS = {
    "store": (["--store", "s3"], "1 killed in flight and rolled back"),
    "cluster": (["--cluster"], "all that runs on host worker-1"),
}


@pytest.mark.parametrize(("way", "killed"), WAYS.values(), ids=WAYS)
def test_three_streams_agree_with_pandas_without_an_abort(
    tmp_path: Path, way: list[str], killed: str
) -> None:
    command = [sys.executable, "-m", "demos.main_job", "--days", "14", "--files", "9", *way]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "demo"), "--pairs-min", "1", "--left-min", "0"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert said.count("all equal to what pandas computed") == 2
    assert said.count(" 0 aborts") == 6
    assert said.count("metadata table as the data says") == 2
    assert killed in said
    assert not (tmp_path / "demo/wide").exists(), "the tables lie in the store"
