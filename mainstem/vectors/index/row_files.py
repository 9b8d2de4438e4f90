"""The files of a version while they are written; only a piece of their rows is in memory."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.storage.protocol import Storage, Upload
from mainstem.vectors.index.version_manifest import StoredFile
from mainstem.vectors.index.versions import KEYS


class FileSink:
    """A growing file that keeps its checksum; pyarrow can write to it."""

    closed = False

    def __init__(self, storage: Storage, path: str) -> None:
        self.name = path.rpartition("/")[2]
        self.sink: Upload = storage.upload(path)
        self._checksum = 0

    def write(self, data: Any) -> int:
        """Append bytes; return their number."""
        view = memoryview(data).cast("B")
        self.sink.append([view])
        self._checksum = zlib.crc32(view, self._checksum)
        return view.nbytes

    def tell(self) -> int:
        """Number of bytes written."""
        return self.sink.size

    def flush(self) -> None:
        """Does nothing: no bytes are held back."""

    @property
    def file(self) -> StoredFile:
        """The file as written so far."""
        return StoredFile(self.name, self.sink.size, self._checksum)


class RowFiles:
    """The two files of a set of rows: keys as Arrow, vectors as plain numbers."""

    def __init__(self, storage: Storage, folder: str, name: str) -> None:
        self.count = 0
        self._keys = FileSink(storage, f"{folder}/{name}.keys")
        try:
            self._vectors = FileSink(storage, f"{folder}/{name}.vectors")
            self._arrow = pa.ipc.new_file(self._keys, KEYS)
        except BaseException:
            self._keys.sink.close(durable=False)
            raise

    def add(self, keys: pa.Table, vectors: np.ndarray) -> None:
        """Append rows with their vectors, which must have the element type."""
        for batch in keys.combine_chunks().to_batches():
            self._arrow.write_batch(batch)
        self._vectors.write(np.ascontiguousarray(vectors))
        self.count += len(vectors)

    @property
    def sinks(self) -> list[Upload]:
        """The sinks of both files; the caller settles them."""
        return [self._keys.sink, self._vectors.sink]

    def end(self) -> tuple[StoredFile, StoredFile]:
        """Finish writing, and return both files; the caller still closes ``sinks``."""
        self._arrow.close()
        return self._keys.file, self._vectors.file
