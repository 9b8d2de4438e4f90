"""Goal: Spark writes tables without buckets, through its driver, once; tasks are refused by name.

Method: `write_batch` and `write_stream` on a table under SIMPLE, with frames that would go to executors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mainstem
import mainstem.spark as ms

OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "SIMPLE",
    "hoodie.mainstem.spark.driver.rows.max": 0,  # with buckets, executors would write
}
OPERATION = "hoodie.datasource.write.operation"


def frame(spark: Any, low: int, high: int, ts: int, city: str = "a") -> Any:
    return spark.range(low, high).selectExpr("cast(id as string) as id", f"'{city}' as city", f"{ts}L as ts")


def content(path: Path) -> dict[int, int]:
    found = mainstem.open_table(path, {"hoodie.index.type": "SIMPLE"}).scan(columns=["id", "ts"]).to_arrow()
    keys = found["id"].to_pylist()
    assert len(keys) == len(set(keys)), "a key is doubled"
    return dict(zip(map(int, keys), found["ts"].to_pylist(), strict=True))


@pytest.mark.supports("Engines", "Spark writes tables without buckets, through its driver")
def test_a_frame_is_written_to_where_its_keys_live(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    ms.write_batch(frame(spark, 0, 20, 1), str(path), options=OPTIONS)
    assert mainstem.open_table(path).properties["hoodie.index.type"] == "SIMPLE"
    ms.write_batch(frame(spark, 10, 30, 2).repartition(3), str(path), options=OPTIONS)
    assert content(path) == {**dict.fromkeys(range(10), 1), **dict.fromkeys(range(10, 30), 2)}
    overwrite = {**OPTIONS, OPERATION: "insert_overwrite"}
    ms.write_batch(frame(spark, 5, 7, 3), str(path), options=overwrite)
    assert content(path) == dict.fromkeys(range(5, 7), 3)
    with pytest.raises(Exception, match="one process"):
        writer = frame(spark, 0, 1, 1).write.format("mainstem").options(**OPTIONS, path=str(path))
        writer.mode("append").save()
    assert content(path) == dict.fromkeys(range(5, 7), 3)


def test_the_index_is_told_where_the_table_does_not_say_it(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    ms.write_batch(frame(spark, 0, 3, 1), str(path), options=OPTIONS)
    properties = path / ".hoodie/hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith("hoodie.index.type")]
    properties.write_text("\n".join(lines) + "\n")
    ms.write_batch(frame(spark, 2, 5, 2), str(path), options=OPTIONS)
    assert content(path) == {0: 1, 1: 1, 2: 2, 3: 2, 4: 2}


def test_a_stream_writes_each_batch_once(spark: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "source"
    for number in range(2):
        frame(spark, 5 * number, 5 * number + 8, number).coalesce(1).write.mode("append").parquet(str(source))
    stream = spark.readStream.schema("id string, city string, ts long").parquet(str(source))
    for _ in range(2):  # again: nothing is left to write
        query = ms.write_stream(
            stream, str(path), options={**OPTIONS, "hoodie.mainstem.services": "off"},
            checkpoint=str(tmp_path / "c"), trigger={"availableNow": True},
        )  # fmt: skip
        query.awaitTermination()
    assert content(path) == {**dict.fromkeys(range(5), 0), **dict.fromkeys(range(5, 13), 1)}
    assert len(mainstem.open_table(path).timeline()) == 1
