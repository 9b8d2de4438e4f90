"""Avro messages with the ids of their schemas, column by column.

All messages of one schema are decoded together (``formats/avro_decode``); those of several become one table,
in which a row lacks the columns that its schema lacks. A schema without a column that the table has is
refused, as a writer of the table would be: it is older than the table, or the topic's schema went back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid
from mainstem.formats.avro_decode import decode_messages
from mainstem.ingestion.debezium import ADDED, rows_of
from mainstem.ingestion.json_rows import keys_of as json_keys_of
from mainstem.ingestion.json_rows import present, with_tombstones
from mainstem.ingestion.records import Bad, Decoded, Records, Undecodable, in_parts, together
from mainstem.ingestion.schema_registry import HEADER, Registry, ids_of, parse_header
from mainstem.options.writing import SET_NULL


def decode_avro(
    values: Sequence[bytes], places: Sequence[int], registry: Registry, bad: list[Bad]
) -> list[tuple[int, pa.Table, list[int]]]:
    """(schema, rows, places) for each schema of the messages; those that do not parse are added to
    ``bad``."""
    found = []
    for head, at in ids_of(values).items():
        number = parse_header(head)
        if number is None:
            bad += [Bad(places[i], "it does not begin with a schema's id (a zero, four bytes)") for i in at]
            continue
        text = registry.avro(number)
        messages = [values[i] for i in at]

        def attempt(low: int, high: int, messages: list[bytes] = messages, text: str = text) -> pa.Table:
            try:
                return decode_messages(messages[low:high], text, HEADER)
            except CorruptTable as error:
                raise Undecodable(error.message) from error

        def refuse(i: int, why: str, at: list[int] = at, bad: list[Bad] = bad) -> None:
            bad.append(Bad(places[at[i]], why))

        parts = in_parts(len(at), attempt, refuse)
        if parts:
            rows = pa.concat_tables([table for _, _, table in parts])
            found.append((number, rows, [places[at[i]] for low, high, _ in parts for i in range(low, high)]))
    return found


class AvroDecoder:
    """Plain records; a record without a value deletes the row of its key, which is Avro or JSON.

    ``fill``: rows of schemas that lack columns of the table get nulls there.
    """

    def __init__(
        self, registry: Registry, key_columns: Callable[[], Sequence[str]], deleted_column: str, *, fill: bool
    ) -> None:
        self._registry, self._keys, self._deleted, self._fill = registry, key_columns, deleted_column, fill

    def decode(self, records: Records, known: pa.Schema | None) -> Decoded:
        """Rows of the records, in their order."""
        bad: list[Bad] = []
        places, values = present(records.values)
        found = decode_avro(values, places, self._registry, bad)
        if known is not None and not self._fill:
            for number, rows, _ in found:
                check_not_back(number, rows, known, (self._deleted,))
        decoded = in_order([(rows, at) for _, rows, at in found], bad)
        return with_tombstones(records, decoded, known, self._keys(), self._deleted, self._keys_of)

    def _keys_of(
        self, texts: Sequence[bytes], fields: pa.Schema, places: Sequence[int], bad: list[Bad]
    ) -> tuple[pa.Table, list[int]]:
        if not any(text[:1] == b"\0" for text in texts):
            return json_keys_of(texts, fields, places, bad)
        tables, found = [], []
        for _, rows, at in decode_avro(texts, places, self._registry, bad):
            if missing := set(fields.names) - set(rows.column_names):
                bad += [Bad(i, f"its key lacks {', '.join(sorted(missing))}") for i in at]
            else:
                tables.append(rows.select(fields.names).cast(fields))
                found += at
        return together(tables) if tables else fields.empty_table(), found


class DebeziumAvro:
    """Debezium's envelopes as Avro."""

    def __init__(self, registry: Registry, *, fill: bool) -> None:
        self._registry, self._fill = registry, fill

    def decode(self, records: Records, known: pa.Schema | None) -> Decoded:
        """Rows of the events, in the order of the records."""
        bad: list[Bad] = []
        places, values = present(records.values)
        made = []
        for number, events, at in decode_avro(values, places, self._registry, bad):
            rows, kept = rows_of(events, at, bad)
            if known is not None and not self._fill and rows.num_rows:
                check_not_back(number, rows, known, ADDED)
            made.append((rows, kept))
        return in_order(made, bad)


def check_not_back(number: int, rows: pa.Table, known: pa.Schema, besides: Sequence[str]) -> None:
    """Raises ``Invalid`` if the schema lacks columns of the table, but for those ``besides`` the record's."""
    missing = [name for name in known.names if name not in rows.column_names and name not in besides]
    if missing:
        raise Invalid(
            f"schema {number} lacks {', '.join(missing)}, which the table has: the topic's schema went back,"
            " or its producer is older than the table. Nothing was committed. If such rows shall have nulls"
            f" there: {SET_NULL}=true"
        )


def in_order(parts: Sequence[tuple[pa.Table, list[int]]], bad: list[Bad]) -> Decoded:
    """Tables of records that were interleaved as one, in the order of the records."""
    kept = [(rows, at) for rows, at in parts if rows.num_rows]
    if len(kept) == 1:
        return Decoded(kept[0][0], kept[0][1], bad)
    places = np.array([place for _, at in kept for place in at], np.int64)
    order = np.argsort(places, kind="stable")
    rows = together([rows for rows, _ in kept])
    return Decoded(rows.take(pa.array(order)) if kept else rows, [int(p) for p in places[order]], bad)
