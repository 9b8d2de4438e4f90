"""Rows of log blocks as their writer still has them: what indexes need of them is not decoded again.

Bytes of statistics and keys must be those that the stored rows give. So a column is taken only where the type
that it was encoded from is the type that decoding gives: Avro keeps such values as they are. What is nested,
or has another type, is decoded.
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
    """The rows of one data block: ``count`` from ``low`` on of a batch that was encoded in this Avro schema.
    ``partial``: they hold only the columns that an update set."""

    batch: pa.Table
    low: int
    count: int
    schema_text: str
    partial: bool


def as_decoded(batch: pa.Table, schema_text: str, columns: Sequence[str]) -> pa.Table | None:
    """Those of the columns that a block of this schema has, as decoding gives them; None where it must."""
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
