"""A few rows of metadata as lists: a small commit would spend more on columns than on its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class ListedRows:
    """Rows with the columns of one of ``flat_rows.SCHEMAS``, in its order; in any order of keys."""

    columns: Mapping[str, Sequence[Any]]

    @property
    def num_rows(self) -> int:
        return len(self.columns["key"])

    def take(self, places: Sequence[int]) -> ListedRows:
        """The rows at these places."""
        return ListedRows({name: [column[at] for at in places] for name, column in self.columns.items()})

    def table(self, schema: pa.Schema) -> pa.Table:
        """The rows as a flat table."""
        arrays = [pa.array(self.columns[field.name], field.type) for field in schema]
        return pa.table(arrays, schema)
