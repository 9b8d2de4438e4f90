"""How far a stream of numbered records is in the table: offsets that are committed with the rows they stand
for.

A commit of such a stream says where each of its partitions (of a Kafka topic, or each file of a folder) is
read up to, its own and all others: whoever looks at the newest one knows the whole stream. The look comes
under the lock: a commit whose partitions do not begin exactly where the table stands is not published. So of
two processes that hold the same records, be it that one is a zombie of its group, one commits them.

  begin    the archive is searched for the stream, once for ever; its newest commit is looked up, and if a
           partition of this write does not begin where that ends, the transaction ends here
  commit   a note says that this instant may hold the newest positions (``stream_guard_notes``)
           -> [[ lock: the newest commit again. Partitions that moved: it is refused. Positions of other
              partitions that this commit does not carry: it is encoded again with them, and tried again ]]

"Newest" is by completion time, of commits on the active timeline and of archived ones that notes lead to.
A restore takes positions back together with the rows.

For Kafka the positions also stand where Hudi's streamer keeps its checkpoint (``StreamerCheckpointV1`` and
``V2``, ``KafkaOffsetGen``): ``topic,partition:offset,...``, partitions in order. So the streamer can go on
where this stops, and the other way round. Hudi writes V1 or V2 by version and source, and reads V2 first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from mainstem.errors import CorruptTable, Invalid
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, REPLACECOMMIT
from mainstem.timeline.restore_records import shown_timeline
from mainstem.writers.stream_guard_notes import Note, Notes
from mainstem.writers.write_ordinals import stream_folder

POSITIONS_KEY = "mainstem.stream.positions"
#: Hudi's streamer, newest first, as it looks for them (CheckpointUtils.getCheckpoint)
CHECKPOINT_KEYS = ("streamer.checkpoint.key.v2", "deltastreamer.checkpoint.key")
_WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
# So many notes of a stream are looked through for what can be forgotten.
_NOTES_MANY = 64


@dataclass(frozen=True)
class Positions:
    """Where a stream stands: partition -> the offset of the next record to read. ``about``: what the numbers
    are numbers of (a cluster, a topic's id). ``instant``: the commit that says so; "": none does."""

    ends: Mapping[str, int] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    instant: str = ""


@dataclass(frozen=True)
class StreamPositions:
    """A guard: this write moves ``source`` from ``starts`` to ``ends``, partition by partition.

    A start of None: the partition was not read before. ``topic``: also leave Hudi's checkpoint of this Kafka
    topic, whose partitions are numbers. ``forget``: partitions that need not be remembered any more.
    ``anew``: all offsets count from anew (the topic was created again), where the newest commit is this
    instant. Otherwise ``about`` must be what the table says.
    """

    source: str
    starts: Mapping[str, int | None]
    ends: Mapping[str, int]
    topic: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    forget: frozenset[str] = frozenset()
    anew: str | None = None
    #: what the newest commit says, as last seen
    seen: Positions = field(default_factory=Positions)

    def __post_init__(self) -> None:
        if not self.source or set(self.starts) != set(self.ends):
            raise Invalid(
                f"stream positions {self!r}: expected a source, and a start and an end for each partition"
            )

    def carrying(self, newest: Positions) -> StreamPositions:
        """The same guard, encoded on top of ``newest``."""
        return replace(self, seen=newest)

    @property
    def whole(self) -> dict[str, int]:
        """Positions of all partitions after this write."""
        kept = {} if self.anew is not None else self.seen.ends
        whole = {name: end for name, end in kept.items() if name not in self.forget}
        whole |= self.ends
        return dict(sorted(whole.items(), key=lambda item: _order(item[0])))

    def extra_metadata(self) -> dict[str, str]:
        """What the completed instant says about it: in our form and, for a topic, in Hudi's."""
        whole = self.whole
        found = {
            POSITIONS_KEY: json.dumps(
                {"source": self.source, "ends": whole, "about": dict(sorted(self.about.items()))},
                separators=(",", ":"),
            )
        }
        if self.topic:
            text = checkpoint_text(self.topic, whole)
            found |= dict.fromkeys(CHECKPOINT_KEYS, text)
        return found

    def follows(self, newest: Positions) -> bool:
        """Whether this write begins where ``newest`` ends."""
        if self.anew is not None:
            return newest.instant == self.anew
        if newest.about and newest.about != self.about:
            return False
        return all(newest.ends.get(name) == start for name, start in self.starts.items())


def checkpoint_text(topic: str, ends: Mapping[str, int]) -> str:
    """Hudi's text of a Kafka checkpoint (KafkaOffsetGen.CheckpointUtils.offsetsToStr)."""
    return ",".join([topic, *(f"{name}:{end}" for name, end in ends.items())])


def parse_checkpoint(text: str) -> tuple[str, dict[str, int]] | None:
    """Topic and offsets of Hudi's text; None for a checkpoint of another kind of source."""
    topic, *parts = text.split(",")
    found = [re.fullmatch(r"([0-9]{1,9}):([0-9]{1,18})", part.strip()) for part in parts]
    if not topic or not found or not all(found):
        return None
    return topic.strip(), {match[1]: int(match[2]) for match in found if match}


def _order(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isascii() and name.isdigit() else (1, 0, name)


@dataclass(frozen=True)
class _Fact:
    """A completed instant says where this stream stands."""

    source: str
    positions: Positions


class PositionIndex:
    """Where streams stand in one table; each instant is read once."""

    def __init__(self, storage: Storage, history: str = paths.HISTORY) -> None:
        self._storage = storage
        self._history = history
        #: file name -> what it says, for files of the active timeline; threads may replace it any time
        self._known: dict[str, _Fact | None] = {}
        #: requested time -> completion time and what an archived instant says; it never changes
        self._archived: dict[str, tuple[str, _Fact | None]] = {}
        self._notes: dict[str, Notes] = {}
        #: source -> the instant that was last made durable before somebody was told of it
        self._lasting: dict[str, str] = {}

    def newest(self, source: str, timeline: ActiveTimeline) -> Positions:
        """Where the stream stands. ``timeline`` was listed before this call.

        Instants that a pending restore or rollback takes back do not count.
        """
        timeline = shown_timeline(self._storage, timeline)
        found = [*self._active(source, timeline), *self._noted(source, timeline)]
        if not found:
            return Positions()
        newest = max(found, key=lambda item: item[0])[1]
        if self._lasting.get(source) != newest.instant:
            # Its publisher may have died before it synced the folder; who is told of it forgets the records.
            self._storage.settle([], [paths.TIMELINE], durable=True)
            self._lasting[source] = newest.instant
        return newest

    def committed(self, guard: StreamPositions, timeline: ActiveTimeline) -> str | None:
        """The instant that moved a partition of this write; None if it begins where the table stands."""
        newest = self.newest(guard.source, timeline)
        return None if guard.follows(newest) else newest.instant

    def prepare(self, source: str, timeline: ActiveTimeline) -> None:
        """At begin, outside the lock: make sure that notes lead to everything that may be archived."""
        notes = self._of(source)
        present = notes.read()
        known = {note.instant for note in present}
        active = max(self._active(source, timeline), key=lambda item: item[0], default=None)
        if active is not None and active[1].instant not in known:
            notes.write(Note(0, None, active[1].instant))
        if not notes.archive_searched:
            newest = max(self._searched(source), key=lambda item: item[0], default=None)
            if newest is not None:
                notes.write(Note(0, None, newest[1].instant))
            notes.note_search()
        if len(present) > _NOTES_MANY:
            notes.forget(self._superfluous(source, timeline, present))

    def announce(self, source: str, instant: str) -> None:
        """Before the instant is published: leave a durable note of it."""
        self._of(source).write(Note(0, None, instant))

    def _of(self, source: str) -> Notes:
        if source not in self._notes:
            self._notes[source] = Notes(self._storage, stream_folder(f"positions of {source}"))
        return self._notes[source]

    def _active(self, source: str, timeline: ActiveTimeline) -> Iterator[tuple[str, Positions]]:
        known, found = self._known, {}
        for instant in timeline.completed:
            name = instant.file_name
            if name not in known and instant.action in _WRITES:
                path = paths.timeline_file(name)
                try:
                    data = self._storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
                except FileNotFoundError:
                    continue  # archived or taken back since: its note leads to it
                found[name] = _fact(instant.requested, decode_commit(data, path=path).extra, path)
            elif name in known:
                found[name] = known[name]
        self._known = found
        for instant in timeline.completed:
            fact = found.get(instant.file_name)
            if fact is not None and fact.source == source:
                yield instant.completion or "", fact.positions

    def _noted(self, source: str, timeline: ActiveTimeline) -> Iterator[tuple[str, Positions]]:
        """What archived instants say that notes lead to."""
        notes = self._of(source).read()
        shown = {i.requested for i in timeline.instants} if notes else set()
        for note in sorted(notes):
            if note.instant not in shown:  # else pending, or completed and read there
                completed, fact = self._of_archived(note.instant)
                if fact is not None and fact.source == source:
                    yield completed, fact.positions

    def _of_archived(self, instant: str) -> tuple[str, _Fact | None]:
        if instant not in self._archived:
            archive = Archive.load(self._storage, self._history)
            data = archive.metadata(instant)
            if data is None:
                return "", None
            path = f"archived instant {instant}"
            fact = _fact(instant, decode_commit(data, path=path).extra, path)
            self._archived[instant] = archive.completion_time(instant) or "", fact
        return self._archived[instant]

    def _searched(self, source: str) -> Iterator[tuple[str, Positions]]:
        """What the archive says of a stream that nobody noted, by reading it through."""
        needle = max(re.findall("[A-Za-z0-9]+", source), key=len, default="").encode()
        archive = Archive.load(self._storage, self._history)
        for requested, data in archive.with_bytes(needle):
            path = f"archived instant {requested}"
            fact = _fact(requested, decode_commit(data, path=path).extra, path)
            if fact is not None and fact.source == source:
                yield archive.completion_time(requested) or "", fact.positions

    def _superfluous(self, source: str, timeline: ActiveTimeline, notes: list[Note]) -> list[Note]:
        """Notes of archived instants but for the newest, and of instants that came to nothing.

        ``timeline`` was listed before ``notes``: an instant that is requested since is above all of it."""
        shown = {i.requested for i in timeline.instants}
        highest = max(shown, default="")
        gone, archived = [], []
        for note in sorted(notes):
            if note.instant in shown or note.instant > highest:
                continue
            completed, fact = self._of_archived(note.instant)
            if fact is not None and fact.source == source:
                archived.append((completed, note))
            else:
                gone.append(note)
        archived.sort(key=lambda item: item[0])
        return gone + [note for _, note in archived[:-1]]


def _fact(instant: str, extra: Mapping[str, str], path: str) -> _Fact | None:
    """What a commit's extra metadata says of a stream's positions."""
    try:
        if POSITIONS_KEY in extra:
            found = json.loads(extra[POSITIONS_KEY])
            ends = {str(name): int(end) for name, end in found["ends"].items()}
            about = {str(name): str(text) for name, text in found["about"].items()}
            return _Fact(str(found["source"]), Positions(ends, about, instant))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptTable(f"stream positions in the commit do not parse: {error}", path=path) from error
    text = next((extra[key] for key in CHECKPOINT_KEYS if extra.get(key)), "")
    checkpoint = parse_checkpoint(text)
    if checkpoint is None:
        return None
    topic, ends = checkpoint
    return _Fact(topic, Positions(ends, {}, instant))
