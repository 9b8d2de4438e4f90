"""Statistics rows of partitions that an action adds, derived from the files that it wrote.

A file's row describes one file, whose name is unique: rows of concurrent writers never meet. A partition's
row has one key for all writers, and log blocks are merged in the order of requested times, whatever their
completion order. So what a writer adds must give the same result in any order. mainstem's rows hold the
ranges of the action's own files and are *loose* (``isTightBound`` false): merging takes the smaller minimum
and the greater maximum and adds the counts. Loose rows only widen what is there, before and after a
compaction; a clean or a compaction that removes files makes no range narrower. Building the index anew does.
There must be no tombstone among them: the next loose row would replace it along with everything it stood for.
Nor may a row's type differ from that of earlier rows: Java merges into the newer row's type, a null type
holds no range, and Java cannot compare values of two types. So a column keeps its type while partitions have
statistics of it (``fixed_column_types``).

Java's writers replace a partition's row by a tight one, computed from the files that they see under the lock,
mainstem's completed files included. A file completed later, but with a smaller requested time, is not
included. In the order of requested times, its loose row lies *below* the tight row, which then bounds too
little until the next commit to the partition. Java's own writers do the same to one another. mainstem's
queries do not trust the row of a partition whose files were written by overlapping commits
(``readers.skipping.commit_order``).

Hudi: ``HoodieTableMetadataUtil.mergeColumnStatsRecords``, ``convertMetadataToPartitionStatRecords``.
"""

from __future__ import annotations

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.metadata.commits.action import Action
from mainstem.metadata.derive.column_ranges import Range
from mainstem.metadata.derive.statistics_rows import partition_ranges, partition_stats_rows
from mainstem.metadata.metadata_partitions import COLUMN_STATS, PARTITION_STATS
from mainstem.storage import paths


def partition_stats(action: Action) -> pa.Table:
    """Loose rows of the partitions that the action wrote to. Raises ``Unsupported`` if no definition names
    the columns."""
    if action.definitions.get(COLUMN_STATS) is None:
        raise Unsupported(
            f"the table has the index {PARTITION_STATS}, but {paths.INDEX_DEFINITIONS} does not say on which"
            f" columns (it has no entry {COLUMN_STATS}), so the index cannot be maintained; drop it"
        )
    by_partition: dict[str, list[list[Range]]] = {}
    for (data_partition, _), ranges in action.ranges.items():
        by_partition.setdefault(data_partition, []).append(ranges)
    version = action.definitions.stats_version(PARTITION_STATS, action.config.version)
    found = [(name, partition_ranges(ranges)) for name, ranges in by_partition.items()]
    return partition_stats_rows(found, version=version, tight=False)
