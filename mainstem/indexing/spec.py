"""What a new index shall be: checked against the table before anything is begun."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import record_type
from mainstem.indexing import lists
from mainstem.metadata.build.ranges import META_COLUMNS, indexed_columns
from mainstem.metadata.definitions import Definition, Definitions
from mainstem.metadata.keys import V1, V2
from mainstem.metadata.partitions import COLUMN_STATS, FILES, Content, Kind, content_of
from mainstem.options import STATS_COLUMNS, STATS_COLUMNS_MAX, STATS_GROUPS, whole_number
from mainstem.table import properties
from mainstem.table.properties import TableConfig

_GROUPS_MAX = 10_000
#: kinds that Hudi has; those of them that are built here are in ``_SPECS``
KINDS = tuple(str(kind) for kind in Kind)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")


@dataclass(frozen=True)
class IndexSpec:
    """``columns``: those that its rows are made of, meta columns first; ``groups``: file groups of the
    partition; ``version``: of its rows; ``definition``: its entry in the file of definitions, which
    ``files`` and some others have not; ``needs``: the partitions that it rests on."""

    partition: str
    groups: int = 1
    columns: tuple[str, ...] = ()
    version: str = V2
    definition: Definition | None = None
    needs: tuple[str, ...] = (FILES,)

    @property
    def content(self) -> Content:
        """What its rows are."""
        index_type = COLUMN_STATS if self.definition is None else self.definition.index_type
        found = content_of(self.partition, index_type)
        assert found is not None
        return found

    def check(self, config: TableConfig, table: str) -> None:
        """Under the lock: the table still has what the index rests on."""
        for needed in self.needs:
            if needed not in lists.ready(config):
                raise Invalid(
                    f"{self.partition} rests on {needed}, which the table has not; create that first",
                    table=table,
                )


@dataclass(frozen=True)
class Wish:
    """What a user asks for, and of which table: ``columns`` and ``name`` as given, ``options`` on top of the
    table's properties; ``schema_text``: the table's Avro schema; ``definitions``: of its indexes."""

    columns: Sequence[str]
    schema_text: str
    config: TableConfig
    options: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    definitions: Definitions = field(default_factory=Definitions)

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
        raise Unsupported(f"an index of the kind {kind!r}: mainstem builds {' and '.join(_SPECS)}")
    if kind not in properties.MAINTAINED:
        raise Unsupported(
            f"an index of the kind {kind}: mainstem's writers do not maintain it, and would refuse the table"
        )
    return _SPECS[kind](wish)


def _files(wish: Wish) -> IndexSpec:
    wish.unnamed(FILES)
    if wish.columns:
        raise Invalid(f"the listing of files is on no columns; {list(wish.columns)} were named")
    return IndexSpec(FILES, needs=())


def _column_stats(wish: Wish) -> IndexSpec:
    wish.unnamed(COLUMN_STATS)
    given = wish.options.get(STATS_COLUMNS, "").split(",")
    listed = list(wish.columns) or [name.strip() for name in given if name.strip()]
    wish = Wish(listed, wish.schema_text, wish.config, wish.options)
    wish.check_columns()
    first = wish.config.version < 9
    count = whole_number(wish.options, STATS_COLUMNS_MAX, 32, 1, 10_000)
    found = tuple(indexed_columns(wish.schema_text, listed, count=count, first_version=first))
    impossible = [name for name in listed if name not in found and not name.startswith("_hoodie_")]
    if impossible:
        raise Invalid(f"the column {impossible[0]!r} is of a type that has no smallest and greatest value")
    groups, version = whole_number(wish.options, STATS_GROUPS, 2, 1, _GROUPS_MAX), V1 if first else V2
    definition = Definition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, found, {}, version)
    return IndexSpec(COLUMN_STATS, groups, found, version, definition)


_SPECS: dict[str, Callable[[Wish], IndexSpec]] = {FILES: _files, COLUMN_STATS: _column_stats}
