"""A query as a ``pyarrow.dataset.Dataset``: DuckDB, Polars and pyarrow push columns and filters into it.

Engines recognise a dataset by its class and ask it for a ``scanner`` with columns and a filter. So this is a
subclass whose methods plan a read of exactly those. Some pyarrow functions bypass the methods and scan the
underlying C++ object. They find one file there, created when it is first opened: all rows of that moment,
unfiltered, kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from mainstem.errors import Unsupported
from mainstem.readers.planning.query_schema import both_filters, filter_columns, output_columns

Columns = Sequence[str] | Mapping[str, pc.Expression] | None
_FILE = "table.arrow"


class Query(Protocol):
    """What a dataset needs from a query (``scan_plan.ScanPlan``)."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""

    def refined(self, columns: Sequence[str] | None, filter: pc.Expression | None) -> Query:
        """The same query with fewer columns and one more filter."""

    def to_arrow(self) -> pa.Table:
        """All rows."""

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""

    def count_rows(self) -> int:
        """Number of rows."""


class PlanDataset(ds.FileSystemDataset):
    """Rows of a ``ScanPlan``; every scan reads the table again, as of one moment.

    The schema is fixed when the dataset is created.
    """

    def __init__(self, plan: Query, expression: pc.Expression | None = None) -> None:
        self._plan = plan
        self._expression = expression
        self._shown = plan.schema
        files, form = fs.PyFileSystem(_WhenOpened(self.to_table)), ds.IpcFileFormat()
        super().__init__([form.make_fragment(_FILE, filesystem=files)], self._shown, form, files)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._shown

    def scanner(
        self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> ds.Scanner:
        """A scanner that can be read once. ``columns``: names, or a mapping of new names to expressions.

        Of pyarrow's other options, only ``use_threads`` and ``memory_pool`` have an effect.
        """
        needed = self._needed(columns)
        reader = self._plan.refined(needed, both_filters(self._expression, filter)).to_reader()
        return self._shown_as(columns, needed, reader, options)

    def _shown_as(
        self, columns: Columns, needed: list[str], reader: pa.RecordBatchReader, options: Mapping[str, Any]
    ) -> ds.Scanner:
        known = {k: v for k, v in options.items() if k in ("use_threads", "memory_pool")}
        return ds.Scanner.from_batches(reader, columns=needed if columns is None else columns, **known)

    def _needed(self, columns: Columns) -> list[str]:
        if columns is None:
            return list(self._shown.names)
        if isinstance(columns, Mapping):
            used = [n for e in columns.values() for n in filter_columns(self._shown, e)]
        else:
            used = output_columns(self._shown, columns)
        # Without any column, record batches would lose the number of rows.
        return list(dict.fromkeys(used)) or self._shown.names[:1]

    def to_batches(
        self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Rows batch by batch."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_table(
        self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """All rows; unlike those of a scanner, slices are read side by side."""
        needed = self._needed(columns)
        rows = self._plan.refined(needed, both_filters(self._expression, filter)).to_arrow()
        if columns is None or needed == columns:
            return rows
        return self._shown_as(columns, needed, rows.to_reader(), options).to_table()

    def head(
        self,
        num_rows: int,
        columns: Columns = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> pa.Table:
        """The first rows; later file slices are not read."""
        reader = self.scanner(columns, filter, **options).to_reader()
        found: list[pa.RecordBatch] = []
        missing = num_rows
        for batch in reader:
            found.append(batch.slice(0, missing))
            missing -= found[-1].num_rows
            if missing <= 0:
                break
        return pa.Table.from_batches(found, reader.schema)

    def take(
        self, indices: Any, columns: Columns = None, filter: pc.Expression | None = None, **options: Any
    ) -> pa.Table:
        """Rows by number, in the order of this scan; a later commit may change the order."""
        return self.to_table(columns, filter, **options).take(indices)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Number of rows; reads only the columns that the merge and the filter need."""
        return self._plan.refined([], both_filters(self._expression, filter)).count_rows()

    def filter(self, expression: pc.Expression) -> PlanDataset:
        """The dataset with one more filter."""
        return PlanDataset(self._plan, both_filters(self._expression, expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:
        """One fragment, in memory."""
        return self._loaded().get_fragments(filter)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows sorted, in memory."""
        return self._loaded().sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, *keys: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows joined, in memory."""
        return self._loaded().join(_in_memory(right_dataset), *keys, **options)

    def join_asof(self, right_dataset: ds.Dataset, *keys: Any, **options: Any) -> ds.InMemoryDataset:
        """The rows joined, in memory."""
        return self._loaded().join_asof(_in_memory(right_dataset), *keys, **options)

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Raises ``Unsupported``: the table decides the schema."""
        raise Unsupported("a mainstem dataset has the schema of its table; cast what comes out of it")

    def _loaded(self) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table())

    def __reduce__(self) -> Any:
        raise Unsupported("a mainstem dataset is not picklable: open the table where it is read")


def _in_memory(right: ds.Dataset) -> ds.Dataset:
    return right._loaded() if isinstance(right, PlanDataset) else right


class _WhenOpened(fs.FileSystemHandler):
    """A file system with one file, whose content is the result of ``rows`` when it is first opened."""

    def __init__(self, rows: Callable[[], pa.Table]) -> None:
        self._rows = rows

    @cached_property
    def _content(self) -> pa.Buffer:
        rows, sink = self._rows(), pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        return sink.getvalue()

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._content)

    open_input_stream = open_input_file

    def get_type_name(self) -> str:
        return "mainstem"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File) for path in paths]

    def _refused(self, *given: object, **more: object) -> NoReturn:
        raise Unsupported("a mainstem dataset is read only, and has no files; ask the table for them")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refused
    delete_root_dir_contents = delete_file = move = copy_file = _refused
    open_output_stream = open_append_stream = _refused
