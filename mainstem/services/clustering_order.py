"""The order in which a compaction writes the rows of each base file: Hudi's clustering without new groups.

Hudi's clustering sorts rows into new file groups, which a table with a bucket index cannot have: the bucket
of a key is its file group, and writers who go on beside it would append to groups that are replaced. So here
each file group keeps its rows, and a compaction puts them into an order. The statistics of small row groups
then let a query leave out most of a file. Nothing else changes: neither rows nor groups nor writers.

A plan notes its order, so that whoever executes it writes the same. Order is no part of what the table says:
an executor that cannot follow (Java does not, and a column may be gone by then) writes the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.properties import TableConfig
from mainstem.options.services import CURVE_METHOD, LAYOUT_STRATEGY, SORT_COLUMNS
from mainstem.options.tables import STORAGE_LAYOUT

LINEAR, Z_ORDER, HILBERT = STRATEGIES = ("linear", "z-order", "hilbert")
# With more axes than this, a curve's place has fewer than four bits of each.
_AXES_MAX = 16
_COLUMNS_MAX = 64
# In every base file's rows it is the file's own name.
_FILE_NAME = META_FIELDS[4]


@dataclass(frozen=True)
class RowOrder:
    """Columns, and how they make one order: ``linear`` (the first one, then the next, ascending, nulls
    first), or a curve through all of them, ``z-order`` or ``hilbert``."""

    columns: tuple[str, ...]
    strategy: str = LINEAR

    def __str__(self) -> str:
        """As footers of base files and people are told."""
        return f"{self.strategy}:{','.join(self.columns)}"

    @property
    def is_curve(self) -> bool:
        return self.strategy != LINEAR

    @property
    def notes(self) -> dict[str, str]:
        """What a plan notes of it."""
        return {str(SORT_COLUMNS): ",".join(self.columns), str(LAYOUT_STRATEGY): self.strategy}

    @classmethod
    def of(cls, columns: Sequence[str] | str, strategy: str = LINEAR) -> RowOrder:
        """Raises ``Invalid`` for no columns, one named twice or too many, and for an unknown strategy."""
        names = tuple(name.strip() for name in (columns.split(",") if isinstance(columns, str) else columns))
        names = tuple(filter(None, names))
        if not names:
            raise Invalid(f"no columns to order rows by: name them, or set {SORT_COLUMNS}")
        if len(set(names)) < len(names):
            raise Invalid(f"{SORT_COLUMNS} names a column twice: {','.join(names)}")
        word = strategy.strip().lower().replace("_", "-")
        word = Z_ORDER if word == "zorder" else word
        if word not in STRATEGIES:
            raise Invalid(f"{LAYOUT_STRATEGY}={strategy!r}, expected {', '.join(STRATEGIES)}")
        most = _COLUMNS_MAX if word == LINEAR else _AXES_MAX
        if len(names) > most:
            raise Invalid(f"{SORT_COLUMNS} names {len(names)} columns, at most {most} make an order ({word})")
        return cls(names, word if len(names) > 1 else LINEAR)  # of one column, all are the same

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> RowOrder | None:
        """The options' order, None without columns. Raises ``Invalid`` for values that make none, and
        ``Unsupported`` for another way to build curves."""
        method = str(properties.get(CURVE_METHOD, CURVE_METHOD.default)).strip()
        if method.lower() not in CURVE_METHOD.only:
            raise Unsupported(
                f"{CURVE_METHOD}={method!r}: {CURVE_METHOD.why}; expected {' or '.join(CURVE_METHOD.only)}"
            )
        strategy, columns = LAYOUT_STRATEGY.read(properties), SORT_COLUMNS.read(properties)
        return cls.of(columns, strategy) if columns else None

    @classmethod
    def from_plan(cls, notes: Mapping[str, str]) -> RowOrder | None:
        """The order that a plan notes; None if there is none, or none that this release knows."""
        try:
            return cls.from_properties({name: notes[name] for name in notes if name in _NOTED})
        except (Invalid, Unsupported):
            return None

    def check(self, schema: pa.Schema, table: str) -> None:
        """Raise ``Invalid`` for a column that the table lacks, ``Unsupported`` for one that has no order."""
        for name in self.columns:
            if name not in schema.names or name == _FILE_NAME:
                raise Invalid(
                    f"{SORT_COLUMNS} names {name!r}, but rows have {', '.join(_shown(schema))}", table=table
                )
            if not _is_ordered(schema.field(name).type):
                raise Unsupported(
                    f"{SORT_COLUMNS} names {name!r}, a {schema.field(name).type}, which has no order; take"
                    " columns of numbers, texts or times",
                    table=table,
                )

    def within(self, schema: pa.Schema) -> RowOrder | None:
        """The order by those of its columns that are there and have one."""
        there = [name for name in self.columns if name in schema.names and name != _FILE_NAME]
        kept = tuple(name for name in there if _is_ordered(schema.field(name).type))
        return RowOrder.of(kept, self.strategy) if kept else None


_NOTED = frozenset(map(str, (SORT_COLUMNS, LAYOUT_STRATEGY)))


def _shown(schema: pa.Schema) -> Iterable[str]:
    return (name for name in schema.names if name != _FILE_NAME)


def _is_ordered(kind: pa.DataType) -> bool:
    of_bytes = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind)
    of_numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return of_bytes or of_numbers or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)


def refuse_order(config: TableConfig, order: RowOrder | None, base: str) -> None:
    """Raises ``Unsupported`` for an order in a table whose files have one already."""
    if order is not None and config.sorted_files:
        raise Unsupported(
            f"rows of a table with {STORAGE_LAYOUT}=LSM_TREE have the order of their record keys and no other"
            f" one ({order}): leave {SORT_COLUMNS} out, or cluster a table of the default layout",
            table=base,
        )
