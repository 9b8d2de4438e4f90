"""Rows of log blocks that their writer still holds, so that indexes need not decode them again.

Statistics and keys must be computed from exactly the stored values. So a column is used only if the type that
was encoded is the type that decoding returns: Avro keeps such values unchanged. Nested columns, and those of
another type, are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from mainstem.formats.avro_schema import avro_to_arrow

_schema = lru_cache(maxsize=64)(avro_to_arrow)


@dataclass(frozen=True, eq=False)
class WrittenRows:
    """The rows of a data block: ``count`` rows, from ``low`` on, of a batch encoded with this Avro schema.
    ``partial``: they hold only the columns that an update set."""

    batch: pa.Table
    low: int
    count: int
    schema_text: str
    partial: bool


def as_decoded(batch: pa.Table, schema_text: str, columns: Sequence[str]) -> pa.Table | None:
    """The columns that blocks of this schema have, as decoding returns them; None if decoding is needed."""
    schema, known = _schema(schema_text), batch.column_names
    found: dict[str, pa.ChunkedArray] = {}
    for name in columns:
        at = schema.get_field_index(name)
        if at < 0 and name not in known:
            continue
        if at < 0 or known.count(name) != 1:
            return None
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if column.type != schema.field(at).type or pa.types.is_nested(column.type):
            return None
        found[name] = column
    return pa.table(found) if found else None
