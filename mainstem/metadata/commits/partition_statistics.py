"""Rows of partitions that an action adds to statistics, made of the files that it wrote.

Rows of files describe one file, whose name nobody else uses: the rows of concurrent writers never meet. A
partition's row has one key for all writers, and log blocks are merged in the order of requested times,
whatever that of completion. So what a writer adds must give the same answer in any order. Ours hold the
ranges of the action's own files and are *loose* (``isTightBound`` false): merging them takes the smaller of
the smallest values, the greater of the greatest, and adds the counts. They only ever widen what is there,
below a compaction and above it; nothing that is removed, by a clean or a compaction, makes a range narrower.
An index that is built anew is narrow again. No tombstone may be among them: the next loose row would replace
it together with all that it stood for. Nor may a row of another type than those before it: Java merges into
the newer row's type, a null type holds no range, and values of two types it cannot compare. So a column
keeps its type while partitions have statistics of it (``column_types``).

Java's writers replace a partition's row by a tight one, of the files that they see under the lock: files of
ours that are completed by then are among them. One that completes after it and has the smaller requested time
is not, and in the order of requested times its loose row lies *below* the tight one, which then bounds too
little, until the next commit to the partition. Java's own writers do the same to one another. Queries of ours
do not believe the row of a partition whose files were written by commits that overlap
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
    """Loose rows of the partitions that the action wrote to. ``Unsupported`` where no definition says of
    which columns."""
    if action.definitions.get(COLUMN_STATS) is None:
        raise Unsupported(
            f"the table has the index {PARTITION_STATS}, and {paths.INDEX_DEFINITIONS} does not say on which"
            f" columns (an entry {COLUMN_STATS}): it cannot be maintained; drop it"
        )
    by_partition: dict[str, list[list[Range]]] = {}
    for (data_partition, _), ranges in action.ranges.items():
        by_partition.setdefault(data_partition, []).append(ranges)
    version = action.definitions.stats_version(PARTITION_STATS, action.config.version)
    found = [(name, partition_ranges(ranges)) for name, ranges in by_partition.items()]
    return partition_stats_rows(found, version=version, tight=False)
