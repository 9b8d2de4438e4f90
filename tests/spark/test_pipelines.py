"""Goal: several flows of a declarative pipeline upsert into one table.

Method: ``spark-pipelines run``, Spark's own command, on a project in a folder; two flows read a table each,
and share keys.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("grpc_status", reason="declarative pipelines need pyspark[pipelines]")
pytest.importorskip("yaml", reason="declarative pipelines need pyspark[pipelines]")

import mainstem

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
SPEC = """
name: trips
storage: file://{folder}/storage
libraries:
  - glob:
      include: flows/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""
FLOWS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink("trips", "mainstem", {{
    "path": "{folder}/trips",
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": "2",
}})


@dp.append_flow(target="trips", name="from_oslo")
def from_oslo():
    return spark.readStream.format("mainstem").load("{folder}/oslo").select("id", "ts", "city")


@dp.append_flow(target="trips", name="from_rome")
def from_rome():
    return spark.readStream.format("mainstem").load("{folder}/rome").select("id", "ts", "city")
"""


def _run(folder: Path) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    variables = {
        **os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        [str(home / "bin" / "spark-pipelines"), "run", "--spec", str(folder / "spark-pipeline.yml")],
        cwd=folder, env=variables, capture_output=True, text=True, timeout=560,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


@pytest.mark.supports("Engines", "Spark Declarative Pipelines: several flows upsert into one table")
def test_two_flows_of_a_pipeline_upsert_into_one_table(tmp_path: Path):
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "trips.py").write_text(FLOWS.format(folder=tmp_path))
    schema = pa.schema({"id": pa.string(), "ts": pa.int64(), "city": pa.string()})
    for number, city in enumerate(("oslo", "rome")):
        source = mainstem.create_table(tmp_path / city, schema, record_key="id", ordering="ts", buckets=1)
        source.upsert([{"id": str(n), "ts": number, "city": city} for n in range(number, number + 4)])
    _run(tmp_path)
    table = mainstem.open_table(tmp_path / "trips")
    cities = table.scan(columns=["id", "city"]).to_arrow().sort_by("id").to_pylist()
    assert [row["city"] for row in cities] == ["oslo", "rome", "rome", "rome", "rome"]
    commits = [instant for instant in table.timeline() if instant.action == "deltacommit"]
    assert len(commits) == 2 and all(instant.is_completed for instant in commits)
