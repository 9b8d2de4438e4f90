"""CREATE TABLE ... USING hudi (or mainstem), also AS SELECT; SHOW PARTITIONS, ALTER TABLE ... DROP PARTITION.

A table is made from Hudi's properties (``primaryKey``, ``preCombineField`` or ``orderingFields``, ``type``,
``recordMergeMode``, and options of Hudi by their names, in TBLPROPERTIES or OPTIONS), at its location or in
Spark's warehouse. Then the session's catalog learns its name, columns and location, so that statements of
``sql`` find it. Partitions are hive style, as those that Hudi's SQL makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.given_options import shared_location
from mainstem.api.job_table import exists, open_or_create
from mainstem.api.table import Table
from mainstem.errors import Invalid, Unsupported
from mainstem.options.engines import OPERATION
from mainstem.options.placing import HIVE_STYLE, PARTITION_FIELDS, RECORD_KEY_FIELDS
from mainstem.options.tables import MERGE_MODE, ORDERING_FIELDS, TABLE_NAME, TABLE_TYPE
from mainstem.spark.insert_statements import partition_path
from mainstem.spark.options import WriteOptions
from mainstem.spark.pushed_down import items, quoted
from mainstem.spark.session_options import session_options
from mainstem.spark.sink import write_batch
from mainstem.spark.types import arrow_schema, spark_schema
from mainstem.storage import paths
from mainstem.writers.outcome import EMPTY, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SOURCES = ("hudi", "mainstem", "org.apache.hudi")
# Hudi's names in SQL (HoodieOptionConfig) -> option.
_NAMES = {
    "primarykey": RECORD_KEY_FIELDS, "precombinefield": ORDERING_FIELDS, "orderingfields": ORDERING_FIELDS,
    "recordmergemode": MERGE_MODE, "type": TABLE_TYPE,
}  # fmt: skip
_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


def is_ours(plan: Any) -> bool:
    """Whether a parsed CREATE TABLE is USING this source or Hudi."""
    provider = plan.tableSpec().provider()
    return bool(provider.isDefined()) and provider.get().lower() in _SOURCES


def create(spark: SparkSession, plan: Any, text: str, arguments: Mapping[str, Any]) -> Outcome | None:
    """Carries out CREATE TABLE; of AS SELECT the outcome of its one commit.

    Raises ``Invalid`` for a name or a table that is there, ``Unsupported`` for what this source does not
    make; nothing is left then, but for a failed SELECT an empty table.
    """
    parts = tuple(items(plan.children().apply(0).nameParts()))
    name, spec = ".".join(map(quoted, parts)), plan.tableSpec()
    if spark.catalog.tableExists(name):
        if plan.ignoreIfExists():
            return Outcome(EMPTY)
        raise Invalid(f"CREATE TABLE: {'.'.join(parts)} is there already; IF NOT EXISTS leaves it as it is")
    query = _query(spark, plan, text, arguments)
    schema = _columns(spark, plan) if query is None else query.schema
    location = spec.location().get() if spec.location().isDefined() else _default(spark, name)
    options, below = _options(plan), session_options(spark)
    place = shared_location(location, options, below)
    path, there = place.base, exists(place)
    if not there:
        if RECORD_KEY_FIELDS not in options:
            raise Invalid("CREATE TABLE: TBLPROPERTIES has no primaryKey, which tells rows apart", table=path)
        partitioned = {str(HIVE_STYLE): "true"} if PARTITION_FIELDS in options else {}
        options = {str(TABLE_NAME): parts[-1], **partitioned, **options}
    parsed = WriteOptions.parse(options, path=path, below=below)
    if schema.fields or query is not None:
        table = open_or_create(parsed, arrow_schema(schema))
        missing = [column for column in schema.names if column not in table.schema.names]
        if missing:
            raise Invalid(
                f"CREATE TABLE: the table that is there has no column {', '.join(missing)}", table=path
            )
    elif not there:
        raise Invalid("CREATE TABLE: there is no table yet; name its columns", table=path)
    else:
        table = open_or_create(parsed, pa.schema([]))
    outcome = Outcome(EMPTY)
    if query is not None:
        outcome = write_batch(query, path, options={**options, OPERATION: "bulk_insert"})
    _catalogue(spark, name, table)
    return outcome


def _query(spark: SparkSession, plan: Any, text: str, arguments: Mapping[str, Any]) -> DataFrame | None:
    if plan.nodeName() != "CreateTableAsSelect":
        return None
    start = plan.query().origin().startIndex()
    if not start.isDefined():
        raise Unsupported("CREATE TABLE ... AS: write the query as a plain SELECT")
    return spark.sql(text[start.get() :], **arguments)


def _columns(spark: SparkSession, plan: Any) -> StructType:
    import json

    from pyspark.sql.types import StructType

    fields = [
        {
            "name": column.name(), "type": json.loads(column.dataType().json()),
            "nullable": column.nullable(), "metadata": {},
        }
        for column in items(plan.columns())
    ]  # fmt: skip
    return StructType.fromJson({"type": "struct", "fields": fields})


def _default(spark: SparkSession, name: str) -> str:
    state = spark._jsparkSession.sessionState()
    path = state.catalog().defaultTablePath(state.sqlParser().parseTableIdentifier(name))
    return str(path.getPath()) if path.getScheme() in (None, "file") else str(path.toString())


def _options(plan: Any) -> dict[str, str]:
    """The options of a table, from its properties, its OPTIONS and PARTITIONED BY."""
    spec = plan.tableSpec()
    given = {pair._1(): pair._2() for pair in items(spec.properties().toSeq())}
    for pair in items(spec.optionExpression().options()):
        given.setdefault(pair._1(), pair._2().value().toString())
    found: dict[str, str] = {}
    for key, value in given.items():
        option = _NAMES.get(key.lower(), key)
        if option == TABLE_TYPE:
            value = _TYPES.get(value.lower(), value.upper())
            if value == "COPY_ON_WRITE":
                raise Unsupported(
                    f"CREATE TABLE: {key}='{given[key]}': non-blocking writers write merge on read tables;"
                    " type = 'mor'"
                )
        found[option] = value
    fields = []
    for transform in items(plan.partitioning()):
        if transform.name() != "identity":
            raise Unsupported(f"CREATE TABLE: PARTITIONED BY ({transform.describe()}); name columns")
        fields += [".".join(reference.fieldNames()) for reference in transform.references()]
    if fields:
        found[PARTITION_FIELDS] = ",".join(fields)
    return {str(key): value for key, value in found.items()}


def _catalogue(spark: SparkSession, name: str, table: Table) -> None:
    columns = ", ".join(
        f"{quoted(field.name)} {field.dataType.simpleString()}" for field in spark_schema(table.schema)
    )
    place = table.path.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {name} ({columns}) USING mainstem LOCATION '{place}'")


def show_partitions(spark: SparkSession, table: Table) -> DataFrame:
    """SHOW PARTITIONS: the paths of the partitions that have rows or had, in order."""
    found = sorted({one.partition for one in table.file_slices()} - {""})
    return spark.createDataFrame([(path,) for path in found], "partition string")


def drop_partitions(plan: Any, table: Table) -> Outcome:
    """ALTER TABLE ... DROP [IF EXISTS] PARTITION (...), ...: their rows are hidden in one commit."""
    storage, found = table.opened.seams.storage, []
    for one in items(plan.parts()):
        values = {pair._1(): pair._2() for pair in items(one.spec().toSeq())}
        path = partition_path(table, values)
        if storage.stat(paths.partition_metafile(path)) is not None:
            found.append(path)
        elif not plan.ifExists():
            raise Invalid(f"ALTER TABLE DROP PARTITION: there is no partition {path!r}", table=table.path)
    return table.delete_partition(*found) if found else Outcome(EMPTY)
