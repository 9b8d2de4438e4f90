"""Rules out row groups of a base file by their statistics.

In doubt, a row group is read. The decision is Arrow's own simplification of an expression under a
guarantee (``pyarrow.dataset``), so nulls, types and functions mean the same here as when rows are
filtered.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds

from mainstem.filters.expression_tree import Call, Column, Literal, Node, tree
from mainstem.merge.comparison import earlier_may_win
from mainstem.merge.ordering_values import LOWEST
from mainstem.readers.rows.base_rows import BaseFile
from mainstem.readers.rows.slice_query import ReadSpec, SliceQuery

_JOINING = ("and", "and_kleene", "or", "or_kleene")
_COMPARING = ("equal", "less", "less_equal", "greater", "greater_equal")


def matching_groups(base: BaseFile, split: SliceQuery) -> frozenset[int]:
    """Row groups of a base file in which a row may pass the filter."""
    everything = frozenset(range(base.group_count))
    spec = split.spec
    if spec.filter is None or not _is_told(base, split):
        return everything
    try:
        fragment = ds.ParquetFileFormat().make_fragment(base.file)
        found = fragment.subset(filter=spec.filter, schema=spec.schema).row_groups
    except (pa.ArrowException, OSError, TypeError):  # the filter itself is wrong: reading will report it
        return everything
    unsure = (group for group in everything if _has_unsure_bounds(base, group, spec))
    return frozenset(group.id for group in found).union(unsure)


def _has_unsure_bounds(base: BaseFile, group: int, spec: ReadSpec) -> bool:
    """Whether a text bound may be missing: Parquet stores no bound of 4 KiB or more, and older Arrow releases
    report a missing bound as empty if the other one is present."""
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


def _is_told(base: BaseFile, split: SliceQuery) -> bool:
    """Whether the file's statistics describe exactly the values that the filter will see."""
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
    """Whether NaN fails the filter wherever all numbers of a range fail it. Statistics of floating point
    columns ignore NaN, so they cannot decide a filter that NaN may pass: anything but comparisons of columns
    with values (not ``!=``), joined by and/or."""
    if not isinstance(node, Call):
        return isinstance(node, Column | Literal)
    if node.function in _JOINING:
        return all(_fails_for_nan(argument) for argument in node.arguments)
    plain = all(isinstance(argument, Column | Literal) for argument in node.arguments)
    return plain and node.function in _COMPARING


def may_win(base: BaseFile, group: int, spec: ReadSpec, least: int) -> bool:
    """Whether a row of the group may win against log rows whose ordering values are ``least`` or more.

    ``least`` is an integer of ``merge.ordering_values.comparable``; for integers and times, the value itself.
    """
    if len(spec.rules.ordering) != 1:
        return True
    name = spec.rules.ordering[0]
    kind = spec.schema.field(name).type
    if name not in base.names:
        return earlier_may_win(LOWEST, least)
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return True
    chunk = base.column_of(group, name)
    same = base.source.schema_arrow.field(name).type == kind
    if not same or chunk is None or chunk.physical_type not in ("INT32", "INT64"):
        return True
    statistics = chunk.statistics
    told = statistics is not None and statistics.has_min_max
    return not told or earlier_may_win(int(statistics.max_raw), least)
