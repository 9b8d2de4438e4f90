"""Goal: ALTER TABLE, DESCRIBE, SHOW and CREATE TABLE LIKE tell and change the table itself, and the catalog
with it; an error's sentence is what a person sees first.

Method: statements run in one session on a table of its catalog, while another writer changes the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.supports("Engines", "Spark SQL: ALTER TABLE, DESCRIBE, SHOW, CREATE TABLE LIKE"),
]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    ms.sql(
        spark,
        f"""CREATE TABLE trips (id STRING COMMENT 'the key', n INT, ts BIGINT, city STRING) USING hudi
        PARTITIONED BY (city) LOCATION '{tmp_path}/t' COMMENT "it's ours" TBLPROPERTIES (primaryKey = 'id',
        preCombineField = 'ts', hoodie.bucket.index.num.buckets = 2, hoodie.keep.max.commits = 40,
        note = 'x')""",
    )
    yield f"{tmp_path}/t"
    for name in ("trips", "moved", "same", "again", "other"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def _values(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in ms.sql(spark, text).collect()]


def test_what_is_told_and_changed_is_the_table_and_the_catalog_follows(spark: SparkSession, path: str):
    table = mainstem.open_table(path)
    table.evolve(pa.schema([("theirs", pa.string())]))  # another writer
    ms.sql(spark, "ALTER TABLE trips ADD COLUMNS (tip DOUBLE COMMENT 'extra')")
    ms.sql(spark, "ALTER TABLE trips ALTER COLUMN n TYPE BIGINT")
    ms.sql(spark, "ALTER TABLE trips ALTER COLUMN n COMMENT 'how many'")
    assert table.schema.field("n").type == pa.int64() and table.schema.names[-2:] == ["theirs", "tip"]
    ms.sql(spark, "INSERT INTO trips (id, n, ts, city, tip) VALUES ('a', 5000000000, 1, 'oslo', 0.5)")
    assert _values(spark, "SELECT n, theirs, tip FROM trips") == [(5000000000, None, 0.5)]
    columns = [
        ("id", "string", "the key"), ("n", "bigint", "how many"), ("ts", "bigint", None),
        ("city", "string", None), ("theirs", "string", None), ("tip", "double", "extra"),
    ]  # fmt: skip
    told = _values(spark, "DESCRIBE EXTENDED trips")
    assert told[:6] == columns and ("city", "string", None) in told[6:]
    assert ("Comment", "it's ours", "") in told and ("Location", path, "") in told
    assert _values(spark, "SHOW COLUMNS IN trips") == [(row[0],) for row in columns]
    assert _values(spark, "DESC trips n")[2] == ("comment", "how many")
    kept = dict(_values(spark, "SHOW TBLPROPERTIES trips"))
    assert (kept["primaryKey"], kept["hoodie.keep.max.commits"], kept["note"]) == ("id", "40", "x")
    (((created),),) = _values(spark, "SHOW CREATE TABLE trips")
    again = created.replace("`trips`", "again").replace(path, f"{path}-again")
    ms.sql(spark, again)
    assert _values(spark, "SHOW CREATE TABLE again")[0][0] == created.replace("`trips`", "`again`").replace(
        path, f"{path}-again"
    )
    ms.sql(spark, f"CREATE TABLE same LIKE trips USING hudi LOCATION '{path}-same'")
    same = mainstem.open_table(f"{path}-same").config
    assert (same.record_key, same.ordering, same.partition_fields) == (("id",), ("ts",), ("city",))
    ms.sql(spark, "ALTER TABLE trips RENAME TO moved")
    assert _values(spark, "SELECT id FROM moved") == [("a",)]
    ms.sql(spark, "DROP TABLE moved")
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 1
    ms.sql(spark, f"CREATE TABLE moved USING hudi LOCATION '{path}'")
    Path(path, "notes.txt").write_text("not the table's")
    ms.sql(spark, "DROP TABLE moved PURGE")
    assert not spark.catalog.tableExists("moved")
    assert [one.name for one in Path(path).rglob("*")] == ["notes.txt"]


def test_properties_of_the_catalog_count_in_statements_that_write(spark: SparkSession, path: str):
    option = "hoodie.spark.sql.insert.into.operation"
    ms.sql(spark, f"ALTER TABLE trips SET TBLPROPERTIES ({option} = 'bulk_insert')")
    ms.sql(spark, "INSERT INTO trips VALUES ('a', 1, 1, 'oslo')")
    ms.sql(spark, f"ALTER TABLE trips UNSET TBLPROPERTIES ({option})")
    ms.sql(spark, "INSERT INTO trips VALUES ('b', 1, 1, 'oslo')")
    done = mainstem.open_table(path).history().to_pylist()
    assert [one["operation"] for one in done if one["rows"]] == ["BULK_INSERT", "INSERT"]
    refused = (
        ("SET TBLPROPERTIES (primaryKey = 'n')", Invalid, "stays as it is: .*contradicts the table"),
        ("SET TBLPROPERTIES (hoodie.keep.max.commits = '1')", Invalid, "hoodie.keep.max.commits"),
        ("SET TBLPROPERTIES (hoodie.keep.max.comits = '50')", Invalid, "unknown option"),
        ("SET TBLPROPERTIES (primryKey = 'id')", Invalid, "is primarykey meant"),
        ("ADD COLUMNS (n INT)", Invalid, "has 'n' already"),
        ("ADD COLUMNS (m INT FIRST)", Unsupported, "leave FIRST, AFTER, NOT NULL and DEFAULT out"),
        ("ALTER COLUMN n TYPE STRING", Invalid, "'n' is int32 and cannot become string"),
        ("ALTER COLUMN n SET NOT NULL", Unsupported, "its type .wider. and its comment can be changed"),
        ("DROP COLUMN n", Unsupported, "DROP COLUMNS is Hudi's schema on read"),
        ("RENAME COLUMN n TO m", Unsupported, "RENAME COLUMN is Hudi's schema on read"),
        ("ADD PARTITION (city = 'x')", Unsupported, "INSERT INTO makes it"),
        ("SET LOCATION '/x'", Unsupported, "CREATE TABLE name USING hudi LOCATION"),
    )
    for text, kind, match in refused:
        with pytest.raises(kind, match=match):
            ms.sql(spark, f"ALTER TABLE trips {text}")
    with pytest.raises(Unsupported, match="kept in the catalog, and the table is named by its path"):
        ms.sql(spark, f"ALTER TABLE mainstem.`{path}` SET TBLPROPERTIES (note = 'y')")
    ms.sql(spark, f"ALTER TABLE mainstem.`{path}` ADD COLUMNS (m INT)")
    assert mainstem.open_table(path).schema.names == ["id", "n", "ts", "city", "m"]
    assert _values(spark, f"DESCRIBE mainstem.`{path}`")[4] == ("m", "int", None)


def test_the_sentence_of_an_error_is_the_first_and_the_last_line(spark: SparkSession, tmp_path: Path):
    given = {"hoodie.table.name": "x", "hoodie.datasource.write.recordkey.field": "id"}
    ordered = {**given, "hoodie.datasource.write.precombine.field": "ts"}
    cases = (
        ("SELECT 'a' AS id", ordered, "Invalid: ordering names 'ts', but the schema has id"),
        ("SELECT 'a' AS ID", given, "Invalid: record_key names 'id', but the schema has ID"),
        ("SELECT cast(NULL AS STRING) AS id", given, "Invalid: record key field 'id' is null or empty"),
    )
    for number, (query, options, sentence) in enumerate(cases):
        rows = spark.sql(query).write.format("mainstem").mode("append").options(**options)
        with pytest.raises(Exception) as caught:
            rows.save(f"{tmp_path}/{number}")
        lines = str(caught.value).splitlines()
        assert lines[0].startswith(sentence) and lines[-1].startswith(sentence), str(caught.value)
        assert re.search("Spark's words", str(caught.value))
    with pytest.raises(Exception, match=r'^Invalid: option "path" is missing.*CREATE TABLE') as caught:
        spark.range(1).write.format("mainstem").saveAsTable("other")
