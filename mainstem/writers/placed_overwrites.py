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
- Where keys move, a write that completed after T may have left out rows that lost against what is hidden now.
  Nothing tells of them: the overwrite is made again after any write.

Under a global index rows may have to hide keys of other partitions. That is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.layout.key_index import GroupOfKey
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import OVERWRITES, CommitMetadata, WriteStat
from mainstem.timeline.instant import CLUSTERING, LOGCOMPACTION, Instant
from mainstem.truetime.seams import Randomness
from mainstem.writers.bulk_insert import BaseFileStat
from mainstem.writers.conflicts import COMPACT, LOG_COMPACT, Place
from mainstem.writers.encode_rows import Slab
from mainstem.writers.moved_rows import Gatherer
from mainstem.writers.overwriting import Hidden
from mainstem.writers.placed_rows import KeyPlaces, PlacingAppender
from mainstem.writers.write_spec import INSERT_OVERWRITE_TABLE, WriteSpec


class PlacingOverwriter(PlacingAppender):
    """Rows become base files of new file groups; older file groups get empty ones."""

    follows_updates = True
    follows_since_begin = True
    keeps_batches = False

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        token: str,
        places: KeyPlaces,
        random: Randomness,
        known_partitions: set[str] | None = None,
        surely_alive: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(storage, spec, token, places, random, known_partitions, surely_alive)
        self._encoder = Gatherer(spec, token.split("-", 1)[0])
        #: partitions that the rows name
        self.named: set[str] = set()
        #: the merged rows, to be written again under another instant
        self.merged: list[pa.Table] = []

    def _append(self, slab: Slab) -> None:
        if self.places.index.is_global and self._spec.keys.partition_fields:
            raise Unsupported(
                f"operation {self._spec.operation!r} with rows under {self.places.index.kind}: their keys may"
                " lie in other partitions. Use truncate or delete_partition, then upsert",
                table=self._spec.base,
                instant=self._spec.instant,
            )
        self.named.update(place[0] for place in slab.places)
        super()._append(slab)
        self._gone.clear()  # everything that they could delete is hidden

    def gather(self) -> None:
        """Merges the rows of each key."""
        super().gather()
        if not self.merged:
            user = [name for name in self._encoder.schema.names if name not in META_FIELDS]
            self.merged = [fresh.rows.select(user) for fresh in self._fresh]

    def give_way_all(self, place: GroupOfKey, requested: str) -> None:
        """Raises ``KeyTaken``."""
        raise self._taken()

    def put_empty_files(self, named: Iterable[str]) -> None:
        """Empty base files for all older file groups of the partitions that are overwritten."""
        whole = self._spec.operation == INSERT_OVERWRITE_TABLE
        partitions = None if whole else sorted({*named, *self.named})
        there = {(stat.partition, stat.file_id) for stat in self._closed if stat.writes == 0}
        self.places.look()
        for partition, file_id in self.places.groups_before(partitions, self._spec.instant):
            if (partition, file_id) not in there:
                self.torn = True
                empty = avro_to_arrow(self._spec.log_schema).empty_table()
                self._put_base(partition, file_id, empty)
                self.torn = False


class HiddenGroups(Hidden):
    """``Hidden`` by file groups; other overwrites and clusterings of these partitions count as well."""

    whenever = frozenset((LOGCOMPACTION, CLUSTERING))

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        stats: list[WriteStat],
        named: frozenset[str],
        history: str = paths.HISTORY,
        *,
        keys_move: bool = False,
    ) -> None:
        self._keys_move = keys_move
        # Not file groups that got rows in log files: there they lie on top, as those of any write.
        bases = [stat for stat in stats if isinstance(stat, BaseFileStat)]
        super().__init__(storage, spec.instant, bases, history)
        whole = spec.operation == INSERT_OVERWRITE_TABLE
        self._partitions = None if whole else named | {stat.partition for stat in stats}
        if not self._places:  # what replaced all that it would hide is found nevertheless
            self._places = {(partition, "") for partition in self._partitions or ("",)}

    def _named(self, files: Iterable[tuple[str, str]]) -> list[Place]:
        return list(files)

    def _places_of(self, requested: str, metadata: CommitMetadata) -> Iterable[Place]:
        if self._keys_move and metadata.operation not in (COMPACT, LOG_COMPACT):
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
