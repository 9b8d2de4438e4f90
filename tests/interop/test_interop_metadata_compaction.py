"""Goal: Java reads through metadata tables that mainstem compacted, writes on, and compacts them again.

Method: Java and mainstem write in turn with metadata on, each compacting the metadata table after what the
other wrote. After each step Java reads through it and without it, the metadata table says what is in the
data, and the newest slice rests on the base file of who compacted last.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.formats.hfile import open_hfile
from mainstem.layout.properties import load_config
from mainstem.readers.planning.table_state import TableState
from mainstem.services.metadata import metadata_compaction, metadata_compaction_at_once
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true"}
EVERY = "hoodie.metadata.compact.max.delta.commits"
OURS = {EVERY: 1, "hoodie.bucket.index.num.buckets": 2}


def options(statistics: bool, every: int) -> dict[str, str]:
    extra = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": str(statistics).lower(),
        "hoodie.metadata.index.partition.stats.enable": "false",
        EVERY: str(every),
    }
    return nbcc_options("compacted", record_key=["id"], ordering=["ts"], buckets=2, extra=extra)


def rows_of(ids: range, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": ["rome"] * len(ids), "ts": [ts] * len(ids)}, SCHEMA)


def agree(java: JavaHudi, path: str) -> None:
    table = mainstem.open_table(path)
    ours = table.scan().to_arrow()
    assert_same(java.read(path, THROUGH), ours, ["id"])
    assert_same(java.read(path), ours, ["id"])
    report = table.validate_metadata()
    assert report is not None and report.ok, report


def bases(path: str) -> dict[str, str]:
    """Partition -> who made the base file of its newest slice, and when."""
    storage = LocalStorage(path)
    metadata = TableState.load(storage, load_config(storage)).metadata_table
    assert metadata is not None
    found = {}
    for partition in metadata.partitions:
        for one in metadata.slices(partition):
            assert one.base_file is not None
            file = metadata.folder.view(paths.in_partition(partition, one.base_file))
            blooms = open_hfile(file, path=one.base_file).meta("bloomFilter")
            found[partition] = f"{'ours' if blooms is None else 'Java'} {one.base_instant}"
    return found


@pytest.mark.supports("Services", "metadata table: compaction, beside Java's")
@pytest.mark.parametrize("statistics", [False, True], ids=["files", "column statistics too"])
def test_java_and_we_compact_the_metadata_table_in_turn(java: JavaHudi, path: str, statistics: bool) -> None:
    java.write(path, rows_of(range(10), 1), options(statistics, 100), mode="overwrite")
    java.write(path, rows_of(range(5), 2), options(statistics, 100))
    mainstem.open_table(path, OURS).upsert(rows_of(range(5, 15), 3))
    first = bases(path)
    assert all(who.startswith("ours 2") for who in first.values()) and "files" in first
    assert ("column_stats" in first) == statistics
    agree(java, path)
    java.write(path, rows_of(range(3), 4), options(statistics, 100))
    agree(java, path)
    java.write(path, rows_of(range(7, 20), 5), options(statistics, 1))
    second = bases(path)
    assert all(who.startswith("Java 2") for who in second.values())
    agree(java, path)
    mainstem.open_table(path, OURS).upsert(rows_of(range(2), 6))
    assert all(who.startswith("ours 2") and who > first[name] for name, who in bases(path).items())
    agree(java, path)


def test_a_java_job_that_begins_while_our_compaction_makes_its_files_commits(
    java: JavaHudi, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under a pending plan its commits fail (ArrayIndexOutOfBoundsException), whatever becomes of the plan.
    given = options(True, 100)
    java.write(path, rows_of(range(10), 1), given, mode="overwrite")
    began = [lambda: java.write(path, rows_of(range(3), 4), given)]
    for module in (metadata_compaction, metadata_compaction_at_once):

        def slowly(*what, real=module.compacted):
            if began:
                began.pop()()
            return real(*what)

        monkeypatch.setattr(module, "compacted", slowly)
    mainstem.open_table(path, OURS).upsert(rows_of(range(5, 15), 3))
    assert not began
    java.write(path, rows_of(range(7, 20), 5), given)
    agree(java, path)
