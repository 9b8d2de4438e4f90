"""CREATE TABLE ... USING hudi (or mainstem), also AS SELECT and LIKE; SHOW PARTITIONS, ALTER TABLE ... DROP
PARTITION.

A table is made from Hudi's properties (``primaryKey``, ``preCombineField`` or ``orderingFields``, ``type``,
``recordMergeMode``, and options of Hudi by their names, in TBLPROPERTIES or OPTIONS), at its location or in
Spark's warehouse; without ``primaryKey`` its keys are made up. Then the session's catalog learns its name,
columns, comments and location, and those options that are of jobs, not of the table. So statements of ``sql``
find it, and go by these options. Partitions are hive style, as those that Hudi's SQL makes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.given_options import options_to_make, shared_location
from mainstem.api.job_table import exists, open_or_create
from mainstem.api.table import Table
from mainstem.errors import Invalid, Unsupported
from mainstem.merge.payloads import KNOWN_PAYLOADS
from mainstem.options.catalogs import SYNC_OPTIONS
from mainstem.options.engines import COW_AS_MOR, OPERATION
from mainstem.options.placing import HIVE_STYLE, PARTITION_FIELDS, RECORD_KEY_FIELDS
from mainstem.options.tables import (
    MERGE_MODE,
    ORDERING_FIELDS,
    PARTIAL_UPDATES,
    PAYLOAD_CLASS,
    TABLE_NAME,
    TABLE_TYPE,
)
from mainstem.spark import hive_session
from mainstem.spark.index_sql import SOURCES
from mainstem.spark.insert_statements import partition_path
from mainstem.spark.options import WriteOptions
from mainstem.spark.pushed_down import items, quoted
from mainstem.spark.session_options import session_options
from mainstem.spark.sink import write_batch
from mainstem.spark.types import arrow_schema, local_frame, spark_schema
from mainstem.storage import paths
from mainstem.storage.store_options import is_of_store
from mainstem.writers.outcome import EMPTY, Outcome
from mainstem.writers.write_spec import INSERT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

# Hudi's names in SQL (HoodieOptionConfig) -> option.
_NAMES = {
    "primarykey": RECORD_KEY_FIELDS, "precombinefield": ORDERING_FIELDS, "orderingfields": ORDERING_FIELDS,
    "recordmergemode": MERGE_MODE, "type": TABLE_TYPE,
}  # fmt: skip
_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


def is_ours(plan: Any) -> bool:
    """Whether a parsed CREATE TABLE is USING this source or Hudi."""
    provider = plan.tableSpec().provider()
    return bool(provider.isDefined()) and provider.get().lower() in SOURCES


def create(spark: SparkSession, plan: Any, text: str, arguments: Mapping[str, Any]) -> Outcome:
    """Carries out CREATE TABLE; of AS SELECT the outcome of its one commit.

    Raises ``Invalid`` for a name or a table that is there, ``Unsupported`` for what this source does not
    make; nothing is left then, but for a failed SELECT an empty table.
    """
    spec = plan.tableSpec()
    given = {pair._1(): pair._2() for pair in items(spec.properties().toSeq())}
    for pair in items(spec.optionExpression().options()):
        given.setdefault(pair._1(), pair._2().value().toString())
    wanted = _Wanted(
        tuple(items(plan.children().apply(0).nameParts())), plan.ignoreIfExists(),
        _of(spec.location()), given, _partition_fields(plan), _of(spec.comment()) or "",
    )  # fmt: skip
    if not wanted.is_new(spark):
        return Outcome(EMPTY)
    query = _query(spark, plan, text, arguments)
    schema = _columns(spark, plan) if query is None else query.schema
    return _made(spark, wanted, schema, query)


def create_like(spark: SparkSession, plan: Any, source: Table | None) -> Outcome:
    """CREATE TABLE ... LIKE ... [USING hudi]: the columns of another table; of one of this source
    (``source``) also its key, partitions and what else it was made with (CreateHoodieTableLikeCommand)."""
    parts, from_parts = like_names(plan)
    is_command = plan.nodeName() == LIKE_COMMAND
    location = _of(plan.fileFormat().locationUri() if is_command else plan.location())
    given = {pair._1(): pair._2() for pair in items(plan.properties().toSeq())}
    schema = spark.table(".".join(map(quoted, from_parts))).schema
    fields: list[str] = []
    if source is not None:
        schema, config = spark_schema(source.schema), source.config
        names = {_NAMES.get(name.lower(), name) for name in given}
        kept = {k: v for k, v in options_to_make(config.raw).items() if k not in (TABLE_NAME, TABLE_TYPE)}
        given = {**{name: text for name, text in kept.items() if name not in names}, **given}
    wanted = _Wanted(
        parts, plan.ifNotExists(), None if location is None else str(location.toString()) if is_command
        else location, given, fields, "",
    )  # fmt: skip
    return _made(spark, wanted, schema, None) if wanted.is_new(spark) else Outcome(EMPTY)


LIKE_COMMAND = "CreateTableLikeCommand"


def like_names(plan: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The parts of the names of the new table and of the one that it is like."""
    if plan.nodeName() == LIKE_COMMAND:  # Spark 4.1
        return tuple(items(plan.targetTable().nameParts())), tuple(items(plan.sourceTable().nameParts()))
    new, source = plan.children().apply(0), plan.children().apply(1)
    return tuple(items(new.nameParts())), tuple(items(source.multipartIdentifier()))


def _of(option: Any) -> Any:
    """The value of a Scala option; None for none."""
    return option.get() if option.isDefined() else None


@dataclass(frozen=True)
class _Wanted:
    """A table to make: the parts of its name, its location, properties as given, partition columns."""

    parts: tuple[str, ...]
    lenient: bool
    location: str | None
    given: Mapping[str, str]
    fields: list[str]
    comment: str

    @property
    def name(self) -> str:
        """As it stands in SQL."""
        return ".".join(map(quoted, self.parts))

    def is_new(self, spark: SparkSession) -> bool:
        """False for a table that is there and may be (IF NOT EXISTS)."""
        if not spark.catalog.tableExists(self.name):
            return True
        if self.lenient:
            return False
        raise Invalid(
            f"CREATE TABLE: {'.'.join(self.parts)} is there already; IF NOT EXISTS leaves it as it is"
        )


def _made(spark: SparkSession, wanted: _Wanted, schema: StructType, query: DataFrame | None) -> Outcome:
    options, notes = table_options(spark, "CREATE TABLE", wanted.given)
    synced = hive_session.sync_options(spark, wanted.parts)
    options = {**synced, **options}
    if wanted.fields:
        options[str(PARTITION_FIELDS)] = ",".join(wanted.fields)
    location = wanted.location or _default(spark, wanted.name)
    below = session_options(spark)
    place = shared_location(location, options, below)
    path, there = place.base, exists(place)
    if not there:
        partitioned = {str(HIVE_STYLE): "true"} if PARTITION_FIELDS in options else {}
        options = {str(TABLE_NAME): wanted.parts[-1], **partitioned, **options}
    keyless: dict[str, str] = {} if RECORD_KEY_FIELDS in options else {OPERATION: INSERT}
    parsed = WriteOptions.parse({**options, **keyless}, path=path, below=below)
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
    of_table = {str(TABLE_NAME), *parsed.given.values()}
    of_jobs = {
        name: text
        for name, text in options.items()
        if name.lower() not in of_table and not is_of_store(name.lower())
    }
    if synced:
        kept = {**of_jobs, **notes, **({"comment": wanted.comment} if wanted.comment else {})}
        of_sync = {key: options[key] for key in options if key in SYNC_OPTIONS}
        hive_session.register(spark, table, of_sync, kept)
        return outcome
    _catalogue(spark, wanted, table, schema, {**of_jobs, **notes})
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

    fields = []
    for column in items(plan.columns()):
        comment = _of(column.comment())
        fields.append({
            "name": column.name(), "type": json.loads(column.dataType().json()),
            "nullable": column.nullable(), "metadata": {} if comment is None else {"comment": comment},
        })  # fmt: skip
    return StructType.fromJson({"type": "struct", "fields": fields})


def _default(spark: SparkSession, name: str) -> str:
    state = spark._jsparkSession.sessionState()
    path = state.catalog().defaultTablePath(state.sqlParser().parseTableIdentifier(name))
    return str(path.getPath()) if path.getScheme() in (None, "file") else str(path.toString())


def table_options(
    spark: SparkSession, verb: str, given: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """(options, notes) of properties: Hudi's names in SQL become options; a name that is no option of Hudi's
    is a note, which the catalog keeps. Raises ``Invalid`` for one that is mistyped."""
    found: dict[str, str] = {}
    notes: dict[str, str] = {}
    for key, value in given.items():
        option = _NAMES.get(key.lower(), key)
        if option == TABLE_TYPE:
            value = _type(spark, verb, key, value)
        elif option == key and not key.startswith(("hoodie.", "fs.", "path")):
            similar = difflib.get_close_matches(key.lower(), _NAMES, 1, 0.8)
            if similar:
                raise Invalid(f"{verb}: the property {key!r} is not known; is {similar[0]} meant?")
            notes[key] = value
            continue
        found[str(option)] = value
    _by_payload(found)
    return found, notes


def _by_payload(options: dict[str, str]) -> None:
    """Puts merge mode and partial updates in place of a payload class of Hudi's, as Hudi 1.1 does."""
    name = next((one for one in options if one.lower() in PAYLOAD_CLASS.names), "")
    rules = KNOWN_PAYLOADS.get(options.get(name, ""))
    if rules is None or rules.unavailable or rules.delete or rules.ordering:
        return  # others are refused by their option's name
    mode = options.get(MERGE_MODE, "CUSTOM").upper()
    if mode not in ("CUSTOM", rules.mode):
        raise Invalid(f"{name}={options[name]!r} means {rules.mode}, found {MERGE_MODE}={mode}")
    options[str(MERGE_MODE)] = rules.mode
    if rules.partial:
        options[str(PARTIAL_UPDATES)] = rules.partial
    del options[name]


def _type(spark: SparkSession, verb: str, key: str, value: str) -> str:
    kind = _TYPES.get(value.lower(), value.upper())
    if kind != "COPY_ON_WRITE":
        return kind
    if not COW_AS_MOR.read({str(COW_AS_MOR): spark.conf.get(COW_AS_MOR, None) or "false"}):
        raise Unsupported(
            f"{verb}: {key}='{value}': non-blocking writers write merge on read tables; type = 'mor', or"
            f" SET {COW_AS_MOR}=true, which makes these merge on read"
        )
    return "MERGE_ON_READ"


def _partition_fields(plan: Any) -> list[str]:
    fields = []
    for transform in items(plan.partitioning()):
        if transform.name() != "identity":
            raise Unsupported(f"CREATE TABLE: PARTITIONED BY ({transform.describe()}); name columns")
        fields += [".".join(reference.fieldNames()) for reference in transform.references()]
    return fields


def _catalogue(
    spark: SparkSession, wanted: _Wanted, table: Table, schema: StructType, properties: Mapping[str, str]
) -> None:
    comments = {field.name: field.metadata.get("comment") for field in schema.fields}
    columns = ", ".join(
        column_text(field, comments.get(field.name)) for field in spark_schema(table.schema)
    )
    told = f" COMMENT {literal(wanted.comment)}" if wanted.comment else ""
    kept = ", ".join(f"{literal(name)} = {literal(text)}" for name, text in properties.items())
    told += f" TBLPROPERTIES ({kept})" if kept else ""
    place = literal(table.path)
    spark.sql(f"CREATE TABLE {wanted.name} ({columns}) USING mainstem LOCATION {place}{told}")


def column_text(field: StructField, comment: str | None) -> str:
    """A column as it stands in CREATE TABLE."""
    told = f" COMMENT {literal(comment)}" if comment else ""
    return f"{quoted(field.name)} {field.dataType.simpleString()}{told}"


def literal(text: str) -> str:
    """A text as it stands in SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def show_partitions(spark: SparkSession, table: Table) -> DataFrame:
    """SHOW PARTITIONS: the paths of the partitions that have rows or had, in order."""
    found = sorted({one.partition for one in table.file_slices()} - {""})
    return local_frame(spark, [(path,) for path in found], "partition string")


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
