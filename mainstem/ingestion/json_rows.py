"""JSON records to columns, all of a batch at once.

Each record is put into a line of its own, with its number: ``{"o":17,"v":RECORD}``. Arrow parses all lines in
one go. That the numbers come out as they went in, that there is nothing beside them, and that ``v`` is an
object, proves that each record is exactly one JSON object: a record that ends early, holds two objects, or
tries to be two lines is found. JSON's texts hold no raw line breaks, so no record can swallow the next.

Columns of the table have the table's types: a value of another type is refused, never turned into null.
Other fields are inferred: whole numbers are ``bigint``, other numbers ``double``; times stay text, as two
records would disagree about what is one. A field that is null everywhere is not there yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from mainstem.errors import Unsupported
from mainstem.ingestion.nested_fields import fitted, knows_more, without_nulls
from mainstem.ingestion.records import Bad, Decoded, Records, Undecodable, in_parts, together

_FIRST = b'{"o":0,"v":'
# More than this are parsed in several goes: Arrow's parser holds a block in 32-bit offsets.
_PART_BYTES = 256 << 20


@lru_cache(maxsize=1)
def _between() -> list[bytes]:
    return [_FIRST]


def _separators(count: int) -> list[bytes]:
    """What stands before each of ``count`` records."""
    known = _between()
    known += [b'}\n{"o":%d,"v":' % number for number in range(len(known), count)]
    return known[:count]


def parse_objects(values: Sequence[bytes], fields: pa.Schema | None) -> pa.Table:
    """The fields of these JSON objects as columns; ``fields`` come first, in their types.

    Raises ``Undecodable`` if a value is not exactly one object, or does not fit ``fields``.
    """
    if not values:
        return fields.empty_table() if fields is not None else pa.table({})
    pieces: list[bytes] = [b"}\n"] * (2 * len(values) + 1)
    pieces[0:-1:2] = _separators(len(values))
    pieces[1::2] = values
    data = b"".join(pieces)
    if len(data) > _PART_BYTES and len(values) > 1:
        middle = len(values) // 2
        return together([parse_objects(part, fields) for part in (values[:middle], values[middle:])])
    wanted = [pa.field(f.name, _parsed_as(f.type, f.name)) for f in fields] if fields is not None else []
    found = _read(data, wanted)
    inferred = [f for f in found.type if f.name not in {w.name for w in wanted}]
    if any(_holds_times(f.type) for f in inferred):
        found = _read(data, [*wanted, *(pa.field(f.name, _times_as_text(f.type)) for f in inferred)])
    order = np.asarray(found.order)
    if len(order) != len(values) or not np.array_equal(order, np.arange(len(values))):
        raise Undecodable("a record is not exactly one JSON object")
    return _columns(found.objects, fields)


class _Found:
    def __init__(self, order: pa.ChunkedArray, objects: pa.Array) -> None:
        if order.null_count or objects.null_count:
            raise Undecodable("a record is null, expected a JSON object")
        self.order, self.objects, self.type = order.to_numpy(), objects, objects.type


def _read(data: bytes, fields: Sequence[pa.Field]) -> _Found:
    schema = None
    if fields:
        schema = pa.schema([pa.field("o", pa.int64()), pa.field("v", pa.struct(fields))])
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, newlines_in_values=False),
        )
    except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise Undecodable(_said(error)) from error
    if table.column_names != ["o", "v"]:
        raise Undecodable("a record is not exactly one JSON object")
    objects = table.column("v").combine_chunks()
    if isinstance(objects, pa.ChunkedArray):
        objects = pa.concat_arrays(objects.chunks)
    if table.column("o").type != pa.int64() or not pa.types.is_struct(objects.type):
        raise Undecodable(f"a record is {objects.type}, expected a JSON object")
    try:
        objects.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Undecodable(f"text that is not UTF-8: {error}") from error
    return _Found(table.column("o"), objects)


def _said(error: Exception) -> str:
    text = str(error).removeprefix("JSON parse error: ")
    return text.replace("Column(/v/", "field (").replace("Column(/v)", "a record")


def _parsed_as(kind: pa.DataType, name: str) -> pa.DataType:
    """The type that Arrow's parser makes of a field that is to become ``kind``."""
    if pa.types.is_map(kind) or pa.types.is_time(kind):
        raise Unsupported(f"column {name!r} is {kind}: JSON records cannot fill it")
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _parsed_as(f.type, f"{name}.{f.name}")) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_parsed_as(kind.value_type, name))
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def _holds_times(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_times(f.type) for f in kind)
    return _holds_times(kind.value_type) if pa.types.is_list(kind) else pa.types.is_timestamp(kind)


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _times_as_text(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_times_as_text(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _columns(objects: pa.StructArray, fields: pa.Schema | None) -> pa.Table:
    """The struct's fields as columns, in the table's types, without what was null everywhere."""
    wanted = {f.name: f.type for f in fields} if fields is not None else {}
    names, columns = [], []
    for field, column in zip(objects.type, objects.flatten(), strict=True):
        if field.name in wanted:
            try:
                column = fitted(column, wanted[field.name], field.name)
            except pa.ArrowInvalid as error:
                raise Undecodable(str(error)) from error
        else:
            column = without_nulls(column)
            if column is None:
                continue
        names.append(field.name)
        columns.append(column)
    return pa.table(columns, names=names) if columns else pa.table({"": pa.nulls(len(objects))}).select([])


class JsonDecoder:
    """Plain JSON objects; a record without a value (a tombstone) deletes the row of its key."""

    def __init__(self, key_columns: Callable[[], Sequence[str]], deleted_column: str = "") -> None:
        self._keys = key_columns
        self._deleted = deleted_column

    def decode(self, records: Records, known: pa.Schema | None) -> Decoded:
        """Rows of the records, tombstones marked in the column of deletes."""
        bad: list[Bad] = []
        fields = None if known is None else _without(known, self._deleted)
        there, values = present(records.values)
        rows, places = objects_of(values, fields, there, bad)
        return with_tombstones(
            records, Decoded(rows, places, bad), known, self._keys(), self._deleted, keys_of
        )


def present(values: Sequence[bytes | None]) -> tuple[list[int], list[bytes]]:
    """The values that are there, and their places."""
    if None not in values:
        return list(range(len(values))), cast("list[bytes]", values)
    return [i for i, value in enumerate(values) if value is not None], [v for v in values if v is not None]


KeysOf = Callable[[Sequence[bytes], pa.Schema, Sequence[int], list[Bad]], tuple[pa.Table, list[int]]]


def with_tombstones(
    records: Records,
    decoded: Decoded,
    known: pa.Schema | None,
    keys: Sequence[str],
    deleted: str,
    keys_of: KeysOf,
) -> Decoded:
    """The rows, and a delete for each record without a value, in the order of the records.

    ``keys``: columns of the record key, ``deleted``: the column that marks deletes, ``keys_of``: how keys are
    read.
    """
    if None not in records.values:
        return decoded
    gone = [i for i, value in enumerate(records.values) if value is None]
    rows, places, bad = decoded.rows, decoded.places, decoded.bad
    texts: list[bytes] = []
    at: list[int] = []
    for i in gone:
        key = records.keys[i]
        if not keys or key is None:
            bad.append(Bad(i, "it has no value, and no key that tells which row it deletes"))
        else:
            texts.append(key)
            at.append(i)
    schema = known if known is not None else rows.schema
    typed = pa.schema([schema.field(name) for name in keys if name in schema.names])
    if len(typed.names) < len(keys):
        bad += [Bad(i, "it deletes a row of a table that has none yet") for i in at]
        return decoded
    deletes, found = keys_of(texts, typed, at, bad)
    if not found:
        return decoded
    flags = [pa.array(np.zeros(len(places), bool)), pa.array(np.ones(len(found), bool))]
    parts = [deletes.append_column(deleted, flags[1])]
    if places:
        parts.insert(0, rows.append_column(deleted, flags[0]))
    order = np.argsort(np.array([*places, *found]), kind="stable")
    return Decoded(together(parts).take(pa.array(order)), sorted([*places, *found]), bad)


def objects_of(
    values: Sequence[bytes], fields: pa.Schema | None, places: Sequence[int], bad: list[Bad]
) -> tuple[pa.Table, list[int]]:
    """The JSON objects that parse as one table, and their places; the others are added to ``bad``."""
    known = fields

    def attempt(low: int, high: int) -> pa.Table:
        nonlocal known
        found = parse_objects(values[low:high], known)
        if known is None or knows_more(found.schema, known):
            known = found.schema  # of one batch, the first one decides about new fields
        return found

    parts = in_parts(len(values), attempt, lambda at, why: bad.append(Bad(places[at], why)))
    try:
        rows = together([table for _, _, table in parts])
    except Undecodable:  # parsed before a new field was known
        rows = together([parse_objects(values[low:high], known) for low, high, _ in parts])
    return rows, [place for low, high, _ in parts for place in places[low:high]]


def keys_of(
    texts: Sequence[bytes], fields: pa.Schema, places: Sequence[int], bad: list[Bad]
) -> tuple[pa.Table, list[int]]:
    """Record keys out of Kafka's keys: objects with the key columns or, of one column, its bare value."""
    objects = [at for at, text in enumerate(texts) if text.lstrip()[:1] == b"{"]
    whole, found = objects_of([texts[at] for at in objects], fields, [places[at] for at in objects], bad)
    tables = [whole.select(fields.names)] if found else []
    bare = [at for at, text in enumerate(texts) if text.lstrip()[:1] != b"{"]
    if len(fields) != 1:
        bad += [Bad(places[at], f"its key is no object with {', '.join(fields.names)}") for at in bare]
        bare = []

    def attempt(low: int, high: int) -> pa.Table:
        try:
            column = pa.array([_bare(texts[at]) for at in bare[low:high]], pa.string())
            value = column.cast(fields.field(0).type)
        except (pa.ArrowInvalid, ValueError) as error:
            raise Undecodable(f"its key is no {fields.field(0).type}: {error}") from error
        return pa.table([value], schema=fields)

    def refuse(at: int, why: str) -> None:
        bad.append(Bad(places[bare[at]], why))

    for low, high, table in in_parts(len(bare), attempt, refuse):
        tables.append(table)
        found = [*found, *(places[at] for at in bare[low:high])]
    return together(tables) if tables else fields.empty_table(), found


def _bare(text: bytes) -> str:
    """The text of a key that is no object. One in quotes is JSON; raises ``ValueError`` if it is none."""
    found = text.decode()
    if len(found) < 2 or not (found.startswith('"') and found.endswith('"')):
        return found
    return str(json.loads(found))


def _without(schema: pa.Schema, name: str) -> pa.Schema:
    at = schema.get_field_index(name) if name else -1
    return schema if at < 0 else schema.remove(at)
