"""Goal: every option is understood or refused by name; Spark and Arrow types map both ways.

Method: the parsers and the mapping alone; no Spark session is started.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark.sql import types as T

import mainstem
from mainstem.api.job_table import open_or_create
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from mainstem.options.locks import EXPLICIT
from mainstem.spark.batch_ids import BatchIds, Found, guard_ids
from mainstem.spark.options import ReadOptions, WriteOptions
from mainstem.spark.types import arrow_schema, fit_for_spark, spark_schema
from mainstem.spark.worker_repairs import ensure_python
from tests.servers.zookeeper import free_port

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("city", pa.string())])
CREATE = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.bucket.index.num.buckets": "3",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
    "hoodie.metadata.enable": False,
}


@pytest.mark.parametrize(
    ("option", "value", "error", "text"),
    [
        ("hoodie.datasource.write.operation", "merge", Invalid, "upsert or insert or bulk_insert or delete"),
        ("hoodie.datasource.write.operation", "delete_partition", Invalid, "partitions.to.delete"),
        ("hoodie.datasource.write.partitions.to.delete", "rome", Invalid, "operation=delete_partition"),
        ("hoodie.datasource.overwrite.mode", "both", Invalid, "STATIC or DYNAMIC"),
        ("partitionOverwriteMode", "some", Invalid, "STATIC or DYNAMIC"),
        ("hoodie.datasource.write.recordkey.fields", "id", Invalid, "did you mean"),
        ("hoodie.nobody.knows.this", "1", Unsupported, "hoodie.nobody.knows.this"),
        ("compaction.async.enable", "true", Invalid, "did you mean 'compaction.async.enabled'"),
        ("clean.retain_commits", "2", Invalid, "did you mean 'hoodie.clean.commits.retained'"),
        ("hoodie.keep.max.commit", "9", Invalid, "did you mean 'hoodie.keep.max.commits'"),
        (
            "hoodie.datasource.write.streaming.ignore.failed.batch",
            True,
            Unsupported,
            "would be lost",
        ),
        ("hoodie.datasource.write.streaming.retry.count", "many", Invalid, "whole number"),
        ("hoodie.mainstem.stream.ordinal", "-1", Invalid, "from 0"),
        ("hoodie.mainstem.stream.ordnal", "1", Invalid, "did you mean"),
        ("hoodie.mainstem.stream.guard", "maybe", Invalid, "ON or OFF"),
        ("pth", "/x", Invalid, "unknown option 'pth'"),
        ("path", "viewfs://name/x", Unsupported, "viewfs:"),
        ("path", "relative/folder", Invalid, "absolute"),
        (
            "hoodie.datasource.write.keygenerator.class",
            "com.example.MyKeyGenerator",
            Unsupported,
            "never loaded",
        ),
    ],
)
def test_a_wrong_or_unknown_write_option_is_refused_by_name(
    option: str, value: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        WriteOptions.parse({"path": "/t", option: value})


def test_a_missing_path_is_refused() -> None:
    with pytest.raises(Invalid, match="path"):
        WriteOptions.parse({})


def test_an_option_without_effect_is_named_in_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"hoodie.upsert.shuffle.parallelism"):
        WriteOptions.parse({"path": "/t", "hoodie.upsert.shuffle.parallelism": 8})


def test_options_of_table_services_are_passed_on_under_hudis_names() -> None:
    given = {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "3",
        "hoodie.datasource.compaction.async.enable": "false",
        "compaction.schedule.enabled": "false",
        "hoodie.cleaner.commits.retained": "4",
        "hoodie.memory.compaction.max.size": "100000000",
        "hoodie.table.services.enabled": "true",
    }
    assert WriteOptions.parse({"path": "/t", **given}).passed == given


def test_two_names_of_one_property_may_not_disagree() -> None:
    with pytest.raises(Invalid, match="contradicts"):
        WriteOptions.parse({"path": "/t", "hoodie.table.recordkey.fields": "a",
                            "hoodie.datasource.write.recordkey.field": "b"})  # fmt: skip


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hoodie.datasource.query.type": "incremental"}, "begin.instanttime is missing"),
        ({"hoodie.datasource.read.begin.instanttime": "1"}, "query.type=incremental"),
        ({"hoodie.datasource.query.type": "newest"}, "SNAPSHOT"),
        ({"as.of.instant": "1", "hoodie.datasource.query.type": "read_optimized"}, "snapshot"),
    ],
)
def test_read_options_that_exclude_each_other_are_refused(options: dict, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        ReadOptions.parse({"path": "/t", **options})


def test_a_read_without_path_says_how_catalog_tables_lose_it() -> None:
    with pytest.raises(Invalid, match=r"save\(path\), or let mainstem.spark.sql"):
        ReadOptions.parse({})


def test_a_missing_table_is_created_from_hudi_options(tmp_path: Path) -> None:
    options = WriteOptions.parse(CREATE, path=str(tmp_path / "t"))
    config = open_or_create(options, SCHEMA).config
    assert (config.record_key, config.ordering, config.partition_fields) == (
        ("id",), ("ts",), ("city",),
    )  # fmt: skip
    assert (config.name, config.buckets, config.table_type) == ("trips", 3, "MERGE_ON_READ")
    assert open_or_create(options, SCHEMA).properties == config.raw  # and is found the next time


def test_a_missing_table_names_the_options_that_it_needs(tmp_path: Path) -> None:
    options = WriteOptions.parse({"path": str(tmp_path / "t")})
    with pytest.raises(Invalid, match=r"to create one, give hoodie.datasource.write.recordkey.field and "):
        open_or_create(options, SCHEMA)
    assert not (tmp_path / "t").exists()


def test_a_job_makes_a_table_without_buckets_under_the_index_that_it_names(tmp_path) -> None:
    given = {key: value for key, value in CREATE.items() if "bucket" not in key}
    given |= {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "false"}
    table = open_or_create(WriteOptions.parse({**given, "path": str(tmp_path / "unbucketed")}), SCHEMA)
    table.upsert(pa.table({name: [None] for name in SCHEMA.names}, schema=SCHEMA).slice(0, 0))
    assert table.properties["hoodie.index.type"] == "GLOBAL_SIMPLE" and table.writer_context().buckets == 0


def test_no_table_is_made_whose_zookeeper_does_not_answer(tmp_path: Path) -> None:
    pytest.importorskip("kazoo.client")
    lock = {
        "hoodie.write.lock.provider": EXPLICIT,
        "hoodie.write.lock.zookeeper.url": f"127.0.0.1:{free_port()}",
        "hoodie.write.lock.zookeeper.base_path": "/locks",
        "hoodie.write.lock.zookeeper.connection_timeout_ms": "300",
    }
    options = WriteOptions.parse({**CREATE, **lock}, path=str(tmp_path / "t"))
    with pytest.raises(Unavailable, match="no ZooKeeper server"):
        open_or_create(options, SCHEMA)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hoodie.datasource.write.recordkey.field", "ts"),
        ("hoodie.datasource.write.precombine.field", "id"),
        ("hoodie.datasource.write.partitionpath.field", ""),
        ("hoodie.table.name", "other"),
        ("hoodie.bucket.index.num.buckets", "4"),
        ("hoodie.datasource.write.table.type", "COPY_ON_WRITE"),
        ("hoodie.record.merge.mode", "COMMIT_TIME_ORDERING"),
        ("hoodie.table.partial.update.mode", "IGNORE_DEFAULTS"),
        ("hoodie.datasource.write.hive_style_partitioning", "true"),
        ("hoodie.bucket.index.hash.field", "ts"),
        ("hoodie.mainstem.exclusive", "true"),
    ],
)
def test_an_option_that_contradicts_the_table_is_refused(tmp_path: Path, option: str, value: str) -> None:
    open_or_create(WriteOptions.parse(CREATE, path=str(tmp_path)), SCHEMA)
    with pytest.raises((Invalid, Unsupported), match=option):
        table = open_or_create(WriteOptions.parse({"path": str(tmp_path), option: value}), SCHEMA)
        table.writer_context()


def test_equal_options_in_another_spelling_are_accepted(tmp_path: Path) -> None:
    open_or_create(WriteOptions.parse(CREATE, path=str(tmp_path)), SCHEMA)
    same = {
        "hoodie.table.precombine.field": "ts",
        "hoodie.record.merge.mode": "event_time_ordering",
        "hoodie.datasource.write.hive_style_partitioning": False,
    }
    open_or_create(WriteOptions.parse({"path": f"file:{tmp_path}", **same}), SCHEMA)


IDS = BatchIds("query", 4, "run", 99)


def test_ids_of_a_batch_come_from_spark_and_the_identifier_may_be_given() -> None:
    options = WriteOptions.parse({"path": "/t"})
    found = guard_ids(Found(IDS, True), options, table="/t")
    assert found is not None and (found.identifier, found.batch_id) == ("query", 4)
    named = WriteOptions.parse(
        {"path": "/t", "hoodie.datasource.write.streaming.checkpoint.identifier": "mine"}
    )
    found = guard_ids(Found(IDS, True), named, table="/t")
    assert found is not None and found.identifier == "mine"


def test_a_batch_whose_ids_are_unknown_is_refused_unless_all_are_given() -> None:
    unknown = Found(None, True)
    some: dict[str, object] = {"path": "/t", "hoodie.mainstem.stream.batch.id": 4}
    with pytest.raises(Invalid, match=r"checkpoint.identifier, hoodie.mainstem.stream.ordinal"):
        guard_ids(unknown, WriteOptions.parse(some), table="/t")
    some |= {
        "hoodie.mainstem.stream.ordinal": 1,
        "hoodie.datasource.write.streaming.checkpoint.identifier": "mine",
    }
    found = guard_ids(unknown, WriteOptions.parse(some), table="/t")
    assert found is not None and (found.batch_id, found.ordinal) == (4, 1)
    off = WriteOptions.parse({"path": "/t", "hoodie.mainstem.stream.guard": "off"})
    assert guard_ids(unknown, off, table="/t") is None


def test_an_ordinal_on_a_plain_batch_write_is_refused() -> None:
    options = WriteOptions.parse({"path": "/t", "hoodie.mainstem.stream.ordinal": 0})
    with pytest.raises(Invalid, match="no write of a micro-batch"):
        guard_ids(Found(None, False), options, table="/t")


FLAT = T.StructType(
    [
        T.StructField("bool", T.BooleanType()),
        T.StructField("i32", T.IntegerType()),
        T.StructField("i64", T.LongType(), False),
        T.StructField("f32", T.FloatType()),
        T.StructField("f64", T.DoubleType()),
        T.StructField("dec", T.DecimalType(20, 4)),
        T.StructField("text", T.StringType()),
        T.StructField("bytes", T.BinaryType()),
        T.StructField("day", T.DateType()),
        T.StructField("instant", T.TimestampType()),
        T.StructField("local", T.TimestampNTZType()),
    ]
)


VECTORS = T.StructType(
    [
        T.StructField("floats", T.ArrayType(T.FloatType(), False), True, {"hudi_type": "VECTOR(2)"}),
        T.StructField("wide", T.ArrayType(T.DoubleType(), False), True, {"hudi_type": "VECTOR(2, DOUBLE)"}),
        T.StructField("int8s", T.ArrayType(T.ByteType(), False), True, {"hudi_type": "VECTOR(2, INT8)"}),
        T.StructField("more", T.ArrayType(T.FloatType(), False), True, {"hudi_type": "VECTOR(2)"}),
    ]
)


def test_vectors_map_there_and_back_with_the_column_metadata_of_hudi() -> None:
    lists = arrow_schema(VECTORS)
    assert lists.field("int8s").metadata == {b"hudi_type": b"VECTOR(2, INT8)"}
    stored = avro_to_arrow(arrow_to_avro(lists, table_name="t", meta_fields=False))
    assert stored.field("int8s").type == pa.list_(pa.field("element", pa.int8(), nullable=False), 2)
    assert spark_schema(stored) == VECTORS
    (batch,) = fit_for_spark(pa.table([pa.array([[1, 2], None], stored.field(3).type)], ["more"]),
                             arrow_schema(T.StructType([VECTORS["more"]])))  # fmt: skip
    assert batch.column(0).to_pylist() == [[1.0, 2.0], None]
    wrong = T.StructType([T.StructField("v", T.StringType(), True, {"hudi_type": "VECTOR(2)"})])
    with pytest.raises(Invalid, match=r"'v' is marked hudi_type=VECTOR\(2\)"):
        arrow_to_avro(arrow_schema(wrong), table_name="t", meta_fields=False)


def test_flat_types_map_there_and_back() -> None:
    back = spark_schema(arrow_schema(FLAT))
    assert [f.dataType for f in back] == [f.dataType for f in FLAT]
    assert all(f.nullable for f in back)
    assert not arrow_schema(FLAT).field("i64").nullable


def test_nested_types_keep_names_and_nullability() -> None:
    item = T.StructType([T.StructField("x", T.LongType(), False)])
    nested = T.StructType(
        [
            T.StructField("list", T.ArrayType(item, containsNull=False)),
            T.StructField("map", T.MapType(T.StringType(), T.DateType(), True)),
        ]
    )
    mapped = arrow_schema(nested)
    assert not mapped.field("list").type.value_field.nullable
    assert not mapped.field("list").type.value_type.field("x").nullable
    assert [f.dataType.typeName() for f in spark_schema(mapped)] == ["array", "map"]


@pytest.mark.parametrize(
    "kind", [T.NullType(), T.DayTimeIntervalType(), T.YearMonthIntervalType(), T.VariantType()]
)
def test_a_type_that_hudi_cannot_hold_is_refused_with_its_column(kind: T.DataType) -> None:
    with pytest.raises(Invalid, match=r"column 's.bad'.*cast it"):
        arrow_schema(T.StructType([T.StructField("s", T.StructType([T.StructField("bad", kind)]))]))


def test_batches_for_spark_have_exactly_its_schema() -> None:
    table = pa.table(
        {
            "k": pa.array([1], pa.int64()),
            "t": pa.array([5], pa.timestamp("ms", "UTC")),
            "d": pa.array(["a"]).dictionary_encode(),
            "w": pa.array([7], pa.time64("us")),
        }
    )
    target = arrow_schema(spark_schema(table.schema))
    (batch,) = fit_for_spark(table, target)
    assert batch.schema.equals(target)
    assert batch.to_pylist()[0]["w"] == 7


class Session:
    """As much of a session as ``ensure_python`` looks at."""

    def __init__(self, master: str, python: str) -> None:
        self.sparkContext = self
        self.master = master
        self.pythonExec = python


def test_workers_with_another_python_are_repaired_locally_and_refused_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    local = Session("local[2]", "python3")
    ensure_python(local)  # type: ignore[arg-type]
    assert local.pythonExec == sys.executable
    with pytest.raises(Invalid, match="PYSPARK_PYTHON"):
        ensure_python(Session("spark://host:7077", "python3"))  # type: ignore[arg-type]
    chosen = Session("spark://host:7077", "/opt/python/bin/python")
    ensure_python(chosen)  # type: ignore[arg-type]
    assert chosen.pythonExec == "/opt/python/bin/python"


def test_the_spark_package_loads_neither_pyspark_nor_pyarrow() -> None:
    code = "import sys, mainstem.spark; print({'pyspark', 'pyarrow'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
    assert mainstem.__version__


def test_a_key_generator_is_made_from_hudis_options_and_must_agree_with_the_table(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("at", pa.int64()), ("day", pa.string())])
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day:SIMPLE,at:TIMESTAMP",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "hoodie.deltastreamer.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM",
        "hoodie.bucket.index.num.buckets": "1",
    }
    path = str(tmp_path / "t")
    table = open_or_create(WriteOptions.parse(options, path=path), schema)
    assert table.config.key_generator == "CUSTOM"
    assert table.properties["hoodie.table.partition.fields"] == "day:SIMPLE,at:TIMESTAMP"
    assert table.properties["hoodie.keygen.timebased.timezone"] == "UTC"
    table.upsert(pa.table({"id": ["a"], "at": [0], "day": ["mon"]}))
    assert [s.partition for s in table.file_slices()] == ["mon/1970-01"]
    open_or_create(WriteOptions.parse(options, path=path), schema)
    other = {**options, "hoodie.keygen.timebased.output.dateformat": "yyyy"}
    with pytest.raises(Invalid, match=r"output\.dateformat='yyyy' contradicts.*'yyyy-MM'"):
        open_or_create(WriteOptions.parse(other, path=path), schema)
    options["hoodie.datasource.write.keygenerator.class"] = "org.apache.hudi.keygen.ComplexKeyGenerator"
    with pytest.raises(Invalid, match=r"keygenerator\.class.*contradicts.*CUSTOM"):
        open_or_create(WriteOptions.parse(options, path=path), schema)
