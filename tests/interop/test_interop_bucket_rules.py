"""Goal: where rules say how many buckets a partition has, Java and mainstem put each key into the same one.

Method: one table is made by mainstem and one by Java, with the same rules; both engines write both in turn,
updates of each other's rows, deletes, and compactions by either. The snapshot must be the rows computed from
the batches, Java's answer must be ours, and Java's queries for one key must find its row.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.errors import Invalid

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
CITIES = ("paris", "rome", "oslo", "parma")
RULES = {
    "hoodie.bucket.index.partition.rule.type": "regex",
    "hoodie.bucket.index.partition.expressions": "^(par|ber)\\w+$,5; rom[ae],1",
}
OPTIONS = nbcc_options(
    "ruled", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=3, extra=RULES
)
QUIET = {"hoodie.mainstem.services": "off", "hoodie.mainstem.fsync": "false"}


def rows(numbers: range, ts: int, value: str) -> pa.Table:
    found = [(f"k{n} é", CITIES[n % len(CITIES)], ts, f"{value}{n}") for n in numbers]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def newest(*batches: pa.Table) -> pa.Table:
    """Later batches win: their ordering values are higher."""
    best = {row["id"]: row for batch in batches for row in batch.to_pylist()}
    return pa.Table.from_pylist(list(best.values()), schema=SCHEMA)


def buckets_of(path: Path) -> dict[str, set[int]]:
    found = {city: [p.name.lstrip(".") for p in (path / city).iterdir()] for city in CITIES}
    return {city: {int(n[:8]) for n in names if n[:8].isdigit()} for city, names in found.items()}


@pytest.mark.supports("Writing", "Bucket counts per partition, beside Java")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("made_by", ["mainstem", "java"])
def test_both_engines_follow_the_rules(java: JavaHudi, tmp_path: Path, made_by: str) -> None:
    path = tmp_path / "ruled"
    java.parse_bucket_rules(OPTIONS)
    batches = [rows(range(80), 1, "first")]
    if made_by == "java":
        java.write(path, batches[0], OPTIONS)
        given = {**RULES, "hoodie.bucket.index.num.buckets": "3"}
        table = mainstem.open_table(path, {**QUIET, **given, "hoodie.mainstem.timeline.zone": "UTC"})
        options = OPTIONS
    else:
        table = mainstem.create_table(
            path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=3, name="ruled",
            properties={**QUIET, **RULES},
        )  # fmt: skip
        table.upsert(batches[0])
        # What the table says, a Java job need not.
        options = {k: v for k, v in OPTIONS.items() if not k.startswith("hoodie.bucket.")}

    def check(expected: pa.Table) -> None:
        found = mainstem.open_table(path).scan().to_arrow()
        assert_same(expected, without_meta(found), ["id"])
        assert_same(java.read_by_default(path), found, ["id"])

    check(newest(*batches))
    batches.append(rows(range(40, 120), 2, "java"))
    java.write(path, batches[-1], options)
    check(newest(*batches))
    batches.append(rows(range(30, 130), 3, "ours"))
    table.upsert(batches[-1])
    check(newest(*batches))
    table.compact()
    batches.append(rows(range(20, 60), 4, "java again"))
    java.write(path, batches[-1], options)
    java.compact(path, options)
    table.delete(rows(range(8), 0, "").select(["id", "city"]))
    left = newest(*batches)
    left = left.filter(pa.array([int(key[1:-2]) >= 8 for key in left["id"].to_pylist()]))
    check(left)
    five = set(range(5))
    assert buckets_of(path) == {"paris": five, "rome": {0}, "oslo": {0, 1, 2}, "parma": five}
    for number in (20, 33, 58, 75):  # Java leaves files out by the rules that the table tells
        key = f"k{number} é"
        assert java.read_by_default(path, f"id = '{key}'")["id"].to_pylist() == [key]
        assert table.scan(filter=pa.compute.field("id") == key).to_arrow().num_rows == 1


@pytest.mark.supports("Writing", "Bucket counts per partition, beside Java")
@pytest.mark.timeout(900)
def test_a_table_whose_partitions_java_gives_other_counts_is_written_no_more_and_read_whole(
    java: JavaHudi, tmp_path: Path
) -> None:
    path = tmp_path / "plain"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="plain",
        properties=QUIET,
    )  # fmt: skip
    first = rows(range(40), 1, "first")
    table.upsert(first)
    with table.begin("upsert") as across:
        across.write(rows(range(4), 2, "across"))
        java.call("sql", text=f"CREATE TABLE plain USING hudi LOCATION '{path}'")
        try:
            call = "CALL partition_bucket_index_manager(table => 'plain', overwrite => '^par\\w+$,5',"
            told = java.call("sql", text=f"{call} bucket_number => 2, dry_run => false)")
            assert told["rows"][0][0] == "SUCCESS"
        finally:
            java.call("sql", text="DROP TABLE plain")
        with pytest.raises(Invalid, match="gives partitions bucket counts of their own"):
            across.commit()
    assert [i.action for i in table.timeline()].count("replacecommit") == 1
    for one in (table, mainstem.open_table(path, QUIET)):
        with pytest.raises(Invalid, match="gives partitions bucket counts of their own"):
            one.upsert(rows(range(4), 3, "later"))
        assert_same(first, without_meta(one.scan().to_arrow()), ["id"])
        for key in first["id"].to_pylist():  # no file group is left out by the old count
            assert one.scan(filter=pa.compute.field("id") == key).to_arrow().num_rows == 1
