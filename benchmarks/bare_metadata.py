"""The parts of a commit's metadata that no engine can do without, bare: what the figures of a table with a
metadata table are held against.

A table without metadata is written through a storage that adds, at the same places, what a delta commit of
a twin's metadata table was made of, and nothing else: the file groups of keys hashed by NumPy, keys sorted
and entries put together by Arrow, and compressed by ISA-L; the same files, of the same bytes, written and
synced together with the commit's own; under the lock the same files created and linked, and the folders
synced before the commit's last link. No row is encoded, checked or looked up, and no statistics are taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from mainstem.api.real_seams import real_seams
from mainstem.api.table import Table
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.layout.properties import load_config
from mainstem.storage import paths
from mainstem.storage.backends import location_of
from mainstem.storage.local import LocalStorage
from mainstem.storage.protocol import Upload

_LEVEL, _GZIP = 1, 31  # as log blocks are compressed; a gzip member
_HEAD, _TAIL = b"\0" * 10, b"\0" * 11  # of an entry: lengths before the key, a cell's constants behind it
_ENTRIES = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_TIMELINE = paths.METADATA_TIMELINE


@dataclass(frozen=True)
class Pattern:
    """What one delta commit of a metadata table was made of: per partition its log files, the entries of each
    as plain bytes, and all entries' keys and what lies behind them, in no order; and the completed file."""

    logs: dict[str, list[tuple[bytes, bytes]]]
    entries: dict[str, pa.Table]
    completed: bytes

    @classmethod
    def of_newest(cls, table: Path) -> Pattern:
        """Of the newest delta commit of this table's metadata table."""
        timeline = table / _TIMELINE
        done = max(f for f in timeline.iterdir() if f.name.endswith(".deltacommit"))
        instant = done.name.partition("_")[0]
        logs: dict[str, list[tuple[bytes, bytes]]] = {}
        entries: dict[str, list[pa.Table]] = {}
        for file in sorted((table / paths.METADATA).glob(f"*/.*_{instant}.log.*")):
            found = [block.hfile().rows() for block in _hfiles(file)]
            plain = b"".join(cell for pair in found for column in pair for cell in column.to_pylist())
            logs.setdefault(file.parent.name, []).append((plain, file.read_bytes()))
            tables = [pa.table([key, value], ["key", "value"]).cast(_ENTRIES) for key, value in found]
            entries.setdefault(file.parent.name, []).extend(tables)
        chance, mixed = np.random.default_rng(2), {}
        for name, tables in entries.items():
            whole = pa.concat_tables(tables).combine_chunks()
            behind = pc.binary_join_element_wise(pa.scalar(_TAIL), whole["value"], b"")
            whole = whole.set_column(1, _ENTRIES.field(1), behind)
            mixed[name] = whole.take(pa.array(chance.permutation(whole.num_rows))).combine_chunks()
        return cls(logs, mixed, done.read_bytes())


def _hfiles(file: Path) -> list:
    blocks = read_blocks(memoryview(file.read_bytes()), path=file.name)
    return [block for block in blocks if block.kind == BlockKind.HFILE_DATA]


def _bare_rows(entries: pa.Table) -> None:
    """What the format asks of the keys and values of a partition: Java's hash of each key, which names its
    file group, their order, and the bytes of the entries one after another."""
    keys, values = (column.chunk(0) for column in entries.columns)
    lengths = np.diff(np.frombuffer(keys.buffers()[1], np.int32)[: len(keys) + 1])
    if (width := int(lengths.min(initial=0))) == lengths.max(initial=0):  # else it costs more
        hashes = np.zeros(len(keys), np.uint32)
        for column in np.frombuffer(keys.buffers()[2], np.uint8)[: width * len(keys)].reshape(-1, width).T:
            hashes = hashes * np.uint32(31) + column
    order = pc.sort_indices(keys)
    pc.binary_join_element_wise(pa.scalar(_HEAD), keys.take(order), values.take(order), b"")


class BareStorage(LocalStorage):
    """A local storage whose commits do the work of ``pattern``, too."""

    pattern: Pattern | None = None

    def __init__(self, base: str, *, sync: bool) -> None:
        super().__init__(base, sync=sync)
        self._waiting: list[tuple[str, str]] = []
        self._count = 0

    @property
    def _own(self) -> str:
        return f"{os.getpid()}-{self._count}"

    def settle(self, sinks: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        if self.pattern is not None and sinks:
            sinks = [*sinks, *self._written(self.pattern)]
        super().settle(sinks, folders, durable=durable)

    def _written(self, pattern: Pattern) -> list[Upload]:
        self._count += 1
        sinks = []
        files = [(partition, *log) for partition, logs in pattern.logs.items() for log in logs]
        for entries in pattern.entries.values():
            _bare_rows(entries)
        for number, (partition, plain, data) in enumerate([*files, ("", b"", pattern.completed)]):
            packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
            packer.compress(plain)
            packer.flush()
            private = paths.prepared(f"bare{self._own}", f"{number:016x}")
            sinks.append(self.upload(private))
            sinks[-1].append([data])
            folder = f"{paths.METADATA}/{partition}" if partition else _TIMELINE
            self._waiting.append((private, f"{folder}/bare-{self._own}-{number}"))
        return sinks

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        if self._waiting and target.startswith(f"{paths.TIMELINE}/"):
            for state in ("requested", "inflight"):
                self.put_new(f"{_TIMELINE}/bare-{self._own}.{state}", b"", durable=False)
            for private, name in self._waiting:
                super().link(private, name)
            folders = {name.rpartition("/")[0] for _, name in self._waiting}
            super().settle([], folders, durable=True)
            for private, _ in self._waiting:
                self.delete(private)
            self._waiting.clear()
        super().link(source, target, durable=durable)


def opened(
    path: Path, options: Mapping[str, str] = MappingProxyType({})
) -> tuple[Table, Callable[[Pattern], None]]:
    """A table without metadata, and what gives it the work of a pattern."""
    given, config = dict(options), load_config(LocalStorage(str(path)))
    seams = real_seams(location_of(path), config, given)
    storage = BareStorage(seams.storage.base, sync=seams.storage.durable)

    def give(pattern: Pattern) -> None:
        for folder in (*(f"{paths.METADATA}/{partition}" for partition in pattern.logs), _TIMELINE):
            storage.make_folder(folder)
        storage.pattern = pattern

    return Table(replace(seams, storage=storage), config, given), give
