"""Goal: what is read out of a filter never says less rows pass than do, whatever the filter.

Method: random filters over random files; the files that a filter's predicate rules out by the files' true
ranges are filtered row by row and must give nothing. Trees are compared with what built them.
"""

from __future__ import annotations

import datetime
import decimal
import operator
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.filters.expression_tree import Call, Column, Literal, tree
from mainstem.filters.predicates import Ranges, Term, conjuncts, listed, may_match

pytestmark = pytest.mark.versions
field = pc.field
TYPES = {
    "whole": pa.int32(), "price": pa.float64(), "text": pa.string(), "day": pa.date32(),
    "amount": pa.decimal128(9, 2), "flag": pa.bool_(), "at": pa.timestamp("us", "UTC"),
}  # fmt: skip
SCHEMA = pa.schema(list(TYPES.items()))
UTC = datetime.UTC
VALUES = {
    "whole": st.integers(-3, 9),
    "price": st.sampled_from([float("nan"), -1.5, -0.0, 0.0, 2.0, 7.5, float("inf")]),
    "text": st.sampled_from(["", "a", "ab", "abc", "b", "é", "z\uffff", "😀", '"', "and"]),
    "day": st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 9)),
    "amount": st.decimals("-2", "9", places=2),
    "flag": st.booleans(),
    "at": st.datetimes(
        datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 3), timezones=st.just(UTC)
    ),
}
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


@st.composite
def comparisons(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(sorted(TYPES)))
    value = pa.scalar(draw(VALUES[name]), TYPES[name])
    return draw(st.sampled_from(COMPARISONS))(field(name), value)


@st.composite
def lists(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from(sorted(TYPES)))
    values = draw(st.lists(st.one_of(VALUES[name], st.none()), max_size=4))
    return field(name).isin(pa.array(values, TYPES[name]))


def filters() -> st.SearchStrategy[pc.Expression]:
    names = st.sampled_from(sorted(TYPES))
    single = st.one_of(
        comparisons(),
        lists(),
        names.map(lambda n: field(n).is_null()),
        names.map(lambda n: field(n).is_valid()),
        st.just(field("price").is_null(nan_is_null=True)),
        st.just(field("flag")),
        st.sampled_from(["a", "ab", "z\uffff", "é"]).map(lambda t: pc.starts_with(field("text"), t)),
        st.just(pc.utf8_upper(field("text")) == "AB"),
        st.just(field("whole") + field("whole") > 6),
        st.just(field("whole") > 2.5),
    )
    return st.recursive(
        single,
        lambda inner: st.one_of(
            inner.map(lambda e: ~e),
            st.tuples(inner, inner, st.sampled_from([None, True, False])).map(
                lambda e: pc.if_else(e[0], e[1], pa.scalar(e[2], pa.bool_()))
            ),
            st.tuples(inner, inner).map(lambda e: e[0] & e[1]),
            st.tuples(inner, inner).map(lambda e: e[0] | e[1]),
        ),
        max_leaves=5,
    )


def files() -> st.SearchStrategy[list[pa.Table]]:
    row = st.fixed_dictionaries({n: st.one_of(st.none(), VALUES[n]) for n in TYPES})
    table = st.lists(row, max_size=4).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))
    return st.lists(table, min_size=1, max_size=4)


def ranges_of(tables: list[pa.Table], name: str) -> Ranges:
    """True ranges; of floating point columns those of the numbers, as NaN has no place in one."""
    lows, highs, nulls, values = [], [], [], []
    for table in tables:
        column = table.column(name)
        nulls.append(column.null_count > 0)
        values.append(len(column) > column.null_count)
        held = [v for v in column.drop_null().to_pylist() if v == v]
        order = (lambda text: text.encode()) if name == "text" else None
        lows.append(min(held, key=order) if held else None)
        highs.append(max(held, key=order) if held else None)
    kind = TYPES[name]
    return Ranges(pa.array(lows, kind), pa.array(highs, kind), np.array(nulls), np.array(values))


@settings(max_examples=150, deadline=None)
@given(tables=files(), expression=filters())
def test_a_file_that_is_ruled_out_has_no_row_that_passes(tables: list[pa.Table], expression) -> None:
    known = {Term(name): ranges_of(tables, name) for name in TYPES}
    for conjunct in conjuncts(expression):
        kept = may_match(conjunct, known, len(tables))
        for table, read in zip(tables, kept, strict=True):
            assert read or ds.dataset(table).to_table(filter=expression).num_rows == 0


@pytest.mark.parametrize(
    "expression",
    [
        field("whole") == 99, field("whole") < -50, field("text") > "zzz😀", field("day").is_null(),
        field("whole").isin([50, 60]), pc.starts_with(field("text"), "q"), pa.scalar(99) < field("whole"),
        (field("whole") == 99) & (pc.utf8_upper(field("text")) == "A"), ~field("flag"), field("price") > 9.0,
        pc.if_else(field("text").is_valid(), field("text").isin(["y"]), pa.scalar(None, pa.bool_())),
        (field("whole") > 90) | field("text").isin(["y"]), field("amount") >= decimal.Decimal("55.5"),
    ],
    ids=str,
)  # fmt: skip
def test_simple_filters_rule_out_a_file_that_lies_elsewhere(expression: pc.Expression) -> None:
    rows = [{"whole": 5, "price": 2.0, "text": "b", "day": datetime.date(2026, 1, 2), "flag": True,
             "amount": decimal.Decimal("1.00"), "at": datetime.datetime(2026, 1, 1, tzinfo=UTC)}]  # fmt: skip
    tables = [pa.Table.from_pylist(rows, SCHEMA)]
    known = {Term(name): ranges_of(tables, name) for name in TYPES}
    assert not all(may_match(conjunct, known, 1).all() for conjunct in conjuncts(expression))


def test_an_unknown_range_keeps_the_file() -> None:
    nothing = Ranges(pa.nulls(1, pa.int32()), pa.nulls(1, pa.int32()), np.array([True]), np.array([True]))
    for expression in (field("whole") == 1, field("whole").isin([1]), field("whole").is_null()):
        (conjunct,) = conjuncts(expression)
        assert may_match(conjunct, {Term("whole"): nothing}, 1).all()
        assert may_match(conjunct, {}, 1).all()


def test_a_tree_is_what_the_expression_was_built_of() -> None:
    name = "a \"quoted\"\nname, with 'end': 'equal'"
    values = pa.array([f"k{n}" for n in range(5000)])
    found = tree((field(name) == 5) & field("b").isin(values))
    assert isinstance(found, Call)
    assert found.function == "and_kleene"
    equal, among = found.arguments
    assert isinstance(equal, Call)
    assert equal.arguments == (Column(name), Literal(pa.scalar(5)))
    assert isinstance(among, Call)
    assert among.options["value_set"].values.equals(values)


@pytest.mark.parametrize("expression", [field(0) == 1, field("a", "b") == 1], ids=["number", "nested"])
def test_fields_by_number_and_inside_of_columns_are_not_understood(expression: pc.Expression) -> None:
    assert tree(expression) is None
    assert conjuncts(expression) == []


def test_a_very_deep_filter_leaves_nothing_out() -> None:
    deep = reduce(operator.or_, [field("a") == n for n in range(3000)])
    assert conjuncts(deep) == []


def test_values_that_a_filter_lists_are_found() -> None:
    def values(expression: pc.Expression) -> list | None:
        (conjunct,) = conjuncts(expression)
        found = listed(conjunct)
        return None if found is None else sorted(found[1].to_pylist())

    assert values(field("text") == "x") == ["x"]
    assert values(field("text").isin(["x", "y"])) == ["x", "y"]
    assert values((field("text") == "x") | (field("text") == "y")) == ["x", "y"]
    assert values(field("text").isin(["x", None])) is None
    assert values((field("text") == "x") | (field("whole") == 1)) is None
    assert values(field("price") == 1.5) is None
    assert values(field("text") != "x") is None
