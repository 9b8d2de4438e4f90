"""Debezium's change events to rows and deletes.

An event is an envelope of the row before, the row after, the kind of change and its place in the source:
``c`` and ``r`` (read by a snapshot) and ``u`` write ``after``, ``d`` deletes the row ``before``. The
tombstone that follows a ``d`` for Kafka's compaction stands for nothing more. Rows get the columns that
Hudi's Debezium sources give them (``DebeziumSource``, ``PostgresDebeziumSource``, ``MysqlDebeziumSource``),
so that its streamer can go on:

  _change_operation_type      the kind of change; of a table made here it is Hudi's delete field, with marker
  d _event_origin_ts_ms         when the source changed the row _event_lsn                  PostgreSQL: the
  position in its log, by which changes are ordered _event_bin_file, _event_pos MySQL and MariaDB: the same

Which of two changes of a row counts is decided by these, not by the order of arrival. JSON envelopes may
carry their schema (``schemas.enable``): it is the same text in each message, and cut off as such.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported
from mainstem.ingestion.json_rows import parse_objects
from mainstem.ingestion.nested_fields import fitted
from mainstem.ingestion.records import Bad, Decoded, Records, in_parts, together

OPERATION, ORIGIN = "_change_operation_type", "_event_origin_ts_ms"
LSN, BIN_FILE, BIN_POSITION = "_event_lsn", "_event_bin_file", "_event_pos"
DELETED = "d"
#: columns beside those of the source table
ADDED = (OPERATION, ORIGIN, LSN, BIN_FILE, BIN_POSITION)
_ROWS = ("c", "r", "u", DELETED)
# Heartbeats and messages of the source's log stand for no row.
_NOTHING = ("m",)


class DebeziumJson:
    """JSON envelopes, with or without their schema."""

    def __init__(self) -> None:
        self._prefix = b""

    def decode(self, records: Records, known: pa.Schema | None) -> Decoded:
        """Rows of the events; deletes are marked by their operation."""
        bad: list[Bad] = []
        places, values = [], []
        for place, value in enumerate(records.values):
            if value is not None:
                places.append(place)
                values.append(value)
        values, places = self._payloads(values, places, bad)
        image = None if known is None else [f for f in known if f.name not in ADDED]

        def attempt(low: int, high: int) -> pa.Table:
            return parse_objects(values[low:high], _envelope(image))

        parts = in_parts(len(values), attempt, lambda at, why: bad.append(Bad(places[at], why)))
        made = []
        for low, high, events in parts:
            made.append(rows_of(events, places[low:high], bad))
        tables = [table for table, _ in made if table.num_rows]
        return Decoded(together(tables), [place for _, found in made for place in found], bad)

    def _payloads(
        self, values: Sequence[bytes], places: Sequence[int], bad: list[Bad]
    ) -> tuple[list[bytes], list[int]]:
        """The envelopes, without their schemas."""
        prefix = self._prefix
        if not prefix and not any(value.lstrip().startswith(b'{"schema"') for value in values):
            return list(values), list(places)
        found, kept = [], []
        for value, place in zip(values, places, strict=True):
            if self._prefix and value.startswith(self._prefix) and value.endswith(b"}"):
                found.append(value[len(self._prefix) : -1])
                kept.append(place)
                continue
            try:
                found.append(self._cut(value))
                kept.append(place)
            except ValueError as error:
                bad.append(Bad(place, f"no envelope: {error}"))
        return found, kept

    def _cut(self, value: bytes) -> bytes:
        """The payload of an envelope with a schema, which is remembered for those that follow."""
        text = value.decode("utf-8")
        lead = '{"schema":'
        if not text.startswith(lead):
            whole = json.loads(text)
            if isinstance(whole, dict) and set(whole) == {"schema", "payload"}:
                return json.dumps(whole["payload"]).encode()
            return value
        schema, end = json.JSONDecoder().raw_decode(text, len(lead))
        between = ',"payload":'
        if isinstance(schema, dict) and text.startswith(between, end):
            self._prefix = text[: end + len(between)].encode("utf-8")
            _, after = json.JSONDecoder().raw_decode(text, end + len(between))
            if text[after:].strip() == "}":
                return value[len(self._prefix) :].rstrip()[:-1]
        return json.dumps(json.loads(text)["payload"]).encode()


def _envelope(image: Sequence[pa.Field] | None) -> pa.Schema:
    fields = [
        pa.field("op", pa.string()),
        pa.field("ts_ms", pa.int64()),
        pa.field(
            "source",
            pa.struct([
                ("connector", pa.string()), ("ts_ms", pa.int64()), ("lsn", pa.int64()), ("file", pa.string()),
                ("pos", pa.int64()),
            ]),
        ),
    ]  # fmt: skip
    if image is not None:
        fields += [pa.field("before", pa.struct(image)), pa.field("after", pa.struct(image))]
    return pa.schema(fields)


def rows_of(events: pa.Table, places: Sequence[int], bad: list[Bad]) -> tuple[pa.Table, list[int]]:
    """Rows of envelopes: ``op``, ``ts_ms``, ``source``, ``before``, ``after`` as columns."""
    count = events.num_rows
    if "op" not in events.column_names:
        bad += [Bad(place, "no field 'op': this is no Debezium envelope") for place in places]
        return pa.table({}), []
    operation = events.column("op").combine_chunks().cast(pa.string())
    texts = operation.to_pylist() if not pc.all(pc.is_in(operation, pa.array(_ROWS))).as_py() else None
    good = np.ones(count, bool)
    for at, text in enumerate(texts or ()):
        if text in _NOTHING:
            good[at] = False
        elif text not in _ROWS:
            good[at] = False
            what = "the source table was truncated, which is not applied" if text == "t" else "unknown change"
            bad.append(Bad(places[at], f"op={text!r}: {what}"))
    deleted = pc.equal(operation, DELETED).fill_null(False).to_numpy(zero_copy_only=False)
    images = {}
    for name, mask in (("after", ~deleted), ("before", deleted)):
        column = events.column(name).combine_chunks() if name in events.column_names else pa.nulls(count)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(good & mask & ~there):
            bad.append(Bad(places[at], f"op={operation[at]} without {name!r}"))
        good &= ~mask | there
        images[name] = column
    kept = pa.array(good)
    if not good.any():
        return pa.table({}), []
    columns = _image(images, deleted)
    rows = pa.table(columns | _added(events, operation)).filter(kept)
    return rows, [places[at] for at in np.flatnonzero(good)]


def _image(images: dict[str, pa.Array], deleted: np.ndarray) -> dict[str, pa.Array]:
    """The columns of the row before where it is deleted, and of the row after elsewhere."""
    after, before = images["after"], images["before"]
    structs = [array for array in (after, before) if pa.types.is_struct(array.type)]
    names = dict.fromkeys(field.name for array in structs for field in array.type)
    columns: dict[str, pa.Array] = {}
    for name in names:
        parts = []
        for array in (after, before):
            has = pa.types.is_struct(array.type) and array.type.get_field_index(name) >= 0
            # struct_field gives null where the struct is null
            parts.append(pc.struct_field(array, name) if has else pa.nulls(len(array)))
        kinds = [part.type for part in parts if not pa.types.is_null(part.type)]
        if not kinds:
            continue
        if not deleted.any():
            lacks = pa.types.is_null(parts[0].type)
            columns[name] = pa.nulls(len(after), kinds[0]) if lacks else parts[0]
            continue
        try:
            second = fitted(parts[1], kinds[0], name)  # with nested fields that only one of them has
            parts = [fitted(parts[0], second.type, name), second]
        except pa.ArrowInvalid as error:
            raise Unsupported(f"field {name!r} of before and after have different types: {error}") from error
        columns[name] = pc.if_else(pa.array(deleted), parts[1], parts[0])
    return columns


def _added(events: pa.Table, operation: pa.Array) -> dict[str, pa.Array]:
    count = events.num_rows
    found = {OPERATION: operation}
    source = events.column("source").combine_chunks() if "source" in events.column_names else pa.nulls(count)

    def of_source(name: str, kind: pa.DataType) -> pa.Array:
        if not pa.types.is_struct(source.type) or source.type.get_field_index(name) < 0:
            return pa.nulls(count, kind)
        return pc.struct_field(source, name).cast(kind)

    times = of_source("ts_ms", pa.int64())
    if "ts_ms" in events.column_names:
        times = pc.coalesce(times, events.column("ts_ms").combine_chunks().cast(pa.int64()))
    found[ORIGIN] = times
    connectors = set(pc.unique(of_source("connector", pa.string())).to_pylist())
    if "postgresql" in connectors:
        found[LSN] = of_source("lsn", pa.int64())
    if connectors & {"mysql", "mariadb"}:
        found[BIN_FILE] = of_source("file", pa.string())
        found[BIN_POSITION] = of_source("pos", pa.int64())
    return found


def ordering_of(columns: Sequence[str]) -> tuple[str, ...]:
    """By which of the columns of such rows a new table orders changes."""
    if LSN in columns:
        return (LSN,)
    return (BIN_FILE, BIN_POSITION) if BIN_FILE in columns else (ORIGIN,)
