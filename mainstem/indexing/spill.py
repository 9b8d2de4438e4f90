"""Runs of sorted keys on disk, where an index does not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.ipc as ipc

from mainstem.metadata.build.bootstrap import Keep


@contextmanager
def spilled(folder: str | None = None) -> Iterator[Keep]:
    """A ``Keep``: writes a run to a file in a temporary folder and gives it back mapped.

    The folder (below ``folder``, by default the machine's for temporary files) is removed at the end; runs
    must not be used after that. A process that is killed leaves it behind.
    """
    with tempfile.TemporaryDirectory(prefix="mainstem-keys-", dir=folder) as place:
        count = 0

        def keep(run: pa.Table) -> pa.Table:
            nonlocal count
            count += 1
            path = f"{place}/{count}.arrow"
            with pa.OSFile(path, "wb") as file, ipc.new_file(file, run.schema) as writer:
                writer.write_table(run)
            return ipc.open_file(pa.memory_map(path)).read_all()

        yield keep
