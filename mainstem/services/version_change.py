"""Gives a table another version while writers run: 8 to 9, 9 to 10, and 10 back to 9.

Hudi's ``UpgradeDowngrade.run`` does the same in this order; which properties change is in
``layout.version_changes``.

  1. what the older or newer version would merge otherwise is compacted, beside writers (8 to 9: every log
     file; 10 to 9: every native one, of the metadata table, too)
  2. [[ nothing is in flight that may not be, and nothing came meanwhile that 1 is for; else 1 again
     3. the metadata table's ``hoodie.properties``, if there is one
     4. (8 to 9) the index definitions get versions
     5. the table's ``hoodie.properties``: here it has the other version ]]

**A crash** after 3 leaves a metadata table of the other version. Its files are the same for mainstem, whose
writers go by the table's own version, and Java finds it as its own upgrade would leave it. Whoever repeats
the change ends it.

**Who has the table open.** Nobody waits for 9 to 10: transactions in flight complete with files of blocks,
which readers of version 10 merge with others, and what is begun next is written natively
(``WriterContext.reread_config``, under the lock). A Java writer that knows versions up to 9 completes what it
has in flight, or fails at the metadata table; it cannot open the table any more. For 8 to 9 and 10 to 9 no
action but a clean may be in flight: readers of version 9 do not read native log files, and a writer of Hudi
1.0 in flight would not notice that the rules of merging have other names. A write that was planned before and
begins afterwards is refused at its commit, with nothing published.

**What stays of version 10.** Older file slices keep their native log files until they are cleaned. A reader
of version 9 takes them for base files of the instant ``<instant>_<version>``, which is none. Once the start
of its timeline has passed that instant it counts as completed; but the slice is older than the base file that
1 made, so it is not the newest. A native log file of an instant that never completed might be: with one,
nothing is changed. Deletes that compactions keep for late rows (``services.kept_deletes``) are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported, naming
from mainstem.layout.partitions import list_partitions
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.property_change import change_properties, date_text
from mainstem.layout.version_changes import changes_to, with_changes
from mainstem.metadata.index_definitions import V1, read_definitions, replace_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, PARTITION_STATS
from mainstem.options.tables import KEEP_TOMBSTONES, TABLE_VERSION
from mainstem.publish.publisher import Guarded
from mainstem.readers.planning.table_state import TableState
from mainstem.services import compaction
from mainstem.services.compaction_plan import UNBOUNDED, CompactionOptions, DueGroups, FileListing
from mainstem.services.metadata import metadata_compaction
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import CLEAN, SAVEPOINT, Instant
from mainstem.truetime.seams import Randomness
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import roll_back_failed_writes

__all__ = ["ChangedVersion", "change_version"]

#: rounds of compaction beside writers
_ROUNDS_MAX = 5


@dataclass(frozen=True)
class ChangedVersion:
    """The outcome: the table's version ``before`` and ``after``, and the requested times of the
    ``compactions`` that ran first."""

    before: int
    after: int
    compactions: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line for people."""
        if self.before == self.after:
            return f"the table has version {self.after} already"
        first = f", after the compaction {', '.join(self.compactions)}" if self.compactions else ""
        return f"the table has version {self.after}, and had {self.before}{first}"


def change_version(ctx: WriterContext, version: int, progress: Progress = silent) -> ChangedVersion:
    """Give the table this version; does nothing if it has it.

    Raises ``Unsupported`` for a version that no table is given and for a table that it would change
    otherwise, ``Unavailable`` while something is in flight beside which it may not be. The table is as before
    then, but for a compaction.
    """
    if type(version) is not int:
        raise Invalid(f"version={version!r}, expected a table version such as 10", table=ctx.base)
    with naming(ctx.base, "the table's version was not changed", "try again"):
        before = ctx.read_properties()
        _check(ctx, before, version)
        done: list[str] = []
        for _ in range(_ROUNDS_MAX):
            left = _Left.of(ctx, before.version, version)
            if left is not None:
                done += left.compact(progress)
            if ctx.publisher.guarded(lambda section: _change(ctx, section, version, left)):  # noqa: B023
                return ChangedVersion(before.version, version, tuple(done))
    raise Unavailable(
        f"something completed in each of {_ROUNDS_MAX} rounds of compaction: stop the writers, and try again;"
        f" the table has version {before.version} as before",
        table=ctx.base,
    )


def _check(ctx: WriterContext, config: TableConfig, version: int) -> None:
    """Whether the table can be one of this version at all."""
    TableConfig(with_changes(config.raw, changes_to(config, version))).check_readable(ctx.base)
    if config.version < 9 <= version:
        _check_statistics(ctx, config)


def _check_statistics(ctx: WriterContext, config: TableConfig) -> None:
    """Statistics without a definition would be taken for those of version 9, which have another form."""
    found = read_definitions(ctx.seams.storage, config)
    for name in sorted(config.metadata_partitions):
        if name in (COLUMN_STATS, PARTITION_STATS) and found.stats_version(name, 9) != V1:
            raise Unsupported(
                f"the table's index definitions do not say {V1} of {name}, as they must of statistics of"
                " version 8: drop it (mainstem index drop), upgrade, and create it again",
                table=ctx.base,
            )


# -- before ----------------------------------------------------------------------------------------------


class _Left:
    """Step 1, and whether anything is left for it: log files of the version before."""

    def __init__(self, ctx: WriterContext, *, native: bool) -> None:
        roll_back_failed_writes(ctx)
        self._native = native
        #: for a compaction that keeps no deletes, which would be native
        forgetting = {**ctx.config.raw, KEEP_TOMBSTONES: "0"}
        self._ctx = replace(ctx, config=replace(ctx.config, raw=forgetting)) if native else ctx
        self._due: DueGroups | None = None
        self._natives: list[tuple[str, str]] = []

    @classmethod
    def of(cls, ctx: WriterContext, before: int, after: int) -> _Left | None:
        """None where every log file may stay."""
        if before == after or (before, after) == (9, 10):
            return None
        return cls(ctx, native=before > after)

    def compact(self, progress: Progress) -> list[str]:
        """Compact, whatever the table's strategy leaves for later; the requested times."""
        ctx = self._ctx
        done = [compaction.execute(ctx, time, progress) for time in compaction.pending(ctx.timeline())]
        time = compaction.schedule(ctx, everything=True, native_logs=self._native)
        if time is not None:
            done.append(compaction.execute(ctx, time, progress))
        if self._native:
            metadata_compaction.run(ctx, if_due=False)
            # Found now, so that little is left to be looked at under the lock.
            listing = FileListing(ctx.seams.storage, ctx.read_properties().completed_by(ctx.given))
            self._due = DueGroups(listing, native_logs=True)
            self._natives = _native_files(ctx)
        return [one.requested for one in done if one is not None and one.completion is not None]

    def is_due_again(self, section: Guarded) -> bool:
        """Under the lock, with nothing in flight."""
        if self._due is None:
            return False
        state, groups = self._due.now(CompactionOptions(strategy=UNBOUNDED))
        if groups:
            return True
        self._refuse_unknown(state)
        table = state.metadata_table
        return table is not None and any(
            paths.is_native_log(name)
            for partition in table.partitions
            for group in table.groups(partition)
            for name in group.slices[0].log_files
        )

    def _refuse_unknown(self, state: TableState) -> None:
        """Raises ``CorruptTable`` for a native log file that no completed instant has, once nothing is in
        flight."""
        for path, instant in self._natives:
            if state.completion(instant) is None:
                raise CorruptTable(
                    f"a log file of {instant}, which never completed: readers of version 9 may take it for a"
                    " base file one day. Nothing was changed; remove it if `mainstem rollback` leaves it, the"
                    " process that wrote it is gone, and neither timeline nor archive has that instant",
                    table=state.storage.base,
                    path=path,
                )


def _native_files(ctx: WriterContext) -> list[tuple[str, str]]:
    """Path and instant of each native log file that lies in the table's folders."""
    storage, partitioned = ctx.seams.storage, bool(ctx.config.partition_fields)
    return [
        (paths.in_partition(listing.partition, name), found.instant)
        for listing in list_partitions(storage, partitioned=partitioned)
        for name in sorted(listing.names)
        if (found := paths.parse_log_name(name)) is not None and found.is_native
    ]


def _in_flight(timeline: ActiveTimeline) -> Instant | None:
    """What is under way and may still write; cleans only remove."""
    return next((i for i in timeline.pending if i.action not in (CLEAN, SAVEPOINT)), None)


def _refuse_beside_others(section: Guarded, before: int) -> None:
    found = _in_flight(section.timeline)
    if found is not None:
        raise Unavailable(
            f"the {found.action} {found.requested} is in flight, and would complete by the rules of version"
            f" {before}: wait for it, or roll it back (mainstem rollback), then try again; the table has"
            f" version {before} as before",
            table=section.storage.base,
            instant=found.requested,
        )


# -- the change ------------------------------------------------------------------------------------------


def _change(ctx: WriterContext, section: Guarded, version: int, left: _Left | None) -> bool:
    """Steps 2 to 5; False if step 1 is due again. Under the lock."""
    storage, random, when = section.storage, ctx.seams.random, date_text(ctx.seams)
    config = load_config(storage)
    if left is not None and config.version != version:
        _refuse_beside_others(section, config.version)
        if left.is_due_again(section):
            return False
    changes = changes_to(config, version)
    if _metadata_version(storage) not in (None, version):
        told: dict[str, str | None] = {TABLE_VERSION: str(version)}
        change_properties(section, random, lambda found: told, when, paths.METADATA)
    if config.version < 9 <= version:
        _version_definitions(section, random, config)
    change_properties(section, random, lambda found: changes, when)
    return True


def _metadata_version(storage: Storage) -> int | None:
    """The version of the metadata table, whether or not the table uses it; None if there is none."""
    folder = FolderStorage(storage, paths.METADATA)
    try:
        return load_config(folder).version
    except Invalid:
        return None


def _version_definitions(section: Guarded, random: Randomness, config: TableConfig) -> None:
    """Version 9 wants a version for each index; those without are of the first."""
    found = made = read_definitions(section.storage, config)
    for name in sorted(found.by_partition):
        if found.by_partition[name].version is None:
            made = made.with_definition(replace(found.by_partition[name], version=V1))
    if made != found:
        replace_definitions(section, random, config, made)
