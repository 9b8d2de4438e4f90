"""Goal: what a table's metadata table says about its files is right at every moment, whoever writes.

Method: public tables with ``hoodie.metadata.enable``; ``files`` is compared with the files of visible
commits. Deaths between the two publications of one commit are made by a publisher that stops there;
indexes that come and go under a writer, by an edit of the table's list just before it takes the lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, LeaseLost, Unavailable, Unsupported
from mainstem.layout.properties import load_config
from mainstem.metadata.commits.delta_commit import MetadataCommit
from mainstem.publish.publisher import Publisher
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.links import has_links
from mainstem.storage.renames import has_renames
from mainstem.writers import append, publish_with_metadata
from mainstem.writers.write_task import write_task
from tests.multiprocess import table_files
from tests.storage.steps import storage_at

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64())])
METADATA = {"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}


def rows(keys: str, v: int) -> pa.Table:
    return pa.table(
        {"id": list(keys), "city": ["ab"[int(k) % 2] for k in keys], "v": [v] * len(keys)}, schema=SCHEMA
    )


def made(path: Path, **more: object) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="city", buckets=2, properties={**METADATA, **more}
    )


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return made(tmp_path / "t")


def listed(table: mainstem.Table) -> set[str]:
    """Files of ``files``; it must be those of the visible commits that no clean removed."""
    storage = storage_at(table.path)
    found = TableState.load(storage, load_config(storage)).metadata_table
    assert found is not None
    names = {f"{p}/{name}" if p else name for p, here in found.files().items() for name in here}
    path = Path(table.path)
    committed = {file for commit in table_files.commits(path) for file in commit.files}
    assert names == {file for file in committed if (path / file).exists()}
    return names


def set_properties(table: mainstem.Table, **changes: str) -> None:
    file = Path(table.path, ".hoodie/hoodie.properties")
    kept = [line for line in file.read_text().splitlines() if line.split("=")[0] not in changes]
    file.write_text("\n".join([*kept, *(f"{k}={v}" for k, v in changes.items())]) + "\n")


@contextmanager
def list_changes_before_the_lock(table: mainstem.Table, partitions: str) -> Iterator[None]:
    """The table's list of indexes becomes another one when a writer has made its rows for the old one."""
    prepare = publish_with_metadata._prepare

    def then(*given: object, **named: object) -> object:
        made_for = prepare(*given, **named)
        set_properties(table, **{"hoodie.table.metadata.partitions": partitions})
        return made_for

    with patch.object(publish_with_metadata, "_prepare", then):
        yield


def dies_between_the_publications(table: mainstem.Table, keys: str) -> str:
    """A commit that ends when the metadata table's file is published and the data table's is not."""
    link = Publisher._link

    def dying(self: Publisher, how: object, linked: object, target: str, *given: object) -> None:
        if not target.startswith(".hoodie/metadata/") and target.endswith(".deltacommit"):
            raise KeyboardInterrupt
        link(self, how, linked, target, *given)

    txn = table.begin()
    txn.write(rows(keys, 9))
    with patch.object(Publisher, "_link", dying), pytest.raises(KeyboardInterrupt):
        txn.commit()
    os.unlink(f"{table.path}/.hoodie/.heartbeat/{txn.instant}")
    return txn.instant


@pytest.mark.supports("Indexes", "files: maintained by every action")
def test_every_action_keeps_files_equal_to_the_listing(table: mainstem.Table) -> None:
    table = mainstem.open_table(table.path, {"hoodie.clean.commits.retained": 1})
    assert listed(table) == set()
    table.bulk_insert(rows("0123", 1))
    assert listed(table)
    table.upsert(rows("0123456", 2))
    table.delete(rows("0", 2).select(["id", "city"]))
    assert len(listed(table)) == 5
    with table.begin() as txn:
        txn.write(rows("0123", 3))
        txn.abort()
    assert len(listed(table)) == 5
    assert table.log_compact()
    listed(table)
    table.compact()
    table.upsert(rows("12", 4))
    table.compact()
    before = listed(table)
    table.upsert(rows("1", 5))
    assert table.clean()
    after = listed(table)
    assert before - after
    assert table.scan().to_arrow().num_rows == 6


def test_a_table_without_partitions_has_its_files_under_a_dot(tmp_path: Path) -> None:
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=2, properties=METADATA)
    table.upsert(rows("0123", 1))
    assert len(listed(table)) == 2
    assert table.scan().to_arrow().num_rows == 4


def test_the_metadata_table_is_completed_first_with_the_same_requested_time(table: mainstem.Table) -> None:
    table.upsert(rows("0123", 1))
    table.compact()
    path = Path(table.path)
    done, pending = table_files.metadata_timeline(path)
    data = {t: c for t, c, _ in table_files.timeline(path) if c}
    assert data.keys() == {t for t in done if not t.startswith("0000")}
    assert all(done[t] < c for t, c in data.items())
    assert not pending


@pytest.mark.disk("on a store whoever comes next completes it")
def test_a_commit_that_died_between_the_two_is_seen_by_nobody_and_taken_back_from_both(
    table: mainstem.Table,
) -> None:
    table.upsert(rows("0123", 1))
    before = listed(table)
    dead = dies_between_the_publications(table, "4567")
    path = Path(table.path)
    assert dead in table_files.metadata_timeline(path)[0]
    assert listed(table) == before
    (rolled,) = table.rollback_failed_writes()
    assert rolled.instant == dead
    done, pending = table_files.metadata_timeline(path)
    assert dead not in done and rolled.rollback in done and not pending
    assert listed(table) == before
    assert not list((path / ".hoodie/metadata").rglob(f"*{dead}*"))


def test_a_writer_finds_the_index_that_was_added_while_it_wrote(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    set_properties(table, **{"hoodie.table.metadata.partitions": ""})
    txn = table.begin()
    txn.write(rows("0123", 1))
    with list_changes_before_the_lock(table, "files"):
        txn.commit()
    assert len(listed(table)) == 2


def test_a_writer_leaves_an_index_that_was_dropped_while_it_wrote(table: mainstem.Table) -> None:
    txn = table.begin()
    txn.write(rows("0123", 1))
    with list_changes_before_the_lock(table, ""):
        txn.commit()
    assert txn.instant not in table_files.metadata_timeline(Path(table.path))[0]


@pytest.mark.parametrize(
    ("moment", "before"),
    [
        ((publish_with_metadata, "_prepare"), True),
        ((publish_with_metadata, "_prepare"), False),
        ((MetadataCommit, "_ready"), True),
    ],
    ids=["before its rows are made", "before the lock", "under the lock"],
)
def test_a_metadata_table_that_java_deletes_while_a_writer_is_at_work_is_survived(table, moment, before):
    """As a Java writer with ``hoodie.metadata.enable=false`` does: the lists first, then the folder."""
    table.upsert(rows("0123", 1))
    table.create_index("column_stats", ["v"])
    real, done = getattr(*moment), []

    def deleted() -> None:
        if not done:
            done.append(set_properties(table, **{"hoodie.table.metadata.partitions": ""}))
            shutil.rmtree(Path(table.path, ".hoodie/metadata"))

    def step(*given: object, **named: object) -> object:
        if before:
            deleted()
        made = real(*given, **named)
        deleted()
        return made

    txn = mainstem.open_table(table.path, METADATA).begin()
    txn.write(rows("2345", 2))
    with patch.object(*moment, step):
        # Java asks for no lock. On a store the folder comes back with the file that is put there; whether it
        # does so with one that is renamed depends on the store.
        storage = table.opened.seams.storage
        refused = pytest.raises(Unavailable, match="nothing was published")
        either = suppress(Unavailable) if has_renames(storage) else nullcontext()
        with refused if moment[0] is MetadataCommit and has_links(storage) else either:
            txn.commit()
    mainstem.open_table(table.path, METADATA).upsert(rows("2345", 3))
    again = mainstem.open_table(table.path, METADATA)
    assert sorted(again.scan().to_arrow()["v"].to_pylist()) == [1, 1, 3, 3, 3, 3]
    assert {index.state for index in again.indexes()} == {"left over"}
    again.create_index("column_stats", ["v"])
    assert again.validate_metadata().ok
    found = mainstem.open_table(table.path).scan(filter=pc.field("v") > 2)
    assert found.to_arrow().num_rows == 4


def test_a_metadata_table_that_is_gone_stops_writers_and_is_dropped_by_name(table: mainstem.Table) -> None:
    table.upsert(rows("0123", 1))
    shutil.rmtree(Path(table.path, ".hoodie/metadata"))
    with pytest.raises(CorruptTable, match="there is none; drop its indexes"):
        table.upsert(rows("4567", 2))
    with pytest.warns(UserWarning, match="folders are listed instead"):
        assert mainstem.open_table(table.path).scan().to_arrow().num_rows == 4
    mainstem.open_table(table.path).drop_index("files")
    mainstem.open_table(table.path, METADATA).upsert(rows("4567", 2))
    mainstem.open_table(table.path).create_index("files")
    assert mainstem.open_table(table.path).validate_metadata().ok


def test_an_index_that_is_not_maintained_stops_a_writer_before_anything_is_visible(
    table: mainstem.Table,
) -> None:
    txn = table.begin()
    txn.write(rows("0123", 1))
    with (
        list_changes_before_the_lock(table, "files,no_such_index"),
        pytest.raises(Unsupported, match="no_such_index"),
    ):
        txn.commit()
    txn.abort()
    set_properties(table, **{"hoodie.table.metadata.partitions": "files"})
    assert listed(table) == set()
    assert table.scan().to_arrow().num_rows == 0


def test_what_a_late_writer_left_pending_there_is_removed(table: mainstem.Table) -> None:
    table.upsert(rows("0123", 1))
    with table.begin() as late:
        late.write(rows("4567", 1))
        late.abort()
    path = Path(table.path)
    for state in ("requested", "inflight"):
        (path / table_files.METADATA_TIMELINE / f"{late.instant}.deltacommit.{state}").touch()
    log = next((path / ".hoodie/metadata/files").glob("*.log.1_0-0-0"))
    orphan = log.with_name(f".files-0000-0_{late.instant}.log.1_0-0-0")
    orphan.write_bytes(log.read_bytes())
    table.rollback_failed_writes()
    assert orphan.exists(), "its writer may be alive"
    table_files.age(path)
    table.rollback_failed_writes()
    assert not orphan.exists()
    assert not table_files.metadata_timeline(path)[1]
    listed(table)


@pytest.mark.supports("Indexes", "column statistics: maintained by every action, used by reads")
def test_every_action_keeps_column_statistics_right(table: mainstem.Table) -> None:
    table = mainstem.open_table(table.path, {"hoodie.clean.commits.retained": 1})
    table.bulk_insert(rows("0123", 1))
    table.create_index("column_stats")
    storage = storage_at(table.path)

    def check() -> set[str]:
        report = table.validate_metadata()
        assert report is not None and report.ok, report
        found = TableState.load(storage, load_config(storage)).metadata_table
        assert found is not None
        return set(found.read("column_stats")["file"].to_pylist())

    assert len(check()) == 2
    table.upsert(rows("01234567", 2))
    assert len(check()) == 4
    table.delete(rows("0", 2).select(["id", "city"]))
    assert len(check()) == 5, "a log file that only deletes is said to hold nothing"
    with table.begin() as txn:
        txn.write(rows("0123", 3))
        txn.abort()
    assert len(check()) == 5
    assert table.log_compact()
    check()
    table.compact()
    table.upsert(rows("12", 4))
    table.compact()
    before = check()
    table.upsert(rows("1", 5))
    assert table.clean()
    assert before - check()
    assert table.scan(filter=pc.field("v") == 5).to_arrow().num_rows == 1


@pytest.mark.parametrize("column", ["v", "nested.n"])
@pytest.mark.parametrize("held", [True, False], ids=["rows held", "more rows than are held"])
def test_statistics_of_rows_that_have_to_be_decoded_are_right(tmp_path, monkeypatch, column, held) -> None:
    nested = pa.struct([("n", pa.int64())])
    schema = SCHEMA.append(pa.field("nested", nested))
    if not held:
        monkeypatch.setattr(append, "_WRITTEN_BYTES_MAX", 0)
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", partition_by="city", buckets=2, properties=METADATA
    )
    table.create_index("column_stats", [column])
    for value in (1, 7):
        new = rows("012345", value)
        table.upsert(new.append_column("nested", pa.array([{"n": value}] * 6, nested)))
    report = table.validate_metadata()
    assert report is not None and report.ok, report
    asked = pc.field("v") if column == "v" else pc.field("nested", "n")
    assert table.scan(filter=asked == 7).to_arrow().num_rows == 6


def test_what_tasks_on_other_machines_wrote_is_in_the_indexes_and_what_lost_attempts_left_is_not(
    table: mainstem.Table,
) -> None:
    table.create_index("column_stats")
    txn = table.begin()
    spec = txn.task_spec()
    for number, keys in enumerate(("0246", "1357")):
        results = [
            write_task(spec, rows(keys, 7).to_batches(), task_partition=number, stage=1, attempt=attempt)
            for attempt in (0, 1)
        ]
        txn.add_task_result(results[0])
    txn.commit()
    assert len(listed(table)) == 2
    report = table.validate_metadata()
    assert report is not None and report.ok, report
    assert table.scan(filter=pc.field("v") == 7).to_arrow().num_rows == 8


def test_names_that_only_begin_like_file_groups_hide_none_of_them(tmp_path: Path) -> None:
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=2, properties=METADATA)
    table.upsert(rows("0123", 1))
    table.create_index("record_index")
    folder = Path(table.path, ".hoodie/metadata/record_index")
    groups = {file.name.lstrip(".").partition("_")[0] for file in folder.glob("*record-index*")}
    assert len(groups) > 1
    for group in groups:
        for number in range(20):
            (folder / f".{group}_{number}.log").touch()
            (folder / f"{group}_{number}.tmp").touch()
    table.upsert(rows("456789", 2))
    report = table.validate_metadata()
    assert report.ok, report.differences


def test_a_metadata_table_that_goes_between_two_attempts_keeps_no_beginning_of_the_commit(table, monkeypatch):
    table.upsert(rows("01", 1))
    other, overtaken = mainstem.open_table(table.path), []
    whole, acquire = Publisher._go_ahead, type(table.opened.seams.lock).acquire

    def once(self, *given):
        if self is table.writer_context().publisher and not overtaken:
            overtaken.append("now")
            raise LeaseLost("overtaken")
        return whole(self, *given)

    def late(self):
        if self is table.opened.seams.lock and overtaken == ["now"]:
            overtaken.append("dropped")
            other.drop_index("files")
        return acquire(self)

    monkeypatch.setattr(Publisher, "_go_ahead", once)
    monkeypatch.setattr(type(table.opened.seams.lock), "acquire", late)
    outcome = table.upsert(rows("23", 1))
    assert overtaken == ["now", "dropped"] and outcome.status == "committed"
    begun = Path(table.path, ".hoodie/metadata").rglob(f"*{outcome.instant}*")
    assert not list(begun)
    assert table.scan().to_arrow().num_rows == 4
