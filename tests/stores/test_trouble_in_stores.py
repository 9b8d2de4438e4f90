"""Goal: what a bucket's owner may set up, and what a server may do, ends in a retry or in an error that says
what to do; nothing is lost, and the same table goes on once it is put right.

Method: tables on MinIO: keys that lack one permission, a server of another region, buckets with versions,
object lock and lifecycle rules, a server that stands still, one that is killed, a proxy that makes trouble at
every fifth request. That an upload was begun shows in the server's folder.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import mainstem
from mainstem.errors import MainstemError, OutcomeUnknown, Unavailable
from mainstem.writers.stream_guard import StreamGuard
from tests.servers.http_proxy import FAULTS, HttpProxy
from tests.servers.object_stores import Minio, StoreServer
from tests.servers.signed_s3 import ask, restricted
from tests.stores.table_life import ROOT, Rows, batch, check_metadata, content, create, put_into

ALONE = {"hoodie.mainstem.exclusive": True}
FEW = {
    "hoodie.mainstem.storage.retries": "2",
    "hoodie.mainstem.storage.timeout_ms": "1000",
    "hoodie.mainstem.storage.retry_timeout_ms": "2000",
}
EVERYTHING = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with Minio() as running:
        running.make_bucket("bucket")
        yield running


def opened(server: StoreServer, path: str, **options: str) -> mainstem.Table:
    return mainstem.open_table(f"s3://bucket/{path}", {**server.options(), **FEW, **options})


# -- what the keys may do ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "reads"),
    [("PutObject", True), ("DeleteObject", True), ("GetObject", False), ("ListBucket", False)],
)
def test_a_permission_that_lacks_is_named_and_nothing_is_written(server, verb: str, reads: bool) -> None:
    path = f"lacks-{verb}"
    create(server, "bucket", path, ALONE).upsert(batch(range(4), 1))
    denied = {"Effect": "Deny", "Action": [f"s3:{verb}"], "Resource": ["arn:aws:s3:::*"]}
    keys = restricted(server, EVERYTHING, denied)

    def work() -> None:
        table = mainstem.open_table(f"s3://bucket/{path}", {**keys, **FEW})
        if reads:
            assert len(content(table)) == 4
        table.upsert(batch(range(4), 2))

    with pytest.raises((Unavailable, PermissionError), match=f"What to do: grant s3:{verb}") as raised:
        work()
    assert keys["fs.s3a.session.token"] not in str(raised.value)
    table = opened(server, path)
    assert content(table) == {f"k{n}": (1, f"v{n}") for n in range(4)}
    assert table.upsert(batch(range(4), 3)).status == "committed"


def test_another_region_is_named() -> None:
    class There(Minio):
        def environment(self) -> dict[str, str]:
            return {**super().environment(), "MINIO_SITE_REGION": "eu-central-1"}

    with There() as server:
        options = {**server.options(), **FEW}
        with pytest.raises(Unavailable, match=r"another region: give it as fs\.s3a\.endpoint\.region"):
            mainstem.open_table("s3://bucket/t", options)


# -- what a bucket may be ------------------------------------------------------------------------------

VERSIONS = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
LOCKED = (
    b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>"
    b"<Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"
)
OLD_VERSIONS = (
    b"<LifecycleConfiguration><Rule><ID>old</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>"
    b"<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"
    b"</Rule></LifecycleConfiguration>"
)


def with_versions(server: StoreServer) -> None:
    server.make_bucket("versions")
    ask(server, "PUT", "/versions", {"versioning": ""}, VERSIONS)


def with_object_lock(server: StoreServer) -> None:
    ask(server, "PUT", "/locked", headers={"x-amz-bucket-object-lock-enabled": "true"})
    ask(server, "PUT", "/locked", {"object-lock": ""}, LOCKED)


def with_lifecycle(server: StoreServer) -> None:
    with_versions(server)
    ask(server, "PUT", "/versions", {"lifecycle": ""}, OLD_VERSIONS)


@pytest.mark.parametrize(
    ("set_up", "bucket"),
    [(with_versions, "versions"), (with_object_lock, "locked"), (with_lifecycle, "versions")],
    ids=["versions", "object lock", "lifecycle"],
)
def test_a_bucket_that_keeps_what_is_removed_holds_a_table(set_up, bucket: str) -> None:
    """Old versions and markers of removed objects are nothing that anybody sees."""
    upkeep = {
        "hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"
    }  # fmt: skip
    with Minio() as server:
        set_up(server)
        table, expected = create(server, bucket, "t", {**ALONE, **upkeep}), Rows()
        for ts in range(6):
            table.upsert(batch(range(ts, ts + 4), ts))
            put_into(expected, batch(range(ts, ts + 4), ts))
            table.compact()
        table.clean()
        assert table.archive()
        assert content(table) == expected
        kept = ask(server, "GET", f"/{bucket}", {"versions": "", "prefix": "t/"}).decode()
        current = ask(server, "GET", f"/{bucket}", {"list-type": "2", "prefix": "t/"}).decode()
        assert kept.count("<Version>") > current.count("<Contents>") and "<DeleteMarker>" in kept
        check_metadata(table)


# -- what a server may do ------------------------------------------------------------------------------


def test_a_server_that_stands_still_is_an_error_in_time_and_then_the_table_goes_on(server) -> None:
    create(server, "bucket", "still", ALONE).upsert(batch(range(4), 1))
    table = opened(server, "still")
    assert len(content(table)) == 4
    began = time.monotonic()
    server.stop()
    try:
        with pytest.raises((Unavailable, OutcomeUnknown)):
            table.upsert(batch(range(4), 2))
    finally:
        server.resume()
    assert time.monotonic() - began < 60
    assert table.upsert(batch(range(4), 3)).status == "committed"
    assert content(table) == content(opened(server, "still")) == {f"k{n}": (3, f"v{n}") for n in range(4)}


def test_a_server_that_is_killed_keeps_what_was_committed() -> None:
    with Minio() as server:
        server.make_bucket("bucket")
        create(server, "bucket", "t", ALONE).upsert(batch(range(4), 1))
        table = opened(server, "t")
        for ts in range(2, 4):
            assert table.upsert(batch(range(4), ts)).status == "committed"
            server.kill()
            with pytest.raises(Unavailable):
                opened(server, "t")
            server.launch()
            assert server.answers()
            assert content(table) == {f"k{n}": (ts, f"v{n}") for n in range(4)}


@pytest.mark.parametrize("fault", FAULTS)
def test_trouble_at_every_fifth_request_loses_and_doubles_nothing(server, fault: str) -> None:
    path, expected = f"trouble-{fault}".replace(" ", "-"), Rows()
    create(server, "bucket", path, {**ALONE, "hoodie.metadata.enable": True})
    with HttpProxy(server.port, {fault: 0.2}, seed=3) as proxy:
        there = {"fs.s3a.endpoint": f"http://127.0.0.1:{proxy.port}"}
        table = opened(server, path, **there, **{"hoodie.mainstem.storage.retries": "10"})
        for number in range(4):
            rows = batch(range(number, number + 3), number)
            put_into(expected, rows)
            _committed(table, number, rows)
        assert proxy.done[fault] > 5
    found = opened(server, path)
    assert content(found) == expected
    guards = [one for one in found.timeline() if one.action == "deltacommit" and one.is_completed]
    assert len(guards) == 4
    found.rollback_failed_writes()
    check_metadata(found)


def _committed(table: mainstem.Table, number: int, rows) -> None:
    """As a stream writes: again, until it is told that the batch is there."""
    for _ in range(20):
        try:
            with table.begin("upsert", guard=StreamGuard("trouble", number)) as txn:
                txn.write(rows)
                assert txn.commit().status in ("committed", "already_committed")
            return
        except MainstemError as error:
            assert isinstance(error, Unavailable | OutcomeUnknown), error
    raise AssertionError("the batch is not committed")


UPLOADER = """
import os, sys
from mainstem.storage import object_store
from mainstem.storage.backends import location_of, storage_of
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
storage = storage_of(location_of(sys.argv[1], options=options))
object_store.STORE_PUT_BYTES_MAX = 1
object_store._PUT_PART_BYTES = 5 << 20
while True:
    storage.put_new(f"data/{os.urandom(8).hex()}", os.urandom(1 << 20) * 60, durable=True)
"""


def test_an_upload_in_parts_whose_process_is_killed_shows_nothing_and_hinders_nobody(server) -> None:
    table = create(server, "bucket", "parts", ALONE)
    options = [text for option in server.options().items() for text in option]
    begun = server.data / ".minio.sys/multipart"
    with subprocess.Popen(
        [sys.executable, "-c", UPLOADER, "s3://bucket/parts", *options], env={"PYTHONPATH": str(ROOT)}
    ) as process:
        end = time.monotonic() + 60
        while not list(begun.glob("*/*")):
            assert process.poll() is None and time.monotonic() < end
        process.kill()
    storage = table.opened.seams.storage
    assert {entry.size for entry in storage.entries("data")} <= {60 << 20}, "whole or not there"
    assert table.upsert(batch(range(4), 1)).status == "committed"
    assert len(content(table)) == 4
