"""Goal: Spark writes tables without record key, by SQL, by tasks and in streams; no row is doubled or lost.

Method: statements and frames that go to the driver and to executors, and a stream that is run again
without its newest batch's commit file, as after a crash.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import mainstem
import mainstem.spark as ms
from mainstem.errors import Invalid, Unsupported

pytestmark = pytest.mark.spark
TASKS = {"hoodie.mainstem.spark.driver.rows.max": 0}
OPERATION = "hoodie.datasource.write.operation"


def shown(path: Path) -> Counter:
    found = mainstem.open_table(path).scan().to_arrow()
    assert len(set(found["_hoodie_record_key"].to_pylist())) == found.num_rows, "two rows have one key"
    return Counter(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


@pytest.mark.supports("Writing", "Tables without record key: keys are made up, as Hudi's SQL does")
@pytest.mark.parametrize("options", [{}, TASKS], ids=["driver", "tasks"])
def test_statements_tell_equal_rows_apart(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    path, name = tmp_path / "t", f"keyless_{len(options)}"
    kept = ", ".join(f"'{key}' = '{value}'" for key, value in options.items()) or "'note' = 'none'"
    columns = "id INT, name STRING, tags MAP<STRING, INT>, city STRING"
    ms.sql(spark, f"CREATE TABLE {name} ({columns}) USING hudi TBLPROPERTIES ({kept}) PARTITIONED BY (city)"
                  f" LOCATION '{path}'")  # fmt: skip
    values = ", ".join(f"({n}, 'a', map('n', {n}), 'oslo')" for n in (1, 1, 2, 3, 3))
    ms.sql(spark, f"INSERT INTO {name} VALUES {values}")
    ms.sql(spark, f"UPDATE {name} SET name = 'set' WHERE id = 1")
    ms.sql(spark, f"DELETE FROM {name} WHERE id = 2")
    assert shown(path) == {(1, "set"): 2, (3, "a"): 2}
    source = "SELECT * FROM VALUES (3), (9), (9) AS v(id)"
    with pytest.raises(Invalid, match="several rows of the source match one row"):
        ms.sql(spark, f"MERGE INTO {name} t USING (SELECT * FROM VALUES (3, 'x'), (3, 'y') AS v(id, name)) s"
                      " ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.name = s.name")  # fmt: skip
    ms.sql(spark, f"MERGE INTO {name} t USING ({source}) s ON t.id = s.id"
                  " WHEN MATCHED THEN UPDATE SET name = 'met'"
                  " WHEN NOT MATCHED THEN INSERT (id, name, city) VALUES (s.id, 'new', 'rome')"
                  " WHEN NOT MATCHED BY SOURCE THEN DELETE")  # fmt: skip
    assert shown(path) == {(3, "met"): 2, (9, "new"): 2}
    spark.sql(f"DROP TABLE {name}")


def test_frames_are_inserted_and_a_stream_is_taken_once(spark: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "source"
    frame = spark.range(4).selectExpr("cast(id % 2 as int) as id", "'a' as name").repartition(2)
    frame.write.parquet(str(source))
    with pytest.raises(Invalid, match="=insert, and keys are made up"):
        ms.write_batch(frame, str(path), options={"hoodie.table.name": "t"})
    ms.write_batch(frame, str(path), options={"hoodie.table.name": "t", OPERATION: "insert", **TASKS})
    frame.write.format("mainstem").mode("append").save(str(path))  # nothing said: an insert
    assert shown(path) == {(0, "a"): 4, (1, "a"): 4}
    with pytest.raises(Unsupported, match="upsert into a table without record key"):
        ms.write_batch(frame, str(path), options={OPERATION: "upsert"})
    for again in range(2):
        rows = spark.readStream.schema(frame.schema).parquet(str(source))
        given = {"hoodie.mainstem.services": "off"}
        query = ms.write_stream(rows, str(path), options=given, checkpoint=str(tmp_path / "check"),
                                trigger={"availableNow": True})  # fmt: skip
        query.awaitTermination()
        for commit in (tmp_path / "check" / "commits").iterdir():
            if not again:
                commit.unlink()
    assert shown(path) == {(0, "a"): 6, (1, "a"): 6}
