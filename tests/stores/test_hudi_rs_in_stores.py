"""Goal: hudi-rs 0.5 reads a merge-on-read table of ours from a bucket, whole and by partition, at every stage
of its life: log files alone, compacted, log files on base files, cleaned.

Method: MinIO; after each stage its rows are those that were written and those that mainstem reads. With a
metadata table hudi-rs leaves out file groups of log files alone (`tests/hudi_rs/test_hudi_rs_fewer_rows.py`),
so it looks at such a table once every file group has a base file.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import mainstem
from tests.hudi_rs.reading import read
from tests.servers.object_stores import StoreServer
from tests.stores.beside_java import rows_of
from tests.stores.table_life import Rows, batch, content, create, put_into

pytest.importorskip("hudi")
CLEANED = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}


def reaching(server: StoreServer) -> dict[str, str]:
    """What hudi-rs is told of the server."""
    given = server.options()
    return {
        "aws_endpoint": server.endpoint,
        "aws_region": "us-east-1",
        "aws_access_key_id": given["fs.s3a.access.key"],
        "aws_secret_access_key": given["fs.s3a.secret.key"],
        "aws_allow_http": "true",
    }


def by_hudi_rs(server: StoreServer, table: mainstem.Table, *filters: tuple[str, str, str]) -> Rows:
    rows, error = read(table.path, filters, reaching(server))
    assert rows is not None, error
    return rows_of(rows)


def check_same(server: StoreServer, table: mainstem.Table, expected: Rows) -> None:
    """All rows, and those of one partition."""
    assert content(table) == expected == by_hudi_rs(server, table)
    for city in "ab":
        ours = content(table, filter=pc.field("city") == city)
        assert 0 < len(ours) < len(expected)
        assert by_hudi_rs(server, table, ("city", "=", city)) == ours
        assert by_hudi_rs(server, table, ("city", "!=", city)) == {
            key: row for key, row in expected.items() if key not in ours
        }


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_hudi_rs_reads_every_stage_of_a_table(minio: StoreServer, metadata: bool) -> None:
    properties = {"hoodie.metadata.enable": metadata, **CLEANED}
    table = create(minio, "bucket", f"hudi-rs-{metadata}", properties)
    expected = Rows()

    def upsert(first: int, ts: int) -> None:
        rows = batch(range(first, first + 20), ts)
        table.upsert(rows)
        put_into(expected, rows)

    upsert(0, 2)
    upsert(10, 3)
    upsert(5, 1)  # late rows
    if not metadata:
        check_same(minio, table, expected)
    table.compact()
    check_same(minio, table, expected)
    upsert(25, 4)
    upsert(3, 0)  # late rows onto base files
    table.delete(batch(range(4), 5).select(["id", "city"]))
    for key in range(4):
        del expected[f"k{key}"]
    check_same(minio, table, expected)
    table.compact()
    assert table.clean()
    check_same(minio, table, expected)
    upsert(0, 6)
    check_same(minio, table, expected)
