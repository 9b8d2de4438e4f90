"""What the files of one write have in common, worked out for the first of them: how rows are laid out as the
columns of a Parquet file, and how those are encoded. A write may make hundreds of small files.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.formats.quick_parquet import QuickChoice, quick_choice
from mainstem.formats.schema_resolution import project_to
from mainstem.formats.vectors import footer_note, stored_as_bytes

_arrow = lru_cache(maxsize=64)(avro_to_arrow)


class FileForm:
    """Of files of one schema; ``avro_schema``: with meta fields, if the files have them."""

    def __init__(self, avro_schema: str) -> None:
        self.avro_schema = avro_schema
        self.schema = _arrow(avro_schema)
        self.vectors = footer_note(self.schema)
        self._choice: QuickChoice | None = None
        self._given: pa.Schema | None = None
        self._fitting: pa.Schema | None = None
        self._is_it = False  # the given one fits
        self._required = [place for place, field in enumerate(self.schema) if not field.nullable]

    def choice(self, rows: pa.Table) -> QuickChoice:
        """How a quick file is encoded: chosen by the first rows of the first file."""
        if self._choice is None:
            self._choice = quick_choice(rows)
        return self._choice

    def laid_out(self, rows: pa.Table, *, narrowed: bool) -> pa.Table:
        """The rows as a quick file stores them: texts that come as dictionaries may stay so. ``narrowed``:
        without the values that only other files have, which Parquet would store.

        Raises what ``stored`` raises.
        """
        if self._given is None or not rows.schema.equals(self._given):
            self._given, self._fitting = rows.schema, self._fits(rows.schema)
            self._is_it = self._fitting is not None and self._fitting.equals(rows.schema)
        if self._fitting is None or any(rows.column(place).null_count for place in self._required):
            return self.stored(rows)
        if self._is_it and not narrowed:
            return rows
        columns = rows.columns
        if narrowed:
            columns = [_used(c) if pa.types.is_dictionary(c.type) else c for c in columns]
        return pa.Table.from_arrays(columns, schema=self._fitting)

    def stored(self, rows: pa.Table, *, coded: bool = False) -> pa.Table:
        """The rows as any file stores them; ``coded``: texts that come as dictionaries stay so, without those
        that no row has: they would be stored, and count as least and greatest.

        Raises ``Invalid`` for columns that the schema lacks, or a null where it allows none.
        """
        schema = coded_as(self.schema, rows.schema) if coded else self.schema
        alien = [name for name in rows.schema.names if schema.get_field_index(name) < 0]
        if alien:
            raise Invalid(f"the batch has columns that the table does not have: {', '.join(alien)}")
        rows = project_to(rows, schema)
        for column, kind in zip(rows.columns, schema, strict=True):
            if column.null_count and not kind.nullable:
                raise Invalid(f"column {kind.name!r} has a null, but the schema declares it as not null")
        if coded:
            columns = [_used(c) if pa.types.is_dictionary(c.type) else c for c in rows.columns]
            rows = pa.Table.from_arrays(columns, schema=schema)
        return stored_as_bytes(rows)

    def _fits(self, given: pa.Schema) -> pa.Schema | None:
        """The stored schema of rows that need no conversion, with dictionaries where they have some."""
        if given.names != self.schema.names:
            return None
        fields = []
        for one, field in zip(given, self.schema, strict=True):
            kind = one.type
            coded = pa.types.is_dictionary(kind) and kind.index_type == pa.int32() and _is_text(field.type)
            if (kind.value_type if coded else kind) != field.type or pa.types.is_fixed_size_list(kind):
                return None
            fields.append(field.with_type(kind))
        return pa.schema(fields)


def coded_as(schema: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The schema with the texts as dictionaries that are given as such."""
    names = set(given.names)
    for number, kind in enumerate(schema):
        found = given.field(kind.name).type if kind.name in names else kind.type
        if pa.types.is_dictionary(found) and found.value_type == kind.type:
            schema = schema.set(number, kind.with_type(found))
    return schema


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array(map(_without_unused, column.chunks), column.type)


def _without_unused(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same without the texts that no row has."""
    codes, texts = chunk.indices, chunk.dictionary
    if len(texts) == 1 and chunk.null_count < len(chunk):
        return chunk
    numbers, mask = np.asarray(codes.fill_null(0)), None
    used = np.zeros(len(texts), bool)
    if codes.null_count:  # perhaps all: then there may be no texts
        mask = codes.is_null().to_numpy(zero_copy_only=False)
        used[numbers[~mask]] = True
    else:
        used[numbers] = True
    if used.all():
        return chunk
    place = np.maximum(np.cumsum(used, dtype=np.int32) - 1, 0)
    kept = pa.array(place[numbers], codes.type, mask=mask)
    return pa.DictionaryArray.from_arrays(kept, texts.filter(pa.array(used)))
