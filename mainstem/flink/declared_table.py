"""What a CREATE TABLE statement declared about a Hudi table, read from the environment's catalogs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.flink.options import CONNECTORS, FlinkOptions
from mainstem.flink.types import flink_to_arrow, with_vectors
from mainstem.options.placing import PARTITION_FIELDS, RECORD_KEY_FIELDS

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment


@dataclass(frozen=True)
class Declared:
    """``names``: catalog, database, table. ``row``: the columns as Java's ``RowType``; ``columns``: as a
    Hudi table stores them. ``key`` and ``partition``: from PRIMARY KEY and PARTITIONED BY, else from the
    options, else None. ``options`` are checked; ``texts`` are those declared (hints override them)."""

    names: tuple[str, str, str]
    row: Any
    columns: pa.Schema
    key: tuple[str, ...] | None
    partition: tuple[str, ...] | None
    options: FlinkOptions
    texts: Mapping[str, str]

    @property
    def name(self) -> str:
        """The table's name in SQL, without catalog and database."""
        return self.names[2]

    def with_hints(self, hints: Mapping[str, str]) -> Declared:
        """The table as if the options of a hint were part of its declaration."""
        if not hints:
            return self
        texts = {**self.texts, **hints}
        options = _with_fields(FlinkOptions.parse(texts, name=self.name), self)
        columns = with_vectors(flink_to_arrow(self.row), self.row, options.vectors)
        return replace(self, columns=columns, options=options, texts=texts)


def is_ours(options: Mapping[str, str]) -> bool:
    """Whether a table's options name this connector."""
    return options.get("connector", "").strip().lower() in CONNECTORS


def declared(t_env: TableEnvironment, names: tuple[str, ...]) -> Declared | None:
    """The Hudi table of that name; None if there is none, or it has another connector.

    Raises ``Invalid`` or ``Unsupported`` for options, columns and types that a Hudi table cannot have.
    """
    found = t_env._j_tenv.getCatalogManager().getTable(_identifier(t_env, names))
    return from_resolved(found.get()) if found.isPresent() else None


def identified(t_env: TableEnvironment, names: tuple[str, ...]) -> tuple[str, ...]:
    """A table name completed with its catalog and database."""
    return tuple(_identifier(t_env, names).toList())


def names_of(t_env: TableEnvironment, path: str) -> tuple[str, ...]:
    """The parts of a name written as in SQL."""
    found = t_env._j_tenv.getParser().parseIdentifier(path)
    parts = (found.getCatalogName(), found.getDatabaseName())
    return (*(part.get() for part in parts if part.isPresent()), found.getObjectName())


def _identifier(t_env: TableEnvironment, names: tuple[str, ...]) -> Any:
    from pyflink.java_gateway import get_gateway
    from pyflink.util.java_utils import to_jarray

    jvm = get_gateway().jvm
    parts = to_jarray(jvm.String, list(names))
    unresolved = jvm.org.apache.flink.table.catalog.UnresolvedIdentifier.of(parts)
    return t_env._j_tenv.getCatalogManager().qualifyIdentifier(unresolved)


def from_resolved(context: Any) -> Declared | None:
    """The same for a ``ContextResolvedTable`` of the planner."""
    table = context.getResolvedTable()
    if table.getTableKind().name() != "TABLE":
        return None
    identifier = context.getIdentifier()
    names = (identifier.getCatalogName(), identifier.getDatabaseName(), identifier.getObjectName())
    partition = list(table.getPartitionKeys())
    return from_schema(names, dict(table.getOptions()), table.getResolvedSchema(), partition)


def from_schema(
    names: tuple[str, str, str], texts: Mapping[str, str], schema: Any, partition: list[str]
) -> Declared | None:
    """The same from options, Java's ``ResolvedSchema`` and PARTITIONED BY."""
    if not is_ours(texts):
        return None
    options = FlinkOptions.parse(texts, name=names[2])
    row = _row_type(schema, names[2])
    key = schema.getPrimaryKey()
    found = Declared(
        names=names,
        row=row,
        columns=with_vectors(flink_to_arrow(row), row, options.vectors),
        key=tuple(key.get().getColumns()) if key.isPresent() else None,
        partition=tuple(partition) or None,
        options=options,
        texts=dict(texts),
    )
    options = _with_fields(options, found)
    return replace(
        found,
        options=options,
        key=_fields(options.table.get(RECORD_KEY_FIELDS)),
        partition=_fields(options.table.get(PARTITION_FIELDS)),
    )


def _fields(text: str | None) -> tuple[str, ...] | None:
    """Field names without the types that a CUSTOM key generator adds (``day:TIMESTAMP``)."""
    names = tuple(part.partition(":")[0].strip() for part in (text or "").split(",") if part.strip())
    return names or None


def _with_fields(options: FlinkOptions, found: Declared) -> FlinkOptions:
    """Options with PRIMARY KEY and PARTITIONED BY, which take precedence, as in ``HoodieTableFactory``.

    Raises ``Invalid`` if an option contradicts its clause.
    """
    table, given = dict(options.table), dict(options.given)
    clauses = (
        (RECORD_KEY_FIELDS, found.key, "PRIMARY KEY"),
        (PARTITION_FIELDS, found.partition, "PARTITIONED BY"),
    )
    for property_, fields, clause in clauses:
        if fields is not None:
            said = _fields(table.get(property_))
            if said is not None and said != fields:
                raise Invalid(
                    f"table {found.name!r}: {given[property_]}={table[property_]!r} contradicts {clause}"
                    f" ({', '.join(fields)})"
                )
            if said is None:
                table[property_], given[property_] = ",".join(fields), clause
    return replace(options, table=table, given=given)


def _row_type(schema: Any, name: str) -> Any:
    for column in schema.getColumns():
        if not column.isPhysical():
            raise Unsupported(
                f"table {name!r}: column {column.getName()!r} is computed or metadata, and a Hudi table"
                " stores plain columns; compute it in the query, or in a view over the table"
            )
        if column.getName().startswith("_hoodie_") and column.getName() != "_hoodie_is_deleted":
            raise Unsupported(
                f"table {name!r}: {column.getName()!r} is a meta column of Hudi; leave it out of the"
                " declaration"
            )
    if not schema.getWatermarkSpecs().isEmpty():
        raise Unsupported(
            f"table {name!r}: WATERMARK on a Hudi table is not supported; leave it out of the declaration"
        )
    return schema.toPhysicalRowDataType().getLogicalType()
