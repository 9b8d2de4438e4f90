"""Tables in Dask: lazy frames of a pinned snapshot, and writes that tasks share and one commit shows.

    import mainstem.dask as md
    trips = md.read(table, filter=pc.field("fare") > 20)     # a dask.dataframe.DataFrame
    md.write(trips[trips.city == "oslo"], table)             # an Outcome

Columns that a frame does not need are not read; a filter is given to ``read``, as Dask hands none to sources.
Columns have Arrow types (``pandas.ArrowDtype``): whole numbers with nulls stay whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from mainstem.engines.pinned import ReadTask, of_time
from mainstem.engines.write_job import WriteJob, WriteTask
from mainstem.errors import Invalid
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from mainstem.api.table import Table
    from mainstem.writers.stream_guard import StreamGuard

__all__ = ["read", "write"]


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
    npartitions: int | None = None,
) -> dd.DataFrame:
    """The table as a frame: as of now, as of a time (``Table.scan``), or what changed within (``after``,
    ``until``] (``Table.changes``). The moment is fixed here: whenever the frame runs, it is the same rows.

    One partition per file slice, at most ``npartitions``. Raises ``Invalid`` for times and columns that are
    not there.
    """
    pinned = of_time(table, as_of, as_of_completion, after, until, deletes)
    names = None if columns is None and pinned.narrows else pinned.narrowed_schema(columns).names
    schema = pinned.narrowed_schema(names)
    tasks = pinned.tasks(names if pinned.narrows else None, filter, npartitions)
    parts = tasks or [ReadTask(pinned.location, ())]
    meta = _frame([], schema)
    if not pinned.narrows:
        return dd.from_map(_whole, parts, schema=schema, meta=meta, label="mainstem")
    return dd.from_map(_part, parts, schema=schema, meta=meta, label="mainstem")


def _part(task: ReadTask, columns: Sequence[str] | None = None, *, schema: pa.Schema) -> pd.DataFrame:
    """A partition; Dask looks for the name ``columns`` to ask for fewer of them."""
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
        task = task.narrowed(columns)
    return _frame(list(task.read()), schema)


def _whole(task: ReadTask, *, schema: pa.Schema) -> pd.DataFrame:
    return _frame([table.select(schema.names) for table in task.read()], schema)


def _frame(tables: Sequence[pa.Table], schema: pa.Schema) -> pd.DataFrame:
    rows = pa.concat_tables([schema.empty_table(), *tables]) if schema.names else None
    if rows is None:
        return pd.DataFrame(index=range(sum(table.num_rows for table in tables)))
    return rows.to_pandas(types_mapper=pd.ArrowDtype)


def write(
    frame: dd.DataFrame,
    table: Table,
    operation: str = "upsert",
    *,
    guard: StreamGuard | None = None,
    schema: pa.Schema | None = None,
    **options: Any,
) -> Outcome:
    """Compute the frame and write its rows in one commit, a task per partition; the index is left out.
    ``operation``: as for ``Table.begin``, but ``bulk_insert``. Tasks that Dask repeats write again, and count
    once; if the job fails nothing is visible.

    ``schema``: Arrow schema of columns that the table lacks, where the frame's dtypes do not tell it (dtype
    ``object``). ``guard`` names this write: if a commit has it already, the frame is not computed
    (``already_committed``). ``options``: those of ``dask.compute`` (``scheduler`` ...). Raises what
    ``Table.upsert`` raises.
    """
    if not isinstance(frame, dd.DataFrame):
        raise Invalid(
            f"write takes a Dask DataFrame, found {type(frame).__name__}; Table.upsert takes pandas frames",
            table=table.path,
        )
    job = WriteJob(table, operation, guard)
    task = job.begin(_known(frame, schema))
    if task.spec is None:
        assert job.outcome is not None
        return job.outcome
    try:
        pieces = [dask.delayed(_written, pure=False)(task, part) for part in frame.to_delayed()]
        return job.commit(dask.compute(*pieces, **options))
    except BaseException:
        job.abort()
        raise


def _written(task: WriteTask, part: pd.DataFrame) -> bytes:
    return task.write(pa.Table.from_pandas(part, preserve_index=False))


def _known(frame: dd.DataFrame, given: pa.Schema | None) -> pa.Schema:
    """The columns whose Arrow type is known from the frame's dtypes, or given."""
    fields = []
    for name, dtype in frame.dtypes.items():
        if given is not None and given.get_field_index(str(name)) >= 0:
            fields.append(given.field(str(name)))
        elif not pd.api.types.is_object_dtype(dtype):
            found = pa.Array.from_pandas(pd.Series([], dtype=dtype)).type
            fields.append(pa.field(str(name), found))
    return pa.schema(fields)
