"""Records of a stream, from the source to the table: raw, and as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from mainstem.formats.avro_schema import KAFKA_FIELDS
from mainstem.ingestion.nested_fields import fitted

#: types of the columns that tell where a row came from
OFFSET_COLUMNS = pa.schema(
    list(zip(KAFKA_FIELDS, (pa.int64(), pa.int32(), pa.int64(), pa.string()), strict=True))
)


@dataclass
class Records:
    """Records as they came, in order. ``timestamps``: milliseconds since 1970, -1 where there is none."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    partitions: list[Any] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, others: Records) -> None:
        """Add records that came later."""
        self.keys += others.keys
        self.values += others.values
        self.partitions += others.partitions
        self.offsets += others.offsets
        self.timestamps += others.timestamps

    def take(self, places: Sequence[int]) -> Records:
        """The records at these places."""
        return Records(
            [self.keys[i] for i in places],
            [self.values[i] for i in places],
            [self.partitions[i] for i in places],
            [self.offsets[i] for i in places],
            [self.timestamps[i] for i in places],
        )


@dataclass(frozen=True)
class Bad:
    """A record that does not become a row. ``at``: its place among the records that were decoded."""

    at: int
    reason: str


@dataclass
class Decoded:
    """Rows, and for each row the place of its record. A record that stands for nothing has neither."""

    rows: pa.Table
    places: list[int]
    bad: list[Bad] = field(default_factory=list)


class Decoder(Protocol):
    """Makes rows of records. ``known``: the table's columns, None as long as there is no table."""

    def decode(self, records: Records, known: pa.Schema | None) -> Decoded: ...


class Undecodable(Exception):
    """Some of the records do not parse; the text says why."""


def in_parts(
    count: int, attempt: Callable[[int, int], pa.Table], bad: Callable[[int, str], None]
) -> list[tuple[int, int, pa.Table]]:
    """Decode ``count`` records in as few parts as possible: ``attempt(low, high)`` raises ``Undecodable`` if
    one
    of them is bad. Parts are halved until the bad ones are found, each of which is told to ``bad``."""
    made: list[tuple[int, int, pa.Table]] = []
    open_parts = [(0, count)] if count else []
    while open_parts:
        low, high = open_parts.pop()
        try:
            made.append((low, high, attempt(low, high)))
        except Undecodable as error:
            if high - low == 1:
                bad(low, str(error))
                continue
            middle = (low + high) // 2
            open_parts += [(middle, high), (low, middle)]
    return made


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """One table of all columns; a row that lacks one has null. Raises ``Undecodable`` for types that
    differ."""
    if not tables:
        return pa.table({})
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return pa.concat_tables(tables)
    try:
        schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
        return pa.concat_tables([_in_schema(table, schema) for table in tables])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise Undecodable(f"columns of different types within a batch: {error}") from error


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for wanted in schema:
        if wanted.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(len(table), wanted.type)]))
            continue
        chunks = table.column(wanted.name).chunks
        made = [fitted(one, wanted.type, wanted.name) for one in chunks]
        columns.append(pa.chunked_array(made) if made else pa.chunked_array([], wanted.type))
    return pa.table(columns, names=schema.names)
