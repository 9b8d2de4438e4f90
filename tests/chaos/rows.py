"""The rows of every source, from nothing but the source's number and the row's.

A source sends rows 0, 1, 2 ... Three rows of four go to keys that all sources write, with event times that
come out of order, so that it shows whether the right one won; the fourth has a key of its own, so that it
shows whether every single row arrived. No event time is used twice. The same formulas stand here as SQL,
which Spark and Flink both understand, and as numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string()),
        ("amount", pa.float64()),
    ]
)  # fmt: skip
COLUMNS = SCHEMA.names
_HOT = 200
_LATE = 199  # event times lag by up to so many rows

_SQL = {
    "id": "CASE WHEN {n} % 4 = 3 THEN CONCAT('s{s}-', CAST({n} AS STRING))"
    " ELSE CONCAT('k', CAST(({n} * 7919 + {s} * 31) % 200 AS STRING)) END",
    "city": "CASE WHEN ({n} % 4 = 3 AND {n} % 8 = 3) OR ({n} % 4 <> 3 AND ({n} * 7919 + {s} * 31) % 2 = 0)"
    " THEN 'a' ELSE 'b' END",
    "ts": "({n} + ({n} * 48271) % 199) * 10 + {s}",
    "value": "CONCAT('{s}/', CAST({n} AS STRING))",
    "amount": "CAST({n} AS DOUBLE) / 2",
}


def sql_columns(source: int, number: str) -> str:
    """The select list of a source; ``number`` is the column with the row's number, a BIGINT."""
    return ", ".join(f"{text.format(n=number, s=source)} AS {name}" for name, text in _SQL.items())


def rows(source: int, first: int, count: int) -> pa.Table:
    """The rows ``first`` to ``first + count - 1`` of a source."""
    n = np.arange(first, first + count, dtype=np.int64)
    own, hot = n % 4 == 3, (n * 7919 + source * 31) % _HOT
    in_a = np.where(own, n % 8 == 3, hot % 2 == 0)
    columns = {
        "id": [f"s{source}-{i}" if o else f"k{h}" for i, o, h in zip(n, own, hot, strict=True)],
        "city": np.where(in_a, "a", "b").tolist(),
        "ts": (n + n * 48271 % _LATE) * 10 + source,
        "value": [f"{source}/{i}" for i in n],
        "amount": n / 2,
    }
    return pa.table(columns, schema=SCHEMA)


def newest(sent: Mapping[int, Sequence[tuple[int, int]]]) -> dict[str, tuple]:
    """Key -> the row with the greatest event time. ``sent``: source -> (first, count) of its batches."""
    found: dict[str, tuple] = {}
    for source, batches in sent.items():
        for first, count in batches:
            for row in as_tuples(rows(source, first, count)):
                if row[0] not in found or found[row[0]][2] < row[2]:
                    found[row[0]] = row
    return found


def as_tuples(table: pa.Table) -> list[tuple]:
    """Rows with the columns of ``COLUMNS``, in the table's order."""
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))
