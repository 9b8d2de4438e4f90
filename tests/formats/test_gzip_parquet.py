"""Goal: the Parquet files that are put together from pyarrow's pages are what pyarrow itself would write.

Method: tables with columns of every kind are written in several row groups; pyarrow reads them back, with the
checksums of all pages checked, and what their footers say is compared with the footer of a file that pyarrow
compressed itself. Thrift structs are read from real footers, and from damaged ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.formats import gzip_parquet
from mainstem.formats.gzip_parquet import GzipParquet
from mainstem.formats.parquet_columns import column_choice
from mainstem.formats.thrift_compact import LIST, STRUCT, Struct, read_struct, struct_bytes

UNIQUE = ("key", "seqno")


class Output:
    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def tell(self) -> int:
        return len(self.data)


def keyed(count: int, first: int = 0) -> pa.Table:
    random = np.random.default_rng(first)
    keys = pa.array([random.bytes(16).hex() for _ in range(count)])
    return pa.table({"seqno": [f"s{n}" for n in range(first, first + count)], "key": keys, "id": keys})


def every_kind(count: int) -> pa.Table:
    some = [n if n % 7 else None for n in range(count)]

    def column(kind: pa.DataType, make: Any) -> pa.Array:
        return pa.array([None if n is None else make(n) for n in some], kind)

    day = dt.date(1970, 1, 1)
    return keyed(count).append_column("flag", column(pa.bool_(), lambda n: n % 2 == 0)) \
        .append_column("int", column(pa.int32(), lambda n: n % 5)) \
        .append_column("double", pa.array(np.random.default_rng(0).random(count))) \
        .append_column("bytes", column(pa.binary(), lambda n: bytes(n % 50))) \
        .append_column("price", column(pa.decimal128(12, 2), lambda n: Decimal(n) / 4)) \
        .append_column("day", column(pa.date32(), lambda n: day + dt.timedelta(n))) \
        .append_column("at", column(pa.timestamp("us", "UTC"), lambda n: n * 10**9)) \
        .append_column("tags", column(pa.list_(pa.string()), lambda n: [f"t{n % 3}"] * (n % 4))) \
        .append_column("place", column(pa.struct({"x": pa.int64(), "of": pa.list_(pa.int32())}),
                                       lambda n: {"x": n, "of": [n, None]})) \
        .append_column("counts", column(pa.map_(pa.string(), pa.int64()), lambda n: [(f"k{n % 9}", n)])) \
        .append_column("none", pa.nulls(count, pa.string()))  # fmt: skip


def written(groups: Sequence[pa.Table], level: int = 3, *, for_all: bool = False) -> bytes:
    output = Output()
    choice = column_choice(groups[0], UNIQUE, level, for_all=for_all)
    file = GzipParquet(output, groups[0].schema, choice, level, for_all=for_all)
    for group in groups:
        if group.num_rows:
            file.write_table(group)
    file.close({"a note": "é"})
    return bytes(output.data)


def read(data: bytes) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()


def chunks(data: bytes, group: int = 0) -> dict[str, Any]:
    about = pq.read_metadata(pa.BufferReader(data)).row_group(group)
    return {about.column(n).path_in_schema: about.column(n) for n in range(about.num_columns)}


def stored(data: bytes, chunk: Any) -> bytes:
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    return data[begin : begin + chunk.total_compressed_size]


@pytest.mark.parametrize("run_bytes", [0, 100_000, 1 << 24])
def test_columns_of_every_kind_come_back_from_several_row_groups(
    run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gzip_parquet, "_RUN_BYTES", run_bytes)
    rows = every_kind(5000)
    data = written([rows.slice(0, 2000), rows.slice(2000, 2999), rows.slice(4999)])
    assert read(data).equals(rows)
    some = pq.ParquetFile(pa.BufferReader(data)).read_row_group(1, columns=["tags", "id"])
    assert some.select(["tags", "id"]).equals(rows.slice(2000, 2999).select(["tags", "id"]))
    about = pq.read_metadata(pa.BufferReader(data))
    assert [about.row_group(n).num_rows for n in range(3)] == [2000, 2999, 1]
    assert about.metadata == {b"a note": "é".encode()}


def test_the_footer_says_what_pyarrow_s_own_says() -> None:
    rows = every_kind(5000)
    made = pa.BufferOutputStream()
    choice = column_choice(rows, UNIQUE, 3)
    pq.write_table(
        rows, made, compression="gzip", version="2.6", store_schema=False, write_page_checksum=True,
        row_group_size=rows.num_rows, **choice.encodings,
    )  # fmt: skip
    theirs, data = made.getvalue().to_pybytes(), written([rows])
    ours_about, their_about = (pq.read_metadata(pa.BufferReader(d)) for d in (data, theirs))
    assert ours_about.schema.equals(their_about.schema)
    assert ours_about.num_rows == their_about.num_rows and ours_about.created_by == their_about.created_by
    assert ours_about.format_version == their_about.format_version
    end, sizes = 4, 0
    for (name, ours), other in zip(chunks(data).items(), chunks(theirs).values(), strict=True):
        assert (ours.compression, ours.encodings, ours.num_values) == (
            "GZIP", other.encodings, other.num_values,
        )  # fmt: skip
        assert (name, ours.statistics) == (other.path_in_schema, other.statistics)
        assert ours.has_dictionary_page == other.has_dictionary_page
        # page headers hold compressed sizes and checksums, whose bytes vary
        assert abs(ours.total_uncompressed_size - other.total_uncompressed_size) < 40
        assert (ours.dictionary_page_offset or ours.data_page_offset) == end
        end += ours.total_compressed_size
        sizes += ours.total_uncompressed_size
    assert ours_about.row_group(0).total_byte_size == sizes
    footer = int.from_bytes(data[-8:-4], "little")
    assert end == len(data) - 8 - footer


def test_texts_that_come_as_dictionaries_are_told_of_as_if_they_came_as_texts() -> None:
    rows = keyed(5000)
    some = [None if n % 11 == 0 else f"é{n % 300}" for n in range(5000)]
    units = [text and text.encode() for text in some]
    for name, values in {"text": some, "bytes": units, "none": [None] * 5000}.items():
        kind = pa.binary() if name == "bytes" else pa.string()
        parts = [pa.array(values[:9], kind), pa.array(values[9:], kind)]
        rows = rows.append_column(name, pa.chunked_array(parts))
    rows = rows.append_column("long", pa.array(["x" * 5000] * 5000))
    coded = rows
    for name in ("text", "bytes", "none", "long"):
        column = rows.column(name).dictionary_encode()
        coded = coded.set_column(rows.schema.get_field_index(name), name, column)
    data = written([coded, rows])
    assert read(data).to_pylist() == [*rows.to_pylist(), *rows.to_pylist()]
    for name, chunk in chunks(data).items():
        ours, other = chunk.statistics, chunks(data, 1)[name].statistics
        for told in ("has_min_max", "min", "max", "null_count", "num_values"):
            assert getattr(ours, told) == getattr(other, told), (name, told)


def test_a_column_that_repeats_the_key_is_copied_and_one_that_only_begins_so_is_not() -> None:
    alike = keyed(5000)
    other = alike.set_column(2, "id", pa.array([*alike.column("key").to_pylist()[:-1], "x"]))
    apart = alike.set_column(2, "id", pa.array([f"{n}" for n in range(5000)]))
    data = written([alike, other, apart, alike])
    assert read(data).equals(pa.concat_tables([alike, other, apart, alike]))
    for group, same in enumerate((True, False, False, True)):
        found = chunks(data, group)
        assert (stored(data, found["key"]) == stored(data, found["id"])) is same
        assert found["id"].data_page_offset > found["key"].data_page_offset
    assert chunks(data, 1)["id"].statistics.max == "x"


def test_a_column_of_another_kind_that_has_the_keys_values_is_written_by_itself() -> None:
    rows = keyed(3000)
    schema = pa.schema([*rows.schema][:2] + [pa.field("id", pa.string(), nullable=False)])
    data = written([rows.cast(schema)])
    assert read(data).schema.field("id").nullable is False
    assert read(data).equals(rows.cast(schema))
    assert stored(data, chunks(data)["key"]) != stored(data, chunks(data)["id"])


@pytest.mark.parametrize("isal", [True, False])
def test_keys_in_which_nothing_repeats_are_smaller_than_at_the_fastest_level_and_texts_about_as_asked(
    isal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isal:
        monkeypatch.setattr(gzip_parquet, "isal_zlib", None)
    random = np.random.default_rng(1)
    words = ["bucket", "file group", "instant", "log", "of", "table", "the", "timeline", "writes", "rows"]
    texts = pa.array([" ".join(random.choice(words, 12)) for _ in range(5000)])
    rows = keyed(5000).append_column("text", texts)
    usual, fastest, third = written([rows]), written([rows], 1, for_all=True), written([rows], for_all=True)
    assert read(usual).equals(rows) and read(third).equals(rows)

    def size(data: bytes, column: str) -> int:
        return int(chunks(data)[column].total_compressed_size)

    assert size(usual, "key") < 0.95 * size(fastest, "key")
    for column in ("seqno", "text"):
        assert size(usual, column) < 1.25 * size(third, column)
    assert len(written([rows], 9, for_all=True)) < len(third)


@pytest.mark.skipif(gzip_parquet.isal_zlib is None, reason="isal has no wheel for this machine")
def test_a_level_that_an_option_asks_for_is_zlib_s(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, usual = written([keyed(5000)], for_all=True), written([keyed(5000)])
    monkeypatch.setattr(gzip_parquet, "isal_zlib", None)
    assert asked == written([keyed(5000)], for_all=True) and usual != written([keyed(5000)])


def test_a_vector_that_gzip_does_not_shrink_stays_as_it_is() -> None:
    random = np.random.default_rng(3).standard_normal((500, 16)).astype("f4")
    rows = keyed(500).append_column("v", pa.array([row.tobytes() for row in random], pa.binary(64)))
    data = written([rows, rows])
    assert read(data).equals(pa.concat_tables([rows, rows]))
    assert [chunks(data, n)["v"].compression for n in (0, 1)] == ["UNCOMPRESSED"] * 2
    assert chunks(written([rows], for_all=True))["v"].compression == "GZIP"


def test_a_file_without_rows() -> None:
    rows = every_kind(0)
    data = written([rows])
    assert read(data).equals(rows) and pq.read_metadata(pa.BufferReader(data)).num_row_groups == 0


def test_a_changed_byte_of_a_page_is_found_by_its_checksum() -> None:
    data = bytearray(written([keyed(3000)]))
    chunk = chunks(bytes(data))["key"]
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    with pytest.raises(OSError, match="CRC"):
        read(bytes(data))


# -- Thrift ---------------------------------------------------------------------------------------------


def footer_bytes() -> bytes:
    data = written([every_kind(50)] * 20)
    size = int.from_bytes(data[-8:-4], "little")
    return data[-8 - size : -8]


def test_a_struct_is_written_as_it_was_read() -> None:
    footer = footer_bytes()
    found, end = read_struct(footer)
    assert end == len(footer) and struct_bytes(found) == footer


def test_a_struct_that_is_cut_off_is_refused() -> None:
    footer = footer_bytes()[:3000]
    for size in range(len(footer)):
        with pytest.raises(ValueError, match="Thrift"):
            read_struct(footer[:size])


def test_a_struct_that_is_nested_too_deep_or_claims_too_much_is_refused() -> None:
    deep: Struct = {}
    for _ in range(40):
        deep = {1: (STRUCT, deep)}
    with pytest.raises(ValueError, match="deep"):
        read_struct(struct_bytes(deep))
    with pytest.raises(ValueError, match="deep"):
        read_struct(bytes([0x19]) + bytes([0x19]) * 100)
    with pytest.raises(ValueError, match="cut off"):
        read_struct(bytes([0x19, 0xF0 | 5, 0xFF, 0xFF, 0xFF, 0x7F]))
    with pytest.raises(ValueError, match="ten bytes"):
        read_struct(bytes([0x16]) + bytes([0xFF]) * 20)
    with pytest.raises(ValueError, match="wire type"):
        read_struct(bytes([0x1B, 0, 0]))


def test_numbers_and_field_numbers_of_all_sizes_come_back() -> None:
    struct: Struct = {
        1: (6, -(2**63)), 2: (6, 2**63 - 1), 40: (5, -1), 41: (1, None), 42: (2, None), 7: (4, 300),
        8: (LIST, (5, list(range(-8, 9)))), 9: (7, b"12345678"), 10: (3, 7),
    }  # fmt: skip
    assert read_struct(struct_bytes(struct))[0] == struct
