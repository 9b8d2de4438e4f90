"""The folder of a sink's part files, written by Flink's file sink, and the staged files that they name.

A part file holds the committables of one checkpoint, one per line. Its final name begins with neither a dot
nor an underscore; until its checkpoint completes, it has another name.

A job that is restored from a checkpoint gives the part files of that checkpoint their names once more. On
an object store Flink then wants to find each that has its name already, with its length, else the job
starts over for ever (``S3Committer.commitAfterRecovery``). So there the newest batch's parts stay, as
*blanks* of the same length, until the next batch is committed. A blank is a part without rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Invalid
from mainstem.limits import PART_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import FileInfo, Storage
from mainstem.storage.swaps import Tag, has_swaps, swappable
from mainstem.writers.staged_rows import Committable, counting, parse_line

# Limits of one commit. A single part is never split.
_PARTS_MAX = 256
_BYTES_MAX = 4 * 1024**3
_HIDDEN = (".", "_")  # names that Flink's own readers skip
_STAMP_IN_LINE = re.compile(r'"file":"([A-Z]+)"')


@dataclass(frozen=True)
class Part:
    """A part file under its final name. Its lines are kept as text."""

    name: str
    lines: list[str]
    committables: list[Committable]

    @property
    def size(self) -> int:
        """Bytes of the staged files."""
        return sum(one.size for one in self.committables)

    @property
    def has_rows(self) -> bool:
        """Whether there is something to commit."""
        return bool(counting(self.committables))


class PartFiles:
    """The part files of one sink. Errors of storage are ``OSError``."""

    def __init__(self, storage: Storage, sink: str) -> None:
        self._storage = storage
        self._sink = sink
        self.folder = paths.committables_folder(sink)
        self._staged = paths.staged_folder(sink)
        #: whether parts of the newest batch stay, as blanks
        self._keeps = has_swaps(storage)
        #: those that this process knows
        self._blanks: set[str] = set()

    def path(self, name: str) -> str:
        """Path of a part file."""
        return f"{self.folder}/{name}"

    def any(self) -> bool:
        """Whether any part has its final name, but for known blanks."""
        names = self._storage.names(self.folder)
        return any(not name.startswith(_HIDDEN) and name not in self._blanks for name in names)

    def listed(self) -> list[FileInfo]:
        """Parts under their final names in the order of their checkpoints, without holes.

        A listing may miss a part that appears while it runs and yet show a later one. So a second listing
        tells which parts came before the newest of the first.
        """
        first = self._finished()
        if not first:
            return []
        newest = max(map(_order, first))
        return sorted((e for e in self._finished() if _order(e) <= newest), key=_order)

    def _finished(self) -> list[FileInfo]:
        found = [e for e in self._storage.entries(self.folder) if not e.name.startswith(_HIDDEN)]
        for entry in found:
            if entry.is_folder:
                raise Invalid(
                    f"a folder {self.path(entry.name)!r} among the part files of sink {self._sink!r}: its"
                    " files would never be committed; let the file sink put its parts into one folder"
                    " (BucketAssigner.base_path_bucket_assigner())",
                    table=self._storage.base,
                )
        return found

    def are_there(self, parts: list[Part]) -> bool:
        """Whether all of these parts still exist, and none is a blank."""
        names = {part.name for part in parts}
        if not names <= set(self._storage.names(self.folder)):
            return False
        return not self._keeps or all(self._rows(name) is not None for name in names)

    def read_oldest(self, entries: list[FileInfo]) -> list[Part] | None:
        """The oldest parts, up to the limits; None if another committer has committed and removed one."""
        parts: list[Part] = []
        size = 0
        for entry in entries[:_PARTS_MAX]:
            part = self.read(entry.name)
            if part is None:
                return None
            size += part.size
            if parts and size > _BYTES_MAX:
                break
            parts.append(part)
        return parts

    def read(self, name: str) -> Part | None:
        """A part; None if it is gone. Raises ``CorruptTable`` for a damaged one, ``Invalid`` for rows of
        another sink."""
        path = self.path(name)
        try:
            data = self._storage.read(path, max_bytes=PART_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        lines = _lines(data, path, self._storage.base)
        found = [parse_line(line, source=path) for line in lines]
        for one in found:
            if one.sink != self._sink:
                raise Invalid(
                    f"{path} names staged rows of another sink, {one.sink!r}; nothing was committed",
                    table=self._storage.base,
                )
        return Part(name, lines, found)

    def settle(self) -> None:
        """Makes the folder's added and removed names durable."""
        self._storage.settle([], [self.folder], durable=True)

    def put_away(self, names: list[str]) -> None:
        """Parts of the newest batch: removes them, on an object store blanks them; then removes the staged
        files that they named."""
        names = [name for name in names if name not in self._blanks]
        self._end(names, self._blank if self._keeps else self._delete)
        if self._keeps:
            self._blanks.update(names)

    def remove(self, names: list[str]) -> None:
        """Removes parts whose rows are in the table, then their staged files."""
        self._end(names, self._delete)
        self._blanks.difference_update(names)

    def _end(self, names: list[str], how: Callable[[str], None]) -> None:
        staged: list[str] = []
        for name in names:
            with suppress(CorruptTable, Invalid):  # its rows are in; the sweep takes what it does not name
                part = None if name in self._blanks else self.read(name)
                staged += [one.path for one in part.committables if one.stamp] if part else []
            how(name)
        for path in staged:
            self._storage.delete(path)

    def _delete(self, name: str) -> None:
        self._storage.delete(self.path(name))

    def _blank(self, name: str) -> None:
        """Replace a part by a blank, unless it is gone or is one already."""
        found = self._rows(name)
        if found is not None:
            swappable(self._storage).swap(self.path(name), b"\n".rjust(len(found[0])), found[1])

    def _rows(self, name: str) -> tuple[bytes, Tag] | None:
        """Content and tag of a part on an object store; None if it is gone or a blank."""
        found = swappable(self._storage).read_tagged(self.path(name), max_bytes=PART_FILE_BYTES_MAX)
        return found if found is not None and found[0].strip() else None

    def sweep(self, age_ms: int) -> int:
        """Removes staged files older than ``age_ms`` that no part file names; see ``Committer.sweep``."""
        entries = [e for e in self._storage.entries(self._staged) if not e.is_folder]
        there = self._storage.entries(self.folder)
        parts = [e for e in there if not e.is_folder]
        now_ms = max((e.mtime_ms for e in (*entries, *parts)), default=0)
        old = {e.name for e in entries if now_ms - e.mtime_ms > age_ms}
        alive = {e.name for e in parts if not e.name.startswith(_HIDDEN) or now_ms - e.mtime_ms <= age_ms}
        named = self._named(alive) if old else None
        if named is None or {e.name for e in there} != set(self._storage.names(self.folder)):
            return 0  # nothing to do, or the parts are changing right now: try another time
        for name in sorted(old - named):
            self._storage.delete(f"{self._staged}/{name}")
        return len(old - named)

    def _named(self, parts: set[str]) -> set[str] | None:
        """Staged files that these part files name; None if one of them is gone."""
        found: set[str] = set()
        for name in sorted(parts):
            try:
                data = self._storage.read(self.path(name), max_bytes=PART_FILE_BYTES_MAX)
            except FileNotFoundError:
                return None
            # As text: the last line of a file that is being written may be cut off.
            found.update(_STAMP_IN_LINE.findall(bytes(data).decode("utf-8", "replace")))
        return found


def _lines(data: bytes, path: str, table: str) -> list[str]:
    """Lines with committables; an empty one is a batch without rows."""
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptTable(
            f"a part file is no text ({error}); nothing was committed. Restore it from a copy",
            path=path,
            table=table,
        ) from error
    if not text.endswith("\n"):
        raise CorruptTable(
            f"a part file of {len(data)} bytes does not end with a line: it was cut off; nothing was"
            " committed. Restore it from a copy, or restart the job from an earlier savepoint",
            path=path,
            table=table,
        )
    return [line for line in text.split("\n") if line.strip()]


def _order(part: FileInfo) -> tuple[int, tuple[str, int, str]]:
    """One task writes the parts, so they finish in order; names within one run count up."""
    return part.mtime_ms, _counted(part.name)


def _counted(name: str) -> tuple[str, int, str]:
    """Sorts ``part-<id>-9`` before ``part-<id>-10``."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), name) if number.isascii() and number.isdigit() else (name, 0, name)
