"""Goal: INSERT, TRUNCATE and queries find tables of this source as Hudi's SQL names them, at any time.

Method: statements run in one session on small tables: by path, as a view, as a table of the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.errors import Invalid, Unsupported
from mainstem.spark import relations_in_sql
from mainstem.spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.supports(
        "Engines", "Spark SQL: INSERT, OVERWRITE, TRUNCATE; time travel; table functions; procedures"
    ),
]
SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("ts", pa.int32()), ("city", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return mainstem.create_table(
        str(tmp_path / "t"), SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2
    )


def _rows(table: mainstem.Table, *names: str) -> list[tuple[Any, ...]]:
    found = table.scan(columns=list(names or SCHEMA.names)).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_inserts_match_columns_as_spark_does_and_overwrites_hide_what_they_name(
    spark: SparkSession, table: mainstem.Table
):
    t = f"mainstem.`{table.path}`"
    answer = ms.sql(spark, f"INSERT INTO {t} VALUES (1, 10, 1L, 'oslo'), (2, 20.5, 1, 'rome')").collect()
    assert [row.num_affected_rows for row in answer] == [2]
    source = "WITH s AS (SELECT 3 AS a, 'oslo' AS b)"
    ms.sql(spark, f"{source} INSERT INTO {t} (city, ts, ID) SELECT b, 1, a FROM s")
    by_name = "SELECT 'rome' AS city, 4 AS id, 2 AS ts, :p AS price"
    ms.sql(spark, f"INSERT INTO {t} BY NAME {by_name}", args={"p": 4})
    ms.sql(spark, f"INSERT INTO {t} PARTITION (city = 'bonn') SELECT 5, 5, 1")
    ms.sql(spark, f"INSERT INTO {t} SELECT * FROM {t} WHERE id = 5")  # Hudi's meta columns are left out
    loaded = [
        (1, 10.0, 1, "oslo"), (2, 20.5, 1, "rome"), (3, None, 1, "oslo"), (4, 4.0, 2, "rome"),
        (5, 5.0, 1, "bonn"),
    ]  # fmt: skip
    assert _rows(table) == loaded
    for text, match in (
        ("VALUES (1, 2)", r"the query has 2 columns \(col1, col2\), for 4 of the table: id, price, ts, city"),
        ("VALUES (1, 2, 5000000000, 'oslo')", "(?i)overflow"),
        ("VALUES (1, 'x', 1, 'oslo')", "type string is assigned to 'price', which is double: cast it"),
        ("(id, nmae) VALUES (1, 2)", "the table has no column 'nmae'"),
        ("(id, id) VALUES (1, 2)", "id given twice"),
    ):
        with pytest.raises(Exception, match=match):
            ms.sql(spark, f"INSERT INTO {t} {text}")
    assert _rows(table) == loaded
    ms.sql(spark, f"INSERT OVERWRITE {t} PARTITION (city = 'oslo') SELECT 6, 6, 1")
    assert [row[0] for row in _rows(table, "id")] == [2, 4, 5, 6]
    ms.sql(spark, f"INSERT OVERWRITE {t} PARTITION (city = 'bonn') SELECT 7, 7, 1 WHERE false")
    assert [row[0] for row in _rows(table, "id")] == [2, 4, 6]
    ms.sql(spark, f"TRUNCATE TABLE {t} PARTITION (city = 'rome')")
    ms.sql(spark, f"INSERT OVERWRITE TABLE {t} SELECT id, 1, ts, city FROM {t}")
    assert _rows(table) == [(6, 1.0, 1, "oslo")]
    ms.sql(spark, f"TRUNCATE TABLE {t}")
    assert not _rows(table)


def test_queries_read_tables_by_path_of_the_catalog_and_as_of_a_time(
    spark: SparkSession, table: mainstem.Table
):
    first = table.upsert([{"id": 1, "price": 1.0, "ts": 1, "city": "oslo"}])
    table.upsert({"id": [1, 2], "price": [2.0, 9.0], "ts": [2, 1], "city": ["oslo", "a"]})
    t = f"mainstem.`{table.path}`"
    spark.sql(f"CREATE TABLE trips (id bigint) USING mainstem LOCATION '{table.path}'")
    try:
        ms.sql(spark, "UPDATE trips SET price = trips.price + 1 WHERE trips.id = 2")
        found = ms.sql(
            spark,
            f"""WITH old AS (SELECT * FROM trips TIMESTAMP AS OF '{first.instant}')
            SELECT n.id, old.price, trips.price AS now, (SELECT max(price) FROM {t} WHERE id > 1) AS most
            FROM {t} AS n LEFT JOIN old ON n.id = old.id JOIN trips ON trips.id = n.id ORDER BY n.id""",
        )
        assert [tuple(row) for row in found.collect()] == [(1, 1.0, 2.0, 10.0), (2, None, 10.0, 10.0)]
        older = ms.sql(spark, f"SELECT price FROM {t} VERSION AS OF {first.instant} t WHERE t.id = 1")
        assert [row.price for row in older.collect()] == [1.0]
        assert not ms.sql(spark, f"SELECT * FROM {t} TIMESTAMP AS OF date'2020-01-01'").collect()
    finally:
        spark.sql("DROP TABLE trips")
    spark.read.format("mainstem").option("filter", "id = 1").load(table.path).createOrReplaceTempView("part")
    with pytest.raises(Invalid, match="the view part has filter: it shows not all of its table"):
        ms.sql(spark, "DELETE FROM part")
    with pytest.raises(Unsupported, match="IF NOT EXISTS"):
        ms.sql(spark, f"INSERT OVERWRITE {t} PARTITION (city = 'x') IF NOT EXISTS SELECT 1, 1D, 1")


def test_a_query_reads_the_columns_and_rows_that_it_needs(
    spark: SparkSession, table: mainstem.Table, monkeypatch: pytest.MonkeyPatch
):
    table.upsert({"id": [1, 2, 3], "price": [1.0, None, 3.0], "ts": [1, 1, 2], "city": ["oslo", "a", "a"]})
    asked: list[tuple[set[str], str]] = []
    read = relations_in_sql.read_in_tasks

    def told(spark: SparkSession, path: str, options: Mapping[str, str]) -> Any:
        parsed = ReadOptions.parse({**options, "path": path})
        asked.append((set(parsed.columns or ()), parsed.filter or ""))
        return read(spark, path, options)

    monkeypatch.setattr(relations_in_sql, "read_in_tasks", told)
    t = f"mainstem.`{table.path}`"
    every = {"_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path",
             "_hoodie_file_name", *SCHEMA.names}  # fmt: skip
    cases = (
        (f"SELECT price FROM {t} WHERE ts < 2 AND city LIKE 'o%'", [(1.0,)],
         [({"price", "ts", "city"}, "`ts` < 2")]),
        (f"SELECT count(*) FROM {t}", [(3,)], [({"ts"}, "")]),
        (f"SELECT a.id, b.price FROM {t} a JOIN {t} b ON a.id = b.id AND a.ts = 2", [(3, 3.0)], None),
        (f"SELECT id FROM {t} WHERE price = (SELECT max(price) FROM {t} WHERE id IN (1, 3))", [(3,)], None),
        (f"SELECT * FROM {t} ORDER BY id LIMIT 1", None, [(every, "")]),
        (f"WITH w AS (SELECT * FROM {t}) SELECT id FROM w WHERE id = ?", [(2,)], [({"id"}, "`id` = 2")]),
    )  # fmt: skip
    for text, rows, wanted in cases:
        asked.clear()
        found = ms.sql(spark, text, **({"args": [2]} if "?" in text else {})).collect()
        assert rows is None or [tuple(row) for row in found] == rows, text
        assert len(asked) >= 1, text
        if wanted is not None:
            assert [one[0] for one in asked] == [one[0] for one in wanted], text
            assert all(part in one[1] for one, (_, part) in zip(asked, wanted, strict=True)), (text, asked)
        elif "JOIN" in text:
            assert all(columns < every for columns, _ in asked), asked


def test_table_functions_tell_of_timeline_files_and_changes(spark: SparkSession, table: mainstem.Table):
    first = table.upsert([{"id": 1, "price": 1.0, "ts": 1, "city": "oslo"}])
    second = table.upsert([{"id": 2, "price": 2.0, "ts": 2, "city": "rome"}])
    told = ms.sql(spark, f"SELECT * FROM hudi_query_timeline('{table.path}', 'true') ORDER BY Timestamp")
    rows = [(row.Timestamp, row.Action, row.State, row.Total_Records_Written) for row in told.collect()]
    wanted = [(one.instant, "deltacommit", "COMPLETED", 1) for one in (first, second)]
    assert [row for row in rows if row[1] == "deltacommit"] == wanted
    table.schedule_compaction()
    files = f"SELECT f.* FROM hudi_filesystem_view('{table.path}', 'os*') AS f WHERE Log_File_Count > 0"
    (one,) = ms.sql(spark, files).collect()
    assert one.Partition_Path == "oslo" and one.Log_File_Size == one.Log_File_Scheduled > 0
    assert one.Log_File_Unscheduled == 0 and one.Base_File_Path == ""
    changes = f"SELECT id FROM hudi_table_changes('{table.path}', 'latest_state', '{first.completion_time}')"
    assert [row.id for row in ms.sql(spark, changes).collect()] == [2]
    with pytest.raises(Unsupported, match=r"^mode=.cdc. needs a table with hoodie.table.cdc.enabled=true"):
        ms.sql(spark, f"SELECT op FROM hudi_table_changes('{table.path}', 'cdc', 'earliest')")
    with pytest.raises(Invalid, match=r"hudi_table_changes\(table, 'latest_state' or 'cdc', begin"):
        ms.sql(spark, f"SELECT * FROM hudi_table_changes('{table.path}')")


def test_procedures_take_hudis_arguments_and_give_hudis_columns(spark: SparkSession, table: mainstem.Table):
    first = table.upsert([{"id": 1, "price": 1.0, "ts": 1, "city": "oslo"}])

    def call(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in ms.sql(spark, f"CALL {text.replace('$t', table.path)}").collect()]

    at = f"commit_time => '{first.instant}'"
    assert call(f"create_savepoint(table => '$t', {at}, comments => 'a, (b)')") == [(True,)]
    table.upsert([{"id": 2, "price": 2.0, "ts": 1, "city": "rome"}])
    assert call("show_savepoints(path => '$t')") == [(first.instant,)]
    (planned,) = call("run_compaction('schedule', '$t')")
    assert planned[1:] == (2, "REQUESTED")
    assert call("system.run_compaction(op => 'run', table => '$t')") == [(planned[0], 2, "COMPLETED")]
    assert call("show_compaction(table => '$t')") == [(planned[0], 2, "COMPLETED")]
    shown = ms.sql(spark, f"CALL show_commits(table => '{table.path}', limit => 2)")
    assert shown.columns[:3] == ["commit_time", "state_transition_time", "action"]
    assert [(row[2], row[7]) for row in shown.collect()] == [("commit", 2), ("deltacommit", 1)]
    (one,) = call("show_timeline(table => '$t', filter => \"action = 'commit'\")")
    assert one[:3] == (planned[0], "commit", "COMPLETED")
    assert ("hoodie.table.type", "MERGE_ON_READ") in call("show_table_properties(table => '$t', limit => 99)")
    assert call("run_clean(table => '$t', retain_commits => 1)") == []
    assert call(f"rollback_to_savepoint(table => '$t', instant_time => '{first.instant}')") == [(True,)]
    assert call(f"delete_savepoint('$t', '{first.instant}')") == [(True,)] and _rows(table, "id") == [(1,)]
    for text, kind, match in (
        ("run_ttl(table => '$t')", Unsupported, "run_ttl: this procedure of Hudi's is not here; there"),
        ("run_clean(tabel => '$t')", Invalid, r"no such argument, or twice: tabel => .*; run_clean\(table, "),
        ("run_compaction(op => 'now', table => '$t')", Invalid, "op is 'schedule', 'run'"),
        ("run_compaction(table => '$t')", Invalid, "op missing"),
        ("run_clustering(table => '$t', predicate => 'x')", Unsupported, "predicate is not supported"),
        ("show_commits(table => 'nowhere')", Invalid, "'nowhere' is no table of this source"),
    ):
        with pytest.raises(kind, match=match):
            call(text)
