"""Looks for the keys of a file slice's logs: among rows of its base file, and among the logs' own entries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.merge.fold import Positions
from mainstem.merge.log_entries import Entry, chosen
from mainstem.merge.rules import KEY_COLUMN

# If base rows are fewer than this share of the log's keys, the lookup is done in the other direction.
_FEW = 0.125


def met(table: pa.Table, keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of a table have one of the keys: the numbers of their keys, and theirs."""
    column = table.column(KEY_COLUMN)
    if not column.type.equals(keys.type):
        column = column.cast(keys.type)
    few = len(column) < _FEW * len(keys)
    found = _found_among_many(column, keys) if few else pc.index_in(column, value_set=keys)
    hit = np.flatnonzero(found.is_valid().to_numpy())
    return pc.fill_null(found, 0).to_numpy()[hit].astype(np.int64), hit


def _found_among_many(column: pa.ChunkedArray, keys: pa.Array) -> pa.ChunkedArray:
    """``index_in`` for few values: builds the hash table from them instead of from all keys."""
    coded = pa.chunked_array([column.combine_chunks()]).chunk(0).dictionary_encode()
    place = pc.index_in(keys, value_set=coded.dictionary)
    at = np.flatnonzero(np.asarray(place.is_valid()))
    code = np.full(len(coded.dictionary), -1, np.int64)
    code[place.take(pa.array(at)).to_numpy()] = at
    codes = code[coded.indices.to_numpy()]
    return pa.chunked_array([pa.array(codes, mask=codes < 0)])


def of_keys(log: Positions, entries: Sequence[Entry], keys: np.ndarray) -> list[Entry]:
    """The records of some of the log's keys (a mask), in order, without entries that have none."""
    wanted = keys[log.codes]
    spans = zip(entries, log.starts[:-1], log.starts[1:], strict=True)
    return [chosen(entry, wanted[a:b]) for entry, a, b in spans if wanted[a:b].any()]
