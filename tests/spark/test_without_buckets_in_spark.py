"""Goal: Spark writes tables without buckets, by tasks or through its driver, each row once where its key
lives.

Method: `write_batch`, `write_stream` and the data source on tables under several indexes, with frames that go
to executors. Tasks that fail and streams that are run again show that nothing is written twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mainstem
import mainstem.spark as ms
from mainstem.spark import key_tasks

OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "SIMPLE",
    "hoodie.mainstem.spark.driver.rows.max": 0,  # executors write
}
OPERATION = "hoodie.datasource.write.operation"


def frame(spark: Any, low: int, high: int, ts: int, city: str = "a") -> Any:
    return spark.range(low, high).selectExpr("cast(id as string) as id", f"'{city}' as city", f"{ts}L as ts")


def content(path: Path) -> dict[int, int]:
    found = mainstem.open_table(path, {"hoodie.index.type": "SIMPLE"}).scan(columns=["id", "ts"]).to_arrow()
    keys = found["id"].to_pylist()
    assert len(keys) == len(set(keys)), "a key is doubled"
    return dict(zip(map(int, keys), found["ts"].to_pylist(), strict=True))


@pytest.mark.supports("Engines", "Spark writes tables without buckets, by its driver and its tasks")
def test_a_frame_is_written_to_where_its_keys_live(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    ms.write_batch(frame(spark, 0, 20, 1), str(path), options=OPTIONS)
    assert mainstem.open_table(path).properties["hoodie.index.type"] == "SIMPLE"
    ms.write_batch(frame(spark, 10, 30, 2).repartition(3), str(path), options=OPTIONS)
    assert content(path) == {**dict.fromkeys(range(10), 1), **dict.fromkeys(range(10, 30), 2)}
    overwrite = {**OPTIONS, OPERATION: "insert_overwrite"}
    ms.write_batch(frame(spark, 5, 7, 3), str(path), options=overwrite)
    assert content(path) == dict.fromkeys(range(5, 7), 3)


def saved(df: Any, path: Path, mode: str = "append", **more: Any) -> None:
    df.write.format("mainstem").options(**{**OPTIONS, **more}, path=str(path)).mode(mode).save()


def left_by_tasks(path: Path) -> list[str]:
    folder = path / ".hoodie/.mainstem/task-rows"
    return [file.name for file in folder.iterdir()] if folder.exists() else []


@pytest.mark.supports("Engines", "Spark's format writes tables without buckets, exactly once")
def test_the_data_source_appends_and_overwrites(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    saved(frame(spark, 0, 20, 1), path)
    saved(frame(spark, 10, 30, 2).repartition(3), path)
    expected = {**dict.fromkeys(range(10), 1), **dict.fromkeys(range(10, 30), 2)}
    assert content(path) == expected and len(mainstem.open_table(path).timeline()) == 2
    saved(frame(spark, 0, 5, 3), path, **{OPERATION: "delete"})
    broken = frame(spark, 5, 9, 4).selectExpr("id", "city", "if(id = '7', raise_error('no'), ts) as ts")
    with pytest.raises(Exception, match="no"):
        saved(broken.repartition(2), path)
    assert content(path) == {key: ts for key, ts in expected.items() if key >= 5}
    saved(frame(spark, 5, 7, 3), path, mode="overwrite")
    assert content(path) == dict.fromkeys(range(5, 7), 3) and not left_by_tasks(path)


def test_a_stream_of_the_data_source_writes_each_batch_once(spark: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "t", tmp_path / "source"
    frame(spark, 0, 3, 0).coalesce(1).write.parquet(str(source))
    stream = spark.readStream.schema("id string, city string, ts long").parquet(str(source))
    options = {**OPTIONS, "hoodie.index.type": "GLOBAL_SIMPLE", "path": str(path)}
    options["hoodie.simple.index.update.partition.path"] = "false"
    for number in range(1, 3):
        frame(spark, 2 * number, 2 * number + 3, number).coalesce(1).write.mode("append").parquet(str(source))
        writer = stream.writeStream.format("mainstem").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        writer.start().awaitTermination()
    found = mainstem.open_table(path).scan(columns=["id", "ts"]).to_arrow()
    assert dict(zip(map(int, found["id"].to_pylist()), found["ts"].to_pylist(), strict=True)) == {
        0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2,
    }  # fmt: skip
    assert found.num_rows == 7 and len(mainstem.open_table(path).timeline()) == 2


def test_keys_of_a_large_batch_are_looked_for_by_a_task_per_file_group(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks = tmp_path / "t", []
    met = key_tasks.in_tasks
    monkeypatch.setattr(key_tasks, "in_tasks", lambda *a: looks.append(len(a[2])) or met(*a))
    for number in range(3):
        ms.write_batch(frame(spark, 1000 * number, 1000 * number + 1000, 1), str(path), options=OPTIONS)
    ms.write_batch(frame(spark, 500, 3500, 2), str(path), options=OPTIONS)
    assert content(path) == {**dict.fromkeys(range(500), 1), **dict.fromkeys(range(500, 3500), 2)}
    assert looks and looks[-1] == 3 and not left_by_tasks(path)


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
