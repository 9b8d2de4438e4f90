"""Goal: a filter that is typed means what SQL means by it, nulls included, and lets indexes leave files out.

Method: filters on one small table of values, nulls and NaN, against the keys of the rows for which SQLite
says true (NaN aside, which it does not have), and against what is read out of the expression.
"""

from __future__ import annotations

import datetime
import random
import sqlite3
from contextlib import suppress

import pyarrow as pa
import pytest

from mainstem.errors import Invalid
from mainstem.filters.conditions import conditions
from mainstem.filters.predicates import Anything, conjuncts

UTC = datetime.UTC
ROWS = pa.table(
    {
        "key": pa.array(range(6)),
        "n": pa.array([1, 2, None, 4, 5, -1]),
        "price": pa.array([0.5, None, -0.0, 2.5, 10.0, float("nan")]),
        "city": pa.array(["oslo", "rome", None, "os_a", "it's", "a and b"]),
        "open": pa.array([True, False, None, True, None, False]),
        "day": pa.array([datetime.date(2026, 1, day) for day in range(1, 7)]),
        "at": pa.array([datetime.datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 7)]),
        "a b": pa.array([str(n) for n in range(6)]),
    }
)


def found(text: str) -> list[int]:
    return ROWS.filter(conditions(text, ROWS.schema, "--where")).column("key").to_pylist()


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("n in (1, 4)", [0, 3]),
        ("n NOT IN (1, 4)", [1, 4, 5]),
        ("city in (oslo, 'a and b', 'it''s')", [0, 4, 5]),
        ("price in (0, 2.5)", [2, 3]),  # minus zero is zero
        ("price not in (0.5)", [2, 3, 4, 5]),
        ("not (n in (1) or city = 'rome')", [3, 4, 5]),  # null in ... is no opposite of it
        ("n between 2 and 4 and city = rome", [1]),
        ("n not between 2 and 4", [0, 4, 5]),
        ("price between 0.5 and 3", [0, 3]),
        ("not price < 1", [3, 4, 5]),  # NaN is not below 1
        ("not price = 0.5", [2, 3, 4, 5]),
        ("city like 'os%'", [0, 3]),
        ("city like 'os\\_%'", [3]),
        ("city like '%o%' or n = 5", [0, 1, 3, 4]),
        ("city not like 'o%'", [1, 4, 5]),
        ("city like oslo", [0]),
        ("city = oslo or city = a and b", "no column 'b'"),
        ("(n = 1 or n = 2) and city = rome", [1]),
        ("n = 1 or n = 2 and city = oslo", [0]),
        ("not (n is null or city is not null)", []),
        ("not n is not null", [2]),
        ("open", [0, 3]),
        ("not open", [1, 5]),
        ("open and n = 4", [3]),
        ("open is not null and (not open)", [1, 5]),
        ("open = true", [0, 3]),
        ("N >= 4", [3, 4]),
        ("`a b` = 3", [3]),
        ("day = date '2026-01-02'", [1]),
        ("day >= 2026-01-05", [4, 5]),
        ("at < timestamp '2026-01-02 10:00:00Z'", [0, 1]),
        ("city = f(x) or n=1", [0]),
        ('city="it\'s"', [4]),
        ("not not not n > 0", [5]),
    ],
)
def test_a_condition_finds_the_rows_that_sql_finds(text: str, keys: list[int] | str) -> None:
    if isinstance(keys, str):
        with pytest.raises(Invalid, match=keys):
            found(text)
    else:
        assert found(text) == keys


def test_conditions_of_any_shape_agree_with_a_database() -> None:
    base = sqlite3.connect(":memory:")
    base.execute("create table t (key integer, n integer, city text)")
    rows = ROWS.select(["key", "n", "city"]).to_pylist()
    base.executemany("insert into t values (:key, :n, :city)", rows)
    base.execute("pragma case_sensitive_like = on")
    chosen = random.Random(20261122)

    def leaf() -> str:
        n, other = chosen.randint(-1, 5), chosen.randint(-1, 5)
        no = chosen.choice(["", "not "])
        return chosen.choice(
            [
                f"n {chosen.choice(['=', '!=', '<>', '<', '<=', '>', '>='])} {n}",
                f"n is {no}null", f"city is {no}null", f"n {no}in ({n}, {other})",
                f"n {no}between {n} and {other}", f"city {no}like '%o%'", f"city {no}like 'o_lo'",
                f"city {no}in ('oslo', 'it''s')",
            ]
        )  # fmt: skip

    def condition(depth: int) -> str:
        if not depth:
            return leaf()
        parts = [condition(depth - 1) for _ in range(chosen.randint(1, 3))]
        joined = f" {chosen.choice(['and', 'OR'])} ".join(parts)
        return f"{chosen.choice(['', 'not '])}({joined})"

    for _ in range(400):
        text = condition(chosen.randint(1, 3))
        expected = [key for (key,) in base.execute(f"select key from t where {text} order by key")]
        assert found(text) == expected, text


def test_long_and_deep_conditions_are_read_or_refused() -> None:
    assert found(" or ".join(f"n = {number}" for number in range(4, 1_004))) == [3, 4]
    for text in (" or ".join(["n = 1"] * 20_000), f"price in ({', '.join(['1.5'] * 20_000)})"):
        with pytest.raises(Invalid, match="at most 1000 conditions"):
            found(text)
    assert found(f"n in ({', '.join(map(str, range(4, 20_000)))})") == [3, 4]
    assert found("(" * 50 + "n = 1" + ")" * 50) == [0]
    with pytest.raises(Invalid, match="at most 50 brackets"):
        found("(" * 100_000 + "n = 1" + ")" * 100_000)
    assert found("not " * 10_001 + "n = 1") == [1, 3, 4, 5]


def test_damaged_conditions_are_read_or_refused() -> None:
    whole = "not (n in (1, 2) or city like 'o%' and `a b` is null) and price not between 1 and 2 or open"
    chosen = random.Random(7)
    for _ in range(2_000):
        letters = list(whole)
        for _ in range(chosen.randint(1, 6)):
            at = chosen.randrange(len(letters))
            there = slice(at, at + chosen.choice([0, 1, 1, 9]))
            letters[there] = chosen.choice(["", "(", ")", "'", " and ", "`", ","])
        with suppress(Invalid):
            conditions("".join(letters), ROWS.schema, "--where")


@pytest.mark.parametrize(
    "text",
    ["n in (1, 4)", "n between 2 and 4", "not n < 3", "city like 'os%'", "n = 1 or n = 3", "not (n is null)",
     "not (n > 3 or city != 'oslo')"],
)  # fmt: skip
def test_indexes_understand_what_is_typed(text: str) -> None:
    parts = conjuncts(conditions(text, ROWS.schema, "--where"))
    assert parts and not any(isinstance(part, Anything) for part in parts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at its end: expected COLUMN OP VALUE"),
        ("n", "at 'n': expected COLUMN OP VALUE"),
        ("n = 1 and", "at its end: expected COLUMN OP VALUE"),
        ("n =", "at its end: expected a value"),
        ("n = null", "'is null' finds nulls"),
        ("n in (1, null)", "'is null' finds nulls"),
        ("n in 1", r"at '1': expected \("),
        ("n in ()", r"at '\)': expected a value"),
        ("n in (1", r"at its end: expected \)"),
        ("n between 1", "at its end: expected 'and'"),
        ("n between 1 or 2", "at 'or 2': expected 'and'"),
        ("(n = 1", r"at its end: expected \)"),
        ("n = 1)", r"at '\)': expected 'and', 'or' or its end"),
        ("n is 3", "at '3': expected 'null'"),
        ("n not = 3", "at '= 3': expected 'in', 'between' or 'like'"),
        ("n like '1%'", "'like' is for texts, the column holds int64"),
        ("city = 'oslo' rome", "does not|expected 'and'"),
        ("lower(city) = 'oslo'", "no column 'lower'"),
        ("n = many", "'many' does not read as int64"),
        ("at = '2026-01-01'", "such as '2026-11-22 10:00:00Z'"),
        ("= 3", "at '= 3': expected COLUMN OP VALUE"),
        ("'a' = 3", "no column \"'a'\""),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as error:
        found(text)
    assert str(error.value).startswith(f"--where {text!r}")
