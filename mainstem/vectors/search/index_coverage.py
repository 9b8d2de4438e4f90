"""How much of a table the newest version of a vector index covers as it is now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mainstem.errors import Invalid
from mainstem.readers.skipping.chooser import Use
from mainstem.storage.protocol import Storage
from mainstem.vectors.index.snapshots import Snapshot
from mainstem.vectors.index.versions import newest_version, read_indexes
from mainstem.vectors.search.delta import Kind, kind_of


@dataclass(frozen=True)
class Coverage:
    """``version``: the newest one, None if there is none yet; ``rows``: its number of vectors.

    ``slices``: the table's file slices by what they are to it: ``unchanged`` (its vectors stand), ``log files
    added`` and ``compared`` (a search looks at what changed), ``not covered`` (a search compares all rows).
    """

    name: str
    column: str
    version: int | None
    rows: int
    slices: Mapping[str, int]

    @property
    def share(self) -> float:
        """The share of file slices that are unchanged, from 0 to 1; 1 for a table without any."""
        total = sum(self.slices.values())
        return self.slices.get(Kind.SAME.value, 0) / total if total else 1.0

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "share": self.share}


def coverage(storage: Storage, name: str, *, damaged: str, use: Use) -> Coverage:
    """Of the index with this name. Reads its manifest and the table's listing, no vector. Raises ``Invalid``
    if there is no such vector index."""
    index = read_indexes(storage).called(name)
    if index is None:
        raise Invalid(f"no vector index is called {name!r}", table=storage.base)
    version = newest_version(storage, index, damaged=[])
    covered = {} if version is None else {(s.partition, s.file_id): s for s in version.slices}
    splits = Snapshot.load(storage, None, damaged=damaged, use=use).splits
    kinds = Counter(kind_of(split, covered.get((split.partition, split.file_id))).value for split in splits)
    return Coverage(
        name, index.column, None if version is None else version.number,
        0 if version is None else version.rows, dict(sorted(kinds.items())),
    )  # fmt: skip
