"""A small table and rows for it; every test has a table of its own."""

from __future__ import annotations

import pyarrow as pa

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())]
)


def rows(keys, ts, value="v", city="a"):
    """Rows of the test table: one per key, all with this ordering value."""
    keys = list(keys)
    return pa.table(
        {
            "id": [f"k{k}" for k in keys],
            "city": [city] * len(keys),
            "ts": [ts] * len(keys),
            "value": [f"{value}{k}" for k in keys],
        },
        schema=SCHEMA,
    )


def content(table, **options):
    """Key -> value of a snapshot."""
    found = table.scan(columns=["id", "value"], **options).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))
