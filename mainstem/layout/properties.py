"""Reads, checks and encodes ``hoodie.properties`` (Hudi's HoodieTableConfig).

Unknown keys are kept. Unknown versions, layouts and features are refused, naming the property: guessing
while reading or writing such a table would lose or double rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.layout.bucket_resizes import Resize, open_resize, parse_resizes
from mainstem.layout.bucket_rules import BucketRules
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.merge import modes
from mainstem.options.locks import FOLDER, PLACE_KEYS, PROVIDER
from mainstem.options.metadata import AUTO_DELETE, COLUMN_STATS, METADATA, PARTITIONS, PARTITIONS_INFLIGHT
from mainstem.options.placing import (
    BUCKET_ENGINE,
    BUCKET_EXPRESSIONS,
    BUCKET_RULE,
    BUCKETS,
    CONSISTENT_TIMESTAMP,
    ENCODING_VALIDATION,
    HASH_FIELD,
    HIVE_STYLE,
    INDEX_TYPE,
    KEY_ENCODING,
    KEY_GENERATOR,
    NEW_ENCODING,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    RESIZES,
    SLASH_DATES,
    TIME_OPTIONS,
    URL_ENCODE,
    uses_rings,
)
from mainstem.options.tables import (
    BASE_FILE_FORMAT,
    BOOTSTRAP_PATH,
    CDC_ENABLED,
    CDC_MODE,
    CREATE_SCHEMA,
    DATABASE_NAME,
    DELETE_FIELD,
    DELETE_MARKER,
    DROP_PARTITION_COLUMNS,
    EXCLUSIVE,
    HISTORY_PATH,
    INITIAL_VERSION,
    LAYOUT_VERSION,
    LOCAL_ZONE,
    LOG_FILE_FORMAT,
    MANY_FILE_FORMATS,
    MERGE_MODE,
    NATIVE_LOGS_FROM,
    ORDERING_FIELDS,
    PARTIAL_UPDATES,
    PAYLOAD_CLASS,
    POPULATE_META_FIELDS,
    PRECOMBINE,
    SCHEMA_ON_READ,
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
    UNAVAILABLE,
    is_lsm_tree,
)
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

#: table versions that can be read, and written
READABLE_VERSIONS = WRITABLE_VERSIONS = (8, 9, 10)
MERGE_ON_READ = "MERGE_ON_READ"
COPY_ON_WRITE = "COPY_ON_WRITE"

#: ``field:value``, written by Hudi up to 0.14.0 and from 1.1 on; ``value``, written by 0.14.1 to 1.0.2
FIELD_PREFIXED, VALUE_ONLY = "FIELD_PREFIXED", "VALUE_ONLY"
#: what to do about a table with another index
WITHOUT_BUCKETS = (
    "Such a table can be read. If it is written under SIMPLE, BLOOM or a record index, or one of their global"
    f" kinds, give {INDEX_TYPE} as its other writers do (Spark's default is SIMPLE): a key that is unique in"
    " the table for some and in its partition for others would be doubled. Other indexes are not supported:"
    " copy its rows into a new table (create_table, bulk_insert)"
)

#: kinds of metadata table partitions that every action maintains
MAINTAINED = frozenset(
    (
        "files", "column_stats", "partition_stats", "bloom_filters", "record_index", "secondary_index",
        "expr_index",
    )
)  # fmt: skip
#: kinds of which a table may have several, each with a name of its own
_NAMED = ("secondary_index", "expr_index")

#: What mainstem writes into the properties of a table with a metadata table. Java's Spark writers take these
#: as their defaults: they maintain the metadata table, build no further partitions of it on their own, and
#: remove none that their options do not name (apache/hudi#18180).
FOR_JAVA: dict[str, str] = {
    METADATA: "true",
    COLUMN_STATS: "false",
    AUTO_DELETE: "false",
}

# Properties that decide where a row lands or which row wins: they must not change under a transaction.
DECISIVE = (
    TABLE_NAME, TABLE_TYPE, TABLE_VERSION,
    LAYOUT_VERSION, RECORD_KEY_FIELDS,
    PARTITION_FIELDS, KEY_GENERATOR,
    ORDERING_FIELDS, PRECOMBINE, MERGE_MODE,
    PARTIAL_UPDATES, STRATEGY_ID,
    *DELETE_FIELD.aliases, *DELETE_MARKER.aliases, *UNAVAILABLE.aliases,
    PAYLOAD_CLASS, HIVE_STYLE,
    URL_ENCODE,
    DROP_PARTITION_COLUMNS, POPULATE_META_FIELDS,
    BASE_FILE_FORMAT, STORAGE_LAYOUT, TIMEZONE, BUCKETS, BUCKET_EXPRESSIONS, HASH_FIELD, INDEX_TYPE,
    BUCKET_ENGINE, PROVIDER, FOLDER, *PLACE_KEYS,
    CDC_ENABLED, CDC_MODE, TIMELINE_PATH, SLASH_DATES, CONSISTENT_TIMESTAMP,
    KEY_ENCODING, NEW_ENCODING,
    *TIME_OPTIONS,
)  # fmt: skip


def table_checksum(database: str, name: str) -> str:
    """CRC32 of ``<database>.<table>``, in the form that Java stores."""
    return str(zlib.crc32(f"{database}.{name}".encode()))


@dataclass(frozen=True)
class TableConfig:
    """The table's properties, parsed. ``raw`` holds every key as found."""

    raw: Mapping[str, str]
    path: str = paths.PROPERTIES

    def _get(self, key: str, default: str = "") -> str:
        return self.raw.get(key, default).strip()

    def _fields(self, *keys: str) -> tuple[str, ...]:
        for key in keys:
            text = self._get(key)
            if text:
                return tuple(part.strip() for part in text.split(",") if part.strip())
        return ()

    def _flag(self, key: str, default: bool = False) -> bool:
        text = self._get(key).lower()
        if text not in ("", "true", "false"):
            raise Invalid(f"{key}={text!r}, expected true or false", table=None)
        return default if not text else text == "true"

    @property
    def name(self) -> str:
        return self._get(TABLE_NAME)

    @property
    def version(self) -> int:
        return int(self._get(TABLE_VERSION))

    @property
    def table_type(self) -> str:
        return self._get(TABLE_TYPE, COPY_ON_WRITE).upper()

    @property
    def record_key(self) -> tuple[str, ...]:
        return self._fields(RECORD_KEY_FIELDS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        entries = self._fields(PARTITION_FIELDS)
        return tuple(entry.split(":", 1)[0] for entry in entries)

    @property
    def partition_kinds(self) -> tuple[str, ...]:
        """For each partition field SIMPLE or TIMESTAMP: how its value becomes a folder."""
        if self.key_generator != "CUSTOM":
            kind = "TIMESTAMP" if self.key_generator == "TIMESTAMP" else "SIMPLE"
            return (kind,) * len(self.partition_fields)
        kinds = []
        for entry in self._fields(PARTITION_FIELDS):
            _, _, kind = entry.partition(":")
            if kind.upper() not in ("SIMPLE", "TIMESTAMP"):
                raise Invalid(
                    f"{PARTITION_FIELDS} has {entry!r}; a CUSTOM key generator needs"
                    " field:SIMPLE or field:TIMESTAMP"
                )
            kinds.append(kind.upper())
        return tuple(kinds)

    @property
    def slash_dates(self) -> bool | None:
        """Whether dates become partitions ``2026/01/10``; None if unknown (Hudi 1.2 never stores it)."""
        return self._flag(SLASH_DATES) if self._get(SLASH_DATES) else None

    @property
    def consistent_timestamps(self) -> bool:
        """Whether timestamps in keys are written as local times."""
        return self._flag(CONSISTENT_TIMESTAMP)

    @property
    def single_field_complex(self) -> bool:
        """Whether Hudi releases disagree about the form of this table's record keys (HUDI-7001)."""
        return self.key_generator == "COMPLEX" and len(self.record_key) == 1

    @property
    def key_encoding(self) -> str:
        """How a table with ``single_field_complex`` writes its record keys; decided as in Java."""
        stored = self._get(KEY_ENCODING).upper()
        if stored not in ("", FIELD_PREFIXED, VALUE_ONLY):
            raise Invalid(f"{KEY_ENCODING}={stored!r}, expected {FIELD_PREFIXED} or {VALUE_ONLY}")
        if stored or self.version >= 9:
            return stored or FIELD_PREFIXED
        return self.encoding_option or FIELD_PREFIXED

    @property
    def encoding_option(self) -> str | None:
        """The encoding that ``NEW_ENCODING`` asks for; None if it is not set."""
        if not self._get(NEW_ENCODING):
            return None
        return VALUE_ONLY if self._flag(NEW_ENCODING) else FIELD_PREFIXED

    @property
    def key_encoding_in_doubt(self) -> bool:
        """Whether nothing says how this table writes its keys: Java 1.1 and later then refuse to write it."""
        told = self._get(KEY_ENCODING) or not self._flag(ENCODING_VALIDATION, True)
        return self.version == 8 and self.single_field_complex and not told

    @property
    def ordering(self) -> tuple[str, ...]:
        """Ordering fields: the property of version 9, else the one of 1.0.x writers."""
        return modes.ordering_fields(self.raw)

    @property
    def merge_mode(self) -> str:
        """Hudi's name of the merge mode; inferred if the table does not store it."""
        return modes.merge_mode(self.raw)

    @property
    def key_generator(self) -> str:
        kind = self._get(KEY_GENERATOR).upper().removesuffix("_AVRO")
        if kind:
            return kind
        if not self.partition_fields:
            return "NON_PARTITION"
        if ":" in self._fields(PARTITION_FIELDS)[0]:
            return "CUSTOM"
        single = len(self.record_key) <= 1 and len(self.partition_fields) == 1
        return "SIMPLE" if single else "COMPLEX"

    @property
    def hive_style(self) -> bool:
        return self._flag(HIVE_STYLE)

    @property
    def url_encode(self) -> bool:
        return self._flag(URL_ENCODE)

    @property
    def create_schema(self) -> str | None:
        return self._get(CREATE_SCHEMA) or None

    @property
    def exclusive(self) -> bool:
        return self._flag(EXCLUSIVE)

    @property
    def buckets(self) -> int | None:
        text = self._get(BUCKETS)
        if not text:
            return None
        if not text.isdecimal() or not BUCKETS.low <= int(text) <= BUCKETS.high:
            raise Invalid(f"{BUCKETS}={text!r}, expected a number from {BUCKETS.low} to {BUCKETS.high}")
        return int(text)

    @property
    def resizes(self) -> tuple[Resize, ...]:
        """What changed the bucket count, oldest first; the last one may be under way."""
        return parse_resizes(self._get(RESIZES), path=self.path)

    @property
    def open_resize(self) -> Resize | None:
        """The resize that is under way, came to nothing, or is completed and not in the count yet."""
        return open_resize(self.resizes, self.buckets)

    @property
    def every_buckets(self) -> frozenset[int]:
        """Every bucket count by which rows of any moment may lie."""
        count = self.buckets
        known = {count} if count is not None else set()
        return frozenset(known.union(*((one.before, one.after) for one in self.resizes)))

    @property
    def bucket_rules(self) -> BucketRules | None:
        """How many buckets each partition has; None: all have ``buckets``, or that is unknown.

        Raises ``Invalid`` and ``Unsupported`` for rules that cannot be followed.
        """
        text = BUCKET_EXPRESSIONS.read(self.raw)
        if not text or self.buckets is None:
            return None
        return BucketRules.of(text, BUCKET_RULE.read(self.raw), self.buckets)

    @property
    def uses_rings(self) -> bool:
        """Whether buckets are ranges of hashes (consistent hashing), whose file groups rings tell."""
        return uses_rings(self.raw)

    @property
    def sorted_files(self) -> bool:
        """Whether the rows of each file are sorted by record key (an LSM tree)."""
        return is_lsm_tree(self.raw)

    @property
    def change_mode(self) -> str | None:
        """The logging mode of a table that records change data; None for others."""
        return CDC_MODE.read(self.raw).upper() if self._flag(CDC_ENABLED) else None

    @property
    def native_logs(self) -> bool:
        """Whether writers make native log files."""
        return self.version >= NATIVE_LOGS_FROM

    @property
    def deletes_ordered_by(self) -> tuple[str, ...]:
        """The ordering fields that deletes files have."""
        return () if self.merge_mode == modes.COMMIT_TIME else self.ordering

    @property
    def hash_fields(self) -> tuple[str, ...]:
        return self._fields(HASH_FIELD) or self.record_key

    @property
    def ready_metadata_partitions(self) -> tuple[str, ...]:
        """Metadata table partitions that readers may use, without those still being built."""
        return self._fields(PARTITIONS)

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        return self._fields(PARTITIONS) + self._fields(
            PARTITIONS_INFLIGHT
        )

    @property
    def is_utc(self) -> bool:
        """Whether instants are in UTC instead of the local zone of the table's writers."""
        return self._get(TIMEZONE, "LOCAL").upper() == "UTC"

    def zone(self, given: str | None = None) -> tzinfo | None:
        """The zone of the table's instants: UTC, or the given one; None if it is needed but not given."""
        try:
            zone = None if not given else UTC if given.upper() == "UTC" else ZoneInfo(given)
            return UTC if self.is_utc else zone
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise Invalid(
                f"{LOCAL_ZONE}={given!r} is no time zone; expected an IANA name such as Europe/Paris"
            ) from error

    def completed_by(self, given: Mapping[str, str]) -> TableConfig:
        """This config plus what a caller says about buckets and keys where the table is silent.

        Hudi stores neither the index nor its settings reliably in ``hoodie.properties``, so all writers of
        such a table must be given the same.
        """
        silent: dict[str, str] = {
            key: given[key]
            for key in (BUCKETS, BUCKET_EXPRESSIONS, *BUCKET_RULE.names, HASH_FIELD, INDEX_TYPE,
                        BUCKET_ENGINE, SLASH_DATES, KEY_ENCODING,
                        NEW_ENCODING, ENCODING_VALIDATION, CONSISTENT_TIMESTAMP, *TIME_OPTIONS)
            if key in given and not self._get(key)
        }
        return replace(self, raw={**self.raw, **silent}) if silent else self

    @property
    def history(self) -> str:
        """Folder of the archived timeline (``hoodie.timeline.history.path``), always inside the table."""
        name = self._get(HISTORY_PATH) or "history"
        return f"{paths.TIMELINE}/{paths.inside(name, source=self.path)}"

    def changed(self, other: TableConfig) -> list[str]:
        """Decisive properties that differ in ``other``, as ``key: old -> new``.

        The bucket count may differ if ``other`` says that the table was resized from it.
        """
        return [
            f"{key}: {self.raw.get(key)!r} -> {other.raw.get(key)!r}"
            for key in DECISIVE
            if self._decisive(key) != other._decisive(key)
            and not (key == BUCKETS and self._resized_to(other))
        ]

    def _decisive(self, key: str) -> str:
        """A table that says nothing of its layout, as one that was upgraded, has the default one."""
        return self._get(key, STORAGE_LAYOUT.default if key == STORAGE_LAYOUT else "")

    def following(self, other: TableConfig) -> TableConfig:
        """This config with the version and storage layout of ``other``, if nothing but the form of log files
        changes between their versions (9 and 10)."""
        if {self.version, other.version} != {NATIVE_LOGS_FROM - 1, NATIVE_LOGS_FROM}:
            return self
        layout = other.raw.get(STORAGE_LAYOUT)
        raw: dict[str, str] = {key: value for key, value in self.raw.items() if key != STORAGE_LAYOUT}
        raw[TABLE_VERSION] = str(other.version)
        if layout is not None:
            raw[STORAGE_LAYOUT] = layout
        return replace(self, raw=raw)

    def was_resized_from(self, text: str) -> bool:
        """Whether the table had so many buckets, and was resized since."""
        text = text.strip()
        return text.isdecimal() and bool(self.resizes) and int(text) in self.every_buckets

    def was_upgraded_from(self, text: str) -> bool:
        """Whether the table had this version, and was upgraded since."""
        first, text = self._get(INITIAL_VERSION), text.strip()
        return text.isdecimal() and first.isdecimal() and int(first) <= int(text) < self.version

    def _resized_to(self, other: TableConfig) -> bool:
        return other.was_resized_from(self._get(BUCKETS))

    def check_readable(self, table: str) -> None:
        """Refuse what mainstem cannot read correctly (``Unsupported``, ``CorruptTable``)."""
        version = self._get(TABLE_VERSION)
        if not version.isdecimal():
            raise CorruptTable(
                f"{TABLE_VERSION}={version!r}, expected a number", path=self.path, table=table
            )
        if int(version) not in READABLE_VERSIONS:
            way = (
                f"upgrade it with Hudi 1.x ({TABLE_VERSION_OPTION}=8 or 9)"
                if int(version) < 8
                else "a newer version may lay out files differently; use a newer mainstem"
            )
            raise Unsupported(
                f"table version {version} in {self.path}; versions 8, 9 and 10 can be read: {way}",
                table=table,
            )
        layout = self._get(LAYOUT_VERSION)
        if layout != "2":
            raise Unsupported(
                f"timeline layout {layout or 'missing'} in {self.path}, expected 2", table=table
            )
        if self.table_type not in (MERGE_ON_READ, COPY_ON_WRITE):
            raise Unsupported(f"{TABLE_TYPE}={self.table_type}", table=table)
        for key, allowed in (
            (BASE_FILE_FORMAT, ("", "PARQUET")),
            (LOG_FILE_FORMAT, ("", "HOODIE_LOG")),
            (TABLE_FORMAT, ("", "NATIVE")),
            (MANY_FILE_FORMATS, ("", "FALSE")),
            (BOOTSTRAP_PATH, ("",)),
            (STORAGE_LAYOUT, ("", "DEFAULT", "LSM_TREE")),
        ):
            if self._get(key).upper() not in allowed:
                raise Unsupported(f"{key}={self._get(key)!r} is not supported", table=table)
        if self._get(TIMELINE_PATH, "timeline") != "timeline":
            raise Unsupported(
                f"{TIMELINE_PATH}={self._get(TIMELINE_PATH)!r}, expected 'timeline'",
                table=table,
            )

    def check_writable(self, table: str) -> None:
        """Refuse what mainstem, or non-blocking concurrency control, cannot write safely."""
        self.check_readable(table)
        self.check_metadata(table)
        if self.sorted_files and not self.native_logs:
            raise Unsupported(
                f"{STORAGE_LAYOUT}={self._get(STORAGE_LAYOUT)} in a table of version {self.version}: Hudi has"
                f" it from version {NATIVE_LOGS_FROM} on",
                table=table,
            )
        needs = (
            (TABLE_TYPE, self.table_type, (MERGE_ON_READ,)),
            (INDEX_TYPE, self._get(INDEX_TYPE).upper(), ("", *INDEX_TYPE.allowed)),
            (BUCKET_ENGINE, self._get(BUCKET_ENGINE).upper(), ("", *BUCKET_ENGINE.allowed)),
            (MERGE_MODE, self.merge_mode, modes.MODES),  # CUSTOM: see merge/rules.py
            (KEY_GENERATOR, self.key_generator,
             ("SIMPLE", "COMPLEX", "NON_PARTITION", "TIMESTAMP", "CUSTOM")),
            (POPULATE_META_FIELDS, self._get(POPULATE_META_FIELDS).lower(),
             ("", "true")),
            (DROP_PARTITION_COLUMNS,
             self._get(DROP_PARTITION_COLUMNS).lower(), ("", "false")),
            (SCHEMA_ON_READ, self._get(SCHEMA_ON_READ).lower(),
             ("", "false")),
        )  # fmt: skip
        for key, found, allowed in needs:
            if found not in allowed:
                way = f". {WITHOUT_BUCKETS}" if key in (INDEX_TYPE, BUCKET_ENGINE) else ""
                raise Unsupported(
                    f"{key}={found!r} cannot be written; expected"
                    f" {' or '.join(repr(a) for a in allowed if a)}{way}",
                    table=table,
                )
        if self.change_mode is not None and not self.native_logs:
            raise Unsupported(
                f"{CDC_ENABLED}=true in a table of version {self.version}: mainstem writes change data from"
                f" version {NATIVE_LOGS_FROM} on. Make it with {TABLE_VERSION_OPTION}={NATIVE_LOGS_FROM}, or"
                f" upgrade it (Table.upgrade({NATIVE_LOGS_FROM}), mainstem upgrade)",
                table=table,
            )
        modes.partial_update_mode(self.raw)  # refuses an unknown mode
        if self.bucket_rules is not None and self.uses_rings:  # rules that cannot be followed are refused
            raise Invalid(
                f"{BUCKET_EXPRESSIONS} and {BUCKET_ENGINE}=CONSISTENT_HASHING exclude each other: the ring of"
                " a partition says how many buckets it has",
                table=table,
            )
        if self.version == 8:
            self._check_version_8(table)
        if not self.record_key and INDEX_TYPE.read({INDEX_TYPE: "SIMPLE", **self.raw}) == "BUCKET":
            raise Invalid(
                f"{INDEX_TYPE}=BUCKET without {RECORD_KEY_FIELDS}: a record key tells the bucket of a row;"
                f" leave {INDEX_TYPE} out, or name the key's columns",
                table=table,
            )
        if self.merge_mode == modes.EVENT_TIME and not self.ordering:
            raise Invalid(
                f"EVENT_TIME_ORDERING without {ORDERING_FIELDS}: rows cannot be ordered",
                table=table,
            )
        stray = set(self.hash_fields) - set(self.record_key)
        if stray:
            raise Invalid(
                f"{HASH_FIELD} names {sorted(stray)}, not among the record key fields"
                f" {list(self.record_key)}",
                table=table,
            )


    def check_metadata(self, table: str) -> None:
        """Refuse metadata table partitions that mainstem does not maintain: their readers would miss rows."""
        other = [name for name in self.metadata_partitions if _kind_of_partition(name) not in MAINTAINED]
        if other:
            raise Unsupported(
                f"the table has a metadata table ({PARTITIONS}="
                f"{','.join(self.metadata_partitions)}), of which mainstem does not maintain"
                f" {', '.join(other)}; its readers would miss rows written here. Write once from Hudi with"
                f" {METADATA}=false on every Java writer: it drops the metadata table",
                table=table,
            )

    def _check_version_8(self, table: str) -> None:
        """Refuse what Hudi 1.0 would merge differently from mainstem and Hudi 1.1."""
        names = [self._fields(key) for key in (ORDERING_FIELDS, PRECOMBINE)]
        if names[0] and names[1] and names[0] != names[1]:
            raise Invalid(
                f"{ORDERING_FIELDS}={','.join(names[0])} and {PRECOMBINE}={','.join(names[1])} differ: Hudi"
                " 1.0 and 1.1 would order the rows differently",
                table=table,
            )
        if len(self.ordering) > 1:
            raise Unsupported(
                f"{len(self.ordering)} ordering fields in a table of version 8, which allows one (Hudi 1.0"
                " supports no more); upgrade the table to version 9 with Hudi",
                table=table,
            )
        payload = self._get(PAYLOAD_CLASS).rpartition(".")[2]
        known = modes.VERSION_8_PAYLOADS.get(self.merge_mode, "")
        same = [known.rpartition(".")[2]] if known else []
        if self.merge_mode == modes.EVENT_TIME:
            same.append("EventTimeAvroPayload")
        if same and payload and payload not in same:
            raise Unsupported(
                f"{PAYLOAD_CLASS}={payload} does not mean {self.merge_mode}, as it must for"
                f" mainstem to write a table of version 8; expected {' or '.join(same)}",
                table=table,
            )


def _kind_of_partition(name: str) -> str:
    return next((kind for kind in _NAMED if name.startswith(f"{kind}_")), name)


@lru_cache(maxsize=16)
def parsed_config(data: bytes, path: str) -> TableConfig:
    """The parsed file, cached: every transaction reads it twice under the lock, nearly always unchanged."""
    return TableConfig(parse_properties(data, path=path), path)


def has_table(storage: Storage, folder: str = "") -> bool:
    """Whether there are a table's properties, in a folder or at the base. While somebody replaces them they
    are in their backup alone."""
    names = (paths.PROPERTIES, paths.PROPERTIES_BACKUP)
    return any(storage.stat(paths.in_partition(folder, name)) is not None for name in names)


def load_config(storage: Storage) -> TableConfig:
    """Read ``hoodie.properties``, or its backup while a writer replaces the file.

    Raises ``Invalid`` if there is no table, ``CorruptTable`` if the checksum is wrong.
    """
    for path in (paths.PROPERTIES, paths.PROPERTIES_BACKUP, paths.PROPERTIES):
        try:
            data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            continue
        config = parsed_config(data, path)
        if config.name:
            _verify_checksum(config, storage.base)
            return config
    raise Invalid(
        f"no Hudi table at {storage.base}: {paths.PROPERTIES} is missing or names no table;"
        " create it with mainstem.create_table",
        table=storage.base,
    )


def _verify_checksum(config: TableConfig, base: str) -> None:
    found = config.raw.get(TABLE_CHECKSUM, "").strip()
    expected = table_checksum(config.raw.get(DATABASE_NAME, ""), config.name)
    if found and found != expected:
        raise CorruptTable(
            f"{TABLE_CHECKSUM}={found}, expected {expected} for table {config.name!r}: the file"
            f" was edited or damaged; restore it or {paths.PROPERTIES_BACKUP}",
            path=config.path,
            table=base,
        )


def encode_config(raw: Mapping[str, str], date_text: str, *, updated: bool = False) -> bytes:
    """Bytes of ``hoodie.properties``, new or changed; ``date_text`` is for the comment that Java writes."""
    said = "Updated at" if updated else "Properties saved on"
    return format_properties(raw, comments=(f"{said} {date_text}", date_text))
