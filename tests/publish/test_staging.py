"""Goal: what is made by way of a private file is whole or not there, whoever dies, comes late or is too many.

Method: one file is made by processes that die at every call that changes the file system; by two of which one
is late; by one whose private file is taken away. What is there afterwards is read.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from pathlib import Path

import pytest

from mainstem.publish.staging import Swept, create_once, put_once, put_whole
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.local import LocalStorage
from tests.storage.steps import Dead, Mortal

PACKAGE = Path(__file__).resolve().parents[2] / "mainstem"
PRIVATE, TARGET = paths.prepared("20260101000000000", "1"), "p/file"
OTHERS = paths.prepared("20260101000000000", "2")
WHOLE = b"whole"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(str(tmp_path), sync=False)
    for folder in ("p", paths.PREPARED):
        make_folder(made, folder)
    return made


def content(storage: LocalStorage, path: str = TARGET) -> bytes | None:
    return storage.read(path, max_bytes=100) if storage.stat(path) else None


def always() -> bool:
    return True


def filled(sink) -> None:
    for part in (WHOLE[:2], WHOLE[2:]):
        sink.append([part])


@pytest.mark.parametrize("given", [WHOLE, filled], ids=["bytes", "blocks"])
@pytest.mark.parametrize("calls", range(5))
def test_a_process_that_dies_leaves_the_file_whole_or_not_there(storage, given, calls) -> None:
    dying = Mortal(storage, calls + 1)
    with suppress(Dead):
        put_whole(dying, PRIVATE, TARGET, given, durable=True, wanted=always, marker="p/marker")
    assert content(storage) in (None, WHOLE)
    put_whole(storage, OTHERS, TARGET, given, durable=True, wanted=always)
    assert content(storage) == WHOLE, "another process goes on"


@pytest.mark.parametrize("given", [WHOLE, filled], ids=["bytes", "blocks"])
def test_a_file_gets_its_place_once_and_no_private_file_stays(storage, given) -> None:
    assert put_whole(storage, PRIVATE, TARGET, given, durable=True, wanted=always)
    assert not put_whole(storage, OTHERS, TARGET, b"other", durable=True, wanted=always), "taken"
    assert content(storage) == WHOLE and storage.names(paths.PREPARED) == []


def test_the_look_comes_when_the_private_file_is_whole_and_before_the_marker(storage) -> None:
    seen = []

    def wanted() -> bool:
        seen.append((content(storage, PRIVATE), content(storage), storage.stat("p/marker")))
        return False

    assert not put_whole(storage, PRIVATE, TARGET, filled, durable=True, wanted=wanted, marker="p/marker")
    assert seen == [(WHOLE, None, None)]
    assert storage.names("p") == storage.names(paths.PREPARED) == []


def test_who_took_the_private_file_away_has_ended_it(storage) -> None:
    with pytest.raises(Swept, match=f"{PRIVATE} was removed before it became {TARGET}"):
        put_whole(
            storage, PRIVATE, TARGET, WHOLE, durable=True, wanted=lambda: storage.delete(PRIVATE) is True
        )
    assert content(storage) is None


def test_a_file_that_the_content_misses_is_not_taken_for_the_private_one(storage) -> None:
    def lacking(sink) -> None:
        raise FileNotFoundError("a log file that a clean removed")

    with pytest.raises(FileNotFoundError, match="log file") as found:
        put_whole(storage, PRIVATE, TARGET, lacking, durable=True, wanted=always)
    assert not isinstance(found.value, Swept)
    assert storage.names("p") == storage.names(paths.PREPARED) == []


def test_new_files_and_second_names_are_made_once(storage) -> None:
    assert [create_once(storage, TARGET, WHOLE) for _ in range(2)] == [True, False]
    assert [put_once(storage, TARGET, "p/second") for _ in range(2)] == [True, False]


def test_files_get_their_place_in_this_module_and_the_fence_alone() -> None:
    """What links and renames is the store's business; whoever wants a file in place asks ``staging``.
    Markers of one empty file, and files that a resize takes over, get further names."""
    allowed = {"publish/staging.py", "publish/link_fence.py", "writers/append.py", "services/resizing.py"}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = str(path.relative_to(PACKAGE))
        if name.startswith("storage/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                if node.func.attr in ("link", "rename") and owner.startswith("links("):
                    found.add(name)
    assert found == allowed
