"""What an ingestion did, and how far it is behind."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class IngestProgress:
    """After a commit. ``rows``, ``bytes`` and ``dead_letters`` are those of the commit, ``total_rows`` and
    ``commits`` those of this process. ``positions``: partition (or file) -> where it is read up to, ``lag``:
    records that wait in each partition that is this process's; bytes of a record are those of its value. Of
    PostgreSQL positions are LSNs, and the lag is bytes of its log."""

    source: str
    instant: str
    completion_time: str | None
    rows: int
    bytes: int
    dead_letters: int
    total_rows: int
    commits: int
    seconds: float
    positions: dict[str, int] = field(default_factory=dict)
    lag: dict[str, int] = field(default_factory=dict)

    @property
    def behind(self) -> int:
        """Records that wait."""
        return sum(self.lag.values())

    def describe(self) -> str:
        """One line for a log."""
        dead = f", {self.dead_letters:,} to dead letters" if self.dead_letters else ""
        return (
            f"{self.source}: {self.rows:,} rows{dead} committed as {self.instant} in {self.seconds:.2f} s,"
            f" {self.behind:,} records behind"
        )
