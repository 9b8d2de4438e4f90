"""INSERT INTO, INSERT OVERWRITE and TRUNCATE TABLE on a table of this source: one commit each.

The query is Spark's, word for word. Its columns are matched with the table's own (without Hudi's meta
columns) by position, by the names of a column list, or BY NAME, and stored as Spark stores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.key_generator import KeyGenerator
from mainstem.options.engines import INSERT_OPERATION, OPERATION, OVERWRITE_MODE
from mainstem.spark.pushed_down import items
from mainstem.spark.sink import write_batch
from mainstem.spark.stored_values import Storing
from mainstem.spark.types import spark_schema
from mainstem.writers.outcome import EMPTY, Outcome
from mainstem.writers.write_spec import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SESSION_MODE = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True)
class Insert:
    """An INSERT as Spark parsed it. ``query``: its text, with a WITH before it; ``partition``: the static
    values of PARTITION (None: dynamic); ``columns``: of its list."""

    query: str
    columns: tuple[str, ...]
    partition: Mapping[str, str | None]
    overwrite: bool
    by_name: bool

    @property
    def verb(self) -> str:
        """For messages."""
        return "INSERT OVERWRITE" if self.overwrite else "INSERT INTO"

    @property
    def static(self) -> dict[str, str]:
        """The static values of PARTITION."""
        return {name: value for name, value in self.partition.items() if value is not None}


def insert_of(plan: Any, text: str) -> Insert | None:
    """The parts of a parsed INSERT; None for forms that are left to Spark (FROM ... INSERT INTO)."""
    with_before = plan.nodeName() == "UnresolvedWith"
    node = plan.children().apply(0) if with_before else plan
    origin = node.origin()
    start, end = origin.startIndex().get(), origin.stopIndex().get() + 1
    if text[:start].strip() and not with_before:
        return None
    if node.ifPartitionNotExists():
        raise Unsupported("INSERT OVERWRITE ... IF NOT EXISTS: look whether the partition is there first")
    partition = {
        pair._1(): pair._2().get() if pair._2().isDefined() else None
        for pair in items(node.partitionSpec().toSeq())
    }
    return Insert(
        f"{text[:start]}{text[end:]}", tuple(items(node.userSpecifiedCols())), partition, node.overwrite(),
        node.byName(),
    )  # fmt: skip


def insert(
    spark: SparkSession,
    statement: Insert,
    table: Table,
    properties: Mapping[str, object],
    arguments: Mapping[str, Any],
) -> Outcome:
    """Carries out an INSERT. Raises ``Invalid`` for columns that do not fit; nothing is written then."""
    rows = _rows(spark, statement, table, spark.sql(statement.query, **arguments))
    given = dict(properties)
    if not statement.overwrite:
        asked = {name: text for name in INSERT_OPERATION.names if (text := spark.conf.get(name, None))}
        asked = {name: text.strip("'\"") for name, text in asked.items()}  # SET keeps quotes
        asked |= {name: str(given.pop(name)) for name in INSERT_OPERATION.names if name in given}
        given = {OPERATION: INSERT_OPERATION.read(asked).lower(), **given}
        return write_batch(rows, table.path, options=given)
    fields = table.config.partition_fields
    static = {name for name in fields if name in _by_column(spark, statement, table)}
    whole = bool(fields) and static == set(fields)
    mode = str(given.get(OVERWRITE_MODE) or spark.conf.get(_SESSION_MODE)).upper()
    if static and not whole and mode != "DYNAMIC":
        raise Unsupported(
            f"INSERT OVERWRITE with some of the partition columns ({', '.join(sorted(static))}) in mode"
            f" STATIC: give all of {', '.join(fields)}, or set {_SESSION_MODE}=dynamic for the partitions of"
            " the rows",
            table=table.path,
        )
    operation = INSERT_OVERWRITE if whole or (fields and mode == "DYNAMIC") else INSERT_OVERWRITE_TABLE
    outcome = write_batch(rows, table.path, options={**given, OPERATION: operation})
    if whole and outcome.status == EMPTY:
        path = partition_path(table, _by_column(spark, statement, table))
        return table.delete_partition(path) if _is_there(table, path) else outcome
    return outcome


def _by_column(spark: SparkSession, statement: Insert, table: Table) -> dict[str, str]:
    """The static values of PARTITION, by the table's columns."""
    storing = Storing(spark, statement.verb, table.path)
    found = {}
    for name, value in statement.static.items():
        found[_column(storing, table, name)] = value
    return found


def _column(storing: Storing, table: Table, name: str) -> str:
    found = next((n for n in table.schema.names if storing.alike(n, name)), None)
    if found is None:
        raise Invalid(
            f"{storing.verb}: the table has no column {name!r}; it has {', '.join(table.schema.names)}",
            table=table.path,
        )
    return found


def _rows(spark: SparkSession, statement: Insert, table: Table, query: DataFrame) -> DataFrame:
    """The query's rows in the table's columns and types."""
    from pyspark.sql import functions as F

    storing = Storing(spark, statement.verb, table.path)
    schema, static = spark_schema(table.schema), _by_column(spark, statement, table)
    for name in statement.partition:
        if _column(storing, table, name) not in table.config.partition_fields:
            raise Invalid(
                f"{statement.verb}: PARTITION names {name!r}; the table's partition columns are"
                f" {', '.join(table.config.partition_fields) or 'none'}",
                table=table.path,
            )
    kept = [n for n, name in enumerate(query.columns) if name not in META_FIELDS]
    wanted = [name for name in schema.names if name not in static]
    if statement.by_name:
        wanted = [_column(storing, table, query.columns[n]) for n in kept]
    elif statement.columns:
        wanted = [_column(storing, table, name) for name in statement.columns]
    if len(wanted) != len(kept):
        raise Invalid(
            f"{statement.verb}: the query has {len(kept)} columns"
            f" ({', '.join(query.columns[n] for n in kept)}), for {len(wanted)} of the table:"
            f" {', '.join(wanted)}",
            table=table.path,
        )
    doubled = sorted({name for name in wanted if wanted.count(name) > 1 or name in static})
    if doubled:
        raise Invalid(f"{statement.verb}: {', '.join(doubled)} given twice", table=table.path)
    kinds = [field.dataType for field in query.schema.fields]
    numbered = query.toDF(*(f"_mainstem_{n}" for n in range(len(query.columns))))
    given = {
        name: storing(F.col(f"_mainstem_{n}"), kinds[n], schema[name].dataType, name)
        for n, name in zip(kept, wanted, strict=True)
    }
    given |= {name: F.lit(value).cast(schema[name].dataType) for name, value in static.items()}
    nothing = F.lit(None)
    return numbered.select(
        *(given.get(f.name, nothing.cast(f.dataType)).alias(f.name) for f in schema.fields)
    )


def partition_path(table: Table, values: Mapping[str, Any]) -> str:
    """The path below the table of the partition with these values, by column.

    Raises ``Invalid`` if a partition column is missing, or a value does not fit it.
    """
    fields = table.config.partition_fields
    missing = [name for name in fields if name not in values]
    if missing or not fields:
        raise Invalid(
            "a partition is named by all of its columns,"
            f" {', '.join(fields) or 'of which the table has none'}; found {', '.join(values) or 'none'}",
            table=table.path,
        )
    keys = KeyGenerator.for_writing(table.config)
    try:
        columns = [
            pa.array([values[name]]).cast(table.schema.field(name).type) for name in keys.partition_fields
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"the values of a partition do not fit its columns: {error}"
        raise Invalid(message, table=table.path) from error
    _, paths = keys.partitions(pa.table(columns, names=list(keys.partition_fields)))
    return paths[0]


def _is_there(table: Table, path: str) -> bool:
    from mainstem.storage import paths

    return table.opened.seams.storage.stat(paths.partition_metafile(path)) is not None


def truncate(plan: Any, table: Table) -> Outcome:
    """TRUNCATE TABLE, all of it or one partition."""
    if plan.nodeName() == "TruncateTable":
        return table.truncate()
    spec = plan.partitionSpec().spec() if hasattr(plan.partitionSpec(), "spec") else plan.partitionSpec()
    values = {pair._1(): pair._2() for pair in items(spec.toSeq())}
    path = partition_path(table, values)
    return table.delete_partition(path) if _is_there(table, path) else Outcome(EMPTY)


