"""Goal: base files have the columns and the footer that Hudi's own writers leave, bloom filter included.

Method: for the base files inside the golden tables the footer is computed anew from their keys and
compared with Java's bytes; filters that grow are compared with digests of what Java's
``BloomFilterFactory`` made of the same keys; columns of every kind are written and read back.
"""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro, avro_to_arrow
from mainstem.formats.base_file import BaseFileFormat, encode_base_file, key_range, write_base_file
from mainstem.formats.bloom_filter import DYNAMIC, SIMPLE, BloomSize, bloom_text

GOLDEN = Path(__file__).parent.parent / "golden"
TABLES = ["all_types", "merge_event", "nbcc_two_writers", "keys_complex_two_level"]
BLOOM, LOW, HIGH = (
    b"org.apache.hudi.bloomfilter", b"hoodie_min_record_key", b"hoodie_max_record_key",
)  # fmt: skip


def _java_footers(table: str) -> list[tuple[pa.ChunkedArray, dict[bytes, bytes]]]:
    found = []
    with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
        for name in archive.namelist():
            if name.endswith(".parquet") and not name.startswith(".hoodie"):
                file = pq.ParquetFile(io.BytesIO(archive.read(name)))
                keys = file.read(columns=[META_FIELDS[2]]).column(0)
                found.append((keys, file.metadata.metadata))
    return found


@pytest.mark.parametrize("table", TABLES)
def test_the_footer_is_the_one_that_java_made_of_the_same_keys(table: str) -> None:
    footers = _java_footers(table)
    for keys, notes in footers:
        entries = struct.unpack(">i", base64.b64decode(notes[BLOOM])[13:17])[0]
        assert bloom_text(keys, BloomSize(entries)).encode() == notes[BLOOM]
        if len(keys):
            assert tuple(text.encode() for text in key_range(keys)) == (notes[LOW], notes[HIGH])
    assert sum(len(keys) for keys, _ in footers) > 0


def test_the_footer_says_that_old_dates_are_of_the_gregorian_calendar_as_java_s_does() -> None:
    java = [notes for _, notes in _java_footers("all_types")]
    rows = pa.table({META_FIELDS[2]: ["a"], "d": pa.array([-800_000], pa.date32())})
    schema = arrow_to_avro(pa.schema([("d", pa.date32())]), table_name="t", meta_fields=True)
    made = encode_base_file(rows, schema)
    notes = pq.ParquetFile(pa.BufferReader(made)).metadata.metadata
    key = b"org.apache.spark.version"
    assert notes[key] in {found[key] for found in java if key in found}
    assert notes[key] >= b"3.1.0" and b"org.apache.spark.legacyDateTime" not in notes


def _keys_of(count: int) -> pa.Array:
    return pa.array([f"kéy-{i}" if i % 7 else f"a😀{i:05d}" for i in range(count)], pa.string())


# kind, entries, most entries, number of keys -> MD5 of the text that Java 1.2.0's filter serialises to.
JAVA_DIGESTS = {
    "SIMPLE 50 100 0": "16c373bac87aba88cabecf445e2be038",
    "SIMPLE 50 100 50": "68fedfcc4b983d13d2793d6cd0bb5473",
    "SIMPLE 50 100 51": "09d7f683903509d2e06c2f8e0c6dab24",
    "SIMPLE 50 100 101": "ff522d5847d13699a283931457c70413",
    "SIMPLE 50 100 137": "f178169bfe4c4761097de813df4d2563",
    "SIMPLE 50 60 137": "f178169bfe4c4761097de813df4d2563",
    "SIMPLE 50 10 60": "0e9a72a4020b2580fc85cf0b6270c9c3",
    "SIMPLE 40 100 201": "0aa5677a3e1183cf2b9ab16ce32120fb",
    "DYNAMIC_V0 50 100 0": "68dce70cb67907c47868ec45c09219e1",
    "DYNAMIC_V0 50 100 50": "07c753dea5cd00c6ac6172a43319ab5f",
    "DYNAMIC_V0 50 100 51": "f7c47a9778a7b03d27282a70a3ef2903",
    "DYNAMIC_V0 50 100 101": "58ab56a8dbba30d537f2ff4921fa5ddf",
    "DYNAMIC_V0 50 100 137": "fc19e94b0668dac5211d43c306464215",
    "DYNAMIC_V0 50 60 137": "fc19e94b0668dac5211d43c306464215",
    "DYNAMIC_V0 50 10 60": "ce357ef9d6be8176b7e642d3c6c3133f",
    "DYNAMIC_V0 40 100 201": "974f655b4c6593acf4eddd2b1c479090",
}


@pytest.mark.parametrize("case", JAVA_DIGESTS)
def test_a_filter_grows_and_fills_up_as_in_java(case: str) -> None:
    kind, entries, most, count = case.split()
    text = bloom_text(_keys_of(int(count)), BloomSize(int(entries), 1e-9, kind, int(most)))
    assert hashlib.md5(text.encode()).hexdigest() == JAVA_DIGESTS[case]


def test_the_range_of_keys_is_in_the_order_of_javas_strings() -> None:
    # In UTF-8 the second is greater, in UTF-16 units (and so in Java) the first.
    assert key_range(pa.array(["\ufb01", "\U0001f600"])) == ("\U0001f600", "\ufb01")
    assert key_range(pa.array(["b", "a", "é"])) == ("a", "é")


ROWS = pa.table(
    {
        "id": ["a", "b", "c"],
        "price": pa.array([Decimal("1.50"), None, Decimal("-3.25")], pa.decimal128(10, 2)),
        "at": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
        "day": pa.array([1, 2, None], pa.date32()),
        "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
        "marks": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "place": pa.array([{"x": 1.5, "y": None}, None, {"x": None, "y": "n"}]),
        "raw": pa.array([b"\x00", b"", None], pa.binary()),
    }
)
TEXT = arrow_to_avro(ROWS.schema, table_name="t", meta_fields=True)


def _with_meta(rows: pa.Table) -> pa.Table:
    meta = {name: pa.array([f"{name}{i}" for i in range(rows.num_rows)]) for name in META_FIELDS}
    return pa.table([*meta.values(), *rows.columns], names=[*meta, *rows.column_names])


def test_all_columns_come_back_and_meta_columns_come_first() -> None:
    data = encode_base_file(_with_meta(ROWS), TEXT)
    file = pq.ParquetFile(pa.BufferReader(data))
    found = file.read()
    assert found.column_names == [*META_FIELDS, *ROWS.column_names]
    for name in ROWS.column_names:
        assert found.column(name).to_pylist() == ROWS.column(name).to_pylist()
    assert file.metadata.metadata[b"parquet.avro.schema"].decode() == TEXT
    assert file.metadata.metadata[b"hoodie_bloom_filter_type_code"] == b"DYNAMIC_V0"
    assert file.schema_arrow.remove_metadata().names == avro_to_arrow(TEXT).names
    kinds = {c.path: c.physical_type for c in map(file.schema.column, range(len(file.schema)))}
    assert (kinds["price"], kinds["at"]) == ("FIXED_LEN_BYTE_ARRAY", "INT64")
    assert "tags.list.element" in kinds
    assert file.metadata.row_group(0).column(0).compression == "GZIP"


def test_a_file_without_rows_has_a_schema_and_no_range_of_keys() -> None:
    file = pq.ParquetFile(pa.BufferReader(encode_base_file(_with_meta(ROWS).slice(0, 0), TEXT)))
    assert file.metadata.num_rows == 0
    assert LOW not in file.metadata.metadata
    assert file.schema_arrow.names[:5] == list(META_FIELDS)


def test_options_choose_codec_and_filter() -> None:
    how = BaseFileFormat.from_properties(
        {
            "hoodie.parquet.compression.codec": "ZSTD",
            "hoodie.bloom.index.filter.type": "simple",
            "hoodie.index.bloom.num_entries": "100",
        }
    )
    assert how.bloom == BloomSize(100, 1e-9, SIMPLE)
    file = pq.ParquetFile(pa.BufferReader(encode_base_file(_with_meta(ROWS), TEXT, how)))
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert b"hoodie_bloom_filter_type_code" not in file.metadata.metadata
    none = BaseFileFormat.from_properties({"hoodie.parquet.bloom.filter.enabled": "false"})
    notes = pq.read_metadata(pa.BufferReader(encode_base_file(_with_meta(ROWS), TEXT, none))).metadata
    assert BLOOM not in notes
    assert notes[LOW] == b"_hoodie_record_key0"


def _many(count: int) -> pa.Table:
    return _with_meta(pa.concat_tables([ROWS] * (count // ROWS.num_rows)))


def test_batches_are_gathered_to_row_groups_of_the_size_asked_for_and_large_ones_divided() -> None:
    rows = _many(3000)
    how = BaseFileFormat.from_properties({"hoodie.parquet.block.size": str(rows.nbytes // 4)})
    small = [rows.slice(at, 10) for at in range(0, rows.num_rows, 10)]
    for batches in ([rows], small):
        sink = _Sink()
        assert write_base_file(batches, TEXT, sink, how) == rows.num_rows
        file = pq.ParquetFile(pa.BufferReader(bytes(sink.data)))
        groups = [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)]
        assert 4 <= len(groups) <= 6 and min(groups[:-1]) > rows.num_rows // 6
        assert file.read().column("_hoodie_record_key").equals(rows.column("_hoodie_record_key"))
        assert file.metadata.metadata[BLOOM] == bloom_text(rows.column("_hoodie_record_key")).encode()
        assert file.metadata.metadata[HIGH].decode() == key_range(rows.column("_hoodie_record_key"))[1]


def test_the_gzip_level_trades_time_for_bytes() -> None:
    rng = np.random.default_rng(1)
    words = np.array([f"{word:x}" for word in rng.integers(0, 1 << 40, 300)])
    rows = _many(3000)
    texts = pa.array([" ".join(words[rng.integers(0, 300, 12)]) for _ in range(rows.num_rows)])
    at = rows.schema.get_field_index("id")
    rows = rows.set_column(at, "id", texts)
    sizes = []
    for level in ("1", "9"):
        how = BaseFileFormat.from_properties({"hoodie.mainstem.parquet.gzip.level": level})
        sizes.append(len(encode_base_file(rows, TEXT, how)))
    assert sizes[0] > sizes[1]


def test_no_dictionary_is_made_of_keys_and_of_columns_that_repeat_them() -> None:
    rows = _many(3000)
    keys = pa.array([f"key-{number:06}" for number in range(rows.num_rows)])
    rows = rows.set_column(2, "_hoodie_record_key", keys)
    rows = rows.set_column(rows.schema.get_field_index("id"), "id", keys)
    data = encode_base_file(rows, TEXT)
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    chunks = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    coded = {name for name, chunk in chunks.items() if chunk.has_dictionary_page}
    assert coded == set(chunks) - {"_hoodie_record_key", "_hoodie_commit_seqno", "id"}
    assert pq.read_table(pa.BufferReader(data)).column("id").to_pylist() == keys.to_pylist()


@pytest.mark.parametrize("some", [["c", "b", "c"], ["c", None, "b"], [None, None, None]])
def test_a_column_of_codes_stores_the_texts_that_its_rows_have(some: list[str | None]) -> None:
    texts = ["a", "b", "c", "d" * 1000]
    codes = pa.array([None if text is None else texts.index(text) for text in some], pa.int32())
    coded = pa.DictionaryArray.from_arrays(codes, pa.array(texts))
    rows = pa.table({META_FIELDS[2]: ["x", "y", "z"], "text": coded})
    schema = arrow_to_avro(pa.schema([("text", pa.string())]), table_name="t", meta_fields=True)
    made = encode_base_file(rows, schema, BaseFileFormat("gzip"))
    assert pq.read_table(pa.BufferReader(made)).column("text").to_pylist() == some
    about = pq.read_metadata(pa.BufferReader(made)).row_group(0)
    (chunk,) = (c for c in map(about.column, range(about.num_columns)) if c.path_in_schema == "text")
    there = sorted(filter(None, some))
    assert chunk.total_uncompressed_size < 200 and chunk.statistics.null_count == some.count(None)
    if there:
        assert (chunk.statistics.min, chunk.statistics.max) == (there[0], there[-1])
    else:
        assert not chunk.statistics.has_min_max


def test_random_keys_are_compressed_fast_unless_a_level_was_asked_for_and_other_keys_well() -> None:
    random = np.random.default_rng(0)
    scattered = pa.array([random.bytes(16).hex() for _ in range(3000)])
    visits = random.integers((5000, 1, 1), (10000, 13, 29), (3000, 3))
    spoken = pa.array([f"visit/{user:05}/2026-{month:02}-{day:02}" for user, month, day in visits])
    usual, best = BaseFileFormat(), BaseFileFormat(gzip_level=9)
    rows = _many(3000).set_column(2, "_hoodie_record_key", spoken)
    assert _key_bytes(rows, usual) < 1.1 * _key_bytes(rows, BaseFileFormat(gzip_level=3))
    assert _key_bytes(rows, best) < 1.1 * _key_bytes(rows, usual)
    rows = _many(3000).set_column(2, "_hoodie_record_key", scattered)
    for how in (BaseFileFormat(gzip_level=1), best):
        assert _key_bytes(rows, usual) < _key_bytes(rows, how)


def _key_bytes(rows: pa.Table, how: BaseFileFormat) -> int:
    group = pq.read_metadata(pa.BufferReader(encode_base_file(rows, TEXT, how))).row_group(0)
    return group.column(2).total_compressed_size


class _Sink:
    def __init__(self) -> None:
        self.data = bytearray()

    def append(self, buffers: list[bytes | memoryview]) -> None:
        for part in buffers:
            self.data += part


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.parquet.compression.codec", "rar"),
        ("hoodie.parquet.block.size", "12"),
        ("hoodie.mainstem.parquet.gzip.level", "0"),
        ("hoodie.parquet.bloom.filter.enabled", "perhaps"),
        ("hoodie.index.bloom.num_entries", "many"),
        ("hoodie.index.bloom.num_entries", "0"),
        ("hoodie.index.bloom.fpp", "1.5"),
        ("hoodie.bloom.index.filter.type", "ROUND"),
    ],
)
def test_options_that_mean_nothing_are_refused(key: str, value: str) -> None:
    with pytest.raises(Invalid):
        BaseFileFormat.from_properties({key: value})


def test_a_row_without_a_key_is_refused() -> None:
    rows = _with_meta(ROWS)
    keys = pa.array(["a", None, "c"])
    with pytest.raises(Invalid, match="1 rows without _hoodie_record_key"):
        encode_base_file(rows.set_column(2, META_FIELDS[2], keys), TEXT)


def test_a_column_that_the_schema_has_not_is_refused() -> None:
    with pytest.raises(Invalid, match="other"):
        encode_base_file(_with_meta(ROWS).append_column("other", pa.array([1, 2, 3])), TEXT)


def test_the_defaults_are_hudis() -> None:
    size = BloomSize()
    assert (size.kind, size.entries, size.entries_max) == (DYNAMIC, 60_000, 100_000)
    assert (size.bits, size.hashes) == (2_587_966, 30)
