"""Goal: rows are never doubled by a wrong idea of the buckets of a table that another engine
filled.

Method: tables that Java wrote (the bucket count is not in their properties) are opened for writing
without a count, with a wrong one, with another engine, index and hash field; then with the right
one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mainstem
from bad_input.common import GOLDEN, golden, refused
from mainstem.errors import Invalid, Unsupported

COUNT = "hoodie.bucket.index.num.buckets"
HASH_TABLES = [
    "bucket_hash_string",
    "bucket_hash_int",
    "bucket_hash_long",
    "bucket_hash_date",
    "bucket_hash_composite",
    "bucket_hash_composite_subset",
    "bucket_hash_complex_single",
]


def _facts(name: str) -> dict:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def _hash_field(name: str) -> str | None:
    options = _facts(name).get("writer_options", {})
    options = options.get("A", options) if isinstance(options, dict) else {}
    return options.get("hoodie.bucket.index.hash.field") if isinstance(options, dict) else None


@pytest.mark.parametrize("name", HASH_TABLES)
def test_a_foreign_table_without_a_count_needs_one(name: str, tmp_path: Path) -> None:
    path = golden(name, tmp_path)
    with refused(path, Invalid, "does not say its bucket count", COUNT, "256", "Flink"):
        mainstem.open_table(path).begin()


@pytest.mark.parametrize("name", HASH_TABLES)
def test_a_smaller_count_contradicts_the_file_ids(name: str, tmp_path: Path) -> None:
    path = golden(name, tmp_path)
    count = _facts(name)["num_buckets"]
    options = {COUNT: count // 2}
    if field := _hash_field(name):
        options["hoodie.bucket.index.hash.field"] = field
    with refused(path, Invalid, "does not fit|lies in bucket", f"{count // 2}", "file "):
        mainstem.open_table(path, options).begin()


@pytest.mark.parametrize("name", HASH_TABLES)
def test_a_greater_count_contradicts_the_sampled_keys(name: str, tmp_path: Path) -> None:
    path = golden(name, tmp_path)
    count = _facts(name)["num_buckets"] + 1
    options = {COUNT: count}
    if field := _hash_field(name):
        options["hoodie.bucket.index.hash.field"] = field
    with refused(path, Invalid, "hashes to bucket", f"of {count}", "lies in bucket", "file "):
        mainstem.open_table(path, options).begin()


@pytest.mark.parametrize("name", HASH_TABLES)
def test_the_right_count_is_accepted(name: str, tmp_path: Path) -> None:
    path = golden(name, tmp_path)
    options = {COUNT: _facts(name)["num_buckets"]}
    if field := _hash_field(name):
        options["hoodie.bucket.index.hash.field"] = field
    before = mainstem.open_table(path).scan().to_arrow().num_rows
    mainstem.open_table(path, options).begin().abort()
    assert mainstem.open_table(path).scan().to_arrow().num_rows == before


def test_the_wrong_hash_field_contradicts_the_sampled_keys(tmp_path: Path) -> None:
    path = golden("bucket_hash_composite_subset", tmp_path)
    options = {
        COUNT: _facts("bucket_hash_composite_subset")["num_buckets"],
        "hoodie.bucket.index.hash.field": "a",
    }
    with refused(path, Invalid, "hashes to bucket", "'a'", r"hoodie\.bucket\.index\.hash\.field"):
        mainstem.open_table(path, options).begin()


def test_a_hash_field_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = golden("bucket_hash_composite", tmp_path)
    count = _facts("bucket_hash_composite")["num_buckets"]
    options = {COUNT: count, "hoodie.bucket.index.hash.field": "ts"}
    with refused(path, Invalid, r"hash\.field", "'ts'"):
        mainstem.open_table(path, options).begin()


@pytest.mark.parametrize(
    ("options", "needles"),
    [
        ({"hoodie.index.type": "BLOOM"}, ("index.type", "BLOOM", "BUCKET")),
        ({"hoodie.index.type": "RECORD_LEVEL_INDEX"}, ("index.type", "RECORD_LEVEL_INDEX")),
        (
            {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
            ("bucket.engine", "CONSISTENT_HASHING", "SIMPLE"),
        ),
    ],
)
def test_another_index_or_engine_is_refused_where_the_table_is_silent(
    options, needles, tmp_path: Path
) -> None:
    path = golden("bucket_hash_string", tmp_path)
    count = _facts("bucket_hash_string")["num_buckets"]
    with pytest.raises((Invalid, Unsupported)) as caught:
        mainstem.open_table(path, {COUNT: count, **options}).begin()
    with refused(path, type(caught.value), *needles):
        mainstem.open_table(path, {COUNT: count, **options}).begin()


def test_a_count_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = golden("bucket_hash_string", tmp_path)
    for wrong in ("0", "-1", "x", "1e3", "100001"):
        with refused(path, Invalid, COUNT, wrong, "1 to 100000"):
            mainstem.open_table(path, {COUNT: wrong}).begin()


def test_two_file_groups_of_one_bucket_are_refused(tmp_path: Path) -> None:
    from mainstem.errors import CorruptTable

    path = golden("bucket_hash_string", tmp_path)
    count = _facts("bucket_hash_string")["num_buckets"]
    data = next(p for p in path.rglob("*.log.*") if ".hoodie" not in p.relative_to(path).parts)
    head = data.name[1:9]
    twin = data.with_name(f".{head}-1111-2222-3333-444444444444-0_" + data.name.split("_", 1)[1])
    twin.write_bytes(data.read_bytes())
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path, {COUNT: count}).begin()
    text = str(caught.value)
    assert "two file groups" in text and head in text


@pytest.mark.parametrize("end", ["_1.log.parquet", ".parquet"])
@pytest.mark.parametrize("half", [b"", b"PAR1\x15\x04", b"PAR1" + bytes(8) + b"\xff\xff\xff\x7fPAR1"])
def test_a_file_that_somebody_is_writing_hinders_no_writer(end: str, half: bytes, tmp_path: Path) -> None:
    path = golden("bucket_hash_string", tmp_path)
    data = next(p for p in path.rglob("*.log.*") if ".hoodie" not in p.relative_to(path).parts)
    first = data.name[1:].split("_")[0]
    data.with_name(f"{first}_7-1-1_20991231235959999{end}").write_bytes(half)
    table = mainstem.open_table(path, {COUNT: _facts("bucket_hash_string")["num_buckets"]})
    table.begin().abort()


OTHER_INDEXES = {
    "log_positions": "SIMPLE or BLOOM",
    "log_parquet": "SIMPLE or BLOOM",
    "mdt_partitioned_rli": "RECORD_LEVEL_INDEX",
    "bucket_consistent.before": "CONSISTENT_HASHING",
}


@pytest.mark.parametrize("given", [{}, {COUNT: 4}])
@pytest.mark.parametrize("name", OTHER_INDEXES)
def test_a_table_without_bucket_index_is_refused_until_its_index_is_named(
    name: str, given: dict[str, int], tmp_path: Path
) -> None:
    path = golden(name, tmp_path)
    options = {**given, "hoodie.mainstem.timeline.zone": "UTC"}
    with pytest.raises(Unsupported) as caught:
        mainstem.open_table(path, options).begin()
    text = str(caught.value)
    if not text.startswith("the timeline holds the"):  # file groups were replaced already
        for needle in ("no simple bucket index", "can be read", "give hoodie.index.type", "copy its rows"):
            assert needle in text
        assert OTHER_INDEXES[name] in text
    assert f"give {COUNT}" not in text
    assert mainstem.open_table(path).scan().to_arrow().num_rows > 0


def test_rows_of_a_table_without_bucket_index_can_be_copied_as_the_refusal_says(tmp_path: Path) -> None:
    old = mainstem.open_table(golden("log_parquet", tmp_path))
    rows = old.scan(columns=old.schema.names).to_arrow()
    new = mainstem.create_table(
        tmp_path.with_name(f"{tmp_path.name}-new"), old.schema, record_key=old.config.record_key,
        ordering=old.config.ordering, partition_by=old.config.partition_fields, buckets=2,
        properties={"hoodie.mainstem.fsync": False},
    )  # fmt: skip
    new.bulk_insert(rows)
    keys = "_hoodie_record_key"
    assert new.scan().to_arrow()[keys].to_pylist() != []
    assert sorted(new.scan().to_arrow()[keys].to_pylist()) == sorted(old.scan().to_arrow()[keys].to_pylist())
