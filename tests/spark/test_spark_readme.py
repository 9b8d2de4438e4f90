"""Goal: README's examples for Spark and SQL run as they stand there, one after the other on one table.

Method: each is taken out of README.md; the stream runs until its rows are there instead of half a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mainstem
from tests.readme import example
from tests.spark.conftest import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HALF_A_MINUTE = "query.awaitTermination(30)"


@pytest.mark.slow
def test_the_examples_for_spark_and_sql_run(spark: SparkSession, tmp_path: Path) -> None:
    exec(example("Python", tmp_path), {})
    rows = mainstem.open_table(tmp_path / "trips").scan().count_rows
    streaming = example("Spark", tmp_path)
    assert HALF_A_MINUTE in streaming
    # The example's builder gives the session of these tests.
    exec(
        streaming.replace(HALF_A_MINUTE, "wait()"),
        {"wait": lambda: until(lambda: rows() > 1, "the first rows of the stream")},
    )
    streamed = rows()
    *before, query = example("SQL", tmp_path).strip().rstrip(";").split(";\n")
    for statement in before:
        spark.sql(statement)
    found = {row.city: (row.trips, row.highest) for row in spark.sql(query).collect()}
    assert found["rome"] == (1, 20.0)
    assert found["oslo"][0] == streamed
