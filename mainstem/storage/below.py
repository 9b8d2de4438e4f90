"""A folder of a storage as a storage of its own: Hudi's metadata table is a table below another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mainstem.storage.protocol import FileInfo, Item, LogSink, Result, Storage


class FolderStorage:
    """``Storage`` whose paths are relative to ``folder`` of ``inner``; ``base`` is the whole path of it."""

    def __init__(self, inner: Storage, folder: str) -> None:
        self.inner = inner
        self.base = f"{inner.base}/{folder}"
        self.links = inner.links
        self.width = inner.width
        self._folder = folder

    def outer(self, path: str) -> str:
        """The path as ``inner`` has it."""
        return f"{self._folder}/{path}" if path else self._folder

    def read(self, path: str, *, max_bytes: int) -> bytes:
        return self.inner.read(self.outer(path), max_bytes=max_bytes)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.inner.read_range(self.outer(path), offset, length)

    def view(self, path: str) -> memoryview:
        return self.inner.view(self.outer(path))

    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        return self.inner.private(self.outer(path), size, spill=spill)

    def open_input(self, path: str):
        return self.inner.open_input(self.outer(path))

    def stat(self, path: str) -> FileInfo | None:
        return self.inner.stat(self.outer(path))

    def names(self, folder: str) -> list[str]:
        return self.inner.names(self.outer(folder))

    def entries(self, folder: str) -> list[FileInfo]:
        return self.inner.entries(self.outer(folder))

    def create(self, path: str, data: bytes | Sequence[bytes | memoryview], *, durable: bool) -> None:
        self.inner.create(self.outer(path), data, durable=durable)

    def open_sink(self, path: str) -> LogSink:
        return self.inner.open_sink(self.outer(path))

    def settle(self, sinks: Sequence[LogSink], folders: Iterable[str], *, durable: bool) -> None:
        self.inner.settle(sinks, map(self.outer, folders), durable=durable)

    def side_by_side(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        ended: Callable[[int], None] | None = None,
    ) -> list[Result]:
        return self.inner.side_by_side(work, items, ended)

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        self.inner.link(self.outer(source), self.outer(target), durable=durable)

    def same_file(self, path: str, other: str) -> bool:
        return self.inner.same_file(self.outer(path), self.outer(other))

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(self.outer(source), self.outer(target))

    def move_folder(self, source: str, target: str) -> None:
        self.inner.move_folder(self.outer(source), self.outer(target))

    def touch(self, path: str) -> None:
        self.inner.touch(self.outer(path))

    def delete(self, path: str) -> bool:
        return self.inner.delete(self.outer(path))

    def delete_folder(self, path: str) -> None:
        self.inner.delete_folder(self.outer(path))

    def make_folder(self, path: str) -> bool:
        return self.inner.make_folder(self.outer(path))

    def sync_folder(self, path: str) -> None:
        self.inner.sync_folder(self.outer(path))

    def sync_folders(self, paths: Iterable[str]) -> None:
        self.inner.sync_folders(map(self.outer, paths))
