"""Goal: an object store keeps the contract of ``Storage`` and of ``Swappable``, also where replies are lost.

Method: every verb on a store in memory; lost replies, refusals for one's own put and conflicts are made
between ``ObjectStorage`` and obstore; a forked child calls; stores that keep less are probed.
"""

from __future__ import annotations

import errno
import os
import pickle
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError, PreconditionError
from obstore.store import MemoryStore

from mainstem.errors import Invalid, Unsupported
from mainstem.publish import staging
from mainstem.storage import maps, object_store, paths
from mainstem.storage.backends import location_of, reopens, storage_of
from mainstem.storage.location import Location
from mainstem.storage.memory_store import forget, memory_store
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.probe import probe
from mainstem.storage.range_file import TAIL_BYTES
from tests.storage.requests_made import Requests
from tests.storage.store_contract import CONTRACT

HERE = Location("memory", "bucket", "/some/table")


@pytest.fixture
def storage() -> ObjectStorage:
    return ObjectStorage(MemoryStore(), HERE)


@pytest.mark.parametrize("contract", CONTRACT, ids=lambda function: function.__name__)
def test_a_store_in_memory_keeps_the_contract(contract, storage: ObjectStorage) -> None:
    contract(storage)


def test_an_upload_has_a_bound(storage: ObjectStorage, monkeypatch) -> None:
    monkeypatch.setattr(object_store, "STORE_UPLOAD_BYTES_MAX", 3)
    upload = storage.upload("one")
    upload.append([b"123"])
    with pytest.raises(OSError, match="at most 3 bytes") as raised:
        upload.append([b"4"])
    assert raised.value.errno == errno.EFBIG and upload.size == 3


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
    wanted = ["c", "d", "h"]
    assert source.read_row_group(0, columns=wanted).equals(table[: rows // 2].select(wanted))
    assert calls.made == {"get": 1, "get_range": 2}
    assert source.read().equals(table)
    file.prefetch([(-1, 5), (len(content), 1), (0, 2 * len(content))])  # as a damaged footer may say
    file.seek(1)
    assert file.read(10_000_000) == content[1:10_000_001]


def test_a_long_file_is_viewed_by_parts_of_one_content(monkeypatch) -> None:
    monkeypatch.setattr(object_store, "_PART_BYTES", 10)
    calls = Requests()
    storage = ObjectStorage(MemoryStore(), HERE, calls=calls)
    for size in (0, 20, 21, 95):
        storage.put("log", bytes(range(size)), durable=True)
        calls.made.clear()
        assert maps.view(storage, "log") == bytes(range(size)) == storage.read("log", max_bytes=99)
        assert calls.made["get"] == 1 + max(1, -(-size // 10))
    assert maps.part(storage, "log", 90, 99) == bytes(range(90, 95))
    for spill in (True, False):
        for size in (0, 12, 95, 99):
            copied = maps.private_copy(storage, "log", size, spill=spill)
            assert copied == bytes(range(min(size, 95))) and copied.readonly
    with pytest.raises(FileNotFoundError):
        maps.private_copy(storage, "none", 1, spill=True)

    class Replaced(Requests):
        def get(self, store: Any, key: str, **how: Any) -> Any:
            found = obstore.get(store, key, **how)
            if "if_match" not in how.get("options", {}):
                obstore.put(store, key, bytes(95))
            return found

    store = MemoryStore()
    ObjectStorage(store, HERE).put("log", bytes(range(95)), durable=True)
    with pytest.raises(OSError, match="the object changed"):
        maps.view(ObjectStorage(store, HERE, calls=Replaced()), "log")


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


def test_a_store_in_memory_is_named_and_private_files_stay_out_of_it() -> None:
    storage = storage_of(location_of("memory://mine/t"))
    memory_store("mine").put("t/a", b"1")
    assert storage.read("a", max_bytes=1) == b"1" and not reopens(storage)
    private, large = paths.prepared("one", "1"), paths.prepared("two", "2")
    storage.put_new(private, b"content", durable=True)
    sink = storage.upload(large)
    for _ in range(3):
        sink.append([bytes(3_000_000)])
    sink.close(durable=True)
    assert storage.names("") == ["a"]
    assert len(maps.view(storage, large)) == 9_000_000
    staging.put(storage, private, "b")
    with pytest.raises(FileExistsError):
        staging.put(storage, private, "b")
    assert staging.is_same(storage, private, "b") and not staging.is_same(storage, large, "b")
    staging.put_over(storage, large, "b")
    assert not staging.is_same(storage, private, "b")
    staging.put_anew(storage, private, "b")
    assert storage.read("b", max_bytes=9) == b"content"
    storage.delete_all([private, large, "b"])
    with pytest.raises(FileNotFoundError):
        storage.read(private, max_bytes=9)
    assert storage.names("") == ["a"]
    forget("mine")
    assert storage_of(location_of("memory://mine/t")).names("") == []


def ignoring(*modes: Any) -> Any:
    """A put that drops conditions of these kinds, as some servers do."""

    def put(store: Any, key: str, content: Any, **how: Any) -> Any:
        if type(how["mode"]) in modes:
            how["mode"] = "overwrite"
        return obstore.put(store, key, content, **how)

    return put


def forgetful(store: Any, key: str, content: Any, **how: Any) -> Any:
    """A put that drops metadata."""
    return obstore.put(store, key, content, **{**how, "attributes": None})


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({}, ""),
        ({"put": ignoring(str, dict)}, "no object .If-None-Match. replaced one"),
        ({"put": ignoring(dict)}, "older ETag .If-Match. replaced a newer"),
        ({"put": forgetful}, "does not keep metadata"),
        ({"list_with_delimiter": lambda *_: {"objects": [], "common_prefixes": []}}, "does not show"),
        ({"delete": lambda *_: None}, "that was deleted"),
    ],
)
def test_the_probe_refuses_a_store_that_does_not_keep_the_contract(broken, said) -> None:
    calls = Requests()
    vars(calls).update(broken)
    storage = ObjectStorage(MemoryStore(), HERE, calls=calls)
    if said:
        with pytest.raises(Unsupported, match=f"store of memory://bucket/some/table cannot .*{said}"):
            probe(storage, "probes", "nonce")
    else:
        probe(storage, "probes", "nonce")
        assert sum(calls.made.values()) <= 11 and storage.names("") == []


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
