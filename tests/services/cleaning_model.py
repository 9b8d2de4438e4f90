"""A model of what a clean may remove: from file names and the timeline's names alone, view by view.

It shares nothing with ``services.clean_plan``. For every view that is retained it marks the files that the
view reads; a slice of which no file is marked may go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LOG = re.compile(r"^\.(.+)_(\d{17})\.log\.\d+_[\d-]+$")
_BASE = re.compile(r"^([\w-]+)_[\d-]+_(\d{17})\.parquet$")
_DONE = re.compile(r"^(\d{17})_(\d{17})\.(commit|deltacommit)$")
_OPEN = re.compile(r"^(\d{17})\.deltacommit\.")


@dataclass(frozen=True)
class File:
    """A data file of a completed instant."""

    path: str
    group: tuple[str, str]
    requested: str
    completed: str
    is_base: bool


class Table:
    """The names on disk, now."""

    def __init__(self, base: str | Path) -> None:
        self.base = Path(base)
        names = [p.name for p in (self.base / ".hoodie/timeline").iterdir()]
        found = [m for m in map(_DONE.match, names) if m]
        self.commits = sorted((m[1], m[2]) for m in found)
        done = dict(self.commits)
        self.open = sorted({m[1] for m in map(_OPEN.match, names) if m} - set(done))
        self.files = []
        for path in sorted(self.base.rglob("*")):
            name, partition = path.name, str(path.parent.relative_to(self.base))
            match = _LOG.match(name) or _BASE.match(name)
            if match and ".hoodie" not in partition and match[2] in done:
                self.files.append(
                    File(f"{partition}/{name}", (partition, match[1]), match[2], done[match[2]],
                         name.endswith(".parquet"))
                )  # fmt: skip

    def retained(self, count: int) -> list[tuple[str, str]]:
        """The newest ``count`` commits, and more if a pending one is older than they are."""
        if len(self.commits) <= count:
            return []
        kept = self.commits[-count:]
        if self.open and self.open[0] < kept[0][0]:
            older = [c for c in self.commits if c[0] < self.open[0]]
            if not older:
                return []
            kept = [c for c in self.commits if c >= older[-1]]
        return kept

    def slices(self) -> dict[tuple, set[str]]:
        """(group, base instant or "") -> paths."""
        found: dict[tuple, set[str]] = {}
        for file in self.files:
            found.setdefault((file.group, self._slice(file)), set()).add(file.path)
        return found

    def _slice(self, file: File) -> str:
        if file.is_base:
            return file.requested
        bases = [b.requested for b in self.files if b.is_base and b.group == file.group]
        return max((b for b in bases if b <= file.completed), default="")

    def view(self, moment: str) -> set[str]:
        """What was visible at a completion time."""
        return self._newest([f for f in self.files if f.completed <= moment])

    def travel(self, until: str) -> set[str]:
        """What Hudi's time travel to a requested time reads at most."""
        return self._newest([f for f in self.files if not f.is_base or f.requested <= until])

    def _newest(self, files: Iterable[File]) -> set[str]:
        newest: dict[tuple[str, str], str] = {}
        for file in files:
            if file.is_base:
                newest[file.group] = max(file.requested, newest.get(file.group, ""))
        return {f.path for f in files if self._slice(f) >= newest.get(f.group, "")}

    def needed(self, count: int) -> set[str]:
        """By the newest commits: their views, the one just before them, and change data between them."""
        kept = self.retained(count)
        if not kept:
            return {f.path for f in self.files}
        first = min(completed for _, completed in kept)
        needed = self.view(str(int(first) - 1)) | {f.path for f in self.files if f.completed >= first}
        for _, moment in (c for c in self.commits if c[1] >= first):
            needed |= self.view(moment)
        for until, _ in kept:
            needed |= self.travel(until)
        return needed

    def of_versions(self, count: int) -> set[str]:
        """The newest ``count`` slices of each group that have a base file, and what lies on them."""
        needed = set()
        for group in {f.group for f in self.files}:
            slices = sorted((at for of, at in self.slices() if of == group), reverse=True)
            for at in slices[:count]:
                needed |= self.slices()[group, at]
        return needed

    def superfluous(self, needed: set[str], kept: Iterable[str] = ()) -> set[str]:
        """Slices without a needed file and without one that is kept by name."""
        stays = needed | set(kept)
        return {path for files in self.slices().values() if not files & stays for path in files}
