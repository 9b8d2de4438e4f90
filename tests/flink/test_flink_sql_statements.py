"""Goal: Flink SQL about Hudi tables is understood as Hudi's documentation writes it, or refused at once.

Method: one table environment for all; each test has a database of its own. Most statements are parsed,
explained or refused, which runs no job; that a refusal leaves the table alone is looked up in its folder.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.flink import connect
from mainstem.flink.declared_table import declared
from mainstem.flink.insert_target import open_target
from mainstem.flink.pipeline import plan_insert

COLUMNS = "uuid varchar(20), name varchar(10), age int, ts timestamp(3), `partition` varchar(20)"
SOURCE = """
    CREATE TABLE sourceT (uuid varchar(20), name varchar(10), age int, ts timestamp(3), `partition` as 'par1')
    WITH ('connector' = 'datagen', 'rows-per-second' = '200')
"""
NO_SERVICES = """, 'compaction.schedule.enabled' = 'false', 'compaction.async.enabled' = 'false',
    'clean.async.enabled' = 'false'"""

_databases = itertools.count()


@pytest.fixture
def t(table_environment):
    """A connected environment whose current database is empty but for ``sourceT``."""
    name = f"statements_{next(_databases)}"
    table_environment.execute_sql(f"CREATE DATABASE {name}")
    before = table_environment.get_current_database()
    table_environment.use_database(name)
    connected = connect(table_environment)
    connected.execute_sql(SOURCE)
    yield connected
    table_environment.use_database(before)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t1")


def declare(t, path, name="t1", columns=COLUMNS, more="", clause="", tasks=2):
    t.execute_sql(f"""
        create table {name} ({columns}) {clause}
        with ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ',
              'index.type' = 'BUCKET', 'write.tasks' = '{tasks}',
              'hoodie.write.concurrency.mode' = 'NON_BLOCKING_CONCURRENCY_CONTROL' {more})
    """)


def made(t, name="t1"):
    """The table that the first INSERT into a declared one makes."""
    return open_target(declared(t, (name,))).table


def columns_of(t, query):
    return t.sql_query(query).get_schema().get_field_names()


# ------------------------------------------------------------------------------------ declarations


@pytest.mark.supports("Engines", "Flink SQL: Hudi's own DDL and DML")
def test_the_sql_of_two_pipelines_into_one_table_is_understood(t, path) -> None:
    declare(t, path)
    declare(t, path, name="t1_2", more=NO_SERVICES)
    first = t.explain_sql("insert into t1/*+options('metadata.enabled'='true')*/ select * from sourceT")
    second = t.explain_sql("insert into t1_2 select * from sourceT")
    assert f"Table {path}: key uuid, partition none, 4 buckets" in first
    assert "'t1'" in first
    assert "'t1_2'" in second


@pytest.mark.parametrize("connector", ["hudi", "mainstem"])
def test_both_connector_names_are_taken(t, tmp_path, connector) -> None:
    t.execute_sql(f"create table c (uuid string) with ('connector' = '{connector}', 'path' = '{tmp_path}/c')")
    assert "c" in t.list_tables()


def test_declaring_and_explaining_create_no_table(t, path, tmp_path) -> None:
    declare(t, path)
    t.explain_sql("insert into t1 select * from sourceT")
    next(t.execute_sql("explain insert into t1 select * from sourceT").collect())
    assert list(tmp_path.iterdir()) == []


def test_a_new_table_has_flinks_defaults(t, path) -> None:
    declare(t, path)
    table = made(t)
    assert table.path == path
    assert table.config.record_key == ("uuid",)
    assert table.config.ordering == ("ts",)
    assert table.config.buckets == 4
    assert table.config.name == "t1"
    assert table.config.version == 9
    assert not table.config.hive_style
    assert table.schema.names == ["uuid", "name", "age", "ts", "partition"]
    assert table.schema.field("ts").type == pa.timestamp("ms", "UTC")


def test_primary_key_and_partitioned_by_decide(t, path) -> None:
    declare(t, path, clause="partitioned by (`partition`)",
            columns="id int primary key not enforced, age int, `partition` string",
            more=", 'hoodie.bucket.index.num.buckets' = '8'")  # fmt: skip
    config = made(t).config
    assert (config.record_key, config.partition_fields, config.buckets) == (("id",), ("partition",), 8)
    assert config.ordering == ()


@pytest.mark.parametrize(
    ("sql", "arrow"),
    [
        ("boolean", pa.bool_()), ("tinyint", pa.int32()), ("smallint", pa.int32()), ("int", pa.int32()),
        ("bigint", pa.int64()), ("float", pa.float32()), ("double", pa.float64()), ("char(3)", pa.string()),
        ("varchar(3)", pa.string()), ("string", pa.string()), ("binary(3)", pa.binary()),
        ("varbinary(3)", pa.binary()), ("bytes", pa.binary()), ("decimal(12, 3)", pa.decimal128(12, 3)),
        ("date", pa.date32()), ("time(3)", pa.time32("ms")),
        ("timestamp(0)", pa.timestamp("ms", "UTC")), ("timestamp(3)", pa.timestamp("ms", "UTC")),
        ("timestamp(6)", pa.timestamp("us", "UTC")), ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ltz(3)", pa.timestamp("ms")), ("timestamp_ltz(6)", pa.timestamp("us")),
        ("array<int>", pa.list_(pa.field("element", pa.int32()))), ("map<string, double>",
         pa.map_(pa.string(), pa.float64())),
        ("row<a int, b row<c string>>",
         pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))])),
    ],
)  # fmt: skip
@pytest.mark.supports("Column types", "Flink SQL's, as Hudi's Flink writer stores them")
def test_types_are_stored_as_hudis_flink_writer_stores_them(t, path, sql, arrow) -> None:
    declare(t, path, columns=f"uuid string, x {sql}")
    stored = made(t).schema.field("x").type
    assert pa.schema([("x", stored)]).equals(pa.schema([("x", arrow)]), check_metadata=False)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("uuid string, x timestamp(9)", r"TIMESTAMP\(6\)"),
        ("uuid string, x timestamp_ltz(9)", r"TIMESTAMP_LTZ\(6\)"),
        ("uuid string, x map<int, string>", "string keys"),
        ("uuid string, x array<map<int, string>>", "string keys"),
        ("uuid string, x as upper(uuid)", "computed"),
        ("uuid string, x timestamp(3) metadata", "computed or metadata"),
        ("uuid string, ts timestamp(3), watermark for ts as ts", "WATERMARK"),
        ("uuid string, _hoodie_record_key string", "meta column"),
    ],
)
def test_columns_that_a_table_cannot_hold_are_refused_when_declared(t, path, columns, words) -> None:
    with pytest.raises(MainstemError, match=words):
        declare(t, path, columns=columns)
    assert "t1" not in t.list_tables()


def test_options_are_checked_when_declared(t, path) -> None:
    with pytest.raises(Invalid, match=r"write\.tasks"):
        declare(t, path, more=", 'write.taks' = '4'")
    with pytest.raises(Invalid, match="path"):
        t.execute_sql("create table t1 (uuid string) with ('connector' = 'hudi')")
    with pytest.raises(Invalid, match="PRIMARY KEY"):
        declare(t, path, columns="id int primary key not enforced, b int",
                more=", 'hoodie.datasource.write.recordkey.field' = 'b'")  # fmt: skip
    assert "t1" not in t.list_tables()


def test_hints_go_over_the_declaration_and_are_checked(t, path) -> None:
    declare(t, path)
    hint = "insert into t1 /*+ OPTIONS('{}' = '8') */ select * from sourceT"
    assert "8 buckets" in t.explain_sql(hint.format("hoodie.bucket.index.num.buckets"))
    with pytest.raises(Invalid, match="did you mean"):
        t.explain_sql(hint.format("hoodie.bucket.index.num.bucket"))


def test_create_table_like_takes_the_options_over(t, tmp_path) -> None:
    declare(t, tmp_path / "t1")
    t.execute_sql(f"create table t2 with ('path' = '{tmp_path}/t2') like t1")
    assert f"Table {tmp_path}/t2: key uuid" in t.explain_sql("insert into t2 select * from sourceT")


# -------------------------------------------------------------------------------- existing tables


@pytest.fixture
def existing(path):
    schema = pa.schema([("id", pa.string()), ("v", pa.int32()), ("moment", pa.timestamp("us", "UTC")),
                        ("city", pa.string())])  # fmt: skip
    table = mainstem.create_table(
        path, schema, record_key="id", ordering="moment", partition_by="city", buckets=2
    )
    return table.path


GOOD = "id string, v int, moment timestamp(6), city string"
PARTITIONED = "partitioned by (city)"


def content(folder):
    return sorted((str(p), p.stat().st_mtime_ns) for p in Path(folder).rglob("*"))


@pytest.mark.parametrize(
    ("columns", "clause", "more", "words"),
    [
        (GOOD.replace("v int", "v string"), PARTITIONED, "", "'v'.*string.*int32"),
        (GOOD.replace("(6)", "(3)"), PARTITIONED, "", "'moment'.*ms.*us"),
        (GOOD + ", more int", PARTITIONED, "", "'more'.*lacks"),
        (GOOD + ", primary key (v) not enforced", PARTITIONED, "", "PRIMARY KEY='v'.*'id'"),
        (GOOD, "partitioned by (v)", "", "PARTITIONED BY='v'.*'city'"),
        (GOOD, PARTITIONED, ", 'hoodie.bucket.index.num.buckets' = '4'", "'4'.*'2'"),
        (GOOD, PARTITIONED, ", 'ordering.fields' = 'v'", "'v'.*'moment'"),
        (GOOD, PARTITIONED, ", 'hoodie.datasource.write.hive_style_partitioning' = 'true'", "hive_style"),
    ],
)
def test_a_declaration_that_contradicts_the_table_is_refused(
    t, existing, columns, clause, more, words
) -> None:
    before = content(existing)
    with pytest.raises(Invalid, match=words):
        declare(t, existing, columns=columns, clause=clause, more=more)
    assert content(existing) == before


@pytest.mark.parametrize(
    ("key", "found", "words"),
    [
        ("hoodie.table.type", "COPY_ON_WRITE", "'MERGE_ON_READ' contradicts the table.*COPY_ON_WRITE"),
        ("hoodie.index.type", "BLOOM", "'BUCKET' contradicts the table.*BLOOM"),
        ("hoodie.table.version", "11", "versions 8, 9 and 10 can be read.*use a newer mainstem"),
    ],
)
def test_a_table_that_cannot_be_written_is_refused_and_left_as_it_is(t, existing, key, found, words) -> None:
    properties = Path(existing) / ".hoodie/hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith(f"{key}=")]
    properties.write_text("\n".join([*lines, f"{key}={found}\n"]))
    before = content(existing)
    with pytest.raises(MainstemError, match=words):
        declare(t, existing, columns=GOOD, clause=PARTITIONED)
        t.execute_sql("insert into t1 select uuid, age, cast(ts as timestamp(6)), name from sourceT")
    assert content(existing) == before


def test_what_a_declaration_leaves_open_comes_from_the_table(t, existing) -> None:
    declare(t, existing, columns=GOOD)
    text = t.explain_sql("insert into t1 select uuid, age, cast(ts as timestamp(6)), name from sourceT")
    assert "key id, partition city, 2 buckets" in text


def test_a_table_under_consistent_hashing_is_not_written_as_one_of_fixed_buckets(t, existing) -> None:
    properties = Path(existing) / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.index.bucket.engine=CONSISTENT_HASHING\n")
    with pytest.raises(Invalid, match=r"'SIMPLE' contradicts the table.*CONSISTENT_HASHING"):
        declare(t, existing, columns=GOOD, more=", 'hoodie.index.bucket.engine' = 'SIMPLE'")
        t.explain_sql("insert into t1 select uuid, age, cast(ts as timestamp(6)), name from sourceT")


def test_columns_that_an_insert_would_set_to_null_must_be_declared(t, existing) -> None:
    declare(t, existing, columns="id string, moment timestamp(6), city string")
    with pytest.raises(Invalid, match="does not declare v"):
        t.explain_sql("insert into t1 select uuid, cast(ts as timestamp(6)), name from sourceT")


# ----------------------------------------------------------------------------------------- INSERT


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (", 'table.type' = 'COPY_ON_WRITE'", "'table.type' = 'MERGE_ON_READ'"),
        (", 'table.type' = 'MERGE_ON_READ', 'index.type' = 'FLINK_STATE'", "'index.type' = 'BUCKET', or"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_written_beside_others_name_the_option_to_set(t, path, options, words) -> None:
    t.execute_sql(f"create table t1 ({COLUMNS}) with ('connector' = 'hudi', 'path' = '{path}' {options})")
    with pytest.raises(Unsupported, match=words):
        t.execute_sql("insert into t1 select * from sourceT")


def test_a_table_of_which_nothing_is_said_is_merge_on_read_with_buckets(t, path) -> None:
    t.execute_sql(f"create table t1 ({COLUMNS}) with ('connector' = 'hudi', 'path' = '{path}')")
    table = made(t)
    assert (table.config.table_type, table.config.buckets) == ("MERGE_ON_READ", 4)


@pytest.mark.supports("Writing", "Tables without record key: keys are made up, as Hudi's SQL does")
def test_rows_without_a_key_are_inserted_and_nothing_else(t, path) -> None:
    said = f"with ('connector' = 'hudi', 'path' = '{path}', 'write.operation' = 'insert')"
    t.execute_sql(f"create table t1 (name varchar(10), age int) {said}")
    t.execute_sql("insert into t1 values ('a', 1), ('a', 1), ('b', 2)").wait()
    found = mainstem.open_table(path).scan().to_arrow()
    assert sorted(found["name"].to_pylist()) == ["a", "a", "b"]
    assert len(set(found["_hoodie_record_key"].to_pylist())) == 3
    for statement in (
        "insert into t1 /*+ OPTIONS('write.operation' = 'upsert') */ values ('a', 1)",
        "insert into t1 select name, cast(count(*) as int) from sourceT group by name",
        "update t1 set age = 2 where name = 'a'",
        "delete from t1 where name = 'a'",
    ):
        with pytest.raises(Unsupported, match="record key") as told:
            t.execute_sql(statement)
        assert "\n" not in str(told.value)


def test_an_updating_query_needs_a_key(t, path, tmp_path) -> None:
    declare(t, path, columns="uuid string, n bigint")
    counting = "insert into {} select uuid, count(*) from sourceT group by uuid"
    with pytest.raises(Invalid, match="PRIMARY KEY"):
        t.execute_sql(counting.format("t1"))
    assert list(tmp_path.iterdir()) == []
    declare(t, path, name="t2", columns="uuid string primary key not enforced, n bigint")
    assert "key uuid" in t.explain_sql(counting.format("t2"))
    declare(t, path, name="t3", columns="uuid string, n bigint",
            more=", 'hoodie.datasource.write.recordkey.field' = 'uuid'")  # fmt: skip
    assert "key uuid" in t.explain_sql(counting.format("t3"))


@pytest.mark.parametrize(
    "statement",
    [
        "insert into t1 (uuid, age) select uuid, age from sourceT",
        "insert into t1 values ('a', 'b', 1, timestamp '2026-01-01 00:00:00', 'p')",
        "insert into t1 partition (`partition` = 'p') select uuid, name, age, ts from sourceT",
        "insert into t1 select cast(uuid as char(3)), name, cast(age as smallint), ts, 'p' from sourceT",
        "execute statement set begin insert into t1 select * from sourceT;"
        " insert into t1 select * from sourceT; end",
    ],
)
def test_forms_of_insert_are_understood(t, path, statement) -> None:
    declare(t, path, clause="partitioned by (`partition`)")
    assert "key uuid, partition partition, 4 buckets" in t.explain_sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "insert into t1 select * from sourceT",
        "create table t2 with ('connector' = 'hudi', 'path' = '{folder}/t2', 'table.type' = 'MERGE_ON_READ',"
        " 'index.type' = 'BUCKET') as select * from sourceT",
        "execute statement set begin insert into t1 (uuid) values ('a');"
        " insert into t1 select * from sourceT; end",
    ],
)
def test_an_endless_source_without_checkpoints_is_refused_and_leaves_nothing(
    t, path, tmp_path, statement
) -> None:
    declare(t, path)
    with pytest.raises(Invalid, match=r"Set execution\.checkpointing\.interval"):
        t.execute_sql(statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert "t2" not in t.list_tables()


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("create table if not exists t2 with ('connector' = 'hudi', 'path' = '/tmp/t2') as select 1 as uuid",
         Unsupported, "leave IF NOT EXISTS out"),
        ("create table sourceT with ('connector' = 'hudi', 'path' = '/tmp/t2', 'table.type' ="
         " 'MERGE_ON_READ', 'index.type' = 'BUCKET') as select 'a' as uuid", Exception, "sourceT.*exists"),
        ("insert overwrite t1 select * from sourceT", Unsupported, "INSERT OVERWRITE"),
        ("insert into t1 select uuid from sourceT", Invalid, "1 columns, the table declares 5"),
        ("insert into t1 (uuid, age) select uuid, name from sourceT", Invalid, "'age' is INT"),
        ("update t1 set age = 1 where uuid = 'a'", Invalid, "no Hudi table"),
        ("delete from t1 where uuid = 'a'", Invalid, "no Hudi table"),
        ("truncate table t1", Invalid, "no Hudi table"),
        ("create catalog h with ('type' = 'hudi', 'mode' = 'jdbc')", Unsupported, "expected dfs or hms"),
        ("compile plan 'file:///tmp/p' for insert into t1 select * from sourceT", Unsupported, "COMPILE"),
        ("select * from sourceT s join t1 for system_time as of s.ts as h on s.uuid = h.uuid", Unsupported,
         "FOR SYSTEM_TIME"),
        ("insert into t1 /*+ OPTIONS('write.operation' = 'bulk_insert') */ select * from sourceT",
         Unsupported, "bulk_insert"),
    ],
)  # fmt: skip
def test_statements_that_cannot_be_are_refused_before_anything_runs(
    t, path, tmp_path, statement, error, words
) -> None:
    declare(t, path)
    with pytest.raises(error, match=words):
        t.execute_sql(statement)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_other_statements_are_flinks_own(t) -> None:
    with pytest.raises(Exception, match="nope") as error:
        t.execute_sql("select * from nope")
    assert not isinstance(error.value, MainstemError)
    with pytest.raises(Exception, match=r"(?i)parse") as error:
        t.execute_sql("selec 1")
    assert not isinstance(error.value, MainstemError)


# ----------------------------------------------------------------------------------------- reading


@pytest.fixture
def filled(t, existing):
    """``t1`` over a table with three rows."""
    columns = [["a", "b", "c"], pa.array([1, 2, 3], pa.int32()), [1, 2, 3], ["x", "x", "y"]]
    columns[2] = pa.array(columns[2], pa.timestamp("us", "UTC"))
    rows = pa.table(columns, names=["id", "v", "moment", "city"])
    mainstem.open_table(existing).upsert(rows)
    declare(t, existing, columns=GOOD, clause=PARTITIONED)
    return existing


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select * from t1", ["id", "v", "moment", "city"]),
        ("select t1.id from t1 where t1.v > 1", ["id"]),
        ("select b.v, s.age from t1 as b join sourceT s on b.id = s.uuid", ["v", "age"]),
        (
            "select t1.id, x.v from t1 /*+ OPTIONS('read.tasks' = '1') */, t1 as x where t1.id = x.id",
            ["id", "v"],
        ),
        ("select id from t1 where id in (select id from t1 where v = 1)", ["id"]),
        ("with c as (select id from t1) select * from c", ["id"]),
        ("with t1 as (select uuid from sourceT) select * from t1", ["uuid"]),
        ("select id from t1 union all (select uuid from sourceT)", ["id"]),
        ("-- \U0001d4b3\r\nselect '\U0001d4b3\U0001d4b3', t1.v from\r\n\tt1", ["EXPR$0", "v"]),
        ("select s.id from (select id, v from `t1`) as s", ["id"]),
        ("table t1", ["id", "v", "moment", "city"]),
    ],
)
def test_queries_that_mention_a_hudi_table_are_planned(t, filled, query, columns) -> None:
    assert columns_of(t, query) == columns
    assert t.list_temporary_views() == []


def test_a_table_may_be_read_and_written_in_one_statement(t, filled) -> None:
    text = t.explain_sql("insert into t1 select id, t1.v + 1, moment, city from t1 where t1.id = 'a'")
    assert "key id, partition city, 2 buckets" in text


def test_another_sink_may_be_filled_from_a_hudi_table(t, filled) -> None:
    t.execute_sql("create table hole (id string) with ('connector' = 'blackhole')")
    assert "hole" in t.explain_sql("insert into hole select id from t1")


def test_a_view_reads_the_table_as_it_is_when_it_is_used(t, filled) -> None:
    t.execute_sql("create view v as select id from t1 where v > 0")
    t.execute_sql("create view w as select id from v")
    assert columns_of(t, "select * from w") == ["id"]
    rows = pa.table({"id": ["d"], "v": pa.array([4], pa.int32()),
                     "moment": pa.array([4], pa.timestamp("us", "UTC")), "city": ["z"]})  # fmt: skip
    mainstem.open_table(filled).upsert(rows)
    with t.sql_query("select id from w").execute().collect() as found:
        assert sorted(row[0] for row in found) == ["a", "b", "c", "d"]


def test_show_describe_and_drop_are_flinks_own(t, filled) -> None:
    assert [row[0] for row in t.execute_sql("describe t1").collect()] == ["id", "v", "moment", "city"]
    assert "'connector' = 'hudi'" in next(t.execute_sql("show create table t1").collect())[0]
    t.execute_sql("drop table t1")
    assert "t1" not in t.list_tables()
    assert mainstem.open_table(filled).scan(columns=["id"]).to_arrow().num_rows == 3


def test_settings_are_set_as_in_the_sql_client(t) -> None:
    t.execute_sql("SET 'demo.name' = 'nightly'")
    assert t.get_config().get("demo.name", "") == "nightly"


def test_a_release_of_flink_that_cannot_do_it_is_refused(table_environment, monkeypatch) -> None:
    monkeypatch.setattr("pyflink.version.__version__", "2.2.1")
    with pytest.raises(Unsupported, match=r"2\.2\.1.*needs 2\.3"):
        connect(table_environment)


def test_connect_takes_a_table_environment_only(t) -> None:
    assert connect(t) is t
    with pytest.raises(Invalid, match="TableEnvironment"):
        connect("localhost:8081")


# -------------------------------------------------------------------------------------------- jobs


@pytest.mark.supports("Engines", "Flink SQL: CREATE TABLE AS SELECT, of Hudi tables too")
def test_create_table_as_select_makes_the_table_and_writes_the_rows(t, filled, tmp_path) -> None:
    create = f"""create table t2 partitioned by (city)
        with ('connector' = 'hudi', 'path' = '{tmp_path}/t2', 'table.type' = 'MERGE_ON_READ',
              'index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '3',
              'hoodie.datasource.write.recordkey.field' = 'id')
        as select city, id, t1.v * 10 as tenfold from t1 where v > 1"""
    t.execute_sql(create).wait(200_000)
    table = mainstem.open_table(tmp_path / "t2")
    config = table.config
    assert (config.record_key, config.partition_fields, config.buckets) == (("id",), ("city",), 3)
    rows = table.scan(columns=["id", "city", "tenfold"]).to_arrow().to_pylist()
    assert sorted(map(tuple, map(dict.values, rows))) == [("b", "x", 20), ("c", "y", 30)]
    t.execute_sql("insert into t2 select city, id, v from t1 where v = 1").wait(200_000)
    assert table.scan(columns=["id"]).to_arrow().num_rows == 3


def tasks_of_workers(t, query="select * from sourceT"):
    """Parallelism of the Python workers that stage the rows of ``sourceT``, which two tasks read."""
    planned = plan_insert(t._t_env, t.sql_query(query), declared(t, ("t1",)))
    operators = planned.opened().transformation().getTransitivePredecessors()
    return {one.getParallelism() for one in operators if one.getName().startswith("PythonCalc")}


def test_write_tasks_is_the_number_of_workers_where_an_ordering_field_decides(environment, path) -> None:
    t = environment(tasks=2)
    t.execute_sql(SOURCE)
    declare(t, path, tasks=3)
    assert tasks_of_workers(t) == {3}


def test_write_tasks_has_no_effect_where_the_order_of_rows_counts_and_says_so(environment, path) -> None:
    t = environment(tasks=2)
    t.execute_sql(SOURCE)
    declare(t, path, tasks=3, more=", 'ordering.fields' = 'no_precombine'")
    with pytest.warns(UserWarning, match=r"write\.tasks=3 has no effect"):
        assert tasks_of_workers(t) == {2}


def test_write_tasks_has_no_effect_on_an_updating_query_whose_rows_take_back_earlier_ones(environment, path):
    t = environment(tasks=2)
    t.execute_sql(SOURCE)
    declare(t, path, columns="uuid string primary key not enforced, ts bigint", tasks=3)
    query = "select uuid, count(*) as ts from sourceT group by uuid"
    with pytest.warns(UserWarning, match=r"write\.tasks=3 has no effect: of an updating query"):
        assert tasks_of_workers(t, query) <= {2, -1}


def test_between_begin_and_end_only_inserts_may_stand(t, path) -> None:
    declare(t, path)
    t.execute_sql("begin statement set")
    with pytest.raises(Invalid, match="only INSERT"):
        t.execute_sql("show tables")
    with pytest.raises(Invalid, match="empty"):
        t.execute_sql("end")
    assert ("t1",) in [tuple(row) for row in t.execute_sql("show tables").collect()]


@pytest.mark.supports("Engines", "Flink SQL: INSERT INTO a table SELECT from itself")
def test_rows_that_are_inserted_are_selected(t, path) -> None:
    declare(t, path, clause="partitioned by (`partition`)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moment = "timestamp '2026-01-01 00:00:00.123'"
        values = f"('a', 1, {moment}, 'p'), ('b', 2, {moment}, 'q')"
        t.execute_sql(f"insert into t1 (uuid, age, ts, `partition`) values {values}").wait(200_000)
        again = "insert into t1 select uuid, name, t1.age + 10, ts, `partition` from t1 where uuid = 'a'"
        t.execute_sql(again).wait(200_000)
    with t.execute_sql("select uuid, age, `partition` from t1").collect() as found:
        assert sorted(tuple(row) for row in found) == [("a", 11, "p"), ("b", 2, "q")]


def test_java_objects_that_other_threads_collect_leave_planning_in_its_java_thread(t) -> None:
    # Otherwise Flink's planner fails now and then: it does not find what it keeps in that thread.
    from pyflink.java_gateway import get_gateway

    java = get_gateway().jvm.java.lang
    objects = [java.Object() for _ in range(500)]

    def collect() -> None:
        while objects:
            objects.pop()
            time.sleep(0.0003)  # both threads come first now and then

    collector = threading.Thread(target=collect)
    collector.start()
    threads = set()
    while collector.is_alive():
        threads.add(java.Thread.currentThread().getName())
        time.sleep(0.0003)
    collector.join()
    assert len(threads) == 1
