"""Explains what a search did, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SearchExplanation:
    """What a search did.

    ``exact``: ``compared`` vectors were compared one by one, for the reason ``why``. Otherwise version
    ``version`` of the index ``index`` was searched, ``clusters`` of its ``clusters_total`` in full. It holds
    ``rows`` vectors, of which ``masked`` are superseded, deleted or not in this snapshot; the ``fresh``
    vectors that it lacks were compared one by one. ``slices``: number of file slices by their relation to the
    version; for ``slices_cached`` the differences were known from earlier searches. ``passed``: newer
    versions that were skipped as damaged, and what is wrong with them.
    """

    column: str
    metric: str
    k: int
    queries: int
    exact: bool
    why: str = ""
    index: str | None = None
    version: int | None = None
    clusters: int = 0
    clusters_total: int = 0
    rows: int = 0
    masked: int = 0
    fresh: int = 0
    compared: int = 0
    slices: Mapping[str, int] = field(default_factory=dict)
    slices_cached: int = 0
    passed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as a dictionary, for programs."""
        return asdict(self)

    def __str__(self) -> str:
        asked = f"{self.queries} queries" if self.queries != 1 else "1 query"
        lines = [f"{asked} for {self.k} rows each, {self.column} by {self.metric}"]
        if self.exact:
            lines.append(f"  exact: {self.compared} vectors compared ({self.why})")
            return "\n".join(lines)
        lines.append(
            f"  index {self.index}, version {self.version}: {self.clusters} of {self.clusters_total}"
            f" clusters, {self.rows} vectors, {self.masked} of them masked"
        )
        lines += [f"  {why}" for why in self.passed]
        stand = ", ".join(f"{count} {kind}" for kind, count in self.slices.items() if count)
        lines.append(f"  file slices: {stand or 'none'}; {self.slices_cached} known from earlier searches")
        lines.append(f"  fresh: {self.fresh} vectors compared one by one")
        return "\n".join(lines)
