"""``format("mainstem")`` (and ``format("hudi")``): a Python data source for reads and writes, in batches
and as streams, on Arrow.

``docs/limits.md`` lists what Spark's Python data sources cannot do: no column pruning (use
``option("columns", "a,b")``), no shuffle before the write, no MERGE, UPDATE or DELETE (``sql_statements`` has
them), and catalog tables lose their path.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mainstem.api.given_options import check_no_overwrite
from mainstem.api.job_table import open_for_job, open_or_create
from mainstem.errors import Invalid, Unsupported
from mainstem.options.services import BESIDE_COMMITS
from mainstem.spark.batch_ids import guard_ids, in_task, looks
from mainstem.spark.jobs import SharedJob, job_name
from mainstem.spark.options import ReadOptions, WriteOptions
from mainstem.spark.session_options import session_options
from mainstem.spark.source_readers import Reader, StreamReader, schema_of
from mainstem.spark.types import arrow_schema, spark_schema
from mainstem.storage.location import unveiled, veiled
from mainstem.writers.outcome import Outcome
from mainstem.writers.write_spec import DELETE_PARTITION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers ``format("mainstem")``, ``format("hudi")`` and ``format("org.apache.hudi")`` in a session.

    A jar of Hudi keeps its names: Spark looks on its class path first. Raises ``Invalid`` if a cluster's
    Python workers would run another interpreter.
    """
    from mainstem.spark.told_first import tell_first
    from mainstem.spark.worker_repairs import ensure_python

    ensure_python(spark)
    tell_first()
    below = session_options(spark)
    spark.dataSource.register(with_options(MainstemSource, below))
    try:
        for source in (HudiSource, ApacheHudiSource):
            spark.dataSource.register(with_options(source, below))
    except Exception as error:  # Java Hudi is on the class path and keeps its names
        warnings.warn(
            f'format("hudi") stays another source ({str(error)[:200]}); use format("mainstem")',
            stacklevel=2,
        )


def with_options(source: type[MainstemSource], below: Mapping[str, str]) -> type[MainstemSource]:
    """The same data source with a session's options. A class that no module has is pickled as a whole."""
    return type(source.__name__, (source,), {"below": _Veiled(below)}) if below else source


class _Veiled(dict[str, str]):
    """Options among which may be secrets, which a pickle does not show."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unveiled, (veiled(self.items()),)


def _unveiled(made: bytes) -> _Veiled:
    return _Veiled(unveiled(made))


_AGAIN = "of a stream would be done again in each batch"
_SESSION_MODE = "spark.sql.sources.partitionOverwriteMode"


class MainstemSource(DataSource):
    """The data source. Its options are ``path`` and Hudi's own option names."""

    #: options of stores of the session in which it was registered
    below: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def name(cls) -> str:
        """``mainstem``."""
        return "mainstem"

    def schema(self) -> StructType:
        """Hudi's five meta columns and the table's columns, or those of option ``columns``; for change
        data ``op``, ``ts_ms``, ``before`` and ``after``."""
        return spark_schema(schema_of(ReadOptions.parse(dict(self.options), lenient=True, below=self.below)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """One Spark partition per file slice."""
        return Reader(ReadOptions.parse(dict(self.options), below=self.below), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A batch write. Mode append does what the operation says (upsert by key); mode overwrite hides all
        older rows of the table, or of the partitions of the rows, and keeps the table and its history."""
        options = without_a_thread(WriteOptions.parse(dict(self.options), below=self.below))
        if overwrite:
            options.overwriting(None, partitioned=False)  # refuses what cannot be
        open_for_job(options, arrow_schema(schema, nullable=True)).writer_context()
        if options.operation == DELETE_PARTITION:
            return _PartitionDeleter(options, schema)
        return _BatchWriter(options, schema, uuid.uuid4().hex, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """A streaming write; output mode append only."""
        if overwrite:
            raise Unsupported(
                "output mode complete is not supported: it would replace the whole table in every"
                " batch; use append, or write_stream with output mode update"
            )
        options = without_a_thread(WriteOptions.parse(dict(self.options), below=self.below))
        check_no_overwrite(options.operation, _AGAIN)
        open_for_job(options, arrow_schema(schema, nullable=True))
        return _StreamWriter(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Changes by completion time; one Spark partition per file slice."""
        return StreamReader(ReadOptions.parse(dict(self.options), lenient=True, below=self.below), schema)


class HudiSource(MainstemSource):
    """The same under Hudi's name, for jobs that cannot be changed."""

    @classmethod
    def name(cls) -> str:
        """``hudi``."""
        return "hudi"


class ApacheHudiSource(MainstemSource):
    """The same under the other name that Hudi's jobs use."""

    @classmethod
    def name(cls) -> str:
        """``org.apache.hudi``."""
        return "org.apache.hudi"


# ---------------------------------------------------------------------------------------- writing


@dataclass
class Written(WriterCommitMessage):
    """One task's part: the job it belongs to, its operation, and ``write_task``'s result, None without
    rows."""

    job: str
    operation: str
    result: bytes | None


def write_part(
    options: WriteOptions,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    job: str | None,
    overwrite: bool = False,
) -> Written:
    """Runs one task of a batch write (``job`` given) or of a streaming write (``job`` None: named by query,
    run and batch). ``overwrite``: in Spark's mode of that name."""
    from pyspark import TaskContext

    from mainstem.spark.tasks import write_partition

    context = TaskContext.get()
    assert context is not None, "a data source writes inside Spark tasks"
    table = open_or_create(options, schema)
    options = options.for_table(table.config)
    if overwrite:
        partitioned = bool(table.config.partition_fields)
        options = options.overwriting(context.getLocalProperty(_SESSION_MODE), partitioned=partitioned)
    ids = guard_ids(in_task(context), options, table=table.path)
    if ids is not None:
        check_no_overwrite(options.operation, _AGAIN)
    streaming = job is None
    if job is None:
        found = in_task(context).ids
        if found is None:
            raise Invalid(
                "this streaming write does not know its query and batch id; use mainstem.spark.write_stream",
                table=table.path,
            )
        job = job_name(f"{found.query}/{found.run}/{found.batch_id}")
    shared = SharedJob(table, options, job)
    names = looks(options.operation, schema.names)
    state = shared.enter(ids, counted=not streaming, looks=names)
    with shared.alive():
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None or state.ended:
            return Written(job, options.operation, None)
        state = shared.begin(schema)
        if state.spec is None:  # committed by an earlier run of this batch
            return Written(job, options.operation, None)
        result, _ = write_partition(state.spec, chain([first], batches))
    return Written(job, options.operation, result)


def without_a_thread(options: WriteOptions) -> WriteOptions:
    """A worker that commits may end at once: services beside its commits would hold it up."""
    return replace(options, passed={BESIDE_COMMITS: "OFF", **options.passed})


def publish(
    options: WriteOptions, schema: pa.Schema, messages: Sequence[Written | None], job: str | None
) -> Outcome | None:
    """Commits what the tasks of a job wrote. None if they had no rows."""
    done = [m for m in messages if m is not None]
    name = job or next((m.job for m in done), None)
    if name is None:
        return None  # no task ran: an empty batch publishes nothing
    if done:
        options = replace(options, operation=done[0].operation)
    shared = SharedJob(open_or_create(options, schema), options, name)
    return shared.commit([m.result for m in done if m.result is not None])


def undo(
    options: WriteOptions, schema: pa.Schema, messages: Sequence[Written | None], job: str | None
) -> None:
    """Aborts what the tasks of a job wrote."""
    name = job or next((m.job for m in messages if m is not None), None)
    if name is not None:
        SharedJob(open_or_create(options, schema), options, name).abort()


class _BatchWriter(DataSourceArrowWriter):
    """Pickled to the tasks and to the commit worker, so that all of them share one job name."""

    def __init__(self, options: WriteOptions, schema: StructType, job: str, overwrite: bool) -> None:
        self._options = options
        self._schema = arrow_schema(schema, nullable=True)
        self._job = job_name(job)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_part(self._options, self._schema, iterator, self._job, self._overwrite)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        publish(self._options, self._schema, messages, self._job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        undo(self._options, self._schema, messages, self._job)


class _PartitionDeleter(DataSourceArrowWriter):
    """``delete_partition``: the partitions are named in the options, and rows are left alone, as in Hudi."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema, nullable=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a data source writes inside Spark tasks"
        if guard_ids(in_task(context), self._options, table=self._options.location.base) is not None:
            check_no_overwrite(self._options.operation, _AGAIN)
        return Written("", self._options.operation, None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        open_or_create(self._options, self._schema).delete_partition(*self._options.partitions)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        return


class _StreamWriter(DataSourceStreamArrowWriter):
    """Created anew in the planner and for every commit; only the tasks' messages connect the two."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema, nullable=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_part(self._options, self._schema, iterator, None)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        publish(self._options, self._schema, messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        undo(self._options, self._schema, messages, None)
