"""Goal: a table lives in a bucket that keeps versions, and in one that keeps each version for a day.

Method: MinIO, with the settings as S3 takes them; a table with a metadata table goes through its life, and
its rows are those that a dict computed.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator

import pytest

from tests.servers.object_stores import Minio
from tests.stores.table_life import Rows, batch, check_metadata, content, create, open_there, put_into

UPKEEP = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "10", "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.mainstem.exclusive": "true",
    "hoodie.metadata.enable": "true",
}  # fmt: skip
VERSIONS = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
RETENTION = (
    b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>"
    b"<Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Minio]:
    with Minio() as running:
        running.ask("PUT", "/versions")
        running.ask("PUT", "/versions", "versioning=", VERSIONS)
        running.ask("PUT", "/retention", headers={"x-amz-bucket-object-lock-enabled": "true"})
        digest = base64.b64encode(hashlib.md5(RETENTION).digest()).decode()
        running.ask("PUT", "/retention", "object-lock=", RETENTION, headers={"content-md5": digest})
        yield running


@pytest.mark.parametrize("bucket", ["versions", "retention"])
def test_a_table_lives_among_old_versions(bucket: str, server: Minio) -> None:
    table, expected = create(server, bucket, "t", UPKEEP), Rows()
    for ts in range(6):
        table.upsert(batch(range(ts, ts + 6), ts))
        put_into(expected, batch(range(ts, ts + 6), ts))
        if ts % 2:
            table.compact()
    savepoint = table.savepoint()
    table.upsert(batch([1], 99))
    table.restore(savepoint.instant)
    table.delete_savepoint(savepoint.instant)
    runs = table.run_services(if_due=False)
    assert all(run.error is None for run in runs), runs
    assert content(open_there(server, bucket, "t")) == expected
    check_metadata(table)
    kept = server.ask("GET", f"/{bucket}", "versions=")
    assert "<DeleteMarker>" in kept and len(re.findall("gate.json</Key>", kept)) > 5
