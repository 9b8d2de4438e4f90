"""The files, bytes and fsyncs that a delta commit cannot do without, bare.

The figures of ``concurrency`` are held against it.

A writer makes what a small upsert of ours made, of the same bytes and in the same three steps, each durable
before the next: heartbeat, requested and inflight file; markers and log files, and the commit's content; its
completed name. Then heartbeat and markers go. Nothing is looked up, listed or checked, and there is no lock:
writers share nothing but the folders. ``bare-commit`` does not encode either; ``unavoidable`` splits each
batch into buckets and encodes its rows, by the code of ours that does it, in a process that has imported what
ours imports.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.data import repeated
from mainstem.storage import paths
from mainstem.storage.all_at_once import all_at_once
from mainstem.storage.local import LocalStorage

_PREPARED, _LOGS = "prepared", "data"
_HEARTBEAT = b"." * 41


@dataclass(frozen=True)
class Pattern:
    """What one delta commit was made of: bytes of its log files, and of its inflight and completed file."""

    logs: tuple[bytes, ...]
    inflight: bytes
    completed: bytes

    @classmethod
    def of_newest(cls, table: Path) -> Pattern:
        """Of the newest delta commit of this table."""
        timeline = table / paths.TIMELINE
        done = max(f for f in timeline.iterdir() if f.name.endswith(".deltacommit"))
        instant = done.name.partition("_")[0]
        logs = tuple(f.read_bytes() for f in sorted(table.glob(f".*_{instant}.log.*")))
        inflight = (timeline / f"{instant}.deltacommit.inflight").read_bytes()
        return cls(logs, inflight, done.read_bytes())


class BareCommits:
    """The system ``bare-commit`` of ``benchmarks.systems``; ``table``: makes tables of ours, to look at one
    commit of a hundred rows."""

    name = "the same files, bytes and fsyncs, bare"

    def __init__(self, table, *, encodes: bool = False) -> None:
        self._table = table
        self._encodes = encodes
        if encodes:
            self.name = "the same rows encoded, files and fsyncs, no lock and no looks"

    def create(self, folder: Path) -> None:
        ours = folder.with_name(f"{folder.name}-pattern")
        self._table.create(ours)
        writer = self._table.open(ours)
        for version in range(2):
            writer.upsert(repeated(100, version=version))
        pattern = Pattern.of_newest(ours)
        if not self._encodes:
            shutil.rmtree(ours)
        for name in (paths.TIMELINE, paths.HEARTBEATS, paths.TEMP, _PREPARED, _LOGS, "pattern"):
            (folder / name).mkdir(parents=True)
        for number, content in enumerate((pattern.inflight, pattern.completed, *pattern.logs)):
            (folder / "pattern" / f"{number:02}").write_bytes(content)

    def open(self, folder: Path) -> BareWriter:
        inflight, completed, *logs = (f.read_bytes() for f in sorted((folder / "pattern").iterdir()))
        pattern = Pattern(tuple(logs), inflight, completed)
        if not self._encodes:
            return BareWriter(folder, pattern)
        return EncodingWriter(folder, pattern, folder.with_name(f"{folder.name}-pattern"))

    def rows(self, folder: Path) -> int:
        return 0


class BareWriter:
    """One process's writes of one pattern."""

    def __init__(self, folder: Path, pattern: Pattern) -> None:
        self._folder = str(folder)
        self._storage = LocalStorage(self._folder)
        self._pattern = pattern
        self._numbers = itertools.count()
        self.held_ms: list[float] = []
        self.bytes: list[int] = []

    def _logs(self, batch: pa.Table) -> Sequence[Sequence[bytes | memoryview]]:
        return [[content] for content in self._pattern.logs]

    def upsert(self, batch: pa.Table) -> None:
        storage, pattern = self._storage, self._pattern
        name = f"{os.getpid()}{next(self._numbers):09}"
        began = f"{paths.TIMELINE}/{name}.deltacommit"
        heartbeat, markers = f"{paths.HEARTBEATS}/{name}", f"{paths.TEMP}/{name}"
        storage.put_new(heartbeat, _HEARTBEAT, durable=False)
        storage.put_new(f"{began}.requested", b"", durable=False)
        storage.put_new(f"{began}.inflight", pattern.inflight, durable=False)
        storage.sync_folder(paths.TIMELINE)

        os.mkdir(f"{self._folder}/{markers}")
        sinks = []
        logs = self._logs(batch)
        for number, buffers in enumerate(logs):
            if number:
                storage.link(f"{markers}/0", f"{markers}/{number}")
            else:
                storage.put_new(f"{markers}/0", b"", durable=False)
            sinks.append(storage.upload(f"{_LOGS}/{name}.{number}"))
            sinks[-1].append(buffers)
        prepared = f"{_PREPARED}/{name}"
        sinks.append(storage.upload(prepared))
        sinks[-1].append([pattern.completed])
        all_at_once(
            [*(lambda sink=sink: sink.close(durable=True) for sink in sinks),
             lambda: storage.sync_folder(_LOGS)]
        )  # fmt: skip

        storage.link(prepared, began, durable=True)
        storage.delete(prepared)
        storage.delete(heartbeat)
        for number in range(len(logs)):
            storage.delete(f"{markers}/{number}")
        os.rmdir(f"{self._folder}/{markers}")

    def reload(self) -> None:
        """Nothing is shared."""


class EncodingWriter(BareWriter):
    """The same, of rows that it encodes as a writer of the table at ``ours`` does."""

    def __init__(self, folder: Path, pattern: Pattern, ours: Path) -> None:
        import mainstem
        from mainstem.writers.encode_rows import BucketEncoder

        super().__init__(folder, pattern)
        with mainstem.open_table(str(ours)).begin("upsert") as txn:
            self._encoder = BucketEncoder(txn.task_spec(), "0")

    def _logs(self, batch: pa.Table) -> Sequence[Sequence[bytes | memoryview]]:
        encoder = self._encoder
        slabs = encoder.split(batch)
        found = [encoder.blocks(slab, lambda partition, bucket: f"{bucket:08}-0") for slab in slabs]
        return [blocks.buffers for encoded in found for blocks in encoded]
