"""What a query reads from a file slice, as plain picklable values; ``split`` does the reading."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.layout.field_ids import FieldIds, FileColumns
from mainstem.merge.rules import KEY_COLUMN, MergeRules

TIME_COLUMN = "_hoodie_commit_time"


@dataclass(frozen=True)
class ReadSpec:
    """What all splits of one query share.

    ``schema``: the table's; ``columns``: the output columns; ``extra``: columns read only for the filter;
    ``instants``: only rows written by these (requested times), None for all; ``until``: newest log
    block instant; ``virtual_key``: record key fields if the files hold no meta columns; ``ids``: column
    ids if files may use other names for the query's columns (schema on read).
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    rules: MergeRules
    extra: tuple[str, ...] = ()
    filter: pc.Expression | None = None
    instants: frozenset[str] | None = None
    until: str | None = None
    damaged: str = "error"
    virtual_key: tuple[str, ...] = ()
    composite_key: bool = False
    ids: FieldIds | None = None

    @property
    def read_schema(self) -> pa.Schema:
        """Schema of the merged rows before the filter."""
        names = dict.fromkeys((*self.columns, *self.extra)) or {KEY_COLUMN: None}
        return pa.schema([self.schema.field(n) for n in names])

    @property
    def ordering_types(self) -> list[pa.DataType]:
        """Types of the ordering columns; ``Unsupported`` for a field that is no column."""
        return self.rules.ordering_types(self.schema)

    @property
    def plain(self) -> list[str]:
        """Columns to read from files that need no merging, as far as the files have them."""
        times = () if self.instants is None else (TIME_COLUMN,)
        return list(dict.fromkeys((*self.read_schema.names, *times)))

    @property
    def wanted(self) -> list[str]:
        """Columns to read from files that are merged, as far as the files have them."""
        return list(dict.fromkeys((*self.plain, *self.rules.needed_columns, *self.virtual_key)))

    def stored_columns(self, instant: str) -> FileColumns | None:
        """Column names in the files of an instant; None: the same as in the query."""
        found = None if self.ids is None else self.ids.file(instant)
        return None if found is None or found.same else found


@dataclass(frozen=True)
class SliceQuery:
    """One file slice of a query: paths relative to the table.

    ``path_values``: partition columns whose value is taken from the path instead of the files. ``least``:
    (path, bytes) of files whose size is compared when they are opened: their commits say that they have at
    least as many.
    """

    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...]
    spec: ReadSpec = field(repr=False)
    path_values: tuple[tuple[str, str | None], ...] = ()
    least: tuple[tuple[str, int], ...] = ()

    def least_bytes(self, path: str) -> int:
        """The least size of a file; 0 if any will do."""
        return next((size for name, size in self.least if name == path), 0)
