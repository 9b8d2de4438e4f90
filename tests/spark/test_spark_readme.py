"""Goal: README's examples for Spark and SQL run as they stand there, one after the other on one table.

Method: each is taken out of README.md; the stream runs for seconds instead of half a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import mainstem
import mainstem.spark
from tests.readme import example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_examples_for_spark_and_sql_run(spark: SparkSession, tmp_path: Path) -> None:
    exec(example("Python", tmp_path), {})
    # Spark's JVM lives for all of these tests: the example's builder gives this session.
    exec(example("Spark", tmp_path).replace("awaitTermination(30)", "awaitTermination(6)"), {})
    streamed = mainstem.open_table(tmp_path / "trips").scan().count_rows()
    assert streamed > 100, "hundred rows a second came through the stream"
    *before, query = example("SQL", tmp_path).strip().rstrip(";").split(";\n")
    for statement in before:
        spark.sql(statement)
    found = {row.city: (row.trips, row.highest) for row in spark.sql(query).collect()}
    assert found["rome"] == (1, 20.0)
    assert found["oslo"][0] == streamed
