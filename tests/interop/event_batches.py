"""Batches that several writers send to the same keys, each a function of writer and commit number.

No two rows share a key and an event time, so under EVENT_TIME_ORDERING there is exactly one right
table, whatever order the commits took.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

KEYS = 400
ROWS = 100
WRITERS_MAX = 10
COMMITS_MAX = 1_000
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("writer", pa.int32()),
        ("commit", pa.int32()),
        ("value", pa.float64()),
        ("ts", pa.int64()),
    ]
)


def batch(writer: int, commit: int) -> pa.Table:
    """100 rows of 400 keys with event times that neither follow nor precede the commits."""
    random = np.random.default_rng([writer, commit])
    keys = random.choice(KEYS, ROWS, replace=False)
    times = random.integers(0, 1_000_000, ROWS)
    return _rows(keys, writer, commit, (times * COMMITS_MAX + commit) * WRITERS_MAX + writer)


def doomed(writer: int) -> pa.Table:
    """Rows newer than all others, of a writer killed before its commit: none may be seen."""
    return _rows(np.arange(KEYS), writer, -1, np.full(KEYS, 2**62))


def _rows(keys: np.ndarray, writer: int, commit: int, times: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{k}" for k in keys],
            "city": [("paris", "rome", "oslo")[k % 3] for k in keys],
            "writer": np.full(len(keys), writer, np.int32),
            "commit": np.full(len(keys), commit, np.int32),
            "value": times / 7.0,
            "ts": times.astype(np.int64),
        },
        schema=SCHEMA,
    )


def newest(batches: Iterable[pa.Table]) -> pa.Table:
    """The row of every key with the greatest event time, by plain Python: the right table."""
    best: dict[str, dict[str, object]] = {}
    for rows in batches:
        for row in rows.to_pylist():
            if row["id"] not in best or row["ts"] > best[row["id"]]["ts"]:
                best[row["id"]] = row
    return pa.Table.from_pylist(list(best.values()), schema=SCHEMA)
