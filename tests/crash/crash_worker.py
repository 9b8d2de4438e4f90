"""Runs one action of a writer again and again in forked children, and kills the child at one step.

A step is a call by which the child changes the file system: open with O_CREAT, link, rename, remove,
mkdir, rmdir (seen by an audit hook before they happen, the lock's own calls included) and every write
of bytes, once before any byte and once with half of them written. Between two steps nothing on disk
changes, so killing before each step visits every state that a dead writer can leave behind. On an object
store (the argument names the body, ``bodies``) a step is a request (``requests``).

Commands are lines of JSON on standard input: action, path, kill_at (null: let it finish), travels (whether
the request outlives its process). The answer is the number of steps and how the child ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import traceback
from unittest.mock import patch

import pyarrow as pa

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.flink.committer import Committer, folders
from mainstem.services.metadata import metadata_compaction
from mainstem.storage import paths
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.local import LocalStorage
from mainstem.storage.protocol import Storage
from mainstem.writers import placed_rows
from mainstem.writers.staged_rows import Stager
from mainstem.writers.stream_guard import StreamGuard
from tests.crash import bodies
from tests.crash.bodies import PROPERTIES
from tests.crash.requests import Requests
from tests.publish.renaming_store import RenamingStorage

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())]
)
VECTORS = pa.schema([("id", pa.string()), ("v", pa.list_(pa.float32(), 3))])
VECTOR_OPTIONS = {"engine": "flat", "metric": "l2", "clusters": "2"}
GUARD = StreamGuard("stream", 0)
SINK = "t1"
# So short that a handful of commits gives every service something to do.
SERVICES = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.timeline.compaction.batch.size": "2",
    "hoodie.timeline.manifest.retained.versions": "1",
}
_CHANGES = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir"}
_WRITE_METHODS = ("write", "writev")


def rows(value: str, ts: int, keys: str = "0123456789") -> pa.Table:
    """One row per key, in two partitions and all buckets."""
    return pa.table(
        {
            "id": list(keys),
            "city": ["ab"[int(k) % 2] for k in keys],
            "ts": [ts] * len(keys),
            "value": [value + k for k in keys],
        },
        schema=SCHEMA,
    )


def create(path: str, **more: object) -> None:
    mainstem.create_table(
        path,
        SCHEMA,
        record_key="id",
        ordering="ts",
        partition_by="city",
        buckets=None if "hoodie.index.type" in more else 2,
        properties={**PROPERTIES, "hoodie.mainstem.exclusive": bodies.current().exclusive, **more},
    )


def upsert(path: str) -> str:
    """A micro-batch in two writes; the second one opens a new partition."""
    table = mainstem.open_table(path, properties=PROPERTIES)
    with table.begin("upsert", guard=GUARD) as txn:
        txn.write(rows("new", 9, "02468"))
        txn.write(rows("new", 9, "13579"))
        return txn.commit().status


def delete(path: str) -> str:
    """A micro-batch that deletes."""
    table = mainstem.open_table(path, properties=PROPERTIES)
    with table.begin("delete", guard=GUARD) as txn:
        txn.write(rows("", 9, "0246").select(["id", "city"]))
        return txn.commit().status


def _small(path: str) -> mainstem.Table:
    """The table, whose base files get no bloom filter."""
    return mainstem.open_table(path, {**PROPERTIES, "hoodie.parquet.bloom.filter.enabled": "false"})


def bulk_insert(path: str) -> str:
    """A micro-batch that goes to log files in the partition that is there, to base files in the other."""
    table = _small(path)
    with table.begin("bulk_insert", guard=GUARD) as txn:
        txn.write(rows("new", 9))
        return txn.commit().status


def resize(path: str) -> None:
    _small(path).resize(3)


def upsert_resized(path: str) -> str:
    """A micro-batch that is routed anew, since the table is resized before its commit."""
    table = _small(path)
    with table.begin("upsert", guard=GUARD) as txn:
        txn.write(rows("new", 9))
        _small(path).resize(3)
        return txn.commit().status


def upsert_anew(path: str) -> str:
    """A micro-batch without buckets that is too large to be kept, and whose file groups are replaced before
    its commit: it is read back, and goes into a later instant."""
    table = _small(path)
    with patch.object(placed_rows, "_KEPT_BYTES_MAX", 0), table.begin("upsert", guard=GUARD) as txn:
        txn.write(rows("new", 9))
        _small(path).cluster()
        return txn.commit().status


def overwrite(path: str) -> str:
    """An overwrite of one partition that is made again, since a compaction is planned beside it."""
    table = _small(path)
    with table.begin("insert_overwrite") as txn:
        txn.write(rows("new", 0, "02"))
        _small(path).schedule_compaction()
        return txn.commit().status


def truncate(path: str) -> str:
    return _small(path).truncate().status


def delete_partition(path: str) -> str:
    return _small(path).delete_partition("a").status


def abort(path: str) -> None:
    table = mainstem.open_table(path, properties=PROPERTIES)
    with table.begin("upsert", guard=GUARD) as txn:
        txn.write(rows("new", 9))
        txn.abort()


def roll_back(path: str) -> None:
    mainstem.open_table(path, properties=PROPERTIES).rollback_failed_writes()


def stage(path: str) -> None:
    """Two checkpoints of a Flink job, as its workers and its file sink make them."""
    table = mainstem.open_table(path, properties=PROPERTIES)
    storage = storage_of(location_of(path), sync=False)
    stager = Stager(storage, table.staging_spec(SCHEMA), SINK, random.SystemRandom())
    for number, keys in enumerate(("02468", "13579")):
        _put_part(storage, folders(table, SINK)[1], number, stager.stage(rows("new", 9, keys)) + "\n")


def _put_part(storage: Storage, folder: str, number: int, lines: str) -> None:
    """As Flink's file sink does: a rename, or on an object store one put."""
    if bodies.current().by_requests:
        part = f"{paths.committables_folder(SINK)}/part-ab-{number}"
        storage.put_new(part, lines.encode(), durable=True)
        return
    os.makedirs(folder, exist_ok=True)
    hidden = f"{folder}/.part-ab-{number}.inprogress.cd"
    with open(hidden, "w") as file:
        file.write(lines)
    os.rename(hidden, f"{folder}/part-ab-{number}")


def flink_commit(path: str) -> None:
    Committer(mainstem.open_table(path, properties=PROPERTIES), SINK).commit_pending()


def serviced(path: str) -> mainstem.Table:
    return mainstem.open_table(path, properties={**PROPERTIES, **SERVICES})


def restore(path: str) -> None:
    table = serviced(path)
    table.restore(table.savepoints()[0].instant)


def compact_metadata(path: str) -> None:
    metadata_compaction.run(serviced(path).writer_context(), if_due=False)


def reindex(path: str) -> None:
    serviced(path).reindex("column_stats")


def merge(path: str) -> None:
    """Put file groups together that were split when others were thought large."""
    large = {"hoodie.parquet.max.file.size": "1000000000", "hoodie.bucket.index.min.num.buckets": "1"}
    assert mainstem.open_table(path, {**PROPERTIES, **SERVICES, **large}).cluster()


def clear_indexes(table: mainstem.Table) -> None:
    """Away with what a builder or a dropper left who died; a plan that was ended goes when any is created."""
    for index in table.indexes():
        if index.state != "ready":
            table.drop_index(index.name)
    if any(i.action == "indexing" and not i.completion for i in table.timeline()):
        table.drop_index("column_stats", if_exists=True)
        table.create_index("column_stats")


def recover(path: str) -> None:
    """What everybody does who comes after a death, one after the other."""
    table = serviced(path)
    with contextlib.suppress(Invalid):
        table.restore()
    table.rollback_failed_writes()
    table.run_log_compaction()
    with contextlib.suppress(Unsupported):  # with buckets there is none
        table.run_clustering()
    table.compact()
    clear_indexes(table)
    table.upsert(rows("last", 20, "9"))
    table.clean()
    table.archive()


def create_vectors(path: str) -> None:
    """A table of vectors, on which the actions below have something to do."""
    mainstem.create_table(
        path, VECTORS, record_key="id", buckets=2,
        properties={
            **PROPERTIES, "hoodie.mainstem.exclusive": bodies.current().exclusive,
            "hoodie.metadata.enable": "true",
        },
    ).upsert(vectors(range(12), 1))  # fmt: skip


def vectors(keys: range, salt: int) -> pa.Table:
    """One vector of whole numbers per key, of two groups that are far apart: as many clusters."""
    values = [[float((key * salt) % 7), float(key % 5), 100.0 * (key % 2) + salt] for key in keys]
    return pa.table({"id": [f"{key:02d}" for key in keys], "v": values}, schema=VECTORS)


def create_vector_index(path: str) -> None:
    serviced(path).create_index("vector", ["v"], options=VECTOR_OPTIONS)


ACTIONS = {
    "create_with_metadata": lambda path: create(path, **{"hoodie.metadata.enable": "true"}),
    "create_vector_index": create_vector_index,
    "refresh_vector_index": lambda path: serviced(path).refresh_index("v"),
    "drop_vector_index": lambda path: serviced(path).drop_index("v"),
    "tend_vector_indexes": lambda path: serviced(path).run_services("vectors"),
    "create": create, "upsert": upsert, "bulk_insert": bulk_insert, "abort": abort,
    "delete": delete,
    "upgrade": lambda path: serviced(path).upgrade(10),
    "downgrade": lambda path: serviced(path).downgrade(9),
    "resize": resize, "upsert_resized": upsert_resized, "upsert_anew": upsert_anew,
    "overwrite": overwrite, "truncate": truncate, "delete_partition": delete_partition,
    "roll_back": roll_back, "restore": restore, "recover": recover,
    "compact": lambda path: serviced(path).compact(),
    "cluster": lambda path: serviced(path).cluster(["value", "ts"], strategy="hilbert"),
    "merge": merge,
    "split": lambda path: serviced(path).cluster(),
    "log_compact": lambda path: serviced(path).log_compact(),
    "clean": lambda path: serviced(path).clean(),
    "savepoint": lambda path: serviced(path).savepoint(),
    "archive": lambda path: serviced(path).archive(),
    "create_index": lambda path: serviced(path).create_index("column_stats"),
    "drop_index": lambda path: serviced(path).drop_index("column_stats"),
    "reindex": reindex, "compact_metadata": compact_metadata,
    "stage": stage, "flink_commit": flink_commit,
}  # fmt: skip


class Steps:
    """Counts the steps of the main thread in shared memory; kills this process at one of them."""

    def __init__(self, shared: mmap.mmap, kill_at: int | None) -> None:
        self.shared, self.kill_at, self.count = shared, kill_at, 0
        self.thread = threading.get_ident()
        for method in _WRITE_METHODS:
            self.tear(method)
        self.see_renames()
        sys.addaudithook(self.hook)

    def step(self) -> None:
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1
        self.shared[:8] = struct.pack("<q", self.count)

    def hook(self, event: str, arguments: tuple) -> None:
        if threading.get_ident() == self.thread and (
            event in _CHANGES or (event == "open" and arguments[2] & os.O_CREAT)
        ):
            self.step()

    def see_renames(self) -> None:
        """Those of the store that renames are no audited calls."""
        original = RenamingStorage._rename_now

        def renamed(storage: RenamingStorage, *given) -> None:
            if threading.get_ident() == self.thread:
                self.step()
            original(storage, *given)

        RenamingStorage._rename_now = renamed

    def tear(self, method: str) -> None:
        original = getattr(os, method)

        def torn(fd, data):
            if threading.get_ident() != self.thread:
                return original(fd, data)
            self.step()
            whole = data if method == "write" else b"".join(data)
            half = len(whole) // 2
            if half:
                os.pwrite(fd, whole[:half], os.lseek(fd, 0, os.SEEK_CUR))
                self.step()
            return original(fd, data)

        setattr(os, method, torn)


def run_in_child(action: str, path: str, kill_at: int | None, travels: bool = False) -> dict:
    shared = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        try:
            LocalStorage.width = 1  # no step in another thread
            if bodies.current().by_requests:
                Requests(shared, kill_at, travels)
            else:
                Steps(shared, kill_at)
            ACTIONS[action](path)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"steps": struct.unpack("<q", shared[:8])[0], "status": status}


def warm_up() -> None:
    """Import everything that the actions need, before the forks, by doing them once."""
    with tempfile.TemporaryDirectory() as folder:
        for action in (
            "create", "upsert", "abort", "roll_back", "compact", "cluster", "bulk_insert", "log_compact",
            "savepoint", "upsert", "restore", "clean", "archive", "recover", "stage", "flink_commit",
            "create_index", "reindex", "drop_index", "compact_metadata", "recover",
        ):  # fmt: skip
            ACTIONS[action](bodies.place(f"{folder}/t"))
        ACTIONS["create_with_metadata"](bodies.place(f"{folder}/m"))
        indexed = bodies.place(f"{folder}/v")
        create_vectors(indexed)
        for action in ("create", "refresh", "drop"):
            ACTIONS[f"{action}_vector_index"](indexed)
        ACTIONS["tend_vector_indexes"](indexed)


def main(body: str) -> None:
    logging.disable(logging.WARNING)  # that locks of the dead were taken over
    with bodies.on(bodies.BODIES[body]):
        warm_up()
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            print(json.dumps(run_in_child(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
