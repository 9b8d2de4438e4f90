"""Runs of sorted keys on disk, for indexes that do not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.ipc as ipc

from mainstem.metadata.derive.bootstrap import Keep


@contextmanager
def spilled(folder: str | None = None) -> Iterator[Keep]:
    """A ``Keep``: writes a run to a file in a temporary folder and reads its pieces when they are asked for.

    The folder (below ``folder``, by default the machine's for temporary files) is removed at the end; runs
    must not be used after that. A process that is killed leaves it behind.
    """
    with tempfile.TemporaryDirectory(prefix="mainstem-keys-", dir=folder) as place:
        count = 0

        def keep(pieces: Sequence[pa.RecordBatch]) -> Callable[[int], pa.RecordBatch]:
            nonlocal count
            count += 1
            path = f"{place}/{count}.arrow"
            with pa.OSFile(path, "wb") as file, ipc.new_file(file, pieces[0].schema) as writer:
                for piece in pieces:
                    writer.write_batch(piece)
            return lambda number: _read(path, number)

        yield keep


def _read(path: str, number: int) -> pa.RecordBatch:
    with pa.OSFile(path, "rb") as file:
        return ipc.open_file(file).get_batch(number)
