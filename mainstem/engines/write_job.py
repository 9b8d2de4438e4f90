"""Rows that an engine's tasks write, in one commit of the process that started them.

  1. begin    the driver opens the transaction (or finds that the guard's batch is committed), and widens the
              schema by columns that the rows have and the table lacks
  2. write    each attempt of a task writes files of its own, durably, and returns what it wrote, as bytes
  3. commit   the driver publishes the files of the attempts whose bytes it got, and deletes all others

A driver that dies leaves a heartbeat that expires: whoever writes next rolls it back. An attempt that fails
removes its files. One that goes on after its job has ended, because the engine lost sight of it, notices
before each batch and afterwards that the transaction is closed, and removes its files, too. Left over is one
that is killed between such a look and the next: on a disk its file stays, with rows of the same keys and the
same instant as those of the attempt that counts. Without buckets no file of an attempt is ever shown.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.engines.workers import location_of_tasks, no_table_here
from mainstem.errors import Invalid, MainstemError, RolledBack, Unavailable, Unsupported
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.protocol import Storage
from mainstem.writers.outcome import ALREADY_COMMITTED, EMPTY, Outcome, check_operation
from mainstem.writers.rows_in import RowStream, rows_in, without_index
from mainstem.writers.write_spec import BULK_INSERT, DELETE_PARTITION, INSERT_OVERWRITE_TABLE, WriteSpec
from mainstem.writers.write_task import decode_handed, decode_result, write_task

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.writers.rows_in import Rows
    from mainstem.writers.stream_guard import StreamGuard
    from mainstem.writers.transaction import Transaction

# Parts of a write token: Java reads them as ints.
_TOKEN_BITS = 30


@dataclass(frozen=True)
class WriteTask:
    """What a task needs to write; picklable. ``spec`` None: there is nothing to write any more."""

    spec: WriteSpec | None

    def write(self, rows: Rows) -> bytes:
        """Write rows of any kind (docs/rows.md) as one attempt; returns the bytes for ``WriteJob.commit``.

        Raises what ``Table.upsert`` raises, and ``Unavailable`` if this worker does not see the transaction.
        """
        spec = self.spec
        if spec is None:
            return b""
        storage = storage_of(spec.location, sync=spec.fsync)
        draw = random.SystemRandom().getrandbits
        try:
            _check_open(storage, spec, begins=True)
            result = write_task(
                spec,
                _fed(storage, spec, rows),
                task_partition=draw(_TOKEN_BITS),
                stage=draw(_TOKEN_BITS),
                attempt=draw(_TOKEN_BITS),
                storage=storage,
            )
            _keep_if_open(storage, spec, result)
            return result
        except MainstemError as error:
            error.table = error.table or spec.base
            raise
        except OSError as error:
            raise Unavailable(f"this worker cannot write to the table: {error}", table=spec.base) from error


def _fed(storage: Storage, spec: WriteSpec, rows: Rows) -> Iterator[pa.Table]:
    """Tables of bounded size; ends with an error once the transaction is closed."""
    given = rows_in(rows)
    stream = given if isinstance(given, RowStream) else RowStream(iter([given]))
    names = arrow_user_schema(spec.user_schema).names
    for table in stream.tables():
        _check_open(storage, spec)
        yield without_index(table, names)
    _check_open(storage, spec)


def _check_open(storage: Storage, spec: WriteSpec, *, begins: bool = False) -> None:
    if storage.stat(paths.heartbeat(spec.instant)) is not None:
        return
    if begins and (missing := no_table_here(storage)) is not None:
        raise missing
    raise RolledBack(
        "the transaction of this task is closed: its job has ended, or it was rolled back; nothing of this"
        " attempt stays",
        table=spec.base,
        instant=spec.instant,
    )


def _keep_if_open(storage: Storage, spec: WriteSpec, result: bytes) -> None:
    """Remove the files of an attempt whose transaction was closed while they were put."""
    try:
        _check_open(storage, spec)
    except RolledBack:
        if spec.placed_at_commit:
            storage.delete(decode_handed(result, spec.instant).path)
        else:
            for stat in decode_result(result, spec.instant)[0]:
                storage.delete(stat.stored_at if stat.unshown else stat.path)
        raise


@dataclass
class WriteJob:
    """One write of a distributed job. ``begin``, then ``commit`` or ``abort``, all in the process that made
    it; not picklable. ``outcome``: set by ``commit``."""

    table: Table
    operation: str = "upsert"
    guard: StreamGuard | None = None
    outcome: Outcome | None = field(default=None, init=False)
    _txn: Transaction | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.operation = check_operation(self.operation)
        if self.operation == BULK_INSERT:
            raise Unsupported(
                "bulk_insert in tasks: each bucket's base file is one writer's; use insert or upsert, or give"
                " Table.bulk_insert all rows",
                table=self.table.path,
            )
        if self.operation == DELETE_PARTITION:
            raise Unsupported(
                "delete_partition has no rows: call Table.delete_partition", table=self.table.path
            )
        location_of_tasks(self.table)

    def begin(self, schema: pa.Schema | None = None) -> WriteTask:
        """Open the transaction. ``schema``: columns of the rows, as far as it is known; those that the table
        lacks are added. Types of columns that are there stay: values are cast where nothing is lost."""
        if self._txn is not None or self.outcome is not None:
            raise self._used()
        txn = self._txn = self.table.begin(self.operation, guard=self.guard)
        if txn.already_committed:
            self.outcome = txn.commit()
            return WriteTask(None)
        return self.widen(schema)

    def widen(self, schema: pa.Schema | None) -> WriteTask:
        """The task of a job that has begun, once more columns of its rows are known."""
        txn = self._txn
        assert txn is not None, "begin comes first"
        if self.outcome is not None:
            if self.outcome.status != ALREADY_COMMITTED:
                raise self._used()
            return WriteTask(None)
        try:
            if schema is not None:
                ours = arrow_user_schema(txn.task_spec().user_schema)
                txn.declare(_with_types_of(ours, schema))
            return WriteTask(txn.task_spec())
        except BaseException:
            txn.abort()
            raise

    def _used(self) -> Invalid:
        return Invalid(
            "this job, or sink, was used before: make a new one for each write", table=self.table.path
        )

    @property
    def begun(self) -> bool:
        """Whether ``begin`` was called, or the job has ended without it."""
        return self._txn is not None or self.outcome is not None

    def commit(self, results: Sequence[bytes]) -> Outcome:
        """Publish what these attempts wrote, one of each task. Without rows nothing is published, but by
        ``insert_overwrite_table``."""
        if self.outcome is not None:
            return self.outcome
        if self._txn is None:
            if self.operation != INSERT_OVERWRITE_TABLE:
                self.outcome = Outcome(EMPTY)
                return self.outcome
            self.begin()
            assert self._txn is not None
        txn, spec = self._txn, self._txn.task_spec()
        wrote = [result for result in results if result and _has_rows(spec, result)]
        if not wrote and self.operation != INSERT_OVERWRITE_TABLE:
            txn.abort()
            self.outcome = Outcome(EMPTY)
            return self.outcome
        for result in wrote:
            txn.add_task_result(result)
        self.outcome = txn.commit()
        return self.outcome

    def abort(self) -> None:
        """Nothing of the job becomes visible. After a commit it does nothing."""
        if self._txn is not None and self.outcome is None:
            self._txn.abort()


class JobSink:
    """What is common to the sinks of engines: one write, whose sink is copied to workers, used once. Its
    ``outcome`` is there afterwards."""

    def __init__(self, table: Table, operation: str, guard: StreamGuard | None) -> None:
        self._job: WriteJob | None = WriteJob(table, operation, guard)
        self._task: WriteTask | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A worker needs what to write with, and neither the table nor the transaction."""
        return {**self.__dict__, "_job": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def _own(self) -> WriteJob:
        assert self._job is not None, "only the process that made the sink commits"
        return self._job

    @property
    def outcome(self) -> Outcome:
        """How the write ended."""
        found = self._own.outcome
        assert found is not None, "the write has not ended"
        return found

    def abort(self) -> None:
        """Nothing of the write becomes visible."""
        self._own.abort()


def _has_rows(spec: WriteSpec, result: bytes) -> bool:
    if spec.placed_at_commit:
        return bool(decode_handed(result, spec.instant).segments)
    return bool(decode_result(result, spec.instant)[0])


def _with_types_of(ours: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The columns given, in the types of the table where it has them."""
    return pa.schema([ours.field(f.name) if ours.get_field_index(f.name) >= 0 else f for f in given])
