"""Questions about what can only be a file, never a folder."""

from __future__ import annotations

from collections.abc import Callable

from mainstem.storage.protocol import FileInfo, Storage


def file_info(storage: Storage, path: str) -> FileInfo | None:
    """``Storage.stat`` of a name that no folder has: an object store then answers by one request."""
    asked: Callable[[str], FileInfo | None] | None = getattr(storage, "file_info", None)
    return storage.stat(path) if asked is None else asked(path)
