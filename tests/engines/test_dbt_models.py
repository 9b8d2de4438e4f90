"""Goal: dbt reads tables as sources and writes models as commits, made anew or by key.

Method: the project of docs/engines.md, run by dbt itself on DuckDB in this process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import mainstem
from tests.engines.conftest import rows
from tests.engines.documented import blocks

PROJECT = 'name: trips\nversion: "1.0"\nprofile: lake\nmodels: {trips: {}}\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of docs/engines.md by their first lines, in a folder beside the tables."""
    (tmp_path / "models").mkdir()
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    for name, text in blocks("dbt").items():
        (tmp_path / name).write_text(text.replace("/lake", str(tmp_path / "lake")))
    return tmp_path


def run(project: Path) -> bool:
    from dbt.cli.main import dbtRunner

    options = ["--project-dir", str(project), "--profiles-dir", str(project), "--quiet"]
    return bool(dbtRunner().invoke(["run", *options]).success)


@pytest.mark.supports("Engines", "dbt (dbt-duckdb): tables as sources, models as commits")
def test_models_are_tables_that_are_made_anew_or_written_by_key(project) -> None:
    trips = mainstem.create_table(
        project / "lake" / "trips", rows(range(1)).schema, record_key="id", ordering="ts", buckets=2
    )
    trips.upsert(rows(range(20)))
    assert run(project)
    fares, cities = (mainstem.open_table(project / "lake" / name) for name in ("dear_trips", "city_fares"))
    assert fares.scan().count_rows() == 10 and cities.config.record_key == ("city",)
    assert sorted(cities.scan(columns=["city", "trips"]).to_arrow()["trips"].to_pylist()) == [10, 10]
    trips.upsert(rows(range(20, 25)))
    trips.delete(rows(range(1, 25, 2)).select(["id"]))  # no trips of oslo are left
    assert run(project)
    assert len(fares.timeline()) == len(cities.timeline()) == 2
    assert fares.scan().count_rows() == 8
    assert sorted(cities.scan(columns=["city", "trips"]).to_arrow()["trips"].to_pylist()) == [10, 13]
    trips.truncate()
    assert run(project) and fares.scan().count_rows() == 0 and cities.scan().count_rows() == 2


def test_a_source_without_a_table_is_told(project, capfd) -> None:
    assert not run(project)
    assert "the source 'trips' has no table" in "".join(capfd.readouterr())
