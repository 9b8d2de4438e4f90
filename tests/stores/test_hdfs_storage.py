"""Goal: HDFS keeps the contract of stores; what the fence and the locks rest on holds with eight clients.

Method: a name node and two data nodes of Hadoop 3.3.6 (``make stores`` installs them), a client for each
racer. Trouble is real: safe mode, a killed data node, a writer that is killed while it writes, a fork.
"""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.storage.backends import location_of, reopens, storage_of
from mainstem.storage.folders import make_folder, move_folder
from mainstem.storage.hdfs import HdfsStorage
from mainstem.storage.hdfs_options import open_client
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import move_new
from tests.servers import hdfs
from tests.servers.hdfs import Hdfs

pytestmark = pytest.mark.skipif(not hdfs.installed(), reason="HDFS is not installed: make stores")
_CLIENTS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[Hdfs]:
    with Hdfs() as running:
        yield running


@pytest.fixture
def storage(cluster: Hdfs, request: pytest.FixtureRequest) -> HdfsStorage:
    return cluster.storage(f"tests/{request.node.name.partition('[')[0]}")


def clients(cluster: Hdfs, path: str) -> list[HdfsStorage]:
    """Storages with a connection each."""
    location = cluster.location(path)
    options = dict(location.options)
    made = []
    for number in range(_CLIENTS):
        own = location_of(cluster.url(path), options={**options, "dfs.client.number": str(number)})
        made.append(HdfsStorage(open_client(own), own))
    return made


def race(racers: list[HdfsStorage], work: Callable[[int, HdfsStorage], str]) -> list[str]:
    """What each racer's ``work(number, storage)`` returned, or the name of its error."""
    results = [""] * len(racers)
    gate = threading.Barrier(len(racers))

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = work(number, racers[number])
        except OSError as error:
            results[number] = type(error).__name__

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(racers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# -- the contract ----------------------------------------------------------------------------------------


def test_every_verb_does_what_the_protocol_says(storage: HdfsStorage) -> None:
    assert isinstance(storage, Storage)
    storage.put_new("a/b", b"one", durable=True)
    with pytest.raises(FileExistsError):
        storage.put_new("a/b", b"one", durable=True)
    storage.put("a/c/d", [b"tw", memoryview(b"o")], durable=True)
    storage.put("a/c/d", b"three", durable=False)
    assert storage.read("a/c/d", max_bytes=5) == b"three"
    with pytest.raises(CorruptTable, match="5 bytes, at most 4"):
        storage.read("a/c/d", max_bytes=4)
    assert storage.read_range("a/c/d", 1, 3) == b"hre" and storage.read_range("a/c/d", 3, 9) == b"ee"
    assert storage.read_range("a/c/d", 5, 1) == storage.read_range("a/c/d", 9, 1) == b""
    assert storage.read_range("a/c/d", 1, 0) == b""
    for call in (
        lambda: storage.read("a/x", max_bytes=1),
        lambda: storage.read_range("a/x", 0, 0),
        lambda: storage.open_input("a/x"),
        lambda: storage.renew("a/x"),
        lambda: storage.renew("x/x"),
        lambda: storage.rename_new("a/x", "a/y"),
        lambda: storage.rename_new("a/b", "nowhere/b"),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert sorted(storage.names("a")) == ["b", "c"] and storage.names("") == ["a"]
    assert storage.names("x") == storage.names("a/b") == storage.names("a/b/c") == []
    assert storage.names("a", prefix="c") == storage.names("a", after="b") == ["c"]
    assert {e.name: (e.size, e.is_folder) for e in storage.entries("a")} == {"b": (3, False), "c": (0, True)}
    assert storage.stat("a/b").size == 3 and storage.stat("a").is_folder and storage.stat("").is_folder
    assert storage.stat("a/x") is None and storage.stat("a/b/c") is None
    assert storage.delete("a/b") and not storage.delete("a/b")
    storage.delete_tree("a")
    storage.delete_tree("a")
    assert storage.names("") == []


def test_many_files_are_made_and_removed_by_one_call(storage: HdfsStorage) -> None:
    storage.put_new("a/1", b"taken", durable=True)
    storage.create_all(["a/1", "a/2", "b/3"])
    assert storage.read("a/1", max_bytes=9) == b"taken" and storage.read("b/3", max_bytes=9) == b""
    storage.delete_all(["a/1", "a/2", "b/3", "b/4"])
    storage.delete_all([])
    assert storage.names("a") == storage.names("b") == []


def test_an_upload_has_its_name_at_once_and_is_settled_with_others(storage: HdfsStorage) -> None:
    one, two = storage.upload("a/one"), storage.upload("b/two")
    with pytest.raises(FileExistsError):
        storage.upload("a/one")
    buffer = bytearray(b"1234")
    one.append([buffer])
    buffer[:] = b"xxxx"
    one.append([memoryview(b"56"), b""])
    assert one.size == 6
    storage.settle([one, two], ["a", "b"], durable=True)
    one.close(durable=True)
    assert storage.read("a/one", max_bytes=9) == b"123456" and storage.read("b/two", max_bytes=9) == b""
    with pytest.raises(ValueError, match="closed"):
        one.append([b"7"])


def test_a_listing_of_thousands_is_whole(storage: HdfsStorage) -> None:
    storage.create_all(f"many/{n:05}" for n in range(1_100))  # the name node lists 1,000 at a time
    assert len(storage.names("many")) == 1_100 and len(storage.names("many", after="00999")) == 100


def test_a_large_file_is_read_in_parts(storage: HdfsStorage) -> None:
    content = os.urandom(20 << 20)
    storage.put_new("large", content, durable=True)
    assert bytes(storage.view("large")) == content
    assert bytes(storage.private("large", 9 << 20, spill=True)) == content[: 9 << 20]
    assert bytes(storage.private("large", 10, spill=False)) == content[:10]
    with storage.open_input("large") as file:
        file.seek(12 << 20)
        assert file.read(5) == content[12 << 20 : (12 << 20) + 5] and file.size() == len(content)


def test_a_renewed_file_has_the_name_nodes_time_and_its_content(storage: HdfsStorage) -> None:
    storage.put_new("beats/one", b"promise", durable=True)
    before = storage.stat("beats/one").mtime_ms
    time.sleep(0.05)
    storage.renew("beats/one")
    storage.put_new("beats/two", b"", durable=True)
    one, two = (storage.stat(f"beats/{name}").mtime_ms for name in ("one", "two"))
    assert before < one <= two + 5 and two - one < 2_000
    assert storage.read("beats/one", max_bytes=9) == b"promise"
    assert sorted(storage.names("beats")) == ["one", "two"]


def test_a_folder_moves_whole_and_replaces_none_that_holds_files(storage: HdfsStorage) -> None:
    storage.put_new("new/deep/file", b"1", durable=True)
    storage.put_new("taken/file", b"2", durable=True)
    with pytest.raises(FileExistsError):
        move_folder(storage, "new", "taken")
    assert make_folder(storage, "empty") and not make_folder(storage, "empty")
    move_folder(storage, "new", "empty")
    assert storage.read("empty/deep/file", max_bytes=1) == b"1" and storage.names("new") == []


def test_a_location_is_enough_to_open_it_elsewhere(storage: HdfsStorage) -> None:
    storage.put_new("file", b"x", durable=True)
    again = storage_of(pickle.loads(pickle.dumps(storage.location)))
    assert again.read("file", max_bytes=1) == b"x" and reopens(again)


def test_the_cluster_is_found_by_the_files_of_hadoop(cluster: Hdfs, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name>"
        f"<value>hdfs://127.0.0.1:{cluster.ports[0]}</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    storage_of(location_of("hdfs:///tests/by-files")).put_new("file", b"x", durable=True)
    assert cluster.storage("tests/by-files").read("file", max_bytes=1) == b"x"
    with pytest.raises(Invalid, match="HADOOP_CONF_DIR"):
        storage_of(location_of("hdfs://unknown/path"))


# -- races -----------------------------------------------------------------------------------------------


def test_one_of_eight_creates_a_file(cluster: Hdfs) -> None:
    racers = clients(cluster, "tests/creates")

    for turn in range(10):

        def create(number: int, storage: HdfsStorage, turn: int = turn) -> str:
            storage.put_new(f"file-{turn}", b"" if turn % 2 else str(number).encode(), durable=False)
            return "made"

        assert sorted(race(racers, create)) == ["FileExistsError"] * (_CLIENTS - 1) + ["made"]
    assert all(not name.startswith(".") for name in racers[0].names(""))


def test_one_of_eight_renames_get_a_name_and_one_gets_a_source(cluster: Hdfs) -> None:
    racers = clients(cluster, "tests/renames")

    def to_one_name(number: int, storage: HdfsStorage) -> str:
        storage.rename_new(f"source-{turn}-{number}", f"target-{turn}")
        return "moved"

    def from_one_name(number: int, storage: HdfsStorage) -> str:
        storage.rename_new(f"target-{turn}", f"last-{turn}-{number}")
        return "moved"

    for turn in range(10):
        racers[0].create_all(f"source-{turn}-{n}" for n in range(_CLIENTS))
        assert sorted(race(racers, to_one_name)) == ["FileExistsError"] * (_CLIENTS - 1) + ["moved"]
        assert sorted(race(racers, from_one_name)) == ["FileNotFoundError"] * (_CLIENTS - 1) + ["moved"]


def test_a_ticket_is_published_or_swept_and_never_both(cluster: Hdfs) -> None:
    racers = clients(cluster, "tests/tickets")[:2]

    def go(number: int, storage: HdfsStorage) -> str:
        storage.rename_new(f"ticket-{turn}", f"{'target' if number else 'swept'}-{turn}")
        return "moved"

    for turn in range(20):
        racers[0].create_all([f"ticket-{turn}"])
        results = race(racers, go)
        assert sorted(results) == ["FileNotFoundError", "moved"]
        there = [racers[0].stat(f"{name}-{turn}") is not None for name in ("swept", "target")]
        assert there == [result == "moved" for result in results]


class _LostReply:
    """A client whose renames take effect, but are told of as failed, as if they had been repeated."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self._inner.rename(source, target, overwrite)
        raise FileNotFoundError(source)


def test_a_rename_whose_reply_was_lost_is_known_to_have_happened(cluster: Hdfs) -> None:
    location = cluster.location("tests/lost")
    storage = HdfsStorage(_LostReply(open_client(location)), location)
    storage.put_new("file", b"content", durable=True)
    storage.put("file", b"other", durable=True)
    storage.put_new("private", b"third", durable=True)
    move_new(storage, "private", "final")
    assert storage.read("file", max_bytes=9) == b"other" and storage.read("final", max_bytes=9) == b"third"
    assert sorted(storage.names("")) == ["file", "final"]
    with pytest.raises(FileNotFoundError):
        move_new(storage, "nothing", "final")


# -- trouble ---------------------------------------------------------------------------------------------


def test_safe_mode_is_named(cluster: Hdfs, storage: HdfsStorage) -> None:
    storage.put_new("file", b"x", durable=True)
    cluster.tell("safemode on")
    try:
        assert storage.read("file", max_bytes=1) == b"x"
        with pytest.raises(OSError, match="safe mode") as refused:
            storage.put_new("other", b"x", durable=True)
        assert refused.value.errno == errno.EROFS
    finally:
        cluster.tell("safemode off")
    storage.put_new("other", b"x", durable=True)


def test_a_data_node_that_dies_loses_nothing(cluster: Hdfs, storage: HdfsStorage) -> None:
    storage.put_new("before", b"x" * 100_000, durable=True)
    growing = storage.upload("growing")
    growing.append([b"1" * 1_500_000])
    cluster.tell("data down 0")
    try:
        assert storage.read("before", max_bytes=100_000) == b"x" * 100_000
        growing.append([b"2" * 100_000])
        growing.close(durable=True)
        for number in range(4):
            storage.put_new(f"after-{number}", b"y" * 100_000, durable=True)
        small = storage.upload("small")
        small.append([b"3" * 100_000])
        storage.settle([small], durable=True)
        assert storage.read("growing", max_bytes=2_000_000) == b"1" * 1_500_000 + b"2" * 100_000
        assert storage.read("small", max_bytes=100_000) == b"3" * 100_000
        assert storage.read("after-0", max_bytes=100_000) == b"y" * 100_000
    finally:
        cluster.tell("data up")


_WRITER = """
import sys, time
from tests.stores.test_hdfs_storage import location_of, storage_of
storage = storage_of(location_of(sys.argv[1]))
upload = storage.upload("log")
upload.append([b"x" * 100_000])
print("written", flush=True)
time.sleep(60)
"""


def test_the_file_of_a_killed_writer_can_be_renamed_and_deleted(cluster: Hdfs, storage: HdfsStorage) -> None:
    command = [sys.executable, "-c", _WRITER, storage.base]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline().strip() == "written"
        writer.send_signal(signal.SIGKILL)
    assert storage.stat("log") is not None
    with pytest.raises(FileExistsError):
        storage.upload("log")
    storage.rename_new("log", "aside")
    assert storage.delete("aside") and storage.names("") == []
    storage.put_new("log", b"new", durable=True)
    assert storage.read("log", max_bytes=3) == b"new"


def _child(storage: HdfsStorage, said) -> None:
    try:
        storage.names("")
        said.send("answered")
    except Unsupported as error:
        said.send(error.message)


def test_a_forked_child_is_refused_and_does_not_hang(storage: HdfsStorage) -> None:
    storage.names("")
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(storage, theirs))
    child.start()
    assert ours.poll(20) and "forked" in ours.recv()
    child.join(20)


@pytest.mark.timeout(60)
def test_a_forked_child_drops_a_file_of_its_parent_and_does_not_hang(storage: HdfsStorage) -> None:
    uploads = [storage.upload("growing")]
    uploads[0].append([b"x" * 10])
    child = os.fork()
    if child == 0:
        uploads.clear()
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    uploads[0].append([b"y"])
    uploads[0].close(durable=True)
    assert storage.read("growing", max_bytes=99) == b"x" * 10 + b"y"


@pytest.mark.parametrize(
    "url", ["hdfs:relative", "hdfs://user@host/x", "hdfs://host/a/../b", "hdfs://host/a:b"]
)
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        location_of(url)
