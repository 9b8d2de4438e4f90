"""Where the DynamoDB lock is and how to reach it, in Hudi's option names (``DynamoDbBasedLockConfig``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.errors import Invalid
from mainstem.options.locks import (
    BILLING_MODE,
    CREATION_MS,
    ENDPOINT,
    ITEM_KEY,
    ITEM_TABLE,
    READ_CAPACITY,
    REGION,
    WAIT_MS,
    WRITE_CAPACITY,
)
from mainstem.options.tables import EXCLUSIVE, TABLE_NAME
from mainstem.truetime.locks.option_values import shown, whole
from mainstem.truetime.locks.zookeeper_options import base_as_java_has_it, hash_of_base

_LEASE_MS_MIN = 1_000
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_URL = re.compile(r"https?://[^\s/]+/?")


@dataclass(frozen=True, slots=True)
class DynamoDBOptions:
    """Validated settings. ``key`` names the lock's item in ``table``; times are in milliseconds.

    ``lease_ms`` is ``hoodie.write.lock.wait_time_ms``, as in Hudi.
    """

    table: str
    key: str
    region: str
    endpoint: str
    provisioned: tuple[int, int] | None
    creation_ms: int
    lease_ms: int
    exclusive: bool = False

    @property
    def identity(self) -> str:
        """Where the item is; all writers of a table must agree on it."""
        return f"dynamodb:{self.endpoint or self.region}/{self.table}/{self.key}"

    @property
    def place(self) -> str:
        """The lock as messages name it."""
        return f"DynamoDB item {shown(self.key)} of table {self.table} ({self.endpoint or self.region})"

    @classmethod
    def from_properties(cls, props: Mapping[str, str], *, base: str, implicit: bool) -> DynamoDBOptions:
        """Read Hudi's keys; raises ``Invalid`` for settings that are missing or do not parse."""
        table = ITEM_TABLE.read(props)
        if not _TABLE.fullmatch(table):
            raise Invalid(
                f"{ITEM_TABLE}={shown(table)}: expected the name of a DynamoDB table (3 to 255 of a-z, A-Z,"
                " 0-9, '_', '-' and '.'): set it alike for all writers"
            )
        key = ITEM_KEY.read(props) or str(props.get(TABLE_NAME, "")).strip()
        if implicit:
            key = hash_of_base(base_as_java_has_it(props, base))
        if not 0 < len(key.encode()) <= 2_048:
            raise Invalid(f"{ITEM_KEY}={shown(key)}: expected 1 to 2048 bytes; set it alike for all writers")
        endpoint = ENDPOINT.read(props)
        if endpoint and "://" not in endpoint:
            endpoint = f"https://{endpoint}"  # as Hudi does
        if endpoint and not _URL.fullmatch(endpoint):
            raise Invalid(f"{ENDPOINT}={shown(endpoint)}: expected a URL such as http://localhost:8000")
        lease_ms = whole(props, WAIT_MS)
        if lease_ms < _LEASE_MS_MIN:
            raise Invalid(
                f"{WAIT_MS}={lease_ms}: Hudi takes it as the lease of a DynamoDB lock; expected"
                f" {_LEASE_MS_MIN} milliseconds at least"
            )
        provisioned = BILLING_MODE.read(props) == "PROVISIONED"
        capacity = READ_CAPACITY.read(props), WRITE_CAPACITY.read(props)
        return cls(
            table=table,
            key=key,
            region=REGION.read(props),
            endpoint=endpoint.rstrip("/"),
            provisioned=capacity if provisioned else None,
            creation_ms=CREATION_MS.read(props),
            lease_ms=lease_ms,
            exclusive=EXCLUSIVE.read(props),
        )
