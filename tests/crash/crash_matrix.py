"""``python -m tests.crash.crash_matrix``: every action killed at every step, gone on with by everybody.

For each action (commit, delete, bulk insert, overwrites, resize, abort, rollback, compaction, clustering, log
compaction, clean, savepoint, restore, archiving, compaction of the archive's levels; with a metadata table
building, rebuilding and dropping an index, and compaction of the metadata table; upgrade and downgrade) a
table is made on which it has something to do: of version 9, of version 10 in both layouts, upgraded. The
action is killed at each of its steps (``crash_worker``), and from each state that it leaves behind go on: a
writer, a reader, a compactor, a clusterer, a cleaner, an archiver, a log compactor, an indexer, a dropper and
a compactor of the metadata table, each on a copy of its own, at once, while the dead process still looks
alive. Then everybody comes, long after; now and then this recovery is killed as well. The rows are right at
every moment, every commit is active or archived, once, and nothing is left over.

``--store`` names what the tables lie on (``bodies``). On an object store an action dies at each of its
requests, and each request travels on once, too: the process is dead, somebody has gone on, and then the
request takes effect, before everybody comes or long after.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from mainstem.errors import MainstemError
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import ready_partitions
from mainstem.readers.planning.table_state import TableState
from mainstem.services.metadata import metadata_compaction
from mainstem.storage.local import LocalStorage
from tests.crash import crash_worker
from tests.crash.bodies import BODIES, DISK, PROPERTIES, Body, current, on, place
from tests.crash.crash_worker import rows
from tests.crash.requests import Request, arrive, taken
from tests.multiprocess import table_files
from tests.publish.renaming_store import renaming_store

ROOT = Path(__file__).resolve().parents[2]
KEYS = "0123456789"
Content = dict[str, str]
RINGED = {
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.parquet.max.file.size": "1",
}
#: tables of version 10 of either layout
NATIVE = {"hoodie.write.table.version": "10"}
SORTED = {**NATIVE, "hoodie.table.storage.layout": "lsm_tree"}
INDEXED = {"hoodie.metadata.enable": "true"}
Run = Callable[..., dict]


class Broken(AssertionError):
    """A table that is not what it must be."""


@contextmanager
def worker(body: Body = DISK) -> Iterator[Run]:
    """Runs an action in a child of a process that has imported everything already; tables of this process
    lie on ``body``, too."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("crash_worker.py")), body.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    def call(action: str, path: Path, kill_at: int | None = None, travels: bool = False) -> dict:
        asked = {"action": action, "path": place(path), "kill_at": kill_at, "travels": travels}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        assert answer["status"] == (0 if kill_at is None else -signal.SIGKILL), answer
        return answer

    try:
        assert json.loads(process.stdout.readline()) == "ready"
        with on(body):
            yield call
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def opened(path: Path) -> mainstem.Table:
    return crash_worker.serviced(place(path))


def content(path: Path) -> Content:
    check_metadata(path)
    found = opened(path).scan(columns=["id", "value"]).to_arrow().to_pylist()
    if len({row["id"] for row in found}) != len(found):
        raise Broken(f"a row is doubled: {found}")
    check_answers(path, found)
    return {row["id"]: row["value"] for row in found}


def check_answers(path: Path, rows: list[dict]) -> None:
    """What indexes cut of a filtered query passes the filter nowhere."""
    if not rows or not (path / ".hoodie/metadata").is_dir():
        return
    one = sorted(rows, key=lambda row: row["value"])[len(rows) // 2]
    value = pc.field("value")
    for asked in (value >= one["value"], value == one["value"], pc.field("id") == one["id"]):
        meant = pa.Table.from_pylist(rows).filter(asked)["id"].to_pylist()
        found = opened(path).scan(columns=["id"], filter=asked).to_arrow()["id"].to_pylist()
        if sorted(found) != sorted(meant):
            raise Broken(f"with the filter {asked} {sorted(found)}, expected {sorted(meant)}")


def check_metadata(path: Path) -> None:
    """``files`` of the metadata table, where there is one, equals the listing."""
    if not (path / ".hoodie/metadata").is_dir():
        return
    storage = LocalStorage(str(path))
    state = TableState.load(storage, load_config(storage))
    if "files" not in ready_partitions(state.config.raw):
        return  # its first index is not whole yet
    found = state.metadata_table.files() if state.metadata_table is not None else {}
    listed = {f"{p}/{name}" if p else name for p, names in found.items() for name in names}
    done = [file for commit in table_files.commits(path) for file in commit.files]
    there = {file for file in done if (path / file).exists()}
    gone = {file for file in done if file not in there}
    cleaned = table_files.cleaned(path)
    # A put that arrived late brought a cleaned file back: no slice that is read has it.
    back = (there & cleaned) - listed
    if listed - gone != there - back:
        raise Broken(f"the metadata table lists {sorted(listed ^ there)} or not")
    if wrong := gone & listed & cleaned:
        raise Broken(f"the metadata table lists {sorted(wrong)}, which were cleaned")


# -- tables on which each action has something to do ------------------------------------------------


def _written(path: Path, commits: int = 1, *, index: bool = True, **more: object) -> mainstem.Table:
    crash_worker.create(place(path), **more)
    table = opened(path)
    if more and index:
        table.create_index("column_stats")
    for number in range(commits):
        table.upsert(rows(f"old{number}-", number + 1, "0246"))
    return table


def _placed(path: Path, commits: int = 1, **more: object) -> mainstem.Table:
    """A table without buckets."""
    return _written(path, commits, index=False, **{"hoodie.index.type": "SIMPLE", **more})


def _scattered(path: Path, *, planned: bool = False, **more: object) -> mainstem.Table:
    """A table without buckets, with two file groups in one partition, one of them with a log file."""
    table = _placed(path, 0, **more)
    # New keys would go into the first file group.
    properties = {**crash_worker.PROPERTIES, "hoodie.parquet.small.file.limit": "0"}
    apart = mainstem.open_table(place(path), properties=properties)
    apart.upsert(rows("old0-", 1, "02"))
    apart.upsert(rows("old1-", 2, "46"))
    apart.upsert(rows("old2-", 3, "2"))
    if planned:
        assert table.schedule_clustering()
    return table


def _ringed(path: Path, commits: int = 2, *, planned: bool = False) -> None:
    """A table under consistent hashing, with file groups that are to be split."""
    table = _written(path, commits, index=False, **RINGED)
    if planned:
        assert table.schedule_clustering()


def _elsewhere(path: Path, *, record_index: bool = False) -> None:
    """A table without buckets whose keys move, with rows that lie in the other partition."""
    more = INDEXED if record_index else {}
    table = _written(path, 0, index=False, **more, **{"hoodie.index.type": "GLOBAL_SIMPLE"})
    if record_index:
        table.create_index("record_index")
    there = rows("old0-", 1, "0246")
    table.upsert(there.set_column(1, "city", pa.array(["b"] * len(there))))


def _dead_writer(
    path: Path, run: Run, *, make: Callable[..., mainstem.Table] | None = None, **more: object
) -> None:
    """A writer died inside its second critical section, long ago, and nobody will make its commit visible."""

    def unseen() -> bool:
        if _guarded(path) or not (current().by_requests or (path / ".hoodie/lock").exists()):
            return False
        settle_what_was_decided(path)
        return not _guarded(path)

    _dead_late(path, run, "upsert", make or (lambda p: _written(p, **more)), unseen)


def _dead_late(
    path: Path, run: Run, action: str, make: Callable[[Path], object], unseen: Callable[[], bool]
) -> None:
    """The last step at which a death leaves what nobody sees."""
    for kill_at in reversed(range(_steps_of(run, action, make))):
        make(path)
        run(action, path, kill_at)
        if unseen():
            table_files.age(path)
            return
        shutil.rmtree(path)
    raise AssertionError(f"no step of {action} leaves what nobody sees")


def leftovers(path: Path) -> list[str]:
    """What must not be left, on this body."""
    return table_files.leftovers(path, renames=current().backend is renaming_store)


def settle_what_was_decided(path: Path) -> None:
    """On a store a dead process may have decided what nobody sees yet."""
    opened(path).writer_context().publisher.settle()


def _steps_of(run: Run, action: str, make: Callable[[Path], object]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "t")
        return run(action, Path(folder) / "t")["steps"]


#: properties of a table whose rows may say that they are deletes
MARKED = {
    "hoodie.record.merge.property.hoodie.payload.delete.field": "value",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "gone",
}


def _deleted(path: Path, **more: object) -> None:
    """Logs with deletes that a compaction keeps, and some that the one before it kept."""
    table = _written(path, 1, **MARKED, **more)
    for ts, keys in ((2, "0"), (3, "4")):
        marked = pa.array(["gone"] * len(keys))
        table.upsert(rows("", ts, keys).set_column(3, "value", marked))
        if ts == 2:
            table.compact()


def _is_marked(path: Path) -> bool:
    return "payload.delete.marker" in (path / ".hoodie/hoodie.properties").read_text()


def _cleanable(path: Path, **more: object) -> mainstem.Table:
    table = _written(path, 2, **more)
    table.compact()
    table.upsert(rows("old2-", 3, "0246"))
    table.compact()
    table.upsert(rows("old3-", 4, "0246"))
    return table


def _half_compacted(path: Path, **more: object) -> None:
    """File groups with logs, and one without whose rows are in no order."""
    table = _written(path, 2, **more)
    table.compact()
    table.upsert(rows("old2-", 3, "06"))


def _restorable(path: Path) -> None:
    table = _written(path, 2)
    table.savepoint()
    table.upsert(rows("gone", 5))
    table.compact()
    crash_worker.upsert(place(path))
    table.schedule_compaction()


def _spread(path: Path, **more: object) -> None:
    """Rows in both partitions, in base files and in log files."""
    table = _written(path, 1, **more)
    table.compact()
    table.upsert(rows("both", 2, "012345"))


def _merging(path: Path) -> None:
    """Under consistent hashing, file groups that were split and are to be merged again."""
    table = _written(path, 2, index=False, **RINGED)
    table.compact()
    assert table.cluster()
    table.upsert(rows("old2-", 3, "0246"))


def _dead_overwriter(path: Path, run: Run, make: Callable[[Path], object]) -> None:
    """An overwrite died long ago, its files made, and nobody sees them."""

    def unseen() -> bool:
        settle_what_was_decided(path)
        return not _overwritten(path)

    _dead_late(path, run, "overwrite", make, unseen)


def _restorable_overwritten(path: Path) -> None:
    """A savepoint, and after it an overwrite, writes on top of it and a compaction."""
    table = _written(path, 2)
    table.savepoint()
    table.insert_overwrite(rows("gone", 0, "02"))
    crash_worker.upsert(place(path))
    table.compact()
    table.upsert(rows("gone", 12, "4"))


def _spread_placed(path: Path) -> None:
    """The same without buckets."""
    table = _placed(path)
    table.compact()
    table.upsert(rows("both", 2, "012345"))


def _archivable(path: Path, files: int = 0) -> None:
    """Instants that may be archived, and so many archive files that one more is merged with them."""
    table = _cleanable(path)
    history = path / ".hoodie/timeline/history"
    while len(list(history.glob("*_0.parquet"))) < files:
        table.archive()
        table.upsert(rows("old4-", 5, "0246"))
        table.compact()
    for _ in range(2):
        table.upsert(rows("old5-", 6, "0246"))
    table.compact()
    table.upsert(rows("old6-", 7, "0246"))


def templates(run: Run) -> dict[str, tuple[str, Callable[[Path], object]]]:
    """Name -> the action that is killed, and what makes its table."""
    return {
        "upsert": ("upsert", _written),
        "upsert_placed": ("upsert", _placed),
        "upsert_moved": ("upsert", _elsewhere),
        "roll_back_moved": ("roll_back", lambda path: _dead_writer(path, run, make=_elsewhere)),
        "insert_overwrite_placed": ("overwrite", _spread_placed),
        "truncate_placed": ("truncate", _spread_placed),
        "roll_back_placed": ("roll_back", lambda path: _dead_writer(path, run, make=_placed)),
        "compact_placed": ("compact", lambda path: _placed(path, 2)),
        "cluster_placed": ("cluster", _scattered),
        "upsert_planned_placed": ("upsert", lambda path: _scattered(path, planned=True)),
        "upsert_anew_placed": ("upsert_anew", _scattered),
        "upsert_first_ringed": ("upsert", lambda path: _ringed(path, 0)),
        "upsert_planned_ringed": ("upsert", lambda path: _ringed(path, planned=True)),
        "split_ringed": ("split", _ringed),
        "merge_ringed": ("merge", _merging),
        "insert_overwrite_ringed": ("overwrite", _ringed),
        "roll_back_overwrite": ("roll_back", lambda path: _dead_overwriter(path, run, _spread)),
        "roll_back_overwrite_placed": (
            "roll_back", lambda path: _dead_overwriter(path, run, _spread_placed),
        ),
        "restore_overwritten": ("restore", _restorable_overwritten),
        "bulk_insert": ("bulk_insert", _written),
        "abort": ("abort", _written),
        "roll_back": ("roll_back", lambda path: _dead_writer(path, run)),
        "compact": ("compact", lambda path: _written(path, 2)),
        "compact_deleted": ("compact", _deleted),
        "cluster": ("cluster", _half_compacted),
        "log_compact": ("log_compact", lambda path: _written(path, 3)),
        "clean": ("clean", _cleanable),
        "savepoint": ("savepoint", lambda path: _written(path, 2)),
        "restore": ("restore", _restorable),
        "archive": ("archive", _archivable),
        "archive_levels": ("archive", lambda path: _archivable(path, 1)),
        "insert_overwrite": ("overwrite", _spread),
        "truncate": ("truncate", _spread),
        "resize": ("resize", _spread),
        "upsert_resized": ("upsert_resized", _written),
        "delete_partition": ("delete_partition", _spread),
        **_indexed_templates(run),
        **_native_templates(run),
    }


def _raised(path: Path, **more: object) -> mainstem.Table:
    """Slices of files of blocks and native ones: a table that was upgraded between two writes."""
    table = _written(path, 2, index=False, **more)
    table.upgrade(10)
    table.upsert(rows("old2-", 3, "06"))
    return table


def _native_templates(run: Run) -> dict[str, tuple[str, Callable[[Path], object]]]:
    """On tables of version 10, on LSM trees, and on tables that are or were upgraded."""

    def cleanable(path: Path) -> None:
        _cleanable(path, index=False, **NATIVE)

    def restorable(path: Path) -> None:
        """A savepoint at version 9, and an upgrade and writes after it."""
        table = _written(path, 2)
        table.savepoint()
        table.upgrade(10)
        table.upsert(rows("gone", 5))
        table.compact()
        crash_worker.upsert(place(path))

    found: dict[str, tuple[str, Callable[[Path], object]]] = {
        "upgrade": ("upgrade", lambda path: _written(path, 2)),
        "upgrade_indexed": ("upgrade", lambda path: _written(path, 2, **INDEXED)),
        "downgrade": ("downgrade", _raised),
        "downgrade_indexed": ("downgrade", lambda path: _written(path, 2, **INDEXED, **NATIVE)),
        "upsert_raised": ("upsert", _raised),
        "compact_raised": ("compact", _raised),
        "log_compact_raised": ("log_compact", _raised),
        "restore_raised": ("restore", restorable),
        "log_compact_native": ("log_compact", lambda path: _written(path, 3, index=False, **NATIVE)),
        "clean_native": ("clean", cleanable),
        "upsert_native_indexed": ("upsert", lambda path: _written(path, **INDEXED, **NATIVE)),
        "compact_metadata_native_indexed": (
            "compact_metadata", lambda path: _written(path, 2, **INDEXED, **NATIVE),
        ),
        "upsert_placed_native": ("upsert", lambda path: _placed(path, **NATIVE)),
        "upsert_placed_sorted": ("upsert", lambda path: _placed(path, **SORTED)),
    }  # fmt: skip
    for layout, options in (("native", NATIVE), ("sorted", SORTED)):
        def made(path: Path, commits: int = 1, options: dict = options) -> mainstem.Table:
            return _written(path, commits, index=False, **options)

        found |= {
            f"upsert_{layout}": ("upsert", made),
            f"delete_{layout}": ("delete", made),
            f"bulk_insert_{layout}": ("bulk_insert", made),
            f"abort_{layout}": ("abort", made),
            f"roll_back_{layout}": ("roll_back", lambda path, make=made: _dead_writer(path, run, make=make)),
            f"compact_{layout}": ("compact", lambda path, make=made: make(path, 2)),
            f"compact_deleted_{layout}": ("compact", lambda path, more=options: _deleted(path, **more)),
        }
    return found


def _indexed_templates(run: Run) -> dict[str, tuple[str, Callable[[Path], object]]]:
    """The actions that a metadata table is maintained by, on tables that have one."""

    def cleanable(path: Path) -> None:
        table = _written(path, 2, **INDEXED)
        table.compact()
        table.upsert(rows("old2-", 3, "0246"))
        table.compact()
        table.upsert(rows("old3-", 4, "0246"))

    def compaction_planned(path: Path) -> None:
        table = _written(path, 2, **INDEXED)
        assert metadata_compaction.schedule(table.writer_context(), if_due=False)

    def keyed(path: Path) -> None:
        """With indexes of keys: record index and a secondary one."""
        table = _written(path, 0, index=False, **INDEXED)
        table.create_index("secondary_index", ["value"], name="by_value")
        table.upsert(rows("old0-", 1, "0246"))

    def told(path: Path) -> None:
        """Without buckets, under a record index that tells where keys are."""
        table = _written(path, 0, index=False, **INDEXED, **{"hoodie.index.type": "RECORD_LEVEL_INDEX"})
        table.create_index("record_index")
        table.upsert(rows("old0-", 1, "0246"))

    return {
        "upsert_indexed": ("upsert", lambda path: _written(path, **INDEXED)),
        "upsert_keys_indexed": ("upsert", keyed),
        "upsert_placed_indexed": ("upsert", told),
        "upsert_moved_indexed": ("upsert", lambda path: _elsewhere(path, record_index=True)),
        "cluster_placed_indexed": ("cluster", lambda path: _scattered(path, **INDEXED)),
        "bulk_insert_keys_indexed": ("bulk_insert", keyed),
        "bulk_insert_indexed": ("bulk_insert", lambda path: _written(path, **INDEXED)),
        "insert_overwrite_indexed": ("overwrite", lambda path: _spread(path, **INDEXED)),
        "resize_indexed": ("resize", keyed),
        "upsert_resized_indexed": ("upsert_resized", keyed),
        "truncate_indexed": ("truncate", lambda path: _spread(path, **INDEXED)),
        "delete_partition_indexed": ("delete_partition", lambda path: _spread(path, **INDEXED)),
        "roll_back_indexed": ("roll_back", lambda path: _dead_writer(path, run, **INDEXED)),
        "compact_indexed": ("compact", lambda path: _written(path, 2, **INDEXED)),
        "cluster_indexed": ("cluster", lambda path: _half_compacted(path, **INDEXED)),
        "log_compact_indexed": ("log_compact", lambda path: _written(path, 3, **INDEXED)),
        "clean_indexed": ("clean", cleanable),
        "create_index_indexed": ("create_index", lambda path: _written(path, 2, index=False, **INDEXED)),
        "first_index_indexed": ("create_index", lambda path: _written(path, 2)),
        "reindex_indexed": ("reindex", lambda path: _written(path, 2, **INDEXED)),
        "drop_index_indexed": ("drop_index", lambda path: _written(path, 2, **INDEXED)),
        "drop_index_compacting_indexed": ("drop_index", compaction_planned),
        "compact_metadata_indexed": ("compact_metadata", lambda path: _written(path, 2, **INDEXED)),
    }


# -- what must hold -----------------------------------------------------------------------------------


def _guarded(path: Path) -> int:
    """How many visible commits hold the micro-batch of ``crash_worker.GUARD``."""
    return sum(commit.guard is not None for commit in table_files.commits(path))


def _overwritten(path: Path) -> int:
    """How many visible commits are overwrites."""
    return sum(commit.operation.startswith("INSERT_OVERWRITE") for commit in table_files.commits(path))


def _restore_planned(path: Path) -> bool:
    return any(action == "restore" for _, _, action in table_files.timeline(path))


def expected(path: Path, before: Content, after: Content) -> Content:
    """The rows that a table in this state must show, from names and files alone."""
    restored = before.get("1") == "new1" and "1" not in after
    done = _restore_planned(path) if restored else _guarded(path) + _overwritten(path)
    return after if done else before


def check_content(path: Path, meant: Content) -> None:
    found = content(path)
    if found != meant:
        raise Broken(f"shows {found}, expected {meant}")


# Who goes on, at once: an error that says why not is as good as the work.
ROLES: dict[str, Callable[[mainstem.Table], object]] = {
    "writer": lambda table: table.upsert(rows("other", 30, "0")),
    "reader": lambda table: table.changes().to_arrow(),
    "compactor": lambda table: table.compact(),
    "clusterer": lambda table: table.cluster("value"),
    "cleaner": lambda table: table.clean(),
    "archiver": lambda table: table.archive(),
    "log compactor": lambda table: table.log_compact(),
}
#: ... on a table on which nothing may come back that was deleted
LATE_ROLES: dict[str, Callable[[mainstem.Table], object]] = {
    "late writer": lambda table: table.upsert(rows("late", 1, "04")),
}


def impatient() -> dict[str, str]:
    """Does not wait for as long as a builder of ``files`` that has just died looks alive: two minutes."""
    return {**PROPERTIES, "hoodie.metadata.index.check.timeout.seconds": "2"}


# ... on a table that has a metadata table, or begins to. On an object store ``path`` is its folder's.
INDEX_ROLES: dict[str, Callable[[mainstem.Table], object]] = {
    "indexer": lambda table: mainstem.open_table(place(table.path), impatient()).create_index("column_stats"),
    "dropper": lambda table: table.drop_index("column_stats"),
    "metadata compactor": lambda table: crash_worker.compact_metadata(place(table.path)),
}


def go_on(path: Path, role: str, before: Content, after: Content) -> Content:
    """One role works on what a dead process left, and what it wrote. On a store it may make visible what
    the dead process decided."""
    check_content(path, expected(path, before, after))
    wrote: Content = {}
    try:
        {**ROLES, **INDEX_ROLES, **LATE_ROLES}[role](opened(path))
        if role == "writer":
            wrote = {"0": "other0"}
    except MainstemError:
        pass  # for instance: a plan of somebody who may be alive, a restore that is not finished
    check_content(path, {**expected(path, before, after), **wrote})
    return wrote


def settle(path: Path, meant: Content) -> None:
    """Everybody who died is long dead, and everybody comes."""
    known = {(c.requested, c.completion) for c in table_files.commits(path)}
    table_files.age(path)
    crash_worker.recover(place(path))
    meant = {**meant, "9": "last9"}
    check_content(path, meant)
    visible = _guarded(path)
    status = crash_worker.upsert(place(path))
    if (status == "already_committed") != bool(visible):
        raise Broken(f"the batch was {status}, but {visible} commits held it")
    kept = {k: v for k, v in meant.items() if v.startswith(("other", "last"))}
    check_content(path, {**meant, **{k: f"new{k}" for k in KEYS}, **kept} if not visible else meant)
    opened(path).rollback_failed_writes()
    report = opened(path).validate_metadata()
    if report is not None and not report.ok:
        raise Broken(f"the metadata table: {report.differences}")
    if left := leftovers(path):
        raise Broken(f"left over: {left}")
    now = {(c.requested, c.completion) for c in table_files.commits(path)}
    if not _restore_planned(path) and not known <= now:
        raise Broken(f"completed, but neither active nor archived: {known - now}")


def come_back(path: Path, travelling: Request) -> None:
    """A request of somebody who is long dead takes effect when everything is tidy. It changes no row, and
    the next rounds of everybody take away what it brought."""
    meant = content(path)
    arrive(path, travelling)
    check_content(path, meant)
    for _ in range(2):
        table_files.age(path)
        crash_worker.recover(place(path))
    opened(path).rollback_failed_writes()
    check_content(path, {**meant, "9": "last9"})
    if left := leftovers(path):
        raise Broken(f"left over: {left}")
    if back := {file for file in table_files.cleaned(path) if (path / file).exists()}:
        raise Broken(f"cleaned, and there again: {sorted(back)}")


class Matrix:
    """Cells of the matrix, one after the other; ``broken`` says what was found in them."""

    def __init__(self, run: Run, folder: Path, chance: random.Random) -> None:
        self.run, self.folder, self.chance = run, folder, chance
        self.cells = self.twice = 0
        self.broken: list[str] = []

    def action(self, name: str, every: int = 1, roles: int | None = None) -> int:
        """Kill one action at each ``every``-th step; how many steps it has."""
        action, make = templates(self.run)[name]
        template, whole = self.folder / "template", self.folder / "whole"
        make(template)
        shutil.copytree(template, whole)
        before = content(template)
        steps = self.run(action, whole)["steps"]
        after = content(whole)
        if steps < 5:
            raise Broken(f"{name} found nothing to do")
        for death in current().deaths(steps, every, self.chance):
            killed = self.folder / "killed"
            shutil.copytree(template, killed)
            self.run(action, killed, death.at, death.travels)
            travelling = taken(killed)
            try:
                self._step(killed, travelling, before, after, roles)
            except (Broken, AssertionError, MainstemError, OSError) as error:
                what = f"{name} {death} of {steps}" + (f", {travelling}" if travelling else "")
                self.broken.append(f"{what}: {error!r}")
                shutil.rmtree(self.folder / "cell", ignore_errors=True)
            shutil.rmtree(killed)
        shutil.rmtree(template)
        shutil.rmtree(whole)
        return steps

    def _step(
        self, killed: Path, travelling: Request | None, before: Content, after: Content, roles: int | None
    ) -> None:
        known = sorted(ROLES)
        if (killed / ".hoodie/metadata").is_dir():
            known += sorted(INDEX_ROLES)
        going = known if roles is None else self.chance.sample(known, roles)
        if _is_marked(killed):
            going = [*going, *LATE_ROLES]
        settled = self.chance.choice(going)
        for role in going:
            path = self.folder / "cell"
            shutil.copytree(killed, path)
            late = travelling is not None and role == settled and self.chance.random() < 0.5
            try:
                wrote = go_on(path, role, before, after)
                if travelling is not None and not late:
                    arrive(path, travelling)
                    check_content(path, {**expected(path, before, after), **wrote})
                settle_what_was_decided(path)
                meant = {**expected(path, before, after), **wrote}
                check_content(path, meant)
                if role == settled:
                    self._die_again(path)
                    settle(path, meant)
                    if travelling is not None and late:
                        come_back(path, travelling)
            except (Broken, AssertionError, MainstemError, OSError) as error:
                raise Broken(f"then {role}{', late' * late}: {error!r}") from error
            self.cells += 1
            shutil.rmtree(path)

    def _die_again(self, path: Path) -> None:
        """A recovery that is killed as well, at one of its first steps or at any."""
        if self.chance.random() < 0.3:
            table_files.age(path)
            probe = self.folder / "probe"
            shutil.copytree(path, probe)
            steps = self.run("recover", probe)["steps"]
            shutil.rmtree(probe)
            self.run("recover", path, self.chance.randrange(min(steps, self.chance.choice([5, steps]))))
            self.twice += 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.crash_matrix", description=__doc__)
    parser.add_argument("--actions", nargs="*", default=None, help="these actions only")
    parser.add_argument("--every", type=int, default=1, help="only each n-th step of an action")
    parser.add_argument("--roles", type=int, default=None, help="only so many roles per step")
    parser.add_argument("--seed", type=int, default=0, help="of which recoveries are killed, and where")
    parser.add_argument("--store", choices=BODIES, default=DISK.name, help="what the tables lie on")
    given = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # that locks of the dead were taken over
    began = time.monotonic()
    with worker(BODIES[given.store]) as run, tempfile.TemporaryDirectory() as folder:
        matrix = Matrix(run, Path(folder), random.Random(given.seed))
        for name in given.actions or templates(run):
            # Replayed alone, an action makes the same cells.
            matrix.chance, known = random.Random(f"{given.seed} {name}"), len(matrix.broken)
            steps = matrix.action(name, given.every, given.roles)
            seconds = time.monotonic() - began
            if found := matrix.broken[known:]:
                print("\n".join(found))
                again = f"--actions {name} --seed {given.seed} --store {given.store} --every {given.every}"
                roles = "" if given.roles is None else f" --roles {given.roles}"
                print(f"replay: python -m tests.crash.crash_matrix {again}{roles}")
            print(f"{name}: {steps} steps, {matrix.cells} cells so far, {seconds:.0f} s", flush=True)
    lost = f"{len(matrix.broken)} broken" if matrix.broken else "nothing lost"
    print(f"{matrix.cells} cells, {matrix.twice} recoveries killed, {lost}")
    return 1 if matrix.broken else 0


if __name__ == "__main__":
    sys.exit(main())
