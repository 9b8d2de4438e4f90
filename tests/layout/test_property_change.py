"""Goal: the properties of a table in use change in one step, whoever dies, stops or lost the lock, and as
Java's rules want it.

Method: properties are changed by a process that dies at every call that changes the file system; by one
that lost the lock at every moment; on tables as a dead Java writer leaves them (backup beside a whole
file, beside a damaged one, alone). What a reader finds afterwards is the old or the new properties.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import CorruptTable, LeaseLost, Unavailable
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.property_change import change_properties
from mainstem.publish.publisher import Guarded
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from tests.services.city_table import content, make, rows
from tests.storage.steps import Dead, Mortal, storage_at

WHEN = "Sun Nov 22 04:00:00 UTC 2026"
KEY = "hoodie.table.some.property"


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return make(tmp_path / "t")


def change(table: mainstem.Table, wanted: dict[str, str | None], at: int | None = None):
    """Change the properties under the table's lock; ``at``: the call at which this process dies."""
    ctx = mainstem.open_table(table.path, {"hoodie.mainstem.fsync": "false"}).writer_context()

    def work(section: Guarded) -> TableConfig:
        if at is not None:
            storage, epoch = Mortal(ctx.seams.storage, at), section.epoch
            epoch._storage = storage
            section = Guarded(storage, section.lease, epoch, section.timeline)
        return change_properties(section, random.Random(), lambda before: wanted, WHEN)

    return ctx.publisher.guarded(work)


def now(table: mainstem.Table) -> dict[str, str]:
    return dict(load_config(storage_at(table.path)).raw)


def file(table: mainstem.Table, path: str) -> Path:
    return Path(table.path) / path


def test_keys_are_set_replaced_and_removed_and_all_others_stay(table):
    before = now(table)
    assert dict(change(table, {KEY: "a:b", "hoodie.table.other": "1"}).raw) == now(table)
    assert now(table) == {**before, KEY: "a:b", "hoodie.table.other": "1"}
    change(table, {KEY: "c", "hoodie.table.other": None, "hoodie.table.never": None})
    assert now(table) == {**before, KEY: "c"}
    assert file(table, paths.PROPERTIES).read_bytes().startswith(b"#Updated at Sun Nov 22")


def test_a_change_to_what_is_there_already_writes_nothing(table):
    change(table, {KEY: "a"})
    before = file(table, paths.PROPERTIES).stat()
    change(table, {KEY: "a"})
    assert file(table, paths.PROPERTIES).stat().st_ino == before.st_ino


@pytest.mark.disk("Hadoop keeps checksums on disks only")
def test_the_checksum_that_hadoop_keeps_beside_javas_file_goes_before_the_file_changes(table):
    crc = file(table, ".hoodie/.hoodie.properties.crc")
    crc.write_bytes(b"crc\x00")
    change(table, {KEY: "a"})
    assert not crc.exists()


def test_a_process_that_dies_at_any_call_leaves_the_old_properties_or_the_new(table, tmp_path):
    file(table, paths.PROPERTIES_BACKUP).write_bytes(file(table, paths.PROPERTIES).read_bytes())
    before = now(table)
    seen = []
    for calls in range(50):
        copy = tmp_path / f"copy{calls}"
        shutil.copytree(table.path, copy)
        opened = mainstem.open_table(copy)
        try:
            change(opened, {KEY: "a"}, calls + 1)
        except Dead:
            found = now(opened)
            assert found in (before, {**before, KEY: "a"})
            seen.append(KEY in found)
            # Whoever comes next finishes, and leaves nothing of a backup.
            change(opened, {KEY: "b"})
            assert now(opened) == {**before, KEY: "b"}
            assert not file(opened, paths.PROPERTIES_BACKUP).exists()
        else:
            break
    else:
        raise AssertionError("it never ended")
    assert True in seen and False in seen and seen == sorted(seen)


@pytest.mark.parametrize(
    "moment",
    [
        "before the ticket",
        pytest.param("before the rename", marks=pytest.mark.disk("a store renames nothing")),
    ],
)
def test_a_process_that_lost_the_lock_changes_nothing(table, moment, monkeypatch):
    ctx = table.writer_context()
    before = now(table)
    replace = Guarded.replace
    overtaken = []

    def late(self, prepared, target):
        monkeypatch.setattr(Guarded, "replace", replace)
        if moment == "before the rename":
            self.epoch.place_ticket(prepared)
        # Another process takes the lock, sweeps the ticket and changes something else.
        (lock,) = [p for p in file(table, ".hoodie").glob("**/lock") if p.is_file()]
        lock.unlink()
        change(table, {"hoodie.table.other": "theirs"})
        overtaken.append(True)
        if moment == "before the rename":
            self.epoch.put_in_place(target)
        else:
            replace(self, prepared, target)

    monkeypatch.setattr(Guarded, "replace", late)

    def work(section: Guarded) -> TableConfig:
        try:
            return change_properties(section, random.Random(), lambda c: {KEY: "mine"}, WHEN)
        except LeaseLost:
            assert now(table) == {**before, "hoodie.table.other": "theirs"}
            raise

    # The section runs again from the start, and finds what the other did.
    assert ctx.publisher.guarded(work).raw[KEY] == "mine"
    assert overtaken and now(table) == {**before, "hoodie.table.other": "theirs", KEY: "mine"}


def test_a_backup_beside_whole_properties_is_old_and_goes(table):
    backup = file(table, paths.PROPERTIES_BACKUP)
    backup.write_bytes(b"#old\nhoodie.table.name=t\n")
    before = now(table)
    change(table, {KEY: "a"})
    assert now(table) == {**before, KEY: "a"} and not backup.exists()


@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_properties_that_a_java_writer_left_half_written_are_taken_from_its_backup(table, damage):
    whole = file(table, paths.PROPERTIES).read_bytes()
    before = now(table)
    file(table, paths.PROPERTIES_BACKUP).write_bytes(whole)
    damaged = file(table, paths.PROPERTIES)
    if damage == "missing":
        damaged.unlink()
    else:
        damaged.write_bytes(b"" if damage == "empty" else whole[:20])
    change(table, {})
    assert damaged.is_file() and now(table) == before
    assert not file(table, paths.PROPERTIES_BACKUP).exists()


def test_properties_that_were_edited_by_hand_are_refused_and_stay(table):
    damaged = file(table, paths.PROPERTIES)
    text = damaged.read_bytes().replace(b"hoodie.table.checksum=", b"hoodie.table.checksum=1")
    ctx = table.writer_context()
    damaged.write_bytes(text)
    with pytest.raises(CorruptTable, match="checksum"):
        ctx.publisher.guarded(
            lambda section: change_properties(section, random.Random(), lambda c: {KEY: "a"}, WHEN)
        )
    assert damaged.read_bytes() == text


@pytest.mark.disk("it fails a rename; tests/publish fails the steps of stores")
def test_a_reply_that_got_lost_is_told_from_a_change_that_did_not_happen(table, monkeypatch):
    rename = LocalStorage.rename

    def after(self, source, target):
        rename(self, source, target)
        raise OSError(5, "lost")

    def never(self, source, target):
        raise OSError(5, "refused")

    monkeypatch.setattr(LocalStorage, "rename", after)
    assert change(table, {KEY: "a"}).raw[KEY] == "a" == now(table)[KEY]
    monkeypatch.setattr(LocalStorage, "rename", never)
    with pytest.raises(Unavailable, match="nothing changed"):
        change(table, {KEY: "b"})
    assert now(table)[KEY] == "a"


def test_writers_and_readers_go_on_while_properties_change(table):
    with table.begin() as txn:
        txn.write(rows(range(4), 1))
        change(table, {KEY: "a"})
        txn.commit()
    assert content(table).num_rows == 4
