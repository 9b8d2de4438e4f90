"""Reads HFiles (version 3), by columns: base files and data blocks of Hudi's metadata table.

A file consists of data blocks, meta blocks, the blocks to read on opening (root index, meta index, file info)
and a trailer of 4,096 bytes. Files of HBase's writer have leaf and intermediate index blocks between the
others, and index keys that are no entry's key: a key of the index is a lower bound.

Opening reads the trailer and the blocks it names. A look-up reads only data blocks that may hold a key. What
is read is checked against what the file says about itself (sizes, counts, gzip's checksums). Damage raises
``CorruptTable`` with path and offset.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats import hfile_layout as layout
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.bloom_filter import text_bytes
from mainstem.formats.hfile_entries import Entries

_TAIL_BYTES = 64 * limits.KIB  # read first: the trailer and, in most files, all that opening needs
# Up to so many uncompressed bytes are read together with those of other files.
_SMALL_BYTES = 64 * limits.KIB
_CHUNK_BYTES = limits.MIB  # uncompressed bytes parsed at once; a single block of Hudi is not copied
_SIDE_BY_SIDE_FROM = 8  # blocks
_CHUNKS_AT_ONCE = 16
_FEW_KEYS = 8
_FETCH_BYTES = 8 * limits.MIB  # most bytes of neighbouring blocks in one read
_LEVELS_MAX = 8
_ENTRY = struct.Struct(">qi")
_FIRST_BYTE_FROM_E000 = 0xEE  # first UTF-8 byte of characters from U+E000 on
Rows = tuple[pa.BinaryArray, pa.BinaryArray]
Result = TypeVar("Result")
#: takes a function and items; returns the function's results, in the items' order
SideBySide = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Ranges:
    """A file of ``size`` bytes, of which ``read(offset, length)`` returns a part.

    ``prefetch`` is told which (offset, length) will be read next, where they can be fetched together.
    """

    size: int
    read: Callable[[int, int], bytes | memoryview]
    prefetch: Callable[[Sequence[tuple[int, int]]], None] | None = None


class DataBlock(NamedTuple):
    """A data block as the index lists it: no entry in it has a key less than ``first`` (raw bytes)."""

    offset: int
    size: int
    first: bytes


def open_hfile(
    source: memoryview | bytes | Ranges, *, path: str, run: SideBySide | None = None
) -> HFile:
    """Open an HFile in memory, or one that is read by ranges; errors name ``path``.

    ``run`` (``storage.side_by_side``) decompresses and parses many blocks in parallel; None: one by one.

    Raises ``CorruptTable`` for bytes that are no whole HFile, ``Unsupported`` for another version, an
    encrypted file or a codec other than GZ and NONE (``hoodie.hfile.compression.algorithm``).
    """
    if not isinstance(source, Ranges):
        view = memoryview(source).cast("B")
        source = Ranges(len(view), lambda offset, length: view[offset : offset + length])
    return HFile(source, path, run)


def entries_in(view: memoryview, *, path: str) -> int:
    """The number of entries of an HFile in memory, as its trailer says; raises as ``open_hfile``."""
    at = max(0, len(view) - layout.TRAILER_BYTES)
    try:
        return _read_trailer(view[at:]).entries
    except Malformed as error:
        raise CorruptTable(str(error), path=path, offset=at) from None


def rows_of_all(files: Sequence[HFile]) -> Rows | None:
    """The keys and values of several small HFiles, one file after the other: reading them together costs
    little more than reading one. None if they are not small, or damaged: read one by one they tell which is.
    """
    plain: list[bytes | memoryview] = []
    try:
        for file in files:
            blocks = file.data()
            if blocks is None:
                return None
            plain += blocks
        entries = Entries(plain)
        if entries.count != sum(file.entry_count for file in files):
            return None
        return entries.keys(), entries.values()
    except (CorruptTable, Malformed):
        return None


class HFile:
    """An open HFile; see ``open_hfile``."""

    def __init__(self, source: Ranges, path: str, run: SideBySide | None = None) -> None:
        self._source, self._path, self._run = source, path, run
        self._trailer_at = max(0, source.size - layout.TRAILER_BYTES)
        self._tail_from = max(0, source.size - _TAIL_BYTES)
        self._tail = self._read(self._tail_from, source.size)
        trailer = self._tail[self._trailer_at - self._tail_from :]
        self._trailer = self._guarded(_read_trailer, self._trailer_at, trailer)
        self._guarded(self._open, self._trailer.load_on_open)

    # ------------------------------------------------------------------------------- what it says

    @property
    def entry_count(self) -> int:
        """Number of entries in the whole file, from its trailer."""
        return self._trailer.entries

    @cached_property
    def schema_text(self) -> str:
        """The Avro schema with which the values must be decoded."""
        found = self.info.get("schema")
        try:
            if found is not None:
                return found.decode()
        except UnicodeDecodeError:
            pass
        raise self._corrupt("an HFile without the schema of its values")

    def meta(self, name: str) -> bytes | None:
        """Content of a meta block; None if no block has that name. ``bloomFilter`` holds base64."""
        for found, offset, size in self._metas:
            if found == name.encode():
                view = self._fetch(offset, offset + size)
                return bytes(self._plain(view, DataBlock(offset, size, found), layout.META))
        return None

    @cached_property
    def blocks(self) -> list[DataBlock]:
        """All data blocks, in file order, which is also key order."""
        found = self._root
        for depth in range(self._trailer.levels - 1, 0, -1):
            magic = layout.LEAF if depth == 1 else layout.INTERMEDIATE
            found = [block for parent in found for block in self._children(parent, magic)]
            self._guarded(self._check_blocks, self._trailer.load_on_open, found)
        return found

    # ---------------------------------------------------------------------------------- its rows

    def rows(self) -> Rows:
        """All keys and values, in file order.

        Raises ``Unsupported`` if they do not fit into one array (2 GiB): use ``batches`` then.
        """
        return self._joined(list(self.batches()))

    @property
    def is_small(self) -> bool:
        """Whether the file is in memory and has at most one data block, of up to ``_SMALL_BYTES``."""
        if len(self.blocks) > 1 or self._source.prefetch is not None:
            return False
        views = (self._fetch(block.offset, block.offset + block.size) for block in self.blocks)
        return all(layout.plain_size(view) <= _SMALL_BYTES for view in views)

    def data(self) -> list[bytes | memoryview] | None:
        """The data blocks, decompressed; None if the file is not small."""
        if not self.is_small:
            return None
        views = ((self._fetch(block.offset, block.offset + block.size), block) for block in self.blocks)
        return [self._plain(view, block, layout.DATA) for view, block in views]

    def batches(self) -> Iterator[Rows]:
        """Keys and values of the whole file, in pieces of a few MiB."""
        count = 0
        for keys, values in self._worked(self.blocks, lambda found: (found.keys(), found.values())):
            count += len(keys)
            yield keys, values
        if count != self.entry_count:
            raise self._corrupt(f"an HFile with {count} entries, its trailer says {self.entry_count}")

    def lookup(self, keys: pa.Array) -> Rows:
        """The entries with these keys (strings or binaries, in any order).

        Reads only blocks that may hold one of them.
        """
        keys = _sorted(keys)
        if _order_unknown(keys):
            return self._matching(self.blocks, lambda found: pc.is_in(found, value_set=keys))
        blocks = self._holding(keys)
        if len(keys) < _FEW_KEYS:
            wanted = keys.to_pylist()
            return self._joined(list(self._worked(blocks, lambda entries: entries.of(wanted))))
        return self._matching(blocks, lambda found: pc.is_in(found, value_set=_within(keys, found)))

    def prefixes(self, prefixes: pa.Array) -> Rows:
        """The entries whose keys begin with any of these (strings or binaries, in any order)."""
        prefixes = _sorted(prefixes)
        sizes = pc.binary_length(prefixes)
        sets = {size: prefixes.filter(pc.equal(sizes, size)) for size in pc.unique(sizes).to_pylist()}

        def match(found: pa.BinaryArray) -> pa.BooleanArray:
            hits = pa.nulls(len(found), pa.bool_()).fill_null(False)
            for size, some in sets.items():
                hits = pc.or_(hits, pc.is_in(pc.binary_slice(found, 0, size), value_set=some))
            return hits

        return self._matching(self._beginning(prefixes), match)

    def _holding(self, keys: pa.BinaryArray) -> list[DataBlock]:
        """The blocks whose range contains any of these keys."""
        if len(keys) < max(_FEW_KEYS, len(self.blocks)):
            firsts = [block.first for block in self.blocks]
            chosen = {bisect.bisect_right(firsts, key) - 1 for key in keys.to_pylist()}
            return [self.blocks[i] for i in sorted(chosen) if i >= 0]
        # Number of wanted keys before each block.
        before = [_count_below(keys, block.first) for block in self.blocks] + [len(keys)]
        pairs = zip(self.blocks, before, before[1:], strict=False)
        return [block for block, low, high in pairs if high > low]

    def _beginning(self, prefixes: pa.BinaryArray) -> list[DataBlock]:
        """The blocks that may hold a key with one of these prefixes."""
        blocks = self.blocks
        if _order_unknown(prefixes):
            return blocks
        firsts = [block.first for block in blocks]
        chosen: set[int] = set()
        for prefix in prefixes.to_pylist():
            low = max(0, bisect.bisect_right(firsts, prefix) - 1)
            chosen.update(range(low, _count_up_to(firsts, prefix)))
        return [blocks[i] for i in sorted(chosen)]

    def _matching(
        self, blocks: Sequence[DataBlock], match: Callable[[pa.BinaryArray], pa.BooleanArray]
    ) -> Rows:
        def matching(entries: Entries) -> Rows | None:
            if not entries.count:
                return None
            keys = entries.keys()
            hits = match(keys)
            rows = np.flatnonzero(hits.to_numpy(zero_copy_only=False))
            return (keys.filter(hits), entries.values(rows)) if len(rows) else None

        return self._joined([found for found in self._worked(blocks, matching) if found is not None])

    def _joined(self, parts: Sequence[Rows]) -> Rows:
        if not parts:
            return pa.array([], pa.binary()), pa.array([], pa.binary())
        if len(parts) == 1:
            return parts[0]
        for column in zip(*parts, strict=True):
            total = sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in column)
            if total > limits.ARRAY_BYTES_MAX:
                raise Unsupported(
                    f"{total} bytes of an HFile in one array ({self._path}); read it piece by piece"
                )
        keys, values = zip(*parts, strict=True)
        return pa.concat_arrays(keys), pa.concat_arrays(values)

    # ------------------------------------------------------------------------------------- blocks

    def _worked(
        self, blocks: Sequence[DataBlock], work: Callable[[Entries], Result]
    ) -> Iterator[Result]:
        """``work`` on the entries of these blocks; small blocks are handled together."""

        def entries(chunk: Sequence[tuple[DataBlock, memoryview]]) -> Result:
            plain = [self._plain(view, block, layout.DATA) for block, view in chunk]
            return self._guarded(lambda: work(Entries(plain)), chunk[0][0].offset)

        if self._source.prefetch is not None:
            self._source.prefetch([(block.offset, block.size) for block in blocks])
        chunks = self._chunks(blocks)
        if self._run is None or len(blocks) < _SIDE_BY_SIDE_FROM:
            yield from map(entries, chunks)
            return
        while some := list(islice(chunks, _CHUNKS_AT_ONCE)):
            yield from self._run(entries, some)

    def _chunks(self, blocks: Sequence[DataBlock]) -> Iterator[list[tuple[DataBlock, memoryview]]]:
        """Groups of blocks with their stored bytes; a group has about ``_CHUNK_BYTES`` uncompressed bytes."""
        waiting: list[tuple[DataBlock, memoryview]] = []
        plain = 0
        for run in _neighbours(blocks):
            begin = run[0].offset
            read = self._fetch(begin, run[-1].offset + run[-1].size)
            for block in run:
                view = read[block.offset - begin : block.offset - begin + block.size]
                size = layout.plain_size(view)
                if waiting and plain + size > _CHUNK_BYTES:
                    yield waiting
                    waiting, plain = [], 0
                waiting.append((block, view))
                plain += size
        if waiting:
            yield waiting

    def _plain(self, view: memoryview, block: DataBlock, magic: bytes) -> bytes | memoryview:
        found = self._guarded(layout.read_block, block.offset, view, self._trailer.codec, magic)
        if found.size != block.size:
            raise self._corrupt(
                f"an HFile block of {found.size} bytes, its index says {block.size}", block.offset
            )
        return found.data

    def _children(self, parent: DataBlock, magic: bytes) -> list[DataBlock]:
        """The blocks that a leaf or intermediate index block lists."""
        view = self._fetch(parent.offset, parent.offset + parent.size)
        data = memoryview(self._plain(view, parent, magic))
        return self._guarded(_read_node, parent.offset, data)

    def _fetch(self, begin: int, end: int) -> memoryview:
        if not 0 <= begin <= end <= self._source.size:
            raise self._corrupt(
                f"bytes {begin} to {end} of an HFile that has {self._source.size}", self._trailer_at
            )
        if begin >= self._tail_from:
            return self._tail[begin - self._tail_from : end - self._tail_from]
        return self._read(begin, end)

    def _read(self, begin: int, end: int) -> memoryview:
        found = memoryview(self._source.read(begin, end - begin))
        if len(found) != end - begin:
            raise self._corrupt(f"{len(found)} bytes of an HFile where {end - begin} are expected", begin)
        return found

    # ------------------------------------------------------------------------------------ opening

    def _open(self) -> None:
        trailer = self._trailer
        view = self._fetch(trailer.load_on_open, self._trailer_at)
        if not trailer.load_on_open <= trailer.file_info <= self._trailer_at:
            raise Malformed(f"a file info at {trailer.file_info}")
        root = layout.read_block(view, trailer.codec, layout.ROOT)
        metas = layout.read_block(view[root.size :], trailer.codec, layout.ROOT)
        info = layout.read_block(view[trailer.file_info - trailer.load_on_open :], trailer.codec, layout.INFO)
        self._root = _read_root(memoryview(root.data), trailer.data_blocks)
        self._metas = _read_index(memoryview(metas.data), trailer.meta_blocks, layout.read_hadoop_vint)
        self._check_blocks(self._root)
        #: File info: raw values by name (``schema``, ``minRecordKey``, ``hfile.LASTKEY``...).
        self.info = _read_info(memoryview(info.data))
        if int.from_bytes(self.info.get("MAX_MEMSTORE_TS_KEY", b""), "big"):
            raise Unsupported(f"an HFile whose entries have versions (MVCC): {self._path}")

    def _check_blocks(self, blocks: Sequence[DataBlock]) -> None:
        at = 0
        for block in blocks:
            if block.offset < at or block.size < layout.HEADER.size:
                raise Malformed(f"an index that lists {block.size} bytes at {block.offset} after byte {at}")
            at = block.offset + block.size
        if at > self._trailer.load_on_open:
            raise Malformed(f"an index that lists blocks up to {at} of {self._trailer.load_on_open}")
        firsts = [block.first for block in blocks]
        if not _ascending(firsts) and not _ascending([_utf16(first) for first in firsts]):
            raise Malformed("an index whose keys are not in order")

    def _guarded(self, work: Callable[..., Result], offset: int, *arguments: object) -> Result:
        try:
            return work(*arguments)
        except Malformed as error:
            raise self._corrupt(str(error), offset) from None

    def _corrupt(self, message: str, offset: int | None = None) -> CorruptTable:
        return CorruptTable(message, path=self._path, offset=offset)


@dataclass(frozen=True, slots=True)
class _Trailer:
    file_info: int
    load_on_open: int
    data_blocks: int
    meta_blocks: int
    entries: int
    levels: int
    codec: int


def _read_trailer(data: memoryview) -> _Trailer:
    if len(data) < layout.TRAILER_BYTES or bytes(data[:8]) != layout.TRAILER:
        raise Malformed("no HFile: a trailer is expected in the last 4,096 bytes")
    major = int.from_bytes(data[-3:], "big")
    if major != layout.MAJOR_VERSION:
        raise Unsupported(f"an HFile of version {major}; {layout.MAJOR_VERSION} is read")
    found = dict(layout.read_fields(layout.read_delimited(data[8:-4])))
    if 13 in found:
        raise Unsupported("an encrypted HFile")
    values = [found.get(field, default) for field, default in _TRAILER_FIELDS]
    if not all(isinstance(value, int) and value < 2**63 for value in values):
        raise Malformed("an HFile trailer with fields that are no numbers")
    trailer = _Trailer(*values)  # type: ignore[arg-type]
    layout.check_codec(trailer.codec)
    if not 1 <= trailer.levels <= _LEVELS_MAX:
        raise Malformed(f"an HFile index of {trailer.levels} levels; 1 to {_LEVELS_MAX} are read")
    return trailer


# Field numbers in TrailerProto, in the order of _Trailer, with the values of absent fields.
_TRAILER_FIELDS = ((1, 0), (2, 0), (5, 0), (6, 0), (7, 0), (8, 1), (12, layout.NONE))


def _read_info(data: memoryview) -> dict[str, bytes]:
    if bytes(data[:4]) != layout.PROTOBUF:
        raise Malformed("an HFile's file info that is no protobuf")
    info: dict[str, bytes] = {}
    for number, pair in layout.read_fields(layout.read_delimited(data[4:])):
        if number != 1 or isinstance(pair, int):
            raise Malformed(f"an HFile's file info with the field {number}")
        parts = dict(layout.read_fields(pair))
        key, value = parts.get(1, b""), parts.get(2, b"")
        if isinstance(key, int) or isinstance(value, int):
            raise Malformed("an HFile's file info with a number")
        name = key.decode("utf-8", "backslashreplace")
        if name in info:
            raise Malformed(f"an HFile's file info that says {name!r} twice")
        info[name] = value
    return info


# ---------------------------------------------------------------------------------------- indexes


def _read_root(data: memoryview, count: int) -> list[DataBlock]:
    """Read the root index. Java 1.1 wrote a key's length as a protobuf varint (apache/hudi#18465), which
    differs from Hadoop's for keys of 126 bytes and more; Hadoop's form is tried first."""
    try:
        return _with_rows(_read_index(data, count, layout.read_hadoop_vint))
    except Malformed:
        return _with_rows(_read_index(data, count, layout.read_varint))


def _read_index(
    data: memoryview, count: int, number: Callable[[bytes, int], tuple[int, int]]
) -> list[tuple[bytes, int, int]]:
    """``(key, offset, size)`` of each entry; HBase may append 16 bytes about the middle key."""
    raw, left, found, at = bytes(data), len(data), [], 0
    for _ in range(count):
        if at + _ENTRY.size > left:
            raise Malformed(f"an index of {count} entries that is cut off")
        offset, size = _ENTRY.unpack_from(raw, at)
        at += _ENTRY.size
        if at < left and raw[at] < 126:  # the same in both forms
            length, at = raw[at], at + 1
        else:
            length, at = number(raw, at)
        if at + length > left:
            raise Malformed(f"an index key of {length} bytes, but only {left - at} are left")
        found.append((raw[at : at + length], offset, size))
        at += length
    if left - at not in (0, 16):
        raise Malformed(f"{left - at} bytes after the last of {count} entries of an index")
    return found


def _read_node(data: memoryview) -> list[DataBlock]:
    """Read a leaf or intermediate block: the number of entries, their offsets, the entries."""
    count = int.from_bytes(data[:4], "big")
    base = 4 + 4 * (count + 1)
    if len(data) < base:
        raise Malformed(f"an index block of {count} entries with {len(data)} bytes")
    edges = struct.unpack_from(f">{count + 1}i", data, 4)
    found = []
    for begin, end in zip(edges, edges[1:], strict=False):
        if not 0 <= begin <= end - _ENTRY.size <= len(data) - base - _ENTRY.size:
            raise Malformed(f"an index entry from {begin} to {end}")
        offset, size = _ENTRY.unpack_from(data, base + begin)
        found.append((bytes(data[base + begin + _ENTRY.size : base + end]), offset, size))
    return _with_rows(found)


def _with_rows(entries: Sequence[tuple[bytes, int, int]]) -> list[DataBlock]:
    """The row in an index key: two bytes of length, the row, and from HBase the rest of an entry's key."""
    found = []
    for key, offset, size in entries:
        length = int.from_bytes(key[:2], "big", signed=True)
        if length < 0 or len(key) - 2 - length not in (0, 10):
            raise Malformed(f"an index key of {len(key)} bytes with a row of {length}")
        found.append(DataBlock(offset, size, key[2 : 2 + length]))
    return found


def _neighbours(blocks: Sequence[DataBlock]) -> Iterator[list[DataBlock]]:
    """Runs of adjacent blocks, to be read at once."""
    run: list[DataBlock] = []
    for block in blocks:
        if run:
            end = run[-1].offset + run[-1].size
            if block.offset != end or block.offset + block.size - run[0].offset > _FETCH_BYTES:
                yield run
                run = []
        run.append(block)
    if run:
        yield run


# ------------------------------------------------------------------------------------------- keys


def _sorted(keys: pa.Array) -> pa.BinaryArray:
    keys = keys.cast(pa.binary())
    return keys.take(pc.sort_indices(keys))


def _count_below(keys: pa.BinaryArray, bound: bytes) -> int:
    return bisect.bisect_left(range(len(keys)), bound, key=lambda i: keys[i].as_py())


def _within(keys: pa.BinaryArray, found: pa.BinaryArray) -> pa.BinaryArray:
    """The wanted keys that may be among the found ones; both are in the same order."""
    low = _count_below(keys, found[0].as_py())
    return keys.slice(low, _count_below(keys, found[-1].as_py() + b"\0") - low)


def _count_up_to(firsts: Sequence[bytes], prefix: bytes) -> int:
    """How many of the blocks begin no later than the last key that this prefix can have."""
    return bisect.bisect_right(firsts, prefix, key=lambda first: first[: len(prefix)])


def _order_unknown(keys: pa.BinaryArray) -> bool:
    """Whether any of these keys may be out of byte order in the file.

    Java up to 1.2 sorted by UTF-16 in places. The two orders can differ only for keys with characters from
    U+E000 on.
    """
    return bool((text_bytes(keys)[1] >= _FIRST_BYTE_FROM_E000).any())


def _utf16(key: bytes) -> bytes:
    return key.decode("utf-8", "surrogateescape").encode("utf-16-be", "surrogatepass")


def _ascending(keys: Sequence[bytes]) -> bool:
    return list(keys) == sorted(keys)  # fast where they are
