"""Goal: Java Hudi 1.3 and mainstem tell the same changes of one table of version 10, whoever wrote it.

Method: histories in each logging mode; change data queries of both are compared cell by cell. What a
compaction writes is read by streaming readers of Flink alone, so its commit is given the operation of a
write: then Java's query reads our change data files as those of one. Skipped where the snapshot's bundle is
not there (`snapshot_judge.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bad_input.common import golden
from java_hudi import QUICK_JVM, JavaFailed, JavaHudi, nbcc_options
from snapshot_judge import WHY_NOT, bundle

import mainstem
from mainstem.formats.avro_container import decode_container, encode_container
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from tests.services.city_table import QUICK, SCHEMA, rows

pytestmark = [
    pytest.mark.skipif(bundle() is None, reason=WHY_NOT),
    pytest.mark.timeout(600),
]
CDC, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
CHANGES = {
    "hoodie.datasource.query.type": "incremental", "hoodie.datasource.query.incremental.format": "cdc",
    "hoodie.datasource.read.begin.instanttime": "000",
}  # fmt: skip


@pytest.fixture(scope="module")
def java_1_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.3.0-SNAPSHOT."""
    log = tmp_path_factory.mktemp("java-1.3") / "stderr.log"
    with JavaHudi(jar=bundle(), cores=1, memory="1g", log=log, jvm=QUICK_JVM) as java:
        yield java


def made(path: Path, mode: str, **properties: object) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, table_version=10,
        name="t",
        properties={**QUICK, "hoodie.mainstem.exclusive": False, CDC: True, MODE: mode, **properties},
    )  # fmt: skip


def options(**more: str) -> dict[str, str]:
    """Java's, for the same table."""
    told = {"hoodie.write.table.version": "10", **more}
    return nbcc_options("t", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2, extra=told)


def cells(found: pa.Table) -> list[tuple[Any, ...]]:
    """Changes in a fixed order; images are JSON, whose spaces and order are each engine's own."""
    images = [[None if row[side] is None else json.loads(row[side]) for side in ("before", "after")]
              for row in found.to_pylist()]  # fmt: skip
    plain = zip(found["op"].to_pylist(), found["ts_ms"].to_pylist(), images, strict=True)
    return sorted(((op, time, *map(_text, both)) for op, time, both in plain))


def _text(image: dict[str, Any] | None) -> str:
    return json.dumps(image, sort_keys=True)


def agreed(java: JavaHudi, table: mainstem.Table) -> list[tuple[Any, ...]]:
    """All changes of a table, as both tell them."""
    ours = cells(mainstem.open_table(table.path, table.opened.given).changes(mode="cdc").to_arrow())
    assert cells(java.read(table.path, CHANGES)) == ours
    return ours


@pytest.mark.supports("Engines", "Java Hudi 1.3 (snapshot) and we tell the same change data")
def test_java_1_3_and_we_tell_the_same_changes_whoever_wrote(java_1_3: JavaHudi, tmp_path: Path) -> None:
    mode = "DATA_BEFORE"
    table = made(tmp_path / "t", mode)
    table.bulk_insert(rows(range(12), 1))
    table.upsert(rows([1, 2, 9, 20], 2, "u"))
    table.delete(rows([3], 4).select(["id", "city"]))
    table.compact()
    table.upsert(rows([1, 10], 5, "on a base file"))
    theirs = options(**{CDC: "true", MODE: mode})
    java_1_3.write(table.path, rows([4, 11], 6, "java"), theirs)
    table.upsert(rows([4], 7, "on its log file"))
    told = agreed(java_1_3, table)
    assert {change[0] for change in told} == {"i", "u", "d"}
    java_1_3.compact(table.path, theirs)
    table.upsert(rows([4], 8, "on its base file"))
    again = agreed(java_1_3, table)
    assert [change for change in again if change in told] == told and len(again) == len(told) + 1


def as_a_write(table: mainstem.Table) -> list[str]:
    """Gives the commits of compactions the operation of a write; their requested times."""
    found = []
    for file in sorted((Path(table.path) / ".hoodie" / "timeline").glob("*.commit")):
        record, _ = decode_container(file.read_bytes(), path=str(file))
        made = encode_container(
            schema_text("HoodieCommitMetadata"), {**record, "operationType": "UPSERT"}, VERSION_MARK
        )
        file.write_bytes(made)
        found.append(file.name.partition("_")[0])
    return found


@pytest.mark.parametrize("mode", ["DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY"])
def test_java_1_3_reads_the_change_data_files_that_our_compactions_write(
    java_1_3: JavaHudi, tmp_path: Path, mode: str
) -> None:
    layout = "lsm_tree" if mode == "DATA_BEFORE_AFTER" else "default"
    more = {"hoodie.mainstem.keep.tombstones": 0, "hoodie.table.storage.layout": layout}
    table = made(tmp_path / "t", mode, **more)
    table.bulk_insert(rows(range(12), 1))
    two = rows([4, 5, 6, 30], 3, "u")  # of which come files of rows and of deletes
    table.upsert(two.append_column("_hoodie_is_deleted", pa.array([False, True, False, False])))
    # Java's query does not look at a file slice that the change before it in the group followed, too; and it
    # tells the late row of a deleted key as new.
    late = rows([key for key in range(12) if key != 5], 0, "late")
    table.upsert(late.append_column("_hoodie_is_deleted", pa.nulls(late.num_rows, pa.bool_())))
    table.compact()
    (time,) = as_a_write(table)
    told = [change for change in agreed(java_1_3, table) if change[1] == time]
    assert [change[0] for change in told] == ["d", "i", "u", "u"]


def test_java_1_3_tells_the_same_of_a_table_that_was_upgraded_amid_its_changes(
    java_1_3: JavaHudi, tmp_path: Path
) -> None:
    given = {"hoodie.mainstem.timeline.zone": "UTC", "hoodie.index.type": "BLOOM"}
    path = golden("cdc_mor_data_before_after", tmp_path)
    mainstem.open_table(path, given).upgrade(10)
    table = mainstem.open_table(path, given)
    before = agreed(java_1_3, table)
    newest = table.scan(columns=["id", "city", "name", "price", "ts"]).to_arrow().slice(0, 2)
    changed = [{**row, "name": "ours", "ts": row["ts"] + 1} for row in newest.to_pylist()]
    table.upsert(pa.Table.from_pylist(changed, schema=newest.schema))
    table.compact()
    assert len(agreed(java_1_3, table)) == len(before) + 2


def test_java_1_3_cannot_tell_changes_of_a_file_group_without_a_base_file(
    java_1_3: JavaHudi, tmp_path: Path
) -> None:
    """Whoever wrote it (``CDCFileGroupIterator.loadBeforeFileSliceIfNeeded``); told in docs/changes.md."""
    table = made(tmp_path / "t", "OP_KEY_ONLY")
    table.upsert(rows([0], 1))
    with pytest.raises(JavaFailed, match="No value present in Option"):
        java_1_3.read(table.path, CHANGES)


@pytest.mark.supports("Engines", "Java Hudi 1.3 (snapshot): log compactions of its metadata table are read")
def test_log_compactions_that_java_1_3_made_of_its_metadata_table_are_read_and_compacted(
    java_1_3: JavaHudi, tmp_path: Path
) -> None:
    path, by = tmp_path / "t", {"hoodie.metadata.enable": "true"}
    logs = {
        "hoodie.metadata.log.compaction.enable": "true",
        "hoodie.metadata.log.compaction.blocks.threshold": "2",
        "hoodie.metadata.compact.max.delta.commits": "50",
    }
    for number in range(3):
        java_1_3.write(path, rows([number, number + 1], number, "java"), options(**by, **logs))
    timeline = path / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    assert list(timeline.glob("*.logcompaction.requested"))
    given = {"hoodie.mainstem.timeline.zone": "UTC", "hoodie.bucket.index.num.buckets": "2"}
    table = mainstem.open_table(path, given)
    table.upsert(rows([1, 9], 9, "ours"))
    for compact in (lambda: None, table.compact):
        compact()
        report = mainstem.open_table(path, given).validate_metadata()
        assert report is not None and report.ok
        seen = mainstem.open_table(path, given).scan(columns=["id", "value"]).to_arrow().to_pylist()
        theirs = java_1_3.read(path, by).select(["id", "value"]).to_pylist()
        assert sorted(theirs, key=str) == sorted(seen, key=str) and len(seen) == 5
