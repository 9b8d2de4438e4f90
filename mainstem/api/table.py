"""An open table as users see it: read, write, roll back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.api.indexes import IndexMethods
from mainstem.api.opening import ZOOKEEPER_AUTH_VARIABLE, as_text, fence_of, note_lock, real_seams
from mainstem.api.services import ServiceMethods
from mainstem.api.vectors import VectorMethods
from mainstem.errors import Invalid, MainstemError, TableReplaced, Unavailable, Unsupported
from mainstem.layout.properties import TableConfig, load_config
from mainstem.merge.modes import FILL_UNAVAILABLE
from mainstem.options import DATA_SKIPPING, METADATA, WriterOptions, flag, one_of
from mainstem.publish.table_identity import check_table, known_identity, note_identity
from mainstem.storage import paths
from mainstem.storage.backends import Place, location_of, reopens, storage_of
from mainstem.truetime.locks.zookeeper_options import AUTH as ZOOKEEPER_AUTH
from mainstem.truetime.seams import Seams

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from mainstem.indexing.differences import MetadataReport
    from mainstem.indexing.status import Index
    from mainstem.layout.slicing import FileSlice
    from mainstem.merge.compaction_cautions import Caution
    from mainstem.merge.rules import MergeRules
    from mainstem.readers.queries.scan_plan import ScanPlan
    from mainstem.readers.skipping.chooser import Use
    from mainstem.timeline.instant import Instant
    from mainstem.writers.context import WriterContext
    from mainstem.writers.fit_rows import Rows
    from mainstem.writers.outcome import Outcome
    from mainstem.writers.stream_guard import StreamGuard
    from mainstem.writers.transaction import Transaction
    from mainstem.writers.write_spec import WriteSpec


class Table(ServiceMethods, IndexMethods, VectorMethods):
    """An open table. Cheap to open; may be used from several threads.

    ``properties`` given at opening win over the table's own where they are options of the process
    (heartbeats, lock waiting, fsync); what decides where rows land must agree with the table. A forked child
    may go on with it, a copy or a pickle opens it again.
    """

    def __init__(
        self, seams: Seams, config: TableConfig, properties: Mapping[str, str], identity: str | None = None
    ) -> None:
        """``identity``: of the table that ``config`` is of (``publish.table_identity``), looked up before
        that was read; None where the table has none yet."""
        self._seams = seams
        self._identity = identity
        self._config = config
        self._given = dict(properties)
        self._writer: WriterContext | None = None

    def __reduce__(self) -> Any:
        """A pickle opens the table again, in whatever process it arrives."""
        if not reopens(self._seams.storage):
            raise TypeError("this table's storage is only in this process: open it again where it is needed")
        if ZOOKEEPER_AUTH in self._given:
            raise Invalid(
                f"a pickle of this table would hold the credentials of {ZOOKEEPER_AUTH}: give them by the"
                f" environment variable {ZOOKEEPER_AUTH_VARIABLE}, here and there",
                table=self.path,
            )
        return open_table, (self._seams.storage.location, self._given)

    def __copy__(self) -> Table:
        """A copy is a table opened once more over the same storage, clock and lock."""
        return Table(self._seams, self._config, self._given)

    def __deepcopy__(self, memo: object) -> Table:
        return self.__copy__()

    # -- what it is ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Table({self.path!r}, name={self._config.name!r}, version={self._config.version})"

    @property
    def path(self) -> str:
        """Base path."""
        return self._seams.storage.base

    @property
    def properties(self) -> dict[str, str]:
        """``hoodie.properties`` as found, unknown keys included."""
        return dict(self._config.raw)

    @property
    def config(self) -> TableConfig:
        """The properties, parsed."""
        return self._config

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the user columns."""
        from mainstem.layout.schema_fit import arrow_user_schema
        from mainstem.readers.planning.query_schema import table_schema
        from mainstem.readers.planning.table_state import TableState

        state = TableState.load(self._seams.storage, self._config)
        return arrow_user_schema(table_schema(state).text)

    @property
    def cautions(self) -> tuple[Caution, ...]:
        """Where a compaction of this table may change what a later write does, by Hudi's rules.

        See docs/services.md, "Where compaction changes the answer". Everywhere else a table's content is
        the same before and after every service, and what follows is too.
        """
        from mainstem.merge.compaction_cautions import cautions
        from mainstem.merge.rules import DELETED_COLUMN, merge_rules

        rules = merge_rules(self._config.raw)
        marked = rules.delete_field is not None or DELETED_COLUMN in self.schema.names
        return cautions(rules, timed_deletes=marked)

    def timeline(self) -> list[Instant]:
        """Instants of the active timeline in their highest state, by requested time."""
        from mainstem.timeline.active import load_timeline

        return load_timeline(self._seams.storage).instants

    def file_slices(self) -> list[FileSlice]:
        """All file slices, as Hudi's file system view returns them."""
        from mainstem.readers.planning.shown_slices import file_slices

        return file_slices(self._seams.storage)

    # -- reading ---------------------------------------------------------------------------------

    def _damaged(self) -> str:
        return one_of(self._given, "mainstem.read.damaged", "ERROR", ("ERROR", "SKIP")).lower()

    def _use(self) -> Use:
        from mainstem.readers.skipping.chooser import Use

        return Use(flag(self._given, DATA_SKIPPING, True), flag(self._given, METADATA, True))

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
            self._seams.storage,
            columns=columns,
            filter=filter,
            as_of=as_of,
            as_of_completion=as_of_completion,
            mode=mode,
            damaged=self._damaged(),
            use=self._use(),
        ).of_table(self._identity)

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
            self._seams.storage,
            after=after,
            until=until,
            columns=columns,
            filter=filter,
            mode=mode,
            deletes=deletes,
            images=images,
            damaged=self._damaged(),
        ).of_table(self._identity)

    # -- writing ---------------------------------------------------------------------------------

    def begin(
        self,
        operation: str = "upsert",
        *,
        guard: StreamGuard | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Begin a transaction: ``upsert``, ``insert``, ``bulk_insert``, ``delete`` or ``update_columns``
        (see the methods of these names).

        ``guard`` makes it exactly-once per micro-batch. Raises ``Unsupported``/``Invalid`` when the
        table or the operation cannot be written safely.
        """
        from mainstem.writers.outcome import check_operation
        from mainstem.writers.transaction import Transaction

        name = check_operation(operation)
        ctx = self.writer_context()
        try:
            spec = self._write_spec(ctx, name)
        except MainstemError as error:
            error.table = error.table or self.path
            raise
        except OSError as error:
            raise Unavailable(
                f"begin failed: the table's schema cannot be read ({error}); nothing was written, try again",
                table=self.path,
            ) from error
        return Transaction.begin(ctx, spec, guard=guard, extra_metadata=extra_metadata)

    def resume(
        self,
        spec: WriteSpec,
        *,
        guard: StreamGuard | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Take over a transaction that another process began and detached (``Transaction.detach``)."""
        from mainstem.writers.transaction import Transaction

        return Transaction.resume(self.writer_context(), spec, guard=guard, extra_metadata=extra_metadata)

    def staging_spec(self, schema: pa.Schema, operation: str = "upsert") -> WriteSpec:
        """What the workers of an engine need to stage rows (``writers.staged_rows.Stager``); picklable.

        ``schema``: columns and types of the rows to come; those that the table lacks are added by the commit
        that first holds such rows. Raises ``Unsupported`` for ``bulk_insert`` and for log blocks of a format
        whose instant cannot be put in later.
        """
        from mainstem.writers.outcome import check_operation
        from mainstem.writers.staged_rows import staging_spec

        ctx = self.writer_context()
        try:
            spec = self._write_spec(ctx, check_operation(operation))
            return staging_spec(self._seams.storage, self._seams.random, spec, schema)
        except MainstemError as error:
            error.table = error.table or self.path
            raise
        except OSError as error:
            raise Unavailable(f"the schema cannot be read: {error}; try again", table=self.path) from error

    def upsert(self, rows: Rows) -> Outcome:
        """Insert or update full rows in one commit.

        ``rows``, here and in the methods below: an Arrow table or record batch, or columns by name, which are
        Arrow arrays, lists and NumPy arrays; a matrix has a vector in each row.
        """
        return self._write_once("upsert", rows)

    def insert(self, rows: Rows) -> Outcome:
        """Write full rows as log blocks, like ``upsert``; the timeline calls it INSERT.

        Under non-blocking concurrency control Hudi's ``insert`` goes to log files too (HUDI-8328): a
        key that is there already is updated by the table's merge rules, never doubled (HUDI-7227).
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

    def _write_once(self, operation: str, rows: Rows) -> Outcome:
        from mainstem.writers.fit_rows import as_table
        from mainstem.writers.outcome import EMPTY, Outcome, check_operation

        check_operation(operation)
        try:
            rows = as_table(rows)
        except Invalid as error:
            error.table = self.path
            raise
        if rows.num_rows == 0:
            return Outcome(EMPTY)
        with self.begin(operation) as txn:
            txn.write(rows)
            return txn.commit()

    def writer_context(self) -> WriterContext:
        """What transactions and services of this process share; checks that the table can be written."""
        if self._writer is None:
            ctx = self._opened_for_writing(self._config.completed_by(self._given))
            self._arrange_services(ctx)
            self._writer = ctx
        return self._writer

    def index_context(self) -> WriterContext:
        """As ``writer_context``, also where the table has indexes that mainstem does not maintain."""
        from mainstem.indexing.index_lists import without

        return self._opened_for_writing(without(self._config.completed_by(self._given)))

    def _opened_for_writing(self, config: TableConfig) -> WriterContext:
        from mainstem.formats.base_file import BaseFileFormat
        from mainstem.layout.foreign_tables import check_buckets
        from mainstem.merge.rules import merge_rules
        from mainstem.writers.context import open_context

        try:
            options = WriterOptions.from_properties(self._given, self._config.raw)
            BaseFileFormat.from_properties(self._given)
            config.check_writable(self.path)
            merge_rules(config.raw)
            self._check_agreement()
            check_table(self._seams.storage, self._identity)
            buckets = check_buckets(self._seams.storage, config)
            note_lock(self._seams)
            self._identify()
            return open_context(
                self._seams, config, options, buckets=buckets, given=self._given, identity=self._identity,
                fence=fence_of(self._seams, self._identity),
            )  # fmt: skip
        except MainstemError as error:
            error.table = error.table or self.path
            raise
        except OSError as error:
            raise Unavailable(
                f"the table cannot be opened for writing: {error}; try again", table=self.path
            ) from error

    def _identify(self) -> None:
        """Give a table of another engine or an older release its note, if it is the one that was opened."""
        if self._identity is not None:
            return
        identity = note_identity(self._seams.storage, self._seams.random)
        now = load_config(self._seams.storage)
        changed = self._config.changed(now)
        if changed or now.create_schema != self._config.create_schema:
            what = "; ".join(changed) or "hoodie.table.create.schema differs"
            raise TableReplaced(
                f"{paths.PROPERTIES} is not what it was when the table was opened ({what}): another table was"
                " made at its path, or this one changed. Nothing was written; open the table again",
                table=self.path,
            )
        self._identity = identity

    def _validated(self, kept: int) -> MetadataReport | None:
        from mainstem.indexing.spill import spilled
        from mainstem.indexing.validate import validate_metadata

        with spilled() as keep:
            return validate_metadata(self._seams.storage, kept=kept, damaged=self._damaged(), keep=keep)

    def _indexes_now(self) -> list[Index]:
        from mainstem.indexing.status import indexes
        from mainstem.timeline.active import load_timeline
        from mainstem.vectors.index.lifecycle import vector_indexes

        storage = self._seams.storage
        config = load_config(storage)
        config.check_readable(self.path)
        return [*indexes(storage, config, load_timeline(storage)), *vector_indexes(storage)]

    def _check_agreement(self) -> None:
        """An option that decides where rows land must not contradict the table."""
        from mainstem.layout.key_generator import named_kind
        from mainstem.layout.properties import DECISIVE, KEY_ENCODING, NEW_ENCODING

        aliases = {
            "hoodie.datasource.write.recordkey.field": "hoodie.table.recordkey.fields",
            "hoodie.datasource.write.partitionpath.field": "hoodie.table.partition.fields",
            "hoodie.datasource.write.precombine.field": "hoodie.table.ordering.fields",
            "hoodie.datasource.write.table.name": "hoodie.table.name",
            "hoodie.write.table.version": "hoodie.table.version",
        }
        if flag(self._given, "hoodie.write.auto.upgrade", False):
            raise Unsupported(
                "hoodie.write.auto.upgrade=true: mainstem never upgrades a table; upgrade it with Hudi",
                table=self.path,
            )
        config = self._config
        if config.version > 8 and config.single_field_complex and flag(self._given, NEW_ENCODING, False):
            warnings.warn(
                f"{NEW_ENCODING} has no effect on a table of version {config.version}, as in Hudi: its keys"
                f" are written as {KEY_ENCODING} or, without it, 'field:value'",
                stacklevel=4,
            )
        kind = named_kind(self._given)
        if kind not in (None, self._config.key_generator):
            raise Invalid(
                f"the options name the key generator {kind}, but the table has"
                f" {self._config.key_generator}; drop the option or write to another table",
                table=self.path,
            )
        for key, value in self._given.items():
            name = aliases.get(key, key)
            if name in DECISIVE and name in self._config.raw:
                found = self._config.raw[name].strip()
                if found.upper() != value.strip().upper():
                    raise Invalid(
                        f"{key}={value!r} contradicts the table, whose {name} is {found!r}; drop the"
                        " option or write to another table",
                        table=self.path,
                    )

    def _write_spec(self, ctx: WriterContext, operation: str) -> WriteSpec:
        from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
        from mainstem.layout.foreign_tables import check_key_encoding
        from mainstem.layout.key_generator import KeyGenerator
        from mainstem.layout.schema_fit import arrow_user_schema
        from mainstem.merge.rules import merge_rules
        from mainstem.metadata.fixed_column_types import held_columns
        from mainstem.readers.planning.query_schema import schema_text
        from mainstem.readers.planning.table_state import TableState
        from mainstem.writers.transaction_schema import fills_missing
        from mainstem.writers.write_spec import (
            LAYOUT_OPTIONS,
            PARTIAL_BLOCKS_WARNING,
            UPDATE_COLUMNS,
            WriteSpec,
        )

        config, options = ctx.config, ctx.options
        rules = merge_rules(config.raw)
        partial_blocks = operation == UPDATE_COLUMNS and options.partial_blocks
        if partial_blocks:
            warnings.warn(PARTIAL_BLOCKS_WARNING, stacklevel=4)
        elif operation == UPDATE_COLUMNS:
            self._check_update_columns(rules)
        # Another writer's newer schema is met under the lock (``writers.transaction_schema``).
        timeline = ctx.publisher.timeline()
        user_schema = ctx.own_schema_in(timeline)
        if user_schema is None:
            user_schema = schema_text(TableState.of(ctx.seams.storage, self._config, timeline))
        arrow = arrow_user_schema(user_schema)
        for role, names in (
            ("record key", config.record_key),
            ("partition", config.partition_fields),
            ("ordering", config.ordering),
        ):
            for name in names:
                if arrow.get_field_index(name) < 0:
                    raise Invalid(
                        f"{role} field {name!r} is no column of the table, which has"
                        f" {', '.join(arrow.names)}",
                        table=self.path,
                    )
        keys = KeyGenerator.for_writing(config)
        if not ctx.keys_agreed:
            check_key_encoding(ctx.seams.storage, config)
            ctx.keys_agreed = True
        keys.check_schema(arrow)
        ctx.reread_config()
        held = held_columns(ctx.seams.storage, ctx.newest_properties)
        log_schema = arrow_to_avro(arrow, table_name=config.name, meta_fields=True)
        return WriteSpec(
            location=self._seams.storage.location,
            instant="",
            operation=operation,
            table_name=config.name,
            keys=keys,
            fill_missing=fills_missing({**config.raw, **self._given}),
            hash_fields=config.hash_fields,
            buckets=ctx.buckets,
            rules=rules.for_schema(user_schema, avro_to_arrow(log_schema)),
            ordering=config.ordering,
            user_schema=user_schema,
            log_schema=log_schema,
            fsync=options.fsync,
            log_bytes_max=options.log_bytes_max,
            block_format=options.block_format,
            partial_blocks=partial_blocks,
            layout={key: self._given[key] for key in LAYOUT_OPTIONS if key in self._given},
            never_widened=held.kept,
            whole_numbers=held.whole,
        )

    def _check_update_columns(self, rules: MergeRules) -> None:
        if rules.partial is None:
            raise Unsupported(
                "update_columns needs a table with hoodie.table.partial.update.mode=IGNORE_DEFAULTS (or"
                " FILL_UNAVAILABLE); this one has none: every upsert replaces the row",
                table=self.path,
            )
        if rules.partial == FILL_UNAVAILABLE and rules.unavailable is None:
            raise Unsupported(
                "update_columns under FILL_UNAVAILABLE needs the marker that stands for 'keep the older"
                " value': the table has no"
                " hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",
                table=self.path,
            )


def open_table(
    path: Place,
    properties: Mapping[str, object] | None = None,
    *,
    clock_offset_ms: int | None = None,
) -> Table:
    """Open an existing table for reading and writing.

    ``properties`` are ``hoodie.*`` options of this process, by the rule of the Spark sink: unknown ones are
    refused, those without effect warned about, options of services checked whether or not one runs.
    ``clock_offset_ms`` shifts this process's clock (tests and demos of skew). Raises ``Invalid`` if there is
    no table and for wrong options, ``Unsupported`` for options and tables that mainstem cannot serve.
    """
    given = as_text(properties)
    if clock_offset_ms is not None:
        given["hoodie.mainstem.clock.offset_ms"] = str(clock_offset_ms)
    location = location_of(path)
    storage = storage_of(location)
    identity = known_identity(storage)  # before the properties: of an older table it would be missed
    config = load_config(storage)
    config.check_readable(location.base)
    if properties:
        from mainstem.api.hoodie_options import check_given

        check_given(given, config.raw)
    return Table(real_seams(location, config, given), config, given, identity)
