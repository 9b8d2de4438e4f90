"""Archiving beside running writers: old instants move from the active timeline into the LSM archive.

  1. choose instants (``archive_plan``), read their files, write them as a level-0 data file; merge the
     levels that are due; write the new manifest: private files, made durable, without the lock
  2. link data files and manifest to their names; nobody looks at them yet (where ``_version_`` is missing,
     the newest manifest counts: there the manifest appears in step 4, by the same kind of rename)
  3. [[ lock: is the version still the one we built on, is the manifest ours, are its files there, may every
     chosen instant still go?
  4.    rename the ticket (it holds the new number) over ``_version_``: the switch; make it durable
  5.    fence checked again; delete requested and inflight files; make that durable
  6.    delete completed files, oldest request first
  7.    fence checked; delete old manifests, then data files that no manifest names any more ]]
  8. marker folders that the archived instants' writers left

**A crash.** Before 4 every instant is active and the archive is what it was; what was linked is named by no
version, keeps its name (another archiver takes another one) and goes with a later step 7. After 4 every
chosen instant is archived for good, and until 6 also active: readers count it once, and whoever archives
next finds it in the archive, makes the switch durable and goes on with step 5. An instant without its
completed file is never left with a requested one, which would look like a write that is under way.

**A process that was stopped and wakes up.** In 1 and 2 it makes files that nobody names. In 3 it sees that
the version moved on, and starts again. In 4 its ticket is gone (``publish.link_fence``): it switches nothing.
From 5 on whatever it still deletes between two checks is archived for good, and times are used once: the
same file never comes back. Two archivers at once are two such processes.

**Readers** list the active timeline first and ask the archive after that (``lsm_archive.reader``). **Rolling
back and restoring** need pending instants, and those after a savepoint: neither is ever archived.

Beside Java there remains: Java's archiver checks nothing before its switch. One that lost the lock while it
archived may put a manifest in place that does not name what was archived meanwhile (SAFETY.md).

Hudi: ``TimelineArchiverV2``, ``LSMTimelineWriter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, LeaseLost, OutcomeUnknown, Unavailable
from mainstem.limits import MANIFEST_BYTES_MAX, MIB, TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.data_file import DataFile
from mainstem.lsm_archive.manifest import current_version, encode_manifest, read_manifest
from mainstem.lsm_archive.names import (
    VERSION_FILE,
    ArchiveFile,
    data_name,
    manifest_name,
    parse_data_name,
    parse_manifest_name,
)
from mainstem.lsm_archive.writer import (
    SCHEMA,
    ArchiveRow,
    Merge,
    next_merge,
    rows_table,
    write_data_file,
)
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import delete_quietly, prepare
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
from mainstem.services.metadata.metadata_state import MetadataState
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.compaction_trigger import INITIAL
from mainstem.timeline.instant import CLEAN, REPLACECOMMIT, Instant, parse_instant
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers.context import WriterContext

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.storage.protocol import Storage

PREFIX = "archive"
_ATTEMPTS_MAX = 20
# What one round holds in memory.
_ROUND_BYTES = 64 * MIB


@dataclass(frozen=True)
class Archived:
    """What one run moved. ``first`` and ``last`` are requested times, "" if nothing was new;
    ``finished``: instants that an earlier run archived and left on the active timeline."""

    instants: int = 0
    first: str = ""
    last: str = ""
    merged: int = 0
    finished: int = 0
    #: of which table, for people
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
        """Both together."""
        return Archived(
            self.instants + more.instants,
            self.first or more.first,
            more.last or self.last,
            self.merged + more.merged,
            self.finished + more.finished,
        )


def run(ctx: WriterContext, *, if_due: bool = True, progress: Progress = silent) -> Archived | None:
    """Archive what may go; None if there is nothing, or ``if_due`` and not more than may stay.

    Raises ``Invalid`` for bounds that exclude each other, ``CorruptTable`` for a damaged archive (nothing
    is deleted), ``Unavailable`` for trouble with storage: what is done stands, the next run goes on.
    """
    options = ArchiveOptions.from_properties({**ctx.config.raw, **ctx.given})
    return archive(Subject(ctx, options), if_due=if_due, progress=progress)


def archive(subject: Subject, *, if_due: bool, progress: Progress = silent) -> Archived | None:
    """``run`` for any timeline of the table."""
    ctx = subject.ctx
    done: Archived | None = None
    try:
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
    except OutcomeUnknown:
        raise
    except OSError as error:
        raise Unavailable(
            f"archiving did not end: {error}; every instant is on the active timeline or archived, run it"
            " again",
            table=ctx.base,
        ) from error
    return done


def _one_round(subject: Subject) -> tuple[Archived, int] | None:
    """One version of the archive, and how many instants it left for another; again from the start while
    others change what it is built on.

    What completes meanwhile is for the next run: beside busy writers there would be a version for every
    few commits of theirs, each with its time under the lock.
    """
    for _ in range(_ATTEMPTS_MAX):
        plan = ArchivePlan.make(subject)
        if plan is None:
            return None
        try:
            _check_written(plan)
            done = _Round(subject, plan).run()
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
    """Raises ``CorruptTable`` if a file that the table needs is gone whose instant would leave the timeline:
    nobody would miss it any more. ``FileNotFoundError`` if a clean may just have removed it."""
    state = plan.state
    if isinstance(state, MetadataState):  # its indexes can be built anew
        return
    writes = [i for i in plan.fresh if i.action in WRITES]
    for partition in sorted(written_files(state, [i.requested for i in writes])):
        check_listed(state, partition, set(state.storage.names(partition)), replaced=state.replaced(None))


def _check_whole(plan: ArchivePlan) -> None:
    """Raises ``CorruptTable`` when a file that the current version names is gone for good."""
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
    merges: int = 0
    #: private files, and those of them that are to become data files, by the name that they will have
    private: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    @property
    def ctx(self) -> WriterContext:
        return self.subject.ctx

    @property
    def folder(self) -> str:
        """Of the archive."""
        return self.subject.path(self.plan.state.config.history)

    def run(self) -> Archived | None:
        """None if somebody else changed the archive or the timeline meanwhile."""
        storage = self.ctx.seams.storage
        try:
            rows = self._rows()
            switch = self._prepare(rows) if rows else None
            going = [*self.plan.stale, *(i for i, _ in rows)]
            if not self.ctx.publisher.guarded(lambda section: self._move(section, going, switch)):
                return None
        finally:
            for path in self.private:
                delete_quietly(storage, path)
        self._tidy(going)
        fresh = [i.requested for i, _ in rows]
        first, last = (fresh[0], fresh[-1]) if fresh else ("", "")
        return Archived(len(fresh), first, last, self.merges, len(self.plan.stale))

    # -- before the lock -----------------------------------------------------------------------------

    def _rows(self) -> list[tuple[Instant, ArchiveRow]]:
        """The instants' files, as many as may be held at once."""
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
        """As MetadataConversionUtils: plans of compactions, cleans and replacements, nothing for others."""
        at, timeline = instant.requested, self.plan.state.timeline
        names = [f"{at}.compaction.requested"]
        if instant.action == CLEAN:
            names = [f"{at}.clean.requested"]
        elif instant.action == REPLACECOMMIT:
            actions = ("replacecommit", "clustering")
            names = [f"{at}.{a}.{s}" for s in ("inflight", "requested") for a in actions]
        return next((data for n in names if timeline.has(n) and (data := self._read(n))), None)

    def _prepare(self, rows: Sequence[tuple[Instant, ArchiveRow]]) -> _Switch:
        storage, manifest = self.ctx.seams.storage, self.plan.manifest
        make_folder(storage, self.folder)
        taken = set(storage.names(self.folder))
        requested = [row.requested for _, row in rows]
        name = _free_name(min(requested), max(requested), 0, taken)
        files = list(manifest.files)
        made = {name: self._write(name, [rows_table([row for _, row in rows])])}
        files.append(made[name])
        level = 0
        while (merge := next_merge(files, level, self.subject.options.levels)) is not None:
            merged = _free_name(merge.first, merge.last, level + 1, taken | set(made))
            made[merged] = self._write(merged, self._merged(merge))
            files = [f for f in files if f not in merge.sources] + [made[merged]]
            level += 1
            self.merges += 1
        numbers = [n for n in map(parse_manifest_name, taken) if n is not None]
        return self._link(max([manifest.version, *numbers]) + 1, files)

    def _write(self, name: str, tables: Iterable[pa.Table]) -> ArchiveFile:
        """A private file with this content, durable."""
        ctx = self.ctx
        path = paths.prepared(PREFIX, f"{ctx.seams.random.getrandbits(64):016x}")
        sink = ctx.seams.storage.upload(path)
        self.private.append(path)
        try:
            write_data_file(tables, sink)
        finally:
            ctx.seams.storage.settle([sink], [], durable=ctx.services_sync)
        self.named[name] = path
        file = parse_data_name(name, sink.size)
        assert file is not None
        return file

    def _merged(self, merge: Merge) -> Iterator[pa.Table]:
        """Rows of the sources, oldest file first; a source of this round is still private."""
        for source in merge.sources:
            for path in self.private:  # a large merge takes long: nobody shall take them for left over
                self.ctx.seams.storage.renew(path)
            path = self.named.get(source.name) or f"{self.folder}/{source.name}"
            opened = DataFile(self.ctx.seams.storage, path)
            try:
                yield from opened.batches(SCHEMA)
            finally:
                opened.close()

    def _link(self, version: int, files: list[ArchiveFile]) -> _Switch:
        """Give the files of the new version their names; it does not count before the switch."""
        ctx, storage = self.ctx, self.ctx.seams.storage
        content = encode_manifest(files)
        if len(content) > MANIFEST_BYTES_MAX:
            raise CorruptTable(
                f"the archive has {len(files)} files, too many for a manifest", path=self.folder
            )
        pointer = prepare(ctx.seams, PREFIX, str(version).encode())
        self.private.append(pointer)
        manifest = prepare(ctx.seams, PREFIX, content)
        self.private.append(manifest)
        known = {f.name for f in self.plan.manifest.files}
        new = [f.name for f in files if f.name not in known]
        for name in new:
            storage.link(self.named[name], f"{self.folder}/{name}")
        switch = _Switch(version, pointer, manifest, content, tuple(new))
        if storage.stat(f"{self.folder}/{VERSION_FILE}") is not None:
            storage.link(manifest, f"{self.folder}/{manifest_name(version)}")
        storage.settle([], [self.subject.timeline, self.folder], durable=True)
        return switch

    # -- under the lock --------------------------------------------------------------------------------

    def _move(self, section: Guarded, going: list[Instant], switch: _Switch | None) -> bool:
        """Steps 3 to 7; False if what the round was built on has changed."""
        timeline = self._still_right(section, going, switch)
        if timeline is None:
            return False
        if switch is None:
            # Whoever archived these may have been stopped, or refused, before its version was durable.
            self.ctx.seams.storage.settle([], [self.folder], durable=True)
        elif not self._switch(section, switch):
            return False
        _delete_active(section, self.subject.timeline, timeline, going)
        if switch is not None:
            self._forget_versions(section, switch.version)
        return True

    def _still_right(
        self, section: Guarded, going: list[Instant], switch: _Switch | None
    ) -> ActiveTimeline | None:
        """The timeline now, None if what the round was built on has changed."""
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
        return state.timeline if set(storage.names(self.folder)).issuperset(switch.new) else None

    def _switch(self, section: Guarded, switch: _Switch) -> bool:
        """Step 4; False if the manifest's name holds something else by now."""
        storage = self.ctx.seams.storage
        target = f"{self.folder}/{VERSION_FILE}"
        manifest = f"{self.folder}/{manifest_name(switch.version)}"
        if storage.stat(target) is None:
            # Readers take the newest manifest then: it appears here, behind the fence, and is the switch.
            if storage.stat(manifest) is not None:
                return False
            section.replace(switch.manifest, manifest)
            storage.settle([], [self.folder], durable=True)
        elif storage.read(manifest, max_bytes=MANIFEST_BYTES_MAX) != switch.content:
            return False
        try:
            section.replace(switch.pointer, target)
        except LeaseLost:
            raise
        except OSError as error:
            # The number is ours alone: either the reply was lost, or the effect.
            if storage.read(target, max_bytes=4096) != str(switch.version).encode():
                raise Unavailable(
                    f"the archive's version could not be switched: {error}; nothing was deleted, run"
                    " archiving again",
                    table=storage.base,
                ) from error
        storage.settle([], [self.folder], durable=True)
        return True

    def _forget_versions(self, section: Guarded, version: int) -> None:
        """Old manifests beyond the retained ones go first, then what no manifest names any more."""
        storage = self.ctx.seams.storage
        names = storage.names(self.folder)
        numbers = sorted(n for n in map(parse_manifest_name, names) if n is not None)
        old = [n for n in numbers if n <= version]
        kept = self.subject.options.levels.retained + self.merges
        going = old[: max(0, len(old) - kept)]
        if not going:
            return
        section.check()
        for number in going:
            self._delete(f"{self.folder}/{manifest_name(number)}", names)
        needed: set[str] = set()
        for number in numbers[len(going) :]:
            try:
                needed.update(f.name for f in read_manifest(storage, self.folder, number).files)
            except CorruptTable:
                return  # of an archiver that died; what it needed is not known: wait until it is gone
        for name in sorted(names):
            if parse_data_name(name, 0) is not None and name not in needed:
                self._delete(f"{self.folder}/{name}", names)

    def _delete(self, path: str, names: Sequence[str]) -> None:
        storage = self.ctx.seams.storage
        storage.delete(path)
        checksum = paths.checksum_file(path)
        if checksum.rpartition("/")[2] in names:
            storage.delete(checksum)

    # -- afterwards ------------------------------------------------------------------------------------

    def _tidy(self, going: list[Instant]) -> None:
        storage = self.ctx.seams.storage
        with suppress(OSError):  # sweep_leftovers finds them too
            temporary = self.subject.path(paths.TEMP)
            marked = set(storage.names(temporary))
            for instant in going:
                if instant.requested in marked:
                    storage.delete_tree(self.subject.path(paths.marker_folder(instant.requested)))


@dataclass(frozen=True)
class _Switch:
    """A new version whose data files are in place: its number, the private file that says so, its
    manifest as a private file and as bytes, and the names of what is new."""

    version: int
    pointer: str
    manifest: str
    content: bytes
    new: tuple[str, ...]


def _free_name(first: str, last: str, level: int, taken: set[str]) -> str:
    """A name that nobody used. A crashed run may have left files: none is overwritten, none believed; the
    range in a name may be wider than what the file holds, so the end moves on."""
    while (name := data_name(first, last, level)) in taken:
        # The first instants of a metadata table are numbers, not times.
        later = None if last.startswith(INITIAL) else parse_wall(last) + timedelta(milliseconds=1)
        last = f"{int(last) + 1:017}" if later is None else instant_text(later)
    return name


def _delete_active(section: Guarded, folder: str, timeline: ActiveTimeline, going: list[Instant]) -> None:
    """Steps 5 and 6: whatever happens in between, no requested file outlives its completed one."""
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
