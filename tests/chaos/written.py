"""How many rows the commits of a table say that they wrote: what was committed twice counts twice, though a
read, which merges rows of a key, shows it once."""

from __future__ import annotations

from pathlib import Path

from mainstem.timeline.commit_metadata import decode_commit


def rows_written(table: Path) -> int:
    """Of all commits on the active timeline; 0 without a table."""
    total = 0
    for file in (table / ".hoodie/timeline").glob("*_*.deltacommit"):
        stats = decode_commit(file.read_bytes(), path=str(file)).stats
        total += sum(stat["numWrites"] for found in stats.values() for stat in found)
    return total
