"""Tables in Daft: lazy frames of a pinned snapshot, and writes that tasks share and one commit shows.

    import mainstem.daft as md
    trips = md.read(table)                                   # a daft.DataFrame
    md.write(trips.where(daft.col("fare") > 20), table)      # an Outcome

``MainstemSource`` and ``MainstemSink`` are the same for ``DataSource.read`` and ``DataFrame.write_sink``.
Columns of a frame reach the files, and the parts of its filters that mean the same in Arrow; Daft applies
filters again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from daft.datatype import DataType
from daft.expressions.visitor import PredicateVisitor
from daft.io.sink import DataSink, WriteResult
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import MicroPartition, RecordBatch
from daft.schema import Schema

from mainstem import errors
from mainstem.engines.pinned import ReadTask, of_time
from mainstem.engines.pushed import TURNED, compared
from mainstem.engines.write_job import JobSink
from mainstem.errors import MainstemError
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    import daft

    from mainstem.api.table import Table
    from mainstem.writers.stream_guard import StreamGuard

# As Daft calls source and sink, in its plans and errors.
_NAME = "mainstem"

__all__ = ["MainstemSink", "MainstemSource", "read", "write"]


def read(
    table: Table,
    *,
    as_of: str | None = None,
    as_of_completion: str | None = None,
    after: str | None = None,
    until: str | None = None,
    deletes: bool = False,
) -> daft.DataFrame:
    """The table as a frame: as of now, as of a time (``Table.scan``), or what changed within (``after``,
    ``until``] (``Table.changes``). The moment is fixed here: whenever the frame runs, it is the same rows."""
    return MainstemSource(
        table, as_of=as_of, as_of_completion=as_of_completion, after=after, until=until, deletes=deletes
    ).read()


def write(
    frame: daft.DataFrame,
    table: Table,
    operation: str = "upsert",
    *,
    guard: StreamGuard | None = None,
) -> Outcome:
    """Run the frame and write its rows in one commit. ``operation``: as for ``Table.begin``, but
    ``bulk_insert``. If the frame fails nothing is visible.

    ``guard`` names this write: if a commit has it already, the frame is not run (``already_committed``).
    Raises what ``Table.upsert`` raises.
    """
    sink = MainstemSink(table, operation, guard=guard, schema=frame.schema().to_pyarrow_schema())
    if sink.committed_before():
        return sink.outcome
    try:
        frame.write_sink(sink)
    except BaseException as error:
        sink.abort()
        found = None if isinstance(error, MainstemError) else _told(str(error))
        if found is not None:
            raise found from error
        raise
    return sink.outcome


class MainstemSource(DataSource):
    """A pinned query; arguments as for ``read``."""

    def __init__(
        self,
        table: Table,
        *,
        as_of: str | None = None,
        as_of_completion: str | None = None,
        after: str | None = None,
        until: str | None = None,
        deletes: bool = False,
    ) -> None:
        self._pinned = of_time(table, as_of, as_of_completion, after, until, deletes)

    @property
    def name(self) -> str:
        """Daft's name of the source."""
        return _NAME

    @property
    def schema(self) -> Schema:
        """Schema of all columns."""
        return Schema.from_pyarrow_schema(self._pinned.schema)

    async def get_tasks(self, pushdowns: Any) -> AsyncIterator[DataSourceTask]:
        """One task per file slice."""
        columns, pushed = pushdowns.columns, None
        if not self._pinned.narrows:
            columns = None
        elif pushdowns.filters is not None:
            pushed = as_arrow(pushdowns.filters, self._pinned.schema)
            if columns is not None:  # the filter is applied again
                more = sorted(pushdowns.filter_required_column_names() - set(columns))
                columns = [*columns, *more]
        schema = Schema.from_pyarrow_schema(self._pinned.narrowed_schema(columns))
        for task in self._pinned.tasks(columns, pushed):
            yield _Slices(task, schema)


class _Slices(DataSourceTask):
    def __init__(self, task: ReadTask, schema: Schema) -> None:
        self._task = task
        self._schema = schema

    @property
    def schema(self) -> Schema:
        return self._schema

    async def read(self) -> AsyncIterator[RecordBatch]:
        tables = self._task.read()
        while (table := await asyncio.to_thread(next, tables, None)) is not None:
            for batch in table.to_batches():
                yield RecordBatch.from_arrow_record_batches([batch], batch.schema)


class MainstemSink(JobSink, DataSink[bytes]):
    """A write for ``DataFrame.write_sink``, used once. Its ``outcome`` is there afterwards.

    ``schema``: Arrow schema of the rows: columns that the table lacks are added. Daft tells a sink nothing of
    a job that failed: call ``abort`` then.
    """

    def __init__(
        self,
        table: Table,
        operation: str = "upsert",
        *,
        guard: StreamGuard | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        super().__init__(table, operation, guard)
        self._rows = schema

    def name(self) -> str:
        """Daft's name of the write."""
        return _NAME

    def committed_before(self) -> bool:
        """Begin, and tell whether a commit holds this guarded write already."""
        self.start()
        return self._task is not None and self._task.spec is None

    def schema(self) -> Schema:
        """Of the frame that ``write_sink`` returns: how the write ended."""
        return Schema._from_field_name_and_types(
            [("status", DataType.string()), ("instant", DataType.string()), ("rows", DataType.int64())]
        )

    def start(self) -> None:
        """Open the transaction."""
        if not self._own.begun:
            self._task = self._own.begin(self._rows)

    def write(self, micropartitions: Iterator[MicroPartition]) -> Iterator[WriteResult[bytes]]:
        """Write the rows of one task."""
        assert self._task is not None, "start was not called"
        rows = size = 0

        def counted() -> Iterator[pa.Table]:
            nonlocal rows, size
            for part in micropartitions:
                table = part.to_arrow()
                rows, size = rows + table.num_rows, size + table.nbytes
                yield table

        result = self._task.write(counted())
        yield WriteResult(result, size, rows)

    def finalize(self, write_results: list[WriteResult[bytes]]) -> MicroPartition:
        """Commit."""
        made = self._own.commit([written.result for written in write_results])
        return MicroPartition.from_pydict({
            "status": pa.array([made.status]), "instant": pa.array([made.instant], pa.large_string()),
            "rows": pa.array([made.rows], pa.int64()),
        })  # fmt: skip


def _told(text: str) -> MainstemError | None:
    """The error of a task, of which Daft passes on the class's name and the message."""
    found = re.findall(rf"while writing to {_NAME}: (\w+): (.*)", text)
    kind = getattr(errors, found[-1][0], None) if found else None
    if isinstance(kind, type) and issubclass(kind, MainstemError):
        return kind(found[-1][1])
    return None


# -- filters -------------------------------------------------------------------------------------------


def as_arrow(predicate: Any, schema: pa.Schema) -> pc.Expression | None:
    """A filter of Arrow's that passes at least the rows which ``predicate`` passes; None: all rows."""
    try:
        found = _Least(schema).visit(predicate)
    except Exception:  # another release's form
        return None
    return found if isinstance(found, pc.Expression) else None


class _Name(str):
    """Name of a column."""


class _Least(PredicateVisitor[Any]):
    """Gives a filter that passes at least as many rows, a ``_Name``, a literal's value in a list, or None."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def visit_col(self, name: str) -> Any:
        return _Name(name) if name in self._schema.names else None

    def visit_lit(self, value: Any) -> Any:
        return [value]

    def visit_alias(self, expr: Any, alias: str) -> Any:
        return self.visit(expr)

    def visit_and(self, left: Any, right: Any) -> Any:
        sides = [s for s in (self.visit(left), self.visit(right)) if isinstance(s, pc.Expression)]
        return sides[0] & sides[1] if len(sides) == 2 else next(iter(sides), None)

    def visit_or(self, left: Any, right: Any) -> Any:
        one, other = self.visit(left), self.visit(right)
        both = isinstance(one, pc.Expression) and isinstance(other, pc.Expression)
        return one | other if both else None

    def _compared(self, operator: str, left: Any, right: Any) -> Any:
        one, other = self.visit(left), self.visit(right)
        if isinstance(other, _Name):
            operator, one, other = TURNED[operator], other, one
        if not isinstance(one, _Name) or not isinstance(other, list):
            return None
        return compared(operator, str(one), other[0], self._schema)

    visit_equal = partialmethod(_compared, "Eq")
    visit_not_equal = partialmethod(_compared, "NotEq")
    visit_less_than = partialmethod(_compared, "Lt")
    visit_less_than_or_equal = partialmethod(_compared, "LtEq")
    visit_greater_than = partialmethod(_compared, "Gt")
    visit_greater_than_or_equal = partialmethod(_compared, "GtEq")

    def visit_between(self, expr: Any, lower: Any, upper: Any) -> Any:
        low, high = self._compared("GtEq", expr, lower), self._compared("LtEq", expr, upper)
        return None if low is None or high is None else low & high

    def visit_is_in(self, expr: Any, items: Sequence[Any]) -> Any:
        equal = [self._compared("Eq", expr, item) for item in items]
        if not equal or any(one is None for one in equal):
            return None
        found = equal[0]
        for one in equal[1:]:
            found = found | one
        return found

    def visit_is_null(self, expr: Any) -> Any:
        name = self.visit(expr)
        return pc.field(str(name)).is_null() if isinstance(name, _Name) else None

    def visit_not_null(self, expr: Any) -> Any:
        name = self.visit(expr)
        return pc.field(str(name)).is_valid() if isinstance(name, _Name) else None

    def _nothing(self, *_: Any) -> Any:
        return None

    visit_not = visit_cast = visit_try_cast = visit_function = visit_coalesce = visit_list = _nothing
