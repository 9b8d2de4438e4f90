"""UPDATE and DELETE: the rows that WHERE names are read as a query of Flink's, and written in one commit.

Hudi's connector has both in batch mode (``HoodieTableSink.applyRowLevelUpdate``, ``applyRowLevelDelete``).
The query sees the table as it is when it is planned. A deleted row carries its ordering value, an updated one
too unless it sets another: what another writer commits meanwhile with a greater one outlives the statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import Invalid, Unsupported
from mainstem.flink.one_commit import CommitResult, in_one_commit
from mainstem.flink.recovery import ends
from mainstem.flink.statements import Syntax, quoted
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.writers.write_spec import DELETE_ROWS, UPSERT

if TYPE_CHECKING:
    from mainstem.flink.declared_table import Declared
    from mainstem.flink.pipeline import Planned


def query(found: Syntax, table: Declared) -> str:
    """The rows that a statement changes, as it leaves them. Raises ``Invalid`` for a column that is not
    there."""
    alias = quoted(found.alias or table.name)
    assigned = dict(found.assigned)
    unknown = [name for name in assigned if name not in table.columns.names]
    if unknown or len(assigned) < len(found.assigned):
        raise Invalid(
            f"UPDATE {table.name}: {', '.join(unknown) or 'a column'} is not there, or is set twice; the"
            f" table has {', '.join(table.columns.names)}"
        )
    columns = [assigned.get(name, f"{alias}.{quoted(name)}") for name in table.columns.names]
    where = f" WHERE {found.condition}" if found.condition else ""
    return f"SELECT {', '.join(columns)} FROM {quoted(*table.names)} AS {alias}{where}"


def change(planned: Planned, found: Syntax) -> CommitResult:
    """Runs the query and commits. Raises ``Invalid`` for an update of a key or partition column,
    ``Unsupported`` for a table that is read as a stream; nothing is written then."""
    name, verb = planned.declared.name, "DELETE" if found.kind == "SqlDelete" else "UPDATE"
    if planned.changes or not ends(planned.env, planned.rows):
        raise Unsupported(
            f"{verb} {name}: the table is read as a stream (read.streaming.enabled), which does not end;"
            " leave that out, or set it in a hint of the SELECT alone"
        )
    insert = planned.opened()
    target, config = insert.target, insert.target.table.config
    if not config.record_key:
        raise Unsupported(
            f"{verb} {name}: the table has no record key, and Flink does not show the keys that were made up;"
            f" use mainstem.spark.sql, or Table.upsert and Table.delete with {KEY_COLUMN}",
            table=target.table.path,
        )
    key = (*config.record_key, *config.partition_fields)
    wrong = [column for column, _ in found.assigned if column in key]
    if wrong:
        raise Invalid(
            f"UPDATE {name}: {', '.join(wrong)} tells where a row lies (record key or partition): INSERT the"
            " row with its new value, and DELETE the old one",
            table=target.table.path,
        )
    if verb == "DELETE":
        needed = list(dict.fromkeys((*key, *config.ordering)))
        return in_one_commit(planned, insert, DELETE_ROWS, needed)
    return in_one_commit(planned, insert, UPSERT)
