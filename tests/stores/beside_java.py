"""What Java Hudi writes into, and reads from, the tables of `table_life` in a bucket."""

from __future__ import annotations

import pyarrow as pa

from tests.interop.java_hudi import JavaHudi, nbcc_options
from tests.stores.table_life import SCHEMA, Rows

LOCK = "hoodie.write.lock."
#: the table's name, which Java wants to be told
NAME = "shared"


def java_options(metadata: bool, **more: str) -> dict[str, str]:
    """Options of a Java job that names no lock: it takes what the table's properties name."""
    options = nbcc_options(
        NAME, record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2,
        extra={"hoodie.metadata.enable": str(metadata).lower(), **more},
    )  # fmt: skip
    return {key: value for key, value in options.items() if not key.startswith(LOCK)}


def by_java(java: JavaHudi, url: str) -> Rows:
    """The table's rows as Java reads them without any option; a key that comes twice is an error."""
    return rows_of(java.read_by_default(url))


def rows_of(table: pa.Table) -> Rows:
    """Rows by key; a key that comes twice is an error."""
    rows = table.to_pylist()
    found = {row["id"]: (row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key comes twice"
    return found


def java_batch(number: int) -> pa.Table:
    """Rows of a Java commit; half of them have keys of the other writers (`store_writer`)."""
    names = [f"j{number}-{n}" for n in range(4)] + [f"s{n}" for n in range(4)]
    ts = number * 250 + 50
    columns = [names, ["ab"[n % 2] for n in range(8)], [ts] * 8, [f"java/{number}"] * 8]
    return pa.table(columns, schema=SCHEMA)
