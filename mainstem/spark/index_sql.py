"""Hudi's index statements in Spark SQL, executed while writers run.

Spark resolves table names (by its catalog, or the plan of a temporary view). If the table does not belong to
this source, or Spark cannot resolve it, the statement goes to Spark.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.api.given_options import shared_location
from mainstem.api.indexes import VECTOR
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, MainstemError
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.indexing.status import READY, Index
from mainstem.metadata.derive.expression_functions import EXPRESSION
from mainstem.metadata.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_PREFIX,
    FILES,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    Kind,
)
from mainstem.services.progress import Progress
from mainstem.spark.in_tasks import driver_context, is_connect, on_server
from mainstem.spark.index_syntax import CREATE, DROP, REBUILD, REFRESH, SHOW, IndexStatement, place
from mainstem.spark.indexes import create_index, refresh_index, reindex
from mainstem.spark.options import PARTS_OF_TABLE
from mainstem.spark.pushed_down import items
from mainstem.spark.session_options import location_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.storage.location import Location

SOURCES = ("mainstem", "hudi", "org.apache.hudi")
_IDENTITY = "identity"
_VECTOR_KINDS = (VECTOR, "vector_index")
_EXPRESSION_KINDS = ("expr", "expr_index", "expression_index")


def indexed(
    spark: SparkSession,
    found: IndexStatement,
    properties: Mapping[str, object],
    progress: Progress | None,
    arguments: Mapping[str, Any],
) -> DataFrame | None:
    """Carries out an index statement; None if its table is not of this source. ``sql`` tells the answers."""
    path = _path(spark, found)
    if path is None:
        return None
    if found.problem is not None:
        raise found.problem
    if arguments:
        raise Invalid(f"{found.verb} has no parameters; {', '.join(arguments)} given ({found.place('verb')})")
    return _carry_out(spark, found, path, dict(properties), progress)


def _carry_out(
    spark: SparkSession,
    statement: IndexStatement,
    path: str,
    properties: dict[str, object],
    progress: Progress | None,
) -> DataFrame:
    location = location_in(spark, path)
    if is_connect(spark):
        found = on_server(spark, partial(_carried_out, None, statement, location, properties, None))
    else:
        found = _carried_out(spark, statement, location, properties, progress)
    return _empty(spark) if found is None else _shown(spark, found)


def _carried_out(
    spark: SparkSession | None,
    statement: IndexStatement,
    location: Location,
    properties: dict[str, object],
    progress: Progress | None,
) -> list[Index] | None:
    """The indexes that SHOW INDEXES asks for. ``spark``: None on a server of Spark Connect, where all is done
    in this process."""
    with _told_where(statement):
        table = open_table(location, properties)
    if statement.verb == CREATE:
        _check_columns(statement, table.schema.names)
        wish = wished(statement, table.config.record_key)
        with _told_where(statement):
            _create(spark, table, wish, statement.lenient, properties, progress)
        return None
    with _told_where(statement):
        if statement.verb == SHOW:
            return table.indexes()
        if statement.verb == DROP:
            table.drop_index(statement.name, if_exists=statement.lenient)
        if spark is None and statement.verb in (REBUILD, REFRESH):
            name = statement.name
            if statement.verb == REFRESH and table.index(name).kind == VECTOR:
                table.refresh_index(name)
            else:
                _ = table.reindex(name) if name else table.reindex_all()
        elif spark is None:
            return None
        elif statement.verb == REFRESH and table.index(statement.name).kind == VECTOR:
            refresh_index(spark, table.path, statement.name, properties=properties, progress=progress)
        elif statement.verb in (REBUILD, REFRESH):
            one = statement.name or None
            reindex(spark, table.path, one, properties=properties, progress=progress)
    return None


@contextmanager
def _told_where(statement: IndexStatement) -> Iterator[None]:
    """Prefixes errors with the statement and its position."""
    try:
        yield
    except MainstemError as error:
        error.message = f"{statement.verb} ({statement.place('name')}): {error.message}"
        raise


def _create(
    spark: SparkSession | None,
    table: Table,
    wish: Wish,
    lenient: bool,
    properties: dict[str, object],
    progress: Progress | None,
) -> None:
    if lenient and _is_there(table, wish):
        return
    try:
        if spark is None:
            table.create_index(wish.kind, wish.columns, name=wish.name, options=wish.options)
            return
        create_index(
            spark, table.path, wish.kind, wish.columns, name=wish.name, options=wish.options,
            properties=properties, progress=progress,
        )  # fmt: skip
    except Invalid:
        if not (lenient and _is_there(table, wish)):  # another process was faster
            raise


@dataclass(frozen=True)
class Wish:
    """Arguments for ``Table.create_index``, and the index partition that results."""

    kind: str
    partition: str
    columns: tuple[str, ...] = ()
    name: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def wished(statement: IndexStatement, key: Sequence[str]) -> Wish:
    """The index that a CREATE INDEX statement asks for on a table with record key ``key``.

    Without USING, it is the record index if the columns are the record key, else a secondary index (Hudi's
    rule, ``CreateIndexCommand``). With a function or an option ``expr``, it is an expression index, and so is
    a bloom filter on columns other than the record key.
    """
    columns = tuple(column.name for column in statement.columns)
    options = {**statement.options, **_of_columns(statement)}
    kind = statement.kind
    if not kind:
        kind = _unsaid(statement, columns, key)
    if kind in _VECTOR_KINDS:
        return Wish(VECTOR, statement.name, columns, statement.name, options)
    known = (*(str(k) for k in Kind), *_EXPRESSION_KINDS)
    if kind not in known:  # USING lower (city)
        options.setdefault(EXPRESSION, kind)
        kind = str(Kind.EXPRESSION_INDEX)
    function = options.get(EXPRESSION, _IDENTITY).lower()
    if kind in _EXPRESSION_KINDS or (kind == COLUMN_STATS and function != _IDENTITY):
        options[EXPRESSION] = function
        return _expression(statement, columns, options, COLUMN_STATS)
    if kind == BLOOM_FILTERS and (EXPRESSION in options or (columns and set(columns) != set(key))):
        return _expression(statement, columns, {**options, EXPRESSION: function}, BLOOM_FILTERS)
    options.pop(EXPRESSION, None)
    if kind == Kind.SECONDARY_INDEX:
        return Wish(kind, f"{SECONDARY_PREFIX}{statement.name}", columns, statement.name, options)
    if statement.name != kind:
        warnings.warn(
            f"{statement.place('name')}: a table has one index of the kind {kind}, which is called {kind},"
            f" not {statement.name!r}; SHOW INDEXES and DROP INDEX know it by that name",
            stacklevel=4,
        )
    if kind == RECORD_INDEX and columns and set(columns) != set(key):
        raise _not_on(statement, f"the record index is on the record key, {', '.join(key)}")
    keyless = kind in (FILES, RECORD_INDEX, BLOOM_FILTERS)
    return Wish(kind, kind, () if keyless and set(columns) == set(key) else columns, None, options)


def _expression(
    statement: IndexStatement, columns: tuple[str, ...], options: Mapping[str, str], index_type: str
) -> Wish:
    partition = f"{EXPRESSION_PREFIX}{statement.name}"
    given = {**options, "type": index_type}
    return Wish(str(Kind.EXPRESSION_INDEX), partition, columns, statement.name, given)


def _of_columns(statement: IndexStatement) -> dict[str, str]:
    """Options given after columns, and functions around columns (as option ``expr``)."""
    found: dict[str, str] = {}
    for column in statement.columns:
        given = {**column.options, **({EXPRESSION: column.function} if column.function else {})}
        for name, text in given.items():
            if found.setdefault(name, text) != text or statement.options.get(name, text) != text:
                raise _not_on(statement, f"the option {name!r} is given twice, with different values")
    return found


def _unsaid(statement: IndexStatement, columns: tuple[str, ...], key: Sequence[str]) -> str:
    if statement.name == RECORD_INDEX or set(columns) == set(key):
        return RECORD_INDEX
    if set(columns) & set(key):
        raise _not_on(statement, f"an index is on the whole record key ({', '.join(key)}), or on others")
    return str(Kind.SECONDARY_INDEX)


def _not_on(statement: IndexStatement, why: str) -> Invalid:
    return Invalid(f"{statement.verb} ({statement.place('columns')}): {why}")


def _check_columns(statement: IndexStatement, there: Sequence[str]) -> None:
    for column in statement.columns:
        if column.name.partition(".")[0] not in (*META_FIELDS, *there):
            raise Invalid(
                f"{statement.verb} ({place(statement.text, column.at)}): the table has no column"
                f" {column.name!r}; it has {', '.join(there)}"
            )


def _is_there(table: Table, wish: Wish) -> bool:
    return any(_known_as(index) == wish.partition and index.state == READY for index in table.indexes())


def _known_as(index: Index) -> str:
    """The name that SHOW INDEXES shows: the index partition, or a vector index's own name."""
    return index.name if index.kind == VECTOR else index.partition


# -- tables ------------------------------------------------------------------------------------------


def _path(spark: SparkSession, statement: IndexStatement) -> str | None:
    """Base path of the statement's table; None if Spark must handle the statement."""
    path = table_path(spark, statement.table, statement.verb)
    unknown = statement.verb in (SHOW, REBUILD, REFRESH)  # statements that Spark does not have
    if path is None and unknown and not spark.catalog.tableExists(_quoted(statement.table)):
        raise Invalid(f"{statement.verb} ({statement.place('table')}): there is no such table or view")
    return path


def _quoted(parts: Sequence[str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def table_path(spark: SparkSession, parts: Sequence[str], what: str) -> str | None:
    """Base path of a table of this source by the parts of its name; None for other and missing tables.
    ``what``: the statement, for error messages."""
    if len(parts) == 2 and parts[0].lower() in SOURCES and "/" in parts[1]:
        return shared_location(parts[1]).base
    name = _quoted(parts)
    if is_connect(spark):
        return _described(spark, name)
    driver_context(spark, what)
    if not spark.catalog.tableExists(name):
        return None
    if len(parts) <= 2 and not is_view(spark, parts):
        state = spark._jsparkSession.sessionState()
        return _catalogued(state.catalog(), state.sqlParser().parseTableIdentifier(name))
    return _viewed(spark.table(name)._jdf.queryExecution().analyzed())


def catalogued(spark: SparkSession, parts: Sequence[str]) -> Any:
    """The entry of a table in the session's own catalog; None for a path and for a view."""
    if (len(parts) == 2 and "/" in parts[1]) or len(parts) > 3 or is_view(spark, parts):
        return None
    state = spark._jsparkSession.sessionState()
    identifier = state.sqlParser().parseTableIdentifier(_quoted(parts))
    return state.catalog().getTableMetadata(identifier) if state.catalog().tableExists(identifier) else None


def _described(spark: SparkSession, name: str) -> str | None:
    """``table_path`` on Spark Connect, whose catalog says less of views."""
    from pyspark.errors import AnalysisException

    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except AnalysisException:
        return None
    found = {row[0]: row[1] for row in rows}
    ours = found.get("Provider", "").lower() in SOURCES and found.get("Location")
    return shared_location(found["Location"]).base if ours else None


def _catalogued(catalog: Any, identifier: Any) -> str | None:
    """Base path of a catalog table; only the session's own catalog stores a location for Python sources."""
    if not catalog.tableExists(identifier):
        return None
    found = catalog.getTableMetadata(identifier)
    provider, location = found.provider(), found.storage().locationUri()
    if provider.isEmpty() or provider.get().lower() not in SOURCES or location.isEmpty():
        return None
    uri = location.get()  # a URI: its toString would be escaped
    scheme = f"{uri.getScheme()}://{uri.getAuthority() or ''}" if uri.getScheme() else ""
    return shared_location(scheme + uri.getPath()).base


def is_view(spark: SparkSession, parts: Sequence[str]) -> bool:
    """Whether this is the name of a temporary view."""
    if len(parts) > 2:
        return False
    state = spark._jsparkSession.sessionState()
    return bool(state.catalog().isTempView(state.sqlParser().parseTableIdentifier(_quoted(parts))))


def options_of(spark: SparkSession, parts: Sequence[str]) -> dict[str, str]:
    """The options of a temporary view of a table of this source, without its path, or Hudi's among the
    properties of a table of the catalog; of other names none.

    Raises ``Invalid`` for a view that shows a part of its table, or another time: a statement that changes
    the table would go by that.
    """
    if not is_view(spark, parts):
        entry = catalogued(spark, parts)
        kept = {} if entry is None else {p._1(): p._2() for p in items(entry.properties().toSeq())}
        return {name: text for name, text in kept.items() if name.startswith("hoodie.")}
    relation = _relation(spark.table(_quoted(parts))._jdf.queryExecution().analyzed())
    if relation is None:
        return {}
    found = {name: relation.options().get(name) for name in relation.options().keySet()}
    partial = sorted(name for name in found if name in {option.lower() for option in PARTS_OF_TABLE})
    if partial:
        raise Invalid(
            f"the view {'.'.join(parts)} has {', '.join(partial)}: it shows not all of its table as it is."
            " Name the table by its path, or make a view without"
        )
    return {name: text for name, text in found.items() if name != "path"}


def _viewed(plan: Any) -> str | None:
    """Base path of the table that a temporary view shows unchanged; None for other views."""
    relation = _relation(plan)
    path = None if relation is None else relation.options().get("path")
    return None if path is None else shared_location(path).base


def _relation(plan: Any) -> Any:
    """This source's relation in the plan of a temporary view that shows it unchanged; None for others."""
    while plan.children().size() == 1 and plan.nodeName() in ("SubqueryAlias", "View"):
        plan = plan.children().apply(0)
    return plan if is_own(plan) else None


def is_own(plan: Any) -> bool:
    """Whether a node of a plan reads a table of this source."""
    return plan.nodeName() == "DataSourceV2Relation" and plan.table().name().lower() in SOURCES


# -- answers -----------------------------------------------------------------------------------------


def _shown(spark: SparkSession, indexes: Sequence[Index]) -> DataFrame:
    from mainstem.spark.types import local_frame

    names = ("index_name", "index_type", "col_name", "state")
    columns = ", ".join(f"{name} string NOT NULL" for name in names)
    rows = [(_known_as(i), i.kind, ",".join(i.columns), i.state) for i in indexes if i.partition != FILES]
    return local_frame(spark, rows, columns)


def _empty(spark: SparkSession) -> DataFrame:
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType([]))

