"""Tracks which instants an index under construction covers: by the builder, by the writers, or not yet.

An instant that completed after the listing point is covered if its delta commit on the metadata table names a
file of the index, or if it changed no file. mainstem's writers ensure that under the lock. A writer of
another engine may have read the table's properties before the index was listed: the build waits for those
that were in flight at the listing point, and adds the rows that they left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mainstem.errors import Unavailable
from mainstem.formats.avro_container import OUR_MARK
from mainstem.layout.properties import MERGE_ON_READ
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.metadata_partitions import Kind, kind_of
from mainstem.options.metadata import INDEX_TIMEOUT
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.clean_records import load_clean_plan
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import (
    CLEAN,
    COMMIT,
    DELTACOMMIT,
    INDEXING,
    INFLIGHT,
    REPLACECOMMIT,
    REQUESTED,
    SAVEPOINT,
    Instant,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import roll_back_failed_writes

_COMMITS = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_OF_KEYS = (Kind.RECORD_INDEX, Kind.SECONDARY_INDEX)
_HEAD_BYTES = 256


@dataclass
class Coverage:
    """Coverage of one index being built.

    ``listed``: the timeline at the listing point; ``deadline_ms``: when catching up with others ends, on this
    process's monotonic clock.
    """

    ctx: WriterContext
    partition: str
    listed: ActiveTimeline
    deadline_ms: float
    #: names of completed instants' files found covered: their rows are in the index, or they have none
    covered: set[str] = field(default_factory=set)

    def wait(self, pause: Callable[[], None]) -> None:
        """Wait for the other engines' writers that were in flight at the listing point; roll back dead ones.

        Raises ``Unavailable`` after the deadline.
        """
        if self.ctx.options.lazy_rollback:
            roll_back_failed_writes(self.ctx, if_due=True)
        while strangers := self._strangers(self.ctx.timeline()):
            if self._late:
                raise Unavailable(
                    f"{strangers[0].action} {strangers[0].requested} of another engine, in flight since"
                    f" before the index {self.partition} was begun, did not end within"
                    f" {INDEX_TIMEOUT}: it may not know of the index. Nothing was built; let it"
                    " end or roll it back, then try again",
                    table=self.ctx.base,
                    instant=strangers[0].requested,
                )
            pause()

    def uncovered(self) -> list[Instant]:
        """Instants completed since the listing point whose rows are missing, oldest first."""
        return self._missing(self.ctx.timeline())

    def still_uncovered(self) -> list[Instant]:
        """As ``uncovered``, but raises ``Unavailable`` if some are left after the deadline."""
        found = self.uncovered()
        if found and self._late:
            raise Unavailable(
                f"the index {self.partition} did not catch up within {INDEX_TIMEOUT}: {len(found)} instants"
                f" completed meanwhile without rows for it, the first is {found[0].action}"
                f" {found[0].requested}. Nothing was built; stop the engines that do not maintain the index,"
                " then try again",
                table=self.ctx.base,
                instant=found[0].requested,
            )
        return found

    @property
    def _late(self) -> bool:
        return self.ctx.seams.clock.monotonic_ms() >= self.deadline_ms

    def included(self, instants: list[Instant]) -> None:
        """Note that the builder itself has made the rows of these instants."""
        self.covered.update(i.file_name for i in instants)

    def holds(self, timeline: ActiveTimeline) -> bool:
        """Under the lock: whether the index covers everything that is completed in ``timeline``.

        Raises ``Unavailable`` if an instant that was completed at the listing point is gone, because the base
        files hold its rows.
        """
        now = {i.file_name for i in timeline.completed}
        archive = Archive.load(self.ctx.seams.storage, self.ctx.config.history)
        for instant in self.listed.completed:
            if instant.action not in _COMMITS or instant.file_name in now:
                continue
            if not archive.is_archived(instant.requested):
                raise Unavailable(
                    f"{instant.action} {instant.requested} was taken back while the index {self.partition}"
                    " was being built; the index is not built, try again",
                    table=self.ctx.base,
                )
        return not self._strangers(timeline) and not self._missing(timeline)

    def _strangers(self, timeline: ActiveTimeline) -> list[Instant]:
        """Instants of other engines that are in flight, and were at the listing point."""
        before = {(i.requested, i.comparable_action): i for i in self.listed.pending}
        found = []
        for instant in timeline.pending:
            then = before.get((instant.requested, instant.comparable_action))
            if then is None or instant.action in (SAVEPOINT, INDEXING):
                continue
            if then.action not in _COMMITS and then.state == REQUESTED:
                continue  # a plan not executed yet: its executor will read the table's properties after us
            if not self._ours(instant):
                found.append(instant)
        return found

    def _ours(self, instant: Instant) -> bool:
        """Whether a pending instant has mainstem's mark, in a write's inflight file or a service's plan."""
        names = [f"{instant.requested}.{instant.action}.{state}" for state in (INFLIGHT, REQUESTED)]
        if instant.action == COMMIT:
            names.append(f"{instant.requested}.{INFLIGHT}")
        for name in names:
            try:
                head = self.ctx.seams.storage.read_range(paths.timeline_file(name), 0, _HEAD_BYTES)
            except FileNotFoundError:
                continue
            if OUR_MARK.encode() in head:
                return True
        return False

    def _missing(self, timeline: ActiveTimeline) -> list[Instant]:
        known = {i.file_name for i in self.listed.completed}
        theirs: ActiveTimeline | None = None
        found = []
        for instant in timeline.completed:
            name = instant.file_name
            if instant.action not in (*_COMMITS, CLEAN) or name in known or name in self.covered:
                continue
            if theirs is None:
                theirs = load_timeline(self.ctx.seams.storage, paths.METADATA_TIMELINE)
            if self._is_covered(instant, theirs):
                self.covered.add(name)
            elif instant.action in (CLEAN, REPLACECOMMIT):
                raise Unavailable(
                    f"{instant.action} {instant.requested}, made by an engine that did not maintain the index"
                    f" {self.partition}, removed files while it was being built; the index is not built, try"
                    " again",
                    table=self.ctx.base,
                    instant=instant.requested,
                )
            else:
                found.append(instant)
        self._check_archived(known)
        return found

    def _is_covered(self, instant: Instant, theirs: ActiveTimeline) -> bool:
        storage = self.ctx.seams.storage
        done = theirs.completion_times.get(instant.requested)
        if done is not None:
            path = f"{paths.METADATA_TIMELINE}/{instant.requested}_{done}.{DELTACOMMIT}"
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
            made = decode_commit(data, path=path)
            # Java names an index of keys in its commit but may leave keys out.
            if self.partition in made.stats and (made.ours or kind_of(self.partition) not in _OF_KEYS):
                return True
        keyless = (CLEAN, COMMIT) if self.ctx.config.table_type == MERGE_ON_READ else (CLEAN,)
        if kind_of(self.partition) in _OF_KEYS and instant.action in keyless:
            return True  # it brings no keys: such a commit is a compaction
        if instant.action == CLEAN:
            plan = load_clean_plan(storage, instant.requested)
            return plan is not None and not (plan.paths() and self._is_of_files)
        path = paths.timeline_file(instant.file_name)
        made = decode_commit(storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)
        return not made.files() and not made.replaced

    @property
    def _is_of_files(self) -> bool:
        """Whether the index has rows per file, which a clean must remove."""
        return kind_of(self.partition) != Kind.PARTITION_STATS

    def _check_archived(self, known: set[str]) -> None:
        """Raise ``Unavailable`` if another engine's instant completed and was archived since the listing."""
        newest = max((i.completion or "" for i in self.listed.completed), default="")
        archive = Archive.load(self.ctx.seams.storage, self.ctx.config.history)
        for row in archive.completed(newest).to_pylist():
            name = f"{row['instantTime']}_{row['completionTime']}.{row['action']}"
            if row["action"] not in _COMMITS or name in known or name in self.covered:
                continue
            blob = archive.metadata(row["instantTime"], row["action"])
            if blob is None or not decode_commit(blob, path=name).ours:
                raise Unavailable(
                    f"{row['action']} {row['instantTime']} completed and was archived while the index"
                    f" {self.partition} was being built; the index is not built, try again",
                    table=self.ctx.base,
                )
            self.covered.add(name)
