"""The interop matrix: its dimensions, its cells, what Hudi does not have, and a pairwise cover.

A cell is one table (where it lies, layout, merge kind, table version, format of log blocks) under one
check. Every table holds base and log rows; every check has an expected answer that is not empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, product

LOCAL, S3A, HDFS = "local", "s3a", "hdfs"
STORES = (LOCAL, S3A, HDFS)
LAYOUTS = ("non-partitioned", "hive-style", "two levels")
MERGES = ("event time", "commit time", "partial update", "deletes", "several ordering fields")
VERSIONS = (9, 8)
BLOCKS = ("avro", "parquet")

SNAPSHOT = "snapshot"
READ_OPTIMIZED = "read-optimized"
TIME_TRAVEL = "time travel"
INCREMENTAL = "incremental"
COMPACTION = "Java compacts"
OWN_LOCK = "same moment, the store's own lock"
ZOOKEEPER = "same moment, ZooKeeper"
JAVA_TABLE = "Java's own table"
READS = (SNAPSHOT, READ_OPTIMIZED, TIME_TRAVEL, INCREMENTAL)
#: in the order in which they run on one table; the last two have tables of their own
CHECKS = (*READS, COMPACTION, OWN_LOCK, ZOOKEEPER, JAVA_TABLE)
CHECK_TEXTS = {
    SNAPSHOT: "Java's snapshot of our table",
    READ_OPTIMIZED: "Java's read-optimized query of our table",
    TIME_TRAVEL: "Java's query of our table as of every instant",
    INCREMENTAL: "Java's incremental queries of our table: each commit alone, and ranges with base files",
    COMPACTION: "Java compacts and cleans our table, both read it, we write on, both read it",
    OWN_LOCK: "Java and we write the same keys of our table at once, under the lock that needs no service:"
    " the file-system lock, on s3a the storage lock",
    ZOOKEEPER: "Java and we write the same keys of our table at once, under ZooKeeper's lock",
    JAVA_TABLE: "Java creates a table, writes and compacts; we write on, both read it; we compact and clean"
    " it; Java writes on and compacts; both read it",
}


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    store: str
    layout: str
    merge: str
    version: int
    blocks: str

    def __str__(self) -> str:
        return f"{self.store}, {self.layout}, {self.merge}, version {self.version}, {self.blocks} blocks"


@dataclass(frozen=True)
class Cell:
    """A kind of table under one check."""

    kind: Kind
    check: str

    def __str__(self) -> str:
        return f"{self.kind}, {self.check}"

    @property
    def values(self) -> tuple[object, ...]:
        return (*(getattr(self.kind, f.name) for f in fields(Kind)), self.check)


def missing_in_hudi(kind: Kind) -> str | None:
    """Why Hudi has no such table; None where it has."""
    if kind.version == 8 and kind.merge == "partial update":
        return (
            "version 8 has no hoodie.table.partial.update.mode: Java ignores IGNORE_DEFAULTS there"
            " (HoodieTableConfig: since version 9)"
        )
    if kind.version == 8 and kind.merge == "several ordering fields":
        return (
            "version 8 has one ordering field (hoodie.table.precombine.field); several became a table"
            " property with version 9 (hoodie.table.ordering.fields)"
        )
    return None


def all_kinds() -> list[Kind]:
    """Every combination of the dimensions, those that Hudi lacks included; store by store."""
    return [Kind(*values) for values in product(STORES, LAYOUTS, MERGES, VERSIONS, BLOCKS)]


def all_cells(stores: Collection[str] = STORES) -> list[Cell]:
    """Every cell of some stores, table by table."""
    kinds = [kind for kind in all_kinds() if kind.store in stores and not missing_in_hudi(kind)]
    return [Cell(kind, check) for kind in kinds for check in CHECKS]


def pairs(cell: Cell) -> Iterator[tuple[int, object, int, object]]:
    """Pairs of values of two dimensions that the cell shows together."""
    values = cell.values
    for one, other in combinations(range(len(values)), 2):
        yield one, values[one], other, values[other]


def pairwise_cover(cells: Sequence[Cell]) -> list[Cell]:
    """Few of the cells, in which every pair of values that any cell has occurs; always the same ones.

    Greedy. Among equally good cells one of a table that is in the cover already: a further check of a
    table costs less than a further table.
    """
    open_pairs = {pair for cell in cells for pair in pairs(cell)}
    chosen: list[Cell] = []
    kinds: set[Kind] = set()
    while open_pairs:

        def worth(cell: Cell) -> tuple[int, bool]:
            return sum(pair in open_pairs for pair in pairs(cell)), cell.kind in kinds

        best = max(cells, key=worth)
        chosen.append(best)
        kinds.add(best.kind)
        open_pairs.difference_update(pairs(best))
    for cell in cells:  # the four reads share a table and what was written to it
        if cell.check in READS and cell.kind in kinds and cell not in chosen:
            chosen.append(cell)
    return [cell for cell in cells if cell in set(chosen)]
