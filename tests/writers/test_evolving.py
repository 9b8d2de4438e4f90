"""Goal: columns can be added and widened without rows, beside writers that know the older schema.

Method: ``Table.evolve`` on small tables, with a transaction of another process open meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("ts", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return mainstem.create_table(str(tmp_path / "t"), SCHEMA, record_key="id", ordering="ts", buckets=2)


def test_columns_are_added_and_widened_beside_a_writer_that_began_before(table: mainstem.Table):
    older = mainstem.open_table(table.path).begin("upsert")
    older.write([{"id": "a", "n": 1, "ts": 1}])
    done = table.evolve(pa.schema([("tip", pa.float64()), ("n", pa.int64())]))
    assert (done.status, done.rows) == ("committed", 0)
    older.commit()
    table.upsert([{"id": "b", "n": 2**40, "ts": 1, "tip": 0.5}])
    wanted = [("a", 1, 1, None), ("b", 2**40, 1, 0.5)]
    for _ in range(2):
        found = mainstem.open_table(table.path).scan(columns=["id", "n", "ts", "tip"]).to_arrow()
        assert found.schema.field("n").type == pa.int64()
        assert sorted(tuple(row.values()) for row in found.to_pylist()) == wanted
        table.compact()
    assert table.evolve(pa.schema([("tip", pa.float64())])).status == "empty"


@pytest.mark.parametrize(
    "column, match",
    [
        (("n", pa.string()), "the column 'n' is int32 and cannot become string"),
        (("ts", pa.float64()), "the column 'ts' is int64 and cannot become double: .* of the ordering"),
        (("id", pa.int64()), "the column 'id' is string and cannot become int64"),
        (("N", pa.int64()), "the columns 'n' and 'N'"),
        (("_hoodie_file_name", pa.string()), "columns of Hudi's own"),
        (("_hoodie_x", pa.string()), "'_hoodie_x' of type string cannot be added"),
    ],
)
def test_what_a_column_cannot_become_is_named_and_nothing_is_committed(
    table: mainstem.Table, column: tuple[str, pa.DataType], match: str
):
    with pytest.raises(Invalid, match=match):
        table.evolve(pa.schema([column]))
    assert table.schema == SCHEMA and not table.timeline()
