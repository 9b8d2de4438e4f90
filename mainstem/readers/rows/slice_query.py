"""What a query asks of a file slice: plain values, picklable. ``split`` reads by them."""

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

    ``schema``: the table's; ``columns``: what comes out; ``extra``: read for the filter only;
    ``instants``: only rows written by these (requested times), None for all; ``until``: newest log
    block instant; ``virtual_key``: record key fields where the files hold no meta columns; ``ids``:
    where files may call the query's columns otherwise (schema on read).
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
        """Columns that come out of the merge, before the filter."""
        names = dict.fromkeys((*self.columns, *self.extra)) or {KEY_COLUMN: None}
        return pa.schema([self.schema.field(n) for n in names])

    @property
    def ordering_types(self) -> list[pa.DataType]:
        """Types of the ordering columns; ``Unsupported`` for a field that is no column."""
        return self.rules.ordering_types(self.schema)

    @property
    def plain(self) -> list[str]:
        """Columns to read from files of which nothing has to be merged, as far as they have them."""
        times = () if self.instants is None else (TIME_COLUMN,)
        return list(dict.fromkeys((*self.read_schema.names, *times)))

    @property
    def wanted(self) -> list[str]:
        """Columns to read from files, as far as they have them."""
        return list(dict.fromkeys((*self.plain, *self.rules.needed_columns, *self.virtual_key)))

    def stored_columns(self, instant: str) -> FileColumns | None:
        """How files of an instant call the columns; None: as the query does."""
        found = None if self.ids is None else self.ids.file(instant)
        return None if found is None or found.same else found


@dataclass(frozen=True)
class SliceQuery:
    """One file slice of a query: paths relative to the table.

    ``path_values``: partition columns whose value is taken from the path instead of the files.
    """

    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...]
    spec: ReadSpec = field(repr=False)
    path_values: tuple[tuple[str, str | None], ...] = ()
