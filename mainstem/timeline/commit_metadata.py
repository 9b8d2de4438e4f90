"""HoodieCommitMetadata: the content of a completed commit, delta commit or replace commit.

Field names, order and union branches are Java's; readers resolve by name.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.forks import Mutex
from mainstem.formats.avro_container import OUR_MARK, decode_container, encode_container, part
from mainstem.formats.avro_datum import Encoded, writer_of_some
from mainstem.limits import KIB
from mainstem.storage import paths

VERSION_MARK = {OUR_MARK: b"1"}
STREAM_KEY = "_hudi_streaming_sink_checkpoint"
_STAT_LONGS = (
    "numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors",
    "totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts",
    "totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes",
    "totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted", "numUpdates",
)  # fmt: skip
# What Java's append handle writes for every log file alike.
_APPENDED = {
    **dict.fromkeys(_STAT_LONGS, 0),
    "logOffset": 0,
    "runtimeStats": {"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": 0},
}


@cache
def schema_text(name: str) -> str:
    """Java's writer schema of one kind of timeline file, compact JSON."""
    text = resources.files("mainstem.timeline").joinpath(f"schemas/{name}.avsc").read_text("utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"))


@cache
def _appended() -> Callable[[Mapping[str, Any]], Encoded]:
    own = WriteStat("", "", "", "", 1)._own()
    # A field that the record lacks gets the schema's default, whatever it is.
    same = {name: value for name, value in _APPENDED.items() if name not in own}
    return writer_of_some(schema_text("HoodieCommitMetadata"), "HoodieWriteStat", same)


#: operations of delta commits that hide what is older in their partitions (``writers.overwriting``)
OVERWRITES = frozenset(("INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE"))


#: in the extra metadata of a delta commit that wrote all rows by another number of buckets: before>after
RESIZED_KEY = "mainstem.resized"


@dataclass(frozen=True)
class SliceBefore:
    """A file slice that log files are added to, as their write stats name it: Java's queries of change data
    compare with it (``HoodieCDCExtractor``). ``base_file``: "" if there is none."""

    base_instant: str
    base_file: str = ""
    log_files: tuple[str, ...] = ()


@dataclass
class WriteStat:
    """One data file that a commit wrote (HoodieDeltaWriteStat of a v8+ log append)."""

    partition: str
    file_id: str
    file_name: str
    instant: str
    version: int
    writes: int = 0
    deletes: int = 0
    size_bytes: int = 0
    blocks: int = 0
    #: it gets its name when the instant completes (``publish.showing``)
    unshown: bool = False
    #: of a deletes file: the file of rows that was written with it
    beside: str = ""
    #: where the table records change data: what the file group held when this was about to complete
    follows: SliceBefore | None = None

    @property
    def path(self) -> str:
        """Path relative to the table."""
        return paths.in_partition(self.partition, self.file_name)

    @property
    def stored_at(self) -> str:
        """Where the file is before the instant completes."""
        return paths.unshown(self.instant, self.partition, self.file_name) if self.unshown else self.path

    def record(self) -> dict[str, Any]:
        """The Avro record as Java fills it: prevCommit is this instant, logFiles holds only this file, and
        beside deletes the rows of the same version. Where the table records change data, prevCommit,
        baseFile and logFiles tell the file slice before, too."""
        return {**_APPENDED, **self._own()}

    def encoded(self) -> Encoded:
        """``record`` as its bytes. Most of its forty fields are the same in each."""
        return _appended()(self._own())

    def _own(self) -> dict[str, Any]:
        before = self.follows or SliceBefore(self.instant)
        beside = (self.beside,) if self.beside else ()
        return {
            "numWrites": self.writes,
            "numDeletes": self.deletes,
            "numUpdateWrites": self.writes,
            "totalWriteBytes": self.size_bytes,
            "fileSizeInBytes": self.size_bytes,
            "fileId": self.file_id,
            "path": self.path,
            "prevCommit": before.base_instant,
            "partitionPath": self.partition,
            "logVersion": self.version,
            "baseFile": before.base_file,
            "logFiles": [*before.log_files, *beside, self.file_name],
        }


class NewKeysStat(WriteStat):
    """A log file of keys that were nowhere before, as Java's append handle reports inserts."""

    def record(self) -> dict[str, Any]:
        """As of any log file, but for the numbers of inserts and updates."""
        return {**super().record(), "numInserts": self.writes, "numUpdateWrites": 0}


@dataclass(frozen=True)
class CompactionStat:
    """One base file that a compaction wrote (HoodieWriteStat as Java's compaction fills it).

    ``log_rows`` counts rows and deleted keys of the merged log files; ``kept``: the log file of deletes that
    it keeps beside the base file, if any; ``changes``: path and size of its file of change data, if any.
    """

    partition: str
    file_id: str
    file_name: str
    base_instant: str
    base_file: str | None
    rows: int
    size_bytes: int
    log_files: int
    log_bytes: int
    log_rows: int
    taken_ms: int
    kept: WriteStat | None = None
    changes: tuple[str, int] | None = None

    def record(self) -> dict[str, Any]:
        """The Avro record. Fields that are not counted or do not apply are null."""
        longs: dict[str, Any] = dict.fromkeys(_STAT_LONGS)
        longs.update(
            numWrites=self.rows,
            numDeletes=0,
            numUpdateWrites=0,
            numInserts=0,
            totalWriteErrors=0,
            totalCorruptLogBlock=0,
            totalRollbackBlocks=0,
            totalWriteBytes=self.size_bytes,
            fileSizeInBytes=self.size_bytes,
            totalLogRecords=self.log_rows,
            totalUpdatedRecordsCompacted=self.log_rows,
            totalLogFilesCompacted=self.log_files,
            totalLogSizeCompacted=self.log_bytes,
        )
        return {
            **longs,
            "fileId": self.file_id,
            "path": paths.in_partition(self.partition, self.file_name),
            "prevCommit": self.base_instant,
            "prevBaseFile": self.base_file,
            **({} if self.changes is None else {"cdcStats": dict([self.changes])}),
            "partitionPath": self.partition,
            "runtimeStats": {
                "totalScanTime": 0,
                "totalCreateTime": 0,
                "totalUpsertTime": self.taken_ms,
            },
        }


@dataclass(frozen=True)
class LogCompactionStat:
    """One log file that a log compaction wrote (HoodieDeltaWriteStat as Java's append handle fills it).

    ``merged``: rows and deleted keys in this file; ``log_rows``: those in the log files it merges;
    ``beside``: the native file of deletes that it wrote with one of rows.
    """

    partition: str
    file_id: str
    file_name: str
    base_instant: str
    writes: int
    deletes: int
    size_bytes: int
    log_files: int
    log_blocks: int
    log_bytes: int
    log_rows: int
    taken_ms: int
    beside: WriteStat | None = None

    @property
    def merged(self) -> int:
        return self.writes + self.deletes

    def record(self) -> dict[str, Any]:
        """The Avro record."""
        written = WriteStat(
            self.partition, self.file_id, self.file_name, self.base_instant, 1,
            self.writes, self.deletes, self.size_bytes,
        )  # fmt: skip
        return {
            **written.record(),
            "totalLogRecords": self.log_rows,
            "totalLogBlocks": self.log_blocks,
            "totalLogFilesCompacted": self.log_files,
            "totalLogSizeCompacted": self.log_bytes,
            "totalUpdatedRecordsCompacted": self.merged,
            "runtimeStats": {"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": self.taken_ms},
        }


AnyStat = WriteStat | CompactionStat | LogCompactionStat


@dataclass
class CommitMetadata:
    """Decoded metadata of a completed commit, delta commit or replace commit."""

    operation: str = "UNKNOWN"
    #: partition path -> write stats as plain dictionaries (Java's field names)
    stats: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    #: partition path -> replaced file ids (replace commits only)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    compacted: bool = False
    #: written by mainstem
    ours: bool = False

    @property
    def schema(self) -> str | None:
        """Avro JSON of the user schema, or None if the writer recorded none."""
        return self.extra.get("schema") or None

    def written_groups(self) -> set[tuple[str, str]]:
        """(partition, file id) of the file groups that files were written to."""
        return {(p, str(stat.get("fileId") or "")) for p, stats in self.stats.items() for stat in stats}

    def replaced_groups(self) -> set[tuple[str, str]]:
        """(partition, file id) of the file groups that were replaced."""
        return {(p, file_id) for p, ids in self.replaced.items() for file_id in ids}

    def files(self) -> list[str]:
        """Paths of all files written, relative to the table."""
        return [s["path"] for stats in self.stats.values() for s in stats if s.get("path")]


def every_file(stats: Iterable[AnyStat]) -> Iterator[AnyStat]:
    """The stats, and behind that of a file that of the deletes which are kept, or were written, beside it."""
    for stat in stats:
        yield stat
        if isinstance(stat, CompactionStat) and stat.kept is not None:
            yield stat.kept
        if isinstance(stat, LogCompactionStat) and stat.beside is not None:
            yield stat.beside


def encode_commit(
    stats: Sequence[AnyStat],
    extra: Mapping[str, str],
    operation: str,
    *,
    compacted: bool = False,
) -> bytes:
    """Bytes of a completed ``.deltacommit`` or ``.commit``; without stats, of an inflight file."""
    if not stats:
        return _without_files(tuple(extra.items()), operation, compacted)
    by_partition: dict[str, list[dict[str, Any] | Encoded]] = {}
    for stat in every_file(stats):
        # Of the very kind: that of a base file is a kind of it, with other values.
        encoded = stat.encoded() if type(stat) is WriteStat else stat.record()
        by_partition.setdefault(stat.partition, []).append(encoded)
    return _encoded(by_partition, extra, operation, compacted)


def encode_replace_commit(
    stats: Sequence[WriteStat],
    extra: Mapping[str, str],
    operation: str,
    replaced: Mapping[str, Sequence[str]],
) -> bytes:
    """Bytes of a completed ``.replacecommit``; ``replaced``: partition -> ids of the file groups that go."""
    by_partition: dict[str, list[dict[str, Any] | Encoded]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition, []).append(stat.record())
    record = {
        **_record(by_partition, extra, operation, False),
        "partitionToReplaceFileIds": {partition: list(ids) for partition, ids in replaced.items()},
    }
    return encode_container(schema_text("HoodieReplaceCommitMetadata"), record, VERSION_MARK)


@lru_cache(maxsize=4)
def _without_files(extra: tuple[tuple[str, str], ...], operation: str, compacted: bool) -> bytes:
    """Each of a writer's inflight files is the same."""
    return _encoded({}, dict(extra), operation, compacted)


def _encoded(
    by_partition: Mapping[str, list[dict[str, Any] | Encoded]],
    extra: Mapping[str, str],
    operation: str,
    compacted: bool,
) -> bytes:
    record = _record(by_partition, extra, operation, compacted)
    return encode_container(schema_text("HoodieCommitMetadata"), record, VERSION_MARK)


def _record(
    by_partition: Mapping[str, list[dict[str, Any] | Encoded]],
    extra: Mapping[str, str],
    operation: str,
    compacted: bool,
) -> dict[str, Any]:
    return {
        "partitionToWriteStats": by_partition,
        "compacted": compacted,
        "extraMetadata": dict(extra),
        "version": None,
        "operationType": operation,
    }


#: contents up to so many bytes are remembered, so many of the newest, for services that look at each other's
_REMEMBERED_BYTES, _REMEMBERED = 32 * KIB, 128
_remembered: OrderedDict[bytes, CommitMetadata] = OrderedDict()
_mutex = Mutex()


def decode_commit(data: bytes, *, path: str) -> CommitMetadata:
    """Decode the metadata of a completed write, and check that every path in it stays inside the table.

    Equal contents may give one object: change nothing in it. Raises ``CorruptTable`` for an empty file, a
    damaged container or a hostile path.
    """
    data = bytes(data)
    with _mutex.held:
        found = _remembered.get(data)
    if found is None:
        found = _decoded(data, path)
        if len(data) <= _REMEMBERED_BYTES:
            with _mutex.held:
                _remembered[data] = found
                while len(_remembered) > _REMEMBERED:
                    _remembered.popitem(last=False)
    return found


def _decoded(data: bytes, path: str) -> CommitMetadata:
    if not data:
        raise CorruptTable("completed instant without content", path=path, offset=0)
    record, header = decode_container(data, path=path)
    by_partition = part(record.get("partitionToWriteStats"), dict, path)
    stats = {p: [part(s, dict, path) for s in part(found, list, path)] for p, found in by_partition.items()}
    for partition, partition_stats in stats.items():
        if partition:
            paths.inside(partition, source=path)
        for stat in partition_stats:
            if stat.get("path"):
                paths.inside(part(stat["path"], str, path), source=path)
    extra = part(record.get("extraMetadata"), dict, path)
    replaced = part(record.get("partitionToReplaceFileIds"), dict, path)
    return CommitMetadata(
        operation=part(record.get("operationType"), str, path) or "UNKNOWN",
        stats=stats,
        extra={k: part(v, str, path) for k, v in extra.items() if v is not None},
        replaced={p: [part(v, str, path) for v in part(ids, list, path)] for p, ids in replaced.items()},
        compacted=bool(record.get("compacted")),
        ours=OUR_MARK in header,
    )
