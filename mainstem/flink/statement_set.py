"""Several INSERTs as one job, into Hudi tables and others."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from mainstem.errors import Invalid, Unsupported
from mainstem.flink.inserting import refuse_overwrite
from mainstem.flink.statements import Syntax, quoted

if TYPE_CHECKING:
    from pyflink.table import (
        ExplainDetail,
        Table,
        TableDescriptor,
        TableEnvironment,
        TablePipeline,
        TableResult,
    )

    from mainstem.flink.declared_table import Declared
    from mainstem.flink.pipeline import Planned


class Planner(Protocol):
    """What a statement set needs of the ``Environment`` that made it."""

    _t_env: TableEnvironment

    def _readable(
        self, text: str, place: str | None = ""
    ) -> AbstractContextManager[tuple[str, Syntax | None]]:
        """The statement with views in the place of Hudi tables, and its syntax, while it is planned."""

    def _operation(self, text: str) -> Any:
        """What the planner's parser makes of it."""

    def _concerns(self, operation: Any) -> bool:
        """Whether it writes into a Hudi table."""

    def _declared_at(self, path: str) -> Declared | None:
        """The Hudi table of that name."""

    def _plan(self, operation: Any) -> Planned:
        """An INSERT into a Hudi table."""

    def _plan_rows(self, rows: Table, table: Declared) -> Planned:
        """Rows for a Hudi table."""


class Statements:
    """A ``StatementSet`` that knows Hudi tables. It is empty again after ``execute``."""

    def __init__(self, env: Planner) -> None:
        self._env = env
        self._clear()

    def _clear(self) -> None:
        self._inserts: list[Planned] = []
        self._others = self._env._t_env.create_statement_set()
        self._has_others = False
        self._texts = 0

    def add_insert_sql(self, stmt: str) -> Statements:
        """Add an INSERT statement. It is checked at once; a missing Hudi table is made by ``execute``."""
        with self._env._readable(stmt, f"set {self._texts}") as (text, found):
            if found is None or found.kind != "RichSqlInsert":
                raise Invalid(f"only INSERT statements can be added, found: {stmt.strip()[:60]}")
            self._texts += 1
            operation = self._env._operation(text)
            if self._env._concerns(operation):
                return self.add_operation(operation)
            self._others.add_insert_sql(text)
            self._has_others = True
            return self

    def add_insert(
        self, target_path_or_descriptor: str | TableDescriptor, table: Table, overwrite: bool = False
    ) -> Statements:
        """Add the rows of a Table for the table of that name."""
        target = target_path_or_descriptor
        found = self._env._declared_at(target) if isinstance(target, str) else None
        if found is None:
            self._others.add_insert(target, table, overwrite)
            self._has_others = True
        elif overwrite:
            refuse_overwrite(found)
        else:
            self._inserts.append(self._env._plan_rows(table, found))
        return self

    def add(self, table_pipeline: TablePipeline) -> Statements:
        """Add a pipeline into a table that is not Hudi's."""
        self._others.add(table_pipeline)
        self._has_others = True
        return self

    def add_operation(self, operation: Any) -> Statements:
        """Add what the planner's parser made of an INSERT or EXECUTE STATEMENT SET."""
        from pyflink.table import Table

        env = self._env
        if operation.getClass().getSimpleName() == "StatementSetOperation":
            for part in operation.getOperations():
                self.add_operation(part)
            return self
        if env._concerns(operation):
            self._inserts.append(env._plan(operation))
            return self
        path = operation.getContextResolvedTable().getIdentifier().toList()
        if operation.getDynamicOptions():
            raise Unsupported(
                f"an OPTIONS hint at {'.'.join(path)} in EXECUTE STATEMENT SET beside Hudi tables: use"
                " create_statement_set() and add_insert_sql"
            )
        rows = Table(env._t_env._j_tenv.createTable(operation.getChild()), env._t_env)
        self._others.add_insert(quoted(*path), rows, operation.isOverwrite())
        self._has_others = True
        return self

    def add_planned(self, insert: Planned) -> Statements:
        """Add an INSERT that was planned already."""
        self._inserts.append(insert)
        return self

    def explain(self, *extra_details: ExplainDetail) -> str:
        """Writer, buckets and committer of each Hudi table; Flink's plan of the others."""
        texts = [insert.explain() for insert in self._inserts]
        if self._has_others:
            texts.append(self._others.explain(*extra_details))
        return "\n\n".join(texts)

    def print_explain(self, *extra_details: ExplainDetail) -> None:
        """Print what ``explain`` returns."""
        print(self.explain(*extra_details))

    def execute(self) -> TableResult:
        """Submit all as one job."""
        from mainstem.flink.job import execute

        inserts, others = self._inserts, self._others if self._has_others else None
        self._clear()
        if not inserts and others is not None:
            return others.execute()
        if not inserts:
            raise Invalid("the statement set is empty: add INSERT statements before it is executed")
        return execute(inserts, others)

    def attach_as_datastream(self) -> None:
        """Not for Hudi tables: their commits need a process that follows the job."""
        if self._inserts:
            raise Unsupported("attach_as_datastream with a Hudi table: use execute")
        self._others.attach_as_datastream()
        self._clear()
