"""The streaming guard: a micro-batch is committed once, however often it is replayed.

Java's form (HoodieStreamingSink): ``extraMetadata["_hudi_streaming_sink_checkpoint"]`` holds
``{"<checkpoint identifier>": "<batch id>"}``, and a batch is skipped when the newest stored id is not
smaller. mainstem keeps that and adds the ordinal of the write within its batch, so that several writes
of one batch are told apart; it looks again under the lock, so two live drivers cannot both commit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Invalid
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import STREAM_KEY, decode_commit
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, REPLACECOMMIT

GUARD_KEY = "mainstem.stream.guard"


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


class GuardIndex:
    """Newest committed batch of every stream, read from completed instants, each once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: set[str] = set()
        #: identifier -> (newest batch id, {ordinal or None for a whole batch: instant})
        self._newest: dict[str, tuple[int, dict[int | None, str]]] = {}

    def refresh(self, timeline: ActiveTimeline) -> None:
        """Read instants that completed since the last call."""
        for instant in timeline.completed:
            name = instant.file_name
            if name in self._seen or instant.action not in (COMMIT, DELTACOMMIT, REPLACECOMMIT):
                continue
            path = paths.timeline_file(name)
            try:
                data = self._storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
            except FileNotFoundError:
                continue
            self._seen.add(name)
            self._note(instant.requested, decode_commit(data, path=path).extra, path)

    def _note(self, instant: str, extra: dict[str, str], path: str) -> None:
        try:
            if GUARD_KEY in extra:
                identifier, batch_id, ordinal = json.loads(extra[GUARD_KEY])
                self._put(str(identifier), int(batch_id), int(ordinal), instant)
            elif STREAM_KEY in extra:
                for identifier, batch_text in json.loads(extra[STREAM_KEY]).items():
                    self._put(str(identifier), int(batch_text), None, instant)
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptTable(
                f"streaming checkpoint in the commit does not parse: {error}", path=path
            ) from error

    def _put(self, identifier: str, batch_id: int, ordinal: int | None, instant: str) -> None:
        newest, ordinals = self._newest.get(identifier, (-1, {}))
        if batch_id > newest:
            self._newest[identifier] = (batch_id, {ordinal: instant})
        elif batch_id == newest:
            ordinals[ordinal] = instant

    def committed(self, guard: StreamGuard) -> str | None:
        """Requested time of the instant that already holds this write, if there is one.

        As in Java a batch older than the newest committed one counts as committed: a stale driver must
        not write it again.
        """
        newest, ordinals = self._newest.get(guard.identifier, (-1, {}))
        if guard.batch_id < newest:
            return next(iter(ordinals.values()))
        if guard.batch_id > newest:
            return None
        return ordinals.get(guard.ordinal, ordinals.get(None))
