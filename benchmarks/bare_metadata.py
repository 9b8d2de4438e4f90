"""The parts of a commit's metadata that no engine can do without, bare: what the figures of a table with a
metadata table are held against.

A table without metadata is written through a storage that adds, at the same places, what a delta commit of
a twin's metadata table was made of, and nothing else: the file groups of keys hashed by NumPy, keys sorted
and entries put together by Arrow, and compressed by ISA-L; the same files, of the same bytes, written and
synced together with the commit's own; under the lock the same files created and linked, and the folders
synced before the commit's last link. No row is encoded, checked or looked up, and no statistics are taken.

A pattern that ``encodes`` makes the bytes of these files anew from the same rows, in place of compressing
them: rows as Avro, blocks as HFiles, the delta commit's own file, by our fastest encoders, which are given
all rows of an index at once. Where the rows come from still costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from mainstem.api.real_seams import real_seams
from mainstem.api.table import Table
from mainstem.formats.log_file import BlockKind, hfile_blocks, read_blocks
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import FILES, content_of
from mainstem.metadata.records.flat_rows import decode, encode, encode_keyed, encode_listed
from mainstem.metadata.records.keyed_rows import KeyedRows
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.metadata.records.newest_values import OF_KEYS
from mainstem.storage import paths
from mainstem.storage.backends import location_of
from mainstem.storage.local import LocalStorage
from mainstem.storage.protocol import Upload
from mainstem.timeline.commit_metadata import WriteStat, decode_commit, encode_commit

_LEVEL, _GZIP = 1, 31  # as log blocks are compressed; a gzip member
_HEAD, _TAIL = b"\0" * 10, b"\0" * 11  # of an entry: lengths before the key, a cell's constants behind it
_ENTRIES = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_TIMELINE = paths.METADATA_TIMELINE


@dataclass(frozen=True)
class Pattern:
    """What one delta commit of a metadata table was made of: per partition its log files, the entries of each
    as plain bytes, and all entries' keys and what lies behind them, in no order; and the completed file.

    ``encoders``: makes the contents of a partition's log files from their rows; empty: they are not made."""

    logs: dict[str, list[tuple[bytes, bytes]]]
    entries: dict[str, pa.Table]
    completed: bytes
    encoders: dict[str, Callable[[], Iterator[list[bytes | memoryview]]]]
    commit: Callable[[], bytes]

    @classmethod
    def of_newest(cls, table: Path, *, encodes: bool = False) -> Pattern:
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
        folders = {
            name: sorted((table / paths.METADATA / name).glob(f".*_{instant}.log.*"))
            for name in (sorted(logs) if encodes else ())
        }
        encoders = {name: _encoder(name, instant, files) for name, files in folders.items()}
        for name, encoder in encoders.items():
            made = [b"".join(block) for block in encoder()]
            assert made == [file.read_bytes() for file in folders[name]], f"other bytes in {name}"
        return cls(logs, mixed, done.read_bytes(), encoders, _commit(done))


def _encoder(
    partition: str, instant: str, files: Sequence[Path]
) -> Callable[[], Iterator[list[bytes | memoryview]]]:
    """Makes what these log files of one partition hold, each of one block, from their rows."""
    blocks = [block.hfile() for file in files for block in _hfiles(file)]
    rows, schema = [block.rows() for block in blocks], blocks[0].schema_text
    bounds = list(accumulate((len(keys) for keys, _ in rows), initial=0))
    keys, values = (pa.concat_arrays([one[side] for one in rows]) for side in (0, 1))
    content = content_of(partition, "column_stats")
    assert content is not None
    if content in OF_KEYS:
        coded = values.dictionary_encode()
        kinds = decode(content, pa.array([""] * len(coded.dictionary)), coded.dictionary, schema)
        which, texts = coded.indices.to_numpy().astype(np.int64), keys.cast(pa.string())
        groups = [KeyedRows(texts, which, kinds, low, high) for low, high in pairwise(bounds)]
        return lambda: hfile_blocks(instant, schema, *encode_keyed(content, groups, schema), bounds)
    tables = [decode(content, *one, schema) for one in rows]
    if partition == FILES:
        return lambda: hfile_blocks(instant, schema, *encode(content, tables[0], schema), bounds)
    listed = [ListedRows({n: one[n].to_pylist() for n in one.column_names}) for one in tables]

    def few() -> Iterator[list[bytes | memoryview]]:
        for some in listed:
            made = encode_listed(content, some, schema)
            yield from hfile_blocks(instant, schema, *made, (0, len(made[0])))

    return few


def _commit(done: Path) -> Callable[[], bytes]:
    """Makes the completed file of a delta commit."""
    found = decode_commit(done.read_bytes(), path=done.name)
    stats = [
        WriteStat(
            partition, one["fileId"], one["path"].rpartition("/")[2], one["prevCommit"], one["logVersion"],
            one["numWrites"], one["numDeletes"], one["fileSizeInBytes"], 1,
        )
        for partition, some in found.stats.items() for one in some
    ]  # fmt: skip
    return lambda: encode_commit(stats, found.extra, found.operation)


def _hfiles(file: Path) -> list:
    blocks = read_blocks(memoryview(file.read_bytes()), path=file.name)
    return [block for block in blocks if block.kind == BlockKind.HFILE_DATA]


def _bare_rows(entries: pa.Table, *, joined: bool) -> None:
    """What the format asks of the keys and values of a partition: Java's hash of each key, which names its
    file group, their order, and, ``joined``, the bytes of the entries one after another."""
    keys, values = (column.chunk(0) for column in entries.columns)
    lengths = np.diff(np.frombuffer(keys.buffers()[1], np.int32)[: len(keys) + 1])
    if (width := int(lengths.min(initial=0))) == lengths.max(initial=0):  # else it costs more
        hashes = np.zeros(len(keys), np.uint32)
        for column in np.frombuffer(keys.buffers()[2], np.uint8)[: width * len(keys)].reshape(-1, width).T:
            hashes = hashes * np.uint32(31) + column
    order = pc.sort_indices(keys)
    if not joined:
        keys.take(order)
        return
    pc.binary_join_element_wise(pa.scalar(_HEAD), keys.take(order), values.take(order), b"")


def _compressed(plain: bytes, data: bytes) -> list[bytes]:
    """The bytes of a file, at the price of compressing it."""
    packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
    packer.compress(plain)
    packer.flush()
    return [data]


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
            _bare_rows(entries, joined=not pattern.encoders)
        if pattern.encoders:
            made = [block for encoder in pattern.encoders.values() for block in encoder()]
            made.append([pattern.commit()])
        else:
            made = [_compressed(plain, data) for _, plain, data in files] + [[pattern.completed]]
        folders = [*(name for name in pattern.encoders or pattern.logs for _ in pattern.logs[name]), ""]
        for number, (partition, data) in enumerate(zip(folders, made, strict=True)):
            private = paths.prepared(f"bare{self._own}", f"{number:016x}")
            sinks.append(self.upload(private))
            sinks[-1].append(data)
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
