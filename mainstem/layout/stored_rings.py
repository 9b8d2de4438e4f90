"""The rings of partitions under consistent hashing, as they are stored (ConsistentBucketIndexUtils).

``<partition>/<instant>.hashing_meta`` is the ring that the clustering of this instant made; it counts once
the instant is completed, and ``<instant>.commit`` is made a moment later. ``00000000000000`` is the ring
that a partition begins with, made by whoever writes to it first: all make the same, and one wins.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from mainstem.errors import CorruptTable, Invalid
from mainstem.layout.hash_rings import FIRST, Ring, first_ring, parsed_ring
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import load_timeline
from mainstem.timeline.instant import REPLACECOMMIT


class Completed:
    """Which clusterings are completed, by the timeline and, where that knows nothing of one, the archive."""

    def __init__(self, storage: Storage, history: str) -> None:
        self._storage, self._history = storage, history

    def has(self, time: str) -> bool:
        """Whether the instant is completed. One that died, or was taken back, leaves its ring."""
        known = self._timeline.get(time)
        return time in self._archived if known is None else known

    @cached_property
    def _timeline(self) -> dict[str, bool]:
        return {i.requested: i.is_completed for i in load_timeline(self._storage).instants}

    def again(self) -> Completed:
        """As it is now."""
        return Completed(self._storage, self._history)

    @property
    def pending(self) -> frozenset[str]:
        """Those that are on the timeline, and not completed."""
        return frozenset(time for time, done in self._timeline.items() if not done)

    @cached_property
    def _archived(self) -> frozenset[str]:
        return frozenset(Archive.load(self._storage, self._history).of_action(REPLACECOMMIT))


def newest_ring(storage: Storage, partition: str, completed: Completed) -> Ring | None:
    """The ring by which a partition is written now; None if it has none yet.

    Raises ``CorruptTable`` for a file that holds no ring, and for a ring that is marked as committed by a
    clustering of which nobody knows.
    """
    names = storage.names(paths.rings_of(partition))
    for time in sorted(filter(None, map(paths.ring_time, names)), reverse=True):
        if time == FIRST or completed.has(time):
            return _read(storage, partition, time)
        if f"{time}.commit" in names and time not in completed.pending:
            completed = completed.again()
            if completed.has(time):
                return _read(storage, partition, time)
            path = paths.ring(partition, time)
            raise CorruptTable(
                f"{path} is marked as committed, but neither timeline nor archive know its clustering: was"
                " the table restored to before it? Then delete this file and the one beside it that ends with"
                " .commit; nothing was written",
                path=path,
                table=storage.base,
            )
    return None


def _read(storage: Storage, partition: str, time: str) -> Ring:
    path = paths.ring(partition, time)
    try:
        return parsed_ring(storage.read(path, max_bytes=PROPERTIES_BYTES_MAX), partition)
    except ValueError as error:
        raise CorruptTable(
            f"{path} does not say where keys of the partition lie: {error}", path=path, table=storage.base
        ) from error


def put_ring(storage: Storage, ring: Ring) -> None:
    """Put the ring of a clustering durably; whoever executes its plan makes the same."""
    create_once(storage, paths.ring(ring.partition, ring.instant), ring.encoded(), durable=True)
    storage.settle([], [paths.rings_of(ring.partition)], durable=True)


def forget_rings(storage: Storage, partition: str, times: Container[str]) -> None:
    """Remove, durably, the rings of clusterings that a restore took back."""
    folder = paths.rings_of(partition)
    found = filter(None, map(paths.ring_time, storage.names(folder)))
    gone = sorted(time for time in found if time in times)
    for time in gone:
        storage.delete(f"{folder}/{time}.commit")
        storage.delete(paths.ring(partition, time))
    if gone:
        storage.settle([], [folder], durable=True)


def mark_committed(storage: Storage, ring: Ring) -> None:
    """Tell Java's writers that a ring counts, once its clustering is completed: their way is shorter then."""
    with suppress(OSError):
        create_once(storage, f"{paths.rings_of(ring.partition)}/{ring.instant}.commit")


class Rings:
    """The rings that one transaction, or one task of it, goes by: each is read when it is first needed.

    ``count``: ranges of a partition that has none yet. Whether they still stand is looked at under the lock
    (``writers/rings_meanwhile.py``).
    """

    def __init__(self, storage: Storage, count: int, history: str) -> None:
        self._storage = storage
        self._completed = Completed(storage, history)
        self._count = count
        self._rings: dict[str, Ring] = {}

    def of(self, partition: str) -> Ring:
        """A partition's ring; made, durably, if it has none."""
        found = self._rings.get(partition)
        if found is None:
            ring = newest_ring(self._storage, partition, self._completed) or self._made(partition)
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
        found = newest_ring(self._storage, partition, self._completed)
        if found is None:
            raise Invalid(f"the ring of partition {partition!r} is gone", table=self._storage.base)
        return found
