"""Goal: every HFile that Java or HBase wrote is read whole, what we write follows the format to the byte, a
look-up reads no more than it must, and damage is never silent.

Method: all HFiles and HFILE blocks of golden tables (written by Java Hudi 1.2.0) against each other's
views; the worked bytes of the format; files as HBase writes them (several index levels, index keys that stand
for no entry, CRC32 checksums), put together here; round trips of anything; single damages.
"""

from __future__ import annotations

import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats import hfile_entries
from mainstem.formats import hfile_layout as layout
from mainstem.formats.bloom_filter import BloomSize, bloom_text
from mainstem.formats.hfile import HFile, Ranges, entries_in, open_hfile, rows_of_all
from mainstem.formats.hfile_entries import entries_of
from mainstem.formats.hfile_write import write_hfile
from mainstem.formats.log_file import (
    BlockKind,
    LogBlock,
    delete_block,
    empty_group_block,
    hfile_block,
    hfile_blocks,
    read_blocks,
)
from tests.formats.golden_logs import GOLDEN

TABLES = ["clean_mor_mdt", "mdt_all.secondary", "mdt_partitioned_rli", "flink_partial_mdt_compact"]
T = "20261120100408988"
SCHEMA = '{"type":"record","name":"r","fields":[]}'


def _files(table: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
        for name in archive.namelist():
            if name.startswith(".hoodie/metadata/") and not name.endswith(".crc"):
                yield name, archive.read(name)


def _base_files() -> list[tuple[str, bytes]]:
    return [(n, data) for table in TABLES for n, data in _files(table) if n.endswith(".hfile")]


def _log_blocks() -> list[LogBlock]:
    logs = [(n, data) for table in TABLES for n, data in _files(table) if ".log." in n]
    return [block for n, data in logs for block in read_blocks(memoryview(data), path=n)]


def _pairs(hfile: HFile) -> list[tuple[bytes, bytes]]:
    return _listed(hfile.rows())


def _listed(rows: tuple[pa.BinaryArray, pa.BinaryArray]) -> list[tuple[bytes, bytes]]:
    keys, values = rows
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def _written(pairs: dict[bytes, bytes], **options) -> bytes:
    keys, values = pa.array(list(pairs), pa.binary()), pa.array(list(pairs.values()), pa.binary())
    return write_hfile(keys, values, **{"schema_text": SCHEMA, "base_file": True, **options})


def _open(data: bytes) -> HFile:
    return open_hfile(memoryview(data), path="p/f.hfile")


def _many(count: int) -> dict[bytes, bytes]:
    return {b"key-%d" % (i * 7919 % 1_000_003): bytes([i % 251]) * (i % 90) for i in range(count)}


# ----------------------------------------------------------------------------- files that Java wrote


def test_base_files_of_java_hold_what_they_say_of_themselves() -> None:
    found = _base_files()
    assert len(found) > 20
    for path, data in found:
        hfile = open_hfile(data, path=path)
        pairs = _pairs(hfile)
        keys = [key for key, _ in pairs]
        assert len(pairs) == hfile.entry_count
        assert keys == sorted(set(keys))
        assert hfile.schema_text.startswith('{"type":"record","name":"HoodieMetadataRecord"')
        if keys:
            assert hfile.info["minRecordKey"] == keys[0] and hfile.info["maxRecordKey"] == keys[-1]
            assert hfile.info["hfile.LASTKEY"][2:] == keys[-1]
            assert _listed(hfile.lookup(pa.array([keys[-1], b"~", keys[0]]))) == (
                [pairs[0], pairs[-1]] if len(pairs) > 1 else pairs
            )


def test_bloom_filters_of_java_are_those_of_the_keys() -> None:
    for path, data in _base_files():
        hfile = open_hfile(data, path=path)
        keys = hfile.rows()[0].cast(pa.string())
        assert hfile.meta("bloomFilter") == bloom_text(keys, BloomSize(entries=10_000)).encode()


def test_base_files_of_java_are_written_again_with_the_same_blocks() -> None:
    """The data block, the index and the numbers of the trailer, beside what the checksums change."""
    for path, data in _base_files():
        java = open_hfile(data, path=path)
        keys, values = java.rows()
        bloom, made = BloomSize(entries=10_000), struct.unpack(">q", java.info["hfile.CREATE_TIME_TS"])[0]
        ours = write_hfile(
            keys, values, schema_text=java.schema_text, base_file=True, bloom=bloom, created_ms=made
        )
        assert _open(ours).info == java.info
        assert _blocks_of(ours) == _blocks_of(data)
        assert _entry_numbers(ours) == _entry_numbers(data)


def _blocks_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """Magic and plain bytes of every block but index and file info (offsets, order of names)."""
    found, at = [], 0
    while data[at : at + 8] in (layout.DATA, layout.META):
        block = layout.read_block(memoryview(data)[at:], layout.GZ, layout.DATA, layout.META)
        found.append((block.magic, bytes(block.data)))
        at += block.size
    return found


def _entry_numbers(data: bytes) -> dict[int, object]:
    fields = dict(layout.read_fields(layout.read_delimited(memoryview(data)[-4088:])))
    return {number: fields[number] for number in (3, 5, 6, 7, 8, 9, 10, 11, 12)}


def test_hfile_blocks_of_java_are_read_and_written_again() -> None:
    blocks = [block for block in _log_blocks() if block.kind == BlockKind.HFILE_DATA]
    assert len(blocks) > 50
    for block in blocks:
        java = block.hfile()
        keys, values = java.rows()
        assert java.schema_text == block.schema_text and len(keys) == java.entry_count > 0
        ours = b"".join(hfile_block(block.instant, block.schema_text, keys, values))
        (again,) = read_blocks(memoryview(ours), path="f")
        assert again.headers == block.headers
        assert _pairs(again.hfile()) == _pairs(java)
        made = {"hfile.CREATE_TIME_TS": b""}
        assert {**again.hfile().info, **made} == {**java.info, **made}
        assert _blocks_of(bytes(again.content)) == _blocks_of(bytes(block.content))


@pytest.mark.parametrize("rows", [40, 4000])
def test_blocks_of_several_file_groups_are_the_same_together_as_one_by_one(rows: int) -> None:
    numbers = [f"{number * 7919 % 100_000:05d}" for number in range(rows)]
    bounds = [0, 0, rows // 3, rows // 3 + 1, rows, rows]
    groups = [sorted(numbers[low:high]) for low, high in itertools.pairwise(bounds)]
    keys = pa.array([key for group in groups for key in group])
    for values in (
        pa.array([f"v{n}" * (n % 5) for n in range(rows)]).cast(pa.binary()),
        pa.DictionaryArray.from_arrays(
            pa.array([n % 2 for n in range(rows)], pa.int32()), pa.array([b"x" * 900, b""])
        ),
    ):
        made = hfile_blocks("20260101000000000", SCHEMA, keys, values, bounds)
        expected = [
            hfile_block("20260101000000000", SCHEMA, keys[low:high], values[low:high])
            for low, high in itertools.pairwise(bounds)
        ]
        assert [b"".join(block) for block in made] == [b"".join(block) for block in expected]


def test_entries_out_of_order_are_sorted_or_refused_in_blocks_of_several_file_groups() -> None:
    keys = [f"{number:04d}" for number in range(200)]
    values = pa.array([key.encode() for key in keys])

    def blocks(some: list[str]) -> list[bytes]:
        found = hfile_blocks("20260101000000000", SCHEMA, pa.array(some), values, [0, 100, 200])
        return [b"".join(block) for block in found]

    one, other = blocks([keys[1], keys[0], *keys[2:]])
    (sorted_block,) = read_blocks(memoryview(one), path="f")
    assert sorted_block.hfile().rows()[0].to_pylist() == [key.encode() for key in keys[:100]]
    assert other == blocks(keys)[1]
    with pytest.raises(Invalid, match="twice"):
        blocks([*keys[:199], keys[198]])
    with pytest.raises(Invalid, match="32767"):
        blocks([*keys[:199], "z" * 40_000])


def test_deletes_of_index_entries_are_written_as_java_does() -> None:
    deletes = [b for b in _log_blocks() if b.kind == BlockKind.DELETE and b.deletes().num_rows]
    assert deletes
    for block in deletes:
        found = block.deletes()
        (partition,) = set(found["partition_path"].to_pylist())
        keys = found["record_key"].combine_chunks()
        ours = b"".join(map(bytes, delete_block(block.instant, block.schema_text, keys, partition, None)))
        assert bytes(read_blocks(memoryview(ours), path="f")[0].content) == bytes(block.content)


def test_the_marker_of_an_empty_file_group_is_the_bytes_that_java_writes() -> None:
    name = ".files-0000-0_00000000000000000.log.1_0-0-0"
    golden = [data for path, data in _files("clean_mor_mdt") if path.endswith(name)]
    assert golden == [b"".join(empty_group_block("00000000000000000"))]
    (block,) = read_blocks(memoryview(golden[0]), path="f")
    assert len(golden[0]) == 80 and block.deletes().num_rows == 0


# -------------------------------------------------------------------------------------- bytes


def test_the_smallest_file_is_the_worked_example() -> None:
    data = _written({b"k1": b"\x01\x02"}, schema_text=None, base_file=False, compression="NONE")
    entry = "0000000e000000020002 6b31 00 7fffffffffffffff 04 0102 00"
    head = "0000001d 00000019 ffffffffffffffff 00 40000000 0000003a"
    assert data[:62] == b"DATABLK*" + bytes.fromhex(head + entry + "00000000")
    assert data[62:70] == data[116:124] == b"IDXROOT2"
    assert data[95:116] == bytes.fromhex("0000000000000000 0000003e 04 0002 6b31 00000000")
    assert data[186:192] == b"PBUF" + bytes.fromhex("ad01")
    fields = bytes.fromhex("49 089901 103e 1819 2801 3000 3801 4001 4800 5000 5a32")
    comparator = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
    assert data[369:451] == b'TRABLK"$' + fields + comparator + b"\x60\x02"
    assert len(data) == 4465 and data[-4:] == bytes.fromhex("00000003")


@pytest.mark.parametrize("value", [0, 111, 112, 127, 128, 255, 256, 32_769, 2**24])
def test_lengths_of_index_keys_are_hadoops(value: int) -> None:
    data = layout.put_hadoop_vint(value)
    assert layout.read_hadoop_vint(memoryview(data), 0) == (value, len(data))
    assert data == {128: b"\x8f\x80", 256: b"\x8e\x01\x00"}.get(value, data)


@pytest.mark.parametrize("compression", ["GZ", "NONE"])
@settings(max_examples=60, deadline=None)
@given(
    pairs=st.dictionaries(
        st.binary(max_size=40) | st.text(max_size=9).map(str.encode), st.binary(max_size=60)
    ),
    block_bytes=st.sampled_from([1, 50, 400, 1 << 20]),
    base_file=st.booleans(),
)
def test_what_is_written_is_read(
    compression: str, pairs: dict[bytes, bytes], block_bytes: int, base_file: bool
) -> None:
    hfile = _open(_written(pairs, compression=compression, block_bytes=block_bytes, base_file=base_file))
    assert _pairs(hfile) == sorted(pairs.items())
    assert ("minRecordKey" in hfile.info) == (base_file and bool(pairs))
    wanted = [*list(pairs)[::2], b"none"]
    assert _listed(hfile.lookup(pa.array(wanted, pa.binary()))) == sorted(
        (key, value) for key, value in pairs.items() if key in wanted
    )
    starts = tuple({key[:2] for key in wanted})
    assert _listed(hfile.prefixes(pa.array(starts, pa.binary()))) == sorted(
        (key, value) for key, value in pairs.items() if key.startswith(starts)
    )


@pytest.mark.parametrize("compression", ["GZ", "NONE"])
def test_many_entries_of_different_sizes_are_taken_apart_without_walking_along_them(
    compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(hfile_entries, "_walk_plain")
    pairs = _many(60_000)
    for block_bytes in (20_000, limits.MIB):
        hfile = _open(_written(pairs, compression=compression, block_bytes=block_bytes))
        assert _pairs(hfile) == sorted(pairs.items())


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2)), min_size=1, max_size=9),
       st.lists(st.binary(max_size=2), min_size=3, max_size=3), st.booleans())  # fmt: skip
def test_entries_are_the_same_whether_their_values_are_a_dictionary(rows, known, alike) -> None:
    if alike:
        rows = [(key.ljust(3, b"-"), at) for key, at in rows]
        known = [value.ljust(2, b"-") for value in known]
    keys = pa.array([b"before", *(key for key, _ in rows)]).slice(1)
    numbers = pa.array([2, *(at for _, at in rows)], pa.int32())
    values = pa.DictionaryArray.from_arrays(numbers, pa.array(known, pa.binary())).slice(1)
    plain = pa.array([known[at] for _, at in rows], pa.binary())
    assert bytes(entries_of(keys, values)) == bytes(entries_of(keys, plain))


def test_values_that_look_like_entries_are_values() -> None:
    tail = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
    fake = bytes(entries_of(pa.array([b"fake"]), pa.array([b"value"]))) + tail
    pairs = {b"k%05d" % i: fake * (i % 3) for i in range(3000)}
    assert _pairs(_open(_written(pairs))) == sorted(pairs.items())


def test_keys_of_126_bytes_and_more_are_found_by_both_kinds_of_lengths() -> None:
    """Java 1.1 wrote the length of an index key as a protobuf varint."""
    pairs = {(b"%03d" % i) * size: b"v" for i in range(50) for size in (1, 41, 42, 43, 100, 9000)}
    data = _written(pairs, block_bytes=100, compression="NONE")
    assert len(_open(data).blocks) == len(pairs)
    assert _pairs(_open(data)) == sorted(pairs.items())
    leb = _rebuilt(data, lambda entry, key: entry + layout.put_varint(len(key)) + key)
    assert leb != data
    assert _pairs(_open(leb)) == sorted(pairs.items())
    assert _listed(_open(leb).lookup(pa.array([b"007" * 42]))) == [(b"007" * 42, b"v")]


# ------------------------------------------------------------------------------- what is refused


def test_keys_and_values_that_an_hfile_cannot_hold_are_refused() -> None:
    for keys, values, word in (
        ([b"a", b"b", b"a"], [b"", b"", b""], "twice"),
        ([b"a" * 32_768], [b""], "32768 bytes"),
        ([None], [b""], "null"),
        ([b"a"], [None], "null"),
        ([b"a", b"b"], [b""], "2 keys and 1 values"),
    ):
        with pytest.raises(Invalid, match=word):
            write_hfile(
                pa.array(keys, pa.binary()), pa.array(values, pa.binary()), schema_text="", base_file=True
            )
    with pytest.raises(Invalid, match="SNAPPY"):
        _written({}, compression="SNAPPY")
    assert _pairs(_open(_written({b"a" * 32_767: b"v"}))) == [(b"a" * 32_767, b"v")]


def test_keys_are_in_the_order_of_their_utf8_bytes() -> None:
    keys = ["z", "\uffee", "\U0001f600", "é", "a", ""]
    values = pa.array([b""] * 6, pa.binary())
    found, _ = _open(write_hfile(pa.array(keys), values, schema_text="", base_file=False)).rows()
    assert found.to_pylist() == sorted(key.encode() for key in keys)


@pytest.mark.parametrize("codec", ["LZO", "SNAPPY", "LZ4", "BZIP2", "ZSTD"])
def test_other_codecs_are_refused_by_name(codec: str) -> None:
    number = {"LZO": 0, "SNAPPY": 3, "LZ4": 4, "BZIP2": 5, "ZSTD": 6}[codec]
    data = _written({b"a": b"b"}, compression="NONE").replace(b"\x60\x02", bytes((0x60, number)))
    with pytest.raises(Unsupported, match=codec):
        _open(data)


def test_other_versions_are_refused() -> None:
    data = _written({b"a": b"b"})
    with pytest.raises(Unsupported, match="version 2"):
        _open(data[:-1] + b"\x02")
    assert _pairs(_open(data[:-4] + b"\x03\x00\x00\x03")) == [(b"a", b"b")]  # HBase's minor version


# ----------------------------------------------------------------------------- parts of a file


class _Counted:
    """A file of which ranges are read; counts bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.bytes_read = data, 0

    def open(self) -> HFile:
        return open_hfile(Ranges(len(self.data), self.read), path="f")

    def read(self, offset: int, length: int) -> bytes:
        self.bytes_read += length
        return self.data[offset : offset + length]


def test_a_lookup_reads_the_blocks_that_may_hold_the_key_and_no_others() -> None:
    pairs = _many(60_000)
    file = _Counted(_written(pairs, block_bytes=20_000, compression="NONE"))
    hfile = file.open()
    opened, file.bytes_read = file.bytes_read, 0
    assert opened <= 2 * 65_536
    key = sorted(pairs)[31_234]
    assert _listed(hfile.lookup(pa.array([key, b"key-x"]))) == [(key, pairs[key])]
    assert 0 < file.bytes_read <= 2 * 22_000
    file.bytes_read = 0
    assert _listed(hfile.lookup(pa.array([b"a"]))) == []
    assert file.bytes_read == 0
    found = _listed(hfile.prefixes(pa.array(["key-1234"])))
    assert found == sorted((k, v) for k, v in pairs.items() if k.startswith(b"key-1234"))
    assert file.bytes_read <= 3 * 22_000


def test_a_key_costs_a_block_of_64_kib_in_a_file_as_it_is_written_by_default() -> None:
    pairs = _many(20_000)  # 1.6 MB as entries
    file = _Counted(_written(pairs, compression="NONE"))
    hfile, key = file.open(), sorted(pairs)[5_000]
    file.bytes_read = 0
    assert _listed(hfile.lookup(pa.array([key]))) == [(key, pairs[key])]
    assert len(hfile.blocks) > 20 and 0 < file.bytes_read <= 66_000


def test_a_file_that_is_shorter_than_its_folder_says_is_damage() -> None:
    data = _written({b"a": b"b"})
    with pytest.raises(CorruptTable, match="are expected"):
        open_hfile(Ranges(len(data) + 5, lambda offset, length: data[offset : offset + length]), path="f")


def test_keys_that_java_sorted_by_utf16_are_found() -> None:
    keys = ["a", "\U0001f600", "\uffee", "\uffef"]  # Java: the surrogates of U+1F600 come first
    assert keys == sorted(keys, key=lambda key: key.encode("utf-16-be"))
    hfile = _open(_as_hbase([(key.encode(), b"v") for key in keys], levels=1))
    for key in keys:
        assert _listed(hfile.lookup(pa.array([key]))) == [(key.encode(), b"v")]
        assert _listed(hfile.prefixes(pa.array([key]))) == [(key.encode(), b"v")]


# --------------------------------------------------------------------- files as HBase writes them


def _as_hbase(pairs: list[tuple[bytes, bytes]], levels: int, checksum: int = layout.CRC32) -> bytes:
    """One entry per block; index keys that stand for no entry; leaf blocks between the data blocks."""
    parts: list[bytes] = []

    def append(magic: bytes, data: bytes) -> tuple[int, int]:
        offset, block = sum(map(len, parts)), _hbase_block(magic, data, checksum)
        parts.append(block)
        return offset, len(block)

    def node(magic: bytes, entries: list[bytes]) -> bytes:
        edges = [sum(map(len, entries[:i])) for i in range(len(entries) + 1)]
        return append(magic, struct.pack(f">{len(edges) + 1}i", len(entries), *edges) + b"".join(entries))

    def entry(place: tuple[int, int], first: bytes, real: bool) -> tuple[bytes, bytes]:
        kind = b"\x04" if real else b"\xff"
        key = struct.pack(">h", len(first)) + first + b"\x00\x7f" + b"\xff" * 7 + kind
        return struct.pack(">qi", *place), key

    listed, before = [], b""
    for row, value in pairs:
        place = append(layout.DATA, bytes(entries_of(pa.array([row]), pa.array([value]))))
        first = row if not before else _between(before, row)
        listed.append((*entry(place, first, first == row), first))
        before = row
    for depth in range(levels - 1):
        magic = layout.LEAF if depth == 0 else layout.INTERMEDIATE
        groups = [listed[i : i + 3] for i in range(0, len(listed), 3)]
        listed = [
            (*entry(node(magic, [head + key for head, key, _ in group]), group[0][2], True), group[0][2])
            for group in groups
        ]
    root = b"".join(head + layout.put_hadoop_vint(len(key)) + key for head, key, _ in listed)
    load_on_open, _ = append(layout.ROOT, root + (bytes(16) if levels > 1 else b""))
    append(layout.ROOT, b"")
    info = b"\x0a\x0c\x0a\x06schema\x12\x02{}"
    file_info, _ = append(layout.INFO, b"PBUF" + layout.put_varint(len(info)) + info)
    numbers = {1: file_info, 2: load_on_open, 5: len(listed), 6: 0, 7: len(pairs), 8: levels, 12: 1}
    message = b"".join(layout.put_field(number, value) for number, value in numbers.items())
    trailer = (layout.TRAILER + layout.put_varint(len(message)) + message).ljust(4092, b"\0")
    return b"".join(parts) + trailer + b"\x03\x00\x00\x03"


def _between(before: bytes, row: bytes) -> bytes:
    """The shortest key behind ``before`` that is not behind ``row``, as HBase's midpoint."""
    return next((row[:size] for size in range(1, len(row) + 1) if before < row[:size]), row)


def _hbase_block(magic: bytes, data: bytes, checksum: int) -> bytes:
    packed = zlib.compressobj(6, zlib.DEFLATED, 31)
    stored = packed.compress(data) + packed.flush()
    size, chunk = layout.HEADER.size + len(stored), 20
    count = -(-size // chunk)
    head = layout.HEADER.pack(magic, len(stored) + 4 * count, len(data), -1, checksum, chunk, size)
    whole = head + stored
    return whole + b"".join(struct.pack(">I", zlib.crc32(whole[i * chunk :][:chunk])) for i in range(count))


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_index_levels_and_made_up_index_keys_of_hbase_are_understood(levels: int) -> None:
    pairs = [(b"row-%04d-%s" % (i, b"x" * (i % 140)), b"%d" % i) for i in range(0, 90, 2)]
    hfile = _open(_as_hbase(pairs, levels))
    assert _pairs(hfile) == pairs
    for wanted in (pairs[0], pairs[17], pairs[-1]):
        assert _listed(hfile.lookup(pa.array([wanted[0], b"row-0017", b"row-0018"]))) == [wanted]
    start = b"row-004"
    assert _listed(hfile.prefixes(pa.array([start]))) == [p for p in pairs if p[0].startswith(start)]


def test_wrong_crc32_checksums_are_damage() -> None:
    data = bytearray(_as_hbase([(b"a", b"v"), (b"b", b"w")], 1))
    data[45] ^= 1
    with pytest.raises(CorruptTable, match="checksum is wrong"):
        _open(bytes(data)).rows()


# ------------------------------------------------------------------------------------- damage


def _rebuilt(data: bytes, entry_of) -> bytes:
    """The file (NONE) with a root index whose entries ``entry_of`` makes of their beginning and key."""
    hfile = _open(data)
    fields = dict(layout.read_fields(layout.read_delimited(memoryview(data)[-4088:])))
    root = b"".join(
        entry_of(struct.pack(">qi", b.offset, b.size), struct.pack(">h", len(b.first)) + b.first)
        for b in hfile.blocks
    )
    blocks = [layout.make_block(layout.ROOT, index, layout.NONE) for index in (root, b"")]
    head = data[: fields[2]] + b"".join(bytes(part) for block in blocks for part in block)
    numbers = {**fields, 1: len(head)}
    message = b"".join(
        layout.put_field(number, value if isinstance(value, int) else bytes(value))
        for number, value in numbers.items()
    )
    trailer = (layout.TRAILER + layout.put_varint(len(message)) + message).ljust(4092, b"\0")
    return head + data[fields[1] : -4096] + trailer + data[-4:]


@pytest.mark.parametrize(
    ("what", "entry_of"),
    [
        ("keys are not in order", lambda entry, key: entry + b"\x03\x00\x01" + bytes([255 - key[-1]])),
        ("after byte", lambda entry, key: struct.pack(">qi", 0, 62) + b"\x03\x00\x01a"),
        ("with a row of", lambda entry, key: entry + b"\x03\x00\x09a"),
        ("index key of", lambda entry, key: entry + b"\x7fa"),
        ("in 59 bytes", lambda entry, key: entry[:11] + bytes([entry[11] - 1]) + b"\x03" + key),
    ],
)
def test_an_index_that_cannot_be_is_damage(what: str, entry_of) -> None:
    data = _rebuilt(_written({b"a": b"v", b"b": b"w"}, compression="NONE", block_bytes=1), entry_of)
    with pytest.raises(CorruptTable, match=what):
        _open(data).rows()


def test_an_entry_of_another_kind_or_count_is_damage() -> None:
    data = _written({b"a": b"v", b"b": b"w"}, compression="NONE")
    for place, value, word in ((43 + 1 + 9, 8, "a type"), (43 + 9, 2, r"unknown to Hudi|do not fit")):
        damaged = bytearray(data)
        damaged[place] = value
        with pytest.raises(CorruptTable, match=word) as caught:
            _open(bytes(damaged)).rows()
        assert caught.value.path == "p/f.hfile" and caught.value.offset == 0
    fewer = data.replace(b"\x38\x02\x40\x01", b"\x38\x01\x40\x01")
    with pytest.raises(CorruptTable, match="its trailer says 1"):
        _open(fewer).rows()


def test_small_files_are_read_together_and_damaged_ones_one_by_one() -> None:
    entries = [{b"b": b"1", b"d": b"2"}, {b"a": b"3"}, {b"b": b"4", b"c": b"5" * 300}]
    codecs = ("GZ", "NONE", "GZ")
    data = [_written(some, compression=codec) for some, codec in zip(entries, codecs, strict=True)]
    keys, values = rows_of_all([_open(one) for one in data])
    found = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    assert found == [pair for some in entries for pair in sorted(some.items())]
    assert [entries_in(memoryview(one), path="f") for one in data] == [2, 1, 2]
    large = _written({b"a": bytes(65 * limits.KIB)})
    fewer = data[0].replace(b"\x38\x02\x40\x01", b"\x38\x01\x40\x01")
    assert fewer != data[0]
    for odd in (large, fewer, data[1].replace(b"\x7f\xff\xff", b"\x7f\xff\xfe")):
        assert rows_of_all([_open(data[0]), _open(odd), _open(data[2])]) is None
    for bad in (b"", b"PAR1" * 2000):
        with pytest.raises(CorruptTable, match="no HFile"):
            entries_in(memoryview(bad), path="f")


def test_a_block_that_claims_to_inflate_beyond_reason_is_refused_before_memory_is_taken() -> None:
    data = bytearray(_written({b"a": b"v"}))
    for size in (limits.HFILE_BLOCK_BYTES_MAX, limits.HFILE_BLOCK_BYTES_MAX + 1, -1):
        data[12:16] = struct.pack(">i", size)
        with pytest.raises(CorruptTable, match=r"claims to inflate|plain bytes"):
            _open(bytes(data)).rows()


def test_what_is_no_hfile_is_refused() -> None:
    for data in (b"", b"PAR1" * 2000, bytes(5000)):
        with pytest.raises(CorruptTable, match="no HFile"):
            _open(data)
    with pytest.raises(Unsupported, match="no HFile"):
        read_blocks(memoryview(b"".join(empty_group_block(T))), path="f")[0].hfile()
