"""Files that never change again, which are those of completed instants.

An object store keeps what it has fetched of them (``storage.kept_reads``), so that a footer or a small file
is fetched once per open table. On a file system, the operating system does that. ``sign``: for names that may
come again with other content, what tells the file of now from an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast

from mainstem.storage import maps
from mainstem.storage.protocol import Storage

if TYPE_CHECKING:
    import pyarrow as pa


class FinalRanges(Protocol):
    """A final file that is read by ranges."""

    size: int

    def part(self, offset: int, length: int) -> memoryview:
        """These bytes."""

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch (offset, length) together, for the ``part`` calls that follow."""


class _Keeping(Protocol):
    def read_final(self, path: str, *, max_bytes: int) -> bytes: ...

    def open_final(self, path: str, sign: object) -> pa.NativeFile: ...

    def view_final(self, path: str, sign: object) -> memoryview: ...

    def final_ranges(self, path: str, sign: object) -> FinalRanges | None: ...

    def forget_final(self) -> None: ...


def _keeping(storage: Storage) -> _Keeping | None:
    return cast(_Keeping, storage) if hasattr(storage, "open_final") else None


def read_final(storage: Storage, path: str, *, max_bytes: int) -> bytes:
    """``Storage.read`` of a final file."""
    store = _keeping(storage)
    if store is None:
        return storage.read(path, max_bytes=max_bytes)
    return store.read_final(path, max_bytes=max_bytes)


def open_final(storage: Storage, path: str, sign: object = None) -> pa.NativeFile:
    """``Storage.open_input`` of a final file."""
    store = _keeping(storage)
    return storage.open_input(path) if store is None else store.open_final(path, sign)


def view_final(storage: Storage, path: str, sign: object = None) -> memoryview:
    """``maps.view`` of a final file."""
    store = _keeping(storage)
    return maps.view(storage, path) if store is None else store.view_final(path, sign)


def final_ranges(storage: Storage, path: str, sign: object = None) -> FinalRanges | None:
    """A final file to be read by ranges; None where files are mapped."""
    store = _keeping(storage)
    return None if store is None else store.final_ranges(path, sign)


def forget_final(storage: Storage) -> None:
    """Drop what is kept: a file was gone or damaged, and may be restored under the same name."""
    store = _keeping(storage)
    if store is not None:
        store.forget_final()
