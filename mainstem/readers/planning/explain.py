"""What a query reads, and which index ruled out the rest: ``ScanPlan.explain()``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from mainstem.layout.slicing import FileSlice

PARTITIONS, FILE_SLICES = "partitions", "file slices"


@dataclass(frozen=True)
class Cut:
    """Of the ``of`` partitions or file slices (``what``) that ``index`` saw, it left out ``left_out``."""

    index: str
    what: str
    left_out: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}: left out {self.left_out} of {self.of} {self.what}"


@dataclass(frozen=True)
class Explanation:
    """The files that a query reads, and what ruled out the others. ``str()`` gives a readable text.

    ``partitions`` and ``file_slices`` count what the table has, their ``_read`` twins what the query reads;
    file slices of left-out partitions are not counted. ``cuts`` are in the order in which they were made.
    ``notes`` say why an index was not used.
    """

    filter: str | None
    partitions: int
    partitions_read: int
    file_slices: int
    file_slices_read: int
    base_files_read: int
    log_files_read: int
    cuts: tuple[Cut, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers, for JSON."""
        found = asdict(self)
        return {**found, "cuts": list(found["cuts"]), "notes": list(self.notes)}

    def __str__(self) -> str:
        lines = [f"filter: {self.filter or 'none'}", *(f"  {cut}" for cut in self.cuts)]
        lines.append(
            f"reads {self.partitions_read} of {self.partitions} partitions, {self.file_slices_read} of"
            f" {self.file_slices} file slices: {self.base_files_read} base files and {self.log_files_read}"
            " log files"
        )
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)


@dataclass
class Report:
    """Counts made while a plan's splits are generated; incomplete until all of them are."""

    filter: str | None = None
    partitions: int = 0
    partitions_read: int = 0
    slices: int = 0
    read: list[tuple[bool, int]] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def cut(self, index: str, what: str, before: int, after: int) -> None:
        """``index`` was asked about ``before`` and kept ``after``."""
        if after < before:
            self.cuts.append(Cut(index, what, before - after, before))

    def reads(self, slices: Iterable[FileSlice], *, base_only: bool) -> None:
        """Counts the file slices that are read in the end."""
        for found in slices:
            logs = 0 if base_only or not found.later_logs else len(found.log_files)
            self.read.append((found.base_file is not None, logs))

    def explanation(self) -> Explanation:
        """The result, once all splits were generated."""
        return Explanation(
            self.filter, self.partitions, self.partitions_read, self.slices, len(self.read),
            sum(base for base, _ in self.read), sum(logs for _, logs in self.read),
            tuple(self.cuts), tuple(self.notes),
        )  # fmt: skip
