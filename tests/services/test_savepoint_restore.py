"""Goal: a savepoint keeps an instant's files, a restore brings exactly that state back, and nobody loses
anything that was not to be removed.

Method: small tables with writers in flight, compactions and dead writers are saved, restored, interrupted
at every storage call and gone on with; every answer is compared with the one before.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.formats.avro_container import encode_container
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import schema_text

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
QUICK = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}

pytestmark = pytest.mark.supports("Services", "savepoint, restore, rollback of an instant")


def rows(keys: range | list[int], ts: int, value: str = "v") -> pa.Table:
    keys = list(keys)
    return pa.table(
        {
            "id": [f"k{k:02d}" for k in keys],
            "city": ["ab"[k % 2] for k in keys],
            "ts": [ts] * len(keys),
            "value": [f"{value}{k}" for k in keys],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return make(tmp_path / "t")


def make(path: Path) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, properties=QUICK
    )


def content(table: mainstem.Table, **options: str) -> pa.Table:
    """Everything but the file names, which a compaction rewrites."""
    found = table.scan(**options).to_arrow()
    return found.drop_columns(["_hoodie_file_name"]).sort_by("_hoodie_record_key")


def data_files(table: mainstem.Table) -> set[str]:
    found = (p for p in Path(table.path).rglob("*") if paths.file_id_of(p.name) is not None)
    return {str(p.relative_to(table.path)) for p in found if paths.HOODIE not in p.parts}


def aged(table: mainstem.Table) -> None:
    """Every heartbeat and private file looks an hour older: whoever has them died long ago."""
    old = time.time() - 3600
    for folder in (paths.HEARTBEATS, paths.PREPARED):
        for file in (Path(table.path) / folder).glob("*"):
            os.utime(file, (old, old))


def plan_clean(table: mainstem.Table, path: str) -> None:
    """A pending clean of one file, as its planner would leave it."""
    record = {
        "policy": "KEEP_LATEST_COMMITS",
        "filePathsToBeDeletedPerPartition": {
            os.path.dirname(path): [{"filePath": f"file:{table.path}/{path}", "isBootstrapBaseFile": False}]
        },
        "version": 2,
    }
    name = f"{table.timeline()[-1].completion}.clean.requested"
    data = encode_container(schema_text("HoodieCleanerPlan"), record)
    (Path(table.path) / paths.TIMELINE / name).write_bytes(data)


# -- savepoints ----------------------------------------------------------------------------------


def test_a_savepoint_is_of_the_instant_completed_last_and_names_its_files(table):
    table.upsert(rows(range(8), 1))
    table.compact()
    last = table.upsert(rows(range(4), 2))
    saved = table.savepoint(user="ann", comment="before the migration")
    assert saved.instant == last.instant
    assert (saved.user, saved.comment) == ("ann", "before the migration")
    assert table.savepoints() == [saved]
    read = [f for f in data_files(table) if f.endswith(".parquet") or last.instant in f]
    assert saved.files == len(read)  # not the log files that the compaction merged
    assert "before the migration" in saved.describe()


def test_a_second_savepoint_of_one_instant_gives_the_first(table):
    table.upsert(rows(range(4), 1))
    first = table.savepoint(comment="one")
    assert table.savepoint(comment="two") == first


def test_a_deleted_savepoint_leaves_no_file(table):
    before = set(os.listdir(Path(table.path) / paths.TIMELINE))
    instant = table.upsert(rows(range(4), 1)).instant
    table.savepoint(instant)
    table.delete_savepoint(instant)
    assert table.savepoints() == []
    left = set(os.listdir(Path(table.path) / paths.TIMELINE)) - before
    assert all(instant in name and "savepoint" not in name for name in left)
    with pytest.raises(Invalid, match="there is no savepoint"):
        table.delete_savepoint(instant)


def test_only_completed_writes_of_the_timeline_can_be_saved(table):
    with pytest.raises(Invalid, match="nothing is completed yet"):
        table.savepoint()
    with table.begin() as txn:
        txn.write(rows(range(4), 1))
        with pytest.raises(Invalid, match="only a completed instant"):
            table.savepoint(txn.instant)
        txn.commit()
    with pytest.raises(Invalid, match="no write on the active timeline"):
        table.savepoint("20200101000000000")


def test_an_older_instant_is_saved_with_the_files_below_a_later_compaction(table):
    first = table.upsert(rows(range(8), 1))
    old = data_files(table)
    table.upsert(rows(range(8), 2))
    table.compact()
    saved = table.savepoint(first.instant)
    assert saved.files == len(old)


def test_an_instant_whose_files_are_gone_cannot_be_saved(table):
    first = table.upsert(rows(range(8), 1))
    log = sorted(data_files(table))[0]
    table.upsert(rows(range(8), 2))
    table.compact()
    plan_clean(table, log)
    with pytest.raises(Invalid, match="a clean removed, or is about to"):
        table.savepoint(first.instant)
    table.savepoint()  # of the compaction: its files stay
