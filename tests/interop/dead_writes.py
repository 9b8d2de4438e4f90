"""A write of ours that dies when all its files are made, and is found dead."""

from __future__ import annotations

import os
import time
from unittest.mock import patch

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage, LocalUpload
from mainstem.writers.transaction import Transaction


def files_of(path: str, instant: str) -> list[str]:
    """Every file with the instant's time in its name, but for those of its rollback."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return [file for file in found if instant in os.path.basename(file) and "rollback" not in file]


def dies_with_its_files(table: mainstem.Table, rows: pa.Table, operation: str = "upsert") -> str:
    """Write the rows but for the commit; returns the instant. Its heartbeat has expired."""
    real = LocalStorage.upload

    def dies(storage: LocalStorage, name: str) -> LocalUpload:
        if name.startswith(paths.PREPARED):
            raise MemoryError("as good as dead")
        return real(storage, name)

    with (
        patch.object(LocalStorage, "upload", dies),
        patch.object(Transaction, "abort", lambda txn: None),
        pytest.raises(MemoryError),
    ):
        getattr(table, operation)(rows)
    (dead,) = [i.requested for i in table.timeline() if not i.is_completed]
    table.writer_context().heartbeats.leave(dead)
    os.utime(os.path.join(table.path, paths.heartbeat(dead)), (time.time() - 10_000,) * 2)
    return dead


def markers_of(path: str, instant: str) -> list[str]:
    """Names of the files and folders of its markers; empty if there are none."""
    folder = os.path.join(path, paths.marker_folder(instant))
    return sorted(os.listdir(folder)) if os.path.exists(folder) else []
