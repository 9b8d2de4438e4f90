"""Goal: a frame overwrites partitions or a table, through the driver and on executors; streams do not.

Method: `write_batch` with Hudi's operations on a table whose buckets have files; each wrong way is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mainstem
import mainstem.spark as ms
from mainstem.errors import Unsupported

OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
}
OPERATION = "hoodie.datasource.write.operation"
ON_EXECUTORS = {"hoodie.mainstem.spark.driver.rows.max": 0}


def frame(spark: Any, low: int, high: int, city: str = "a") -> Any:
    return spark.range(low, high).selectExpr("cast(id as string) as id", f"'{city}' as city", "id as ts")


def keys(path: Path) -> set[int]:
    found = mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found))
    return set(map(int, found))


@pytest.fixture
def path(spark: Any, tmp_path: Path) -> Path:
    """A table of 0 to 19 in partition a and 20 to 39 in b."""
    rows = frame(spark, 0, 20).union(frame(spark, 20, 40, "b"))
    ms.write_batch(rows, str(tmp_path / "t"), options=OPTIONS)
    return tmp_path / "t"


@pytest.mark.parametrize("way", [{}, ON_EXECUTORS], ids=["through the driver", "on executors"])
def test_a_frame_overwrites_its_partitions_or_the_whole_table(spark: Any, path: Path, way: Any) -> None:
    new = frame(spark, 100, 110).repartition(3)
    ms.write_batch(new, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite"})
    assert keys(path) == {*range(100, 110), *range(20, 40)}
    ms.write_batch(new, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite_table"})
    assert keys(path) == set(range(100, 110))


@pytest.mark.parametrize("way", [{}, ON_EXECUTORS], ids=["through the driver", "on executors"])
def test_an_empty_frame_overwrites_no_partition_and_empties_a_table(spark: Any, path: Path, way: Any) -> None:
    none = frame(spark, 0, 0)
    ms.write_batch(none, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite"})
    assert keys(path) == set(range(40))
    ms.write_batch(none, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite_table"})
    assert keys(path) == set()


def test_the_data_source_and_streams_refuse_to_overwrite_and_say_what_to_do(spark: Any, path: Path) -> None:
    asked = {**OPTIONS, OPERATION: "insert_overwrite"}
    writer = frame(spark, 0, 3).write.format("mainstem").options(**asked, path=str(path))
    with pytest.raises(Exception, match="write_batch"):
        writer.mode("append").save()
    with pytest.raises(Exception, match="write_batch"):
        writer.mode("overwrite").save()
    source = spark.readStream.format("rate").load().selectExpr(
        "cast(value as string) as id", "'a' as city", "value as ts"
    )
    with pytest.raises(Unsupported, match="again in each batch"):
        ms.write_stream(source, path=str(path), options=asked, checkpoint=str(path.parent / "c"))
    assert keys(path) == set(range(40))
