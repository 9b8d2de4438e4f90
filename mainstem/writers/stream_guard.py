"""The streaming guard: a micro-batch is committed once, however often it is replayed.

Java's form (HoodieStreamingSink): ``extraMetadata["_hudi_streaming_sink_checkpoint"]`` holds
``{"<checkpoint identifier>": "<batch id>"}``, and a batch is skipped when the newest stored id is not
smaller. mainstem keeps that and adds the ordinal of the write within its batch, so that several writes
of one batch are told apart; it looks again under the lock, so two live drivers cannot both commit. Java
finds a batch only while its instant is on the active timeline; here it is found for ever
(``stream_guard_notes``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Invalid, Unavailable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.commit_metadata import STREAM_KEY, CommitMetadata, decode_commit
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, REPLACECOMMIT, Instant
from mainstem.timeline.restore_records import shown_timeline
from mainstem.writers.stream_guard_notes import Note, Notes
from mainstem.writers.stream_positions import PositionIndex, StreamPositions
from mainstem.writers.write_ordinals import stream_folder

GUARD_KEY = "mainstem.stream.guard"
_WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
# So many notes of a stream are looked through for what can be forgotten.
_NOTES_MANY = 64


@dataclass(frozen=True)
class StreamGuard:
    """Which write of which micro-batch of which stream this is."""

    identifier: str
    batch_id: int
    ordinal: int = 0

    def __post_init__(self) -> None:
        if not self.identifier or self.batch_id < 0 or self.ordinal < 0:
            raise Invalid(
                f"stream guard {self!r}: expected a non-empty identifier and numbers from 0"
            )

    def extra_metadata(self) -> dict[str, str]:
        """What the completed instant says about it, in Java's form and in ours."""
        return {
            STREAM_KEY: json.dumps({self.identifier: str(self.batch_id)}),
            GUARD_KEY: json.dumps([self.identifier, self.batch_id, self.ordinal]),
        }


@dataclass(frozen=True)
class _Fact:
    """A completed instant holds this write; ordinal None: the whole batch (Java's form)."""

    identifier: str
    batch_id: int
    ordinal: int | None
    instant: str


class GuardIndex:
    """Which batches are committed: facts of the active timeline, each instant read once, and of archived
    instants that notes lead to."""

    def __init__(self, storage: Storage, history: str = paths.HISTORY) -> None:
        self._storage = storage
        self._history = history
        #: file name -> what it says, for files of the active timeline; threads may replace it any time
        self._known: dict[str, tuple[_Fact, ...]] = {}
        #: requested time -> what an archived instant says; it never changes
        self._archived: dict[str, tuple[_Fact, ...]] = {}
        self._notes: dict[str, Notes] = {}
        #: identifier -> the instant of which was last said that it holds a batch
        self._lasting: dict[str, str] = {}
        #: of streams that are guarded by their offsets
        self.positions = PositionIndex(storage, history)

    def refresh(self, timeline: ActiveTimeline) -> dict[str, tuple[_Fact, ...]]:
        """Read instants that completed since the last call; forget those that are gone."""
        known = self._known
        found: dict[str, tuple[_Fact, ...]] = {}
        for instant in timeline.completed:
            name = instant.file_name
            if name in known:
                found[name] = known[name]
            elif instant.action in _WRITES:
                path = paths.timeline_file(name)
                try:
                    data = self._storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
                except FileNotFoundError:
                    continue  # archived or taken back since: its note leads to it
                found[name] = _facts(instant.requested, decode_commit(data, path=path).extra, path)
        self._known = found
        return found

    def committed(self, guard: StreamGuard | StreamPositions, timeline: ActiveTimeline) -> str | None:
        """Requested time of the instant that already holds this write, if there is one.

        ``timeline`` was listed before this call. As in Java a batch older than the newest committed one
        counts as committed: a stale driver must not write it again. An instant that a pending restore or
        rollback takes back does not count, or its batch would never be written again. Raises ``CorruptTable``
        for a damaged archive.
        """
        if isinstance(guard, StreamPositions):
            return self.positions.committed(guard, timeline)
        timeline = shown_timeline(self._storage, timeline)
        facts = [*self._active(guard, timeline), *self._noted(guard, timeline)]
        newest = max((fact.batch_id for fact in facts), default=-1)
        if guard.batch_id > newest:
            return None
        decisive = {fact.ordinal: fact.instant for fact in facts if fact.batch_id == newest}
        if guard.batch_id < newest:
            holder: str | None = min(decisive.values())
        else:
            holder = decisive.get(guard.ordinal, decisive.get(None))
        if holder is not None:
            self._make_last(guard.identifier, holder)
        return holder

    def _make_last(self, identifier: str, instant: str) -> None:
        """Make the instant's name survive a crash of the machine, before a caller is told that it holds the
        batch and forgets the batch. Its publisher may have died, or failed, before it synced the folder."""
        if self._lasting.get(identifier) != instant:
            self._storage.settle([], [paths.TIMELINE], durable=True)
            self._lasting[identifier] = instant

    def newest(self, identifier: str, timeline: ActiveTimeline) -> tuple[int, str] | None:
        """Batch and instant of a stream's newest committed batch; None if there is none.

        ``timeline`` as for ``committed``, by whose rules it goes.
        """
        guard = StreamGuard(identifier, 0)
        timeline = shown_timeline(self._storage, timeline)
        facts = [*self._active(guard, timeline), *self._noted(guard, timeline)]
        newest = max(facts, key=lambda fact: fact.batch_id, default=None)
        if newest is None:
            return None
        self._make_last(identifier, newest.instant)
        return newest.batch_id, newest.instant

    def extra_metadata(self, instant: str, timeline: ActiveTimeline) -> dict[str, str]:
        """What the commit of a completed instant, active or archived since, says besides its files."""
        for shown in timeline.completed:
            if shown.requested == instant and shown.action in _WRITES:
                path = paths.timeline_file(shown.file_name)
                with suppress(FileNotFoundError):  # archived since
                    data = self._storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
                    return decode_commit(data, path=path).extra
        found = self._archive().metadata(instant)
        if found is None:
            raise Unavailable(
                f"instant {instant} was taken back while it was looked at; look again",
                table=self._storage.base,
            )
        return decode_commit(found, path=f"archived instant {instant}").extra

    def prepare(self, guard: StreamGuard | StreamPositions, timeline: ActiveTimeline) -> None:
        """At begin, outside the lock: make sure that notes lead to everything that may be archived.

        The first time a stream is seen at a table the archive is read through for it; and batches that
        Java committed are noted while they are on the active timeline.
        """
        if isinstance(guard, StreamPositions):
            self.positions.prepare(guard.source, timeline)
            return
        notes = self._of(guard.identifier)
        present = notes.read()
        known = {note.instant for note in present}
        active = list(self._active(guard, timeline))
        # Not compared with the notes: one of a higher batch may be of an instant that is no more.
        newest = max((fact.batch_id for fact in active), default=-1)
        for fact in active:
            if fact.batch_id == newest and fact.instant not in known:
                notes.write(Note(fact.batch_id, fact.ordinal, fact.instant))
        if not notes.archive_searched:
            for fact in _newest_archived(self._archive(), guard.identifier):
                notes.write(Note(fact.batch_id, fact.ordinal, fact.instant))
            notes.note_search()
        if len(present) > _NOTES_MANY:
            # Listed after the notes: of another live driver, a note may be newer than ``timeline``.
            notes.forget(self._superfluous(guard, load_timeline(self._storage), present))

    def announce(self, guard: StreamGuard | StreamPositions, instant: str) -> None:
        """Before the instant is published: leave a durable note of it."""
        if isinstance(guard, StreamPositions):
            self.positions.announce(guard.source, instant)
            return
        self._of(guard.identifier).write(Note(guard.batch_id, guard.ordinal, instant))

    def _of(self, identifier: str) -> Notes:
        if identifier not in self._notes:
            self._notes[identifier] = Notes(self._storage, stream_folder(identifier))
        return self._notes[identifier]

    def _archive(self) -> Archive:
        """The newest version: what a timeline listed before does not show is in it, or nowhere."""
        return Archive.load(self._storage, self._history)

    def _active(self, guard: StreamGuard, timeline: ActiveTimeline) -> Iterator[_Fact]:
        for facts in self.refresh(timeline).values():
            yield from (fact for fact in facts if fact.identifier == guard.identifier)

    def _noted(self, guard: StreamGuard, timeline: ActiveTimeline) -> Iterator[_Fact]:
        """Facts of archived instants, as far as they can decide about this write."""
        notes = [n for n in self._of(guard.identifier).read() if n.batch_id >= guard.batch_id]
        shown = {i.requested for i in timeline.instants} if notes else set()
        for note in notes:
            if note.instant not in shown:  # else pending, or completed and read there
                yield from self._of_archived(guard, note.instant)

    def _of_archived(self, guard: StreamGuard, instant: str) -> list[_Fact]:
        if instant not in self._archived:
            data = self._archive().metadata(instant)
            if data is None:
                return []
            path = f"archived instant {instant}"
            self._archived[instant] = _facts(instant, decode_commit(data, path=path).extra, path)
        return [fact for fact in self._archived[instant] if fact.identifier == guard.identifier]

    def _superfluous(
        self, guard: StreamGuard, timeline: ActiveTimeline, notes: list[Note]
    ) -> list[Note]:
        """Notes of instants that are over, and everything below the newest archived batch."""
        shown = {i.requested for i in timeline.instants}
        gone: list[Note] = []
        for note in sorted(notes, reverse=True, key=lambda n: (n.batch_id, n.instant)):
            if note.instant in shown:
                continue
            if self._of_archived(guard, note.instant):
                return gone + [n for n in notes if n.batch_id < note.batch_id]
            gone.append(note)
        return gone


def commits_of_batch(
    storage: Storage, timeline: ActiveTimeline, identifier: str, batch_id: int
) -> Iterator[tuple[Instant, CommitMetadata]]:
    """The completed instants on the active timeline that hold writes of a micro-batch, the newest first.

    Looks no further than to an older batch of the stream."""
    for instant in reversed(timeline.completed):
        if instant.action not in _WRITES:
            continue
        path = paths.timeline_file(instant.file_name)
        try:
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            continue  # archived or taken back since
        commit = decode_commit(data, path=path)
        batches = [
            fact.batch_id
            for fact in _facts(instant.requested, commit.extra, path)
            if fact.identifier == identifier
        ]
        if batch_id in batches:
            yield instant, commit
        elif batches and max(batches) < batch_id:
            return


def _facts(instant: str, extra: dict[str, str], path: str) -> tuple[_Fact, ...]:
    """The streaming guards in a commit's extra metadata."""
    try:
        if GUARD_KEY in extra:
            identifier, batch_id, ordinal = json.loads(extra[GUARD_KEY])
            return (_Fact(str(identifier), int(batch_id), int(ordinal), instant),)
        if STREAM_KEY in extra:
            found = json.loads(extra[STREAM_KEY]).items()
            return tuple(_Fact(str(name), int(text), None, instant) for name, text in found)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptTable(
            f"streaming checkpoint in the commit does not parse: {error}", path=path
        ) from error
    return ()


def _newest_archived(archive: Archive, identifier: str) -> list[_Fact]:
    """What the archive says about the newest batch of a stream, by reading it through."""
    # No JSON writer escapes letters and digits: whatever does not hold this is not looked at.
    needle = max(re.findall("[A-Za-z0-9]+", identifier), key=len, default="").encode()
    newest: list[_Fact] = []
    for requested, data in archive.with_bytes(needle):
        path = f"archived instant {requested}"
        for fact in _facts(requested, decode_commit(data, path=path).extra, path):
            if fact.identifier != identifier or (newest and fact.batch_id < newest[0].batch_id):
                continue
            if newest and fact.batch_id > newest[0].batch_id:
                newest = []
            newest.append(fact)
    return newest
