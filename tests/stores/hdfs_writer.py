"""A process that writes a table on HDFS: ``python -m tests.stores.hdfs_writer URL OPTIONS NAME COMMITS``.

Each commit has one row of its own and overwrites the row ``all``. It prints a line for each commit.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

import mainstem

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("p", pa.string())])


def rows(name: str, number: int) -> pa.Table:
    """What one commit writes."""
    columns = {"id": [f"{name}-{number}", "all"], "ts": [time.time_ns()] * 2, "p": ["a", "b"]}
    return pa.table(columns, schema=SCHEMA)


def main(url: str, options: str, name: str, commits: str) -> None:
    """Write."""
    table = mainstem.open_table(url, properties=json.loads(options))
    for number in range(int(commits)):
        table.upsert(rows(name, number))
        print(f"{name}-{number}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
