"""``write_stream`` and ``write_batch``: a DataFrame into a table, in one commit per micro-batch or
call.

Two ways lead to the same files. A small batch comes to the driver as Arrow (no Python workers, no
shuffle: a third of the latency); a large one is written by the executors, each task into its own
log files, and only the write stats come back. Either way the driver begins and commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.api.job_table import open_for_job, open_or_create
from mainstem.api.table import Table
from mainstem.errors import (
    Invalid,
    LeaseLost,
    LockUnavailable,
    OutcomeUnknown,
    RolledBack,
    Unavailable,
    Unsupported,
)
from mainstem.options import SERVICES_AUTOMATIC
from mainstem.options.engines import IDENTIFIER, ORDINAL
from mainstem.spark.batch_ids import GuardIds, guard_ids, in_driver, looks
from mainstem.spark.options import WriteOptions
from mainstem.spark.types import arrow_schema
from mainstem.spark.worker_repairs import ensure_python
from mainstem.writers.outcome import EMPTY, Outcome
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.transaction import Transaction
from mainstem.writers.write_ordinals import StreamWrite, allocate, claim, finish
from mainstem.writers.write_spec import BULK_INSERT, WriteSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_RETRYABLE = (Unavailable, LockUnavailable, LeaseLost, RolledBack, OutcomeUnknown)
_RESULT = "result"
_BUCKET = "_mainstem_bucket"
# Without a shuffle every task writes its own file per bucket; from so many tasks on one is worth
# it.
_SHUFFLE_ABOVE_TASKS = 8

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
    """Start a streaming query that upserts (or deletes) every micro-batch, exactly once.

    ``options`` carry Hudi's names (README lists them); a missing table is created from them.
    ``checkpoint`` is Spark's checkpoint folder, ``trigger`` a processing time ("1 second") or the
    arguments of ``DataStreamWriter.trigger`` ({"availableNow": True}). ``output_mode`` "update" is
    fine here, since rows replace older ones by key. ``on_outcome(batch id, outcome)`` is called
    after every batch. Table services run beside the query in this process, where they are due, unless
    options switch them off (``docs/services.md``); no batch waits for them. Raises ``Invalid`` or
    ``Unsupported`` before the query starts for wrong options.
    """
    _check_output_mode(output_mode)
    parsed = _beside_services(WriteOptions.parse(options or {}, path=path))
    if parsed.ordinal not in (None, 0) or parsed.batch_id is not None:
        raise Invalid("write_stream numbers its one write per batch itself: drop the stream options")
    session = df.sparkSession
    _check_classic(session)
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
    return writer.start()


def write_batch(
    df: DataFrame,
    path: str | None = None,
    *,
    options: Mapping[str, object] | None = None,
    ordinal: int | None = None,
) -> Outcome:
    """Write a DataFrame in one commit and return what became of it.

    Inside a ``foreachBatch`` function it is exactly once: the guard knows query, batch and which
    write of the batch this is. From a thread of the user's own ``ordinal`` must be given (and the
    batch id and identifier, as options), else the call is refused.
    """
    given = dict(options or {})
    if ordinal is not None:
        given[ORDINAL] = ordinal
    parsed = WriteOptions.parse(given, path=path)
    ensure_python(df.sparkSession)
    found = in_driver(df)
    if found.streaming:
        parsed = _beside_services(parsed)
    table = open_for_job(parsed, arrow_schema(df.schema, nullable=True))
    ids = guard_ids(found, parsed, table=table.path)
    ways = _Ways(table, parsed)
    if ids is None:
        return _with_retries(parsed, None, lambda: ways.write(df, None))
    return _write_counted(df, ways, ids)


def use_session(session: SparkSession) -> None:
    """Make ``session`` the active one of the calling thread.

    ``df.write.format("mainstem")`` in a thread that the program started itself fails in Spark with
    DATA_SOURCE_NOT_FOUND, because Spark looks for Python data sources in the thread's active
    session.
    """
    context = session.sparkContext
    classic = getattr(context._jvm, "org.apache.spark.sql.classic.SparkSession")
    classic.setActiveSession(session._jsparkSession)


def _beside_services(options: WriteOptions) -> WriteOptions:
    """As in Hudi's streaming sink, services run beside a stream unless they are switched off."""
    return replace(options, passed={SERVICES_AUTOMATIC: "true", **options.passed})


def _check_output_mode(mode: str) -> None:
    name = mode.strip().lower()
    if name == "complete":
        raise Unsupported(
            "output mode complete would replace the whole table in every batch; use append, or"
            " update with the grouping columns as record key"
        )
    if name not in ("append", "update"):
        raise Invalid(f"output mode {mode!r}, expected append or update")


def _check_classic(session: SparkSession) -> None:
    try:
        found = session.sparkContext
    except Exception:
        found = None
    if found is None:
        raise Unsupported(
            "write_stream commits in the driver process, which Spark Connect keeps on the server; use"
            ' df.writeStream.format("mainstem")'
        )


def _with_retries(
    options: WriteOptions, guard: StreamGuard | None, attempt: Callable[[], Outcome]
) -> Outcome:
    """Hudi's ``streaming.retry.count`` and ``.interval.ms``, doubled each time."""
    pause = options.retry_ms / 1000
    for remaining in range(options.retries, -1, -1):
        try:
            return attempt()
        except OutcomeUnknown:
            # Only the guard can tell whether the commit stands; a plain write must not guess.
            if not remaining or guard is None:
                raise
        except _RETRYABLE:
            if not remaining:
                raise
        time.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


def _write_counted(df: DataFrame, ways: _Ways, ids: GuardIds) -> Outcome:
    """One of perhaps several writes of a micro-batch: its ordinal is counted in storage."""
    seams = ways.table.opened.seams
    random = seams.random
    if not ids.run:  # everything was given by hand: there is nothing to count
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
        self._options = options
        self._schema = schema
        self._on_outcome = on_outcome
        self._ways = _Ways(open_for_job(options, schema), options)
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
                "the id of the streaming query is not known here (Spark Connect?): give"
                f" {IDENTIFIER}",
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
            # Perhaps the table's properties changed since it was opened: look once, else it stands.
            again = _Ways(open_or_create(self._options, self._schema), self._options)
            if not self._ways.table.config.changed(again.table.config):
                raise
            self._ways = again
            return self._ways.write(df, guard)


# Rows and bytes of the last batch per table: a hint for the next one, nothing depends on it.
_last_batch: dict[str, tuple[int, int]] = {}


class _Ways:
    """Chooses between driver and executors, and learns from batch to batch."""

    def __init__(self, table: Table, options: WriteOptions) -> None:
        self.table = table
        self.options = options

    def write(self, df: DataFrame, guard: StreamGuard | None) -> Outcome:
        rows = self._through_driver(df)
        if rows is None:
            return self._on_executors(df, guard)
        _last_batch[self.table.path] = (rows.num_rows, rows.nbytes)
        if rows.num_rows == 0:
            return Outcome(EMPTY)
        with self.table.begin(self.options.operation, guard=guard) as txn:
            if not txn.already_committed:
                txn.declare(arrow_schema(df.schema, nullable=True))  # Spark's Arrow rows do not say VECTOR
                txn.write(rows)
            return txn.commit()

    def _through_driver(self, df: DataFrame) -> pa.Table | None:
        """The whole batch if it is small, else None. A first batch is tried up to the limit."""
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
                return None  # a burst: the driver would not hold it
            raise

    def _on_executors(self, df: DataFrame, guard: StreamGuard | None) -> Outcome:
        with self.table.begin(self.options.operation, guard=guard) as txn:
            if txn.already_committed:
                return txn.commit()
            txn.declare(arrow_schema(df.drop(_BUCKET).schema, nullable=True))
            sent_bytes = self._run_tasks(df, txn)
            outcome = txn.commit()
        _last_batch[self.table.path] = (outcome.rows, sent_bytes)
        return outcome

    def _run_tasks(self, df: DataFrame, txn: Transaction) -> int:
        spec = txn.task_spec()
        placed = self._by_bucket(df, spec)
        results = placed.mapInArrow(_task_function(spec), f"{_RESULT} binary, bytes bigint").collect()
        for result in results:
            txn.add_task_result(bytes(result[0]))
        return sum(result[1] for result in results)

    def _by_bucket(self, df: DataFrame, spec: WriteSpec) -> DataFrame:
        """Rows of one bucket in one task, where there are so many tasks that files would be
        many."""
        if self.options.shuffle == "OFF" or _BUCKET in df.columns:
            return df
        few = _tasks(df) <= _SHUFFLE_ABOVE_TASKS
        # A bulk insert may write one base file per bucket only, whatever the number of tasks.
        if self.options.shuffle == "AUTO" and few and self.options.operation != BULK_INSERT:
            return df
        return by_bucket(df, spec)


def _tasks(df: DataFrame) -> int:
    try:
        return df._jdf.queryExecution().toRdd().getNumPartitions()
    except Exception:
        return 1


def by_bucket(df: DataFrame, spec: WriteSpec, tasks: int | None = None) -> DataFrame:
    """The same rows, those of one bucket in one task (Hudi's ``BucketIndexPartitioner``).

    Spark's own ``repartition`` hashes differently from Hudi, so the target task is computed per
    batch and given to ``repartitionById``.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    session = df.sparkSession
    cores = session.sparkContext.defaultParallelism if tasks is None else tasks
    count = max(1, min(spec.buckets, cores))
    schema = T.StructType([*df.schema.fields, T.StructField(_BUCKET, T.IntegerType(), False)])
    marked = df.mapInArrow(_bucket_function(spec, count), schema)
    return marked.repartitionById(count, F.col(_BUCKET)).drop(_BUCKET)


def _task_function(
    spec: WriteSpec,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from mainstem.spark.tasks import write_partition

        result, size = write_partition(spec, batches)
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
