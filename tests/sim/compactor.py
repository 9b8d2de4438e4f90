"""A compactor for the simulated world: plans and executes compactions as Java does (format-core 3.6).

mainstem has no compaction yet, but its readers and writers meet compactions, and file slices only mean
something with them. Rows are merged here with the plain rules of ``oracle`` for tables where the newest
event time wins and no two rows share one, so that a compaction changes no answer.
"""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.api.real_seams import fence_of
from mainstem.formats.avro_container import encode_container
from mainstem.publish.publisher import Publisher
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import (
    VERSION_MARK,
    WriteStat,
    encode_commit,
    schema_text,
)
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from tests.sim import plain_format as plain
from tests.sim.plain_format import TIMELINE, LogFile
from tests.sim.sim_storage import Disk

Group = tuple[str, str]


class Compactor:
    """Compactions of one table by one process; an heir goes on with the plan that it finds."""

    def __init__(self, seams: Seams, disk: Disk, *, exclusive: bool) -> None:
        self._seams = seams
        self._disk = disk
        fence = fence_of(seams, None)
        self._publisher = Publisher(seams, InstantTimes(), fence, skew=ClockSkew(200), exclusive=exclusive)

    def run(self) -> None:
        """Finish the pending plan, or make one and execute it."""
        self._publisher.end_doubt()  # on a store: whether the one before completed it
        waiting = [t for t, action in plain.pending(self._disk).items() if action == "compaction"]
        time = waiting[0] if waiting else self._schedule()
        self._execute(time)

    def _schedule(self) -> str:
        if has_swaps(self._seams.storage):
            published = self._publisher.publish(
                lambda time: f"{time}.compaction.requested",
                prepared=lambda timeline: self._private(self.content()),
            )
            assert published.time is not None
            return published.time
        prepared = f"{paths.PREPARED}/plan-{self._seams.random.getrandbits(64):016x}"
        self._seams.storage.put_new(prepared, b"plan", durable=True)

        def plan(time: str) -> None:
            # Under the lock: all that completed so far did so before this time.
            inode = self._disk.need(prepared)
            inode.data[:] = self.content()
            inode.synced = len(inode.data)

        published = self._publisher.publish(
            lambda time: f"{time}.compaction.requested", prepared=prepared, before_link=plan
        )
        self._seams.storage.delete(prepared)
        assert published.time is not None
        return published.time

    def _private(self, content: bytes) -> str:
        prepared = f"{paths.PREPARED}/plan-{self._seams.random.getrandbits(64):016x}"
        self._seams.storage.put_new(prepared, content, durable=True)
        return prepared

    def content(self, before: str = "9", marks: dict[str, str] = VERSION_MARK) -> bytes:
        """A plan that holds the commits with completion times before ``before``, and ``marks``."""
        return encode_container(schema_text("HoodieCompactionPlan"), self._plan(before), marks)

    def _plan(self, before: str) -> dict[str, Any]:
        commits = plain.commits(self._disk)
        done = {c.requested: c.completion for c in commits if c.completion < before}
        groups: dict[Group, list[LogFile]] = {}
        for log in plain.log_files(self._disk):
            if log.instant in done:
                groups.setdefault((log.partition, log.file_id), []).append(log)
        bases = latest_bases(self._disk)
        operations = []
        for (partition, file_id), logs in sorted(groups.items()):
            base = bases.get((partition, file_id))
            fresh = [log for log in logs if base is None or done[log.instant] >= base.instant]
            if fresh:
                operations.append(
                    {
                        "baseInstantTime": base.instant if base else fresh[0].instant,
                        "deltaFilePaths": [log.path.rsplit("/", 1)[-1] for log in fresh],
                        "dataFilePath": base.name if base else None,
                        "fileId": file_id,
                        "partitionPath": partition,
                        "metrics": {"TOTAL_LOG_FILES": float(len(fresh)), "TOTAL_LOG_FILES_SIZE": 1.0},
                        "bootstrapFilePath": None,
                    }
                )
        return {"operations": operations, "extraMetadata": None, "version": 2}

    def _execute(self, time: str) -> None:
        storage = self._seams.storage
        plan = plain.container(bytes(self._disk.need(f"{TIMELINE}/{time}.compaction.requested").data))
        inflight = f"{TIMELINE}/{time}.compaction.inflight"
        if storage.stat(inflight) is None:
            storage.put_new(inflight, b"", durable=False)
        self._forget_attempts(time)
        stats = [self._compact(time, operation) for operation in plan["operations"]]
        storage.settle([], sorted({stat.partition for stat in stats} | {""}), durable=True)
        self._complete(time, stats)

    def _complete(self, time: str, stats: list[WriteStat]) -> None:
        prepared = f"{paths.PREPARED}/commit-{self._seams.random.getrandbits(64):016x}"
        self._seams.storage.put_new(prepared, encode_commit(stats, {}, "COMPACT"), durable=True)
        self._publisher.publish(lambda done: f"{time}_{done}.commit", prepared=prepared)
        self._seams.storage.delete(prepared)

    def _forget_attempts(self, time: str) -> None:
        for folder in list(self._disk.folders):
            for name in list(self._disk.folders.get(folder, ())):
                if name.endswith(f"_{time}.parquet"):
                    self._seams.storage.delete(f"{folder}/{name}" if folder else name)

    def _compact(self, time: str, operation: dict[str, Any]) -> WriteStat:
        partition, file_id = operation["partitionPath"], operation["fileId"]
        rows: dict[str, dict] = {}
        if operation["dataFilePath"]:
            path = paths.in_partition(partition, operation["dataFilePath"])
            data = bytes(self._disk.need(path).data)
            rows = {r["_hoodie_record_key"]: r for r in pq.read_table(io.BytesIO(data)).to_pylist()}
        for name in operation["deltaFilePaths"]:
            log = plain.log_file(paths.in_partition(partition, name))
            assert log is not None
            for block in plain.blocks_of(self._disk, log):
                for row in block.rows:
                    old = rows.get(row["_hoodie_record_key"])
                    if old is None or row["ts"] >= old["ts"]:
                        rows[row["_hoodie_record_key"]] = row
        name = paths.base_name(file_id, f"0-{self._seams.random.getrandbits(20)}-0", time)
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([rows[k] for k in sorted(rows)]), sink)
        self._seams.storage.put_new(paths.in_partition(partition, name), sink.getvalue(), durable=True)
        stat = WriteStat(partition, file_id, name, time, 1, writes=len(rows))
        stat.size_bytes = len(sink.getvalue())
        return stat


def latest_bases(disk: Disk) -> dict[Group, paths.BaseName]:
    """(partition, file id) -> newest base file of a completed compaction or bulk insert, archived or not."""
    done = {key[0] for key in plain.completed(disk) if key[2] in ("commit", "deltacommit")}
    newest: dict[Group, paths.BaseName] = {}
    for folder, names in disk.folders.items():
        for base in filter(None, map(paths.parse_base_name, names)):
            key = (folder, base.file_id)
            if base.instant in done and (key not in newest or base.instant > newest[key].instant):
                newest[key] = base
    return newest
