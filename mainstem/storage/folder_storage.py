"""A folder of a store, seen as a store of its own: Hudi's metadata table lies below its data table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mainstem.limits import SWAPPED_BYTES_MAX
from mainstem.storage import final_files, maps
from mainstem.storage import folders as own_folders
from mainstem.storage.files import file_info
from mainstem.storage.links import has_links, links
from mainstem.storage.location import Location
from mainstem.storage.protocol import Content, FileInfo, Storage, Upload
from mainstem.storage.renames import has_renames, renames
from mainstem.storage.swaps import Tag, has_swaps, swappable

if TYPE_CHECKING:
    import pyarrow as pa


class FolderStorage:
    """``Storage`` whose paths are relative to ``folder`` in ``inner``; ``base`` is the folder's full path."""

    def __init__(self, inner: Storage, folder: str) -> None:
        self.inner = inner
        self.base = f"{inner.base}/{folder}"
        self.links = has_links(inner)
        self.swaps = has_swaps(inner)
        self.renames = has_renames(inner)
        self._folder = folder

    @property
    def location(self) -> Location:
        return self.inner.location.below(self._folder)

    @property
    def width(self) -> int:
        return self.inner.width

    def outer(self, path: str) -> str:
        """The same path, relative to ``inner``."""
        return f"{self._folder}/{path}" if path else self._folder

    def read(self, path: str, *, max_bytes: int) -> bytes:
        return self.inner.read(self.outer(path), max_bytes=max_bytes)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.inner.read_range(self.outer(path), offset, length)

    def open_input(self, path: str) -> pa.NativeFile:
        return self.inner.open_input(self.outer(path))

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        return self.inner.names(self.outer(folder), prefix=prefix, after=after)

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        return self.inner.entries(self.outer(folder), prefix=prefix, after=after)

    def stat(self, path: str) -> FileInfo | None:
        return self.inner.stat(self.outer(path))

    def file_info(self, path: str) -> FileInfo | None:
        return file_info(self.inner, self.outer(path))

    def read_final(self, path: str, *, max_bytes: int) -> bytes:
        return final_files.read_final(self.inner, self.outer(path), max_bytes=max_bytes)

    def open_final(self, path: str, sign: object) -> pa.NativeFile:
        return final_files.open_final(self.inner, self.outer(path), sign)

    def view_final(self, path: str, sign: object) -> memoryview:
        return final_files.view_final(self.inner, self.outer(path), sign)

    def final_ranges(self, path: str, sign: object) -> final_files.FinalRanges | None:
        return final_files.final_ranges(self.inner, self.outer(path), sign)

    def forget_final(self) -> None:
        final_files.forget_final(self.inner)

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        self.inner.put_new(self.outer(path), data, durable=durable)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        self.inner.put(self.outer(path), data, durable=durable)

    def upload(self, path: str) -> Upload:
        return self.inner.upload(self.outer(path))

    def renew(self, path: str) -> None:
        self.inner.renew(self.outer(path))

    def delete(self, path: str) -> bool:
        return self.inner.delete(self.outer(path))

    def create_all(self, paths: Iterable[str]) -> None:
        self.inner.create_all(map(self.outer, paths))

    def delete_all(self, paths: Iterable[str]) -> None:
        self.inner.delete_all(map(self.outer, paths))

    def delete_tree(self, path: str) -> None:
        self.inner.delete_tree(self.outer(path))

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        self.inner.settle(uploads, map(self.outer, folders), durable=durable)

    # -- only where ``inner`` is an object store -----------------------------------------------------

    def read_tagged(self, path: str, *, max_bytes: int = SWAPPED_BYTES_MAX) -> tuple[bytes, Tag] | None:
        return swappable(self.inner).read_tagged(self.outer(path), max_bytes=max_bytes)

    def swap(self, path: str, data: Content, tag: Tag | None) -> Tag | None:
        return swappable(self.inner).swap(self.outer(path), data, tag)

    # -- only where ``inner`` is HDFS ----------------------------------------------------------------

    def rename_new(self, source: str, target: str) -> None:
        renames(self.inner).rename_new(self.outer(source), self.outer(target))

    def rename_over(self, source: str, target: str) -> None:
        renames(self.inner).rename_over(self.outer(source), self.outer(target))

    # -- only where ``inner`` is a file system -------------------------------------------------------

    def view(self, path: str) -> memoryview:
        return maps.view(self.inner, self.outer(path))

    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        return maps.private_copy(self.inner, self.outer(path), size, spill=spill)

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        links(self.inner).link(self.outer(source), self.outer(target), durable=durable)

    def same_file(self, path: str, other: str) -> bool:
        return links(self.inner).same_file(self.outer(path), self.outer(other))

    def rename(self, source: str, target: str, *, settle: Iterable[str] = ()) -> None:
        links(self.inner).rename(self.outer(source), self.outer(target), settle=map(self.outer, settle))

    def make_folder(self, path: str) -> bool:
        return own_folders.make_folder(self.inner, self.outer(path))

    def move_folder(self, source: str, target: str) -> None:
        own_folders.move_folder(self.inner, self.outer(source), self.outer(target))
