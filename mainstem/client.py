"""Tables as users see them: create, open, write, read. The only place that puts real parts together."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, MainstemError, Unavailable, Unsupported
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options import CONCURRENCY, NBCC, WriterOptions, one_of, whole_number
from mainstem.seams import Seams
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.table.properties import (
    BUCKET_ENGINE,
    BUCKETS,
    COMMIT_TIME,
    EVENT_TIME,
    HASH_FIELD,
    IGNORE_DEFAULTS,
    INDEX_TYPE,
    TIMEZONE,
    TableConfig,
    encode_config,
    load_config,
    table_checksum,
)
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.lock_options import (
    FOLDER,
    FOREIGN_EXPIRE_MIN,
    PROVIDER,
    LockOptions,
    open_lock,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from mainstem.readers.scan import ScanPlan
    from mainstem.table.slicing import FileSlice
    from mainstem.timeline.instant import Instant
    from mainstem.writers.append import WriteSpec
    from mainstem.writers.context import WriterContext
    from mainstem.writers.guard import StreamGuard
    from mainstem.writers.rollback import RolledBackInstant
    from mainstem.writers.transaction import Outcome, Transaction

DEFAULT_BUCKETS = 256
# Table properties that a user may set at creation beside those that arguments make.
_FIXED = (
    "hoodie.table.version", "hoodie.table.initial.version", "hoodie.timeline.layout.version",
    "hoodie.table.type", "hoodie.table.checksum", "hoodie.table.create.schema", TIMEZONE,
)  # fmt: skip


class Table:
    """An open table. Cheap to open; may be used from several threads.

    ``properties`` given at opening win over the table's own where they are options of the process
    (heartbeats, lock waiting, fsync); what decides where rows land must agree with the table.
    """

    def __init__(self, seams: Seams, config: TableConfig, properties: Mapping[str, str]) -> None:
        self._seams = seams
        self._config = config
        self._given = dict(properties)
        self._writer: WriterContext | None = None

    # -- what it is ------------------------------------------------------------------------------

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
        from mainstem.table.schema import arrow_user_schema

        return arrow_user_schema(self._schema_text())

    def _schema_text(self) -> str:
        from mainstem.readers.schema import schema_text
        from mainstem.readers.state import TableState

        return schema_text(TableState.load(self._seams.storage, self._config))

    def timeline(self) -> list[Instant]:
        """Instants of the active timeline in their highest state, by requested time."""
        from mainstem.timeline.active import load_timeline

        return load_timeline(self._seams.storage).instants

    def file_slices(self) -> list[FileSlice]:
        """All file slices, as Hudi's file system view returns them."""
        from mainstem.readers.slices import file_slices

        return file_slices(self._seams.storage)

    # -- reading ---------------------------------------------------------------------------------

    def _damaged(self) -> str:
        return one_of(self._given, "mainstem.read.damaged", "ERROR", ("ERROR", "SKIP")).lower()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        mode: str = "snapshot",
    ) -> ScanPlan:
        """A query: ``.to_arrow()`` or ``.to_batches()``.

        ``mode``: ``snapshot`` or ``read_optimized`` (base files only). ``as_of`` is a requested time, as
        in Hudi's time travel. Without ``columns`` Hudi's five meta columns come first.
        """
        from mainstem.readers import snapshot

        return snapshot.scan(
            self._seams.storage,
            columns=columns,
            filter=filter,
            as_of=as_of,
            mode=mode,
            damaged=self._damaged(),
        )

    def changes(
        self,
        after: str | None = None,
        until: str | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> ScanPlan:
        """Rows written by instants completed in (``after``, ``until``]: completion times."""
        from mainstem.readers import incremental

        return incremental.changes(
            self._seams.storage,
            after=after,
            until=until,
            columns=columns,
            filter=filter,
            damaged=self._damaged(),
        )

    # -- writing ---------------------------------------------------------------------------------

    def begin(
        self,
        operation: str = "upsert",
        *,
        guard: StreamGuard | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Begin a transaction: ``upsert``, ``insert`` (an upsert, as under a bucket index in Hudi's
        NBCC), ``delete`` or ``update_columns``.

        ``guard`` makes it exactly-once per micro-batch. Raises ``Unsupported``/``Invalid`` when the
        table or the operation cannot be written safely.
        """
        from mainstem.writers.transaction import Transaction, check_operation

        name = check_operation(operation)
        ctx = self._writer_context()
        try:
            spec = self._write_spec(ctx, name)
        except OSError as error:
            raise Unavailable(
                f"begin failed: the table's schema cannot be read ({error}); nothing was written, try"
                " again",
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

        return Transaction.resume(
            self._writer_context(), spec, guard=guard, extra_metadata=extra_metadata
        )

    def upsert(self, rows: pa.Table) -> Outcome:
        """Insert or update full rows in one commit."""
        return self._write_once("upsert", rows)

    def delete(self, keys: pa.Table) -> Outcome:
        """Delete by key: the record key and partition columns suffice. Unconditional, as Hudi's
        ``delete`` operation (ordering value 0): it wins over every earlier row whatever its event time."""
        return self._write_once("delete", keys)

    def update_columns(self, rows: pa.Table) -> Outcome:
        """Update some columns of rows; the others keep their values.

        The table must have ``hoodie.table.partial.update.mode=IGNORE_DEFAULTS``: the columns left out
        are written as nulls, and a null means "keep the older value". So a cell **cannot be set to
        null** this way; a null in a given column is refused.
        """
        return self._write_once("update_columns", rows)

    def _write_once(self, operation: str, rows: pa.Table) -> Outcome:
        from mainstem.writers.append import as_table
        from mainstem.writers.transaction import EMPTY, Outcome, check_operation

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

    def rollback_failed_writes(self) -> list[RolledBackInstant]:
        """Roll back writers whose heartbeat expired; finish rollbacks that died halfway."""
        from mainstem.writers.rollback import roll_back_failed_writes

        return roll_back_failed_writes(self._writer_context())

    def _writer_context(self) -> WriterContext:
        if self._writer is None:
            from mainstem.table.existing import check_buckets
            from mainstem.writers.context import open_context

            try:
                options = WriterOptions.from_properties(self._given)
                config = self._config.completed_by(self._given)
                config.check_writable(self.path)
                self._check_agreement()
                buckets = check_buckets(self._seams.storage, config)
                _note_lock(self._seams)
                self._writer = open_context(
                    self._seams, config, options, buckets=buckets, given=self._given
                )
            except MainstemError as error:
                error.table = error.table or self.path
                raise
            except OSError as error:
                raise Unavailable(
                    f"the table cannot be opened for writing: {error}; try again", table=self.path
                ) from error
        return self._writer

    def _check_agreement(self) -> None:
        """An option that decides where rows land must not contradict the table."""
        from mainstem.table.properties import DECISIVE

        aliases = {
            "hoodie.datasource.write.recordkey.field": "hoodie.table.recordkey.fields",
            "hoodie.datasource.write.partitionpath.field": "hoodie.table.partition.fields",
            "hoodie.datasource.write.precombine.field": "hoodie.table.ordering.fields",
            "hoodie.datasource.write.table.name": "hoodie.table.name",
        }
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
        from mainstem.formats.avro_schema import arrow_to_avro
        from mainstem.writers.append import UPDATE_COLUMNS, WriteSpec

        config = ctx.config
        if operation == UPDATE_COLUMNS and config.partial_update_mode != IGNORE_DEFAULTS:
            raise Unsupported(
                "update_columns needs a table with hoodie.table.partial.update.mode=IGNORE_DEFAULTS;"
                f" this one has {config.partial_update_mode or 'none'}: every upsert replaces the row",
                table=self.path,
            )
        user_schema = self._schema_text()
        from mainstem.table.schema import arrow_user_schema

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
        composite = config.key_generator == "COMPLEX" or len(config.record_key) > 1
        return WriteSpec(
            base=self.path,
            instant="",
            operation=operation,
            table_name=config.name,
            record_key=config.record_key,
            composite_key=composite,
            hash_fields=config.hash_fields,
            partition_fields=config.partition_fields,
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            buckets=ctx.buckets,
            merge_mode=config.merge_mode,
            ordering=config.ordering,
            user_schema=user_schema,
            log_schema=arrow_to_avro(arrow, table_name=config.name, meta_fields=True),
            fsync=ctx.options.fsync,
            log_bytes_max=ctx.options.log_bytes_max,
        )


def _note_lock(seams: Seams) -> None:
    """All mainstem writers of a table must take the same lock: the first one says which."""
    storage = seams.storage
    identity = seams.lock.identity
    try:
        storage.create(paths.LOCK_NOTE, identity.encode(), durable=True)
        return
    except FileExistsError:
        found = storage.read(paths.LOCK_NOTE, max_bytes=LOCK_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError as error:
        raise Unavailable(
            f"the table cannot be written: {error}", table=storage.base
        ) from error
    if found and found != identity:
        raise Invalid(
            f"this process would take the lock {identity!r}, but other writers of the table take"
            f" {found!r}: they would not exclude each other. Set {PROVIDER} and {FOLDER} alike everywhere"
            f" (if the other writers are gone, delete {paths.LOCK_NOTE})",
            table=storage.base,
        )


def local_seams(path: str, config: TableConfig, properties: Mapping[str, str]) -> Seams:
    """The machine's storage, clock, lock and randomness for one table."""
    options = WriterOptions.from_properties(properties)
    storage = LocalStorage(_local_path(path), sync=options.fsync)
    clock = SystemClock(options.clock_offset_ms)
    chance = random.SystemRandom()
    own = {k: config.raw[k] for k in (PROVIDER, FOLDER, FOREIGN_EXPIRE_MIN) if k in config.raw}
    for key in (PROVIDER, FOLDER):
        if key in own and key in properties and properties[key] != own[key]:
            raise Invalid(
                f"{key}={properties[key]!r} contradicts the table, which says {own[key]!r}: writers with"
                " different locks do not exclude each other",
                table=storage.base,
            )
    lock_options = LockOptions.from_properties({**own, **properties}, base=storage.base)
    return Seams(storage, clock, open_lock(lock_options, clock=clock, random=chance), chance)


def _local_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if text.startswith("file:"):
        text = "/" + text[5:].lstrip("/")
    if "://" in text:
        raise Unsupported(
            f"path {text!r}: only local POSIX paths are supported (hard links and current listings are"
            " needed for the completion fence)"
        )
    return os.path.abspath(text)


def _as_text(properties: Mapping[str, object] | None) -> dict[str, str]:
    from mainstem.writers.context import merged

    return merged(properties)  # type: ignore[arg-type]


def open_table(
    path: str | os.PathLike[str],
    properties: Mapping[str, object] | None = None,
    *,
    clock_offset_ms: int | None = None,
) -> Table:
    """Open an existing table for reading and writing.

    ``properties`` are ``hoodie.*`` options of this process. ``clock_offset_ms`` shifts this process's
    clock (tests and demos of skew). Raises ``Invalid`` if there is no table, ``Unsupported`` for tables
    that mainstem cannot read.
    """
    given = _as_text(properties)
    if clock_offset_ms is not None:
        given["hoodie.mainstem.clock.offset_ms"] = str(clock_offset_ms)
    local = _local_path(path)
    config = load_config(LocalStorage(local))
    config.check_readable(local)
    return Table(local_seams(local, config, given), config, given)


def create_table(
    path: str | os.PathLike[str],
    schema: pa.Schema,
    *,
    record_key: Sequence[str] | str,
    ordering: Sequence[str] | str = (),
    partition_by: Sequence[str] | str = (),
    buckets: int | None = None,
    table_version: int = 9,
    properties: Mapping[str, object] | None = None,
    name: str | None = None,
) -> Table:
    """Create a merge-on-read table with a simple bucket index, ready for non-blocking writers.

    ``ordering`` fields make it EVENT_TIME_ORDERING unless ``hoodie.record.merge.mode`` says otherwise;
    without them it is COMMIT_TIME_ORDERING. ``buckets`` is per partition and cannot change (Hudi's Java
    default, 256, if neither it nor ``hoodie.bucket.index.num.buckets`` is given). Instants are in UTC.
    Raises ``Invalid`` if a table exists there, or for fields that the schema lacks.
    """
    import pyarrow as pa

    given = _as_text(properties)
    local = _local_path(path)
    keys, order, parts = (_names(v) for v in (record_key, ordering, partition_by))
    if not isinstance(schema, pa.Schema):
        raise Invalid(f"schema is a {type(schema).__name__}, expected a pyarrow.Schema", table=local)
    _check_fields(schema, keys, order, parts, local)
    raw = _new_properties(local, schema, keys, order, parts, buckets, table_version, given, name)
    config = TableConfig(raw)
    config.check_writable(local)
    options = {k: v for k, v in given.items() if k not in raw or k.startswith("hoodie.write.lock.")}
    WriterOptions.from_properties(given)
    seams = local_seams(local, config, options)
    _put_table(seams, raw)
    return Table(seams, config, options)


def _names(value: Sequence[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else [str(v) for v in value]


def _check_fields(
    schema: pa.Schema, keys: list[str], order: list[str], parts: list[str], local: str
) -> None:
    if not keys:
        raise Invalid("record_key is empty: a bucket-indexed table needs a key", table=local)
    for role, names in (("record_key", keys), ("ordering", order), ("partition_by", parts)):
        for field in names:
            if schema.get_field_index(field) < 0:
                raise Invalid(
                    f"{role} names {field!r}, but the schema has {', '.join(schema.names)}", table=local
                )
        if len(set(names)) != len(names):
            raise Invalid(f"{role} names a column twice: {names}", table=local)
    reserved = [n for n in schema.names if n.startswith("_hoodie_") and n != "_hoodie_is_deleted"]
    if reserved:
        raise Invalid(f"columns {reserved} are reserved by Hudi; leave them out", table=local)


def _new_properties(
    local: str,
    schema: pa.Schema,
    keys: list[str],
    order: list[str],
    parts: list[str],
    buckets: int | None,
    version: int,
    given: dict[str, str],
    name: str | None,
) -> dict[str, str]:
    from mainstem.formats.avro_schema import arrow_to_avro

    if version != 9:
        raise Unsupported(f"table_version={version}: tables are created with version 9", table=local)
    for key in _FIXED:
        if key in given and not (key == TIMEZONE and given[key].upper() == "UTC"):
            raise Invalid(f"{key} cannot be chosen; it is set by create_table", table=local)
    title = name or given.get("hoodie.table.name") or os.path.basename(local.rstrip("/")) or "table"
    mode = given.get("hoodie.record.merge.mode", EVENT_TIME if order else COMMIT_TIME).upper()
    count = whole_number({BUCKETS: str(buckets)} if buckets is not None else given,
                         BUCKETS, DEFAULT_BUCKETS, 1, 100_000)  # fmt: skip
    # As Java infers it (KeyGenUtils.inferKeyGeneratorType); a Java writer refuses any other kind.
    simple = len(keys) == 1 and len(parts) == 1
    generator = "NON_PARTITION" if not parts else "SIMPLE" if simple else "COMPLEX"
    kept = {
        k: v
        for k, v in given.items()
        if k.startswith(("hoodie.table.", "hoodie.datasource.write.", "hoodie.record.merge."))
        or k in (INDEX_TYPE, BUCKET_ENGINE, HASH_FIELD, PROVIDER, FOLDER)
        or k in ("hoodie.mainstem.exclusive", "hoodie.database.name", "hoodie.populate.meta.fields")
    }
    raw = {
        "hoodie.archivelog.folder": "archived",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.database.name": "",
        "hoodie.table.keygenerator.type": generator,
        "hoodie.table.format": "native",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        INDEX_TYPE: "BUCKET",
        BUCKET_ENGINE: "SIMPLE",
        PROVIDER: "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
        # Java's Spark writers take these as defaults from the table: a job without special options
        # then writes beside us instead of rolling us back, upgrading or building metadata.
        CONCURRENCY: NBCC,
        "hoodie.metadata.enable": "false",
        "hoodie.write.auto.upgrade": "false",
        # Java looks for a free lock only this often; its default, 5 s, would starve it beside writers
        # that hand the lock over within milliseconds.
        "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
        "hoodie.write.lock.client.num_retries": "2400",
        **kept,
        "hoodie.table.name": title,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": str(version),
        "hoodie.table.initial.version": str(version),
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.recordkey.fields": ",".join(keys),
        "hoodie.record.merge.mode": mode,
        TIMEZONE: "UTC",
        BUCKETS: str(count),
        "hoodie.table.create.schema": arrow_to_avro(schema, table_name=title, meta_fields=False),
    }
    if parts:
        raw["hoodie.table.partition.fields"] = ",".join(parts)
    if order:
        raw["hoodie.table.ordering.fields"] = ",".join(order)
    if not raw["hoodie.database.name"]:
        del raw["hoodie.database.name"]
    raw["hoodie.table.checksum"] = table_checksum(raw.get("hoodie.database.name", ""), title)
    return raw


def _put_table(seams: Seams, raw: Mapping[str, str]) -> None:
    """Folders first, ``hoodie.properties`` whole and last, by link: a table exists or does not."""
    storage = seams.storage
    try:
        for folder in paths.INITIAL_FOLDERS:
            storage.make_folder(folder)
        storage.make_folder(paths.FENCE)
        storage.make_folder(paths.PREPARED)
        private = paths.prepared("table", f"{seams.random.getrandbits(64):016x}")
        when = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(seams.clock.now_ms() / 1000))
        storage.create(private, encode_config(raw, when), durable=True)
        try:
            storage.link(private, paths.PROPERTIES)
            storage.create(f"{paths.FENCE}/{paths.MADE_HERE}", b"", durable=True)
        finally:
            storage.delete(private)
        storage.sync_folders([".hoodie", ""])
    except FileExistsError as error:
        raise Invalid(
            f"a table exists already at {storage.base}; open it with mainstem.open_table",
            table=storage.base,
        ) from error
    except OSError as error:
        raise Unavailable(f"the table cannot be created: {error}", table=storage.base) from error


