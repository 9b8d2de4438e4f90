"""Goal: in a session whose catalog is a Hive Metastore, SQL makes, fills, changes and drops tables that
others find there as Hudi's.

Method: Spark and the metastore of its own jars; what the statements registered is looked at without Spark.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from tests.servers import hive_metastore

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[object, str]]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    jars = hive_metastore.jars()
    assert jars is not None
    folder = tmp_path_factory.mktemp("hive")
    with hive_metastore.running(folder / "metastore", jars) as uri:
        spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "OFF")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.sql.catalogImplementation", "hive")
            .config("spark.hadoop.hive.metastore.uris", uri)
            .getOrCreate()
        )
        from mainstem.spark import register

        register(spark)
        yield spark, uri
        spark.stop()


@pytest.mark.supports("Engines", "Spark SQL: tables of a Hive Metastore, registered as Hudi's")
def test_sql_in_a_hive_session_registers_tables_as_hudis(session, tmp_path: Path) -> None:
    from mainstem.spark import sql

    spark, uri = session
    catalog = mainstem.open_catalog(uri)
    sql(spark, f"CREATE DATABASE city LOCATION '{tmp_path}/city'")
    sql(spark, """CREATE TABLE city.trips (id BIGINT, fare DOUBLE, day STRING) USING hudi PARTITIONED BY (day)
        TBLPROPERTIES (primaryKey = 'id', type = 'mor', 'hoodie.bucket.index.num.buckets' = '1')""")
    sql(spark, "INSERT INTO city.trips VALUES (1, 2.5, 'mo'), (2, 3.5, 'tu')")
    told = catalog.describe("city.trips")
    assert (told.format, told.location) == ("hudi", f"file:{tmp_path}/city/trips")
    assert told.last_completion_time == catalog.open_table("city.trips").timeline()[-1].completion
    entry = catalog.store.entry("city", "trips")
    assert entry is not None and entry.parameters["spark.sql.sources.provider"] == "hudi"
    assert [part.values for part in catalog.store.partitions(entry)] == [("mo",), ("tu",)]
    assert uri not in str(entry.parameters)
    rows = sql(spark, "SELECT id, day FROM city.trips WHERE fare > 3").collect()
    assert [tuple(row) for row in rows] == [(2, "tu")]
    assert [row[1] for row in sql(spark, "SHOW TABLES IN city").collect()] == ["trips"]
    sql(spark, "ALTER TABLE city.trips ADD COLUMNS (tip DOUBLE)")
    sql(spark, "UPDATE city.trips SET tip = 1.0 WHERE id = 1")
    assert dict(catalog.describe("city.trips").columns)["tip"] == "double"
    assert sql(spark, "SELECT tip FROM city.trips WHERE id = 1").collect()[0][0] == 1.0
    # What others registered is found by its name.
    catalog.register("city.other", catalog.open_table("city.trips").path)
    assert sql(spark, "SELECT count(*) FROM city.other").collect()[0][0] == 2
    sql(spark, "DROP TABLE city.trips")
    assert "trips" not in catalog.tables("city")
    assert mainstem.open_table(tmp_path / "city" / "trips").scan(["id"]).to_arrow().num_rows == 2
