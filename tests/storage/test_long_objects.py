"""Goal: an object that is too long for one request is put in parts, whole or not at all, under a name that
was free; nothing is left over, in memory neither.

Method: small limits on a small S3 server that knows uploads in parts, with lost replies and refusals.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.storage import object_store, paths
from mainstem.storage.object_store import ObjectStorage
from mainstem.writers.leftovers import sweep_abandoned
from tests.servers.small_s3 import SmallS3

LENGTH, PART = 3_000, 1_000
CONTENT = bytes(range(250)) * 12
FEW = {"retries": "2", "retry_timeout_ms": "3000"}


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        yield running


@pytest.fixture
def storage(server: SmallS3, monkeypatch) -> ObjectStorage:
    monkeypatch.setattr(object_store, "STORE_PUT_BYTES_MAX", LENGTH - 1)
    monkeypatch.setattr(object_store, "_PUT_PART_BYTES", PART)
    return server.storage("t", **FEW)


def test_a_long_object_is_put_in_parts_and_leaves_nothing(server: SmallS3, storage: ObjectStorage) -> None:
    storage.put_new("long", CONTENT, durable=True)
    assert storage.read("long", max_bytes=LENGTH) == CONTENT
    assert list(server.objects) == ["t/long"] and not server.uploads
    upload = storage.upload("upload")
    upload.append([CONTENT[:PART], CONTENT[PART:]])
    upload.close(durable=True)
    assert server.objects["t/upload"].content == CONTENT and len(server.objects) == 2 and not server.uploads
    storage.put_new("short", CONTENT[:-1], durable=True)
    assert server.made == 4, "each in parts and copied in one"


def test_a_name_that_is_taken_stays_as_it_is(server: SmallS3, storage: ObjectStorage) -> None:
    server.put("t/long", b"another's")
    with pytest.raises(FileExistsError):
        storage.put_new("long", CONTENT, durable=True)
    assert server.objects["t/long"].content == b"another's" and list(server.objects) == ["t/long"]
    assert not server.uploads


def test_a_lost_reply_to_the_last_request_is_our_own_success(server: SmallS3, storage: ObjectStorage) -> None:
    server.fail("POST", "t/long$", "lost", 2)  # that which begins the copy, and that which completes it
    try:
        storage.put_new("long", CONTENT, durable=True)
    except FileExistsError:
        raise AssertionError("it is our own") from None
    except OSError:
        pass  # the outcome is unknown
    assert server.objects["t/long"].content == CONTENT
    storage.put_new("long", CONTENT, durable=True)  # the same content is there: no other may take the name
    with pytest.raises(FileExistsError):
        storage.put_new("long", CONTENT[::-1], durable=True)


@pytest.mark.parametrize("key", ["t/.hoodie/", "t/long$"])
def test_an_upload_that_fails_is_aborted(key: str, server: SmallS3, storage: ObjectStorage) -> None:
    server.fail("PUT", key, 403, 99, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
    with pytest.raises(PermissionError, match=r"PUT s3://bucket/t/long: .*grant s3:PutObject"):
        storage.put_new("long", CONTENT, durable=True)
    assert not server.uploads and not server.objects


def test_parts_that_were_swept_meanwhile_are_trouble_and_no_missing_file(
    server: SmallS3, storage: ObjectStorage
) -> None:
    server.fail("PUT", "t/long$", 404, 1, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")
    with pytest.raises(OSError, match="was swept") as raised:
        storage.put_new("long", CONTENT, durable=True)
    assert not isinstance(raised.value, FileNotFoundError) and not server.objects


def test_what_a_dead_writer_left_is_swept_after_a_day(server: SmallS3, storage: ObjectStorage) -> None:
    kept, gone = {f"{paths.OWN}/gate.json"}, set()
    for folder, prefix in ((paths.LONG, ""), (paths.OWN, paths.PROBE)):
        kept.add(f"{folder}/{prefix}young")
        gone.add(f"{folder}/{prefix}old")
    for path in kept | gone:
        server.put(f"t/{path}", CONTENT)
        server.objects[f"t/{path}"].changed -= 90_000 * (not path.endswith("young"))
    sweep_abandoned(storage, int(time.time() * 1000))
    assert set(server.objects) == {f"t/{path}" for path in kept}


MEMORY = """
import mmap, resource, sys, tempfile
from mainstem.storage import object_store
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage

class Calls:
    def put(self, store, path, content, **how):
        assert memoryview(content).nbytes == size
        return {"e_tag": "x", "version": None}

size = 128 << 20
storage = ObjectStorage(None, Location("s3", "b", "/t"), calls=Calls())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
upload = storage.upload("x")
for _ in range(size >> 20):
    upload.append([bytes(1 << 20)])
upload.close(durable=True)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_an_upload_takes_its_length_of_memory_once() -> None:
    root = str(Path(__file__).parents[2])
    asked = [sys.executable, "-c", MEMORY]
    found = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=root)
    assert int(found.stdout) < 128 + 40
