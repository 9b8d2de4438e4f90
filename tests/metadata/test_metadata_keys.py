"""Goal: keys, file ids and the file group of a key are those of Java.

Method: values taken from Java's tables and from Java's own rules; random keys through a plain model of
``String.hashCode`` and of the escapes.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable
from mainstem.metadata import metadata_partitions
from mainstem.metadata.metadata_partitions import Content, Kind
from mainstem.metadata.records import row_keys
from mainstem.metadata.records.xxhash64 import xxhash64

ODD = ["", "a", "é", "\U0001f600", "\ue000x", "a$b", "a\\", "\\$", "\0", "\0\0", "x\ny", "k" * 70]


def java_hash(text: str) -> int:
    found = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        found = (31 * found + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return found - 2**32 if found >= 2**31 else found


def java_group(text: str, groups: int) -> int:
    """abs(abs(h) % n) with Java's abs of the smallest int and its remainder that truncates."""
    h = java_hash(text)
    h = h if h == -(2**31) else abs(h)
    return abs(h) % groups if h >= 0 else abs(-(abs(h) % groups))


def test_xxhash64_gives_the_published_values() -> None:
    assert xxhash64(b"") == 0xEF46DB3751D8E999
    assert xxhash64(b"abc") == 0x44BC2CF5AD770999
    assert xxhash64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


def test_statistics_keys_are_those_of_javas_tables() -> None:
    assert row_keys.name_hash("driver") == "AjpJ7N1gBZc="
    assert row_keys.partition_hash("city=san_francisco") == "8L2cgj6DtVM="
    column, partition, file = pa.array(["name"]), pa.array(["paris"]), pa.array(["f.parquet"])
    key = row_keys.column_stats_keys(column, partition, file)[0].as_py()
    assert len(key) == 12 + 12 + 24
    assert key.startswith("F5SYxeUa1U8=NBP0WK5na1Y=")
    assert row_keys.partition_stats_keys(column, partition)[0].as_py() == "F5SYxeUa1U8=NBP0WK5na1Y="
    assert row_keys.bloom_keys(partition, file)[0].as_py() == key[12:]
    assert row_keys.partition_hash("") == row_keys.name_hash(".")


def test_no_keys_make_no_keys() -> None:
    nothing = pa.array([], pa.string())
    assert len(row_keys.column_stats_keys(nothing, nothing, nothing)) == 0
    assert [len(part) for part in row_keys.split_secondary(nothing)] == [0, 0]
    assert len(row_keys.hashed_texts(nothing, row_keys.V2)) == 0


def test_secondary_keys_are_taken_apart_into_what_they_were_made_of() -> None:
    values = pa.array([v for v in [*ODD, None] for _ in ODD])
    record_keys = pa.array([k for _ in [*ODD, None] for k in ODD])
    stored = row_keys.secondary_keys(values, record_keys)
    found = row_keys.split_secondary(stored)
    assert (found[0].to_pylist(), found[1].to_pylist()) == (values.to_pylist(), record_keys.to_pylist())
    prefixes = row_keys.secondary_prefixes(values).to_pylist()
    assert all(key.startswith(prefix) for key, prefix in zip(stored.to_pylist(), prefixes, strict=True))
    assert row_keys.hashed_texts(stored, row_keys.V2).to_pylist() == prefixes
    assert row_keys.hashed_texts(stored, row_keys.V1).equals(stored)
    sliced = stored.slice(5, 20)
    assert row_keys.split_secondary(sliced)[1].to_pylist() == record_keys.to_pylist()[5:25]


def test_a_null_value_and_a_text_of_one_nul_have_different_keys() -> None:
    values, keys = pa.array([None, "\0"], pa.string()), pa.array(["k", "k"])
    null, text = row_keys.secondary_keys(values, keys).to_pylist()
    assert (null, text) == ("\0$k", "\\\0$k")


def test_a_secondary_key_without_separator_is_damage() -> None:
    with pytest.raises(CorruptTable, match="no '\\$'"):
        row_keys.split_secondary(pa.array(["a$b", "no\\$separator"]), path="f")


@pytest.mark.parametrize("groups", [1, 2, 7, 10, 4096])
def test_the_file_group_of_a_key_is_the_one_that_javas_hash_names(groups: int) -> None:
    draw = random.Random(groups)
    letters = ["a", "Z", "7", "é", "ß", "漢", "\U0001f600", "$", "\0"]
    texts = [
        *ODD,
        "polygenelubricants",
        *("".join(draw.choices(letters, k=draw.randrange(9))) for _ in range(300)),
    ]
    assert java_hash("polygenelubricants") == -(2**31)
    assert row_keys.file_groups(pa.array(texts), groups).tolist() == [java_group(t, groups) for t in texts]


def test_the_file_group_is_that_of_the_part_that_is_hashed_however_long_its_neighbours_are() -> None:
    draw = random.Random(1)
    letters = ["a", "Z", "7", "é", "漢", "\U0001f600", "$", "\\", "\0"]
    for count in (1, 300):
        values = ["".join(draw.choices(letters, k=draw.choice((0, 1, 30)))) for _ in range(count)]
        values += ["long" * 5_000, None, ""]
        stored = row_keys.secondary_keys(pa.array(values), pa.array([f"key{n}" for n in range(len(values))]))
        for some in (stored, stored.slice(1)):
            for version in (row_keys.V1, row_keys.V2):
                hashed = row_keys.hashed_texts(some, version).to_pylist()
                expected = [java_group(text, 10) for text in hashed]
                assert row_keys.file_groups(some, 10, version).tolist() == expected


def test_partitions_have_javas_kinds_contents_and_file_ids() -> None:
    assert metadata_partitions.kind_of("secondary_index_idx") == Kind.SECONDARY_INDEX
    assert metadata_partitions.kind_of("vector_index_a") is None
    assert metadata_partitions.content_of("expr_index_e") == Content.STATS
    assert metadata_partitions.content_of("expr_index_e", "bloom_filters") == Content.BLOOM
    assert metadata_partitions.file_id("column_stats", 1) == "col-stats-0001-0"
    assert metadata_partitions.file_id("secondary_index_rider_idx", 3) == "secondary-index-rider-idx-0003-0"
    assert metadata_partitions.group_index("secondary-index-rider-idx-0003-0") == 3
    assert metadata_partitions.group_index("files-0000") == 0
    assert metadata_partitions.group_index("files") is None


@pytest.mark.parametrize("path", ["a-b_c", "city=a-b", "y=1/m=%2F", "x", "é ", "a.b~c"])
def test_a_data_partition_comes_back_out_of_its_file_id(path: str) -> None:
    found = metadata_partitions.file_id("record_index", 12, path)
    assert metadata_partitions.is_partitioned_group(found)
    assert metadata_partitions.data_partition_of(found) == path
    assert metadata_partitions.group_index(found) == 12
    assert not metadata_partitions.is_partitioned_group(metadata_partitions.file_id("record_index", 12))


def test_javas_escape_of_a_data_partition() -> None:
    assert metadata_partitions.file_id("record_index", 0, "a-b_c") == "record-index-a%2Db%5Fc-0000-0"
    assert metadata_partitions.file_id("record_index", 0, "city=a-b") == "record-index-city%3Da%2Db-0000-0"
