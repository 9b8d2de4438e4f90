"""One delta commit of the metadata table, beside the action of the data table that it describes.

It has the action's requested time T, and is published ahead of it in one critical section:

  1. outside the lock: the rows of every listed partition are made, each touched file group's rows become the
     content of one log file, which is written to a private file; so is the completed file. They are made
     durable together with what the action itself has written
  2. [[ the action's own checks (is T still ours?); partitions and file groups are those of 1, else the
     section ends and everything begins with 1 again
  3.    T is not completed on the metadata table's timeline; else 4 to 7 are left out
  4.    ``T.deltacommit.requested`` and ``.inflight`` are made on the metadata table's timeline
  5.    the log files are linked from the private files, under names that hold T
  6.    the ticket of the first file: ``T_C.deltacommit`` of the metadata table
  7.    the folders of 4 to 6 are made durable
  8.    the ticket of the second file: the action's own completed file ]]

**Why all that has a name in the metadata table is made under the lock.** The rows cost their time in 1;
what is left are a few links. In return nobody finds a pending instant of ours on the metadata table beside
a living writer: Flink and Java's Spark writers roll such instants back when they find them, without a look
at heartbeats. Nor does a log file exist whose instant the metadata table does not know, which Java would
not remove when it rolls T back, and would show when it executes a service's plan again under the same T.

**A crash** in 1 leaves private files, which are swept. From 4 on it leaves T pending on the data table and
something of T in the metadata table; after 6 T is completed there. No reader honours it: a log block counts
only if its instant is completed on the data table, or completed on the metadata table *and not pending* on
the data table. Whoever rolls T back takes it from the metadata table first (``taking_back``); who executes
a service's plan goes on from 3.

**A process that was stopped and wakes up** in 2 to 8 has lost both tickets, and publishes nothing. In 4 and
5 it makes files of an instant that was rolled back, or is completed. Completed: the names are there
already, with the same content, for all in them follows from T's own files. Rolled back: it finds out at its
next attempt and removes them (``forget``); killed before that, it leaves a pending instant that
``taking_back`` sweeps. Until then they show nothing: the rolled-back T is completed on neither timeline.

**Two executors of one service's plan** make the same log files, and whoever comes second takes those of the
first. **Two writers** have two instants and never touch each other's files: the metadata table is written
without conflicts, as the data table is. Their rows are merged by completion order. A writer's rows name its
own files only, so any order gives the same answer.

Completion times: that of the metadata table lies below that of the data table, and both above everything on
both timelines, so that a compaction of the metadata table, which is planned under the same lock, sees each
delta commit either completed before it, or not at all.

Hudi: ``HoodieBackedTableMetadataWriter`` (``startCommit``, ``completeStreamingCommit``), HUDI-9407.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Unavailable
from mainstem.formats.log_file import empty_group_block, hfile_blocks
from mainstem.layout.properties import TableConfig
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.metadata.commits.action import Action, FileChanges
from mainstem.metadata.commits.partition_rows import Maintained, encoded_rows
from mainstem.metadata.commits.taking_back import metadata_partition
from mainstem.metadata.records.record_schema import commit_schema, schema_of_version
from mainstem.publish.publisher import Ahead
from mainstem.publish.staging import create_once, delete_quietly, private_name, put_once
from mainstem.storage import maps, paths
from mainstem.storage.protocol import Storage, Upload
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import WriteStat, decode_commit, encode_commit
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED
from mainstem.truetime.seams import Randomness

# What Java's writers of the metadata table call their delta commits.
_OPERATION = "UPSERT_PREPPED"
# The name of a log file follows from its instant and its file group: whoever makes it makes the same.
_TOKEN = "0-0-0"


@dataclass(frozen=True)
class _Log:
    private: str
    stat: WriteStat

    @property
    def path(self) -> str:
        return f"{metadata_partition(self.stat.partition)}/{self.stat.file_name}"


@dataclass(frozen=True)
class MetadataCommit:
    """Step 1, done: what the section needs. ``maintained``: the partitions that it was made for."""

    storage: Storage
    instant: str
    maintained: Maintained
    logs: tuple[_Log, ...]
    completed: str

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
        """Make the rows and write them to private files; nothing of it is in the metadata table yet.

        ``settle`` makes these files durable, and what else the action has written, all at once.
        """
        schema = schema_of_version(config.version)
        action = Action(storage, instant, config, changes)
        logs, sinks = [], []

        def private(data: list[bytes | memoryview]) -> str:
            path = private_name(random, instant)
            sinks.append(storage.upload(path))
            sinks[-1].append(data)
            return path

        try:
            for found in encoded_rows(action, maintained, schema):
                blocks = hfile_blocks(instant, schema, found.keys, found.values, found.bounds)
                for group, count, block in zip(found.groups, found.counts, blocks, strict=True):
                    block = block if count else empty_group_block(instant)
                    stat = WriteStat(
                        found.partition, group, paths.log_name(group, instant, 1, _TOKEN), instant, 1,
                        count, 0, sum(map(len, block)), 1,
                    )  # fmt: skip
                    logs.append(_Log(private(block), stat))
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
        """Steps 3 to 5. Whether the instant is still to be completed."""
        done = timeline.completion_of(self.instant, DELTACOMMIT)
        if done is not None:
            self._check_covered(f"{self.instant}_{done}.{DELTACOMMIT}")
            return False
        for state in (REQUESTED, INFLIGHT):
            create_once(self.storage, f"{paths.METADATA_TIMELINE}/{self.instant}.{DELTACOMMIT}.{state}")
        for log in self.logs:
            if not put_once(self.storage, log.private, log.path):
                self._check_same(log)
        return True

    def _check_same(self, log: _Log) -> None:
        """An earlier attempt's file has the same content, unless it was made for an index that somebody has
        since dropped and made anew of something else."""
        if maps.view(self.storage, log.private) != maps.view(self.storage, log.path):
            raise Unavailable(
                f"the index {log.stat.partition} was made anew while an earlier attempt at {self.instant}"
                " stood still; nothing was published: roll it back and do it again",
                table=self.storage.base,
                instant=self.instant,
            )

    def _check_covered(self, name: str) -> None:
        """An earlier attempt completed T here, not on the data table: it must have written all partitions."""
        path = f"{paths.METADATA_TIMELINE}/{name}"
        try:
            found = decode_commit(self.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)
        except (FileNotFoundError, CorruptTable) as error:
            raise Unavailable(
                f"what an earlier attempt at {self.instant} wrote to the metadata table is not readable"
                f" ({error}); nothing was published: roll it back and do it again",
                table=self.storage.base,
                instant=self.instant,
            ) from error
        missing = {log.stat.partition for log in self.logs} - set(found.stats)
        if missing:
            raise Unavailable(
                f"the index {min(missing)} was added while an earlier attempt at {self.instant} stood"
                " still; nothing was published: roll it back and do it again",
                table=self.storage.base,
                instant=self.instant,
            )

    def release(self) -> None:
        """Remove the private files, now or, if that fails, with a later sweep."""
        for private in (*(log.private for log in self.logs), self.completed):
            delete_quietly(self.storage, private)

    def forget(self) -> None:
        """The instant was rolled back while this process stood still: remove what it made since."""
        for log in self.logs:
            self.storage.delete(log.path)
        for state in (INFLIGHT, REQUESTED):
            self.storage.delete(f"{paths.METADATA_TIMELINE}/{self.instant}.{DELTACOMMIT}.{state}")
