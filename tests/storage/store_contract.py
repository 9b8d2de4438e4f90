"""What every object store must do: functions that are given an empty storage, in memory or on a server."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from mainstem.errors import CorruptTable
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps, swappable


def every_verb_does_what_the_protocol_says(storage: ObjectStorage) -> None:
    assert isinstance(storage, Storage)
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


def a_prefix_is_not_the_folder_of_a_longer_name(storage: ObjectStorage) -> None:
    storage.put_new("a/b", b"", durable=True)
    storage.put_new("ab/c", b"", durable=True)
    assert storage.names("a") == ["b"]
    storage.delete_tree("a")
    assert storage.names("") == ["ab"]


def many_files_are_made_and_removed_by_one_call(storage: ObjectStorage) -> None:
    storage.put_new("a/1", b"taken", durable=True)
    storage.create_all(["a/1", "a/2", "b/3"])
    assert storage.read("a/1", max_bytes=9) == b"taken" and storage.read("b/3", max_bytes=9) == b""
    storage.delete_all(["a/1", "a/2", "b/3", "b/4"])
    storage.delete_all([])
    assert storage.names("") == []


def an_upload_is_put_when_it_is_closed(storage: ObjectStorage) -> None:
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


def a_swap_replaces_the_state_that_was_read_and_no_other(storage: ObjectStorage) -> None:
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


def one_of_many_wins_a_put_and_no_swap_is_lost(storage: ObjectStorage) -> None:
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
    assert won == dict.fromkeys(range(20), 1)
    assert storage.read("count", max_bytes=9) == b"80"


CONTRACT = (
    every_verb_does_what_the_protocol_says,
    a_prefix_is_not_the_folder_of_a_longer_name,
    many_files_are_made_and_removed_by_one_call,
    an_upload_is_put_when_it_is_closed,
    a_swap_replaces_the_state_that_was_read_and_no_other,
    one_of_many_wins_a_put_and_no_swap_is_lost,
)
