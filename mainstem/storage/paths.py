"""Every path and file name of a table: built and parsed here and nowhere else.

Names follow Hudi 1.x layout 2 (FSUtils, HoodieLogFile, MarkerUtils, TimelineLayout). Names read from
storage are untrusted: a parser returns None for any other name, and ``inside`` refuses paths that would
leave the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

from mainstem.errors import CorruptTable, Invalid
from mainstem.limits import FILE_NAME_BYTES_MAX, PARTITION_DEPTH_MAX

HOODIE = ".hoodie"
PROPERTIES = ".hoodie/hoodie.properties"
PROPERTIES_BACKUP = ".hoodie/hoodie.properties.backup"
TIMELINE = ".hoodie/timeline"
HISTORY = ".hoodie/timeline/history"
TEMP = ".hoodie/.temp"
# Content of ``markers_kind``.
MARKERS_KIND = b"TIMELINE_SERVER_BASED"
HEARTBEATS = ".hoodie/.heartbeat"
OWN = ".hoodie/.mainstem"
FENCE = ".hoodie/.mainstem/fence"
#: objects that were put in parts, until each has its name (``storage.object_store``)
LONG = f"{OWN}/long"
PREPARED = ".hoodie/.mainstem/prepared"
#: rows that tasks handed to their transaction (``writers.write_task``), until it ends
TASK_ROWS = f"{OWN}/task-rows"
#: base files that get their names when their instant completes (``publish.showing``): a folder per instant
UNSHOWN = f"{OWN}/unshown"
# On stores without links: what decides who publishes, and contents too large to lie in it (``publish.gate``).
GATE = ".hoodie/.mainstem/gate.json"
DECIDED = ".hoodie/.mainstem/decided"
# An empty object of a store, put to learn the time of the store.
CLOCK = ".hoodie/.mainstem/clock"
# An object of a store by which a process tries what the store promises, for a moment (``storage.probe``).
PROBE = "probe-"
STREAMS = ".hoodie/.mainstem/streams"
# Rows staged by engines that commit later than they write: one folder per sink.
SINKS = ".hoodie/.mainstem/flink"
#: options with which Hudi's Flink catalog declares the table (``TableOptionProperties``)
FLINK_OPTIONS = ".hoodie/.aux/table_option.properties"
TABLE_IDENTITY = ".hoodie/.mainstem/table-identity"
SCHEMAS = ".hoodie/.schema"
# In the fence folder of a table that mainstem created, so that its bucket count and file ids are known.
MADE_HERE = "made-here"
LOCK_NOTE = ".hoodie/.mainstem/lock-identity"
# Prefix of folders in which a new table's metadata table is built: one per attempt.
CREATING = "creating-"
# How the first writer encoded keys, if hoodie.properties does not say.
KEY_ENCODING_NOTE = ".hoodie/.mainstem/key-encoding"
#: the zone of a table whose instants are in its writers' local time
ZONE_NOTE = ".hoodie/.mainstem/timeline-zone"
UNIQUE_NOTE = ".hoodie/.mainstem/keys-unique-in"
#: whether keys of a global index move with their partition
MOVES_NOTE = ".hoodie/.mainstem/keys-move"

# Hudi's metadata table: a table of its own below this folder.
METADATA = ".hoodie/metadata"
METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
# Vector indexes lie beside the metadata table's partitions, but no list of partitions names them. A copy of
# their properties is kept outside, in case Java removes the metadata table's folder.
VECTORS = ".hoodie/metadata/vector_index"
VECTOR_PROPERTIES = ".hoodie/metadata/vector_index/vector-index.properties"
VECTOR_PROPERTIES_COPY = ".hoodie/.mainstem/vector-index.properties"
VECTOR_FILES = ".hoodie/metadata/vector_index/.index_files"
VECTOR_BUILDERS = ".hoodie/metadata/vector_index/.builders"
# Definitions of the indexes; ``hoodie.table.metadata.partitions`` only lists their names.
INDEX_DEFINITIONS = ".hoodie/.index_defs/index.json"
# Only tables with consistent hashing, whose buckets are split and merged, have it.
CONSISTENT_HASHING = ".hoodie/.bucket_index/consistent_hashing_metadata"
# How many buckets a partition has, where rules say it (PartitionBucketIndexHashingConfig).
BUCKET_RULES = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
FIRST_BUCKET_RULES = f"{BUCKET_RULES}/00000000000000.hashing_config"

# An empty object that a new table has in a store: there are no empty folders there, and Java lists the
# timeline. It stands in a subfolder, where nobody takes it for an instant.
FIRST_OBJECT = f"{HISTORY}/_folder_"

# The folders that Hudi makes when it creates a table, in its order; hoodie.properties comes last.
INITIAL_FOLDERS = (
    ".hoodie",
    SCHEMAS,
    TIMELINE,
    HISTORY,
    TEMP,
    ".hoodie/.aux",
    ".hoodie/.aux/.bootstrap/.partitions",
    ".hoodie/.aux/.bootstrap/.fileids",
)

PARTITION_METAFILE = ".hoodie_partition_metadata"

# Iceberg's metadata beside the table, where engines look for it. Without a partition metafile it is no
# partition.
ICEBERG = "metadata"
ICEBERG_HINT = "metadata/version-hint.text"

_LOG_NAME = re.compile(
    r"^\.([^._/]+)_([^./]*)\.(log|archive)\.([0-9]{1,9})(?:_(([0-9]+)-([0-9]+)-([0-9]+))(\.cdc)?)?\Z"
)
# Logs of table version 10: files of their own, which are not hidden and end as base files do.
_NATIVE_NAME = re.compile(
    r"^([^._/]+)_([0-9]+-[0-9]+-[0-9]+)_([^._/]+)_([0-9]{1,9})\.(log|deletes|cdc)\.([^./]+)\Z"
)
_BASE_NAME = re.compile(r"^([a-zA-Z0-9-]+)_([a-zA-Z0-9-]+)_([0-9]+)\.(parquet)\Z")
# File ids of a partitioned record index hold escaped paths.
_HFILE_NAME = re.compile(r"^([^_/]+)_([a-zA-Z0-9-]+)_([0-9]+)\.hfile\Z")
_EPOCH = re.compile(r"^epoch-([0-9]{1,18})\Z")
_TICKET = re.compile(r"^ticket-([0-9]{1,18})-[0-9a-f]{1,64}\Z")
_TABLE_NOTE = re.compile(r"^table-([0-9a-f]{32})\Z")
_MARKER = re.compile(r"^(.+)\.marker\.(CREATE|MERGE|APPEND)\Z")
_MARKERS = re.compile(r"^MARKERS[0-9]{1,9}\Z")
_SCHEMA_COMMIT = re.compile(r"^([0-9]{17})_[0-9]{17}\.schemacommit\Z")
_GUARD_NOTE = re.compile(r"^guard-([0-9]{1,18})-([0-9]{1,18}|all)-([0-9]{14,20})\Z")
_STAMP = re.compile(r"^[A-Z]{17}\Z")
_VECTOR_COLUMN = re.compile(r"^column=([0-9]{3,9})\Z")
_VECTOR_VERSION = re.compile(r"^version=([1-9][0-9]{0,17})\Z")
_VECTOR_FILE = re.compile(r"^([0-9a-f]{32})-([a-z0-9-]+\.[a-z]+)\Z")
_DECIDED = re.compile(r"^([0-9]{1,18})-[0-9a-f]{32}-[0-9]\Z")
_ICEBERG_VERSION = re.compile(r"^v([0-9]{1,9})\.metadata\.json\Z")
_ICEBERG_MANIFEST = re.compile(r"^(?:snap-[0-9]{1,19}-)?[0-9a-f]{16}(?:-m[0-9]{1,9})?\.avro\Z")
_NO_PATH = re.compile(r"[\x00-\x1f\x7f\\]")  # control characters and Windows separators
_TIME = re.compile(r"^[0-9]{17}\Z")
_RING = re.compile(r"^([0-9]{14,17})\.hashing_meta\Z")
_BUCKET_RULES = re.compile(r"^([0-9]{14,17})\.hashing_config\Z")


# What a log file holds, and its place among those of one instant, version and token: deletes come after rows.
_KIND_ORDER = {"log": 0, "deletes": 1, "cdc": 2, "archive": 3}


@dataclass(frozen=True, slots=True)
class LogName:
    """A parsed log file name.

    A file of blocks is ``.<file id>_<requested time>.log.<version>_<write token>[.cdc]``. A native log (table
    version 10), ``<file id>_<write token>_<requested time>_<version>.<kind>.<format>``, is one block.
    ``kind`` is log, deletes or cdc (or archive, of a file of blocks), ``format`` "" for a file of blocks.
    """

    name: str
    file_id: str
    instant: str
    version: int
    token: str
    is_cdc: bool
    kind: str = "log"
    format: str = ""

    @property
    def order(self) -> tuple[str, int, str, int, str]:
        """Merge order (HoodieLogFile.LogFileComparator): instant, version as number, token as text, kind,
        suffix."""
        suffix = self.format or (".cdc" if self.is_cdc else "")
        return (self.instant, self.version, self.token, _KIND_ORDER[self.kind], suffix)

    @property
    def is_native(self) -> bool:
        """Whether the file is a native log."""
        return bool(self.format)

    @property
    def is_deletes(self) -> bool:
        """Whether the file holds deletes and no row."""
        return self.kind == "deletes"


@dataclass(frozen=True, slots=True)
class BaseName:
    """A parsed base file name: ``<file id>_<write token>_<requested time>.parquet`` (``.hfile``)."""

    name: str
    file_id: str
    token: str
    instant: str


@lru_cache(maxsize=8192)  # plans and checks of a service parse the same listing again and again
def parse_log_name(name: str) -> LogName | None:
    """None for anything that is not a log file; Java ignores such names too."""
    if len(name) > FILE_NAME_BYTES_MAX:
        return None
    match = _LOG_NAME.match(name)
    if match is not None:
        file_id, instant, kind, version, token = match.group(1, 2, 3, 4, 5)
        return LogName(name, file_id, instant, int(version), token or "", match.group(9) is not None, kind)
    match = _NATIVE_NAME.match(name)
    if match is None:
        return None
    file_id, token, instant, version, kind, file_format = match.groups()
    return LogName(name, file_id, instant, int(version), token, kind == "cdc", kind, file_format)


def parse_base_name(name: str) -> BaseName | None:
    """None for anything that is not a parquet base file."""
    match = _BASE_NAME.match(name)
    if match is None or len(name) > FILE_NAME_BYTES_MAX:
        return None
    return BaseName(name, match.group(1), match.group(2), match.group(3))


def parse_hfile_name(name: str) -> BaseName | None:
    """None for anything that is not a base file of the metadata table."""
    match = _HFILE_NAME.match(name)
    if match is None or len(name) > FILE_NAME_BYTES_MAX:
        return None
    return BaseName(name, match.group(1), match.group(2), match.group(3))


def file_id_of(name: str) -> str | None:
    """File id of a data file's name; None for anything else."""
    parsed = parse_log_name(name) or parse_base_name(name) or parse_hfile_name(name)
    return None if parsed is None else parsed.file_id


def of_group(names: Iterable[str], file_id: str) -> list[str]:
    """The data files of one file group among ``names``, sorted."""
    return sorted(name for name in names if file_id_of(name) == file_id)


def log_name(file_id: str, instant: str, version: int, token: str) -> str:
    """Name of a log file of this delta commit; version starts at 1."""
    return f".{file_id}_{instant}.log.{version}_{token}"


def native_log_name(
    file_id: str, instant: str, version: int, token: str, kind: str = "log", ending: str = "parquet"
) -> str:
    """Name of a native log file (table version 10): ``kind`` log, deletes or cdc; version starts at 1;
    ``ending``: its format."""
    return f"{file_id}_{token}_{instant}_{version}.{kind}.{ending}"


def kept_deletes_name(base: str, *, native: bool = False) -> str:
    """Name of the log file with the deletes that a compaction keeps beside this base file."""
    parsed = parse_base_name(base)
    if parsed is None:
        raise ValueError(f"{base!r} is no base file")
    if native:
        return native_log_name(parsed.file_id, parsed.instant, 1, parsed.token, "deletes")
    return log_name(parsed.file_id, parsed.instant, 1, parsed.token)


def is_kept_deletes(name: str, base: BaseName) -> bool:
    """Whether a log file holds the deletes that the compaction kept which made ``base``."""
    return any(name == kept_deletes_name(base.name, native=native) for native in (False, True))


def change_file_name(base: str) -> str:
    """Name of the change data file (table version 10) that a compaction writes beside this base file."""
    parsed = parse_base_name(base)
    if parsed is None:
        raise ValueError(f"{base!r} is no base file")
    return native_log_name(parsed.file_id, parsed.instant, 1, parsed.token, "cdc")


def is_native_log(path: str) -> bool:
    """Whether the file at this path is a native log, by its name."""
    parsed = parse_log_name(path.rpartition("/")[2])
    return parsed is not None and parsed.is_native


def base_name(file_id: str, token: str, instant: str) -> str:
    """Name of a base file."""
    return f"{file_id}_{token}_{instant}.parquet"


def hfile_name(file_id: str, token: str, instant: str) -> str:
    """Name of a base file of the metadata table."""
    return f"{file_id}_{token}_{instant}.hfile"


def in_partition(partition: str, name: str) -> str:
    """Path of a file in a partition; ``partition`` is "" for a non-partitioned table."""
    return f"{partition}/{name}" if partition else name


def partition_metafile(partition: str) -> str:
    """``<partition>/.hoodie_partition_metadata``."""
    return in_partition(partition, PARTITION_METAFILE)


def timeline_file(name: str) -> str:
    """Path of an active timeline file."""
    return f"{TIMELINE}/{name}"


def parse_schema_commit(name: str) -> str | None:
    """Requested time of a completed schema history file, None for other names."""
    match = _SCHEMA_COMMIT.match(name)
    return match.group(1) if match else None


def checksum_file(path: str) -> str:
    """Side file that Hadoop's local file system keeps beside each file that Java wrote."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc" if folder else f".{name}.crc"


def heartbeat(instant: str) -> str:
    """Path of a writer's heartbeat file."""
    return f"{HEARTBEATS}/{instant}"


def marker_folder(instant: str) -> str:
    """Folder of an instant's markers."""
    return f"{TEMP}/{instant}"


def marker(instant: str, partition: str, data_file: str, kind: str = "CREATE") -> str:
    """DIRECT marker of a data file; v8+ writers use CREATE for log files too."""
    return f"{marker_folder(instant)}/{in_partition(partition, data_file)}.marker.{kind}"


def parse_marker_name(name: str) -> str | None:
    """Data file name (or partition-relative path) that a marker stands for, else None."""
    match = _MARKER.match(name)
    return match.group(1) if match else None


def marker_line(partition: str, data_file: str) -> str:
    """What stands for a data file in a file of many markers."""
    return f"{in_partition(partition, data_file)}.marker.CREATE"


def parse_marker_line(line: str) -> tuple[str, str] | None:
    """(partition, data file) of a line in a file of many markers, else None."""
    partition, _, last = line.rpartition("/")
    name = parse_marker_name(last)
    return None if name is None or (partition and not is_inside(partition)) else (partition, name)


def markers_kind(instant: str) -> str:
    """File that tells that an instant's markers are lines of files; ``MARKERS_KIND`` is its content."""
    return f"{marker_folder(instant)}/MARKERS.type"


def markers(instant: str, number: int) -> str:
    """A file of many markers of an instant."""
    return f"{marker_folder(instant)}/MARKERS{number}"


def is_markers(name: str) -> bool:
    """Whether this is the name of a file of many markers."""
    return _MARKERS.match(name) is not None


def epoch_marker(epoch: int) -> str:
    """Fence file that makes ``epoch`` current."""
    return f"{FENCE}/epoch-{epoch}"


def ticket(epoch: int, identity: str) -> str:
    """Private file of one publication attempt; ``identity`` is hexadecimal."""
    return f"{FENCE}/ticket-{epoch}-{identity}"


def swept(name: str) -> str:
    """Where a fence that renames moves a marker or a ticket that it sweeps."""
    return f"{FENCE}/swept-{name}"


def newest_note(time: str) -> str:
    """Fence file that keeps a time that has left the timeline from being issued again."""
    return f"{FENCE}/newest-{time}"


def parse_newest_note(name: str) -> str | None:
    """Instant time in a note's name."""
    time = name.removeprefix("newest-")
    return time if time != name and is_instant_time(time) else None


def showing_note(instant: str) -> str:
    """Fence file that names the base files which an instant is about to show (``publish.showing``)."""
    return f"{FENCE}/showing-{instant}"


def parse_showing_note(name: str) -> str | None:
    """The instant in a note's name."""
    instant = name.removeprefix("showing-")
    return instant if instant != name and is_instant_time(instant) else None


def table_note(identity: str) -> str:
    """Fence file that tells a table apart from one created later at the same path."""
    return f"{FENCE}/table-{identity}"


def parse_table_note(name: str) -> str | None:
    """The identity in a note's name."""
    match = _TABLE_NOTE.match(name)
    return match.group(1) if match else None


def creating(identity: str) -> str:
    """Folder of one attempt at a new table's metadata table."""
    return f"{OWN}/{CREATING}{identity}"


def prepared(instant: str, identity: str) -> str:
    """Private durable file whose content a ticket will publish; only a crash leaves one behind."""
    return f"{PREPARED}/{instant}-{identity}"


def task_rows(instant: str, token: str) -> str:
    """Rows that the task with this write token handed to the transaction of ``instant``."""
    return f"{TASK_ROWS}/{instant}-{token}"


def unshown_folder(instant: str) -> str:
    """Folder of the base files that an instant has not shown yet."""
    return f"{UNSHOWN}/{instant}"


def unshown(instant: str, partition: str, name: str) -> str:
    """Where a base file waits until its instant completes."""
    return f"{unshown_folder(instant)}/{in_partition(partition, name)}"


def decided(epoch: int, nonce: str, place: int) -> str:
    """Content that the gate's decision with this epoch and nonce names, if it is taken."""
    return f"{DECIDED}/{epoch}-{nonce}-{place}"


def parse_decided(name: str) -> int | None:
    """The epoch in the name of a content that the gate may name."""
    match = _DECIDED.match(name)
    return int(match.group(1)) if match else None


def parse_epoch(name: str) -> int | None:
    """Epoch of a marker's name."""
    match = _EPOCH.match(name)
    return int(match.group(1)) if match else None


def parse_ticket_epoch(name: str) -> int | None:
    """Epoch in a ticket's name."""
    match = _TICKET.match(name)
    return int(match.group(1)) if match else None


def guard_note(batch_id: int, ordinal: int | None, instant: str) -> str:
    """Name of a note in a stream's folder: this write of this batch may be committed as ``instant``."""
    return f"guard-{batch_id}-{'all' if ordinal is None else ordinal}-{instant}"


def parse_guard_note(name: str) -> tuple[int, int | None, str] | None:
    """Batch, ordinal (None: the whole batch) and instant of a note's name."""
    match = _GUARD_NOTE.match(name)
    if match is None:
        return None
    batch_id, ordinal, instant = match.groups()
    return int(batch_id), None if ordinal == "all" else int(ordinal), instant


def vector_column(column_id: str) -> str:
    """Folder of the versions of one vector index."""
    return f"{VECTOR_FILES}/column={column_id}"


def vector_version(column_id: str, number: int) -> str:
    """Folder of one version of a vector index."""
    return f"{vector_column(column_id)}/version={number}"


def vector_file(column_id: str, number: int, name: str) -> str:
    """A file of one version."""
    return f"{vector_version(column_id, number)}/{name}"


def vector_manifest(column_id: str, number: int) -> str:
    """The manifest of a version; it is put in place last and makes the version complete."""
    return vector_file(column_id, number, "manifest.json")


def vector_name(token: str, what: str) -> str:
    """Name of one builder's file; ``what`` is a short name with an extension. Builders never share a name."""
    return f"{token}-{what}"


def vector_builder(token: str) -> str:
    """Heartbeat of the builder of a version."""
    return f"{VECTOR_BUILDERS}/{token}"


def parse_vector_column(name: str) -> str | None:
    """Column id in the name of a folder in ``VECTOR_FILES``."""
    match = _VECTOR_COLUMN.match(name)
    return match.group(1) if match else None


def parse_vector_version(name: str) -> int | None:
    """Number in the name of a version's folder."""
    match = _VECTOR_VERSION.match(name)
    return int(match.group(1)) if match else None


def parse_vector_name(name: str) -> tuple[str, str] | None:
    """The builder's token in a file's name, and the rest of it."""
    match = _VECTOR_FILE.match(name)
    return (match.group(1), match.group(2)) if match and len(name) <= FILE_NAME_BYTES_MAX else None


def sink_folder(sink: str) -> str:
    """Folder of a sink, whose name may hold any characters. ``Invalid`` if it is empty or too long."""
    name = quote(sink, safe="")
    name = f"%2E{name[1:]}" if name.startswith(".") else name
    if not name or len(name) > FILE_NAME_BYTES_MAX:
        raise Invalid(
            f"the name {sink[:80]!r} of a sink: expected one to {FILE_NAME_BYTES_MAX} characters (those that"
            " are no ASCII letters or digits count more)"
        )
    return f"{SINKS}/{name}"


def sink_name(folder: str) -> str:
    """Name of the sink to which a folder in ``SINKS`` belongs."""
    return unquote(folder)


def staged_folder(sink: str) -> str:
    """Folder in which workers stage rows before they are committed."""
    return f"{sink_folder(sink)}/staged"


def committables_folder(sink: str) -> str:
    """Folder in which the engine puts part files with committables; a final name means ready to commit."""
    return f"{sink_folder(sink)}/committables"


def staged_file(sink: str, stamp: str) -> str:
    """Rows of one batch, with ``stamp`` in place of the instant that will hold them."""
    return f"{staged_folder(sink)}/{stamp}"


def is_stamp(text: str) -> bool:
    """Whether this is a stamp: 17 letters, as long as an instant time but never equal to one."""
    return bool(_STAMP.match(text))


def is_instant_time(text: str) -> bool:
    """Whether this is 17 digits, ``yyyyMMddHHmmssSSS``."""
    return bool(_TIME.match(text))


def is_path_text(text: str) -> bool:
    """Whether ``inside`` would accept these characters: no control characters, no backslash."""
    return not _NO_PATH.search(text)


def is_inside(path: str) -> bool:
    """Whether a relative path read from storage stays inside the table."""
    segments = path.split("/")
    return not (
        not path
        or path.startswith("/")
        or _NO_PATH.search(path)
        or any(s in ("", ".", "..") for s in segments)
        or len(segments) > PARTITION_DEPTH_MAX + 2
    )


def inside(path: str, *, source: str) -> str:
    """Return a relative path read from storage if it stays inside the table.

    Raises ``CorruptTable`` naming ``source`` (the file the path was read from) otherwise.
    """
    if not is_inside(path):
        raise CorruptTable(
            f"path {path!r} leaves the table or is no table path; expected a relative path without"
            " '..': do not use this file, restore it from a copy",
            path=source,
        )
    return path


def rings_of(partition: str) -> str:
    """The folder with a partition's rings."""
    return f"{CONSISTENT_HASHING}/{partition}" if partition else CONSISTENT_HASHING


def ring(partition: str, time: str) -> str:
    """The ring of a partition that the instant requested at ``time`` made."""
    return f"{rings_of(partition)}/{time}.hashing_meta"


def ring_time(name: str) -> str | None:
    """The instant of a ring's file name; None for other names."""
    found = _RING.match(name)
    return found[1] if found else None


def bucket_rules_time(name: str) -> str | None:
    """The instant that made the rules of a file in ``BUCKET_RULES``; None for other names."""
    found = _BUCKET_RULES.match(name)
    return found[1] if found else None


def iceberg_version(number: int) -> str:
    """Path of a version of Iceberg's metadata (as Iceberg's own ``HadoopTableOperations`` has it)."""
    return f"{ICEBERG}/v{number}.metadata.json"


def parse_iceberg_version(name: str) -> int | None:
    """Number of a version of Iceberg's metadata by its name."""
    match = _ICEBERG_VERSION.match(name)
    return int(match.group(1)) if match else None


def iceberg_manifest(attempt: str, number: int) -> str:
    """Path of a manifest; ``attempt``: 16 hexadecimal digits that no other publication has."""
    return f"{ICEBERG}/{attempt}-m{number}.avro"


def iceberg_manifest_list(snapshot: int, attempt: str) -> str:
    """Path of a snapshot's list of manifests."""
    return f"{ICEBERG}/snap-{snapshot}-{attempt}.avro"


def is_iceberg_manifest(name: str) -> bool:
    """Whether a file in ``ICEBERG`` is a manifest, or a list of them, of a table that is published here."""
    return _ICEBERG_MANIFEST.match(name) is not None
