"""Goal: whoever opened a table that was deleted and made anew does nothing to the new one, and is told.

Method: handles, transactions and services of the first table meet the second one, in the same process and in
others; what the second one holds is compared file by file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.table import Table
from mainstem.errors import CorruptTable, Invalid, MainstemError, TableExists, TableReplaced
from mainstem.services.runner import ServiceWarning
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.transaction import Transaction
from tests.storage.steps import Proxy, storage_at

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
OPTIONS = {"hoodie.mainstem.exclusive": "true", "hoodie.compact.inline.max.delta.commits": "1"}
WITH_METADATA = {**OPTIONS, "hoodie.metadata.enable": "true"}


def create(path: Path, properties: dict[str, str] = WITH_METADATA, **more: object) -> Table:
    return mainstem.create_table(
        path, SCHEMA, **{"record_key": "id", "buckets": 2, "name": "t", "properties": properties, **more}
    )


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": list(keys), "ts": [1] * len(keys)}, schema=SCHEMA)


def keys(table: Table) -> list[str]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def files(path: Path) -> set[str]:
    """Files of a table, but for the lock's."""
    found = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    return {name for name in found if "/locks/" not in name and not name.endswith("lock-identity")}


def by_us(path: Path) -> None:
    create(path).upsert(rows("new"))


def by_another_engine(path: Path) -> None:
    by_us(path)
    shutil.rmtree(path / paths.OWN)


def replay(table: Table) -> None:
    with table.begin("upsert", guard=StreamGuard("s", 0)) as txn:
        txn.write(rows("a"))
        txn.commit()


ACTIONS: dict[str, Callable[[Table], object]] = {
    "a write": lambda table: table.upsert(rows("a")),
    "the replay of a batch": replay,
    "a query": keys,
    "a count": lambda table: table.scan(columns=[]).count_rows(),
    "a query in batches": lambda table: list(table.scan().to_batches()),
    "a query of changes": lambda table: table.changes(after="000").to_arrow(),
    "a compaction": lambda table: table.compact(),
    "a savepoint": lambda table: table.savepoint(),
    "the building of an index": lambda table: table.create_index("record_index"),
}


@pytest.mark.parametrize("replace", [by_us, by_another_engine])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_open_table_that_was_deleted_and_made_anew_is_refused(
    tmp_path: Path, action: str, replace: Callable[[Path], None]
) -> None:
    path = tmp_path / "t"
    create(path).upsert(rows("x"))
    old = mainstem.open_table(path, properties={"hoodie.mainstem.fsync": "false"})
    replay(old)
    shutil.rmtree(path)
    replace(path)
    before = files(path)
    with pytest.raises(TableReplaced, match="open the table again"):
        ACTIONS[action](old)
    assert {name for name in files(path) if not name.startswith(paths.FENCE)} == {
        name for name in before if not name.startswith(paths.FENCE)
    }
    assert keys(mainstem.open_table(path)) == ["new"]


@pytest.mark.parametrize("replace", [by_us, by_another_engine])
def test_a_transaction_of_the_table_that_was_is_neither_committed_nor_shown(
    tmp_path: Path, replace: Callable[[Path], None]
) -> None:
    path = tmp_path / "t"
    old = create(path)
    old.upsert(rows("x"))
    txn = old.begin("upsert")
    txn.write(rows("a"))
    shutil.rmtree(path)
    replace(path)
    before = files(path)
    with pytest.raises(TableReplaced):
        txn.commit()
    # With a gate it may go by what was read just before, when it finds nothing that it could undo.
    gate = has_swaps(storage_at(path))
    with suppress(TableReplaced) if gate else pytest.raises(MainstemError):
        txn.abort()
    assert {name for name in files(path) if not name.startswith(paths.FENCE)} == {
        name for name in before if not name.startswith(paths.FENCE)
    }
    late = mainstem.open_table(path)
    assert keys(late) == ["new"]
    late.upsert(rows("later"))
    late.rollback_failed_writes()
    late.compact()
    assert keys(mainstem.open_table(path)) == ["later", "new"]
    assert late.validate_metadata().ok


def test_services_of_the_table_that_was_neither_clean_nor_archive_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create(path).upsert(rows("x"))
    eager = {
        "hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3", "hoodie.mainstem.fsync": "false",
    }  # fmt: skip
    old = mainstem.open_table(path, properties=eager)
    old.rollback_failed_writes()
    shutil.rmtree(path)
    new = create(path)
    for number in range(5):
        new.upsert(rows(str(number)))
        new.compact()
    before = files(path)
    for service in (old.clean, old.archive, old.rollback_failed_writes):
        with pytest.raises(TableReplaced):
            service()
    with pytest.warns(ServiceWarning, match="open the table again"):
        old.run_services()
    assert {name for name in files(path) if "/fence/" not in name} == {
        name for name in before if "/fence/" not in name
    }
    again = mainstem.open_table(path, properties=eager)
    assert again.clean() and again.archive(), "there was something to do"


def test_a_search_in_the_table_that_was_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("id", pa.string()), ("v", pa.list_(pa.float32(), 2))])

    def made(key: str) -> Table:
        table = mainstem.create_table(path, schema, record_key="id", buckets=1, vectors={"v": "VECTOR(2)"})
        table.upsert(pa.table({"id": [key], "v": [[0.0, 1.0]]}, schema=schema))
        return table

    old = made("old")
    assert old.search("v", [0.0, 1.0], 1).num_rows == 1
    shutil.rmtree(path)
    made("new")
    with pytest.raises(TableReplaced):
        old.search("v", [0.0, 1.0], 1)


@pytest.mark.disk("a store keeps the note in its gate")
def test_a_table_of_another_engine_is_known_again_by_the_note_of_its_first_writer(tmp_path: Path) -> None:
    path = tmp_path / "t"
    by_another_engine(path)
    first, second = mainstem.open_table(path), mainstem.open_table(path)
    assert not (path / paths.OWN).exists(), "opening alone changes nothing"
    first.upsert(rows("a"))
    second.upsert(rows("b"))
    notes = [name for name in os.listdir(path / paths.FENCE) if paths.parse_table_note(name)]
    assert len(notes) == 1
    shutil.rmtree(path)
    by_another_engine(path)
    for table in (first, second):
        with pytest.raises(TableReplaced):
            table.upsert(rows("c"))
    assert keys(mainstem.open_table(path)) == ["new"]


def test_a_table_that_another_one_replaced_before_its_first_write_is_refused_if_it_differs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    by_another_engine(path)
    old = mainstem.open_table(path)
    shutil.rmtree(path)
    create(path, buckets=4)
    shutil.rmtree(path / paths.OWN)
    with pytest.raises(TableReplaced, match=r"num\.buckets"):
        old.upsert(rows("a"))


def test_a_deleted_table_stays_deleted_beside_its_open_handles(tmp_path: Path) -> None:
    path = tmp_path / "t"
    old = create(path)
    old.upsert(rows("x"))
    txn = old.begin("upsert")
    txn.write(rows("a"))
    shutil.rmtree(path)
    for action in ACTIONS.values():
        with pytest.raises(MainstemError):
            action(old)
    with pytest.raises(MainstemError):
        txn.commit()
    assert not path.exists()
    assert create(path).upsert(rows("new")).status == "committed"
    assert keys(mainstem.open_table(path)) == ["new"]


@pytest.mark.disk("a store has no folders: a timeline without files has no instants")
def test_a_table_whose_timeline_was_removed_takes_no_write_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = create(path, OPTIONS)
    table.upsert(rows("a"))
    shutil.rmtree(path / paths.TIMELINE)
    with pytest.raises(CorruptTable, match="the timeline's folder is gone"):
        table.upsert(rows("b"))


# -- creation -------------------------------------------------------------------------------------------


class Beside(Proxy):
    """Does something once, right before a call whose path ends so."""

    def __init__(self, base: str, method: str, ending: str, work: Callable[[], object]) -> None:
        super().__init__(storage_at(base))
        original = getattr(self, method)

        def first(*given, **named):
            if str(given[-1]).endswith(ending):
                setattr(self, method, original)
                work()
            return original(*given, **named)

        setattr(self, method, first)


@pytest.mark.disk("it stands still at steps of a disk; tests/sim does at a store's")
@pytest.mark.parametrize("other", [WITH_METADATA, OPTIONS], ids=["with metadata", "without"])
@pytest.mark.parametrize(
    ("method", "ending"),
    [
        ("put_new", "-1"),
        ("make_folder", "timeline"),
        ("move_folder", "metadata"),
        ("link", "hoodie.properties"),
    ],
    ids=["before anything", "at the folders", "before the metadata table", "before the properties"],
)
def test_a_creator_that_stood_still_finds_the_table_and_leaves_what_was_written(
    tmp_path: Path, monkeypatch, method: str, ending: str, other: dict[str, str]
) -> None:
    path = tmp_path / "t"
    storage = Beside(str(path), method, ending, lambda: create(path, other).upsert(rows(*"abcdefgh")))
    if ending == "-1":
        create(path, other).upsert(rows(*"abcdefgh"))
    monkeypatch.setattr("mainstem.api.real_seams.storage_of", lambda location, sync: storage)
    with pytest.raises(TableExists):
        create(path)
    monkeypatch.undo()
    table = mainstem.open_table(path)
    assert keys(table) == list("abcdefgh")
    table.create_index("record_index")
    table.upsert(rows("i"))
    assert table.validate_metadata().ok and keys(mainstem.open_table(path)) == list("abcdefghi")


def test_a_metadata_table_of_another_creation_is_neither_taken_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create(path, name="other")
    (path / paths.PROPERTIES).unlink()
    before = files(path)
    with pytest.raises(Invalid, match=r"holds what another creation left.*remove that folder"):
        create(path)
    assert files(path) == before
    shutil.rmtree(path / paths.METADATA)
    create(path).upsert(rows("a"))
    assert keys(mainstem.open_table(path)) == ["a"]


def test_no_table_is_made_over_the_instants_of_one_whose_properties_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create(path).upsert(rows("a"))
    (path / paths.PROPERTIES).unlink()
    with pytest.raises(Invalid, match=r"there is no \.hoodie/hoodie\.properties"):
        create(path)


def test_a_file_that_a_writer_of_a_deleted_table_brings_back_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, put = tmp_path / "t", Transaction._put_inflight

    def after_the_table(self: Transaction) -> None:
        if path.exists():
            shutil.rmtree(path)
        put(self)

    old = create(path)
    monkeypatch.setattr(Transaction, "_put_inflight", after_the_table)
    with pytest.raises(MainstemError):
        old.upsert(rows("x"))
    monkeypatch.undo()
    table = create(path)
    table.upsert(rows("a"))
    table.rollback_failed_writes()
    assert keys(mainstem.open_table(path)) == ["a"] and all(i.is_completed for i in table.timeline())


def test_no_table_is_made_while_another_engine_replaces_the_properties(tmp_path: Path) -> None:
    path = tmp_path / "t"
    create(path)
    (path / paths.PROPERTIES).rename(path / paths.PROPERTIES_BACKUP)
    with pytest.raises(TableExists):
        create(path)


def test_properties_that_another_engine_writes_over_ours_end_the_trust_in_our_bucket_count(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    create(path).upsert(rows(*"abcdefgh"))
    text = (path / paths.PROPERTIES).read_text()
    (path / paths.PROPERTIES).write_text(text.replace("num.buckets=2", "num.buckets=1"))
    with pytest.raises(Invalid, match=r"does not fit hoodie\.bucket"):
        mainstem.open_table(path).upsert(rows("i"))
