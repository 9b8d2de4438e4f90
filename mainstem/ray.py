"""Tables in Ray Data: lazy datasets of a pinned snapshot, and writes that tasks share and one commit shows.

    import mainstem.ray as mr
    trips = mr.read(table, columns=["id", "fare"])           # a ray.data.Dataset
    mr.write(trips.filter(expr=col("fare") > 20), table)     # an Outcome

``MainstemDatasource`` and ``MainstemDatasink`` are the same for ``ray.data.read_datasource`` and
``Dataset.write_datasink``. Columns and expressions of a dataset reach the files.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray.data
from ray.data import Datasink, Datasource
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import ReadTask

from mainstem.engines.pinned import ReadTask as SlicesTask
from mainstem.engines.pinned import of_time
from mainstem.engines.write_job import JobSink
from mainstem.errors import MainstemError
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from mainstem.api.table import Table
    from mainstem.writers.stream_guard import StreamGuard

# Ray's own name of a column that only keeps the number of rows, and that it hides.
_NO_COLUMN = "__bsp_stub"
# So many errors are looked through that caused one another.
_CAUSES_MAX = 20

__all__ = ["MainstemDatasink", "MainstemDatasource", "read", "write"]


def read(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    as_of: str | None = None,
    as_of_completion: str | None = None,
    after: str | None = None,
    until: str | None = None,
    deletes: bool = False,
    **options: Any,
) -> ray.data.Dataset:
    """The table as a dataset: as of now, as of a time (``Table.scan``), or what changed within (``after``,
    ``until``] (``Table.changes``). The moment is fixed here: whenever the dataset runs, it is the same rows.

    ``options``: those of ``ray.data.read_datasource`` (``override_num_blocks``, ``concurrency`` ...).
    Raises ``Invalid`` for times and columns that are not there.
    """
    source = MainstemDatasource(
        table, columns=columns, filter=filter, as_of=as_of, as_of_completion=as_of_completion, after=after,
        until=until, deletes=deletes,
    )  # fmt: skip
    return ray.data.read_datasource(source, **options)


def write(
    dataset: ray.data.Dataset,
    table: Table,
    operation: str = "upsert",
    *,
    guard: StreamGuard | None = None,
    **options: Any,
) -> Outcome:
    """Run the dataset and write its rows in one commit. ``operation``: as for ``Table.begin``, but
    ``bulk_insert``. Tasks that Ray repeats write again, and count once; if the job fails nothing is visible.

    ``guard`` names this write: if a commit has it already, the dataset is not run (``already_committed``).
    ``options``: those of ``Dataset.write_datasink``. Raises what ``Table.upsert`` raises; an error of rows
    or of a worker comes as that error, not wrapped by Ray.
    """
    sink = MainstemDatasink(table, operation, guard=guard)
    if sink.committed_before():
        return sink.outcome
    try:
        if "schema" not in inspect.signature(Datasink.on_write_start).parameters:  # older releases
            sink.schema = getattr(dataset.schema(), "base_schema", None)
        dataset.write_datasink(sink, **options)
    except BaseException as error:
        sink.abort()  # Ray does not tell the sink of an interrupt
        found = _ours(error)
        if found is None or found is error:
            raise
        raise found from error
    return sink.outcome


class MainstemDatasource(Datasource):
    """A pinned query for ``ray.data.read_datasource``; arguments as for ``read``."""

    def __init__(
        self,
        table: Table,
        *,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        as_of_completion: str | None = None,
        after: str | None = None,
        until: str | None = None,
        deletes: bool = False,
    ) -> None:
        super().__init__()
        self._pinned = of_time(table, as_of, as_of_completion, after, until, deletes)
        self._filter = filter
        #: Ray's, which it makes fewer (``apply_projection``)
        names = None if columns is None else self._pinned.narrowed_schema(columns).names
        self._projection_map = None if names is None else {name: name for name in names}
        self._tasks()  # what is wrong with columns and filter is told here

    def get_name(self) -> str:
        """Ray's name of the read."""
        return "Mainstem"

    def estimate_inmemory_data_size(self) -> int | None:
        """Not known: files are compressed, and rows are merged."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """At most ``parallelism`` tasks, of a file slice or more each."""
        schema = self._pinned.narrowed_schema(self._names)
        more = {} if per_task_row_limit is None else {"per_task_row_limit": per_task_row_limit}
        made = []
        for task in self._tasks(parallelism):
            size = task.stored_bytes or None
            known = BlockMetadata(num_rows=None, size_bytes=size, input_files=None, exec_stats=None)
            made.append(ReadTask(_Reading(task), known, schema, **more))
        return made

    @property
    def _names(self) -> list[str] | None:
        return None if self._projection_map is None else list(self._projection_map)

    def _tasks(self, most: int | None = None) -> list[SlicesTask]:
        return self._pinned.tasks(self._names, self._filter, most)

    # -- what Ray pushes down ----------------------------------------------------------------------

    def supports_projection_pushdown(self) -> bool:
        """Whether columns reach the files."""
        return self._pinned.narrows

    def supports_predicate_pushdown(self) -> bool:
        """Whether filters reach the files."""
        return self._pinned.narrows

    def apply_predicate(self, predicate_expr: Any) -> Datasource:
        """This query with one more filter; itself for one that Arrow cannot tell, which Ray applies then."""
        try:
            pushed = predicate_expr.to_pyarrow()
            made = copy.copy(self)
            made._filter = pushed if self._filter is None else self._filter & pushed
            made._tasks(1)
            made._predicate_expr = predicate_expr
        except Exception:
            return self
        return made


class _Reading:
    """The function of one of Ray's read tasks."""

    def __init__(self, task: SlicesTask) -> None:
        self._task = task

    def __call__(self) -> Iterator[pa.Table]:
        for table in self._task.read():
            # Blocks without columns would lose their number of rows (Dataset.count asks for none).
            yield table if table.num_columns else pa.table({_NO_COLUMN: pa.nulls(table.num_rows)})


class MainstemDatasink(JobSink, Datasink[bytes]):
    """A write for ``Dataset.write_datasink``, used once. Its ``outcome`` is there afterwards."""

    def __init__(self, table: Table, operation: str = "upsert", *, guard: StreamGuard | None = None) -> None:
        super().__init__(table, operation, guard)
        #: of the rows, where Ray does not tell it when the write starts
        self.schema: Any = None

    def get_name(self) -> str:
        """Ray's name of the write."""
        return "Mainstem"

    def committed_before(self) -> bool:
        """Begin a guarded write, and tell whether a commit holds it already."""
        if self._own.guard is None:
            return False
        self._task = self._own.begin()
        return self._task.spec is None

    def on_write_start(self, schema: Any = None) -> None:
        """Open the transaction, or widen its schema by the columns of ``schema``."""
        schema = self.schema if schema is None else schema
        arrow = schema if isinstance(schema, pa.Schema) else None
        job = self._own
        self._task = job.widen(arrow) if job.begun and job.guard is not None else job.begin(arrow)

    def write(self, blocks: Iterable[Any], ctx: Any) -> bytes:
        """Write the blocks of one task."""
        assert self._task is not None, "on_write_start was not called"
        return self._task.write(BlockAccessor.for_block(block).to_arrow() for block in blocks)

    def on_write_complete(self, write_result: Any) -> None:
        """Commit."""
        self._own.commit([result for result in write_result.write_returns if result])

    def on_write_failed(self, error: Exception) -> None:
        """Abort."""
        self.abort()


def _ours(error: BaseException | None) -> MainstemError | None:
    """The error of this package that one of Ray's was made of. Ray's own copy of it, which is of both
    classes, has a traceback for a message."""
    found: MainstemError | None = None
    for _ in range(_CAUSES_MAX):
        if error is None:
            break
        if isinstance(error, MainstemError):
            found = error
        error = getattr(error, "cause", None) or error.__cause__
    return found
