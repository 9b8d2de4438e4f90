"""One of several processes that make the same table at the same moment, again and again, and write into it.

In each round all of them begin together: create the table or, where another one has, open it, and upsert
rows of their own.
"""

from __future__ import annotations

from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa

import mainstem
from mainstem.client import Table
from mainstem.errors import MainstemError, TableExists

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
WITH_METADATA = {"hoodie.metadata.enable": "true", "hoodie.mainstem.exclusive": "true"}
ROWS = 3


def keys(worker: int) -> list[str]:
    """Record keys of the rows that a worker writes."""
    return [f"w{worker}-{n}" for n in range(ROWS)]


def rows(worker: int) -> pa.Table:
    """What a worker writes in each round."""
    return pa.table({"id": keys(worker), "ts": list(range(ROWS))}, schema=SCHEMA)


def create(path: Path, **more: object) -> Table:
    """A table of two buckets with a metadata table."""
    return mainstem.create_table(
        path, SCHEMA, record_key="id", buckets=2, name="t", properties=WITH_METADATA, **more
    )


def births(folder: str, rounds: int, worker: int, together: Barrier) -> None:
    """What came of each round goes to a file of its own: made or opened and the acknowledged keys, or the
    error."""
    for number in range(rounds):
        together.wait(60)
        said = Path(folder) / f"said-{number}-{worker}"
        try:
            said.write_text("\n".join(_birth(Path(folder) / f"table-{number}", worker)))
        except (MainstemError, OSError) as error:
            said.write_text(f"{type(error).__name__}: {error}")


def _birth(path: Path, worker: int) -> list[str]:
    try:
        table, how = create(path), "made"
    except TableExists:
        table, how = mainstem.open_table(path), "opened"
    table.upsert(rows(worker))
    return [how, *keys(worker)]
