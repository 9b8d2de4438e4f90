"""Goal: what goes wrong between us and a store is repeated, recognised or said; nothing is taken for somebody
else's that is our own.

Method: obstore as it is, against a small S3 server in this process that loses replies after the effect, cuts
bodies, throttles and refuses; requests are counted on the wire.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.probe import probe
from tests.servers.small_s3 import Fault, SmallS3
from tests.storage.store_contract import CONTRACT

FEW = {"retries": "3", "retry_timeout_ms": "5000"}


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        yield running


@pytest.fixture
def storage(server: SmallS3) -> ObjectStorage:
    return server.storage("t", **FEW)


@pytest.mark.parametrize("contract", CONTRACT, ids=lambda function: function.__name__)
def test_the_contract_holds_over_http(contract, storage: ObjectStorage) -> None:
    contract(storage)


def test_the_probe_is_content_with_few_requests(server: SmallS3, storage: ObjectStorage) -> None:
    probe(storage, "probes", "nonce")
    kinds = Counter(method for method, _, _ in server.log)
    assert kinds == {"PUT": 4, "GET": 3, "HEAD": 3, "POST": 1} and not server.objects


def test_markers_of_folders_are_no_files(server: SmallS3, storage: ObjectStorage) -> None:
    for key in ("t/", "t/dir/", "t/dir/empty/", "t/dir/file"):  # as Hadoop's S3A makes them
        server.put(key)
    assert storage.names("") == ["dir"] and sorted(storage.names("dir")) == ["empty", "file"]
    assert storage.entries("dir/empty") == [] and storage.stat("dir").is_folder
    assert [entry.name for entry in storage.entries("dir") if not entry.is_folder] == ["file"]
    storage.delete_tree("dir")
    assert "t/dir/file" not in server.objects


def test_a_listing_shows_every_page(server: SmallS3, storage: ObjectStorage) -> None:
    names = [f"{number:04}" for number in range(2500)]
    for name in names:
        server.put(f"t/f/{name}", b"1")
    assert sorted(storage.names("f")) == names and len(server.log) == 3
    storage.delete_tree("f")
    assert not server.objects and len(server.log) == 3 + 3 + 3


@pytest.mark.parametrize("content", [b"", b"content"])
def test_a_put_whose_reply_was_lost_is_our_own(content, server: SmallS3, storage: ObjectStorage) -> None:
    server.fail("PUT", "claim", "lost")
    storage.put_new("claim", content, durable=True)
    assert [status for method, _, status in server.log if method == "PUT"] == [0, 412]
    with pytest.raises(FileExistsError):
        storage.put_new("claim", content, durable=True)
    found = storage.read_tagged("claim")
    assert found is not None and found[0] == content


def test_a_swap_whose_reply_was_lost_is_our_own(server: SmallS3, storage: ObjectStorage) -> None:
    tag = storage.swap("gate", b"1", None)
    server.fail("PUT", "gate", "lost")
    tag = storage.swap("gate", b"2", tag)
    assert tag is not None and storage.read_tagged("gate") == (b"2", tag)
    server.fail("PUT", "gate", 500)  # nothing took effect
    assert storage.swap("gate", b"3", tag) is not None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_that_gets_no_reply_in_time_is_repeated(server: SmallS3, method: str) -> None:
    storage = server.storage("t", timeout_ms="300", retries="1")
    storage.put_new("file", b"1", durable=True)
    call: dict[str, Callable[[], object]] = {
        "GET": lambda: storage.read("file", max_bytes=1), "HEAD": lambda: storage.nonce_at("file"),
    }  # fmt: skip
    server.fail(method, "", "late")
    began = time.monotonic()
    assert call[method]()
    assert time.monotonic() - began < 2
    server.fail(method, "", "late", 9)
    with pytest.raises(OSError, match=r"did not answer in time.*storage\.timeout_ms"):
        call[method]()


def test_a_put_that_gets_no_reply_in_time_has_an_unknown_outcome(server: SmallS3) -> None:
    storage = server.storage("t", timeout_ms="300", retries="1")
    server.fail("PUT", "", "late")
    with pytest.raises(OSError, match=r"PUT s3://bucket/t/file.*did not answer in time") as raised:
        storage.put_new("file", b"1", durable=True)
    assert not isinstance(raised.value, FileExistsError)
    assert storage.read("file", max_bytes=1) == b"1"
    server.fail("POST", "", "late")
    with pytest.raises(OSError, match=r"DELETE s3://bucket/t/file.*did not answer in time"):
        storage.delete("file")
    assert storage.stat("file") is None


@pytest.mark.parametrize("status", [429, 503])
def test_throttling_is_waited_out(server: SmallS3, storage: ObjectStorage, status: int) -> None:
    text = "<Error><Code>SlowDown</Code><Message>Please</Message></Error>"
    for method, key in (("PUT", "file"), ("GET", "file"), ("HEAD", "file"), ("POST", ""), ("GET", "^$")):
        server.fail(method, key, status, 1, text)
    storage.put_new("file", b"1", durable=True)
    assert storage.read("file", max_bytes=1) == b"1" and storage.stat("file") is not None
    assert storage.delete("file") and storage.names("") == []
    server.fail("PUT", "file", status, 99, text)
    with pytest.raises(OSError, match=f"PUT s3://bucket/t/file: .*{status}.* SlowDown: Please"):
        storage.put_new("file", b"1", durable=True)


class Noting(SmallS3):
    """Notes when requests come."""

    times: list[float]

    def fault(self, method: str, key: str) -> Fault | None:
        self.times.append(time.monotonic())
        return super().fault(method, key)


def test_throttled_clients_pause_longer_and_longer_and_not_in_step() -> None:
    pauses = []
    with Noting() as server:
        for name in ("one", "two"):
            server.times = []
            server.fail("PUT", name, 503, 5)
            server.storage("t").put_new(name, b"1", durable=True)
            times = server.times
            pauses.append([after - before for before, after in zip(times, times[1:], strict=False)])
    for found in pauses:
        assert len(found) == 5 and min(found) > 0.05 and max(found[1:]) > found[0], pauses
    # On a busy machine each is a little late, but not by what chance makes of them.
    assert any(abs(one - two) > 0.02 for one, two in zip(*pauses, strict=True)), pauses


def test_a_body_that_ends_early_is_never_taken_for_whole(server: SmallS3, storage: ObjectStorage) -> None:
    content = bytes(range(256)) * 4000
    storage.put_new("file", content, durable=True)
    for read in (
        lambda: storage.read("file", max_bytes=len(content)),
        lambda: bytes(storage.view("file")),
        lambda: storage.read_range("file", 0, len(content)),
        lambda: storage.open_input("file").read(),
    ):
        server.fail("GET", "file", "cut")
        try:
            assert read() == content
        except OSError as error:
            assert not isinstance(error, FileNotFoundError)


def test_a_listing_or_a_removal_whose_reply_ends_early_is_asked_for_again(
    server: SmallS3, storage: ObjectStorage
) -> None:
    for name in ("a", "b", "f/c"):
        server.put(f"t/{name}", b"1")
    calls = [
        ("GET", lambda: storage.names(""), ["a", "b", "f"]),
        ("GET", lambda: storage.stat("f").is_folder, True),
        ("POST", lambda: storage.delete("a"), True),
        ("POST", lambda: storage.delete_all(["b"]), None),
        ("GET", lambda: storage.delete_tree("f"), None),
    ]
    for method, call, expected in calls:
        server.fail(method, "^$", "cut", 2)
        assert call() == expected
        assert not any(fault.times for fault in server.faults)
    assert not server.objects
    server.fail("GET", "^$", "cut", 99)
    with pytest.raises(OSError, match=r"LIST s3://bucket/t: .*response body error"):
        storage.names("")


def test_a_permission_that_lacks_is_said_with_its_verb(server: SmallS3, storage: ObjectStorage) -> None:
    storage.put_new("file", b"1", durable=True)
    denied = "<Error><Code>AccessDenied</Code><Message>Not you</Message></Error>"
    for method, key, call in (
        ("PUT", "new", lambda: storage.put_new("new", b"1", durable=True)),
        ("GET", "file", lambda: storage.read("file", max_bytes=1)),
        ("POST", "^$", lambda: storage.delete("file")),
        ("GET", "^$", lambda: storage.names("")),
    ):
        server.fail(method, key, 403, 1, denied)
        verb = {"POST": "DELETE", "GET": "LIST"}[method] if key == "^$" else method
        with pytest.raises(PermissionError, match=f"{verb} s3://bucket/t.*AccessDenied: Not you"):
            call()


def test_a_place_that_cannot_be_opened_is_said_to_be_one(server: SmallS3) -> None:
    location = server.location("t", **FEW)
    with pytest.raises(Invalid, match="no Hudi table at s3://bucket/t"):
        mainstem.open_table(location)
    server.fail("GET", "", 403, 99, "<Error><Code>InvalidAccessKeyId</Code><Message>x</Message></Error>")
    with pytest.raises(Unavailable, match=r"cannot be opened.*InvalidAccessKeyId.*credentials") as raised:
        mainstem.open_table(location)
    assert not re.search("any-secret|Signature", str(raised.value))
