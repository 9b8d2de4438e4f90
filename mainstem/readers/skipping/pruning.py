"""Rules out partitions by their path, which determines the partition columns of every row.

In doubt, a partition is read. The decision is Arrow's own simplification of an expression under a
guarantee (``pyarrow.dataset``), so nulls, types and functions mean the same here as when rows are
filtered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from mainstem.layout.properties import TableConfig
from mainstem.layout.wanted_folders import NUMBER, folder_text


def partition_guarantee(
    partition: str,
    path_values: Sequence[tuple[str, str | None]],
    config: TableConfig,
    schema: pa.Schema,
) -> pc.Expression | None:
    """An expression that holds for every row of a partition; None if its path says nothing for certain.

    ``path_values``: columns whose value readers take from the path. For other columns, a folder name gives
    the value of a text or integer column if the key generator writes values unchanged. Dates, times, custom
    paths, and paths whose number of folders differs from the number of fields say nothing.
    """
    told: dict[str, tuple[bool, str | None]] = {name: (True, text) for name, text in path_values}
    fields, parts = config.partition_fields, partition.split("/")
    if len(fields) == len(parts) and config.key_generator in ("SIMPLE", "COMPLEX"):
        for name, part in zip(fields, parts, strict=True):
            if name not in told:
                told[name] = folder_text(
                    name, part, hive_style=config.hive_style, url_encode=config.url_encode
                )
    known = [_equal(name, text, schema) for name, (sure, text) in told.items() if sure]
    found = [expression for expression in known if expression is not None]
    return reduce(and_, found) if found else None


def _equal(name: str, text: str | None, schema: pa.Schema) -> pc.Expression | None:
    at = schema.get_field_index(name)
    if at < 0:
        return None
    kind = schema.field(at).type
    if text is None:
        return pc.field(name).is_null()
    if pa.types.is_string(kind):
        return pc.field(name) == pa.scalar(text, kind)
    if pa.types.is_integer(kind) and NUMBER.fullmatch(text):
        try:
            return pc.field(name) == pa.scalar(int(text), kind)
        except pa.ArrowInvalid:  # too large for the column's type
            return None
    return None


def may_match(expression: pc.Expression | None, guarantee: pc.Expression, schema: pa.Schema) -> bool:
    """Whether a row for which ``guarantee`` holds may pass the filter."""
    if expression is None:
        return True
    layout, place = ds.IpcFileFormat(), LocalFileSystem()  # nothing is opened
    fragment = layout.make_fragment("unread", place, partition_expression=guarantee)
    try:
        told = ds.FileSystemDataset([fragment], schema, layout, place)
        return any(True for _ in told.get_fragments(filter=expression))
    except (pa.ArrowException, TypeError):  # the filter itself is wrong: reading will report it
        return True
