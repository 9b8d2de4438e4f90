"""What a query returns: a plan that reads when asked, once more if a clean got in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from mainstem.errors import Unavailable
from mainstem.readers.split import ReadSpec
from mainstem.storage.protocol import Storage

ATTEMPTS = 2
_VANISHED = (
    "a file of the view was removed while it was read ({error}); a clean retains too few commits"
    " for"
    " queries of this length: read again, or raise hoodie.clean.commits.retained"
)


class ReadableSplit(Protocol):
    """A picklable unit of work: the rows of one file group that a query asks for."""

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """Rows in the query's schema. ``FileNotFoundError`` if a clean removed a file."""
        ...


@dataclass(frozen=True)
class Planned:
    """What the splits of one moment share, and the splits; files are listed when they are drawn.

    ``schema``: what comes out, where it is not columns of the table (change data).
    """

    spec: ReadSpec
    splits: Iterable[ReadableSplit]
    schema: pa.Schema | None = None

    @property
    def output_schema(self) -> pa.Schema:
        """Schema of the rows."""
        if self.schema is not None:
            return self.schema
        return pa.schema([self.spec.schema.field(name) for name in self.spec.columns])


class ScanPlan:
    """A query on a table. Every call reads the table's newest state; nothing is cached."""

    def __init__(
        self, storage: Storage, planner: Callable[[], Planned], *, vanished: str | None = None
    ) -> None:
        self._storage = storage
        self._planner = planner
        self._message = vanished or _VANISHED

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._planner().output_schema

    def splits(self) -> list[ReadableSplit]:
        """One picklable unit of work per file slice; ``split.read(storage)`` gives its rows."""
        return list(self._planner().splits)

    def to_arrow(self) -> pa.Table:
        """All rows. A file that a concurrent clean removed makes the whole query start again, once.

        Raises ``CorruptTable`` for damaged files, ``Unavailable`` if files vanish again.
        """
        for _ in range(ATTEMPTS):
            try:
                planned = self._planner()
                splits = list(planned.splits)  # list all files before the first is read
                tables = [t for s in splits for t in s.read(self._storage)]
                return _concatenated(planned.output_schema, tables)
            except FileNotFoundError as error:
                missing = error
        raise self._vanished(missing) from missing

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Rows file slice by file slice, all of one moment; a slice at a time is in memory."""
        rest, first = self._started()
        yield from first
        for split in rest:
            try:
                for table in split.read(self._storage):
                    yield from table.to_batches()
            except FileNotFoundError as error:
                raise self._vanished(error) from error

    def _started(self) -> tuple[list[ReadableSplit], list[pa.RecordBatch]]:
        for _ in range(ATTEMPTS):
            try:
                splits = list(self._planner().splits)
                return splits[1:], [
                    batch
                    for split in splits[:1]
                    for table in split.read(self._storage)
                    for batch in table.to_batches()
                ]
            except FileNotFoundError as error:
                missing = error
        raise self._vanished(missing) from missing

    def _vanished(self, error: FileNotFoundError) -> Unavailable:
        return Unavailable(self._message.format(error=error), table=self._storage.base)


def _concatenated(schema: pa.Schema, tables: list[pa.Table]) -> pa.Table:
    if not schema.names:  # only the number of rows was asked for
        rows = sum(table.num_rows for table in tables)
        return pa.table({"row": pa.nulls(rows)}).select([])
    return pa.concat_tables([schema.empty_table(), *tables])
