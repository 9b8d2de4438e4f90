"""Goal: base files beside files of others have no names before their instant completes, and none after it
died, so that Java's readers, which believe names, hide nothing that others write meanwhile
(``publish.showing``).

Method: tables through the public API, on a disk. An overwrite, a bulk insert or a resize dies, fails or is
passed by at one call of storage; another writer goes on.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from unittest.mock import patch

import pyarrow as pa
import pytest
from small_table import content, rows

import mainstem
from mainstem.errors import LeaseLost, RolledBack
from mainstem.publish import showing
from mainstem.publish.showing import Showing, take_back
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.writers import overwriting
from mainstem.writers.transaction import Transaction

pytestmark = pytest.mark.disk("an object store gives files their names when they are put")


EXCLUSIVE = "hoodie.mainstem.exclusive"
OTHERS = {EXCLUSIVE: "false"}  # may write


class Dead(BaseException):
    """As good as a killed process: nobody tidies up."""


@pytest.fixture
def table(make_table):
    """Partitions a (k0 to k9) and b (k10 to k19), in base files and log files."""
    made = make_table(buckets=2, **OTHERS)
    made.upsert(pa.concat_tables([rows(range(10), ts=1), rows(range(10, 20), ts=1, city="b")]))
    made.compact()
    made.upsert(rows(range(5), ts=2))
    return made


def again(table):
    """The same table in another writer."""
    return mainstem.open_table(table.path, table.properties)


@contextmanager
def dying(call, of, nth=1):
    """Whoever makes the nth such call of storage, on a path with ``of`` in it, dies before it."""
    real, left = getattr(LocalStorage, call), [nth]

    def dies(storage, *given, **named):
        left[0] -= any(of in str(one) for one in given)
        if not left[0]:
            raise Dead
        return real(storage, *given, **named)

    with (
        patch.object(Transaction, "abort", lambda txn: None),
        patch.object(LocalStorage, call, dies),
        pytest.raises(Dead),
    ):
        yield


def dead_of(table):
    (dead,) = [i.requested for i in table.timeline() if not i.is_completed]
    return dead


def expire(table, dead):
    """Its heartbeat stopped long ago."""
    table.writer_context().heartbeats.leave(dead)
    os.utime(os.path.join(table.path, paths.heartbeat(dead)), (time.time() - 10_000,) * 2)
    for rolled in again(table).rollback_failed_writes():
        assert rolled.instant == dead


def files_of(table, instant):
    """What the table's folders have of an instant: base files, and what only mainstem knows of."""
    found = {"named": 0, "ours": 0}
    for folder, _, names in os.walk(table.path):
        inside = os.path.relpath(folder, table.path)
        for name in names:
            if inside.startswith(paths.OWN):
                found["ours"] += name.endswith(f"_{instant}.parquet") or name == f"showing-{instant}"
            elif not inside.startswith(paths.HOODIE):
                found["named"] += name.endswith(f"_{instant}.parquet")
    return found


ACTIONS = {
    "overwrite": lambda table: table.insert_overwrite(rows(range(3, 6), ts=0, value="new")),
    "bulk insert": lambda table: table.bulk_insert(rows(range(20, 30), ts=0, value="new", city="c")),
    "resize": lambda table: table.resize(3),
}
UNSHOWN = f"/{os.path.basename(paths.UNSHOWN)}/"


@pytest.mark.parametrize("action", ACTIONS)
def test_what_dies_before_it_may_complete_has_given_no_file_its_name(table, action):
    before = content(table)
    with dying("upload", paths.PREPARED):
        ACTIONS[action](again(table))
    dead = dead_of(table)
    found = files_of(table, dead)
    assert found["named"] == 0 and found["ours"] >= 2
    expire(table, dead)
    assert files_of(table, dead) == {"named": 0, "ours": 0}
    assert content(table) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_the_next_section_takes_away_what_was_shown_by_who_died(table, action):
    with dying("link", UNSHOWN, nth=2):
        ACTIONS[action](again(table))
    dead = dead_of(table)
    assert files_of(table, dead)["named"] == (action != "resize")  # who ends enters the fence once more
    other = again(table)
    other.upsert(rows([7], ts=9, value="late"))
    assert files_of(table, dead) == {"named": 0, "ours": 0}
    assert content(other)["k7"] == "late7" and len(content(other)) == 20
    expire(table, dead)
    assert len(content(table)) == 20


@pytest.mark.parametrize("action", ACTIONS)
def test_what_was_completed_stays_whoever_removes_its_note(table, action):
    known = {i.requested for i in table.timeline()}
    with dying("delete", "/showing-"):
        ACTIONS[action](again(table))
    (done,) = [i.requested for i in table.timeline() if i.requested not in known]
    after, found = content(table), files_of(table, done)
    assert found["named"] >= 1 and found["ours"] > found["named"]
    table.upsert(rows([7], ts=9, value="late"))
    assert files_of(table, done)["named"] == found["named"]
    assert content(table) == after | {"k7": "late7"}
    assert not os.path.exists(os.path.join(table.path, paths.showing_note(done)))


def test_an_overwrite_that_loses_the_lock_while_it_shows_its_files_is_made_again(table, monkeypatch):
    show, seen = Showing.show, []

    def loses(self, epoch):
        show(self, epoch)
        seen.append(self)
        if len(seen) == 1:
            raise LeaseLost("somebody removed the lock")

    monkeypatch.setattr(Showing, "show", loses)
    txn = table.begin("insert_overwrite")
    with txn:
        first = txn.instant
        txn.write(rows(range(3, 6), ts=0, value="new"))
        outcome = txn.commit()
    assert outcome.instant > first and outcome.rows == 3
    assert files_of(table, first) == {"named": 0, "ours": 0}
    assert {key: value for key, value in content(table).items() if int(key[1:]) < 10} == {
        f"k{k}": f"new{k}" for k in range(3, 6)
    }
    del seen[:]
    with pytest.raises(RolledBack, match="the table lock was lost"):
        table.bulk_insert(rows(range(20, 30), ts=0, city="c"))
    assert len(content(table)) == 13


def test_an_overwrite_whose_files_another_writer_took_away_is_told_to_write_again(table, monkeypatch):
    name_files = Showing.name_files

    def overtaken(self):
        take_back(again(table).writer_context().seams.storage, self._instant)
        name_files(self)

    monkeypatch.setattr(Showing, "name_files", overtaken)
    with pytest.raises(RolledBack, match="write the data again in a new transaction"):
        table.insert_overwrite(rows(range(3, 6), ts=0, value="new"))
    assert len(content(table)) == 20


def test_a_note_leads_to_base_files_of_its_instant_only(table):
    storage = table.writer_context().seams.storage
    instant = "20200101000000001"
    theirs = next(name for name in storage.names("a") if name.endswith(".parquet"))
    kept = [f"a/{theirs}", paths.PROPERTIES, f"a/.x_{instant}.log.1_0-0-0", f"b/x_1-1-1_{instant}.txt"]
    gone = f"a/x_1-1-1_{instant}.parquet"
    for path in (kept[2], kept[3], gone):
        storage.put_new(path, b"", durable=False)
    lines = [*kept, f"a/../a/y_1-1-1_{instant}.parquet", f"/tmp/x_1-1-1_{instant}.parquet", "\x00", gone]
    storage.put_new(f"a/y_1-1-1_{instant}.parquet", b"", durable=False)
    storage.put_new(paths.showing_note(instant), b"\xff\n" + "\n".join(lines).encode(), durable=False)
    take_back(storage, instant)
    assert storage.stat(gone) is None and storage.stat(paths.showing_note(instant)) is None
    assert all(storage.stat(path) for path in (*kept, f"a/y_1-1-1_{instant}.parquet"))


@pytest.mark.parametrize(
    "options", [{EXCLUSIVE: "true"}, {**OTHERS, "hoodie.metadata.enable": "true"}], ids=["ours", "files"]
)
def test_where_no_name_misleads_anybody_files_are_made_where_they_belong(make_table, options):
    table = make_table(buckets=2, **options)
    with patch.object(LocalStorage, "upload", autospec=True, side_effect=LocalStorage.upload) as made:
        table.bulk_insert(rows(range(10), ts=1))
        table.insert_overwrite(rows(range(3), ts=2))
    uploaded = [given.args[1] for given in made.call_args_list]
    assert any(path.endswith(".parquet") for path in uploaded)
    assert not any(path.startswith(paths.UNSHOWN) for path in uploaded)


@pytest.mark.parametrize("first", ["the earlier", "the later"])
def test_of_two_overwrites_that_do_not_see_each_others_file_groups_one_is_made_again(
    make_table, monkeypatch, first
):
    """One key each, in buckets that have no file yet; the later one lists before the earlier one writes."""
    table = make_table(buckets=8, **OTHERS)
    earlier, later = table.begin("insert_overwrite"), again(table).begin("insert_overwrite")
    later.write(rows([1], ts=1, value="later"))
    listed = overwriting.groups_without_rows

    def then(*given):
        found = list(listed(*given))
        monkeypatch.undo()
        earlier.write(rows([2], ts=1, value="earlier"))
        earlier.commit()
        return iter(found)

    if first == "the earlier":
        monkeypatch.setattr(overwriting, "groups_without_rows", then)
        later.commit()
        assert content(table) == {"k1": "later1"}
        return
    later.commit()
    earlier.write(rows([2], ts=1, value="earlier"))
    earlier.commit()
    assert content(table) == {"k2": "earlier2"}


def test_a_note_that_is_too_long_to_be_one_stops_nobody(table, monkeypatch):
    monkeypatch.setattr(showing, "MARKERS_BYTES_MAX", 20)
    with dying("link", UNSHOWN, nth=2):
        again(table).insert_overwrite(rows(range(3, 6), ts=0))
    dead = dead_of(table)
    table.upsert(rows([7], ts=9, value="late"))
    assert content(table)["k7"] == "late7" and len(content(table)) == 20
    expire(table, dead)
    assert files_of(table, dead) == {"named": 0, "ours": 0}


def test_the_doctor_tells_of_files_that_were_never_shown_and_a_rollback_removes_them(table):
    storage, instant = table.writer_context().seams.storage, "20200101000000001"
    storage.put_new(paths.unshown(instant, "a", f"x_1-1-1_{instant}.parquet"), b"", durable=False)
    storage.put_new(paths.showing_note(instant), b"", durable=False)
    (found,) = [one for one in table.doctor() if one.check == "file that nothing names"]
    assert instant in str(found.evidence)
    table.rollback_failed_writes()
    assert files_of(table, instant) == {"named": 0, "ours": 0}
