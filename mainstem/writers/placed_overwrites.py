"""Overwrites on a table without buckets: base files hide what is older, as with buckets (``overwriting``).

Every file group that has files of an instant that completed before T, the time at which the overwrite was
requested, gets an empty base file of T. The rows become base files of new file groups, as all keys are new
when everything older is hidden. What completes after T stays, on top:

- The overwrite looks at every instant that completed after T, as any writer does that inserts
  (``keys_placed_meanwhile``), and here at rows of known keys, too: its rows of these keys go where they live.
- A writer that looked where its keys live before the overwrite completed may have found some in what is
  hidden now. Others hold them for new ones. So if it appended to such file groups it ends as ``KeyTaken``,
  and is written again.
- Two overwrites of one partition have no file group in common: the one that commits second is made again.
- A pending clustering would bring rows back: it is waited for by nobody, and refused. One that completed
  after T put rows into file groups that are not older than T: the overwrite is made again.

**Under a global index of a table with partitions** a row may have a key that lives in a partition which is
not overwritten. The overwrite takes it from there, whatever its ordering value and whether keys move or not:
a delete in that file group, in the same instant. So the overwritten partitions hold the given rows, and a key
has one row. (Java looks for no keys in an overwrite, and leaves two.) Where keys move, a write that completed
after T may also have left out rows that lost against what is hidden now, and nothing tells of them. So such
an overwrite completes only if no other write did since T, and is made again after any: its deletes come after
all that their file groups have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.layout.key_index import GroupOfKey
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import OVERWRITES, CommitMetadata, WriteStat
from mainstem.timeline.instant import CLUSTERING, LOGCOMPACTION, Instant
from mainstem.writers.append import BucketAppender
from mainstem.writers.bulk_insert import BaseFileStat
from mainstem.writers.conflicts import COMPACT, LOG_COMPACT, Place
from mainstem.writers.encode_rows import BucketEncoder, Slab
from mainstem.writers.moved_rows import Gatherer
from mainstem.writers.overwriting import Hidden
from mainstem.writers.placed_rows import PlacingAppender
from mainstem.writers.write_spec import DELETE, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE, WriteSpec


class PlacingOverwriter(PlacingAppender):
    """Rows become base files of new file groups; older file groups get empty ones."""

    follows_updates = True
    follows_since_begin = True
    fills_alone = False
    keeps_batches = False

    def _begin(self, task: str) -> None:
        self._encoder = Gatherer(self._spec, task)
        #: partitions that the rows name
        self.named: set[str] = set()
        #: the merged rows, to be written again under another instant
        self.merged: list[pa.Table] = []
        self._took = False

    @property
    def alone(self) -> bool:
        """Whether it completes only if no other write did since it was requested."""
        return self.places.index.is_global and bool(self._spec.keys.partition_fields)

    def _append(self, slab: Slab) -> None:
        self.named.update(place[0] for place in slab.places)
        super()._append(slab)
        self._gone.clear()  # everything that they could delete is hidden

    def gather(self) -> None:
        """Merges the rows of each key."""
        super().gather()
        if not self.merged:
            user = [name for name in self._encoder.schema.names if name not in META_FIELDS]
            self.merged = [fresh.rows.select(user) for fresh in self._fresh]
        if self.alone and not self._took and self._spec.operation == INSERT_OVERWRITE:
            self._take_keys()

    def _take_keys(self) -> None:
        """Delete the keys of the rows in partitions that stay."""
        self.torn = True  # until all are deleted
        going: dict[tuple[str, int], list[pa.Array]] = {}
        for fresh in self._fresh:
            at, places = self.places.find(None, fresh.keys)
            for number, place in enumerate(places):
                if place[0] not in self.named and (mask := at == number).any():
                    there = (place[0], self._groups.number(place))
                    going.setdefault(there, []).append(fresh.keys.filter(pa.array(mask)))
        mine, self._encoder = self._encoder, BucketEncoder(replace(self._spec, operation=DELETE), "0")
        try:
            for there in sorted(going):
                keys = pa.concat_arrays(going[there])
                rows = pa.table({"": keys})  # a delete needs its key only
                slab = Slab([there], [0, len(keys)], rows, keys, np.ones(len(keys), bool))
                BucketAppender._append(self, slab)
        finally:
            self._encoder = mine
        self._took = True
        self.torn = False

    def give_way_all(self, place: GroupOfKey, requested: str) -> None:
        """Raises ``KeyTaken``."""
        raise self._taken()

    can_hand_over = True
    reads_back = False

    def hand_over(self, later: PlacingAppender) -> None:
        """Gives the merged rows to the appender of a later transaction."""
        self._check_whole()
        for rows in self.merged:
            later.write(rows)

    def put_empty_files(self, named: Iterable[str]) -> None:
        """Empty base files for all older file groups of the partitions that are overwritten."""
        whole = self._spec.operation == INSERT_OVERWRITE_TABLE
        partitions = None if whole else sorted({*named, *self.named})
        empty = (stat for stat in self._closed if isinstance(stat, BaseFileStat) and stat.writes == 0)
        there = {(stat.partition, stat.file_id) for stat in empty}
        self.places.look()
        for partition, file_id in self.places.groups_before(partitions, self._spec.instant):
            if (partition, file_id) not in there:
                self.torn = True
                empty = avro_to_arrow(self._spec.log_schema).empty_table()
                self._put_base(partition, file_id, empty, late=True)
                self.torn = False


class HiddenGroups(Hidden):
    """``Hidden`` by file groups; other overwrites and clusterings of these partitions count as well."""

    whenever = frozenset((LOGCOMPACTION, CLUSTERING))
    of_buckets = False

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        stats: list[WriteStat],
        named: frozenset[str],
        history: str = paths.HISTORY,
        *,
        alone: bool = False,
    ) -> None:
        self._alone = alone
        # Not file groups that got rows in log files: there they lie on top, as those of any write.
        bases = [stat for stat in stats if isinstance(stat, BaseFileStat)]
        whole = spec.operation == INSERT_OVERWRITE_TABLE
        super().__init__(storage, spec.instant, bases, history, partitions=None if whole else named)

    def _named(self, files: Iterable[tuple[str, str]]) -> list[Place]:
        return list(files)

    def _places_of(self, requested: str, metadata: CommitMetadata) -> Iterable[Place]:
        if self._alone and metadata.operation not in (COMPACT, LOG_COMPACT):
            return self._places
        mine, touched = self._partitions, set(metadata.replaced)
        whole = mine is None
        if metadata.operation in OVERWRITES:
            whole = whole or metadata.operation == INSERT_OVERWRITE_TABLE.upper()
            touched = touched | metadata.stats.keys()
        elif not metadata.replaced:
            return super()._places_of(requested, metadata)
        return self._places if whole or not touched.isdisjoint(mine or ()) else ()

    def _planned(self, instant: Instant) -> Iterable[Place]:
        return self._places if instant.action == CLUSTERING else super()._planned(instant)
