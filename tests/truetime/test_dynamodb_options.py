"""Goal: the DynamoDB lock's settings are read as Hudi means them."""

from __future__ import annotations

import pytest

from mainstem.errors import Invalid
from mainstem.options.locks import DYNAMODB, DYNAMODB_IMPLICIT
from mainstem.truetime.locks.dynamodb_options import DynamoDBOptions
from mainstem.truetime.locks.options import LockOptions

PREFIX = "hoodie.write.lock.dynamodb."


def options(
    provider: str = DYNAMODB, base: str = "s3a://my-bucket/my_lake/my_table", **given: str
) -> LockOptions:
    named = {PREFIX + name: value for name, value in {"table": "locks", **given}.items()}
    more = {"hoodie.write.lock.provider": provider, "hoodie.table.name": "trips"}
    return LockOptions.from_properties({**more, **named}, base=base)


def test_defaults_are_hudis() -> None:
    found = options()
    assert found.dynamodb == DynamoDBOptions(
        table="locks", key="trips", region="us-east-1", endpoint="", provisioned=None, creation_ms=120_000,
        lease_ms=60_000,
    )  # fmt: skip
    assert found.identity == "dynamodb:us-east-1/locks/trips"


def test_every_setting_is_read() -> None:
    found = options(
        base="/lake/t", partition_key="k", region="eu-west-1", endpoint_url="localhost:8000",
        billing_mode="provisioned", read_capacity="5", write_capacity="6", table_creation_timeout="7",
    )  # fmt: skip
    assert found.dynamodb == DynamoDBOptions(
        table="locks", key="k", region="eu-west-1", endpoint="https://localhost:8000", provisioned=(5, 6),
        creation_ms=7, lease_ms=60_000,
    )  # fmt: skip


def test_the_implicit_key_is_the_hash_of_the_path() -> None:
    one, other = options(DYNAMODB_IMPLICIT), options(DYNAMODB_IMPLICIT, "s3://my-bucket/my_lake/my_table")
    assert one.dynamodb and one.dynamodb.key == "C0E15D0CE1AD11CC"
    assert one.identity == other.identity


@pytest.mark.parametrize(
    ("key", "value"),
    [("table", ""), ("table", "a b"), ("partition_key", "x" * 2_049), ("endpoint_url", "ftp://x"),
     ("billing_mode", "FREE"), ("read_capacity", "0")],
)  # fmt: skip
def test_what_does_not_parse_is_refused(key: str, value: str) -> None:
    with pytest.raises(Invalid, match=PREFIX + key):
        options(**{key: value})


def test_a_lease_of_no_time_is_refused() -> None:
    given = {"hoodie.write.lock.provider": DYNAMODB, PREFIX + "table": "locks", PREFIX + "partition_key": "k"}
    with pytest.raises(Invalid, match="takes it as the lease"):
        LockOptions.from_properties({**given, "hoodie.write.lock.wait_time_ms": "10"}, base="/t")
