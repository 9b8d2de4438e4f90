"""Goal: NaN, infinities, both zeros, long texts and what else is hostile in values or filters never changes
which rows a filtered read gives.

Method: small tables, each with one trap, read through what would fall into it; statistics as earlier versions
wrote them; then a few tables of the campaign ``tests.fuzz.filters`` (``make fuzz-filters`` makes more).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.filters.expression_tree import identity, names, shown
from mainstem.metadata.records import widening
from mainstem.readers.planning.query_schema import filter_columns
from tests.fuzz.filters.run import one_table

pytestmark = pytest.mark.versions
FAST = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("x", pa.float64()),
        ("text", pa.string()),
    ]
)
NAN = float("nan")
field = pc.field


def rows(values: dict[str, float | None], ts: int = 1, text: str = "1") -> pa.Table:
    count = len(values)
    return pa.table(
        [list(values), ["p"] * count, [ts] * count, list(values.values()), [text] * count], schema=SCHEMA
    )


def made(path: Path, **more: object) -> mainstem.Table:
    return mainstem.create_table(
        path / "t",
        SCHEMA,
        record_key="id",
        ordering="ts",
        partition_by="part",
        buckets=1,
        properties=FAST,
        **more,
    )


def found(table: mainstem.Table, condition: pc.Expression) -> list[str]:
    return sorted(table.scan(filter=condition).to_arrow()["id"].to_pylist())


# ----------------------------------------------------------------------------------- partition statistics


@pytest.mark.parametrize("compacted", [False, True])
def test_a_row_with_nan_takes_no_other_row_out_of_partition_statistics(tmp_path, compacted):
    table = made(tmp_path)
    table.upsert(rows({"a": 1.0}))
    table.create_index("partition_stats")
    table.upsert(rows({"b": 7.0, "c": NAN}))
    table.upsert(rows({"d": 3.0}))
    if compacted:
        table.run_services("metadata", if_due=False)
    assert table.validate_metadata().ok
    assert found(table, field("x") > 5) == ["b"]
    assert found(table, field("x") < 2) == ["a"]
    assert found(table, field("x").is_nan()) == ["c"]


def test_upper_bounds_that_earlier_versions_lost_to_nan_are_not_believed(tmp_path, monkeypatch):
    table = made(tmp_path)
    table.upsert(rows({"a": 1.0}))
    table.create_index("partition_stats")
    table.upsert(rows({"b": 7.0, "c": NAN}))
    table.upsert(rows({"d": 3.0}))
    with monkeypatch.context() as earlier:
        earlier.setattr(widening, "_sortable", lambda values: values)
        table.run_services("metadata", if_due=False)
    report = table.validate_metadata()
    assert not report.ok and "but values from 1.0 to nan" in str(report)
    assert found(table, field("x") > 5) == ["b"]
    table.reindex("partition_stats")
    assert table.validate_metadata().ok


def test_lower_bounds_of_partitions_and_both_of_files_still_leave_files_out(tmp_path):
    table = made(tmp_path)
    table.upsert(rows({"a": 1.0, "b": 2.0}))
    table.create_index("partition_stats")
    below, above = (table.scan(filter=c).explain() for c in (field("x") < 0.5, field("x") > 50))
    assert [cut.index for cut in below.cuts] == ["partition statistics"]
    assert [cut.index for cut in above.cuts] == ["column statistics"]


# ---------------------------------------------------------------------------------------- single traps


def test_a_comparison_of_a_comparison_is_true_of_nan_although_of_no_number(tmp_path):
    table = made(tmp_path)
    table.bulk_insert(rows({"a": 2.0, "b": NAN, "c": 5.0}))
    assert found(table, (field("x") > 1) == pc.scalar(False)) == ["b"]
    assert found(table, pc.scalar(False) >= (field("x") > 1)) == ["b"]


def test_a_row_that_was_replaced_fails_no_filter_that_cannot_be_evaluated_on_it(tmp_path):
    table = made(tmp_path)
    table.bulk_insert(pa.concat_tables([rows({"a": 1.0}, 2, "none"), rows({"b": 1.0}, 2, "7")]))
    table.upsert(rows({"a": 1.0}, 3, "9"))
    assert found(table, field("text").cast(pa.int32()) > 8) == ["a"]
    table.upsert(rows({"b": 1.0}, 1, "late"))  # and one that the base file's row beats
    assert found(table, field("text").cast(pa.int32()) > 6) == ["a", "b"]
    table.upsert(rows({"b": 1.0}, 4, "none"))
    with pytest.raises(pa.ArrowInvalid, match="none"):
        found(table, field("text").cast(pa.int32()) > 6)


LONG = ["x" + "é" * size for size in (60, 61, 700, 2001)] + ["😀" * 400, "a" + "\uffff" * 99]


@pytest.mark.parametrize("text", LONG, ids=len)
def test_filters_with_long_texts_beyond_ascii_are_read_by_every_way(tmp_path, text):
    table = made(tmp_path)
    table.upsert(rows({"a": 1.0, "b": NAN}, text=text))
    table.upsert(rows({"c": 1.0}))
    for condition in (field("text").isin([text, "é" * 300]), field("text") == text):
        assert found(table, condition) == ["a", "b"]
        assert found(table, condition & (field("x") > 0)) == ["a"]
        plan = table.scan(filter=condition)
        assert "text" in str(plan.explain()) and "text" in shown(condition)
        assert table.dataset().to_table(filter=condition).num_rows == 2
        assert table.scan(filter=condition).count_rows() == 2


@pytest.mark.parametrize("text", LONG[-3:], ids=len)
def test_duckdb_asks_for_lists_of_long_texts(tmp_path, text):
    duckdb = pytest.importorskip("duckdb")
    table = made(tmp_path)
    table.upsert(rows({"a": 1.0}, text=text))
    rows_of = table.dataset()
    assert rows_of.schema.names
    asked = f"select id from rows_of where text in ('{text}', '{'é' * 300}', 'b')"
    assert duckdb.sql(asked).fetchall() == [("a",)]


def test_columns_are_those_that_a_filter_names_and_not_those_in_its_texts():
    schema = pa.schema([(name, pa.string()) for name in ("a", "b", "s", "x")])
    assert filter_columns(schema, field("a") == "b, x and s") == ["a"]
    assert filter_columns(schema, field("s", "x") == "b") == ["s", "x"]  # on the way to a nested field
    assert filter_columns(schema, field(1) == "b") == list(schema.names)
    assert names(field(1) == "b") is None
    assert filter_columns(schema, pc.scalar(True)) == []


def test_two_filters_that_pyarrow_shows_alike_have_two_identities():
    many = [str(number) for number in range(1000)]
    one, other = (field("a").isin([*many, middle, *many]) for middle in ("x", "y"))
    assert str(one) == str(other) and identity(one) != identity(other)
    assert identity(one) == identity(field("a").isin([*many, "x", *many]))


# ------------------------------------------------------------------------------------------- at random


@pytest.mark.parametrize("seed", [3, 4])
def test_filters_on_hostile_values_give_what_the_filtered_whole_gives(seed):
    counts = one_table(seed, steps=7, filters=10)
    assert counts["filters"] > 20


def test_days_beyond_pythons_dates_are_counted(tmp_path):
    day = pa.array([-(2**31)], pa.int32()).cast(pa.date32())
    given = pa.table({"id": ["a"], "day": day})
    table = mainstem.create_table(tmp_path / "days", given.schema, record_key="id", buckets=1)
    table.bulk_insert(given)
    assert table.scan(filter=field("day") < pa.scalar(0, pa.int32()).cast(pa.date32())).count_rows() == 1
