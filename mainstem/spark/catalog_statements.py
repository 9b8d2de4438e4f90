"""What ALTER TABLE, DESCRIBE and SHOW say and do about a table of this source.

Spark would go by its catalog alone: it would add and drop columns there, and leave the table as it is. So
columns and types come from the table here, and are changed there first; the catalog has the name, the
location, comments, and properties (those of Hudi count in statements that write, as in Hudi).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.job_table import contradiction, open_or_create
from mainstem.api.purging import purge
from mainstem.api.table import Table
from mainstem.errors import Invalid, Unsupported
from mainstem.options.catalogs import HIVE_SYNC, METASTORE_URIS, SYNC_OPTIONS
from mainstem.options.placing import PARTITION_FIELDS, RECORD_KEY_FIELDS
from mainstem.options.tables import MERGE_MODE
from mainstem.spark import hive_session
from mainstem.spark.index_sql import catalogued
from mainstem.spark.options import WriteOptions
from mainstem.spark.pushed_down import items, quoted
from mainstem.spark.session_options import location_in
from mainstem.spark.table_statements import column_text, literal, table_options
from mainstem.spark.types import arrow_schema, local_frame, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SECRET = re.compile("(?i)secret|password|token|access[.]?key|credential")
_SPARKS = ("location", "owner", "provider", "comment", "external", "is_managed_location", "collation")
_DESCRIBED = "col_name string, data_type string, comment string"
_ON_READ = (
    " is Hudi's schema on read, which is not written here: other writers would go on by the older schema."
    " Add a column of another name, and leave the old one out of queries"
)


@dataclass(frozen=True)
class Named:
    """A table as a statement names it. ``entry``: the catalog's, None for one that is named by its path."""

    spark: SparkSession
    parts: tuple[str, ...]
    table: Table
    entry: Any

    @classmethod
    def of(cls, spark: SparkSession, parts: tuple[str, ...], table: Table) -> Named:
        """With the catalog's entry."""
        return cls(spark, parts, table, catalogued(spark, parts))

    @property
    def properties(self) -> dict[str, str]:
        """The catalog's."""
        found = [] if self.entry is None else items(self.entry.properties().toSeq())
        return {pair._1(): pair._2() for pair in found if pair._1() not in _SPARKS}

    @property
    def comments(self) -> dict[str, str]:
        """Of columns, by the catalog."""
        if self.entry is None:
            return {}
        return {
            field.name(): field.getComment().get()
            for field in self.entry.schema().fields()
            if field.getComment().isDefined()
        }

    def column(self, name: str) -> str:
        """The table's column that is meant."""
        for one in self.table.schema.names:
            if one.lower() == name.lower():
                return str(one)
        raise Invalid(
            f"the table has no column {name!r}; it has {', '.join(self.table.schema.names)}",
            table=self.table.path,
        )

    def in_catalog(self, what: str, text: str) -> None:
        """Lets Spark change its catalog, too. Raises ``Unsupported`` for a table that is named by path."""
        if self.entry is None:
            raise Unsupported(
                f"{what} is kept in the catalog, and the table is named by its path: give it a name,"
                " CREATE TABLE name USING hudi LOCATION '...'",
                table=self.table.path,
            )
        self.spark.sql(text)


def answer(named: Named, plan: Any, text: str) -> DataFrame:
    """Carries out one of ``STATEMENTS``. Raises ``Invalid`` and ``Unsupported``; nothing is changed then."""
    rows, columns = _STATEMENTS[plan.nodeName()](named, plan, text)
    return local_frame(named.spark, rows, columns)


_Answer = tuple[Sequence[Sequence[str | None]], str]
_NOTHING: _Answer = ([], "result string")


# -- columns ------------------------------------------------------------------------------------------


def _type_of(kind: Any) -> Any:
    import json

    from pyspark.sql.types import StructType

    field = {"name": "c", "type": json.loads(kind.json()), "nullable": True, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]}).fields[0].dataType


def _evolve(named: Named, columns: Mapping[str, Any]) -> None:
    from pyspark.sql.types import StructField, StructType

    if not columns:
        return
    wanted = StructType([StructField(name, kind, True) for name, kind in columns.items()])
    named.table.evolve(arrow_schema(wanted, nullable=True))


def _add(named: Named, plan: Any, text: str) -> _Answer:
    wanted: dict[str, Any] = {}
    for column in items(plan.columnsToAdd()):
        name = column.colName()
        if column.path().isDefined():
            raise Unsupported(
                f"ALTER TABLE ADD COLUMNS: {name} is a field of a struct; it comes with an upsert whose rows"
                " have it"
            )
        if column.position().isDefined() or not column.nullable() or column.default().isDefined():
            raise Unsupported(
                f"ALTER TABLE ADD COLUMNS ({name}): new columns go to the end, are nullable and have no"
                " default; leave FIRST, AFTER, NOT NULL and DEFAULT out"
            )
        if name.lower() in [one.lower() for one in (*named.table.schema.names, *wanted)]:
            raise Invalid(f"ALTER TABLE ADD COLUMNS: the table has {name!r} already", table=named.table.path)
        wanted[name] = _type_of(column.dataType())
    _evolve(named, wanted)
    _follow(named, text)
    return _NOTHING


def _follow(named: Named, text: str) -> None:
    """Lets the catalog follow columns that the table has now."""
    options = hive_session.completed(named.spark, named.properties)
    if METASTORE_URIS in options and options.get(HIVE_SYNC, "").lower() == "true":
        of_sync = {key: value for key, value in options.items() if key in SYNC_OPTIONS}
        hive_session.register(named.spark, named.table, of_sync, {})
    elif named.entry is not None:
        named.spark.sql(text)


def _alter(named: Named, plan: Any, text: str) -> _Answer:
    wider: dict[str, Any] = {}
    for spec in items(plan.specs()):
        name = named.column(".".join(items(spec.column().name())))
        if any(one.isDefined() for one in (
            spec.newNullability(), spec.newPosition(), spec.newDefaultExpression(),
        )) or spec.dropDefault():  # fmt: skip
            raise Unsupported(
                f"ALTER TABLE ALTER COLUMN {name}: its type (wider) and its comment can be changed; NOT NULL,"
                " DEFAULT and its place cannot"
            )
        if spec.newDataType().isDefined():
            wider[name] = _type_of(spec.newDataType().get())
        if spec.newComment().isDefined() and named.entry is None:
            named.in_catalog("a comment", text)
    _evolve(named, wider)
    _follow(named, text)
    return _NOTHING


def _refused(named: Named, plan: Any, text: str) -> _Answer:
    what = re.sub("(?<=[a-z])(?=[A-Z])", " ", plan.nodeName()).upper()
    raise Unsupported(f"ALTER TABLE {what}{_ON_READ}", table=named.table.path)


# -- properties ---------------------------------------------------------------------------------------


def _set(named: Named, plan: Any, text: str) -> _Answer:
    return _properties_set(named, plan.properties(), text)


def _set_serde(named: Named, plan: Any, text: str) -> _Answer:
    """SET SERDEPROPERTIES, where Hudi's page puts options of jobs: they become properties."""
    found = plan.serdeProperties()
    if not found.isDefined():
        raise Unsupported("ALTER TABLE SET SERDE: a Hudi table has none; SET TBLPROPERTIES keeps properties")
    given = ", ".join(f"{literal(p._1())} = {literal(p._2())}" for p in items(found.get().toSeq()))
    name = ".".join(map(quoted, named.parts))
    return _properties_set(named, found.get(), f"ALTER TABLE {name} SET TBLPROPERTIES ({given})")


def _properties_set(named: Named, properties: Any, text: str) -> _Answer:
    verb = "ALTER TABLE SET TBLPROPERTIES"
    given = {pair._1(): pair._2() for pair in items(properties.toSeq())}
    options, _ = table_options(named.spark, verb, given)
    parsed = WriteOptions.parse(options, path=named.table.path)
    wrong = contradiction(parsed, named.table.config)
    if wrong:
        raise Invalid(f"{verb}: what a table was made with stays as it is: {wrong}", table=named.table.path)
    kept = {name: text for name, text in named.properties.items() if name.startswith("hoodie.")}
    open_or_create(WriteOptions.parse({**kept, **options}, path=named.table.path), pa.schema([]))
    named.in_catalog("a property", text)
    return _NOTHING


def _unset(named: Named, plan: Any, text: str) -> _Answer:
    named.in_catalog("a property", text)
    return _NOTHING


def told_properties(named: Named) -> dict[str, str]:
    """What SHOW TBLPROPERTIES tells: how the table was made, by Hudi's names in SQL, then the catalog's."""
    raw = named.table.config.raw
    made = {
        "type": {"COPY_ON_WRITE": "cow"}.get(named.table.config.table_type, "mor"),
        "primaryKey": raw.get(RECORD_KEY_FIELDS, ""),
        "orderingFields": ",".join(named.table.config.ordering),
        "recordMergeMode": raw.get(MERGE_MODE, ""),
    }
    kept = {k: "*********(redacted)" if _SECRET.search(k) else v for k, v in sorted(named.properties.items())}
    return {**{name: text for name, text in made.items() if text}, **kept}


def _show_properties(named: Named, plan: Any, text: str) -> _Answer:
    found = told_properties(named)
    if plan.propertyKey().isDefined():
        key = plan.propertyKey().get()
        return [(key, found.get(key, f"Table {'.'.join(named.parts)} does not have property: {key}"))], (
            "key string, value string"
        )
    return list(found.items()), "key string, value string"


# -- what there is ------------------------------------------------------------------------------------


def _columns(named: Named) -> list[tuple[str, str, str | None]]:
    comments, schema = named.comments, spark_schema(named.table.schema)
    return [(f.name, f.dataType.simpleString(), comments.get(f.name)) for f in schema]


def _describe(named: Named, plan: Any, text: str) -> _Answer:
    columns = _columns(named)
    rows: list[tuple[str, str, str | None]] = [*columns]
    fields = named.table.config.partition_fields
    if fields:
        rows += [("# Partition Information", "", ""), ("# col_name", "data_type", "comment")]
        rows += [row for row in columns if row[0] in fields]
    if plan.isExtended():
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows += [(name, value, "") for name, value in _details(named)]
    return rows, _DESCRIBED


def _details(named: Named) -> Iterator[tuple[str, str]]:
    if named.entry is not None:
        identifier = named.entry.identifier()
        for label, option in (("Catalog", identifier.catalog()), ("Database", identifier.database())):
            if option.isDefined():
                yield label, option.get()
        yield "Table", identifier.table()
        if named.entry.comment().isDefined():
            yield "Comment", named.entry.comment().get()
    yield "Type", "EXTERNAL"
    yield "Provider", "hudi"
    yield "Location", named.table.path
    told = ", ".join(f"{name}={text}" for name, text in told_properties(named).items())
    yield "Table Properties", f"[{told}]"


def _describe_column(named: Named, plan: Any, text: str) -> _Answer:
    name = named.column(".".join(items(plan.column().nameParts())))
    ((_, kind, comment),) = [row for row in _columns(named) if row[0] == name]
    rows = [("col_name", name), ("data_type", kind), ("comment", comment or "NULL")]
    return rows, "info_name string, info_value string"


def _show_create(named: Named, plan: Any, text: str) -> _Answer:
    """A statement that ``sql`` takes."""
    config, comments = named.table.config, named.comments
    columns = ",\n  ".join(
        column_text(field, comments.get(field.name)) for field in spark_schema(named.table.schema)
    )
    told = told_properties(named).items()
    kept = [f"{literal(name)} = {literal(text)}" for name, text in told if not _SECRET.search(name)]
    lines = [f"CREATE TABLE {'.'.join(map(quoted, named.parts))} (\n  {columns})", "USING hudi"]
    if config.raw.get(PARTITION_FIELDS):
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted, config.partition_fields))})")
    if named.entry is not None and named.entry.comment().isDefined():
        lines.append(f"COMMENT {literal(named.entry.comment().get())}")
    joined = ",\n  ".join(kept)
    lines += [f"LOCATION {literal(named.table.path)}", f"TBLPROPERTIES (\n  {joined})"]
    return [("\n".join(lines) + "\n",)], "createtab_stmt string"


def _show_columns(named: Named, plan: Any, text: str) -> _Answer:
    return [(name,) for name in named.table.schema.names], "col_name string"


def _quiet(named: Named, plan: Any, text: str) -> _Answer:
    """MSCK REPAIR, RECOVER PARTITIONS, REFRESH: partitions and files are looked up by every statement."""
    return _NOTHING


def _not_added(named: Named, plan: Any, text: str) -> _Answer:
    raise Unsupported(
        "ALTER TABLE ADD PARTITION: a partition is there with its first row; INSERT INTO makes it",
        table=named.table.path,
    )


def _not_moved(named: Named, plan: Any, text: str) -> _Answer:
    raise Unsupported(
        "ALTER TABLE SET LOCATION: DROP TABLE removes the name alone; CREATE TABLE name USING hudi LOCATION"
        " '...' then names another place",
        table=named.table.path,
    )


def _dropped(named: Named, plan: Any, text: str) -> _Answer:
    """DROP TABLE removes the name; PURGE then deletes the table, too."""
    named.spark.sql(text)
    if plan.purge():
        purge(location_in(named.spark, named.table.path))
    return _NOTHING


_STATEMENTS = {
    "AddColumns": _add, "AlterColumns": _alter, "DropColumns": _refused, "RenameColumn": _refused,
    "ReplaceColumns": _refused, "SetTableProperties": _set, "UnsetTableProperties": _unset,
    "SetTableSerDeProperties": _set_serde, "DescribeRelation": _describe, "DescribeColumn": _describe_column,
    "ShowCreateTable": _show_create, "ShowTableProperties": _show_properties, "ShowColumns": _show_columns,
    "RepairTable": _quiet, "RecoverPartitions": _quiet, "RefreshTable": _quiet, "AddPartitions": _not_added,
    "SetTableLocation": _not_moved, "DropTable": _dropped,
}  # fmt: skip
STATEMENTS = frozenset(_STATEMENTS)
