"""Goal: what options say of encryption, payment, proxies and certificates arrives at a server.

Method: a small S3 server that records headers, over TLS too, and as a proxy.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator

import pytest

from mainstem.errors import Unsupported
from mainstem.storage.backends import location_of
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store
from tests.servers.small_s3 import AUTHORITY, SmallS3

KEY = base64.b64encode(b"k" * 32).decode()
SSE = "x-amz-server-side-encryption"


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        yield running


def with_options(server: SmallS3, options: dict[str, str]) -> ObjectStorage:
    location: Location = location_of(server.location("t", retries="0"), options=options)
    return ObjectStorage(open_store(location), location)


def headers_of(server: SmallS3, options: dict[str, str]) -> dict[str, dict[str, str]]:
    """The headers of each kind of request."""
    storage = with_options(server, options)
    found = {}
    for verb, call in (
        ("PUT", lambda: storage.put_new("f", b"1", durable=True)),
        ("GET", lambda: storage.read("f", max_bytes=1)),
        ("HEAD", lambda: storage.nonce_at("f")),
        ("LIST", lambda: storage.names("")),
        ("DELETE", lambda: storage.delete("f")),
    ):
        call()
        found[verb] = server.headers[-1]
    return found


@pytest.mark.supports("Stores", "S3: encryption by the server, storage classes")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fs.s3a.encryption.algorithm": "AES256"}, {SSE: "AES256"}),
        ({"fs.s3a.server-side-encryption-algorithm": "SSE-KMS", "fs.s3a.server-side-encryption.key": "id"},
         {SSE: "aws:kms", f"{SSE}-aws-kms-key-id": "id"}),
        ({"fs.s3a.encryption.algorithm": "DSSE-KMS", "fs.s3a.encryption.key": "id"},
         {SSE: "aws:kms:dsse", f"{SSE}-aws-kms-key-id": "id"}),
        ({"fs.s3a.create.storage.class": "intelligent_tiering"},
         {"x-amz-storage-class": "INTELLIGENT_TIERING"}),
    ],
)  # fmt: skip
def test_how_objects_are_kept_is_said_with_every_put_and_only_there(options, expected, server) -> None:
    found = headers_of(server, options)
    said = {name: found["PUT"].get(name) for name in expected}
    assert said == expected
    assert not set(expected) & set(found["GET"])


@pytest.mark.supports("Stores", "S3: encryption by an own key")
def test_an_own_key_goes_with_every_request_for_content(server: SmallS3) -> None:
    found = headers_of(server, {"fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.encryption.key": KEY})
    for verb in ("PUT", "GET", "HEAD"):
        assert found[verb][f"{SSE}-customer-key"] == KEY
        assert found[verb][f"{SSE}-customer-algorithm"] == "AES256"


def test_a_checksum_goes_with_every_put_if_a_variable_asks_for_it(server: SmallS3, monkeypatch) -> None:
    monkeypatch.setenv("AWS_CHECKSUM_ALGORITHM", "sha256")
    digest = base64.b64encode(hashlib.sha256(b"1").digest()).decode()
    assert headers_of(server, {})["PUT"]["x-amz-checksum-sha256"] == digest


@pytest.mark.supports("Stores", "S3: requester pays")
def test_who_pays_is_said_with_every_request(server: SmallS3) -> None:
    found = headers_of(server, {"fs.s3a.requester.pays.enabled": "true"})
    assert {verb: one.get("x-amz-request-payer") for verb, one in found.items()} == dict.fromkeys(
        found, "requester"
    )


def test_an_archived_class_is_refused(server: SmallS3) -> None:
    with pytest.raises(Unsupported, match="expected STANDARD, INTELLIGENT_TIERING"):
        with_options(server, {"fs.s3a.create.storage.class": "GLACIER"})


@pytest.mark.supports("Stores", "proxies")
def test_a_proxy_is_asked_with_its_password(server: SmallS3, monkeypatch) -> None:
    monkeypatch.setenv("TEST_PROXY_PASSWORD", "p@ss")
    options = {
        "fs.s3a.endpoint": "http://store.invalid:9",
        "fs.s3a.proxy.host": "127.0.0.1", "fs.s3a.proxy.port": str(server.port),
        "fs.s3a.proxy.username": "me", "fs.s3a.proxy.password": "env:TEST_PROXY_PASSWORD",
    }  # fmt: skip
    storage = with_options(server, options)
    storage.put_new("f", b"1", durable=True)
    told = server.headers[-1]
    assert told["host"] == "store.invalid:9"
    assert base64.b64decode(told["proxy-authorization"].removeprefix("Basic ")) == b"me:p@ss"
    assert "p@ss" not in repr(storage.location) and "p%40ss" not in repr(storage.location)


@pytest.mark.supports("Stores", "TLS with an authority of one's own")
def test_a_certificate_is_trusted_by_the_file_of_its_authority(tmp_path, monkeypatch) -> None:
    trusted = tmp_path / "authority.pem"
    shutil.copyfile(AUTHORITY, trusted)
    with SmallS3(tls=True) as server:
        options = {"hoodie.mainstem.storage.ca_file": str(trusted)}
        storage = with_options(server, options)
        storage.put_new("f", b"1", durable=True)
        assert storage.read("f", max_bytes=1) == b"1"
        with pytest.raises(OSError, match="certificate is not trusted: give the file"):
            with_options(server, {}).read("f", max_bytes=1)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(trusted))
        assert with_options(server, {}).read("f", max_bytes=1) == b"1"
