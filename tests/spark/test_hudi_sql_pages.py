"""Goal: the statements of Hudi's quick start in Spark SQL, and their like, run as they stand there.

Method: they are carried out in order, word for word but for TBLPROPERTIES. What the pages do and this source
does not (tables without a record key, copy on write) is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from mainstem import spark as ms
from mainstem.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.supports("Engines", "Spark SQL: CREATE TABLE USING hudi, AS SELECT; Hudi's quick start"),
]
TABLES = ("hudi_table", "fare_adjustment", "hudi_ctas")


@pytest.fixture
def dropped(spark: SparkSession) -> Iterator[None]:
    yield
    for name in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def _values(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in ms.sql(spark, text).collect()]


@pytest.mark.usefixtures("dropped")
def test_the_quick_start_runs_word_for_word(spark: SparkSession):
    def run(text: str) -> None:
        ms.sql(spark, text)

    run("""CREATE TABLE hudi_table (
            ts BIGINT,
            uuid STRING,
            rider STRING,
            driver STRING,
            fare DOUBLE,
            city STRING
        ) USING HUDI
        TBLPROPERTIES (type = 'mor', primaryKey = 'uuid', preCombineField = 'ts',
            'hoodie.bucket.index.num.buckets' = '1')
        PARTITIONED BY (city)""")
    run("""INSERT INTO hudi_table
        VALUES
        (1695159649087,'334e26e9-8355-45cc-97c6-c31daf0df330','rider-A','driver-K',19.10,'san_francisco'),
        (1695091554788,'e96c4396-3fad-413a-a942-4cb36106d721','rider-C','driver-M',27.70 ,'san_francisco'),
        (1695046462179,'9909a8b1-2d15-4d3d-8ec9-efc48c536a00','rider-D','driver-L',33.90 ,'san_francisco'),
        (1695516137016,'e3cf430c-889d-4015-bc98-59bdce1e530c','rider-F','driver-P',34.15,'sao_paulo'),
        (1695115999911,'c8abbe79-8d89-47ea-b4ce-4d224bae5bfa','rider-J','driver-T',17.85,'chennai');""")
    found = _values(spark, "SELECT ts, fare, rider, driver, city FROM  hudi_table WHERE fare > 20.0;")
    assert len(found) == 3
    run("UPDATE hudi_table SET fare = 25.0 WHERE rider = 'rider-D';")
    run("DELETE FROM hudi_table WHERE uuid = '334e26e9-8355-45cc-97c6-c31daf0df330';")
    run("""CREATE TABLE fare_adjustment USING HUDI
        TBLPROPERTIES (type = 'mor', primaryKey = 'uuid', 'hoodie.bucket.index.num.buckets' = '1') AS
        SELECT * FROM VALUES
        (1695091554788,'e96c4396-3fad-413a-a942-4cb36106d721','rider-C','driver-M',-2.70 ,'san_francisco'),
        (1695530237068,'3f3d9565-7261-40e6-9b39-b8aa784f95e2','rider-K','driver-U',64.20 ,'san_francisco'),
        (1695241330902,'ea4c36ff-2069-4148-9927-ef8c1a5abd24','rider-H','driver-R',66.60 ,'sao_paulo'),
        (1695115999911,'c8abbe79-8d89-47ea-b4ce-4d224bae5bfa','rider-J','driver-T',1.85,'chennai')
        AS t (ts, uuid, rider, driver, fare, city)""")
    run("""MERGE INTO hudi_table AS target
        USING fare_adjustment AS source
        ON target.uuid = source.uuid
        WHEN MATCHED THEN UPDATE SET target.fare = target.fare + source.fare
        WHEN NOT MATCHED THEN INSERT *
        ;""")
    assert _values(spark, "SELECT rider, round(fare, 2) FROM hudi_table ORDER BY rider") == [
        ("rider-C", 25.0), ("rider-D", 25.0), ("rider-F", 34.15), ("rider-H", 66.6), ("rider-J", 19.7),
        ("rider-K", 64.2),
    ]  # fmt: skip
    shown = [row[0] for row in _values(spark, "SHOW PARTITIONS hudi_table")]
    assert shown == ["city=chennai", "city=san_francisco", "city=sao_paulo"]
    run("ALTER TABLE hudi_table DROP PARTITION (city = 'sao_paulo');")
    assert len(_values(spark, "SELECT * FROM hudi_table")) == 4
    first = _values(spark, "SELECT min(Timestamp) FROM hudi_query_timeline('hudi_table')")[0][0]
    assert len(_values(spark, f"SELECT * FROM hudi_table TIMESTAMP AS OF '{first}' WHERE fare > 20.0")) == 3
    changes = "hudi_table_changes('hudi_table', 'latest_state', 'earliest')"
    changed = f"SELECT rider FROM {changes} WHERE fare > 25.0 ORDER BY 1"
    assert _values(spark, changed) == [("rider-K",)]
    run("CALL run_compaction(op => 'scheduleandexecute', table => 'hudi_table')")
    run("CREATE TABLE IF NOT EXISTS hudi_table (a INT) USING hudi")
    assert len(_values(spark, "SELECT * FROM hudi_table")) == 4
    for text, kind, match in (
        ("(id INT) USING hudi TBLPROPERTIES (type = 'cow', primaryKey = 'id')", Unsupported, "type = 'mor'"),
        ("USING hudi TBLPROPERTIES (primaryKey = 'id')", Invalid, "there is no table yet; name its columns"),
    ):
        with pytest.raises(kind, match=match):
            run(f"CREATE TABLE hudi_ctas {text}")
    with pytest.raises(Invalid, match="hudi_table is there already"):
        run("CREATE TABLE hudi_table (id INT) USING hudi")
