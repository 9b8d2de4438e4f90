"""Goal: a private copy of a file is what the file held, whatever is done to the file in its place afterwards.

Method: copies in memory and in files without a name; the file is overwritten, cut and removed beneath them.
"""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import pytest

from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.local import LocalStorage

SIZE = 5_000_003  # no whole number of pages, and more than a large one


@pytest.mark.parametrize("large_pages", [True, False])
@pytest.mark.parametrize("spill", [False, True])
def test_a_private_copy_stays_when_the_file_changes_in_its_place(
    tmp_path: Path, spill: bool, large_pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not large_pages:
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 9_999, raising=False)  # as on a system that has none
    path, content = tmp_path / "a/f", bytes(range(251)) * (SIZE // 251 + 1)
    path.parent.mkdir()
    path.write_bytes(content[:SIZE])
    folder = FolderStorage(LocalStorage(str(tmp_path)), "a")
    copy, start = folder.private("f", SIZE, spill=spill), folder.private("f", 5, spill=spill)
    assert copy.readonly
    with path.open("r+b") as file:
        file.write(b"\0" * SIZE)
        file.truncate(10)
    assert copy == content[:SIZE]
    assert start == content[:5]
    assert bytes(folder.private("f", SIZE, spill=spill)) == b"\0" * 10  # as much as there is
    path.write_bytes(b"")
    assert bytes(folder.private("f", SIZE, spill=spill)) == b""
    path.unlink()
    assert copy == content[:SIZE]
    with pytest.raises(FileNotFoundError):
        folder.private("f", SIZE, spill=spill)


def test_copies_in_files_leave_no_name_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    (tmp_path / "f").write_bytes(b"content")
    copy = LocalStorage(str(tmp_path)).private("f", 7, spill=True)
    assert not list((tmp_path / "t").iterdir())
    assert copy == b"content"
