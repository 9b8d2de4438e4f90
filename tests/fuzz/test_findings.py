"""Goal: what fuzzing found stays fixed. One small test per finding, in words instead of bytes."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.log_file import BlockKind, Header, LogBlock
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.properties import TableConfig
from mainstem.merge.rules import column_defaults
from mainstem.readers.rows.base_rows import open_base
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.timeline.instant import parse_instant
from mainstem.writers.write_task import decode_result
from tests.fuzz.corpus import INSTANT, TEXT

_ARABIC = INSTANT.translate({ord("0") + i: chr(0x660 + i) for i in range(10)})


@pytest.mark.parametrize("time", [INSTANT, _ARABIC], ids=["latin", "arabic"])
@pytest.mark.parametrize("end", ["", "\n"], ids=["plain", "newline"])
def test_names_end_where_they_end_and_have_plain_digits(time: str, end: str) -> None:
    good = time == INSTANT and not end
    assert (parse_instant(f"{time}.deltacommit.requested{end}") is not None) == good
    assert (paths.parse_base_name(f"f-0_0-1-2_{time}.parquet{end}") is not None) == good
    assert paths.is_instant_time(time + end) == good
    assert (paths.parse_epoch(f"epoch-{time}{end}") is not None) == good
    assert (paths.parse_log_name(f".f-0_{INSTANT}.log.1_0-1-2{end}") is not None) == (not end)


def test_a_commit_in_flight_has_one_name() -> None:
    """Java writes and reads ``<requested>.inflight``; it does not know ``<requested>.commit.inflight``."""
    assert parse_instant(f"{INSTANT}.commit.inflight") is None
    assert parse_instant(f"{INSTANT}.inflight").file_name == f"{INSTANT}.inflight"


def test_a_table_whose_schema_was_cut_is_corrupt_for_every_merge_mode() -> None:
    with pytest.raises(CorruptTable, match="not JSON"):
        column_defaults(TEXT[:-20])


def test_rows_that_a_footer_counts_and_a_page_lacks_are_damage(tmp_path) -> None:
    """pyarrow gives as many rows as there are, and says nothing."""
    schema = pa.schema([pa.field("a", pa.string(), nullable=False)])
    three, two = tmp_path / "three.parquet", tmp_path / "two.parquet"
    for path, values in ((three, ["a", "b", "c"]), (two, ["abcdef", "b"])):  # as many bytes
        pq.write_table(
            pa.table([values], schema), path, compression="none", use_dictionary=False, write_statistics=False
        )
    storage, footer = LocalStorage(str(tmp_path)), pq.read_metadata(three)
    with open_base(storage, "two.parquet") as base:
        assert sum(part.num_rows for part in base.batches(["a"])) == 2
    with (
        pytest.raises(CorruptTable, match=r"a row group of 3 rows holds 2.*two\.parquet"),
        open_base(storage, "two.parquet", footer=footer) as base,
    ):
        list(base.batches(["a"]))


def test_a_version_that_only_looks_like_a_digit_is_no_version() -> None:
    config = TableConfig({"hoodie.table.name": "t", "hoodie.table.version": "²"})
    with pytest.raises((Invalid, Unsupported, CorruptTable)):
        config.check_readable("t")


@pytest.mark.parametrize("rows", ["Infinity", "1e999"])
def test_a_task_result_with_infinitely_many_rows_is_refused(rows: str) -> None:
    text = json.dumps({"instant": INSTANT, "rows": 0, "files": []}).replace(": 0", f": {rows}")
    with pytest.raises(Invalid, match="no task result"):
        decode_result(text.encode(), INSTANT)


def test_parquet_with_two_columns_of_one_name_is_corrupt_in_blocks_and_base_files(tmp_path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["k", "k"]), sink)
    content = sink.getvalue().to_pybytes()
    headers = {Header.INSTANT_TIME: INSTANT, Header.SCHEMA: TEXT}
    block = LogBlock(BlockKind.PARQUET_DATA, INSTANT, headers, memoryview(content), 0, "f")
    with pytest.raises(CorruptTable, match="one name"):
        block.table()
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(CorruptTable, match="one name"), open_base(LocalStorage(str(tmp_path)), "b.parquet"):
        pass


def test_maps_with_keys_of_plain_bytes_become_maps_with_keys_of_text() -> None:
    bare = pa.table({"m": pa.array([[(b"k", 1)], None], pa.map_(pa.binary(), pa.int32()))})
    wanted = pa.schema([("m", pa.map_(pa.string(), pa.int32()))])
    assert project_to(bare, wanted)["m"].to_pylist() == [[("k", 1)], None]


def test_a_base_file_that_does_not_say_when_its_rows_were_written_is_corrupt(tmp_path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = mainstem.create_table(tmp_path, schema, record_key="id", ordering="ts", buckets=1)
    table.upsert(pa.table({"id": ["a"], "ts": [1]}, schema=schema))
    table.compact()
    (base,) = tmp_path.glob("*.parquet")
    pq.write_table(pq.read_table(base).drop_columns(["_hoodie_commit_time"]), base)
    with pytest.raises(CorruptTable, match=f"without the column _hoodie_commit_time.*{base.name}"):
        table.changes().to_arrow()


def test_a_page_that_says_it_has_a_gigabyte_gets_no_memory(tmp_path) -> None:
    file = tmp_path / "b.parquet"
    rows = pa.table({"k": [f"k{i}" for i in range(500)]})
    pq.write_table(rows, file, use_dictionary=False, compression="none")
    data = bytearray(file.read_bytes())
    place = pq.read_metadata(file).row_group(0).column(0).data_page_offset
    assert data[place : place + 3] == b"\x15\x00\x15"  # a data page, twice its size
    gigabyte = b"\x80\x80\x80\x80\x08"
    header = b"\x15\x00\x15" + gigabyte + b"\x15" + gigabyte + data[place + 8 :]
    data[place : place + 600] = header[:600]
    file.write_bytes(data)
    with open_base(LocalStorage(str(tmp_path)), file.name) as base, pytest.raises(CorruptTable):
        list(base.batches(base.names))
    assert pa.default_memory_pool().max_memory() < 1 << 30
