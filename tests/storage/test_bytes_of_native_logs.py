"""Goal: of a native log file a query moves its footer, and the column chunks that the merge and the query
need; of a file of Avro blocks all bytes.

Method: one write of many rows with 11 columns, as a file of blocks and as a native log file of several row
groups, in a small S3 server that counts the bytes it sends; the bounds follow from the file's own footer.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.limits import KEPT_END_BYTES, MIB
from tests.readers.native_tables import to_version_10
from tests.servers.small_s3 import SmallS3

ROWS, GROUPS = 180_000, 3
NUMBERS = [f"c{number}" for number in range(9)]
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((name, pa.float64()) for name in NUMBERS)])
LITTLE = 64 * 1024
#: the columns that the merge needs, and those between them, which come with them: they are near
MERGED = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name", "id", "ts"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallS3]:
    chance, keys = np.random.default_rng(1), np.arange(ROWS)
    columns = {name: chance.random(ROWS) for name in NUMBERS}
    rows = pa.table({"id": [f"{key:08}" for key in keys], "ts": keys, **columns}, SCHEMA)
    folder = tmp_path_factory.mktemp("tables")
    with SmallS3() as running:
        for name in ("blocks", "native"):
            table = mainstem.create_table(
                folder / name, SCHEMA, record_key="id", ordering="ts", buckets=1,
                properties={"hoodie.mainstem.exclusive": True},
            )  # fmt: skip
            table.upsert(rows)
            if name == "native":
                to_version_10(folder / name, layout="lsm_tree", group_rows=ROWS // GROUPS)
            put_folder(running, folder / name, name)
        yield running


def put_folder(server: SmallS3, folder: Path, name: str) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            server.put(f"{name}/{file.relative_to(folder).as_posix()}", file.read_bytes())


def log_of(server: SmallS3, table: str) -> str:
    (key,) = (one for one in server.objects if one.startswith(f"{table}/") and ".log." in one)
    return key


def chunks(footer: Any, columns: list[str], groups: int = GROUPS) -> int:
    total = 0
    for group in range(groups):
        found = (footer.row_group(group).column(at) for at in range(footer.num_columns))
        total += sum(one.total_compressed_size for one in found if one.path_in_schema in columns)
    return total


def moved(server: SmallS3, table: str, **query: Any) -> tuple[int, pa.Table]:
    key = log_of(server, table)
    opened = mainstem.open_table(server.location(table))
    server.sent.clear()
    rows = opened.scan(**query).to_arrow()
    return server.sent[key], rows


def both(server: SmallS3, **query: Any) -> tuple[int, int, Any]:
    """Bytes moved of both logs, and the footer of the native one; the rows are the same."""
    of_blocks, expected = moved(server, "blocks", **query)
    native, rows = moved(server, "native", **query)
    assert rows.sort_by("c5").equals(expected.sort_by("c5"))
    assert of_blocks >= len(server.objects[log_of(server, "blocks")].content)
    footer = pq.read_metadata(io.BytesIO(server.objects[log_of(server, "native")].content))
    assert footer.num_row_groups == GROUPS
    return native, of_blocks, footer


def test_two_columns_of_eleven_are_moved_with_those_of_the_merge(server: SmallS3) -> None:
    native, of_blocks, footer = both(server, columns=["c4", "c5"])
    assert native <= chunks(footer, ["c4", "c5", *MERGED]) + KEPT_END_BYTES + LITTLE
    assert native < of_blocks / 2 and of_blocks > 15 * MIB


def test_a_filter_moves_its_columns_and_of_others_the_row_groups_with_rows_that_pass(server: SmallS3) -> None:
    one_group = (pc.field("ts") >= 41_000) & (pc.field("ts") < 41_010)
    native, _, footer = both(server, columns=["c5", "c6"], filter=one_group)
    assert native <= chunks(footer, ["c5", "c6", *MERGED], 1) + KEPT_END_BYTES + LITTLE


def test_rows_that_no_row_group_can_hold_move_the_footer_alone(server: SmallS3) -> None:
    native, _, _ = both(server, columns=["c5", "ts"], filter=pc.field("ts") > 2 * ROWS)
    assert native <= KEPT_END_BYTES
