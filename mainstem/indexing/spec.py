"""What a new index shall be: checked against the table before anything is begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import record_type
from mainstem.indexing import lists
from mainstem.metadata.build.ranges import indexed_columns
from mainstem.metadata.definitions import Definition
from mainstem.metadata.keys import V1, V2
from mainstem.metadata.partitions import COLUMN_STATS, FILES, Content, content_of
from mainstem.options import STATS_COLUMNS, STATS_COLUMNS_MAX, STATS_GROUPS, whole_number
from mainstem.table import properties
from mainstem.table.properties import TableConfig

_GROUPS_MAX = 10_000
KINDS = (FILES, COLUMN_STATS)


@dataclass(frozen=True)
class IndexSpec:
    """``columns``: of statistics, meta columns first; ``groups``: file groups of the partition;
    ``version``: of
    statistics; ``options``: what was given."""

    partition: str
    groups: int = 1
    columns: tuple[str, ...] = ()
    version: str = V2
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> Content:
        """What its rows are."""
        found = content_of(self.partition)
        assert found is not None
        return found

    @property
    def definition(self) -> Definition | None:
        """Its entry in the file of definitions; ``files`` has none."""
        if self.partition == FILES:
            return None
        return Definition(self.partition, COLUMN_STATS, COLUMN_STATS, self.columns, {}, self.version)

    def check(self, config: TableConfig, table: str) -> None:
        """Under the lock: the table still has what the index rests on."""
        if self.partition != FILES and FILES not in lists.ready(config):
            raise Invalid(
                f"{self.partition} needs the listing of files, which the table has not", table=table
            )


def make_spec(
    kind: str, columns: Sequence[str], schema_text: str, config: TableConfig, options: Mapping[str, str]
) -> IndexSpec:
    """The index that a user asks for. Raises ``Invalid`` for columns that are missing, twice, or of a type
    without statistics, ``Unsupported`` for a kind that is not built here."""
    if kind not in KINDS:
        raise Unsupported(f"an index of the kind {kind!r}: mainstem builds {' and '.join(KINDS)}")
    if kind not in properties.MAINTAINED:
        raise Unsupported(
            f"an index of the kind {kind}: mainstem's writers do not maintain it, and would refuse the table"
        )
    if kind == FILES:
        if columns:
            raise Invalid(f"the listing of files is on no columns; {list(columns)} were named")
        return IndexSpec(FILES)
    listed = list(columns) or [n.strip() for n in options.get(STATS_COLUMNS, "").split(",") if n.strip()]
    _check_columns(listed, schema_text)
    first = config.version < 9
    count = whole_number(options, STATS_COLUMNS_MAX, 32, 1, 10_000)
    found = indexed_columns(schema_text, listed, count=count, first_version=first)
    impossible = [name for name in listed if name not in found and not name.startswith("_hoodie_")]
    if impossible:
        raise Invalid(f"the column {impossible[0]!r} is of a type that has no smallest and greatest value")
    groups = whole_number(options, STATS_GROUPS, 2, 1, _GROUPS_MAX)
    return IndexSpec(COLUMN_STATS, groups, tuple(found), V1 if first else V2, options)


def _check_columns(columns: Sequence[str], schema_text: str) -> None:
    there = [name for name, _ in record_type(schema_text).fields]
    for name in columns:
        if not isinstance(name, str) or name.partition(".")[0] not in (*there, *_meta()):
            raise Invalid(f"the table has no column {name!r}; it has {', '.join(there)}")
    twice = [name for name in columns if list(columns).count(name) > 1]
    if twice:
        raise Invalid(f"the column {twice[0]!r} is named twice")


def _meta() -> tuple[str, ...]:
    return ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
