"""Seeded bugs of vector indexes: what a version says that it was made of, and what a search takes for
superseded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mainstem.readers.queries.snapshot import scan
from mainstem.vectors.index.snapshot_rows import Reading, Source
from mainstem.vectors.index.version_manifest import StoredFile
from mainstem.vectors.search import delta
from tests.sim.mutants.mutant import Patch, seeded_bug


@seeded_bug("a version covers the files that are there when its rows have been read", "vectors")
def covered_files_listed_late() -> list[Patch]:
    """Rows committed in between are taken for rows of the version, and found by nobody."""
    real = Reading.source

    def source(self: Any, rows: int, keys: StoredFile, vectors: StoredFile) -> Source:
        now = {(split.partition, split.file_id): split for split in scan(self._storage).splits()}
        self._splits = [
            replace(split, log_files=now.get((split.partition, split.file_id), split).log_files)
            for split in self._splits
        ]
        return real(self, rows, keys, vectors)

    return [patch.object(Reading, "source", source)]


@seeded_bug("rows that log files have superseded since a version was made are still found", "vectors")
def log_files_mask_nothing() -> list[Patch]:
    real = delta._grown

    def grown(*given: Any) -> delta.Delta:
        before = given[4]
        return replace(real(*given), masked=before.masked)

    return [patch.object(delta, "_grown", grown)]
