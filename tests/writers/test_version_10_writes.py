"""Goal: what is written to a table of version 10 is read as if it were one of version 9, and its files are
what Hudi 1.3 writes: Parquet files of rows and of deletes, with the header in the footer.

Method: the same operations on a table of version 9 and on tables of version 10 of both layouts, compared
after each; the files, their footers and the commits' statistics are looked at. tests/interop asks Java.
"""

from __future__ import annotations

import errno
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.formats.native_log import HEADER_KEY
from mainstem.storage import paths
from mainstem.storage.local import LocalUpload
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.writers import append
from tests.golden_tables.tables import unpack

SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string()),
    ("tags", pa.list_(pa.string())), ("_hoodie_is_deleted", pa.bool_()),
])  # fmt: skip
OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false",
    "hoodie.mainstem.exclusive": "true",
}  # fmt: skip
KEYS = [f"k{number:02}" for number in range(30)] + ["\ufffd", "\U0001f600", "é"]
LAYOUTS = ("default", "lsm_tree")


def created(path: Path, version: int, layout: str = "default", **more: Any) -> mainstem.Table:
    properties = {**OPTIONS, **more.pop("properties", {})}
    if version == 10:
        properties |= {"hoodie.write.table.version": "10", "hoodie.table.storage.layout": layout}
    kind = {"record_key": "id", "ordering": "ts", "partition_by": "city", "buckets": 2, **more}
    return mainstem.create_table(path, SCHEMA, properties=properties, **kind)


def rows(keys: list[str], ts: int, gone: tuple[str, ...] = (), name: str = "n") -> pa.Table:
    return pa.table(
        {
            "id": keys, "city": ["rome" if key < "k15" else "oslo" for key in keys], "ts": [ts] * len(keys),
            "name": [f"{name}{ts}"] * len(keys), "tags": [[key] for key in keys],
            "_hoodie_is_deleted": [key in gone for key in keys],
        },
        SCHEMA,
    )  # fmt: skip


def content(table: mainstem.Table) -> list[dict[str, Any]]:
    found = mainstem.open_table(table.path).scan(columns=SCHEMA.names).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def native_files(path: Path) -> list[Path]:
    return sorted(path.glob("*/*.log.parquet")) + sorted(path.glob("*/*.deletes.parquet"))


def some_operations(table: mainstem.Table, seed: int) -> Any:
    """Does one thing after another; yields after each."""
    chance = random.Random(seed)
    for step in range(1, 11):
        keys = chance.sample(KEYS, 12)
        gone = tuple(chance.sample(keys, chance.randrange(4)))
        made = rows(keys, chance.randrange(max(1, step - 3), step + 1), gone, "ab"[step % 2])
        if step == 4:
            table.delete(made.select(["id", "city"]).slice(0, 3))
        elif step in (5, 8):
            with table.begin("upsert") as transaction:  # a key comes, goes and comes again in one
                transaction.write(made)
                transaction.write(rows(list(gone) or keys[:2], step))
                transaction.write(rows(keys[1:3], step, (keys[1],)))
                transaction.write(rows(keys[:2], step))
                transaction.commit()
        elif step == 6:
            first, second = table.begin("upsert"), table.begin("upsert")
            second.write(made)
            first.write(rows(keys, step, tuple(keys[:1])))
            second.commit()
            first.commit()
        elif step == 9:
            table.insert_overwrite(made.filter(pc.equal(made["city"], "rome")))
        else:
            (table.bulk_insert if step == 1 else table.upsert)(made)
        yield step


@pytest.mark.supports("Tables and layouts", "table version 10 (write)")
@pytest.mark.supports("Tables and layouts", "storage layout lsm_tree (write)")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_rows_are_those_of_a_table_of_version_9(tmp_path: Path, layout: str, mode: str) -> None:
    properties = {"hoodie.record.merge.mode": mode}
    old = created(tmp_path / "old", 9, properties=properties)
    new = created(tmp_path / "new", 10, layout, properties=properties)
    for step, _ in zip(some_operations(old, 7), some_operations(new, 7), strict=True):
        assert content(old) == content(new), step
    assert native_files(tmp_path / "new") and not list((tmp_path / "new").glob("*/.*.log.*"))
    if layout == "lsm_tree":
        for file in (tmp_path / "new").glob("*/*.parquet"):
            keys = [key.encode() for key in pq.read_table(file)["_hoodie_record_key"].to_pylist()]
            assert keys == sorted(keys), file.name


def test_log_files_have_the_codec_that_is_asked_for(tmp_path: Path) -> None:
    table = created(tmp_path, 10, buckets=1, properties={"hoodie.parquet.compression.codec": "zstd"})
    table.upsert(rows(["k01"], 5))
    (data,) = native_files(tmp_path)
    assert pq.ParquetFile(data).metadata.row_group(0).column(0).compression == "ZSTD"


def test_files_and_footers_are_those_of_hudi(tmp_path: Path) -> None:
    table = created(tmp_path, 10, buckets=1)
    outcome = table.upsert(rows(["k01", "k02", "k03"], 5, gone=("k03",)))
    data, deletes = native_files(tmp_path)
    log = paths.parse_log_name(data.name)
    assert log is not None and log.instant == outcome.instant and log.version == 1
    assert deletes.name == data.name.replace(".log.", ".deletes.")
    stored = pq.ParquetFile(data)
    notes = {key.decode(): value.decode() for key, value in stored.metadata.metadata.items()}
    header = json.loads(notes[HEADER_KEY])
    assert list(header) == ["VERSION", "SCHEMA", "INSTANT_TIME"]
    assert (header["VERSION"], header["INSTANT_TIME"]) == ("2", outcome.instant)
    assert header["SCHEMA"] == notes["parquet.avro.schema"]
    assert [field["name"] for field in json.loads(header["SCHEMA"])["fields"]] == stored.schema_arrow.names
    assert not {"org.apache.hudi.bloomfilter", "hoodie_min_record_key"} & set(notes)  # of base files alone
    assert stored.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert set(stored.read()["_hoodie_file_name"].to_pylist()) == {log.file_id}
    gone = pq.ParquetFile(deletes)
    assert gone.read().to_pylist() == [{"_hoodie_record_key": "k03", "ts": 5}]
    assert [field.nullable for field in gone.schema_arrow] == [False, True]
    header = json.loads(gone.metadata.metadata[HEADER_KEY.encode()])
    assert header["SCHEMA"] == notes["parquet.avro.schema"]
    (commit,) = (tmp_path / ".hoodie/timeline").glob("*.deltacommit")
    first, second = decode_commit(commit.read_bytes(), path=commit.name).stats["rome"]
    assert (first["numWrites"], first["numDeletes"], first["logFiles"]) == (2, 0, [data.name])
    assert (second["numWrites"], second["numDeletes"]) == (0, 1)
    assert second["logFiles"] == [data.name, deletes.name] and second["prevCommit"] == outcome.instant
    assert [s["fileSizeInBytes"] for s in (first, second)] == [f.stat().st_size for f in (data, deletes)]


def test_indexes_hold_the_rows_of_a_further_version_that_more_rows_follow(tmp_path: Path) -> None:
    table = created(tmp_path, 10, buckets=1, properties={"hoodie.metadata.enable": "true"})
    table.create_index("column_stats", ["ts", "name"])
    with mainstem.open_table(tmp_path).begin("upsert") as transaction:
        transaction.write(rows(["k01"], 1, gone=("k01",)))
        transaction.write(rows(["k01", "k02"], 9))  # k01 follows its delete: both go into the next version
        transaction.write(rows(["k03"], 2))
        transaction.commit()
    table = mainstem.open_table(tmp_path)
    found = table.scan(columns=["id"], filter=pc.field("ts") == 9).to_arrow()["id"].to_pylist()
    assert sorted(found) == ["k01", "k02"]
    report = table.validate_metadata()
    assert report is not None and report.ok, report


def test_a_filter_reads_columns_that_older_log_files_lack(tmp_path: Path) -> None:
    table = created(tmp_path, 10, buckets=1)
    table.upsert(rows(["k01"], 1))
    table.upsert(rows(["k02"], 1).append_column("later", pa.array([7])))
    table = mainstem.open_table(tmp_path)
    found = table.scan(columns=["later"], filter=pc.field("ts") == 1).to_arrow()["later"].to_pylist()
    assert sorted(found, key=str) == [7, None]


def test_deletes_alone_make_no_file_of_rows(tmp_path: Path) -> None:
    table = created(tmp_path, 10, properties={"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})
    table.delete({"id": ["k01"], "city": ["rome"]})
    (file,) = native_files(tmp_path)
    assert file.name.endswith("_1.deletes.parquet")
    assert pq.read_table(file).to_pylist() == [{"_hoodie_record_key": "k01"}]


def test_a_new_table_says_its_version_and_its_layout(tmp_path: Path) -> None:
    for layout in LAYOUTS:
        found = created(tmp_path / layout, 10, layout).properties
        assert found["hoodie.table.version"] == found["hoodie.table.initial.version"] == "10"
        assert found["hoodie.table.storage.layout"] == layout
    usual = created(tmp_path / "usual", 9).properties
    assert usual["hoodie.table.version"] == "9" and "hoodie.table.storage.layout" not in usual


def test_a_delete_without_values_of_several_ordering_fields_is_refused(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("seq", pa.int32()))
    table = mainstem.create_table(
        tmp_path, schema, record_key="id", ordering=["ts", "seq"], buckets=1, table_version=10,
        properties=OPTIONS,
    )  # fmt: skip
    table.upsert(rows(["k01", "k02"], 1, gone=("k02",)).append_column("seq", pa.array([1, 2], pa.int32())))
    with pytest.raises(Unsupported, match="deletes without ordering values"):
        table.delete({"id": ["k01"]})
    assert pq.read_table(next(tmp_path.glob("*.deletes.parquet"))).column_names[1:] == ["ts", "seq"]


def test_partial_rows_name_whether_they_are_deletes_where_the_table_has_it(tmp_path: Path) -> None:
    partial = {**OPTIONS, "hoodie.mainstem.write.partial.blocks": "true"}
    created(tmp_path, 10, buckets=1).bulk_insert(rows(["k01", "k02"], 1))
    table = mainstem.open_table(tmp_path, partial)
    update = {"id": ["k01"], "city": ["rome"], "ts": [5], "name": ["new"]}
    with pytest.warns(UserWarning, match="IS_PARTIAL"):
        with pytest.raises(Unsupported, match="leave out the updated rows"):
            table.update_columns(update)
        table.update_columns({**update, "_hoodie_is_deleted": [False]})
    (file,) = tmp_path.glob("rome/*.log.parquet")
    header = json.loads(pq.read_metadata(file).metadata[HEADER_KEY.encode()])
    assert header["IS_PARTIAL"] == "true"
    names = [field["name"] for field in json.loads(header["SCHEMA"])["fields"]]
    assert names == pq.read_schema(file).names
    assert names[5:] == ["id", "city", "ts", "name", "_hoodie_is_deleted"]
    assert [(row["name"], row["tags"]) for row in content(table)] == [("new", ["k01"]), ("n1", ["k02"])]


def test_an_lsm_tree_gets_no_partial_rows(tmp_path: Path) -> None:
    created(tmp_path, 10, "lsm_tree", buckets=1).upsert(rows(["k01"], 1))
    table = mainstem.open_table(tmp_path, {**OPTIONS, "hoodie.mainstem.write.partial.blocks": "true"})
    with pytest.raises(Unsupported, match="the other columns would be lost"):
        table.update_columns({"id": ["k01"], "city": ["rome"], "ts": [5], "name": ["new"]})
    assert len(native_files(tmp_path)) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_wait_are_written_out_where_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(append, "_HELD_BYTES_MAX", 3000)
    table = created(tmp_path, 10, layout, buckets=1)
    with table.begin("upsert") as transaction:
        for ts in range(1, 6):
            transaction.write(rows(KEYS[::-1], ts, gone=(KEYS[ts],)))
        transaction.commit()
    assert [row["id"] for row in content(table)] == [key for key in sorted(KEYS) if key != KEYS[5]]
    assert {row["ts"] for row in content(table)} == {5}
    groups = [pq.read_metadata(file).num_row_groups for file in native_files(tmp_path)]
    assert max(groups) == 1 if layout == "lsm_tree" else max(groups) > 1
    assert len(groups) > 4  # rows that follow deletes of their keys begin the next version


@pytest.mark.disk("a store takes a file whole")
def test_a_disk_that_is_full_while_files_are_written_out_ends_the_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows wait in memory, so it is the commit that finds the disk full."""
    table = created(tmp_path, 10)
    table.upsert(rows(["k01", "k20"], 1))
    whole, left = LocalUpload.append, [2]

    def full(self: LocalUpload, buffers: Any) -> None:
        left[0] -= bytes(buffers[0][:4]) == b"PAR1"
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(self, buffers)

    monkeypatch.setattr(LocalUpload, "append", full)
    transaction = table.begin("upsert")
    transaction.write(rows(["k01", "k02", "k20", "k21"], 2))
    with pytest.raises(Unavailable, match="No space left"):
        transaction.commit()
    with pytest.raises(Invalid):
        transaction.commit()
    assert [row["ts"] for row in content(table)] == [1, 1]
    table.upsert(rows(["k01", "k20"], 3))
    assert [row["ts"] for row in content(table)] == [3, 3]


def test_staged_rows_are_committed(tmp_path: Path) -> None:
    from mainstem.writers.staged_rows import Stager

    table = created(tmp_path, 10)
    spec = table.staging_spec(SCHEMA)
    seams = table.opened.seams
    stager = Stager(seams.storage, spec, "sink", seams.random)
    lines = [stager.stage(rows(["k01", "k02"], 1)), stager.stage(rows(["k02", "k20"], 2, gone=("k02",)))]
    with table.begin("upsert") as transaction:
        assert transaction.add_staged(lines) == 4
        transaction.commit()
    assert [row["id"] for row in content(table)] == ["k01", "k20"]


def test_rows_that_were_staged_before_the_table_was_upgraded_are_committed(tmp_path: Path) -> None:
    from mainstem.writers.staged_rows import Stager

    table = created(tmp_path, 9)
    seams = table.opened.seams
    old = Stager(seams.storage, table.staging_spec(SCHEMA), "sink", seams.random)
    lines = [old.stage(rows(["k01", "k02", "k20"], 1)), old.stage(rows(["k02"], 2, gone=("k02",)))]
    properties = tmp_path / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text().replace("table.version=9", "table.version=10"))
    table = mainstem.open_table(tmp_path, OPTIONS)
    new = Stager(seams.storage, table.staging_spec(SCHEMA), "sink", seams.random)
    lines.append(new.stage(rows(["k20"], 3)))
    with table.begin("upsert") as transaction:
        assert transaction.add_staged(lines) == 5
        transaction.commit()
    assert [(row["id"], row["ts"]) for row in content(table)] == [("k01", 1), ("k20", 3)]
    assert native_files(tmp_path) and not list(tmp_path.glob("*/.*.log.*"))


def test_rows_that_were_staged_before_the_table_was_brought_back_are_committed(tmp_path: Path) -> None:
    from mainstem.writers.staged_rows import Stager

    table = created(tmp_path, 10)
    seams = table.opened.seams
    old = Stager(seams.storage, table.staging_spec(SCHEMA), "sink", seams.random)
    lines = [old.stage(rows(["k01", "k02", "k20"], 1)), old.stage(rows(["k02"], 2, gone=("k02",)))]
    table = mainstem.open_table(tmp_path, OPTIONS)
    table.downgrade(9)
    new = Stager(seams.storage, table.staging_spec(SCHEMA), "sink", seams.random)
    lines.append(new.stage(rows(["k20"], 3)))
    with table.begin("upsert") as transaction:
        assert transaction.add_staged(lines) == 5
        transaction.commit()
    assert [(row["id"], row["ts"]) for row in content(table)] == [("k01", 1), ("k20", 3)]
    assert not native_files(tmp_path)


def test_tasks_write_and_files_of_attempts_that_lost_go(tmp_path: Path) -> None:
    from mainstem.writers.write_task import write_task

    table = created(tmp_path, 10)
    with table.begin("upsert") as transaction:
        spec = transaction.task_spec()
        for attempt in (0, 1):
            batches = rows(["k01", "k02"], 1, gone=("k02",)).to_batches()
            result = write_task(spec, batches, task_partition=3, stage=1, attempt=attempt)
        transaction.add_task_result(result)
        transaction.commit()
    assert [row["id"] for row in content(table)] == ["k01"]
    assert {paths.parse_log_name(file.name).token for file in native_files(tmp_path)} == {"3-1-1"}


@pytest.mark.disk("on a store a writer that dies before its commit leaves no files")
def test_a_dead_writers_files_are_rolled_back(tmp_path: Path) -> None:
    table = created(tmp_path, 10)
    table.upsert(rows(["k01"], 1))
    kept = native_files(tmp_path)
    dead = mainstem.open_table(tmp_path, OPTIONS).begin("upsert")
    dead.write(rows(["k01", "k02", "k20"], 2, gone=("k02",)))
    assert len(native_files(tmp_path)) == len(kept) + 3
    past = time.time() - 7_200
    os.utime(tmp_path / ".hoodie/.heartbeat" / dead.instant, (past, past))
    (rolled,) = mainstem.open_table(tmp_path, OPTIONS).rollback_failed_writes()
    assert (rolled.instant, rolled.files) == (dead.instant, 3)
    assert native_files(tmp_path) == kept
    assert [row["ts"] for row in content(table)] == [1]


@pytest.mark.disk("it takes completed files of the timeline away")
def test_what_java_left_is_rolled_back(tmp_path: Path) -> None:
    """Writes of Java that did not come to complete, of which one made deletes files."""
    path = unpack("v10_nbcc_two_writers.inflight", tmp_path)
    given, columns = {"hoodie.bucket.index.num.buckets": "2"}, ["id", "name", "ts"]
    for beat in (path / ".hoodie/.heartbeat").iterdir():
        beat.unlink()
    (pending,) = mainstem.open_table(path, given).rollback_failed_writes()
    assert pending.instant == "20261123121023668"
    view = mainstem.open_table(path, given).scan(as_of="20261123121026680", columns=columns)
    before = sorted(view.to_arrow().to_pylist(), key=str)
    java = {"20261123121056951", "20261123121104344"}
    for time_ in sorted(java):
        for file in (path / ".hoodie/timeline").glob(f"{time_}_*.deltacommit"):
            file.unlink()
    assert sum(file.name.endswith(".deletes.parquet") for file in path.glob("*/*")) == 2
    rolled = mainstem.open_table(path, given).rollback_failed_writes()
    assert {done.instant for done in rolled} == java and sum(done.files for done in rolled) == 6
    assert not [file for file in path.glob("*/*") if any(time_ in file.name for time_ in java)]
    shown = mainstem.open_table(path, given).scan(columns=columns).to_arrow().to_pylist()
    assert sorted(shown, key=str) == before
