"""Partitions of the metadata table: their names, the kind of their rows, and their file groups.

Names, prefixes and the escaping of data partitions follow MetadataPartitionType, HoodieTableMetadataUtil and
PartitionPathEncodeUtils of Hudi 1.2. A partition has a fixed number of file groups, numbered from 0; the
partitioned record index has a fixed number per partition of the data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from mainstem.errors import Invalid
from mainstem.limits import FILE_NAME_BYTES_MAX
from mainstem.options.metadata import PARTITIONS

#: Property of the data table that names the complete partitions.
#: Property that names the partitions being built.

FILES = "files"
COLUMN_STATS = "column_stats"
BLOOM_FILTERS = "bloom_filters"
RECORD_INDEX = "record_index"
PARTITION_STATS = "partition_stats"
EXPRESSION_PREFIX = "expr_index_"
SECONDARY_PREFIX = "secondary_index_"

#: Key of the row in ``files`` that names all partitions.
ALL_PARTITIONS = "__all_partitions__"
#: The name, in keys and rows, of the one partition of a non-partitioned table.
NON_PARTITIONED = "."


class Kind(StrEnum):
    """Kinds of partitions of the metadata table (MetadataPartitionType)."""

    FILES = FILES
    COLUMN_STATS = COLUMN_STATS
    BLOOM_FILTERS = BLOOM_FILTERS
    RECORD_INDEX = RECORD_INDEX
    EXPRESSION_INDEX = "expr_index"
    SECONDARY_INDEX = "secondary_index"
    PARTITION_STATS = PARTITION_STATS


class Content(StrEnum):
    """Kinds of rows in a partition; each has one flat Arrow schema (``records.flat_rows.SCHEMAS``)."""

    FILES = "files"
    STATS = "stats"
    BLOOM = "bloom"
    RECORDS = "records"
    SECONDARY = "secondary"


_CONTENTS = {
    Kind.FILES: Content.FILES,
    Kind.COLUMN_STATS: Content.STATS,
    Kind.PARTITION_STATS: Content.STATS,
    Kind.BLOOM_FILTERS: Content.BLOOM,
    Kind.RECORD_INDEX: Content.RECORDS,
    Kind.SECONDARY_INDEX: Content.SECONDARY,
}
_PREFIXES = {
    FILES: "files-",
    COLUMN_STATS: "col-stats-",
    BLOOM_FILTERS: "bloom-filters-",
    RECORD_INDEX: "record-index-",
    PARTITION_STATS: "partition-stats-",
}
# Besides control characters and DEL, all that separates the parts of a file id. Java leaves dots unescaped,
# and then does not recognise log files with such an id (FSUtils.LOG_FILE_PATTERN).
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f_-.") | {chr(code) for code in range(1, 0x20)}
# A file name also holds instant, number and token; Hadoop's checksum file adds two dots and an ending.
_ID_BYTES_MAX = FILE_NAME_BYTES_MAX - 45
_HEX = re.compile(r"%([0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"-([0-9]{1,9})\Z")


def ready_partitions(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Partitions that the table's properties name as complete."""
    return tuple(p.strip() for p in properties.get(PARTITIONS, "").split(",") if p.strip())


def has_metadata(properties: Mapping[str, str]) -> bool:
    """Whether the table has a usable metadata table: it must include ``files``."""
    return FILES in ready_partitions(properties)


def kind_of(partition: str) -> Kind | None:
    """The kind of a partition; None for one that Hudi 1.2 does not have."""
    if partition in _PREFIXES:
        return Kind(partition)
    if partition.startswith(EXPRESSION_PREFIX):
        return Kind.EXPRESSION_INDEX
    return Kind.SECONDARY_INDEX if partition.startswith(SECONDARY_PREFIX) else None


def content_of(partition: str, index_type: str = COLUMN_STATS) -> Content | None:
    """The kind of a partition's rows; None for an unknown partition.

    ``index_type`` is that of an expression index's definition (``column_stats`` or ``bloom_filters``).
    """
    kind = kind_of(partition)
    if kind == Kind.EXPRESSION_INDEX:
        return Content.BLOOM if index_type == BLOOM_FILTERS else Content.STATS
    return None if kind is None else _CONTENTS[kind]


def file_id_prefix(partition: str) -> str:
    """The prefix of file ids: ``col-stats-`` for ``column_stats``, ``secondary-index-a-b-`` for
    ``secondary_index_a_b``."""
    return _PREFIXES.get(partition) or partition.replace("_", "-") + "-"


def file_id(partition: str, index: int, data_partition: str | None = None) -> str:
    """File id of group ``index``; ``data_partition``: of a group in a partitioned record index.

    ``Invalid`` for a data partition whose path is too long for file names.
    """
    inner = "" if data_partition is None else f"{escape(data_partition)}-"
    made = f"{file_id_prefix(partition)}{inner}{index:04d}-0"
    if len(made.encode()) > _ID_BYTES_MAX:
        raise Invalid(
            f"the partition {data_partition!r:.300} is too long for names of files of {partition}, which hold"
            f" it escaped: {len(made.encode())} bytes, at most {_ID_BYTES_MAX}; drop that index, or write"
            " elsewhere"
        )
    return made


def group_index(group_id: str) -> int | None:
    """The number in a file group's id; None if there is none."""
    match = _NUMBER.search(group_id.removesuffix("-0"))
    return int(match.group(1)) if match else None


def is_partitioned_group(group_id: str) -> bool:
    """Whether a file id of ``record_index`` belongs to a partitioned record index: it has four dashes."""
    return group_id.count("-") == 4


def data_partition_of(group_id: str) -> str:
    """The data partition in a file id of the partitioned record index."""
    return unescape(group_id.split("-")[-3])


def escape(data_partition: str) -> str:
    """A data partition as part of a file id, without dashes, underscores, dots and path separators."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in data_partition)


def unescape(text: str) -> str:
    """The inverse of ``escape``."""
    return _HEX.sub(lambda found: chr(int(found.group(1), 16)), text)


def in_keys(partition: str) -> str:
    """A partition path as rows and keys of the metadata table spell it."""
    return partition or NON_PARTITIONED


def in_paths(partition: str) -> str:
    """The inverse of ``in_keys``."""
    return "" if partition == NON_PARTITIONED else partition
