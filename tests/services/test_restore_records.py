"""Goal: what a savepoint and a restore write is field by field what Java writes.

Method: the table that Java saved and restored is saved and restored by us, from the copy of it that was
taken before; the records of both are compared, but for times, the paths' beginning and the order of files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import mainstem
from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import decode_container, encode_container
from mainstem.storage import paths
from mainstem.timeline import restore_records as records
from mainstem.timeline.commit_metadata import schema_text
from mainstem.timeline.plans import encode_rollback_plan
from tests.golden_tables import tables

SAVED = "20261120092843274"
OPTIONS = {
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.index.type": "BUCKET",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
}

pytestmark = pytest.mark.supports("Services", "savepoint, restore, rollback of an instant")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The table as it was before Java's restore."""
    return tables.unpack("savepoint_restore.before", tmp_path)


@pytest.fixture
def restored(tmp_path: Path) -> Path:
    """The table as Java restored it."""
    return tables.unpack("savepoint_restore.restored", tmp_path)


def record(table: Path, ending: str) -> dict[str, Any]:
    (path,) = (table / paths.TIMELINE).glob(f"*{ending}")
    return decode_container(path.read_bytes(), path=str(path))[0]


def schema(table: Path, ending: str) -> Any:
    (path,) = (table / paths.TIMELINE).glob(f"*{ending}")
    return decode_container(path.read_bytes(), path=str(path))[1]["avro.schema"]


def kept(saved: dict[str, Any]) -> dict[str, set[str]]:
    return {p: set(m["savepointDataFile"]) for p, m in saved["partitionMetadata"].items()}


def test_our_savepoint_is_javas(before: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(before, tmp_path / "ours")
    table = mainstem.open_table(copy, OPTIONS)
    table.delete_savepoint(SAVED)
    table.savepoint(SAVED, user="tester", comment="golden savepoint")
    ours, javas = record(copy, ".savepoint"), record(before, ".savepoint")
    assert kept(ours) == kept(javas)
    for found in (ours, javas):
        del found["savepointedAt"], found["partitionMetadata"]
    assert ours == javas
    assert schema(copy, ".savepoint") == schema(before, ".savepoint")
    names = [name for name in os.listdir(copy / paths.TIMELINE) if "savepoint" in name]
    assert len(names) == 2 and all(name.startswith(SAVED) for name in names)


def without_times(done: dict[str, Any], base: str) -> dict[str, Any]:
    """The record with sorted file names, without its own times."""
    for (rollback,) in done["hoodieRestoreMetadata"].values():
        del rollback["startRollbackTime"], rollback["timeTakenInMillis"]
        for deleted in rollback["partitionMetadata"].values():
            names = [name.removeprefix(base) for name in deleted["successDeleteFiles"]]
            deleted["successDeleteFiles"] = sorted(names)
    del done["startRestoreTime"], done["timeTakenInMillis"]
    return done


def test_our_restore_is_javas(before: Path, restored: Path) -> None:
    table = mainstem.open_table(before, OPTIONS)
    table.restore(SAVED)
    assert record(before, ".restore.requested") == record(restored, ".restore.requested")
    for ending in (".restore.requested", ".restore"):
        assert schema(before, ending) == schema(restored, ending)
    ours, javas = record(before, ".restore"), record(restored, ".restore")
    assert without_times(ours, str(before)) == without_times(javas, "/data/hudi/tables/savepoint_restore")
    here, there = (
        {str(p.relative_to(root)) for p in root.rglob("*") if paths.file_id_of(p.name)}
        for root in (before, restored)
    )
    assert here == there
    assert table.scan().to_arrow().num_rows == mainstem.open_table(restored).scan().to_arrow().num_rows


def test_a_restore_of_javas_that_died_is_finished_by_us(before: Path, restored: Path) -> None:
    """It had planned, begun to roll back the newest instant, and taken it off the timeline."""
    here, there = before / paths.TIMELINE, restored / paths.TIMELINE
    for name in os.listdir(there):
        if ".restore." in name:
            shutil.copy(there / name, here / name)
    newest = "20261120092845585"
    plan = encode_rollback_plan(newest, "deltacommit", [], str(before))
    (here / "20261120092849589.rollback.requested").write_bytes(plan)
    os.unlink(next(here.glob(f"{newest}_*.deltacommit")))
    table = mainstem.open_table(before, OPTIONS)
    after = mainstem.open_table(restored).scan().to_arrow()
    assert table.scan().to_arrow().num_rows == after.num_rows
    assert table.rollback_failed_writes() == []
    done = table.restore()
    assert done.savepoint == SAVED and done.completion is not None
    assert not [name for name in os.listdir(here) if "rollback" in name]
    kept = {str(p.relative_to(restored)) for p in restored.rglob("*") if paths.file_id_of(p.name)}
    assert {str(p.relative_to(before)) for p in before.rglob("*") if paths.file_id_of(p.name)} == kept


def test_records_that_lead_out_of_the_table_or_name_no_files_are_refused() -> None:
    def saved(partition: str, name: str) -> bytes:
        files = {partition: (name,)}
        return records.encode_savepoint(records.SavepointRecord("", "", 0, files))

    for hostile in (saved("../x", ".f_1.log.1_0-0-0"), saved("p", "hoodie.properties"), b""):
        with pytest.raises(CorruptTable):
            records.decode_savepoint(hostile, path="t.savepoint")
    for time, action in (("../../x", "commit"), ("20260101000000000", "clean")):
        plan = {"instantsToRollback": [{"commitTime": time, "action": action}], "version": 2}
        data = encode_container(schema_text("HoodieRestorePlan"), plan)
        with pytest.raises(CorruptTable):
            records.decode_restore_plan(data, path="t.restore.requested")
