"""Rows of expression indexes (``expr_index_*``) for the files that an action wrote.

Indexes of the type column statistics are maintained: as in Java's, they hold the range of a function's values
in each file, and loose rows of the partitions (``partition_statistics`` explains loose rows). In a file
without the column the values are nulls, as readers see them. A file with an unknown range has no row, so
readers keep it.

**What is refused**, before anything of the action is visible, because a query could otherwise miss rows:
functions that Arrow does not compute as Spark does, and functions whose values depend on the time zone of the
querying Spark session, which storage does not record. Also bloom filters of a function's values: with these,
Java's writers fail on tables with log files (1.2.0, ``Invalid base file ... for MetaIndexBloomFilter``).

Hudi: ``SparkMetadataWriterUtils.getExpressionIndexRecordsUsingColumnStats``.
"""

from __future__ import annotations

import pyarrow as pa

from mainstem.errors import CorruptTable, Unsupported
from mainstem.layout.properties import TableConfig
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.commits.action import Action
from mainstem.metadata.derive.column_ranges import Range
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.derive.statistics_rows import (
    expression_range,
    expression_rows,
    partition_ranges,
    removed_stats,
)
from mainstem.metadata.index_definitions import Definition, Definitions, read_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, Kind, kind_of
from mainstem.metadata.records.row_keys import V2
from mainstem.storage import paths
from mainstem.storage.protocol import Storage


def kept_expression(partition: str, definition: Definition | None) -> tuple[str, Expression]:
    """Column and function of an expression index that is maintained. Raises ``CorruptTable`` if no definition
    names them, ``Unsupported`` for an index that is not maintained here."""
    if definition is None or len(definition.fields) != 1:
        raise CorruptTable(
            f"hoodie.properties lists the index {partition}, but no definition names its column; drop it",
            path=paths.INDEX_DEFINITIONS,
        )
    if definition.index_type != COLUMN_STATS:
        raise Unsupported(
            f"{partition} is an expression index of the type {definition.index_type!r}: only those of the"
            f" type {COLUMN_STATS} are maintained; drop it"
        )
    if definition.version != V2:
        raise Unsupported(
            f"{partition} is an expression index of the version {definition.version!r}: only those of"
            f" tables of version 9 ({V2}) are maintained; drop it"
        )
    (column,) = definition.fields
    return column, Expression(definition.function, definition.options, zone=None)


def check_expressions(storage: Storage, config: TableConfig) -> None:
    """Raise ``Unsupported``, like ``kept_expression``, if the table lists an index that is not maintained.

    An index without a definition may just be being dropped; a commit that still finds it listed is refused.
    """
    listed = [name for name in config.metadata_partitions if kind_of(name) == Kind.EXPRESSION_INDEX]
    known = read_definitions(storage, config) if listed else Definitions()
    for partition in listed:
        if known.get(partition) is not None:
            kept_expression(partition, known.get(partition))


def expression_stats(action: Action, partition: str) -> pa.Table:
    """Rows of the added and removed files, and of the partitions that the action wrote to."""
    column, expression = kept_expression(partition, action.definitions.get(partition))
    top = column.partition(".")[0]
    files: list[tuple[str, str, Range]] = []
    for data_partition, name in action.changes.files():
        batches = action.batches(data_partition, name, [KEY_COLUMN, top])
        size = action.changes.added[data_partition][name]
        found = expression_range(batches, column, expression, file_size=size)
        if found is not None and found.rows:
            files.append((data_partition, name, found))
    gone = [removed_stats(p, names, [column]) for p, names in action.changes.deleted.items()]
    return pa.concat_tables([loose_expression_rows(files), *gone])


def loose_expression_rows(
    files: list[tuple[str, str, Range]], without: frozenset[str] = frozenset()
) -> pa.Table:
    """Rows of files, given as (partition, name, range), and loose rows of their partitions; files named in
    ``without`` get no row of their own."""
    by_partition: dict[str, list[list[Range]]] = {}
    for data_partition, _, found in files:
        by_partition.setdefault(data_partition, []).append([found])
    partitions = [(p, joined) for p, ranges in by_partition.items() for joined in partition_ranges(ranges)]
    named = [file for file in files if file[1] not in without]
    return expression_rows(named, partitions, tight=False)
