"""Goal: README's example for Flink runs as it stands there, on the table of its Python example.

Method: both are taken out of README.md; the job ends by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import mainstem
from tests.readme import example


@pytest.mark.slow
def test_the_example_for_flink_runs(table_environment: object, tmp_path: Path) -> None:
    exec(example("Python", tmp_path), {})
    exec(example("Flink", tmp_path), {})
    cities = mainstem.open_table(tmp_path / "trips").scan(columns=["city"]).to_arrow()["city"].to_pylist()
    assert (cities.count("oslo"), cities.count("bergen")) == (1, 1000)
