"""Goal: images of change data are spelled as Jackson and Avro spell them in Java.

Method: one row of every kind of value, and a whole round through the standard json module.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest

from mainstem.readers.changes.json_images import avro_texts, row_texts

pytestmark = pytest.mark.versions
NESTED = pa.struct([("a", pa.int32()), ("b", pa.string())])
VALUES = [
    # column type, value, as Jackson writes it, as Avro's GenericData writes it
    (pa.bool_(), True, "true", "true"),
    (pa.int64(), -(2**63), "-9223372036854775808", "-9223372036854775808"),
    (pa.float32(), 0.1, "0.1", "0.1"),
    (pa.float64(), 1e7, "1.0E7", "1.0E7"),
    (pa.float64(), -0.0, "-0.0", "-0.0"),
    (pa.float64(), float("nan"), '"NaN"', '"NaN"'),
    (pa.float64(), float("-inf"), '"-Infinity"', '"-Infinity"'),
    (pa.string(), 'q"\\/\n\x01é☃\x7f\u2028', '"q\\"\\\\/\\n\\u0001é☃\x7f\u2028"',
     '"q\\"\\\\/\\n\\u0001é☃\\u007F\\u2028"'),
    (pa.date32(), dt.date(1969, 12, 31), "-1", "-1"),
    (pa.timestamp("us", "UTC"), dt.datetime(1970, 1, 1, 0, 0, 1, 5, dt.UTC), "1000005", "1000005"),
    (pa.timestamp("us"), dt.datetime(1970, 1, 2), "86400000000", "86400000000"),
    (pa.binary(), b"\x00\xff", '"AP8="', '"\\u0000ÿ"'),
    (pa.decimal128(5, 2), decimal.Decimal("-1.50"), '"-1.50"', "[-1, -1, 106]"),
    (pa.list_(pa.int32()), [1, None], "[1,null]", "[1, null]"),
    (pa.list_(pa.float32(), 2), [1.5, -2.0], "[1.5,-2.0]", "[0, 0, -64, 63, 0, 0, 0, -64]"),  # a vector
    (NESTED, {"a": 1, "b": None}, '{"a":1}', '{"a": 1, "b": null}'),
    (pa.map_(pa.string(), pa.int64()), [("k", 1), ("n", None)], '{"k":1}', '{"k": 1, "n": null}'),
    (pa.list_(NESTED), [{"a": None, "b": "x"}], '[{"b":"x"}]', '[{"a": null, "b": "x"}]'),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "jackson", "avro"), VALUES)
def test_every_kind_of_value_has_javas_spelling(kind, value, jackson, avro) -> None:
    column = pa.array([value, None], kind)
    assert row_texts(pa.table({"c": column})).to_pylist() == ['{"c":' + jackson + "}", "{}"]
    records = pa.StructArray.from_arrays([column], ["c"], mask=pa.array([False, True]))
    assert avro_texts(records).to_pylist() == ['{"c": ' + avro + "}", "null"]


def test_columns_keep_their_order_and_nulls_are_left_out_or_written() -> None:
    rows = pa.table(
        {
            "a": pa.array([1, None, None, 4], pa.int64()),
            "b": pa.array([None, "x", None, "y"]),
            'odd "name': pa.array([None, None, None, True]),
        }
    )
    assert row_texts(rows).to_pylist() == ['{"a":1}', '{"b":"x"}', "{}", '{"a":4,"b":"y","odd \\"name":true}']
    records = pa.StructArray.from_arrays([rows[n].chunk(0) for n in "ab"], ["a", "b"])
    assert avro_texts(records).to_pylist()[:2] == ['{"a": 1, "b": null}', '{"a": null, "b": "x"}']
    assert row_texts(rows.select([])).to_pylist() == ["{}"] * 4


def test_texts_of_any_strings_are_json_that_says_the_same() -> None:
    strings = [chr(n) for n in range(0x250)] + ["\u2000\u20ff\U0001f600", "plain", ""]
    for text, string in zip(row_texts(pa.table({"s": strings})).to_pylist(), strings, strict=True):
        assert json.loads(text) == {"s": string}
    records = pa.StructArray.from_arrays([pa.array(strings)], ["s"])
    for text, string in zip(avro_texts(records).to_pylist(), strings, strict=True):
        assert json.loads(text) == {"s": string}
