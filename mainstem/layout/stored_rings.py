"""The rings of partitions under consistent hashing, as they are stored (ConsistentBucketIndexUtils).

``<partition>/<instant>.hashing_meta`` is the ring that the clustering of this instant made; it counts once
the instant is completed, of which ``<instant>.commit`` stays when the instant is archived. ``00000000000000``
is the ring that a partition begins with, made by whoever writes to it first: all make the same, and one wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mainstem.errors import CorruptTable, Invalid
from mainstem.layout.hash_rings import FIRST, Ring, first_ring, parsed_ring
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import load_timeline

_COMMIT = ".commit"


def newest_ring(storage: Storage, partition: str, history: str = paths.HISTORY) -> Ring | None:
    """The ring by which a partition is written now; None if it has none yet.

    Raises ``CorruptTable`` for a file that holds no ring.
    """
    names = storage.names(paths.rings_of(partition))
    marked = {name.removesuffix(_COMMIT) for name in names if name.endswith(_COMMIT)}
    for time in sorted(filter(None, map(paths.ring_time, names)), reverse=True):
        if time == FIRST or time in marked or _is_completed(storage, time, history):
            return _read(storage, partition, time)
    return None


def _is_completed(storage: Storage, time: str, history: str) -> bool:
    """Whether the clustering is. One that died, or was rolled back, leaves its ring."""
    found = [i for i in load_timeline(storage).instants if i.requested == time]
    if found:
        return any(i.is_completed for i in found)
    return time in Archive.load(storage, history).completed(time)["instantTime"].to_pylist()


def _read(storage: Storage, partition: str, time: str) -> Ring:
    path = paths.ring(partition, time)
    try:
        return parsed_ring(storage.read(path, max_bytes=PROPERTIES_BYTES_MAX), partition)
    except ValueError as error:
        raise CorruptTable(
            f"{path} does not say where keys of the partition lie: {error}", path=path, table=storage.base
        ) from error


class Rings:
    """The rings that one transaction, or one task of it, goes by: each is read when it is first needed.

    ``count``: ranges of a partition that has none yet. Whether they still stand is looked at under the lock
    (``writers/rings_meanwhile.py``).
    """

    def __init__(self, storage: Storage, count: int, history: str) -> None:
        self._storage = storage
        self._history = history
        self._count = count
        self._rings: dict[str, Ring] = {}

    def of(self, partition: str) -> Ring:
        """A partition's ring; made, durably, if it has none."""
        found = self._rings.get(partition)
        if found is None:
            ring = newest_ring(self._storage, partition, self._history) or self._made(partition)
            found = self._rings[partition] = ring
        return found

    def find(
        self, hashes: np.ndarray, codes: np.ndarray, partitions: Sequence[str]
    ) -> tuple[np.ndarray, int]:
        """For each row the node of its partition's ring, int32, and a number that none reaches."""
        found, most = np.zeros(len(hashes), np.int32), 1
        for code, partition in enumerate(partitions):
            rows = np.flatnonzero(codes == code) if len(partitions) > 1 else slice(None)
            ring = self.of(partition)
            found[rows] = ring.find(hashes[rows])
            most = max(most, len(ring.values))
        return found, most

    def _made(self, partition: str) -> Ring:
        ring = first_ring(partition, self._count)
        folder = paths.rings_of(partition)
        if create_once(self._storage, paths.ring(partition, FIRST), ring.encoded(), durable=True):
            parents = [folder.rsplit("/", up)[0] for up in range(folder.count("/") + 1)]
            self._storage.settle([], parents, durable=True)
            return ring
        found = newest_ring(self._storage, partition, self._history)
        if found is None:
            raise Invalid(f"the ring of partition {partition!r} is gone", table=self._storage.base)
        return found
