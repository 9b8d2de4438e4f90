"""Goal: ``put_new`` makes a file whole or not at all, and is exclusive; ``put`` replaces a file whole; on
file systems that know files without a name and on those that do not. Nobody but publishing asks for links.

Method: real files. Writes are killed (SIGKILL), interrupted and starved of room halfway; threads race for one
name; ``ast`` over the package.
"""

from __future__ import annotations

import ast
import errno
import os
import signal
import threading
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Unsupported
from mainstem.storage import local, maps
from mainstem.storage.folders import make_folder, move_folder
from mainstem.storage.links import links
from mainstem.storage.local import LocalStorage
from mainstem.storage.protocol import EMPTY, Alike

PACKAGE = Path(mainstem.__file__).parent
WHOLE = b"ab" * 5000


@pytest.fixture(params=["nameless", "hidden"])
def storage(request, tmp_path: Path, monkeypatch) -> LocalStorage:
    if request.param == "hidden":
        monkeypatch.setattr(LocalStorage, "_nameless", False)
    elif not LocalStorage._nameless:
        pytest.skip("no files without a name here")
    return LocalStorage(str(tmp_path))


def _files(storage: LocalStorage) -> list[str]:
    return sorted(p.name for p in Path(storage.base).rglob("*") if p.is_file())


def _halfway(monkeypatch, then) -> None:
    real = os.writev

    def half(fd: int, buffers: list) -> int:
        real(fd, [bytes(buffers[0])[:100]])
        return then()

    monkeypatch.setattr(os, "writev", half)


def _full() -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _interrupt() -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize("verb", ["put_new", "put"])
@pytest.mark.parametrize(("then", "error"), [(_full, OSError), (_interrupt, KeyboardInterrupt)])
def test_a_write_that_fails_halfway_leaves_nothing(storage, monkeypatch, verb, then, error) -> None:
    _halfway(monkeypatch, then)
    with pytest.raises(error):
        getattr(storage, verb)("a/f", WHOLE, durable=False)
    assert _files(storage) == []


@pytest.mark.parametrize("verb", ["put_new", "put"])
def test_a_process_that_is_killed_halfway_leaves_what_was_there(storage, monkeypatch, verb) -> None:
    if verb == "put":
        storage.put_new("a/f", b"old", durable=False)
    child = os.fork()
    if child == 0:
        _halfway(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGKILL))
        getattr(storage, verb)("a/f", WHOLE, durable=False)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    left = [name for name in _files(storage) if not name.startswith(".mainstem-")]
    assert left == (["f"] if verb == "put" else [])
    assert verb == "put_new" or storage.read("a/f", max_bytes=9) == b"old"
    getattr(storage, verb)("a/f", WHOLE, durable=False)
    assert storage.read("a/f", max_bytes=10**6) == WHOLE


@pytest.mark.parametrize("data", [b"", b"new", [b"ne", memoryview(b"w")]])
def test_a_name_that_is_taken_stays_as_it_is(storage, data) -> None:
    storage.put_new("a/f", b"old", durable=True)
    with pytest.raises(FileExistsError):
        storage.put_new("a/f", data, durable=True)
    assert storage.read("a/f", max_bytes=9) == b"old" and _files(storage) == ["f"]
    storage.put("a/f", b"newer", durable=True)
    assert storage.read("a/f", max_bytes=9) == b"newer" and _files(storage) == ["f"]


def test_one_of_many_that_make_a_file_at_once_makes_it_whole(storage) -> None:
    made: list[bytes] = []

    def make(number: int) -> None:
        data = bytes([number]) * 3000
        try:
            storage.put_new("a/f", data, durable=False)
            made.append(data)
        except FileExistsError:
            return

    threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [storage.read("a/f", max_bytes=10**6)] and _files(storage) == ["f"]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
def test_a_file_system_without_nameless_files_is_noticed(tmp_path: Path, monkeypatch, code: int) -> None:
    real = os.open

    def refusing(path, flags, *given, **named):
        if flags == local._NAMELESS:
            raise OSError(code, os.strerror(code), path)
        return real(path, flags, *given, **named)

    monkeypatch.setattr(os, "open", refusing)
    storage = LocalStorage(str(tmp_path))
    storage.put_new("a/f", WHOLE, durable=True)
    assert storage.read("a/f", max_bytes=10**6) == WHOLE and _files(storage) == ["f"]
    assert not storage._nameless


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EPERM, errno.EACCES, errno.EXDEV])
def test_a_system_that_gives_no_name_afterwards_is_noticed(tmp_path: Path, monkeypatch, code: int) -> None:
    real, exists = os.link, os.path.exists

    def refusing(source, target, **named):
        if source.startswith("/proc/"):
            raise OSError(code, os.strerror(code), source)
        return real(source, target, **named)

    monkeypatch.setattr(os, "link", refusing)
    monkeypatch.setattr(os.path, "exists", lambda path: not str(path).startswith("/proc") and exists(path))
    storage = LocalStorage(str(tmp_path))
    storage.put_new("a/f", WHOLE, durable=True)
    assert storage.read("a/f", max_bytes=10**6) == WHOLE and _files(storage) == ["f"]
    assert not storage._nameless


def test_a_file_keeps_the_rights_that_the_process_gives(storage) -> None:
    before = os.umask(0o027)
    try:
        storage.put_new("f", b"1", durable=False)
        storage.put_new("e", b"", durable=False)
    finally:
        os.umask(before)
    assert {os.stat(f"{storage.base}/{name}").st_mode & 0o777 for name in "ef"} == {0o640}


def test_a_file_that_is_gone_does_not_come_back_by_renewing_it(storage) -> None:
    storage.put_new("f", b"1", durable=False)
    os.utime(f"{storage.base}/f", (1, 1))
    storage.renew("f")
    assert storage.stat("f").mtime_ms > 10**6 and storage.read("f", max_bytes=1) == b"1"
    storage.delete("f")
    with pytest.raises(FileNotFoundError):
        storage.renew("f")
    assert _files(storage) == []


def test_listings_are_cut_to_a_prefix_and_to_what_follows_a_name(storage) -> None:
    for name in ("a1", "a2", "a3", "b1"):
        storage.put_new(f"d/{name}", b"", durable=False)
    assert sorted(storage.names("d", prefix="a", after="a1")) == ["a2", "a3"]
    assert sorted(e.name for e in storage.entries("d", after="a2")) == ["a3", "b1"]
    assert storage.names("d", prefix="c") == []


def test_empty_files_made_by_one_call_are_there_however_many_names_one_may_have(storage, monkeypatch) -> None:
    Path(storage.base, "a").mkdir()
    Path(storage.base, "a/2").write_bytes(WHOLE)
    storage.create_all(["a/1", "a/2", "b/3", "b/4"])
    assert storage.same_file("a/1", "b/4") and storage.read("a/2", max_bytes=len(WHOLE)) == WHOLE

    def full(source: str, target: str, **how: object) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(os, "link", full)
    storage.create_all(["c/1", "c/2", "c/1"])
    assert storage.names("c") == ["1", "2"] or storage.names("c") == ["2", "1"]
    assert storage.stat("c/2").size == 0 and not storage.same_file("c/1", "c/2")


def test_a_durable_link_syncs_the_folder_of_its_new_name(storage, monkeypatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(storage, "sync_folder", synced.append)
    storage.put_new("a/f", b"1", durable=False)
    storage.put_new("b/g", b"1", durable=False)
    links(storage).link("a/f", "b/one")
    links(storage).link("a/f", "b/two", durable=True)
    assert synced == ["b"]


class Flat:
    """A store without links, folders and maps."""

    base = "flat://t"

    def read(self, path: str, *, max_bytes: int) -> bytes:
        return b"content"

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return b"content"[offset : offset + length]


def test_a_store_without_links_is_refused_where_they_decide_and_read_where_maps_would_be() -> None:
    flat = Flat()
    with pytest.raises(Unsupported, match="hard links"):
        links(flat)
    with pytest.raises(Unsupported, match="rename a folder"):
        move_folder(flat, "a", "b")
    assert make_folder(flat, "a") is False
    assert maps.view(flat, "f") == b"content"
    assert maps.private_copy(flat, "f", 4, spill=True) == b"cont"


def test_few_ask_for_links() -> None:
    """Publishing, the lock, output of the command; markers, and files that a resize takes over, which stores
    without links make in another way."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id == "links":
                found.add(relative)
            if isinstance(called, ast.Attribute) and called.attr in ("link", "same_file", "rename"):
                on = ast.unparse(called.value)
                if on in ("os", "self._graph") or on.startswith("links("):  # a graph's edges
                    found |= {relative} if on == "os" else set()
                else:
                    found.add(f"{relative}: {ast.unparse(called)}")
    assert {name for name in found if not name.startswith("storage/")} == {
        "publish/link_fence.py", "publish/staging.py", "truetime/locks/file_system.py", "cli/row_output.py",
        "writers/append.py", "services/resizing.py",
    }  # fmt: skip


# -- files that are alike ------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [EMPTY, Alike(b"twice the same")])
def test_files_that_are_alike_are_names_of_one_file_and_each_is_exclusive(tmp_path: Path, content) -> None:
    storage = LocalStorage(str(tmp_path))
    for name in ("a/1", "a/2", "folders/that/are/new/3"):
        storage.put_new(name, content, durable=False)
        assert storage.read(name, max_bytes=99) == content
    assert len({(tmp_path / name).stat().st_ino for name in ("a/1", "a/2", "folders/that/are/new/3")}) == 1
    with pytest.raises(FileExistsError):
        storage.put_new("a/2", content, durable=False)
    storage.put_new("a/other", Alike(b"another"), durable=False)
    assert storage.read("a/other", max_bytes=99) == b"another"
    assert storage.read("a/1", max_bytes=99) == content


def test_a_file_without_names_or_with_as_many_as_it_may_have_gets_no_more(tmp_path, monkeypatch) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("1", EMPTY, durable=False)
    storage.delete("1")
    storage.put_new("2", EMPTY, durable=False)
    link, refused = os.link, []

    def full(source, target, **named):
        if not refused:
            refused.append(target)
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        link(source, target, **named)

    monkeypatch.setattr(os, "link", full)
    storage.put_new("3", EMPTY, durable=False)
    storage.put_new("4", EMPTY, durable=False)
    inodes = [(tmp_path / name).stat().st_ino for name in "234"]
    assert len(refused) == 1 and inodes[0] != inodes[1] == inodes[2]


def test_a_file_that_took_the_place_of_an_alike_one_is_no_source_of_names(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.put_new("1", Alike(b"mine"), durable=False)
    storage.delete("1")
    storage.put_new("1", b"else", durable=False)
    storage.put_new("2", Alike(b"mine"), durable=False)
    assert storage.read("2", max_bytes=9) == b"mine" and storage.read("1", max_bytes=9) == b"else"


def test_a_file_of_other_content_or_a_durable_one_is_a_file_of_its_own(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    for name, content, durable in (
        ("1", EMPTY, False), ("2", b"", False), ("3", EMPTY, True), ("4", Alike(b"4"), False),
    ):  # fmt: skip
        storage.put_new(name, content, durable=durable)
    assert len({(tmp_path / name).stat().st_ino for name in "1234"}) == 4
