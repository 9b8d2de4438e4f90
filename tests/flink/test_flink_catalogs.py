"""Goal: Hudi's Flink catalog, in a folder and in a Hive Metastore: what it holds is what statements see.

Method: statements of Flink SQL through our environment; one INSERT runs as a job. What they made is opened
from Python, and what Python made meanwhile is seen by the next statement.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.flink import connect
from mainstem.formats.java_properties import parse_properties
from tests.servers import hive_metastore

COLUMNS = (
    "id BIGINT, name VARCHAR(10), made TIMESTAMP(3), tags ARRAY<STRING>, city STRING,"
    " PRIMARY KEY (id) NOT ENFORCED"
)
OPTIONS = "'table.type' = 'MERGE_ON_READ', 'index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '1'"


def row(key: int, name: str) -> pa.Table:
    made = pa.array([0], pa.timestamp("ms", "UTC"))
    return pa.table({"id": [key], "name": [name], "made": made, "tags": [["y"]], "city": ["rome"]})


def shown(t, statement: str) -> list[str]:
    with t.execute_sql(statement).collect() as found:
        return sorted(str(row[0]) for row in found)


@pytest.mark.slow
@pytest.mark.supports("Engines", "Flink SQL: CREATE CATALOG of Hudi, `dfs` and `hms`")
def test_a_catalog_of_folders_makes_fills_reads_and_shows_tables(table_environment, tmp_path: Path) -> None:
    t = connect(table_environment)
    before = t.get_current_catalog()
    try:
        place = f"'mode' = 'dfs', 'catalog.path' = '{tmp_path}'"
        t.execute_sql(f"CREATE CATALOG lake WITH ('type' = 'hudi', {place})")
        t.execute_sql("USE CATALOG lake")
        t.execute_sql("CREATE DATABASE city")
        t.execute_sql("USE city")
        more = "'read.tasks' = '1'"
        t.execute_sql(f"CREATE TABLE trips ({COLUMNS}) PARTITIONED BY (city) WITH ({OPTIONS}, {more})")
        t.execute_sql(f"CREATE TABLE IF NOT EXISTS trips ({COLUMNS}) WITH ({OPTIONS})")
        with pytest.raises(Invalid, match="there already"):
            t.execute_sql(f"CREATE TABLE trips ({COLUMNS}) WITH ({OPTIONS})")
        with pytest.raises(Invalid, match="leave the option out"):
            t.execute_sql(f"CREATE TABLE other ({COLUMNS}) WITH ({OPTIONS}, 'path' = '/tmp/elsewhere')")
        assert (shown(t, "SHOW DATABASES"), shown(t, "SHOW TABLES")) == (["city", "default"], ["trips"])
        table = mainstem.open_table("city.trips", catalog=str(tmp_path))
        assert (table.config.record_key, table.config.partition_fields) == (("id",), ("city",))
        beside = tmp_path / "city/trips/.hoodie/.aux/table_option.properties"
        options = parse_properties(beside.read_bytes(), path="")
        stored = ("pk.columns", "partition.columns", "read.tasks")
        assert [options[key] for key in stored] == ["id", "city", "1"]
        made = "TIMESTAMP '2026-01-02 03:04:05.678'"
        t.execute_sql(f"INSERT INTO trips VALUES (1, 'a', {made}, ARRAY['x'], 'oslo')").wait()
        # Python writes a column more, and another table: the next statement sees both.
        table.upsert(row(2, "b").append_column("tip", pa.array([1.5])))
        catalog = mainstem.open_catalog(str(tmp_path))
        catalog.create_table("city.late", pa.schema([("k", pa.int64())]), record_key="k")
        told = "CONCAT(CAST(id AS STRING), name, city, COALESCE(CAST(tip AS STRING), '-'))"
        rows = shown(t, f"SELECT {told} FROM trips")
        assert rows == ["1aoslo-", "2brome1.5"]
        assert shown(t, "SHOW TABLES") == t.list_tables() == ["late", "trips"]
        for statement, why in (
            ("DROP TABLE trips", "purge=True"), ("ALTER TABLE trips ADD x INT", "Table.evolve"),
            ("CREATE TABLE x AS SELECT * FROM trips", "filled by INSERT INTO"),
            ("DROP DATABASE city CASCADE", "one by one"),
        ):  # fmt: skip
            with pytest.raises(Unsupported, match=why):
                t.execute_sql(statement)
        assert table.scan(["id"]).to_arrow().num_rows == 2
        # Another session.
        t.execute_sql(f"CREATE CATALOG again WITH ('type' = 'hudi', 'catalog.path' = '{tmp_path}')")
        assert t.sql_query("SELECT tip FROM again.city.trips").get_schema().get_field_names() == ["tip"]
        t.execute_sql("DROP CATALOG again")
    finally:
        table_environment.use_catalog(before)


def test_a_catalog_in_a_metastore_registers_what_it_makes(table_environment, tmp_path: Path) -> None:
    jars = hive_metastore.jars()
    assert jars is not None
    t = connect(table_environment)
    with hive_metastore.running(tmp_path / "metastore", jars) as uri:
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "hive-site.xml").write_text(
            f"<configuration><property><name>hive.metastore.uris</name><value>{uri}</value></property>"
            "</configuration>"
        )
        place = f"'mode' = 'hms', 'hive.conf.dir' = '{conf}'"
        t.execute_sql(f"CREATE CATALOG hms WITH ('type' = 'hudi', {place})")
        t.execute_sql("CREATE DATABASE hms.city")
        more = f"'path' = '{tmp_path}/trips'"
        t.execute_sql(f"CREATE TABLE hms.city.trips ({COLUMNS}) WITH ({OPTIONS}, {more})")
        catalog = mainstem.open_catalog(uri)
        assert catalog.tables("city") == ["trips", "trips_ro", "trips_rt"]
        catalog.open_table("city.trips").upsert(row(7, "x"))
        assert shown(t, "SHOW TABLES FROM hms.city") == ["trips", "trips_ro", "trips_rt"]
        assert "`city`" not in t.explain_sql("SELECT id FROM hms.city.trips_ro")
        t.execute_sql("DROP TABLE hms.city.trips")
        t.execute_sql("DROP DATABASE hms.city")
        assert catalog.databases() == ["default"]
        assert mainstem.open_table(tmp_path / "trips").scan(["id"]).to_arrow().num_rows == 1
        t.execute_sql("DROP CATALOG hms")


def test_a_catalog_that_cannot_be_is_refused_at_once(table_environment, tmp_path: Path) -> None:
    t = connect(table_environment)
    for options, error, why in (
        ("", Invalid, "'catalog.path' is missing"), (", 'mode' = 'jdbc'", Unsupported, "expected dfs or hms"),
        (", 'mode' = 'hms'", Invalid, "thrift://host:9083"),
        (f", 'mode' = 'hms', 'hive.conf.dir' = '{tmp_path}'", Invalid, "cannot be read"),
        (", 'catalog.path' = '/x', 'default-database' = '../y'", Invalid, "is no name"),
    ):  # fmt: skip
        with pytest.raises(error, match=why):
            t.execute_sql(f"CREATE CATALOG broken WITH ('type' = 'hudi'{options})")
    assert "broken" not in shown(t, "SHOW CATALOGS")
