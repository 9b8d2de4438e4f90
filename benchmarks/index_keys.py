"""Record and secondary indexes asked: many keys, one key, and point queries by a column that is no key.

Indexes are built by mainstem, all of it in the page cache. ``cold`` opens the table anew. Queries are whole
ones, as in ``index_reads``: open the table, plan, read to Arrow, in turn with the full read.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from benchmarks import Row, bound, data, median_seconds, read_tables, row
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.local import LocalStorage

KEYS, ASKED = 1_000_000, 100_000
HUDIS_MS, COLD_MS, BYTES_PER_KEY = 600, 20, 48
SCHEMA = data.SCHEMA.append(pa.field("ticket", pa.string()))


def rows_of(first: int, count: int) -> pa.Table:
    """Rows of ``data`` and a text that is another one in each of them."""
    made = data.rows(np.arange(first, first + count))
    places = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    tickets = pc.binary_join_element_wise("ticket-", pa.array(places).cast(pa.string()), "")
    return made.append_column("ticket", tickets)


def made(path: Path, rows: int, buckets: int) -> mainstem.Table:
    """A table of base files with a record index and one of the column ``ticket``."""
    table = read_tables.create(path, buckets=buckets, schema=SCHEMA)
    for first in range(0, rows, read_tables.BATCH):
        table.upsert(rows_of(first, min(read_tables.BATCH, rows - first)))
    read_tables.compacted(table)
    table.create_index("record_index")
    table.create_index("secondary_index", ["ticket"])
    return table


def lookups(folder: Path, repeats: int) -> list[Row]:
    """Places of 100,000 keys and of one, from the record index of a million."""
    path = folder / "looked-up"
    made(path, KEYS, 8)
    chance = np.random.default_rng(7)
    many = data.keys(chance.choice(KEYS, ASKED, replace=False))
    one = [data.keys(np.array([number])) for number in chance.choice(KEYS, repeats, replace=False)]
    whole = [look_up(path, many) for _ in range(repeats)]
    cold = [look_up(path, key) for key in one]
    size = sum(f.stat().st_size for f in (path / ".hoodie/metadata" / RECORD_INDEX).glob("*.hfile"))
    what = f"a record index of {KEYS:,} keys"
    return [
        bound(f"look up {ASKED:,} keys in {what}, table opened anew", 1000 * statistics.median(whole), "ms",
              most=HUDIS_MS, note="Hudi's published figure is the target"),
        bound(f"look up one key in {what}, table opened anew", 1000 * statistics.median(cold), "ms",
              most=COLD_MS),
        bound(f"bytes per key of {what}", size / KEYS, "bytes", most=BYTES_PER_KEY),
    ]  # fmt: skip


def by_secondary_key(folder: Path, rows: int, groups: int, repeats: int, target: float) -> Row:
    """One row by its ticket, among ``rows``."""
    path = folder / "tickets"
    made(path, rows, groups)
    ticket = rows_of(rows // 2, 1)["ticket"][0]
    asked = pc.field("ticket") == ticket
    off = {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}

    def reading(options: dict[str, str] | None, **query: object) -> Callable[[], int]:
        return lambda: mainstem.open_table(str(path), options).scan(**query).to_arrow().num_rows

    found = median_seconds({"full": reading(off), "one": reading(None, filter=asked)}, repeats)
    if reading(None, filter=asked)() != 1:
        raise RuntimeError("the ticket is not there")
    return row(
        f"one row of {rows:,} in {groups} file groups, by secondary index", 1 / found["one"], "queries/s",
        against="full scan", baseline=1 / found["full"], target=target,
        note=f"{1000 * found['one']:.1f} ms, full scan {1000 * found['full']:.0f} ms",
    )  # fmt: skip


def look_up(path: Path, keys: pa.Array) -> float:
    """Seconds to open a table and find the places of these keys in its record index."""
    began = time.perf_counter()
    storage = LocalStorage(str(path))
    state = TableState.load(storage, load_config(storage))
    places = state.metadata_table.lookup(RECORD_INDEX, keys)
    seconds = time.perf_counter() - began
    if places.num_rows != len(keys):
        raise RuntimeError(f"{places.num_rows} of {len(keys)} keys were found")
    return seconds
