"""Hudi's Flink catalog: ``CREATE CATALOG c WITH ('type' = 'hudi', 'mode' = 'dfs' | 'hms', ...)``.

A catalog of Flink is Java; ours is not. So Flink gets a catalog in memory under the name, and what the real
one holds is declared in it: databases and tables before each statement, and the columns of each table that a
statement names, anew. What a statement creates or drops is done in the real catalog first.

As Hudi's ``HoodieCatalog`` does it, a table's options stand beside it, in the file
``.hoodie/.aux/table_option.properties``, in the mode ``dfs``. A Hive Metastore keeps none: there they last as
long as this environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.catalog import Catalog, open_catalog
from mainstem.api.job_table import open_or_create
from mainstem.api.table import Table, open_table
from mainstem.catalogs.belief import HUDI, kind_of, place_of, read_optimized
from mainstem.catalogs.table_names import DEFAULT_DATABASE, checked
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.flink.declared_table import Declared, from_schema
from mainstem.flink.insert_target import check_declared, completed
from mainstem.flink.statements import quoted
from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.limits import HADOOP_FILE_BYTES_MAX, PROPERTIES_BYTES_MAX
from mainstem.options.placing import INDEX_TYPE
from mainstem.options.reading import QUERY_TYPE
from mainstem.options.tables import TABLE_TYPE
from mainstem.storage import hadoop_files, paths
from mainstem.storage.spellings import same_place
from mainstem.storage.store_options import split

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment

_TYPE, _MODE, _PATH, _DEFAULT = "type", "mode", "catalog.path", "default-database"
_HIVE_CONF, _URIS = "hive.conf.dir", "hive.metastore.uris"
# What stands in the file of options that is none (TableOptionProperties).
_KEY_NAME, _KEY, _PARTITION, _COMMENT = "pk.constraint.name", "pk.columns", "partition.columns", "comment"
_PLAIN = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "STRING", pa.binary(): "BYTES",
    pa.date32(): "DATE", pa.time32("ms"): "TIME(3)", pa.time64("us"): "BIGINT",
}  # fmt: skip


@dataclass
class NamedTables:
    """One catalog. ``common``: options of all its tables; ``kept``: those of tables of a metastore."""

    name: str
    catalog: Catalog
    default: str
    common: dict[str, str]
    kept: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    _declared: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, properties: Mapping[str, str]) -> NamedTables:
        """Of the options of CREATE CATALOG. Raises ``Invalid`` and ``Unsupported`` for others."""
        given = {key: text for key, text in properties.items() if key != _TYPE}
        mode = given.pop(_MODE, "dfs").lower()
        path, default = given.pop(_PATH, ""), checked(given.pop(_DEFAULT, DEFAULT_DATABASE), "database")
        folder, uris = given.pop(_HIVE_CONF, ""), given.pop(_URIS, "")
        if mode == "dfs":
            if not path:
                raise Invalid(f"CREATE CATALOG {name}: '{_PATH}' is missing, the folder of its databases")
            return cls(name, open_catalog(path, split(given)[0]), default, given)
        if mode != "hms":
            raise Unsupported(f"CREATE CATALOG {name}: '{_MODE}' = {mode!r}; expected dfs or hms")
        return cls(name, open_catalog(uris or _uris_in(name, folder)), default, given)

    # -- what there is ---------------------------------------------------------------------------

    def register(self, t_env: TableEnvironment, lenient: bool) -> None:
        """Flink's part: a catalog in memory. The default database is made, as Hudi does."""
        self.catalog.create_database(self.default, if_not_exists=True)
        t_env.execute_sql(
            f"CREATE CATALOG {'IF NOT EXISTS ' if lenient else ''}{quoted(self.name)} WITH"
            f" ('type' = 'generic_in_memory', '{_DEFAULT}' = '{self.default}')"
        )

    def refresh(self, t_env: TableEnvironment, text: str) -> None:
        """Flink's catalog as the real one is now; ``text``: a statement, whose tables are looked at anew."""
        java = t_env._j_tenv.getCatalog(self.name).get()
        databases = self.catalog.databases()
        for gone in sorted(set(java.listDatabases()) - {*databases, self.default}):
            java.dropDatabase(gone, True, True)
        for database in databases:
            if not java.databaseExists(database):
                t_env.execute_sql(f"CREATE DATABASE IF NOT EXISTS {quoted(self.name, database)}")
            self._refresh(t_env, java, database, text)
        self._declared = {key: ddl for key, ddl in self._declared.items() if key[0] in databases}

    def _refresh(self, t_env: TableEnvironment, java: Any, database: str, text: str) -> None:
        names = self.catalog.tables(database)
        there = set(java.listTables(database))
        for gone in sorted(there - set(names)):
            java.dropTable(_object_path(database, gone), True)
            self._declared.pop((database, gone), None)
        for name in names:
            known = self._declared.get((database, name))
            if name in there and known is not None and not re.search(rf"\b{re.escape(name)}\b", text):
                continue
            ddl = self._ddl(database, name)
            if name in there and ddl == known:
                continue
            if name in there:
                java.dropTable(_object_path(database, name), True)
            self._declared[database, name] = ddl or ""
            if ddl is not None:
                t_env.execute_sql(ddl)

    def _ddl(self, database: str, name: str) -> str | None:
        """The declaration of a table that is there; None for what is no table that Flink can be told of."""
        try:
            entry = self.catalog.store.entry(database, name)
            if entry is None or kind_of(entry) != HUDI:
                return None
            table = open_table(place_of(entry, self.catalog.place), split(self.common)[0])
            options = {
                **self.common, **self._stored(table, database, name), "connector": "hudi", "path": table.path,
                TABLE_TYPE.flink: table.config.table_type,
            }  # fmt: skip
            if read_optimized(entry):
                options[str(QUERY_TYPE)] = "read_optimized"
            if table.config.raw.get(INDEX_TYPE):
                options[INDEX_TYPE.flink] = table.config.raw[INDEX_TYPE]
            return _create_table((self.name, database, name), table, options)
        except MainstemError:
            return None  # a statement that names it is told that there is no such table

    def _stored(self, table: Table, database: str, name: str) -> dict[str, str]:
        found = dict(self.kept.get((database, name), {}))
        if not self.catalog.store.keeps_entries:
            storage = table.opened.seams.storage
            try:
                data = storage.read(paths.FLINK_OPTIONS, max_bytes=PROPERTIES_BYTES_MAX)
                found |= parse_properties(data, path=paths.FLINK_OPTIONS)
            except FileNotFoundError:
                pass
        # A place is that of the name, whatever a file says.
        others = (_KEY_NAME, _KEY, _PARTITION, _COMMENT, "path", "connector")
        return {key: text for key, text in found.items() if key not in others}

    # -- statements ------------------------------------------------------------------------------

    def create_table(self, operation: Any, resolved: Any) -> None:
        """CREATE TABLE: the table is made at once, as Hudi's catalog does, and has its name then."""
        identifier, java = operation.getTableIdentifier(), operation.getCatalogTable()
        database, name = identifier.getDatabaseName(), checked(identifier.getObjectName(), "table")
        store = self.catalog.store
        if not store.has_database(database):
            raise Invalid(f"CREATE TABLE: {self.name} has no database {database}")
        if store.entry(database, name) is not None:
            if operation.isIgnoreIfExists():
                return
            raise Invalid(f"CREATE TABLE: {self.name}.{database}.{name} is there already")
        given = {key: text for key, text in dict(java.getOptions()).items() if key != "connector"}
        place = store.table_location(database, name)
        if given.get("path") and not store.keeps_entries and not same_place(given["path"], place):
            raise Invalid(
                f"CREATE TABLE {name}: in this catalog its path is {place}, found 'path' ="
                f" {given['path']!r}: leave the option out"
            )
        texts = {"path": place, **self.common, **given, "connector": "hudi"}
        found = from_schema(
            (self.name, database, name), texts, resolved.getResolvedSchema(),
            list(resolved.getPartitionKeys()),
        )
        assert found is not None
        check_declared(found)
        table = open_or_create(completed(found), found.columns)
        self._keep(table, database, name, found, given, java.getComment())
        if store.keeps_entries:
            self.catalog.register(f"{database}.{name}", table.opened.seams.storage.location)

    def _keep(
        self, table: Table, database: str, name: str, found: Declared, given: Mapping[str, str], comment: str
    ) -> None:
        of_store, options = split({**self.common, **given})
        if self.catalog.store.keeps_entries:
            self.kept[database, name] = {**of_store, **options}
            return
        # Of stores nothing is written down: it may be a secret.
        told = {key: text for key, text in options.items() if key != "path"}
        told |= {_KEY: ",".join(table.config.record_key), "path": table.path, "connector": "hudi"}
        if table.config.partition_fields:
            told[_PARTITION] = ",".join(table.config.partition_fields)
        if comment:
            told[_COMMENT] = comment
        data = format_properties(told, comments=("Table option properties",))
        table.opened.seams.storage.put(paths.FLINK_OPTIONS, data, durable=True)

    def drop_table(self, operation: Any) -> None:
        """DROP TABLE: the name; the table stays."""
        identifier = operation.getTableIdentifier()
        self.catalog.drop_table(
            f"{identifier.getDatabaseName()}.{identifier.getObjectName()}", if_exists=operation.isIfExists()
        )

    def create_database(self, operation: Any) -> None:
        """CREATE DATABASE."""
        self.catalog.create_database(operation.getDatabaseName(), if_not_exists=operation.isIgnoreIfExists())

    def drop_database(self, operation: Any) -> None:
        """DROP DATABASE of an empty one; CASCADE is refused."""
        if operation.isCascade() and self.catalog.tables(operation.getDatabaseName()):
            raise Unsupported("DROP DATABASE ... CASCADE would take tables from others: drop them one by one")
        self.catalog.drop_database(operation.getDatabaseName(), if_exists=operation.isIfExists())


def _uris_in(name: str, folder: str) -> str:
    if not folder:
        raise Invalid(
            f"CREATE CATALOG {name}: mode hms needs '{_URIS}' = 'thrift://host:9083', or '{_HIVE_CONF}', the"
            " folder of hive-site.xml"
        )
    path = os.path.join(folder, "hive-site.xml")
    try:
        with open(path, "rb") as file:
            found = hadoop_files.parse_properties(file.read(HADOOP_FILE_BYTES_MAX), path)
    except OSError as error:
        raise Invalid(f"CREATE CATALOG {name}: {path} cannot be read: {error}") from error
    if not found.get(_URIS):
        raise Invalid(f"CREATE CATALOG {name}: {path} has no {_URIS}")
    return found[_URIS]


def _object_path(database: str, name: str) -> Any:
    from pyflink.java_gateway import get_gateway

    return get_gateway().jvm.org.apache.flink.table.catalog.ObjectPath(database, name)


def _create_table(names: tuple[str, str, str], table: Table, options: Mapping[str, str]) -> str:
    config, schema = table.config, table.schema
    lines = [f"{quoted(f.name)} {_sql_type(f.type, f.name)}" for f in schema]
    if config.record_key and all(key in schema.names for key in config.record_key):
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, config.record_key))}) NOT ENFORCED")
    parts = ", ".join(map(quoted, config.partition_fields))
    parts = f" PARTITIONED BY ({parts})" if parts else ""
    told = ", ".join(f"{_text(key)} = {_text(text)}" for key, text in sorted(options.items()))
    return f"CREATE TABLE {quoted(*names)} ({', '.join(lines)}){parts} WITH ({told})"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sql_type(kind: pa.DataType, column: str) -> str:
    """A stored type as it stands in CREATE TABLE, the inverse of ``types.flink_to_arrow``."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return f"{'TIMESTAMP' if kind.tz else 'TIMESTAMP_LTZ'}({3 if kind.unit == 'ms' else 6})"
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"ARRAY<{_sql_type(kind.value_type, column)}>"
    if pa.types.is_map(kind):
        return f"MAP<STRING, {_sql_type(kind.item_type, column)}>"
    if pa.types.is_struct(kind):
        return f"ROW<{', '.join(_row_fields(kind, column))}>"
    raise Unsupported(f"column {column!r} is stored as {kind}, which Flink has no type for")


def _row_fields(kind: pa.DataType, column: str) -> Iterator[str]:
    for place in range(kind.num_fields):
        inner = kind.field(place)
        yield f"{quoted(inner.name)} {_sql_type(inner.type, f'{column}.{inner.name}')}"
