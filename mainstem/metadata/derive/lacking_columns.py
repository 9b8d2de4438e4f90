"""Columns that a file lacks: readers see nulls there, so statistics record nulls.

Java's data skipping joins the statistics of all columns of a filter file by file. A comparison with missing
statistics is neither true nor false there: a file with a row for one column but none for the other is skipped
although some of its rows pass. So a file that lacks an indexed column gets a row of nulls for it, unless the
schema declares another default than null, which Java reads from log files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import pyarrow as pa

from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow, parse_schema

#: Full names of indexed columns that a file may lack, and their types.
Lacking = Mapping[str, pa.DataType]
NOTHING: Lacking = MappingProxyType({})


def lacking(schemas: Iterable[str], columns: Sequence[str], from_path: Collection[str]) -> Lacking:
    """Those of ``columns`` that are nulls in a file without them.

    ``schemas``: Avro JSON texts; the first that has a column decides, and further ones are read only if
    columns remain. ``from_path``: columns whose values may come from the path.
    """
    wanted = [name for name in columns if name not in META_FIELDS and name not in from_path]
    found: dict[str, pa.DataType] = {}
    texts = iter(schemas)
    while wanted and (text := next(texts, "")):
        known = _kinds(text)
        tops = {name: name.partition(".")[0] for name in wanted}
        kinds = {name: known[top] for name, top in tops.items() if top in known}
        found |= {name: _inner(kind, name) for name, kind in kinds.items() if kind is not None}
        wanted = [name for name in wanted if name not in kinds]
    return found


@lru_cache(maxsize=64)
def _kinds(schema_text: str) -> Mapping[str, pa.DataType | None]:
    """Types of columns by name; None for a column with another default than null."""
    fields = parse_schema(schema_text)["fields"]
    given = {field["name"] for field in fields if field.get("default") is not None}
    return {field.name: None if field.name in given else field.type for field in avro_to_arrow(schema_text)}


def _inner(kind: pa.DataType, name: str) -> pa.DataType:
    for part in name.split(".")[1:]:
        at = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if at < 0:
            return pa.null()
        kind = kind.field(at).type
    return kind


def lacks(names: Collection[str], column: str) -> bool:
    """Whether a file with these columns has neither the column nor the struct into which its name leads."""
    return column not in names and column.partition(".")[0] not in names
