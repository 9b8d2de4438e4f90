"""Goal: Java and mainstem save, restore and roll back one table in turns, and both read the same after it.

Method: a small table with base files, logs and a compaction is saved by one side and restored by either,
then written by both; every query kind of Java is compared with ours after every step. A restore of ours
that died half way is read and finished by Java.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import READ_OPTIMIZED, JavaHudi, as_of_options, changes_options, nbcc_options
from test_interop_services import rows_of

import mainstem
from mainstem.services import restoring

pytestmark = pytest.mark.supports(
    "Engines", "Java Hudi 1.2.0 and mainstem restore each other's savepoints and read what is left"
)

OPTIONS = nbcc_options("served", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2)


@pytest.fixture
def table(path: str) -> mainstem.Table:
    """Two partitions with two buckets each, compacted, and a log on it."""
    made = mainstem.create_table(
        path, rows_of([0], 0).schema, record_key="id", ordering="ts", partition_by="city", buckets=2,
        name="served",
    )  # fmt: skip
    made.upsert(rows_of(range(12), 100))
    made.compact()
    made.upsert(rows_of(range(6), 200))
    return made


def check_same(java: JavaHudi, table: mainstem.Table) -> None:
    """Snapshot, read optimized, time travel and changes are Java's."""
    writes = [i for i in table.timeline() if i.action in ("commit", "deltacommit") and i.completion]
    newest = max(i.requested for i in writes)
    after = min(i.completion or "" for i in writes)
    ours = [
        table.scan(),
        table.scan(mode="read_optimized"),
        table.scan(as_of=newest),
        table.changes(after=after),
    ]
    queries = [{}, READ_OPTIMIZED, as_of_options(newest), changes_options(after)]
    for found, expected in zip(java.read_many(table.path, queries), ours, strict=True):
        assert isinstance(found, pa.Table), found
        assert_same(found, expected.to_arrow(), ["id"])


def call(java: JavaHudi, text: str) -> dict:
    return java.call("sql", text=text, conf=OPTIONS)


def java_saves(java: JavaHudi, table: mainstem.Table) -> str:
    newest = max(i.requested for i in table.timeline() if i.action == "deltacommit")
    given = f"commit_time => '{newest}', user => 'j', comments => 'c'"
    call(java, f"call create_savepoint(path => '{table.path}', {given})")
    return newest


def java_restores(java: JavaHudi, table: mainstem.Table, savepoint: str) -> None:
    call(java, f"call rollback_to_savepoint(path => '{table.path}', instant_time => '{savepoint}')")


def we_save(java: JavaHudi, table: mainstem.Table) -> str:
    return table.savepoint(user="m", comment="c").instant


def we_restore(java: JavaHudi, table: mainstem.Table, savepoint: str) -> None:
    table.restore(savepoint)


Save = Callable[[JavaHudi, mainstem.Table], str]
Restore = Callable[[JavaHudi, mainstem.Table, str], None]


@pytest.mark.parametrize(
    "save, restore",
    [
        pytest.param(we_save, we_restore, id="we save and restore"),
        pytest.param(we_save, java_restores, id="we save, Java restores"),
        pytest.param(java_saves, we_restore, id="Java saves, we restore"),
    ],
)
def test_the_state_of_the_savepoint_comes_back_and_everybody_writes_on(
    java: JavaHudi, table: mainstem.Table, save: Save, restore: Restore
) -> None:
    saved = save(java, table)
    before = table.scan().to_arrow()
    table.upsert(rows_of(range(3, 20), 300))
    java.write(table.path, rows_of(range(10), 400), OPTIONS)
    table.compact()
    table.upsert(rows_of(range(5), 500))
    restore(java, table, saved)
    assert_same(table.scan().to_arrow(), before, ["id"])
    check_same(java, table)
    java.write(table.path, rows_of(range(8, 16), 600), OPTIONS)
    table.upsert(rows_of(range(10, 18), 650))
    table.compact()
    check_same(java, table)


def test_java_deletes_our_savepoint_and_we_delete_javas(java: JavaHudi, table: mainstem.Table) -> None:
    saved = we_save(java, table)
    call(java, f"call delete_savepoint(path => '{table.path}', instant_time => '{saved}')")
    assert table.savepoints() == []
    saved = java_saves(java, table)
    (found,) = table.savepoints()
    assert (found.instant, found.user, found.comment) == (saved, "j", "c")
    table.delete_savepoint(saved)
    assert call(java, f"call show_savepoints(path => '{table.path}')")["rows"] == []


def test_java_finishes_a_restore_of_ours_that_died_after_its_plan(
    java: JavaHudi, table: mainstem.Table
) -> None:
    saved = we_save(java, table)
    before = table.scan().to_arrow()
    table.upsert(rows_of(range(9), 300))
    table.compact()
    table.upsert(rows_of(range(4), 400))
    time = restoring.schedule(table.writer_context(), saved)
    java_restores(java, table, saved)
    assert [i.requested for i in table.timeline() if i.action == "restore"] == [time]
    assert_same(table.scan().to_arrow(), before, ["id"])
    check_same(java, table)


def test_java_reads_what_we_rolled_back(java: JavaHudi, table: mainstem.Table) -> None:
    before = table.scan().to_arrow()
    last = table.upsert(rows_of(range(9), 300))
    table.rollback(last.instant)
    (done,) = table.compact()
    table.rollback(done.requested)
    assert_same(table.scan().to_arrow(), before, ["id"])
    planned = table.schedule_compaction()
    table.rollback(planned)
    java.write(table.path, rows_of(range(2), 400), OPTIONS)
    java.compact(table.path, OPTIONS)
    check_same(java, table)


def test_what_java_rolls_back_is_gone_for_us(java: JavaHudi, table: mainstem.Table) -> None:
    before = table.scan().to_arrow()
    last = table.upsert(rows_of(range(9), 300))
    name = f"served_{Path(table.path).parent.name.replace('-', '_')}"
    call(java, f"create table {name} using hudi location '{table.path}'")
    call(java, f"call rollback_to_instant(table => '{name}', instant_time => '{last.instant}')")
    call(java, f"drop table {name}")
    assert_same(table.scan().to_arrow(), before, ["id"])
    table.upsert(rows_of(range(9), 400))
    check_same(java, table)
