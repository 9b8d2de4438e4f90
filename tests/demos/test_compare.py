"""Goal: the comparison finds every kind of difference, so that "all equal" means something.

Method: one table, changed in one way at a time.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from demos.compare import differences

ROWS = [
    {"time_hour": "a", "carrier": "UA", "flight": 1, "delay": 5},
    {"time_hour": "a", "carrier": "UA", "flight": 2, "delay": None},
    {"time_hour": "b", "carrier": "AA", "flight": 1, "delay": 0},
]
SCHEMA = pa.schema(
    {"time_hour": pa.string(), "carrier": pa.string(), "flight": pa.int32(), "delay": pa.int32()}
)


def _table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_equal_tables_have_no_difference_in_whatever_order_rows_come() -> None:
    assert differences(_table(ROWS[::-1]), _table(ROWS)) == []


def test_no_rows_are_equal_to_no_rows() -> None:
    none = pa.table([pa.chunked_array([], field.type) for field in SCHEMA], schema=SCHEMA)
    assert differences(none, none) == []
    (line,) = differences(none, _table(ROWS))
    assert line.startswith("0 rows, expected 3")


@pytest.mark.parametrize(("row", "value"), [(0, 6), (0, None), (1, 0)])
def test_a_changed_cell_is_named_with_its_key(row: int, value: int | None) -> None:
    changed = [{**r, "delay": value} if i == row else r for i, r in enumerate(ROWS)]
    (line,) = differences(_table(changed), _table(ROWS))
    assert line.startswith(f"delay of (a, UA, {row + 1}): {value}, expected")


def test_missing_doubled_and_foreign_rows_are_counted() -> None:
    foreign = {**ROWS[2], "flight": 9}
    (line,) = differences(_table([ROWS[0], ROWS[0], foreign]), _table(ROWS))
    assert "3 rows, expected 3: 1 doubled, 2 missing" in line
    assert "1 foreign" in line


def test_other_columns_are_a_difference() -> None:
    (line,) = differences(_table(ROWS).drop_columns(["delay"]), _table(ROWS))
    assert line.startswith("columns")
