"""``hudi_metadata(table)``: the metadata table's records as rows, with the columns that Java shows
(``HoodieMetadataRecord``): ``key``, ``type``, and a column for each kind of record, null in all others.

Each file group is read by a task of its own: a record index may have as many rows as the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.api.table import open_table
from mainstem.errors import Invalid
from mainstem.layout.slicing import FileSlice
from mainstem.metadata.metadata_partitions import ALL_PARTITIONS, Content
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.file_ids import fields_of
from mainstem.metadata.records.record_schema import PAYLOADS
from mainstem.metadata.records.row_merging import shown
from mainstem.metadata.records.typed_bounds import KINDS, typed
from mainstem.options.metadata import METADATA
from mainstem.readers.planning.table_state import TableState
from mainstem.spark.session_options import location_in
from mainstem.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.storage.location import Location

_BATCH_ROWS = 10_000


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which a value is shown: a time of day is its number, as Spark has no such type."""
    return pa.int64() if pa.types.is_time(kind) else kind


# Avro's union of value wrappers, as Spark shows unions: member0, member1, ...
_BOUND = pa.struct(
    [(f"member{number - 1}", pa.struct([("value", _plain(kind))])) for number, kind in sorted(KINDS.items())]
)
_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()
_COLUMNS: dict[Content, pa.DataType] = {
    Content.FILES: pa.map_(_TEXT, pa.struct([("size", _LONG), ("isDeleted", _FLAG)])),
    Content.BLOOM: pa.struct([
        ("type", _TEXT), ("timestamp", _TEXT), ("bloomFilter", pa.binary()), ("isDeleted", _FLAG),
    ]),
    Content.STATS: pa.struct([
        ("fileName", _TEXT), ("columnName", _TEXT), ("minValue", _BOUND), ("maxValue", _BOUND),
        ("valueCount", _LONG), ("nullCount", _LONG), ("totalSize", _LONG),
        ("totalUncompressedSize", _LONG), ("isDeleted", _FLAG), ("isTightBound", _FLAG),
        ("valueType", pa.struct([("typeOrdinal", _INT), ("additionalInfo", _TEXT)])),
    ]),
    Content.RECORDS: pa.struct([
        ("partitionName", _TEXT), ("fileIdHighBits", _LONG), ("fileIdLowBits", _LONG), ("fileIndex", _INT),
        ("fileId", _TEXT), ("instantTime", _LONG), ("fileIdEncoding", _INT), ("position", _LONG),
    ]),
    Content.SECONDARY: pa.struct([("isDeleted", _FLAG)]),
}  # fmt: skip
SCHEMA = pa.schema([
    ("key", _TEXT), ("type", _INT), *((PAYLOADS[content], kind) for content, kind in _COLUMNS.items()),
])  # fmt: skip


def metadata_rows(spark: SparkSession, path: str) -> DataFrame:
    """All records of the metadata table of the table at ``path``, as of now, without deleted ones.

    Raises ``Invalid`` for a table that has no metadata table.
    """
    location = location_in(spark, path)
    metadata = _metadata_of(location)
    slices = [found for partition in metadata.partitions for found in metadata.slices(partition)]
    tasks = spark.range(0, len(slices), 1, max(1, len(slices)))
    return tasks.mapInArrow(partial(_read, location, slices), spark_schema(SCHEMA))


def _metadata_of(location: Location) -> MetadataTable:
    opened = open_table(location).opened
    found = TableState.load(opened.seams.storage, opened.config).metadata_table
    if found is None:
        raise Invalid(
            f"hudi_metadata: the table has no metadata table; CREATE INDEX makes one, or {METADATA}=true",
            table=location.base,
        )
    return found


def _read(
    location: Location, slices: Sequence[FileSlice], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    wanted = [number for batch in numbers for number in batch.column(0).to_pylist()]
    if not wanted:
        return
    metadata = _metadata_of(location)
    for number in wanted:
        found = slices[number]
        content = metadata.content(found.partition)
        rows = shown(content, metadata.slice_rows(found))
        step = max(1, len(rows)) if content == Content.FILES else _BATCH_ROWS  # a key of files is many rows
        for start in range(0, len(rows), step):
            yield from records(content, rows.slice(start, step)).to_batches()


def records(content: Content, rows: pa.Table) -> pa.Table:
    """Flat rows (``flat_rows.SCHEMAS``) as records of ``SCHEMA``; all names of a key of ``files`` at once."""
    rows = rows.combine_chunks()
    key, kind, payload = _SHAPES[content](rows)
    payload = payload.cast(_COLUMNS[content])
    columns = [pa.array(key, _TEXT) if isinstance(key, list) else key.cast(_TEXT), kind.cast(_INT)]
    for other in _COLUMNS:
        columns.append(payload if other == content else pa.nulls(len(payload), _COLUMNS[other]))
    return pa.table(columns, schema=SCHEMA)


_Shaped = tuple["pa.Array | list[str]", pa.Array, pa.Array]


def _one(rows: pa.Table, name: str) -> pa.Array:
    """A column as one array."""
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks else pa.nulls(0, column.type)


def _constant(value: int, count: int) -> pa.Array:
    return pa.array(np.full(count, value, np.int32))


def _files(rows: pa.Table) -> _Shaped:
    by_key: dict[str, list[tuple[str, dict[str, object]]]] = {}
    names = ("key", "name", "size", "deleted")
    for key, name, size, deleted in zip(*(_one(rows, n).to_pylist() for n in names), strict=True):
        by_key.setdefault(key, []).append((name, {"size": size, "isDeleted": deleted}))
    kinds = [1 if key == ALL_PARTITIONS else 2 for key in by_key]
    return list(by_key), pa.array(kinds, _INT), pa.array(list(by_key.values()), _COLUMNS[Content.FILES])


def _bound(rows: pa.Table, which: str) -> pa.Array:
    kinds = np.asarray(_one(rows, f"{which}_kind"))
    values, members = _one(rows, which), []
    for number, kind in sorted(KINDS.items()):
        here = pa.array(kinds == number)
        value = pa.nulls(len(rows), _plain(kind))
        if pc.any(here).as_py():
            some = typed(values.filter(here), number).cast(_plain(kind))
            value = pc.replace_with_mask(value, here, some)
        members.append(_struct({"value": value}, kinds != number))
    made = dict(zip([field.name for field in _BOUND], members, strict=True))
    return _struct(made, kinds == 0)


def _struct(columns: dict[str, pa.Array], nothing: np.ndarray | None = None) -> pa.Array:
    mask = None if nothing is None else pa.array(nothing)
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=mask)


def _stats(rows: pa.Table) -> _Shaped:
    ordinal = _one(rows, "ordinal")
    typed_by = _struct(
        {"typeOrdinal": ordinal, "additionalInfo": _one(rows, "type_info")},
        np.asarray(ordinal.is_null()),
    )
    return _one(rows, "key"), _one(rows, "type"), _struct({
        "fileName": _one(rows, "file"), "columnName": _one(rows, "column"), "minValue": _bound(rows, "min"),
        "maxValue": _bound(rows, "max"), "valueCount": _one(rows, "value_count"),
        "nullCount": _one(rows, "null_count"), "totalSize": _one(rows, "total_size"),
        "totalUncompressedSize": _one(rows, "total_uncompressed_size"), "isDeleted": _one(rows, "deleted"),
        "isTightBound": _one(rows, "tight"), "valueType": typed_by,
    })  # fmt: skip


def _bloom(rows: pa.Table) -> _Shaped:
    return _one(rows, "key"), _constant(4, len(rows)), _struct({
        "type": _one(rows, "type"), "timestamp": _one(rows, "timestamp"),
        "bloomFilter": _one(rows, "bloom"), "isDeleted": _one(rows, "deleted"),
    })  # fmt: skip


def _record_index(rows: pa.Table) -> _Shaped:
    ids = fields_of(_one(rows, "file_id"))
    return _one(rows, "key"), _constant(5, len(rows)), _struct({
        "partitionName": _one(rows, "partition"), **{name: ids[name] for name in (
            "fileIdHighBits", "fileIdLowBits", "fileIndex", "fileId")},
        "instantTime": _one(rows, "instant_ms"), "fileIdEncoding": _one(rows, "encoding"),
        "position": _one(rows, "position"),
    })  # fmt: skip


def _secondary(rows: pa.Table) -> _Shaped:
    return _one(rows, "key"), _constant(7, len(rows)), _struct({"isDeleted": _one(rows, "deleted")})


_SHAPES: dict[Content, Callable[[pa.Table], _Shaped]] = {
    Content.FILES: _files, Content.STATS: _stats, Content.BLOOM: _bloom, Content.RECORDS: _record_index,
    Content.SECONDARY: _secondary,
}  # fmt: skip
