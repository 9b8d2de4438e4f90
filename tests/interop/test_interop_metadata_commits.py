"""Goal: Java reads and goes on with tables whose metadata table mainstem maintains.

Method: every action that maintains ``files`` runs once; Java reads through the metadata table, and without
it. That Java really goes by it shows when a log file of it is taken away. Then Java and mainstem write in
turn with metadata on; after each write both read the same rows, and ``files`` equals the listing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.layout.properties import load_config
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.local import LocalStorage

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true"}
OPTIONS = nbcc_options(
    "indexed", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2,
    extra={"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "false"},
)  # fmt: skip
FILES = ".hoodie/metadata/files"


def rows_of(ids: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "city": [("paris", "rome")[i % 2] for i in ids],
            "name": [f"{i} at {ts}" for i in ids],
            "ts": [ts] * len(ids),
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(path: str) -> mainstem.Table:
    """A table whose metadata table has met every action once."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="indexed",
        properties={"hoodie.metadata.enable": True, "hoodie.clean.commits.retained": 1},
    )  # fmt: skip
    table = mainstem.open_table(path, {"hoodie.clean.commits.retained": 1})
    table.bulk_insert(rows_of(range(10), 100))
    table.upsert(rows_of(range(20), 110))
    with table.begin() as aborted:
        aborted.write(rows_of(range(20), 999))
        aborted.abort()
    table.upsert(rows_of(range(5), 120))
    table.log_compact()
    table.compact()
    table.upsert(rows_of(range(3, 25), 130))
    table.compact()
    table.upsert(rows_of(range(2), 140))
    assert table.clean()
    return table


def listed(table: mainstem.Table) -> set[str]:
    """What the metadata table says, compared with what lies in the folders."""
    storage = LocalStorage(table.path)
    found = TableState.load(storage, load_config(storage)).metadata_table
    assert found is not None
    names = {f"{p}/{name}" for p, there in found.files().items() for name in there}
    folders = {p for p in os.listdir(table.path) if not p.startswith(".")}
    lying = {f"{p}/{n}" for p in folders for n in os.listdir(f"{table.path}/{p}") if "metadata" not in n}
    assert names == {n for n in lying if not n.endswith(".crc")}
    return names


@pytest.mark.supports("Indexes", "files: maintained by every action")
def test_java_reads_through_the_metadata_table_that_we_maintained(
    java: JavaHudi, table: mainstem.Table, tmp_path: Path
) -> None:
    ours = table.scan().to_arrow()
    assert len(listed(table)) >= 4
    assert_same(java.read(table.path, THROUGH), ours, ["id"])
    assert_same(java.read(table.path), ours, ["id"])

    blind = shutil.copytree(table.path, tmp_path / "blind")
    newest = max(table.timeline(), key=lambda i: i.requested if i.action == "deltacommit" else "").requested
    os.unlink(blind / FILES / f".files-0000-0_{newest}.log.1_0-0-0")
    assert java.read(blind, THROUGH).column("ts").to_pylist().count(140) == 0
    assert_same(java.read(blind), ours, ["id"])


def test_java_and_we_write_in_turn_with_metadata_on(java: JavaHudi, table: mainstem.Table) -> None:
    for turn in range(1, 4):
        java.write(table.path, rows_of(range(turn, turn + 8), 200 + turn), OPTIONS)
        table.upsert(rows_of(range(turn + 4, turn + 30), 210 + turn))
        ours = table.scan().to_arrow()
        assert_same(java.read(table.path, THROUGH), ours, ["id"])
        listed(table)
    java.compact(table.path, OPTIONS)
    table.upsert(rows_of(range(40), 300))
    java.clean(table.path, {**OPTIONS, "hoodie.clean.commits.retained": "1"})
    table.compact()
    ours = table.scan().to_arrow()
    assert_same(java.read(table.path, THROUGH), ours, ["id"])
    assert load_config(LocalStorage(table.path)).metadata_partitions == ("files",)
    listed(table)


def test_what_a_late_writer_left_in_the_metadata_table_is_not_shown_by_java(
    java: JavaHudi, table: mainstem.Table
) -> None:
    late = table.begin()
    late.write(rows_of(range(20), 999))
    instant = late.instant
    late.abort()
    (template,) = [n for n in os.listdir(f"{table.path}/{FILES}") if n.endswith(".log.1_0-0-0")][-1:]
    # As if it had been stopped between the look at its instant and the link.
    shutil.copy(
        f"{table.path}/{FILES}/{template}", f"{table.path}/{FILES}/.files-0000-0_{instant}.log.1_0-0-0"
    )
    for state in ("requested", "inflight"):
        Path(table.path, f".hoodie/metadata/.hoodie/timeline/{instant}.deltacommit.{state}").touch()
    assert_same(java.read(table.path, THROUGH), table.scan().to_arrow(), ["id"])
    java.write(table.path, rows_of(range(5), 400), OPTIONS)
    assert_same(java.read(table.path, THROUGH), table.scan().to_arrow(), ["id"])
    listed(table)


@pytest.mark.supports("Indexes", "column statistics: maintained by every action, used by reads")
@pytest.mark.parametrize("partitions", [[], ["city"]], ids=["one folder", "partitions"])
def test_java_leaves_files_out_by_our_column_statistics(
    java: JavaHudi, path: str, tmp_path: Path, partitions: list[str]
) -> None:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by=partitions, buckets=2, name="indexed",
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    table.upsert(rows_of(range(0, 40, 2), 100))
    table.create_index("column_stats")
    files = table.scan().to_arrow()["_hoodie_file_name"].to_pylist()
    first = min(files)
    ids = [key for key, name in zip(table.scan().to_arrow()["id"].to_pylist(), files, strict=True)
           if name != first]  # fmt: skip
    newer = rows_of(range(0, 40, 2), 200)
    newer = newer.filter(pc.is_in(newer["id"], pa.array(ids)))
    table.compact()
    table.upsert(newer)
    table.compact()
    table.upsert(newer.set_column(3, "ts", pa.array([300] * len(newer))).slice(0, 3))
    report = table.validate_metadata()
    assert report is not None and report.ok, report

    skipping = {**THROUGH, "hoodie.enable.data.skipping": "true"}
    for where, threshold in (("ts >= 200", 200), ("ts >= 300", 300)):
        ours = table.scan(filter=pc.field("ts") >= threshold).to_arrow()
        assert len(ours)
        assert_same(java.read(path, skipping, where), ours, ["id"])
    # The other bucket cannot have such rows: Java does not even look for its file.
    blind = shutil.copytree(path, tmp_path / "blind")
    for file in sorted(blind.rglob("*.parquet")):
        if file.name.startswith(first.lstrip(".")[:36]):
            file.unlink()
    assert len(java.read(blind, skipping, "ts >= 200")) == len(ids)


def test_java_keeps_up_the_column_statistics_that_we_built(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="indexed",
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    table.upsert(rows_of(range(20), 100))
    table.create_index("column_stats")
    options = nbcc_options(
        "indexed", record_key=["id"], ordering=["ts"], buckets=2,
        extra={"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "false"},
    )  # fmt: skip
    for turn in range(1, 4):
        java.write(path, rows_of(range(turn, turn + 8), 200 + turn), options)
        table.upsert(rows_of(range(turn + 4, turn + 30), 210 + turn))
        ours = table.scan(filter=pc.field("ts") > 205).to_arrow()
        skipping = {**THROUGH, "hoodie.enable.data.skipping": "true"}
        assert_same(java.read(path, skipping, "ts > 205"), ours, ["id"])
    assert set(load_config(LocalStorage(path)).metadata_partitions) == {"files", "column_stats"}
    report = table.validate_metadata()
    assert report is not None and report.ok, report
