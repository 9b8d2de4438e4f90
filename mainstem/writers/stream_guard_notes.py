"""Notes which instants may hold a stream's newest batches; the notes outlive the active timeline.

A guard is looked up on the active timeline. Once its instant is archived, by mainstem or by Java, looking it
up must not mean reading the whole archive. So before a guarded transaction is published, its batch, ordinal
and instant are noted in the stream's folder (``.hoodie/.mainstem/streams/<stream>/``), as the *name* of an
empty file: no content, no order of writers, nothing to tear. A note is a hint where to look: what counts is
the completed instant with that guard in it, on the active timeline or in the archive. So a transaction that
was rolled back leaves a note that says nothing, and a restore takes the guards of the instants that it
removes with it.

Archived instants stay for ever, so everything older than the newest archived batch of a stream can be
forgotten: the number of notes does not grow with the table's age.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from mainstem.storage import paths
from mainstem.storage.protocol import Storage

_SEARCHED = "searched"


@dataclass(frozen=True, order=True)
class Note:
    """A write of a batch that was about to be committed as ``instant``; ordinal None is a whole batch."""

    batch_id: int
    ordinal: int | None
    instant: str

    @property
    def name(self) -> str:
        return paths.guard_note(self.batch_id, self.ordinal, self.instant)


class Notes:
    """The notes of one stream, in its folder."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._settled = False

    def read(self) -> list[Note]:
        """All notes of the stream."""
        parsed = map(paths.parse_guard_note, self._storage.names(self._folder))
        return [Note(*found) for found in parsed if found is not None]

    def write(self, note: Note) -> None:
        """Writes a note durably; writing it again is harmless."""
        self._create(note.name)

    def forget(self, notes: list[Note]) -> None:
        """Removes notes that no longer decide anything."""
        for note in notes:
            self._storage.delete(f"{self._folder}/{note.name}")

    @property
    def archive_searched(self) -> bool:
        """Whether the archive was read through for this stream, once and for all."""
        return self._storage.stat(f"{self._folder}/{_SEARCHED}") is not None

    def note_search(self) -> None:
        """Records that the archive was searched and its batches are noted."""
        self._create(_SEARCHED)

    def _create(self, name: str) -> None:
        with suppress(FileExistsError):  # its maker may have died before it was durable
            self._storage.put_new(f"{self._folder}/{name}", b"", durable=False)
        above = [] if self._settled else [paths.HOODIE, paths.OWN, paths.STREAMS]
        self._storage.settle([], [*above, self._folder], durable=True)
        self._settled = True
