"""``connect``: a table environment in which mainstem handles tables with ``'connector' = 'hudi'``.

Flink's planner parses every statement. Hudi tables that a statement reads are replaced by views
(``statements``), and ``pipeline`` plans INSERTs into Hudi tables. Everything else goes to the wrapped
environment unchanged, as do all methods that are not defined here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, Unsupported
from mainstem.flink import row_changes
from mainstem.flink.declared_table import (
    Declared,
    declared,
    from_resolved,
    from_schema,
    identified,
    is_ours,
    names_of,
)
from mainstem.flink.insert_target import check_declared
from mainstem.flink.inserting import refuse_overwrite, rows_for
from mainstem.flink.named_tables import NamedTables
from mainstem.flink.options import CONNECTORS
from mainstem.flink.runtime_modes import MODE, RuntimeModes
from mainstem.flink.statement_set import Statements
from mainstem.flink.statements import Reference, Syntax, quoted, replaced, syntax
from mainstem.flink.wrapped_environment import WrappedEnvironment
from mainstem.writers.write_spec import BULK_INSERT

if TYPE_CHECKING:
    from pyflink.table import CompiledPlan, ExplainDetail, Table, TableEnvironment, TableResult

    from mainstem.flink.pipeline import Planned

#: where temporary views of Hudi tables live while a statement is planned
CATALOG = "mainstem"
_INSERT, _EXPLAIN, _SET = "SinkModifyOperation", "ExplainOperation", "StatementSetOperation"
_CREATE, _CREATE_AS = "CreateTableOperation", ("CreateTableASOperation", "ReplaceTableAsOperation")
# Statements that are not supported for Hudi tables: operation -> its name, and what to do instead.
_REFUSED = {
    "CompilePlanOperation": ("COMPILE PLAN", "a plan holds Java connectors only: execute the INSERT itself"),
}


def connect(t_env: TableEnvironment) -> Environment:
    """``t_env`` with support for Hudi tables: ``execute_sql`` takes the SQL of Hudi's Flink documentation.

    Local Python workers use this interpreter unless ``python.executable`` is set. Raises ``Invalid`` if
    ``t_env`` is no table environment, ``Unsupported`` for Flink before 2.3.
    """
    if isinstance(t_env, Environment):
        return t_env
    if not hasattr(t_env, "_j_tenv"):
        raise Invalid(f"connect needs a pyflink TableEnvironment, not a {type(t_env).__name__}")
    from mainstem.flink.stream_workers import check_release, ensure_workers, keep_java_thread

    check_release()
    keep_java_thread()
    ensure_workers(t_env)
    return Environment(t_env)


# Shared by all wrappers, because one environment may have several.
_numbers = itertools.count(1)


@dataclass(frozen=True)
class _View:
    """A view of a Hudi table. ``mention``: distinguishes it from others in the same statement or view."""

    name: str
    table: Declared
    mention: str


@dataclass
class _Views:
    """Views of Hudi tables: ``made`` for a statement, and ``used`` through views that it reads.

    ``place``: the statement's place in its job; None for a query that may become part of any statement.
    """

    place: str | None
    made: list[_View] = field(default_factory=list)
    used: list[_View] = field(default_factory=list)

    def next_mention(self, table: Declared) -> str:
        """A name for the next mention of a table: its number among those with the same path."""
        return str(sum(view.table.options.location == table.options.location for view in self.made))


class Environment(WrappedEnvironment):
    """A table environment with Hudi tables; what is not defined here is the wrapped environment's own."""

    def __init__(self, t_env: TableEnvironment) -> None:
        super().__init__(t_env)
        self._modes = RuntimeModes()
        # BEGIN STATEMENT SET was executed, END was not
        self._open_set: Statements | None = None
        # views made by CREATE VIEW -> the Hudi tables that they read, under these names
        self._views: dict[tuple[str, ...], list[_View]] = {}
        # catalogs of ours by their names
        self._catalogs: dict[str, NamedTables] = {}

    # -- statements ------------------------------------------------------------------------------

    def execute_sql(self, stmt: str) -> TableResult:
        """Executes one statement. An INSERT into a Hudi table returns once the job is submitted; this process
        then commits what its checkpoints write while the job runs."""
        with self._readable(stmt) as (text, found):
            if found is None:
                return self._t_env.execute_sql(stmt)
            if self._open_set is not None and found.kind != "SqlEndStatementSet":
                return self._collect(stmt, found)
            if (table := self._changes(found)) is not None:
                return self._changed(found, table)
            operation = self._operation(text)
            kind = operation.getClass().getSimpleName()
            if kind == "BeginStatementSetOperation":
                self._open_set = self.create_statement_set()
                return _ok()
            if kind == "EndStatementSetOperation" and self._open_set is not None:
                statements, self._open_set = self._open_set, None
                return statements.execute()
            return self._execute(operation, kind, text)

    def _execute(self, operation: Any, kind: str, text: str) -> TableResult:
        if kind == _INSERT and operation.isOverwrite() and self._concerns(operation):
            return self._overwrite(operation)
        if kind == _INSERT and self._concerns(operation):
            rows, table = self._insert(operation)
            if table.options.operation == BULK_INSERT:
                from mainstem.flink.insert_overwrite import bulk_insert

                return bulk_insert(self._plan_rows(rows, table, streamed=False))
        if kind in (_INSERT, _SET) and self._concerns(operation):
            statements = self.create_statement_set()
            statements.add_operation(operation)
            return statements.execute()
        if kind == _EXPLAIN and self._concerns(operation.getChild()):
            return _one_text(self._explained(operation.getChild()))
        if (done := self._in_catalog(operation, kind, text)) is not None:
            return done
        if kind == _CREATE:
            self._check_create(operation)
        elif kind in _CREATE_AS and _creates_ours(operation):
            return self._create_as(operation, kind)
        elif kind == "TruncateTableOperation" and (emptied := self._truncated(operation)) is not None:
            from mainstem.flink.insert_overwrite import truncate

            return truncate(emptied)
        elif kind in _REFUSED:
            self._refuse(operation, kind)
        elif kind == "SetOperation" and operation.getKey().isPresent() and operation.getValue().isPresent():
            # Outside Flink's SQL client, nothing else executes SET.
            key, value = operation.getKey().get(), operation.getValue().get()
            if key == MODE:
                self._t_env = self._modes.switched(self._t_env, value)
            else:
                self._t_env.get_config().set(key, value)
            return _ok()
        return self._t_env.execute_sql(text)

    def sql_query(self, query: str) -> Table:
        """The result of a query, which may read Hudi tables, as a Table."""
        with self._readable(query, None) as (text, _):
            return self._t_env.sql_query(text)

    def explain_sql(self, stmt: str, *extra_details: ExplainDetail) -> str:
        """The plan of a statement; for an INSERT into a Hudi table also writer, buckets and committer."""
        with self._readable(stmt) as (text, found):
            if found is not None:
                if (table := self._changes(found)) is not None:
                    return self.explain_sql(row_changes.query(found, table), *extra_details)
                operation = self._operation(text)
                if self._concerns(operation):
                    return self._explained(operation)
            return self._t_env.explain_sql(text, *extra_details)

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Flink's compiled plan of an INSERT into tables that are not Hudi's."""
        with self._readable(stmt) as (text, found):
            if found is not None and self._concerns(self._operation(text)):
                raise _unsupported("CompilePlanOperation")
            return self._t_env.compile_plan_sql(text)

    def from_path(self, path: str) -> Table:
        """A table or view by its name, Hudi tables included."""
        return self.sql_query(f"SELECT * FROM {path}")

    def list_databases(self) -> list[str]:
        """Names of the databases of the current catalog."""
        self._look_again()
        return list(self._t_env.list_databases())

    def list_tables(self) -> list[str]:
        """Names of the tables and views of the current database."""
        self._look_again()
        return list(self._t_env.list_tables())

    def create_statement_set(self) -> Statements:
        """Several INSERTs as one job; Hudi tables and others."""
        return Statements(self)

    # -- reading ---------------------------------------------------------------------------------

    @contextmanager
    def _readable(self, text: str, place: str | None = "") -> Iterator[tuple[str, Syntax | None]]:
        """The statement with views in place of the Hudi tables that it reads; they exist during planning."""
        self._look_again(text)
        found = syntax(self._t_env, text)
        if found is None:
            yield text, None
            return
        created = identified(self._t_env, found.created) if found.created is not None else None
        views = _Views(place)
        kept = False
        try:
            yield replaced(text, found.sources, lambda source: self._source(source, views)), found
            if created is not None:
                made = [replace(view, mention=f"{quoted(*created)} {view.mention}") for view in views.made]
                self._views[created] = [*made, *views.used]
                kept = True
        finally:
            for view in () if kept else views.made:
                self._t_env.drop_temporary_view(view.name)

    def _source(self, source: Reference, views: _Views) -> str | None:
        found = declared(self._t_env, source.names)
        if found is None:
            for view in self._views.get(identified(self._t_env, source.names), ()):
                self._t_env.drop_temporary_view(view.name)
                self._t_env.create_temporary_view(view.name, self._read(view, views))
                views.used.append(view)
            return None
        if source.lookup:
            raise Unsupported(
                f"{found.name} FOR SYSTEM_TIME AS OF: lookup joins with a Hudi table are not supported; join"
                " it without FOR SYSTEM_TIME AS OF"
            )
        found = found.with_hints(source.hints)
        name = quoted(CATALOG, f"read_{next(_numbers)}", found.name)
        view = _View(name, found, views.next_mention(found))
        self._t_env.create_temporary_view(name, self._read(view, views))
        views.made.append(view)
        return name

    def _read(self, view: _View, views: _Views) -> Table:
        from mainstem.flink.source import read

        check_declared(view.table)
        name = None if views.place is None else f"{views.place} {view.mention}"
        return read(self._t_env, view.table, name=name)

    # -- writing ---------------------------------------------------------------------------------

    def _operation(self, text: str) -> Any:
        self._t_env._before_execute()
        return self._t_env._j_tenv.getParser().parse(text).get(0)

    def _declared_at(self, path: str) -> Declared | None:
        """The Hudi table of a name as SQL writes it."""
        return declared(self._t_env, names_of(self._t_env, path))

    def _concerns(self, operation: Any) -> bool:
        """Whether an operation writes a Hudi table."""
        kind = operation.getClass().getSimpleName()
        if kind == _SET:
            return any(self._concerns(part) for part in operation.getOperations())
        return kind == _INSERT and is_ours(dict(_target(operation).getResolvedTable().getOptions()))

    def _plan(self, operation: Any) -> Planned:
        rows, table = self._insert(operation)
        if operation.isOverwrite():
            refuse_overwrite(table)
        return self._plan_rows(rows, table)

    def _changed(self, found: Syntax, table: Declared) -> TableResult:
        rows = self.sql_query(row_changes.query(found, table))
        return row_changes.change(self._plan_rows(rows, table, streamed=False), found)

    def _overwrite(self, operation: Any) -> TableResult:
        from mainstem.flink.insert_overwrite import overwrite

        planned = self._plan_rows(*self._insert(operation), streamed=False)
        return overwrite(planned, some_partitions=bool(dict(operation.getStaticPartitions())))

    def _insert(self, operation: Any) -> tuple[Table, Declared]:
        """The rows of an INSERT, and the Hudi table that they are for."""
        from pyflink.table import Table

        table = from_resolved(_target(operation))
        assert table is not None
        rows = Table(self._t_env._j_tenv.createTable(operation.getChild()), self._t_env)
        return rows, table.with_hints(dict(operation.getDynamicOptions()))

    def _plan_rows(self, rows: Table, table: Declared, *, streamed: bool = True) -> Planned:
        from mainstem.flink.pipeline import plan_insert

        return plan_insert(self._t_env, rows_for(self._t_env, rows, table), table, streamed=streamed)

    def _explained(self, operation: Any) -> str:
        if operation.getClass().getSimpleName() == _SET:
            return "\n\n".join(self._explained(part) for part in operation.getOperations())
        if not self._concerns(operation):
            return f"INSERT INTO {_target(operation).getIdentifier().asSummaryString()}: Flink's own sink"
        if operation.isOverwrite():
            rows, table = self._insert(operation)
            how = f"Table {table.name}: overwritten in one commit of this process"
            return f"== mainstem ==\n{how}\n\n{rows.explain()}"
        return self._plan(operation).explain()

    def _create_as(self, operation: Any, kind: str) -> TableResult:
        from pyflink.table import Table

        if kind != "CreateTableASOperation":
            raise Unsupported(
                "REPLACE TABLE AS of a Hudi table: others may write to it; CREATE TABLE AS another one"
            )
        create = operation.getCreateTableOperation()
        table = self._check_create(create)
        assert table is not None
        if create.isIgnoreIfExists():
            raise Unsupported(
                f"CREATE TABLE IF NOT EXISTS {table.name} AS SELECT: whether it writes would depend on the"
                " catalog; leave IF NOT EXISTS out, or use CREATE TABLE IF NOT EXISTS and INSERT INTO"
            )
        rows = Table(self._t_env._j_tenv.createTable(operation.getChild()), self._t_env)
        statements = Statements(self).add_planned(self._plan_rows(rows, table))
        self._t_env._j_tenv.executeInternal(create)  # Flink's error if the name is taken
        try:
            return statements.execute()
        except BaseException:
            kind = "TEMPORARY TABLE" if create.isTemporary() else "TABLE"
            self._t_env.execute_sql(f"DROP {kind} {quoted(*table.names)}")
            raise

    def _look_again(self, text: str = "") -> None:
        """Makes Flink know what catalogs of ours hold now: the current one, and those that ``text`` names."""
        if not self._catalogs:
            return
        current = self._t_env.get_current_catalog()
        for name, catalog in self._catalogs.items():
            if name == current or name in text:
                catalog.refresh(self._t_env, text)

    # -- catalogs --------------------------------------------------------------------------------

    def _in_catalog(self, operation: Any, kind: str, text: str) -> TableResult | None:
        """Carries out what makes, changes or drops a catalog of ours or something in it; None for others."""
        if kind == "CreateCatalogOperation":
            if operation.getProperties().get("type") not in CONNECTORS:
                return None
            made = NamedTables.of(operation.getCatalogName(), dict(operation.getProperties()))
            made.register(self._t_env, operation.isIgnoreIfExists())
            self._catalogs.setdefault(made.name, made)
            return _ok()
        if kind == "DropCatalogOperation" and operation.getCatalogName() in self._catalogs:
            result = self._t_env.execute_sql(text)
            del self._catalogs[operation.getCatalogName()]
            return result
        one = self._catalogs.get(_catalog_of(operation, kind))
        if one is None or (kind in (_CREATE, "DropTableOperation") and operation.isTemporary()):
            return None
        if kind == _CREATE:
            manager = self._t_env._j_tenv.getCatalogManager()
            one.create_table(operation, manager.resolveCatalogTable(operation.getCatalogTable()))
        elif kind in _IN_CATALOGS:
            _IN_CATALOGS[kind](one, operation)
        else:
            raise Unsupported(
                f"{text.strip()[:40]!r} in the catalog {one.name}: a table there is changed by its writers"
                " (Table.evolve, mainstem.spark.sql), made by CREATE TABLE, and filled by INSERT INTO"
            )
        one.refresh(self._t_env, text)
        return _ok()

    # -- checks ----------------------------------------------------------------------------------

    def _check_create(self, operation: Any) -> Declared | None:
        table = operation.getCatalogTable()
        texts = dict(table.getOptions())
        if not is_ours(texts):
            return None
        identifier = operation.getTableIdentifier()
        resolved = self._t_env._j_tenv.getCatalogManager().resolveCatalogTable(table)
        found = from_schema(
            (identifier.getCatalogName(), identifier.getDatabaseName(), identifier.getObjectName()),
            texts,
            resolved.getResolvedSchema(),
            list(resolved.getPartitionKeys()),
        )
        if found is not None:
            check_declared(found)
        return found

    def _changes(self, found: Syntax) -> Declared | None:
        """The Hudi table whose rows an UPDATE or DELETE changes."""
        return declared(self._t_env, found.target) if found.kind in ("SqlUpdate", "SqlDelete") else None

    def _truncated(self, operation: Any) -> Declared | None:
        return declared(self._t_env, tuple(operation.getTableIdentifier().toList()))

    def _refuse(self, operation: Any, kind: str) -> None:
        if kind == "CompilePlanOperation":
            concerned = self._concerns(operation.getOperation())
        else:
            concerned = operation.getProperties().get("type") in CONNECTORS
        if concerned:
            raise _unsupported(kind)

    def _collect(self, stmt: str, found: Syntax) -> TableResult:
        assert self._open_set is not None
        if found.kind != "RichSqlInsert":
            raise Invalid(
                f"between BEGIN STATEMENT SET and END only INSERT may stand, found: {stmt.strip()[:60]}"
            )
        self._open_set.add_insert_sql(stmt)
        return _ok()


def _unsupported(kind: str) -> Unsupported:
    what, instead = _REFUSED[kind]
    return Unsupported(f"{what} is not supported for Hudi tables; {instead}")


def _target(operation: Any) -> Any:
    """The planner's view of the table that an INSERT writes."""
    return operation.getContextResolvedTable()


def _creates_ours(operation: Any) -> bool:
    return is_ours(dict(operation.getCreateTableOperation().getCatalogTable().getOptions()))


def _catalog_of(operation: Any, kind: str) -> str:
    """The catalog in which a statement makes, changes or drops something; "" for other statements."""
    if kind in ("CreateDatabaseOperation", "DropDatabaseOperation", "AlterDatabaseOperation"):
        return str(operation.getCatalogName())
    if kind in _CREATE_AS:
        operation = operation.getCreateTableOperation()
    elif kind not in (_CREATE, "DropTableOperation") and not kind.startswith("AlterTable"):
        return ""
    return str(operation.getTableIdentifier().getCatalogName())


_IN_CATALOGS = {
    "DropTableOperation": NamedTables.drop_table,
    "CreateDatabaseOperation": NamedTables.create_database,
    "DropDatabaseOperation": NamedTables.drop_database,
}


def _ok() -> TableResult:
    """What Flink returns for a statement without a result."""
    from pyflink.java_gateway import get_gateway
    from pyflink.table import TableResult

    return TableResult(get_gateway().jvm.org.apache.flink.table.api.internal.TableResultImpl.TABLE_RESULT_OK)


def _one_text(text: str) -> TableResult:
    """A result of one row and column, as EXPLAIN returns it."""
    from pyflink.java_gateway import get_gateway
    from pyflink.table import TableResult
    from pyflink.util.java_utils import to_jarray

    jvm = get_gateway().jvm
    api, catalog = jvm.org.apache.flink.table.api, jvm.org.apache.flink.table.catalog
    column = catalog.Column.physical("result", api.DataTypes.STRING())
    rows = jvm.java.util.ArrayList()
    rows.add(jvm.org.apache.flink.types.Row.of(to_jarray(jvm.Object, [text])))
    return TableResult(
        api.internal.TableResultImpl.builder()
        .resultKind(api.ResultKind.SUCCESS_WITH_CONTENT)
        .schema(catalog.ResolvedSchema.of(to_jarray(catalog.Column, [column])))
        .data(rows)
        .build()
    )
