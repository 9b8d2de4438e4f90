"""Goal: in a session whose catalog is a Hive Metastore, SQL makes, fills, changes and drops tables that
others find there as Hudi's.

Method: Spark and the metastore of its own jars; what the statements registered is looked at without Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mainstem
from tests.servers import hive_metastore

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("hive_statements.py")

Sql = Callable[[str], list[list[Any]]]


@contextmanager
def session(uri: str, folder: Path) -> Iterator[Sql]:
    """Statements of a Spark session on the metastore, in a process of its own."""
    where = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": where}
    with open(folder / "spark.log", "w") as log, subprocess.Popen(
        [sys.executable, str(PROGRAM), uri, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=log, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None

        def sql(text: str) -> list[list[Any]]:
            process.stdin.write(json.dumps(text) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, (folder / "spark.log").read_text()[-3000:]
            found: list[list[Any]] = json.loads(answer)
            return found

        try:
            yield sql
        finally:
            process.stdin.close()
            process.wait()


@pytest.mark.supports("Engines", "Spark SQL: tables of a Hive Metastore, registered as Hudi's")
def test_sql_in_a_hive_session_registers_tables_as_hudis(tmp_path: Path) -> None:
    jars = hive_metastore.jars()
    assert jars is not None
    with hive_metastore.running(tmp_path / "metastore", jars) as uri, session(uri, tmp_path) as sql:
        catalog = mainstem.open_catalog(uri)
        sql(f"CREATE DATABASE city LOCATION '{tmp_path}/city'")
        sql("""CREATE TABLE city.trips (id BIGINT, fare DOUBLE, day STRING) USING hudi PARTITIONED BY (day)
            TBLPROPERTIES (primaryKey = 'id', type = 'mor', 'hoodie.bucket.index.num.buckets' = '1')""")
        sql("INSERT INTO city.trips VALUES (1, 2.5, 'mo'), (2, 3.5, 'tu')")
        told = catalog.describe("city.trips")
        assert (told.format, told.location) == ("hudi", f"file:{tmp_path}/city/trips")
        assert told.last_completion_time == catalog.open_table("city.trips").timeline()[-1].completion
        entry = catalog.store.entry("city", "trips")
        assert entry is not None and entry.parameters["spark.sql.sources.provider"] == "hudi"
        assert uri not in str(entry.parameters)
        assert [part.values for part in catalog.store.partitions(entry)] == [("mo",), ("tu",)]
        assert sql("SELECT id, day FROM city.trips WHERE fare > 3") == [[2, "tu"]]
        assert [row[1] for row in sql("SHOW TABLES IN city")] == ["trips"]
        sql("ALTER TABLE city.trips ADD COLUMNS (tip DOUBLE)")
        sql("UPDATE city.trips SET tip = 1.0 WHERE id = 1")
        assert dict(catalog.describe("city.trips").columns)["tip"] == "double"
        assert sql("SELECT tip FROM city.trips WHERE id = 1") == [[1.0]]
        # What others registered is found by its name.
        catalog.register("city.other", catalog.open_table("city.trips").path)
        assert sql("SELECT count(*) FROM city.other") == [[2]]
        sql("DROP TABLE city.trips")
        assert "trips" not in catalog.tables("city")
        assert mainstem.open_table(tmp_path / "city" / "trips").scan(["id"]).to_arrow().num_rows == 2
