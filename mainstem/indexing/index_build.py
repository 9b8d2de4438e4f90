"""Builds an index beside writers, none of which stops or waits.

  plan      [[ t.indexing.requested, behind a heartbeat (``indexing.index_plan``) ]]
  open      [[ 1. files of an index that had this name go, and the metadata table itself is made if there
  is none
               2. an empty log file for each file group: their number is fixed from here on
               3. the definition; t.indexing.inflight
               4. the name goes into the list of indexes being built. This section's list of instants is the
                  *listing point*: what is completed in it is for the builder, what completes later is for its
                  writer, which reads the lists under the lock, before it publishes ]]
  build     the rows of all files completed at the listing point, into private files, without the lock
  wait      until what it rests on is whole, which another process may be building (``required_indexes``)
  complete  [[ 5. is every instant that completed since in the index, and what it rests on whole? else its
  rows are made, and 5 comes again, until ``hoodie.metadata.index.check.timeout.seconds`` after the build
               6. the base files get their names; on the metadata table's timeline t.deltacommit is requested,
                  inflight and completed
               7. t_c.indexing ]]
            [[ 8. the name moves to the list of indexes that are whole ]]

**The four races of RFC-45.** *A writer in flight when the index is planned* commits after 4 and writes its
rows itself. Another engine's writer may have read the table's properties long before: 5 waits for it, no
longer than the timeout, and checks what it wrote. *A writer that commits while the index completes* does so
before or after that critical section, never during it. *A plan beside a completing writer*: both hold the
lock. *Holes in the timeline* do not matter: an instant was completed at the listing point, or it was not.

**Every file counts once.** Rows of a file completed at the listing point are in the base files only; those of
a later file are in its writer's log file only. A name in both would reappear from the base file after a
clean, because in log files a name that was added and removed leaves no trace. So a section that is repeated
keeps the listing point of the first time that the name was in the list.

**A crash** before 4 leaves files that nobody looks for. From 4 to 6 writers maintain an index that nobody
reads, until someone creates or drops it. From 6 on everything is in place, and creating the index again
finishes it; so it is between 7 and 8.

**A suspended process that wakes up** has lost its action or its ticket, so it publishes nothing. Marker logs,
base files and inflight files that it still makes carry the time of its action, which is on no timeline and
never used again. It removes them when it notices, and creating the index clears them away. An index made
meanwhile records its own number of file groups (``metadata.metafile``): other files belong to none of them.

Hudi: ``RunIndexActionExecutor``, ``HoodieBackedTableMetadataWriter.buildMetadataPartitions``. Java lists
an index as whole before it has caught up (here in 8), builds two in one action and destroys the first,
and trusts writers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, Unavailable
from mainstem.formats.hfile_write import write_hfile
from mainstem.indexing import index_lists
from mainstem.indexing.coverage import Coverage
from mainstem.indexing.dropping import drop, files_that_may_go, instant_of
from mainstem.indexing.index_plan import emptied_plans, planned_builds, schedule
from mainstem.indexing.index_spec import IndexSpec
from mainstem.indexing.initial_keys import InitialKeys, initial_contents
from mainstem.indexing.initial_rows import InitialRows, Run, here
from mainstem.indexing.required_indexes import await_whole, live_builders
from mainstem.layout.properties import TableConfig, load_config
from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.commits.taking_back import metadata_partition, take_back
from mainstem.metadata.creation import BaseFileStat, put_table
from mainstem.metadata.index_definitions import check, read_definitions, replace_definitions
from mainstem.metadata.metadata_partitions import FILES, data_partition_of, is_partitioned_group
from mainstem.metadata.metafile import index_metafile
from mainstem.metadata.records.group_logs import GroupLogs
from mainstem.metadata.records.record_schema import commit_schema, schema_of_version
from mainstem.options import INDEX_TIMEOUT
from mainstem.publish.publisher import Ahead, Guarded, Section
from mainstem.publish.staging import (
    create_once,
    delete_quietly,
    prepare,
    prepared,
    put_anew,
    replace_guarded,
)
from mainstem.readers.planning.table_state import TableState
from mainstem.services.archive_plan import restore_pending
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import encode_commit
from mainstem.timeline.index_records import IndexBuild, encode_index_metadata, load_index_plan
from mainstem.timeline.instant import DELTACOMMIT, INDEXING, INFLIGHT, REQUESTED
from mainstem.writers.context import WriterContext

_POLL_MS = 1000
_OPERATION = "BULK_INSERT_PREPPED"
_TOKEN = "0-0-0"
_AGAIN = "again"


@dataclass(frozen=True)
class Built:
    """A finished index.

    ``action``, ``completion``: times of its index action; ``rows``: number of rows made from files;
    ``files``: number of base files of the index.
    """

    index: str
    action: str
    completion: str
    rows: int
    files: int

    def describe(self) -> str:
        """One line for people."""
        return f"index {self.index} built by {self.action}: {self.rows:,} rows in {self.files:,} files"


def create(
    ctx: WriterContext, spec: IndexSpec, progress: Progress = silent, run: Run | None = None
) -> Built:
    """Build an index while writers continue. ``run``: where its rows are made, if not here.

    Raises ``Invalid`` for an index that exists or is being built, ``Unavailable`` for trouble with storage,
    for writers of other engines that did not end in time, and if the index was dropped meanwhile. After a
    failure the table is without the index; if the process dies, the next one to create or drop the index
    cleans up.
    """
    found = finish(ctx, spec.partition)
    if found is not None:
        return found
    _clear_dead(ctx, spec.partition)
    action = schedule(ctx, spec.partition, {})
    try:
        return _Build(ctx, spec, action, progress, run or here(ctx.seams.storage)).run()
    except OutcomeUnknown:
        raise
    except (MainstemError, OSError) as error:
        _give_up(ctx, spec.partition, action)
        if isinstance(error, OSError):
            raise Unavailable(
                f"building the index {spec.partition} failed: {error}; the table is as before, try again",
                table=ctx.base,
            ) from error
        raise
    finally:
        ctx.heartbeats.stop(action)


def deadline_ms(ctx: WriterContext) -> float:
    """Until when to wait for others, on this process's monotonic clock."""
    seconds = INDEX_TIMEOUT.read({**ctx.config.raw, **ctx.given})
    return ctx.seams.clock.monotonic_ms() + 1000 * seconds


def _give_up(ctx: WriterContext, partition: str, action: str) -> None:
    """Remove our own build from the table, if it is still there; if that fails, the next creator does."""
    try:
        timeline = ctx.timeline()
        if action in planned_builds(ctx.seams.storage, timeline).get(partition, ()):
            drop(ctx, partition, only=[action])
        elif action not in timeline.completion_times:
            take_back(ctx.seams.storage, action, "")  # files made after another process had ended our action
    except (MainstemError, OSError):
        return


def _clear_dead(ctx: WriterContext, partition: str) -> None:
    """Clear what a dead builder of this index, or a dead dropper, left. ``Invalid`` if a builder lives."""
    config = load_config(ctx.seams.storage)
    actions = live_builders(ctx, partition)
    for action, lives in actions.items():
        if lives:
            raise Invalid(
                f"the index {partition} is being built by the index action {action}, whose process lives;"
                " wait for it, or drop the index to stop it",
                table=ctx.base,
            )
    ended = partition not in index_lists.ready(config) and emptied_plans(ctx.seams.storage, ctx.timeline())
    if actions or ended or partition in index_lists.building(config):
        drop(ctx, partition, only=list(actions))


def finish(ctx: WriterContext, partition: str) -> Built | None:
    """Do step 8 for a builder that died before it; None if there is nothing to finish."""

    def move(section: Guarded) -> Built | None:
        config = load_config(ctx.seams.storage)
        plans = planned_builds(ctx.seams.storage, section.timeline)
        if partition not in index_lists.building(config) or partition in plans:
            return None
        done = [i for i in section.timeline.completed if i.action == INDEXING]
        for instant in reversed(done):
            plan = load_index_plan(ctx.seams.storage, instant.requested) or ()
            if partition in [build.partition for build in plan]:
                index_lists.change(ctx.seams, section, lambda now: index_lists.finished(now, partition))
                return Built(partition, instant.requested, instant.completion or "", 0, 0)
        return None

    if partition not in index_lists.building(load_config(ctx.seams.storage)):
        return None
    return ctx.publisher.guarded(move)


@dataclass
class _Build:
    ctx: WriterContext
    spec: IndexSpec
    action: str
    progress: Progress
    pieces: Run
    #: the listing point, and the properties then
    opened: tuple[ActiveTimeline, TableConfig] | None = None
    #: file group -> private file with its base file, and what the commit says about it
    bases: dict[str, tuple[str, BaseFileStat]] = field(default_factory=dict)

    @property
    def partition(self) -> str:
        return self.spec.partition

    @property
    def folder(self) -> str:
        return metadata_partition(self.partition)

    def run(self) -> Built:
        ctx = self.ctx
        ctx.publisher.guarded(self._open)
        assert self.opened is not None
        timeline, config = self.opened
        archive = Archive.load(ctx.seams.storage, config.history)
        state = TableState(ctx.seams.storage, config, timeline, archive)
        with initial_contents(state, self.spec, self.progress, self.pieces) as contents:
            contents.of_listing()
            try:
                done = self._built(contents, timeline, config.version)
            finally:
                for private, _ in self.bases.values():
                    delete_quietly(ctx.seams.storage, private)
        ctx.publisher.guarded(self._now_whole)
        return Built(self.partition, self.action, done, contents.rows, len(self.bases))

    def _built(self, contents: InitialRows | InitialKeys, listed: ActiveTimeline, version: int) -> str:
        """Build and complete until nothing is missing; returns the completion time.

        As in Hudi, the timeout starts once all rows of the listing point are made: the build itself may take
        any time.
        """
        self._write_bases(contents, version)
        coverage = Coverage(self.ctx, self.partition, listed, deadline_ms(self.ctx))
        while (done := self._complete(coverage)) is None:
            missing = coverage.still_uncovered()
            if missing:
                contents.and_of(missing)
                self._write_bases(contents, version)
            coverage.included(missing)
        return done

    # -- open ----------------------------------------------------------------------------------------

    def _open(self, section: Guarded) -> None:
        """Steps 1 to 4."""
        ctx, storage = self.ctx, self.ctx.seams.storage
        self._check_ours(section.timeline)
        config = load_config(storage)
        if self.partition in index_lists.building(config) and self.opened is not None:
            return  # this section took effect before it was superseded
        # From its completion until it is whole (8) an index is in the list alone.
        under_way = {*planned_builds(storage, section.timeline), *index_lists.building(config)}
        self.spec.check(config, read_definitions(storage, config), storage.base, under_way)
        if restore_pending(section.timeline):
            raise Unavailable("a restore is pending: build the index when it is done", table=ctx.base)
        self._clear_files(section)
        if self.partition == FILES:
            put_table(storage, config, index_lists.date_text(ctx.seams))
        self._put_groups(section, config.version)
        if self.spec.definition is not None:
            definitions = read_definitions(storage, config).with_definition(self.spec.definition)
            check(definitions, config.version)
            replace_definitions(section, ctx.seams.random, config, definitions)
        create_once(storage, paths.timeline_file(f"{self.action}.{INDEXING}.{INFLIGHT}"))
        storage.settle([], [paths.TIMELINE], durable=True)
        self.opened = (section.timeline, config)
        index_lists.change(ctx.seams, section, lambda now: index_lists.begun(now, self.partition))

    def _clear_files(self, section: Guarded) -> None:
        storage = section.storage
        names = files_that_may_go(storage, section.timeline, self.partition, ended=[self.action])
        section.check()  # else they may be those of an index that somebody has built since
        for name in names:
            storage.delete(f"{self.folder}/{name}")
            storage.delete(paths.checksum_file(f"{self.folder}/{name}"))
        left = [n for n in storage.names(self.folder) if instant_of(self.partition, n) is not None]
        if left:
            raise Unavailable(
                f"{self.folder}/{left[0]} belongs to an index that was dropped, and a pending write made it:"
                " try again when that write has ended",
                table=storage.base,
            )

    def _put_groups(self, section: Guarded, version: int) -> None:
        """Step 2: whole or not at all; but for the metafile, which says since when the index is there, under
        names that hold the action's time."""
        storage = self.ctx.seams.storage
        make_folder(storage, self.folder)
        # Groups of new partitions of the data are made by writers.
        count = None if self.spec.by_partition is not None else len(self.spec.group_ids)
        random, metafile = self.ctx.seams.random, paths.partition_metafile(self.folder)
        replace_guarded(section, random, self.action, metafile, index_metafile(self.action, count))
        logs = GroupLogs(version, self.action)
        for group in self.spec.group_ids:
            create_once(storage, f"{self.folder}/{logs.name(group)}", logs.first(), durable=True)
        storage.settle([], [self.folder, paths.METADATA], durable=True)

    # -- build ---------------------------------------------------------------------------------------

    def _write_bases(self, contents: InitialRows | InitialKeys, version: int) -> None:
        """Private files with the base file of each group that has rows, or no other file yet."""
        ctx, schema = self.ctx, schema_of_version(version)
        for private, _ in self.bases.values():
            delete_quietly(ctx.seams.storage, private)
        self.bases.clear()
        marked = set(self.spec.group_ids)
        for group, keys, values in contents.groups(schema):
            if not len(keys) and group in marked:
                continue
            data = write_hfile(
                keys, values, schema_text=schema, base_file=True, created_ms=int(ctx.seams.clock.now_ms()),
                run=partial(side_by_side, ctx.seams.storage),
            )  # fmt: skip
            name = paths.hfile_name(group, _TOKEN, self.action)
            stat = BaseFileStat(self.partition, group, name, self.action, 1, len(keys), 0, len(data), 1)
            self.bases[group] = prepare(ctx.seams, self.action, data), stat

    # -- complete ------------------------------------------------------------------------------------

    def _complete(self, coverage: Coverage) -> str | None:
        """Steps 5 to 7: the completion time, None if instants must be covered first."""
        ctx = self.ctx
        await_whole(ctx, self.spec.needs, coverage.deadline_ms)
        coverage.wait(lambda: ctx.seams.clock.sleep_ms(_POLL_MS))
        if coverage.uncovered():
            return None
        stats = [stat for _, stat in self.bases.values()]
        extra = {"schema": commit_schema(load_config(ctx.seams.storage).version)}
        plan = load_index_plan(ctx.seams.storage, self.action)
        builds = plan or [IndexBuild(self.partition, "")]
        with (
            prepared(ctx.seams, self.action, encode_index_metadata(builds)) as own,
            prepared(ctx.seams, self.action, encode_commit(stats, extra, _OPERATION)) as theirs,
        ):
            published = ctx.publisher.publish(
                lambda done: f"{self.action}_{done}.{INDEXING}",
                prepared=own,
                decide=lambda section: self._may_complete(section, coverage),
                ahead=Ahead(
                    (paths.METADATA_TIMELINE, self.folder),
                    theirs,
                    lambda done: f"{self.action}_{done}.{DELTACOMMIT}",
                    self._name_files,
                ),
            )
        return published.time

    def _may_complete(self, section: Section, coverage: Coverage) -> str | None:
        self._check_ours(section.timeline)
        storage = self.ctx.seams.storage
        config = load_config(storage)
        if self.partition not in index_lists.building(config):
            raise self._ended()
        self.spec.check(config, read_definitions(storage, config), storage.base)
        strange = [
            name
            for name in storage.names(self.folder)
            if name.endswith(".hfile") and not paths.is_native_log(name)
            and instant_of(self.partition, name) not in (None, self.action)
        ]  # fmt: skip
        if strange:
            raise Unavailable(
                f"{self.folder}/{strange[0]} was made while the index was being built, by a compaction that"
                " should have left it out; the index is not built, try again",
                table=storage.base,
            )
        self._check_groups()
        return None if coverage.holds(section.timeline) else _AGAIN

    def _check_groups(self) -> None:
        """Of a partitioned record index writers make the groups of new partitions, as many as we, unless they
        go by other options. A partition of which we know nothing is theirs alone."""
        if self.spec.by_partition is None:
            return
        ours = {*self.spec.group_ids, *self.bases}
        known = {data_partition_of(group) for group in ours}
        there = {found for found in map(paths.file_id_of, self.ctx.seams.storage.names(self.folder)) if found}
        strange = [g for g in there - ours if not is_partitioned_group(g) or data_partition_of(g) in known]
        if strange:
            raise Unavailable(
                f"{self.folder} has the file group {min(strange)}, made by a writer with other options for"
                " the number of groups; the index is not built, try again",
                table=self.ctx.base,
            )

    def _name_files(self, timeline: ActiveTimeline) -> bool:
        """Step 6, but for the completed file. Whether that is still to be published."""
        if self.action in timeline.completion_times:
            return False
        storage = self.ctx.seams.storage
        for state in (REQUESTED, INFLIGHT):
            create_once(storage, f"{paths.METADATA_TIMELINE}/{self.action}.{DELTACOMMIT}.{state}")
        for private, stat in self.bases.values():
            path = f"{self.folder}/{stat.file_name}"
            put_anew(storage, private, path)  # there may be one of a round that covered less
        return True

    def _now_whole(self, section: Guarded) -> None:
        """Step 8."""
        config = load_config(section.storage)
        if self.partition in index_lists.ready(config):
            return
        # Somebody dropped it and began another build meanwhile: the name in the list is that one's.
        another = planned_builds(self.ctx.seams.storage, section.timeline).get(self.partition)
        if another or self.partition not in index_lists.building(config):
            raise self._ended()
        index_lists.change(self.ctx.seams, section, lambda now: index_lists.finished(now, self.partition))

    def _check_ours(self, timeline: ActiveTimeline) -> None:
        if self.action not in planned_builds(self.ctx.seams.storage, timeline).get(self.partition, ()):
            raise self._ended()

    def _ended(self) -> Unavailable:
        return Unavailable(
            f"the index {self.partition} was dropped, or its builder taken for dead, while it was being"
            " built; create it again",
            table=self.ctx.base,
            instant=self.action,
        )
