"""One delta commit of the metadata table, published together with the data table's action that it describes.

It has the action's requested time T and is published ahead of the action, in one critical section:

  1. outside the lock: make the rows for every listed partition; write the rows of each touched file group, as
     the content of one log file, to a private file; write the completed file to another one. They are made
     durable together with what the action itself has written
  2. [[ the action's own checks (is T still ours?); partitions and file groups must be those of step 1, else
     the section ends and everything starts again at 1
  3.    if T is already completed on the metadata table's timeline, skip 4 to 7
  4.    create ``T.deltacommit.requested`` and ``.inflight`` on the metadata table's timeline
  5.    link the log files from the private files, under names that hold T
  6.    the ticket of the first file: ``T_C.deltacommit`` of the metadata table
  7.    make the folders of 4 to 6 durable
  8.    the ticket of the second file: the action's own completed file ]]
  9. if an earlier attempt got to 4: remove T's files of indexes that were dropped since

**Why every name in the metadata table is created under the lock.** Step 1 takes the time; the lock is held
only for a few links. In return, a living writer never leaves a pending instant on the metadata table for
others to find: Flink and Java's Spark writers roll back such instants on sight, without checking heartbeats.
Nor is there a log file whose instant the metadata table does not know: Java would not remove such a file when
it rolls T back, and would show it when it executes a service's plan again under the same T.

**A crash** in step 1 leaves private files, which a sweep removes. From 4 on it leaves T pending on the data
table and parts of T in the metadata table; after 6, T is completed there. No reader honours it: a log block
counts only if its instant is completed on the data table, or completed on the metadata table *and not
pending* on the data table. A rollback of T removes it from the metadata table first (``taking_back``);
another executor of a service's plan resumes at 3.

**A process that stalls and resumes** in 2 to 8 has lost both tickets and publishes nothing. In 4 and 5 it
creates files of an instant that has been rolled back or completed. If completed, the names already exist with
the same content, which depends only on T's own files. If rolled back, the process finds out at its next
attempt and removes them (``forget``); if it is killed before that, it leaves a pending instant that
``taking_back`` sweeps. Until then readers do not see them: the rolled-back T is completed on neither
timeline.

**Two executors of one service's plan** make the same log files, and the second one reuses those of the first.
**Two writers** have two instants and never touch each other's files: the metadata table is written without
conflicts, like the data table. Their rows are merged by completion order. A writer's rows name only its own
files, so any order gives the same result.

Completion times: the metadata table's lies below the data table's, and both lie above everything on both
timelines. A compaction of the metadata table is planned under the same lock, so it sees each delta commit
either as completed before it, or not at all.

Hudi: ``HoodieBackedTableMetadataWriter`` (``startCommit``, ``completeStreamingCommit``), HUDI-9407.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Unavailable
from mainstem.layout.properties import TableConfig
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.metadata.commits.action import Action, FileChanges
from mainstem.metadata.commits.partition_rows import Maintained, encoded_rows
from mainstem.metadata.commits.taking_back import files_of, metadata_partition
from mainstem.metadata.records.group_logs import GroupLogs
from mainstem.metadata.records.recent_rows import SMALL_BYTES, FileRows, RecentRows
from mainstem.metadata.records.record_schema import commit_schema
from mainstem.publish.publisher import Ahead
from mainstem.publish.staging import is_same, private_name, put_once
from mainstem.storage import maps, paths
from mainstem.storage.protocol import Storage, Upload
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import WriteStat, decode_commit, encode_commit
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED
from mainstem.truetime.seams import Randomness

# The operation that Java's writers of the metadata table put into their delta commits.
_OPERATION = "UPSERT_PREPPED"


@dataclass(frozen=True)
class _Log:
    private: str
    stat: WriteStat
    rows: FileRows | None  # None: no rows, or too many to keep

    @property
    def path(self) -> str:
        return f"{metadata_partition(self.stat.partition)}/{self.stat.file_name}"


@dataclass
class MetadataCommit:
    """The result of step 1, for the section; ``maintained``: the partitions for which it was made.

    ``repeated``: an earlier attempt at the instant, maybe of another process, got to step 4.
    """

    storage: Storage
    instant: str
    maintained: Maintained
    logs: tuple[_Log, ...]
    completed: str
    repeated: bool = False

    @classmethod
    def prepare(
        cls,
        storage: Storage,
        random: Randomness,
        instant: str,
        config: TableConfig,
        maintained: Maintained,
        changes: FileChanges,
        settle: Callable[[Sequence[Upload]], None],
    ) -> MetadataCommit:
        """Make the rows and write them to private files; the metadata table does not change yet.

        ``settle`` makes these files durable, together with all else that the action has written.
        """
        files = GroupLogs(config.version, instant)
        action = Action(storage, instant, config, changes)
        logs, sinks = [], []

        def private(data: Sequence[bytes | memoryview]) -> str:
            path = private_name(random, instant)
            sinks.append(storage.upload(path))
            sinks[-1].append(data)
            return path

        try:
            for found in encoded_rows(action, maintained, files.schema):
                contents = files.contents(found.keys, found.values, found.bounds)
                held = found.keys.nbytes + found.values.nbytes
                small = held <= SMALL_BYTES
                parts = zip(found.groups, found.bounds, found.counts, contents, strict=False)
                for group, low, count, content in parts:
                    content = content if count else files.first()
                    size = sum(map(len, content))
                    stat = WriteStat(
                        found.partition, group, files.name(group), instant, 1, count, 0, size, 1
                    )
                    some = found.keys.slice(low, count), found.values.slice(low, count)
                    mine = held * count // max(1, len(found.keys))
                    rows = FileRows(*some, files.schema, size, mine) if count and small else None
                    logs.append(_Log(private(content), stat, rows))
            extra = {"schema": commit_schema(config.version)}
            completed = private([encode_commit([log.stat for log in logs], extra, _OPERATION)])
        except BaseException:
            for sink in sinks:
                with suppress(OSError):
                    sink.close(durable=False)
            raise
        settle(sinks)
        return cls(storage, instant, maintained, tuple(logs), completed)

    @property
    def ahead(self) -> Ahead:
        """Steps 3 to 7, for ``Publisher.publish``."""
        folders = sorted({metadata_partition(log.stat.partition) for log in self.logs})
        return Ahead(
            (paths.METADATA_TIMELINE, *folders),
            self.completed,
            lambda time: f"{self.instant}_{time}.{DELTACOMMIT}",
            self._ready,
        )

    def _ready(self, timeline: ActiveTimeline) -> bool:
        """Steps 3 to 5; returns whether the instant is still to be completed."""
        done = timeline.completion_of(self.instant, DELTACOMMIT)
        if done is not None:
            self.repeated = True
            self._check_covered(f"{self.instant}_{done}.{DELTACOMMIT}")
            return False
        self.repeated |= timeline.has(f"{self.instant}.{DELTACOMMIT}.{REQUESTED}")
        begun = f"{paths.METADATA_TIMELINE}/{self.instant}.{DELTACOMMIT}"
        self.storage.create_all([f"{begun}.{REQUESTED}", f"{begun}.{INFLIGHT}"])
        for log in self.logs:
            if not put_once(self.storage, log.private, log.path) and not is_same(
                self.storage, log.private, log.path
            ):
                self._check_same(log)
        return True

    def _check_same(self, log: _Log) -> None:
        """Check that an earlier attempt's file has the same content. It has not if the index has since been
        dropped and made anew with another definition."""
        if maps.view(self.storage, log.private) != maps.view(self.storage, log.path):
            raise Unavailable(
                f"the index {log.stat.partition} was rebuilt while an earlier attempt at {self.instant} was"
                " stalled; nothing was published: roll that instant back and repeat it",
                table=self.storage.base,
                instant=self.instant,
            )

    def _check_covered(self, name: str) -> None:
        """Check that an earlier attempt, which completed T only here, wrote all partitions."""
        path = f"{paths.METADATA_TIMELINE}/{name}"
        try:
            found = decode_commit(self.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)
        except (FileNotFoundError, CorruptTable) as error:
            raise Unavailable(
                f"what an earlier attempt at {self.instant} wrote to the metadata table is not readable"
                f" ({error}); nothing was published: roll it back and repeat it",
                table=self.storage.base,
                instant=self.instant,
            ) from error
        missing = {log.stat.partition for log in self.logs} - set(found.stats)
        if missing:
            raise Unavailable(
                f"the index {min(missing)} was added while an earlier attempt at {self.instant} was stalled;"
                " nothing was published: roll that instant back and repeat it",
                table=self.storage.base,
                instant=self.instant,
            )

    def remember(self, recent: RecentRows) -> None:
        """Once the action is completed: keep the rows for this process's own look-ups and compactions."""
        for log in self.logs:
            if log.rows is not None:
                recent.keep(paths.in_partition(log.stat.partition, log.stat.file_name), log.rows)

    def leave_dropped(self) -> None:
        """Once the action is completed: remove what an earlier attempt wrote for indexes that were dropped
        since. The dropper left these files, as those of a pending instant may be made again; from now on
        nobody makes them. What fails is left until the index is dropped again, or before it is made anew."""
        if not self.repeated:
            return
        listed = {partition for partition, _ in self.maintained.groups}
        with suppress(OSError):
            for partition, name in files_of(self.storage, self.instant):
                if partition not in listed:
                    self.storage.delete(f"{metadata_partition(partition)}/{name}")

    def release(self) -> None:
        """Remove the private files; what fails is left to a later sweep."""
        with suppress(OSError):
            self.storage.delete_all([*(log.private for log in self.logs), self.completed])

    def forget(self) -> None:
        """Remove what this process made after its instant was rolled back while it stalled."""
        for log in self.logs:
            self.storage.delete(log.path)
        for state in (INFLIGHT, REQUESTED):
            self.storage.delete(f"{paths.METADATA_TIMELINE}/{self.instant}.{DELTACOMMIT}.{state}")
