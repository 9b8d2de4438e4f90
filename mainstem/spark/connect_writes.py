"""Writes of a Spark Connect session: on the server, as ``format("mainstem")`` writes, with an outcome.

    1. One task opens the table, or makes it.
    2. The frame's tasks write log files; the first begins the transaction, and all keep it alive (``jobs``).
    3. One task commits and tells the outcome, or aborts.

The client touches no storage: it may be out of its reach, or the same path may be another folder there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.job_table import open_for_job, open_or_create
from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, Unsupported
from mainstem.spark.in_tasks import ANSWER, answered, answers, lacks_us, on_server, told
from mainstem.spark.jobs import job_name
from mainstem.spark.options import WriteOptions
from mainstem.spark.pushed_down import quoted
from mainstem.spark.row_actions import ACTION, RowActions
from mainstem.spark.session_options import session_options
from mainstem.spark.source import (
    MainstemSource,
    Written,
    publish,
    undo,
    with_options,
    without_a_thread,
    write_part,
)
from mainstem.spark.types import arrow_schema
from mainstem.writers.outcome import EMPTY, Outcome
from mainstem.writers.write_spec import BULK_INSERT, DELETE_PARTITION, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def write(df: DataFrame, options: WriteOptions) -> Outcome:
    """One commit of a frame of Spark Connect."""
    session = df.sparkSession
    options = without_a_thread(options)
    schema = arrow_schema(df.schema, nullable=True)
    on_server(session, partial(_open, options, schema))
    if options.operation == DELETE_PARTITION:
        return on_server(session, partial(_drop_partitions, options, schema), OutcomeUnknown)
    if options.operation == BULK_INSERT:
        df = df.coalesce(1)  # a bucket gets one base file
    return _written(df, options, schema, None)


def _written(
    df: DataFrame, options: WriteOptions, schema: pa.Schema, step: RowActions | None
) -> Outcome:
    session, job = df.sparkSession, job_name(uuid.uuid4().hex)
    task = _task(options, schema, job, step)
    try:
        parts = answers(df.mapInArrow(task, ANSWER), lost=None)
    except Exception:
        with suppress(MainstemError):  # its heartbeat ends anyway
            on_server(session, partial(undo, options, schema, [], job))
        raise
    outcome = on_server(session, partial(_commit, options, schema, parts, job), OutcomeUnknown)
    return Outcome(EMPTY) if outcome is None else outcome


def write_statement(df: DataFrame, options: WriteOptions, step: RowActions) -> Outcome:
    """One commit of the rows of a DELETE, UPDATE or MERGE, which ``step`` checks: all rows of a key together,
    so in one task."""
    from pyspark.sql import functions as F

    options = without_a_thread(options)
    schema = arrow_schema(df.drop(ACTION).schema, nullable=True)
    return _written(df.repartition(*(F.col(quoted(name)) for name in step.key)), options, schema, step)


def stream(
    writer: Any, session: SparkSession, path: str, options: Mapping[str, object]
) -> StreamingQuery:
    """Starts a query of Spark Connect, whose batches the server writes by ``format("mainstem")``."""
    below = session_options(session)
    if below:
        session.dataSource.register(with_options(MainstemSource, below))
    given = {name: str(value) for name, value in options.items() if value is not None}
    try:
        return writer.format(MainstemSource.name()).options(**given).start(path)
    except Exception as error:
        if not lacks_us(error):
            raise
        raise told(error) from error


def check_stream(output_mode: str, on_outcome: object) -> None:
    """Raises for what a query of Spark Connect cannot have."""
    if output_mode.strip().lower() != "append":
        raise Unsupported(
            "Spark Connect writes streams by the data source, which Spark gives output mode append only: use"
            " append, or a classic session"
        )
    if on_outcome is not None:
        raise Invalid(
            "on_outcome is called in the driver's process, which Spark Connect keeps on the server: leave it"
            " out; query.lastProgress and mainstem.spark.stream_metrics tell of the batches"
        )


def _open(options: WriteOptions, schema: pa.Schema) -> None:
    open_for_job(options, schema).writer_context()


def _commit(
    options: WriteOptions, schema: pa.Schema, parts: Sequence[Written], job: str
) -> Outcome | None:
    if options.operation == INSERT_OVERWRITE_TABLE and not any(part.result for part in parts):
        _check_first()  # no transaction tells whether it was done
    return publish(options, schema, parts, job)


def _check_first() -> None:
    """Raises ``OutcomeUnknown`` in a second attempt of a task: the first may have hidden all rows, and others
    may have written since."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise OutcomeUnknown("the server ran this task before, perhaps to its end; look at the timeline")


def _drop_partitions(options: WriteOptions, schema: pa.Schema) -> Outcome:
    _check_first()
    return open_or_create(options, schema).delete_partition(*options.partitions)


def _task(
    options: WriteOptions, schema: pa.Schema, job: str, step: RowActions | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = batches if step is None else step(batches)
        yield answered(lambda: write_part(options, schema, rows, job))

    return task
