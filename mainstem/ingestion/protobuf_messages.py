"""Protobuf messages with the ids of their schemas.

After the schema's id come the places of the message's type in its file (Confluent's wire format). The schema
is a file descriptor: a registry gives it serialized, a folder holds ``ID.desc``, as ``protoc
--include_imports --descriptor_set_out`` writes it. Messages are parsed one by one by Google's library, then
read field by field: slower than the other formats.

Fields without presence (of proto3, not ``optional``) have their default where nothing was sent, others null.
Enums become their names, ``Timestamp`` a timestamp, ``uint32`` a long; maps and types that hold themselves
are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.ingestion.avro_messages import check_not_back, in_order
from mainstem.ingestion.json_rows import keys_of, present, with_tombstones
from mainstem.ingestion.records import Bad, Decoded, Records, Undecodable, in_parts
from mainstem.ingestion.schema_registry import HEADER, Registry, ids_of, parse_header

_DEPTH_MAX = 20
_TIMESTAMP = "google.protobuf.Timestamp"


class ProtobufDecoder:
    """Plain messages; a record without a value deletes the row of its key, which is JSON or a bare value."""

    def __init__(
        self, registry: Registry, key_columns: Callable[[], Sequence[str]], deleted_column: str, *, fill: bool
    ) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        except ImportError as error:
            raise Unsupported("Protobuf needs Google's library: pip install protobuf") from error
        self._files, self._pool, self._factory = descriptor_pb2, descriptor_pool, message_factory
        self._registry, self._keys, self._deleted, self._fill = registry, key_columns, deleted_column, fill
        self._kinds: dict[tuple[int, bytes], Any] = {}

    def decode(self, records: Records, known: pa.Schema | None) -> Decoded:
        """Rows of the records, in their order."""
        bad: list[Bad] = []
        places, values = present(records.values)
        made = []
        for head, at in ids_of(values).items():
            number = parse_header(head)
            if number is None:
                why = "it does not begin with a schema's id (a zero, four bytes)"
                bad += [Bad(places[i], why) for i in at]
                continue
            rows, kept = self._rows(number, [values[i] for i in at], [places[i] for i in at], bad)
            if known is not None and not self._fill and rows.num_rows:
                check_not_back(number, rows, known, (self._deleted,))
            made.append((rows, kept))
        return with_tombstones(records, in_order(made, bad), known, self._keys(), self._deleted, keys_of)

    def _rows(
        self, number: int, values: list[bytes], places: list[int], bad: list[Bad]
    ) -> tuple[pa.Table, list[int]]:
        def attempt(low: int, high: int) -> pa.Table:
            kind, messages = None, []
            for value in values[low:high]:
                end = _end_of_places(value)
                found = self._kind(number, value[HEADER:end])
                if kind not in (None, found):
                    raise Undecodable("a message of another type of the same file: one type is read")
                kind = found
                message = found()
                try:
                    message.ParseFromString(value[end:])
                except Exception as error:  # the library's own, which differs between its versions
                    raise Undecodable(f"it is no {found.DESCRIPTOR.full_name}: {error}") from error
                messages.append(message)
            assert kind is not None
            fields = kind.DESCRIPTOR.fields
            columns = [_column(messages, field, 0) for field in fields]
            return pa.table(columns, [field.name for field in fields])

        parts = in_parts(len(values), attempt, lambda at, why: bad.append(Bad(places[at], why)))
        if not parts:
            return pa.table({}), []
        rows = pa.concat_tables([table for _, _, table in parts])
        return rows, [place for low, high, _ in parts for place in places[low:high]]

    def _kind(self, number: int, indexes: bytes) -> Any:
        """The class of the message at these places in the schema's file."""
        key = (number, indexes)
        if key not in self._kinds:
            pool = self._pool.DescriptorPool()
            files = self._files.FileDescriptorSet()
            try:
                files.ParseFromString(self._registry.protobuf(number))
                for file in files.file:
                    pool.Add(file)
                found: Any = pool.FindFileByName(files.file[-1].name)
                kinds = list(found.message_types_by_name.values())
                for place in _places(indexes):
                    found = kinds[place]
                    kinds = list(found.nested_types)
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise Undecodable(f"schema {number} has no such message: {error}") from error
            except Exception as error:
                raise Invalid(f"schema {number} is no file descriptor: {error}") from error
            self._kinds[key] = self._factory.GetMessageClass(found)
        return self._kinds[key]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 28:
            raise Undecodable("it ends within the places of its type")
        byte = value[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _end_of_places(value: bytes) -> int:
    count, at = _varint(value, HEADER)
    for _ in range(count):
        _, at = _varint(value, at)
    return at


def _places(indexes: bytes) -> list[int]:
    """Places of the type, from the outermost; none stands for the first."""
    count, at = _varint(indexes, 0)
    found = []
    for _ in range(count):
        place, at = _varint(indexes, at)
        if place < 0:
            raise Undecodable("a place of its type is negative")
        found.append(place)
    return found or [0]


def _column(messages: Sequence[Any], field: Any, depth: int) -> pa.Array:
    """One field of all messages; a message that is None gives null."""
    if depth > _DEPTH_MAX:
        raise Unsupported(f"field {field.full_name!r}: a type that holds itself cannot be a column")
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        raise Unsupported(f"field {field.full_name!r} is a map, which is not read")
    name = field.name
    newer = getattr(field, "is_repeated", None)  # of version 6, which has no labels
    if field.label == field.LABEL_REPEATED if newer is None else newer:
        lists = [None if m is None else getattr(m, name) for m in messages]
        items = _values([item for found in lists for item in found or ()], field, depth)
        offsets, end = [0], 0
        for found in lists:
            end += len(found or ())
            offsets.append(end)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
    if field.has_presence:
        found = [None if m is None or not m.HasField(name) else getattr(m, name) for m in messages]
    else:
        found = [None if m is None else getattr(m, name) for m in messages]
    return _values(found, field, depth)


def _values(found: Sequence[Any], field: Any, depth: int) -> pa.Array:
    kind = field.message_type
    if kind is not None and kind.full_name == _TIMESTAMP:
        micros = [None if m is None else m.seconds * 1_000_000 + m.nanos // 1_000 for m in found]
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))
    if kind is not None:
        parts = [_column(found, part, depth + 1) for part in kind.fields]
        if not parts:
            raise Unsupported(f"field {field.full_name!r} is a message without fields")
        mask = pa.array([m is None for m in found], pa.bool_())
        return pa.StructArray.from_arrays(parts, [part.name for part in kind.fields], mask=mask)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return pa.array([None if n is None else names.get(n, str(n)) for n in found], pa.string())
    types = {
        field.CPPTYPE_INT32: pa.int32(), field.CPPTYPE_UINT32: pa.int64(), field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT64: pa.int64(), field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(), field.CPPTYPE_BOOL: pa.bool_(), field.CPPTYPE_STRING: pa.string(),
    }  # fmt: skip
    arrow = pa.binary() if field.type == field.TYPE_BYTES else types[field.cpp_type]
    try:
        return pa.array(found, arrow)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise Undecodable(f"field {field.full_name!r}: {error}") from error
