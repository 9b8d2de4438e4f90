"""Goal: a compaction whose logs only update and insert keeps rows in their places, and what depends on keys
alone as it is: their column chunks, and the Bloom filter. No answer changes, and whoever reads the file sees
nothing of it.

Method: a table of one file group with values of many kinds, in several row groups, is updated and compacted
over and over; its base files are compared with each other, with the snapshot before, and with filters and
statistics made anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.formats.base_file import (
    BLOOM_KEY,
    MAX_KEY,
    MIN_KEY,
    SCHEMA_KEY,
    BaseFileFormat,
    encode_base_file,
)
from mainstem.formats.bloom_filter import StoredFilter, bloom_text
from tests.storage.steps import storage_at

KEY = "_hoodie_record_key"
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("name", pa.string()),
        ("tags", pa.list_(pa.string())), ("place", pa.struct({"x": pa.float64(), "y": pa.string()})),
        ("flag", pa.bool_()), ("day", pa.date32()),
    ]
)  # fmt: skip
COUNT = 9000
# Row groups of some 5,000 rows.
SMALL_GROUPS = {"hoodie.parquet.block.size": str(1 << 20)}
QUICK = {"hoodie.mainstem.fsync": False, "hoodie.mainstem.services": "off"}

pytestmark = pytest.mark.supports("Services", "compaction: planned and executed beside running writers")


def rows(numbers: np.ndarray, ts: int) -> pa.Table:
    """Rows of these keys; names differ by time, some values are null."""
    random = np.random.default_rng(ts)
    some = random.random(len(numbers)) < 0.1
    spread = random.integers(0, 700, len(numbers))
    return pa.table(
        {
            "id": [f"{n * 7919 % 100003:06}-key" for n in numbers.tolist()],
            "ts": np.full(len(numbers), ts),
            "city": pa.array([f"c{n % 5}" for n in spread.tolist()], mask=some),
            "name": [f"t{ts}-n{n}" for n in spread.tolist()],
            "tags": [[f"g{n % 3}"] * (n % 4) for n in spread.tolist()],
            "place": [{"x": n / 3, "y": f"y{n % 9}"} for n in spread.tolist()],
            "flag": pa.array(spread % 2 == 0, mask=some),
            "day": pa.array(spread, pa.int32()).cast(pa.date32()),
        },
        schema=SCHEMA,
    )


def make(path: Path, **properties: object) -> mainstem.Table:
    """A table of one file group with a base file of ``COUNT`` rows."""
    given = {**QUICK, **SMALL_GROUPS, **{name.replace("__", "."): v for name, v in properties.items()}}
    mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=1, properties=given)
    table = mainstem.open_table(path, given)
    table.upsert(rows(np.arange(COUNT), 10))
    table.compact()
    return table


class File:
    """The newest base file."""

    def __init__(self, table: mainstem.Table) -> None:
        (split,) = table.scan().splits()
        storage = storage_at(table.path)
        with storage.open_input(split.base_file) as file:
            self.data = file.read()
        self.about = pq.read_metadata(pa.BufferReader(self.data))
        self.said = {key.decode(): value.decode() for key, value in self.about.metadata.items()}
        self.rows = pq.ParquetFile(pa.BufferReader(self.data), page_checksum_verification=True).read()

    @property
    def keys(self) -> list[str]:
        return self.rows.column(KEY).to_pylist()

    def chunk(self, group: int, name: str) -> bytes:
        for number in range(self.about.num_columns):
            found = self.about.row_group(group).column(number)
            if found.path_in_schema == name:
                begin = found.dictionary_page_offset or found.data_page_offset
                return self.data[begin : begin + found.total_compressed_size]
        raise KeyError(name)

    def check_statistics(self) -> None:
        """The range and the nulls of flat columns are those of their values."""
        first = 0
        for number in range(self.about.num_row_groups):
            group = self.about.row_group(number)
            part = self.rows.slice(first, group.num_rows)
            first += group.num_rows
            for place in range(group.num_columns):
                found = group.column(place)
                if "." not in found.path_in_schema:
                    values = part.column(found.path_in_schema)
                    ends = pc.min_max(values).as_py()
                    told = found.statistics
                    expected = (ends["min"], ends["max"], values.null_count)
                    assert (told.min, told.max, told.null_count) == expected, found.path_in_schema

    def check_keys(self) -> None:
        keys = self.rows.column(KEY).combine_chunks()
        assert (self.said[MIN_KEY], self.said[MAX_KEY]) == (min(self.keys), max(self.keys))
        assert self.said[BLOOM_KEY] == bloom_text(keys)


def answers(table: mainstem.Table) -> list[dict]:
    return table.scan(columns=SCHEMA.names).to_arrow().sort_by("id").to_pylist()


def test_updated_rows_stay_in_their_places_and_the_chunks_of_keys_and_the_filter_as_they_are(
    tmp_path: Path,
) -> None:
    table = make(tmp_path / "t")
    before = File(table)
    assert before.about.num_row_groups > 1
    random = np.random.default_rng(1)
    for turn in range(3):
        newer, late = random.choice(COUNT, (2, COUNT // 3), replace=False)
        table.upsert(rows(newer, 20 + turn))
        table.upsert(rows(late, 5))
        expected = answers(table)
        table.compact()
        after = File(table)
        assert after.keys == before.keys and answers(table) == expected
        names = dict(zip(after.keys, after.rows.column("name").to_pylist(), strict=True))
        assert names[f"{newer[0] * 7919 % 100003:06}-key"].startswith(f"t{20 + turn}-")
        assert names[f"{late[0] * 7919 % 100003:06}-key"].split("-")[0] != "t5"
        for group in range(before.about.num_row_groups):
            for column in (KEY, "id"):
                large = before.about.row_group(group).num_rows >= 4096
                assert (before.chunk(group, column) == after.chunk(group, column)) or not large
        after.check_statistics()
        after.check_keys()
        assert len(set(after.rows.column("_hoodie_file_name").to_pylist())) == 1


def test_texts_that_no_row_has_any_more_leave_the_dictionaries(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    first = len(File(table).chunk(0, "name"))
    for turn in range(4):
        table.upsert(rows(np.arange(COUNT), 20 + turn))
        table.compact()
    assert len(File(table).chunk(0, "name")) < 1.3 * first


def test_texts_that_are_null_throughout_stay_so_and_others_become_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    texts = ["city", "name"]

    def nothing(ts: int, numbers: np.ndarray) -> pa.Table:
        some = rows(numbers, ts)
        for name in texts:
            at = some.schema.get_field_index(name)
            some = some.set_column(at, name, pa.nulls(len(numbers), pa.string()))
        return some

    for numbers in (np.arange(COUNT), np.arange(100), np.arange(COUNT - 50, COUNT + 50)):
        table.upsert(nothing(20, numbers))
        expected = answers(table)
        table.compact()
        assert answers(table) == expected
        after = File(table)
        assert all(after.rows.column(name).null_count == len(after.keys) for name in texts)
        after.check_statistics()
    table.upsert(rows(np.arange(5), 30))
    expected = answers(table)
    table.compact()
    assert answers(table) == expected and File(table).rows.column("city").null_count >= COUNT
    File(table).check_statistics()


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"hoodie__parquet__compression__codec": "zstd"}, id="zstd"),
        pytest.param({"hoodie__mainstem__parquet__gzip__level": 6}, id="zlib"),
        pytest.param({"hoodie__parquet__bloom__filter__enabled": "false"}, id="no filter"),
        pytest.param({"hoodie__parquet__block__size": str(100 << 20)}, id="one row group"),
    ],
)
def test_new_keys_come_behind_the_rows_that_are_there(tmp_path: Path, properties: dict) -> None:
    table = make(tmp_path / "t", **properties)
    before = File(table)
    table.upsert(rows(np.arange(COUNT - 50, COUNT + 70), 20))
    table.upsert(rows(np.arange(COUNT + 60, COUNT + 5000), 21))
    expected = answers(table)
    table.compact()
    after = File(table)
    assert after.keys[:COUNT] == before.keys and len(after.keys) == COUNT + 5000
    assert answers(table) == expected
    after.check_statistics()
    if BLOOM_KEY in after.said:
        after.check_keys()


def test_where_logs_delete_the_filter_forgets_and_rows_are_those_of_any_compaction(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(np.arange(100, 200), 20))
    table.delete(rows(np.arange(150, 160), 30).select(["id"]))
    expected = answers(table)
    table.compact()
    after = File(table)
    assert answers(table) == expected and len(expected) == COUNT - 10
    after.check_statistics()
    after.check_keys()


@pytest.mark.disk("replaces a base file by one with keys twice, as other engines may write it")
def test_a_base_file_with_a_key_twice_gets_one_row_of_it(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    before = File(table)
    doubled = pa.concat_tables([before.rows, before.rows.slice(0, 10)])
    (split,) = table.scan().splits()
    made = encode_base_file(doubled, before.said[SCHEMA_KEY], BaseFileFormat(group_bytes=1 << 20))
    (Path(table.path) / split.base_file).write_bytes(made)
    table.upsert(rows(np.arange(5, 20), 20))
    expected = answers(table)
    assert len(expected) == COUNT + 5
    table.compact()
    assert answers(table) == expected
    File(table).check_keys()


@pytest.mark.disk("replaces a base file by one with another filter")
def test_a_filter_that_lacks_keys_of_its_file_is_not_taken_over(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    before = File(table)
    others = bloom_text(pa.array([f"{n}" for n in range(COUNT)]))
    (split,) = table.scan().splits()
    changed = before.data.replace(before.said[BLOOM_KEY].encode(), others.encode())
    (Path(table.path) / split.base_file).write_bytes(changed)
    assert File(table).said[BLOOM_KEY] == others
    table.upsert(rows(np.arange(5, 20), 20))
    table.compact()
    held = StoredFilter(File(table).said[BLOOM_KEY].encode())
    assert held.may_contain(before.rows.column(KEY).combine_chunks()).all()


@pytest.mark.disk("replaces a base file by one with another footer")
def test_a_base_file_whose_footer_says_more_than_is_known_is_compacted(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    before = File(table)
    (split,) = table.scan().splits()
    size = int.from_bytes(before.data[-8:-4], "little")
    # A field that Parquet does not have yet, with an empty map, as any reader passes it by.
    footer = before.data[-8 - size : -9] + bytes([0xFB, 0, 0])
    changed = before.data[: -8 - size] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    (Path(table.path) / split.base_file).write_bytes(changed)
    table.upsert(rows(np.arange(5, 20), 20))
    expected = answers(table)
    table.compact()
    assert answers(table) == expected and File(table).keys == before.keys
    File(table).check_keys()
