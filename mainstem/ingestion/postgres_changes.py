"""Changes of a PostgreSQL table as rows: inserts and updates write the new row, deletes and changed keys mark
the old one as deleted.

Rows get the columns of Hudi's ``PostgresDebeziumSource`` (``debezium.py``), with one difference:
``_event_lsn`` is where the transaction commits, not where it wrote the change. A transaction that wrote
before the first snapshot was taken and committed after it changes rows of that snapshot, and so must be above
it; Debezium's is below.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.ingestion.debezium import DELETED, LSN, OPERATION, ORIGIN
from mainstem.ingestion.pgoutput import DELETE, INSERT, Changes, Relation, Values
from mainstem.ingestion.postgres_types import Misfit, typed
from mainstem.options.writing import SET_NULL

_ADDED = pa.schema([(OPERATION, pa.string()), (ORIGIN, pa.int64()), (LSN, pa.int64())])


def schema_of(relation: Relation, type_of: Callable[[int, int], pa.DataType]) -> pa.Schema:
    """The columns of its rows, with those that are added."""
    fields = [pa.field(c.name, type_of(c.type_oid, c.modifier)) for c in relation.columns]
    return pa.schema([*fields, *_ADDED])


def snapshot_rows(
    texts: pa.Table, schema: pa.Schema, lsn: int, time_us: int, marker: str | None = None
) -> pa.Table:
    """Rows that a snapshot read, as text; ``lsn``: where it stands."""
    count = texts.num_rows
    columns = []
    for at, field in enumerate(schema):
        if at < texts.num_columns:
            chunks = texts.column(at).chunks
            for chunk in chunks:
                check_marker(chunk, field.type, field.name, marker)
            made = [typed(chunk, field.type, field.name) for chunk in chunks]
            columns.append(pa.chunked_array(made, field.type))
    columns += [
        pa.array(["r"] * count),
        pa.array(np.full(count, time_us // 1000)),
        pa.array(np.full(count, lsn)),
    ]
    return pa.table(columns, schema=schema)


def change_rows(
    changes: Changes,
    relation: Relation,
    schema: pa.Schema,
    placing: Sequence[str],
    lsns: np.ndarray,
    times_us: np.ndarray,
    marker: str | None = None,
) -> pa.Table:
    """Rows of changes, in order. ``placing``: columns that say which row it is and where it lies: if an
    update changes one of them, the row before is deleted. ``lsns``, ``times_us``: of each change's commit.
    ``marker``: the text that means "keep the older value" in this table, which has a rule for it
    (FILL_UNAVAILABLE)."""
    numbers = {name: at for at, name in enumerate(relation.names)}
    after, before = [v.text for v in changes.after], [v.text for v in changes.before]
    order_of = np.full(len(changes.kinds), -1, np.int64)
    order_of[changes.before_at] = np.arange(len(changes.before_at))
    olds = order_of[changes.after_at]  # of each new row: its old one's place, -1: none
    has = olds >= 0
    picks = pa.array(np.where(has, olds, 0), mask=~has)
    for name in placing:  # they tell below which rows move
        at = numbers[name]
        if changes.after[at].unchanged.any():
            after[at] = _kept(changes, relation, at, olds, picks, None)
    gone = changes.kinds[changes.before_at] == DELETE
    moved = np.zeros(len(olds), bool)
    if has.any():
        for name in placing:
            old, new = before[numbers[name]].take(picks), after[numbers[name]]
            same = pc.equal(old, new).fill_null(False)
            both_null = pc.and_(old.is_null(), new.is_null())
            moved |= ~pc.or_(same, both_null).to_numpy(zero_copy_only=False)
        moved &= has
        gone[olds[moved]] = True
    for at, values in enumerate(changes.after):
        text = schema.field(at).type
        check_marker(values.text, text, schema.names[at], marker)
        if values.unchanged.any() and schema.names[at] not in placing:
            fits = marker is not None and not moved[values.unchanged].any() and _holds(text)
            after[at] = _kept(changes, relation, at, olds, picks, _text(marker, text) if fits else None)
    deletes = np.flatnonzero(gone)
    at_of_change = np.concatenate([changes.after_at, changes.before_at[deletes]])
    late = np.concatenate([np.ones(len(olds), np.int64), np.zeros(len(deletes), np.int64)])
    order = np.argsort(2 * at_of_change + late, kind="stable")
    at_of_change = at_of_change[order]
    kinds = np.where(changes.kinds[changes.after_at] == INSERT, "c", "u").astype(object)
    operations = np.concatenate([kinds, np.full(len(deletes), DELETED, object)])[order]
    columns = []
    for at, field in enumerate(schema):
        if at >= len(relation.columns):
            break
        texts = after[at]
        if len(deletes):
            texts = pa.concat_arrays([texts, before[at].take(pa.array(deletes))]).take(pa.array(order))
        columns.append(typed(texts, field.type, field.name))
    columns += [
        pa.array(operations, pa.string()),
        pa.array(times_us[at_of_change] // 1000),
        pa.array(lsns[at_of_change]),
    ]
    return pa.table(columns, schema=schema)


def _holds(kind: pa.DataType) -> bool:
    """Whether a column can hold the marker."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _text(marker: str | None, kind: pa.DataType) -> str | None:
    """The marker as PostgreSQL would send it."""
    return f"\\x{marker.encode().hex()}" if marker is not None and pa.types.is_binary(kind) else marker


def check_marker(texts: pa.Array, kind: pa.DataType, column: str, marker: str | None) -> None:
    """Raises ``Invalid`` if a value of the source is the marker."""
    if marker is not None and _holds(kind) and pc.any(pc.equal(texts, _text(marker, kind))).as_py():
        raise Misfit(
            f"column {column!r} has the value {marker!r}, which means in this table that an older value"
            " stays",
            ": run ALTER TABLE ... REPLICA IDENTITY FULL, and ingest into a new table",
        )


def _kept(
    changes: Changes, relation: Relation, at: int, olds: np.ndarray, picks: pa.Array, marker: str | None
) -> pa.Array:
    """A column in which updates left values as they were: they are in the row before, if it was sent whole;
    else they get the marker."""
    values = changes.after[at]
    of = olds[values.unchanged]
    known = (of >= 0).all() and changes.whole[of].all() and not changes.before[at].unchanged[of].any()
    if not known and marker is not None:
        return pc.if_else(pa.array(values.unchanged), marker, values.text)
    if not known:
        raise Misfit(
            f"an update of {relation.schema}.{relation.name} left column {relation.columns[at].name!r} as it"
            " was, and PostgreSQL does not send such long values (TOAST) unless it is told to",
            f': run ALTER TABLE "{relation.schema}"."{relation.name}" REPLICA IDENTITY FULL before rows are'
            " updated. Nothing of this batch was committed; this change is in the log already, so ingest into"
            " a new table",
        )
    return pc.if_else(pa.array(values.unchanged), changes.before[at].text.take(picks), values.text)


def envelope(changes: Changes, relation: Relation, at: int) -> tuple[bytes, bytes]:
    """A change as JSON: its key, and the change as an event of Debezium's with values as PostgreSQL writes
    them. A long value that was not sent is left out."""
    images: dict[str, dict[str, str | None] | None] = {}
    for name, places, columns in (
        ("before", changes.before_at, changes.before), ("after", changes.after_at, changes.after)
    ):  # fmt: skip
        row = int(np.searchsorted(places, at))
        there = row < len(places) and places[row] == at
        images[name] = _image(relation, columns, row) if there else None
    kind = int(changes.kinds[at])
    operation = "c" if kind == INSERT else DELETED if kind == DELETE else "u"
    told = images["after"] if images["after"] is not None else images["before"] or {}
    key = {c.name: told.get(c.name) for c in relation.columns if c.in_identity}
    return _json(key), _json({**images, "op": operation})


def _image(relation: Relation, columns: Sequence[Values], row: int) -> dict[str, str | None]:
    names = zip(relation.names, columns, strict=True)
    return {name: values.text[row].as_py() for name, values in names if not values.unchanged[row]}


def snapshot_envelope(texts: pa.Table, relation: Relation, at: int) -> tuple[bytes, bytes]:
    """The same of a row that a snapshot read."""
    row = dict(zip(relation.names, (column[at].as_py() for column in texts.columns), strict=True))
    key = {c.name: row[c.name] for c in relation.columns if c.in_identity}
    return _json(key or row), _json({"before": None, "after": row, "op": "r"})


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def check_identity(relation: Relation, placing: Sequence[str]) -> None:
    """Raises ``Invalid`` unless deletes tell these columns."""
    known = [c.name for c in relation.columns if c.in_identity or relation.identity == "f"]
    lacking = [name for name in placing if name not in known]
    if lacking:
        raise Invalid(
            f"{relation.schema}.{relation.name}: deletes and changed keys do not tell {', '.join(lacking)},"
            " of which keys and partitions of the table are made; its replica identity holds"
            f" {', '.join(known) or 'nothing'}."
            f' Run ALTER TABLE "{relation.schema}"."{relation.name}" REPLICA IDENTITY FULL, or choose others'
            " (--record-key, --partition-by)"
        )


def check_columns(relation: Relation, known: pa.Schema, added: Sequence[str], *, fill: bool) -> None:
    """Raises ``Invalid`` if the source lacks columns that the table has."""
    missing = [name for name in known.names if name not in relation.names and name not in added]
    if missing and not fill:
        raise Invalid(
            f"{relation.schema}.{relation.name} lacks {', '.join(missing)}, which the table has: dropped or"
            " renamed since. Nothing of this batch was committed. If new rows shall have nulls there:"
            f" {SET_NULL}=true"
        )
