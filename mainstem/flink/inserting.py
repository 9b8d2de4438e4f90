"""Prepares the rows of an INSERT: casts columns to the declared types, and refuses what cannot be written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from mainstem.errors import Invalid, Unsupported
from mainstem.flink.declared_table import Declared
from mainstem.flink.insert_target import has_key
from mainstem.flink.statements import named, quoted
from mainstem.flink.types import cast_type
from mainstem.options.placing import RECORD_KEY_OPTION

if TYPE_CHECKING:
    from pyflink.table import Table, TableEnvironment

_PLAN = "== Optimized Physical Plan =="
_KINDS = re.compile(r"changelogMode=\[([A-Z,]*)\]")


def row_kinds(rows: Table) -> frozenset[str]:
    """Kinds of changes that a query produces: I (insert), UB and UA (update before and after), D (delete)."""
    from pyflink.table import ExplainDetail

    plan = rows.explain(ExplainDetail.CHANGELOG_MODE).partition(_PLAN)[2]
    found = _KINDS.search(plan)  # the plan's root comes first; batch plans show no mode and only insert
    return frozenset(found.group(1).split(",")) if found else frozenset("I")


def rows_for(t_env: TableEnvironment, rows: Table, declared: Declared) -> Table:
    """The query's columns under the declared names and types, by position, as any Flink sink takes them.

    Raises ``Invalid`` for a wrong number of columns, for types that Flink would not cast implicitly, and for
    an updating query into a table without a declared key.
    """
    fields = list(declared.row.getFields())
    kinds = [kind.getLogicalType() for kind in rows._j_table.getResolvedSchema().getColumnDataTypes()]
    if len(kinds) != len(fields):
        raise Invalid(
            f"INSERT INTO {declared.name}: the query has {len(kinds)} columns, the table declares"
            f" {len(fields)}: {', '.join(declared.columns.names)}; name the columns that are given,"
            f" INSERT INTO {declared.name} (...)"
        )
    if not has_key(declared) and row_kinds(rows) != {"I"}:
        raise Invalid(
            f"INSERT INTO {declared.name}: the query updates or deletes rows that it gave before, and the"
            f" table has no PRIMARY KEY and no {RECORD_KEY_OPTION}: say which columns"
            " identify a row"
        )
    casts = [_cast(field, kind, declared.name) for field, kind in zip(fields, kinds, strict=True)]
    renamed = rows.alias(*declared.columns.names)
    if not any(casts):
        return renamed
    columns = (
        f"CAST({quoted(name)} AS {cast}) AS {quoted(name)}" if cast else quoted(name)
        for name, cast in zip(declared.columns.names, casts, strict=True)
    )
    with named(t_env, renamed) as view:
        return t_env.sql_query(f"SELECT {', '.join(columns)} FROM {view}")


def _cast(field: Any, found: Any, table: str) -> str | None:
    """The type to cast a column to; None if no cast is needed. Length and NOT NULL do not matter."""
    from pyflink.java_gateway import get_gateway

    wanted = field.getType()
    if cast_type(wanted) == cast_type(found):
        return None
    casts = get_gateway().jvm.org.apache.flink.table.types.logical.utils.LogicalTypeCasts
    if not casts.supportsImplicitCast(found, wanted.copy(True)):
        raise Invalid(
            f"INSERT INTO {table}: column {field.getName()!r} is {wanted.asSummaryString()}, but the query"
            f" gives {found.asSummaryString()}; cast it in the query"
        )
    return cast_type(wanted)


def refuse_overwrite(declared: Declared) -> NoReturn:
    """Raises ``Unsupported`` for an INSERT OVERWRITE as a part of a job."""
    raise Unsupported(
        f"INSERT OVERWRITE {declared.name} in a statement set: a Flink job commits at each checkpoint, and"
        " each would overwrite the one before; execute it as a statement of its own, or use INSERT INTO"
    )
