"""Drops an index while writers run, and clears away builds that died.

  execute pending compactions of the metadata table; wait ``WAIT_MS`` for those that somebody else executes
  [[ 1. is one still pending? then refuse: its plan names files that would go
     2. remove the partition from both lists of ``hoodie.properties``, in one step: from here on nobody uses
     it 3. remove its definition from ``index.json`` 4. replace the plans of index actions that build it by
     empty ones: from here on these actions have ended; remove their instants from the metadata table's
     timeline, durably, then their inflight files and plans 5. list its files, except those of instants that
     are pending on the data table ]] 6. delete exactly these files, and private files of the builds; the
     folder stays, empty

**Writers** check the lists under the lock, in the section that publishes their commit: a writer that began
earlier and prepared rows for the partition leaves them out. Files of the metadata table get their names only
in that section, so no writer adds a file to a dropped partition.

**A compaction that cannot be executed**, because a file of some index is damaged, does not block: dropping
that index repairs the table. Its part of the plan is void from 2 on
(``services.metadata.metadata_compaction``).

**A crash** before 2 has changed nothing. After 2 nobody reads or maintains the index. Its remains
(definition, plan, files) are found by its name and removed when it is dropped again, or before it is created
again.

**Dropping ``files``** switches the metadata table off; no other index may exist. Its folder and timeline
stay, without data files. Queries that were listing through it check the lists again once they have their
answer (``readers.planning.file_listing``); later writers commit without it. ``create_index("files")`` makes
it anew.

**A suspended process that wakes up** does nothing in 2 and 3 (its ticket was swept). In 4 it removes files
that carry the times of ended actions, which are never used again. In 6 it removes the names listed in 5. None
of them reappears if the index is created again meanwhile: each carries the time of an instant that is
completed or gone. Files of pending instants, which may be made again, are not in the list.

Hudi: ``DropIndexCommand``, ``HoodieBackedTableMetadataWriter.dropIndex``; there all writers must be
stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported
from mainstem.indexing import index_lists
from mainstem.indexing.index_plan import emptied_plans, plan_file, planned_builds
from mainstem.layout.properties import TableConfig, load_config
from mainstem.metadata.commits.setting_aside import to_rebuild
from mainstem.metadata.commits.taking_back import metadata_partition, take_back
from mainstem.metadata.index_definitions import read_definitions, replace_definitions
from mainstem.metadata.metadata_partitions import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    file_id_prefix,
    group_index,
)
from mainstem.options import METADATA
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import delete_quietly, replace_guarded
from mainstem.services.metadata import metadata_compaction
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.compaction_trigger import pending as pending_compactions
from mainstem.timeline.index_records import encode_index_plan
from mainstem.timeline.instant import COMPACTION, INDEXING, INFLIGHT, LOGCOMPACTION, REQUESTED
from mainstem.writers.context import WriterContext

#: how long a drop waits for a compaction of the metadata table that another process executes
WAIT_MS = 10_000
_LOOK_MS = 100


@dataclass(frozen=True)
class Dropped:
    """The outcome of dropping an index.

    ``files``: number of removed files; ``actions``: requested times of the index actions that were building
    it and were ended; ``others``: other indexes that these actions were building, dropped with it.
    """

    index: str
    files: int
    actions: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line for people."""
        ended = f", index action {', '.join(self.actions)} ended" if self.actions else ""
        beside = f", with it {', '.join(self.others)}" if self.others else ""
        return f"index {self.index} dropped: {self.files:,} files removed{ended}{beside}"


def drop(ctx: WriterContext, partition: str, only: Collection[str] | None = None) -> Dropped:
    """Drop the index in this partition of the metadata table, whatever state it is in.

    ``only``: drop it only if it is unfinished and no other index actions build it; ``Invalid`` otherwise.
    Raises ``Invalid`` if other indexes depend on it, ``Unavailable`` while another process compacts the
    metadata table for longer than ``WAIT_MS``, and for trouble with storage; another call then continues.
    """
    try:
        damaged = _compacted(ctx)
        unlist = partial(_unlist, ctx, partition=partition, only=only, damaged=damaged)
        actions, names = ctx.publisher.guarded(unlist)
        removed = _remove(ctx, names, actions)
    except OSError as error:
        raise Unavailable(
            f"dropping the index {partition} did not end: {error}; drop it again", table=ctx.base
        ) from error
    return Dropped(partition, removed, tuple(actions), tuple(name for name in names if name != partition))


def _compacted(ctx: WriterContext) -> set[str]:
    """Execute pending compactions, and wait for those that others execute, which takes seconds; returns
    mainstem's plans that cannot run because of a damaged file."""
    clock, damaged = ctx.seams.clock, set[str]()
    until = clock.monotonic_ms() + WAIT_MS
    while True:
        waiting = pending_compactions(load_timeline(ctx.seams.storage, paths.METADATA_TIMELINE))
        waiting = [time for time in waiting if time not in damaged and not _executed(ctx, time, damaged)]
        if not waiting or clock.monotonic_ms() >= until:
            return damaged
        clock.sleep_ms(_LOOK_MS)


def _executed(ctx: WriterContext, time: str, damaged: set[str]) -> bool:
    """Whether nobody needs to wait for this compaction: it was executed, or cannot be."""
    try:
        return metadata_compaction.execute(ctx, time) is not None
    except (CorruptTable, Unsupported):
        if metadata_compaction.is_ours(ctx.seams.storage, time):
            damaged.add(time)
        return True
    except Unavailable:
        return False  # somebody else executes it


def _unlist(
    ctx: WriterContext,
    section: Guarded,
    partition: str,
    only: Collection[str] | None,
    damaged: Collection[str],
) -> tuple[list[str], dict[str, list[str]]]:
    """Steps 1 to 5: the index actions that ended, and per partition the names of the files that may go."""
    storage = section.storage
    plans = planned_builds(storage, section.timeline)
    actions = plans.get(partition, [])
    # Java's actions may build several indexes. Once one is ended, nobody completes any of them.
    going = sorted({partition, *(name for name, by in plans.items() if set(by) & set(actions))})
    config = load_config(storage)
    if only is not None and (partition in index_lists.ready(config) or set(actions) - set(only)):
        raise Invalid(f"the index {partition} exists, or is being built by another process", table=ctx.base)
    check_droppable(config, going, storage.base)
    check_no_compaction(storage, damaged)
    definitions = read_definitions(storage, config)
    again = set() if only is None else {*to_rebuild(config)}  # an attempt at what was set aside ended
    index_lists.change(ctx.seams, section, lambda config: _without(config, going, again))
    if (set(going) - again) & set(definitions.by_partition):
        replace_definitions(section, ctx.seams.random, config, definitions.without(set(going) - again))
    actions = [*actions, *emptied_plans(storage, section.timeline)]
    _take_away(ctx, section, actions)
    names = {p: files_that_may_go(storage, section.timeline, p, ended=actions) for p in going}
    section.check()  # otherwise they may belong to an index built since
    return actions, names


def end_emptied(ctx: WriterContext) -> None:
    """Remove plans that a dropper had emptied when it died: a pending index action blocks rollbacks."""
    storage = ctx.seams.storage
    if emptied_plans(storage, ctx.timeline()):
        ctx.publisher.guarded(
            lambda section: _take_away(ctx, section, emptied_plans(storage, section.timeline))
        )


def _take_away(ctx: WriterContext, section: Guarded, actions: Collection[str]) -> None:
    storage = section.storage
    for action in actions:
        _end(ctx, section, action)
        take_back(storage, action, "")
        for state in (INFLIGHT, REQUESTED):
            path = paths.timeline_file(f"{action}.{INDEXING}.{state}")
            storage.delete(path)
            storage.delete(paths.checksum_file(path))
    if actions:
        storage.settle([], [paths.TIMELINE], durable=True)


def _without(config: TableConfig, going: Collection[str], again: Collection[str]) -> index_lists.Changes:
    """Changes that remove partitions from the lists.

    Without ``files`` there is no metadata table, so Java's writers are then told to make none.
    """
    ours = FILES in going and FILES not in again and config.raw.get(METADATA, "").strip().lower() == "true"
    return {**index_lists.gone(config, going, again), **({METADATA: "false"} if ours else {})}


def _end(ctx: WriterContext, section: Guarded, action: str) -> None:
    """Empty the plan, through the fence: its executor checks it before it completes."""
    replace_guarded(section, ctx.seams.random, action, plan_file(action), encode_index_plan([]))
    section.storage.settle([], [paths.TIMELINE], durable=True)


def check_droppable(config: TableConfig, going: Collection[str], table: str) -> None:
    """Raise ``Invalid`` if other indexes of the table need one of these."""
    stay = {*index_lists.ready(config), *index_lists.building(config)}.difference(going)
    secondary = {name for name in stay if name.startswith(SECONDARY_PREFIX)}
    if RECORD_INDEX not in index_lists.ready(config):  # those that are built beside it end by themselves
        secondary.intersection_update(index_lists.ready(config))
    resting = {FILES: stay, COLUMN_STATS: stay & {PARTITION_STATS}, RECORD_INDEX: secondary}
    for partition in going:
        if resting.get(partition):
            there = ", ".join(sorted(resting[partition]))
            raise Invalid(
                f"{there} cannot be without {partition}: drop {there} first, or rebuild all of them together"
                " (Table.reindex_all, mainstem index rebuild PATH); nothing changed",
                table=table,
            )


def check_no_compaction(storage: Storage, damaged: Collection[str]) -> None:
    """Raise ``Unavailable`` while the metadata table has a pending compaction that is not in ``damaged``."""
    timeline = load_timeline(storage, paths.METADATA_TIMELINE)
    waiting = [i.requested for i in timeline.pending if i.action in (COMPACTION, LOGCOMPACTION)]
    waiting = [time for time in waiting if time not in damaged]
    if waiting:
        raise Unavailable(
            f"the compaction {waiting[0]} of the metadata table is pending, and its plan may name files of"
            " the index; nothing changed: let it complete, then try again",
            table=storage.base,
        )


def files_that_may_go(
    storage: Storage, timeline: ActiveTimeline, partition: str, ended: Collection[str] = ()
) -> list[str]:
    """Names of the partition's data files, without those of instants that are pending on the data table."""
    pending = {i.requested for i in timeline.pending} - set(ended)
    found = []
    for name in sorted(storage.names(metadata_partition(partition))):
        instant = instant_of(partition, name)
        if instant is not None and instant not in pending:
            found.append(name)
    return found


def instant_of(partition: str, name: str) -> str | None:
    """The instant in the name of a data file of this partition, None for any other name."""
    log = paths.parse_log_name(name)
    if log is not None:
        group, instant = log.file_id, log.instant
    else:
        stem, dot, ending = name.rpartition(".")
        group, _, rest = stem.partition("_")
        instant = rest.rpartition("_")[2] if dot and ending == "hfile" else ""
    whole = instant.isascii() and instant.isdigit()
    mine = group.startswith(file_id_prefix(partition)) and group_index(group) is not None
    return instant if whole and mine else None


def _remove(ctx: WriterContext, names: Mapping[str, list[str]], actions: Collection[str]) -> int:
    storage = ctx.seams.storage
    removed = 0
    for partition, files in names.items():
        for name in files:
            path = f"{metadata_partition(partition)}/{name}"
            removed += storage.delete(path)
            storage.delete(paths.checksum_file(path))
    for private in storage.names(paths.PREPARED):
        if private.partition("-")[0] in actions:
            delete_quietly(storage, f"{paths.PREPARED}/{private}")
    for action in actions:
        ctx.heartbeats.stop(action)
        delete_quietly(storage, f"{paths.METADATA}/{paths.heartbeat(action)}")  # Java's, of its own indexer
    return removed
