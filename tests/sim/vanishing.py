"""The fault that no protocol causes: a file of a committed instant is gone, or has lost its content.

Once a run has ended and all was checked, some committed data files are taken away, and emptied, one at a time
behind everybody's back, and put back. A snapshot must then name the file, or show the rows that it showed
before (a newer base file stands for what was in it).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.storage import paths
from tests.sim.sim_storage import Disk
from tests.sim.world import Violation

FILES = 3
Rows = list[dict[str, Any]]


def files_vanish(disk: Disk, active: set[str], snapshot: Callable[[], Rows], rng: random.Random) -> None:
    """``active``: requested times on the timeline; of archived instants nobody knows the files any more.
    Raises ``Violation``."""
    before = sorted(map(repr, snapshot()))
    found = sorted(path for path in _data_files(disk) if _instant(path) in active)
    for path in rng.sample(found, min(FILES, len(found))):
        folder, name = disk.split(path)
        entries = disk.folders[folder]
        whole = entries[name]
        for what, damaged in (("gone", None), ("empty", disk.empty())):
            del entries[name]
            if damaged is not None:
                entries[name] = damaged
            try:
                rows = sorted(map(repr, snapshot()))
            except CorruptTable as error:
                if name not in str(error):
                    raise Violation("vanished file", f"{path} is {what}: {error}") from error
            else:
                if rows != before:
                    raise Violation(
                        "vanished file", f"{path} is {what}: {len(rows)} of {len(before)} rows, or others"
                    )
            finally:
                entries[name] = whole


def _data_files(disk: Disk) -> list[str]:
    return [
        f"{folder}/{name}" if folder else name
        for folder, entries in disk.folders.items()
        if not folder.startswith(paths.HOODIE)
        for name, inode in entries.items()
        if inode is not None and _instant(name) is not None
    ]


def _instant(path: str) -> str | None:
    name = path.rpartition("/")[2]
    parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
    return None if parsed is None else parsed.instant
