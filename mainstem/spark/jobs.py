"""One write of the data source, shared by processes that cannot talk to each other.

Spark runs a data source's code in a planner worker, in task workers and in a commit worker on the
driver's machine; only the tasks' messages pass between them. The transaction must be open before the
first log file is named, and its streaming guard needs ids that only tasks receive. So the first task
begins the transaction and leaves what the others need in the table:

  .hoodie/.mainstem/spark/<job>.lock   OS lock: one task at a time looks and begins (death frees it)
  .hoodie/.mainstem/spark/<job>.json   guard and ordinal; then the transaction's spec; then "ended"

In an object store there is no lock: the record is swapped. A task notes that it begins; the others wait for
it, and one of them begins in its place if that takes too long. Whoever finds that another one was first
aborts what it has begun. The record holds no secrets: a process takes them from its own table.

Tasks keep the heartbeat fresh while they run; the commit worker resumes the transaction. Old files of
ended jobs are deleted, so their number stays bounded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.errors import CorruptTable, MainstemError, Unsupported
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.properties import load_config
from mainstem.merge.rules import MergeRules
from mainstem.options import WriterOptions
from mainstem.spark.batch_ids import GuardIds
from mainstem.spark.options import WriteOptions
from mainstem.storage import paths
from mainstem.storage.backends import is_local, storage_of
from mainstem.storage.folders import make_folder
from mainstem.storage.location import Location
from mainstem.storage.swaps import Tag, has_swaps, swappable
from mainstem.truetime.clock import SystemClock
from mainstem.writers.outcome import ALREADY_COMMITTED, Outcome
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.write_ordinals import StreamWrite, allocate, claim, finish
from mainstem.writers.write_spec import INSERT_OVERWRITE_TABLE, WriteSpec, complete_rules

FOLDER = f"{paths.OWN}/spark"
_ENDED_MAX = 16
# A task that began a transaction and has not said so for this long is taken for dead.
_BEGINS_MS = 20_000
_LOOKS_MS = 100
_STALE_MS = 24 * 3600 * 1000
_RECORD_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class Job:
    """The state of a job. ``spec``: set once the transaction has begun. ``earlier``: the instant that already
    committed this batch, according to the guard. ``beginning``: in a store, a mark of the task that begins.
    """

    guard: StreamGuard | None = None
    counted: StreamWrite | None = None
    spec: WriteSpec | None = None
    earlier: str | None = None
    ended: bool = False
    beginning: str = ""

    @property
    def settled(self) -> bool:
        """Whether no task needs to begin it any more."""
        return self.spec is not None or self.earlier is not None or self.ended


def job_name(seed: str) -> str:
    """File name of a job, derived from a text that is the same in all its processes."""
    return hashlib.sha256(seed.encode()).hexdigest()[:24]


class SharedJob:
    """The job's record in the table. Cheap to make in every process."""

    def __init__(self, table: Table, options: WriteOptions, name: str) -> None:
        self._table = table
        self._options = options
        self._name = name
        self._storage = storage_of(table.opened.seams.storage.location)
        self._random = table.opened.seams.random

    # -- in tasks ----------------------------------------------------------------------------------

    def enter(self, ids: GuardIds | None, *, counted: bool, looks: str) -> Job:
        """First call of every task: settles the write's ordinal before the first row arrives.

        ``counted``: the batch may consist of several writes (``foreachBatch``); otherwise the ordinal is 0.
        """
        job = self._read()
        if job is not None:
            return job
        with self._alone():
            job, tag = self._tagged()
            if job is None:
                job = Job()
                if ids is not None:
                    job = self._guarded(ids, counted, looks)
                job = self._replace(job, tag)
            return job

    def _guarded(self, ids: GuardIds, counted: bool, looks: str) -> Job:
        if not counted or not ids.run:
            claim(self._storage, self._random, ids.identifier, ids.query)
            return Job(StreamGuard(ids.identifier, ids.batch_id, ids.ordinal or 0))
        what = StreamWrite(ids.identifier, ids.query, ids.batch_id, ids.run, self._name, looks)
        ordinal = allocate(self._storage, self._random, what, ordinal=ids.ordinal, started_ms=ids.started_ms)
        return Job(StreamGuard(ids.identifier, ids.batch_id, ordinal), what)

    def begin(self, schema: pa.Schema) -> Job:
        """Second call, by tasks with rows: opens the transaction, unless it is open or already committed.

        ``schema``: columns and types of the rows, the same in every task.
        """
        job = self._read() or Job()
        if job.settled:
            return job
        with self._alone():
            job, tag = self._my_turn()
            if job.settled:
                return job
            try:
                begun = self._begun(job, schema)
            except BaseException:
                if job.beginning:  # nobody needs to wait for this task
                    self._replace(replace(job, beginning=""), tag)
                raise
            found = self._replace(begun, tag)
            if found is not begun and begun.spec is not None:
                self._table.resume(begun.spec, guard=begun.guard).abort()
            return found

    def _begun(self, job: Job, schema: pa.Schema) -> Job:
        self._sweep()
        txn = self._table.begin(self._options.operation, guard=job.guard)
        if txn.already_committed:
            return replace(job, earlier=txn.commit().instant)
        try:
            txn.declare(schema)
        except BaseException:
            txn.abort()
            raise
        return replace(job, spec=txn.detach())

    def _my_turn(self) -> tuple[Job, Tag | None]:
        """The job and its tag, once it is settled or this task is to begin it."""
        job, tag = self._tagged()
        if not self._swaps:
            return job or Job(), None
        waited_for, clock = "", SystemClock()
        mine = f"{self._random.getrandbits(64):016x}"
        until = 0.0
        while not (job or Job()).settled:
            job = job or Job()
            if job.beginning != waited_for:
                waited_for, until = job.beginning, clock.monotonic_ms() + _BEGINS_MS
            if not job.beginning or clock.monotonic_ms() >= until:
                job = replace(job, beginning=mine)
                taken = swappable(self._storage).swap(self._path, encode_job(job), tag)
                if taken is not None:
                    return job, taken
            else:
                clock.sleep_ms(_LOOKS_MS)
            job, tag = self._tagged()
        return job or Job(), tag

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Keeps the transaction's heartbeat fresh while a task waits for rows and writes them."""
        options = WriterOptions.from_properties(self._options.passed, load_config(self._storage).raw)
        known: list[WriteSpec] = []

        def beat() -> None:
            try:
                if not known:
                    job = self._read()
                    if job is None or job.spec is None:
                        return
                    known.append(job.spec)
                self._storage.renew(paths.heartbeat(known[0].instant))
            except (OSError, MainstemError):
                return  # rolled back (the task notices when it writes), or slow storage

        often_ms = min(options.heartbeat_ms, options.table_heartbeat[0]) / 2
        task = SystemClock().every_ms(often_ms, beat, "task-heartbeat")
        try:
            yield
        finally:
            task.stop()
            beat()

    # -- in the commit worker ----------------------------------------------------------------------

    def commit(self, results: list[bytes]) -> Outcome | None:
        """Publishes the tasks' files. Returns None if no task had rows."""
        job = self._read() or Job()
        outcome, ok = None, False
        try:
            outcome = self._commit(job, results)
            ok = True
            return outcome
        finally:
            self._end(job, ok=ok, instant=outcome.instant if outcome else None)

    def _commit(self, job: Job, results: list[bytes]) -> Outcome | None:
        if job.earlier is not None:
            return Outcome(ALREADY_COMMITTED, instant=job.earlier)
        if job.spec is None and self._options.operation == INSERT_OVERWRITE_TABLE and not job.ended:
            with self._table.begin(INSERT_OVERWRITE_TABLE, guard=job.guard) as txn:
                return txn.commit()  # no row stays
        if job.spec is None:
            return None
        with self._table.resume(job.spec, guard=job.guard) as txn:
            for result in results:
                txn.add_task_result(result)
            if job.guard is not None:
                # A new process must read the whole timeline once; do it before taking the lock.
                ctx = self._table.writer_context()
                ctx.guards.refresh(ctx.publisher.timeline())
            return txn.commit()

    def abort(self) -> None:
        """Undoes what the tasks wrote; harmless if there is nothing."""
        job = self._read()
        if job is None or job.ended:
            return
        try:
            if job.spec is not None:
                self._table.resume(job.spec, guard=job.guard).abort()
        finally:
            self._end(job, ok=False)

    def _end(self, job: Job, *, ok: bool, instant: str | None = None) -> None:
        """``instant``: what a repeated commit finds; ``connect_writes`` commits in a task, which may run
        again."""
        now_ms = time.time_ns() // 1_000_000
        try:
            self._storage.put(self._path, encode_job(Job(earlier=instant, ended=True)), durable=False)
            if not self._swaps:
                self._storage.delete(f"{FOLDER}/{self._name}.lock")
        except OSError:
            pass  # swept later
        if job.counted is not None:
            finish(self._storage, self._random, job.counted, ok=ok, now_ms=now_ms)

    # -- the record --------------------------------------------------------------------------------

    @property
    def _path(self) -> str:
        return f"{FOLDER}/{self._name}.json"

    @property
    def _swaps(self) -> bool:
        return has_swaps(self._storage)

    def _read(self) -> Job | None:
        try:
            data = self._storage.read(self._path, max_bytes=_RECORD_BYTES_MAX)
        except FileNotFoundError:
            return None
        return self._decoded(data)

    def _tagged(self) -> tuple[Job | None, Tag | None]:
        """The job, and the tag of its record where the storage has tags."""
        if not self._swaps:
            return self._read(), None
        found = swappable(self._storage).read_tagged(self._path, max_bytes=_RECORD_BYTES_MAX)
        return (None, None) if found is None else (self._decoded(found[0]), found[1])

    def _decoded(self, data: bytes) -> Job:
        job = decode_job(data, self._path, self._table.path)
        if job.spec is None:
            return job
        return replace(job, spec=replace(job.spec, location=self._storage.location))

    def _replace(self, job: Job, tag: Tag | None) -> Job:
        """Write the job over the state of ``tag``; the job that is in force then, perhaps another one."""
        if not self._swaps:
            self._storage.put(self._path, encode_job(job), durable=False)
        elif swappable(self._storage).swap(self._path, encode_job(job), tag) is None:
            return self._read() or Job(ended=True)
        return job

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self._swaps:  # what is written decides who was first
            yield
            return
        if not is_local(self._storage.location):
            raise Unsupported(
                'df.write.format("mainstem") needs a local disk or a storage that swaps objects for what'
                " its tasks share: write with mainstem.spark.write_batch or write_stream",
                table=self._table.path,
            )
        make_folder(self._storage, FOLDER)
        path = os.path.join(self._table.path, FOLDER, f"{self._name}.lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _sweep(self) -> None:
        """Deletes all but the newest ended jobs, and anything a day old that dead drivers left."""
        entries = sorted(self._storage.entries(FOLDER), key=lambda e: e.mtime_ms, reverse=True)
        newest = entries[0].mtime_ms if entries else 0
        ended = [e for e in entries if e.name.endswith(".json") and e.size == _ENDED_BYTES]
        stale = [e for e in entries if newest - e.mtime_ms > _STALE_MS]
        for entry in {e.name: e for e in (*ended[_ENDED_MAX:], *stale)}.values():
            self._storage.delete(f"{FOLDER}/{entry.name}")


def encode_job(job: Job) -> bytes:
    """A job as JSON. Not pickled, so that reading it back executes nothing."""
    record = {
        "guard": asdict(job.guard) if job.guard else None,
        "counted": asdict(job.counted) if job.counted else None,
        "spec": _spec_record(job.spec) if job.spec else None,
        "earlier": job.earlier,
        "ended": job.ended,
        "beginning": job.beginning,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def decode_job(data: bytes, path: str, base: str) -> Job:
    """Parses a job's record. Raises ``CorruptTable`` if it is damaged."""
    try:
        record = json.loads(data)
        return Job(
            StreamGuard(**record["guard"]) if record["guard"] else None,
            StreamWrite(**record["counted"]) if record["counted"] else None,
            _spec(record["spec"]) if record["spec"] else None,
            record["earlier"],
            bool(record["ended"]),
            str(record.get("beginning", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MainstemError) as error:
        raise CorruptTable(
            f"the record of a Spark job does not parse: {error}; delete it, the job fails and runs again",
            path=path,
            table=base,
        ) from error


def _spec_record(spec: WriteSpec) -> dict[str, object]:
    record = {one.name: getattr(spec, one.name) for one in fields(spec)}
    location = {name: value for name, value in asdict(spec.location).items() if name != "texts"}
    parts = {"location": location, "keys": asdict(spec.keys), "rules": spec.rules.record()}
    return record | parts


def _spec(record: Mapping[str, Any]) -> WriteSpec:
    names = {f.name for f in fields(WriteSpec)}
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k in names
    }
    values["location"] = _location(record["location"])
    values["keys"] = KeyGenerator.from_record(record["keys"])
    rules = MergeRules.from_record(record["rules"])
    values["rules"] = complete_rules(rules, record["user_schema"], record["log_schema"])
    return WriteSpec(**values)


def _location(record: dict) -> Location:
    pairs = {name: tuple(map(tuple, record[name])) for name in ("options", "secrets")}
    return Location(record["scheme"], record["authority"], record["path"], **pairs)


_ENDED_BYTES = len(encode_job(Job(ended=True)))
