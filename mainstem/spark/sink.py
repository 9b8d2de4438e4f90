"""``write_stream`` and ``write_batch``: write a DataFrame into a table, one commit per micro-batch or
call.

There are two ways to write the same rows. A small batch is collected in the driver as Arrow (no Python
workers, no shuffle: a third of the latency). A large one is written by the executors, each task into its own
log files, and only the write stats come back. Either way the driver begins and commits.

On a table without buckets tasks hand their rows over in files of their own, and the commit places them
(``writers.unplaced_rows``). Where their keys live is looked up by a task per file group
(``spark.key_tasks``).
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.api.given_options import check_no_overwrite
from mainstem.api.job_table import open_for_job, open_or_create
from mainstem.api.table import Table
from mainstem.errors import (
    Invalid,
    LeaseLost,
    LockUnavailable,
    MainstemError,
    OutcomeUnknown,
    RolledBack,
    Unavailable,
    Unsupported,
)
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.options import BESIDE_COMMITS
from mainstem.options.engines import IDENTIFIER, ORDINAL
from mainstem.spark import connect_writes
from mainstem.spark.batch_ids import Found, GuardIds, guard_ids, in_driver, looks
from mainstem.spark.in_tasks import is_connect
from mainstem.spark.job_descriptions import described
from mainstem.spark.key_tasks import looking_in_tasks
from mainstem.spark.options import WriteOptions
from mainstem.spark.row_actions import RowActions
from mainstem.spark.session_options import session_options
from mainstem.spark.types import arrow_schema
from mainstem.spark.worker_repairs import ensure_python
from mainstem.writers.outcome import EMPTY, Outcome
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.transaction import Transaction
from mainstem.writers.write_ordinals import StreamWrite, allocate, claim, finish
from mainstem.writers.write_spec import DELETE_PARTITION, INSERT_OVERWRITE_TABLE, OF_BASE_FILES, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_RETRYABLE = (Unavailable, LockUnavailable, LeaseLost, RolledBack, OutcomeUnknown)
_RESULT = "result"
_BUCKET = "_mainstem_bucket"
# Without a shuffle every task writes its own file per bucket; above this number of tasks a shuffle pays off.
_SHUFFLE_ABOVE_TASKS = 8

# In place of a size: the result is an error.
_REFUSED = -1

RowStep = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The rows to write, of those that a statement's plan made; raises if they cannot be (``row_actions``)"""
OnOutcome = Callable[[int, Outcome], None]


def write_stream(
    df: DataFrame,
    path: str | None = None,
    *,
    options: Mapping[str, object] | None = None,
    checkpoint: str | None = None,
    trigger: str | Mapping[str, object] | None = None,
    query_name: str | None = None,
    output_mode: str = "append",
    on_outcome: OnOutcome | None = None,
) -> StreamingQuery:
    """Starts a streaming query that upserts (or deletes) every micro-batch, exactly once.

    ``options`` have Hudi's names (``docs/options.md`` lists them; ``docs/writing.md`` explains operations);
    a missing table is created from them. ``checkpoint`` is Spark's checkpoint folder, ``trigger`` a
    processing time ("1 second") or the arguments of ``DataStreamWriter.trigger`` ({"availableNow": True}).
    ``output_mode`` "update" works too, because rows replace older ones by key. ``on_outcome(batch id,
    outcome)`` is called after every batch. Table services run beside the query in this process when they are
    due, unless options switch them off (``docs/services.md``); no batch waits for them. On Spark Connect the
    server writes by ``format("mainstem")``: no ``on_outcome``, output mode append, no services beside it
    (``docs/connect.md``). Raises ``Invalid`` or ``Unsupported`` for wrong options, before the query starts.
    """
    _check_output_mode(output_mode)
    session = df.sparkSession
    below = session_options(session)
    parsed = _beside_services(WriteOptions.parse(options or {}, path=path, below=below))
    check_no_overwrite(parsed.operation, "of a stream would be done again in each batch")
    if parsed.ordinal not in (None, 0) or parsed.batch_id is not None:
        raise Invalid("write_stream numbers its one write per batch itself: drop the stream options")
    if is_connect(session):
        connect_writes.check_stream(output_mode, on_outcome)
        writer = df.writeStream.outputMode(output_mode)
    else:
        ensure_python(session)
        sink = _StreamSink(parsed, arrow_schema(df.schema, nullable=True), on_outcome)
        writer = df.writeStream.foreachBatch(sink.write).outputMode(output_mode)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if isinstance(trigger, str):
        writer = writer.trigger(processingTime=trigger)
    elif trigger is not None:
        writer = writer.trigger(**dict(trigger))
    if is_connect(session):
        return connect_writes.stream(writer, session, parsed.location.base, options or {})
    return writer.start()


def write_batch(
    df: DataFrame,
    path: str | None = None,
    *,
    options: Mapping[str, object] | None = None,
    ordinal: int | None = None,
) -> Outcome:
    """Writes a DataFrame in one commit and returns the outcome.

    Inside a ``foreachBatch`` function the write is exactly once: the guard knows the query, the batch and
    the number of this write within the batch. In a thread that the function started, pass ``ordinal`` (and
    the batch id and identifier as options), otherwise the call is refused with ``Invalid``.
    """
    given = dict(options or {})
    if ordinal is not None:
        given[ORDINAL] = ordinal
    parsed = WriteOptions.parse(given, path=path, below=session_options(df.sparkSession))
    ensure_python(df.sparkSession)
    found = in_driver(df)
    if is_connect(df.sparkSession):
        if guard_ids(found, parsed, table=parsed.location.base) is not None:
            check_no_overwrite(parsed.operation, "of a stream would be done again in each batch")
        return _with_retries(parsed, None, lambda: connect_writes.write(df, parsed))
    if found.streaming:
        parsed = _beside_services(parsed)
    table = open_for_job(parsed, arrow_schema(df.schema, nullable=True))
    return write_once(df, _Ways(table, parsed.for_table(table.config)), found)


def write_statement(df: DataFrame, table: Table, options: WriteOptions, step: RowStep) -> Outcome:
    """Writes the rows of a SQL statement, which ``step`` checks, in one commit, exactly once like
    ``write_batch``. ``options.operation`` may be one that options cannot name."""
    ensure_python(df.sparkSession)
    return write_once(df, _Ways(table, options, step), in_driver(df))


def write_statement_there(df: DataFrame, options: WriteOptions, step: RowActions) -> Outcome:
    """``write_statement`` on Spark Connect."""
    return _with_retries(options, None, lambda: connect_writes.write_statement(df, options, step))


def write_once(df: DataFrame, ways: _Ways, found: Found) -> Outcome:
    """One commit; inside a ``foreachBatch`` function under its guard."""
    parsed = ways.options
    ids = guard_ids(found, parsed, table=ways.table.path)
    if ids is None:
        return _with_retries(parsed, None, lambda: ways.write(df, None))
    check_no_overwrite(parsed.operation, "of a stream would be done again in each batch")
    return _write_counted(df, ways, ids)


def use_session(session: SparkSession) -> None:
    """Makes ``session`` the active session of the calling thread.

    Without it, ``df.write.format("mainstem")`` fails with DATA_SOURCE_NOT_FOUND in a thread that the
    program started: Spark looks for Python data sources in the thread's active session. Spark Connect needs
    none of this.
    """
    if is_connect(session):
        return
    context = session.sparkContext
    classic = getattr(context._jvm, "org.apache.spark.sql.classic.SparkSession")
    classic.setActiveSession(session._jsparkSession)


def _beside_services(options: WriteOptions) -> WriteOptions:
    """Options with table services on by default, as in Hudi's streaming sink."""
    return replace(options, passed={BESIDE_COMMITS: "ON", **options.passed})


def _check_output_mode(mode: str) -> None:
    name = mode.strip().lower()
    if name == "complete":
        raise Unsupported(
            "output mode complete would replace the whole table in every batch; use append, or"
            " update with the grouping columns as record key"
        )
    if name not in ("append", "update"):
        raise Invalid(f"output mode {mode!r}, expected append or update")


def _with_retries(
    options: WriteOptions, guard: StreamGuard | None, attempt: Callable[[], Outcome]
) -> Outcome:
    """Retries by Hudi's ``streaming.retry.count`` and ``.interval.ms``; the pause doubles each time."""
    pause = options.retry_ms / 1000
    for remaining in range(options.retries, -1, -1):
        try:
            return attempt()
        except OutcomeUnknown:
            # Only the guard can tell whether the commit succeeded; a plain write must not guess.
            if not remaining or guard is None:
                raise
        except _RETRYABLE:
            if not remaining:
                raise
        time.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


def _write_counted(df: DataFrame, ways: _Ways, ids: GuardIds) -> Outcome:
    """One of possibly several writes of a micro-batch; its ordinal is counted in storage."""
    seams = ways.table.opened.seams
    random = seams.random
    if not ids.run:  # all ids were given as options: nothing to count
        assert ids.ordinal is not None
        guard = StreamGuard(ids.identifier, ids.batch_id, ids.ordinal)
        return _with_retries(ways.options, guard, lambda: ways.write(df, guard))
    what = StreamWrite(
        ids.identifier,
        ids.query,
        ids.batch_id,
        ids.run,
        f"{random.getrandbits(64):016x}",
        looks(ways.options.operation, list(df.columns)),
    )
    now_ms = time.time_ns() // 1_000_000
    ordinal = allocate(seams.storage, random, what, ordinal=ids.ordinal, started_ms=now_ms)
    guard = StreamGuard(ids.identifier, ids.batch_id, ordinal)
    ended = False
    try:
        outcome = _with_retries(ways.options, guard, lambda: ways.write(df, guard))
        ended = True
        return outcome
    finally:
        finish(seams.storage, random, what, ok=ended, now_ms=time.time_ns() // 1_000_000)


class _StreamSink:
    """The function of ``foreachBatch``; one write per batch, so its ordinal is always 0."""

    def __init__(self, options: WriteOptions, schema: pa.Schema, on_outcome: OnOutcome | None) -> None:
        table = open_for_job(options, schema)
        self._options = options = options.for_table(table.config)
        self._schema = schema
        self._on_outcome = on_outcome
        self._ways = _Ways(table, options)
        # A wrong option or an unwritable table shows before the query starts.
        self._ways.table.writer_context()
        self._claimed: str | None = None

    def write(self, df: DataFrame, batch_id: int) -> None:
        guard = self._guard(df, batch_id)
        outcome = _with_retries(self._options, guard, lambda: self._once(df, guard))
        if self._on_outcome is not None:
            self._on_outcome(batch_id, outcome)

    def _guard(self, df: DataFrame, batch_id: int) -> StreamGuard | None:
        if not self._options.guarded:
            return None
        ids = in_driver(df).ids
        query = ids.query if ids else ""
        identifier = self._options.identifier or query
        if not identifier:
            raise Invalid(
                f"the id of the streaming query is not known here: give {IDENTIFIER}",
                table=self._ways.table.path,
            )
        if self._claimed != identifier:
            seams = self._ways.table.opened.seams
            claim(seams.storage, seams.random, identifier, query)
            self._claimed = identifier
        return StreamGuard(identifier, batch_id, 0)

    def _once(self, df: DataFrame, guard: StreamGuard | None) -> Outcome:
        try:
            return self._ways.write(df, guard)
        except Invalid:
            # The table's properties may have changed since it was opened: reload once, else re-raise.
            again = _Ways(open_or_create(self._options, self._schema), self._options)
            if not self._ways.table.config.changed(again.table.config):
                raise
            self._ways = again
            return self._ways.write(df, guard)


# Rows and bytes of the last batch per table: only a hint for choosing how to write the next one.
_last_batch: dict[str, tuple[int, int]] = {}


class _Ways:
    """Chooses between driver and executors by the size of the previous batch."""

    def __init__(self, table: Table, options: WriteOptions, step: RowStep | None = None) -> None:
        self.table = table
        self.options = options
        #: makes the rows of the frame those that are written; sees all rows of a key together
        self.step = step

    def write(self, df: DataFrame, guard: StreamGuard | None) -> Outcome:
        if self.options.operation == DELETE_PARTITION:
            return self.table.delete_partition(*self.options.partitions)
        with self._named(df, "collect rows"):
            rows = self._through_driver(df)
        if rows is None:
            return self._on_executors(df, guard)
        _last_batch[self.table.path] = (rows.num_rows, rows.nbytes)
        if rows.num_rows == 0 and self.options.operation != INSERT_OVERWRITE_TABLE:
            return Outcome(EMPTY)
        with self.table.begin(self.options.operation, guard=guard) as txn:
            if not txn.already_committed:
                txn.declare(arrow_schema(df.schema, nullable=True))  # Spark's Arrow rows do not say VECTOR
                txn.write(rows if self.step is None else self._stepped(rows))
            return txn.commit()

    def _named(self, df: DataFrame, step: str) -> AbstractContextManager[None]:
        """Jobs of the block are called so in Spark's UI."""
        called = f"{self.options.operation} into {self.table.path}: {step}"
        return described(df.sparkSession.sparkContext, called)

    def _stepped(self, rows: pa.Table) -> pa.Table:
        assert self.step is not None
        return pa.Table.from_batches(self.step(rows.to_batches()))

    def _through_driver(self, df: DataFrame) -> pa.Table | None:
        """The whole batch if it is small, else None. The first batch is collected up to the row limit."""
        rows_max, bytes_max = self.options.driver_rows, self.options.driver_bytes
        if rows_max == 0 or bytes_max == 0:
            return None
        last = _last_batch.get(self.table.path)
        if last is None:
            tried = df.limit(rows_max + 1).toArrow()
            return tried if tried.num_rows <= rows_max else None
        if last[0] > rows_max or last[1] > bytes_max:
            return None
        try:
            return df.toArrow()
        except Exception as error:
            if "maxResultSize" in str(error) or "MAX_RESULT_SIZE" in str(error):
                return None  # a burst too large for the driver
            raise

    def _on_executors(self, df: DataFrame, guard: StreamGuard | None) -> Outcome:
        begun = self.table.begin(self.options.operation, guard=guard)
        with looking_in_tasks(self.table, df.sparkSession), begun as txn:
            if txn.already_committed:
                return txn.commit()
            txn.declare(arrow_schema(df.drop(_BUCKET).schema, nullable=True))
            files = "base files" if self.options.operation in OF_BASE_FILES else "log files"
            with self._named(df, f"write {files}"):
                sent_bytes = self._run_tasks(df, txn)
            outcome = txn.commit()
        _last_batch[self.table.path] = (outcome.rows, sent_bytes)
        return outcome

    def _run_tasks(self, df: DataFrame, txn: Transaction) -> int:
        spec = txn.task_spec()
        placed = self._by_bucket(df, spec)
        task = _task_function(spec, self.step)
        results = placed.mapInArrow(task, f"{_RESULT} binary, bytes bigint").collect()
        for result in results:
            if result[1] == _REFUSED:
                raise pickle.loads(bytes(result[0]))
        for result in results:
            txn.add_task_result(bytes(result[0]))
        return sum(result[1] for result in results)

    def _by_bucket(self, df: DataFrame, spec: WriteSpec) -> DataFrame:
        """Shuffles the rows of each bucket into one task if many tasks would write many small files."""
        if self.step is not None:
            return _by_key(df, spec) if spec.placed_at_commit else by_bucket(df, spec)
        if self.options.shuffle == "OFF" or _BUCKET in df.columns or spec.placed_at_commit:
            return df
        few = _tasks(df) <= _SHUFFLE_ABOVE_TASKS
        # Only one base file per bucket may be written, however many tasks there are.
        if self.options.shuffle == "AUTO" and few and self.options.operation not in OF_BASE_FILES:
            return df
        return by_bucket(df, spec)


def _tasks(df: DataFrame) -> int:
    try:
        return df._jdf.queryExecution().toRdd().getNumPartitions()
    except Exception:
        return 1


def by_bucket(df: DataFrame, spec: WriteSpec, tasks: int | None = None) -> DataFrame:
    """The same rows, with all rows of a bucket in one task (Hudi's ``BucketIndexPartitioner``).

    Spark's own ``repartition`` hashes differently from Hudi, so the target task is computed per
    batch and passed to ``repartitionById``.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    session = df.sparkSession
    cores = session.sparkContext.defaultParallelism if tasks is None else tasks
    most = spec.buckets if spec.bucket_rules is None else spec.bucket_rules.most
    count = max(1, min(most, cores))
    schema = T.StructType([*df.schema.fields, T.StructField(_BUCKET, T.IntegerType(), False)])
    marked = df.mapInArrow(_bucket_function(spec, count), schema)
    return marked.repartitionById(count, F.col(_BUCKET)).drop(_BUCKET)


def _by_key(df: DataFrame, spec: WriteSpec) -> DataFrame:
    """The same rows, with all rows of a key in one task."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if spec.keys.made_up:  # new rows have no key yet, and meet no other
        nested = (T.MapType, T.StructType, T.ArrayType)
        plain = [field.name for field in df.schema if not isinstance(field.dataType, nested)]
        spread = F.xxhash64(*(F.col(f"`{name}`") for name in plain)).cast("string")
        return df.repartition(F.coalesce(F.col(KEY_COLUMN), spread))
    return df.repartition(*(F.col(f"`{name}`") for name in spec.keys.key_fields))


def _task_function(
    spec: WriteSpec, step: RowStep | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from mainstem.spark.tasks import write_partition

        try:
            result, size = write_partition(spec, batches if step is None else step(batches))
        except MainstemError as error:
            if step is None:
                raise
            # Another attempt would be refused as well, and Spark would bury the sentence in tracebacks.
            result, size = pickle.dumps(error), _REFUSED
        yield pa.record_batch({_RESULT: pa.array([result], pa.binary()), "bytes": pa.array([size])})

    return write


def _bucket_function(
    spec: WriteSpec, tasks: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def mark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from mainstem.spark.tasks import bucket_numbers

        for batch in batches:
            numbers = pa.array(bucket_numbers(spec, batch) % tasks, pa.int32())
            names = [*batch.schema.names, _BUCKET]
            yield pa.RecordBatch.from_arrays([*batch.columns, numbers], names=names)

    return mark
