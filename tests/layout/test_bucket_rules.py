"""Goal: rules by which partitions have different bucket counts put a row where Java puts it, or are refused.

Method: counts that Hudi's RegexRuleEngine gives; tables with such rules, written in every way, whose files
must lie in the buckets of their partition and whose keys must be found; rules and files that must be refused.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.layout.bucket_rules import BucketRules
from mainstem.layout.buckets import bucket_ids
from mainstem.layout.stored_bucket_rules import check_without_rules, put_first_rules
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers import context
from tests.golden_tables.tables import unpack

EXPRESSIONS, COUNT = "hoodie.bucket.index.partition.expressions", "hoodie.bucket.index.num.buckets"
RULE = "hoodie.bucket.index.partition.rule.type"
FILES = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
CITIES = ("paris", "rome", "oslo")
PARTS = {"paris": 5, "rome": 1, "oslo": 3}


def rows(numbers: range, ts: int) -> pa.Table:
    found = [(f"k{n}", CITIES[n % 3], ts, f"{ts}/{n}") for n in numbers]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def make(path: Path, **properties: object) -> mainstem.Table:
    given = {EXPRESSIONS: "par.*,5;^rome$,1", "hoodie.mainstem.fsync": False, **properties}
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=3, properties=given
    )


def check_places(table: mainstem.Table, expected: set[str]) -> None:
    """Every key is there once, in the file group of its bucket, and a query for it finds it."""
    found = table.scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted(expected)
    for row in found.to_pylist():
        count = PARTS[row["city"]]
        (bucket,) = bucket_ids(pa.array([row["id"]]), buckets=count, hash_fields=["id"], parts=None).tolist()
        assert row["_hoodie_file_name"].startswith(f"{bucket:08d}-"), row
    for key in sorted(expected)[::7]:
        assert table.scan(filter=pc.field("id") == key).to_arrow()["id"].to_pylist() == [key]


@pytest.mark.parametrize(
    ("expressions", "counts"),
    [
        (
            r"\d{4}-(06-(01|17|18)|11-(01|10|11)),256",
            {"2024-06-17": 256, "x=2024-11-10/y": 256, "2024-06-02": 10},
        ),
        (" par.*,4 ; rome,+2;", {"paris": 4, "xpar": 4, "roma": 10, "trome": 2}),
        ("a,1;a,2", {"a": 1, "b": 10}),
        (",7", {"": 7, "anything": 7}),
        (r"^dt=[0-9]{4}$,3;[^a-z_\-]$,5;(?:x|y)+\.z,6", {"dt=2024": 3, "dt=20245": 5, "xy.z": 6, "x_z": 10}),
    ],
)
def test_the_first_expression_that_is_found_gives_the_count(
    expressions: str, counts: dict[str, int]
) -> None:
    rules = BucketRules.of(expressions, "REGEX", 10)
    assert rules.counts(list(counts)).tolist() == list(counts.values())


@pytest.mark.parametrize(
    ("expressions", "error", "says"),
    [
        ("par", Invalid, "'par' is no rule"),
        ("a,b,4", Invalid, "is no rule"),
        ("a,4;;b,2", Invalid, "'' is no rule"),
        ("a,four", Invalid, "is no rule"),
        ("a,0", Invalid, "no count from 1"),
        ("(a,4", Invalid, "no regular expression"),
        (r"\bfoo\b,4", Unsupported, r"'\\\\bfoo"),
        (r"\p{L}+,4", Unsupported, "may read differently"),
        ("[a-z&&[^b]],4", Unsupported, "may read differently"),
        ("(?i)rome,4", Unsupported, "may read differently"),
        ("x{,4", Unsupported, "may read differently"),
    ],
)
def test_rules_that_java_refuses_or_reads_otherwise_make_no_table(
    expressions: str, error: type[Exception], says: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=says):
        make(tmp_path / "t", **{EXPRESSIONS: expressions})
    assert not (tmp_path / "t/.hoodie").exists()


def test_a_partition_with_a_line_end_is_refused() -> None:
    with pytest.raises(Unsupported, match="line end"):
        BucketRules.of("a$,4", "regex", 2).count("a\r")


def test_rules_are_of_tables_with_buckets_and_of_hudi_from_1_1_on(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"Hudi 1\.0 knows no such rules"):
        mainstem.create_table(
            tmp_path / "t", SCHEMA, record_key="id", partition_by="city", table_version=8,
            properties={EXPRESSIONS: "a,1"},
        )  # fmt: skip
    with pytest.raises(Invalid, match="exclude each other"):
        make(tmp_path / "t", **{"hoodie.index.type": "SIMPLE"})
    with pytest.raises(Unsupported, match="no rules but 'regex'"):
        make(tmp_path / "t", **{RULE: "glob"})


@pytest.mark.supports("Writing", "Bucket counts per partition")
def test_every_kind_of_write_follows_the_rules(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(60), 1))
    table.bulk_insert(rows(range(60, 90), 1))
    table.upsert(rows(range(30, 70), 2))
    table.compact()
    with table.begin() as one, mainstem.open_table(table.path).begin() as other:
        one.write(rows(range(80, 100), 3))
        other.write(rows(range(80, 110), 4))
        other.commit()
        one.commit()
    table.delete(rows(range(6), 0).select(["id", "city"]))
    check_places(mainstem.open_table(table.path), {f"k{n}" for n in range(6, 110)})
    table.clean()
    table.insert_overwrite(rows(range(0, 30, 3), 5))  # paris
    left = {f"k{n}" for n in range(6, 110) if n % 3} | {f"k{n}" for n in range(0, 30, 3)}
    check_places(mainstem.open_table(table.path), left)


def test_partial_updates_find_the_rows(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    table.upsert(rows(range(30), 1))
    table.compact()
    table.update_columns(rows(range(10, 20), 2).select(["id", "city", "ts"]))
    check_places(table, {f"k{n}" for n in range(30)})
    assert {row["v"] for row in table.scan().to_arrow().to_pylist()} == {f"1/{n}" for n in range(30)}


def test_the_file_for_spark_and_flink_is_made_with_the_table_or_by_its_next_writer(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    file = tmp_path / "t" / FILES / "00000000000000.hashing_config"
    made = json.loads(file.read_text())
    assert made == {
        "expressions": "par.*,5;^rome$,1", "defaultBucketNumber": 3, "rule": "regex", "version": 1,
        "instant": "00000000000000", "filename": "00000000000000.hashing_config",
    }  # fmt: skip
    file.unlink()
    mainstem.open_table(table.path).upsert(rows(range(3), 1))
    assert json.loads(file.read_text()) == made


def test_a_file_of_other_counts_stops_open_and_new_writers(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(30), 1))
    begun = table.begin()
    begun.write(rows(range(30, 60), 1))
    later = tmp_path / "t" / FILES / "20990101000000000.hashing_config"
    first = later.with_name("00000000000000.hashing_config")
    later.write_text(first.read_text().replace("^rome$,1", "^rome$,2"))
    anew = mainstem.open_table(table.path)
    for write in (begun.commit, lambda: table.upsert(rows(range(3), 2)), anew.begin):
        with pytest.raises(Invalid, match="rows would be doubled"):
            write()
    assert mainstem.open_table(table.path).scan().to_arrow().num_rows == 30
    only = mainstem.open_table(table.path).scan(filter=pc.field("id") == "k7").to_arrow()
    assert only["id"].to_pylist() == ["k7"]


def test_a_table_of_flink_tells_its_rules_by_its_file(tmp_path: Path) -> None:
    unpack("bucket_partition_level", tmp_path)
    base = next(path.parent.parent for path in tmp_path.rglob("hoodie.properties"))
    told = {
        "expressions": "par.*,4;rome,1", "defaultBucketNumber": 3, "rule": "regex", "version": 1,
        "instant": "00000000000000",
    }  # fmt: skip
    (base / FILES).mkdir(parents=True)
    file = base / FILES / "00000000000000.hashing_config"
    file.write_text(json.dumps(told))
    with pytest.raises(Invalid, match="rows would be doubled"):
        mainstem.open_table(base, {EXPRESSIONS: "par.*,3;rome,1"}).begin()
    with pytest.raises(Invalid, match="rows would be doubled"):
        mainstem.open_table(base, {COUNT: 4}).begin()
    table = mainstem.open_table(base, {"hoodie.mainstem.fsync": False})
    before = table.scan(columns=table.schema.names).to_arrow()
    table.upsert(before)
    assert table.scan(columns=table.schema.names).to_arrow().sort_by("id") == before.sort_by("id")
    file.write_text("{}")
    with pytest.raises(CorruptTable, match="says nothing of bucket counts"):
        mainstem.open_table(base).begin()


def test_rules_of_a_table_of_spark_must_fit_its_files(tmp_path: Path) -> None:
    unpack("bucket_partition_level", tmp_path)
    base = next(path.parent.parent for path in tmp_path.rglob("hoodie.properties"))
    for wrong in ("par.*,3;rome,1", "par.*,5;rome,1"):
        with pytest.raises(Invalid, match=r"does not fit|lies in bucket"):
            mainstem.open_table(base, {EXPRESSIONS: wrong, COUNT: 3}).begin()
    mainstem.open_table(base, {EXPRESSIONS: "par.*,4;rome,1", COUNT: 3}).begin().abort()


# -- a table with one count, to whose partitions another engine gives counts of their own (beside Java:
#    tests/interop/test_interop_bucket_rules.py) ---------------------------------------------------------


def single(path: Path, **properties: object) -> mainstem.Table:
    given = {"hoodie.mainstem.fsync": False, "hoodie.mainstem.services": "off", **properties}
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=3, properties=given
    )


def give_counts(table: mainstem.Table) -> None:
    """What Java leaves before it completes its change."""
    rules = BucketRules.of("par.*,5", "regex", 3)
    put_first_rules(table.opened.seams.storage, rules)


def begin_replacing(table: mainstem.Table, after: str) -> None:
    time = instant_text(parse_wall(after) + timedelta(milliseconds=1))
    create_once(table.opened.seams.storage, paths.timeline_file(f"{time}.replacecommit.requested"))


def test_an_open_writer_notices_that_partitions_got_counts_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = single(tmp_path / "t")
    looked: list[str] = []

    def look(storage: Storage) -> None:
        looked.append(storage.base)
        check_without_rules(storage)

    monkeypatch.setattr(context, "check_without_rules", look)
    table.upsert(rows(range(9), 1))
    table.upsert(rows(range(9), 1))
    assert looked, "nothing is known yet"
    looked.clear()
    table.upsert(rows(range(9), 2))
    assert not looked, "nothing was replaced"
    with table.begin("upsert") as across:
        across.write(rows(range(9), 3))
        give_counts(table)
        begin_replacing(table, across.instant)
        with pytest.raises(Invalid, match="gives partitions bucket counts of their own"):
            across.commit()
    with pytest.raises(Invalid, match="gives partitions bucket counts of their own"):
        table.upsert(rows(range(9), 4))
    assert set(table.scan().to_arrow()["ts"].to_pylist()) == {2}


def test_an_open_writer_notices_counts_of_a_change_that_was_archived_since_it_saw_it_pending(
    tmp_path: Path,
) -> None:
    table = single(tmp_path / "t")
    first = table.upsert(rows(range(9), 1)).instant
    begin_replacing(table, first)
    table.upsert(rows(range(9), 2))
    give_counts(table)
    storage = table.opened.seams.storage
    (pending,) = [name for name in storage.names(paths.TIMELINE) if ".replacecommit." in name]
    storage.delete(paths.timeline_file(pending))  # it is completed, and archived
    with pytest.raises(Invalid, match="gives partitions bucket counts of their own"):
        table.upsert(rows(range(9), 3))


def test_a_new_writer_looks_for_counts_and_queries_leave_nothing_out_by_the_old_one(tmp_path: Path) -> None:
    table = single(tmp_path / "t")
    table.upsert(rows(range(30), 1))
    one = pc.field("id") == "k3"
    every = table.scan().explain().log_files_read
    assert table.scan(filter=one).explain().log_files_read < every
    give_counts(table)
    other = mainstem.open_table(table.path)
    with pytest.raises(Invalid, match="gives partitions bucket counts of their own"):
        other.upsert(rows(range(9), 2))
    assert other.scan(filter=one).explain().log_files_read == every
