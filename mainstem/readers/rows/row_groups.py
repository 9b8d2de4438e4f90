"""Which row groups of a base file need not be read: what their statistics exclude.

Everything here errs towards reading. Arrow's own simplification of an expression under a guarantee
decides (``pyarrow.dataset``), so that nulls, types and functions mean here what they mean when the
rows are filtered.
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


def _is_told(base: BaseFile, split: SliceQuery) -> bool:
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


def may_win(base: BaseFile, group: int, spec: ReadSpec, least: int) -> bool:
    """Whether a row of the group may win against log rows whose ordering values are ``least`` or more.

    ``least`` is what ``merge.ordering_values.comparable`` makes of it: for numbers and times, themselves.
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
