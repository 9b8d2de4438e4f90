"""What Iceberg is told of a base file: rows, size, partition and bounds, all of it from the file's footer.

Partition values are taken from the column's statistics, which must show one value in the whole file; what a
path says is not believed, and where Hudi shows the path's value, the file's must be the same. Where a file
shows no single value, the table is unpartitioned for Iceberg from then on (partition evolution: older files
stay as they are); readers still skip files by their bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from mainstem.errors import CorruptTable, Unsupported
from mainstem.iceberg.columns import unfit
from mainstem.layout.properties import TableConfig
from mainstem.readers.rows.path_values import path_values
from mainstem.storage.protocol import Storage

_NOT_LISTED = -1
_ABSENT = object()


class NotOneValue(Exception):
    """A file of which its footer does not show that it has one partition."""


@dataclass(frozen=True)
class Footer:
    """A base file of a partition, by its path below the table; ``size`` in bytes."""

    path: str
    partition: str
    size: int
    metadata: pq.FileMetaData
    columns: pa.Schema


def read_footer(storage: Storage, path: str, partition: str) -> Footer:
    """Raises ``FileNotFoundError`` for a file that is gone, ``CorruptTable`` for one that is no Parquet."""
    with storage.open_input(path) as source:
        try:
            metadata = pq.read_metadata(source)
            return Footer(path, partition, source.size(), metadata, metadata.schema.to_arrow_schema())
        except pa.ArrowInvalid as error:
            raise CorruptTable(f"the file cannot be read as Parquet: {error}", path=path) from error


@dataclass(frozen=True)
class Describer:
    """Makes Iceberg's entries of footers. ``shown``: the table's columns (Arrow)."""

    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    config: TableConfig
    shown: pa.Schema

    def data_file(self, footer: Footer, location: str) -> DataFile:
        """Raises ``Unsupported`` for a file whose cells readers of Iceberg would see otherwise than Hudi's,
        ``NotOneValue`` for one without a partition of this spec."""
        ids = parquet_path_to_id_mapping(self.schema)
        self._check_nesting(footer, ids)
        wrong = unfit(self.schema, footer.columns)
        if wrong is not None:
            raise Unsupported(
                f"the base file {footer.path} holds the column {wrong}, which Iceberg does not read as such:"
                " once its file group is rewritten (compaction, clustering), publish again"
            )
        values = self._values(footer)
        plan = defaultdict(lambda: _nothing, compute_statistics_plan(self.schema, dict(self.properties)))
        listed = defaultdict(lambda: _NOT_LISTED, ids)
        told = data_file_statistics_from_parquet_metadata(footer.metadata, plan, listed).to_serialized_dict()
        told["column_sizes"].pop(_NOT_LISTED, None)
        found = DataFile.from_args(
            content=DataFileContent.DATA, file_path=location, file_format=FileFormat.PARQUET,
            partition=Record(*values), file_size_in_bytes=footer.size, sort_order_id=None,
            equality_ids=None, key_metadata=None, **told,
        )  # fmt: skip
        found.spec_id = self.spec.spec_id
        return found

    def _check_nesting(self, footer: Footer, ids: Mapping[str, int]) -> None:
        """Refuses lists in two levels, as Hudi's Spark writer has them: DuckDB shows their elements as nulls,
        and Spark's Iceberg fails."""
        own = {field.name for field in self.schema.fields}
        paths = (footer.metadata.schema.column(at).path for at in range(footer.metadata.num_columns))
        for path in paths:
            if path not in ids and path.partition(".")[0] in own:
                raise Unsupported(
                    f"the base file {footer.path} holds {path}, where Iceberg's readers look for lists as"
                    " NAME.list.element and maps as NAME.key_value: a compaction or clustering by mainstem"
                    " writes it so, Hudi's Spark writer with parquet.avro.write-old-list-structure=false"
                )

    def _values(self, footer: Footer) -> list[Any]:
        by_path = dict(path_values(footer.partition, self.config, self.shown))
        values: dict[str, Any] = {}
        for name, text in by_path.items():
            wanted = None if text is None else pa.scalar(text).cast(self.shown.field(name).type).as_py()
            if name not in footer.columns.names:
                raise Unsupported(f"the base file {footer.path} lacks the partition column {name}")
            if _only_value(footer.metadata, name) != wanted:
                raise Unsupported(
                    f"the column {name} of the base file {footer.path} is {wanted!r} by the partition's path,"
                    " as Hudi reads it, and something else in the file, as Iceberg would"
                )
            values[name] = wanted
        fields = [self.schema.find_field(field.source_id).name for field in self.spec.fields]
        for name in fields:
            if name not in values:
                values[name] = _only_value(footer.metadata, name)
        if any(values[name] is _ABSENT for name in fields):
            raise NotOneValue
        return [
            partition_record_value(field, values[name], self.schema)
            for field, name in zip(self.spec.fields, fields, strict=True)
        ]


class _Nothing:
    """A column that Iceberg does not list."""

    def __init__(self) -> None:
        self.mode = MetricsMode(MetricModeTypes.NONE)


_nothing: Any = _Nothing()


def _only_value(metadata: pq.FileMetaData, name: str) -> Any:
    """The one value of a column in a file, None if all are null; ``_ABSENT`` if its footer is silent."""
    found: list[Any] = []
    at = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == name), None)
    if at is None:
        return _ABSENT
    for number in range(metadata.num_row_groups):
        column = metadata.row_group(number).column(at)
        told = column.statistics
        if told is None or not told.has_null_count:
            return _ABSENT
        if told.null_count == column.num_values:
            found.append(None)
        elif told.null_count or not told.has_min_max:
            return _ABSENT
        else:
            try:
                found += (told.min, told.max)
            except OverflowError:  # a day that Python's dates do not have
                return _ABSENT
    return found[0] if found and all(one == found[0] for one in found) else _ABSENT
