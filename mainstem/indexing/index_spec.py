"""The specification of a new index, checked against the table before the build begins."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import avro_to_arrow, record_type
from mainstem.indexing import index_lists
from mainstem.layout import properties
from mainstem.layout.properties import TableConfig
from mainstem.merge.modes import CUSTOM
from mainstem.metadata.commits.expression_rows import kept_expression
from mainstem.metadata.derive.column_ranges import META_COLUMNS, indexed_columns
from mainstem.metadata.derive.expression_functions import EXPRESSION, OPTIONS
from mainstem.metadata.derive.index_rows import secondary_texts
from mainstem.metadata.index_definitions import PARTITIONED, Definition, Definitions
from mainstem.metadata.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_PREFIX,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    Content,
    Kind,
    content_of,
    file_id,
)
from mainstem.metadata.records.row_keys import V1, V2
from mainstem.options import (
    BLOOM_GROUPS,
    EXPRESSION_GROUPS,
    PARTITION_STATS_GROUPS,
    RECORD_GROUP_BYTES,
    RECORD_GROWTH,
    STATS_COLUMNS,
    STATS_COLUMNS_MAX,
    STATS_GROUPS,
    record_index_groups,
)

_GROUPS_MAX = 10_000
#: kinds that Hudi has; those of them that are built here are in ``_SPECS``
KINDS = tuple(str(kind) for kind in Kind)
_SECONDARY = str(Kind.SECONDARY_INDEX)
#: the option that says what the rows of an expression index are
TYPE = "type"
#: what Hudi reckons with per entry of a record index
_ENTRY_BYTES = 48
_GROWTH = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?\Z")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")


@dataclass(frozen=True)
class IndexSpec:
    """``columns``: those that its rows are made of, meta columns first; ``groups``: file groups of the
    partition; ``by_partition``: of a partitioned record index instead, by partitions of the data, as keys
    name them; ``version``: of its rows; ``definition``: its entry in the file of definitions, which
    ``files`` and some others have not; ``needs``: the partitions that it rests on."""

    partition: str
    groups: int = 1
    columns: tuple[str, ...] = ()
    version: str = V2
    definition: Definition | None = None
    needs: tuple[str, ...] = (FILES,)
    by_partition: Mapping[str, int] | None = None

    @property
    def group_ids(self) -> list[str]:
        """The file groups that it begins with."""
        if self.by_partition is None:
            return [file_id(self.partition, number) for number in range(self.groups)]
        counts = sorted(self.by_partition.items())
        return [file_id(self.partition, number, name) for name, count in counts for number in range(count)]

    @property
    def content(self) -> Content:
        """What its rows are."""
        index_type = COLUMN_STATS if self.definition is None else self.definition.index_type
        found = content_of(self.partition, index_type)
        assert found is not None
        return found

    def check(
        self,
        config: TableConfig,
        definitions: Definitions,
        table: str,
        under_way: Collection[str] = (),
    ) -> None:
        """Under the lock: the table still has what the index rests on. Another index than ``files`` may be
        ``under_way``."""
        for needed in self.needs:
            if needed not in index_lists.ready(config) and (needed == FILES or needed not in under_way):
                raise Invalid(
                    f"{self.partition} depends on {needed}, which the table lacks; create that first",
                    table=table,
                )
        stats = definitions.get(COLUMN_STATS)
        if COLUMN_STATS in self.needs and (stats is None or stats.fields != self.columns):
            raise Invalid(
                f"{COLUMN_STATS} was rebuilt on other columns while {self.partition} was being prepared:"
                f" create {self.partition} again",
                table=table,
            )


@dataclass(frozen=True)
class Wish:
    """What a user asks for, and of which table: ``columns`` and ``name`` as given, ``options`` on top of the
    table's properties; ``schema_text``: the table's Avro schema; ``definitions``: of its indexes; ``rows``:
    counts rows by partition of the data, roughly; ``told``: the options that were given for this index."""

    columns: Sequence[str]
    schema_text: str
    config: TableConfig
    options: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    definitions: Definitions = field(default_factory=Definitions)
    rows: Callable[[], Mapping[str, int]] = dict
    told: Mapping[str, str] = field(default_factory=dict)

    def named(self, prefix: str) -> str:
        """The partition of an index with a name of its own; without one that of its column.

        Raises ``Invalid`` for names that are no names of folders or that Hudi's file ids cannot tell apart.
        """
        name = self.name if self.name is not None else "_".join(self.columns).replace(".", "_")
        if not isinstance(name, str) or not _NAME.match(name):
            raise Invalid(
                f"{name!r} as the name of an index; expected a letter, then letters, digits and _, at most"
                " 100 together"
            )
        return f"{prefix}{name}"

    def unnamed(self, kind: str) -> None:
        """``Invalid`` where a kind of which a table has one is given another name."""
        if self.name not in (None, kind):
            raise Invalid(f"a table has one index of the kind {kind}, of this name; {self.name!r} was given")

    def check_columns(self) -> None:
        """``Invalid`` for columns that the table has not, or that are named twice."""
        there = [name for name, _ in record_type(self.schema_text).fields]
        for name in self.columns:
            if not isinstance(name, str) or name.partition(".")[0] not in (*there, *META_COLUMNS):
                raise Invalid(f"the table has no column {name!r}; it has {', '.join(there)}")
        twice = [name for name in self.columns if list(self.columns).count(name) > 1]
        if twice:
            raise Invalid(f"the column {twice[0]!r} is named twice")


def make_spec(kind: str, wish: Wish) -> IndexSpec:
    """The index that a user asks for. Raises ``Invalid`` for columns that are missing, twice, or of an
    impossible type, and for impossible names and options; ``Unsupported`` for a kind that is not built
    here, or that writers here do not maintain."""
    if kind not in _SPECS:
        raise Unsupported(f"an index of the kind {kind!r}: mainstem builds {', '.join(_SPECS)}")
    if kind not in properties.MAINTAINED:
        raise Unsupported(
            f"an index of the kind {kind}: mainstem's writers do not maintain it, and would refuse the table"
        )
    return _SPECS[kind](wish)


def _files(wish: Wish) -> IndexSpec:
    wish.unnamed(FILES)
    if wish.columns:
        raise Invalid(f"the listing of files has no columns: leave {list(wish.columns)} out")
    return IndexSpec(FILES, needs=())


def _column_stats(wish: Wish) -> IndexSpec:
    wish.unnamed(COLUMN_STATS)
    given = wish.options.get(STATS_COLUMNS, "").split(",")
    listed = list(wish.columns) or [name.strip() for name in given if name.strip()]
    wish = Wish(listed, wish.schema_text, wish.config, wish.options)
    wish.check_columns()
    first = wish.config.version < 9
    count = STATS_COLUMNS_MAX.read(wish.options)
    found = tuple(indexed_columns(wish.schema_text, listed, count=count, first_version=first))
    impossible = [name for name in listed if name not in found and not name.startswith("_hoodie_")]
    if impossible:
        raise Invalid(f"the type of column {impossible[0]!r} has no smallest and greatest value")
    groups, version = STATS_GROUPS.read(wish.options), V1 if first else V2
    definition = Definition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, found, {}, version)
    return IndexSpec(COLUMN_STATS, groups, found, version, definition)


def _bloom_filters(wish: Wish) -> IndexSpec:
    """Java writes no definition of it."""
    wish.unnamed(BLOOM_FILTERS)
    if wish.columns:
        raise Invalid(f"bloom filters hold record keys: leave the columns {list(wish.columns)} out")
    return IndexSpec(BLOOM_FILTERS, BLOOM_GROUPS.read(wish.options))


def _record_index(wish: Wish) -> IndexSpec:
    """Of a partitioned table the partitioned one: one for the whole table holds one place per key, and each
    partition has keys of its own."""
    wish.unnamed(RECORD_INDEX)
    if wish.columns:
        raise Invalid(f"a record index holds record keys: leave the columns {list(wish.columns)} out")
    partitioned = bool(wish.config.partition_fields)
    if wish.config.version < 9:
        if partitioned:
            raise Unsupported(
                "a record index of a partitioned table of version 8: Hudi has partitioned ones since table"
                " version 9; upgrade the table with Hudi 1.1 or newer"
            )
        return IndexSpec(RECORD_INDEX, _key_groups(wish, sum(wish.rows().values())))
    told = {PARTITIONED: "true" if partitioned else "false"}
    definition = Definition(RECORD_INDEX, RECORD_INDEX, "", (), told, V1)
    rows = wish.rows()
    if not partitioned:
        return IndexSpec(RECORD_INDEX, _key_groups(wish, sum(rows.values())), definition=definition)
    counts = {name: _key_groups(wish, count, partitioned=True) for name, count in rows.items()}
    return IndexSpec(RECORD_INDEX, definition=definition, by_partition=counts)


def _key_groups(wish: Wish, rows: int, *, partitioned: bool = False) -> int:
    """``HoodieTableMetadataUtil.estimateFileGroupCount``: of so many rows, with room for them to grow."""
    least, most = record_index_groups(wish.options, partitioned=partitioned)
    if least == most:
        return least
    growth = RECORD_GROWTH.read(wish.options)
    if not _GROWTH.match(growth):
        raise Invalid(f"{RECORD_GROWTH}={growth!r}, expected a number such as 2.0")
    size = RECORD_GROUP_BYTES.read(wish.options)
    return min(most, max(least, math.ceil(rows * float(growth)) // (size // _ENTRY_BYTES)))


def _only_column(wish: Wish, what: str) -> tuple[str, pa.Schema]:
    """The one column that such an index is on, and the table's columns."""
    wish.check_columns()
    if len(wish.columns) != 1:
        raise Invalid(f"{what} is on one column; {list(wish.columns)} were named")
    (column,) = wish.columns
    schema = avro_to_arrow(wish.schema_text)
    if column not in schema.names:
        raise Invalid(
            f"{what} on {column!r}: expected a column of the table that is no meta column and no field of a"
            " struct"
        )
    return column, schema


def _secondary_index(wish: Wish) -> IndexSpec:
    column, schema = _only_column(wish, "a secondary index")
    try:
        secondary_texts(pa.nulls(0, schema.field(column).type))
    except Unsupported as error:
        raise Invalid(str(error)) from None
    if wish.config.merge_mode == CUSTOM:
        raise Unsupported(
            "a secondary index of a table with its own merger: merging may give a row values that no write"
            " contained, and an index of written values would not find them"
        )
    partition = wish.named(SECONDARY_PREFIX)
    first = wish.config.version < 9
    definition = Definition(partition, _SECONDARY, "identity", (column,), {}, None if first else V2)
    groups, version = _key_groups(wish, sum(wish.rows().values())), V1 if first else V2
    return IndexSpec(partition, groups, (column,), version, definition, needs=(FILES, RECORD_INDEX))


def _expression_index(wish: Wish) -> IndexSpec:
    """Of column statistics; its definition as Java writes it, with the options of the function."""
    column, schema = _only_column(wish, "an expression index")
    if wish.config.version < 9:
        raise Unsupported("an expression index of a table of version 8: upgrade it with Hudi 1.1 or newer")
    partition = wish.named(EXPRESSION_PREFIX)
    given = {name: text for name, text in wish.told.items() if not name.startswith("hoodie.")}
    index_type = given.pop(TYPE, COLUMN_STATS).strip().lower()
    function = given.pop(EXPRESSION, "").strip().lower()
    strange = sorted(given.keys() - set(OPTIONS))
    if strange:
        known = ", ".join((TYPE, *OPTIONS))
        raise Invalid(f"the option {strange[0]!r} of an expression index; expected {known}")
    if not function:
        raise Invalid(f"an expression index without a function; give the option {EXPRESSION!r}: upper, ...")
    options = {EXPRESSION: function, **given}
    definition = Definition(partition, index_type, function, (column,), options, V2)
    _, expression = kept_expression(partition, definition)
    expression.values(pa.chunked_array([pa.nulls(1, schema.field(column).type)]))
    groups = EXPRESSION_GROUPS.read(wish.options)
    return IndexSpec(partition, groups, (column,), V2, definition)


def _partition_stats(wish: Wish) -> IndexSpec:
    """On the columns of ``column_stats``, which it rests on: those that it has, or would have."""
    wish.unnamed(PARTITION_STATS)
    if not wish.config.partition_fields:
        raise Invalid(f"{PARTITION_STATS}: the table has no partitions; use {COLUMN_STATS}")
    stats = wish.definitions.get(COLUMN_STATS)
    columns = _column_stats(Wish(wish.columns, wish.schema_text, wish.config, wish.options)).columns
    if stats is not None and wish.columns and set(columns) != set(stats.fields):
        raise Invalid(
            f"{PARTITION_STATS} is on the columns of {COLUMN_STATS}, {', '.join(stats.fields)}; leave the"
            f" columns out, or rebuild {COLUMN_STATS} on others first"
        )
    return IndexSpec(
        PARTITION_STATS,
        PARTITION_STATS_GROUPS.read(wish.options),
        columns if stats is None else stats.fields,
        wish.definitions.stats_version(PARTITION_STATS, wish.config.version),
        needs=(FILES, COLUMN_STATS),
    )


_SPECS: dict[str, Callable[[Wish], IndexSpec]] = {
    FILES: _files,
    COLUMN_STATS: _column_stats,
    BLOOM_FILTERS: _bloom_filters,
    RECORD_INDEX: _record_index,
    _SECONDARY: _secondary_index,
    str(Kind.EXPRESSION_INDEX): _expression_index,
    PARTITION_STATS: _partition_stats,
}
