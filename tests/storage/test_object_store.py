"""Goal: an object store keeps the contract of ``Storage`` and of ``Swappable``, also where replies are lost.

Method: every verb on a store in memory; lost replies, refusals for one's own put and conflicts are made between
``ObjectStorage`` and obstore; a forked child calls.
"""

from __future__ import annotations

import errno
import os
import pickle
import threading
from collections import Counter
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError, PreconditionError
from obstore.store import MemoryStore

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.storage import object_store
from mainstem.storage.backends import location_of, reopens, storage_of
from mainstem.storage.below import FolderStorage
from mainstem.storage.location import Location
from mainstem.storage.memory_store import forget, memory_store
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.protocol import Storage
from mainstem.storage.range_file import TAIL_BYTES
from mainstem.storage.swaps import has_swaps, swappable
from tests.storage.requests_made import Requests

HERE = Location("memory", "bucket", "/some/table")


@pytest.fixture
def storage() -> ObjectStorage:
    return ObjectStorage(MemoryStore(), HERE)


def test_every_verb_does_what_the_protocol_says(storage: ObjectStorage) -> None:
    assert isinstance(storage, Storage) and storage.base == "memory://bucket/some/table"
    storage.put_new("a/b", b"one", durable=True)
    with pytest.raises(FileExistsError):
        storage.put_new("a/b", b"one", durable=True)
    storage.put("a/c/d", [b"tw", memoryview(b"o")], durable=True)
    storage.put("a/c/d", b"three", durable=True)
    assert storage.read("a/c/d", max_bytes=5) == b"three"
    with pytest.raises(CorruptTable, match="5 bytes, at most 4"):
        storage.read("a/c/d", max_bytes=4)
    assert storage.read_range("a/c/d", 1, 3) == b"hre" and storage.read_range("a/c/d", 3, 9) == b"ee"
    assert storage.read_range("a/c/d", 5, 1) == storage.read_range("a/c/d", 9, 1) == b""
    assert storage.read_range("a/c/d", 1, 0) == b""
    for call in (
        lambda: storage.read("a/x", max_bytes=1),
        lambda: storage.read_range("a/x", 0, 1),
        lambda: storage.read_range("a/x", 0, 0),
        lambda: storage.open_input("a/x"),
        lambda: storage.renew("a/x"),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert sorted(storage.names("a")) == ["b", "c"] and storage.names("") == ["a"] and not storage.names("x")
    assert storage.names("a", prefix="c") == storage.names("a", after="b") == ["c"]
    assert {e.name: (e.size, e.is_folder) for e in storage.entries("a")} == {"b": (3, False), "c": (0, True)}
    assert storage.stat("a/b").size == 3 and storage.stat("a").is_folder and storage.stat("") is not None
    assert storage.stat("a/x") is None
    assert storage.delete("a/b") and storage.names("a") == ["c"]
    storage.delete_tree("a")
    storage.delete_tree("a")
    assert storage.names("") == [] and storage.stat("") is None


def test_a_prefix_is_not_the_folder_of_a_longer_name(storage: ObjectStorage) -> None:
    storage.put_new("a/b", b"", durable=True)
    storage.put_new("ab/c", b"", durable=True)
    assert storage.names("a") == ["b"]
    storage.delete_tree("a")
    assert storage.names("") == ["ab"]


def test_an_upload_is_put_when_it_is_closed(storage: ObjectStorage) -> None:
    one, two, three = (storage.upload(name) for name in ("one", "two", "three"))
    buffer = bytearray(b"1234")
    one.append([buffer])
    buffer[:] = b"xxxx"
    two.append([b"5", memoryview(b"67")])
    assert storage.names("") == [] and (one.size, two.size) == (4, 3)
    storage.put_new("two", b"of another", durable=True)
    with pytest.raises(FileExistsError):
        storage.settle([two, one, three], ["a"], durable=True)
    assert storage.read("one", max_bytes=9) == b"1234" and storage.read("three", max_bytes=9) == b""
    one.close(durable=True)
    with pytest.raises(ValueError, match="closed"):
        one.append([b"8"])


def test_an_upload_has_a_bound(storage: ObjectStorage, monkeypatch) -> None:
    monkeypatch.setattr(object_store, "STORE_UPLOAD_BYTES_MAX", 3)
    upload = storage.upload("one")
    upload.append([b"123"])
    with pytest.raises(OSError, match="at most 3 bytes") as raised:
        upload.append([b"4"])
    assert raised.value.errno == errno.EFBIG and upload.size == 3


def test_a_swap_replaces_the_state_that_was_read_and_no_other(storage: ObjectStorage) -> None:
    assert has_swaps(storage) and storage.read_tagged("lock") is None
    first = storage.swap("lock", b"1", None)
    assert first is not None and storage.swap("lock", b"2", None) is None
    assert storage.read_tagged("lock") == (b"1", first)
    second = storage.swap("lock", b"2", first)
    assert second is not None and storage.swap("lock", b"3", first) is None
    assert storage.read_tagged("lock") == (b"2", second)
    storage.delete("lock")
    assert storage.swap("lock", b"4", second) is None and storage.read_tagged("lock") is None
    below = FolderStorage(storage, "folder")
    tag = swappable(below).swap("x", b"1", None)
    assert storage.read_tagged("folder/x") == (b"1", tag) == swappable(below).read_tagged("x")


def test_one_of_many_wins_a_put_and_no_swap_is_lost(storage: ObjectStorage) -> None:
    won: Counter[int] = Counter()

    def work() -> None:
        for number in range(20):
            try:
                storage.put_new(f"claim/{number}", b"", durable=True)
                won[number] += 1
            except FileExistsError:
                pass
            while True:
                content, tag = storage.read_tagged("count") or (b"0", None)
                if storage.swap("count", str(int(content) + 1).encode(), tag) is not None:
                    break

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == {number: 1 for number in range(20)}
    assert storage.read("count", max_bytes=9) == b"80"


class Faults(Requests):
    """obstore's functions, with ``on_put`` called around each put."""

    def __init__(self, on_put: Any) -> None:
        super().__init__()
        self.on_put = on_put

    def put(self, store: Any, path: str, content: Any, **how: Any) -> Any:
        return self.on_put(lambda: obstore.put(store, path, content, **how))


def repeated(put: Any) -> Any:
    """The reply to the first try is lost; the second is refused."""
    put()
    return put()


@pytest.mark.parametrize("content", [b"", b"content"])
def test_a_put_that_was_refused_because_of_itself_has_succeeded(content: bytes) -> None:
    store = MemoryStore()
    storage = ObjectStorage(store, HERE, calls=Faults(repeated))
    storage.put_new("a", content, durable=True)
    tag = storage.swap("b", content, None)
    assert tag is not None and storage.read_tagged("b") == (content, tag)
    later = storage.swap("b", b"next", tag)
    assert later is not None and storage.read_tagged("b") == (b"next", later)
    storage.renew("a")
    other = ObjectStorage(store, HERE)
    with pytest.raises(FileExistsError):  # an equal object is not one's own
        other.put_new("a", content, durable=True)


def test_a_refusal_by_an_object_that_is_gone_is_no_outcome() -> None:
    store = MemoryStore()

    def taken_away(put: Any) -> Any:
        put()
        try:
            return put()
        finally:
            obstore.delete(store, "some/table/a")

    storage = ObjectStorage(store, HERE, calls=Faults(taken_away))
    with pytest.raises(OSError, match="is gone now") as raised:
        storage.put_new("a", b"", durable=True)
    assert not isinstance(raised.value, FileExistsError)


@pytest.mark.parametrize("tagged", [False, True])
def test_a_conflict_is_tried_again_unless_the_object_changed(tagged: bool) -> None:
    store, left = MemoryStore(), [2]
    quiet = ObjectStorage(store, HERE)

    def busy(put: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise GenericError("Server returned non-2xx status code: 409 Conflict: ")
        return put()

    storage = ObjectStorage(store, HERE, calls=Faults(busy))
    tag = quiet.swap("a", b"1", None) if tagged else None
    assert storage.swap("a", b"2", tag) is not None and left == [0]
    left[0] = 1
    assert storage.swap("a", b"3", tag) is None
    left[0] = 99
    with pytest.raises(OSError, match="too many"):
        storage.swap("new", b"", None)


def test_a_renewal_never_brings_a_file_back() -> None:
    store = MemoryStore()

    def swept(put: Any) -> Any:
        obstore.delete(store, "some/table/beat")
        return put()

    quiet = ObjectStorage(store, HERE)
    quiet.put_new("beat", b"", durable=True)
    before = quiet.stat("beat").mtime_ms
    quiet.renew("beat")
    assert quiet.stat("beat").mtime_ms >= before
    with pytest.raises(FileNotFoundError):
        ObjectStorage(store, HERE, calls=Faults(swept)).renew("beat")
    assert quiet.stat("beat") is None


@pytest.mark.parametrize(
    ("error", "expected", "said"),
    [
        (PermissionDeniedError("403: <?xml><Code>AccessDenied</Code><Message>No\nway</Message>"),
         PermissionError, "GET memory://bucket/some/table/a: 403: AccessDenied: No way"),
        (GenericError("PUT http://h/b?X-Amz-Signature=secret503 failed\n\nDebug source: secret503"),
         OSError, r"http://h/b\?\.\.\. failed"),
        (GenericError("404 Not Found: <Code>NoSuchBucket</Code>"), Invalid, "no bucket 'bucket'"),
        (FileNotFoundError("<Code>NoSuchBucket</Code>"), Invalid, "no bucket 'bucket'"),
        (AlreadyExistsError("x"), OSError, "refused"),
        (PreconditionError("x"), OSError, "refused"),
    ],
)  # fmt: skip
def test_errors_say_what_and_where_and_no_secrets(error, expected, said) -> None:
    class Failing(Requests):
        def get(self, *_: Any, **__: Any) -> Any:
            raise error

    with pytest.raises(expected, match=said) as raised:
        ObjectStorage(MemoryStore(), HERE, calls=Failing()).read("a", max_bytes=1)
    assert "secret503" not in str(raised.value) and raised.value.__cause__ is None


def test_a_parquet_file_is_read_by_few_ranges() -> None:
    rows = 400_000
    table = pa.table({name: pa.array(range(n, n + 7 * rows, 7)) for n, name in enumerate("abcdefgh")})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows // 2, compression=None, use_dictionary=False)
    content = sink.getvalue().to_pybytes()
    calls = Requests()
    storage = ObjectStorage(MemoryStore(), HERE, calls=calls)
    storage.put_new("base", content, durable=True)
    calls.made.clear()
    file = storage.open_input("base")
    source = pq.ParquetFile(file, buffer_size=1 << 20)
    assert file.size() == len(content) > 20 * TAIL_BYTES and calls.made == {"get": 1}
    chunks = [source.metadata.row_group(0).column(n) for n in (2, 3, 7)]
    file.prefetch((chunk.data_page_offset, chunk.total_compressed_size) for chunk in chunks)
    assert calls.made == {"get": 1, "get_range": 2}
    assert source.read_row_group(0, columns=["c", "d", "h"]).equals(table[: rows // 2].select(["c", "d", "h"]))
    assert calls.made == {"get": 1, "get_range": 2}
    assert source.read().equals(table)
    file.prefetch([(-1, 5), (len(content), 1), (0, 2 * len(content))])  # as a damaged footer may say
    file.seek(1)
    assert file.read(10_000_000) == content[1:10_000_001]


@pytest.mark.parametrize("suffix", [True, False])
def test_a_small_or_empty_file_is_read_by_its_opening(suffix: bool) -> None:
    calls = Requests()
    storage = ObjectStorage(MemoryStore(), HERE, calls=calls, suffix=suffix)
    for content in (b"", b"small"):
        storage.put("file", content, durable=True)
        calls.made.clear()
        with storage.open_input("file") as file:
            assert file.read() == content and file.size() == len(content)
        assert sum(calls.made.values()) <= 2


def test_a_store_in_memory_is_named_and_read_only() -> None:
    storage = storage_of(location_of("memory://mine/t"))
    memory_store("mine").put("t/a", b"1")
    assert storage.read("a", max_bytes=1) == b"1" and not reopens(storage)
    for write in (
        lambda: storage.put_new("b", b"", durable=True),
        lambda: storage.put("b", b"", durable=True),
        lambda: storage.renew("a"),
        lambda: storage.delete("a"),
        lambda: storage.delete_tree(""),
        lambda: storage.upload("b").close(durable=True),
        lambda: swappable(storage).swap("b", b"", None),
    ):
        with pytest.raises(Unsupported, match="read, not written"):
            write()
    assert storage.names("") == ["a"]
    forget("mine")
    assert storage_of(location_of("memory://mine/t")).names("") == []


def test_a_forked_child_refuses_instead_of_hanging(storage: ObjectStorage) -> None:
    storage.put_new("a", b"1", durable=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            storage.read("a", max_bytes=1)
            said: object = "read"
        except BaseException as error:
            said = error
        os.write(writing, pickle.dumps(said))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = pickle.loads(file.read())
    os.waitpid(child, 0)
    assert isinstance(said, Unsupported) and "forked" in str(said) and "spawn" in str(said)
    assert storage.read("a", max_bytes=1) == b"1"
