"""Goal: `delete` and rows that are deletes work on a table of any ordering field, and it reads afterwards.

Found by random histories: `delete` writes no ordering value, and the type of that nothing was compared with
the field's. A table ordered by decimals of few digits could not be read any more, nor compacted.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem

#: type, a low and a high value
ORDERINGS = {
    "int": (pa.int32(), -5, 5),
    "long": (pa.int64(), -(2**63), 2**63 - 1),
    "float": (pa.float32(), -1.0, float("nan")),
    "double": (pa.float64(), float("-inf"), float("inf")),
    "bool": (pa.bool_(), False, True),
    "string": (pa.string(), "", "\U0010ffff"),
    "binary": (pa.binary(), b"", b"\xff"),
    "date": (pa.date32(), -(2**31), 2**31 - 1),
    "timestamp": (pa.timestamp("us", "UTC"), -1, 1),
    "millis": (pa.timestamp("ms", "UTC"), -1, 1),
    "local": (pa.timestamp("us"), -1, 1),
    "small decimal": (pa.decimal128(3, 3), Decimal("-0.999"), Decimal("0.999")),
    "decimal": (pa.decimal128(10, 2), Decimal("-99999999.99"), Decimal("99999999.99")),
    "large decimal": (pa.decimal128(38, 18), Decimal("-9.1"), Decimal("9.1")),
}


@pytest.mark.parametrize(
    ("name", "several"), [*((name, False) for name in ORDERINGS), ("decimal", True), ("binary", True)]
)
def test_deletes_take_rows_away_whatever_type_the_ordering_field_has(
    tmp_path: Path, name: str, several: bool
) -> None:
    kind, low, high = ORDERINGS[name]
    schema = pa.schema(
        [("id", pa.int64()), ("at", kind), ("also", pa.int64()), ("_hoodie_is_deleted", pa.bool_())]
    )
    table = mainstem.create_table(
        tmp_path, schema, record_key="id", ordering=["at", "also"] if several else "at", buckets=1,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False},
    )  # fmt: skip

    def rows(ids: list[int], at: object, deleted: bool = False) -> pa.Table:
        count = len(ids)
        given = {"id": ids, "at": pa.array([at] * count, kind), "also": [1] * count}
        return pa.table({**given, "_hoodie_is_deleted": [deleted] * count}, schema=schema)

    def ids() -> list[int]:
        return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())

    table.upsert(rows([1, 2, 3, 4], low))
    table.upsert(rows([2], high))
    table.delete(pa.table({"id": [1]}))
    assert ids() == [2, 3, 4]
    table.upsert(rows([2, 3], low, deleted=True))
    assert ids() == [2, 4]
    assert table.changes(deletes=True).to_arrow().num_rows == 4
    table.log_compact()
    assert ids() == [2, 4]
    table.upsert(rows([2], high, deleted=True))
    table.compact()
    assert ids() == [4]
