"""What a filter can leave unread: partitions by their path, row groups by their statistics.

Everything here errs towards reading. Arrow's own simplification of an expression under a guarantee
decides (``pyarrow.dataset``), so that nulls, types and functions mean here what they mean when the
rows are filtered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from mainstem.filters.expression_tree import Call, Column, Literal, Node, tree
from mainstem.layout.keys import DEFAULT_PARTITION
from mainstem.layout.properties import TableConfig
from mainstem.readers.rows.base_rows import BaseFile

if TYPE_CHECKING:
    from mainstem.readers.planning.split import ReadSpec, Split

_JOINING = ("and", "and_kleene", "or", "or_kleene")
_COMPARING = ("equal", "less", "less_equal", "greater", "greater_equal")


def matching_groups(base: BaseFile, split: Split) -> frozenset[int]:
    """Row groups of a base file in which a row may pass the filter."""
    everything = frozenset(range(base.group_count))
    spec = split.spec
    if spec.filter is None or not _is_told(base, split):
        return everything
    try:
        fragment = ds.ParquetFileFormat().make_fragment(base.file)
        found = fragment.subset(filter=spec.filter, schema=spec.schema).row_groups
    except (pa.ArrowException, OSError, TypeError):  # the filter itself is at fault: reading will say so
        return everything
    unsure = (group for group in everything if _has_unsure_bounds(base, group, spec))
    return frozenset(group.id for group in found).union(unsure)


def _has_unsure_bounds(base: BaseFile, group: int, spec: ReadSpec) -> bool:
    """Whether a bound of a text may be missing: Parquet keeps none of 4 KiB and more, and older releases of
    Arrow say that one is empty if the other is there."""
    for name in spec.extra:
        kind = spec.schema.field(name).type
        chunk = base.column_of(group, name) if _is_bytes(kind) else None
        statistics = None if chunk is None else chunk.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        if not (statistics.min_raw and statistics.max_raw):
            return True
    return False


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _is_told(base: BaseFile, split: Split) -> bool:
    """Whether the file's statistics speak of the very values that the filter will see."""
    spec = split.spec
    from_path = {name for name, _ in split.path_values}
    for name in spec.extra:
        field = spec.schema.field(name)
        held = base.source.schema_arrow.get_field_index(name)
        if held < 0 or name in from_path or pa.types.is_nested(field.type):
            return False
        if base.source.schema_arrow.field(held).type != field.type:
            return False
        if pa.types.is_floating(field.type) and not _fails_for_nan(tree(spec.filter)):
            return False
    return True


def _fails_for_nan(node: Node | None) -> bool:
    """Whether no NaN passes a filter that no number of a range passes. Statistics of floating point columns
    leave NaN out, so whatever may be true of it although it is false of all numbers is not asked of them:
    anything but comparisons of columns with values (``!=`` apart) joined by and/or."""
    if not isinstance(node, Call):
        return isinstance(node, Column | Literal)
    if node.function in _JOINING:
        return all(_fails_for_nan(argument) for argument in node.arguments)
    plain = all(isinstance(argument, Column | Literal) for argument in node.arguments)
    return plain and node.function in _COMPARING


def could_exceed(base: BaseFile, group: int, spec: ReadSpec, least: int) -> bool:
    """Whether a row of the group may have a greater ordering value than ``least``.

    ``least`` is what ``merge.ordering_values.comparable`` makes of it: for numbers and times, themselves.
    """
    if len(spec.rules.ordering) != 1:
        return True
    name = spec.rules.ordering[0]
    kind = spec.schema.field(name).type
    if name not in base.names:
        return False  # absent values are below all others
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return True
    chunk = base.column_of(group, name)
    same = base.source.schema_arrow.field(name).type == kind
    if not same or chunk is None or chunk.physical_type not in ("INT32", "INT64"):
        return True
    statistics = chunk.statistics
    return statistics is None or not statistics.has_min_max or int(statistics.max_raw) > least


def partition_guarantee(
    partition: str,
    path_values: Sequence[tuple[str, str | None]],
    config: TableConfig,
    schema: pa.Schema,
) -> pc.Expression | None:
    """What is true of every row of a partition; None where its path says nothing for certain.

    ``path_values``: columns whose value readers take from the path. Otherwise a folder says what a text
    or integer column holds where the key generator writes values as they are; dates, times,
    custom paths and paths with another number of folders than fields say nothing.
    """
    told = {name: (True, text) for name, text in path_values}
    fields, parts = config.partition_fields, partition.split("/")
    if len(fields) == len(parts) and config.key_generator in ("SIMPLE", "COMPLEX"):
        for name, part in zip(fields, parts, strict=True):
            if name not in told:
                told[name] = _folder_text(name, part, config)
    known = [_equal(name, text, schema) for name, (sure, text) in told.items() if sure]
    found = [expression for expression in known if expression is not None]
    return reduce(and_, found) if found else None


# Folders of rows without a value; the second is that of releases before 0.12, and may be a value too.
_NO_VALUE = (DEFAULT_PARTITION, "default", "")


def _folder_text(name: str, part: str, config: TableConfig) -> tuple[bool, str | None]:
    """Whether the folder tells the column's value, and the value's text."""
    prefixed = part.startswith(f"{name}=")
    if prefixed != config.hive_style or ("%" in part and not config.url_encode):
        return False, None  # the writer's options may have been others than the table says
    part = part.removeprefix(f"{name}=")
    text = unquote(part) if config.url_encode else part
    return text not in _NO_VALUE, text


def _equal(name: str, text: str | None, schema: pa.Schema) -> pc.Expression | None:
    at = schema.get_field_index(name)
    if at < 0:
        return None
    kind = schema.field(at).type
    if text is None:
        return pc.field(name).is_null()
    if pa.types.is_string(kind):
        return pc.field(name) == pa.scalar(text, kind)
    if pa.types.is_integer(kind) and re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text):
        try:
            return pc.field(name) == pa.scalar(int(text), kind)
        except pa.ArrowInvalid:  # too large for the column: no value of it
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
    except (pa.ArrowException, TypeError):  # the filter itself is at fault: reading will say so
        return True
