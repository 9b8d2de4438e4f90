"""What an instant shows before it completes: its base files beside files of others, which Java believes.

They are made in a folder of our own, and get their names in the section that publishes them. If that section
ends in another way, no later one may publish anything, or plan anything, while a name of theirs is there.
Whoever lives, and has no trouble, takes them away by itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.sim.world import Violation

if TYPE_CHECKING:
    from tests.sim.plain_format import TimelineName
    from tests.sim.sim_storage import Disk
    from tests.sim.sim_store import Bucket
    from tests.sim.world import Process

UNSHOWN = ".hoodie/.mainstem/unshown"
_NOTE = ".hoodie/.mainstem/fence/showing-"
_BASE = re.compile(r"^(?:[^.].*/)?[^/]+_([0-9]{17})\.parquet$")


class ShowingRules:
    """Watches names of base files."""

    def __init__(self, disk: Disk | Bucket) -> None:
        self._disk = disk
        #: path -> instant of each file that got its name late
        self._named: dict[str, str] = {}
        self._by: dict[str, Process | None] = {}

    def named(self, event: str, path: str, source: str, by: Process | None) -> None:
        """A name appeared, or is gone."""
        found = _BASE.match(path)
        if event == "deleted" or found is None or path.startswith(".") or not source.startswith(UNSHOWN):
            return
        self._named[path], self._by[path] = found[1], by
        if not self._disk.exists(f"{_NOTE}{found[1]}") and not self._disk.exists(".hoodie/metadata"):
            raise Violation("shown under the lock", f"{path} got its name, and no note tells of it")

    def entered(self, by: Process | None, done: set[str]) -> None:
        """A process enters the fence, whose earlier sections are over."""
        if by is None:
            return
        faults = by.world.faults
        if any((faults.error_before, faults.error_after, faults.full_disk, faults.interrupt)):
            return
        for path, instant in self._named.items():
            if self._by[path] is by and instant not in done and self._disk.exists(path):
                raise Violation("shown by who completes", f"{path} was left there by who goes on")

    def published(self, name: TimelineName, done: set[str]) -> None:
        """A section that entered the fence makes something visible."""
        for path, instant in list(self._named.items()):
            if instant in done or not self._disk.exists(path):
                del self._named[path]
            elif instant != name.requested:
                raise Violation(
                    "shown by who completes",
                    f"{path} is there while {name.requested} is {name.state}: Java's readers hide what others"
                    " complete in this file group",
                )
