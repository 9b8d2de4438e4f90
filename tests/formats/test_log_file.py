"""Goal: log files are byte for byte what Java writes, Java's are read whole, and damage is never
silent.

Method: every block of the golden tables' log files is decoded (fastavro as second opinion),
written again and compared with Java's bytes; the damaged golden logs in both modes; truncation at
every byte, flipped bits and hostile lengths; deletes of every wrapper type.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import struct
import zlib
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.formats.avro_rows import storage_type, zigzag
from mainstem.formats.avro_schema import arrow_to_avro, record_type
from mainstem.formats.delete_records import decode_deletes, encode_deletes
from mainstem.formats.log_file import (
    MAGIC,
    BlockKind,
    Header,
    LogBlock,
    data_block,
    data_blocks,
    delete_block,
    read_blocks,
    rollback_block,
)
from tests.formats.avro_cases import fastavro_rows
from tests.formats.golden_logs import log_files

TABLES = [
    "basic_mor",
    "nbcc_two_writers",
    "merge_event",
    "merge_multi_ordering",
    "merge_delete_marker",
    "all_types.logs",
    "schema_evolution",
    "flink_pending_compaction",
]
T = "20261120100408988"
TABLE = pa.table({"k": ["a", "b", "é"], "n": [1, None, -3], "d": [0.5, 1.5, None]})
TEXT = arrow_to_avro(TABLE.schema, table_name="t", meta_fields=True)


def _join(parts: list) -> bytes:
    return b"".join(parts)


def _blocks(data: bytes, damaged: str = "error") -> list[LogBlock]:
    return read_blocks(memoryview(data), path="p/f.log", damaged=damaged)


def _golden(table: str) -> list[tuple[bytes, LogBlock]]:
    """(bytes of the whole block, block) of all log files."""
    found = []
    for path, data in log_files(table):
        blocks = read_blocks(memoryview(data), path=path)
        ends = [block.offset for block in blocks[1:]] + [len(data)]
        found += [(data[b.offset : end], b) for b, end in zip(blocks, ends, strict=True)]
    assert found
    return found


# ------------------------------------------------------------------------------- Java's own blocks


@pytest.mark.parametrize("table", TABLES)
def test_data_blocks_of_java_decode_as_fastavro_decodes_them(table: str) -> None:
    for _, block in _golden(table):
        if block.kind == BlockKind.AVRO_DATA:
            content, count = block.records()
            rows = fastavro_rows(block.schema_text, bytes(content), count)
            found = block.table()
            for name, kind in record_type(block.schema_text).fields:
                if kind.kind in ("array", "map", "record"):
                    continue  # compared as bytes below
                ours = found[name].cast(storage_type(kind)).to_pylist()
                assert repr(ours) == repr([row[name] for row in rows]), (block.path, name)


@pytest.mark.parametrize("table", TABLES)
def test_data_blocks_of_java_are_written_again_byte_for_byte(table: str) -> None:
    for raw, block in _golden(table):
        if block.kind == BlockKind.AVRO_DATA:
            ours = _join(data_block(block.instant, block.schema_text, block.table()))
            assert bytes(_blocks(ours)[0].content) == bytes(block.content)
            if list(block.headers) == [0, 2]:  # Java's order of the two headers varies
                assert ours == raw


@pytest.mark.parametrize("table", ["basic_mor", "nbcc_two_writers", "merge_event"])
def test_deletes_without_ordering_value_are_written_as_java_does(table: str) -> None:
    seen = 0
    for raw, block in _golden(table):
        if block.kind == BlockKind.DELETE:
            found = block.deletes()
            if not all(found["ordering_is_default"].to_pylist()):
                continue
            seen += 1
            assert found["ordering"].null_count == found.num_rows
            (path,) = set(found["partition_path"].to_pylist())
            keys = found["record_key"].combine_chunks()
            ours = _join(delete_block(block.instant, block.schema_text, keys, path, None))
            assert bytes(_blocks(ours)[0].content) == bytes(block.content)
            if list(block.headers) == [0, 2]:
                assert ours == raw
    assert seen


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("merge_delete_marker", "int64"),
        ("merge_multi_ordering", "struct<0: int64, 1: int32>"),
    ],
)
def test_deletes_with_ordering_values_are_written_as_java_does(table: str, kind: str) -> None:
    seen = 0
    for _, block in _golden(table):
        if block.kind == BlockKind.DELETE:
            found = block.deletes()
            if any(found["ordering_is_default"].to_pylist()):
                continue
            seen += 1
            ordering = found["ordering"].combine_chunks()
            assert str(ordering.type) == kind
            values = ordering.flatten() if pa.types.is_struct(ordering.type) else [ordering]
            keys = found["record_key"].combine_chunks()
            path = found["partition_path"][0].as_py()
            ours = _join(delete_block(block.instant, block.schema_text, keys, path, values))
            assert bytes(_blocks(ours)[0].content) == bytes(block.content)
    assert seen


def test_parquet_blocks_of_java_are_read_in_the_schema_of_their_header() -> None:
    seen = 0
    for _, block in _golden("log_parquet.logs"):
        if block.kind == BlockKind.PARQUET_DATA:
            seen += 1
            found = block.table()
            assert found.num_rows
            assert found.column_names == [n for n, _ in record_type(block.schema_text).fields]
            assert set(found["_hoodie_commit_time"].to_pylist()) == {block.instant}
            assert block.table(["ts", "nowhere"]).equals(found.select(["ts"]))
            ours = _blocks(_join(data_block(block.instant, block.schema_text, found, block_format="parquet")))
            assert ours[0].table().equals(found)
    assert seen


# --------------------------------------------------------------------------------- damaged logs


@pytest.mark.parametrize(
    ("table", "skipped"),
    [
        ("corrupt_bad_size", 0),
        ("corrupt_first_cut10", 1),
        ("corrupt_garbage_tail", 1),
        ("corrupt_half_block", 1),
        ("corrupt_middle_corrupt_then_good", 1),
        ("corrupt_tail_cut10", 1),
    ],
)
def test_damaged_golden_logs_are_errors_with_their_place_or_are_skipped_as_in_java(
    table: str, skipped: int
) -> None:
    errors, gaps = [], 0
    for path, data in log_files(table):
        try:
            read_blocks(memoryview(data), path=path)
        except CorruptTable as error:
            errors.append(error)
            assert error.path == path
            assert 0 <= error.offset < len(data)
        blocks = read_blocks(memoryview(data), path=path, damaged="skip")
        gaps += sum(block.kind == BlockKind.CORRUPT for block in blocks)
        for block in blocks:
            if block.kind == BlockKind.AVRO_DATA:
                assert block.table().num_rows
    assert len(errors) == 1
    assert gaps == skipped


def test_a_good_block_behind_a_damaged_one_is_found_when_skipping() -> None:
    (data,) = [
        data
        for path, data in log_files("corrupt_middle_corrupt_then_good")
        if len(_blocks(data, "skip")) == 2
    ]
    gap, good = _blocks(data, "skip")
    assert (gap.kind, good.kind) == (BlockKind.CORRUPT, BlockKind.AVRO_DATA)
    assert gap.offset + len(MAGIC) + len(gap.content) == good.offset


def test_a_zero_byte_log_has_no_blocks() -> None:
    assert any(not data for _, data in log_files("corrupt_zero_log"))
    assert _blocks(b"") == []
    assert _blocks(b"", "skip") == []


def _two_blocks() -> bytes:
    keys = pa.array(["k1", "k2"])
    return _join(data_block(T, TEXT, TABLE)) + _join(delete_block(T, TEXT, keys, "p=1", None))


def test_a_file_cut_off_at_any_byte_is_an_error_and_skipping_never_raises() -> None:
    data = _two_blocks()
    whole = _blocks(data)
    for end in range(1, len(data)):
        if end == whole[1].offset:
            assert len(_blocks(data[:end])) == 1
            continue
        with pytest.raises(CorruptTable) as caught:
            _blocks(data[:end])
        assert caught.value.offset == (0 if end < whole[1].offset else whole[1].offset)
        left = _blocks(data[:end], "skip")
        good = [block for block in left if block.kind != BlockKind.CORRUPT]
        assert len(good) <= 1
        # Java takes fewer than six bytes behind the last block for a clean end.
        assert len(good) == (whole[1].offset < end < whole[1].offset + 6) or end > whole[1].offset


def test_garbage_behind_the_last_block_makes_java_drop_that_block_and_us_raise() -> None:
    data = _join(data_block(T, TEXT, TABLE)) + b"garbage"
    with pytest.raises(CorruptTable, match="no log block begins here") as caught:
        _blocks(data)
    assert caught.value.offset == len(data) - 7
    assert [block.kind for block in _blocks(data, "skip")] == [BlockKind.CORRUPT]


def test_a_boundary_without_magic_is_an_error_in_both_modes() -> None:
    for damaged in ("error", "skip"):
        with pytest.raises(CorruptTable, match="no log block begins here"):
            _blocks(b"x" * 100, damaged)


def test_no_flipped_bit_gives_anything_but_corrupt_unsupported_or_rows() -> None:
    data = _two_blocks()
    chance = random.Random(11)
    caught = 0
    for bit in chance.sample(range(8 * len(data)), 1200):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        for damaged in ("error", "skip"):
            try:
                _read_all(bytes(broken), damaged)
            except MainstemError as error:
                assert isinstance(error, CorruptTable | Unsupported)
                caught += 1
    assert caught > 500


def _read_all(data: bytes, damaged: str) -> None:
    for block in _blocks(data, damaged):
        if block.kind == BlockKind.DELETE:
            assert block.deletes().column_names[0] == "record_key"
        elif block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
            block.table().validate(full=True)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_spliced_files_give_corrupt_unsupported_or_rows(data: st.DataObject) -> None:
    content = bytearray(_two_blocks())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        extreme = st.sampled_from([b"\x7f\xff\xff\xff", b"\xff" * 8, b"\x80\0\0\0", MAGIC, b"\0" * 8])
        content[at : at + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=6) | extreme)
    for damaged in ("error", "skip"):
        try:
            _read_all(bytes(content), damaged)
        except MainstemError as error:
            assert isinstance(error, CorruptTable | Unsupported)


def _frame(kind: int, rest: bytes, *, version: int = 1, headers: int = 0) -> bytes:
    size = 12 + len(rest) + 8
    return MAGIC + struct.pack(">qiii", size, version, kind, headers) + rest + struct.pack(">q", size + 6)


@pytest.mark.parametrize(
    "data",
    [
        MAGIC,
        MAGIC + b"\x7f" + b"\xff" * 7,
        MAGIC + struct.pack(">q", -1) + b"\0" * 40,
        MAGIC + struct.pack(">q", 2**62) + b"\0" * 40,
        _frame(3, struct.pack(">qi", 0, 0), version=0),
        _frame(9, struct.pack(">qi", 0, 0)),
        _frame(2, struct.pack(">qi", 0, 0)),
        _frame(3, struct.pack(">qi", 2**62, 0)),
        _frame(3, struct.pack(">qi", -1, 0)),
        _frame(3, struct.pack(">qi", 0, 0)),
        _frame(3, struct.pack(">qi", 0, 1)),
        _frame(3, struct.pack(">iiqi", 0, 2**31 - 1, 0, 0), headers=1),
        _frame(3, struct.pack(">iiqi", 0, -1, 0, 0), headers=1),
        _frame(3, struct.pack(">qi", 0, 0), headers=2**31 - 1),
        _frame(3, struct.pack(">qi", 0, 0), headers=-1),
        _frame(3, struct.pack(">ii2sqi", 0, 2, b"\xff\xfe", 0, 0), headers=1),
        _frame(3, struct.pack(">qi", 0, 0) + b"more"),
    ],
    ids=lambda data: data[6:40].hex(),
)
def test_hostile_sizes_counts_and_kinds_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptTable):
        _blocks(data)


def _content(kind: int, content: bytes, *, schema: str | None = TEXT) -> LogBlock:
    headers = {Header.INSTANT_TIME: T} | ({Header.SCHEMA: schema} if schema else {})
    return LogBlock(BlockKind(kind), T, headers, memoryview(content), 0, "p")


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\0\3", struct.pack(">ii", 3, -1), struct.pack(">ii", 3, 2**31 - 1), b"\0" * 8],
    ids=bytes.hex,
)
def test_hostile_avro_contents_are_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptTable):
        _content(3, content).table()


def test_a_data_block_without_schema_is_corrupt_and_old_versions_are_unsupported() -> None:
    with pytest.raises(CorruptTable, match="schema header"):
        _content(3, struct.pack(">ii", 3, 0), schema=None).table()
    with pytest.raises(Unsupported, match="version 1"):
        _content(3, struct.pack(">ii", 1, 0)).table()
    with pytest.raises(Unsupported, match="HFILE"):
        _content(4, b"").table()
    with pytest.raises(Unsupported, match="DELETE"):
        _content(1, b"").table()
    with pytest.raises(Unsupported, match="AVRO"):
        _content(3, b"").deletes()


def test_damaged_parquet_blocks_are_corrupt() -> None:
    data = bytearray(bytes(_blocks(_join(data_block(T, TEXT, TABLE, block_format="parquet")))[0].content))
    for content in (b"", b"PAR1", b"PAR1" + b"\xff" * 20 + b"PAR1", bytes(data[:-9])):
        with pytest.raises(CorruptTable):
            _content(5, content).table()
    chance = random.Random(2)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            assert _content(5, bytes(broken)).table().column_names[:1] == ["_hoodie_commit_time"]
        except MainstemError as error:
            assert isinstance(error, CorruptTable | Unsupported)


def test_a_parquet_block_that_would_inflate_without_measure_is_corrupt() -> None:
    text = arrow_to_avro(pa.schema([("c", pa.string())]), table_name="t", meta_fields=False)
    bomb = pa.table({"c": pa.array(["x" * 1000] * 100_000)})
    content = bytes(_blocks(_join(data_block(T, text, bomb, block_format="parquet")))[0].content)
    assert len(content) < 50_000
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptTable, match="would become"):
        _content(5, content, schema=text).table()
    assert pa.total_allocated_bytes() - before < 8 << 20


# --------------------------------------------------------------------------------- what we write


def test_a_data_block_has_the_layout_of_hoodie_log_format() -> None:
    data = _join(data_block(T, TEXT, TABLE))
    size, version, kind, headers = struct.unpack_from(">qiii", data, 6)
    assert data[:6] == b"#HUDI#"
    assert size == len(data) - 14
    assert (version, kind, headers) == (1, 3, 2)
    assert data[26:51] == struct.pack(">ii", 0, 17) + T.encode()
    assert data[-12:] == struct.pack(">iq", 0, len(data) - 8)
    (block,) = _blocks(data)
    assert (block.kind, block.instant, block.offset) == (BlockKind.AVRO_DATA, T, 0)
    assert block.headers == {0: T, 2: TEXT}
    assert bytes(block.content[:8]) == struct.pack(">ii", 3, 3)
    assert not block.partial
    assert block.table(["k", "n", "d"]).equals(TABLE)


def test_many_blocks_in_one_file_are_read_in_order() -> None:
    parts = [
        data_block("1", TEXT, TABLE.slice(0, 1)),
        delete_block("2", TEXT, pa.array(["k"]), "", None),
        rollback_block("4", "1"),
        data_block("3", TEXT, TABLE, block_format="parquet"),
    ]
    data = b"".join(map(_join, parts))
    blocks = _blocks(data)
    assert [block.kind for block in blocks] == [3, 1, 0, 5]
    assert [block.instant for block in blocks] == ["1", "2", "4", "3"]
    assert blocks[2].headers == {0: "4", 1: "1", 3: "0"}
    assert len(blocks[2].content) == 0
    assert _blocks(data, "skip") == blocks
    assert blocks[3].table(["k", "n", "d"]).equals(TABLE)


@pytest.mark.supports("Writing", "log blocks as Avro or Parquet")
def test_parquet_blocks_have_the_headers_and_footer_keys_of_java() -> None:
    made = data_blocks(T, TEXT, TABLE, [0, 2, 2, 3], block_format="parquet")
    assert made[1] == []
    for parts, low, high in ((made[0], 0, 2), (made[2], 2, 3)):
        (block,) = _blocks(_join(parts))
        assert (block.kind, block.headers) == (BlockKind.PARQUET_DATA, {0: T, 2: TEXT})
        assert block.table(["k", "n", "d"]).equals(TABLE.slice(low, high - low))
        file = pq.ParquetFile(pa.BufferReader(bytes(block.content)))
        assert file.metadata.metadata == {
            b"parquet.avro.schema": TEXT.encode(),
            b"writer.model.name": b"avro",
        }
        assert file.metadata.row_group(0).column(0).compression == "GZIP"
    # Java's own block of the golden table has the same keys.
    java = next(b for _, b in _golden("log_parquet.logs") if b.kind == BlockKind.PARQUET_DATA)
    theirs = pq.ParquetFile(pa.BufferReader(bytes(java.content)))
    assert set(theirs.metadata.metadata) == set(file.metadata.metadata)


def test_further_headers_go_into_every_block() -> None:
    for block_format in ("avro", "parquet"):
        made = data_blocks(
            T, TEXT, TABLE, [0, 1, 3], block_format=block_format, extra={Header.IS_PARTIAL: "true"}
        )
        for parts in made:
            (block,) = _blocks(_join(parts))
            assert block.partial
            assert block.headers == {0: T, 2: TEXT, 7: "true"}
    with pytest.raises(Invalid, match="hfile"):
        data_block(T, TEXT, TABLE, block_format="hfile")


def test_large_parquet_blocks_hold_random_keys_in_few_bytes_and_a_repeated_key_once() -> None:
    keys = pa.array([hashlib.md5(b"%d" % n).hexdigest() for n in range(2500)])
    table = pa.table({"_hoodie_record_key": keys, "id": keys, "n": pa.array(range(2500), pa.int64())})
    text = arrow_to_avro(table.select(["id", "n"]).schema, table_name="t", meta_fields=True)
    made = data_blocks(T, text, table, [0, 1500, 1500, 1600, 2500], block_format="parquet")
    assert [bool(block) for block in made] == [True, False, True, True]
    blocks = [_blocks(_join(block))[0] for block in made if block]
    assert pa.concat_tables(block.table(table.column_names) for block in blocks).equals(table)
    for block, rows in zip(blocks, (1500, 100, 900), strict=True):
        about = pq.read_metadata(pa.BufferReader(block.content)).row_group(0)
        sizes = [about.column(n).total_compressed_size for n in (2, 5)]
        assert sizes[0] == sizes[1] and about.column(2).compression == "GZIP"
        plain = b"".join(b"\x20\0\0\0" + key.encode() for key in keys.to_pylist()[:rows])
        assert (sizes[0] < len(zlib.compress(plain, 6))) is (rows == 1500)


def test_a_parquet_block_with_columns_that_the_table_has_not_is_refused() -> None:
    with pytest.raises(Invalid, match="alien"):
        data_block(T, TEXT, TABLE.append_column("alien", pa.array([1, 2, 3])), block_format="parquet")
    strict = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})
    with pytest.raises(Invalid, match="'a' has a null"):
        data_block(T, strict, pa.table({"a": [1, None]}), block_format="parquet")


@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_blocks_of_a_batch_sorted_by_bucket_are_the_same_as_separate_ones(
    block_format: str,
) -> None:
    table = pa.concat_tables([TABLE] * 500)
    bounds = [0, 7, 7, 900, 1500]
    made = data_blocks(T, TEXT, table, bounds, block_format=block_format)
    assert made[1] == []
    for parts, low, high in zip(made, bounds[:-1], bounds[1:], strict=True):
        if high > low:
            part = table.slice(low, high - low)
            assert _join(parts) == _join(data_block(T, TEXT, part, block_format=block_format))


def test_a_block_of_two_gibibytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.limits.LOG_BLOCK_BYTES_MAX", 500)
    with pytest.raises(Invalid, match="smaller batches"):
        data_block(T, TEXT, TABLE)


# -------------------------------------------------------------------------------------- deletes

_VALUES = {
    1: pa.array([True, False]),
    2: pa.array([5, -7], pa.int32()),
    3: pa.array([0, 2**62]),
    4: pa.array([0.5, -1.0], pa.float32()),
    5: pa.array([0.5, -1.0]),
    6: pa.array([b"", b"\xff"]),
    7: pa.array(["", "é"]),
    8: pa.array([datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)]),
    9: pa.array([Decimal("-1.5"), Decimal("123456789012345.123456789012345")], pa.decimal128(30, 15)),
    11: pa.array([0, 1_700_000_000_000_001], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("branch", _VALUES)
@pytest.mark.parametrize("copies", [1, 100])
def test_every_ordering_type_goes_into_its_wrapper_and_comes_back(branch: int, copies: int) -> None:
    values = pa.concat_arrays([_VALUES[branch]] * copies)
    keys = pa.array([f"k{i}" for i in range(len(values))])
    data = encode_deletes(keys, "p=é", [values])
    assert data.startswith(zigzag(len(keys)) + b"\x02\x04k0\x02\x08p=\xc3\xa9" + zigzag(branch))
    assert data.endswith(b"\x00")
    found = decode_deletes(memoryview(data))
    assert found["ordering"].combine_chunks().equals(values)
    assert found["record_key"].combine_chunks().equals(keys)
    assert set(found["partition_path"].to_pylist()) == {"p=é"}
    assert not any(found["ordering_is_default"].to_pylist())


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (pa.array([1], pa.int8()), "int32"),
        (pa.array([1], pa.uint32()), "int64"),
        (pa.array([1], pa.decimal128(5, 2)), "decimal128(30, 15)"),
        (pa.array([1], pa.timestamp("ms", "UTC")), "timestamp[us, tz=UTC]"),
        (pa.array([1], pa.timestamp("us")), "timestamp[us, tz=UTC]"),
        (pa.array(["a"]).dictionary_encode(), "string"),
    ],
    ids=str,
)
def test_narrower_ordering_types_are_widened(values: pa.Array, stored: str) -> None:
    found = decode_deletes(memoryview(encode_deletes(pa.array(["k"]), "", [values])))
    assert str(found["ordering"].type) == stored
    assert found["ordering"].null_count == 0


def test_an_int_ordering_value_of_zero_is_the_default_and_a_long_one_is_not() -> None:
    keys = pa.array(["a", "b"])
    ints = decode_deletes(memoryview(encode_deletes(keys, "", [pa.array([0, 5], pa.int32())])))
    assert ints["ordering_is_default"].to_pylist() == [True, False]
    assert ints["ordering"].to_pylist() == [None, 5]
    longs = decode_deletes(memoryview(encode_deletes(keys, "", [pa.array([0, 5])])))
    assert longs["ordering_is_default"].to_pylist() == [False, False]


def test_defaults_and_null_among_ordering_values_are_read() -> None:
    entries = [b"\x02\x02a\x00\x04\x00", b"\x02\x02b\x02\x00\x06\x0a", b"\x02\x02c\x02\x02p\x00"]
    found = decode_deletes(memoryview(zigzag(3) + b"".join(entries) + b"\x00"))
    assert found["ordering"].to_pylist() == [None, 5, None]
    assert found["ordering"].type == pa.int64()
    assert found["ordering_is_default"].to_pylist() == [True, False, True]
    assert found["partition_path"].to_pylist() == [None, "", "p"]
    blocked = zigzag(-1) + zigzag(7) + entries[0] + zigzag(1) + entries[1] + b"\x00"
    assert decode_deletes(memoryview(blocked))["record_key"].to_pylist() == ["a", "b"]


def test_ordering_values_of_several_types_in_one_block_are_refused_by_name() -> None:
    data = zigzag(2) + b"\x02\x02a\x02\x00\x06\x0a" + b"\x02\x02b\x02\x00\x0e\x02x" + b"\x00"
    with pytest.raises(Unsupported, match="several types"):
        decode_deletes(memoryview(data))


def test_many_deletes_are_found_at_once_and_one_by_one_alike() -> None:
    keys = pa.array([f"id:{i * 7}" for i in range(70_000)])
    for path in ("", "city=chennai", "\x02"):
        for ordering in (
            None,
            [pa.array(np.arange(70_000) * 10**6)],
            [pa.array(np.arange(70_000) / 3)],
        ):
            found = decode_deletes(memoryview(encode_deletes(keys, path, ordering)))
            assert found["record_key"].combine_chunks().equals(keys)
            if ordering:
                assert found["ordering"].combine_chunks().equals(ordering[0])
    tricky = pa.array([f"k{i}\x02\x00\x04\x00" for i in range(200)])
    found = decode_deletes(memoryview(encode_deletes(tricky, "", None)))
    assert found["record_key"].combine_chunks().equals(tricky)


@pytest.mark.parametrize(
    ("keys", "ordering"),
    [
        (["a", None], None),
        (["a", "b"], [pa.array([1])]),
        (["a", "b"], [pa.array([1, None])]),
        (["a", "b"], [pa.array([[1], [2]])]),
        (["a", "b"], [pa.array([1, 2], pa.uint64())]),
        (["a", "b"], [pa.array([Decimal(10) ** 20] * 2, pa.decimal128(38, 0))]),
    ],
    ids=["null key", "too few values", "null value", "lists", "unsigned", "decimal above long"],
)
def test_deletes_that_cannot_be_written_are_refused(keys: list, ordering: list | None) -> None:
    with pytest.raises(Invalid):
        delete_block(T, TEXT, pa.array(keys), "p", ordering)


def test_no_deletes_at_all_are_an_empty_list() -> None:
    (block,) = _blocks(_join(delete_block(T, TEXT, pa.array([], pa.string()), "p", None)))
    found = block.deletes()
    assert found.num_rows == 0
    assert found.column_names == ["record_key", "partition_path", "ordering", "ordering_is_default"]


@pytest.mark.parametrize("ordering", [None, "long", "two"])
@pytest.mark.parametrize("count", [2, 80])
def test_damaged_deletes_are_corrupt_or_deletes(ordering: str | None, count: int) -> None:
    keys = pa.array([f"k{i}" for i in range(count)])
    longs = pa.array(range(count), pa.int64())
    values = {None: None, "long": [longs], "two": [longs, keys]}[ordering]
    content = bytes(_blocks(_join(delete_block(T, TEXT, keys, "p", values)))[0].content)
    chance = random.Random(count)
    cut = range(len(content)) if count == 2 else chance.sample(range(len(content)), 100)
    for end in cut:
        with pytest.raises(CorruptTable):
            _content(1, content[:end]).deletes()
    for bit in chance.sample(range(64, 8 * len(content)), 150):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        try:
            _content(1, bytes(broken)).deletes().validate(full=True)
        except MainstemError as error:
            assert isinstance(error, CorruptTable | Unsupported)
    for hostile in (zigzag(2**40), zigzag(-(2**40)) + zigzag(3)):
        data = struct.pack(">ii", 3, len(hostile) + 3) + hostile + b"\0\0\0"
        with pytest.raises(CorruptTable):
            _content(1, data).deletes()
