"""Creates a table: decides the content of ``hoodie.properties``, and writes that file whole and last."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.api.given_options import check_given
from mainstem.api.neighbours import refuse_neighbours
from mainstem.api.real_seams import as_text, check_writable, real_seams
from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError, TableExists, Unavailable, Unsupported
from mainstem.layout.key_index import key_index, table_index
from mainstem.layout.properties import (
    FIELD_PREFIXED,
    FOR_JAVA,
    WRITABLE_VERSIONS,
    TableConfig,
    encode_config,
    has_table,
    table_checksum,
)
from mainstem.layout.stored_bucket_rules import put_first_rules
from mainstem.layout.time_partitions import time_options
from mainstem.merge import modes
from mainstem.options import CONCURRENCY, FSYNC, METADATA, NBCC, OCC, SHARED, WriterOptions, families
from mainstem.options.catalogs import ICEBERG_OPTIONS
from mainstem.options.locks import (
    CONFLICTS,
    CONFLICTS_BY_FILE,
    FILE_SYSTEM,
    LOCK_KEYS,
    PAUSE_MS,
    PROVIDER,
    RETRIES,
)
from mainstem.options.metadata import PARTITIONS, PARTITIONS_INFLIGHT
from mainstem.options.placing import (
    BUCKET_ENGINE,
    BUCKET_EXPRESSIONS,
    BUCKET_RULE,
    BUCKETS,
    ENCODING_VALIDATION,
    HASH_FIELD,
    HIVE_STYLE,
    INDEX_TYPE,
    KEY_ENCODING,
    KEY_GENERATOR,
    NEW_ENCODING,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    TIME_OUTPUT_ZONE,
    TIME_ZONE,
    URL_ENCODE,
    uses_rings,
)
from mainstem.options.services import LAYOUT_STRATEGY, OF_RINGS, SORT_COLUMNS
from mainstem.options.tables import (
    ARCHIVE_FOLDER,
    AUTO_UPGRADE,
    CDC_MODE,
    CREATE_SCHEMA,
    DATABASE_NAME,
    DELETE_FIELD,
    DELETE_MARKER,
    DROP_PARTITION_COLUMNS,
    EXCLUSIVE,
    HISTORY_PATH,
    INITIAL_VERSION,
    KEEP_TOMBSTONES,
    LAYOUT_VERSION,
    MERGE_MODE,
    NATIVE_LOGS_FROM,
    ORDERING_FIELDS,
    PARTIAL_UPDATES,
    PAYLOAD_CLASS,
    POPULATE_META_FIELDS,
    PRECOMBINE,
    STORAGE_LAYOUT,
    STRATEGY_ID,
    TABLE_CHECKSUM,
    TABLE_FORMAT,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    TABLE_VERSION_OPTION,
    TIMELINE_PATH,
    TIMEZONE,
)
from mainstem.options.writing import MAX_FILE
from mainstem.publish.staging import delete_quietly, is_same, private_name, put_once, put_over
from mainstem.publish.table_identity import note_identity
from mainstem.storage import paths
from mainstem.storage.backends import Place, location_of
from mainstem.storage.folders import make_folder
from mainstem.storage.protocol import Storage
from mainstem.storage.store_options import split
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.instant import INFLIGHT, parse_instant
from mainstem.truetime.locks.options import default_provider
from mainstem.truetime.seams import Seams

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

# Java looks for a free lock file only this often; its default, 5 s, would starve it beside writers that
# hand the lock over within milliseconds. In ZooKeeper's queue nobody starves.
_LOOKED_FOR_OFTEN: dict[str, str] = {
    PAUSE_MS: "50",
    RETRIES: "2400",
}
# How long compactions of new tables remember deletes.
_HOURS_KEPT = "24"
# Table properties that a user may set at creation beside those that arguments make.
_FIXED = (
    TABLE_VERSION, INITIAL_VERSION, LAYOUT_VERSION,
    TABLE_TYPE, TABLE_CHECKSUM, CREATE_SCHEMA, TIMEZONE,
)  # fmt: skip


def create_table(
    path: Place,
    schema: pa.Schema,
    *,
    record_key: Sequence[str] | str = (),
    ordering: Sequence[str] | str = (),
    partition_by: Sequence[str] | str = (),
    buckets: int | None = None,
    table_version: int | None = None,
    properties: Mapping[str, object] | None = None,
    name: str | None = None,
    vectors: Mapping[str, str] | None = None,
) -> Table:
    """Create a merge-on-read table with a simple bucket index, ready for non-blocking writers.

    Without ``record_key`` writers make keys up (Hudi's ``AutoRecordGenWrapperKeyGenerator``): such a table
    has no buckets, rows are inserted, and updated or deleted by the key that a query shows of them.
    ``ordering`` fields make it EVENT_TIME_ORDERING unless ``hoodie.record.merge.mode`` says otherwise;
    without them it is COMMIT_TIME_ORDERING. ``buckets`` is per partition; ``resize`` changes it (Hudi's Java
    default, 256, if neither it nor ``hoodie.bucket.index.num.buckets`` is given). Instants are in UTC.
    ``table_version``: 8, 9 or 10; by default that of ``hoodie.write.table.version`` in ``properties``, or 9.
    ``hoodie.metadata.enable=true`` gives it a metadata table with the partition ``files``. ``vectors``:
    columns to store as Hudi vectors, such as ``{"embedding": "VECTOR(384)"}`` (also ``VECTOR(384, DOUBLE)``
    and ``VECTOR(384, INT8)``). They are list columns of the schema or additional columns; fields marked
    with ``hudi_type``, as readers return them, need not be named. Raises ``TableExists`` if there is a
    table (if several processes create it at once, all but one get this error), and ``Invalid`` for fields
    that the schema lacks, for a folder with remains of another table, and for one inside or around a table.

    By Hudi's rules, which Java follows too, a compaction may change the effect of a later write. In every
    merge mode, a write in flight when a compaction was planned lies on top of the compacted rows. This
    always matters under commit time ordering; with ordering fields, it matters for equal values and for
    ``delete()``. With ordering fields, a row older than a delete that has an ordering value (of a row with
    ``_hoodie_is_deleted``, of SQL's statements) comes back if a compaction ran in between that did not keep
    the delete: ours keep them for
    ``hoodie.mainstem.keep.tombstones`` hours, 24 unless ``properties`` say otherwise. ``Table.cautions``
    names the cases that this table can hit; they are also logged here (logger ``mainstem.api.create``, level
    INFO).
    """
    import pyarrow as pa

    from mainstem.formats.vectors import plain_lists, with_vectors
    from mainstem.merge.rules import merge_rules

    of_store, given = split(as_text(properties))
    indexed = METADATA.read(given, False)
    check_given({key: value for key, value in given.items() if key != METADATA})
    location = location_of(path, options=of_store)
    local = location.base
    keys, order, parts = (_names(v) for v in (record_key, ordering, partition_by))
    if not isinstance(schema, pa.Schema):
        raise Invalid(f"schema is a {type(schema).__name__}, expected a pyarrow.Schema", table=local)
    schema = with_vectors(schema, vectors or {})
    _check_fields(schema, keys, order, parts, local)
    version = _version_asked(given, local) if table_version is None else table_version
    raw = new_properties(local, schema, keys, order, parts, buckets, version, given, name)
    if indexed:
        raw |= with_metadata()
    config = TableConfig(raw)
    config.check_writable(local)
    merge_rules(raw)
    _check_keys(config, local)
    _check_row_order(config, local)
    _check_changes(config, local)
    options = {k: v for k, v in given.items()
               if k not in raw or k == FSYNC or k.startswith(families.LOCKS)}  # fmt: skip
    WriterOptions.from_properties(given)
    seams = real_seams(location, config, options)
    refuse_neighbours(location, seams.storage)
    check_writable(seams)
    table = Table(seams, config, options, put_table(seams, raw))
    for name_of, size in plain_lists(schema).items():
        _log.info(
            "table %s: column %r is a plain list to Hudi; vectors={%r: 'VECTOR(%d)'} makes it a vector",
            local, name_of, name_of, size,
        )  # fmt: skip
    for caution in table.cautions:
        _log.info("table %s: where compaction changes the answer: %s", local, caution)
    return table


def with_metadata() -> dict[str, str]:
    """Properties of a table with a metadata table of the partition ``files``."""
    lists: dict[str, str] = {PARTITIONS: "files", PARTITIONS_INFLIGHT: ""}
    return {**FOR_JAVA, **lists}


def _names(value: Sequence[str] | str) -> list[str]:
    return [value] if isinstance(value, str) else [str(v) for v in value]


def _check_keys(config: TableConfig, local: str) -> None:
    from mainstem.formats.avro_schema import avro_to_arrow
    from mainstem.layout.key_generator import KeyGenerator

    stored = avro_to_arrow(config.raw[CREATE_SCHEMA])
    try:
        KeyGenerator.for_writing(config).check_schema(stored)
    except MainstemError as error:
        error.table = error.table or local
        raise


def _check_row_order(config: TableConfig, local: str) -> None:
    """Make sure that compactions can write rows in the order that the table is made with."""
    import pyarrow as pa

    from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
    from mainstem.services.clustering_order import RowOrder

    order = RowOrder.from_properties(config.raw)
    if order is not None:
        schema = avro_to_arrow(config.raw[CREATE_SCHEMA])
        for name in reversed(META_FIELDS):
            schema = schema.insert(0, pa.field(name, pa.string()))
        order.check(schema, local)


def _check_changes(config: TableConfig, local: str) -> None:
    """Change data holds rows as structs, in which no vector can be."""
    from mainstem.formats.avro_schema import avro_to_arrow
    from mainstem.services.change_files import change_schema

    if config.change_mode is None:
        return
    try:
        avro_to_arrow(change_schema(config.raw[CREATE_SCHEMA], config.change_mode))
    except Unsupported as error:
        raise Unsupported(
            f"change data with images of rows that hold vectors ({error}): {CDC_MODE}=OP_KEY_ONLY records"
            " their keys alone",
            table=local,
        ) from error


def _check_fields(
    schema: pa.Schema, keys: list[str], order: list[str], parts: list[str], local: str
) -> None:
    import pyarrow as pa

    from mainstem.formats.avro_schema import KAFKA_FIELDS

    columns = [part.partition(":")[0] for part in parts]
    for role, names in (("record_key", keys), ("ordering", order), ("partition_by", columns)):
        for field in names:
            if schema.get_field_index(field) < 0:
                raise Invalid(
                    f"{role} names {field!r}, but the schema has {', '.join(schema.names)}", table=local
                )
            if role == "ordering" and pa.types.is_nested(schema.field(field).type):
                raise Invalid(
                    f"ordering field {field!r} is a {schema.field(field).type}, which has no order",
                    table=local,
                )
        if len(set(names)) != len(names):
            raise Invalid(f"{role} names a column twice: {names}", table=local)
    ours = ("_hoodie_is_deleted", *KAFKA_FIELDS)
    reserved = [n for n in schema.names if n.startswith("_hoodie_") and n not in ours]
    if reserved:
        raise Invalid(f"columns {reserved} are reserved by Hudi; leave them out", table=local)


def new_properties(
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
    """``hoodie.properties`` of a new table. Raises ``Invalid`` or ``Unsupported`` for impossible tables."""
    from mainstem.formats.avro_schema import arrow_to_avro
    from mainstem.layout.key_generator import CLASS_OPTIONS, TYPE_OPTIONS, inferred_kind, named_kind

    _check_version(version, order, given, local)
    for key in _FIXED:
        if key in given and not (key == TIMEZONE and given[key].upper() == "UTC"):
            raise Invalid(f"{key} cannot be chosen; it is set by create_table", table=local)
    title = name or given.get(TABLE_NAME) or os.path.basename(local.rstrip("/")) or "table"
    mode = modes.merge_mode(given, order)
    placing = _placing(given, buckets, version, local, keys)
    fixed = BUCKETS in placing and not uses_rings(placing)
    times = time_options(given)
    if times and not (TIME_ZONE in times or TIME_OUTPUT_ZONE in times):
        times[TIME_ZONE] = "UTC"
    kept = {
        k: v
        for k, v in given.items()
        if (k.startswith(families.OF_NEW_TABLES)
            and k not in (*CLASS_OPTIONS, *TYPE_OPTIONS))
        or k in (INDEX_TYPE, BUCKET_ENGINE, HASH_FIELD, *LOCK_KEYS, *SHARED, FSYNC)
        or (version == 8 and k in (NEW_ENCODING, ENCODING_VALIDATION))
        or (uses_rings(placing) and k in (*OF_RINGS, MAX_FILE))
        or k in (EXCLUSIVE, DATABASE_NAME, POPULATE_META_FIELDS, SORT_COLUMNS, LAYOUT_STRATEGY)
        or k in ICEBERG_OPTIONS
    }
    for option in (DELETE_FIELD, DELETE_MARKER):  # under the names that Hudi keeps them by
        if option in given:
            kept[option.aliases[0] if version > 8 else option] = given[option]
    raw: dict[str, str] = {
        ARCHIVE_FOLDER: "archived",
        DROP_PARTITION_COLUMNS: "false",
        HIVE_STYLE: "false",
        URL_ENCODE: "false",
        DATABASE_NAME: "",
        TIMELINE_PATH: "timeline",
        HISTORY_PATH: "history",
        PROVIDER: default_provider(local),
        # Java's Spark writers take these as defaults from the table: a job without special options
        # then writes beside us instead of rolling us back, upgrading or building metadata.
        # Java takes the first for fixed buckets only.
        CONCURRENCY: NBCC if fixed else OCC,
        **({CONFLICTS: CONFLICTS_BY_FILE} if uses_rings(placing) else {}),
        METADATA: "false",
        AUTO_UPGRADE: str(AUTO_UPGRADE.read({AUTO_UPGRADE: "false", **given})).lower(),
        **(_LOOKED_FOR_OFTEN if given.get(PROVIDER, default_provider(local)) == FILE_SYSTEM else {}),
        **kept,
        **times,
        **({KEEP_TOMBSTONES: _HOURS_KEPT} if mode == modes.EVENT_TIME and fixed else {}),
        **{k: v for k, v in given.items() if k == KEEP_TOMBSTONES},
        **(_version_8(mode, order) if version == 8 else {}),
        KEY_GENERATOR: named_kind(given) or inferred_kind(keys, parts),
        TABLE_NAME: title,
        TABLE_TYPE: "MERGE_ON_READ",
        TABLE_VERSION: str(version),
        INITIAL_VERSION: str(version),
        LAYOUT_VERSION: "2",
        **({RECORD_KEY_FIELDS: ",".join(keys)} if keys else {}),
        MERGE_MODE: mode,
        TIMEZONE: "UTC",
        **placing,
        CREATE_SCHEMA: arrow_to_avro(schema, table_name=title, meta_fields=False),
    }
    if version > 8:
        raw[TABLE_FORMAT] = TABLE_FORMAT.default
    raw.pop(STORAGE_LAYOUT, None)
    if version >= NATIVE_LOGS_FROM:
        raw[STORAGE_LAYOUT] = STORAGE_LAYOUT.read(given).lower()
    if parts:
        raw[PARTITION_FIELDS] = ",".join(parts)
    if order:
        raw[ORDERING_FIELDS] = ",".join(order)
    if not raw[DATABASE_NAME]:
        del raw[DATABASE_NAME]
    _settle_key_encoding(raw, local)
    raw[TABLE_CHECKSUM] = table_checksum(raw.get(DATABASE_NAME, ""), title)
    return raw


def _placing(
    given: Mapping[str, str], buckets: int | None, version: int, local: str, keys: list[str]
) -> dict[str, str]:
    """How a new table's rows find their file groups: its buckets, or another index."""
    about_buckets = (BUCKETS, BUCKET_ENGINE, HASH_FIELD, BUCKET_EXPRESSIONS)
    index = key_index(given) if keys else table_index(given)
    told = [option for option in about_buckets if option in given]
    if not keys and (index is None or buckets is not None or told):
        raise Invalid(
            "buckets need a record key, which tells the bucket of a row: name its columns, or leave"
            f" {', '.join(told) or ('buckets' if index is not None else INDEX_TYPE)} out",
            table=local,
        )
    if index is None:
        count = BUCKETS.read(given if buckets is None else {BUCKETS: str(buckets)})
        engine = BUCKET_ENGINE.read(given)
        placing: dict[str, str] = {INDEX_TYPE: "BUCKET", BUCKET_ENGINE: engine, BUCKETS: str(count)}
        rules = BUCKET_EXPRESSIONS.read(given)
        if rules and version == 8:
            raise Unsupported(
                f"{BUCKET_EXPRESSIONS} for a table of version 8: Hudi 1.0 knows no such rules and would"
                " double rows; create the table with version 9",
                table=local,
            )
        if rules:
            placing |= {BUCKET_EXPRESSIONS: rules, BUCKET_RULE: BUCKET_RULE.read(given)}
        return placing
    if buckets is not None or told:
        raise Invalid(
            f"{INDEX_TYPE}={index.kind} and options of buckets exclude each other: drop one of them",
            table=local,
        )
    return {INDEX_TYPE: index.kind}


def _settle_key_encoding(raw: dict[str, str], local: str) -> None:
    """A table whose keys Hudi's releases write differently says for good how they are written in it.

    In three ways: for us and newer Hudi, and for the Spark writers of Hudi 1.1 and 1.2, which take the
    options from the table. Where the caller did not say, it is left open, and refused like any such table.
    """
    config = TableConfig(raw)
    if not config.single_field_complex or config.key_encoding_in_doubt:
        return
    encoding = config.key_encoding
    if config.version == 8:
        raw.setdefault(KEY_ENCODING, encoding)
        raw.setdefault(NEW_ENCODING, "false" if encoding == FIELD_PREFIXED else "true")
        raw.setdefault(ENCODING_VALIDATION, "false")
    elif encoding != FIELD_PREFIXED:
        raise Unsupported(
            f"{KEY_ENCODING}={encoding} for a new table of version {config.version}: Hudi 1.1 and 1.2 write"
            " 'field:value' there whatever the option says; create the table with version 8",
            table=local,
        )


def _version_asked(given: Mapping[str, str], local: str) -> int:
    text = given.get(TABLE_VERSION_OPTION, str(TABLE_VERSION.default)).strip()
    if not text.isdecimal():
        raise Invalid(f"{TABLE_VERSION_OPTION}={text!r}, expected a number", table=local)
    return int(text)


def _check_version(version: int, order: list[str], given: Mapping[str, str], local: str) -> None:
    if version not in WRITABLE_VERSIONS:
        raise Unsupported(
            f"table_version={version}: tables are created with version 9, 8 for Hudi 1.0, or 10", table=local
        )
    layout = STORAGE_LAYOUT.read(given).upper()
    if version < NATIVE_LOGS_FROM and layout != "DEFAULT":
        raise Unsupported(
            f"{STORAGE_LAYOUT}={layout.lower()} needs table version {NATIVE_LOGS_FROM}"
            f" (table_version={NATIVE_LOGS_FROM})",
            table=local,
        )
    if given.get(TABLE_VERSION_OPTION, str(version)) != str(version):
        raise Invalid(
            f"{TABLE_VERSION_OPTION}={given[TABLE_VERSION_OPTION]!r} and"
            f" table_version={version} differ",
            table=local,
        )
    if version == 8 and given.get(PARTIAL_UPDATES):
        raise Unsupported(
            f"{PARTIAL_UPDATES}: table version 8 has no partial update modes (Hudi ignores"
            " the property there); create the table with version 9",
            table=local,
        )
    if version == 8 and len(order) > 1:
        raise Unsupported(
            f"ordering={order}: table version 8 has one ordering field (Hudi 1.0 knows no more); create the"
            " table with version 9",
            table=local,
        )


def _version_8(mode: str, order: list[str]) -> dict[str, str]:
    """Properties that Hudi 1.0 reads: the older name of the ordering field, payload class, merge strategy.

    Without the older name, 1.0.2 silently merges by arrival. The last two keep Java's newer Spark writers
    at the table's version.
    """
    found: dict[str, str] = {
        PAYLOAD_CLASS: modes.VERSION_8_PAYLOADS.get(mode, ""),
        STRATEGY_ID: modes.STRATEGIES.get(mode, ""),
        PRECOMBINE: ",".join(order),
        TABLE_VERSION_OPTION: "8",
    }
    return {key: value for key, value in found.items() if value}


def put_table(seams: Seams, raw: Mapping[str, str]) -> str:
    """Creates the table with these properties; returns its identity (``publish.table_identity``).

    One step decides which of several creators wins: ``hoodie.properties`` gets its name by a link (a put on
    condition), whole, exclusively and last. Whatever exists before that step is the same, whichever creator
    made it:

      1. private files with the properties; then folders, and the table's note in the fence
      2. the metadata table, if there is to be one, whole and in one step (``metadata.creation``)
      3. no table is there, and nothing of one; link the private file to ``hoodie.properties``
      4. the file of bucket counts per partition, if they differ; ``made-here``, with the same content as the
         properties, by which our writers know that the bucket count is right

    A crash before 3 leaves a folder without a table, which the next creation reuses. No creator removes
    another's files. The private file comes first: if the folder is removed while a creator is stalled, the
    private file is gone too, and the creator makes nothing. Raises ``TableExists``, ``Invalid`` for remains
    of another table, and ``Unavailable``.
    """
    storage = seams.storage
    when = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(seams.clock.now_ms() / 1000))
    data, made = encode_config(raw, when), False
    # Two files, not two names: some engines write into a file that is there.
    private, note = (
        private_name(seams.random, what) for what in ("table", "note")
    )
    try:
        refuse_what_is_there(storage)
        for folder in (paths.FENCE, paths.PREPARED):
            make_folder(storage, folder)
        try:
            for path in (private, note):
                storage.put_new(path, data, durable=True)
            for folder in paths.INITIAL_FOLDERS:
                make_folder(storage, folder)
            if has_swaps(storage):
                storage.put(paths.FIRST_OBJECT, b"", durable=True)
            identity = note_identity(storage, seams.random)
            _put_metadata(seams, TableConfig(raw), when)
            storage.settle([], [paths.FENCE, paths.OWN, paths.HOODIE], durable=True)
            refuse_what_is_there(storage)
            _link_properties(storage, private)
            made = True
            rules = TableConfig(raw).bucket_rules
            if rules is not None:
                put_first_rules(storage, rules)
            put_over(storage, note, f"{paths.FENCE}/{paths.MADE_HERE}")
        finally:
            for path in (private, note):
                delete_quietly(storage, path)
        storage.settle([], [paths.FENCE, paths.HOODIE, ""], durable=True)
        return identity
    except OSError as error:
        with suppress(OSError):
            if not made and has_table(storage):  # another creator made it meanwhile
                raise _exists(storage) from error
        raise Unavailable(f"the table cannot be created: {error}", table=storage.base) from error


def _link_properties(storage: Storage, private: str) -> None:
    # On a network file system a call whose reply was lost is repeated, and then fails.
    if not put_once(storage, private, paths.PROPERTIES) and not is_same(storage, private, paths.PROPERTIES):
        raise _exists(storage)


def refuse_what_is_there(storage: Storage) -> None:
    """Raises ``TableExists`` for a table, ``Invalid`` for instants without a ``hoodie.properties``."""
    if has_table(storage):
        raise _exists(storage)
    instants = [i for i in map(parse_instant, storage.names(paths.TIMELINE)) if i is not None]
    # An inflight file alone shows no row: a writer that began in a deleted table made it a moment later.
    known = {i.requested for i in instants if i.state != INFLIGHT}
    found = [i.file_name for i in instants if i.requested in known]
    archived = (n for n in storage.names(paths.HISTORY) if f"{paths.HISTORY}/{n}" != paths.FIRST_OBJECT)
    found += [f"history/{n}" for n in archived]
    if not found:
        return
    if has_table(storage):
        raise _exists(storage)  # made and written to since
    raise Invalid(
        f"{paths.TIMELINE} holds {min(found)}, but there is no {paths.PROPERTIES}: these are the remains of"
        " a table that is being deleted or was damaged. No table was made: it would show the old one's rows."
        " Remove the folder, or restore its hoodie.properties",
        table=storage.base,
    )


def _exists(storage: Storage) -> TableExists:
    return TableExists(
        f"a table exists already at {storage.base}; open it with mainstem.open_table", table=storage.base
    )


def _put_metadata(seams: Seams, config: TableConfig, when: str) -> None:
    """The metadata table of a table that will have one; ``hoodie.properties`` names its partitions."""
    from mainstem.metadata.creation import Group, put_with_table
    from mainstem.metadata.derive.index_rows import files_rows
    from mainstem.metadata.metadata_partitions import FILES, Content, file_id
    from mainstem.options.writing import SKEW_MS
    from mainstem.truetime.clock_skew import ClockSkew
    from mainstem.truetime.instant_times import InstantTimes

    if not config.metadata_partitions:
        return
    # In the past, as every time of the table will be: the first commit need not wait.
    now = InstantTimes().format(ClockSkew(SKEW_MS.default).reading(int(seams.clock.now_ms())))
    groups = {FILES: [Group(file_id(FILES, 0), Content.FILES, files_rows({}))]}
    try:
        put_with_table(seams.storage, seams.random, config, groups, time=now, when=when)
    except Invalid:
        refuse_what_is_there(seams.storage)  # if the other one's table is there, that is what to say
        raise
