"""Goal: the main job itself passes, small: three Spark drivers at once, one killed with -9, and beside them
three indexes built.

Method: the command of `make demo` with the flights of two weeks. Whatever it promises it checks
itself and fails otherwise; here its output is looked at, and that it does fail on a wrong table.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.versions
@pytest.mark.timeout(1000)
def test_three_streams_one_killed_agree_with_pandas_without_an_abort(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demos.main_job", "--days", "14", "--files", "9"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "demo"), "--pairs-min", "1", "--left-min", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert said.count("all equal to what pandas computed") == 2
    assert said.count(" 0 aborts") == 6
    beside = re.findall(r"beside them: (\d+) compactions, (\d+) cleans, (\d+) instants archived", said)
    assert len(beside) == 2
    assert all(int(count) > 0 for counts in beside for count in counts)
    assert "kill -9" in said
    assert "1 killed in flight and rolled back" in said
    for index in ("record_index", "secondary_index_tailnum", "column_stats"):
        assert re.search(rf"{index} +[\d,]+ rows in +\d", said)
    read = re.findall(r"at the end, (\w+) .* of +(\d+) of 12 slices", said)
    assert read == [
        ("without", "12"), ("with", "1"), ("without", "12"), ("with", "1"), ("without", "12"), ("with", "4")
    ]  # fmt: skip
    assert said.count("metadata table as the data says") == 2
    assert (tmp_path / "demo" / "timeline.svg").exists()
    assert (tmp_path / "demo" / "throughput.svg").exists()
    assert done.stderr == ""  # no engine log noise
