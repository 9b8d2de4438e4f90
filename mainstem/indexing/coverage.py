"""Which instants an index that is being built holds: its own share, that of the writers, and what is missing.

An instant that completed after the listing point is covered if its delta commit of the metadata table
names a file of the index, or if it changed no file. Mainstem's writers see to that under the lock. A
writer of another engine may have read the table's properties before the index was in the list: one that
was in flight at the listing point is waited for, and what it left out is made up for.
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
    """``listed``: the timeline at the listing point; ``deadline_ms``: when catching up with others ends, on
    the process's own clock."""

    ctx: WriterContext
    partition: str
    listed: ActiveTimeline
    deadline_ms: float
    #: completed files that were judged: their rows are in the index, or they have none
    covered: set[str] = field(default_factory=set)

    def wait(self, pause: Callable[[], None]) -> None:
        """Until no writer of another engine is in flight that was so at the listing point. Dead ones are
        rolled back. Raises ``Unavailable`` after the deadline."""
        if self.ctx.options.lazy_rollback:
            roll_back_failed_writes(self.ctx, if_due=True)
        while strangers := self._strangers(self.ctx.timeline()):
            if self._late:
                raise Unavailable(
                    f"{strangers[0].action} {strangers[0].requested} of another engine, in flight since"
                    f" before the index {self.partition} was begun, did not end within"
                    f" {INDEX_TIMEOUT}: it may not know of the index; nothing was"
                    " built, let it end or roll it back, then try again",
                    table=self.ctx.base,
                    instant=strangers[0].requested,
                )
            pause()

    def uncovered(self) -> list[Instant]:
        """Instants completed since the listing point whose rows are missing, oldest first."""
        return self._missing(self.ctx.timeline())

    def still_uncovered(self) -> list[Instant]:
        """``uncovered``, to make their rows. ``Unavailable`` where there are some after the deadline."""
        found = self.uncovered()
        if found and self._late:
            raise Unavailable(
                f"{found[0].action} {found[0].requested}, of {len(found)} that completed meanwhile without"
                f" rows for the index {self.partition}: it did not catch up within"
                f" {INDEX_TIMEOUT}; nothing was built, try again when engines that"
                " leave the index out are at rest",
                table=self.ctx.base,
                instant=found[0].requested,
            )
        return found

    @property
    def _late(self) -> bool:
        return self.ctx.seams.clock.monotonic_ms() >= self.deadline_ms

    def included(self, instants: list[Instant]) -> None:
        """The builder has made the rows of these by itself."""
        self.covered.update(i.file_name for i in instants)

    def holds(self, timeline: ActiveTimeline) -> bool:
        """Under the lock: whether the index is whole with what is completed in ``timeline``.

        Raises ``Unavailable`` where something that was completed at the listing point is gone, for the base
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
                continue  # a plan that nobody executed: whoever does reads the table's properties after us
            if not self._ours(instant):
                found.append(instant)
        return found

    def _ours(self, instant: Instant) -> bool:
        """Whether a pending instant shows mainstem's mark: of a write its inflight file, of a service its
        plan."""
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
            # Java names an index of keys in its commit and leaves keys out (readers.strangers).
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
        """Whether the index has rows of single files, which a clean takes out."""
        return kind_of(self.partition) != Kind.PARTITION_STATS

    def _check_archived(self, known: set[str]) -> None:
        """Instants that completed and were archived since the listing point: known ones, or mainstem's."""
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
