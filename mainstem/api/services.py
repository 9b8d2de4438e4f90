"""The facet ``table.services``: the table services' public interface.

``services.service_switches`` decides which services run automatically; the package ``services`` implements
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, MainstemError, Unsupported

if TYPE_CHECKING:
    from mainstem.api.opened_table import OpenedTable
    from mainstem.iceberg.publishing import Published
    from mainstem.services.archiving import Archived
    from mainstem.services.background import Background
    from mainstem.services.cleaning import Cleaned
    from mainstem.services.clustering import Clustered
    from mainstem.services.clustering_plan import Wanted
    from mainstem.services.compaction import Compaction
    from mainstem.services.compaction_plan import Clustering
    from mainstem.services.log_compaction import LogCompaction
    from mainstem.services.progress import Progress
    from mainstem.services.resizing import ResizedTable
    from mainstem.services.restoring import Restored
    from mainstem.services.runner import ServiceRun
    from mainstem.services.savepoints import Savepoint
    from mainstem.services.version_change import ChangedVersion
    from mainstem.writers.context import WriterContext
    from mainstem.writers.rollback import RolledBackInstant


def _named(instant: str) -> str:
    """Checks an instant given by a caller. Raises ``Invalid`` if it is empty or not a string."""
    if not isinstance(instant, str) or not instant.strip():
        raise Invalid(
            f"{instant!r} names no instant; expected the requested time of one, such as 20260131235959999"
            " (Table.timeline(), mainstem timeline PATH)"
        )
    return instant


def _clustering(
    ctx: WriterContext,
    columns: Sequence[str] | str | None,
    strategy: str | None,
    partitions: Sequence[str] | None,
) -> Clustering:
    """What a caller asks for, completed by the options."""
    from mainstem.options.services import LAYOUT_STRATEGY, SORT_COLUMNS
    from mainstem.services.clustering_order import RowOrder
    from mainstem.services.compaction_plan import Clustering

    properties = {**ctx.config.raw, **ctx.given}
    wanted = SORT_COLUMNS.read(properties) if columns is None else columns
    try:
        order = RowOrder.of(wanted, LAYOUT_STRATEGY.read(properties) if strategy is None else strategy)
    except Invalid as error:
        error.table = error.table or ctx.base
        raise
    return Clustering(order, _partitions(ctx, partitions))


def _partitions(ctx: WriterContext, partitions: Sequence[str] | None) -> frozenset[str] | None:
    if isinstance(partitions, str):
        raise Invalid(f"partitions={partitions!r}, expected a list of partition paths", table=ctx.base)
    return None if partitions is None else frozenset(partitions)


def _wanted(
    ctx: WriterContext,
    columns: Sequence[str] | str | None,
    strategy: str | None,
    partitions: Sequence[str] | None,
) -> Wanted:
    """The same on a table without buckets, where rows need no order."""
    from mainstem.options.services import SORT_COLUMNS
    from mainstem.services.clustering_plan import Wanted

    ordered = columns is not None or strategy is not None
    if ordered or SORT_COLUMNS.read({**ctx.config.raw, **ctx.given}):
        found = _clustering(ctx, columns, strategy, partitions)
        return Wanted(found.order, found.partitions)
    return Wanted(None, _partitions(ctx, partitions))


class Services:
    """``table.services``: rollback, compaction, clustering, cleaning, archiving, savepoints and restore.

    Every service may run beside writers and in several processes at once. Each raises ``Unsupported`` or
    ``Invalid`` for a table or options that mainstem does not write with, ``LockUnavailable`` and
    ``Unavailable`` where it may be tried again. Instants are named by their requested times (17 digits).
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    def run(
        self,
        only: str | Sequence[str] | None = None,
        *,
        if_due: bool = True,
        progress: Progress | None = None,
    ) -> list[ServiceRun]:
        """One round: roll back dead writers, then what is due of log compaction, compaction, cleaning,
        archiving and refreshing vector indexes.

        ``only`` names services (``rollback``, ``log-compact``, ``compact``, ``clean``, ``metadata``,
        ``archive``, ``vectors``; a list, or text with commas), which then run whatever their switches say.
        ``if_due=False`` asks no trigger. Each fails alone: what failed has ``error`` in what is returned, and
        is warned about (``ServiceWarning``). Any number of processes may do this at once.
        ``progress(what, done, total)`` counts file groups or files. Raises ``Invalid`` for an unknown name.
        Hudi's writers run theirs one by one after a commit (``BaseHoodieTableServiceClient``).
        """
        from mainstem.indexing.creating import tend
        from mainstem.services.progress import silent
        from mainstem.services.runner import Round, warn_of_failures
        from mainstem.vectors.index import lifecycle

        told = progress or silent
        how = Round.of(only, if_due=if_due, progress=told, rebuild=tend, vectors=lifecycle.tend)
        runs = how.run(self._opened.writer_context())
        warn_of_failures(runs, self._opened.path)
        return runs

    def in_background(
        self, every_s: float = 30.0, only: str | Sequence[str] | None = None
    ) -> Background:
        """Rounds in a thread of this process, ``with table.services.in_background(): ...``.

        The first starts at once, the next ``every_s`` seconds after the end of the one before. Leaving
        the block waits for the step under way. Failures are warnings, and tried again in the next round.
        Hudi's counterpart is ``AsyncCompactService``. Raises ``Invalid`` for an unknown name in ``only``.
        """
        from mainstem.indexing.creating import tend
        from mainstem.services.background import Background
        from mainstem.services.runner import Round, warn_of_failures
        from mainstem.vectors.index import lifecycle

        ctx = self._opened.writer_context()
        plan = Round.of(only, rebuild=tend, vectors=lifecycle.tend)

        def work(stopping: Callable[[], bool]) -> bool:
            return warn_of_failures(replace(plan, stopping=stopping).run(ctx), self._opened.path)

        return Background(work, every_s=every_s)

    def rollback_failed_writes(self) -> list[RolledBackInstant]:
        """Roll back writers whose heartbeat expired; finish rollbacks that died halfway.

        One entry per instant that was taken back, [] where nobody had died. A heartbeat expires after
        ``hoodie.client.heartbeat.interval_in_ms`` times ``hoodie.client.heartbeat.tolerable.misses``
        (60,000 ms, 2), as in Hudi's LAZY cleaning of failed writes (``HoodieHeartbeatClient``).
        """
        from mainstem.writers.rollback import roll_back_failed_writes

        return roll_back_failed_writes(self._opened.writer_context())

    def schedule_log_compaction(self, *, if_due: bool = False) -> str | None:
        """Plan to merge the logs of file groups; its requested time, None if there is nothing to merge.

        ``if_due``: only groups with ``hoodie.log.compaction.blocks.threshold`` blocks (5), and nothing
        while writes are in flight. Without it such a write is named by ``Unavailable``. Hudi RFC-48.
        """
        from mainstem.services import log_compaction

        return log_compaction.schedule(self._opened.writer_context(), if_due=if_due)

    def run_log_compaction(self, instant: str | None = None) -> list[LogCompaction]:
        """Execute the planned log compactions, oldest first, or the one requested at ``instant``.

        What was done, one entry per plan; a plan that a living executor has is left to it. Raises ``Invalid``
        for an instant without such a plan. Hudi RFC-48.
        """
        from mainstem.services import log_compaction

        ctx = self._opened.writer_context()
        times = self._planned(log_compaction.pending(ctx.timeline()), instant, "log compaction")
        done = (log_compaction.execute(ctx, time) for time in times)
        return [found for found in done if found is not None]

    def _planned(self, pending: list[str], instant: str | None, what: str) -> list[str]:
        """The plans to execute: all pending ones, or ``instant``."""
        if instant is None:
            return pending
        if _named(instant) not in pending:
            raise Invalid(
                f"no {what} {instant} is planned; pending are {', '.join(pending) or 'none'}",
                table=self._opened.path,
            )
        return [instant]

    def log_compact(self, *, if_due: bool = False) -> list[LogCompaction]:
        """Finish the planned log compactions, then plan and execute one.

        Small blocks of a file group's logs become one log file (Hudi RFC-48), which readers take in
        place of them; base files stay as they are. See ``schedule_log_compaction``.
        """
        from mainstem.services import log_compaction

        done = self.run_log_compaction()
        time = self.schedule_log_compaction(if_due=if_due)
        if time is None and not if_due:
            return [*done, *self.run_log_compaction()]  # what the look under the lock has made visible
        # Another process may have executed it by now.
        found = None if time is None else log_compaction.execute(self._opened.writer_context(), time)
        return done if found is None else [*done, found]

    def schedule_compaction(self, *, if_due: bool = False) -> str | None:
        """Plan a compaction of all that is completed now; its requested time, None if nothing is to do.

        ``if_due`` asks Hudi's trigger first (``hoodie.compact.inline.trigger.strategy`` and
        ``hoodie.compact.inline.max.delta.commits``, 5; ``CompactionTriggerStrategy``). Running writers go on
        and lose nothing: what completes later stays in log files above the new base file (RFC-66).
        """
        from mainstem.services import compaction

        return compaction.schedule(self._opened.writer_context(), if_due=if_due)

    def run_compaction(
        self, instant: str | None = None, *, progress: Progress | None = None
    ) -> list[Compaction]:
        """Execute the planned compactions, oldest first, or the one requested at ``instant``.

        Plans that a living executor has are left to it. A failed execution leaves its plan pending.
        ``progress(what, done, total)`` is called after each file group. What was done, one entry per plan.
        Raises ``Invalid`` for an instant without such a plan, ``CorruptTable`` for a plan whose files are
        gone. Hudi's ``RunCompactionActionExecutor``.
        """
        from mainstem.services import compaction
        from mainstem.services.progress import silent

        ctx = self._opened.writer_context()
        times = self._planned(compaction.pending(ctx.timeline()), instant, "compaction")
        done = (compaction.execute(ctx, time, progress or silent) for time in times)
        return [found for found in done if found is not None]

    def compact(self, *, if_due: bool = False, progress: Progress | None = None) -> list[Compaction]:
        """Finish the planned compactions, then plan and execute one of all that is completed now.

        ``if_due`` plans a new one only if Hudi's trigger fires. ``progress(what, done, total)`` is
        called after each file group.
        """
        from mainstem.services import compaction
        from mainstem.services.progress import silent

        done = self.run_compaction(progress=progress)
        time = self.schedule_compaction(if_due=if_due)
        if time is None and not if_due:
            # In a store a plan may be decided that its dead planner did not show: the look under the lock,
            # which found nothing else to plan, has made it visible.
            return [*done, *self.run_compaction(progress=progress)]
        ctx = self._opened.writer_context()
        # Another process may have executed it by now.
        found = None if time is None else compaction.execute(ctx, time, progress or silent)
        return done if found is None else [*done, found]

    def schedule_clustering(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        strategy: str | None = None,
        partitions: Sequence[str] | None = None,
    ) -> str | None:
        """Plan a compaction that writes rows in an order, of file groups without logs, too, unless their base
        files are in this order already; its requested time, None if nothing is to do. On a table without
        buckets it is a clustering.

        ``run_compaction`` executes it, or ``run_clustering``. Arguments and errors are those of ``cluster``.
        """
        from mainstem.services import clustering, compaction

        ctx = self._opened.writer_context()
        if ctx.look_for_keys is not None or (ctx.config.uses_rings and columns is None):
            return clustering.schedule(ctx, _wanted(ctx, columns, strategy, partitions))
        return compaction.schedule(ctx, cluster=_clustering(ctx, columns, strategy, partitions))

    def run_clustering(
        self, instant: str | None = None, *, progress: Progress | None = None
    ) -> list[Clustered]:
        """Execute the planned clusterings of a table without buckets, oldest first, or the one requested at
        ``instant``; ours or Java's.

        Plans that a living executor has are left to it. One to whose file groups somebody wrote meanwhile is
        taken back. ``progress(what, done, total)`` is called after each new file. What was done, one entry
        per plan. Raises ``Invalid`` for an instant without such a plan, ``Unsupported`` for a strategy that
        mainstem does not know. Hudi's ``ClusteringExecutionStrategy``.
        """
        from mainstem.services import clustering
        from mainstem.services.progress import silent

        ctx = self._opened.writer_context()
        if ctx.look_for_keys is None and not ctx.config.uses_rings:
            raise Unsupported(
                "the table has buckets, whose file groups no clustering may replace: cluster() puts their"
                " rows in order",
                table=self._opened.path,
            )
        times = self._planned(clustering.pending(ctx.timeline()), instant, "clustering")
        done = (clustering.execute(ctx, time, progress or silent) for time in times)
        return [found for found in done if found is not None]

    def cluster(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        strategy: str | None = None,
        partitions: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Compaction] | list[Clustered]:
        """Put the rows of every base file in an order, so that filters on these columns read few row groups.

        It finishes the planned compactions, then plans one and executes it. Each file group keeps its rows,
        and what is in order already and has no logs is left out. Writers go on meanwhile, as beside any
        compaction. ``columns``: names, by default those of ``hoodie.clustering.plan.strategy.sort.columns``;
        ``strategy``: ``linear``, ``z-order`` or ``hilbert``, by default ``hoodie.layout.optimize.strategy``.
        ``partitions``: paths of partitions, None for all. Later compactions keep rows in order where these
        options are set. Raises ``Invalid`` for columns that the table lacks, or none, and for an unknown
        strategy, ``Unsupported`` for columns that have no order. What Hudi does in new file groups
        (``ClusteringPlanStrategy``), a compaction does here.

        Under consistent hashing, without ``columns``, it splits large file groups and merges small
        neighbours, by ``hoodie.bucket.index.max.num.buckets`` and its like. Writers go on there, too.

        On a table without buckets it is Hudi's clustering: small file groups become larger new ones, by the
        options ``hoodie.clustering.plan.strategy.*``, and no order is needed. Writers go on, and lose
        nothing; where they write to the same file groups meanwhile, the clustering steps back and is planned
        anew, three times at most.
        """
        from mainstem.services import clustering, compaction
        from mainstem.services.progress import silent

        ctx = self._opened.writer_context()
        if ctx.look_for_keys is not None or (ctx.config.uses_rings and columns is None):
            asked = _wanted(ctx, columns, strategy, partitions)
            return clustering.cluster(ctx, asked, progress or silent)
        wanted = _clustering(ctx, columns, strategy, partitions)
        done = self.run_compaction(progress=progress)
        time = compaction.schedule(ctx, cluster=wanted)
        # Another process may have executed it by now.
        found = None if time is None else compaction.execute(ctx, time, progress or silent)
        return done if found is None else [*done, found]

    def resize(self, buckets: int, *, progress: Progress | None = None) -> ResizedTable:
        """Give every partition so many buckets, while writers run.

        Base files of one delta commit hold all rows in their new buckets. Writers, tasks and streams that
        began before go on: their rows are put where their keys live by then. They wait with their commits
        only while partitions are written once more that they wrote to in the meantime. No row appears
        changed, and queries as of earlier moments stay. Other engines must not be writing.
        ``progress(what, done, total)`` is called after each partition. Raises ``Invalid`` for a number that
        is none and while another process resizes the table, ``Unsupported`` for a table without buckets or of
        another engine, ``Unavailable`` while another engine has a write in flight; the table is as before
        then. Hudi's simple bucket index has a fixed number (``hoodie.bucket.index.num.buckets``).
        """
        from mainstem.services import resizing
        from mainstem.services.progress import silent

        return resizing.resize(self._opened.writer_context(), buckets, progress or silent)

    def upgrade(self, version: int, *, progress: Progress | None = None) -> ChangedVersion:
        """Give the table a newer version (9 or 10), while writers run.

        From 9 to 10 only the version changes: transactions in flight complete with log files of blocks, what
        is begun next gets native ones, and readers merge both. From 8 everything is compacted first, nothing
        may be in flight, payload classes become merge modes, and processes that have the table open are told
        to open it again. Does nothing if the table has the version. ``progress(what, done, total)`` is called
        after each file group. Raises ``Invalid`` for an older version, ``Unsupported`` for one that no table
        is given and for a table whose rows it would change, ``Unavailable`` while something is in flight
        beside which it may not be; the table is as before then. Hudi's ``UpgradeDowngrade``.
        """
        return self._give_version(version, 1, progress)

    def downgrade(self, version: int, *, progress: Progress | None = None) -> ChangedVersion:
        """Bring a table of version 10 back to 9, which Hudi 1.1 and later read and write.

        Arguments and errors are those of ``upgrade``. Hudi's ``TenToNineDowngradeHandler``.
        """
        return self._give_version(version, -1, progress)

    def _give_version(self, version: int, way: int, progress: Progress | None) -> ChangedVersion:
        from mainstem.services.progress import silent
        from mainstem.services.version_change import change_version

        now = self._opened.read_version()
        if type(version) is int and (version - now) * way < 0:
            other = "downgrade" if way > 0 else "upgrade"
            raise Invalid(
                f"the table has version {now}: {other}({version}) gives it the version {version}",
                table=self._opened.path,
            )
        done = change_version(self._opened.version_context(version), version, progress or silent)
        self._opened.open_again()
        return done

    def schedule_clean(self, *, if_due: bool = False) -> str | None:
        """Roll back dead writers and plan which old files go (``hoodie.clean.policy`` and what belongs to
        it).

        Its requested time, None if nothing may go or a clean is pending already. ``if_due`` asks Hudi's
        trigger first (``hoodie.clean.trigger.max.commits``, 1). Hudi's ``CleanPlanner`` decides what may go.
        """
        from mainstem.services import cleaning

        return cleaning.schedule(self._opened.writer_context(), if_due=if_due)

    def clean(self, *, if_due: bool = False, progress: Progress | None = None) -> list[Cleaned]:
        """Finish the planned cleans, ours or Java's, then plan one and execute it, if anything may go.

        Never removes what the newest slice, a retained view, a savepoint or a pending plan needs.
        ``progress(what, done, total)`` is called after each file. One entry per clean (``CleanPlanner``).
        """
        from mainstem.services import cleaning
        from mainstem.services.progress import silent

        return cleaning.clean(self._opened.writer_context(), if_due=if_due, progress=progress or silent)

    def archive(self, *, if_due: bool = False, progress: Progress | None = None) -> Archived | None:
        """Move the oldest instants from the active timeline into the archive, down to
        ``hoodie.keep.min.commits`` (20) commits; None if none may go.

        ``if_due``: only when there are more than ``hoodie.keep.max.commits`` (30). Queries give the same
        answers before and after. Raises ``Invalid`` for bounds below what the cleaner retains. Hudi's
        ``TimelineArchiverV2``.
        """
        from mainstem.services import archiving
        from mainstem.services.progress import silent

        return archiving.run(self._opened.writer_context(), if_due=if_due, progress=progress or silent)

    def savepoint(self, instant: str | None = None, user: str = "", comment: str = "") -> Savepoint:
        """Keep the files of a completed instant (by default the one completed last) until the savepoint is
        deleted, so that the table can be restored to it.

        Raises ``Invalid`` for an instant that is not completed, is archived or was cleaned. Hudi's
        ``SavepointActionExecutor``.
        """
        from mainstem.services import savepoints

        named = None if instant is None else _named(instant)
        return savepoints.create(self._opened.writer_context(), named, user=user, comment=comment)

    def savepoints(self) -> list[Savepoint]:
        """The table's savepoints, oldest instant first; [] without any. Raises ``CorruptTable`` for one that
        does not read."""
        from mainstem.services import savepoints

        return savepoints.savepoints(self._opened.writer_context().seams.storage)

    def delete_savepoint(self, instant: str) -> None:
        """Delete the savepoint of an instant: its files may be cleaned from now on. Raises ``Invalid`` where
        the instant has none. Hudi's ``SavepointHelpers.deleteSavepoint``."""
        from mainstem.services import savepoints

        savepoints.delete(self._opened.writer_context(), _named(instant))

    def rollback(self, instant: str) -> RolledBackInstant:
        """Take one instant back for good: a pending write of a dead writer, a pending compaction that nobody
        executes, or the write or compaction that completed last, if nothing rests on it.

        Raises ``Invalid`` with the reason for everything else; ``restore`` goes back further. Hudi's
        ``BaseRollbackActionExecutor``, with its refusals.
        """
        from mainstem.services.rolling_back import roll_back_instant

        ctx = self._opened.writer_context()
        done = roll_back_instant(ctx, _named(instant))
        self._rebuild_metadata()
        if ctx.base_files_changed is not None:
            ctx.base_files_changed()
        return done

    def restore(self, savepoint: str | None = None, *, progress: Progress | None = None) -> Restored:
        """Remove everything that completed after the instant of a savepoint, for good.

        The table's rows, schema and streaming guards are then those of that moment. Writers must have
        ended: one that lives and has a transaction open makes the restore refuse, dead ones are rolled
        back. Without ``savepoint`` a restore whose process died is finished; nobody can write before.
        Raises ``Invalid`` where the state cannot be had, ``Unavailable`` while a clean is pending or
        another process executes the restore. Hudi's ``BaseRestoreActionExecutor``.
        """
        from mainstem.services import restoring
        from mainstem.services.progress import silent

        named = None if savepoint is None else _named(savepoint)
        done = restoring.restore(self._opened.writer_context(), named, progress=progress or silent)
        self._rebuild_metadata()
        return done

    def publish_iceberg(self) -> Published:
        """Bring Iceberg's metadata in the table's folder up to its base files: what a read optimized query
        shows now becomes a snapshot that pyiceberg, DuckDB, Spark, Trino and others read (docs/iceberg.md).

        Only new base files are looked at, no row is read or written. The option
        ``hoodie.mainstem.iceberg.enable`` does this after each compaction. Works on every table that mainstem
        reads, of Java too. Raises ``Unsupported`` for what Iceberg cannot show as Hudi does, with the column
        or file, and without pyiceberg; ``Invalid`` for an Iceberg table of somebody else in the folder;
        ``CorruptTable`` and ``Unavailable``. What Apache XTable does from outside.
        """
        return self._opened.iceberg().publish()

    def _rebuild_metadata(self) -> None:
        """Build the indexes that were set aside. A failure is a warning: what was taken back stays so."""
        from mainstem.indexing.creating import rebuild_set_aside
        from mainstem.services.runner import METADATA, ServiceRun, warn_of_failures

        try:
            for _ in rebuild_set_aside(self._opened.writer_context()):
                continue
        except (MainstemError, OSError) as error:
            warn_of_failures([ServiceRun(METADATA, error=error)], self._opened.path)
