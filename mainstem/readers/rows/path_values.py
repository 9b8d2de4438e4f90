"""Partition columns whose value is taken from the partition's path instead of the files."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.layout.keys import DEFAULT_PARTITION
from mainstem.layout.properties import TableConfig
from mainstem.options.tables import DROP_PARTITION_COLUMNS


def path_values(
    partition: str, config: TableConfig, schema: pa.Schema
) -> tuple[tuple[str, str | None], ...]:
    """(column, text or None) of the partition columns whose value comes from the path: columns that the files
    do not hold, nulls, and text that spans several folders of the path.

    As Java does: an empty string was written to the default partition too and reads as null, and under
    ``hoodie.datasource.write.slash.separated.date.partitioning`` 2026-01-02 reads as 2026/01/02. Raises
    ``Unsupported`` if the path does not fit the columns and the files do not hold them.
    """
    flag = config.raw.get(DROP_PARTITION_COLUMNS, "").strip().lower()
    dropped = flag == "true"
    fields = config.partition_fields
    parts = partition.split("/") if fields else []
    from_path = config.key_generator not in ("TIMESTAMP", "CUSTOM")
    if len(fields) == 1 < len(parts) and from_path and _is_text(schema, fields[0]):
        parts = [partition]  # the whole path is the single column's value
        dropped = True
    if not dropped and DEFAULT_PARTITION not in partition:
        return ()
    if len(parts) != len(fields):
        if not dropped:
            return ()
        raise Unsupported(
            f"partition {partition!r} has {len(parts)} parts for the columns"
            f" {', '.join(fields)}, and the files hold no partition columns"
            f" ({DROP_PARTITION_COLUMNS}=true)"
        )
    values: list[tuple[str, str | None]] = []
    for name, part in zip(fields, parts, strict=True):
        text = part.removeprefix(f"{name}=")
        if text == DEFAULT_PARTITION:
            values.append((name, None))
        elif dropped:
            values.append((name, unquote(text) if config.url_encode else text))
    return tuple(values)


def _is_text(schema: pa.Schema, name: str) -> bool:
    at = schema.get_field_index(name)
    return at >= 0 and pa.types.is_string(schema.field(at).type)
