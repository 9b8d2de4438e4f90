"""Scenarios ``watched...``: others, whose timelines are watched instead of listed (``storage.watches``).

On real disks only long timelines are; here each is from its second listing on. A watch tells every change of
a name once it was made, whoever made it. Now and then it has lost something, and says so.
"""

from __future__ import annotations

from tests.sim.long_world import Long
from tests.sim.publishers import Publishers
from tests.sim.sim_storage import SimStorage
from tests.sim.simulation import Simulation
from tests.sim.tables_world import Tables

#: how often a watch has lost something when it is asked
LOST = 0.02


class SimWatch:
    """``storage.watches.Watch`` of a simulated folder."""

    def __init__(self, storage: WatchingStorage, folder: str) -> None:
        self._storage, self._folder = storage, folder
        self._watched = storage.disk.folders.get(folder)
        self._told: list[tuple[str, bool]] = []
        storage.disk.watchers.append(self._hear)
        self.names = sorted(self._watched or ())

    def _hear(self, event: str, path: str, source: str) -> None:
        folder, name = self._storage.disk.split(path)
        if folder == self._folder and event in ("created", "linked", "replaced", "deleted"):
            self._told.append((name, event != "deleted"))

    def stands(self) -> bool:
        return self._storage.is_the_folder(self._folder, self._watched)

    def news(self) -> list[tuple[str, bool]] | None:
        told, self._told = self._told, []
        return None if self._storage.loses() else told


class WatchingStorage(SimStorage):
    """A disk that tells what happens in a folder."""

    watched_from = 1

    def watch(self, folder: str) -> SimWatch | None:
        return self._call("watch", folder, lambda: SimWatch(self, folder))

    def is_the_folder(self, folder: str, known: object) -> bool:
        """One scheduling point, as a listing is: what was made before it is told afterwards."""
        there = self._call("stands", folder, lambda: self.disk.folders.get(folder))
        return there is not None and there is known

    def loses(self) -> bool:
        return self._world.current is not None and self._world.random.random() < LOST


class _Watched(Simulation):
    def storage(self):
        if self.body != "disk":
            return super().storage()
        return WatchingStorage(self.world, self.disk, self.base)


class WatchedTables(_Watched, Tables):
    """``tables``, watched."""

    scenario = "watched"


class WatchedLong(_Watched, Long):
    """``long``, watched."""

    scenario = "watched-long"


class WatchedPublishers(_Watched, Publishers):
    """``publishers``, watched."""

    scenario = "watched-publishers"
