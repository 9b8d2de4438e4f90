"""Ranges of columns (least and greatest value, numbers of nulls and rows), from rows and base file footers.

Values are kept in the plain form that Avro stores (``HoodieColumnRangeMetadata`` has the same kinds): bool,
int (dates as days, times and timestamps in their unit, decimals unscaled), float, str or bytes; the Arrow
type beside them gives their meaning. They are ordered as in Spark and Java's writers: texts and bytes by
unsigned bytes, floats with NaN above infinity and -0.0 below 0.0.

Java 1.2.0 differs in two places, by mistake. For a column with NaN, its footer range is 0.0 to 0.0, which
does not bound the values (parquet-java drops a range with NaN and leaves zeros). And it compares binary
columns of log files by *signed* bytes (``ByteBuffer.compareTo``), so a range may end before it begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.avro_schema import META_FIELDS, AvroType, record_type, value_type
from mainstem.formats.conversions import float_to_double
from mainstem.metadata.derive.lacking_columns import NOTHING, Lacking, lacks

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Meta columns that are always indexed if stored, in Java's order (HoodieTableMetadataUtil).
META_COLUMNS = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
# hoodie.metadata.index.column.stats.max.columns.to.index
COLUMNS_DEFAULT = 32
_NOT_INDEXED = ("record", "array", "map", "enum")
_OPERATION = "_hoodie_operation"
# The name of Java's parquet library in footers.
_JAVA = "parquet-mr"
# Index version V1 stores decimals as decimal(30,15) (DecimalWrapper).
DECIMAL_DIGITS, DECIMAL_SCALE = 30, 15


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of one column of one file.

    ``low`` and ``high`` are None if there is no value or they are unknown (see ``is_bounded``). ``rows``
    includes nulls. ``size`` and ``plain_size`` are the column's bytes in a base file, compressed and
    uncompressed.
    """

    column: str
    type: pa.DataType
    low: Any
    high: Any
    rows: int
    nulls: int
    size: int = 0
    plain_size: int = 0

    @property
    def is_bounded(self) -> bool:
        """Whether every non-null value lies between ``low`` and ``high``."""
        return self.low is not None or self.rows == self.nulls


def indexed_columns(
    schema_text: str,
    listed: Sequence[str] = (),
    *,
    count: int = COLUMNS_DEFAULT,
    first_version: bool = False,
    meta_fields: bool = True,
) -> list[str]:
    """The columns that Java indexes in a table of this Avro schema, meta columns first.

    ``listed``: ``hoodie.metadata.index.column.stats.column.list``, in which dots lead into structs; without
    it, the first ``count`` columns of a supported type. ``first_version``: index version V1, whose decimals
    are narrower. As in Java, a listed name is left out if it is no column or its type has no range.
    """
    root = record_type(schema_text)
    names = list(listed) or [name for name, _ in root.fields]
    wanted = []
    for name in names:
        kind = _type_at(root, name)
        if name not in (*META_FIELDS, _OPERATION) and kind is not None and is_indexable(kind, first_version):
            wanted.append(name)
    wanted = wanted if listed else wanted[:count]
    return [*(META_COLUMNS if meta_fields else ()), *wanted]


def _type_at(kind: AvroType, name: str) -> AvroType | None:
    for part in name.split("."):
        found = dict(kind.fields).get(part) if kind.kind == "record" else None
        if found is None:
            return None
        kind = found
    return kind


def is_indexable(kind: AvroType, first_version: bool = False) -> bool:
    """Whether values of this type have a range (HoodieTableMetadataUtil.isColumnTypeSupported)."""
    if kind.kind in _NOT_INDEXED or kind.logical == "vector":
        return False
    if first_version and kind.logical == "decimal":
        return fits_first_version(kind.precision, kind.scale)
    return True


def fits_first_version(precision: int, scale: int) -> bool:
    """Whether decimals of this type fit into decimal(30,15), as which index version V1 stores them."""
    return scale <= DECIMAL_SCALE and precision + DECIMAL_SCALE - scale <= DECIMAL_DIGITS


# ------------------------------------------------------------------------------------------- rows


def ranges_of(
    rows: pa.Table | Iterable[pa.Table], columns: Sequence[str], lacking: Lacking = NOTHING
) -> list[Range]:
    """Ranges over all rows, in the order of ``columns``. Columns that no batch has count as nulls if they are
    in ``lacking``, and are left out otherwise.

    Looks at one batch at a time. If only some batches have a column, the others' rows count as nulls: a log
    file whose schema grew has such blocks.
    """
    found: dict[str, Range] = {}
    without = dict.fromkeys(columns, 0)
    names: set[str] = set()
    for batch in [rows] if isinstance(rows, pa.Table) else rows:
        names.update(batch.schema.names)
        for name in columns:
            column = column_at(batch, name)
            if column is None:
                without[name] += batch.num_rows
            else:
                made = _range(name, column)
                found[name] = joined(found[name], made) if name in found else made
    for name in lacking.keys() - found.keys():
        if lacks(names, name):
            found[name] = Range(name, value_type(lacking[name]), None, None, 0, 0)
    return [_with_nulls(found[name], without[name]) for name in columns if name in found]


#: with up to so many texts per slice they are compared in Python: a call of Arrow's takes longer
_FEW_TEXTS = 64


def ranges_of_slices(
    batch: pa.Table,
    slices: Sequence[tuple[int, int]],
    columns: Sequence[str],
    lacking: Lacking = NOTHING,
) -> list[list[Range]]:
    """``ranges_of`` for each of several slices (first row, rows) of a batch. Columns without nulls are
    examined once for all slices, where that is exact: each file of a small commit has only a few rows."""
    found: list[list[Range]] = [[] for _ in slices]
    for name in columns:
        column = column_at(batch, name)
        if column is None:
            if name in lacking and lacks(batch.schema.names, name):
                for ranges, (_, count) in zip(found, slices, strict=True):
                    ranges.append(Range(name, value_type(lacking[name]), None, None, count, count))
            continue
        kind = value_type(column.type)
        known = _ends_of_slices(column, kind, slices)
        for ranges, (low, count), ends in zip(found, slices, known, strict=True):
            if ends is None:
                ranges.append(_range(name, column.slice(low, count)))
            else:
                ranges.append(Range(name, kind, *ends, count, 0))
    return found


def _ends_of_slices(
    column: pa.ChunkedArray, kind: pa.DataType, slices: Sequence[tuple[int, int]]
) -> Sequence[tuple[Any, Any] | None]:
    """Least and greatest values of the slices, None where unknown; a constant column needs one look."""
    types, unknown = pa.types, [None] * len(slices)
    if column.null_count or column.type != kind or not all(count for _, count in slices):
        return unknown
    if types.is_string(kind):
        if column[0] == column[-1]:
            ends = pc.min_max(column).as_py()
            if ends["min"] == ends["max"]:
                return [(ends["min"], ends["max"])] * len(slices)
        if len(column) > _FEW_TEXTS * len(slices):
            return unknown
        texts = column.to_pylist()  # compared by code points, whose order is that of the UTF-8 bytes
        parts = (texts[low : low + count] for low, count in slices)
        return [(min(part), max(part)) for part in parts]
    column = _as_stored(column, kind)
    if not (types.is_integer(column.type) or types.is_float32(kind) or types.is_float64(kind)):
        return unknown
    values = column.to_numpy()
    values = np.append(values, values[:1])  # lets a slice end at the column's end
    edges = np.array(slices).ravel()
    edges[1::2] += edges[::2]
    lows, highs = (f.reduceat(values, edges)[::2].tolist() for f in (np.minimum, np.maximum))
    ends = zip(lows, highs, strict=True)
    # A zero could be 0.0 or -0.0, and NaN hides the other numbers: compute these slices one by one.
    return [None if isinstance(low, float) and (low == 0 or high == 0 or low != low) else (low, high)
            for low, high in ends]  # fmt: skip


def _with_nulls(found: Range, count: int) -> Range:
    return replace(found, rows=found.rows + count, nulls=found.nulls + count) if count else found


def column_at(batch: pa.Table, name: str) -> pa.ChunkedArray | None:
    """A column, or by a name with dots a field of a struct; None if there is none."""
    if batch.schema.get_field_index(name) >= 0:
        return batch.column(name)
    first, *rest = name.split(".")
    if not rest or batch.schema.get_field_index(first) < 0:
        return None
    column = batch.column(first)
    for part in rest:
        kind = column.type
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        column = pc.struct_field(column, part)
    return column


def _range(name: str, column: pa.ChunkedArray) -> Range:
    kind = value_type(column.type)
    nulls = column.null_count
    if nulls == len(column):
        return Range(name, kind, None, None, len(column), nulls)
    low, high = _ends(column, kind)
    return Range(name, kind, low, high, len(column), nulls)


def _ends(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[Any, Any]:
    types = pa.types
    if types.is_floating(kind):
        return _float_ends(column)
    ends = pc.min_max(_as_stored(column, kind)).as_py()
    if types.is_decimal(kind):
        return unscaled(ends["min"], kind.scale), unscaled(ends["max"], kind.scale)
    return ends["min"], ends["max"]


def _as_stored(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values in the form that Avro stores: dates and times as integers."""
    types = pa.types
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return column if column.type == kind else column.cast(kind)


def _float_ends(column: pa.ChunkedArray) -> tuple[float, float]:
    values = column.drop_null().to_numpy()
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return math.nan, math.nan
    low, high = float(numbers.min()), float(numbers.max())
    if low == 0 or high == 0:
        negative = np.signbit(numbers[numbers == 0])
        low = (-0.0 if negative.any() else 0.0) if low == 0 else low
        high = (-0.0 if negative.all() else 0.0) if high == 0 else high
    return low, math.nan if len(numbers) < len(values) else high


def unscaled(value: Any, scale: int) -> int:
    """The integer as which a decimal is stored."""
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number


# ---------------------------------------------------------------------------------------- joining


def joined(one: Range, other: Range) -> Range:
    """The range of both files' values together, with their counts added.

    Numbers of two types are joined in the wider one. A range of types without a common order is not bounded.
    """
    first, second = _alike(one, other)
    summed = partial(
        replace,
        rows=one.rows + other.rows,
        nulls=one.nulls + other.nulls,
        size=one.size + other.size,
        plain_size=one.plain_size + other.plain_size,
    )
    if first is None or second is None or not (one.is_bounded and other.is_bounded):
        return summed(one, low=None, high=None)
    if first.low is None or second.low is None:
        plain = first.low is None and not (second.low is None and pa.types.is_null(second.type))
        return summed(second if plain else first)
    return summed(
        first,
        low=min(first.low, second.low, key=order_key),
        high=max(first.high, second.high, key=order_key),
    )


def order_key(value: Any) -> Any:
    """A sort key that orders values of one type as Spark does."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _alike(one: Range, other: Range) -> tuple[Range | None, Range | None]:
    if one.type == other.type:
        return one, other
    if one.low is None or other.low is None:
        return one, other
    for target in (one.type, other.type):
        pair = [converted(r, target) for r in (one, other)]
        if None not in pair:
            return pair[0], pair[1]
    return None, None


def converted(found: Range, target: pa.DataType) -> Range | None:
    """The same range in a wider type; None if that could change the order of values."""
    types, source = pa.types, found.type
    if source == target or found.low is None:
        return replace(found, type=target)
    if types.is_integer(source) and types.is_integer(target):
        return replace(found, type=target) if source.bit_width <= target.bit_width else None
    if types.is_floating(target) and (types.is_integer(source) or types.is_floating(source)):
        if types.is_floating(source) and source.bit_width > target.bit_width:
            return None
        if types.is_float32(source) and types.is_float64(target):  # as rows are read
            low, high = float_to_double(pa.array([found.low, found.high], source)).to_pylist()
            return replace(found, type=target, low=low, high=high)
        return replace(found, type=target, low=float(found.low), high=float(found.high))
    if types.is_decimal(target) and types.is_decimal(source) and source.scale <= target.scale:
        factor = 10 ** (target.scale - source.scale)
        return replace(found, type=target, low=found.low * factor, high=found.high * factor)
    return None


# ------------------------------------------------------------------------------------ base files


def base_file_ranges(
    footer: pq.FileMetaData,
    columns: Sequence[str],
    batches: Callable[[list[str]], Iterable[pa.Table]],
    lacking: Lacking = NOTHING,
) -> list[Range]:
    """Ranges of a base file's columns: from its footer where that is exact, else from its rows.

    ``batches``: returns the file's rows in the given columns, batch by batch; called only if needed. Columns
    that the file lacks count as nulls if they are in ``lacking``, and are left out otherwise.
    """
    found = dict(footer_ranges(footer, columns))
    if lacking.keys() - found.keys():
        names, rows = footer.schema.to_arrow_schema().names, footer.num_rows
        found |= {
            name: Range(name, value_type(kind), None, None, rows, rows)
            for name, kind in lacking.items() if name not in found and lacks(names, name)
        }  # fmt: skip
    open_ones = [name for name, made in found.items() if made is None]
    if open_ones:
        tops = list(dict.fromkeys(name.partition(".")[0] for name in open_ones))
        sizes = _chunk_sizes(footer)
        for made in ranges_of(batches(tops), open_ones):
            found[made.column] = replace(made, size=sizes[made.column][0], plain_size=sizes[made.column][1])
    return [made for made in found.values() if made is not None]


def _chunk_sizes(footer: pq.FileMetaData) -> dict[str, tuple[int, int]]:
    """Bytes of each column, compressed and uncompressed."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for chunk in (group.column(place) for place in range(group.num_columns)):
            before = found.get(chunk.path_in_schema, (0, 0))
            sizes = (chunk.total_compressed_size, chunk.total_uncompressed_size)
            found[chunk.path_in_schema] = (before[0] + sizes[0], before[1] + sizes[1])
    return found


def footer_ranges(footer: pq.FileMetaData, columns: Sequence[str]) -> Mapping[str, Range | None]:
    """Ranges from a base file's footer where it is exact; None for columns whose rows must be read.

    Columns that the file lacks are left out. None means: a text too long for a footer, missing statistics, or
    floats of a writer that leaves NaN out of them (all except Java's).
    """
    schema = footer.schema
    places = {schema.column(n).path: n for n in range(len(schema))}
    kinds = schema.to_arrow_schema()
    java = str(footer.created_by).startswith(_JAVA)
    found: dict[str, Range | None] = {}
    for name in columns:
        kind = _kind_at(kinds, name)
        if name in places and kind is not None:
            looked_at = pa.types.is_floating(kind) and not java
            found[name] = None if looked_at else _chunks(footer, places[name], name, kind)
    return found


def _kind_at(schema: pa.Schema, name: str) -> pa.DataType | None:
    kind: pa.DataType = pa.struct(list(schema))
    for part in name.split("."):
        at = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
        if at < 0:
            return None
        kind = kind.field(at).type
    return kind


def _chunks(footer: pq.FileMetaData, place: int, name: str, kind: pa.DataType) -> Range | None:
    total = Range(name, value_type(kind), None, None, 0, 0)
    for number in range(footer.num_row_groups):
        made = _chunk(footer.row_group(number).column(place), name, kind)
        if made is None:
            return None
        total = joined(total, made)
    return total


def _chunk(chunk: Any, name: str, kind: pa.DataType) -> Range | None:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return None
    rows, nulls = chunk.num_values, statistics.null_count
    low = high = None
    if rows > nulls:
        if not statistics.has_min_max:
            return None
        bounds = (statistics.min_raw, statistics.max_raw)
        if b"" in bounds:
            return None  # an empty text, or a missing bound, which older Arrow releases return as empty
        low, high = (_stored(v, kind, chunk.physical_type) for v in bounds)
        if low is None or high is None:
            return None
        # A zero may stand for either zero; take the wider range, as Java does.
        low = -0.0 if isinstance(low, float) and low == 0 else low
        high = 0.0 if isinstance(high, float) and high == 0 else high
    sizes = (chunk.total_compressed_size, chunk.total_uncompressed_size)
    return Range(name, value_type(kind), low, high, rows, nulls, *sizes)


def _stored(raw: Any, kind: pa.DataType, physical: str) -> Any:
    types = pa.types
    if types.is_decimal(kind):
        return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    if physical == "INT96":
        return None
    if isinstance(raw, bytes) and (types.is_string(kind) or types.is_large_string(kind)):
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return raw
