"""A table in an object store and what it must hold, for the tests of real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import mainstem
from tests.servers.object_stores import StoreServer

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
#: what a row is found by -> its time and value
Rows = dict[str, tuple[int, str]]


def batch(keys: Iterable[int], ts: int, value: str = "v") -> pa.Table:
    """Rows of these keys, all of one time."""
    listed = list(keys)
    columns = [[f"k{k}" for k in listed], ["ab"[k % 2] for k in listed], [ts] * len(listed),
               [f"{value}{k}" for k in listed]]  # fmt: skip
    return pa.table(columns, schema=SCHEMA)


def put_into(expected: Rows, rows: pa.Table) -> None:
    """What an upsert makes of the expected rows."""
    for row in rows.to_pylist():
        if row["id"] not in expected or expected[row["id"]][0] <= row["ts"]:
            expected[row["id"]] = (row["ts"], row["v"])


def content(table: mainstem.Table, **how: Any) -> Rows:
    """The table's rows; a key that comes twice is an error."""
    rows = table.scan(**how).to_arrow().to_pylist()
    found = {row["id"]: (row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key comes twice"
    return found


def create(
    server: StoreServer, bucket: str, path: str, properties: Mapping[str, object] = {}, **more: Any
) -> mainstem.Table:
    """A new table of ``SCHEMA`` in a server."""
    given = {"record_key": "id", "ordering": "ts", "partition_by": "city", "buckets": 2, **more}
    return mainstem.create_table(
        server.location(bucket, path), SCHEMA, properties={**server.options(), **properties}, **given
    )


def open_there(server: StoreServer, bucket: str, path: str, **options: object) -> mainstem.Table:
    """Another open table, as another process has one."""
    return mainstem.open_table(server.location(bucket, path), options)


def check_metadata(table: mainstem.Table) -> None:
    """The metadata table, if there is one, says what the files say."""
    report = table.validate_metadata()
    assert report is None or report.ok, report


def spawn(server: StoreServer, script: str, given: dict[str, Any], **streams: Any) -> subprocess.Popen[str]:
    """A process with a store of its own; ``script`` finds ``given`` as JSON in its arguments."""
    return subprocess.Popen(
        [sys.executable, script, json.dumps({**given, "store": server.options()})], text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, **streams,
    )  # fmt: skip
