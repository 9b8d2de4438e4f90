"""Goal: Java reads through the partition statistics that mainstem keeps, and goes on with them as writer.

Method: a partitioned table with the index, written, compacted and cleaned by mainstem. Java reads with data
skipping, the same rows as mainstem and as without it; that it leaves a partition out shows when the files of
that partition are gone. Then Java writes with its column statistics on, compacts the metadata table, and both
write in turn; ``validate_metadata`` finds nothing. A commit of ours that crosses one of Java's is in no
answer of ours too little.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.layout.properties import load_config
from mainstem.storage.local import LocalStorage

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
KINDS = {"files", "column_stats", "partition_stats"}


def rows_of(ids: range, ts: int, cities: tuple[str, ...] = ("paris", "rome")) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "city": [cities[i % len(cities)] for i in ids],
            "name": [f"{i} at {ts}" for i in ids],
            "ts": [ts] * len(ids),
        },
        schema=SCHEMA,
    )


def options(statistics: bool, **more: str) -> dict[str, str]:
    return nbcc_options(
        "stats", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2,
        extra={
            "hoodie.metadata.enable": "true",
            "hoodie.metadata.index.column.stats.enable": str(statistics).lower(),
            **more,
        },
    )  # fmt: skip


@pytest.fixture
def table(path: str) -> mainstem.Table:
    made = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="stats"
    )
    made.upsert(rows_of(range(20), 100))
    made.create_index("partition_stats")
    table = mainstem.open_table(path, {"hoodie.clean.commits.retained": 1})
    table.upsert(rows_of(range(10), 110))
    table.compact()
    table.upsert(rows_of(range(0, 10, 2), 200, ("paris",)))
    table.compact()
    assert table.clean()
    table.upsert(rows_of(range(0, 4, 2), 300, ("paris",)))
    return mainstem.open_table(path)


def check(java: JavaHudi, table: mainstem.Table) -> None:
    now = mainstem.open_table(table.path)
    report = now.validate_metadata()
    assert report is not None and report.ok, report.differences
    assert set(load_config(LocalStorage(table.path)).ready_metadata_partitions) == KINDS
    check_rows(java, now)


def check_rows(java: JavaHudi, table: mainstem.Table, *, trusted: bool = True) -> None:
    whole = table.scan().to_arrow()
    for least in (105, 205, 305):
        ours = table.scan(filter=pc.field("ts") >= least).to_arrow()
        assert len(ours) == pc.sum(pc.greater_equal(whole["ts"], least)).as_py()
        if trusted:
            assert_same(java.read(table.path, THROUGH, f"ts >= {least}"), ours, ["id"])
        assert_same(java.read(table.path, {}, f"ts >= {least}"), ours, ["id"])


@pytest.mark.supports("Indexes", "partition statistics: built, and maintained by every action")
def test_java_leaves_partitions_out_by_our_statistics(
    java: JavaHudi, table: mainstem.Table, tmp_path: Path
) -> None:
    check(java, table)
    ours = table.scan(filter=pc.field("ts") >= 150).to_arrow()
    assert set(ours["city"].to_pylist()) == {"paris"}
    blind = shutil.copytree(table.path, tmp_path / "blind")
    for file in (blind / "rome").iterdir():
        if "metadata" not in file.name:
            file.unlink()
    assert len(java.read(blind, THROUGH, "ts >= 150")) == len(ours)


@pytest.mark.parametrize("statistics", [True, False], ids=["with statistics on", "as the table says"])
def test_java_goes_on_with_them_as_writer(java: JavaHudi, table: mainstem.Table, statistics: bool) -> None:
    given = options(statistics, **{"hoodie.metadata.compact.max.delta.commits": "3"})
    for turn in range(2):
        java.write(table.path, rows_of(range(turn, turn + 8), 400 + turn), given)
        check(java, table)
        mainstem.open_table(table.path).upsert(rows_of(range(turn + 4, turn + 30), 410 + turn))
        check(java, table)
    mainstem.open_table(table.path).compact()
    check(java, table)
