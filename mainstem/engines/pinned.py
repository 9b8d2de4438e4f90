"""A query of one moment, cut into tasks that run in any process, in any order, as often as an engine likes.

  pin     the newest view (or that of a time) is listed once: its file slices are the splits
  tasks   the splits, narrowed to columns and a filter; the view's indexes leave slices out
  read    a task reads its slices, wherever it runs; it needs the table's place and nothing else

All tasks of a ``Pinned`` read the same rows, however late they start and whatever is committed meanwhile. A
clean may remove their files after ``hoodie.clean.commits.retained`` commits; the task says so then. A pickle
keeps the splits: it reads the same rows, with filters applied to rows and row groups only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.engines.workers import location_of_tasks, no_table_here
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.options.services import CLEAN_COMMITS
from mainstem.readers.changes.commit_range import write_times
from mainstem.readers.planning.query_schema import filter_columns, output_columns
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import ReadableSplit, ScanPlan
from mainstem.readers.queries.snapshot import View
from mainstem.readers.rows.split import Split
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from mainstem.api.table import Table


@dataclass(frozen=True)
class ReadTask:
    """Some file slices of a query; picklable."""

    location: Location
    splits: tuple[ReadableSplit, ...]

    def __dask_tokenize__(self) -> bytes:
        """Equal for tasks that read the same rows, in every process."""
        return pickle.dumps((self.location, self.splits))

    @property
    def stored_bytes(self) -> int:
        """Size of the files, as far as their commits told; 0 if unknown."""
        return sum(size for split in self.splits if isinstance(split, Split) for _, size in split.least)

    def narrowed(self, columns: Sequence[str]) -> ReadTask:
        """The same rows with these columns only."""
        return replace(self, splits=tuple(_narrowed(split, columns, None) for split in self.splits))

    def read(self) -> Iterator[pa.Table]:
        """The rows, in tables of bounded size. Raises ``Unavailable`` if files are gone or out of reach."""
        storage = storage_of(self.location)
        try:
            for split in self.splits:
                yield from split.read(storage)
        except FileNotFoundError as error:
            raise _gone(storage, error) from error
        except OSError as error:
            raise Unavailable(
                f"this worker cannot read the table ({error}): it needs the driver's paths, credentials and"
                " network",
                table=storage.base,
            ) from error


def _gone(storage: Storage, error: FileNotFoundError) -> Unavailable:
    return no_table_here(storage) or Unavailable(
        f"a file of the query was removed before its task read it ({error}): a clean retains too few commits"
        f" for queries of this length; plan the query again, or raise {CLEAN_COMMITS}",
        table=storage.base,
    )


class Pinned:
    """Rows of a table as of one moment. ``schema``: of all columns. Use ``snapshot`` or ``changed``."""

    def __init__(
        self,
        location: Location,
        schema: pa.Schema,
        splits: Sequence[ReadableSplit],
        filtered: Callable[[pc.Expression], Sequence[ReadableSplit]] | None = None,
    ) -> None:
        self.location = location
        self.schema = schema
        self._splits = tuple(splits)
        #: the splits that a filter leaves, by the view's indexes
        self._filtered = filtered

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_filtered": None}

    @property
    def narrows(self) -> bool:
        """Whether columns and filters reach the files. They do not for deletes and change data."""
        return all(isinstance(split, Split) for split in self._splits)

    def tasks(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        most: int | None = None,
    ) -> list[ReadTask]:
        """One task per file slice, or at most ``most``. ``columns`` in this order, None: all.

        Raises ``Invalid`` for columns that are not there, ``Unsupported`` where ``narrows`` is false.
        """
        splits = self._splits
        if filter is not None and self._filtered is not None and self.narrows:
            try:
                splits = tuple(self._filtered(filter))
            except FileNotFoundError:
                splits = self._splits  # cleaned since: its tasks tell, if they meet such a file
        if columns is not None or filter is not None:
            splits = tuple(_narrowed(split, columns, filter) for split in splits)
        count = len(splits) if most is None else max(1, min(most, len(splits)))
        ends = [len(splits) * number // count for number in range(count + 1)] if splits else []
        return [ReadTask(self.location, splits[a:b]) for a, b in zip(ends, ends[1:], strict=False)]

    def narrowed_schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """Schema of the rows of ``tasks(columns)``."""
        return pa.schema([self.schema.field(name) for name in output_columns(self.schema, columns)])


def snapshot(
    table: Table, *, as_of: str | None = None, as_of_completion: str | None = None
) -> Pinned:
    """The table now, or as of a time, as in ``Table.scan``, which tells what is raised."""
    location = location_of_tasks(table)
    opened = table.opened
    storage = opened.seams.storage
    if as_of_completion is not None:  # what it shows never changes
        plan = table.scan(as_of=as_of, as_of_completion=as_of_completion)
        return Pinned(location, plan.schema, plan.splits(), lambda more: plan.refined(None, more).splits())
    table.scan(as_of=as_of)  # refuses what is no time

    def view() -> View:
        from mainstem.readers.planning.query_times import instant_time

        until = None if as_of is None else instant_time(as_of, "as_of")
        return View.load(storage, until, damaged=opened.damaged, use=opened.use)

    try:
        return _seen(table, view())
    except Unavailable:  # cleaned between its listings
        return _seen(table, view())


def _seen(table: Table, view: View) -> Pinned:
    plan = _of_view(table, view)
    location = table.opened.seams.storage.location
    return Pinned(location, plan.schema, plan.splits(), lambda more: _of_view(table, view, more).splits())


def _of_view(table: Table, view: View, filter: pc.Expression | None = None) -> ScanPlan:
    opened = table.opened
    return ScanPlan(opened.seams.storage, lambda: view.planned(None, filter)).of_table(opened.identity)


def changed(table: Table, after: str | None, until: str | None, *, deletes: bool = False) -> Pinned:
    """What instants changed that completed in (``after``, ``until``], as in ``Table.changes``; without
    ``until``, up to the newest one now."""
    location = location_of_tasks(table)
    if until is None:
        opened = table.opened
        done = write_times(TableState.load(opened.seams.storage, opened.config))
        until = max(done, default=None)
        if until is None or (after is not None and after >= until):
            plan = table.changes(after, after, deletes=deletes) if after else table.changes(deletes=deletes)
            return Pinned(location, plan.schema, ())
    plan = table.changes(after, until, deletes=deletes)
    return Pinned(location, plan.schema, plan.splits())


def of_time(
    table: Table, as_of: str | None, as_of_completion: str | None, after: str | None, until: str | None,
    deletes: bool,
) -> Pinned:  # fmt: skip
    """A snapshot or changes, by what is given. Raises ``Invalid`` for both."""
    if after is None and until is None and not deletes:
        return snapshot(table, as_of=as_of, as_of_completion=as_of_completion)
    if as_of is not None or as_of_completion is not None:
        raise Invalid(
            "after, until and deletes ask for changes, as_of and as_of_completion for a snapshot: give one"
            " kind",
            table=table.path,
        )
    return changed(table, after, until, deletes=deletes)


def _narrowed(
    split: ReadableSplit, columns: Sequence[str] | None, filter: pc.Expression | None
) -> ReadableSplit:
    if not isinstance(split, Split):
        raise Unsupported(
            "columns and filters do not reach deletes and change data: choose among the rows that were read"
        )
    spec = split.spec
    both = filter if spec.filter is None else spec.filter  # the view's own splits have it already
    names = spec.columns if columns is None else tuple(output_columns(spec.schema, columns))
    extra = tuple(filter_columns(spec.schema, both))
    return replace(split, spec=replace(spec, columns=names, extra=extra, filter=both))
