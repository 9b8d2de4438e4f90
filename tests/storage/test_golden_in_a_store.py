"""Goal: a table in an object store reads as the same table on a local disk, in every query.

Method: the files of each golden table are put into a store in memory; every query is asked of both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainstem.errors import MainstemError
from mainstem.storage.memory_store import forget, memory_store
from tests.golden_tables.tables import NAMES, encoded_rows, expectations, row_text, run_query, unpack

KINDS = ("snapshot", "read_optimized", "time_travel", "incremental")


@pytest.fixture
def bucket():
    yield "golden"
    forget("golden")


def put_folder(folder: Path, bucket: str, prefix: str) -> None:
    """Copy a folder into a store in memory."""
    store = memory_store(bucket)
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def answer(path: Any, name: str, query: dict[str, Any]) -> Any:
    """Columns with types, and rows; or the kind of error."""
    try:
        found = run_query(path, name, query)
        return found.schema, [row_text(row) for row in encoded_rows(found)]
    except MainstemError as error:
        return type(error)


@pytest.mark.parametrize("name", NAMES)
def test_every_query_gives_the_rows_of_the_local_table(name: str, bucket: str, tmp_path: Path) -> None:
    local = unpack(name, tmp_path)
    put_folder(local, bucket, name)
    # The last of each kind: the newest range, and the latest time, of what is there.
    queries = {query["kind"]: query for query in expectations(name)["queries"] if query["kind"] in KINDS}
    for query in queries.values():
        here, there = (answer(place, name, query) for place in (local, f"memory://{bucket}/{name}"))
        assert here == there, query
