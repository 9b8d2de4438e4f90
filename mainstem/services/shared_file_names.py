"""Warns of files that share a name across partitions, where Java would leave out rows because of it.

Earlier releases of mainstem gave the files of one commit the same name in several partitions. Java looks up
statistics by bare names, so the range of one file can rule out another. Compactions list all names anyway, so
they warn.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import COLUMN_STATS, Kind, kind_of
from mainstem.storage import paths
from mainstem.storage.protocol import Storage


class SharedNamesWarning(UserWarning):
    """Java may leave out rows of this table by its statistics."""


def warn_of_shared_names(storage: Storage, files: Mapping[str, Iterable[str]]) -> None:
    """Warn if files share a name. ``files``: names by partition. Silent without indexes on file ranges."""
    count = Counter(chain.from_iterable(files.values()))
    shared = [name for name, partitions in count.items() if partitions > 1 and paths.file_id_of(name)]
    if not shared:
        return
    by_ranges = [
        name
        for name in load_config(storage).metadata_partitions  # indexes come and go
        if name == COLUMN_STATS or kind_of(name) == Kind.EXPRESSION_INDEX
    ]
    if by_ranges:
        rebuild = "; ".join(f"mainstem index rebuild {storage.base} {name}" for name in by_ranges)
        warnings.warn(
            f"table {storage.base}: {len(shared)} names of files, such as {min(shared)}, stand in several"
            " partitions, as earlier releases of mainstem named them. Java takes the statistics of one for"
            f" the other's and may leave out rows. If `mainstem metadata validate {storage.base}` reports"
            f" 'shared', take them out of the indexes: {rebuild}",
            SharedNamesWarning,
            stacklevel=2,
        )
