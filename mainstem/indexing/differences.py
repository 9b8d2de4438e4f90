"""The report of ``validate``: where the metadata table differs from the data, and where it is just wider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Kinds of differences, with what each means. They make an answer wrong, a read slower, or Java stop.
DIFFERENCES = {
    "missing": "the data has it, the index has not",
    "surplus": "the index names what is not there",
    "different": "the index says something else than the data",
    "shared": "files of several partitions have this name: Java takes the range of one for another's",
    "misplaced": "the row lies in another file group than its key's hash names",
    "ambiguous": "a record key lies in several file groups, of which a global index can name one",
    "unlisted": "a folder of the metadata table that no list in hoodie.properties names",
    "no folder": "hoodie.properties lists a partition that the metadata table has not",
    "undefined": "hoodie.properties lists an index that has no definition",
    "stale": "listed as being built, and no pending indexing action builds it",
}
#: The kinds about which indexes exist rather than what is in them: running builds and drops look like this.
OF_LISTS = ("no folder", "stale", "undefined", "unlisted")
#: Counted apart: correct, though not as narrow as possible.
HARMLESS = {
    "loose": "statistics are wider than the data, or not known",
    "extra": "an index names keys or partitions that are gone; look-ups verify rows",
    "unranked": "no row of a file whose name another partition has, too; such files are not skipped",
    "left over": "statistics of a column that the index is not on; nobody reads them, reindex takes them out",
    "older": "no row of a file that only older views read; such files are not skipped",
}
KEPT_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """One of ``DIFFERENCES``. ``partition``: that of the metadata table; ``key``: which row, for people."""

    partition: str
    kind: str
    key: str
    detail: str


@dataclass
class PartitionReport:
    """The report on one partition of the metadata table.

    ``rows``: number of stored rows; ``counts`` is complete; ``differences`` holds the first ``kept``.
    """

    partition: str
    rows: int = 0
    kept: int = KEPT_DEFAULT
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    refused: str | None = None

    def add(self, kind: str, key: str, detail: str) -> None:
        """Add one difference, or one finding that is counted apart."""
        self.counts[kind] += 1
        if kind in DIFFERENCES and len(self.differences) < self.kept:
            self.differences.append(Difference(self.partition, kind, key, detail))

    def add_all(self, kind: str, items: Iterable[tuple[str, str]]) -> None:
        """``add`` of many (key, detail)."""
        for key, detail in items:
            self.add(kind, key, detail)

    @property
    def wrong(self) -> int:
        """Number of differences."""
        return sum(count for kind, count in self.counts.items() if kind in DIFFERENCES)


@dataclass(frozen=True)
class MetadataReport:
    """The answer of ``validate_metadata``. ``instant``: completion time of the newest instant that was
    compared, "" for an empty table."""

    instant: str
    partitions: tuple[PartitionReport, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no difference, and every partition could be compared."""
        return all(not p.wrong and p.refused is None for p in self.partitions)

    @property
    def differences(self) -> list[Difference]:
        """Those that were kept, of all partitions."""
        return [d for p in self.partitions for d in p.differences]
