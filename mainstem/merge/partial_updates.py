"""Partial updates within the log: absent columns of a winning row are filled from the row that it beats.

IGNORE_DEFAULTS and FILL_UNAVAILABLE (table version 9) work on full-width rows: a column that equals
its default (or the marker) counts as absent. Blocks with IS_PARTIAL lack columns altogether. In
every case Java folds entry by entry: the winner by the ordering rules remains the record, and each of
its absent columns is taken from the loser. Under event time ordering, a row that arrives later with a
smaller ordering value is the loser and fills only what is still absent (Java's PartialUpdateMode; with
one ordering value per row, a column can lose its newest value).

Closed form per key and column, over the entries since the last winning delete: the last non-absent
value among entries that won on arrival, else the first among those that lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.schema_resolution import promote
from mainstem.limits import CHUNK_BYTES_MAX
from mainstem.merge.comparison import won_on_arrival
from mainstem.merge.fold import NOTHING, Folded, Positions
from mainstem.merge.log_entries import DataRows, Entry
from mainstem.merge.modes import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from mainstem.merge.rules import MergeRules


def absent(column: pa.ChunkedArray | pa.Array, name: str, rules: MergeRules) -> np.ndarray:
    """Mask of a column's values that count as absent under the table's partial update mode."""
    if rules.partial == IGNORE_DEFAULTS:
        mask = column.is_null()
        default = rules.defaults.get(name)
        if default is not None:
            same = pc.equal(column, pa.scalar(default, column.type))
            mask = pc.or_(mask, pc.fill_null(same, False))
        return np.asarray(mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array) else mask)
    kind = column.type
    if rules.partial == FILL_UNAVAILABLE and rules.unavailable is not None and _is_text(kind):
        marker: Any = rules.unavailable
        marker = marker.encode() if pa.types.is_binary(kind) else marker
        same = pc.fill_null(pc.equal(column, pa.scalar(marker, kind)), False)
        return np.asarray(same)
    return np.zeros(len(column), bool)


def overlay(
    entries: Sequence[Entry], log: Positions, folded: Folded, schema: pa.Schema, rules: MergeRules
) -> tuple[pa.Table, Mapping[str, np.ndarray]]:
    """One row per key, in key order, each column with its value after the fold.

    Rows of deleted keys are meaningless. The second result marks per column the keys whose value is
    still absent because no full row was seen (blocks with IS_PARTIAL).
    """
    won, lost = _outcomes(log, folded)
    columns, open_cells = [], {}
    for field in schema:
        values, mask, missing = _gather(entries, log, field, rules)
        pick = np.full(log.key_count, NOTHING, np.int64)
        losers = np.flatnonzero(lost & ~mask)[::-1]
        pick[log.codes[losers]] = losers
        winners = np.flatnonzero(won & ~mask)
        pick[log.codes[winners]] = winners
        fallback = pick == NOTHING
        pick[fallback] = folded.winner[fallback]
        columns.append(_taken(values, pick))
        if missing is not None:
            open_cells[field.name] = fallback & missing[pick]
    return pa.table(columns, schema=schema), open_cells


def _taken(values: pa.ChunkedArray, where: np.ndarray) -> pa.ChunkedArray:
    """``values.take``, through 64-bit offsets if the chunks together need them."""
    kind = values.type
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind)
    if large is None or values.nbytes <= CHUNK_BYTES_MAX:
        return values.take(pa.array(where))
    return values.cast(large).take(pa.array(where)).cast(kind)


def _outcomes(log: Positions, folded: Folded) -> tuple[np.ndarray, np.ndarray]:
    """Masks of data rows since the last winning delete of their key: won on arrival, and lost."""
    total = len(log.codes)
    at = np.arange(total)
    if log.order is None:
        won = np.ones(total, bool)
    else:
        won = _won_on_arrival(log, folded)
    wiped = np.full(log.key_count, NOTHING, np.int64)
    wipes = at[won & log.deletes]
    wiped[log.codes[wipes]] = wipes
    if log.order is not None:
        resets = at[log.unconditional]
        both = np.full(log.key_count, NOTHING, np.int64)
        both[log.codes[resets]] = resets
        wiped = np.maximum(wiped, both)
    data = ~log.deletes & (at > wiped[log.codes])
    won_data = data & won
    first = np.full(log.key_count, total, np.int64)
    backwards = at[won_data][::-1]
    first[log.codes[backwards]] = backwards
    return won_data, data & ~won & (at > first[log.codes])


def _won_on_arrival(log: Positions, folded: Folded) -> np.ndarray:
    """Mask of entries that beat every earlier active entry of their key."""
    assert log.order is not None
    total = len(log.codes)
    chosen = np.arange(total) if folded.active is None else np.flatnonzero(folded.active)
    won = np.zeros(total, bool)
    if not len(chosen):
        return won
    by_key = chosen[np.argsort(log.codes[chosen], kind="stable")]
    won[by_key] = won_on_arrival(log.codes[by_key], log.order[by_key])
    return won


def _gather(
    entries: Sequence[Entry], log: Positions, field: pa.Field, rules: MergeRules
) -> tuple[pa.ChunkedArray, np.ndarray, np.ndarray | None]:
    """One column by position: its values, a mask of absent ones, and a mask of those not stored."""
    chunks: list[pa.Array] = []
    mask = np.ones(len(log.codes), bool)
    missing: np.ndarray | None = None
    for entry, start, end in zip(entries, log.starts[:-1], log.starts[1:], strict=True):
        stored = isinstance(entry, DataRows) and entry.table.schema.get_field_index(field.name) >= 0
        if not stored:
            chunks.append(pa.nulls(int(end - start), field.type))
            if isinstance(entry, DataRows):
                if not entry.partial:
                    mask[start:end] = rules.partial == IGNORE_DEFAULTS
                else:
                    missing = np.zeros(len(log.codes), bool) if missing is None else missing
                    missing[start:end] = True
            continue
        assert isinstance(entry, DataRows)
        column = entry.table.column(field.name)
        column = promote(column, field)
        chunks.extend(column.chunks)
        mask[start:end] = absent(column, field.name, rules)
    return pa.chunked_array(chunks, field.type), mask, missing


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
