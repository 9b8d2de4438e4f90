"""Real folders, which file systems and HDFS have: in an object store a folder is just the files below it.

They are needed where Hudi expects a folder that may be empty, before ``link`` and ``rename`` (which create no
folders), and for content that is built in a private folder and then becomes visible all at once.
"""

from __future__ import annotations

from typing import Protocol, cast

from mainstem.errors import Unsupported
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import has_renames


class _Folders(Protocol):
    def make_folder(self, path: str) -> bool: ...

    def move_folder(self, source: str, target: str) -> None: ...


def has_folders(storage: Storage) -> bool:
    """Whether folders exist of themselves."""
    return has_links(storage) or has_renames(storage)


def make_folder(storage: Storage, path: str) -> bool:
    """Make a folder and its parents; True if it was new. Does nothing on stores without folders."""
    return has_folders(storage) and cast(_Folders, storage).make_folder(path)


def move_folder(storage: Storage, source: str, target: str) -> None:
    """Rename a folder with everything below it, atomically.

    Raises ``FileExistsError`` if the target exists and is not empty, ``Unsupported`` on stores without
    folders.
    """
    if not has_folders(storage):
        raise Unsupported("the storage cannot rename a folder in one step", table=storage.base)
    cast(_Folders, storage).move_folder(source, target)
