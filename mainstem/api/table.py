"""An open table as users see it: read, write, roll back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.api.indexes import Indexes
from mainstem.api.opened_table import OpenedTable
from mainstem.api.real_seams import ZOOKEEPER_AUTH_VARIABLE, as_text, real_seams
from mainstem.api.services import Services
from mainstem.api.vectors import Vectors
from mainstem.api.write_request import write_spec
from mainstem.errors import Invalid, MainstemError, Unavailable, naming
from mainstem.layout.properties import TableConfig, has_table, load_config
from mainstem.options.locks import AUTH as ZOOKEEPER_AUTH
from mainstem.options.metrics import METRICS
from mainstem.options.writing import CLOCK_OFFSET
from mainstem.publish.table_identity import known_identity
from mainstem.storage.backends import Place, location_of, reopens, storage_of
from mainstem.storage.store_options import split
from mainstem.truetime.seams import Seams

# A write that others' inserts forestall at the last moment is done again so often.

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from mainstem.catalogs.protocol import Catalogued
    from mainstem.doctor.activity import Activity
    from mainstem.doctor.finding import Finding
    from mainstem.indexing.differences import MetadataReport
    from mainstem.indexing.dropping import Dropped
    from mainstem.indexing.index_build import Built
    from mainstem.indexing.status import Index
    from mainstem.layout.slicing import FileSlice
    from mainstem.merge.compaction_cautions import Caution
    from mainstem.readers.queries.row_explanation import RowExplanation
    from mainstem.readers.queries.scan_plan import ScanPlan
    from mainstem.services.archiving import Archived
    from mainstem.services.background import Background
    from mainstem.services.cleaning import Cleaned
    from mainstem.services.clustering import Clustered
    from mainstem.services.compaction import Compaction
    from mainstem.services.log_compaction import LogCompaction
    from mainstem.services.progress import Progress
    from mainstem.services.resizing import ResizedTable
    from mainstem.services.restoring import Restored
    from mainstem.services.runner import ServiceRun
    from mainstem.services.savepoints import Savepoint
    from mainstem.services.version_change import ChangedVersion
    from mainstem.storage.protocol import Storage
    from mainstem.timeline.instant import Instant
    from mainstem.vectors.index.lifecycle import Refreshed
    from mainstem.vectors.search.explanation import SearchExplanation
    from mainstem.writers.context import WriterContext
    from mainstem.writers.outcome import Outcome
    from mainstem.writers.rollback import RolledBackInstant
    from mainstem.writers.rows_in import Rows
    from mainstem.writers.stream_guard import StreamGuard
    from mainstem.writers.stream_positions import StreamPositions
    from mainstem.writers.transaction import Transaction
    from mainstem.writers.write_spec import WriteSpec


class Table:
    """An open table. Cheap to open; may be used from several threads.

    ``properties`` given at opening win over the table's own where they are options of the process
    (heartbeats, lock waiting, fsync); what decides where rows land must agree with the table. A forked child
    may go on with it, a copy or a pickle opens it again.

    Rows are read and written here. The rest has facets: ``services`` (rollback, compaction, cleaning,
    archiving, savepoints), ``indexes`` and ``vectors`` (searches). What facets do keeps its older names here,
    such as ``compact`` and ``create_index``. ``opened`` is for the engines of this package.
    """

    def __init__(
        self, seams: Seams, config: TableConfig, properties: Mapping[str, str], identity: str | None = None
    ) -> None:
        """``identity``: that of the table that ``config`` belongs to (``publish.table_identity``), read
        before ``config``; None if the table has none yet."""
        self.opened = OpenedTable(seams, config, properties, identity)
        self.services = Services(self.opened)
        self.indexes = Indexes(self.opened)
        self.vectors = Vectors(self.opened)

    def __reduce__(self) -> Any:
        """A pickle opens the table again, in whatever process it arrives."""
        if not reopens(self.opened.seams.storage):
            raise TypeError("this table's storage exists only in this process: it cannot be pickled")
        if ZOOKEEPER_AUTH in self.opened.given:
            raise Invalid(
                f"a pickle of this table would hold the credentials of {ZOOKEEPER_AUTH}: give them in the"
                f" environment variable {ZOOKEEPER_AUTH_VARIABLE}, in both processes",
                table=self.path,
            )
        return open_table, (self.opened.seams.storage.location, self.opened.given)

    def __copy__(self) -> Table:
        """A copy is a table opened once more over the same storage, clock and lock."""
        return Table(self.opened.seams, self.opened.config, self.opened.given)

    def __deepcopy__(self, memo: object) -> Table:
        return self.__copy__()

    # -- what it is ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Table({self.path!r}, name={self.opened.config.name!r}, version={self.opened.config.version})"

    @property
    def path(self) -> str:
        """Base path."""
        return self.opened.seams.storage.base

    @property
    def properties(self) -> dict[str, str]:
        """``hoodie.properties`` as found, unknown keys included."""
        return dict(self.opened.config.raw)

    @property
    def config(self) -> TableConfig:
        """The properties, parsed."""
        return self.opened.config

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the user columns."""
        from mainstem.layout.schema_fit import arrow_user_schema
        from mainstem.readers.planning.query_schema import table_schema
        from mainstem.readers.planning.table_state import TableState

        state = TableState.load(self.opened.seams.storage, self.opened.config)
        return arrow_user_schema(table_schema(state).text)

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Where a compaction of this table may change what a later write does, by Hudi's rules.

        See docs/services.md, "Where compaction changes the answer". Everywhere else a table's content is
        the same before and after every service, and what follows is too.
        """
        from mainstem.merge.compaction_cautions import cautions
        from mainstem.merge.rules import merge_rules
        from mainstem.readers.planning.table_state import TableState
        from mainstem.readers.queries.snapshot import read_spec
        from mainstem.services.kept_deletes import hours_kept

        config = self.opened.config
        rules = merge_rules(config.raw)
        if not rules.ordering:
            return cautions(rules)
        state = TableState.load(self.opened.seams.storage, config)
        spec = read_spec(state, None, None, None, "error", stored=True)
        return cautions(rules, kept=hours_kept(config, spec) > 0)

    def timeline(self) -> list[Instant]:
        """Instants of the active timeline in their highest state, by requested time."""
        from mainstem.timeline.active import load_timeline

        return load_timeline(self.opened.seams.storage).instants

    def file_slices(self) -> list[FileSlice]:
        """All file slices, as Hudi's file system view returns them."""
        from mainstem.readers.planning.shown_slices import file_slices

        return file_slices(self.opened.seams.storage)

    def files(self) -> pa.Table:
        """Every data file that is there: a row with its file group, slice, size, instant and what it is for.

        ``state``: ``current`` (a query reads it), ``older`` (of a slice before the newest: time travel reads
        it until a clean), ``replaced``, ``pending`` (its instant is not completed) or ``unused`` (no instant
        shows it). See docs/reading.md for the columns. Lists every partition once.
        """
        from mainstem.readers.planning.table_files import table_files

        return table_files(self.opened.seams.storage)

    # -- reading ---------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        mode: str = "snapshot",
        *,
        as_of_completion: str | None = None,
    ) -> ScanPlan:
        """A query: ``.to_arrow()`` or ``.to_batches()``.

        ``mode``: ``snapshot`` or ``read_optimized`` (base files only). ``as_of`` is a requested time, as
        in Hudi's time travel: an instant that completes later may still change the answer.
        ``as_of_completion`` shows exactly what was completed at or before a completion time, which never
        changes while the files are retained. Without ``columns`` Hudi's five meta columns come first.
        Partitions and files in which no row passes ``filter`` are left unread as far as paths, bucket hash
        and indexes tell (``.explain()``); ``hoodie.enable.data.skipping=false`` and
        ``hoodie.metadata.enable=false`` given to ``open_table`` turn that off.
        """
        from mainstem.readers.queries import snapshot

        return snapshot.scan(
            self.opened.seams.storage,
            columns=columns,
            filter=filter,
            as_of=as_of,
            as_of_completion=as_of_completion,
            mode=mode,
            damaged=self.opened.damaged,
            use=self.opened.use,
        ).of_table(self.opened.identity)

    def dataset(
        self, as_of: str | None = None, mode: str = "snapshot", *, as_of_completion: str | None = None
    ) -> ds.Dataset:
        """The table as a ``pyarrow.dataset.Dataset``: DuckDB and Polars push columns and filters into it.

        ``rows = table.dataset(); duckdb.sql("select city, count(*) from rows where fare > 9 group by
        city")``, ``pl.scan_pyarrow_dataset(table.dataset())``. Every scan reads the newest state, or that
        of ``as_of``; see ``scan``.
        """
        return self.scan(as_of=as_of, mode=mode, as_of_completion=as_of_completion).to_dataset()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
    ) -> pd.DataFrame:
        """Rows as a pandas frame: ``scan(...).to_pandas()``."""
        return self.scan(columns=columns, filter=filter, as_of=as_of).to_pandas()

    def changes(
        self,
        after: str | None = None,
        until: str | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        *,
        mode: str = "latest",
        deletes: bool = False,
        images: str = "json",
    ) -> ScanPlan:
        """What instants completed in (``after``, ``until``] changed; both are completion times.

        ``mode="latest"``: the rows that they wrote, as Java's incremental query returns them.
        ``deletes=True`` adds the column ``_change_type`` (``upsert`` or ``delete``) and a row for each
        deleted key, in which only key, partition and ordering columns are filled; ``filter`` picks
        upserts only. ``mode="cdc"``, for tables with ``hoodie.table.cdc.enabled=true``: one row per
        change with ``op`` (i, u, d), ``ts_ms`` (requested time of the instant), ``before`` and ``after``
        as JSON text, or as structs with ``images="struct"``.
        """
        from mainstem.readers.changes import incremental

        return incremental.changes(
            self.opened.seams.storage,
            after=after,
            until=until,
            columns=columns,
            filter=filter,
            mode=mode,
            deletes=deletes,
            images=images,
            damaged=self.opened.damaged,
        ).of_table(self.opened.identity)

    def doctor(self, *, fix: bool = False, progress: Progress | None = None) -> tuple[Finding, ...]:
        """What is wrong with the table, its options and its surroundings, errors first.

        Each ``Finding`` has a severity, what shows it and the command that mends it (docs/services.md).
        Nothing is written, unless ``fix``: then a round of all services runs first (dead writers are rolled
        back, plans executed, what is due is done), and what is left is told. Raises ``Unsupported`` for a
        table that mainstem cannot read, and with ``fix`` what ``writer_context`` raises.
        """
        from mainstem.doctor.examination import examine

        if fix:
            self.rollback_failed_writes()
            self.services.run(progress=progress)
        seams = self.opened.seams
        now = load_config(seams.storage)
        return examine(
            seams.storage, now, self.opened.given, seams.clock, self._lock(), lambda: self.cautions
        )

    def _lock(self) -> str | MainstemError:
        """Which lock this process would take, or why it cannot."""
        try:
            return self.opened.seams.lock.identity
        except MainstemError as error:
            return error

    def activity(self, window_s: float = 60.0) -> Activity:
        """Who committed how much within the last ``window_s`` seconds, what is under way and what is due, who
        holds the table's lock and who waits for it.

        Nothing is written; it reads the timeline, not the files. Raises what ``history`` raises.
        """
        from mainstem.doctor.activity import activity
        from mainstem.doctor.examined_table import ExaminedTable

        seams = self.opened.seams
        now = load_config(seams.storage)
        looked_at = ExaminedTable(seams.storage, now, self.opened.given, seams.clock, self._lock())
        return activity(looked_at, window_s)

    def explain_row(
        self,
        key: str | int | Mapping[str, object],
        partition: str | None = None,
        as_of: str | None = None,
    ) -> RowExplanation:
        """Every version of one row that is still there, which of them a query shows, and why.

        ``key``: the record key as in ``_hoodie_record_key``, or the values of its columns. ``partition``: its
        path below the table; without it all partitions are looked through. ``as_of``: as of a requested time.
        Of a table with a bucket index that mainstem made only the key's bucket is read, else every file group
        but for base files whose bloom filter rules the key out. What change logs and indexes have of the key
        is told, too; files that cannot be read are told as such. See docs/reading.md.
        """
        from mainstem.readers.queries.explain_row import explain_row
        from mainstem.vectors.search.row_entries import with_vector_entries

        storage, damaged, use = self.opened.seams.storage, self.opened.damaged, self.opened.use

        def explained() -> RowExplanation:
            return explain_row(storage, key, partition=partition, as_of=as_of, damaged=damaged, use=use)

        if as_of is not None:  # indexes are told as they are now
            return explained()
        return with_vector_entries(storage, explained, damaged=damaged, use=use)

    def history(
        self,
        after: str | None = None,
        until: str | None = None,
        *,
        actions: Collection[str] | None = None,
        writer: str | None = None,
        partition: str | None = None,
        keys: str | tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Who wrote what, and when: a row for each instant, active or archived, by completion time.

        ``after``, ``until``: completion times (``after < completion <= until``); pending instants come last,
        unless ``until`` is given. ``writer``: the ``hoodie.mainstem.writer.name`` of a write. ``keys``: a
        record key, or the first and the last of a range: writes whose files hold some, with their number in
        ``keys``, which is null where those files are gone. ``limit``: only the newest so many. See
        docs/reading.md for the columns. Raises ``CorruptTable`` for damaged metadata; with
        ``mainstem.read.damaged=skip`` the column ``damage`` tells of it.
        """
        from mainstem.readers.queries.table_history import table_history

        return table_history(
            self.opened.seams.storage, after=after, until=until, actions=actions, writer=writer,
            partition=partition, keys=keys, limit=limit, damaged=self.opened.damaged,
        )  # fmt: skip

    # -- writing ---------------------------------------------------------------------------------

    def begin(
        self,
        operation: str = "upsert",
        *,
        guard: StreamGuard | StreamPositions | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        at_once: bool = False,
    ) -> Transaction:
        """Begin a transaction: ``upsert``, ``insert``, ``bulk_insert``, ``delete``, ``update_columns``,
        ``insert_overwrite``, ``insert_overwrite_table`` or ``delete_partition`` (see the methods of these
        names).

        ``guard`` makes it exactly-once per micro-batch. ``at_once``: there will be one ``write`` of rows in
        memory, and ``commit``. Raises ``Unsupported``/``Invalid`` when the
        table or the operation cannot be written safely.
        """
        from mainstem.writers.outcome import check_operation

        return self._begin(check_operation(operation), guard, extra_metadata, at_once=at_once)

    def _begin(
        self,
        operation: str,
        guard: StreamGuard | StreamPositions | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        *,
        at_once: bool = False,
    ) -> Transaction:
        from mainstem.writers.transaction import Transaction

        ctx = self.opened.writer_context()
        try:
            spec = write_spec(self.opened, ctx, operation)
        except MainstemError as error:
            error.table = error.table or self.path
            raise
        except OSError as error:
            raise Unavailable(
                f"begin failed: the table's schema cannot be read ({error}); nothing was written, try again",
                table=self.path,
            ) from error
        return Transaction.begin(ctx, spec, guard=guard, extra_metadata=extra_metadata, at_once=at_once)

    def resume(
        self,
        spec: WriteSpec,
        *,
        guard: StreamGuard | StreamPositions | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Take over a transaction that another process began and detached (``Transaction.detach``)."""
        from mainstem.writers.transaction import Transaction

        return Transaction.resume(
            self.opened.writer_context(), spec, guard=guard, extra_metadata=extra_metadata
        )

    def staging_spec(self, schema: pa.Schema, operation: str = "upsert") -> WriteSpec:
        """What the workers of an engine need to stage rows (``writers.staged_rows.Stager``); picklable.

        ``schema``: columns and types of the rows to come; those that the table lacks are added by the commit
        that first holds such rows. Raises ``Unsupported`` for ``bulk_insert`` and for log blocks of a format
        whose instant cannot be put in later.
        """
        from mainstem.writers.outcome import check_operation
        from mainstem.writers.staged_rows import staging_spec

        ctx = self.opened.writer_context()
        try:
            spec = write_spec(self.opened, ctx, check_operation(operation))
            return staging_spec(self.opened.seams.storage, self.opened.seams.random, spec, schema)
        except MainstemError as error:
            error.table = error.table or self.path
            raise
        except OSError as error:
            raise Unavailable(f"the schema cannot be read: {error}; try again", table=self.path) from error

    def upsert(self, rows: Rows) -> Outcome:
        """Insert or update full rows in one commit.

        ``rows``, here and in the methods below: Arrow data of any library, in memory or as a stream, pandas
        and Polars frames, DuckDB relations, columns by name, lists of dicts, and iterators of any of these
        (docs/rows.md). A stream is taken batch by batch, and committed whole or not at all.
        """
        return self._write_once("upsert", rows)

    def insert(self, rows: Rows) -> Outcome:
        """Write full rows as log blocks, like ``upsert``; the timeline calls it INSERT.

        Under non-blocking concurrency control Hudi's ``insert`` goes to log files too (HUDI-8328): a
        key that is there already is updated by the table's merge rules, never doubled (HUDI-7227). On a
        table without record key each row gets a key of its own, so rows that are inserted twice are there
        twice.
        """
        return self._write_once("insert", rows)

    def bulk_insert(self, rows: Rows) -> Outcome:
        """Write full rows in one commit: as base files where a bucket has no file yet, else as log
        blocks.

        Rows that share a key are merged before they are written. Unlike the other operations it can
        lose: it is rolled back, and ``RolledBack`` raised, if another writer completed a write to the
        same buckets, or planned their compaction, between its begin and its commit, as in Hudi. Rows
        of new buckets are held in memory until the commit.
        """
        return self._write_once("bulk_insert", rows)

    def insert_overwrite(self, rows: Rows) -> Outcome:
        """Replace all rows of the partitions that ``rows`` name, in one commit; other partitions stay.

        No writer waits or aborts: what completes while this runs stays, and lies on top of the new rows
        (``writers.overwriting``; Hudi's own ``insert_overwrite`` loses it, apache/hudi#19793). Of rows with
        one key the table's merge rules take one. The rows are held in memory until the commit. Raises
        ``Unavailable`` beside a pending log compaction, or if compactions are planned again and again.
        """
        return self._write_once("insert_overwrite", rows)

    def insert_overwrite_table(self, rows: Rows) -> Outcome:
        """``insert_overwrite`` of all partitions: no older row stays."""
        return self._write_once("insert_overwrite_table", rows)

    def delete_partition(self, *partitions: str) -> Outcome:
        """Delete all rows of partitions, named as their paths below the table (``city=rome/day=3``, or
        ``rome/3``); like ``insert_overwrite`` with no rows. Raises ``Invalid`` for one that is not there."""
        with self.begin("delete_partition") as txn:
            txn.name_partitions(partitions)
            return txn.commit()

    def evolve(self, columns: pa.Schema) -> Outcome:
        """Add columns, nullable and at the end, or widen columns to these types, in a commit without rows.

        What Hudi's ALTER TABLE ADD COLUMNS does (AlterHoodieTableAddColumnsCommand). Writers that began
        before go on: their rows lack the columns. Raises ``Invalid`` for what a column cannot become;
        nothing is dropped or renamed, which would need Hudi's schema on read.
        """
        with self.begin("upsert") as txn:
            txn.evolve(columns)
            return txn.commit()

    def truncate(self) -> Outcome:
        """Delete all rows; what completes while this runs stays."""
        with self.begin("insert_overwrite_table") as txn:
            return txn.commit()

    def delete(self, keys: Rows) -> Outcome:
        """Delete by key: the record key and partition columns suffice. Unconditional, as Hudi's
        ``delete`` operation (ordering value 0): it wins over every earlier row whatever its event time."""
        return self._write_once("delete", keys)

    def update_columns(self, rows: Rows) -> Outcome:
        """Update some columns of rows; the others keep their values.

        The table must have ``hoodie.table.partial.update.mode``. With IGNORE_DEFAULTS the columns left
        out are written as nulls, and a null means "keep the older value". So a cell **cannot be set to
        null** this way; a null in a given column is refused. With FILL_UNAVAILABLE they are written
        with the table's marker (``hoodie.write.partial.update.unavailable.value``), which only string
        and binary columns can hold: the other columns must be given. A key that the table does not
        have yet gets the nulls, or the marker, as its values.

        With the option ``hoodie.mainstem.write.partial.blocks=true`` any table can be updated this
        way, see there: Hudi's Java readers fail on some of what is written then.
        """
        return self._write_once("update_columns", rows)

    def _write_once(
        self, operation: str, rows: Rows, check: Callable[[], None] = lambda: None
    ) -> Outcome:
        """``check``: called for each batch of a stream, and before the commit; if it raises, nothing is
        committed."""
        from mainstem.writers.outcome import EMPTY, INSERT_OVERWRITE_TABLE, Outcome, check_operation
        from mainstem.writers.rows_in import RowStream, rows_in

        name = check_operation(operation)
        try:
            given = rows_in(rows)
            if isinstance(given, RowStream):
                whole = given.only()
                given.check = check
                given = given if whole is None else whole
        except Invalid as error:
            error.table = error.table or self.path
            raise
        if not isinstance(given, RowStream) and given.num_rows == 0 and name != INSERT_OVERWRITE_TABLE:
            return Outcome(EMPTY)
        with self._begin(name, at_once=not isinstance(given, RowStream)) as txn:
            txn.write(given)
            check()
            return txn.commit()

    # -- for engines -------------------------------------------------------------------------------

    def writer_context(self) -> WriterContext:
        """What transactions and services of this process share; checks that the table can be written."""
        return self.opened.writer_context()

    def index_context(self) -> WriterContext:
        """As ``writer_context``, also where the table has indexes that mainstem does not maintain."""
        return self.opened.index_context()

    # -- the facets under their older names --------------------------------------------------------

    def run_services(
        self,
        only: str | Sequence[str] | None = None,
        *,
        if_due: bool = True,
        progress: Progress | None = None,
    ) -> list[ServiceRun]:
        """``services.run``."""
        return self.services.run(only, if_due=if_due, progress=progress)

    def services_in_background(
        self, every_s: float = 30.0, only: str | Sequence[str] | None = None
    ) -> Background:
        """``services.in_background``."""
        return self.services.in_background(every_s, only)

    def rollback_failed_writes(self) -> list[RolledBackInstant]:
        """``services.rollback_failed_writes``."""
        return self.services.rollback_failed_writes()

    def schedule_log_compaction(self, *, if_due: bool = False) -> str | None:
        """``services.schedule_log_compaction``."""
        return self.services.schedule_log_compaction(if_due=if_due)

    def run_log_compaction(self, instant: str | None = None) -> list[LogCompaction]:
        """``services.run_log_compaction``."""
        return self.services.run_log_compaction(instant)

    def log_compact(self, *, if_due: bool = False) -> list[LogCompaction]:
        """``services.log_compact``."""
        return self.services.log_compact(if_due=if_due)

    def schedule_compaction(self, *, if_due: bool = False) -> str | None:
        """``services.schedule_compaction``."""
        return self.services.schedule_compaction(if_due=if_due)

    def run_compaction(
        self, instant: str | None = None, *, progress: Progress | None = None
    ) -> list[Compaction]:
        """``services.run_compaction``."""
        return self.services.run_compaction(instant, progress=progress)

    def compact(self, *, if_due: bool = False, progress: Progress | None = None) -> list[Compaction]:
        """``services.compact``."""
        return self.services.compact(if_due=if_due, progress=progress)

    def schedule_clustering(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        strategy: str | None = None,
        partitions: Sequence[str] | None = None,
    ) -> str | None:
        """``services.schedule_clustering``."""
        return self.services.schedule_clustering(columns, strategy=strategy, partitions=partitions)

    def run_clustering(
        self, instant: str | None = None, *, progress: Progress | None = None
    ) -> list[Clustered]:
        """``services.run_clustering``."""
        return self.services.run_clustering(instant, progress=progress)

    def cluster(
        self,
        columns: Sequence[str] | str | None = None,
        *,
        strategy: str | None = None,
        partitions: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Compaction] | list[Clustered]:
        """``services.cluster``."""
        return self.services.cluster(
            columns, strategy=strategy, partitions=partitions, progress=progress
        )

    def resize(self, buckets: int, *, progress: Progress | None = None) -> ResizedTable:
        """``services.resize``."""
        return self.services.resize(buckets, progress=progress)

    def upgrade(self, version: int, *, progress: Progress | None = None) -> ChangedVersion:
        """``services.upgrade``."""
        return self.services.upgrade(version, progress=progress)

    def downgrade(self, version: int, *, progress: Progress | None = None) -> ChangedVersion:
        """``services.downgrade``."""
        return self.services.downgrade(version, progress=progress)

    def schedule_clean(self, *, if_due: bool = False) -> str | None:
        """``services.schedule_clean``."""
        return self.services.schedule_clean(if_due=if_due)

    def clean(self, *, if_due: bool = False, progress: Progress | None = None) -> list[Cleaned]:
        """``services.clean``."""
        return self.services.clean(if_due=if_due, progress=progress)

    def archive(self, *, if_due: bool = False, progress: Progress | None = None) -> Archived | None:
        """``services.archive``."""
        return self.services.archive(if_due=if_due, progress=progress)

    def savepoint(self, instant: str | None = None, user: str = "", comment: str = "") -> Savepoint:
        """``services.savepoint``."""
        return self.services.savepoint(instant, user, comment)

    def savepoints(self) -> list[Savepoint]:
        """``services.savepoints``."""
        return self.services.savepoints()

    def delete_savepoint(self, instant: str) -> None:
        """``services.delete_savepoint``."""
        self.services.delete_savepoint(instant)

    def rollback(self, instant: str) -> RolledBackInstant:
        """``services.rollback``."""
        return self.services.rollback(instant)

    def restore(self, savepoint: str | None = None, *, progress: Progress | None = None) -> Restored:
        """``services.restore``."""
        return self.services.restore(savepoint, progress=progress)

    def index(self, name: str) -> Index:
        """``indexes.get``."""
        return self.indexes.get(name)

    def validate_metadata(self, *, kept: int = 100) -> MetadataReport | None:
        """``indexes.validate``."""
        return self.indexes.validate(kept=kept)

    def create_index(
        self,
        kind: str,
        columns: Sequence[str] = (),
        *,
        name: str | None = None,
        options: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Built | Refreshed:
        """``indexes.create``."""
        return self.indexes.create(kind, columns, name=name, options=options, progress=progress)

    def check_new_name(self, name: str | None) -> None:
        """``indexes.check_new_name``."""
        self.indexes.check_new_name(name)

    def refresh_index(self, name: str, *, progress: Progress | None = None) -> Refreshed:
        """``indexes.refresh``."""
        return self.indexes.refresh(name, progress=progress)

    def reindex(self, name: str, *, progress: Progress | None = None) -> Built | Refreshed:
        """``indexes.rebuild``."""
        return self.indexes.rebuild(name, progress=progress)

    def reindex_all(self, *, progress: Progress | None = None) -> list[Built | Refreshed]:
        """``indexes.rebuild_all``."""
        return self.indexes.rebuild_all(progress=progress)

    def drop_index(self, name: str, *, if_exists: bool = False) -> Dropped | None:
        """``indexes.drop``."""
        return self.indexes.drop(name, if_exists=if_exists)

    def search(
        self,
        column: str,
        vectors: Any,
        k: int,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        metric: str | None = None,
        ef: int | None = None,
        exact: bool = False,
        columns: Sequence[str] | None = None,
        *,
        clusters: int | None = None,
    ) -> pa.Table:
        """``vectors.search``."""
        return self.vectors.search(
            column, vectors, k, filter, as_of, metric, ef, exact, columns, clusters=clusters
        )

    def explain_search(
        self,
        column: str,
        vectors: Any,
        k: int,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        metric: str | None = None,
        ef: int | None = None,
        exact: bool = False,
        *,
        clusters: int | None = None,
    ) -> SearchExplanation:
        """``vectors.explain``."""
        return self.vectors.explain(column, vectors, k, filter, as_of, metric, ef, exact, clusters=clusters)


def open_table(
    path: Place,
    properties: Mapping[str, object] | None = None,
    *,
    catalog: Catalogued | str | None = None,
    clock_offset_ms: int | None = None,
) -> Table:
    """Open an existing table for reading and writing.

    ``catalog``: ``path`` is a name in it (``"db.trips"``); a catalog of ``open_catalog``, or what that opens.

    ``properties`` are ``hoodie.*`` options of this process, by the rule of the Spark sink: unknown ones are
    refused, those without effect warned about, options of services checked whether or not one runs.
    ``clock_offset_ms`` shifts this process's clock (tests and demos of skew). Raises ``Invalid`` if there is
    no table and for wrong options, ``Unsupported`` for options and tables that mainstem cannot serve.
    """
    of_store, given = split(as_text(properties))
    if clock_offset_ms is not None:
        given[CLOCK_OFFSET] = str(clock_offset_ms)
    named = None
    if catalog is not None:
        from mainstem.catalogs.known import gone, located, store_of

        named = store_of(catalog, of_store) if isinstance(catalog, str) else catalog.store
        if not isinstance(path, str):
            raise Invalid(f"open_table({path!r}, catalog=...): expected a name such as 'db.trips'")
        name, path = path, located(named, path)
    location = location_of(path, options=of_store)
    storage = storage_of(location)
    if named is not None and not _is_table(storage):
        raise gone(named, name, location)
    with naming(location.base, "the table cannot be opened", "check the place and the credentials"):
        identity = known_identity(storage)  # before the properties: of an older table it would be missed
        config = load_config(storage)
    config.check_readable(location.base)
    if properties:
        from mainstem.api.given_options import check_given

        check_given(given, config.raw)
    if METRICS in given:
        from mainstem.telemetry.reporters import report

        report(given, location.base)
    return Table(real_seams(location, config, given), config, given, identity)


def _is_table(storage: Storage) -> bool:
    with naming(storage.base, "the table cannot be opened", "check the place and the credentials"):
        return has_table(storage)
