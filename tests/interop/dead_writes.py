"""A write of ours that dies when all its files are made, and is found dead."""

from __future__ import annotations

import os
import signal
import time
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage, LocalUpload
from mainstem.writers.transaction import Transaction


def files_of(path: str, instant: str) -> list[str]:
    """Every file with the instant's time in its name, but for those of its rollback, and for what only
    mainstem knows of (``.hoodie/.mainstem``)."""
    mine = os.path.join(path, paths.OWN)
    walked = os.walk(path)
    found = (os.path.join(at, name) for at, _, names in walked if not at.startswith(mine) for name in names)
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


def dies_at(path: str, rows: pa.Table, call: str, of: str, nth: int = 1) -> None:
    """Overwrite in a process of its own, which is killed before its nth ``call`` of storage on a path that
    has ``of`` in it."""
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        return
    try:
        table, real, left = mainstem.open_table(path), getattr(LocalStorage, call), [nth]

        def dying(storage: LocalStorage, *given: Any, **named: Any) -> Any:
            left[0] -= any(of in str(one) for one in given)
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(storage, *given, **named)

        setattr(LocalStorage, call, dying)
        table.insert_overwrite(rows)
    finally:
        os._exit(1)


def markers_of(path: str, instant: str) -> list[str]:
    """Names of the files and folders of its markers; empty if there are none."""
    folder = os.path.join(path, paths.marker_folder(instant))
    return sorted(os.listdir(folder)) if os.path.exists(folder) else []
