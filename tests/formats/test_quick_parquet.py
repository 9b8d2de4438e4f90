"""Goal: a native log file holds what was written whichever encoding its columns get, tells statistics of
every column, and holds no texts of other files of its write.

Method: rows of every kind in files of one and of several row groups, read back by pyarrow.
"""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro
from mainstem.formats.base_file import BaseFileFormat, BaseFileWriter, Collected
from mainstem.formats.file_form import FileForm

ROWS = 5000
SCHEMA = pa.schema(
    [
        ("n", pa.int64()), ("x", pa.float64()), ("city", pa.string()), ("text", pa.string()),
        ("raw", pa.binary()), ("flag", pa.bool_()), ("tags", pa.list_(pa.string())), ("gone", pa.string()),
    ]
)  # fmt: skip
AVRO = arrow_to_avro(SCHEMA, table_name="t", meta_fields=True)
FILES = [f"0000000{number}-0000-0000-0000-000000000000-0" for number in range(9)]


def rows(count: int = ROWS, *, instant: str = "2" * 17, file: int = 0) -> pa.Table:
    """Meta columns as writers give them: those that repeat are dictionaries, of all files of a batch."""
    chance, letters = np.random.default_rng(3), random.Random(3)
    keys = [f"{letters.getrandbits(64):016x}é" for _ in range(count)]
    files = pa.DictionaryArray.from_arrays(pa.array(np.full(count, file, np.int32)), pa.array(FILES))
    sequence = pa.array([f"{instant}_{n}" for n in range(count)])
    meta = [pa.array([instant] * count).dictionary_encode(), sequence, pa.array(keys)]
    meta += [pa.array(["p"] * count).dictionary_encode(), files]
    user = [
        pa.array(np.arange(count)), pa.array(chance.random(count), mask=chance.random(count) < 0.1),
        pa.array(["rome", "oslo", None][n % 3] for n in range(count)), pa.array(keys),
        pa.array([key.encode() for key in keys]), pa.array([n % 7 == 0 for n in range(count)]),
        pa.array([[key, None] if n % 5 else None for n, key in enumerate(keys)], pa.list_(pa.string())),
        pa.nulls(count, pa.string()),
    ]  # fmt: skip
    return pa.table([*meta, *user], names=[*META_FIELDS, *SCHEMA.names])


def written(*groups: pa.Table, whole: bool = False, form: FileForm | None = None) -> pq.ParquetFile:
    made = Collected()
    file = BaseFileWriter(AVRO, made, BaseFileFormat.of_logs({}), whole=whole, form=form)
    for group in groups:
        file.write(group)
    file.close()
    return pq.ParquetFile(pa.BufferReader(made.stream.getvalue()))


def plain(table: pa.Table) -> list[dict[str, object]]:
    return table.to_pylist()


@pytest.mark.parametrize("count", (1, 40, ROWS))
def test_a_whole_file_holds_its_rows(count: int) -> None:
    assert plain(written(rows(count), whole=True).read()) == plain(rows(count))


def test_row_groups_that_repeat_other_values_than_the_first_hold_their_rows() -> None:
    groups = [rows(), rows(300, instant="3" * 17, file=4), rows(7).slice(2)]
    mixed = pa.concat_tables([rows(5, file=1), rows(5, file=2)]).combine_chunks()
    texts = mixed.set_column(4, META_FIELDS[4], mixed.column(4).cast(pa.string()))  # as log compactions give

    file = written(*groups, mixed, texts)

    assert file.metadata.num_row_groups == 5
    assert plain(file.read()) == [row for group in (*groups, mixed, texts) for row in plain(group)]


@pytest.mark.parametrize("count", (40, ROWS))
def test_every_column_with_values_has_statistics(count: int) -> None:
    """Java takes a column without them for one of nulls only, and its queries skip the file."""
    group = written(rows(count), whole=True).metadata.row_group(0)

    for column in map(group.column, range(group.num_columns)):
        if column.path_in_schema not in ("gone", "tags.list.element"):
            assert column.statistics is not None and column.statistics.has_min_max, column.path_in_schema


def test_a_file_stores_one_value_of_a_column_that_has_one() -> None:
    group = written(rows(file=5), whole=True).metadata.row_group(0)
    stored = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}

    assert stored[META_FIELDS[4]].total_uncompressed_size < 2 * len(FILES[0]) + 200
    assert stored[META_FIELDS[0]].has_dictionary_page and stored["city"].has_dictionary_page
    assert stored[META_FIELDS[2]].compression == "UNCOMPRESSED"
    assert not stored[META_FIELDS[2]].has_dictionary_page


def test_files_of_one_write_are_encoded_as_the_first_one_was() -> None:
    form = FileForm(AVRO)
    first = written(rows(), whole=True, form=form)
    other = rows(3000, file=7).set_column(7, "city", pa.array([str(n) for n in range(3000)]))

    second = written(other, whole=True, form=form)

    assert plain(second.read()) == plain(other)
    codecs = [[f.metadata.row_group(0).column(n).compression for n in range(13)] for f in (first, second)]
    assert codecs[0] == codecs[1]


@pytest.mark.parametrize("count", (40, ROWS))
def test_a_null_key_is_refused(count: int) -> None:
    without = rows(count).set_column(2, META_FIELDS[2], pa.nulls(count, pa.string()))

    with pytest.raises(Invalid, match=f"{count} rows without _hoodie_record_key"):
        written(without, whole=True)


def test_a_file_without_rows_has_its_columns() -> None:
    assert written().read().schema.names == [*META_FIELDS, *SCHEMA.names]
    assert written(whole=True).read().num_rows == 0
