"""Goal: tasks of Airflow that are repeated, before and after their commit, lose and double nothing.

Method: the file of docs/engines.md, run by Airflow itself with SQLite, without a server; tasks fail where the
worst moments are, and Airflow repeats them.
"""

from __future__ import annotations

import os
import runpy
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

import mainstem
from mainstem.api.table import Table
from tests.engines.documented import blocks

if find_spec("airflow") is None:  # imported, it would read its settings before these tests make them
    pytest.skip("Airflow is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow with a database of its own; asked for before Airflow is imported."""
    folder = tmp_path_factory.mktemp("airflow")
    os.environ.update({
        "AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"), "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    })  # fmt: skip
    (folder / "dags").mkdir()
    from airflow.utils.db import initdb

    initdb()
    return folder


def dag_of_the_page(home: Path, lake: Path):
    ((name, text),) = blocks("Airflow").items()
    file = home / "dags" / name
    file.write_text(text.replace("/lake", str(lake)).replace("seconds=1", "seconds=0"))
    return runpy.run_path(str(file))["daily_trips"]()


def run(dag, day: str) -> str:
    import pendulum

    return str(dag.test(logical_date=pendulum.parse(day)).state)


def rows_of(lake: Path) -> Counter:
    found = mainstem.open_table(lake / "daily_trips").scan(columns=["id", "day", "city"]).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows
    return Counter(zip(found["day"].to_pylist(), found["city"].to_pylist(), strict=True))


@pytest.mark.supports("Engines", "Airflow: tasks that stage rows, and one that commits them; repeated, too")
def test_tasks_that_are_repeated_lose_and_double_nothing(home, tmp_path, monkeypatch) -> None:
    import pandas as pd

    moments: list[str] = []
    real_write, real_stage = Table.insert_overwrite, pd.DataFrame.to_parquet

    def dies_after_its_commit(table, rows):
        outcome = real_write(table, rows)
        moments.append("committed")
        if moments.count("committed") == 1:
            raise ConnectionError("the worker is gone")
        return outcome

    def dies_within_its_file(frame, path, **options):
        moments.append("staged")
        if moments.count("staged") == 2:
            Path(path).write_bytes(b"half a file")
            raise ConnectionError("the worker is gone")
        return real_stage(frame, path, **options)

    monkeypatch.setattr(Table, "insert_overwrite", dies_after_its_commit)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", dies_within_its_file)
    dag = dag_of_the_page(home, tmp_path)
    assert run(dag, "2026-01-05") == "success"
    assert moments == ["staged"] * 3 + ["committed"] * 2
    day = {("2026-01-05", "oslo"): 100, ("2026-01-05", "rome"): 100}
    assert rows_of(tmp_path) == day
    assert run(dag, "2026-01-06") == "success"
    assert run(dag_of_the_page(home, tmp_path), "2026-01-05") == "success"  # a day that is run again
    assert rows_of(tmp_path) == day | {("2026-01-06", city): 100 for city in ("oslo", "rome")}
