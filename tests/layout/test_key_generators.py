"""Goal: keys, partition paths and buckets are those that Java's key generators make of the same rows.

Method: the rows of Java's tables ``keys_*`` and ``bucket_hash_*`` are written into fresh tables of the
same properties; paths, keys and buckets must be those that Java stored. Times are compared with vectors
of Hudi's own tests (TestTimestampBasedKeyGenerator). What Java would misread or hang on is refused.
"""

from __future__ import annotations

import json
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem import errors
from mainstem.layout.buckets import endless_for_java
from mainstem.layout.key_generator import KeyGenerator

GOLDEN = Path(__file__).parents[1] / "golden"
ROWS = pa.schema([("a", pa.string()), ("b", pa.int32()), ("r", pa.string()), ("d", pa.string()),
                  ("m", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])  # fmt: skip
FEATURES = {
    "keys_simple_plain": "SIMPLE key generator; hive-style and URL-encoded paths",
    "keys_simple_hive": "SIMPLE key generator; hive-style and URL-encoded paths",
    "keys_simple_urlencode": "SIMPLE key generator; hive-style and URL-encoded paths",
    "keys_simple_hive_urlencode": "SIMPLE key generator; hive-style and URL-encoded paths",
    "keys_complex_single_key": "COMPLEX key generator; several partition levels",
    "keys_complex_two_level": "COMPLEX key generator; several partition levels",
    "keys_nonpart": "NON_PARTITION key generator",
    "keys_timestamp": "TIMESTAMP key generator (write)",
    "keys_custom": "CUSTOM key generator (write)",
    "keys_slash_date": "slash-separated date partitions (write)",
}
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd hh",
    "hoodie.keygen.timebased.timezone": "GMT+8:00",
}


def supported(names: dict[str, str]) -> list:
    return [
        pytest.param(name, marks=pytest.mark.supports("Keys and partitions", feature))
        for name, feature in names.items()
    ]


def create(path: Path, schema: pa.Schema, java: dict, **more: object) -> mainstem.Table:
    """A table with the key properties of a table that Java made."""
    config = java["table_config"]
    options = {**java["writer_options"], **config}
    kept = ("hoodie.keygen.", "hoodie.datasource.write.hive", "hoodie.datasource.write.partitionpath.url",
            "hoodie.datasource.write.slash", "hoodie.datasource.write.keygenerator", "hoodie.bucket.index")
    properties = {k: v for k, v in options.items() if k.startswith(kept)}
    partitions = config["hoodie.table.partition.fields"]
    return mainstem.create_table(
        path,
        schema,
        record_key=config["hoodie.table.recordkey.fields"].split(","),
        partition_by=partitions.split(",") if partitions else (),
        properties={**properties, "hoodie.mainstem.fsync": "false", "hoodie.mainstem.exclusive": "true"},
        **more,
    )


@pytest.mark.parametrize("name", supported(FEATURES))
def test_keys_paths_and_buckets_are_those_that_java_made_of_the_same_rows(name: str, tmp_path: Path) -> None:
    java = json.loads((GOLDEN / f"{name}.json").read_text())
    table = create(tmp_path / "t", ROWS, java, ordering="ts")
    for step in java["steps"]:
        if step.get("operation") in ("upsert", "delete"):
            rows = pa.table([list(c) for c in zip(*step["rows"], strict=True)], schema=ROWS)
            getattr(table, step["operation"])(rows)
    shown = ["_hoodie_record_key", "_hoodie_partition_path", "v"]
    snapshot = java["rowsets"][java["queries"][0]["rowset"]]
    places = [snapshot["columns"].index(column) for column in shown]
    expected = {tuple(row[i] for i in places) for row in snapshot["rows"]}
    found = table.scan(columns=shown).to_arrow()
    assert set(zip(*(c.to_pylist() for c in found.columns), strict=True)) == expected
    slices = {(s["partition"], s["fileId"][:8]) for s in java["file_slices"]}
    assert {(s.partition, s.file_id[:8]) for s in table.file_slices()} == slices


@pytest.mark.supports("Keys and partitions", "record keys of every key type, simple and composite")
@pytest.mark.parametrize("name", sorted(p.stem for p in GOLDEN.glob("bucket_hash_*.zip")))
def test_every_key_type_lands_in_javas_bucket(name: str, tmp_path: Path) -> None:
    java = json.loads((GOLDEN / f"{name}.json").read_text())
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path / "java")
    made = mainstem.open_table(next((tmp_path / "java").rglob(".hoodie")).parent)
    rows = made.scan().to_arrow()
    rows = rows.drop_columns([c for c in rows.column_names if c.startswith("_hoodie_")])
    table = create(tmp_path / "ours", rows.schema, java)
    table.upsert(rows)
    found = table.scan(columns=["_hoodie_record_key", "_hoodie_file_name"]).to_arrow()
    buckets = {key: int(file[:8]) for key, file in zip(*(c.to_pylist() for c in found.columns), strict=True)}
    assert buckets == {row[0]: row[-1] for row in java["buckets"]}


def paths_of(column: pa.Array, **properties: str) -> list[str]:
    options = {f"hoodie.keygen.timebased.{k}": v for k, v in properties.items()}
    config = mainstem.layout.properties.TableConfig(
        {"hoodie.table.recordkey.fields": "id", "hoodie.table.partition.fields": "t",
         "hoodie.table.keygenerator.type": "TIMESTAMP", "hoodie.table.version": "9", **options}
    )  # fmt: skip
    codes, paths = KeyGenerator.for_writing(config).partitions(pa.table({"t": column}))
    return [paths[code] for code in codes]


GMT8 = {"timezone": "GMT+8:00"}
ISO = "yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd'T'HH:mm:ss.SSSZ"


@pytest.mark.parametrize(
    ("value", "kind", "output", "more", "path"),
    [
        # TestTimestampBasedKeyGenerator
        (1578283932000, "EPOCHMILLISECONDS", "yyyy-MM-dd hh", GMT8, "2020-01-06 12"),
        (None, "EPOCHMILLISECONDS", "yyyy-MM-dd hh", GMT8, "1970-01-01 08"),
        (1578283932, "UNIX_TIMESTAMP", "yyyy-MM-dd hh", {"timezone": "GMT"}, "2020-01-06 04"),
        (20000, "SCALAR", "yyyy-MM-dd hh", {"timezone": "GMT", "timestamp.scalar.time.unit": "days"},
         "2024-10-04 12"),
        (1578283932000123, "EPOCHMICROSECONDS", "yyyyMMddHHmmssSSS", {"timezone": "UTC"},
         "20200106041212000"),
        ("2020-04-01T13:01:33Z", "DATE_STRING", "yyyyMMddHH",
         {"input.dateformat": ISO, "output.timezone": "GMT"}, "2020040113"),
        ("2020-04-01T13:01:33.428Z", "DATE_STRING", "yyyyMMddHH",
         {"input.dateformat": ISO, "output.timezone": "GMT"}, "2020040113"),
        ("2020-04-01T13:01:33-05:00", "DATE_STRING", "yyyyMMddHH",
         {"input.dateformat": ISO, "output.timezone": "UTC"}, "2020040118"),
        ("2020-04-01T13:01:33-05:00", "DATE_STRING", "yyyyMMddHH",
         {"input.dateformat": ISO, "output.timezone": "EST5EDT"}, "2020040114"),
        ("20200401", "DATE_STRING", "MM/dd/yyyy",
         {"input.dateformat": ISO + ",yyyyMMdd", "timezone": "UTC"}, "04/01/2020"),
        (-1, "UNIX_TIMESTAMP", "yyyy/D/k/K/yy", {"timezone": "UTC"}, "1969/365/23/11/69"),
        (-1, "EPOCHMICROSECONDS", "yyyy-MM-dd", {"timezone": "UTC"}, "1970-01-01"),
        (1.9, "UNIX_TIMESTAMP", "'at' HH''mm''ss", {"timezone": "UTC"}, "at 00'00'01"),
        (1616893200000, "EPOCHMILLISECONDS", "yyyy-MM-dd HH", {"timezone": "Europe/Paris"}, "2021-03-28 03"),
    ],
)  # fmt: skip
def test_times_are_formatted_as_hudi_formats_them(value, kind, output, more, path) -> None:
    column = pa.array([value, value], None if value is not None else pa.int64())
    options = {"timestamp.type": kind, "output.dateformat": output, **more}
    assert paths_of(column, **options) == [path, path]


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_timestamps_and_dates_are_the_numbers_that_are_stored(unit: str) -> None:
    kind = {"ms": "EPOCHMILLISECONDS", "us": "EPOCHMICROSECONDS"}[unit]
    moments = pa.array([datetime(2024, 1, 17, 11, 5, tzinfo=UTC)], pa.timestamp(unit, "UTC"))
    options = {"timestamp.type": kind, "output.dateformat": "yyyy/MM/dd/HH", "timezone": "UTC"}
    assert paths_of(moments, **options) == ["2024/01/17/11"]
    days = {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS",
            "output.dateformat": "yyyy-MM", "timezone": "UTC"}  # fmt: skip
    assert paths_of(moments.cast(pa.date32()), **days) == ["2024-01"]


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        ({"timestamp.type": "FORTNIGHTS"}, "timestamp.type"),
        ({"timezone": "Mars/Olympus"}, "time zone"),
        ({"timezone": ""}, "each writing JVM"),
        ({"output.dateformat": "yyyy-MMM"}, "locale"),
        ({"output.dateformat": "yyyy-MM-dd'T"}, "quote"),
        ({"output.dateformat": "EEE"}, "cannot be written"),
        ({"output.dateformat": ""}, "output.dateformat"),
        ({"timestamp.type": "DATE_STRING"}, "input.dateformat"),
        ({"timestamp.type": "DATE_STRING", "input.dateformat": "yy-MM"}, "four letters"),
        ({"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "WEEKS"}, "time.unit"),
    ],
)
def test_time_options_that_java_reads_otherwise_are_refused(options: dict[str, str], needle: str) -> None:
    plain = {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyy-MM-dd", "timezone": "UTC"}
    with pytest.raises((errors.Invalid, errors.Unsupported), match=needle):
        paths_of(pa.array([1]), **{**plain, **options})


def test_a_time_text_that_fits_no_pattern_is_refused_with_it() -> None:
    options = {"timestamp.type": "DATE_STRING", "output.dateformat": "yyyy", "timezone": "UTC",
               "input.dateformat": "yyyy-MM-dd"}  # fmt: skip
    for text in ("yesterday", "2021-02-30", "2021-13-01"):
        with pytest.raises(errors.Invalid, match=text):
            paths_of(pa.array([text]), **options)


def small(path: Path, **arguments: object) -> mainstem.Table:
    return mainstem.create_table(path, ROWS, **{"record_key": "a", "buckets": 1, **arguments})


def one(**values: object) -> pa.Table:
    row = {"a": "k", "b": 1, "r": "x", "d": "2026-01-10", "m": 0, "v": "v", "ts": 1, **values}
    return pa.table({k: [v] for k, v in row.items()}, schema=ROWS)


@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        ({"partition_by": ["d", "b"], "kind": "SIMPLE"}, "does not fit"),
        ({"partition_by": ["m"], "kind": "TIMESTAMP"}, "timestamp.type"),
        ({"partition_by": ["r:WEEKLY"]}, "field:SIMPLE or field:TIMESTAMP"),
        ({"partition_by": ["r:TIMESTAMP"], **TIMES}, "needs numbers"),
        ({"partition_by": ["d:SIMPLE", "m:TIMESTAMP"], **TIMES,
          "hoodie.keygen.timebased.output.dateformat": "yyyy/MM"}, "several folders"),
        ({"partition_by": ["d"], "class": "com.example.MyKeyGenerator"}, "never loaded"),
        ({"partition_by": ["d"], "class": "org.apache.hudi.keygen.GlobalDeleteKeyGenerator"}, "expected one"),
        ({"partition_by": ["d"], "kind": "SIMPLE", "class": "org.apache.hudi.keygen.CustomKeyGenerator"},
         "contradicts"),
        ({"partition_by": ["d"], "hoodie.datasource.write.slash.separated.date.partitioning": "true",
          "hoodie.datasource.write.hive_style_partitioning": "true"}, "one plain partition field"),
        ({"partition_by": ["d"],
          "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}, "local time"),
    ],
)  # fmt: skip
def test_key_generators_that_do_not_fit_are_refused_at_creation(tmp_path: Path, arguments, needle) -> None:
    names = {"kind": "hoodie.datasource.write.keygenerator.type",
             "class": "hoodie.datasource.write.keygenerator.class"}  # fmt: skip
    fields = arguments.pop("partition_by")
    properties = {names.get(k, k): v for k, v in arguments.items()}
    with pytest.raises((errors.Invalid, errors.Unsupported), match=needle):
        small(tmp_path / "t", partition_by=fields, properties=properties)
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()


def test_a_table_is_opened_only_with_its_own_key_generator(tmp_path: Path) -> None:
    small(tmp_path / "t", partition_by="d")
    key = "hoodie.datasource.write.keygenerator.class"
    same = mainstem.open_table(tmp_path / "t", {key: "org.apache.hudi.keygen.SimpleKeyGenerator"})
    same.upsert(one())
    other = mainstem.open_table(tmp_path / "t", {key: "org.apache.hudi.keygen.ComplexKeyGenerator"})
    with pytest.raises(errors.Invalid, match=r"COMPLEX.*SIMPLE"):
        other.upsert(one())


def test_a_slash_date_that_is_no_date_is_refused(tmp_path: Path) -> None:
    properties = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
    table = small(tmp_path / "t", partition_by="d", properties=properties)
    with pytest.raises(errors.Invalid, match="no date"):
        table.upsert(one(d="a-b"))
    table.upsert(one())
    assert [s.partition for s in table.file_slices()] == ["2026/01/10"]


def test_a_value_of_several_folders_beside_another_partition_column_is_refused(tmp_path: Path) -> None:
    table = small(tmp_path / "t", partition_by=["r", "d"])
    with pytest.raises(errors.Invalid, match=r"several folders.*urlencode"):
        table.upsert(one(r="eu/west"))


ENDLESS = ["a,b:c:d", "2024-01-01 10:20:30,5", "x:1:2,3"]
HARMLESS = ["a,b", "a:b:c", "a,b:c", "b:c,d:e", "a:b,c"]


@pytest.mark.parametrize("key", ENDLESS)
def test_a_key_on_which_java_never_ends_is_refused_and_can_be_deleted(tmp_path: Path, key: str) -> None:
    table = small(tmp_path / "t")
    with pytest.raises(errors.Invalid, match="hang"):
        table.upsert(one(a=key))
    assert table.delete(one(a=key)).status == "committed"


def test_other_keys_with_commas_and_colons_are_written(tmp_path: Path) -> None:
    table = small(tmp_path / "t")
    for key in HARMLESS:
        table.upsert(one(a=key))
    assert sorted(table.scan(columns=["a"]).to_arrow()["a"].to_pylist()) == sorted(HARMLESS)
    assert endless_for_java(pa.array(HARMLESS), ["a"], None) is None


def test_equal_keys_of_different_rows_are_warned_about(tmp_path: Path) -> None:
    table = small(tmp_path / "t", record_key=["a", "r"])
    with pytest.warns(UserWarning, match=r"',r:'.*same record key"):
        table.upsert(one(a="x,r:y", r="z"))


def test_the_examples_of_the_documentation_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "keys.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(code, {"folder": str(tmp_path)})
    promised = re.findall(r"print\(.*# (.*)", code)
    assert capsys.readouterr().out.splitlines() == promised
