"""What a query returns: a plan that reads lazily, and retries once if a clean removed a file meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from mainstem.errors import CorruptTable, Unavailable, Unsupported
from mainstem.options.services import CLEAN_COMMITS
from mainstem.readers.planning.explain import Explanation, Report
from mainstem.readers.planning.known_views import check_same_table, checks_later, doubting, forget
from mainstem.readers.rows.row_counts import told_count
from mainstem.readers.rows.split import ReadSpec
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import Result, side_by_side
from mainstem.telemetry import steps

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

ATTEMPTS = 2
#: what a query says that took so long that a clean removed its files; ``error``: which file
VANISHED = (
    "a file of the view was removed while it was read ({error}); a clean retains too few commits"
    " for"
    f" queries of this length: read again, or raise {CLEAN_COMMITS}"
)


class ReadableSplit(Protocol):
    """A picklable unit of work: the rows of one file group that a query asks for."""

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """Rows in the query's schema. ``FileNotFoundError`` if a clean removed a file."""
        ...


@dataclass(frozen=True)
class Planned:
    """The splits of one moment and what they share. Iterating over ``splits`` lists the files.

    ``schema``: the output schema, if it is not made of the table's columns (change data). ``report``: what
    is left unread, complete once all splits were iterated.
    """

    spec: ReadSpec
    splits: Iterable[ReadableSplit]
    schema: pa.Schema | None = None
    report: Report | None = None

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of the rows."""
        if self.schema is not None:
            return self.schema
        return pa.schema([self.spec.schema.field(name) for name in self.spec.columns])


Refined = Callable[["Sequence[str] | None", "pc.Expression | None"], "ScanPlan"]
"""The same query with other columns (None: the same) and one more filter (None: no more)."""

Progress = Callable[[str, int, int], None]
"""``progress("scan, file slices", done, total)``, called after each file slice that was read."""

_WHAT = "scan, file slices"


class ScanPlan:
    """A query on a table. Every call reads the table's newest state; nothing is cached.

    Anything that accepts Arrow streams accepts a plan (``__arrow_c_stream__``): DuckDB, Polars, pandas,
    pyarrow.
    """

    def __init__(
        self,
        storage: Storage,
        planner: Callable[[], Planned],
        *,
        vanished: str | None = None,
        refined: Refined | None = None,
    ) -> None:
        self._storage = storage
        self._planner = planner
        self._message = vanished or VANISHED
        self._refined = refined
        self._table: str | None = None

    def of_table(self, identity: str | None) -> ScanPlan:
        """The same query, bound to one table (``publish.table_identity``): reads raise ``TableReplaced`` if
        another was created at its path. The check runs after all files are listed: they are of one table."""
        self._table = identity
        return self

    def __reduce__(self) -> Any:
        raise Unsupported(
            "a query is not picklable, as it reads whatever is the newest state: open the table where it is"
            " read (an open table can be pickled), or read its rows first (to_arrow)"
        )

    def __copy__(self) -> ScanPlan:
        return self  # immutable

    def __deepcopy__(self, memo: object) -> ScanPlan:
        return self

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._twice(lambda: self._planner().output_schema)

    def refined(self, columns: Sequence[str] | None, filter: pc.Expression | None) -> ScanPlan:
        """The same query with fewer columns and one more filter, both pushed down to the files."""
        if self._refined is None:
            raise Unsupported("only snapshots take columns and filters afterwards; give them to changes()")
        return self._refined(columns, filter).of_table(self._table)

    def splits(self) -> list[ReadableSplit]:
        """One picklable unit of work per file slice; ``split.read(storage)`` gives its rows."""
        return list(self._twice(self._drawn).splits)

    def explain(self) -> Explanation:
        """Which files the query reads now, and which index ruled out the others; reads no rows.

        ``print(plan.explain())`` shows a readable text, ``plan.explain().to_dict()`` the same as plain data.
        Raises ``Unsupported`` for queries of changes, which read exactly the files that their instants wrote.
        """
        planned = self._twice(self._drawn)
        if planned.report is None:
            raise Unsupported("explain() is for scan(); changes() reads the files that its instants wrote")
        return planned.report.explanation()

    def _drawn(self) -> Planned:
        """A plan with all files listed; checks afterwards that the table was not replaced meanwhile."""
        try:
            planned = self._planner()
            planned = replace(planned, splits=list(planned.splits))
        except CorruptTable:
            forget(self._storage)
            check_same_table(self._storage, self._table)  # files of two tables do not fit each other
            raise
        check_same_table(self._storage, self._table)
        return planned

    def to_arrow(self) -> pa.Table:
        """All rows. If a concurrent clean removes a file, the whole query starts again, once.

        Raises ``CorruptTable`` for damaged files, ``Unavailable`` if files vanish again.
        """
        planned, found = self._every(self._read)
        return _concatenated(planned.output_schema, [table for tables in found for table in tables])

    def count_rows(self, *, progress: Progress | None = None) -> int:
        """Number of rows. Of a snapshot only the columns are read that the merge and the filter need, and
        none where the footers of base files tell the number. If a concurrent clean removes a file, the
        count starts again, once. ``progress``: called after each file slice whose rows are read."""
        plan = self if self._refined is None else self.refined([], None)
        return sum(plan._every(partial(plan._counts, progress=progress))[1])

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas frame; ``options`` are those of ``pyarrow.Table.to_pandas``."""
        return self.to_arrow().to_pandas(**options)

    def to_batches(self, *, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
        """Rows file slice by file slice, all of one moment. ``progress``: called after each of them.

        Holds one slice's log rows in memory, and a bounded number of base file rows at a time.
        """
        for table in self._tables(progress)[1]:
            yield from table.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as a stream with a schema; rows are read when the first batch is requested."""
        planned, tables = self._tables()
        batches = (batch for table in tables for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(planned.output_schema, batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_dataset(self) -> ds.Dataset:
        """The query as a dataset, for engines that push down columns and filters, such as DuckDB
        (``duckdb.sql("select ... from dataset")``) and Polars (``pl.scan_pyarrow_dataset(dataset)``)."""
        from mainstem.readers.queries.arrow_dataset import PlanDataset

        return PlanDataset(self)

    def _every(
        self, work: Callable[[Planned, list[ReadableSplit]], list[Result]]
    ) -> tuple[Planned, list[Result]]:
        """What ``work`` finds in the splits of one moment."""
        for attempt in range(ATTEMPTS):
            try:
                with steps.step("scan", self._storage.base) as step:
                    with self._attempt(attempt):
                        planned = self._drawn()  # list all files before the first is read
                    splits = list(planned.splits)
                    step.tell(file_slices=len(splits))
                    return planned, work(planned, splits)
            except FileNotFoundError as error:
                missing = error
            except CorruptTable:
                forget(self._storage)
                raise
        raise self._vanished(missing) from missing

    def _read(self, planned: Planned, splits: list[ReadableSplit]) -> list[list[pa.Table]]:
        """The rows of each slice. Slices are read side by side, except with a user's merger: its calls may
        depend on each other."""
        if planned.spec.rules.merger is not None:
            return [list(split.read(self._storage)) for split in splits]
        return side_by_side(self._storage, lambda split: list(split.read(self._storage)), splits)

    def _counts(
        self, planned: Planned, splits: list[ReadableSplit], progress: Progress | None = None
    ) -> list[int]:
        """The number of rows of each slice. Footers are read side by side; a slice whose rows must be read is
        read alone, as the log rows of one are in memory."""
        told = side_by_side(self._storage, lambda split: told_count(self._storage, split), splits)
        counts = []
        for split, count in zip(splits, told, strict=True):
            if count is None:
                count = sum(table.num_rows for table in split.read(self._storage))
            counts.append(count)
            if progress is not None:
                progress(_WHAT, len(counts), len(splits))
        return counts

    def _tables(self, progress: Progress | None = None) -> tuple[Planned, Iterator[pa.Table]]:
        """The plan of this moment and a lazy stream of its rows. If a file vanishes before the first rows
        are returned, the query starts again, once."""
        planned = self._twice(self._planner)
        return planned, self._streamed(planned, progress)

    def _streamed(self, planned: Planned, progress: Progress | None) -> Iterator[pa.Table]:
        began = False
        for attempt in range(ATTEMPTS):
            try:
                with self._attempt(attempt):
                    splits = list(planned.splits if attempt == 0 else self._again(planned).splits)
                    check_same_table(self._storage, self._table)
                for done, split in enumerate(splits, 1):
                    for table in split.read(self._storage):
                        began = True
                        yield table
                    if progress is not None:
                        progress(_WHAT, done, len(splits))
                return
            except FileNotFoundError as error:
                missing = error
                if began:
                    forget(self._storage)
                    break
            except CorruptTable:
                forget(self._storage)
                raise
        raise self._vanished(missing) from missing

    def _again(self, before: Planned) -> Planned:
        planned = self._planner()
        if not planned.output_schema.equals(before.output_schema):
            raise Unavailable(
                "the table's schema changed while the query began; read again", table=self._storage.base
            )
        return planned

    def _twice(self, plan: Callable[[], Result]) -> Result:
        """Calls ``plan``, and once more if a file that it needed was archived or cleaned meanwhile."""
        for attempt in range(ATTEMPTS):
            try:
                with self._attempt(attempt):
                    return plan()
            except FileNotFoundError as error:
                missing = error
        raise self._vanished(missing) from missing

    def _attempt(self, number: int) -> AbstractContextManager[None]:
        """Where a query is planned; after a failure nothing is taken for known."""
        return doubting(self._storage) if number else nullcontext()

    def _vanished(self, error: FileNotFoundError) -> Unavailable:
        check_same_table(self._storage, self._table)
        if checks_later(self._storage):  # no file was looked for before it was read
            with doubting(self._storage), suppress(FileNotFoundError):
                list(self._planner().splits)  # raises if the file is lost, and no clean removed it
        return Unavailable(self._message.format(error=error), table=self._storage.base)


def _concatenated(schema: pa.Schema, tables: list[pa.Table]) -> pa.Table:
    if not schema.names:  # no columns requested: keep the number of rows
        rows = sum(table.num_rows for table in tables)
        return pa.table({"row": pa.nulls(rows)}).select([])
    return pa.concat_tables([schema.empty_table(), *tables])
