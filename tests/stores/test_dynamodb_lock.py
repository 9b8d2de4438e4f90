"""Goal: the DynamoDB lock keeps its holders apart, and Java's lock client reads and takes what it leaves.

Method: moto's DynamoDB on loopback; Java is imitated by the requests of AWS's ``AmazonDynamoDBLockClient``
(its source: conditions, attributes, deletion). Threads with clients of their own stand for processes.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moto import server as moto_server

from mainstem.errors import CorruptTable, LeaseLost, LockUnavailable, Unavailable
from mainstem.options.locks import DYNAMODB
from mainstem.storage.backends import location_of
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.storage_lock import StorageLock
from tests.truetime.counting import count_under_locks

Open = Callable[..., StorageLock]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def open_one(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens locks on one item."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    key = uuid.uuid4().hex

    def one(lease_ms: int = 60_000, *, storage: Any = None, **given: str) -> StorageLock:
        properties = {
            "hoodie.write.lock.provider": DYNAMODB,
            "hoodie.write.lock.wait_time_ms": str(lease_ms),
            "hoodie.write.lock.client.num_retries": "0",
            "hoodie.write.lock.dynamodb.table": "locks",
            "hoodie.write.lock.dynamodb.partition_key": key,
            "hoodie.write.lock.dynamodb.endpoint_url": endpoint,
            "hoodie.mainstem.exclusive": "true",
            **given,
        }
        options = LockOptions.from_properties(properties, base="/lake/t")
        found = open_lock(options, clock=SystemClock(), random=random.Random(), storage=storage)
        assert isinstance(found, StorageLock)
        return found

    return one


class Java:
    """AWS's lock client, as Hudi makes it: one try of ``acquireLock``, ``releaseLock``, a heartbeat."""

    def __init__(self, lock: StorageLock, lease_ms: int = 60_000) -> None:
        item = lock.storage
        self.client = item._connected()
        self.key = {"key": {"S": item._place.key}}
        self.owner = f"host{uuid.uuid4()}"
        self.lease_ms = lease_ms
        self.version = ""
        self.seen: tuple[str, float] | None = None

    def item(self) -> dict[str, Any] | None:
        found = self.client.get_item(TableName="locks", Key=self.key, ConsistentRead=True).get("Item")
        return found and {name: value["S"] for name, value in found.items()}

    def take(self) -> bool:
        found = self.item()
        version = str(uuid.uuid4())
        new = {
            **self.key, "ownerName": {"S": self.owner}, "leaseDuration": {"S": str(self.lease_ms)},
            "recordVersionNumber": {"S": version},
        }  # fmt: skip
        if found is None:
            condition = {"ConditionExpression": "attribute_not_exists(#pk)",
                         "ExpressionAttributeNames": {"#pk": "key"}}  # fmt: skip
        elif found.get("isReleased") == "1":
            condition = {"ConditionExpression": "attribute_exists(#pk) AND #ir = :ir",
                         "ExpressionAttributeNames": {"#pk": "key", "#ir": "isReleased"},
                         "ExpressionAttributeValues": {":ir": {"S": "1"}}}  # fmt: skip
        else:
            now = time.monotonic() * 1_000
            if self.seen is None or self.seen[0] != found["recordVersionNumber"]:
                self.seen = (found["recordVersionNumber"], now)
            if now - self.seen[1] <= int(found["leaseDuration"]):
                return False
            condition = {"ConditionExpression": "attribute_exists(#pk) AND #rvn = :rvn",
                         "ExpressionAttributeNames": {"#pk": "key", "#rvn": "recordVersionNumber"},
                         "ExpressionAttributeValues": {":rvn": {"S": self.seen[0]}}}  # fmt: skip
        try:
            self.client.put_item(TableName="locks", Item=new, **condition)
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        self.version = version
        return True

    def release(self) -> bool:
        try:
            self.client.delete_item(
                TableName="locks", Key=self.key,
                ConditionExpression="attribute_exists(#pk) AND #rvn = :rvn AND #on = :on",
                ExpressionAttributeNames={"#pk": "key", "#rvn": "recordVersionNumber", "#on": "ownerName"},
                ExpressionAttributeValues={":rvn": {"S": self.version}, ":on": {"S": self.owner}},
            )  # fmt: skip
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True


def test_an_item_is_what_javas_client_reads(open_one: Open) -> None:
    lock = open_one()
    lease = lock.acquire()
    java = Java(lock)
    item = java.item()
    assert item is not None
    assert {"key", "ownerName", "leaseDuration", "recordVersionNumber"} <= set(item)
    assert item["leaseDuration"] == "60000"
    assert "isReleased" not in item
    uuid.UUID(item["recordVersionNumber"])
    assert not java.take()
    lease.check()
    lease.release()
    assert java.item()["isReleased"] == "1"
    assert java.take()
    assert java.release()


def test_java_and_mainstem_take_turns(open_one: Open) -> None:
    lock = open_one(2_000)
    lock.acquire().release()
    java = Java(lock)
    for _ in range(3):
        assert java.take()
        with pytest.raises(LockUnavailable, match="held by another engine"):
            open_one(1_000).acquire()
        assert java.release()
        lease = lock.acquire()
        assert not java.take()
        lease.release()


def test_a_dead_java_holder_is_superseded_when_it_was_watched_for_its_lease(open_one: Open) -> None:
    lock = open_one()
    lock.acquire().release()
    java = Java(lock, lease_ms=1_500)
    assert java.take()
    time.sleep(1)
    started = time.monotonic()
    lease = lock.acquire()
    assert 1.4 < time.monotonic() - started < 4, "it was watched for a lease, whatever came before"
    assert not java.release()
    lease.check()
    lease.release()


def test_a_live_holder_is_not_superseded_and_a_dead_one_is(open_one: Open) -> None:
    holder = open_one(1_500)
    lease = holder.acquire()
    java = Java(holder)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert not java.take()
        time.sleep(0.2)
    lease.check()
    holder._renewer.stop()
    deadline = time.monotonic() + 5
    while not java.take():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    with pytest.raises(LeaseLost, match="held by another engine"):
        lease.check()
    lease.release()
    assert java.release()


def test_threads_with_clients_of_their_own_never_overlap(open_one: Open) -> None:
    counter, overlaps = count_under_locks(open_one, threads=3, turns=8, patience_s=120)
    assert (counter, overlaps) == (24, 0)


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("after", [False, True])
def test_a_reply_lost_at_any_request_blocks_nobody(open_one: Open, number: int, after: bool) -> None:
    lock = open_one()
    ask, count = lock.storage._ask, 0

    def shaky(verb: str, **request: Any) -> Any:
        nonlocal count
        count += 1
        reply = ask(verb, **request) if after or count != number else None
        if count == number:
            raise OSError("the connection was reset")
        return reply

    lock.storage._ask = shaky
    for _ in range(2):
        lease = lock.acquire()
        lease.check()
        lease.release()
    started = time.monotonic()
    open_one().acquire().release()
    assert time.monotonic() - started < 30, "nobody waits until the lease of a minute is over"


@pytest.mark.parametrize("change", [{"leaseDuration": "x"}, {"leaseDuration": "9" * 9}, {"ownerName": ""}])
def test_an_item_that_is_no_lock_is_an_error_at_once(open_one: Open, change: dict[str, str]) -> None:
    lock = open_one()
    lock.acquire().release()
    java = Java(lock)
    item = {**java.item(), "recordVersionNumber": "1", **change}
    item.pop("isReleased")
    java.client.put_item(TableName="locks", Item={name: {"S": text} for name, text in item.items()})
    with pytest.raises(CorruptTable, match="holds no lock"):
        open_one().acquire()


def test_a_deleted_item_is_a_lost_lock(open_one: Open) -> None:
    lock = open_one()
    lease = lock.acquire()
    Java(lock).client.delete_item(TableName="locks", Key=Java(lock).key)
    with pytest.raises(LeaseLost, match="deleted"):
        lease.check()


def test_a_server_that_is_away_is_unavailable(open_one: Open) -> None:
    away = {"hoodie.write.lock.dynamodb.endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(Unavailable, match="DynamoDB item"):
        open_one(5_000, **away).acquire()


@pytest.mark.parametrize(("endpoint_of_store", "who"), [("", "GIVEN"), ("http://minio:9000", "test")])
def test_it_is_asked_by_whom_amazons_store_is_asked(open_one: Open, endpoint_of_store: str, who: str) -> None:
    options = {"hoodie.aws.access.key": "GIVEN", "hoodie.aws.secret.key": "s"}
    options |= {"fs.s3a.endpoint": endpoint_of_store} if endpoint_of_store else {}
    location = location_of("s3://bucket/t", options=options)
    lock = open_one(storage=ObjectStorage(open_store(location), location))
    lock.acquire().release()
    assert lock.storage._connected()._request_signer._credentials.access_key == who  # type: ignore[attr-defined]
