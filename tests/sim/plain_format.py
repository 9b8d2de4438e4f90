"""A second, independent decoder of what writers leave: the checkers' own eyes.

Written from the format description with ``struct`` and fastavro, sharing no code with
``mainstem.formats``, ``timeline`` or ``readers``: a mistake there must not hide itself here.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.sim.sim_storage import Disk, Inode

TIMELINE = ".hoodie/timeline"
HISTORY = f"{TIMELINE}/history"
_PENDING = re.compile(r"^(\d{17})\.([a-z]+)\.(requested|inflight)$")
_DONE = re.compile(r"^(\d{17})_(\d{17})\.([a-z]+)$")
_LOG = re.compile(r"^\.([^._]+)_(\d{17})\.log\.(\d+)_(\d+-\d+-\d+)$")
_NATIVE = re.compile(r"^([^._]+)_(\d+-\d+-\d+)_(\d{17})_(\d+)\.(log|deletes|cdc)\.(?:parquet|hfile)$")
_MANIFEST = re.compile(r"^manifest_(\d+)$")
_MAGIC = b"#HUDI#"


@dataclass(frozen=True)
class TimelineName:
    """``completion`` is None for requested and inflight files."""

    requested: str
    action: str
    state: str
    completion: str | None = None


def timeline_name(name: str) -> TimelineName | None:
    """None for what is no instant's file."""
    if match := _DONE.match(name):
        return TimelineName(match[1], match[3], "completed", match[2])
    if match := _PENDING.match(name):
        return TimelineName(match[1], match[2], match[3])
    return None


@dataclass(frozen=True)
class LogFile:
    """A log file found in a partition folder. ``kind``: log or deletes, of a native one."""

    path: str
    partition: str
    file_id: str
    instant: str
    version: int
    token: str
    kind: str = ""

    @property
    def order(self) -> tuple[str, int, str, bool]:
        return (self.instant, self.version, self.token, self.kind == "deletes")


def log_file(path: str) -> LogFile | None:
    """None for paths that are not log files."""
    partition, _, name = path.rpartition("/")
    if path.startswith(".hoodie/"):
        return None
    if (native := _NATIVE.match(name)) is not None:
        file_id, token, instant, version, kind = native.groups()
        if kind == "cdc":
            return None  # it holds no rows of the table
        return LogFile(path, partition, file_id, instant, int(version), token, kind)
    match = _LOG.match(name)
    if match is None:
        return None
    return LogFile(path, partition, match[1], match[2], int(match[3]), match[4])


def log_files(disk: Disk) -> list[LogFile]:
    """Every log file of the table, in merge order."""
    found = []
    for folder, entries in disk.folders.items():
        if folder == ".hoodie" or folder.startswith(".hoodie/"):
            continue
        for name in entries:
            log = log_file(f"{folder}/{name}" if folder else name)
            if log is not None:
                found.append(log)
    return sorted(found, key=lambda log: log.order)


def base_files(disk: Disk) -> dict[str, list[str]]:
    """Requested time -> paths of the base files that carry it."""
    found: dict[str, list[str]] = {}
    for folder, entries in disk.folders.items():
        if folder == ".hoodie" or folder.startswith(".hoodie/"):
            continue
        for name in entries:
            if name.endswith(".parquet") and not _NATIVE.match(name):
                instant = name.removesuffix(".parquet").rsplit("_", 1)[-1]
                found.setdefault(instant, []).append(f"{folder}/{name}" if folder else name)
    return found


@dataclass
class Delete:
    """One entry of a delete block. ``ordering`` None is Java's IntWrapper 0, the default."""

    key: str
    partition: str
    ordering: int | None


@dataclass
class Block:
    """A data block's rows or a delete block's entries."""

    instant: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)


def blocks_of(disk: Disk, log: LogFile) -> list[Block]:
    """All blocks of a log file, of which a native one is one; raises ValueError for what is not as
    described."""
    data = bytes(disk.need(log.path).data)
    return [_native(log, data)] if log.kind else blocks(data)


def _native(log: LogFile, data: bytes) -> Block:
    table = pq.read_table(pa.BufferReader(data))
    header = json.loads(pq.read_metadata(pa.BufferReader(data)).metadata[b"hudi.log.format.metadata"])
    if (header["VERSION"], header["INSTANT_TIME"]) != ("2", log.instant) or not table.num_rows:
        raise ValueError(f"{log.path}: {table.num_rows} rows, and header {header}")
    names = [field["name"] for field in json.loads(header["SCHEMA"])["fields"]]
    rows = table.to_pylist()
    if log.kind == "log":
        if table.schema.names != names:
            raise ValueError(f"{log.path}: columns {table.schema.names}, its header says {names}")
        return Block(log.instant, rows)
    others = table.schema.names[1:]
    if table.schema.names[0] != "_hoodie_record_key" or others not in ([], ["ts"]):
        raise ValueError(f"{log.path}: columns {table.schema.names}")
    found = [Delete(row["_hoodie_record_key"], log.partition, row.get("ts")) for row in rows]
    return Block(log.instant, deletes=found)


def blocks(data: bytes) -> list[Block]:
    """All blocks of a log file of blocks; raises ValueError at the first byte that is not as described."""
    found, at = [], 0
    while at < len(data):
        if data[at : at + 6] != _MAGIC:
            raise ValueError(f"no magic at {at}")
        size, version, kind = struct.unpack_from(">qii", data, at + 6)
        end = at + 14 + size
        if version != 1 or end > len(data):
            raise ValueError(f"block at {at}: version {version}, end {end} of {len(data)}")
        if struct.unpack_from(">q", data, end - 8)[0] != size + 6:
            raise ValueError(f"block at {at}: its trailer does not match its size")
        headers, position = _headers(data, at + 22)
        (length,) = struct.unpack_from(">q", data, position)
        content = data[position + 8 : position + 8 + length]
        found.append(_block(kind, headers, content))
        at = end
    return found


def _headers(data: bytes, at: int) -> tuple[dict[int, str], int]:
    (count,) = struct.unpack_from(">i", data, at)
    at += 4
    headers = {}
    for _ in range(count):
        key, length = struct.unpack_from(">ii", data, at)
        headers[key] = data[at + 8 : at + 8 + length].decode()
        at += 8 + length
    return headers, at


_schemas: dict[str, Any] = {}


def _block(kind: int, headers: dict[int, str], content: bytes) -> Block:
    block = Block(headers[0])
    if kind == 3:
        text = headers[2]
        if text not in _schemas:
            _schemas[text] = fastavro.parse_schema(json.loads(text))
        version, count = struct.unpack_from(">ii", content)
        if version != 3:
            raise ValueError(f"data block content version {version}")
        at = 8
        for _ in range(count):
            (length,) = struct.unpack_from(">i", content, at)
            reader = io.BytesIO(content[at + 4 : at + 4 + length])
            block.rows.append(fastavro.schemaless_reader(reader, _schemas[text], None))
            at += 4 + length
        if at != len(content):
            raise ValueError("bytes after the last record")
    elif kind == 1:
        version, length = struct.unpack_from(">ii", content)
        if version != 3:
            raise ValueError(f"delete block content version {version}")
        block.deletes = _deletes(content[8 : 8 + length])
    else:
        raise ValueError(f"unexpected block type {kind}")
    return block


def _long(data: io.BytesIO) -> int:
    shift = value = 0
    while True:
        byte = data.read(1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1)
        shift += 7


def _text(data: io.BytesIO) -> str | None:
    if _long(data) == 0:
        return None
    return data.read(_long(data)).decode()


def _deletes(content: bytes) -> list[Delete]:
    data = io.BytesIO(content)
    found: list[Delete] = []
    while (count := _long(data)) != 0:
        for _ in range(count):
            key, partition, branch = _text(data), _text(data), _long(data)
            if branch not in (2, 3):
                raise ValueError(f"delete with ordering branch {branch}")
            value = _long(data)
            found.append(Delete(key or "", partition or "", None if (branch, value) == (2, 0) else value))
    return found


def container(data: bytes) -> dict[str, Any]:
    """The one record of a timeline file."""
    records = list(fastavro.reader(io.BytesIO(data)))
    if len(records) != 1:
        raise ValueError(f"{len(records)} records in a timeline file")
    return records[0]


@dataclass(frozen=True)
class Archived:
    """One row of the archived timeline; ``file`` is the name of the archive file that holds it."""

    requested: str
    completion: str
    action: str
    metadata: bytes
    file: str


_archive_rows: dict[int, tuple[Inode, list[tuple]]] = {}


def archived(disk: Disk, folder: str = HISTORY) -> list[Archived]:
    """The instants of the current version of an archive, by requested time."""
    found = []
    for name in archive_files(disk, folder):
        found += [Archived(*row, name) for row in _rows_of(disk.need(f"{folder}/{name}"))]
    return sorted(found, key=lambda row: (row.requested, row.action))


def archive_files(disk: Disk, folder: str = HISTORY) -> list[str]:
    """The files that the current version of an archive names."""
    return files_of_archive(disk.folders.get(folder, {}))


def files_of_archive(folder: Mapping[str, Inode | None]) -> list[str]:
    """The files named by ``_version_``'s manifest or, where there is none, by the newest manifest."""
    current = folder.get("_version_")
    numbers = [int(match[1]) for match in map(_MANIFEST.match, folder) if match]
    if current is not None and current.data:
        numbers = [int(current.data)]
    newest = folder.get(f"manifest_{max(numbers)}") if numbers else None
    if newest is None:
        return []
    return [entry["fileName"] for entry in json.loads(bytes(newest.data))["files"]]


def _rows_of(inode: Inode) -> list[tuple]:
    """Rows of one archive file; it never changes, so it is decoded once."""
    known = _archive_rows.get(id(inode))
    if known is None or known[0] is not inode:
        if len(_archive_rows) > 200:
            _archive_rows.clear()
        columns = ["instantTime", "completionTime", "action", "metadata"]
        table = pq.read_table(pa.BufferReader(bytes(inode.data)), columns=columns)
        known = (inode, list(zip(*table.to_pydict().values(), strict=True)))
        _archive_rows[id(inode)] = known
    return known[1]


def base_rows(disk: Disk, path: str) -> list[dict[str, Any]]:
    """Rows of a base file with their five ``_hoodie_`` columns."""
    return pq.ParquetFile(pa.BufferReader(bytes(disk.need(path).data))).read().to_pylist()


def change_data(disk: Disk) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """Of each base file that a completed compaction wrote: the compaction's requested time, the base file's
    path, the one before it (None: there was none), and the files of change data."""
    for (requested, _, action), data in sorted(completed(disk).items()):
        record = container(data) if action == "commit" else {}
        for partition, stats in sorted((record.get("partitionToWriteStats") or {}).items()):
            for stat in stats:
                before, told = stat["prevBaseFile"], stat["cdcStats"]
                if record["operationType"] == "COMPACT" and log_file(stat["path"]) is None:
                    old = None if before is None else f"{partition}/{before}" if partition else before
                    yield requested, stat["path"], old, sorted(told or {})


def slices_before(disk: Disk) -> Iterator[tuple[str, str, list[str]]]:
    """Of each log file of a completed write: requested time, name, and other files that its stat names."""
    for (requested, _, action), data in sorted(completed(disk).items()):
        record = container(data) if action == "deltacommit" else {}
        for _, stats in sorted((record.get("partitionToWriteStats") or {}).items()):
            for stat in stats:
                own = stat["path"].rpartition("/")[2]
                named = {stat["baseFile"] or "", *(stat["logFiles"] or ())} - {"", own}
                if log_file(own) is not None:
                    yield requested, own, sorted(named)


def instant_of(name: str) -> str:
    """The instant in the name of a data file."""
    log = log_file(name)
    return log.instant if log is not None else name.removesuffix(".parquet").rsplit("_", 1)[-1]


@dataclass
class CommitOnDisk:
    """A completed write as its files show it."""

    requested: str
    completion: str
    action: str
    paths: list[str]
    extra: dict[str, str]
    operation: str = ""
    #: (partition, file id) of the file groups that it replaced
    replaced: frozenset[tuple[str, str]] = frozenset()

    @property
    def is_service(self) -> bool:
        """Whether it only arranged rows that others wrote."""
        return self.operation in ("COMPACT", "LOG_COMPACT", "CLUSTER", "BUCKET_RESCALE")


def commit_on_disk(requested: str, completion: str, action: str, data: bytes) -> CommitOnDisk:
    """A completed write from the bytes of its timeline file."""
    record = container(data)
    stats = record["partitionToWriteStats"] or {}
    paths = [stat["path"] for partition in stats.values() for stat in partition]
    extra = record["extraMetadata"] or {}
    operation = record["operationType"] or ""
    gone = record.get("partitionToReplaceFileIds") or {}
    replaced = frozenset((partition, file_id) for partition, ids in gone.items() for file_id in ids)
    return CommitOnDisk(requested, completion, action, paths, extra, operation, replaced)


def completed(disk: Disk) -> dict[tuple[str, str, str], bytes]:
    """(requested, completion, action) -> content of everything completed, active or archived."""
    found = {(row.requested, row.completion, row.action): row.metadata for row in archived(disk)}
    for name in disk.folders.get(TIMELINE, {}):
        parsed = timeline_name(name)
        if parsed is not None and parsed.completion is not None:
            key = (parsed.requested, parsed.completion, parsed.action)
            found[key] = bytes(disk.need(f"{TIMELINE}/{name}").data)
    return found


def commits(disk: Disk) -> list[CommitOnDisk]:
    """Completed delta commits of writers, active or archived, in order of completion time."""
    found = [
        commit_on_disk(*key, data) for key, data in completed(disk).items() if key[2] == "deltacommit"
    ]
    return sorted((c for c in found if not c.is_service), key=lambda commit: commit.completion)


def compactions(disk: Disk) -> set[str]:
    """Requested times of compactions, planned or done."""
    names = filter(None, map(timeline_name, disk.folders.get(TIMELINE, {})))
    return {name.requested for name in names if name.action in ("compaction", "commit")}


def pending(disk: Disk) -> dict[str, str]:
    """Requested time -> action of every instant that is neither completed nor gone."""
    done, waiting = set(), {}
    for name in disk.folders.get(TIMELINE, {}):
        parsed = timeline_name(name)
        if parsed is not None and parsed.completion is not None:
            done.add(parsed.requested)
        elif parsed is not None:
            waiting[parsed.requested] = parsed.action
    return {time: action for time, action in sorted(waiting.items()) if time not in done}
