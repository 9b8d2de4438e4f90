"""A table's storage as pyiceberg's ``FileIO``: what it writes goes where the table's other files go."""

from __future__ import annotations

import io
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

from mainstem.errors import CorruptTable
from mainstem.limits import ICEBERG_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage


def spelt(location: Location, base: str) -> str:
    """The table's place as Iceberg's files name it: ``base`` as the options spell it, on a disk a URL."""
    plain = location.scheme == "file"
    return f"file://{location.path}" if plain else base.rstrip("/")


class StoreIO(FileIO):
    """Files below one table. ``base``: the table's place, with which every location begins."""

    def __init__(self, storage: Storage, base: str) -> None:
        super().__init__({})
        self.storage = storage
        self.base = base

    def path(self, location: str) -> str:
        """The path below the table. Raises ``CorruptTable`` for a location elsewhere."""
        inner = location.removeprefix(f"{self.base}/")
        if inner == location:
            raise CorruptTable(
                f"Iceberg's metadata names {location[:300]!r}, which is not below {self.base}: remove the"
                f" folder {paths.ICEBERG} and publish again",
                path=paths.ICEBERG,
            )
        return paths.inside(inner, source=paths.ICEBERG)

    def location(self, path: str) -> str:
        """The location of a path below the table."""
        return f"{self.base}/{path}"

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self.storage, self.path(location))

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self.storage, self.path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place = location if isinstance(location, str) else location.location
        self.storage.delete(self.path(place))


class _Input(InputFile):
    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self._storage, self._path = storage, path

    def __len__(self) -> int:
        found = self._storage.stat(self._path)
        if found is None:
            raise FileNotFoundError(self._path)
        return found.size

    def exists(self) -> bool:
        return self._storage.stat(self._path) is not None

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._storage.read(self._path, max_bytes=ICEBERG_FILE_BYTES_MAX))


class _Output(OutputFile):
    """Held in memory until it is closed: manifests are of bounded length."""

    def __init__(self, location: str, storage: Storage, path: str) -> None:
        super().__init__(location)
        self._storage, self._path, self._size = storage, path, 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self._storage.stat(self._path) is not None

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._storage, self._path)

    def create(self, overwrite: bool = False) -> Any:
        return _Stream(self)

    def put(self, data: bytes) -> None:
        """The whole file."""
        self._storage.put(self._path, data, durable=True)
        self._size = len(data)


class _Stream(io.BytesIO):
    def __init__(self, target: _Output) -> None:
        super().__init__()
        self._target = target

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self._target.put(self.getvalue())
        super().close()

    def close(self) -> None:
        """Without a block (``with``) the file appears here."""
        if not self.closed:
            self._target.put(self.getvalue())
        super().close()
