"""Goal: a folder goes although a writer adds a file while it is removed, and other failures are raised;
the writer gets its file although the folder is removed while it is made.

Method: the removal itself is replaced by one that meets the late file, as the file system reports it.
"""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from mainstem.storage.local import LocalStorage


def test_a_file_added_while_its_folder_is_removed_does_not_keep_the_folder(tmp_path, monkeypatch):
    (tmp_path / "markers/partition").mkdir(parents=True)
    real, calls = shutil.rmtree, []

    def met_a_late_file(path, **options):
        calls.append(path)
        if len(calls) == 1:
            (tmp_path / "markers" / "late").touch()
            raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
        real(path, **options)

    monkeypatch.setattr(shutil, "rmtree", met_a_late_file)
    LocalStorage(str(tmp_path)).delete_tree("markers")
    assert not (tmp_path / "markers").exists() and len(calls) == 2


def test_a_file_added_to_a_folder_of_files_while_it_is_removed_does_not_keep_it(tmp_path, monkeypatch):
    (tmp_path / "markers").mkdir()
    real, calls = os.rmdir, []

    def met_a_late_file(path, **options):
        calls.append(path)
        if len(calls) == 1:
            (tmp_path / "markers" / "late").touch()
        real(path, **options)

    monkeypatch.setattr(os, "rmdir", met_a_late_file)
    LocalStorage(str(tmp_path)).delete_tree("markers")
    assert not (tmp_path / "markers").exists() and len(calls) == 2


def test_another_failure_of_the_removal_is_raised_at_once(tmp_path, monkeypatch):
    (tmp_path / "markers/partition").mkdir(parents=True)
    calls = []

    def no_access(path, **_):
        calls.append(path)
        raise OSError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(shutil, "rmtree", no_access)
    with pytest.raises(OSError, match="Permission denied"):
        LocalStorage(str(tmp_path)).delete_tree("markers")
    assert len(calls) == 1


def test_a_file_is_made_although_its_folder_is_removed_while_it_is_made(tmp_path, monkeypatch):
    real, calls = os.makedirs, []

    def removed_at_once(path, **options):
        real(path, **options)
        if path.endswith("par1"):  # makedirs calls itself for the folders above
            calls.append(path)
            if len(calls) < 3:
                shutil.rmtree(tmp_path / "markers")

    monkeypatch.setattr(os, "makedirs", removed_at_once)
    LocalStorage(str(tmp_path)).put_new("markers/par1/one", b"x", durable=False)
    assert (tmp_path / "markers/par1/one").read_bytes() == b"x" and len(calls) == 3
