"""Goal: a folder of a storage is a storage: every call acts below the folder, and on nothing else.

Method: each call on the folder, and what the storage around it then shows.
"""

from __future__ import annotations

from pathlib import Path

from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.local import LocalStorage
from mainstem.storage.protocol import Storage


def test_every_call_acts_below_the_folder(tmp_path: Path) -> None:
    outer = LocalStorage(str(tmp_path))
    folder = FolderStorage(outer, ".hoodie/metadata")
    assert isinstance(folder, Storage)
    assert (folder.base, folder.links, folder.width) == (f"{outer.base}/.hoodie/metadata", True, outer.width)
    folder.put_new("a/f", b"content", durable=True)
    at = tmp_path / ".hoodie/metadata"
    assert (at / "a/f").read_bytes() == folder.read("a/f", max_bytes=9) == bytes(folder.view("a/f"))
    assert folder.read_range("a/f", 1, 3) == b"ont"
    with folder.open_input("a/f") as file:
        assert file.read() == b"content"
    folder.link("a/f", "a/g")
    assert folder.same_file("a/f", "a/g")
    folder.rename("a/g", "h")
    folder.renew("h")
    folder.put("p", b"new", durable=True)
    folder.put("p", b"newer", durable=True)
    assert folder.read("p", max_bytes=9) == b"newer" and folder.delete("p")
    assert sorted(folder.names("")) == ["a", "h"] == sorted(e.name for e in folder.entries(""))
    assert folder.stat("h").size == 7
    sink = folder.upload("a/log")
    sink.append([b"1", b"2"])
    folder.settle([sink], ["a"], durable=True)
    assert (at / "a/log").read_bytes() == b"12"
    assert folder.make_folder("b/c")
    folder.settle([], ["", "a", "b"], durable=True)
    assert folder.delete("h")
    assert not folder.delete("h")
    folder.delete_tree("a")
    assert [p.relative_to(tmp_path).as_posix() for p in sorted(tmp_path.rglob("*"))] == [
        ".hoodie", ".hoodie/metadata", ".hoodie/metadata/b", ".hoodie/metadata/b/c",
    ]  # fmt: skip
