"""A word about files that share a name, where Java would leave rows out because of it.

mainstem once gave the files of a commit in several partitions the same names. Java looks up statistics by
bare names, so a range of one file rules out the other. Compactions see all names anyway, and say so.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from mainstem.metadata.partitions import COLUMN_STATS, Kind, kind_of
from mainstem.storage import paths
from mainstem.table.properties import TableConfig


class SharedNamesWarning(UserWarning):
    """Java may leave out rows of this table by its statistics."""


def warn_of_shared_names(base: str, config: TableConfig, files: Mapping[str, Iterable[str]]) -> None:
    """``files``: names by partition. Says nothing of tables without indexes on ranges of files."""
    by_ranges = [
        name
        for name in config.metadata_partitions
        if name == COLUMN_STATS or kind_of(name) == Kind.EXPRESSION_INDEX
    ]
    if not by_ranges or len(files) < 2:
        return
    count = Counter(chain.from_iterable(files.values()))
    shared = [name for name, partitions in count.items() if partitions > 1 and paths.file_id_of(name)]
    if shared:
        rebuild = "; ".join(f"mainstem index rebuild {base} {name}" for name in by_ranges)
        warnings.warn(
            f"table {base}: {len(shared)} names of files, such as {min(shared)}, stand in several partitions,"
            " as earlier releases of mainstem named them. Java takes the statistics of one for the other's"
            f" and may leave out rows. If `mainstem metadata validate {base}` reports 'shared', take them out"
            f" of the indexes: {rebuild}",
            SharedNamesWarning,
            stacklevel=2,
        )
