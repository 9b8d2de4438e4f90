"""The log files inside the golden tables that Java wrote, metadata table left out."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"


def log_files(table: str) -> Iterator[tuple[str, bytes]]:
    """``(path in the table, bytes)`` of every log file of ``tests/golden/<table>.zip``."""
    with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
        for name in sorted(archive.namelist()):
            if ".log." in name.rsplit("/", 1)[-1] and ".hoodie/metadata" not in name:
                yield name, archive.read(name)
