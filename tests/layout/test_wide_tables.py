"""Goal: fitting, encoding and decoding rows takes time linear in the number of columns.

Method: the best of several runs with eight times as many columns must not take the time of a quadratic one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.formats.avro_columns import decode_records, encode_records
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.schema_evolution import declared_fields, needed_fields
from mainstem.layout.schema_fit import fit_batch

KINDS = (pa.int64(), pa.string(), pa.float64())


def _wide(columns: int) -> pa.Table:
    schema = pa.schema([(f"c{i}", KINDS[i % 3]) for i in range(columns)])
    values = {0: [1, 2000], 1: ["a", "bc"], 2: [0.5, None]}
    return pa.table([pa.array(values[i % 3], KINDS[i % 3]) for i in range(columns)], schema=schema)


def _decode(rows: pa.Table) -> pa.Table:
    text = arrow_to_avro(rows.schema, table_name="t", meta_fields=False)
    (content,) = encode_records(rows, text)
    return decode_records(content, rows.num_rows, text)


STEPS: dict[str, Callable[[pa.Table], object]] = {
    "needed": lambda rows: needed_fields(rows.schema, rows, fixed=(), fill=False),
    "declared": lambda rows: declared_fields(rows.schema, rows.schema, fixed=(), fill=False),
    "fit": lambda rows: fit_batch(rows, rows.schema),
    "fill": lambda rows: fit_batch(rows.select([0]), rows.schema, fill=rows.column_names),
    "project": lambda rows: project_to(rows.select(range(0, rows.num_columns, 2)), rows.schema),
    "encode and decode": _decode,
}


def _best(step: Callable[[pa.Table], object], columns: int) -> float:
    rows, taken = _wide(columns), []
    for _ in range(5):
        began = time.process_time()
        step(rows)
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.parametrize("step", STEPS)
def test_eight_times_as_many_columns_take_nowhere_near_64_times_as_long(step: str) -> None:
    assert _best(STEPS[step], 4000) < 24 * _best(STEPS[step], 500)
