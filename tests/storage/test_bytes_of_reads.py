"""Goal: of a large base file a query moves what it needs: the footer, once, and the column chunks of its
columns and its filter in the row groups that may hold a row.

Method: a table of 20 columns whose base file has many row groups, in a small S3 server that counts the bytes
it sends; the bounds follow from the file's own footer.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.limits import KEPT_END_BYTES, MIB
from tests.servers.small_s3 import SmallS3

ROWS = 60_000
GROUP_BYTES = 2 * MIB
NUMBERS = [f"c{number}" for number in range(18)]
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), *((name, pa.float64()) for name in NUMBERS)])
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path",
        "_hoodie_file_name")  # fmt: skip
ONE_GROUP = (pc.field("ts") >= 30_000) & (pc.field("ts") < 30_010)


def rows(first: int, count: int) -> pa.Table:
    chance = np.random.default_rng(first)
    numbers = {name: chance.random(count) for name in NUMBERS}
    keys = np.arange(first, first + count)
    return pa.table({"id": [f"{key:08}" for key in keys], "ts": keys, **numbers}, SCHEMA)


@pytest.fixture(scope="module")
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        for name in ("base", "logs"):
            table = mainstem.create_table(
                running.location(name), SCHEMA, record_key="id", ordering="ts", buckets=1,
                properties={
                    "hoodie.mainstem.exclusive": True, "hoodie.parquet.block.size": str(GROUP_BYTES),
                    "hoodie.parquet.bloom.filter.enabled": "false",
                },
            )  # fmt: skip
            table.bulk_insert(rows(0, ROWS))
        table.upsert(rows(30_005, 20))
        yield running


def base_file(server: SmallS3, table: str) -> tuple[str, Any]:
    """The key of the base file, and its footer."""
    (key,) = (one for one in server.objects if one.startswith(f"{table}/") and one.endswith(".parquet"))
    return key, pq.read_metadata(io.BytesIO(server.objects[key].content))


def chunks(footer: Any, columns: list[str], groups: int | None = None) -> int:
    """Bytes of these columns in the first row groups."""
    total = 0
    for group in range(footer.num_row_groups)[:groups]:
        found = (footer.row_group(group).column(at) for at in range(footer.num_columns))
        total += sum(one.total_compressed_size for one in found if one.path_in_schema in columns)
    return total


def moved(server: SmallS3, table: str, query: Any) -> list[int]:
    """Bytes of the base file that a query moves, first and again with the same open table."""
    key, _ = base_file(server, table)
    opened, found = mainstem.open_table(server.location(table)), []
    for _ in range(2):
        server.sent.clear()
        query(opened)
        found.append(server.sent[key])
    return found


@pytest.mark.parametrize("table", ["base", "logs"])
def test_two_columns_of_twenty_are_moved_alone_and_the_footer_once(server: SmallS3, table: str) -> None:
    key, footer = base_file(server, table)
    size = len(server.objects[key].content)
    assert footer.num_row_groups >= 6 and size > 6 * MIB
    keys = [*META, "ts"] if table == "logs" else []  # a merge compares keys and ordering values
    needed = chunks(footer, ["c1", "c2", *keys])
    near = needed if table == "logs" else 0  # what lies between two near chunks comes with them
    first, again = moved(server, table, lambda opened: opened.scan(columns=["c1", "c2"]).to_arrow())
    assert needed - KEPT_END_BYTES <= again <= first <= needed + near + KEPT_END_BYTES < size / 2
    assert first - again <= KEPT_END_BYTES


@pytest.mark.parametrize("table", ["base", "logs"])
def test_a_filter_moves_the_row_groups_that_may_hold_a_row(server: SmallS3, table: str) -> None:
    _, footer = base_file(server, table)

    def query(opened: mainstem.Table) -> None:
        assert opened.scan(columns=["c1", "ts"], filter=ONE_GROUP).to_arrow().num_rows == 10

    first, again = moved(server, table, query)
    needed = ["c1", "ts", *(META if table == "logs" else [])]  # keys are asked for by a merge alone
    assert first <= KEPT_END_BYTES + chunks(footer, needed, groups=3)
    assert again <= chunks(footer, needed, groups=3)


def test_rows_that_no_group_can_hold_move_the_footer_alone(server: SmallS3) -> None:
    first, again = moved(
        server, "base", lambda opened: opened.scan(filter=pc.field("ts") > 2 * ROWS).to_arrow()
    )
    assert first <= KEPT_END_BYTES and again == 0


def test_a_count_of_base_files_moves_their_footers_alone(server: SmallS3) -> None:
    alike = pc.field("_hoodie_commit_time")  # a column with one value, as a partition's is

    def query(opened: mainstem.Table) -> None:
        assert opened.scan().count_rows() == opened.dataset().count_rows() == ROWS
        assert opened.scan(filter=alike > "2020").count_rows() == ROWS
        assert opened.scan(filter=alike.is_null()).count_rows() == 0

    first, again = moved(server, "base", query)
    assert first <= KEPT_END_BYTES and again == 0


def test_a_count_beside_log_files_moves_no_column_that_the_merge_does_not_need(server: SmallS3) -> None:
    _, footer = base_file(server, "logs")

    def query(opened: mainstem.Table) -> None:
        assert opened.scan().count_rows() == opened.dataset().count_rows() == ROWS

    first, _ = moved(server, "logs", query)
    assert first <= KEPT_END_BYTES + 2 * chunks(footer, [*META, "ts"])
