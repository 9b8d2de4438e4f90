"""One of several processes at the birth or the death of a table.

``births``: in each round all of them begin together: create the table or, where another one has, open it, and
upsert rows of their own. ``beside``: a writer, a reader or a service goes on with a table that is deleted and
made anew.
"""

from __future__ import annotations

from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import TextIO

import pyarrow as pa

import mainstem
from mainstem.api.table import Table
from mainstem.errors import (
    Invalid,
    LeaseLost,
    LockUnavailable,
    MainstemError,
    RolledBack,
    TableExists,
    TableReplaced,
    Unavailable,
)

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
WITH_METADATA = {"hoodie.metadata.enable": "true", "hoodie.mainstem.exclusive": "true"}
EAGER = {
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
ROWS = 3
#: of ``beside``: who does not write
READER, SERVICE = 2, 3
#: what may come of a folder that is taken away under one's hands; ``Invalid``: there is no table now
EXPECTED = (Invalid, Unavailable, RolledBack, LeaseLost, LockUnavailable)


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


def beside(folder: str, worker: int, stop: Event) -> None:
    """Go on with the table that was opened until it is another one, then open that one. Rows name the table
    that they are written to; what is acknowledged, and what errors said, goes to a file of this worker's."""
    with open(Path(folder) / f"said-{worker}", "a", buffering=1) as said:
        table, number = None, 0
        while not stop.is_set():
            number += 1
            try:
                if table is None:
                    table = mainstem.open_table(Path(folder) / "t", properties=EAGER)
                _use(table, worker, number, said)
            except MainstemError as error:
                if isinstance(error, TableReplaced):
                    said.write("refused\n")
                elif not isinstance(error, EXPECTED):
                    said.write(f"error {type(error).__name__}: {error}\n".replace("\n", " ") + "\n")
                table = None


def _use(table: Table, worker: int, number: int, said: TextIO) -> None:
    if worker == SERVICE:
        for work in (table.compact, table.clean, table.archive):
            work()
        return
    table.writer_context()
    mark = f"{table.opened.identity}/{worker}/{number}"
    if worker == READER:
        strange = [i for i in ids(table) if not i.startswith(f"{table.opened.identity}/")]
        if strange:
            said.write(f"error rows of another table: {strange}\n")
        return
    with table.begin("upsert") as txn:
        txn.write(pa.table({"id": [mark], "ts": [number]}, schema=SCHEMA))
        txn.commit()
    said.write(f"{mark}\n")


def ids(table: Table) -> list[str]:
    """All record keys."""
    return table.scan(columns=["id"]).to_arrow().column("id").to_pylist()
