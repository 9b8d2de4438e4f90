"""Archiving beside running writers: old instants move from the active timeline into the LSM archive.

  1. choose instants (``archive_plan``), read their files, write them as a level-0 data file; merge the
     levels that are due; write the new manifest. All are private, durable files, made without the lock
  2. put data files and manifest under their names; no reader uses them yet (where ``_version_`` is missing,
     the newest manifest counts: there the manifest appears in step 4, by the same kind of rename)
  3. [[ lock: is the version still the one we built on, is the manifest ours, are its files there, may every
     chosen instant still go?
  4.    rename the ticket (it holds the new number) over ``_version_``: the switch; make it durable
  5.    fence checked again; delete requested and inflight files; make that durable
  6.    delete completed files, oldest request first
  7.    fence checked; delete old manifests, then data files that no manifest names any more ]]
  8. delete marker folders that the archived instants' writers left

**After a crash.** Before 4 every instant is active and the archive is unchanged; no version names the linked
files, which keep their names (another archiver picks other ones) until a later step 7 deletes them. After 4
every chosen instant is archived for good, and until 6 it is also active. Readers count it once; the next
archiver finds it in the archive, makes the switch durable and continues with step 5. An instant never loses
its completed file before its requested file, which alone would look like a write in flight.

**A suspended process that wakes up.** In 1 and 2 it makes files that no manifest names. In 3 it sees that the
version has changed, and starts again. In 4 its ticket is gone (``publish.link_fence``), so it switches
nothing. From 5 on, whatever it still deletes between two checks is archived for good; times are used only
once, so the same file never comes back. Two concurrent archivers are two such processes.

**Readers** list the active timeline first and ask the archive after that (``lsm_archive.reader``). **Rolling
back and restoring** need pending instants, and those after a savepoint: neither is ever archived.

One risk remains beside Java, whose archiver checks nothing before its switch: if it loses the lock meanwhile,
its manifest may omit instants that others archived in between (SAFETY.md).

Hudi: ``TimelineArchiverV2``, ``LSMTimelineWriter``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Unavailable, naming
from mainstem.limits import MIB, TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.manifest import current_version
from mainstem.lsm_archive.names import manifest_name
from mainstem.lsm_archive.writer import ArchiveRow
from mainstem.publish.publisher import Guarded
from mainstem.readers.changes.commit_range import written_files
from mainstem.readers.planning.file_presence import check_listed
from mainstem.readers.planning.table_state import WRITES
from mainstem.services.archive_plan import (
    ArchiveOptions,
    ArchivePlan,
    Subject,
    instants_to_archive,
    is_due,
    restore_pending,
)
from mainstem.services.archive_version import NewVersion, Switch
from mainstem.services.metadata.metadata_state import MetadataState
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.instant import CLEAN, REPLACECOMMIT, Instant, parse_instant
from mainstem.writers.context import WriterContext

_ATTEMPTS_MAX = 20
# Bytes that one round holds in memory.
_ROUND_BYTES = 64 * MIB


@dataclass(frozen=True)
class Archived:
    """What one run archived.

    ``first`` and ``last`` are requested times, "" if nothing was new; ``finished``: instants that an earlier
    run archived but left on the active timeline.
    """

    instants: int = 0
    first: str = ""
    last: str = ""
    merged: int = 0
    finished: int = 0
    #: names the table, for people
    of: str = ""

    def describe(self) -> str:
        """One line for people."""
        text = f"{self.instants:,} instants{self.of} archived"
        if self.instants:
            text += f" ({self.first} to {self.last})"
        if self.merged:
            text += f", {self.merged} levels merged"
        return text + (f", {self.finished} of an earlier run removed" if self.finished else "")

    def and_then(self, more: Archived) -> Archived:
        """The sum of both runs."""
        return Archived(
            self.instants + more.instants,
            self.first or more.first,
            more.last or self.last,
            self.merged + more.merged,
            self.finished + more.finished,
        )


def run(ctx: WriterContext, *, if_due: bool = True, progress: Progress = silent) -> Archived | None:
    """Archive what may go; None if there is nothing, or with ``if_due`` if the trigger does not fire.

    Raises ``Invalid`` for contradictory bounds, ``CorruptTable`` for a damaged archive (nothing is deleted),
    ``Unavailable`` for trouble with storage: finished work stands, and the next run continues.
    """
    options = ArchiveOptions.from_properties({**ctx.config.raw, **ctx.given})
    return archive(Subject(ctx, options), if_due=if_due, progress=progress)


def archive(subject: Subject, *, if_due: bool, progress: Progress = silent) -> Archived | None:
    """``run`` for any timeline of the table."""
    ctx = subject.ctx
    done: Archived | None = None
    if if_due and subject.rests:
        return None
    advice = "every instant is on the active timeline or archived, run it again"
    with naming(ctx.base, "archiving did not end", advice):
        listed = load_timeline(ctx.seams.storage, subject.timeline)
        if if_due and not is_due(listed, subject.options, ctx.publisher.now()):
            return None
        ctx.check_same_table()  # files of the archive are made before the lock is taken
        left = 1
        with ctx.synced():
            while left and (one := _one_round(subject)) is not None:
                more, left = one
                done = more if done is None else done.and_then(more)
                progress(f"archiving, up to {done.last}", done.instants, done.instants + left)
    return done


def _one_round(subject: Subject) -> tuple[Archived, int] | None:
    """Make one version of the archive, and say how many instants are left for another.

    Starts over while other processes change what the version is built on. Instants that complete meanwhile
    wait for the next run: otherwise busy writers would cause a version, and a critical section, for every
    few of their commits.
    """
    for _ in range(_ATTEMPTS_MAX):
        plan = ArchivePlan.make(subject)
        if plan is None:
            return None
        try:
            _check_written(plan)
            done = _Round.of_plan(subject, plan).run()
        except (FileNotFoundError, FileExistsError):
            _check_whole(plan)
            continue  # archived or cleaned meanwhile, or a name was taken
        if done is not None:
            return done, plan.waiting - done.instants
    raise Unavailable(
        f"the archive or the timeline changed {_ATTEMPTS_MAX} times while instants were being archived;"
        " nothing is lost, run it again",
        table=subject.ctx.base,
    )


def _check_written(plan: ArchivePlan) -> None:
    """Raises ``CorruptTable`` if a file is missing that the table needs and a chosen instant wrote.

    Once its instant is archived, nobody would notice the loss. ``FileNotFoundError`` if a clean may just have
    removed it.
    """
    state = plan.state
    if isinstance(state, MetadataState):  # its indexes can be built anew
        return
    writes = [i for i in plan.fresh if i.action in WRITES]
    for partition in sorted(written_files(state, [i.requested for i in writes])):
        check_listed(state, partition, set(state.storage.names(partition)), replaced=state.replaced(None))


def _check_whole(plan: ArchivePlan) -> None:
    """Raises ``CorruptTable`` if a file that the current version names is gone for good."""
    storage, folder, manifest = plan.state.storage, plan.state.config.history, plan.manifest
    there = set(storage.names(folder))
    missing = sorted(f.name for f in manifest.files if f.name not in there)
    if missing and current_version(storage, folder) == manifest.version:
        raise CorruptTable(
            f"archive file that {manifest_name(manifest.version)} names is missing; nothing was archived or"
            " deleted: restore it from a copy",
            path=plan.state.for_people(f"{folder}/{missing[0]}"),
        )


@dataclass
class _Round:
    """One new version of the archive, from private files to the deletion of active ones."""

    subject: Subject
    plan: ArchivePlan
    version: NewVersion

    @classmethod
    def of_plan(cls, subject: Subject, plan: ArchivePlan) -> _Round:
        folder = subject.path(plan.state.config.history)
        levels = subject.options.levels
        return cls(
            subject, plan, NewVersion(subject.ctx, folder, subject.timeline, plan.manifest, levels)
        )

    @property
    def ctx(self) -> WriterContext:
        return self.subject.ctx

    def run(self) -> Archived | None:
        """The result, or None if another process changed the archive or the timeline meanwhile."""
        try:
            rows = self._rows()
            switch = self.version.make([row for _, row in rows]) if rows else None
            going = [*self.plan.stale, *(i for i, _ in rows)]
            if not self.ctx.publisher.guarded(lambda section: self._move(section, going, switch)):
                return None
        finally:
            self.version.discard()
        self._tidy(going)
        fresh = [i.requested for i, _ in rows]
        first, last = (fresh[0], fresh[-1]) if fresh else ("", "")
        return Archived(len(fresh), first, last, self.version.merges, len(self.plan.stale))

    # -- before the lock -----------------------------------------------------------------------------

    def _rows(self) -> list[tuple[Instant, ArchiveRow]]:
        """The instants and their rows, as many as fit in memory."""
        rows: list[tuple[Instant, ArchiveRow]] = []
        size = 0
        for instant in self.plan.fresh:
            row = self._row(instant)
            size += len(row.metadata) + len(row.plan or b"")
            if rows and size > _ROUND_BYTES:
                break
            rows.append((instant, row))
        return rows

    def _row(self, instant: Instant) -> ArchiveRow:
        assert instant.completion is not None
        metadata = self._read(instant.file_name)
        return ArchiveRow(
            instant.requested, instant.completion, instant.action, metadata, self._plan_of(instant)
        )

    def _read(self, name: str) -> bytes:
        return self.plan.state.storage.read(paths.timeline_file(name), max_bytes=TIMELINE_FILE_BYTES_MAX)

    def _plan_of(self, instant: Instant) -> bytes | None:
        """The plan of a compaction, clean or replacement; None for others (as in MetadataConversionUtils)."""
        at, timeline = instant.requested, self.plan.state.timeline
        names = [f"{at}.compaction.requested"]
        if instant.action == CLEAN:
            names = [f"{at}.clean.requested"]
        elif instant.action == REPLACECOMMIT:
            actions = ("replacecommit", "clustering")
            names = [f"{at}.{a}.{s}" for s in ("inflight", "requested") for a in actions]
        return next((data for n in names if timeline.has(n) and (data := self._read(n))), None)

    # -- under the lock --------------------------------------------------------------------------------

    def _move(self, section: Guarded, going: list[Instant], switch: Switch | None) -> bool:
        """Steps 3 to 7; False if what the round was built on has changed."""
        timeline = self._still_right(section, going, switch)
        if timeline is None:
            return False
        if switch is None:
            # The archiver of these may have been suspended or refused before its version was durable.
            self.ctx.seams.storage.settle([], [self.version.folder], durable=True)
        elif not self.version.switch(section, switch):
            return False
        _delete_active(section, self.subject.timeline, timeline, going)
        if switch is not None:
            self.version.forget_old(section, switch.version)
        return True

    def _still_right(
        self, section: Guarded, going: list[Instant], switch: Switch | None
    ) -> ActiveTimeline | None:
        """The timeline now; None if what the round was built on has changed."""
        ctx, storage = self.ctx, self.ctx.seams.storage
        ctx.reread_config()
        state = self.subject.state(section.timeline)
        if state is None or state.archive.manifest.version != self.plan.manifest.version:
            return None
        if restore_pending(section.timeline):
            return None
        if not all(state.timeline.has(i.file_name) for i in going):
            return None
        if switch is None:
            return state.timeline
        allowed = instants_to_archive(state, self.subject.options, ctx.publisher.now(), if_due=False)
        stale = {i.file_name for i in self.plan.stale}
        if {i.file_name for i in going} - stale - {i.file_name for i in allowed}:
            return None
        return state.timeline if set(storage.names(self.version.folder)).issuperset(switch.new) else None

    # -- afterwards ------------------------------------------------------------------------------------

    def _tidy(self, going: list[Instant]) -> None:
        storage = self.ctx.seams.storage
        with suppress(OSError):  # sweep_leftovers finds them too
            temporary = self.subject.path(paths.TEMP)
            marked = set(storage.names(temporary))
            for instant in going:
                if instant.requested in marked:
                    storage.delete_tree(self.subject.path(paths.marker_folder(instant.requested)))


def _delete_active(section: Guarded, folder: str, timeline: ActiveTimeline, going: list[Instant]) -> None:
    """Steps 5 and 6, in an order in which no requested file ever outlives its completed one."""
    storage = section.storage
    keys = {(i.requested, i.action) for i in going}
    section.check()
    for name in sorted(_earlier_states(timeline, keys)):
        _delete(storage, folder, timeline, name)
    storage.settle([], [folder], durable=True)
    section.check()
    for instant in sorted(going, key=lambda i: i.requested):
        _delete(storage, folder, timeline, instant.file_name)


def _earlier_states(timeline: ActiveTimeline, keys: set[tuple[str, str]]) -> Iterator[str]:
    for name in timeline.names:
        instant = None if "_" in name else parse_instant(name)
        if instant is not None and (instant.requested, instant.comparable_action) in keys:
            yield name


def _delete(storage: Storage, folder: str, timeline: ActiveTimeline, name: str) -> None:
    storage.delete(f"{folder}/{name}")
    checksum = f".{name}.crc"
    if timeline.has(checksum):
        storage.delete(f"{folder}/{checksum}")
