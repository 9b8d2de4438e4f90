"""The DynamoDB lock: the item that Java's ``DynamoDBBasedLockProvider`` locks, and its implicit kind.

Java locks by AWS's ``AmazonDynamoDBLockClient``: one item with ``key``, ``ownerName``, ``leaseDuration``
(text, milliseconds) and ``recordVersionNumber``, which each heartbeat changes. It holds no time. A waiter
watches: if the number did not change for ``leaseDuration`` by the waiter's own monotonic clock, it takes the
item on the condition that the number is still the same. Java frees the item by deleting it; an item with
``isReleased`` = "1" is free too.

This module shows that item as one object that is swapped on condition (``storage.swaps``), with the version
number as its tag. Taking, renewing, freeing, lost replies, late puts and the turn for Java, which asks once
a second here too, are those of the storage lock (``storage_lock``). Differences:

* The record of ``storage_record`` is one more attribute, which Java drops when it takes the item.
* What others hold is shown as valid until this process has watched it for a lease, whatever any clock says.
* We free the item by ``isReleased`` and do not delete it, so that a put which arrives late meets another
  number. A late put may still create an item that *Java* deleted; it then blocks all for one lease.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainstem.errors import CorruptTable, Unavailable, Unsupported
from mainstem.forks import Mutex
from mainstem.options.stores import ENDPOINT as STORE_ENDPOINT
from mainstem.options.stores import S3_ENDPOINT
from mainstem.storage.aws_credentials import boto3_session
from mainstem.storage.protocol import Content
from mainstem.storage.store_options import KINDS, S3
from mainstem.storage.swaps import Tag
from mainstem.truetime.locks.dynamodb_options import DynamoDBOptions
from mainstem.truetime.locks.option_values import shown
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.storage_lock import DRIFT_MS, StorageLock
from mainstem.truetime.locks.storage_options import StorageLockOptions
from mainstem.truetime.locks.storage_record import LockRecord, parse_record

if TYPE_CHECKING:
    from mainstem.storage.location import Location
    from mainstem.truetime.clock import Clock
    from mainstem.truetime.seams import Randomness

_KEY, _OWNER, _LEASE, _VERSION, _RELEASED = (
    "key", "ownerName", "leaseDuration", "recordVersionNumber", "isReleased"
)  # fmt: skip
_RECORD = "mainstemRecord"
_LEASE_MS_MAX = 86_400_000
_POLL_MS = 500.0
_RENEWALS = 5


def open_dynamodb_lock(
    options: LockOptions,
    place: DynamoDBOptions,
    *,
    clock: Clock,
    random: Randomness,
    location: Location | None = None,
) -> StorageLock:
    """The lock; raises ``Unsupported`` without boto3. It connects at the first ``acquire``.

    ``location``: the table's, whose options say who we are on AWS too.
    """
    item = LockItem(place, options.base, clock=clock, random=random, location=location)
    settings = StorageLockOptions(place.lease_ms, place.lease_ms // _RENEWALS, place.exclusive)
    return StorageLock(options, settings, item, clock=clock, random=random, place=place.place)


class LockItem:
    """``Swappable`` with one object, the lock's item; paths are ignored."""

    def __init__(
        self,
        place: DynamoDBOptions,
        base: str,
        *,
        clock: Clock,
        random: Randomness,
        location: Location | None = None,
    ) -> None:
        _import_boto3()
        self._place = place
        self._location = location
        self._base = base
        self._clock = clock
        self._random = random
        self._mutex = Mutex()
        self._client: Any = None
        self._pid = 0
        # Numbers that this process wrote. Of another's number: when it was first seen, and what was shown.
        self._own: dict[str, bytes] = {}
        self._watched: tuple[str, float, LockRecord] | None = None

    def read_tagged(self, path: str, *, max_bytes: int = 0) -> tuple[bytes, Tag] | None:
        """The record that the item stands for, and its version number; None if there is no item."""
        item = self._ask("get_item", ConsistentRead=True, Key={_KEY: {"S": self._place.key}}).get("Item")
        if item is None:
            return None
        version, owner = _text(item, _VERSION), _text(item, _OWNER)
        if not version or not owner:
            raise self._no_lock(item)
        tag: Tag = (version, None)
        if version in self._own:
            return self._own[version], tag
        record = _text(item, _RECORD)
        if _text(item, _RELEASED) == "1":
            return (record.encode() if record else LockRecord(True, 0, owner).encode()), tag
        lease = _text(item, _LEASE)
        if not lease.isdecimal() or len(lease) > 9 or int(lease) > _LEASE_MS_MAX:
            raise self._no_lock(item)
        if record:  # its owner says more than the item's
            owner = parse_record(record.encode(), self._base).owner
        return self._watch(version, owner, int(lease)).encode(), tag

    def _watch(self, version: str, owner: str, lease_ms: int) -> LockRecord:
        """A record that is valid for as long as the number has yet to stay the same."""
        now_ms, clock_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        with self._mutex.held:
            if self._watched is None or self._watched[0] != version:
                self._watched = (version, now_ms, LockRecord(False, clock_ms + lease_ms, owner))
            since_ms = self._watched[1]
        left_ms = lease_ms - (now_ms - since_ms)
        return LockRecord(False, clock_ms + int(left_ms) - DRIFT_MS, owner)

    def swap(self, path: str, data: Content, tag: Tag | None) -> Tag | None:
        """Put an item for this record if the number is still ``tag``'s; None if it is another."""
        assert isinstance(data, bytes)
        record = parse_record(data, self._base)
        version = str(UUID(int=self._random.getrandbits(128), version=4))
        with self._mutex.held:
            self._own[version] = data
            while len(self._own) > 1_000:
                del self._own[next(iter(self._own))]
        item = {
            _KEY: self._place.key,
            _OWNER: record.owner,
            _LEASE: str(self._place.lease_ms),
            _VERSION: version,
            _RECORD: data.decode(),
        }
        if record.expired:
            item[_RELEASED] = "1"
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(#k)",
            "ExpressionAttributeNames": {"#k": _KEY},
        }
        if tag is not None:
            condition = {
                "ConditionExpression": "#v = :v",
                "ExpressionAttributeNames": {"#v": _VERSION},
                "ExpressionAttributeValues": {":v": {"S": tag[0]}},
            }
        values = {name: {"S": value} for name, value in item.items()}
        return (version, None) if self._ask("put_item", Item=values, **condition) is not None else None

    def _no_lock(self, item: dict[str, Any]) -> CorruptTable:
        return CorruptTable(
            f"{self._place.place} holds no lock: expected the texts {_OWNER}, {_VERSION} and {_LEASE}"
            f" (milliseconds, at most a day), found {shown(str(sorted(item)))}. Delete it if no writer runs",
            table=self._base,
        )

    # Requests.

    def _ask(self, verb: str, **request: Any) -> Any:
        """The reply; None if the condition does not hold. Trouble is an ``OSError``."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client = self._connected()
            return getattr(client, verb)(TableName=self._place.table, **request)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code == "ConditionalCheckFailedException":
                return None
            if "AccessDenied" in code or "UnrecognizedClient" in code or "Signature" in code:
                raise PermissionError(str(error)) from error
            raise OSError(str(error)) from error
        except BotoCoreError as error:
            raise OSError(str(error)) from error

    def _connected(self) -> Any:
        with self._mutex.held:
            if self._client is None or self._pid != os.getpid():
                self._client = self._connect()
                self._pid = os.getpid()
            return self._client

    def _connect(self) -> Any:
        """A client of this process; the lock table is made if it is missing, as Hudi does."""
        from botocore.config import Config

        # Its own retries hide little; ours read the item after each trouble.
        patience_s = max(self._place.lease_ms / 5_000, 1)
        client = boto3_session(_identity_options(self._location), self._base).client(
            "dynamodb",
            region_name=self._place.region,
            endpoint_url=self._place.endpoint or None,
            config=Config(
                connect_timeout=patience_s, read_timeout=patience_s, retries={"total_max_attempts": 2}
            ),
        )
        try:
            client.describe_table(TableName=self._place.table)
        except client.exceptions.ResourceNotFoundException:
            self._make_table(client)
        return client

    def _make_table(self, client: Any) -> None:
        place = self._place
        request: dict[str, Any] = {"BillingMode": "PAY_PER_REQUEST"}
        if place.provisioned:
            units = dict(zip(("ReadCapacityUnits", "WriteCapacityUnits"), place.provisioned, strict=True))
            request = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": units}
        with suppress(client.exceptions.ResourceInUseException):  # another process makes it
            client.create_table(
                TableName=place.table,
                KeySchema=[{"AttributeName": _KEY, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": _KEY, "AttributeType": "S"}],
                **request,
            )
        until_ms = self._clock.monotonic_ms() + place.creation_ms
        while client.describe_table(TableName=place.table)["Table"]["TableStatus"] != "ACTIVE":
            if self._clock.monotonic_ms() >= until_ms:
                raise Unavailable(
                    f"DynamoDB table {place.table} was made and is not active after {place.creation_ms} ms:"
                    " wait for it, then try again",
                    table=self._base,
                )
            self._clock.sleep_ms(_POLL_MS)


def _text(item: dict[str, Any], name: str) -> str:
    value = item.get(name, {}).get("S", "")
    return value if isinstance(value, str) else ""


def _identity_options(location: Location | None) -> Mapping[str, str]:
    """The options of a table on Amazon's S3, which say who we are on AWS; none for another place, whose keys
    DynamoDB does not know."""
    if location is None or KINDS.get(location.scheme) != S3:
        return {}
    values = location.option_values()
    return {} if S3_ENDPOINT.read(values) or STORE_ENDPOINT.read(values) else values


def _import_boto3() -> Any:
    try:
        import boto3
    except ImportError as error:
        raise Unsupported("the DynamoDB lock needs boto3: pip install 'mainstem[dynamodb]'") from error
    return boto3
