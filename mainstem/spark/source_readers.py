"""Reading from Spark: batches and micro-batches, one Spark partition per file slice.

A stream's offsets are completion times: a batch holds the changes of instants that completed in (start, end].
So an instant that completes late belongs to a later batch, whenever it was requested, and is never missed
(as in Hudi's HoodieStreamSourceV2). A replayed batch reads the same range again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from mainstem.api.table import open_table
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.filters.conditions import conditions
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.properties import load_config
from mainstem.options.reading import AS_OF, BEGIN, END, QUERY_TYPE, START_OFFSET
from mainstem.readers.changes.commit_range import write_times
from mainstem.readers.planning.explain import Explanation
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import VANISHED, ReadableSplit, ScanPlan
from mainstem.spark.options import CDC, FILTER, INCREMENTAL, ReadOptions
from mainstem.spark.types import arrow_schema, fit_for_spark
from mainstem.storage.backends import storage_of

try:  # Spark 4.2 and newer
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1 always reads everything available
    ReadAllAvailable = ReadLimit = ReadMaxFiles = None
    SupportsTriggerAvailableNow = object

EARLIEST, LATEST = "earliest", "latest"
#: Before every completion time, as Hudi writes it.
BEGINNING = "000"
_AT = "completion"


def plan_of(options: ReadOptions) -> ScanPlan:
    """The query of a batch read."""
    if options.query_type == INCREMENTAL:
        after = None if options.begin == "0" else options.begin
        return changes_of(options, after, options.end)
    table = open_table(options.location, properties=options.passed)
    columns = list(options.columns) if options.columns else None
    mode = options.query_type.lower()
    return table.scan(
        columns=columns,
        as_of=options.as_of,
        as_of_completion=options.as_of_completion,
        mode=mode,
        filter=filter_of(options, table.schema),
    )


def explain(path: str, **options: object) -> Explanation:
    """Which files ``spark.read`` with these options skips, and by which index; reads no rows and needs no
    session. ``options`` are those of a batch read: ``explain("/data/trips", filter="fare > 90")``."""
    return plan_of(ReadOptions.parse({**options, "path": path})).explain()


def filter_of(options: ReadOptions, schema: pa.Schema) -> pc.Expression | None:
    """The filter of ``option("filter", ...)``; Spark's own filters cannot be used (see ``Reader``)."""
    if options.filter is None:
        return None
    meta = [pa.field(name, pa.string()) for name in META_FIELDS]
    return conditions(options.filter, pa.schema([*meta, *schema]), f'option("{FILTER}")')


def schema_of(options: ReadOptions) -> pa.Schema:
    """Columns of a read, batch or stream."""
    changes = options.query_type == INCREMENTAL or options.change_format == CDC or options.deletes
    plan = changes_of(options, None, None) if changes else plan_of(options)
    return plan.schema


def changes_of(options: ReadOptions, after: str | None, until: str | None) -> ScanPlan:
    """The changes within a range of completion times, in the format that the options name."""
    table = open_table(options.location, properties=options.passed)
    columns = list(options.columns) if options.columns else None
    if options.change_format == CDC:
        return table.changes(after, until, columns=columns, mode="cdc", images=options.images)
    kept = filter_of(options, table.schema)
    return table.changes(after, until, columns=columns, deletes=options.deletes, filter=kept)


@dataclass
class SplitPartition(InputPartition):
    """One file slice of a query."""

    split: ReadableSplit

    def __init__(self, split: ReadableSplit) -> None:
        super().__init__(split)
        self.split = split


class Reader(DataSourceReader):
    """A batch query. It has no ``pushFilters``: Spark 4.1 to 4.3 reuse the partitions that they planned with
    one query's filters for all queries of the same DataFrame or view, which would then miss rows. They also
    refuse a source with ``pushFilters`` if ``spark.sql.python.filterPushdown.enabled`` is off."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [SplitPartition(split) for split in plan_of(self._options).splits()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self._options, partition, self._schema)


def rows_of(options: ReadOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a file slice in batches of Spark's types. If a query has no partitions, Spark passes one of its
    own, which has no rows. Raises ``Unavailable`` if a clean removed a file since the query was planned."""
    if not isinstance(partition, SplitPartition):
        return
    try:
        for table in partition.split.read(storage_of(options.location)):
            yield from fit_for_spark(table, schema)
    except FileNotFoundError as error:
        raise Unavailable(VANISHED.format(error=error), table=options.location.base) from error


def check_stream(options: ReadOptions) -> None:
    """Raises ``Invalid`` or ``Unsupported`` for options that a stream cannot follow."""
    if options.query_type == "READ_OPTIMIZED" or options.as_of or options.as_of_completion:
        raise Unsupported(
            "readStream follows the table's changes; read optimized queries and time travel are for"
            f" batch reads: leave {QUERY_TYPE} and {AS_OF} out"
        )
    if options.begin or options.end:
        raise Invalid(
            f"{BEGIN} and {END} are for batch reads; a stream begins at {START_OFFSET}=earliest, latest"
            " or a completion time"
        )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query: each micro-batch reads what completed since the previous one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_stream(options)
        self._options = options
        self._schema = arrow_schema(schema)
        self._reached: str | None = None  # end of the last batch, as far as this process knows
        self._target: str | None = None  # of Trigger.AvailableNow

    def initialOffset(self) -> dict[str, str]:
        start = self._options.start_offset
        if start.lower() == EARLIEST:
            start = BEGINNING
        elif start.lower() == LATEST:
            start = max(self._completed(), default=BEGINNING)
        self._reached = self._reached or start
        return {_AT: start}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark has no limit that counts instants, so the number is passed as a number of files."""
        most = self._options.max_instants
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = max(self._completed(), default=BEGINNING)

    def reportLatestOffset(self) -> dict[str, str] | None:
        return {_AT: max(self._completed(), default=BEGINNING)}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        after, until = start[_AT], end[_AT]
        self._reached = until
        if after > until:
            raise Invalid(
                f"the stream has read up to completion time {after}, but the table's newest is {until}: a"
                " restore removed instants. Start again with a new checkpoint",
                table=self._options.location.base,
            )
        if after == until:
            return []
        plan = changes_of(self._options, None if after == BEGINNING else after, until)
        return [SplitPartition(split) for split in plan.splits()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(self._options, partition, self._schema)

    def _completed(self) -> list[str]:
        storage = storage_of(self._options.location)
        return write_times(TableState.load(storage, load_config(storage)))

    def _end(self, start: str | None, most: int | None) -> dict[str, str]:
        found = [time for time in self._completed() if start is None or time > start]
        if self._target is not None:
            found = [time for time in found if time <= self._target]
        if not found:
            return {_AT: start or BEGINNING}
        return {_AT: found[-1 if most is None or start is None else min(most, len(found)) - 1]}

    if ReadMaxFiles is not None:

        def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
            most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            return self._end(start[_AT], most)

    else:

        def latestOffset(self) -> dict[str, str]:  # type: ignore[misc]  # the other signature of the two
            """Spark 4.1 does not pass the stream's position. After a restart it is unknown until the first
            batch, so the first batch is not limited."""
            return self._end(self._reached, self._options.max_instants)
