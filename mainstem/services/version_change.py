"""Gives a table another version while writers run: 8 to 9, 9 to 10, and 10 back to 9.

Hudi's ``UpgradeDowngrade.run`` does the same in this order; which properties change is in
``layout.version_changes``.

  1. what must be merged before is compacted, beside writers (8 to 9, and 10 to 9: everything)
  2. [[ the metadata table's ``hoodie.properties``, if there is one ]]
  3. [[ (8 to 9) the index definitions get versions ]]
  4. [[ the table's ``hoodie.properties``: here it has the other version ]]

The sections of 2 to 4 look again whether it may be, and 4 whether the metadata table has its version: if it
was made, or made anew, in between, 2 is done again.

**A crash** after 2 leaves a metadata table of the other version. Its files are the same for mainstem, whose
writers go by the table's own version, and Java finds it as its own upgrade would leave it. Whoever repeats
the change ends it.

**Who has the table open.** Nobody waits for 9 to 10: transactions in flight complete with files of blocks,
which readers of version 10 merge with others, and what is begun next is written natively
(``WriterContext.reread_config``, under the lock). A Java writer that knows versions up to 9 completes what it
has in flight, or fails at the metadata table; it cannot open the table any more. For 8 to 9 and 10 to 9 no
action but a clean may be in flight: readers of version 9 do not read native log files, and a writer of Hudi
1.0 in flight would not notice that the rules of merging have other names. A write that was planned before and
begins afterwards is refused at its commit, with nothing published.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mainstem.errors import Invalid, Unavailable, Unsupported, naming
from mainstem.layout.properties import NATIVE_LOGS_FROM, TableConfig, load_config
from mainstem.layout.property_change import change_properties, date_text
from mainstem.layout.version_changes import changes_to, with_changes
from mainstem.metadata.index_definitions import V1, read_definitions, replace_definitions
from mainstem.metadata.metadata_partitions import COLUMN_STATS, PARTITION_STATS
from mainstem.options.tables import TABLE_VERSION
from mainstem.publish.publisher import Guarded
from mainstem.services import compaction
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import CLEAN, SAVEPOINT, Instant
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import roll_back_failed_writes

__all__ = ["ChangedVersion", "change_version", "suggested"]

#: how often a metadata table that was made meanwhile is looked at again
_ROUNDS_MAX = 10


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
        if _merges_first(before.version, version):
            roll_back_failed_writes(ctx)
            done = _compact(ctx, progress)
        for _ in range(_ROUNDS_MAX):
            _change_metadata_table(ctx, version)
            _version_definitions(ctx, version)
            if _change_table(ctx, version):
                return ChangedVersion(before.version, version, tuple(done))
    raise Unavailable(
        f"the metadata table was made anew {_ROUNDS_MAX} times meanwhile: try again", table=ctx.base
    )


def suggested(config: TableConfig) -> int | None:
    """The version to which a table should be upgraded: 9, which Hudi 1.0 cannot write; None if it has it."""
    return 9 if config.version == 8 else None


def _check(ctx: WriterContext, config: TableConfig, version: int) -> None:
    """Whether the table can be one of this version at all."""
    TableConfig(with_changes(config.raw, changes_to(config, version))).check_readable(ctx.base)
    if config.version < 9 <= version:
        _check_statistics(ctx, config)
    if config.version >= NATIVE_LOGS_FROM and version < NATIVE_LOGS_FROM:
        raise Unsupported(
            f"a table of version {config.version} is not brought back to {version} yet: do it with Hudi 1.3"
            " (call downgrade_table, 'NINE')",
            table=ctx.base,
        )


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


def _merges_first(before: int, after: int) -> bool:
    """Whether log files of the version before must be gone."""
    return before != after and (before, after) != (9, 10)


# -- before ----------------------------------------------------------------------------------------------


def _compact(ctx: WriterContext, progress: Progress) -> list[str]:
    """Step 1: compact all that is completed, whatever the table's strategy leaves for later."""
    done = [compaction.execute(ctx, time, progress) for time in compaction.pending(ctx.timeline())]
    time = compaction.schedule(ctx, everything=True)
    if time is not None:
        done.append(compaction.execute(ctx, time, progress))
    return [one.requested for one in done if one is not None and one.completion is not None]


def _in_flight(timeline: ActiveTimeline) -> Instant | None:
    """What is under way and may still write; cleans only remove."""
    return next((i for i in timeline.pending if i.action not in (CLEAN, SAVEPOINT)), None)


def _refuse_beside_others(section: Guarded, before: int, after: int) -> None:
    if not _merges_first(before, after):
        return
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


def _change_metadata_table(ctx: WriterContext, version: int) -> None:
    """Step 2."""

    def work(section: Guarded) -> None:
        if _metadata_version(section.storage) not in (None, version):
            _refuse_beside_others(section, load_config(section.storage).version, version)
            told: dict[str, str | None] = {TABLE_VERSION: str(version)}
            change_properties(
                section, ctx.seams.random, lambda config: told, date_text(ctx.seams), paths.METADATA
            )

    if _metadata_version(ctx.seams.storage) not in (None, version):
        ctx.publisher.guarded(work)


def _metadata_version(storage: Storage) -> int | None:
    """The version of the metadata table, whether or not the table uses it; None if there is none."""
    folder = FolderStorage(storage, paths.METADATA)
    try:
        return load_config(folder).version
    except Invalid:
        return None


def _version_definitions(ctx: WriterContext, version: int) -> None:
    """Step 3: version 9 wants a version for each index; those without are of the first."""
    if version < 9 or ctx.read_properties().version >= 9:
        return

    def work(section: Guarded) -> None:
        config = load_config(section.storage)
        found = read_definitions(section.storage, config)
        made = found
        for name in sorted(found.by_partition):
            if found.by_partition[name].version is None:
                made = made.with_definition(replace(found.by_partition[name], version=V1))
        if made != found:
            replace_definitions(section, ctx.seams.random, config, made)

    ctx.publisher.guarded(work)


def _change_table(ctx: WriterContext, version: int) -> bool:
    """Step 4; False if the metadata table has another version."""

    def work(section: Guarded) -> bool:
        if _metadata_version(section.storage) not in (None, version):
            return False
        _refuse_beside_others(section, load_config(section.storage).version, version)
        change_properties(
            section, ctx.seams.random, lambda config: changes_to(config, version), date_text(ctx.seams)
        )
        return True

    return ctx.publisher.guarded(work)
