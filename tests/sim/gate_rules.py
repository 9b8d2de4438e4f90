"""Rules of the gate, which decides on an object store who publishes (PROTOCOL.md, "Publishing on a store").

They read the gate's object itself, at each change, and know nothing of the code that writes it:

- each swap follows the state that it read: epoch + 1, the old nonce in ``past``, nothing else of it lost
- a file becomes visible only with a name and content that a swap decided
- what one swap decided is in place when the next one takes effect, or the next one names it again, before its
  own: so whoever reads the gate and then lists the timeline knows it
- replaced files are replaced by decisions, too
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tests.sim.sim_storage import Disk
from tests.sim.world import Process, Violation, World

GATE = ".hoodie/.mainstem/gate.json"
_PAST_MAX = 64
#: files that nothing but a decision replaces
DECIDED_ONLY = (".hoodie/hoodie.properties", ".hoodie/timeline/history/_version_")


@dataclass
class Decided:
    """A new file that a swap decided. ``entered``: the store's time of the swap before, which is when the
    section that decided entered, or earlier. ``by``: who decided, and need not be who puts it."""

    epoch: int
    sha256: str
    entered: float
    by: Process | None


class GateRules:
    """What the gate of one table said so far. ``fenced``: whether all writers know the gate."""

    def __init__(self, world: World, disk: Disk, *, fenced: bool) -> None:
        self.world = world
        self.disk = disk
        self.fenced = fenced
        self.decided: dict[str, Decided] = {}
        self.shown: set[str] = set()
        self._now: dict[str, Any] = {}
        self._swapped_at = 0.0
        self._replaced: set[str] = set()  # files that the newest swap replaces, and that are replaced

    @property
    def foreign(self) -> bool:
        """Whether another kind of writer was noted."""
        return bool(self._now.get("foreign"))

    def contents(self) -> list[str]:
        """Names of the objects with contents that the gate names."""
        prepared = (item.get("prepared") for item in self._now.get("pending", []))
        return [path.rpartition("/")[2] for path in prepared if path is not None]

    def changed(self, event: str, by: Process | None) -> None:
        """The gate was made, swapped or removed."""
        if event == "deleted":
            raise Violation("gate", "the gate was removed")
        found = self.disk.need(GATE)
        after, before = json.loads(bytes(found.data)), self._now
        if not before:
            before = {"epoch": -1, "pending": [], "past": [], "nonce": None, "table": after["table"]}
        past = [*before["past"], before["nonce"]][-_PAST_MAX:] if before["nonce"] else []
        if (after["epoch"], after["past"], after["table"]) != (before["epoch"] + 1, past, before["table"]):
            raise Violation("gate", f"epoch {after['epoch']} does not follow epoch {before['epoch']}")
        self._carried_out(before, after)
        self._replaced = set()
        entered, self._swapped_at = self._swapped_at, found.mtime
        for item in after["pending"]:
            if "was" not in item and item not in before["pending"]:
                self.decided[item["target"]] = Decided(after["epoch"], item["sha256"], entered, by)
        self._now = after

    def _carried_out(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        carried = [item for item in before["pending"] if item in after["pending"]]
        if carried != after["pending"][: len(carried)]:
            raise Violation("completion order", f"epoch {after['epoch']} names what it carries after its own")
        for item in before["pending"]:
            target = item["target"]
            if "was" in item:
                if self.fenced and target not in self._replaced:
                    raise Violation(
                        "help first",
                        f"epoch {after['epoch']} came before {target} of {before['epoch']} was replaced",
                    )
            elif target not in self.shown and target not in after["dropped"] and item not in carried:
                raise Violation(
                    "help first",
                    f"epoch {after['epoch']} came before {target} of {before['epoch']} was visible",
                )
            elif self.fenced and target in after["dropped"]:
                raise Violation(
                    "nothing lost", f"{target} was decided and dropped, beside writers with a gate only"
                )

    def visible(self, path: str) -> Decided | None:
        """A file that must be decided became visible."""
        decided = self.decided.get(path)
        if decided is None:
            if self.fenced:
                raise Violation("superseded", f"{path} became visible and was not decided")
            return None
        if _sha256(self.disk.need(path).data) != decided.sha256:
            raise Violation("whole when visible", f"{path} has other bytes than were decided")
        earlier = [
            item["target"]
            for item in self._now["pending"]
            if "was" not in item and item["target"] not in self.shown and item["target"] != path
        ]
        before = [item["target"] for item in self._now["pending"]]
        if path in before and any(before.index(other) < before.index(path) for other in earlier):
            raise Violation("completion order", f"{path} became visible before {earlier}")
        self.shown.add(path)
        return decided

    def replaced(self, path: str, event: str) -> None:
        """A file was put, perhaps over another one."""
        sha256 = _sha256(self.disk.need(path).data)
        for item in self._now.get("pending", []):
            if "was" in item and (item["target"], item["sha256"]) == (path, sha256):
                self._replaced.add(path)
                return
        if event == "replaced" and self.fenced and path in DECIDED_ONLY:
            raise Violation("superseded", f"{path} was replaced without a decision of the newest swap")


def _sha256(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()
